"""Softer wishes about nodes: preferred node affinity, PreferNoSchedule taints, and how full a node is.

Each aspect gives 0 to 100 and has a weight (an argument of the same name); the answer is the weighted mean.
`leastAllocated` and `mostAllocated` are off by default: binpack and spread say the same per resource.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from scheduler.framework.matching import matches_term, untolerated
from scheduler.framework.protocols import View
from scheduler.framework.registry import Arguments
from scheduler.model.nodes import NodeClass
from scheduler.model.pods import Shape

_BASE = ("cpu", "memory")


class NodeOrder:
    """The static aspects. Arguments: nodeAffinity (2), taints (3), leastAllocated (0), mostAllocated (0)."""

    name = "nodeorder"

    def __init__(self, affinity: int, taints: int, least: int, most: int) -> None:
        self._affinity, self._taints, self._least, self._most = affinity, taints, least, most
        self._total = max(1, affinity + taints + least + most)

    def scores(self, shape: Shape, node_class: NodeClass) -> int:
        """Return the share of preferred terms that match, and 100 less 25 for each taint that is not tolerated.

        A shape that prefers nothing scores every class alike.
        """
        terms = [term for term in shape.preferred_terms if term.term.expressions or term.term.fields]
        full = sum(term.weight for term in terms)
        matched = sum(term.weight for term in terms if matches_term(term.term, node_class))
        affinity = 100 * matched // full if full else 0
        taints = max(0, 100 - 25 * len(untolerated(shape, node_class, ("PreferNoSchedule",))))
        return (self._affinity * affinity + self._taints * taints) // self._total


class NodeOrderByUsage(NodeOrder):
    """With one of the two aspects that look at free amounts."""

    def scores_nodes(self, shape: Shape, view: View) -> NDArray[np.int64]:
        """Return the mean free (or used) share of cpu and memory after one pod of the shape, 0 to 100."""
        table = view.snapshot.table
        rows = [number for number, name in enumerate(table.resources) if name in _BASE]
        if not rows:
            return np.zeros(len(table.names), dtype=np.int64)
        request = view.request(shape)[rows]
        capacity = np.maximum(table.allocatable[rows], 1)
        free: NDArray[np.float64] = np.clip((view.free[rows] - request[:, None]) / capacity, 0.0, 1.0).mean(axis=0)
        share: NDArray[np.float64] = free * self._least + (1.0 - free) * self._most
        return np.floor(share * 100 / self._total).astype(np.int64)


def node_order(arguments: Arguments) -> NodeOrder:
    """Make the plugin: without `scores_nodes` where nothing dynamic is asked for, which saves one pass a placement."""
    affinity = arguments.integer("nodeAffinity", 2, high=1000)
    taints = arguments.integer("taints", 3, high=1000)
    least = arguments.integer("leastAllocated", 0, high=1000)
    most = arguments.integer("mostAllocated", 0, high=1000)
    if least and most:
        raise arguments.refuse("mostAllocated", "cannot be used together with leastAllocated")
    return (NodeOrderByUsage if least or most else NodeOrder)(affinity, taints, least, most)
