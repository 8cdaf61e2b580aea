"""Whether something happened since a group did not fit that can help it: until then it is not searched for again.

Decided here: what can help. Amounts or slots became free on some node or soon will, nodes, queues or nominations
changed, a cool-down ended, storage or the pods that its members ask about changed; its own members changing makes
another state of it. Placements, and whatever else only takes, cannot. Invariant: leaving a group out never hides a
placement, except from plugins that look at something else; those are asked again after five minutes like everybody.
"""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np
from numpy.typing import NDArray

from scheduler.framework.neighbours import Neighbours
from scheduler.model.groups import GroupState
from scheduler.model.pods import Pod
from scheduler.model.presence import relates, selections
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
            or _others(snapshot) != self._others
            or bool((free > self._free).any())
            or bool((slots > self._slots).any())
        )
        self.count += grown

    def end(self, snapshot: Snapshot, space: int, free: NDArray[np.int64], slots: NDArray[np.int64]) -> None:
        """Remember the amounts with which a session ended."""
        self._space, self._others = space, _others(snapshot)
        self._free, self._slots = free.copy(), slots.copy()


def _others(snapshot: Snapshot) -> tuple[object, ...]:
    going = tuple(pod.uid for pod, _ in snapshot.releasing)
    return snapshot.no_goods, snapshot.queues, snapshot.nominations, going


class Surroundings:
    """What besides amounts a group's placement depends on, as objects that are others when something changed there."""

    def __init__(self, snapshot: Snapshot, neighbours: Neighbours) -> None:
        self._snapshot, self._neighbours = snapshot, neighbours
        self._known: dict[tuple[str, Hashable], tuple[object, ...]] = {}

    def of(self, state: GroupState) -> tuple[object, ...]:
        """Return the counts that the waiting members ask for, and the storage if they have volumes."""
        found: dict[tuple[str, Hashable], tuple[object, ...]] = {}
        volumes = False
        for pod in state.waiting:
            volumes = volumes or pod.volumes is not None
            key = (pod.shape, self._neighbours.sort(pod))
            if key not in found:
                known = self._known.get(key)
                if known is None:
                    known = self._known[key] = self._about(pod)
                found[key] = known
        return (self._snapshot.storage if volumes else None, *(one for part in found.values() for one in part))

    def _about(self, pod: Pod) -> tuple[object, ...]:
        shape, presence = self._snapshot.shapes[pod.shape], self._snapshot.presence
        carriers = self._neighbours.carriers_before(pod)
        if not carriers and not relates(shape):
            return ()
        tallies = (presence.tallies.get(selectors) for selectors in selections(shape))
        return (presence.namespaces, presence.ports if shape.host_ports else None, *tallies, *carriers)


def same(before: tuple[object, ...], now: tuple[object, ...]) -> bool:
    """Whether nothing is another object."""
    return len(before) == len(now) and all(one is other for one, other in zip(before, now, strict=True))
