"""Dividing integers among claimants that stand in segments: by weight, up to what each wants, exactly.

Decided here: what rounding does (largest remainder, the first in order wins a tie) and how sums and products that do
not fit 64 bits are handled: sums stop at `CEILING`, products that could overflow are made of Python integers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Ints: TypeAlias = NDArray[np.int64]
Index: TypeAlias = NDArray[np.intp]

CEILING = 2**62 - 1
"""No amount is larger; sums that would be are this."""

_HALF = 31
_LOW = (1 << _HALF) - 1

Reweigh: TypeAlias = Callable[[Index, Index, Ints], Ints]
"""(claimants, the segment of each counted from 0, the first claimant of each segment) -> weights for one round."""


def sums(values: Ints, starts: Index) -> Ints:
    """Return the sums of the runs of the last axis that begin at `starts` (ascending, none empty), at most CEILING."""
    high = np.add.reduceat(values >> _HALF, starts, axis=-1)
    low = np.add.reduceat(values & _LOW, starts, axis=-1)
    return _joined(high, low)


def sums_before(values: Ints, first: Index) -> Ints:
    """Return for each column the sum of the columns from `first` of that column up to before it, at most CEILING."""
    high = np.cumsum(values >> _HALF, axis=-1) - (values >> _HALF)
    low = np.cumsum(values & _LOW, axis=-1) - (values & _LOW)
    return _joined(high - high[..., first], low - low[..., first])


def _joined(high: Ints, low: Ints) -> Ints:
    high = high + (low >> _HALF)
    return np.minimum(np.where(high > _LOW, CEILING, (np.minimum(high, _LOW) << _HALF) | (low & _LOW)), CEILING)


def fill(want: Ints, weight: Ints, segment: Index, budget: Ints, reweigh: Reweigh | None = None) -> Ints:
    """Divide the budget of each segment among its claimants by weight, nobody above its want.

    want, weight: above 0, one for each claimant. segment: ascending. budget: one for each segment, below the sum of
    what is wanted there; it is given out to the last unit. With `reweigh` the weights of a round are those that it
    returns (0: nothing in this round), and what was offered in a round is kept.
    """
    given = np.zeros_like(want)
    open_ = want.copy()
    left = budget.copy()
    live = np.flatnonzero(want > 0)
    while live.size:
        starts, local = _runs(segment[live])
        weights = weight[live] if reweigh is None else reweigh(live, local, starts)
        here = segment[live[starts]]
        offer, rest = shares(left[here], weights, local, starts)
        met = open_[live] <= offer
        some_met = np.maximum.reduceat(met, starts)
        last = ~some_met[local]
        extra = left[here] - np.add.reduceat(offer, starts)
        offer = np.where(met, open_[live], offer)
        if reweigh is None:
            offer = np.where(met | last, offer, 0)
        if last.any():
            offer += last & (_place(rest, local, starts) < extra[local])
        given[live] += offer
        open_[live] -= offer
        left[here] -= np.add.reduceat(offer, starts)
        live = live[~(met | last)]
    return given


def shares(budget: Ints, weight: Ints, local: Index, starts: Index) -> tuple[Ints, Ints]:
    """Return the whole units and the remainder of budget * weight / sum of weights, for each claimant.

    budget: one for each segment. Where all weights are 0 the shares are. Remainders of one segment are comparable.
    """
    divisor = np.maximum(np.gcd.reduceat(weight, starts), 1)
    weight = weight // divisor[local]
    total = np.maximum(sums(weight, starts), 1)
    whole, rest = np.divmod(budget, total)
    largest = np.maximum.reduceat(weight, starts)
    large = largest > CEILING // total
    fits = ~large[local]
    product = np.where(fits, rest[local] * np.where(fits, weight, 0), 0)
    units = np.where(fits, whole[local] * np.where(fits, weight, 0) + product // total[local], 0)
    remainder = product % total[local]
    ends = np.append(starts[1:], weight.size)
    for number in np.flatnonzero(large):
        _large_shares(int(budget[number]), weight, slice(starts[number], ends[number]), units, remainder)
    return units, remainder


def _large_shares(budget: int, weight: Ints, run: slice, units: Ints, remainder: Ints) -> None:
    """Fill in the units and remainders of one run; remainders that do not fit are replaced by their order."""
    weights = weight[run].tolist()
    total = sum(weights)
    parts = [divmod(budget * one, total) for one in weights]
    units[run] = [part for part, _ in parts]
    rests = [rest for _, rest in parts]
    if total > CEILING:
        rank = {rest: number for number, rest in enumerate(sorted(set(rests)))}
        rests = [rank[rest] for rest in rests]
    remainder[run] = rests


def _runs(segment: Index) -> tuple[Index, Index]:
    """Return where runs of equal values start, and for each item the number of its run."""
    new = np.empty(segment.size, dtype=bool)
    new[0] = True
    np.not_equal(segment[1:], segment[:-1], out=new[1:])
    return np.flatnonzero(new), np.cumsum(new) - 1


def _place(rest: Ints, local: Index, starts: Index) -> Index:
    """Return the place of each item in its run, the largest remainder first, equal ones in their order."""
    order = np.lexsort((-rest, local))
    place = np.empty(rest.size, dtype=np.intp)
    place[order] = np.arange(rest.size) - starts[local]
    return place
