"""Why there is no placement, in terms of what would have to change: the smallest sets of restrictions without which the
gang fits, the wider domains that would do, and how many of its pods fit as things are.

Each is found by asking the same placer again with something left out; nothing is guessed from sums. This costs up to a
few dozen searches, so it is for whoever asks why, never for a session. Invariant: a relaxation that is named fits, and
none of its parts alone does; `complete` says whether every question could be settled.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from itertools import combinations

import numpy as np

from scheduler.model.rules import Cap, Follow, Once, Repel, Spread
from scheduler.placement.between import domain_ids
from scheduler.placement.engine import place
from scheduler.placement.problem import (
    SLOTS,
    Apart,
    AtMost,
    AtMostDomains,
    AtMostGroups,
    Demand,
    Explanation,
    Infeasible,
    Minimum,
    Parts,
    Placement,
    PlacementProblem,
    Rule,
    Segments,
    Within,
)

TOPOLOGY, APART, MASKS, LIMITS, DEVICES = "topology", "apart", "masks", "limits", "devices"
DOMAINS, SEGMENTS, PARTS = "atMostDomains", "segments", "minimum parts"
REPEL, FOLLOW, SPREAD, VOLUMES = "ports/anti-affinity", "affinity", "spread", "volumes"
_OF_RULES = (
    (AtMostDomains, DOMAINS),
    (Segments, SEGMENTS),
    (Parts, PARTS),
    (Follow, FOLLOW),
    (Spread, SPREAD),
    (Cap | Once, VOLUMES),
    (AtMost, LIMITS),
)
_LARGEST_SET = 3


def explain(problem: PlacementProblem, infeasible: Infeasible) -> Explanation:
    """Return what would help, for a problem that `place` refused."""
    asked = replace(problem, maximize=False)
    settled = infeasible.proven
    found: list[tuple[str, ...]] = []
    names = restrictions(problem)
    for size in range(1, _LARGEST_SET + 1):
        for chosen in combinations(names, size):
            if any(set(smaller) <= set(chosen) for smaller in found):
                continue
            answer = place(without(asked, chosen))
            if isinstance(answer, Placement):
                found.append(chosen)
            else:
                settled &= answer.proven
    wider, all_settled = _wider(asked)
    placeable, most_settled = _placeable(problem, infeasible)
    more, more_settled = _more_domains(asked)
    fewer, fewer_settled = _fewer_parts(asked)
    return Explanation(
        relaxations=tuple(found),
        wider=wider,
        placeable=placeable,
        needed=sum(infeasible.lacks.needed),
        complete=settled and all_settled and most_settled and more_settled and fewer_settled,
        more=more,
        fewer=fewer,
    )


def restrictions(problem: PlacementProblem) -> tuple[str, ...]:
    """Return the names of what could be left out, those of rules first."""
    names = list(_topologies(problem).values())
    one_each = any(demand.max_per_node is not None for demand in problem.demands)
    if one_each or any(_keeps_apart(rule) for rule in problem.rules):
        names.append(APART)
    if any(isinstance(rule, Repel) and not rule.parts for rule in problem.rules):
        names.append(REPEL)
    names.extend(name for kind, name in _OF_RULES if any(isinstance(rule, kind) for rule in problem.rules))
    if any(demand.mask is not None and not demand.mask.all() for demand in problem.demands):
        names.append(MASKS)
    for row, resource in enumerate(problem.nodes.resources):
        if any(demand.requests[row] for demand in problem.demands):
            names.append(resource)
    if any(demand.devices is not None for demand in problem.demands):
        names.append(DEVICES)
    names.append(SLOTS)
    return tuple(names)


def _keeps_apart(rule: Rule) -> bool:
    return isinstance(rule, Apart | AtMostGroups) or (isinstance(rule, Repel) and rule.parts)


def _topologies(problem: PlacementProblem) -> dict[str, str]:
    """Return, for each level that is required, the name of its restriction: with the level when there are several."""
    levels = list(dict.fromkeys(rule.level for rule in problem.rules if isinstance(rule, Within) and rule.hard))
    return {level: TOPOLOGY if len(levels) == 1 else f"{TOPOLOGY} {level or 'node'}" for level in levels}


def without(problem: PlacementProblem, left_out: Collection[str]) -> PlacementProblem:
    """Return the problem with some restrictions left out."""
    nodes, topologies = problem.nodes, _topologies(problem)
    if SLOTS in left_out:
        everyone = min(sum(demand.count for demand in problem.demands), 2**31)
        nodes = replace(nodes, slots=np.full_like(nodes.slots, everyone))
    rules = tuple(
        rule
        for rule in problem.rules
        if not (isinstance(rule, Within) and rule.hard and topologies[rule.level] in left_out)
        and not (_keeps_apart(rule) and APART in left_out)
        and not (isinstance(rule, Repel) and not rule.parts and REPEL in left_out)
        and not (isinstance(rule, Once) and rule.resource in left_out)
        and not any(isinstance(rule, kind) and name in left_out for kind, name in _OF_RULES)
    )
    gone = [row for row, resource in enumerate(nodes.resources) if resource in left_out]
    return replace(
        problem,
        nodes=nodes,
        rules=rules,
        demands=tuple(_freed(demand, gone, left_out) for demand in problem.demands),
    )


def _freed(demand: Demand, gone: list[int], left_out: Collection[str]) -> Demand:
    requests = demand.requests
    if gone:
        requests = requests.copy()
        requests[gone] = 0
    return replace(
        demand,
        requests=requests,
        mask=None if MASKS in left_out else demand.mask,
        max_per_node=None if APART in left_out else demand.max_per_node,
        devices=None if DEVICES in left_out else demand.devices,
    )


def _wider(problem: PlacementProblem) -> tuple[tuple[tuple[str, str], ...], bool]:
    """Return the levels that would do in place of those asked for, the narrowest first."""
    width = {level: np.unique(ids[ids >= 0]).size for level, ids in problem.nodes.domains.items()}
    found, settled = [], True
    for level in dict.fromkeys(rule.level for rule in problem.rules if isinstance(rule, Within) and rule.hard):
        own = width[level] if level in width else int(domain_ids(problem, level).size)
        for other in sorted(width, key=lambda name: (-width[name], name)):
            if not 0 < width[other] < own:
                continue
            rules = tuple(
                Within(other, True, rule.demands)
                if isinstance(rule, Within) and rule.hard and rule.level == level
                else rule
                for rule in problem.rules
            )
            answer = place(replace(problem, rules=rules))
            if isinstance(answer, Placement):
                found.append((level, other))
            else:
                settled &= answer.proven
    return tuple(found), settled


def _with(problem: PlacementProblem, place_of: int, rule: Rule) -> PlacementProblem:
    return replace(problem, rules=(*problem.rules[:place_of], rule, *problem.rules[place_of + 1 :]))


def _more_domains(problem: PlacementProblem) -> tuple[tuple[tuple[str, int, int], ...], bool]:
    """Return, for limits of domains, the smallest one that would do, where one would."""
    found, settled = [], True
    for number, rule in enumerate(problem.rules):
        if not isinstance(rule, AtMostDomains):
            continue
        ids = domain_ids(problem, rule.level)
        most = np.unique(ids[ids >= 0]).size + len(rule.present)

        def fits(limit: int, place_of: int = number, rule: AtMostDomains = rule) -> bool:
            nonlocal settled
            answer = place(_with(problem, place_of, replace(rule, limit=limit)))
            settled &= isinstance(answer, Placement) or answer.proven
            return isinstance(answer, Placement)

        if fits(most):
            found.append((rule.level, rule.limit, _smallest(rule.limit + 1, most, fits)))
    return tuple(found), settled


def _fewer_parts(problem: PlacementProblem) -> tuple[tuple[tuple[int, int], ...], bool]:
    """Return, for numbers of parts, the largest one that would do."""
    found, settled = [], True
    for number, rule in enumerate(problem.rules):
        if not isinstance(rule, Parts) or not rule.least:
            continue

        def fits(fewer: int, place_of: int = number, rule: Parts = rule) -> bool:
            nonlocal settled
            answer = place(_with(problem, place_of, replace(rule, least=rule.least - fewer)))
            settled &= isinstance(answer, Placement) or answer.proven
            return isinstance(answer, Placement)

        if fits(rule.least):
            found.append((rule.least, rule.least - _smallest(1, rule.least, fits)))
    return tuple(found), settled


def _smallest(low: int, high: int, fits: Callable[[int], bool]) -> int:
    """Return the smallest number that fits, when the highest does."""
    while low < high:
        middle = (low + high) // 2
        if fits(middle):
            high = middle
        else:
            low = middle + 1
    return low


def _placeable(problem: PlacementProblem, infeasible: Infeasible) -> tuple[int | None, bool]:
    """Return how many of the pods that are needed fit together, and whether that is certain."""
    needed = sum(infeasible.lacks.needed)
    if infeasible.lacks.placeable is not None:
        return min(needed, infeasible.lacks.placeable), True
    demands = tuple(
        replace(demand, count=count, minimum=0)
        for demand, count in zip(problem.demands, infeasible.lacks.needed, strict=True)
    )
    rules = tuple(rule for rule in problem.rules if not isinstance(rule, Minimum | Parts))
    answer = place(replace(problem, demands=demands, rules=rules, maximize=True))
    if isinstance(answer, Placement):
        return answer.total, answer.optimal
    return None, answer.proven
