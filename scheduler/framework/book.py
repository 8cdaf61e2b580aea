"""The running account of a session: what every queue holds, wants and is owed, as decided so far.

Decided here: which capacity is divided (that of nodes which take pods, and what is held on the others, less what pods
of other schedulers hold), what a queue wants (what it holds and what its ungated waiting members ask for), when a queue
may hold more (`room`), and when it is within or over what it is owed (`within`, `over`). Whose turn it is and who may
evict whom is not decided here.

`used` is what exists, until it is gone; `staying` is the same without the pods that are about to go. Limits look at the
first, what is owed at the second, so that nobody is made to go twice for the same need.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scheduler.framework.queue_tree import QueueTree
from scheduler.model.filling import CEILING
from scheduler.model.quota import (
    Fields,
    History,
    Structure,
    claims,
    dominant_share,
    entitlements,
    held,
    idle_guarantees,
    subtree,
    sums_below,
)
from scheduler.model.quota import owed as deserves
from scheduler.model.resources import Amounts

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Ground:
    """What does not change while a session decides, and is kept while the queues and their sums are the same.

    resources: columns. total: (resources,). entitled, owed, deserved, kept, limit: (queues, resources); CEILING where
    nothing limits. owed: what a queue may hold without giving back: what it is entitled to, and where more is deserved
    than there is, what it deserves of what queues of a higher priority leave; whoever has it keeps it. counts: where a
    resource counts for being over or within what is owed.
    """

    tree: QueueTree
    resources: tuple[str, ...]
    total: Ints
    entitled: Ints
    owed: Ints
    deserved: Ints
    kept: Ints
    limit: Ints
    counts: NDArray[np.bool_]

    @classmethod
    def of(
        cls,
        tree: QueueTree,
        resources: tuple[str, ...],
        total: Ints,
        demand: Mapping[str, Amounts],
        history: History | None = None,
    ) -> Ground:
        """Divide the capacity. demand: by leaf, what is held and asked for there.

        What queues at fault hold is not divided: they keep it, and what others are owed is a part of the rest.
        """
        structure = tree.structure
        fields = tree.fields(resources)
        keep = rows_of({name: demand[name] for name in tree.out if name in demand}, tree, resources)
        wanted = rows_of({name: part for name, part in demand.items() if name not in tree.out}, tree, resources)
        wanted[structure.root] = np.minimum(wanted[structure.root] + subtree(structure, keep)[structure.root], CEILING)
        deserved = deserves(structure, fields)
        entitled = entitlements(structure, fields, wanted, total, history)
        owed = _owed(structure, fields, entitled, deserved, wanted, total)
        at_fault = [tree.index[name] for name in tree.out]
        entitled[at_fault] = subtree(structure, keep)[at_fault]
        owed[at_fault] = deserved[at_fault] = CEILING
        return cls(
            tree=tree,
            resources=resources,
            total=total,
            entitled=entitled,
            owed=owed,
            deserved=deserved,
            kept=held(structure, fields, total),
            limit=_limits(tree, resources, fields),
            counts=fields.named(structure),
        )


class Book:
    """See the module. Rows are those of the tree."""

    def __init__(self, ground: Ground, used: Ints, leaving: Mapping[str, Amounts], waiting: Amounts = ()) -> None:
        self.ground = ground
        self.tree = ground.tree
        structure = ground.tree.structure
        self._column = {name: number for number, name in enumerate(ground.resources)}
        self.used = used
        self.staying = self.used - subtree(structure, rows_of(leaving, self.tree, ground.resources))
        fields = ground.tree.fields(ground.resources)
        self._idle = idle_guarantees(structure, fields, self.used, ground.kept)
        self._idle_below = sums_below(structure, self._idle)
        self.waiting = self.vector(waiting)
        """What all waiting members ask for together."""

    # -- reading --------------------------------------------------------------------------------------------------

    def vector(self, amounts: Amounts) -> Ints:
        """Return amounts in the order of the resources; those that no node and no queue knows are left out."""
        found = np.zeros(len(self._column), dtype=np.int64)
        for name, value in amounts:
            if name in self._column:
                found[self._column[name]] = min(value, CEILING)
        return found

    def column(self, resource: str) -> int | None:
        """Return the column of a resource; None where no node and no queue knows it."""
        return self._column.get(resource)

    def lineage(self, row: int) -> tuple[int, ...]:
        """Return the row and those above it, the root last."""
        return self.tree.structure.lines[row]

    def children(self, row: int) -> tuple[int, ...]:
        """Return the rows of the queues directly below one."""
        return self.tree.below[row]

    def limited(self, row: int, ask: Ints) -> tuple[int, int] | None:
        """Return the first queue, from the leaf up, whose limit is too low for so much more, and the resource."""
        for one in self.lineage(row):
            limit = self.ground.limit[one]
            over = (ask > 0) & (limit < CEILING) & (self.used[one] + ask > limit)
            if over.any():
                return one, int(over.argmax())
        return None

    def reserved(self, row: int, ask: Ints) -> tuple[int, int] | None:
        """Return the queue below whose parent idle guarantees of others leave too little, and the resource.

        Only where there would be enough without guarantees; lack of room is not about queues.
        """
        if not self._idle_below.any():
            return None
        root = self.tree.structure.root
        room = self.ground.total - self.used[root]
        there = (ask > 0) & (ask <= room)
        for one in reversed(self.lineage(row)):
            if one == root:
                continue
            above = int(self.tree.structure.parent[one])
            room = room - (self._idle_below[above] - self._idle[one])
            short = np.flatnonzero(there & (ask > room))
            if short.size:
                return one, int(short[0])
        return None

    def lacking(self, row: int, ask: Ints) -> Ints:
        """Return how much more must be free in all before a queue may hold so much more beside others' idle guarantees.

        0 or less where nothing must. What is about to go anyway counts as free where there is too little without it.
        """
        root = self.tree.structure.root
        beside = [one for one in self.lineage(row) if one != root]
        above = self.tree.structure.parent[beside]
        kept = self._idle_below[above].sum(axis=0) - self._idle[beside].sum(axis=0)
        beyond = ask - (self.ground.total - self.used[root])
        beyond -= np.where(beyond > 0, self.used[root] - self.staying[root], 0)
        return np.where((ask > 0) & (kept > 0), beyond + kept, 0)

    def kept_beside(self, row: int, column: int) -> tuple[tuple[str, int], ...]:
        """Return which queues, beside this one and those above it, are guaranteed what they do not hold; most first."""
        parent = self.tree.structure.parent
        beside = [
            (-int(self._idle[other, column]), self.tree.names[other])
            for one in self.lineage(row)
            if parent[one] >= 0
            for other in self.children(int(parent[one]))
            if other != one and self._idle[other, column] > 0
        ]
        return tuple((name, -value) for value, name in sorted(beside))

    def room(self, row: int) -> Ints:
        """Return how much more of each resource a queue may hold now; negative where something is over."""
        above, *line = reversed(self.lineage(row))
        free: Ints = np.minimum(self.ground.total, self.ground.limit[above]) - self.used[above]
        for one in line:
            free = free - (self._idle_below[above] - self._idle[one])
            free = np.minimum(free, self.ground.limit[one] - self.used[one])
            above = one
        return free

    def within(self, row: int, ask: Ints, most: Ints | None = None) -> bool:
        """Whether a queue with so much more holds at most what it is owed, in all that is asked for and counts.

        most: other bounds than what is owed, for all queues.
        """
        return not self.beyond(row, ask, most)

    def beyond(self, row: int, ask: Ints, most: Ints | None = None) -> tuple[tuple[int, int], ...]:
        """Return by how much a queue with so much more would be over, in what is asked for: (resource, amount)."""
        above = self.staying[row] + ask - (self.ground.owed if most is None else most)[row]
        matters = (ask > 0) & self.ground.counts[row] & (above > 0)
        return tuple((int(number), int(above[number])) for number in np.flatnonzero(matters))

    def over(self, row: int, ask: Ints, most: Ints | None = None) -> tuple[tuple[int, int], ...]:
        """Return by how much a queue is over what it is owed, in what is asked for and counts: (resource, amount).

        What is kept idle for queues below it counts as held: nobody else can use it.
        """
        above = self.staying[row] + self._idle_below[row] - (self.ground.owed if most is None else most)[row]
        matters = (ask > 0) & self.ground.counts[row] & (above > 0)
        return tuple((int(number), int(above[number])) for number in np.flatnonzero(matters))

    def secured(self, row: int) -> Ints:
        """Return how much of what a queue holds may not be taken, because it is guaranteed.

        What is kept idle for queues below it is a part of its guarantee that it has already.
        """
        kept = np.maximum(self.ground.kept[row] - self._idle_below[row], 0)
        secured: Ints = np.minimum(kept, self.staying[row])
        return secured

    def share(self, row: int, ask: Ints) -> float:
        """Return the dominant share of a queue with so much more, of what it is owed."""
        counts = self.ground.counts[row]
        held_ = (self.staying[row] + ask)[counts].tolist()
        return dominant_share(held_, self.ground.owed[row][counts].tolist())

    # -- changing -------------------------------------------------------------------------------------------------

    def charge(self, row: int, amounts: Ints) -> Callable[[], None]:
        """Let a leaf hold so much more; return the undo."""
        self._add(row, amounts)
        return lambda: self._add(row, -amounts)

    def _add(self, row: int, amounts: Ints) -> None:
        parent = self.tree.structure.parent
        for one in self.lineage(row):
            self.used[one] += amounts
            self.staying[one] += amounts
            used = self.used[one]
            idle = np.maximum(self.ground.kept[one] - used, self._idle_below[one])
            idle = np.minimum(idle, np.maximum(self.ground.limit[one] - used, 0))
            above = int(parent[one])
            if above >= 0:
                self._idle_below[above] += idle - self._idle[one]
            self._idle[one] = idle

    def leave(self, row: int, amounts: Ints) -> Callable[[], None]:
        """Note that so much of a leaf is about to go; return the undo."""
        line = list(self.lineage(row))
        self.staying[line] -= amounts

        def undo() -> None:
            self.staying[line] += amounts

        return undo


def _owed(structure: Structure, fields: Fields, entitled: Ints, deserved: Ints, demand: Ints, total: Ints) -> Ints:
    """See `Ground`. What queues of a higher priority leave: without what they deserve and hold or ask for."""
    owed, priority = entitled.copy(), fields.priority
    wanted = claims(structure, fields, demand).deserved.T
    more = np.flatnonzero((deserved > entitled).any(axis=1) & (structure.parent >= 0))
    for row in more.tolist():
        above = int(structure.parent[row])
        beside = np.flatnonzero((structure.parent == above) & (priority > priority[row]))
        whole = total if above == structure.root else entitled[above]
        left = np.maximum(whole - wanted[beside].sum(axis=0), 0)
        owed[row] = np.maximum(entitled[row], np.minimum(deserved[row], left))
    return owed


def _limits(tree: QueueTree, resources: Sequence[str], fields: Fields) -> Ints:
    """Return (queues, resources) the limits, also of queues that stand aside; CEILING: none."""
    found: Ints = np.where(fields.limit >= 0, fields.limit, CEILING)
    column = {name: number for number, name in enumerate(resources)}
    for name, limit in tree.aside.items():
        for resource, value in limit:
            if value >= 0 and resource in column:
                found[tree.index[name], column[resource]] = min(value, CEILING)
    return found


def rows_of(amounts: Mapping[str, Amounts], tree: QueueTree, resources: Sequence[str]) -> Ints:
    """Return (queues, resources) from amounts by queue; of names that no queue has they count at the root."""
    column = {name: number for number, name in enumerate(resources)}
    table = np.zeros((len(tree.names), len(resources)), dtype=np.int64)
    for name, values in amounts.items():
        row = tree.index.get(name, tree.structure.root)
        for resource, value in values:
            if resource in column:
                table[row, column[resource]] = min(int(table[row, column[resource]]) + value, CEILING)
    return table


def capacity(
    names: Sequence[str],
    allocatable: Ints,
    used: Ints,
    usable: NDArray[np.bool_],
    foreign: Amounts,
    extra: Sequence[str],
) -> tuple[tuple[str, ...], Ints]:
    """Return the resources that are divided and how much of each there is.

    allocatable, used: (resources, nodes). usable: whether a node takes pods; of one that does not, what is held counts.
    extra: resources that queues name and no node has.
    """
    resources = (*names, *(name for name in extra if name not in names))
    there = np.where(usable[None, :], allocatable, np.minimum(allocatable, used)).sum(axis=1) if names else np.zeros(0)
    total = np.zeros(len(resources), dtype=np.int64)
    total[: len(names)] = there
    column = {name: number for number, name in enumerate(resources)}
    for name, value in foreign:
        if name in column:
            total[column[name]] = max(0, int(total[column[name]]) - value)
    return resources, total
