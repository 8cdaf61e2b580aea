"""Where those that move go, when it is known who they are: a question like any other, answered by the engine.

First what is asked for is placed where they left, then they are placed into what is left. That this fails proves
nothing, because the first step may take what only the second could use.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from scheduler.placement.engine import place
from scheduler.placement.move_model import Arrival, arrivals_of
from scheduler.placement.moves import MoveProblem
from scheduler.placement.problem import Demand, NodeView, Placement, PlacementProblem, Within
from scheduler.placement.victims import AtMostEvicted

_SIZES = 8
"""Most sizes of a resource for which places are counted."""


@dataclass(frozen=True, slots=True)
class Packed:
    """moves: of all that go, or None; placed: for each kind of those that go, how many found a place."""

    moves: tuple[tuple[int, int], ...] | None
    kinds: tuple[Arrival, ...]
    placed: tuple[int, ...]


def repack(problem: MoveProblem, gone: frozenset[int]) -> Packed:
    """Return where these residents go."""
    kinds = tuple(arrivals_of(problem, sorted(gone)))
    base = problem.room.without(gone)
    placed = place(base)
    if not isinstance(placed, Placement):
        return Packed(None, kinds, (0,) * len(kinds))
    free, slots = base.nodes.free.copy(), base.nodes.slots.copy()
    for demand, row in zip(base.demands, placed.counts, strict=True):
        for node, pods in row:
            free[:, node] -= demand.requests * pods
            slots[node] -= pods
    asked = _question(problem, gone, kinds, replace(base.nodes, free=free, slots=slots))
    answer = place(asked)
    if isinstance(answer, Placement):
        moves: dict[int, int] = {}
        for kind, row in zip(kinds, answer.counts, strict=True):
            moves.update(zip(kind.residents, [node for node, pods in row for _ in range(pods)], strict=True))
        return Packed(tuple(sorted(moves.items())), kinds, tuple(len(kind.residents) for kind in kinds))
    loose = tuple(replace(demand, minimum=0) for demand in asked.demands)
    most = place(replace(asked, demands=loose, maximize=True))
    got = tuple(most.placed(n) if isinstance(most, Placement) else 0 for n in range(len(kinds)))
    return Packed(None, kinds, got)


def places(problem: MoveProblem, movers: Sequence[int]) -> tuple[AtMostEvicted, ...]:
    """Return how many of those that hold much of a resource find places while nobody else moves.

    A guess where to look, no proof: a place may become free.
    """
    room = problem.room
    view = room.problem.nodes
    found = []
    for resource in range(len(view.resources)):
        held = np.array([room.residents[resident].holds[resource] for resident in movers], dtype=np.int64)
        sizes = np.unique(held[held > 0])
        if sizes.size > _SIZES:
            sizes = sizes[np.linspace(0, sizes.size - 1, _SIZES).astype(np.int64)]
        free = np.maximum(view.free[resource], 0)
        for size in sizes.tolist():
            room_for = int((free // size).sum())
            large = tuple(resident for resident, amount in zip(movers, held.tolist(), strict=True) if amount >= size)
            if room_for < len(large):
                found.append(AtMostEvicted(large, room_for))
    return tuple(found)


def shortages(problem: MoveProblem, packed: Packed, movers: Sequence[int]) -> tuple[AtMostEvicted, ...]:
    """Return the limits that packing met: of each kind that was short, no more may go than found a place."""
    return tuple(
        AtMostEvicted(_alike(problem, kind, movers), placed)
        for kind, placed in zip(packed.kinds, packed.placed, strict=True)
        if placed < len(kind.residents)
    )


def _alike(problem: MoveProblem, kind: Arrival, movers: Sequence[int]) -> tuple[int, ...]:
    """Return all movers of a kind, also those that did not go."""
    first = kind.residents[0]
    return next(one.residents for one in arrivals_of(problem, movers) if first in one.residents)


def _question(
    problem: MoveProblem, gone: frozenset[int], kinds: tuple[Arrival, ...], nodes: NodeView
) -> PlacementProblem:
    room = problem.room
    asked = room.problem
    masks = [kind.hosts for kind in kinds]
    rules = []
    for rule in problem.together:
        mine = tuple(number for number, kind in enumerate(kinds) if kind.gang == rule.gang)
        if not mine:
            continue
        residents = room.gangs[rule.gang].residents
        if gone.issuperset(residents):
            rules.append(Within(rule.level, True, mine))
            continue
        ids = nodes.domains[rule.level]
        now = {int(ids[room.residents[resident].node]) for resident in residents if resident not in gone}
        home = now.pop() if len(now) == 1 else -1
        for number in mine:
            masks[number] = masks[number] & (ids == home) & (home >= 0)
    demands = tuple(
        Demand(f"kind {number:06}", kind.holds, len(kind.residents), len(kind.residents), mask)
        for number, (kind, mask) in enumerate(zip(kinds, masks, strict=True))
    )
    return PlacementProblem(nodes, demands, tuple(rules), asked.seed, asked.budget)
