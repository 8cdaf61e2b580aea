"""Which nodes take k identical pods, given how many each could take: the one choice that counting and greedy share.

Decided here: what the objectives mean. "pack": as few nodes as possible, the last one the tightest that takes the rest,
scores between equals. "scores": best score first, and like pack among equal scores. "spread": as evenly as the nodes
allow, better scores first. Ties go to the lower node number. All are one sort, whatever k is.
"""

from __future__ import annotations

import numpy as np

from scheduler.placement.arrays import Ints
from scheduler.placement.problem import Objective


def choose(fit: Ints, count: int, scores: Ints | None, objective: Objective) -> Ints:
    """Return (N,) pods for each node, `count` in all. `fit.sum() >= count` must hold."""
    taken = np.zeros_like(fit)
    if count <= 0:
        return taken
    points = np.zeros_like(fit) if scores is None else scores
    if objective == "spread":
        return _spread(fit, count, points)
    order = (
        np.lexsort((-fit, -points)) if objective == "scores" else np.lexsort((-points, -fit))
    )  # stable: equals stay in node order
    order = order[fit[order] > 0]
    sums = np.cumsum(fit[order])
    last = int(np.searchsorted(sums, count))
    full = order[:last]
    taken[full] = fit[full]
    rest = count - (int(sums[last - 1]) if last else 0)
    if rest > 0:
        taken[_tightest(fit, points, order[last:], rest, objective)] = rest
    return taken


def _tightest(fit: Ints, points: Ints, left: np.ndarray, rest: int, objective: Objective) -> int:
    """Among the nodes not used yet, the one that the rest fills best."""
    able = left[fit[left] >= rest]
    if objective == "scores":
        able = able[points[able] == points[left[0]]]
        if not len(able):
            return int(left[0])
    return int(able[np.lexsort((able, -points[able], fit[able]))[0]])


def _spread(fit: Ints, count: int, points: Ints) -> Ints:
    low, high = 0, int(fit.max())
    while low < high:  # the smallest level at which enough fit
        middle = (low + high) // 2
        if int(np.minimum(fit, middle).sum()) >= count:
            high = middle
        else:
            low = middle + 1
    taken = np.minimum(fit, max(low - 1, 0))
    rest = count - int(taken.sum())
    able = np.flatnonzero(fit > taken)
    order = able[np.lexsort((able, -points[able], -fit[able]))]
    taken[order[:rest]] += 1
    return taken
