"""The experiment: pods arrive in a random order, each is placed at once or refused for ever, nobody leaves.

Arrivals are all pods of the workload in a random order, then random clones of them, until 130 % of the cluster's
devices are asked for (a workload that asks for more loses random pods first). Nodes are looked at in a random order of
the seed: what a method holds equal goes to the first. Measured: the part of all devices that is allocated when 100 %
and when 130 % are asked for.

A method is handed the cluster and the arrivals one by one. What each knows is said where it is made (`methods`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from plugins.stranding import States
from tests.quality.trace import Ints, Nodes, Workload

RATIO = 1.3
SEEDS = tuple(range(42, 52))


class Cluster:
    """Nodes with what is left of them; nodes that are in the same state have the same number.

    left: (N, D), each row ascending, so that devices are told apart by their place in it. other: (2, N). sort: (N,).
    """

    def __init__(self, nodes: Nodes, order: NDArray[np.intp]) -> None:
        self.left = np.sort(nodes.left[order], axis=1)
        self.other = nodes.other[:, order].copy()
        self.sort = nodes.sort[order]
        self.number = np.zeros(len(order), dtype=np.int64)
        self._numbers: dict[bytes, int] = {}
        size = len(order)
        self._examples = States(
            np.zeros((size, self.left.shape[1]), dtype=np.int64),
            np.zeros((2, size), dtype=np.int64),
            np.zeros(size, dtype=np.int64),
        )
        for node in range(len(order)):
            self._renumber(node)

    def _renumber(self, node: int) -> None:
        row, other, sort = self.left[node], self.other[:, node], int(self.sort[node])
        key = row.tobytes() + other.tobytes() + sort.to_bytes(4, "little")
        number = self.number[node] = self._numbers.setdefault(key, len(self._numbers))
        if number >= self._examples.sort.size:
            self._examples = self._examples[np.arange(2 * number) % number]
        self._examples.left[number], self._examples.other[:, number], self._examples.sort[number] = row, other, sort

    @property
    def states(self) -> int:
        """How many different states there have been."""
        return len(self._numbers)

    def examples(self, numbers: Ints) -> States:
        """Return the states with these numbers."""
        return self._examples[numbers]

    def fits(self, workload: Workload, kind: int) -> NDArray[np.bool_]:
        """Return which nodes hold one more pod of a kind."""
        amount = workload.amount[kind]
        fits = (self.other >= workload.other[:, kind, None]).all(axis=0)
        if amount:
            fits &= workload.suits[kind, self.sort]
            fits &= (self.left >= amount).sum(axis=1) >= workload.count[kind]
        return fits

    def tightest(self, amount: int, node: int) -> int:
        """Return the device with the least left that has so much."""
        return int(np.searchsorted(self.left[node], amount))

    def put(self, workload: Workload, kind: int, node: int, device: int) -> None:
        """Place a pod on a node, on this and, when it takes several, the following devices. Raises when it is full."""
        self.other[:, node] -= workload.other[:, kind]
        amount = int(workload.amount[kind])
        if amount:
            self.left[node, device : device + int(workload.count[kind])] -= amount
            self.left[node].sort()
        self._check(node)

    def seat(self, workload: Workload, node: int, pods: Sequence[tuple[int, Sequence[int]]]) -> None:
        """Place pods (kind, devices) on a node at once; the devices are those of before."""
        for kind, devices in pods:
            self.other[:, node] -= workload.other[:, kind]
            self.left[node, list(devices)] -= workload.amount[kind]
        self.left[node].sort()
        self._check(node)

    def _check(self, node: int) -> None:
        if self.left[node, 0] < 0 or self.other[:, node].min() < 0:
            raise AssertionError(f"node {node} is over what it has")
        self._renumber(node)


class Method(Protocol):
    """Decides where each arrival goes."""

    def choose(self, kind: int) -> tuple[int, int] | None:
        """Return node and device (0 for a pod that takes none), or None: it does not fit anywhere."""


Maker = Callable[[Cluster, Workload, np.random.Generator], Method]
"""Makes a method for one run."""


@dataclass(slots=True)
class Run:
    """allocated: percent of all devices, when so many percent were asked for. refused: pods."""

    allocated: dict[int, float] = field(default_factory=dict)
    refused: int = 0


def arrivals(workload: Workload, capacity: int, seed: int, ratio: float = RATIO) -> Ints:
    """Return the kinds of the pods that arrive, in order."""
    random = np.random.default_rng(seed)
    asked, most = workload.asked, ratio * capacity
    pods = random.permutation(workload.pods).tolist()
    total = int(asked[pods].sum())
    while total > most:
        total -= int(asked[pods.pop(int(random.integers(len(pods))))])
    while True:
        clone = int(workload.pods[random.integers(workload.pods.size)])
        if total + int(asked[clone]) > most:
            return np.array(pods, dtype=np.int64)
        total += int(asked[clone])
        pods.append(clone)


def begin(nodes: Nodes, seed: int) -> tuple[Cluster, np.random.Generator]:
    """Return the empty cluster of a seed, and the randomness that methods may use."""
    random = np.random.default_rng((seed, 1))
    return Cluster(nodes, random.permutation(len(nodes.names))), random


def run(nodes: Nodes, workload: Workload, make: Maker, seed: int) -> Run:
    """Run the experiment once."""
    cluster, random = begin(nodes, seed)
    method = make(cluster, workload, random)
    result, requested, used = Run(), 0, 0
    asked = workload.asked
    for kind in arrivals(workload, nodes.capacity, seed).tolist():
        found = method.choose(kind)
        requested += int(asked[kind])
        if found is None:
            result.refused += 1
        else:
            cluster.put(workload, kind, *found)
            used += int(asked[kind])
        if 100 not in result.allocated and requested >= nodes.capacity:
            result.allocated[100] = 100 * used / nodes.capacity
    result.allocated[130] = 100 * used / nodes.capacity
    return result
