"""Who has to go, as one model: pods on nodes as in the exact placement, where amounts grow with the pieces that go.

Decided here: the rows. The pods of a gang that goes whole are one variable, interchangeable pods are one integer. The
cost is minimized in two steps, gangs broken and pods first, then the work that is lost: one sum of all three would be
too large for the solver's bounds to be any good. An answer is exact when both steps are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from scheduler.placement.between import extra_rows
from scheduler.placement.cpsat import Clock, Model, Status
from scheduler.placement.exact import apart_rows, composition_rows, spent_once
from scheduler.placement.instance import Instance, Ints
from scheduler.placement.room_cuts import necessary_rows
from scheduler.placement.room_lots import Pieces
from scheduler.placement.rows import cells_of, domain_rows
from scheduler.placement.standing import grouping
from scheduler.placement.victims import AtMostEvicted, AtMostTaken, MustFree, RoomRow, VictimProblem, WhileOver


@dataclass(frozen=True, slots=True)
class Chosen:
    """cost: (gangs broken, pods, runtime); None without a set. proven: none is cheaper, or none exists at all."""

    evicted: frozenset[int]
    cost: tuple[int, int, int] | None
    proven: bool


@dataclass(slots=True)
class _Term:
    """One piece: its variable, and what one unit of it is."""

    variable: int
    residents: tuple[int, ...]
    count: int
    breaks: int


@dataclass(slots=True, eq=False)
class RoomModel:
    """The model of one segment, or of everything. `instance`: of the question with all candidates gone."""

    at_once: ClassVar[bool] = True
    """Whether the solver's bounds need most of the rows."""

    problem: VictimProblem
    instance: Instance
    pieces: Pieces
    nodes: NDArray[np.bool_]
    model: Model = field(default_factory=Model)
    _lots: list[_Term] = field(default_factory=list)
    _wholes: list[_Term] = field(default_factory=list)
    _variables: list[dict[int, int]] = field(default_factory=list)
    _terms_of: dict[int, list[_Term]] = field(default_factory=dict)

    def build(self) -> None:
        """Add all variables and rows."""
        for lot in self.pieces.lots:
            self._lots.append(_Term(self.model.variable(0, lot.most), lot.members, 1, int(lot.single)))
        for whole in self.pieces.wholes:
            self._wholes.append(
                _Term(self.model.variable(0, 1), whole.residents, len(whole.residents), int(whole.breaks))
            )
        goes = {whole.gang: term.variable for whole, term in zip(self.pieces.wholes, self._wholes, strict=True)}
        for gang, lots, most in self.pieces.limits:
            mine = [self._lots[lot].variable for lot in lots]
            if gang in goes:
                self.model.row([*mine, goes[gang]], [*[1] * len(mine), most], None, most)
            else:
                self.model.row(mine, [1] * len(mine), None, most)
        self._pods()
        for row in self.problem.rows:
            self._row(row)

    def _pods(self) -> None:
        """What is asked for, on the nodes, with what goes."""
        instance, model = self.instance, self.model
        counts = composition_rows(instance, model)
        caps = [np.where(self.nodes, kind.cap, 0) for kind in instance.kinds]
        for number, cap in enumerate(caps):
            placed = {node: model.variable(0, int(cap[node])) for node in np.flatnonzero(cap).tolist()}
            self._variables.append(placed)
            mine = [counts[d] for d in instance.kinds[number].members]
            model.row([*placed.values(), *mine], [*[1] * len(placed), *[-1] * len(mine)], 0, 0)
        self._amounts(caps)
        necessary_rows(model, instance, self.problem.problem.nodes, self._variables, self._released())
        apart_rows(instance, model, self._variables, caps, self.nodes)
        domain_rows(instance, model, cells_of(model, self._variables, caps, grouping(instance)))

    def _amounts(self, caps: list[Ints]) -> None:
        """What pods use of a node is what is free now, and what goes."""
        instance, model, view = self.instance, self.model, self.problem.problem.nodes
        released = self._released()
        spent = [spent_once(instance, model, self._variables, caps, number) for number in range(len(instance.shared))]
        asked = len(instance.rows) - 1 - len(extra_rows(self.problem.problem))
        for row in range(len(instance.rows)):
            asking = [n for n, kind in enumerate(instance.kinds) if row in kind.rows]
            resource = view.resources.index(instance.rows[row]) if row < asked else -1
            fixed = asked <= row < len(instance.rows) - 1
            now = instance.free[row] if fixed else view.slots if resource < 0 else view.free[resource]
            for node in np.flatnonzero(self.nodes).tolist():
                here = [
                    (self._variables[n][node], int(instance.kinds[n].need[row]), n)
                    for n in asking
                    if node in self._variables[n]
                ]
                once = [
                    (flag[node], part.amount)
                    for part, flag in zip(instance.shared, spent, strict=True)
                    if part.row == row and node in flag
                ]
                free = int(now[node])
                wanted = sum(need * int(caps[n][node]) for _, need, n in here) + sum(amount for _, amount in once)
                if (not here and not once) or wanted <= free:
                    continue
                back = [] if fixed else [(v, held) for v, held in _held(released.get(node, ()), resource) if held]
                used = [(variable, need) for variable, need, _ in here] + once
                when = None
                if free < 0:
                    when = model.variable(0, 1)
                    for variable, _, n in here:
                        model.row([variable, when], [1, -int(caps[n][node])], None, 0)
                    for variable, _ in once:
                        model.row([variable, when], [1, -1], None, 0)
                variables = [variable for variable, _ in used] + [variable for variable, _ in back]
                weights = [need for _, need in used] + [-held for _, held in back]
                model.row(variables, weights, None, free, when=when)

    def _released(self) -> dict[int, list[tuple[int, Ints, int]]]:
        """Return, for each node, (variable, amounts, slots) of what one unit of each piece frees there."""
        found: dict[int, list[tuple[int, Ints, int]]] = {}
        for lot, term in zip(self.pieces.lots, self._lots, strict=True):
            if self.nodes[lot.node]:
                found.setdefault(lot.node, []).append((term.variable, self.problem.residents[lot.members[0]].holds, 1))
        for term in self._wholes:
            here: dict[int, list[int]] = {}
            for resident in term.residents:
                here.setdefault(self.problem.residents[resident].node, []).append(resident)
            for node, residents in here.items():
                if self.nodes[node]:
                    holds = sum(
                        (self.problem.residents[r].holds for r in residents[1:]),
                        self.problem.residents[residents[0]].holds,
                    )
                    found.setdefault(node, []).append((term.variable, holds, len(residents)))
        return found

    def _row(self, row: RoomRow) -> None:
        match row:
            case AtMostEvicted(residents, most):
                self._sum(dict.fromkeys(residents, 1), None, most)
            case AtMostTaken(amounts, most):
                self._sum(dict(amounts), None, most)
            case MustFree(amounts, least, when):
                self._sum(dict(amounts), least, None, when)
            case WhileOver(residents, over):
                self._while_over(frozenset(residents), over)

    def _weights(self, weigh: Mapping[int, int]) -> list[tuple[int, int]]:
        """Return (variable, weight of one unit) of the pieces that weigh anything. weigh: by resident."""
        if not self._terms_of:
            for term in self._lots:
                self._terms_of.setdefault(term.residents[0], []).append(term)
            for term in self._wholes:
                for resident in term.residents:
                    self._terms_of.setdefault(resident, []).append(term)
        weights: dict[int, int] = {}
        for resident, weight in weigh.items():
            for term in self._terms_of.get(resident, ()) if weight else ():
                weights[term.variable] = weights.get(term.variable, 0) + weight
        return sorted(weights.items())

    def _sum(
        self, weigh: Mapping[int, int], low: int | None, high: int | None, when: tuple[int, ...] | None = None
    ) -> None:
        """Bound a sum over what goes; where `when` is given, only if one of these goes."""
        terms = self._weights(weigh)
        flag = None
        if when is not None:
            flag = self.model.variable(0, 1)
            for variable, _ in self._weights(dict.fromkeys(when, 1)):
                self.model.row([variable, flag], [1, -self.model.most([variable], [1])], None, 0)
        if terms:
            self.model.row([variable for variable, _ in terms], [weight for _, weight in terms], low, high, when=flag)
        elif low is not None and low > 0:
            if flag is None:
                self._never()
            else:
                self.model.row([flag], [1], None, 0)

    def _never(self) -> None:
        self.model.row([self.model.variable(0, 0)], [1], 1, None)

    def _while_over(self, inside: frozenset[int], over: Sequence[tuple[int, int]]) -> None:
        """One chunk is the last; without it, in one of the resources less went than the queue is over."""
        residents = self.problem.residents
        taken = self._weights(dict.fromkeys(inside, 1))
        if not taken:
            return
        last = {variable: self.model.variable(0, 1) for variable, _ in taken}
        for variable, flag in last.items():
            self.model.row([flag, variable], [1, -1], None, 0)
        self.model.row(list(last.values()), [1] * len(last), None, 1)
        flags = []
        for resource, amount in over:
            flag = self.model.variable(0, 1)
            flags.append(flag)
            held = {resident: int(residents[resident].holds[resource]) for resident in inside}
            terms = self._weights(held)
            if not terms:
                continue
            variables = [variable for variable, _ in terms] + [last[variable] for variable, _ in terms]
            weights = [weight for _, weight in terms] + [-weight for _, weight in terms]
            self.model.row(variables, weights, None, amount - 1, when=flag)
        if not flags:
            self.model.row(list(last), [1] * len(last), None, 0)
            return
        self.model.row(flags, [1] * len(flags), 1, None)

    def forbid(self, refused: Iterable[frozenset[int]]) -> None:
        """Somebody outside each of these sets must go; pieces must be single pods or whole gangs."""
        for gone in refused:
            outside = [t.variable for t in (*self._lots, *self._wholes) if not gone.issuperset(t.residents)]
            if outside:
                self.model.row(outside, [1] * len(outside), 1, None)
            else:
                self._never()

    def solve(self, clock: Clock, below: tuple[int, int, int] | None) -> Chosen:
        """Return the cheapest set that costs less than `below`."""
        terms = [*self._lots, *self._wholes]
        most = sum(self.pieces.lots[n].most * t.count for n, t in enumerate(self._lots)) + sum(
            t.count for t in self._wholes
        )
        heavy = most + 1
        weights = [heavy * term.breaks + term.count for term in terms]
        variables = [term.variable for term in terms]
        runtimes = len(self._runtimes()) > 1
        if below is not None:
            worse = below[1] <= most and not self._quicker(below)
            limit = heavy * below[0] + min(below[1], most) - worse
            self.model.row(variables, weights, None, limit)
        self.model.minimize(variables, weights)
        first = self.model.solve(clock, whole=self.at_once)
        if first.status is Status.IMPOSSIBLE:
            return Chosen(frozenset(), None, True)
        if first.status is Status.UNKNOWN:
            return Chosen(frozenset(), None, False)
        values, proven = first.values, first.status is Status.FOUND
        if runtimes:
            worth = sum(weight * values[variable] for variable, weight in zip(variables, weights, strict=True))
            tie = below is not None and divmod(worth, heavy) == below[:2]
            self.model.row(variables, weights, None, worth)
            units, costs = self._unit_costs()
            if tie and below is not None:
                self.model.row(units, costs, None, below[2] - 1)
            self.model.minimize(units, costs)
            second = self.model.solve(clock, whole=self.at_once)
            if second.status in (Status.FOUND, Status.BETTER):
                values = second.values
            elif tie:
                return Chosen(frozenset(), None, proven and second.status is Status.IMPOSSIBLE)
            proven &= second.status is Status.FOUND
        return self._chosen(values, proven)

    def _runtimes(self) -> set[int]:
        """Return how long pods ran; when all ran as long, as many pods are as much work."""
        return {self.problem.residents[r].runtime for t in (*self._lots, *self._wholes) for r in t.residents}

    def _quicker(self, below: tuple[int, int, int]) -> bool:
        """Whether as many gangs and pods as in another set can be less work."""
        each = self._runtimes()
        return below[2] > 0 if len(each) > 1 else below[1] * min(each, default=0) < below[2]

    def _unit_costs(self) -> tuple[list[int], list[int]]:
        """Split lots into single pods, the cheapest first; return variables and the work lost with each."""
        residents = self.problem.residents
        units: list[int] = []
        costs: list[int] = []
        for lot, term in zip(self.pieces.lots, self._lots, strict=True):
            each = [residents[r].runtime for r in lot.members[: lot.most]]
            if len(set(each)) == 1:
                units.append(term.variable)
                costs.append(each[0])
                continue
            here = [self.model.variable(0, 1) for _ in each]
            self.model.row([*here, term.variable], [*[1] * len(here), -1], 0, 0)
            units.extend(here)
            costs.extend(each)
        for term in self._wholes:
            units.append(term.variable)
            costs.append(sum(residents[r].runtime for r in term.residents))
        return units, costs

    def _chosen(self, values: list[int], proven: bool) -> Chosen:
        gone: set[int] = set()
        breaks = 0
        for term in self._lots:
            gone.update(term.residents[: values[term.variable]])
            breaks += term.breaks * values[term.variable]
        for term in self._wholes:
            if values[term.variable]:
                gone.update(term.residents)
                breaks += term.breaks
        runtime = sum(self.problem.residents[resident].runtime for resident in gone)
        return Chosen(frozenset(gone), (breaks, len(gone), runtime), proven)


def _held(released: Iterable[tuple[int, Ints, int]], resource: int) -> list[tuple[int, int]]:
    return [(variable, slots if resource < 0 else int(holds[resource])) for variable, holds, slots in released]
