"""Fill nodes that are already in use, so that whole nodes stay free for gangs that need them.

Arguments: a weight for each resource name (cpu: 1, memory: 1, anything else: 10 unless given). Only resources that the
pod asks for count; a node that would be full after it scores 100. What was computed for a shape is kept and mended
where what is free on a node has changed, because a session asks again after every placement, which changes few nodes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scheduler.framework.protocols import View
from scheduler.framework.registry import Arguments
from scheduler.model.pods import Shape
from scheduler.model.snapshot import NodeTable

_DEFAULTS = {"cpu": 1, "memory": 1}
_OTHERS = 10
_KEPT = 64
"""For so many shapes the scores are kept, those asked for last."""


def is_resource(name: str) -> bool:
    """Whether an argument's name can be that of a resource."""
    return name in ("cpu", "memory", "ephemeral-storage") or "/" in name or name.startswith("hugepages-")


class UsedShare:
    """How much of each node would be used with one more pod of a shape, in hundredths.

    weights: of the resources for which the defaults do not hold, not negative. invert: how much would be free.
    """

    def __init__(self, weights: Mapping[str, int], *, invert: bool = False) -> None:
        self._weights, self._invert = weights, invert
        self._kept: dict[bytes, _Kept] = {}

    def __call__(self, shape: Shape, view: View) -> NDArray[np.int64]:
        """Return for each node the weighted mean share of the resources asked for, 0 to 100, rounded. Read only."""
        table, request = view.snapshot.table, view.request(shape)
        rows = request.nonzero()[0]
        weights = [self._weight(table.resources[row]) for row in rows.tolist()]
        free = view.free[rows]
        known = self._kept.pop(request.tobytes(), None)
        if known is None or known.table is not table:
            shares = self._shares(request[rows], free, table.allocatable[rows], weights)
        else:
            shares = known.shares
            changed = (free != known.free).any(axis=0).nonzero()[0]
            if changed.size:
                shares = shares.copy()
                there = table.allocatable[np.ix_(rows, changed)]
                shares[changed] = self._shares(request[rows], free[:, changed], there, weights)
        shares.flags.writeable = False
        self._kept[request.tobytes()] = _Kept(table, free, shares)
        if len(self._kept) > _KEPT:
            del self._kept[next(iter(self._kept))]
        return shares

    def _shares(
        self,
        request: NDArray[np.int64],
        free: NDArray[np.int64],
        allocatable: NDArray[np.int64],
        weights: Sequence[int],
    ) -> NDArray[np.int64]:
        """request, weights: of each resource; free, allocatable: resources by nodes."""
        total = np.zeros(free.shape[1], dtype=np.float64)
        for row, weight in enumerate(weights):
            if weight:
                share = (free[row] - request[row]) / np.maximum(allocatable[row], 1)
                np.subtract(1.0, share, out=share)
                np.maximum(share, 0.0, out=share)
                np.minimum(share, 1.0, out=share)
                total += weight * share
        if sum(weights):
            total /= sum(weights)
        return np.rint((1.0 - total if self._invert else total) * 100).astype(np.int64)

    def _weight(self, resource: str) -> int:
        return self._weights.get(resource, _DEFAULTS.get(resource, _OTHERS))


@dataclass(frozen=True, slots=True)
class _Kept:
    """Used shares for a shape, and for which free amounts (resources asked for, by nodes) they hold."""

    table: NodeTable
    free: NDArray[np.int64]
    shares: NDArray[np.int64]


class BinPack:
    """See the module."""

    name = "binpack"

    def __init__(self, arguments: Arguments) -> None:
        self._used = UsedShare(arguments.remaining_integers(is_name=is_resource, high=10_000))

    def scores_nodes(self, shape: Shape, view: View) -> NDArray[np.int64]:
        """Return 100 times the used share after one more pod."""
        return self._used(shape, view)
