"""Room that is kept for pods that controllers will make in place of evicted ones: whose it is, and for whom it counts.

Decided here: kept room counts as taken, except for groups with a waiting pod of the controller that it is kept for.
Knows nothing of why a pod was moved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

from scheduler.framework.nominations import Lift
from scheduler.model.groups import GroupState
from scheduler.model.pods import Pod
from scheduler.model.snapshot import Snapshot

Adjust = Callable[[NDArray[np.intp], NDArray[np.int64], NDArray[np.int64]], object]


class Holds:
    """The kept room of a snapshot on nodes that exist."""

    def __init__(self, snapshot: Snapshot) -> None:
        table = snapshot.table
        place = {name: number for number, name in enumerate(table.resources)}
        row_of = {name: number for number, name in enumerate(table.names)} if snapshot.holds else {}
        self._of: dict[str, list[tuple[int, NDArray[np.int64]]]] = {}
        for hold in snapshot.holds:
            row = row_of.get(hold.node)
            if row is None:
                continue
            vector = np.zeros(len(table.resources), dtype=np.int64)
            for name, value in hold.requests:
                if name in place:
                    vector[place[name]] = value
            self._of.setdefault(hold.owner, []).append((row, vector))
        self.taken: list[tuple[NDArray[np.intp], NDArray[np.int64], NDArray[np.int64]]] = []
        """By how much that changed what is free."""
        self.until = min((hold.until for hold in snapshot.holds), default=None)
        """When the first of them is given up."""

    def take(self, adjust: Adjust) -> None:
        """Count all of it as taken."""
        if self._of:
            rows, amounts, slots = _summed([one for part in self._of.values() for one in part])
            self.taken.append((rows, -amounts, -slots))
            adjust(*self.taken[-1])

    def lift(self, states: Iterable[GroupState], beside: Lift | None) -> Lift | None:
        """Return what is kept for the controllers of these groups' waiting pods, with what is free `beside`."""
        if not self._of:
            return beside
        owners = {pod.owner_uid: None for state in states for pod in state.waiting}
        own = [one for owner in sorted(owners) for one in self._of.get(owner, ())]
        if not own:
            return beside
        pods: tuple[tuple[Pod, int], ...] = ()
        if beside is not None:
            own += [(int(row), beside.amounts[:, place]) for place, row in enumerate(beside.rows)]
            pods = beside.pods
        rows, amounts, slots = _summed(own)
        if beside is not None:  # a row of `beside` stands for more than one pod
            slots[np.searchsorted(rows, beside.rows)] += beside.slots - 1
        key = (rows.tobytes(), amounts.tobytes(), slots.tobytes(), tuple(pod.uid for pod, _ in pods))
        return Lift(key, rows, amounts, slots, pods)


def _summed(
    found: list[tuple[int, NDArray[np.int64]]],
) -> tuple[NDArray[np.intp], NDArray[np.int64], NDArray[np.int64]]:
    sums: dict[int, NDArray[np.int64]] = {}
    crowd: dict[int, int] = {}
    for row, vector in found:
        sums[row] = sums[row] + vector if row in sums else vector
        crowd[row] = crowd.get(row, 0) + 1
    order = sorted(sums)
    return (
        np.array(order, dtype=np.intp),
        np.stack([sums[row] for row in order], axis=1),
        np.array([crowd[row] for row in order], dtype=np.int64),
    )
