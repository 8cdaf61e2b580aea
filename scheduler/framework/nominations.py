"""Pods of other schedulers that are nominated to a node: whether they count there depends on who asks.

Decided here: such a pod counts on its node for groups of its own or a lower priority, as in kube-scheduler, and not for
groups of a higher one: neither its amounts, nor its ports and volumes, nor what it says about other pods. The snapshot
has all of them; what is here says what of it is not there for a priority.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scheduler.model.pods import Pod
from scheduler.model.snapshot import Snapshot


@dataclass(frozen=True, slots=True, eq=False)
class Lift:
    """What is free beside the ledger's amounts: rows (each once), resources by these rows, and pod slots of them.

    pods: those that do not count, with their rows.
    """

    key: Hashable
    rows: NDArray[np.intp]
    amounts: NDArray[np.int64]
    slots: NDArray[np.int64]
    pods: tuple[tuple[Pod, int], ...]


class Nominations:
    """The nominated pods of a snapshot on nodes that exist, by priority."""

    def __init__(self, snapshot: Snapshot) -> None:
        table = snapshot.table
        place = {name: number for number, name in enumerate(table.resources)}
        row_of = {name: number for number, name in enumerate(table.names)} if snapshot.foreign_nominated else {}
        found: list[tuple[Pod, int, NDArray[np.int64]]] = []
        for pod in snapshot.foreign_nominated:
            row = row_of.get(pod.nominated)
            if row is not None:
                vector = np.zeros(len(table.resources), dtype=np.int64)
                for name, value in snapshot.shapes[pod.shape].requests if pod.charge is None else pod.charge:
                    vector[place[name]] = value
                found.append((pod, row, vector))
        self._found = sorted(found, key=lambda one: one[0].priority)
        self._priorities = [pod.priority for pod, _, _ in self._found]
        self.pods = tuple((pod, row) for pod, row, _ in self._found)
        """All of them with their rows, the lowest priority first."""
        self._known: dict[int, Lift] = {}

    def below(self, priority: int) -> Lift | None:
        """Return what the pods below this priority leave to a group that has it; None when that is nothing."""
        return self._first(bisect_left(self._priorities, priority))

    def all(self) -> Lift | None:
        """Return what all of them would leave."""
        return self._first(len(self._found))

    def _first(self, number: int) -> Lift | None:
        if not number:
            return None
        known = self._known.get(number)
        if known is None:
            known = self._known[number] = _lift(self._found[:number])
        return known


def _lift(found: list[tuple[Pod, int, NDArray[np.int64]]]) -> Lift:
    sums: dict[int, NDArray[np.int64]] = {}
    crowd: dict[int, int] = {}
    for _, row, vector in found:
        sums[row] = sums[row] + vector if row in sums else vector
        crowd[row] = crowd.get(row, 0) + 1
    rows = np.array(sorted(sums), dtype=np.intp)
    amounts = np.stack([sums[row] for row in sorted(sums)], axis=1)
    slots = np.array([crowd[row] for row in sorted(sums)], dtype=np.int64)
    pods = tuple((pod, row) for pod, row, _ in found)
    key = (rows.tobytes(), amounts.tobytes(), slots.tobytes(), tuple(pod.uid for pod, _ in pods))
    return Lift(key, rows, amounts, slots, pods)
