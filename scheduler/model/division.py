"""One division of the cluster among queues, by name, and the running account of what they use.

Decided here: how the arithmetic of `quota` is asked and kept up to date. What a queue is entitled to is computed once;
what it uses, and so what it may still use, changes with each charge, at the cost of the depth of the tree.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scheduler.model import quota
from scheduler.model.filling import CEILING, Ints
from scheduler.model.quota import Fields, History, Structure
from scheduler.model.resources import Amounts, amounts


@dataclass(frozen=True, slots=True)
class Shortage:
    """Why a queue may not use so much more of a resource.

    queue: where it ends, the queue itself or one above it. why: limit (its limit; this when others say the same),
    guarantees (what is kept for other queues below it), or total (the capacity of the cluster; queue is the root).
    room: how much may be used (it can be below 0).
    """

    queue: str
    resource: str
    asked: int
    room: int
    why: str


class Division:
    """See the module. Not thread safe: a session has its own."""

    def __init__(
        self,
        names: Sequence[str],
        structure: Structure,
        fields: Fields,
        resources: Sequence[str],
        total: Amounts,
        usage: Mapping[str, Amounts],
        waiting: Mapping[str, Amounts],
        history: History | None = None,
    ) -> None:
        """Divide `total` among `names` (the rows of `structure` and `fields`; its columns are `resources`).

        usage: what each queue uses itself; of queues that are not in the tree, it counts at the root, and so does what
        others use in the cluster when it is given under the root's name. waiting: what is asked for besides.
        """
        self.names = tuple(names)
        self.resources = tuple(resources)
        self.structure = structure
        self.index = {name: row for row, name in enumerate(names)}
        self.column = {name: number for number, name in enumerate(resources)}
        own = self._table(usage, structure.root)
        demand = own + self._table(waiting, None)
        capacity = np.asarray([dict(total).get(name, 0) for name in resources], dtype=np.int64)
        self.counts: NDArray[np.bool_] = fields.named(structure)
        self.entitlements = quota.entitlements(structure, fields, demand, capacity, history)
        self.owed = quota.owed(structure, fields)
        self._capacity: list[int] = capacity.tolist()
        self._parent: list[int] = structure.parent.tolist()
        self._limit: list[list[int]] = np.where(fields.limit >= 0, fields.limit, CEILING).tolist()
        held, used = quota.held(structure, fields, capacity), quota.subtree(structure, own)
        self._held: list[list[int]] = held.tolist()
        self._used: list[list[int]] = used.tolist()
        self._demand = quota.subtree(structure, demand)
        idle = quota.idle_guarantees(structure, fields, used, held)
        self._idle: list[list[int]] = idle.tolist()
        self._kept: list[list[int]] = quota.sums_below(structure, idle).tolist()

    def _table(self, values: Mapping[str, Amounts], elsewhere: int | None) -> Ints:
        table = np.zeros((len(self.names), len(self.resources)), dtype=np.int64)
        for name, parts in values.items():
            row = self.index.get(name, elsewhere)
            if row is not None:
                for resource, value in parts:
                    if resource in self.column:
                        table[row, self.column[resource]] += min(value, CEILING // 2)
        most: Ints = np.minimum(table, CEILING // 2)
        return most

    def lineage(self, name: str) -> tuple[str, ...]:
        """Return the queue and those above it, the root last."""
        return tuple(self.names[row] for row in self._line(self.index[name]))

    def _line(self, row: int) -> list[int]:
        line = [row]
        while (row := self._parent[row]) >= 0:
            line.append(row)
        return line

    def apart(self, one: str, other: str) -> tuple[str, str] | None:
        """Return the topmost of the queues and their ancestors that differ; None where one stands below the other."""
        for mine, theirs in zip(reversed(self.lineage(one)), reversed(self.lineage(other)), strict=False):
            if mine != theirs:
                return mine, theirs
        return None

    def used(self, name: str) -> Amounts:
        """Return what the queue and everything below it use now."""
        return self._amounts(self._used[self.index[name]])

    def demand(self, name: str) -> Amounts:
        """Return what it used and asked for when the division was made, with everything below it."""
        return self._amounts(self._demand[self.index[name]].tolist())

    def entitlement(self, name: str) -> Amounts:
        """Return what the queue is entitled to."""
        return self._amounts(self.entitlements[self.index[name]].tolist())

    def deserved(self, name: str) -> Amounts:
        """Return what it deserves, wanted or not (CEILING: unlimited), at least its guarantee."""
        return self._amounts(self.owed[self.index[name]].tolist())

    def guaranteed(self, name: str) -> Amounts:
        """Return what is held for the queue and everything below it."""
        return self._amounts(self._held[self.index[name]])

    def _amounts(self, values: Iterable[int]) -> Amounts:
        return amounts(zip(self.resources, values, strict=True))

    def beyond(self, name: str, ask: Amounts = (), *, deserved: bool = False) -> Amounts:
        """Return by how much the queue with `ask` is above its entitlement (or what it deserves) where that counts.

        Empty: it is within it.
        """
        row = self.index[name]
        of = (self.owed if deserved else self.entitlements)[row].tolist()
        more, used, counts = dict(ask), self._used[row], self.counts[row].tolist()
        found = {}
        for column, resource in enumerate(self.resources):
            if counts[column]:
                found[resource] = max(0, used[column] + more.get(resource, 0) - of[column])
        return amounts(found)

    def within(self, name: str, ask: Amounts, *, deserved: bool = False) -> bool:
        """Return whether it stays within that in every resource that is asked for."""
        asked = {resource for resource, value in ask if value > 0}
        return not any(resource in asked for resource, _ in self.beyond(name, ask, deserved=deserved))

    def share(self, name: str, ask: Amounts = ()) -> float:
        """Return the dominant share of the entitlement, counting `ask`; inf beyond an entitlement of nothing."""
        row, more = self.index[name], dict(ask)
        of, counts = self.entitlements[row].tolist(), self.counts[row].tolist()
        used = [value + more.get(resource, 0) for resource, value in zip(self.resources, self._used[row], strict=True)]
        pairs = [pair for pair, counted in zip(zip(used, of, strict=True), counts, strict=True) if counted]
        return quota.dominant_share([one for one, _ in pairs], [whole for _, whole in pairs])

    def headroom(self, name: str) -> tuple[tuple[str, int], ...]:
        """Return how much more of each resource it may use now; 0 and below 0 are listed too."""
        line = self._line(self.index[name])
        return tuple((resource, self._room(line, column)[0]) for column, resource in enumerate(self.resources))

    def shortages(self, name: str, ask: Amounts) -> tuple[Shortage, ...]:
        """Return what keeps the queue from using `ask` more, by resource; empty: nothing does."""
        line = self._line(self.index[name])
        found = []
        for resource, asked in ask:
            column = self.column.get(resource)
            room, row, why = (0, line[-1], "total") if column is None else self._room(line, column)
            if asked > 0 and room < asked:
                found.append(Shortage(self.names[row], resource, asked, room, why))
        return tuple(found)

    def _room(self, line: Sequence[int], column: int) -> tuple[int, int, str]:
        root = up = line[-1]
        used = self._used
        room, where, why = self._capacity[column] - used[root][column], root, "total"
        for row in reversed(line):
            if row != root:
                beside = self._kept[up][column] - self._idle[row][column]
                if beside > 0:
                    room, where, why = room - beside, up, "guarantees"
            own = self._limit[row][column] - used[row][column]
            if own <= room:
                room, where, why = own, row, "limit"
            up = row
        return room, where, why

    def charge(self, name: str, ask: Amounts, times: int = 1) -> None:
        """Add `times` `ask` (negative: take away) to what the queue and those above it use.

        A queue that is not in the tree is charged at the root. Resources that are not divided are not counted.
        """
        line = self._line(self.index.get(name, self.structure.root))
        for resource, value in ask:
            column = self.column.get(resource)
            if column is None:
                continue
            for row in line:
                used = self._used[row][column] + value * times
                self._used[row][column] = used
                idle = max(self._held[row][column] - used, self._kept[row][column])
                idle = min(idle, max(0, self._limit[row][column] - used))
                if row != line[-1]:
                    self._kept[self._parent[row]][column] += idle - self._idle[row][column]
                self._idle[row][column] = idle
