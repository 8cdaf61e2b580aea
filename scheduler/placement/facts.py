"""What is said about a problem that has no placement: numbers only."""

from __future__ import annotations

from functools import partial
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from scheduler.placement.bounds import Bounds, most
from scheduler.placement.instance import Instance, Ints
from scheduler.placement.problem import BestDomain, Infeasible, Lacks, Shortage


def refuse(
    instance: Instance,
    bounds: Bounds | None,
    *,
    proven: bool,
    cause: Literal["rules", "bound", "search", "budget"],
) -> Infeasible:
    """Return the answer "no"; its numbers are counted when somebody asks for them."""
    return Infeasible(proven, cause, partial(_lacks, instance, bounds))


def _lacks(instance: Instance, bounds: Bounds | None) -> Lacks:
    problem, composition = instance.problem, instance.composition
    needed = _needed(instance)
    fits = bounds.fits if bounds is not None else np.array([most(instance, n) for n in range(len(instance.kinds))])
    fits = fits.reshape(len(instance.kinds), -1)
    top = fits.max(axis=1, initial=0)
    alone = tuple(min(d.count, int(top[instance.kind_of[n]])) for n, d in enumerate(problem.demands))
    best = None
    if instance.segments is not None and (instance.segments >= 0).any():
        totals = np.array([sum(needed[d] for d in kind.members) for kind in instance.kinds], dtype=np.int64)
        reach = np.minimum(fits, totals[:, None]).sum(axis=0)
        segment = int(np.argmax(np.where(np.isin(np.arange(reach.size), instance.segments), reach, -1)))
        inside = tuple(min(d.count, int(fits[instance.kind_of[n], segment])) for n, d in enumerate(problem.demands))
        best = BestDomain(instance.segment_level, instance.segment_name(segment), inside)
    placeable = None
    if instance.countable and composition.fixed:
        placeable = min(sum(d.count for d in problem.demands), int(top[0]))
    return Lacks(needed, alone, _shortage(instance, needed), best, placeable)


def _needed(instance: Instance) -> tuple[int, ...]:
    """How many of each demand are meant: the minimums, filled up from the first demands."""
    problem, composition = instance.problem, instance.composition
    needed = [demand.minimum for demand in problem.demands]
    for demands, count in composition.floors:
        missing = count - sum(needed[d] for d in demands)
        for demand in demands:
            more = max(0, min(missing, problem.demands[demand].count - needed[demand]))
            needed[demand] += more
            missing -= more
    return tuple(needed)


def _shortage(instance: Instance, needed: tuple[int, ...]) -> Shortage | None:
    """Return the resource of which the largest part is missing; when none is short in sum, the one that fits worst."""
    best: tuple[tuple[float, float], Shortage] | None = None
    amounts = [sum(needed[d] for d in kind.members) for kind in instance.kinds]
    for row, name in enumerate(instance.rows):
        asking = [n for n, kind in enumerate(instance.kinds) if row in kind.rows and amounts[n]]
        if not asking:
            continue
        allowed = np.zeros(instance.size, dtype=np.bool_)
        for number in asking:
            mask = instance.problem.demands[instance.kinds[number].members[0]].mask
            allowed |= True if mask is None else mask
        free = instance.free[row]
        total = sum(int(instance.kinds[n].need[row]) * amounts[n] for n in asking)
        held = _exact_sum(free, allowed)
        largest = int(free.max(initial=0, where=allowed))
        missing = max(0, total - held) / total
        worst = min(_exact_sum(free // instance.kinds[n].need[row], allowed) / amounts[n] for n in asking)
        rank = (-missing, worst)
        if best is None or rank < best[0]:
            best = (rank, Shortage(name, total, held, largest))
    return best[1] if best else None


def _exact_sum(values: Ints, allowed: NDArray[np.bool_]) -> int:
    picked = values[allowed]
    if picked.size and int(picked.max()) > 2**62 // picked.size:
        return sum(picked.tolist())
    return int(picked.sum())
