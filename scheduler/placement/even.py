"""Pods that are shared evenly over as few domains as hold them, where that costs no pod.

Decided here: how many domains there are comes first (those where pods are already, then as many as the answer without
balance uses), that the numbers in them differ by one at most second; where that cannot be, by as little as can be for
one kind of pods, for several nearly. Which domains is tried, the fullest that suffice first: for one kind of pods sums
say which do, for several kinds a limited number of choices is given to the searches. Best effort, like all that is only
preferred: the searches for all rules of a problem share one allowance of counted work, and when that is spent the best
so far stays. What a rule was given is not undone for the next one.
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
    Lacks,
    Method,
    Placement,
    PlacementProblem,
    Rule,
    Segments,
    Within,
    all_demands,
)

Solve: TypeAlias = Callable[[PlacementProblem, Collection[Method]], Placement | Infeasible]
Prefer: TypeAlias = Callable[[PlacementProblem, Collection[Method], Solve], Placement | Infeasible]
Ints: TypeAlias = NDArray[np.int64]
_TRIES = 24
"""So many layouts are given to the searches."""
_ALL_CHOICES = 64
"""Choices of domains that are all looked at; where there are more, only those of domains that are next in size."""
_EACH = 0.05
"""The solver's own seconds for one layout."""
_WORK = 30_000
"""What all layouts of one problem may cost, in steps: a kind looked at on a node that may host it, in vain."""
_EASY = 20
"""A search that succeeds at once, or that sums end, costs this much less."""
_HARD, _SOLVER = 8, 5_000
"""The exact searches cost so many times as much, and so many steps for the solver's own seconds."""


class _Meter:
    """Solves as long as the allowance lasts; beyond it, everything is beyond the budget. The solver is asked only where
    that leaves something."""

    def __init__(self, solve: Solve) -> None:
        self._solve, self._left = solve, _WORK

    def solve(self, problem: PlacementProblem, methods: Collection[Method]) -> Placement | Infeasible:
        cells = sum(int(np.count_nonzero(kind.cap)) for kind in build(problem).kinds)
        exact = _HARD * cells + _SOLVER
        if cells > self._left:
            return Infeasible(False, "budget", _untold)
        if exact > self._left:
            methods = [method for method in methods if method not in ("pattern", "integer")]
        answer = self._solve(problem, methods)
        if isinstance(answer, Placement) or answer.cause in ("rules", "bound"):
            self._left -= cells // _EASY
        elif answer.cause == "budget" and "integer" in methods:
            self._left -= exact
        else:
            self._left -= cells
        return answer


def _untold() -> Lacks:
    raise AssertionError("what a layout lacks is not told")


@dataclass(frozen=True, slots=True, eq=False)
class _Layout:
    """The pods of one rule by domain. present: those that are there already. rooms: domains, and upper bounds of what
    they take besides, for each of the wider domains of which all pods have to be in one. alike: there is one kind of
    pods, of which sums tell what fits. unit: pods that come together.
    """

    present: Ints
    rooms: list[tuple[Ints, Ints]]
    alike: bool
    unit: int


def evenly(
    problem: PlacementProblem, methods: Collection[Method], solve: Solve, prefer: Prefer
) -> Placement | Infeasible:
    """Return the answer that keeps what it can of the rules that balance, and of all others what `prefer` keeps."""
    rules: tuple[Rule, ...] = tuple(rule for rule in problem.rules if not isinstance(rule, Balanced))
    balanced = [rule for rule in problem.rules if isinstance(rule, Balanced)]
    few = tuple(Within(rule.level, False, rule.demands) for rule in balanced)
    answer = prefer(replace(problem, rules=(*rules, *few)), methods, solve)
    meter = _Meter(solve)
    for rule in balanced:
        if isinstance(answer, Infeasible):
            break
        answer = _balance(replace(problem, rules=rules), rule, answer, lambda one: prefer(one, methods, meter.solve))
        placed = _placed(problem, rule, answer, domain_ids(problem, rule.level))
        if placed is not None:
            rules = (*rules, Cap(rule.level, _weights(problem, rule), placed))
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


def _weights(problem: PlacementProblem, rule: Balanced) -> tuple[tuple[int, int], ...]:
    return tuple((demand, 1) for demand in all_demands(problem, rule.demands))


def _balance(
    problem: PlacementProblem,
    rule: Balanced,
    base: Placement,
    search: Callable[[PlacementProblem], Placement | Infeasible],
) -> Placement:
    """Return a better laid out answer with as many pods, or `base`."""
    ids = domain_ids(problem, rule.level)
    placed = _placed(problem, rule, base, ids)
    if placed is None or not placed.any():
        return base
    present, unit, total = _present(rule, placed.size), _unit(problem, rule), int(placed.sum())
    layout = _Layout(present, *_rooms(problem, rule, ids), unit)
    there = tuple(np.flatnonzero(present).tolist())
    weights = _weights(problem, rule)
    budget = replace(problem.budget, deterministic_time=min(problem.budget.deterministic_time, _EACH))
    problem = replace(problem, budget=budget)

    def tried(*more: Rule) -> Placement | None:
        answer = search(replace(problem, rules=(*problem.rules, *more)))
        if isinstance(answer, Infeasible) or answer.total < base.total:
            return None
        return replace(answer, optimal=base.optimal)

    best = base
    low, most = _fewest(layout, total), int(np.count_nonzero(placed + present))
    while low < most:
        middle = (low + most) // 2
        answer = tried(AtMostDomains(rule.level, middle, rule.demands, there))
        if answer is None:
            low = middle + 1
        else:
            best, most = answer, middle
    if is_even(problem, rule, best) or (present % unit).any() or total % unit:
        return best
    for limits in islice(_targets(layout, total, most), _TRIES):
        answer = tried(Cap(rule.level, weights, limits))
        if answer is not None and is_even(problem, rule, answer):
            return answer
    for limits in islice(_nearest(layout, total, most), _TRIES) if layout.alike else ():
        answer = tried(Cap(rule.level, weights, limits))
        if answer is not None:
            return answer
    few = AtMostDomains(rule.level, most, rule.demands, there)
    lowest, highest = -(-(total + int(present.sum())) // most), _fullest(problem, rule, best, present)
    while lowest < highest:  # as nearly even as can be
        middle = (lowest + highest) // 2
        answer = tried(few, Cap(rule.level, weights, np.maximum(middle - present, 0)))
        if answer is None:
            lowest = middle + 1
        else:
            best, highest = answer, _fullest(problem, rule, answer, present)
    return best


def _fullest(problem: PlacementProblem, rule: Balanced, placement: Placement, present: Ints) -> int:
    placed = _placed(problem, rule, placement, domain_ids(problem, rule.level))
    return 0 if placed is None else int((placed + present)[placed > 0].max(initial=0))


def _fewest(layout: _Layout, total: int) -> int:
    """Return a number of domains that no layout is below."""
    lows: list[int] = []
    for domains, room in layout.rooms:
        there = layout.present[domains] > 0
        others = np.sort(room[~there])[::-1]
        missing = total - int(room[there].sum())
        lows.append(int(np.searchsorted(np.cumsum(others), missing)) + 1 if missing > 0 else 0)
    return int(np.count_nonzero(layout.present)) + min(lows, default=0)


def _rooms(problem: PlacementProblem, rule: Balanced, ids: Ints) -> tuple[list[tuple[Ints, Ints]], bool]:
    """Return `_Layout.rooms`, and whether there is one kind of pods."""
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
    found = zip(np.split(pairs % width, firsts), np.split(room, firsts), strict=True) if pairs.size else ()
    return list(found), len(kinds) == 1


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


def _nearest(layout: _Layout, total: int, many: int) -> Iterator[Ints]:
    """Yield how many pods each of so many domains receives where their room does not let them be even, the most even
    first: the lowest are filled first, as far as they have room."""
    there = np.flatnonzero(layout.present).tolist()
    found: list[tuple[int, Ints]] = []
    for domains, room in layout.rooms:
        rooms = dict(zip(domains.tolist(), room.tolist(), strict=True))
        able = [one for one in sorted(rooms, key=lambda one: (rooms[one], one)) if not layout.present[one]]
        for more in _choices(able, many - len(there)):
            chosen = [*there, *more]
            left = np.array([rooms.get(one, 0) for one in chosen], dtype=np.int64) // layout.unit
            held = layout.present[chosen] // layout.unit
            if int(left.sum()) * layout.unit < total:
                continue
            taken = _filled(held, left, total // layout.unit)
            limits = np.zeros(layout.present.size, dtype=np.int64)
            limits[chosen] = taken * layout.unit
            found.append((int((held + taken).max()) - int((held + taken).min()), limits))
    yield from (limits for _, limits in sorted(found, key=lambda one: one[0]))


def _filled(held: Ints, room: Ints, total: int) -> Ints:
    """Return how many each receives when the lowest are filled first, none beyond its room, which suffices."""
    low, high = 0, int((held + room).max())
    while low < high:
        middle = (low + high + 1) // 2
        if int(np.clip(middle - held, 0, room).sum()) <= total:
            low = middle
        else:
            high = middle - 1
    taken = np.clip(low - held, 0, room)
    able = [int(one) for one in np.argsort(taken - room, kind="stable") if taken[one] < room[one] and held[one] <= low]
    taken[able[: total - int(taken.sum())]] += 1
    return taken


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
