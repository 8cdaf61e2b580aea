"""Room for single pods, one after the other, over running gangs that stay known between the questions.

Most single pods need one piece to go: a pod that is a gang of its own, one surplus pod, or one gang. The best such
piece is found by comparing all of them at once. It is the answer when it is certain that no set of several pieces is
cheaper: nothing of a lower priority suffices anywhere, surplus alone suffices nowhere (or the piece is surplus), and it
is one pod, or there is no surplus to go with a smaller gang. In every other case the question is asked of `make_room`.
So an answer is the one of `make_room`, up to sets that cost the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from scheduler.placement.engine import place
from scheduler.placement.instance import Ints
from scheduler.placement.problem import (
    BadProblem,
    Demand,
    Infeasible,
    Minimum,
    NodeView,
    Placement,
    PlacementProblem,
    Rule,
)
from scheduler.placement.room import make_room
from scheduler.placement.room_check import verify_room
from scheduler.placement.room_lots import spare_of
from scheduler.placement.room_order import moved_back, part_of
from scheduler.placement.victims import (
    AtMostEvicted,
    AtMostTaken,
    MadeRoom,
    MustFree,
    Resident,
    RoomBug,
    RoomRow,
    RunningGang,
    VictimProblem,
    check_room,
    row_holds,
)

Flags = NDArray[np.bool_]


class SinglePods:
    """See the module. Residents and gangs keep the numbers that they have in `room`, whose demands do not matter.

    free, slots: what is free now; the owner may write what else changes. Everything of `room` is copied or only read.
    """

    def __init__(self, room: VictimProblem) -> None:
        check_room(room)
        self._view = room.problem.nodes
        self.free: Ints = room.problem.nodes.free.copy()
        self.slots: Ints = room.problem.nodes.slots.copy()
        self._problem = room.problem
        self._residents = room.residents
        self._gangs = list(room.gangs)
        self._names = _ranks(room.residents)
        self._pieces = _Pieces(room)
        self._gone: set[int] = set()
        self._weighed: dict[tuple[tuple[int, int], ...], Ints] = {}

    def ask(
        self,
        demand: Demand,
        *,
        allowed: Flags | None = None,
        rows: tuple[RoomRow, ...] = (),
        rules: tuple[Rule, ...] = (),
        refine: Callable[[frozenset[int]], PlacementProblem] | None = None,
    ) -> MadeRoom | Infeasible:
        """Return who goes for one pod, or why there is no way. Nothing changes until `book`.

        allowed: over gangs, which may lose something, None: all. rows and refine: as in `VictimProblem`; residents
        that went earlier may be named.
        """
        if demand.count != 1 or demand.minimum != 1:
            raise BadProblem(f"demand {demand.name!r}: one pod is one pod, not {demand.minimum} to {demand.count}")
        may = np.ones(len(self._gangs), dtype=np.bool_) if allowed is None else allowed
        nodes = replace(self._view, free=self.free, slots=self.slots)
        problem = replace(self._problem, nodes=nodes, demands=(demand,), rules=rules)
        room = VictimProblem(problem, self._residents, tuple(self._gangs), rows, refine)
        vars(room)["gang_of"] = self._pieces.gang_of  # known already, and dear to find out for each pod
        answer = self._quick(room, demand, may)
        return self._thorough(room, may) if answer is None else answer

    def book(self, made: MadeRoom, demand: Demand) -> None:
        """Let what was decided happen: who is evicted is gone, the pod is on its node."""
        self.lose(made.evicted)
        for row in made.placement.counts:
            for node, count in row:
                self.free[:, node] -= count * demand.requests
                self.slots[node] -= count

    def lose(self, residents: Sequence[int]) -> None:
        """These are gone, what they held is free."""
        for resident in residents:
            if resident in self._gone:
                raise BadProblem(f"resident {resident} {self._residents[resident].name!r} went before")
            self.free[:, self._residents[resident].node] += self._residents[resident].holds
            self.slots[self._residents[resident].node] += 1
        self._gone.update(residents)
        for number in sorted({self._pieces.gang_of[resident] for resident in residents}):
            self._gangs[number] = _left(self._gangs[number], self._gone)
            self._pieces.update(number, self._gangs[number])

    def _thorough(self, room: VictimProblem, may: Flags) -> MadeRoom | Infeasible:
        """Ask the same of everybody who may still go."""
        gangs = tuple(gang for number, gang in enumerate(self._gangs) if may[number] and gang.residents)
        order = sorted(resident for gang in gangs for resident in gang.residents)
        made = make_room(part_of(replace(room, gangs=gangs), order))
        return made if isinstance(made, Infeasible) else moved_back(made, order)

    def _quick(self, room: VictimProblem, demand: Demand, may: Flags) -> MadeRoom | Infeasible | None:
        """Return the answer when it is nobody, one piece that is certainly the cheapest, or certainly "no"."""
        hosts = np.ones(self.slots.size, dtype=np.bool_) if demand.mask is None else demand.mask
        fits_now = bool((hosts & self._enough(demand, self.free, self.slots)).any())
        if _must(room.rows) and fits_now:
            placed = place(room.without(()))
            return MadeRoom(placed, (), True) if isinstance(placed, Placement) else None
        pieces = self._pieces
        may_go = may[pieces.gang] & hosts[pieces.node] & ~self._barred(room)
        fits = pieces.there & may_go & (self.slots[pieces.node] + pieces.pods_here >= 1)
        for row in np.flatnonzero(demand.requests).tolist():
            fits &= self.free[row][pieces.node] + pieces.holds[row] >= demand.requests[row]
        best = pieces.cheapest(np.flatnonzero(fits), demand, self._names)
        if best is None:
            free, slots = self._after(demand, pieces.pods & may_go)
            if (hosts & self._enough(demand, free, slots)).any():
                return None
            nodes = replace(room.problem.nodes, free=free, slots=slots)
            answer = place(replace(room.problem, nodes=nodes))
            return answer if isinstance(answer, Infeasible) and answer.proven else None
        if not self._certain(demand, may_go, hosts, best):
            return None
        gone = frozenset(pieces.members(best, self._gangs))
        known = None if fits_now else self._only_place(room, gone)
        return self._checked(room, gone) if known is None else known

    def _only_place(self, room: VictimProblem, gone: frozenset[int]) -> MadeRoom | None:
        """Return the answer when the pod fits nowhere now: on the node of these, when that is one, and it passes."""
        nodes = {self._residents[resident].node for resident in gone}
        if len(nodes) > 1 or not all(isinstance(rule, Minimum) for rule in room.problem.rules):
            return None
        placement = Placement((((nodes.pop(), 1),),), "counting")
        made = MadeRoom(placement, tuple(sorted(gone)), True)
        return None if verify_room(room, made, minimal=False) else made

    def _checked(self, room: VictimProblem, gone: frozenset[int]) -> MadeRoom | None:
        """Return the answer in which these go, None when rows or the exact question forbid it."""
        if not all(row_holds(room, row, gone) for row in room.rows):
            return None
        placed = place(room.without(gone))
        if not isinstance(placed, Placement):
            return None
        made = MadeRoom(placed, tuple(sorted(gone)), True)
        failures = verify_room(room, made, minimal=False)
        if failures:
            raise RoomBug(room, made, failures)
        return made

    def _barred(self, room: VictimProblem) -> Flags:
        """Which pieces a row forbids whatever else goes. What rows say of amounts is looked at later."""
        pieces = self._pieces
        barred = np.zeros(pieces.gang.size, dtype=np.bool_)
        for row in room.rows:
            if isinstance(row, MustFree):
                continue
            if isinstance(row, AtMostTaken):
                barred |= self._weights(row) > row.most
            elif row.most <= 0 if isinstance(row, AtMostEvicted) else not row.over:
                named = np.array(row.residents, dtype=np.int64)
                barred[named] = True
                gangs = np.zeros(len(self._gangs), dtype=np.bool_)
                gangs[pieces.gang[named]] = True
                barred[len(self._residents) :] |= gangs[pieces.gang[len(self._residents) :]]
        return barred

    def _weights(self, row: AtMostTaken) -> Ints:
        """Return how much of a row goes with each piece. What the row names is kept: most asks name the same."""
        amounts = self._weighed.get(row.amounts)
        if amounts is None:
            amounts = self._weighed[row.amounts] = np.zeros(len(self._residents), dtype=np.int64)
            for resident, amount in row.amounts:
                amounts[resident] = amount
        left = amounts.copy()
        left[list(self._gone)] = 0
        of_gang = np.zeros(len(self._gangs), dtype=np.int64)
        np.add.at(of_gang, self._pieces.gang[: left.size], left)
        return np.concatenate([amounts, of_gang[self._pieces.gang[left.size :]]])

    def _certain(self, demand: Demand, may_go: Flags, hosts: Flags, best: int) -> bool:
        """Whether no set of several pieces can be cheaper than one piece."""
        pieces = self._pieces
        priority = int(pieces.priority[best])
        lower = may_go & pieces.pods & (pieces.priority < priority)
        if lower.any() and self._suffices(demand, lower, hosts):
            return False
        surplus = may_go & pieces.surplus & (pieces.priority <= priority)
        if pieces.surplus[best] or not surplus.any():
            return True
        return int(pieces.count[best]) == 1 and not self._suffices(demand, surplus, hosts)

    def _suffices(self, demand: Demand, gone: Flags, hosts: Flags) -> bool:
        """Whether on some node it is enough when all these pods go."""
        return bool((hosts & self._enough(demand, *self._after(demand, gone))).any())

    def _after(self, demand: Demand, gone: Flags) -> tuple[Ints, Ints]:
        """Return what is free (of what the pod asks for) when all these pods go."""
        pieces = self._pieces
        chosen = np.flatnonzero(gone)
        node = pieces.node[chosen]
        free = self.free.copy()
        for row in np.flatnonzero(demand.requests).tolist():
            np.add.at(free[row], node, pieces.holds[row][chosen])
        return free, self.slots + np.bincount(node, minlength=self.slots.size)

    def _enough(self, demand: Demand, free: Ints, slots: Ints) -> Flags:
        fits: Flags = slots >= 1
        for row in np.flatnonzero(demand.requests).tolist():
            fits &= free[row] >= demand.requests[row]
        return fits


class _Pieces:
    """What could go in one piece, as columns: each resident for itself, then each gang on each of its nodes.

    there: whether it may go so. pods: the rows of single residents that may go in some way. surplus: without breaking
    anything. count: pods that go with it; pods_here: those on its node, which free `holds`.
    """

    def __init__(self, room: VictimProblem) -> None:
        self.gang_of = room.gang_of
        self._residents = room.residents
        single = len(room.residents)
        groups = [(g, node) for g, gang in enumerate(room.gangs) if len(gang.residents) > 1 for node in _on(room, gang)]
        size = single + len(groups)
        self._group = {group: single + place for place, group in enumerate(groups)}
        self.gang: Ints = np.array([*room.gang_of, *(gang for gang, _ in groups)], dtype=np.int64)
        self.node: Ints = np.array([*(r.node for r in room.residents), *(node for _, node in groups)], dtype=np.int64)
        self.priority: Ints = np.array([room.gangs[gang].priority for gang in self.gang.tolist()], dtype=np.int64)
        self.holds: Ints = np.zeros((len(room.problem.nodes.resources), size), dtype=np.int64)
        self.there, self.pods, self.surplus = (np.zeros(size, dtype=np.bool_) for _ in range(3))
        self.count, self.pods_here, self.runtime = (np.zeros(size, dtype=np.int64) for _ in range(3))
        for number, resident in enumerate(room.residents):
            self.holds[:, number] = resident.holds
            self.count[number] = self.pods_here[number] = 1
            self.runtime[number] = resident.runtime
        for number, gang in enumerate(room.gangs):
            self.update(number, gang, room.problem.nodes)

    def update(self, number: int, gang: RunningGang, nodes: NodeView | None = None) -> None:
        """Say again what may go of a gang that lost somebody."""
        mine = self.gang == number if nodes is None else None
        if mine is not None:
            self.there[mine] = self.pods[mine] = self.surplus[mine] = False
        if not gang.residents:
            return
        spare, roles = spare_of(gang)
        whole = gang.fixed == 0
        for resident in gang.residents:
            loose = spare > 0 and all(most > 0 for members, most in roles if resident in members)
            alone = whole and len(gang.residents) == 1
            self.pods[resident] = loose or whole
            self.there[resident] = loose or alone
            self.surplus[resident] = loose
        if len(gang.residents) == 1:
            return
        free = spare >= len(gang.residents) and all(most >= len(members) for members, most in roles)
        runtime = sum(self._residents[resident].runtime for resident in gang.residents)
        of_node: dict[int, list[int]] = {}
        for resident in gang.residents:
            of_node.setdefault(self._residents[resident].node, []).append(resident)
        for node, here in of_node.items():
            row = self._group[number, node]
            self.there[row] = whole and not free
            self.holds[:, row] = np.sum([self._residents[resident].holds for resident in here], axis=0)
            self.count[row], self.pods_here[row], self.runtime[row] = len(gang.residents), len(here), runtime

    def cheapest(self, rows: NDArray[np.intp], demand: Demand, names: Ints) -> int | None:
        """Return the cheapest of these; among equals the one that holds least of what is asked for, then the one on the
        node with the best score, then the first name."""
        if not rows.size:
            return None
        keys: list[Ints] = [self.priority, np.where(self.surplus, 0, 1), self.count, self.runtime]
        keys.extend(self.holds[row] for row in np.flatnonzero(demand.requests).tolist())
        if demand.scores is not None:
            keys.append(-demand.scores[self.node])
        for key in keys:
            here = key[rows]
            rows = rows[here == here.min()]
        first = [int(names[row]) if row < names.size else names.size + int(row) for row in rows.tolist()]
        return int(rows[int(np.argmin(first))])

    def members(self, row: int, gangs: Sequence[RunningGang]) -> tuple[int, ...]:
        """Return the residents of a piece."""
        return (row,) if row < len(self._residents) else gangs[int(self.gang[row])].residents


def _ranks(residents: Sequence[Resident]) -> Ints:
    """Return the place of each resident in the order of names."""
    order = sorted(range(len(residents)), key=lambda number: (residents[number].name, number))
    ranks = np.empty(len(residents), dtype=np.int64)
    ranks[order] = np.arange(len(residents))
    return ranks


def _on(room: VictimProblem, gang: RunningGang) -> list[int]:
    return sorted({room.residents[resident].node for resident in gang.residents})


def _must(rows: Sequence[RoomRow]) -> bool:
    """Whether nobody must go whatever is free."""
    return all(row.least <= 0 for row in rows if isinstance(row, MustFree) and row.when is None)


def _left(gang: RunningGang, gone: set[int]) -> RunningGang:
    return replace(
        gang,
        residents=tuple(resident for resident in gang.residents if resident not in gone),
        roles=tuple((tuple(r for r in residents if r not in gone), least) for residents, least in gang.roles),
    )
