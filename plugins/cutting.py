"""What a part of a device is worth, when shares of known sizes keep coming: prices of the cutting stock problem.

Decided here: a share is worth the part of a device that it costs in the best mixture of layouts, and what is left of a
device is worth the dearest shares that it can still take. A remainder that only shares could fill of which few come is
worth nothing, so that it is no harm to leave it; one that completes a good layout is worth keeping. Pure: numbers in,
numbers out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]

_MOST_SHARES = 32
"""So many different shares are priced, the commonest; others count with the dearest that is smaller."""
_MOST_STEPS = 600
_ENOUGH = 1e-9


def worth(shares: Mapping[int, float], size: int) -> Floats:
    """Return what 0 to `size` of a device are worth, in the same unit (`size` of it is worth `size`).

    shares: how often each share of a device (1 to size - 1) is asked for. Without any, only whole devices count.
    """
    sizes, often, unit = _common(shares, size)
    values, _ = _knapsack(sizes, _prices(sizes, often, size // unit), size // unit)
    result = np.repeat(values, unit)[: size + 1] * size
    result = np.append(result, np.full(size + 1 - result.size, result[-1] if result.size else 0.0))
    result[size] = size
    return np.minimum(result, np.arange(size + 1, dtype=np.float64))


def fewest(shares: Mapping[int, float], size: int) -> float:
    """Return with how few devices these shares could do at best, in the limit of many: a bound for every layout."""
    sizes, often, unit = _common(shares, size)
    return float(_prices(sizes, often, size // unit) @ often)


def _common(shares: Mapping[int, float], size: int) -> tuple[Ints, Floats, int]:
    """Return the commonest shares, the largest first, in units of what divides all, and how often each is asked."""
    asked = {share: often for share, often in shares.items() if 0 < share < size and often > 0}
    common = sorted(asked, key=lambda share: (-asked[share] * share, share))[:_MOST_SHARES]
    unit = math.gcd(size, *common)
    sizes = np.array(sorted(common, reverse=True), dtype=np.int64) // unit
    return sizes, np.array([asked[int(share) * unit] for share in sizes], dtype=np.float64), unit


def _prices(sizes: Ints, often: Floats, size: int) -> Floats:
    """Return the part of a device that each share costs: the dual prices of covering all with the fewest devices.

    The simplex method over layouts, of which the best is made when it is needed (Gilmore and Gomory).
    """
    count = sizes.size
    if not count:
        return np.zeros(0)
    basis = np.diag((size // sizes).astype(np.float64))
    costs = np.ones(count)
    for _ in range(_MOST_STEPS):
        inverse = np.linalg.inv(basis)
        prices = costs @ inverse
        lowest = int(np.argmin(prices))
        if prices[lowest] < -_ENOUGH:  # more of a share than is asked for
            column, cost = np.zeros(count), 0.0
            column[lowest] = -1.0
        else:
            values, layout = _knapsack(sizes, prices, size)
            if values[-1] <= 1.0 + _ENOUGH:
                break
            column, cost = layout, 1.0
        direction = inverse @ column
        able = direction > _ENOUGH
        if not able.any():
            break
        held = np.where(able, (inverse @ often) / np.where(able, direction, 1.0), np.inf)
        leaving = int(np.argmin(held))
        basis[:, leaving], costs[leaving] = column, cost
    return np.maximum(prices, 0.0)


def _knapsack(sizes: Ints, prices: Floats, size: int) -> tuple[Floats, Floats]:
    """Return the dearest contents of 0 to `size`, and how many of each share the largest holds."""
    values = np.zeros(size + 1)
    chosen = np.full(size + 1, -1, dtype=np.int64)
    for room in range(1, size + 1):
        values[room] = values[room - 1]
        able = np.flatnonzero(sizes <= room)
        if able.size:
            with_one = values[room - sizes[able]] + prices[able]
            best = int(np.argmax(with_one))
            if with_one[best] > values[room] + _ENOUGH / 10:
                values[room], chosen[room] = with_one[best], able[best]
    layout = np.zeros(sizes.size)
    room = size
    while room > 0:
        if chosen[room] < 0:
            room -= 1
        else:
            layout[chosen[room]] += 1
            room -= int(sizes[chosen[room]])
    return values, layout
