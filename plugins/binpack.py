"""Fill nodes that are already in use, so that whole nodes stay free for gangs that need them.

Arguments: a weight for each resource name (cpu: 1, memory: 1, anything else: 10 unless given). Only resources that the
pod asks for count; a node that would be full after it scores 100.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from scheduler.framework.protocols import View
from scheduler.framework.registry import Arguments
from scheduler.model.pods import Shape

_DEFAULTS = {"cpu": 1, "memory": 1}
_OTHERS = 10


def is_resource(name: str) -> bool:
    """Whether an argument's name can be that of a resource."""
    return name in ("cpu", "memory", "ephemeral-storage") or "/" in name or name.startswith("hugepages-")


def used_share(shape: Shape, view: View, weights: dict[str, int]) -> NDArray[np.float64]:
    """Return for each node the weighted mean used share, 0 to 1, of the resources asked for, with one pod added."""
    table = view.snapshot.table
    request = view.request(shape)
    total = np.zeros(len(table.names), dtype=np.float64)
    weight_sum = 0
    for row in np.flatnonzero(request):
        name = table.resources[int(row)]
        weight = weights.get(name, _DEFAULTS.get(name, _OTHERS))
        if not weight:
            continue
        share = (view.free[row] - request[row]) / np.maximum(table.allocatable[row], 1)
        np.subtract(1.0, share, out=share)
        total += weight * share.clip(0.0, 1.0, out=share)
        weight_sum += weight
    return total / weight_sum if weight_sum else total


class BinPack:
    """See the module."""

    name = "binpack"

    def __init__(self, arguments: Arguments) -> None:
        self._weights = arguments.remaining_integers(is_name=is_resource, high=10_000)

    def scores_nodes(self, shape: Shape, view: View) -> NDArray[np.int64]:
        """Return 100 times the used share after one more pod."""
        return np.rint(used_share(shape, view, self._weights) * 100).astype(np.int64)
