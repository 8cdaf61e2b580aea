"""What it means to place pods by moving running pods elsewhere, so that nobody loses anything. Values only.

Decided here: that a move is a pod that goes (as in `victims`: a gang whole, or some of its surplus) *and* a node that
has room for the pod which its controller makes in its place, when all others have gone and come. A gang that moves
whole may come back to nodes where it was. Which of two sets of moves is better is what `victims` says of two sets that
go: the highest priority that is disturbed, gangs disturbed as a whole, pods, seconds of work lost.

`verify_moves` is the specification, and every answer passes it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from scheduler.placement.problem import (
    BadProblem,
    Placement,
    PlacementBug,
    PlacementProblem,
)
from scheduler.placement.verify import verify
from scheduler.placement.victims import (
    AtMostEvicted,
    Cost,
    MadeRoom,
    VictimProblem,
    check_room,
    cost_of,
    dump_room,
    may_lose,
    row_holds,
)


@dataclass(frozen=True, slots=True)
class Together:
    """All residents of a gang, moved or not, are in one domain of a level once one of them moved.

    With fixed members it is the domain where its residents are now; when they are in several, none of them moves.
    """

    gang: int
    level: str


@dataclass(frozen=True, slots=True, eq=False)
class MoveProblem:
    """room: what is asked and who may move; of its rows only budgets (`AtMostEvicted`), which a moved pod counts for.

    masks: the nodes where a kind of residents may go (None: all of them). kinds: for each resident its mask, () = the
    first mask for all. A resident whose mask allows no node stays.
    """

    room: VictimProblem
    masks: tuple[NDArray[np.bool_] | None, ...] = (None,)
    kinds: tuple[int, ...] = ()
    together: tuple[Together, ...] = ()

    def mask(self, resident: int) -> NDArray[np.bool_] | None:
        """Return the nodes where a resident may go, None: all."""
        return self.masks[self.kinds[resident] if self.kinds else 0]

    def after(self, moves: Iterable[tuple[int, int]]) -> PlacementProblem:
        """Return the question once these residents have moved."""
        listed = list(moves)
        base = self.room.without(resident for resident, _ in listed)
        free, slots = base.nodes.free.copy(), base.nodes.slots.copy()
        for resident, node in listed:
            free[:, node] -= self.room.residents[resident].holds
            slots[node] -= 1
        return replace(base, nodes=replace(base.nodes, free=free, slots=slots))


@dataclass(frozen=True, slots=True)
class Relocated:
    """moves: (resident, its new node) in order of residents. optimal: no cheaper moves exist, and that is proven."""

    placement: Placement
    moves: tuple[tuple[int, int], ...]
    optimal: bool


class MoveBug(PlacementBug):
    """Moving contradicted itself: its answer does not pass `verify_moves`."""

    def __init__(self, problem: MoveProblem, answer: Relocated, failures: list[str]) -> None:
        super().__init__(problem.room.problem, answer.placement, failures)
        self.moving, self.answer = problem, answer
        self.args = (f"moves: {'; '.join(failures[:5])}\n{dump_moves(problem, answer)}",)


def price(problem: MoveProblem, moves: Iterable[tuple[int, int]]) -> Cost:
    """Return what moves cost."""
    return cost_of(problem.room, [resident for resident, _ in moves])


def check_moves(problem: MoveProblem) -> None:
    """Raise `BadProblem` for what means nothing."""
    room = problem.room
    check_room(room)
    nodes = room.problem.nodes
    size = len(nodes.names)
    for number, row in enumerate(room.rows):
        if not isinstance(row, AtMostEvicted):
            raise BadProblem(f"row {number} ({type(row).__name__}): what moves is not taken from anybody")
    for number, mask in enumerate(problem.masks):
        if mask is not None and mask.shape != (size,):
            raise BadProblem(f"masks[{number}]: shape {mask.shape} is not ({size},)")
    if problem.kinds and len(problem.kinds) != len(room.residents):
        raise BadProblem(f"kinds: {len(problem.kinds)} for {len(room.residents)} residents")
    for resident, kind in enumerate(problem.kinds or (0,) * len(room.residents)):
        if not 0 <= kind < len(problem.masks):
            raise BadProblem(f"kinds[{resident}]: there is no mask {kind}")
    named: set[int] = set()
    for number, rule in enumerate(problem.together):
        where = f"together {number}"
        if not 0 <= rule.gang < len(room.gangs):
            raise BadProblem(f"{where}.gang: there is no gang {rule.gang}")
        if rule.gang in named:
            raise BadProblem(f"{where}.gang: gang {rule.gang} is named twice")
        named.add(rule.gang)
        if rule.level not in nodes.domains:
            raise BadProblem(f"{where}.level: no domains are given for {rule.level!r}")
        if nodes.domains[rule.level].shape != (size,):
            raise BadProblem(f"{where}.level: the domains of {rule.level!r} have another shape than the nodes")


def verify_moves(problem: MoveProblem, answer: Relocated) -> list[str]:
    """Return what the answer violates; [] = valid."""
    room = problem.room
    size = len(room.problem.nodes.names)
    gone = frozenset(resident for resident, _ in answer.moves)
    if [resident for resident, _ in answer.moves] != sorted(gone):
        return ["the moved are not in order, or one is named twice"]
    for resident, node in answer.moves:
        if not 0 <= resident < len(room.residents) or not 0 <= node < size:
            return [f"move ({resident}, {node}): no such resident or node"]
    failures = [
        f"gang {number} moves a part that is not surplus"
        for number, gang in enumerate(room.gangs)
        if not may_lose(gang, gone)
    ]
    failures.extend(f"broken: {row}" for row in room.rows if not row_holds(room, row, gone))
    for resident, node in answer.moves:
        mask = problem.mask(resident)
        if mask is not None and not mask[node]:
            failures.append(f"resident {resident} may not go to {room.problem.nodes.names[node]}")
    for rule in problem.together:
        failures.extend(_apart(problem, rule, dict(answer.moves)))
    after = problem.after(answer.moves)
    failures.extend(verify(after, answer.placement))
    failures.extend(_arrivals(problem, after, answer))
    return failures


def _apart(problem: MoveProblem, rule: Together, moves: dict[int, int]) -> list[str]:
    gang = problem.room.gangs[rule.gang]
    if not moves.keys() & set(gang.residents):
        return []
    ids = problem.room.problem.nodes.domains[rule.level]
    now = {int(ids[problem.room.residents[resident].node]) for resident in gang.residents}
    then = {int(ids[moves.get(resident, problem.room.residents[resident].node)]) for resident in gang.residents}
    if len(then) > 1 or -1 in then:
        return [f"gang {rule.gang}: in domains {sorted(then)} of {rule.level!r}"]
    if gang.fixed and then != now:
        return [f"gang {rule.gang}: not in the domain of {rule.level!r} where its fixed members are"]
    return []


def _arrivals(problem: MoveProblem, after: PlacementProblem, answer: Relocated) -> list[str]:
    """Whoever comes to a node has room there beside what is placed on it."""
    view = after.nodes
    free = view.free.astype(object) if _large(after, answer) else view.free.copy()
    slots = view.slots.copy()
    for demand, row in zip(after.demands, answer.placement.counts, strict=True):
        for node, pods in row:
            free[:, node] -= demand.requests * pods
            slots[node] -= pods
    failures = []
    for resident, node in answer.moves:
        holds, name = problem.room.residents[resident].holds, view.names[node]
        if slots[node] < 0:
            failures.append(f"resident {resident}: no slot on {name}")
        for number, resource in enumerate(view.resources):
            if holds[number] and free[number, node] < 0:
                failures.append(f"resident {resident}: {-free[number, node]} {resource} too many on {name}")
    return failures


def _large(after: PlacementProblem, answer: Relocated) -> bool:
    """Whether 64 bits could overflow."""
    most = max((int(demand.requests.max(initial=0)) for demand in after.demands), default=0)
    return most * max(1, answer.placement.total) >= 2**61


def dump_moves(problem: MoveProblem, answer: Relocated | None = None) -> str:
    """Return what matters of a question as text."""
    made = None
    if answer is not None:
        made = MadeRoom(answer.placement, tuple(resident for resident, _ in answer.moves), answer.optimal)
    lines = [dump_room(problem.room, made), f"kinds={problem.kinds} together={problem.together}"]
    for number, mask in enumerate(problem.masks):
        lines.append(f"mask {number}: {'all' if mask is None else np.flatnonzero(mask).tolist()[:64]}")
    if answer is not None:
        lines.append(f"moves={answer.moves}")
    return "\n".join(lines)
