"""How many units of each type, and pods of each loose kind, every domain could take, by sums alone, for all domains at
once. Nothing here says that they do fit; what sums forbid is forbidden.

Items are the types of units, then the loose kinds. Domains are those of the units inside segments, then (where there
are loose kinds) the unlabelled nodes of each segment as one more domain, which hosts no unit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scheduler.placement.between import Crowd
from scheduler.placement.counting import segment_sums
from scheduler.placement.instance import Instance, Ints
from scheduler.placement.units import Layout, Unit


@dataclass(slots=True, eq=False)
class Type:
    """Units that are alike. amounts: pods of each kind of the first of them."""

    units: list[Unit]
    amounts: dict[int, int]


@dataclass(frozen=True, slots=True)
class Coming:
    """Items that bring a group of a crowd into a domain. each: every one of them is such a group; else all are one."""

    group: int
    items: list[int]
    each: bool


@dataclass(slots=True, eq=False)
class Capacity:
    """See the module.

    totals: wanted of each item. needs: items by rows of the instance, in `units` of each row; usable: rows by domains.
    pods: items by shapes (pods that ask the same and may go to the same nodes); fits: shapes by domains. times: items
    by domains. nodes, segment: of every domain. alike: equal for domains with the same nodes. owned: as in `Layout`.
    """

    instance: Instance
    amounts: Sequence[int]
    types: list[Type]
    loose: list[int]
    totals: list[int]
    needs: Ints
    usable: Ints
    pods: Ints
    fits: Ints
    times: Ints
    nodes: list[NDArray[np.intp]]
    segment: Ints
    alike: list[int]
    owned: list[bool]

    @classmethod
    def of(cls, instance: Instance, wanted: Sequence[int]) -> Capacity | None:
        """Return the capacities; None where rules join domains, or units have different levels.

        wanted: pods of each demand, of a unit that may be left out those that it has when it is placed.
        """
        amounts = [sum(wanted[d] for d in kind.members) for kind in instance.kinds]
        layout = Layout.of(instance, amounts)
        if layout is None:
            return None
        units = [unit for unit in layout.units if any(amounts[kind] for kind in unit.kinds)]
        if not units or any(unit.ids is not units[0].ids for unit in units) or not _local(instance, units[0].ids):
            return None
        types: dict[int, Type] = {}
        for unit in units:
            one = types.setdefault(unit.type, Type([], {kind: amounts[kind] for kind in unit.kinds if amounts[kind]}))
            one.units.append(unit)
        loose = [kind for kind in layout.loose if amounts[kind]]
        items = [one.amounts for one in types.values()] + [{kind: 1} for kind in loose]
        totals = [len(one.units) for one in types.values()] + [amounts[kind] for kind in loose]
        domain, segment, labelled = _domains(instance, units[0].ids, loose=bool(loose))
        needs, usable = _amounts(instance, items, domain, segment.size)
        pods, fits = _shapes(instance, items, totals, domain, segment.size)
        times = np.repeat(np.array(totals, dtype=np.int64)[:, None], segment.size, axis=1)
        for per, room in ((needs, usable), (pods, fits)):
            for item, column in zip(*np.nonzero(per), strict=True):
                np.minimum(times[item], room[column] // per[item, column], out=times[item])
        times[: len(types), ~labelled] = 0
        order = np.argsort(domain, kind="stable")
        starts = np.searchsorted(domain[order], np.arange(segment.size + 1))
        nodes = [order[starts[place] : starts[place + 1]] for place in range(segment.size)]
        apart = any(unit.inner for unit in units) or any(ids is not units[0].ids for ids in _ruled(instance))
        alike = _alike(instance, items, nodes, apart=apart)
        return cls(
            instance,
            amounts,
            list(types.values()),
            loose,
            totals,
            needs,
            usable,
            pods,
            fits,
            times,
            nodes,
            segment,
            alike,
            layout.owned,
        )

    def cliques(self) -> list[list[int]]:
        """Return sets of items of which no two may be in one domain."""
        items = [set(one.amounts) for one in self.types] + [{kind} for kind in self.loose]
        apart: list[set[int]] = [set() for _ in items]
        for part in self.instance.exclusions:
            if part.ids is None:
                continue
            ours = [number for number, kinds in enumerate(items) if kinds & set(part.ours)]
            theirs = [number for number, kinds in enumerate(items) if kinds & set(part.theirs)]
            for one in ours:
                apart[one].update(theirs)
            for one in theirs:
                apart[one].update(ours)
        return _cliques(apart) if self._whole() else []

    def crowds(self) -> list[tuple[Crowd, list[Coming]]]:
        """Return each rule about groups in whole domains of the units, with the items of its groups."""
        items = [set(one.amounts) for one in self.types] + [{kind} for kind in self.loose]
        first = self.types[0].units[0].ids
        found = []
        for part, owned in zip(self.instance.crowds, self.owned, strict=True):
            if part.ids is not first:
                continue
            if owned:
                groups = [part.of(one.units[0].kinds[0]) for one in self.types]
                coming = [Coming(group, [n], True) for n, group in enumerate(groups) if group >= 0]
            else:
                coming = [
                    Coming(number, [n for n, kinds in enumerate(items) if kinds & set(group)], False)
                    for number, group in enumerate(part.groups)
                ]
            found.append((part, coming))
        return found

    def _whole(self) -> bool:
        """Whether each exclusion is about whole domains of the units."""
        first = self.types[0].units[0].ids
        return all(part.ids is None or part.ids is first for part in self.instance.exclusions)

    def alive(self) -> NDArray[np.bool_]:
        """Return which segments have room for all items, each alone."""
        count = self.instance.segment_count
        sums = np.array([segment_sums(row, self.segment, count) for row in self.times])
        alive = (sums >= np.array(self.totals)[:, None]).all(axis=0)
        for clique in self.cliques():
            if all(self.totals[item] == 1 for item in clique):
                hosts: Ints = np.max(self.times[clique], axis=0).clip(0, 1)
                alive &= segment_sums(hosts, self.segment, count) >= len(clique)
        return np.asarray(alive)


def _cliques(apart: list[set[int]]) -> list[list[int]]:
    """Return cliques that together hold every pair, the largest that greedy growing finds first."""
    found: list[list[int]] = []
    covered: set[tuple[int, int]] = set()
    for one, others in enumerate(apart):
        for other in sorted(others - {one}):
            if (min(one, other), max(one, other)) in covered:
                continue
            clique = [one, other]
            for more in sorted(apart[one] & apart[other]):
                if more not in clique and all(more in apart[member] for member in clique):
                    clique.append(more)
            found.append(sorted(clique))
            covered.update((a, b) for a in clique for b in clique if a < b)
    return found


def _local(instance: Instance, ids: Ints) -> bool:
    """Whether no rule joins domains: each domain of a rule is inside one of the units' domains."""
    if instance.spreads or instance.follows or instance.few:
        return False
    segments = instance.segment_ids()
    inside = segments >= 0
    for rule in _ruled(instance):
        if rule is ids:
            continue
        mine = inside & (rule >= 0)
        joint = np.stack([segments[mine], rule[mine], ids[mine]])
        if np.unique(joint, axis=1).shape[1] > np.unique(joint[:2], axis=1).shape[1]:
            return False
    return True


def _ruled(instance: Instance) -> list[Ints]:
    """Return the domains of every rule over domains that is no unit's."""
    found = [part.ids for part in instance.domain_limits]
    found.extend(part.ids for part in instance.multiples)
    found.extend(part.ids for part in instance.crowds)
    found.extend(part.ids for part in instance.exclusions if part.ids is not None)
    return found


def _domains(instance: Instance, ids: Ints, *, loose: bool) -> tuple[Ints, Ints, NDArray[np.bool_]]:
    """Return the domain of every node (-1: none), and of every domain its segment and whether it has a label."""
    segments = instance.segment_ids()
    width = int(ids.max(initial=-1)) + 2
    inside = (segments >= 0) & ((ids >= 0) | loose)
    joint = np.where(inside, segments * width + ids + 1, -1)
    numbers, place = np.unique(joint, return_inverse=True)
    skip = int(numbers.size > 0 and int(numbers[0]) < 0)
    numbers = numbers[skip:]
    return place.astype(np.int64) - skip, numbers // width, numbers % width > 0


def _amounts(instance: Instance, items: list[dict[int, int]], domain: Ints, count: int) -> tuple[Ints, Ints]:
    needs = np.zeros((len(items), len(instance.rows)), dtype=np.int64)
    usable = np.zeros((len(instance.rows), count), dtype=np.int64)
    for row in range(len(instance.rows)):
        asking = sorted({kind for need in items for kind in need if row in instance.kinds[kind].rows})
        if not asking:
            continue
        unit = math.gcd(*(int(instance.kinds[kind].need[row]) for kind in asking))
        hosts = np.logical_or.reduce([instance.kinds[kind].cap > 0 for kind in asking])
        usable[row] = segment_sums(np.where(hosts, instance.free[row] // unit, 0), domain, count)
        for item, need in enumerate(items):
            needs[item, row] = sum(int(instance.kinds[kind].need[row]) // unit * pods for kind, pods in need.items())
    return needs, usable


def _shapes(
    instance: Instance, items: list[dict[int, int]], totals: list[int], domain: Ints, count: int
) -> tuple[Ints, Ints]:
    shapes: dict[tuple[bytes, bytes], list[int]] = {}
    for kind in sorted({kind for need in items for kind in need}):
        one = instance.kinds[kind]
        shapes.setdefault((one.need.tobytes(), (one.cap > 0).tobytes()), []).append(kind)
    pods = np.zeros((len(items), len(shapes)), dtype=np.int64)
    fits = np.zeros((len(shapes), count), dtype=np.int64)
    for place, group in enumerate(shapes.values()):
        one = instance.kinds[group[0]]
        for item, need in enumerate(items):
            pods[item, place] = sum(need.get(kind, 0) for kind in group)
        most = int((pods[:, place] * np.array(totals)).sum())
        room = np.where(one.cap > 0, most, 0)
        for row in one.rows:
            np.minimum(room, instance.free[row] // one.need[row], out=room)
        fits[place] = segment_sums(room, domain, count)
    return pods, fits


def _alike(instance: Instance, items: list[dict[int, int]], nodes: list[NDArray[np.intp]], *, apart: bool) -> list[int]:
    """Return a number for each domain; those of one number have the same nodes, alike to rules over whole domains.

    apart: none has.
    """
    if apart:
        return list(range(len(nodes)))
    caps = {
        instance.kinds[kind].cap.tobytes(): instance.kinds[kind].cap
        for kind in sorted({k for one in items for k in one})
    }
    rows = [instance.free, *(cap[None, :] for cap in caps.values())]
    rows.extend(pool.free for pool in instance.pools.values())
    rows.extend(part.pays[None, :].astype(np.int64) for part in instance.shared)
    rows.extend(_by_node(part.limits[None, :], part.ids) for part in instance.domain_limits)
    rows.extend(_by_node(part.more[None, :], part.ids) for part in instance.multiples)
    rows.extend(_by_node(part.present, part.ids) for part in instance.crowds)
    table = np.concatenate(rows)
    numbers: dict[tuple[int, bytes], int] = {}
    found = []
    for here in nodes:
        columns = table[:, here]
        key = (here.size, columns[:, np.lexsort(columns[::-1])].tobytes())
        found.append(numbers.setdefault(key, len(numbers)))
    return found


def _by_node(table: NDArray[np.generic], ids: Ints) -> Ints:
    """Return rows over domains as rows over nodes; -1 for nodes without the label."""
    filled = np.pad(table.astype(np.int64), ((0, 0), (0, 1)), constant_values=-1)
    return filled[:, ids]
