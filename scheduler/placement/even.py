"""Pods that are shared evenly over as few domains as hold them, where that costs no pod.

Decided here: how many domains there are comes first (those where pods are already, then as many as the answer without
balance uses), that the numbers in them differ by one at most second; where that cannot be, nearly. Which domains is
tried, the fullest that suffice first: for one kind of pods sums say which do, for several kinds a limited number of
choices is given to the searches. Best effort, like all that is only preferred.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, islice
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from scheduler.model.rules import Cap
from scheduler.placement.between import domain_ids
from scheduler.placement.instance import build
from scheduler.placement.problem import (
    AtMostDomains,
    Balanced,
    Infeasible,
    Method,
    Placement,
    PlacementProblem,
    Rule,
    Segments,
    Within,
    all_demands,
)

Prefer: TypeAlias = Callable[[PlacementProblem, Collection[Method]], Placement | Infeasible]
Ints: TypeAlias = NDArray[np.int64]
_TRIES = 24
"""So many layouts are given to the searches."""
_ALL_CHOICES = 64
"""Choices of domains that are all looked at; where there are more, only those of domains that are next in size."""
_NEARLY = 3
"""So many sizes of the fullest domain are tried, from the even one on, where pods cannot be even."""
_EACH = 0.05
"""The solver's own seconds for one layout."""


@dataclass(frozen=True, slots=True, eq=False)
class _Layout:
    """The pods of one rule by domain. present: those that are there already. rooms: domains, and upper bounds of what
    they take besides, for each of the wider domains of which all pods have to be in one. unit: pods that come together.
    """

    present: Ints
    rooms: list[tuple[Ints, Ints]]
    unit: int


def evenly(problem: PlacementProblem, methods: Collection[Method], prefer: Prefer) -> Placement | Infeasible:
    """Return the answer that keeps what it can of the rules that balance, and of all others what `prefer` keeps."""
    rules: tuple[Rule, ...] = tuple(rule for rule in problem.rules if not isinstance(rule, Balanced))
    balanced = [rule for rule in problem.rules if isinstance(rule, Balanced)]
    few = tuple(Within(rule.level, False, rule.demands) for rule in balanced)
    answer = prefer(replace(problem, rules=(*rules, *few)), methods)
    for rule in balanced:
        if isinstance(answer, Infeasible):
            break
        found = _balance(replace(problem, rules=rules), rule, answer, methods, prefer)
        if found is not None:
            answer, more = found
            rules = (*rules, *more)
    return answer


def is_even(problem: PlacementProblem, rule: Balanced, placement: Placement) -> bool:
    """Whether the numbers of pods in the domains that are used differ by one at most, or by one segment."""
    ids = domain_ids(problem, rule.level)
    placed = _placed(problem, rule, placement, ids)
    return placed is not None and _even(placed + _present(rule, placed.size), _unit(problem, rule))


def _even(held: Ints, unit: int) -> bool:
    used = held[held > 0]
    return bool(used.size == 0 or int(used.max()) - int(used.min()) <= unit)


def _placed(problem: PlacementProblem, rule: Balanced, placement: Placement, ids: Ints) -> Ints | None:
    """Return the pods that each domain receives; None where a node without the label receives some."""
    highest = max((domain for domain, _ in rule.present), default=-1)
    placed = np.zeros(max(int(ids.max(initial=-1)), highest) + 1, dtype=np.int64)
    for demand in all_demands(problem, rule.demands):
        for node, pods in placement.counts[demand]:
            if ids[node] < 0:
                return None
            placed[ids[node]] += pods
    return placed


def _present(rule: Balanced, size: int) -> Ints:
    present = np.zeros(size, dtype=np.int64)
    for domain, pods in rule.present:
        present[domain] = pods
    return present


def _unit(problem: PlacementProblem, rule: Balanced) -> int:
    """Return in which multiples pods come to each domain of the level."""
    mine = set(all_demands(problem, rule.demands))
    sizes = [
        other.size
        for other in problem.rules
        if isinstance(other, Segments)
        and other.level == rule.level
        and set(all_demands(problem, other.demands)) >= mine
    ]
    return max(sizes, default=1)


def _balance(
    problem: PlacementProblem, rule: Balanced, base: Placement, methods: Collection[Method], prefer: Prefer
) -> tuple[Placement, tuple[Rule, ...]] | None:
    """Return a better laid out answer with as many pods, and the rules that make it so; None where `base` is left."""
    ids = domain_ids(problem, rule.level)
    placed = _placed(problem, rule, base, ids)
    if placed is None or not placed.any():
        return None
    present, unit, total = _present(rule, placed.size), _unit(problem, rule), int(placed.sum())
    layout = _Layout(present, _rooms(problem, rule, ids), unit)
    there = tuple(np.flatnonzero(present).tolist())
    weights = tuple((demand, 1) for demand in all_demands(problem, rule.demands))
    budget = replace(problem.budget, deterministic_time=min(problem.budget.deterministic_time, _EACH))
    problem = replace(problem, budget=budget)

    def tried(*more: Rule) -> Placement | None:
        answer = prefer(replace(problem, rules=(*problem.rules, *more)), methods)
        if isinstance(answer, Infeasible) or answer.total < base.total:
            return None
        return replace(answer, optimal=base.optimal)

    found: tuple[Placement, tuple[Rule, ...]] | None = None
    low, most = _fewest(layout, total), int(np.count_nonzero(placed + present))
    while low < most:
        middle = (low + most) // 2
        few = AtMostDomains(rule.level, middle, rule.demands, there)
        answer = tried(few)
        if answer is None:
            low = middle + 1
        else:
            found, most = (answer, (few,)), middle
    if is_even(problem, rule, base if found is None else found[0]) or (present % unit).any() or total % unit:
        return found
    for limits in islice(_targets(layout, total, most), _TRIES):
        answer = tried(Cap(rule.level, weights, limits))
        if answer is not None and is_even(problem, rule, answer):
            return answer, (Cap(rule.level, weights, limits),)
    even = -(-(total + int(present.sum())) // most)
    few = AtMostDomains(rule.level, most, rule.demands, there)
    for limit in range(even, even + _NEARLY):
        cap = Cap(rule.level, weights, np.maximum(limit - present, 0))
        answer = tried(few, cap)
        if answer is not None:
            return answer, (few, cap)
    return found


def _fewest(layout: _Layout, total: int) -> int:
    """Return a number of domains that no layout is below."""
    lows: list[int] = []
    for domains, room in layout.rooms:
        there = layout.present[domains] > 0
        others = np.sort(room[~there])[::-1]
        missing = total - int(room[there].sum())
        lows.append(int(np.searchsorted(np.cumsum(others), missing)) + 1 if missing > 0 else 0)
    return int(np.count_nonzero(layout.present)) + min(lows, default=0)


def _rooms(problem: PlacementProblem, rule: Balanced, ids: Ints) -> list[tuple[Ints, Ints]]:
    """Return `_Layout.rooms`."""
    instance = build(problem)
    kinds = instance.kinds_of(all_demands(problem, rule.demands))
    outer = instance.segment_ids()
    for others, within in instance.partial:
        if set(kinds) <= set(others):
            outer = within
    caps = [instance.kinds[kind].cap for kind in kinds]
    hosts = np.flatnonzero(np.any([cap > 0 for cap in caps], axis=0) & (ids >= 0) & (outer >= 0))
    width = int(ids.max(initial=0)) + 1
    pairs, place = np.unique(outer[hosts] * width + ids[hosts], return_inverse=True)
    room = np.zeros(pairs.size, dtype=np.int64)
    for kind, cap in zip(kinds, caps, strict=True):
        held = np.bincount(place, weights=cap[hosts], minlength=pairs.size).astype(np.int64)
        room += np.minimum(held, sum(problem.demands[demand].count for demand in instance.kinds[kind].members))
    firsts = np.unique(pairs // width, return_index=True)[1][1:]
    return list(zip(np.split(pairs % width, firsts), np.split(room, firsts), strict=True)) if pairs.size else []


def _targets(layout: _Layout, total: int, many: int) -> Iterator[Ints]:
    """Yield how many pods each domain receives so that so many domains are used evenly, the likeliest first."""
    there = np.flatnonzero(layout.present).tolist()
    for domains, room in layout.rooms:
        rooms = dict(zip(domains.tolist(), room.tolist(), strict=True))
        able = [one for one in sorted(rooms, key=lambda one: (rooms[one], one)) if not layout.present[one]]
        for more in _choices(able, many - len(there)):
            chosen = [*there, *more]
            left = np.array([rooms.get(one, 0) for one in chosen], dtype=np.int64)
            for taken in _levelled(layout.present[chosen], left, total, layout.unit):
                limits = np.zeros(layout.present.size, dtype=np.int64)
                limits[chosen] = taken
                yield limits


def _choices(able: Sequence[int], many: int) -> Iterator[tuple[int, ...]]:
    """Yield sets of so many domains; of a long list only those that are next to each other."""
    if many == 0:
        yield ()
    elif 0 < many <= len(able):
        if sum(1 for _ in islice(combinations(able, many), _ALL_CHOICES + 1)) <= _ALL_CHOICES:
            yield from combinations(able, many)
        else:
            yield from (tuple(able[first : first + many]) for first in range(len(able) - many + 1))


def _levelled(present: Ints, room: Ints, total: int, unit: int) -> Iterator[Ints]:
    """Yield pods for each domain that bring all to one level; what is over goes one each to the roomiest first."""
    level, over = _level(present // unit, total // unit)
    taken = np.maximum(level - present // unit, 0)
    left = room // unit - taken
    if total % unit or (left < 0).any():
        return
    able = [int(one) for one in np.argsort(-left, kind="stable") if left[one] > 0 and present[one] <= level * unit]
    for chosen in combinations(able, over):
        more = taken.copy()
        more[list(chosen)] += 1
        yield more * unit


def _level(held: Ints, total: int) -> tuple[int, int]:
    """Return to which level so many more fill the lowest, and how many are over."""
    ordered = np.sort(held)
    for many in range(1, ordered.size + 1):
        room = many * int(ordered[many - 1]) - int(ordered[:many].sum())
        upper = int(ordered[many]) if many < ordered.size else None
        if upper is None or many * upper - int(ordered[:many].sum()) > total:
            return divmod(total - room, many)[0] + int(ordered[many - 1]), (total - room) % many
    raise AssertionError("no domain")
