"""What will be free soon: what pods hold that are being deleted, or that a request is about to evict.

Decided here: for how long a pod that is being deleted is believed to go (a kubelet that is dead keeps it for ever), and
that room which is about to be free can be kept, for one session, for a group that waits for it: it is taken off what is
free then, so that nobody smaller takes it piece by piece. Nothing here outlives the session.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from scheduler.framework.ledger import Ledger
from scheduler.model.pods import Pod, Shape, held_by
from scheduler.model.snapshot import Snapshot

OVERDUE = 60.0
"""Seconds after the end of its grace period for which a pod is still believed to go."""

Piece = tuple[NDArray[np.intp], NDArray[np.int64], NDArray[np.int64]]


def going(snapshot: Snapshot) -> Iterator[tuple[Pod, str]]:
    """Yield the pods that are believed to go, each with its leaf queue ("" = another scheduler's)."""
    return (one for one in snapshot.releasing if not one[0].ends or one[0].ends + OVERDUE > snapshot.now)


class Outlook:
    """The amounts that will be free, by node, beside those that are. row: of a node in the table."""

    def __init__(self, snapshot: Snapshot, ledger: Ledger, row: Callable[[str], int | None]) -> None:
        self._snapshot, self._ledger, self._row = snapshot, ledger, row
        self._column = {name: number for number, name in enumerate(snapshot.table.resources)}
        self._amounts = np.zeros((len(self._column), len(snapshot.table.names)), dtype=np.int64)
        self._slots = np.zeros(len(snapshot.table.names), dtype=np.int64)
        self.kept: list[Piece] = []
        """What is kept for somebody, to be told apart from what was placed."""
        self._any = False
        self.add(pod for pod, _ in going(snapshot))

    def __bool__(self) -> bool:
        return self._any

    def amounts(self, pod: Pod, shapes: Mapping[str, Shape] | None = None) -> NDArray[np.int64]:
        """Return what a pod holds on its node, in the order of the table's resources."""
        held = held_by(pod, shapes or self._snapshot.shapes)
        vector = np.zeros(len(self._column), dtype=np.int64)
        for name, value in held:
            if name in self._column:
                vector[self._column[name]] = value
        return vector

    def piece(self, pods: Iterable[Pod]) -> Piece:
        """Return what pods hold together: rows (each once), amounts by these rows, pod slots."""
        amounts: dict[int, NDArray[np.int64]] = {}
        slots: dict[int, int] = {}
        for pod in pods:
            row = self._row(pod.node)
            if row is not None:
                held = self.amounts(pod)
                amounts[row] = amounts[row] + held if row in amounts else held
                slots[row] = slots.get(row, 0) + 1
        order = sorted(slots)
        table = np.zeros((len(self._column), len(order)), dtype=np.int64)
        for place, row in enumerate(order):
            table[:, place] = amounts[row]
        return np.array(order, dtype=np.intp), table, np.array([slots[row] for row in order], dtype=np.int64)

    def add(self, pods: Iterable[Pod]) -> None:
        """Take note that these pods are about to go."""
        rows, amounts, slots = self.piece(pods)
        self._amounts[:, rows] += amounts
        self._slots[rows] += slots
        self._look()

    @contextmanager
    def ahead(self) -> Iterator[None]:
        """Show as free what will be free."""
        rows = np.flatnonzero((self._slots != 0) | (self._amounts != 0).any(axis=0))
        undo = self._ledger.adjust(rows, self._amounts[:, rows], self._slots[rows])
        try:
            yield
        finally:
            undo()

    def _look(self) -> None:
        self._any = bool(self._slots.any()) or bool(self._amounts.any())

    def is_used(self, row: int) -> bool:
        """Whether, inside `ahead`, more is given out on a node than is free now."""
        free = self._ledger.free[:, row] - self._amounts[:, row]
        return bool((free < 0).any()) or int(self._ledger.open_slots[row] - self._slots[row]) < 0

    def keep(self, request: NDArray[np.int64], rows: NDArray[np.intp], counts: NDArray[np.int64]) -> None:
        """Keep room for `counts` pods that each ask for `request` on these rows (each once), for this session.

        What will be free is taken first; only the rest is taken off what is free now.
        """
        amounts, slots = request[:, None] * counts[None, :], counts.copy()
        coming = np.minimum(self._amounts[:, rows], amounts)
        self._amounts[:, rows] -= coming
        amounts -= coming
        soon = np.minimum(self._slots[rows], slots)
        self._slots[rows] -= soon
        self._look()
        slots -= soon
        piece = rows, -amounts, -slots
        self._ledger.adjust(*piece)
        self.kept.append(piece)

    def give_back(self) -> None:
        """Keep nothing any more: the session is over, the next one looks again."""
        while self.kept:
            rows, amounts, slots = self.kept.pop()
            self._ledger.adjust(rows, -amounts, -slots)
