"""What it means to make room: a placement question in which running pods may go, and what it costs. Values only.

Decided here: what may be evicted together (a gang whole, or some of its surplus), which limits a set of victims keeps,
and which of two sets is cheaper. `room_check` states the same as a check, and every answer must pass it.

Evicting more never breaks the placement: whoever states the question makes the masks, amounts and rules of
`VictimProblem.problem` those that hold with *all* candidates gone, and `refine` gives what really holds for a set.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from scheduler.placement.checks import check_problem
from scheduler.placement.problem import (
    BadProblem,
    Placement,
    PlacementBug,
    PlacementProblem,
    UnsupportedRule,
    dump,
)

NOBODY = -(2**31) - 1
"""The priority of a set without victims: lower than any that Kubernetes allows."""

Cost: TypeAlias = tuple[int, int, int, int]
"""Highest priority of a gang that loses a pod, gangs broken, pods, seconds of work lost; lower is better."""


@dataclass(frozen=True, slots=True, eq=False)
class Resident:
    """One running pod that may go. It frees `holds` (in the order of the nodes' resources) and one pod slot.

    runtime: seconds of work that are lost with it. name: decides between pods that cost the same, so give each its own.
    """

    node: int
    holds: NDArray[np.int64]
    runtime: int = 0
    name: str = ""


@dataclass(frozen=True, slots=True)
class RunningGang:
    """A gang that runs: all its residents go, or so many that `minimum` pods are left, and the minimum of each role.

    minimum counts all members, also the `fixed` ones, which may not go; with a fixed one the gang never goes whole.
    roles: (residents of the role, how many of these residents must stay). A single pod is a gang of one, minimum 1.
    spare: it is a part of a gang that lives without it, so that none is broken when it goes whole.
    """

    residents: tuple[int, ...]
    minimum: int
    roles: tuple[tuple[tuple[int, ...], int], ...] = ()
    fixed: int = 0
    priority: int = 0
    spare: bool = False

    @property
    def surplus(self) -> int:
        """How many residents may go, as far as the minimum of all tells, while the gang lives."""
        return max(0, min(len(self.residents), len(self.residents) + self.fixed - self.minimum))


@dataclass(frozen=True, slots=True)
class AtMostEvicted:
    """At most `most` of these residents go (a disruption budget)."""

    residents: tuple[int, ...]
    most: int


@dataclass(frozen=True, slots=True)
class AtMostTaken:
    """At most `most` of something goes with these residents (what a queue is guaranteed stays).

    amounts: (resident, amount), none negative.
    """

    amounts: tuple[tuple[int, int], ...]
    most: int


@dataclass(frozen=True, slots=True)
class MustFree:
    """At least `least` of something goes with these residents (a queue's limit). amounts: (resident, amount).

    when: only if one of these residents goes; None: always.
    """

    amounts: tuple[tuple[int, int], ...]
    least: int
    when: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class WhileOver:
    """These residents' queue gives only while it is over: chunks (a whole gang, or one surplus pod) go one by one, and
    before each of them the queue is still over in at least one resource.

    That is: nothing goes, or for one of the resources what goes of it, without the largest chunk, is less than `over`.
    over: (resource, amount over, positive); the resource is a number of the nodes' resources. Of a gang that goes whole
    only the residents named here count. Without any resource nothing may go.
    """

    residents: tuple[int, ...]
    over: tuple[tuple[int, int], ...]


RoomRow: TypeAlias = AtMostEvicted | AtMostTaken | MustFree | WhileOver


@dataclass(frozen=True, eq=False)
class VictimProblem:
    """problem: what is asked; its free amounts and slots are those without any eviction, the rest as in the module.

    refine: the exact problem when these residents are gone, None: `problem` with their amounts free. Every resident
    belongs to exactly one gang.
    """

    problem: PlacementProblem
    residents: tuple[Resident, ...]
    gangs: tuple[RunningGang, ...]
    rows: tuple[RoomRow, ...] = ()
    refine: Callable[[frozenset[int]], PlacementProblem] | None = None

    @cached_property
    def gang_of(self) -> tuple[int, ...]:
        """The gang of every resident."""
        found = [-1] * len(self.residents)
        for number, gang in enumerate(self.gangs):
            for resident in gang.residents:
                found[resident] = number
        return tuple(found)

    def freed(self, evicted: Iterable[int]) -> PlacementProblem:
        """Return `problem` with the amounts and slots of these residents free."""
        nodes = self.problem.nodes
        free, slots = nodes.free.copy(), nodes.slots.copy()
        gone = [self.residents[resident] for resident in evicted]
        where = np.array([one.node for one in gone], dtype=np.intp)
        held = np.array([one.holds for one in gone], dtype=np.int64).reshape(len(gone), free.shape[0])
        for row in range(free.shape[0]):
            np.add.at(free[row], where, held[:, row])
        np.add.at(slots, where, 1)
        return replace(self.problem, nodes=replace(nodes, free=free, slots=slots))

    def without(self, evicted: Iterable[int]) -> PlacementProblem:
        """Return the exact question when these residents are gone."""
        gone = frozenset(evicted)
        return self.freed(sorted(gone)) if self.refine is None else self.refine(gone)


@dataclass(frozen=True, slots=True)
class MadeRoom:
    """evicted: residents in order. optimal: no cheaper set exists, and that is proven; else the set is minimal only."""

    placement: Placement
    evicted: tuple[int, ...]
    optimal: bool


class RoomBug(PlacementBug):
    """Making room contradicted itself: its answer does not pass `verify_room`."""

    def __init__(self, problem: VictimProblem, made: MadeRoom, failures: list[str]) -> None:
        super().__init__(problem.problem, made.placement, failures)
        self.room, self.made = problem, made
        self.args = (f"room: {'; '.join(failures[:5])}\n{dump_room(problem, made)}",)


def keeps_alive(gang: RunningGang, gone: frozenset[int]) -> bool:
    """Whether a gang keeps its minimums when these residents are gone."""
    left = [resident for resident in gang.residents if resident not in gone]
    return len(left) + gang.fixed >= gang.minimum and all(
        sum(resident not in gone for resident in residents) >= least for residents, least in gang.roles
    )


def may_lose(gang: RunningGang, gone: frozenset[int]) -> bool:
    """Whether a gang may lose what `gone` holds of it: nothing, its surplus, or all."""
    lost = sum(resident in gone for resident in gang.residents)
    return lost == 0 or (lost == len(gang.residents) and gang.fixed == 0) or keeps_alive(gang, gone)


def broken(gang: RunningGang, gone: frozenset[int]) -> bool:
    """Whether a gang loses so much that it is below a minimum."""
    return any(resident in gone for resident in gang.residents) and not keeps_alive(gang, gone)


def chunks_of(
    problem: VictimProblem, gone: frozenset[int], named: frozenset[int] | None = None
) -> list[tuple[int, ...]]:
    """Return what goes in one piece: the residents of each broken gang, and every surplus pod for itself.

    named: only of gangs of which one of these goes.
    """
    chunks: list[tuple[int, ...]] = []
    for number in sorted({problem.gang_of[resident] for resident in (gone if named is None else named)}):
        gang = problem.gangs[number]
        lost = tuple(resident for resident in gang.residents if resident in gone)
        if broken(gang, gone):
            chunks.append(lost)
        else:
            chunks.extend((resident,) for resident in lost)
    return chunks


def row_holds(problem: VictimProblem, row: RoomRow, gone: frozenset[int]) -> bool:
    """Whether a row holds for a set of victims."""
    match row:
        case AtMostEvicted(residents, most):
            return len(gone.intersection(residents)) <= most
        case AtMostTaken(amounts, most):
            return taken(amounts, gone) <= most
        case MustFree(amounts, least, when):
            return (when is not None and gone.isdisjoint(when)) or taken(amounts, gone) >= least
        case WhileOver(residents, over):
            named = gone.intersection(residents)
            if not named:
                return True
            chunks = [
                [resident for resident in chunk if resident in named] for chunk in chunks_of(problem, gone, named)
            ]
            for resource, amount in over:
                held = [sum(int(problem.residents[r].holds[resource]) for r in chunk) for chunk in chunks]
                if sum(held) - max(held) < amount:
                    return True
            return False


def taken(amounts: Iterable[tuple[int, int]], gone: frozenset[int]) -> int:
    """Return how much of something goes with these residents. amounts: (resident, amount)."""
    return sum(amount for resident, amount in amounts if resident in gone)


def cost_of(problem: VictimProblem, evicted: Iterable[int]) -> Cost:
    """Return what a set of victims costs."""
    gone = frozenset(evicted)
    if not gone:
        return (NOBODY, 0, 0, 0)
    hurt = sorted({problem.gang_of[resident] for resident in gone})
    return (
        max(problem.gangs[number].priority for number in hurt),
        sum(broken(problem.gangs[number], gone) and not problem.gangs[number].spare for number in hurt),
        len(gone),
        sum(problem.residents[resident].runtime for resident in gone),
    )


def _check_asked(problem: PlacementProblem) -> None:
    check_problem(problem)
    if problem.maximize:
        raise BadProblem("problem.maximize: room is made for what is needed, not for as much as possible")
    for demand in problem.demands:
        if demand.devices is not None:
            raise UnsupportedRule(f"demand {demand.name!r}.devices: residents do not say which devices they hold")


def check_room(problem: VictimProblem) -> None:
    """Raise `BadProblem` for what means nothing."""
    _check_asked(problem.problem)
    size, width = len(problem.problem.nodes.names), len(problem.problem.nodes.resources)
    for number, resident in enumerate(problem.residents):
        if not 0 <= resident.node < size:
            raise BadProblem(f"{_resident(problem, number)}.node: there is no node {resident.node}")
        if resident.holds.shape != (width,):
            raise BadProblem(f"{_resident(problem, number)}.holds: shape {resident.holds.shape} is not ({width},)")
        if resident.runtime < 0:
            raise BadProblem(f"{_resident(problem, number)}.runtime: {resident.runtime} is negative")
    held = np.array([one.holds for one in problem.residents], dtype=np.int64).reshape(len(problem.residents), width)
    for number in np.flatnonzero((held < 0).any(axis=1)).tolist():
        raise BadProblem(f"{_resident(problem, number)}.holds: negative")
    seen: set[int] = set()
    for number, gang in enumerate(problem.gangs):
        where = f"gang {number}"
        _check_numbers(problem, gang.residents, f"{where}.residents")
        if not gang.residents:
            raise BadProblem(f"{where}.residents: none is given")
        if seen.intersection(gang.residents) or len(set(gang.residents)) < len(gang.residents):
            raise BadProblem(f"{where}.residents: one of them is in two gangs")
        seen.update(gang.residents)
        if gang.fixed < 0:
            raise BadProblem(f"{where}.fixed: {gang.fixed} is negative")
        for residents, _ in gang.roles:
            if not set(residents) <= set(gang.residents) or len(set(residents)) < len(residents):
                raise BadProblem(f"{where}.roles: a role holds residents of another gang, or one twice")
    if len(seen) < len(problem.residents):
        raise BadProblem(f"residents: {len(problem.residents) - len(seen)} are in no gang")
    for number, row in enumerate(problem.rows):
        _check_row(problem, row, f"row {number} ({type(row).__name__})")


def _resident(problem: VictimProblem, number: int) -> str:
    return f"resident {number} {problem.residents[number].name!r}"


def _check_row(problem: VictimProblem, row: RoomRow, where: str) -> None:
    match row:
        case AtMostEvicted(residents, _):
            _check_numbers(problem, residents, f"{where}.residents")
        case AtMostTaken(_, most) if most < 0:
            raise BadProblem(f"{where}.most: {most} is negative")
        case AtMostTaken(amounts, _) | MustFree(amounts, _):
            if isinstance(row, MustFree):
                _check_numbers(problem, row.when or (), f"{where}.when")
            named = [resident for resident, _ in amounts]
            _check_numbers(problem, named, f"{where}.amounts")
            if any(amount < 0 for _, amount in amounts):
                raise BadProblem(f"{where}.amounts: negative")
            if len(set(named)) < len(named):
                raise BadProblem(f"{where}.amounts: a resident is named twice")
        case WhileOver(residents, over):
            _check_numbers(problem, residents, f"{where}.residents")
            for resource, amount in over:
                if not 0 <= resource < len(problem.problem.nodes.resources):
                    raise BadProblem(f"{where}.over: there is no resource {resource}")
                if amount <= 0:
                    raise BadProblem(f"{where}.over: {amount} is not positive")


def _check_numbers(problem: VictimProblem, residents: Iterable[int], where: str) -> None:
    for resident in residents:
        if not 0 <= resident < len(problem.residents):
            raise BadProblem(f"{where}: there is no resident {resident}")


def dump_room(problem: VictimProblem, made: MadeRoom | None = None) -> str:
    """Return what matters of a question as text; of many residents only those that go."""
    few = len(problem.residents) <= 64
    shown = range(len(problem.residents)) if few or made is None else made.evicted
    lines = [dump(problem.problem, made.placement if made else None)]
    for number in shown:
        one = problem.residents[number]
        lines.append(f"resident {number} {one.name}: node={one.node} holds={one.holds.tolist()} runtime={one.runtime}")
    hurt = sorted({problem.gang_of[number] for number in shown})
    lines.extend(f"gang {number}: {problem.gangs[number]}" for number in hurt)
    lines.extend(f"row {row}" for row in problem.rows if few)
    if made is not None:
        lines.append(f"evicted {made.evicted} optimal={made.optimal}")
    return "\n".join(lines)
