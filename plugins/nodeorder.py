"""Softer wishes about nodes: preferred node affinity, PreferNoSchedule taints, and how full a node is.

Each aspect gives 0 to 100 and has a weight (an argument of the same name); the answer is the weighted mean. Those that
look at usage are off by default: binpack and spread say the same per resource. They are kube-scheduler's, over cpu and
memory: a container that asks for none counts with 100m and 200Mi, but not for balancedAllocation, which says whether
the pod makes the use of both more alike or less. `ratio` gives the points of requestedToCapacityRatio.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from scheduler.framework.matching import matches_term, untolerated
from scheduler.framework.protocols import View
from scheduler.framework.registry import Arguments
from scheduler.model.nodes import NodeClass
from scheduler.model.pods import Pod, Shape
from scheduler.model.resources import BASE

_BY_USAGE = ("leastAllocated", "mostAllocated", "balancedAllocation", "requestedToCapacityRatio")
_WEIGHTS: Mapping[str, int] = {"nodeAffinity": 2, "taints": 3, **dict.fromkeys(_BY_USAGE, 0)}
_MOST = 10
"""The best score of a point of `ratio`, as in kube-scheduler."""
_FULL = 100
Ratio = tuple[tuple[int, int], ...]
Numbers = NDArray[np.int64]


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
        self._worth = np.array([_worth(percent, ratio) for percent in range(_FULL + 1)], dtype=np.int64)
        self._placed: Numbers | None = None

    def on_session(self, view: View) -> None:
        """Forget what the previous session placed."""
        self._placed = None

    def on_place(self, members: tuple[tuple[Pod, int], ...], view: View, *, undone: bool) -> None:
        """Count what containers that ask for nothing add."""
        for pod, row in members:
            for resource, value in view.snapshot.shapes[pod.shape].unstated:
                if self._placed is None:
                    self._placed = np.zeros_like(view.snapshot.table.unstated)
                self._placed[BASE.index(resource), row] += -value if undone else value

    def scores_nodes(self, shape: Shape, view: View) -> Numbers:
        """Return the weighted mean of the aspects over cpu and memory, 0 to 100."""
        table = view.snapshot.table
        kept = [number for number, name in enumerate(BASE) if name in table.resources]
        rows = [table.resources.index(BASE[number]) for number in kept]
        capacity, stated = table.allocatable[rows], dict(shape.requests)
        used = capacity - view.free[rows]
        asked = used + np.array([[stated.get(BASE[number], 0)] for number in kept], dtype=np.int64).reshape(-1, 1)
        more = dict(shape.unstated)
        counted = asked + table.unstated[kept]
        counted += np.array([[more.get(BASE[number], 0)] for number in kept], dtype=np.int64).reshape(-1, 1)
        if self._placed is not None:
            counted += self._placed[kept]
        total: Numbers = np.zeros(len(table.names), dtype=np.int64)
        for name, weight in self._weights.items():
            if weight and name == "balancedAllocation":
                if any(stated.get(resource) for resource in BASE):
                    total += weight * (_FULL // 2 + (_FULL // 2 + _even(asked, capacity) - _even(used, capacity)) // 2)
            elif weight and name in _BY_USAGE:
                total += weight * self._aspect(name, counted, capacity)
        scores: Numbers = total // self._total
        return scores

    def _aspect(self, name: str, counted: Numbers, capacity: Numbers) -> Numbers:
        """Score how much would be used, of cpu and of memory; the mean over those that the node has."""
        known, over = capacity > 0, counted > capacity
        safe = np.maximum(capacity, 1)
        if name == "leastAllocated":
            parts = np.where(over, 0, (capacity - counted) * _FULL // safe)
        else:
            parts = np.where(over, _FULL, counted * _FULL // safe)
        if name == "requestedToCapacityRatio":
            parts = np.where(known, self._worth[np.where(known, parts, 0)], 0)
            number = (parts > 0).sum(axis=0)
            mean: Numbers = (2 * parts.sum(axis=0) + number) // np.maximum(2 * number, 1)
            return mean
        whole: Numbers = np.where(known, parts, 0).sum(axis=0) // np.maximum(known.sum(axis=0), 1)
        return whole


def _even(used: Numbers, capacity: Numbers) -> Numbers:
    """100 where cpu and memory are used to the same share, 50 where one is full and the other empty."""
    shares = np.minimum(used / np.maximum(capacity, 1), 1.0)
    apart = np.abs(shares[0] - shares[1]) / 2 if len(shares) > 1 else np.zeros(used.shape[1])
    even: Numbers = ((1 - np.where((capacity > 0).all(axis=0), apart, 0.0)) * _FULL).astype(np.int64)
    return even


def _worth(percent: int, ratio: Ratio) -> int:
    """The score, 0 to 100, of a used share, on straight lines between the points; whole numbers, cut towards 0."""
    scale = _FULL // _MOST
    before = ratio[0]
    for used, worth in ratio:
        if percent <= used:
            if (used, worth) == ratio[0]:
                break
            step = scale * (worth - before[1]) * (percent - before[0])
            return scale * before[1] + int(step / (used - before[0]))
        before = (used, worth)
    return scale * before[1]


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
