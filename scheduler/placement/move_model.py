"""Who moves where, as one model: who goes (`room_model`), and where each of them comes to.

Decided here: that pods which hold the same and may go to the same nodes are one kind of arrivals, so that a destination
costs one integer for each kind and node. Every chain of moves is in the model: who comes may take what another leaves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from scheduler.placement.between import extra_rows
from scheduler.placement.cpsat import Model
from scheduler.placement.exact import spent_once
from scheduler.placement.instance import Ints
from scheduler.placement.moves import MoveProblem
from scheduler.placement.problem import NodeView
from scheduler.placement.room_model import Chosen, RoomModel


@dataclass(frozen=True, slots=True, eq=False)
class Arrival:
    """Residents that are alike to their destinations. gang: that must stay together, -1: none."""

    residents: tuple[int, ...]
    holds: Ints
    hosts: NDArray[np.bool_]
    gang: int


def arrivals_of(problem: MoveProblem, movers: Sequence[int]) -> list[Arrival]:
    """Return the kinds of those that may move, in order of their first residents."""
    room = problem.room
    level_of = {rule.gang: rule.level for rule in problem.together}
    grouped: dict[tuple[object, ...], list[int]] = {}
    for resident in movers:
        gang = room.gang_of[resident]
        mark = gang if gang in level_of else -1
        key = (room.residents[resident].holds.tobytes(), problem.kinds[resident] if problem.kinds else 0, mark)
        grouped.setdefault(key, []).append(resident)
    found = []
    for members in grouped.values():
        first = members[0]
        mask, gang = problem.mask(first), room.gang_of[first]
        hosts = np.ones(len(room.problem.nodes.names), dtype=np.bool_) if mask is None else mask
        if gang in level_of:
            hosts = hosts & (room.problem.nodes.domains[level_of[gang]] >= 0)
        found.append(
            Arrival(tuple(members), room.residents[first].holds, hosts, gang if gang in level_of else -1),
        )
    return found


@dataclass(slots=True, eq=False)
class MoveModel(RoomModel):
    """The model of one segment, or of everything: `pieces` of the whole cluster, `nodes` where the pods may be.

    likely: of each kind's destinations so many with room, and so many that lack least, None: all of them.
    """

    at_once: ClassVar[bool] = False
    moving: MoveProblem | None = None
    likely: int | None = None
    arrivals: list[Arrival] = field(default_factory=list)
    values: list[int] = field(default_factory=list)
    _comes: list[dict[int, int]] = field(default_factory=list)

    @classmethod
    def of(cls, moving: MoveProblem, base: RoomModel, likely: int | None = None) -> MoveModel:
        """Return a model with destinations."""
        model = cls(moving.room, base.instance, base.pieces, base.nodes, moving=moving, likely=likely)
        model.arrivals = arrivals_of(moving, base.pieces.residents)
        return model

    def _amounts(self, caps: list[Ints]) -> None:
        """What pods and those that come use of a node is what is free now, and what goes."""
        instance, model, view = self.instance, self.model, self.problem.problem.nodes
        spent = [spent_once(instance, model, self._variables, caps, number) for number in range(len(instance.shared))]
        self._destinations()
        gone = self._leaving()
        names = instance.rows[: len(instance.rows) - 1 - len(extra_rows(self.problem.problem))]
        for resource in range(-1, len(view.resources)):
            row = len(instance.rows) - 1 if resource < 0 else _index(names, view.resources[resource])
            asking = [n for n, kind in enumerate(instance.kinds) if row in kind.rows]
            needs = [1 if resource < 0 else int(kind.holds[resource]) for kind in self.arrivals]
            for node in range(instance.size):
                used = [
                    (self._variables[n][node], int(instance.kinds[n].need[row]), int(caps[n][node]))
                    for n in asking
                    if node in self._variables[n]
                ]
                used.extend(
                    (flag[node], part.amount, 1)
                    for part, flag in zip(instance.shared, spent, strict=True)
                    if part.row == row and node in flag
                )
                used.extend(
                    (comes[node], need, model.most([comes[node]], [1]))
                    for comes, need in zip(self._comes, needs, strict=True)
                    if need and node in comes
                )
                if used:
                    back = [(v, 1 if resource < 0 else held) for v, held in gone.get((resource, node), ())]
                    free = int(view.slots[node] if resource < 0 else view.free[resource, node])
                    _fits(model, used, back, free)
        self._volumes(caps)

    def _volumes(self, caps: list[Ints]) -> None:
        """Limits of nodes that are no amounts: nobody who moves gives any of it back."""
        instance = self.instance
        last = len(instance.rows) - 1
        for row in range(last - len(extra_rows(self.problem.problem)), last):
            asking = [n for n, kind in enumerate(instance.kinds) if row in kind.rows]
            for node in np.flatnonzero(self.nodes).tolist():
                used = [
                    (self._variables[n][node], int(instance.kinds[n].need[row]), int(caps[n][node]))
                    for n in asking
                    if node in self._variables[n]
                ]
                if used:
                    _fits(self.model, used, [], int(instance.free[row, node]))

    def _destinations(self) -> None:
        """As many come of each kind as go of it."""
        model, view = self.model, self.problem.problem.nodes
        free, slots = view.free.copy(), view.slots.copy()
        for resident in self.pieces.residents:
            free[:, self.problem.residents[resident].node] += self.problem.residents[resident].holds
            slots[self.problem.residents[resident].node] += 1
        kind_of = {resident: n for n, kind in enumerate(self.arrivals) for resident in kind.residents}
        goes: list[list[tuple[int, int]]] = [[] for _ in self.arrivals]
        for lot, term in zip(self.pieces.lots, self._lots, strict=True):
            goes[kind_of[lot.members[0]]].append((term.variable, 1))
        for term in self._wholes:
            counts = np.bincount([kind_of[resident] for resident in term.residents], minlength=len(self.arrivals))
            for kind in np.flatnonzero(counts).tolist():
                goes[kind].append((term.variable, int(counts[kind])))
        for number, arrival in enumerate(self.arrivals):
            room = np.minimum(np.where(arrival.hosts, slots, 0), len(arrival.residents))
            for resource in np.flatnonzero(arrival.holds).tolist():
                room = np.minimum(room, free[resource] // arrival.holds[resource])
            room = room if self.likely is None else _likely(view, arrival.holds, room, self.likely)
            comes = {node: model.variable(0, int(room[node])) for node in np.flatnonzero(room > 0).tolist()}
            self._comes.append(comes)
            variables = [*comes.values(), *(variable for variable, _ in goes[number])]
            weights = [*[1] * len(comes), *(-weight for _, weight in goes[number])]
            if variables:
                model.row(variables, weights, 0, 0)
        self._together()

    def _together(self) -> None:
        """A gang that stays together comes to one domain; while some of it stays, to theirs."""
        assert self.moving is not None
        model, view, problem = self.model, self.problem.problem.nodes, self.problem
        wholes = {whole.gang: term.variable for whole, term in zip(self.pieces.wholes, self._wholes, strict=True)}
        for rule in self.moving.together:
            mine = [n for n, kind in enumerate(self.arrivals) if kind.gang == rule.gang]
            if not mine:
                continue
            ids, gang = view.domains[rule.level], problem.gangs[rule.gang]
            now = {int(ids[problem.residents[resident].node]) for resident in gang.residents}
            home = now.pop() if len(now) == 1 else -1
            whole = wholes.get(rule.gang)
            alone = [t.variable for lot, t in zip(self.pieces.lots, self._lots, strict=True) if lot.gang == rule.gang]
            single = len(gang.residents) == 1 and not gang.fixed
            by_domain: dict[int, list[int]] = {}
            for number in mine:
                for node, variable in self._comes[number].items():
                    by_domain.setdefault(int(ids[node]), []).append(variable)
            chosen = {domain: model.variable(0, 1) for domain in sorted(by_domain)}
            for domain, flag in chosen.items():
                here = by_domain[domain]
                model.row([*here, flag], [*[1] * len(here), -len(gang.residents)], None, 0)
            if len(chosen) > 1:
                model.row(list(chosen.values()), [1] * len(chosen), None, 1)
            if single:
                continue
            for domain, flag in chosen.items():
                if domain != home:
                    model.row([flag], [1], None, 0) if whole is None else model.row([flag, whole], [1, -1], None, 0)
            if home < 0 and alone:
                model.row(alone, [1] * len(alone), None, 0)

    def _leaving(self) -> dict[tuple[int, int], list[tuple[int, int]]]:
        """Return, for each (resource or -1 for slots, node), (variable, amount) of what goes there."""
        found: dict[tuple[int, int], dict[int, int]] = {}
        residents = self.problem.residents

        def add(variable: int, resident: int) -> None:
            one = residents[resident]
            for resource, amount in [(-1, 1), *((int(r), int(one.holds[r])) for r in np.flatnonzero(one.holds))]:
                here = found.setdefault((resource, one.node), {})
                here[variable] = here.get(variable, 0) + amount

        for lot, term in zip(self.pieces.lots, self._lots, strict=True):
            add(term.variable, lot.members[0])
        for term in self._wholes:
            for resident in term.residents:
                add(term.variable, resident)
        return {key: sorted(held.items()) for key, held in found.items()}

    def _chosen(self, values: list[int], proven: bool) -> Chosen:
        self.values = values
        return RoomModel._chosen(self, values, proven)

    def moves(self, gone: frozenset[int]) -> tuple[tuple[int, int], ...]:
        """Return where those that go come to in the answer found last: where they were when somebody comes there."""
        found: dict[int, int] = {}
        for kind, comes in zip(self.arrivals, self._comes, strict=True):
            places = {node: self.values[variable] for node, variable in comes.items() if self.values[variable]}
            waiting = []
            for resident in (r for r in kind.residents if r in gone):
                node = self.problem.residents[resident].node
                if places.get(node, 0):
                    found[resident] = node
                    places[node] -= 1
                else:
                    waiting.append(resident)
            left = [node for node, count in sorted(places.items()) for _ in range(count)]
            found.update(zip(waiting, left, strict=True))
        return tuple(sorted(found.items()))


def _likely(view: NodeView, holds: Ints, room: Ints, count: int) -> Ints:
    """Keep the nodes where a pod fits most tightly as things are, and those that lack least."""
    asked = np.flatnonzero(holds)
    rest = (view.free[asked] - holds[asked, None]) / holds[asked, None]
    lacks = -np.minimum(rest, 0).sum(axis=0) + (view.slots < 1)
    order = np.lexsort((np.maximum(rest, 0).sum(axis=0), lacks))
    order = order[room[order] > 0]
    fits = order[lacks[order] == 0][:count]
    others = order[lacks[order] > 0][:count]
    kept = np.zeros_like(room)
    kept[fits], kept[others] = room[fits], room[others]
    return kept


def _fits(model: Model, used: list[tuple[int, int, int]], back: list[tuple[int, int]], free: int) -> None:
    """Add a row of one node. used: (variable, need, most); a node that has less than nothing takes nobody who asks."""
    when = None
    if free < 0:
        when = model.variable(0, 1)
        for variable, _, most in used:
            model.row([variable, when], [1, -most], None, 0)
    variables = [variable for variable, _, _ in used] + [variable for variable, _ in back]
    weights = [need for _, need, _ in used] + [-held for _, held in back]
    model.row(variables, weights, None, free, when=when)


def _index(names: Sequence[str], name: str) -> int:
    return names.index(name) if name in names else -1
