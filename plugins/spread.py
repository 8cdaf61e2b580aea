"""Prefer nodes with the most room, so that a node that fails takes little with it: the opposite of binpack.

Arguments as those of binpack: a weight for each resource name.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from plugins.binpack import UsedShare, is_resource
from scheduler.framework.protocols import View
from scheduler.framework.registry import Arguments
from scheduler.model.pods import Shape


class Spread:
    """See the module."""

    name = "spread"
    spreads = True

    def __init__(self, arguments: Arguments) -> None:
        weights = arguments.remaining_integers(is_name=is_resource, high=10_000)
        self._free = UsedShare(weights, invert=True)

    def scores_nodes(self, shape: Shape, view: View) -> NDArray[np.int64]:
        """Return 100 times the free share after one more pod."""
        return self._free(shape, view)
