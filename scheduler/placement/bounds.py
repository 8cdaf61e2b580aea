"""Bounds: cheap necessary conditions. "No" is a proof; "yes" means only that the search goes on.

Decided here: which sums must suffice. All are vectorised over the domains of a level, so that hundreds of racks cost as
much as one.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from scheduler.placement.compiled import Compiled


def hopeless(compiled: Compiled) -> str:
    """Return why no placement exists, or "" when the sums leave it open."""
    if not compiled.possible:
        return "the bounds of the demands contradict each other"
    sums = compiled.fit.sum(axis=1)
    for d, least in enumerate(compiled.lower):
        if int(sums[d]) < least:
            return f"{compiled.problem.demands[d].name}: {int(sums[d])} of {least} fit"
    for rule in compiled.minimums:
        most = sum(min(int(sums[d]), compiled.upper[d]) for d in rule.demands)
        if most < rule.count:
            return f"{most} of {rule.count} members fit"
    least_use = np.array(compiled.lower, dtype=object) @ compiled.req.astype(object)
    useful = compiled.fit.any(axis=0)
    for row, use in enumerate(np.atleast_1d(least_use)):
        if use > sum(int(value) for value in compiled.cap[row, useful]):
            return f"row {row}: {use} needed in sum"
    return ""


def surviving(compiled: Compiled, ids: NDArray[np.int32], demands: tuple[int, ...]) -> list[int]:
    """Return the domains that may hold these demands' minimums, the fullest first (ties: lower id)."""
    known = ids >= 0
    if not known.any():
        return []
    size = int(ids.max()) + 1
    alive = np.zeros(size, dtype=np.bool_)
    alive[np.unique(ids[known])] = True
    room = np.zeros(size, dtype=np.float64)
    for d in demands:
        here = np.bincount(ids[known], weights=compiled.fit[d][known], minlength=size)
        alive &= here >= compiled.lower[d]
        room += here
    for rule in compiled.minimums:
        if set(rule.demands) <= set(demands):
            most = np.zeros(size, dtype=np.float64)
            for d in rule.demands:
                here = np.bincount(ids[known], weights=compiled.fit[d][known], minlength=size)
                most += np.minimum(here, compiled.upper[d])
            alive &= most >= rule.count
    least = np.array(compiled.lower, dtype=np.float64)
    for row in range(compiled.req.shape[1]):
        use = float(sum(least[d] * float(compiled.req[d, row]) for d in demands))
        have = np.bincount(ids[known], weights=compiled.cap[row][known].astype(np.float64), minlength=size)
        alive &= have * (1 + 1e-9) + 1 >= use  # float sums of bytes: never refuse by rounding
    return [int(domain) for domain in np.lexsort((np.arange(size), room)) if alive[domain]]
