"""A question about some of its residents, and all of them in order: the only place that numbers residents anew.

Decided here: the order in which victims are looked at (by name, then by what they are), so that the order in which they
were given decides nothing, and that rows which no set breaks are left out. Answers are given back in the numbers of the
question.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from scheduler.placement.problem import PlacementProblem
from scheduler.placement.victims import (
    AtMostEvicted,
    AtMostTaken,
    MadeRoom,
    MustFree,
    RoomRow,
    RunningGang,
    VictimProblem,
    WhileOver,
)


def part_of(problem: VictimProblem, numbers: Sequence[int]) -> VictimProblem:
    """Return the question about these residents, numbered in this order, as if there were no others.

    Gangs, roles and rows name only them, sorted; gangs of which none is left are left out, the others in order of their
    first resident. `refine` is told the old numbers.
    """
    new = {old: place for place, old in enumerate(numbers)}

    def left(residents: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(sorted(new[resident] for resident in residents if resident in new))

    def gang(one: RunningGang) -> RunningGang:
        roles = tuple(sorted((left(residents), least) for residents, least in one.roles))
        return replace(one, residents=left(one.residents), roles=roles)

    def weighed(amounts: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
        return tuple(sorted((new[resident], amount) for resident, amount in amounts if resident in new))

    def row(one: RoomRow) -> RoomRow:
        match one:
            case AtMostEvicted() | WhileOver():
                return replace(one, residents=left(one.residents))
            case AtMostTaken():
                return replace(one, amounts=weighed(one.amounts))
            case MustFree():
                when = None if one.when is None else left(one.when)
                return replace(one, amounts=weighed(one.amounts), when=when)

    refine = problem.refine

    def back(gone: frozenset[int]) -> PlacementProblem:
        assert refine is not None
        return refine(frozenset(numbers[resident] for resident in gone))

    gangs = sorted((one for one in map(gang, problem.gangs) if one.residents), key=lambda one: one.residents)
    return VictimProblem(
        problem.problem,
        tuple(problem.residents[old] for old in numbers),
        tuple(gangs),
        tuple(map(row, problem.rows)),
        None if refine is None else back,
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
    held = np.array([one.holds for one in problem.residents], dtype=np.int64)
    held = held.reshape(len(problem.residents), len(problem.problem.nodes.resources))
    rows = tuple(row for row in problem.rows if not _always_holds(row, held))
    return part_of(replace(problem, rows=rows), order), order


def _always_holds(row: RoomRow, held: NDArray[np.int64]) -> bool:
    """Whether no set of victims breaks a row. held: by all residents, (residents, resources)."""
    match row:
        case AtMostEvicted(residents, most):
            return len(residents) <= most
        case AtMostTaken(amounts, most):
            return sum(amount for _, amount in amounts) <= most
        case MustFree(_, least):
            return least <= 0
        case WhileOver(residents, over):  # the queue is over by all that they hold, or by more
            together = held[list(residents)].sum(axis=0)
            return any(int(together[resource]) <= amount for resource, amount in over)


def moved_back(made: MadeRoom, order: Sequence[int]) -> MadeRoom:
    """Return the answer in the old numbers."""
    return replace(made, evicted=tuple(sorted(order[resident] for resident in made.evicted)))
