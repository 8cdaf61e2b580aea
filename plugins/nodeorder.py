"""Softer wishes about nodes: preferred node affinity, PreferNoSchedule taints, and how full a node is.

Each aspect gives 0 to 100 and has a weight (an argument of the same name); the answer is the weighted mean. Those that
look at usage are off by default: binpack and spread say the same per resource. `ratio` gives the points of
requestedToCapacityRatio.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from scheduler.framework.matching import matches_term, untolerated
from scheduler.framework.protocols import View
from scheduler.framework.registry import Arguments
from scheduler.model.nodes import NodeClass
from scheduler.model.pods import Shape

_BASE = ("cpu", "memory")
_BY_USAGE = ("leastAllocated", "mostAllocated", "balancedAllocation", "requestedToCapacityRatio")
_WEIGHTS: Mapping[str, int] = {"nodeAffinity": 2, "taints": 3, **dict.fromkeys(_BY_USAGE, 0)}
_MOST = 10
"""The best score of a point of `ratio`, as in kube-scheduler."""
Ratio = tuple[tuple[int, int], ...]


class NodeOrder:
    """The static aspects."""

    name = "nodeorder"

    def __init__(self, weights: Mapping[str, int]) -> None:
        self._weights = weights
        self._total = max(1, sum(weights.values()))

    def scores(self, shape: Shape, node_class: NodeClass) -> int:
        """Return the share of preferred terms that match, and 100 less 25 for each taint that is not tolerated.

        A shape that prefers nothing scores every class alike.
        """
        terms = [term for term in shape.preferred_terms if term.term.expressions or term.term.fields]
        full = sum(term.weight for term in terms)
        matched = sum(term.weight for term in terms if matches_term(term.term, node_class))
        affinity = 100 * matched // full if full else 0
        taints = max(0, 100 - 25 * len(untolerated(shape, node_class, ("PreferNoSchedule",))))
        return (self._weights["nodeAffinity"] * affinity + self._weights["taints"] * taints) // self._total


class NodeOrderByUsage(NodeOrder):
    """With aspects that look at how full a node is, after one more pod of the shape."""

    def __init__(self, weights: Mapping[str, int], ratio: Ratio) -> None:
        super().__init__(weights)
        self._ratio = ratio

    def scores_nodes(self, shape: Shape, view: View) -> NDArray[np.int64]:
        """Return the weighted mean of the aspects over cpu and memory, 0 to 100."""
        table = view.snapshot.table
        rows = [number for number, name in enumerate(table.resources) if name in _BASE]
        if not rows:
            return np.zeros(len(table.names), dtype=np.int64)
        request = view.request(shape)[rows]
        capacity = np.maximum(table.allocatable[rows], 1)
        free: NDArray[np.float64] = np.clip((view.free[rows] - request[:, None]) / capacity, 0.0, 1.0)
        share: NDArray[np.float64] = free.mean(axis=0) * self._weights["leastAllocated"]
        share += (1.0 - free).mean(axis=0) * self._weights["mostAllocated"]
        share += (1.0 - free.std(axis=0)) * self._weights["balancedAllocation"] * bool(request.any())
        if self._weights["requestedToCapacityRatio"]:
            used, worth = zip(*self._ratio, strict=True)
            ratio = np.interp((1.0 - free) * 100, used, worth).mean(axis=0) / _MOST
            share += ratio * self._weights["requestedToCapacityRatio"]
        scores: NDArray[np.int64] = np.floor(share * 100 / self._total).astype(np.int64)
        return scores


def node_order(arguments: Arguments) -> NodeOrder:
    """Make the plugin: without `scores_nodes` where nothing dynamic is asked for, which saves one pass a placement."""
    weights = {name: arguments.integer(name, default, high=1000) for name, default in _WEIGHTS.items()}
    if weights["leastAllocated"] and weights["mostAllocated"]:
        raise arguments.refuse("mostAllocated", "cannot be used together with leastAllocated")
    ratio = _ratio(arguments)
    return NodeOrderByUsage(weights, ratio) if any(weights[name] for name in _BY_USAGE) else NodeOrder(weights)


def _ratio(arguments: Arguments) -> Ratio:
    """Read "PERCENT=SCORE" points: percentages ascend, score 0 to 10."""
    points: list[tuple[int, int]] = []
    for text in arguments.texts("ratio", ("0=0", "100=10")):
        used, equals, worth = text.partition("=")
        if not (equals and used.isdecimal() and worth.isdecimal() and int(used) <= 100 and int(worth) <= _MOST):
            raise arguments.refuse(
                "ratio", f"{text!r} is not PERCENT=SCORE with a percentage and a score up to {_MOST}"
            )
        if points and int(used) <= points[-1][0]:
            raise arguments.refuse("ratio", f"{text!r} is not above the percentage before it")
        points.append((int(used), int(worth)))
    return tuple(points)
