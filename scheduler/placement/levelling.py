"""Spreading by arithmetic: how many pods each domain may take, and how a number of pods is shared out evenly.

The emptiest domain decides how far the others may go. Were all domains filled as far as they can be, the emptiest would
hold the most that it ever will; what the others may hold then is the most that they ever may (`ceilings`). For one kind
of pods and one rule that bound is reached. Sharing out evenly (`shares`) always fills the emptiest first; whenever some
sharing keeps the rule, this one does (of nodes in a domain, those that count are filled first).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from scheduler.placement.between import Spreading
from scheduler.placement.counting import fill, fullness, segment_sums, truncate
from scheduler.placement.instance import Instance, Ints, Kind

_FEW = 40
"""So many groups are filled one by one; more in one sort."""


@dataclass(slots=True, eq=False)
class Pairs:
    """The domains of a rule in each segment. of: the pair of every node, -1 = none; domain, segment: of every pair."""

    of: Ints
    domain: Ints
    segment: Ints

    @classmethod
    def make(cls, ids: Ints, segments: Ints | None) -> Pairs:
        """Join domains with segments (or with any other grouping of nodes)."""
        if segments is None:
            segments = np.zeros(ids.size, dtype=np.int64)
        width = int(ids.max(initial=0)) + 1
        joint = np.where((ids >= 0) & (segments >= 0), segments * width + ids, -1)
        numbers, place = np.unique(joint, return_inverse=True)
        skip = int(numbers.size > 0 and int(numbers[0]) < 0)
        numbers = numbers[skip:]
        return cls(place.astype(np.int64) - skip, numbers % width, numbers // width)

    def sums(self, values: Ints) -> Ints:
        """Return the sum over the nodes of each pair."""
        return segment_sums(values, self.of, self.domain.size)


def ceilings(instance: Instance, part: Spreading, number: int, cap: Ints, counts: Ints, reach: Ints) -> Ints:
    """Lower `cap` of a kind that carries the rule to what its domains may ever take, in each segment for itself.

    counts: pods that each domain holds already. reach: pods that still may come to each node and count.
    """
    pairs = Pairs.make(part.ids, instance.segments)
    least = _least(instance, part, pairs, counts, reach)
    room = least[pairs.segment] + part.skew - counts[pairs.domain]
    if number not in part.counted:
        return np.where((pairs.of >= 0) & (room >= 0)[pairs.of], cap, 0) if room.size else np.zeros_like(cap)
    if not room.size:
        return np.zeros_like(cap)
    allowed = np.where((pairs.of >= 0) & (room >= 0)[pairs.of], cap, 0)
    return truncate(allowed, np.where(part.nodes, pairs.of, -1), np.maximum(room, 0))


def _least(instance: Instance, part: Spreading, pairs: Pairs, counts: Ints, reach: Ints) -> Ints:
    """Return, for each segment, the most that the emptiest domain can hold in the end."""
    if part.floor:
        return np.zeros(instance.segment_count, dtype=np.int64)
    known = np.zeros(counts.size, dtype=np.bool_)
    known[part.domains] = True
    mine = known[pairs.domain]
    segment, domain = pairs.segment[mine], pairs.domain[mine]
    top = counts[domain] + pairs.sums(np.where(part.nodes, reach, 0))[mine]
    least = np.full(instance.segment_count, np.iinfo(np.int64).max)
    np.minimum.at(least, segment, top)
    outside = np.full(instance.segment_count, -1, dtype=np.int64)
    for value in np.unique(counts[part.domains]).tolist():
        here = np.bincount(segment[counts[domain] == value], minlength=instance.segment_count)
        some = here < int(np.count_nonzero(counts[part.domains] == value))
        outside[some & (outside < 0)] = value
        if (outside >= 0).all():
            break
    result: Ints = np.where(outside >= 0, np.minimum(least, outside), least)
    return result


def shares(held: Ints, room: Ints, group: Ints, totals: Ints, rank: Ints | None = None) -> Ints:
    """Share `totals` (one for each group) out over places that hold so much and have room for so much, emptiest first.

    rank: of those that are equally empty, lower goes first.
    """
    result = np.zeros(held.size, dtype=np.int64)
    if not held.size:
        return result
    low = np.zeros(totals.size, dtype=np.int64)
    high = np.full(totals.size, int((held + room).max()) + 1, dtype=np.int64)
    while (low + 1 < high).any():
        middle = (low + high) // 2
        taken = segment_sums(np.clip(middle[group] - held, 0, room), group, totals.size)
        fits = taken <= totals
        low, high = np.where(fits, middle, low), np.where(fits, high, middle)
    result[:] = np.clip(low[group] - held, 0, room)
    rest = totals - segment_sums(result, group, totals.size)
    able = np.flatnonzero((result < room) & (held + result <= low[group]))
    keys = (able, rank[able], group[able]) if rank is not None else (able, group[able])
    order = able[np.lexsort(keys)]
    ahead = np.arange(order.size) - np.searchsorted(group[order], group[order], side="left")
    result[order] += ahead < rest[group[order]]
    return result


@dataclass(slots=True, eq=False)
class Shares:
    """How many pods each group of nodes takes. of: the group of every node, -1 = none; totals: over groups."""

    cap: Ints
    of: Ints
    totals: Ints

    def keep(self, nodes: NDArray[np.intp], pods: Ints) -> Ints:
        """Lower the pods of these nodes, the first nodes preferred."""
        return truncate(np.where(self.of[nodes] >= 0, pods, 0), self.of[nodes], self.totals)


def rooms(
    instance: Instance, parts: Sequence[Spreading], number: int, cap: Ints, counts: Sequence[Ints]
) -> tuple[Ints, list[Ints]]:
    """Return the nodes' caps without the domains that are barred, and for each rule caps that add up to its rooms.

    parts: the widest domains first. The room of a domain is what the narrower domains inside it may take together, as
    far as the rule itself lets it.
    """
    for part, count in zip(parts, counts, strict=True):
        if number not in part.counted:
            cap = ceilings(instance, part, number, cap, count, cap)
    result = [cap] * len(parts)
    inner = cap
    for place in reversed(range(len(parts))):
        if number in parts[place].counted:
            inner = ceilings(instance, parts[place], number, inner, counts[place], inner)
        result[place] = inner
    return cap, result


def widest_first(parts: Sequence[Spreading]) -> list[Spreading]:
    """Return rules in the order in which they are shared out."""
    return sorted(parts, key=lambda part: part.domains.size)


def nested(parts: Sequence[Spreading], cap: Ints) -> bool:
    """Whether each domain of a rule is inside one domain of the next wider one, as far as pods may go there."""
    hosts = cap > 0
    return all(
        np.unique(np.stack([inner.ids[hosts], outer.ids[hosts]]), axis=1).shape[1] == np.unique(inner.ids[hosts]).size
        for outer, inner in pairwise(parts)
    )


def share_out(
    instance: Instance, parts: Sequence[Spreading], number: int, cap: Ints, need: int, counts: Sequence[Ints]
) -> Shares:
    """Share `need` pods of a kind, or as many as there may be, out evenly over the domains of rules that it carries.

    The widest domains are shared out first, then the narrower ones inside each. parts: in that order. cap: of one
    segment only. counts: pods in the domains of each rule.
    """
    cap, room_of = rooms(instance, parts, number, cap, counts)
    counted = np.ones(cap.size, dtype=np.bool_)
    group: NDArray[np.int64] = np.zeros(cap.size, dtype=np.int64)
    totals = np.array([min(need, int(room_of[0].sum()))], dtype=np.int64)
    scores = instance.kinds[number].scores if instance.problem.objective == "scores" else None
    for part, count, inner in zip(parts, counts, room_of, strict=True):
        if number in part.counted:
            counted &= part.nodes
            pairs = Pairs.make(part.ids, group)
            room = pairs.sums(inner)
            rank = -room if scores is None else -_best(pairs, cap, scores)
            totals = shares(count[pairs.domain], room, pairs.segment, totals, rank)
            group = pairs.of
    if (cap[~counted] > 0).any():
        inside = segment_sums(np.where(counted, cap, 0), group, totals.size)
        part, count = [one for one in zip(parts, counts, strict=True) if number in one[0].counted][-1]
        top = ceilings(instance, part, number, np.where(part.nodes, cap, 0), count, cap)
        inside = np.minimum(inside, segment_sums(np.where(counted, top, 0), group, totals.size))
        first = np.minimum(inside, totals)
        group = np.where(group >= 0, 2 * group + ~counted, -1)
        totals = np.stack([first, totals - first], axis=1).ravel()
    return Shares(cap, group, totals)


def _best(pairs: Pairs, cap: Ints, scores: Ints) -> Ints:
    """Return the best score of the nodes that take pods, for each pair."""
    best = np.full(pairs.domain.size, np.iinfo(np.int64).min // 2)
    nodes = np.flatnonzero((cap > 0) & (pairs.of >= 0))
    np.maximum.at(best, pairs.of[nodes], scores[nodes])
    return best


def fill_shares(instance: Instance, kind: Kind, shared: Shares) -> Ints:
    """Return how many pods each node takes; inside each group the objective decides."""
    used = np.flatnonzero(shared.totals)
    if used.size <= _FEW:
        x = np.zeros(shared.cap.size, dtype=np.int64)
        for group in used.tolist():
            x += fill(instance, kind, np.where(shared.of == group, shared.cap, 0), int(shared.totals[group]))
        return x
    nodes = np.flatnonzero(shared.cap)
    left = fullness(instance, kind, nodes, None)
    scored = kind.scores is not None and instance.problem.objective == "scores"
    keys = [-left] if instance.problem.objective == "spread" else [left, -shared.cap[nodes]]
    order = nodes[np.lexsort([*keys, -kind.scores[nodes]] if scored and kind.scores is not None else keys)]
    x = np.zeros(shared.cap.size, dtype=np.int64)
    x[order] = shared.keep(order, shared.cap[order])
    return x
