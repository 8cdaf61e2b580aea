"""Quick ways to find a domain for each unit of a gang, one unit after the other, inside one segment.

A unit is tried in all domains at once, as a gang is in all segments (`greedy`), and gets the fullest domain that takes
it ("spread": the roomiest); then the next one, on what is left. Decided here: the orders of units that are tried, and
that parts which may be left out are left out when they find no domain. What is found is a placement; what is not found
means nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from scheduler.placement.board import Board
from scheduler.placement.bounds import Bounds
from scheduler.placement.composition import Composition
from scheduler.placement.counting import segment_sums
from scheduler.placement.greedy import choose, place_kind, sequence, ways
from scheduler.placement.instance import Instance, Ints
from scheduler.placement.narrow import cut, narrowed
from scheduler.placement.units import Layout, Unit


@dataclass(frozen=True, slots=True)
class _Plan:
    """units: large first, as given, or those with the fewest domains first. loose: pods that are in no unit."""

    units: Literal["large", "given", "scarce"]
    loose: Literal["last", "first"]
    roomiest: bool


_PLANS = (
    _Plan("large", "last", False),
    _Plan("large", "first", False),
    _Plan("scarce", "last", False),
    _Plan("large", "last", True),
    _Plan("given", "last", False),
)


def in_segment(instance: Instance, wanted: Sequence[int], *, few: bool) -> tuple[Ints, list[int]] | None:
    """Return pods (kinds by nodes) and the pods of each demand, in an instance of one segment. few: one plan only."""
    composition = instance.composition
    for plan in _PLANS[: 1 if few else None]:
        counts, highs = list(wanted), list(composition.highs)
        while True:
            board, failed = _host(instance, counts, plan)
            if board is not None:
                return board.x, counts
            if failed is None or not composition.parts:
                break
            again = _without(composition, highs, instance, failed)
            if again is None:
                break
            counts = again
    return None


def _without(composition: Composition, highs: list[int], instance: Instance, failed: Sequence[int]) -> list[int] | None:
    """Return other numbers of pods, with none of the kinds that found no domain."""
    for kind in failed:
        for demand in instance.kinds[kind].members:
            highs[demand] = 0
    if composition.contradicts(highs):
        return None
    return replace(composition, highs=highs).preferred()


def _host(instance: Instance, counts: Sequence[int], plan: _Plan) -> tuple[Board | None, Sequence[int] | None]:
    """Return a board with all pods; or None and the kinds of the unit that found no domain."""
    amounts = [sum(counts[d] for d in kind.members) for kind in instance.kinds]
    layout = Layout.of(instance, amounts)
    if layout is None:
        return None, None
    board = Board(instance, [kind.cap for kind in instance.kinds])
    return _fill(board, layout, amounts, plan)


def _fill(
    board: Board, layout: Layout, amounts: Sequence[int], plan: _Plan
) -> tuple[Board | None, Sequence[int] | None]:
    instance = board.instance
    loose = [kind for kind in layout.loose if amounts[kind]]
    units = [unit for unit in layout.units if any(amounts[kind] for kind in unit.kinds)]
    everywhere = Unit(tuple(loose), np.zeros(instance.size, dtype=np.int64), [])
    if loose and plan.loose == "first" and not _put(board, everywhere, amounts, plan):
        return None, None
    for unit in _ordered(board, units, amounts, plan):
        if not _put(board, unit, amounts, plan):
            return None, unit.kinds
    if loose and plan.loose == "last" and not _put(board, everywhere, amounts, plan):
        return None, None
    return board, None


def _ordered(board: Board, units: list[Unit], amounts: Sequence[int], plan: _Plan) -> list[Unit]:
    """Return units in the order of a plan; those of one type stay together."""
    if plan.units == "given":
        return units
    keys: dict[int, float] = {}
    for unit in units:
        if unit.type not in keys:
            room = _room(board, unit, amounts)
            largest = float(room.max(initial=0.0))
            keys[unit.type] = largest if plan.units == "large" else float(np.floor(room).sum())
    return sorted(units, key=lambda unit: keys[unit.type])


def _room(board: Board, unit: Unit, amounts: Sequence[int]) -> NDArray[np.float64]:
    """Return, for each domain, how many times the unit fits there, each of its kinds alone."""
    room = np.full(unit.domains, np.inf)
    for kind in unit.kinds:
        if amounts[kind]:
            room = np.minimum(room, segment_sums(board.cap(kind), unit.ids, unit.domains) / amounts[kind])
    return room


def _put(board: Board, unit: Unit, amounts: Sequence[int], plan: _Plan) -> bool:
    """Put a unit into one domain; False when no way finds one."""
    room = _room(board, unit, amounts)
    good = room >= 1
    if not good.any():
        return False
    if unit.inner:
        return _put_nested(board, unit, amounts, plan, room)
    instance = board.instance
    view = replace(instance, segments=unit.ids, segment_count=unit.domains, partial=[])
    mine = [amounts[kind] if kind in unit.kinds else 0 for kind in range(len(amounts))]
    for way in ways(instance):
        trial, left = board.copy(view), good.copy()
        order = sequence(view, way, mine)
        for place, number in enumerate(order):
            need = np.where(left, mine[number], 0)
            left &= place_kind(trial, number, need, way, order[place + 1 :], mine) >= mine[number]
            if not left.any():
                break
        if not left.any():
            continue
        bounds = Bounds(np.zeros((0, unit.domains), dtype=np.int64), left, -room if plan.roomiest else room)
        segment = choose(view, bounds, trial, left)
        board.take_over(trial, np.flatnonzero(unit.ids == segment))
        return True
    return False


def _put_nested(board: Board, unit: Unit, amounts: Sequence[int], plan: _Plan, room: NDArray[np.float64]) -> bool:
    """Put a unit that has units inside: into one domain after the other, the fullest first."""
    order = np.argsort(-room if plan.roomiest else room, kind="stable")
    for domain in [int(d) for d in order if room[d] >= 1]:
        nodes = np.flatnonzero(unit.ids == domain)
        here = replace(narrowed(board.instance, nodes), partial=cut(unit.inner, nodes))
        mine = [amounts[kind] if kind in unit.kinds else 0 for kind in range(len(amounts))]
        layout = Layout.of(here, mine)
        if layout is None:
            return False
        found, _ = _fill(board.part(here, nodes), layout, mine, plan)
        if found is not None:
            board.take_over(found, nodes)
            return True
    return False
