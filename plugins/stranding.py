"""How much of the devices of a node will be lost to what is typically asked for. Pure: arrays in, arrays out.

Decided here: what makes one place better than another. A node's cost is, in units of a device's size:

- what is left of its devices beyond what it is worth (`cutting`),
- what the rest of the node (cpu, memory) will not be enough for: the devices that stay free when pods as they typically
  come have used it up, as an expectation,
- a little of the FGD measure (USENIX ATC 2023): what the next typical pod could not use,
- less a little of what is wanted here and hardly anywhere else: what each kind asks for in sum, spread over all places
  that are left for it.

A pod goes where the cost grows least. All that is known is how often each kind of pod was seen.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from plugins.cutting import worth

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
Flags: TypeAlias = NDArray[np.bool_]

NEXT_POD, WANTED = 0.1, 0.05
"""Weights of the third and the fourth part; the first two are what is lost, and weigh 1."""

_REACH = 6.0
_POINTS = np.linspace(-_REACH, _REACH, 1201)
_LOSS = np.array(
    [math.exp(-z * z / 2) / math.sqrt(2 * math.pi) - z * (1 - math.erf(z / math.sqrt(2))) / 2 for z in _POINTS.tolist()]
)
"""How much a standard normal variable exceeds each point, on average."""


@dataclass(frozen=True, slots=True, eq=False)
class States:
    """Nodes, S of them, as they are or would be.

    left: (S, D) of each device; 0 where a node has fewer. other: (R, S) of the other resources. sort: (S,) what kinds
    tell nodes apart by (model, labels).
    """

    left: Ints
    other: Ints
    sort: Ints

    def __getitem__(self, picked: Ints | Flags) -> States:
        """Return some of them."""
        return States(self.left[picked], self.other[:, picked], self.sort[picked])


@dataclass(frozen=True, slots=True, eq=False)
class Kinds:
    """K kinds of pods that are seen.

    amount: (K,) of each device that a pod takes, `size` = all of it, 0 = it takes none. count: (K,) devices. other:
    (R, K). suits: (K, sorts) which nodes may host it. often: (K,) how often it was seen.
    """

    amount: Ints
    count: Ints
    other: Ints
    suits: Flags
    often: Floats
    size: int = 1000

    def commonest(self, share: float, most: int) -> Kinds:
        """Return those that make up a share of all pods or of all that is asked of devices; at most so many."""
        return self[common(self.often, self.often * self.amount * self.count, share, most)]

    def __getitem__(self, picked: Ints | Flags) -> Kinds:
        """Return some of them."""
        return Kinds(
            self.amount[picked],
            self.count[picked],
            self.other[:, picked],
            self.suits[picked],
            self.often[picked],
            self.size,
        )


def common(often: Floats, asked: Floats, share: float, most: int) -> Flags:
    """Return which kinds make up a share of all that were seen, or of all that is asked; at most so many."""
    keep = np.zeros(often.size, dtype=np.bool_)
    for weights in (often, asked):
        order = np.argsort(-weights, kind="stable")
        before = np.cumsum(weights[order]) - weights[order]
        picked = order[(before < share * weights.sum()) & (weights[order] > 0)]
        keep[picked[: most // 2]] = True
    return keep


class Outlook:
    """What is expected to come, made ready to judge nodes by."""

    def __init__(self, kinds: Kinds) -> None:
        self.kinds = kinds
        self.asking = np.flatnonzero(kinds.amount > 0)
        """The kinds that ask for devices."""
        self._shares, self._share_of = np.unique(kinds.amount[self.asking], return_inverse=True)
        total = float(kinds.often.sum())
        self._often = kinds.often / total if total else kinds.often
        asked = (kinds.often * kinds.amount * kinds.count)[self.asking]
        in_sum = float(asked.sum())
        self._asked = asked / in_sum if in_sum else asked
        self._mean, self._spread = self._needs(asked, in_sum)

    def _needs(self, asked: Floats, in_sum: float) -> tuple[Floats, Floats]:
        """Return what filling one unit of devices takes of each other resource: mean and variance."""
        kinds, asking = self.kinds, self.asking
        if not in_sum:
            return np.zeros(len(kinds.other)), np.zeros(len(kinds.other))
        other = kinds.other[:, asking].astype(np.float64)
        often = kinds.often[asking]
        mean = (other * often).sum(axis=1) / in_sum
        rest = other - mean[:, None] * (kinds.amount * kinds.count)[asking]
        return mean, (rest**2 * often).sum(axis=1) / in_sum

    @cached_property
    def worth(self) -> Floats:
        """What each amount that is left of a device is worth."""
        single = self.asking[(self.kinds.count[self.asking] == 1)]
        often: dict[int, float] = {}
        for amount, seen in zip(self.kinds.amount[single].tolist(), self.kinds.often[single].tolist(), strict=True):
            often[amount] = often.get(amount, 0.0) + seen
        return worth(often, self.kinds.size)

    def cost(self, states: States, wanted: Floats) -> Floats:
        """Return the cost of nodes. `wanted`: of `wanted`, for the cluster as it is."""
        total = states.left.sum(axis=1).astype(np.float64)
        useful = self.worth[states.left].sum(axis=1)
        amounts, usable = self._reach(states)
        next_pod = total - amounts @ self._often[self.asking]
        cost: Floats = total - useful + self._short(useful, states.other) + NEXT_POD * next_pod - usable @ wanted
        return cost

    def usable(self, states: States) -> Floats:
        """Return how much of a node's devices pods of each asking kind could use: (S, asking kinds)."""
        return self._reach(states)[1]

    def wanted(self, everywhere: Floats, left: float) -> Floats:
        """Return the weight of what each asking kind could use, given its sum over all nodes and all that is left."""
        return np.where(everywhere > 0, WANTED * self._asked * left / np.maximum(everywhere, 1.0), 0.0)

    def _short(self, useful: Floats, other: Ints) -> Floats:
        """Return what stays free of the devices because of the resource that runs out first, as an expectation."""
        most = np.zeros(useful.size)
        for amount, mean, spread in zip(other, self._mean, self._spread, strict=True):
            if mean <= 0:
                continue
            deviation = np.sqrt(np.maximum(spread * useful, 1e-12))
            over = deviation * np.interp((amount - mean * useful) / deviation, _POINTS, _LOSS, right=0.0)
            over = np.maximum(over, mean * useful - amount)
            np.maximum(most, np.minimum(over / mean, useful), out=most)
        return most

    def _reach(self, states: States) -> tuple[Floats, Floats]:
        """Return, for nodes by asking kinds, what is left of the devices that have as much left as a pod takes of one,
        and how much of it such pods could use together; 0 where none fits.

        The first is what FGD counts as of use to the next pod; a pod without devices uses none.
        """
        kinds, asking = self.kinds, self.asking
        able = states.left[:, :, None] >= self._shares[None, None, :]
        held = able.sum(axis=1)[:, self._share_of]
        fits = self.kinds.suits[asking][:, states.sort].T & (held >= kinds.count[asking])
        for amount, asked in zip(states.other, kinds.other[:, asking], strict=True):
            fits &= amount[:, None] >= asked[None, :]
        amounts = np.einsum("sd,sdk->sk", states.left, able)[:, self._share_of] * fits
        beyond = held % kinds.count[asking] * kinds.size * fits
        return amounts.astype(np.float64), (amounts - beyond).astype(np.float64)


def after(states: States, amount: int, count: int, other: Ints) -> tuple[States, Flags]:
    """Return the nodes with one more pod, and which of them hold it. A share goes where the least is left of a device.

    Where it does not fit, the state is as it was.
    """
    fits: Flags = np.all(states.other >= other[:, None], axis=0)
    left = states.left.copy()
    if amount:
        able = left >= amount
        fits = np.logical_and(fits, able.sum(axis=1) >= count)
        rank = np.argsort(np.where(able, left, np.iinfo(np.int64).max), axis=1, kind="stable")[:, :count]
        rows = np.arange(left.shape[0])[:, None]
        left[rows, rank] -= np.where(fits, amount, 0)[:, None]
    return States(left, states.other - np.where(fits, other[:, None], 0), states.sort), fits
