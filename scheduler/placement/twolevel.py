"""Units of a gang in domains of their own: in one segment after the other, first the quick ways (`hosting`), then
exactly (`master`), where rules let the domains be looked at one by one.

Decided here: the order of segments. The first few are the fullest, so that empty ones stay whole; then the roomiest,
because it is the likeliest to hold the gang.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from scheduler.placement import hosting
from scheduler.placement import parts as trees
from scheduler.placement.bounds import Bounds, bound
from scheduler.placement.capacity import Capacity
from scheduler.placement.composition import Composition
from scheduler.placement.cpsat import Clock
from scheduler.placement.exact import solve
from scheduler.placement.greedy import Draft, search, settle
from scheduler.placement.instance import Instance, Ints
from scheduler.placement.master import Master
from scheduler.placement.narrow import narrowed
from scheduler.placement.problem import Method, Part
from scheduler.placement.standing import holds
from scheduler.placement.units import Layout

_SMALL = 1000
"""Up to so many integers, the model of nodes decides a domain sooner than patterns."""
_FULLEST = 3
"""So many segments are tried from the fullest on; then the others from the roomiest on."""


def search_units(instance: Instance, bounds: Bounds, methods: Collection[Method]) -> tuple[Draft, Method] | None:
    """Return pods in some segment. Segments that provably hold them in no way are struck out of `bounds`."""
    problem = instance.problem
    meant = instance.composition.preferred()
    master, certain = _master(instance, meant) if "master" in methods else (None, False)
    possible = bounds.alive
    if master is not None:
        possible = bounds.alive & (master.capacity.alive() | master.free)
        if certain:
            bounds.alive[:] = possible
    ids = instance.segment_ids()
    order = _order(instance, bounds, np.flatnonzero(possible))
    for turn, segment in enumerate(order):
        if turn >= problem.budget.max_domains:
            return None
        nodes = np.flatnonzero(ids == segment)
        if master is not None and certain and len(order) > 1 and master.impossible(segment):
            bounds.alive[segment] = False
            continue
        if meant is not None and "greedy" in methods:
            found = hosting.in_segment(narrowed(instance, nodes), meant, few=master is not None or instance.open)
            if found is not None:
                x = np.zeros((len(instance.kinds), instance.size), dtype=np.int64)
                x[:, nodes], counts = found
                if holds(instance, x):
                    return Draft(x, counts, segment), "greedy"
        if master is not None:
            exact, proven = master.solve(segment)
            if exact is not None:
                return settle(instance, exact), "master"
            bounds.alive[segment] &= not (proven and certain)
    return None


def _master(instance: Instance, meant: list[int] | None) -> tuple[Master | None, bool]:
    """Return the exact search, and whether its "no" is a proof: numbers of pods in units leave no choice.

    meant: the pods of each demand that are preferred.
    """
    composition, problem = instance.composition, instance.problem
    wanted, certain, free = composition.forced(), not instance.open, False
    if meant != wanted:
        free = True
        units = [demands for demands in _of_units(instance) if demands]
        wanted = list(composition.highs)
        for demands in units:
            found = [composition.forced(demand) for demand in demands]
            certain &= all(found[0][demand] == one[demand] > 0 for one in found for demand in demands)
            for demand, one in zip(demands, found, strict=True):
                wanted[demand] = max(1, one[demand])
        certain &= _enough(composition, units, wanted)
        if not certain and meant is not None:
            for demand in (demand for demands in units for demand in demands):
                wanted[demand] = meant[demand] or wanted[demand]
    capacity = Capacity.of(instance, wanted)
    if capacity is None:
        return None, False
    return Master(capacity, wanted, free, decide, Clock(problem.budget, problem.seed)), certain


def _enough(composition: Composition, units: list[list[int]], wanted: list[int]) -> bool:
    """Whether every answer stays one when each unit that it places keeps just what is wanted of it."""
    inside = {demand for demands in units for demand in demands}
    if all(wanted[demand] >= composition.highs[demand] for demand in inside):
        return True

    def whole(part: Part) -> bool:
        mine = set(part.demands)
        if any(mine <= set(demands) for demands in units):
            return trees.whole((part,), 0, wanted)
        return (
            part.minimum <= trees.fewest(part.parts, part.least)
            and mine <= inside
            and all(whole(inner) for inner in part.parts)
        )

    def reached(demands: tuple[int, ...], count: int) -> bool:
        mine = set(demands)
        if any(mine <= set(unit) for unit in units):
            return sum(wanted[demand] for demand in mine) >= count
        sure = 0
        for rule in composition.parts:
            held = {demand for part in rule.parts for demand in part.demands}
            if held <= mine:
                mine -= held
                sure += trees.fewest(rule.parts, rule.least)
        low = composition.forced()
        return sure + sum(low[demand] for demand in mine) >= count

    return all(whole(part) for rule in composition.parts for part in rule.parts) and all(
        reached(demands, count) for demands, count in composition.floors
    )


def _of_units(instance: Instance) -> list[list[int]]:
    """Return the demands of each unit."""
    layout = Layout.of(instance, [0] * len(instance.kinds))
    units = layout.units if layout is not None else []
    return [[demand for kind in unit.kinds for demand in instance.kinds[kind].members] for unit in units]


def _order(instance: Instance, bounds: Bounds, segments: np.ndarray[tuple[int], np.dtype[np.intp]]) -> list[int]:
    order: list[int] = segments[np.argsort(bounds.room[segments], kind="stable")].tolist()
    if instance.problem.objective == "spread":
        return order[::-1]
    return [*order[:_FULLEST], *reversed(order[_FULLEST:])]


def decide(instance: Instance, clock: Clock) -> tuple[Ints | None, bool]:
    """Return pods (kinds by nodes) for an instance of one segment, or None and whether that is proven."""
    if instance.composition.contradicts([min(high, instance.kinds[kind].total) for high, kind in _tops(instance)]):
        return None, True
    bounds = bound(instance)
    if not bounds.alive.any():
        return None, True
    if instance.partial:
        found = search_units(instance, bounds, ("greedy", "master"))
        if found is not None:
            return found[0].x, True
        if not bounds.alive.any():
            return None, True
    draft = search(instance, bounds)
    if draft is not None:
        return draft.x, True
    cells = sum(int(np.count_nonzero(kind.cap)) for kind in instance.kinds)
    methods: tuple[Method, ...] = ("integer",) if cells <= _SMALL else ("pattern", "integer")
    exact = solve(instance, bounds, None, methods, clock)
    return (None if exact.draft is None else exact.draft.x), exact.proven


def _tops(instance: Instance) -> list[tuple[int, int]]:
    return [(high, instance.kind_of[demand]) for demand, high in enumerate(instance.composition.highs)]
