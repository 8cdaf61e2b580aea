"""Usage over time: what queues have held, weighted by how long ago, so that who used much yields to who did not.

Decided here: decayed usage is the integral of what a queue held (amount x seconds) with weights that halve with every
half-life; between two sessions a queue is taken to have held what it held at the first of them. A queue without a
half-life takes that of the queue above it, in the end the configured one. The part of the capacity that a queue has
used like this (0 to 1) shifts weights (`scheduler.model.quota.History`), never what is guaranteed or deserved. After a
restart the account goes on from what the queues' status says; meanwhile nothing is taken to have been used.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scheduler.framework.queue_tree import QueueTree
from scheduler.model.queues import Queue
from scheduler.model.quota import History
from scheduler.model.resources import Amounts, amounts

GRAIN = 1000
"""Parts in which the used share of the capacity is told, so that what queues are entitled to does not change all the
time."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class FairShare:
    """How past usage counts. half_life: seconds for queues that state none (None: they keep no account). factor: k.

    on: "surplus" or "weights", as in `History`.
    """

    half_life: float | None = None
    factor: float = 1.0
    on: str = "surplus"


class Usage:
    """Decayed usage by queue, in resource seconds; kept by whoever runs sessions."""

    def __init__(self) -> None:
        self._names: tuple[str, ...] = ()
        self._resources: tuple[str, ...] = ()
        self._sums: Floats = np.zeros((0, 0))
        self._held: Floats = np.zeros((0, 0))
        self._lives: Floats = np.zeros(0)
        self._at = 0.0

    def __bool__(self) -> bool:
        return bool(np.isfinite(self._lives).any())

    def advance(
        self,
        tree: QueueTree,
        queues: Mapping[str, Queue],
        resources: tuple[str, ...],
        held: NDArray[np.int64],
        fair: FairShare,
        now: float,
    ) -> None:
        """Bring the account to `now`. held: (queues, resources), what queues with those below them hold from now on."""
        lives = self._half_lives(tree, queues, fair)
        if not np.isfinite(lives).any():
            self._lives, self._names = lives, ()
            return
        self._pass_time(now)
        if self._names != tree.names or self._resources != resources:
            self._renumber(tree, queues, resources, lives, now)
        self._lives, self._held, self._at = lives, held.astype(np.float64), now

    def _pass_time(self, now: float) -> None:
        """Let what was held since the last time count, and what was before it decay."""
        passed = max(0.0, now - self._at)
        if not self._names or not passed:
            return
        kept = np.exp2(-passed / self._lives)[:, None]
        lives = np.where(np.isfinite(self._lives), self._lives, 0.0)
        self._sums = self._sums * kept + self._held * (1.0 - kept) * (lives / math.log(2))[:, None]
        self._sums[~np.isfinite(self._lives)] = 0.0

    def _half_lives(self, tree: QueueTree, queues: Mapping[str, Queue], fair: FairShare) -> Floats:
        """Return the half-life of each queue; infinite where none is stated."""
        found = np.full(len(tree.names), math.inf)
        for row, (name, above) in enumerate(zip(tree.names, tree.parents, strict=True)):
            queue = queues.get(name)
            if queue is not None and queue.half_life:
                found[row] = queue.half_life
            elif above >= 0:
                found[row] = found[above]
            elif fair.half_life:
                found[row] = fair.half_life
        return found

    def _renumber(
        self, tree: QueueTree, queues: Mapping[str, Queue], resources: tuple[str, ...], lives: Floats, now: float
    ) -> None:
        """Carry the account over to other queues or resources; what is new begins with what its status says."""
        sums = np.zeros((len(tree.names), len(resources)))
        column = {name: number for number, name in enumerate(resources)}
        before = {name: row for row, name in enumerate(self._names)}
        old = {name: number for number, name in enumerate(self._resources)}
        shared = [name for name in resources if name in old]
        for row, name in enumerate(tree.names):
            if name in before:
                sums[row, [column[one] for one in shared]] = self._sums[before[name], [old[one] for one in shared]]
                continue
            queue = queues.get(name)
            if queue is None or not queue.decayed_at or not math.isfinite(lives[row]):
                continue
            kept = 2.0 ** (-max(0.0, now - queue.decayed_at) / lives[row])
            for resource, value in queue.decayed:
                if resource in column:
                    sums[row, column[resource]] = value * kept
        self._names, self._resources, self._sums = tree.names, resources, sums

    def history(self, total: NDArray[np.int64], fair: FairShare) -> History | None:
        """Return how the past shifts the division of the capacity; None where no account is kept."""
        if not self:
            return None
        with np.errstate(divide="ignore", invalid="ignore"):
            whole = total.astype(np.float64)[None, :] * (self._lives / math.log(2))[:, None]
            part = np.where((whole > 0) & np.isfinite(whole), self._sums / whole, 0.0)
        used = np.rint(np.clip(part, 0.0, 1.0) * GRAIN) / GRAIN
        return History(used=used, factor=fair.factor, on=fair.on)

    def of(self, name: str) -> tuple[Amounts, float]:
        """Return a queue's decayed usage (resource seconds, rounded) and its time; nothing where none is kept."""
        if not self or name not in self._names:
            return (), 0.0
        row = self._names.index(name)
        if not math.isfinite(self._lives[row]):
            return (), 0.0
        values = np.rint(self._sums[row]).tolist()
        return amounts(zip(self._resources, (int(value) for value in values), strict=True)), self._at
