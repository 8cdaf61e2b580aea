"""What is free on every node while a session decides: copies of the snapshot's arrays that operations change.

Invariant: a charge never makes a requested resource or the pod slots of a node negative, as they are shown then; one
that would raises `Overcommitted` and changes nothing. What running pods hold can be given back for as long as it takes
to see who fits in their place, and what is about to be free can be kept for somebody (`adjust`). `token` names the
content: two ledgers with equal tokens have equal amounts, so what was found out with one holds for the other. `base`
names it without what is lifted for a while.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from scheduler.framework.nominations import Lift
from scheduler.model.snapshot import NodeTable


class Overcommitted(Exception):
    """A charge that a node cannot carry; the placement that asked for it is wrong."""


def frozen(array: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return a read-only view."""
    view = array.view()
    view.flags.writeable = False
    return view


class Ledger:
    """Free amounts (resources by nodes) and open pod slots, as decided so far."""

    def __init__(self, table: NodeTable, token: int = 0) -> None:
        self.table = table
        self._free = table.allocatable - table.used
        self._open = table.slots - table.pods
        self.free = frozen(self._free)
        self.open_slots = frozen(self._open)
        self.base = token
        self._lift: Lift | None = None

    @property
    def token(self) -> int:
        """Names the amounts as they are shown now."""
        return self.base if self._lift is None else hash((self.base, self._lift.key))

    @contextmanager
    def lifted(self, lift: Lift | None) -> Iterator[None]:
        """Show more as free, instead of what was shown so before; charges made meanwhile stay."""
        before = self._lift
        self._set(lift)
        try:
            yield
        finally:
            self._set(before)

    def _set(self, lift: Lift | None) -> None:
        if lift is self._lift:
            return
        for one, sign in ((self._lift, -1), (lift, 1)):
            if one is not None:
                self._free[:, one.rows] += sign * one.amounts
                self._open[one.rows] += sign * one.slots
        self._lift = lift

    def adjust(
        self, rows: NDArray[np.intp], amounts: NDArray[np.int64], slots: NDArray[np.int64]
    ) -> Callable[[], None]:
        """Make so much more free on these nodes (each at most once), or less where it is negative; return the undo.

        amounts: resources by `rows`; slots: pod slots of `rows`. What is charged before the undo stays. What becomes
        negative takes nothing.
        """
        before = self.base
        self._free[:, rows] += amounts
        self._open[rows] += slots
        shown = self.base = hash((before, "adjust", rows.tobytes(), amounts.tobytes(), slots.tobytes()))

        def undo() -> None:
            self._free[:, rows] -= amounts
            self._open[rows] -= slots
            # What was charged meanwhile stays, so that the amounts are not those of before.
            self.base = before if self.base == shown else hash((self.base, "adjusted back", before))

        return undo

    def charge(
        self, request: NDArray[np.int64], rows: NDArray[np.intp], counts: NDArray[np.int64]
    ) -> Callable[[], None]:
        """Put `counts` pods that each ask for `request` on the nodes `rows` (each at most once); return how to undo it.

        Undoing is done in reverse order of charging. Raises `Overcommitted`.
        """
        asked = np.flatnonzero(request)
        cells = np.ix_(asked, rows)
        left = self._free[cells] - request[asked, None] * counts[None, :]
        slots = self._open[rows] - counts
        if (left < 0).any() or (slots < 0).any():
            bad = (left < 0).any(axis=0) | (slots < 0)
            raise Overcommitted(f"node {self.table.names[int(rows[int(np.argmax(bad))])]} cannot carry the placement")
        before, old_free, old_open = self.base, self._free[cells], self._open[rows]
        self._free[cells] = left
        self._open[rows] = slots
        self.base = hash((before, request.tobytes(), rows.tobytes(), counts.tobytes()))

        def undo() -> None:
            self._free[cells] = old_free
            self._open[rows] = old_open
            self.base = before

        return undo
