"""The methods that are compared, and what each knows.

- random: a node that holds the pod, a device that holds it. Knows the pod.
- best fit: the node with the least left of cpu and devices, weighed alike. Knows the pod.
- fgd: where the share of devices that a typical pod could not use grows least. Knows the whole workload beforehand, as
  published: typical pods are the commonest kinds that make up 95 % of it.
- muster: where the cost of `plugins.stranding` grows least. Knows the pods that have arrived so far, this one included,
  and nothing of those to come.

All of them see what is left of every node. None refuses a pod that fits somewhere.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from plugins.stranding import Kinds, Outlook, States, after
from tests.quality.experiment import Cluster, Maker
from tests.quality.trace import MILLI, Ints, Workload

_TYPICAL = 0.95
_LARGEST = np.array([128_000.0, 8_000.0])
"""Cpu and devices of the largest node, by which best fit and FGD as published put them on one scale."""
Floats = NDArray[np.float64]


class Random:
    """See the module."""

    def __init__(self, cluster: Cluster, workload: Workload, random: np.random.Generator) -> None:
        self._cluster, self._workload, self._random = cluster, workload, random

    def choose(self, kind: int) -> tuple[int, int] | None:
        """Return any node, any device."""
        nodes = np.flatnonzero(self._cluster.fits(self._workload, kind))
        if not nodes.size:
            return None
        node = int(self._random.choice(nodes))
        amount = int(self._workload.amount[kind])
        device = self._cluster.tightest(amount, node) if amount else 0
        if 0 < amount < MILLI:
            device = int(self._random.integers(device, self._cluster.left.shape[1]))
        return node, device


class BestFit:
    """See the module."""

    def __init__(self, cluster: Cluster, workload: Workload, random: np.random.Generator) -> None:
        self._cluster, self._workload = cluster, workload

    def choose(self, kind: int) -> tuple[int, int] | None:
        """Return the node with the best whole score of 0 to 100, the tightest device."""
        cluster, workload = self._cluster, self._workload
        nodes = np.flatnonzero(cluster.fits(workload, kind))
        if not nodes.size:
            return None
        cpu = cluster.other[0, nodes] - workload.other[0, kind]
        devices = cluster.left[nodes].sum(axis=1) - workload.asked[kind]
        score = np.floor((1 - (cpu / _LARGEST[0] + devices / _LARGEST[1]) / 2) * 100)
        node = int(nodes[np.argmax(score)])
        amount = int(workload.amount[kind])
        return node, cluster.tightest(amount, node) if amount else 0


class Fgd:
    """See the module. Scores are whole numbers of 0 to 100, as published: what is nearly equal goes to the first."""

    def __init__(self, cluster: Cluster, workload: Workload, random: np.random.Generator) -> None:
        self._cluster, self._workload = cluster, workload
        alike = np.column_stack([workload.other[0], workload.amount, workload.count, workload.suits])
        first, place = np.unique(alike, axis=0, return_index=True, return_inverse=True)[1:]
        often = np.bincount(place.ravel()[workload.pods], minlength=first.size)
        order = np.lexsort((-workload.amount[first], -workload.other[0, first], -often))
        before = np.cumsum(often[order]) - often[order]
        picked = order[before < _TYPICAL * often.sum()]
        asking = picked[workload.amount[first[picked]] > 0]
        self._typical, self._often = first[asking], often[asking] / often[picked].sum()
        self._shares, self._share_of = np.unique(workload.amount[self._typical], return_inverse=True)
        self._known: dict[int, tuple[Floats, Ints]] = {}

    def choose(self, kind: int) -> tuple[int, int] | None:
        """Return the first node of the best score, with its best device."""
        cluster = self._cluster
        scores, devices = self._known.setdefault(kind, (np.zeros(0), np.zeros(0, dtype=np.int64)))
        if scores.size < cluster.states:
            more = max(cluster.states, 2 * scores.size) - scores.size
            scores = np.concatenate([scores, np.full(more, np.nan)])
            devices = np.concatenate([devices, np.zeros(more, dtype=np.int64)])
            self._known[kind] = (scores, devices)
        missing = np.unique(cluster.number[np.isnan(scores[cluster.number])])
        if missing.size:
            scores[missing], devices[missing] = self._score(cluster.examples(missing), kind)
        found = scores[cluster.number]
        node = int(np.argmax(found))
        return None if found[node] < 0 else (node, int(devices[cluster.number[node]]))

    def _score(self, states: States, kind: int) -> tuple[Floats, Ints]:
        """Return the score of each state (-1: it does not hold the pod) and the device that gives it."""
        workload = self._workload
        amount, count, other = int(workload.amount[kind]), int(workload.count[kind]), workload.other[:, kind]
        fits = (states.other >= other[:, None]).all(axis=0)
        if amount:
            fits &= workload.suits[kind, states.sort] & ((states.left >= amount).sum(axis=1) >= count)
        score, device = np.full(fits.size, -1.0), np.zeros(fits.size, dtype=np.int64)
        here = np.flatnonzero(fits)
        before = self._lost(states[here])
        width = states.left.shape[1] if 0 < amount < MILLI else 1
        for place in range(width):
            left = states.left[here]
            place_of = np.full(here.size, place) if width > 1 else np.argmax(left >= amount, axis=1)
            able = left[np.arange(here.size), place_of] >= amount
            for offset in range(count if amount else 0):
                left[np.arange(here.size), place_of + offset * able] -= amount * able
            then = self._lost(States(left, states.other[:, here] - other[:, None], states.sort[here]))
            points = np.where(able, np.floor(100 / (1 + np.exp((then - before) / MILLI))), -1.0)
            better = points > score[here]
            score[here[better]], device[here[better]] = points[better], place_of[better]
        return score, device

    def _lost(self, states: States) -> Floats:
        """Return what the next typical pod could not use, on average; one without devices uses none."""
        workload, typical = self._workload, self._typical
        able = states.left[:, :, None] >= self._shares[None, None, :]
        amount = (states.left[:, :, None] * able).sum(axis=1)[:, self._share_of]
        fits = able.sum(axis=1)[:, self._share_of] >= workload.count[typical]
        fits &= states.other[0][:, None] >= workload.other[0, typical][None, :]
        fits &= workload.suits[typical][:, states.sort].T
        total: Floats = states.left.sum(axis=1) - (amount * fits) @ self._often
        return total


class Muster:
    """See the module. What is expected is looked at again whenever a fifth more pods have arrived, how scarce places
    are whenever a twenty-fifth of what was left is taken."""

    _FIRST, _MORE, _TAKEN, _KINDS = 16, 1.2, 0.04, 192

    def __init__(self, cluster: Cluster, workload: Workload, random: np.random.Generator) -> None:
        self._cluster, self._workload = cluster, workload
        self._seen = np.zeros(workload.amount.size)
        self._arrived, self._next, self._left = 0, 0, 0
        self._outlook: Outlook
        self._wanted: Floats
        self._known: dict[int, Floats] = {}
        self._standing: Floats

    def choose(self, kind: int) -> tuple[int, int] | None:
        """Return the node whose cost grows least, its tightest device."""
        self.arrive(kind)
        return self.find(kind)

    def find(self, kind: int) -> tuple[int, int] | None:
        """As `choose`, for a pod that was seen arriving."""
        growth = self.growth(kind)
        node = int(np.argmin(growth))
        if growth[node] == np.inf:
            return None
        amount = int(self._workload.amount[kind])
        return node, self._cluster.tightest(amount, node) if amount else 0

    def arrive(self, kind: int) -> None:
        """Take note of a pod, and look again at what is expected when it is time."""
        self._seen[kind] += 1
        self._arrived += 1
        if self._arrived > self._next:
            self._next = max(self._FIRST, int(self._arrived * self._MORE))
            self._outlook = Outlook(self._kinds())
        elif self._cluster.left.sum() > (1 - self._TAKEN) * self._left:
            return
        cluster, outlook = self._cluster, self._outlook
        self._left = int(cluster.left.sum())
        numbers, places = np.unique(cluster.number, return_counts=True)
        everywhere = outlook.usable(cluster.examples(numbers)).T @ places
        self._wanted = outlook.wanted(everywhere, float(self._left))
        self._known, self._standing = {}, np.zeros(0)

    def growth(self, kind: int) -> Floats:
        """Return by how much the cost of each node grows with a pod of the kind; infinite where it does not fit."""
        cluster = self._cluster
        known = self._known.get(kind, np.zeros(0))
        if known.size < cluster.states:
            more = max(cluster.states, 2 * known.size) - known.size
            known = self._known[kind] = np.concatenate([known, np.full(more, np.nan)])
        missing = np.unique(cluster.number[np.isnan(known[cluster.number])])
        if missing.size:
            known[missing] = self._grows(missing, kind)
        return known[cluster.number]

    def _grows(self, numbers: Ints, kind: int) -> Floats:
        workload, states = self._workload, self._cluster.examples(numbers)
        then, fits = after(states, int(workload.amount[kind]), int(workload.count[kind]), workload.other[:, kind])
        if workload.amount[kind]:
            fits &= workload.suits[kind, states.sort]
        result = np.full(fits.size, np.inf)
        result[fits] = self._outlook.cost(then[fits], self._wanted) - self._costs()[numbers[fits]]
        return result

    def _costs(self) -> Floats:
        """Return the cost of each state that is there now."""
        cluster, known = self._cluster, self._standing
        if known.size < cluster.states:
            more = max(cluster.states, 2 * known.size) - known.size
            known = self._standing = np.concatenate([known, np.full(more, np.nan)])
        missing = np.unique(cluster.number[np.isnan(known[cluster.number])])
        if missing.size:
            known[missing] = self._outlook.cost(cluster.examples(missing), self._wanted)
        return known

    def _kinds(self) -> Kinds:
        workload = self._workload
        seen = Kinds(workload.amount, workload.count, workload.other, workload.suits, self._seen)
        return seen.commonest(_TYPICAL, self._KINDS)


METHODS: dict[str, Maker] = {"random": Random, "best fit": BestFit, "fgd": Fgd, "muster": Muster}
