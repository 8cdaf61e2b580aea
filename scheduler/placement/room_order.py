"""The order in which victims are looked at: by name, then by what they are, so that the order in which they were given
decides nothing. Rows that no set of victims breaks are left out. The answer is given back in the numbers of the
question."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from scheduler.placement.problem import PlacementProblem
from scheduler.placement.victims import (
    AtMostEvicted,
    MadeRoom,
    MustFree,
    RoomRow,
    RunningGang,
    VictimProblem,
    WhileOver,
)


def in_order(problem: VictimProblem) -> tuple[VictimProblem, list[int]]:
    """Return the question with its residents and gangs in order, and the old number of each resident."""
    gang_of = problem.gang_of

    unique = len({one.name for one in problem.residents}) == len(problem.residents)

    def key(number: int) -> tuple[object, ...]:
        if unique:
            return (problem.residents[number].name,)
        one = problem.residents[number]
        gang = problem.gangs[gang_of[number]]
        return (one.name, one.node, one.runtime, one.holds.tolist(), gang.priority, len(gang.residents), gang.minimum)

    order = sorted(range(len(problem.residents)), key=key)
    new = {old: place for place, old in enumerate(order)}

    def moved(residents: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(sorted(new[resident] for resident in residents))

    gangs = [
        RunningGang(
            moved(gang.residents),
            gang.minimum,
            tuple(sorted((moved(residents), least) for residents, least in gang.roles)),
            gang.fixed,
            gang.priority,
        )
        for gang in problem.gangs
    ]
    gangs.sort(key=lambda gang: gang.residents)
    rows: list[RoomRow] = []
    held = np.array([one.holds for one in problem.residents], dtype=np.int64)
    held = held.reshape(len(problem.residents), len(problem.problem.nodes.resources))
    for row in problem.rows:
        match row:
            case _ if _always_holds(row, held):
                pass
            case AtMostEvicted(residents, most):
                rows.append(AtMostEvicted(moved(residents), most))
            case MustFree(amounts, least):
                rows.append(MustFree(tuple(sorted((new[r], amount) for r, amount in amounts)), least))
            case WhileOver(residents, over):
                rows.append(WhileOver(moved(residents), over))
    refine = problem.refine

    def back(gone: frozenset[int]) -> PlacementProblem:
        assert refine is not None
        return refine(frozenset(order[resident] for resident in gone))

    ordered = VictimProblem(
        problem.problem,
        tuple(problem.residents[old] for old in order),
        tuple(gangs),
        tuple(rows),
        None if refine is None else back,
    )
    return ordered, order


def _always_holds(row: RoomRow, held: NDArray[np.int64]) -> bool:
    """Whether no set of victims breaks a row. held: by all residents, (residents, resources)."""
    match row:
        case AtMostEvicted(residents, most):
            return len(residents) <= most
        case MustFree(_, least):
            return least <= 0
        case WhileOver(residents, over):  # not more than the queue is over, even if all of them go
            together = held[list(residents)].sum(axis=0)
            return any(int(together[resource]) <= amount for resource, amount in over)


def moved_back(made: MadeRoom, order: list[int]) -> MadeRoom:
    """Return the answer in the old numbers."""
    return replace(made, evicted=tuple(sorted(order[resident] for resident in made.evicted)))
