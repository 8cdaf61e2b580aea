"""The pieces in which running gangs may go, as few as possible: what costs and frees the same is one lot.

Decided here: which pods are interchangeable. In a lot are gangs of one on one node, or surplus pods of one role of one
gang on one node, which hold the same and of which all rows say the same; of a lot those with the least runtime go
first. With `apart` each pod is a lot of its own, because what the answer is checked against tells them apart.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scheduler.placement.victims import AtMostEvicted, AtMostTaken, MustFree, RunningGang, VictimProblem, WhileOver


@dataclass(frozen=True, slots=True, eq=False)
class Lot:
    """members: cheapest first; at most `most` of them go. single: each is a gang of its own, which breaks. gang: whose
    surplus they are, -1: they are of several."""

    members: tuple[int, ...]
    node: int
    most: int
    single: bool
    gang: int


@dataclass(frozen=True, slots=True, eq=False)
class Whole:
    """A gang of several that may go whole, and whether it breaks then."""

    gang: int
    residents: tuple[int, ...]
    breaks: bool = True


@dataclass(frozen=True, slots=True, eq=False)
class Pieces:
    """What may go. limits: (lots of a gang, at most so many of them together), which a gang that goes whole fills."""

    lots: tuple[Lot, ...]
    wholes: tuple[Whole, ...]
    limits: tuple[tuple[int, tuple[int, ...], int], ...]

    @property
    def residents(self) -> list[int]:
        """All residents that could go."""
        found = {resident for lot in self.lots for resident in lot.members}
        found.update(resident for whole in self.wholes for resident in whole.residents)
        return sorted(found)


def spare_of(gang: RunningGang) -> tuple[int, list[tuple[frozenset[int], int]]]:
    """Return how many residents may go while the gang lives: of all, and (residents, how many) of each role."""
    roles = [(frozenset(residents), max(0, len(residents) - max(0, least))) for residents, least in gang.roles]
    alive = len(gang.residents) + gang.fixed >= gang.minimum and all(
        len(residents) >= least for residents, least in gang.roles
    )
    return (gang.surplus if alive else 0), roles


def pieces(
    problem: VictimProblem, priority: int, *, apart: bool = False, near: NDArray[np.bool_] | None = None
) -> Pieces:
    """Return what may go of the gangs up to a priority. near: nodes; gangs that hold nothing there stay, unless a row
    asks for what they hold."""
    marks = _marks(problem)
    wanted = {
        problem.gang_of[resident]
        for row in problem.rows
        if isinstance(row, MustFree)
        for resident, amount in row.amounts
        if amount
    }
    lots: list[Lot] = []
    wholes: list[Whole] = []
    limits: list[tuple[int, tuple[int, ...], int]] = []
    singles: dict[tuple[object, ...], list[int]] = {}
    for number, gang in enumerate(problem.gangs):
        if gang.priority > priority:
            continue
        if (
            near is not None
            and number not in wanted
            and not any(near[problem.residents[r].node] for r in gang.residents)
        ):
            continue
        if len(gang.residents) == 1 and gang.fixed == 0 and not gang.roles and gang.minimum > 0:
            _single(problem, number, marks, singles, apart=apart)
            continue
        spare, roles = spare_of(gang)
        roles = [(residents, most) for residents, most in roles if most < len(residents)]
        free = spare >= len(gang.residents) and not roles
        if len(gang.residents) == 1 and not free:
            if gang.fixed == 0:
                _single(problem, number, marks, singles, apart=apart)
            continue
        if gang.fixed == 0 and not free:
            wholes.append(Whole(number, gang.residents, not gang.spare))
        if spare:
            _surplus(problem, number, spare, roles, marks if not apart else None, lots, limits)
    for members in singles.values():
        order = _by_runtime(problem, members)
        breaks = not problem.gangs[problem.gang_of[order[0]]].spare
        lots.append(Lot(order, problem.residents[order[0]].node, len(order), breaks, -1))
    return Pieces(tuple(lots), tuple(wholes), tuple(limits))


def _single(
    problem: VictimProblem,
    number: int,
    marks: list[tuple[int, ...]],
    singles: dict[tuple[object, ...], list[int]],
    *,
    apart: bool,
) -> None:
    gang = problem.gangs[number]
    resident = gang.residents[0]
    key = (resident,) if apart else (gang.priority, gang.spare, *_key(problem, resident, marks))
    singles.setdefault(key, []).append(resident)


def _surplus(
    problem: VictimProblem,
    number: int,
    spare: int,
    roles: list[tuple[frozenset[int], int]],
    marks: list[tuple[int, ...]] | None,
    lots: list[Lot],
    limits: list[tuple[int, tuple[int, ...], int]],
) -> None:
    gang = problem.gangs[number]
    grouped: dict[tuple[object, ...], list[int]] = {}
    for resident in gang.residents:
        inside = tuple(place for place, (residents, _) in enumerate(roles) if resident in residents)
        if any(roles[place][1] == 0 for place in inside):
            continue
        key = (resident,) if marks is None else (inside, *_key(problem, resident, marks))
        grouped.setdefault(key, []).append(resident)
    first = len(lots)
    for members in grouped.values():
        most = min([spare, len(members), *(most for residents, most in roles if members[0] in residents)])
        lots.append(Lot(_by_runtime(problem, members), problem.residents[members[0]].node, most, False, number))
    mine = range(first, len(lots))
    for residents, most in [(frozenset(gang.residents), spare), *roles]:
        limits.append((number, tuple(lot for lot in mine if lots[lot].members[0] in residents), most))


def _key(problem: VictimProblem, resident: int, marks: list[tuple[int, ...]]) -> tuple[object, ...]:
    one = problem.residents[resident]
    return (one.node, one.holds.tobytes(), marks[resident])


def _by_runtime(problem: VictimProblem, members: Iterable[int]) -> tuple[int, ...]:
    return tuple(sorted(members, key=lambda resident: (problem.residents[resident].runtime, resident)))


def _marks(problem: VictimProblem) -> list[tuple[int, ...]]:
    """Return what the rows say of each resident: (row, weight) one after the other."""
    found: list[list[int]] = [[] for _ in problem.residents]
    for number, row in enumerate(problem.rows):
        match row:
            case AtMostEvicted(residents, _) | WhileOver(residents, _):
                for resident in residents:
                    found[resident].extend((number, 1))
            case AtMostTaken(amounts, _) | MustFree(amounts, _):
                for resident, amount in amounts:
                    found[resident].extend((number, amount))
                for resident in (row.when or ()) if isinstance(row, MustFree) else ():
                    found[resident].extend((number, -1))
    return [tuple(mark) for mark in found]
