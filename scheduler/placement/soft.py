"""One-domain rules that are preferred: kept as far as that costs no pod, level by level.

Decided here: all of them are tried first, then all but those of the finest level, and so on; of the level at which that
succeeds, dropped rules of other demands are taken back as far as a few tries allow. Where such pods are already, the
others are sought there before any other domain of that level. Where the pods cannot be in one domain of a level, they
are in few: for one kind by the order in which nodes are filled, else by trying small numbers.
Preferring is best effort: only the quick steps are asked, so that it costs about as much as the rules would if hard.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from scheduler.placement.between import domain_ids
from scheduler.placement.even import evenly, is_even
from scheduler.placement.problem import (
    NODE,
    AtMostDomains,
    Balanced,
    Demand,
    Infeasible,
    Method,
    Placement,
    PlacementProblem,
    Rule,
    Within,
    all_demands,
)

Solve: TypeAlias = Callable[[PlacementProblem, Collection[Method]], Placement | Infeasible]
_QUICK: tuple[Method, ...] = ("counting", "greedy", "master")
_TAKEN_BACK = 8
"""So many tries are made to take dropped rules back."""
_FEW = 3
"""So many numbers of domains are tried, from two on, where one is not enough."""


def kept(problem: PlacementProblem, placement: Placement) -> tuple[int, ...]:
    """Return the numbers of the rules that are preferred and hold."""
    found = []
    for number, rule in enumerate(problem.rules):
        if isinstance(rule, Within) and not rule.hard:
            nodes = {node for d in all_demands(problem, rule.demands) for node, _ in placement.counts[d]}
            ids = nodes if rule.level == NODE else {int(problem.nodes.domains[rule.level][node]) for node in nodes}
            if len(ids.union(rule.present)) <= 1 and -1 not in ids:
                found.append(number)
        elif isinstance(rule, Balanced) and is_even(problem, rule, placement):
            found.append(number)
    return tuple(found)


def preferring(problem: PlacementProblem, methods: Collection[Method], solve: Solve) -> Placement | Infeasible:
    """Return the answer that keeps what it can of the rules that are not hard, and of the balance."""
    if any(isinstance(rule, Balanced) for rule in problem.rules):
        return evenly(problem, methods, solve, preferring)
    soft = [rule for rule in problem.rules if isinstance(rule, Within) and not rule.hard]
    if not soft:
        return solve(problem, methods)
    width = {rule.level: int(domain_ids(problem, rule.level).max(initial=-1)) for rule in soft}
    soft.sort(key=lambda rule: width[rule.level])
    quick = [method for method in methods if method in _QUICK]
    plain = solve(problem, methods) if problem.maximize else None
    if isinstance(plain, Infeasible):
        return plain

    def tried(chosen: Sequence[Within], more: tuple[Rule, ...] = (), home: Sequence[Within] = ()) -> Placement | None:
        rules = (*_hardened(problem.rules, chosen), *more)
        answer = solve(replace(problem, demands=_at_home(problem, home), rules=rules), quick)
        if isinstance(answer, Infeasible) or (plain is not None and answer.total < plain.total):
            return None
        return answer if plain is None else replace(answer, optimal=plain.optimal)

    levels = sorted(set(width.values()), reverse=True)
    for level in levels if any(rule.present for rule in soft) else ():
        here = [rule for rule in soft if width[rule.level] <= level]
        wider = [rule for rule in here if width[rule.level] < level]
        anew = [rule for rule in here if not rule.present]
        elsewhere = [rule for rule in here if not rule.present or width[rule.level] == level]
        answer = tried(anew, home=here) or tried(elsewhere, home=wider)
        if answer is not None:
            return answer
    for level in levels:
        chosen = [rule for rule in soft if width[rule.level] <= level]
        answer = tried(chosen)
        if answer is not None:
            dropped = [rule for rule in soft if width[rule.level] > level]
            return _taken_back(chosen, dropped, answer, tried) or answer
    answer = _taken_back([], soft, plain, tried) if len({rule.demands for rule in soft}) > 1 else plain
    if answer is None or answer is plain:
        answer = _in_few(problem, soft[0], tried) or answer
    return answer if answer is not None else solve(problem, methods)


def _hardened(rules: tuple[Rule, ...], chosen: Sequence[Within]) -> tuple[Rule, ...]:
    chosen_ids = {id(rule) for rule in chosen}
    return tuple(
        Within(rule.level, True, rule.demands) if isinstance(rule, Within) and id(rule) in chosen_ids else rule
        for rule in rules
    )


def _at_home(problem: PlacementProblem, home: Sequence[Within]) -> tuple[Demand, ...]:
    """Return the demands confined to the domains where pods of theirs are already, for each of these rules."""
    demands = list(problem.demands)
    for rule in home:
        if rule.present:
            allowed = np.isin(domain_ids(problem, rule.level), rule.present)
            for number in all_demands(problem, rule.demands):
                mask = demands[number].mask
                demands[number] = replace(demands[number], mask=allowed if mask is None else mask & allowed)
    return tuple(demands)


def _taken_back(
    chosen: list[Within], dropped: list[Within], answer: Placement | None, tried: Callable[..., Placement | None]
) -> Placement | None:
    """Take back as many dropped rules as can be, from the first on, without the first that cannot, and so on."""
    left, tries = dropped if len(dropped) > 1 else [], _TAKEN_BACK
    while left and tries:
        low, high = 0, len(left)
        while low < high and tries:
            middle, tries = (low + high + 1) // 2, tries - 1
            more = tried([*chosen, *left[:middle]])
            if more is None:
                high = middle - 1
            else:
                low, answer = middle, more
        chosen, left = [*chosen, *left[:low]], left[low + 1 :]
    return answer


def _in_few(problem: PlacementProblem, rule: Within, tried: Callable[..., Placement | None]) -> Placement | None:
    """Return pods of several demands, or that join others, in few domains of the widest level."""
    several = len(all_demands(problem, rule.demands)) > 1 or rule.present
    if not several or any(isinstance(other, Within) and other.hard and other.demands for other in problem.rules):
        return None
    least = max(2, len(rule.present))
    for limit in range(least, least + _FEW):
        answer = tried([], (AtMostDomains(rule.level, limit, rule.demands, rule.present),))
        if answer is not None:
            return answer
    return None
