"""Whether something happened since a group did not fit that can help it: until then it is not searched for again.

Decided here: what can help. Amounts or slots became free on some node, nodes or queues changed, a cool-down ended,
storage or the pods that its members ask about changed; its own members changing makes another state of it. Placements,
and whatever else only takes, cannot. Invariant: leaving a group out never hides a placement, except from plugins that
look at something else; those are asked again after five minutes like everybody.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from scheduler.framework.neighbours import Neighbours
from scheduler.model.groups import GroupState
from scheduler.model.presence import relates
from scheduler.model.snapshot import Snapshot

AGAIN_AFTER = 300.0
"""Seconds after which a group is searched for again, whatever happened."""


class Growth:
    """Counts how often something became free; kept by whoever runs sessions."""

    def __init__(self) -> None:
        self.count = 0
        self._space = -1
        self._others: tuple[object, ...] = ()
        self._free: NDArray[np.int64] = np.zeros((0, 0), dtype=np.int64)
        self._slots: NDArray[np.int64] = np.zeros(0, dtype=np.int64)

    def begin(self, snapshot: Snapshot, space: int, free: NDArray[np.int64], slots: NDArray[np.int64]) -> None:
        """Compare with the amounts with which the last finished session ended."""
        grown = (
            space != self._space
            or (snapshot.no_goods, snapshot.queues) != self._others
            or bool((free > self._free).any())
            or bool((slots > self._slots).any())
        )
        self.count += grown

    def end(self, snapshot: Snapshot, space: int, free: NDArray[np.int64], slots: NDArray[np.int64]) -> None:
        """Remember the amounts with which a session ended."""
        self._space, self._others = space, (snapshot.no_goods, snapshot.queues)
        self._free, self._slots = free.copy(), slots.copy()


def surroundings(state: GroupState, snapshot: Snapshot, neighbours: Neighbours) -> tuple[object, ...]:
    """What besides amounts the group's placement depends on; compared by identity (`same_surroundings`)."""
    about_pods = any(relates(snapshot.shapes[pod.shape]) or neighbours.sort(pod) is not None for pod in state.waiting)
    on_storage = any(pod.volumes is not None for pod in state.waiting)
    return (snapshot.presence if about_pods else None, snapshot.storage if on_storage else None)


def same_surroundings(before: tuple[object, ...], snapshot: Snapshot) -> bool:
    """Whether nothing of that is another object now."""
    presence, storage = before
    return presence in (None, snapshot.presence) and storage in (None, snapshot.storage)
