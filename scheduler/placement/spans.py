"""One kind of pods in few domains, or in multiples in each: exact sums up the tree of levels, then shares down again.

It is exact where the levels are nested, each size is a multiple of the sizes inside it, and a limit of domains is on
the widest of these levels. Decided here: the domains with the most room are filled first, so that they are few, and the
last one is the smallest that takes the rest.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from scheduler.placement.between import Few
from scheduler.placement.counting import fill, segment_sums
from scheduler.placement.instance import Instance, Ints


@dataclass(slots=True, eq=False)
class _Level:
    """of: the domain of every node, -1 = none; outer: the domain of the next wider level of every domain."""

    of: Ints
    outer: Ints
    size: int
    present: NDArray[np.bool_]
    new: int | None = None


@dataclass(slots=True, eq=False)
class Spans:
    """sums: pods that each segment takes. rooms: pods that each domain of each level takes; the widest level first."""

    instance: Instance
    levels: list[_Level]
    rooms: list[Ints]
    sums: Ints

    @classmethod
    def of(cls, instance: Instance) -> Spans | None:
        """Return the sums for an instance of one kind, None where they would not be exact."""
        if any(part.more.any() for part in instance.multiples) or len(instance.few) > 1:
            return None
        levels = _levels(instance)
        if levels is None:
            return None
        rooms: list[Ints] = []
        inside = instance.kinds[0].cap
        of = levels[-1].of
        for level in reversed(levels):
            room = segment_sums(inside, of, level.outer.size) // level.size * level.size
            rooms.insert(0, room)
            inside, of = room, level.outer
        sums = segment_sums(_few(levels[0], inside), levels[0].outer, instance.segment_count)
        return cls(instance, levels, rooms, sums)

    def share(self, segment: int, total: int) -> Ints:
        """Return the pods of each node, for a segment that takes so many and a multiple of the largest size."""
        x = np.zeros(self.instance.size, dtype=np.int64)
        self._inside(0, segment, total, x)
        return x

    def _inside(self, depth: int, domain: int, total: int, x: Ints) -> None:
        instance = self.instance
        if depth == len(self.levels):
            cap = np.where(self.levels[-1].of == domain, instance.kinds[0].cap, 0)
            x += fill(instance, instance.kinds[0], cap, total)
            return
        level = self.levels[depth]
        mine = np.flatnonzero(level.outer == domain)
        room = self.rooms[depth][mine]
        mine, room = mine[room > 0], room[room > 0]
        spread = instance.problem.objective == "spread" and level.new is None
        for place, pods in _fewest(
            room, level.present[mine] & (level.new is not None), total, level.size, spread=spread
        ):
            self._inside(depth + 1, int(mine[place]), pods, x)


def _levels(instance: Instance) -> list[_Level] | None:
    """Return the levels of the rules, the widest first, as far as pods may go there; None where they do not fit."""
    rules: list[tuple[Ints, int, Few | None]] = [(part.ids, part.size, None) for part in instance.multiples]
    rules.extend((part.ids, 1, part) for part in instance.few)
    rules.sort(key=lambda rule: (int(rule[0].max(initial=-1)), rule[2] is None))
    segments = instance.segment_ids()
    hosts = (instance.kinds[0].cap > 0) & (segments >= 0)
    outer, levels = np.where(hosts, segments, -1), []
    for number, (ids, size, few) in enumerate(rules):
        joint = np.where(hosts & (ids >= 0), outer * (int(ids.max(initial=0)) + 1) + ids, -1)
        numbers, first, place = np.unique(joint, return_index=True, return_inverse=True)
        skip = int(numbers.size > 0 and int(numbers[0]) < 0)
        first, of = first[skip:], place.astype(np.int64) - skip
        torn = np.unique(ids[first]).size < first.size
        if number and (torn or few is not None):
            return None
        present = np.zeros(first.size, dtype=np.bool_) if few is None else few.present[ids[first]]
        levels.append(_Level(of, outer[first], size, present, None if few is None else few.new))
        outer = of
    sizes = [level.size for level in levels if level.size > 1]
    return levels if all(wide % narrow == 0 for wide, narrow in pairwise(sizes)) else None


def _few(level: _Level, room: Ints) -> Ints:
    """Return the room of the domains that may be used in each segment: those present, and the roomiest others."""
    if level.new is None:
        return room
    order = np.lexsort((-room, level.present, level.outer))
    outer = level.outer[order]
    counted = ~level.present[order]
    before: Ints = np.cumsum(counted) - counted
    starts = np.searchsorted(outer, outer, side="left")
    kept = np.zeros(room.size, dtype=np.bool_)
    kept[order] = level.present[order] | (before - before[starts] < level.new if room.size else False)
    result: Ints = np.where(kept, room, 0)
    return result


def _fewest(room: Ints, present: NDArray[np.bool_], total: int, size: int, *, spread: bool) -> list[tuple[int, int]]:
    """Return (place, pods): the roomiest are filled, those present before all others; the last is the smallest that
    takes the rest. spread: all take the same as far as they can."""
    order = np.lexsort((-room, ~present)).tolist()
    found: list[tuple[int, int]] = []
    if spread:
        return _even(room, total, size)
    while total > 0:
        place = order.pop(0)
        if room[place] >= total:
            alike = [other for other in order if present[other] == present[place] and room[other] >= total]
            place = min([place, *alike], key=lambda other: (int(room[other]), other))
            found.append((place, total))
            break
        found.append((place, int(room[place])))
        total -= int(room[place])
    return sorted(found)


def _even(room: Ints, total: int, size: int) -> list[tuple[int, int]]:
    """Return (place, pods) so that the fullest domain receives as few as possible, in multiples of a size."""
    units, left = room // size, total // size
    low, high = 0, int(units.max(initial=0))
    while low < high:
        middle = (low + high) // 2
        if int(np.minimum(units, middle).sum()) >= left:
            high = middle
        else:
            low = middle + 1
    taken = np.minimum(units, max(0, low - 1))
    order = np.argsort(-units, kind="stable")
    able = order[(units > taken)[order]]
    taken[able[: left - int(taken.sum())]] += 1
    return [(int(place), int(taken[place]) * size) for place in np.flatnonzero(taken)]
