"""Which segments could hold the gang, by sums alone. A segment that is struck out here holds it in no way: a "no" of
this module is a proof. Nothing here says that a gang does fit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scheduler.placement.between import Following, Multiple
from scheduler.placement.counting import keep, kept, limits_of, segment_sums
from scheduler.placement.instance import Instance, Ints
from scheduler.placement.levelling import Pairs, ceilings, nested, rooms, widest_first

_EXACT = 2**62
"""Sums beyond it are not exact; such a row is not used."""


@dataclass(slots=True, eq=False)
class Bounds:
    """fits: kinds by segments, pods that fit alone; alive: segments that survive; room: how many gangs' worth."""

    fits: Ints
    alive: NDArray[np.bool_]
    room: NDArray[np.float64]


def bound(instance: Instance) -> Bounds:
    """Return the bounds of every segment."""
    count = instance.segment_count
    fits = np.zeros((len(instance.kinds), count), dtype=np.int64)
    known: dict[tuple[bytes, int], Ints] = {}
    for number in range(len(instance.kinds)):
        fits[number] = most(instance, number, known)
    alive = np.ones(count, dtype=np.bool_)
    needed = _least(instance)
    for number in range(len(instance.kinds)):
        alive &= fits[number] >= needed[number]
    _rows(instance, fits, alive)
    _resources(instance, needed, alive)
    _apart(instance, alive)
    room = np.full(count, np.inf)
    for number, need in enumerate(needed):
        if need:
            np.minimum(room, fits[number] / need, out=room)
    if not any(needed):
        room = fits.sum(axis=0).astype(np.float64)
    return Bounds(fits, alive, room)


def most(instance: Instance, number: int, known: dict[tuple[bytes, int], Ints] | None = None) -> Ints:
    """Return a number for each segment that no placement of the kind exceeds. known: what kinds have in common."""
    kind = instance.kinds[number]
    best = segment_sums(kind.cap, instance.segments, instance.segment_count)
    tops = [kept(instance, kind, kind.cap, p.ids, p.limits // p.weights[number]) for p in limits_of(instance, number)]
    parts = widest_first([part for part in instance.spreads if number in part.carriers])
    for part in parts:
        reach = sum((instance.kinds[n].cap for n in part.counted), np.zeros(instance.size, dtype=np.int64))
        tops.append(ceilings(instance, part, number, kind.cap, part.present, reach))
    if len(parts) > 1 and len(instance.kinds) == 1 and nested(parts, kind.cap):
        tops.append(rooms(instance, parts, number, kind.cap, [part.present for part in parts])[1][0])
    for top in tops:
        best = np.minimum(best, segment_sums(top, instance.segments, instance.segment_count))
    for kinds, ids in instance.partial:
        if number in kinds:
            key = (kind.cap.tobytes(), id(ids))
            known = {} if known is None else known
            if key not in known:
                known[key] = _largest(instance, kind.cap, ids, 1)
            best = np.minimum(best, known[key])
    for few in instance.few:
        if number in few.kinds:
            there = few.present[np.maximum(few.ids, 0)]
            fits = segment_sums(np.where(there, kind.cap, 0), instance.segments, instance.segment_count)
            best = np.minimum(best, fits + _largest(instance, np.where(there, 0, kind.cap), few.ids, few.new))
    for multiple in instance.multiples:
        if multiple.kinds == (number,):
            best = np.minimum(best, _multiples(instance, multiple, kind.cap))
    for follow in instance.follows:
        if number in follow.followers:
            best = np.minimum(best, _behind(instance, follow, kind.cap))
    return best


def _multiples(instance: Instance, part: Multiple, cap: Ints) -> Ints:
    """Return how many pods fit when each domain takes as many as make a multiple."""
    pairs = Pairs.make(part.ids, instance.segments)
    more = part.more[pairs.domain]
    fits = pairs.sums(cap) - more
    return segment_sums(
        np.where(fits >= 0, fits // part.size * part.size + more, 0), pairs.segment, instance.segment_count
    )


def _behind(instance: Instance, rule: Following, cap: Ints) -> Ints:
    """Return how many followers fit where somebody is already, and in as many more domains as somebody could go to."""
    leaders = sum(
        min(instance.kinds[n].total, sum(instance.problem.demands[d].count for d in instance.kinds[n].members))
        for n in rule.targets
    )
    best: Ints | None = None
    for ids, present in zip(rule.ids, rule.present, strict=True):
        there = (ids >= 0) & (present[np.maximum(ids, 0)] if present.size else False)
        fits = segment_sums(np.where(there, cap, 0), instance.segments, instance.segment_count)
        fits = fits + _largest(instance, np.where(there, 0, cap), ids, leaders)
        best = fits if best is None else np.minimum(best, fits)
    assert best is not None
    return best


def _largest(instance: Instance, cap: Ints, ids: Ints, count: int) -> Ints:
    """Return, for each segment, how many pods the largest so many domains take."""
    pairs = Pairs.make(ids, instance.segments)
    sums = pairs.sums(cap)
    order = np.lexsort((-sums, pairs.segment))
    segment = pairs.segment[order]
    rank = np.arange(order.size) - np.searchsorted(segment, segment, side="left")
    return segment_sums(np.where(rank < count, sums[order], 0), segment, instance.segment_count)


def _least(instance: Instance) -> list[int]:
    """Pods of each kind that every answer has."""
    return [instance.composition.least(kind.members) for kind in instance.kinds]


def _rows(instance: Instance, fits: Ints, alive: NDArray[np.bool_]) -> None:
    """Strike out the segments in which a minimum over several demands is out of reach."""
    composition = instance.composition
    for demands, count in composition.floors:
        reach = np.zeros(instance.segment_count, dtype=np.int64)
        inside = set(demands)
        for number, kind in enumerate(instance.kinds):
            high = sum(composition.highs[d] for d in kind.members if d in inside)
            if high:
                reach += np.minimum(fits[number], high)
        alive &= reach >= count


def _apart(instance: Instance, alive: NDArray[np.bool_]) -> None:
    """Strike out the segments whose nodes or domains, each up to its limit, hold too few pods of several kinds."""
    nodes = np.arange(instance.size, dtype=np.int64)
    limits: list[tuple[tuple[int, ...], Ints, int | Ints]] = [
        (kinds, nodes, limit) for kinds, limit in instance.node_limits
    ]
    limits.extend(
        (tuple(part.weights), part.ids, part.limits // min(part.weights.values())) for part in instance.domain_limits
    )
    for kinds, ids, limit in limits:
        if len(kinds) < 2:
            continue
        least = instance.composition.least([d for number in kinds for d in instance.kinds[number].members])
        together = np.minimum(sum(instance.kinds[number].cap for number in kinds), instance.free[-1])
        kept = keep(instance, together, ids, limit)
        alive &= segment_sums(kept, instance.segments, instance.segment_count) >= least


def _resources(instance: Instance, needed: list[int], alive: NDArray[np.bool_]) -> None:
    """Strike out the segments that have less of a resource than the gang takes.

    Free amounts count on nodes that can host a kind that asks for the resource, in multiples of what is asked.
    """
    for row in range(len(instance.rows)):
        asking = [number for number, kind in enumerate(instance.kinds) if row in kind.rows]
        if not asking or (len(asking) < 2 and not instance.composition.floors):
            continue
        unit = math.gcd(*(int(instance.kinds[number].need[row]) for number in asking))
        asked = {number: int(instance.kinds[number].need[row]) // unit for number in asking}
        total = _least_amount(instance, asked, needed)
        usable = instance.free[row] // unit
        hosts = np.zeros(instance.size, dtype=np.bool_)
        for number in asking:
            hosts |= instance.kinds[number].cap > 0
        if total * instance.size > _EXACT:
            continue
        usable = np.where(hosts, np.minimum(usable, total), 0)
        alive &= segment_sums(usable, instance.segments, instance.segment_count) >= total


def _least_amount(instance: Instance, asked: dict[int, int], needed: list[int]) -> int:
    """Return an amount that every answer takes: the forced pods, and the cheapest that bring a minimum to its count."""
    composition = instance.composition
    base = sum(composition.lows[d] * asked[number] for number in asked for d in instance.kinds[number].members)
    by_kind = sum(needed[number] * each for number, each in asked.items())
    best = max(base, by_kind)
    for demands, count in composition.floors:
        missing = count - sum(composition.lows[d] for d in demands)
        amount = base
        for each, spare in sorted(
            (asked.get(instance.kind_of[d], 0), composition.highs[d] - composition.lows[d]) for d in demands
        ):
            if missing <= 0:
                break
            more = min(missing, max(0, spare))
            amount += more * each
            missing -= more
        best = max(best, amount)
    return best
