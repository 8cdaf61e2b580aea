"""Which rule about domains falls short, in which domain, and by how many pods: for whoever asks why a gang waits.

Decided here: rules are looked at one by one, those of all pods first, and the first that not even alone holds as many
pods as are needed is the one that is told. When each alone holds them, all together are looked at. The numbers are
those of the placer, asked for as many pods as possible, so pods that fit do fit together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from scheduler.placement.between import domain_ids
from scheduler.placement.engine import place
from scheduler.placement.instance import build, domain_name
from scheduler.placement.problem import (
    NODE,
    AtMostDomains,
    Budget,
    Infeasible,
    Minimum,
    Parts,
    Placement,
    PlacementProblem,
    Rule,
    Segments,
    Within,
    all_demands,
)

DomainRule = Within | AtMostDomains | Segments
_BUDGET = Budget(deterministic_time=0.2, wall_limit=2.0, max_domains=16)


@dataclass(frozen=True, slots=True)
class Shortfall:
    """rule: its number in the problem. domain: the one that takes the most pods ("": none takes any), of `looked`.

    needed, fits: for each demand that the rule is about, the pods that are needed, and those that fit together.
    unlabelled: nodes without the label that could host one of them. exact: no more fit, and that is proven.
    """

    rule: int
    level: str
    domain: str
    demands: tuple[int, ...]
    needed: tuple[int, ...]
    fits: tuple[int, ...]
    looked: int
    unlabelled: int
    exact: bool

    @property
    def missing(self) -> int:
        """How many pods find no place."""
        return sum(self.needed) - sum(self.fits)


def shortfall(problem: PlacementProblem, infeasible: Infeasible) -> Shortfall | None:
    """Return what falls short for a problem that `place` refused; None when it is no rule about domains."""
    rules = [
        number
        for number, rule in enumerate(problem.rules)
        if isinstance(rule, AtMostDomains | Segments) or (isinstance(rule, Within) and rule.hard)
    ]
    rules.sort(key=lambda number: (-len(all_demands(problem, _rule(problem, number).demands)), number))
    if not rules or _placed(problem, infeasible, [], all_demands(problem, None)) is None:
        return None
    for number in rules:
        found = _short(problem, infeasible, number, [number])
        if found is not None:
            return found
    return _short(problem, infeasible, rules[0], rules)


def _rule(problem: PlacementProblem, number: int) -> DomainRule:
    rule = problem.rules[number]
    assert isinstance(rule, DomainRule)
    return rule


def _placed(
    problem: PlacementProblem, infeasible: Infeasible, kept: Sequence[int], demands: Sequence[int]
) -> Placement | None:
    """Return as many pods of these demands as fit under some of the rules about domains; None: not even without them
    there is room for all."""
    rules: list[Rule] = []
    for number, rule in enumerate(problem.rules):
        about = isinstance(rule, DomainRule)
        if (about and number not in kept) or isinstance(rule, Minimum | Parts):
            continue
        rules.append(rule)
    counts = [infeasible.needed[d] if d in demands else 0 for d in range(len(problem.demands))]
    asked = tuple(replace(d, count=n, minimum=0) for d, n in zip(problem.demands, counts, strict=True))
    answer = place(replace(problem, demands=asked, rules=tuple(rules), maximize=True, budget=_BUDGET))
    if isinstance(answer, Infeasible) or (not kept and answer.total < sum(counts)):
        return None
    return answer


def _short(problem: PlacementProblem, infeasible: Infeasible, number: int, kept: Sequence[int]) -> Shortfall | None:
    rule = _rule(problem, number)
    demands = all_demands(problem, rule.demands)
    together = demands if len(kept) == 1 else all_demands(problem, None)
    placed = _placed(problem, infeasible, kept, together)
    needed = tuple(infeasible.needed[d] for d in demands)
    if placed is None or placed.total >= sum(infeasible.needed[d] for d in together):
        return None
    ids = domain_ids(problem, rule.level)
    pods: dict[int, int] = {}
    for demand in demands:
        for node, count in placed.counts[demand]:
            pods[node] = pods.get(node, 0) + count
    held: dict[int, int] = {}
    first: dict[int, int] = {}
    for node, count in sorted(pods.items()):
        held[int(ids[node])] = held.get(int(ids[node]), 0) + count
        first.setdefault(int(ids[node]), node)
    best = max(held, key=lambda domain: (held[domain], -domain), default=-1)
    name = "" if best < 0 else domain_name(problem, rule.level, first[best])
    return Shortfall(
        rule=number,
        level=rule.level,
        domain=name,
        demands=demands,
        needed=needed,
        fits=tuple(placed.placed(d) for d in demands),
        looked=int(np.unique(ids[ids >= 0]).size),
        unlabelled=0 if rule.level == NODE else _unlabelled(problem, rule, demands),
        exact=placed.optimal,
    )


def _unlabelled(problem: PlacementProblem, rule: DomainRule, demands: Sequence[int]) -> int:
    """Return how many nodes without the label could host a pod, were it not for the rules about domains."""
    loose = replace(problem, rules=tuple(other for other in problem.rules if not isinstance(other, DomainRule)))
    instance = build(loose)
    able = np.logical_or.reduce([instance.kinds[kind].cap > 0 for kind in instance.kinds_of(demands)])
    return int(np.count_nonzero(able & (problem.nodes.domains[rule.level] < 0)))
