"""A problem made ready to be solved: demands that no rule tells apart become one `Kind`, slots become a resource row,
hard one-domain rules become segments, the rest of the rules become rows over kinds.

Decided here: what may be merged, and how many pods of a kind one node could take alone. Invariant: an answer for the
instance, split among the members of its kinds, is an answer for the problem, and the other way round.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from scheduler.placement.composition import Composition
from scheduler.placement.problem import (
    NODE,
    SLOTS,
    Apart,
    AtMost,
    Demand,
    Exclusive,
    Minimum,
    PlacementProblem,
    Within,
    all_demands,
)

Ints: TypeAlias = NDArray[np.int64]


@dataclass(slots=True, eq=False)
class Kind:
    """Demands that are alike to nodes and rules. need: over the rows; cap: pods that each node takes alone."""

    members: tuple[int, ...]
    need: Ints
    rows: tuple[int, ...]
    cap: Ints
    scores: Ints | None
    per_node: int | None

    @property
    def total(self) -> int:
        """Pods that all nodes together take alone."""
        return int(self.cap.sum())


@dataclass(slots=True, eq=False)
class Instance:
    """See the module.

    free: rows (requested resources, then slots) by nodes, not negative. segments: the number of the one domain that
    each node belongs to, -1 for none, None when there is no such rule. node_limits, domain_limits: (kinds, limit) and
    (kinds, ids, limit). partial: one-domain rules of some kinds only, (kinds, ids). soft: domains that are preferred.
    """

    problem: PlacementProblem
    rows: tuple[str, ...]
    free: Ints
    kinds: list[Kind]
    kind_of: list[int]
    composition: Composition
    segments: NDArray[np.int64] | None
    segment_count: int
    segment_level: str
    node_limits: list[tuple[tuple[int, ...], int]]
    domain_limits: list[tuple[tuple[int, ...], NDArray[np.int64], int]]
    exclusives: list[tuple[tuple[int, ...], tuple[int, ...]]]
    partial: list[tuple[tuple[int, ...], NDArray[np.int64]]]
    soft: list[NDArray[np.int64]]

    @property
    def size(self) -> int:
        """Number of nodes."""
        return int(self.free.shape[1])

    def segment_ids(self) -> NDArray[np.int64]:
        """Return the segment of every node; one segment when there is no rule."""
        return np.zeros(self.size, dtype=np.int64) if self.segments is None else self.segments

    def segment_name(self, segment: int) -> str:
        """Return the domain's name on the finest level of the rule."""
        if self.segments is None:
            return ""
        node = int(np.flatnonzero(self.segments == segment)[0])
        return domain_name(self.problem, self.segment_level, node)


def domain_name(problem: PlacementProblem, level: str, node: int) -> str:
    """Return the name of a node's domain on a level."""
    if level == NODE:
        return str(problem.nodes.names[node])
    return problem.nodes.domain_name(level, int(problem.nodes.domains[level][node]))


def domain_ids(problem: PlacementProblem, level: str) -> NDArray[np.int64]:
    """Return the domain of every node on a level."""
    if level == NODE:
        return np.arange(len(problem.nodes.names), dtype=np.int64)
    return problem.nodes.domains[level].astype(np.int64)


def build(problem: PlacementProblem) -> Instance:
    """Return the instance of a checked problem."""
    demands = problem.demands
    kind_of = _merge(problem)
    members: list[list[int]] = [[] for _ in range(max(kind_of, default=-1) + 1)]
    for number, kind in enumerate(kind_of):
        members[kind].append(number)
    asked = sorted({int(row) for group in members for row in np.flatnonzero(demands[group[0]].requests)})
    free = np.empty((len(asked) + 1, len(problem.nodes.names)), dtype=np.int64)
    for place, row in enumerate(asked):
        np.maximum(problem.nodes.free[row], 0, out=free[place])
    np.maximum(problem.nodes.slots, 0, out=free[-1])
    kinds = [_kind(demands, tuple(sorted(group, key=lambda d: demands[d].name)), asked, free) for group in members]
    instance = Instance(
        problem=problem,
        rows=(*(problem.nodes.resources[row] for row in asked), SLOTS),
        free=free,
        kinds=kinds,
        kind_of=kind_of,
        composition=Composition([], [], [], []),
        segments=None,
        segment_count=1,
        segment_level=NODE,
        node_limits=[],
        domain_limits=[],
        exclusives=[],
        partial=[],
        soft=[],
    )
    _rules(instance)
    instance.composition = Composition.of(problem, [instance.kinds[kind].total for kind in kind_of])
    return instance


def _merge(problem: PlacementProblem) -> list[int]:
    """Return the kind of every demand. Kinds are in an order that does not depend on the order of the demands."""
    demands = problem.demands
    if len(demands) == 1:
        return [0]
    keys = [_signature(problem, number, demand) for number, demand in enumerate(demands)]
    first: dict[tuple[object, ...], str] = {}
    for key, demand in zip(keys, demands, strict=True):
        first[key] = min(first.get(key, demand.name), demand.name)
    order = {key: place for place, key in enumerate(sorted(first, key=lambda key: first[key]))}
    return [order[key] for key in keys]


def _signature(problem: PlacementProblem, number: int, demand: Demand) -> tuple[object, ...]:
    sides: list[int] = []
    for rule in problem.rules:
        if isinstance(rule, Within | Apart) and rule.demands is not None:
            sides.append(number in rule.demands)
        elif isinstance(rule, Exclusive):
            sides.append((number in rule.demands_a) + 2 * (number in rule.demands_b))
    return (
        demand.requests.tobytes(),
        None if demand.mask is None else demand.mask.tobytes(),
        None if demand.scores is None else demand.scores.tobytes(),
        None if demand.max_per_node is None else number,
        tuple(sides),
    )


def _kind(demands: tuple[Demand, ...], members: tuple[int, ...], asked: list[int], free: Ints) -> Kind:
    demand = demands[members[0]]
    need = np.empty(len(asked) + 1, dtype=np.int64)
    need[:-1] = demand.requests[asked]
    need[-1] = 1
    rows = tuple(int(row) for row in np.flatnonzero(need))
    cap: Ints = free[-1].copy()
    for row in rows[:-1]:
        np.minimum(cap, free[row] // need[row], out=cap)
    most = sum(demands[d].count for d in members)
    if demand.max_per_node is not None:
        most = min(most, demand.max_per_node)
    np.minimum(cap, min(most, 2**31), out=cap)
    if demand.mask is not None:
        cap *= demand.mask
    return Kind(members, need, rows, cap, demand.scores, demand.max_per_node)


def _rules(instance: Instance) -> None:
    """Sort the rules by what the searches do with them, and lower the caps by those that one kind feels alone."""
    problem = instance.problem
    everyone = set(range(len(problem.demands)))
    hard: list[str] = []
    for rule in problem.rules:
        if isinstance(rule, Minimum | AtMost):
            continue
        if isinstance(rule, Exclusive):
            sides = _kinds(instance, rule.demands_a), _kinds(instance, rule.demands_b)
            if sides[0] and sides[1]:
                instance.exclusives.append(sides)
            continue
        whole = set(all_demands(problem, rule.demands)) == everyone
        kinds = _kinds(instance, all_demands(problem, rule.demands))
        if isinstance(rule, Apart):
            _apart(instance, rule, kinds)
        elif not rule.hard:
            if whole:
                instance.soft.append(domain_ids(problem, rule.level))
        elif whole:
            hard.append(rule.level)
        elif kinds:
            ids = domain_ids(problem, rule.level)
            instance.partial.append((kinds, ids))
            for kind in kinds:
                instance.kinds[kind].cap[ids < 0] = 0
    if hard:
        _segment(instance, hard)


def _apart(instance: Instance, rule: Apart, kinds: tuple[int, ...]) -> None:
    if not kinds:
        return
    if rule.level == NODE:
        instance.node_limits.append((kinds, rule.limit))
        for kind in kinds:
            np.minimum(instance.kinds[kind].cap, rule.limit, out=instance.kinds[kind].cap)
        return
    ids = domain_ids(instance.problem, rule.level)
    instance.domain_limits.append((kinds, ids, rule.limit))
    for kind in kinds:
        cap = instance.kinds[kind].cap
        np.minimum(cap, rule.limit, out=cap, where=ids >= 0)


def _segment(instance: Instance, levels: list[str]) -> None:
    """Join the one-domain rules of all demands into one: equal numbers = in one domain on every level."""
    joined: NDArray[np.int64] | None = None
    finest, most = levels[0], -1
    for level in dict.fromkeys(levels):
        ids = domain_ids(instance.problem, level)
        count = int(ids.max(initial=-1)) + 1
        if count > most:
            finest, most = level, count
        if joined is None:
            joined = ids
        else:
            both = (joined >= 0) & (ids >= 0)
            joined = np.where(both, joined * max(count, 1) + ids, -1)
            numbers, place = np.unique(joined, return_inverse=True)
            joined = place.astype(np.int64) - int(numbers.size > 0 and int(numbers[0]) < 0)
    assert joined is not None
    instance.segments = joined
    instance.segment_count = max(1, int(joined.max(initial=-1)) + 1)
    instance.segment_level = finest
    for kind in instance.kinds:
        kind.cap[joined < 0] = 0


def _kinds(instance: Instance, demands: Iterable[int]) -> tuple[int, ...]:
    return tuple(sorted({instance.kind_of[demand] for demand in demands}))
