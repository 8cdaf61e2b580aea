"""A problem made ready to be solved: demands that no rule tells apart become one `Kind`, slots become a resource row,
hard one-domain rules become segments, the rest of the rules become rows over kinds.

Decided here: what may be merged, and how many pods of a kind one node could take alone. Invariant: an answer for the
instance, split among the members of its kinds, is an answer for the problem, and the other way round.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from scheduler.model.rules import Once
from scheduler.placement.between import (
    Crowd,
    Exclusion,
    Few,
    Following,
    Limit,
    Multiple,
    Shared,
    Spreading,
    add,
    apart,
    crowd,
    domain_ids,
    extra_rows,
    few,
    multiple,
    side,
)
from scheduler.placement.composition import Composition
from scheduler.placement.devices import alone
from scheduler.placement.problem import (
    NODE,
    SLOTS,
    Apart,
    AtMost,
    AtMostDomains,
    AtMostGroups,
    Balanced,
    Demand,
    DeviceAsk,
    Devices,
    Minimum,
    Parts,
    PlacementProblem,
    Segments,
    Within,
    all_demands,
)

Ints: TypeAlias = NDArray[np.int64]
VOLUMES = "volumes"
"""The name under which limits of each node are reported beside the resources."""


@dataclass(slots=True, eq=False)
class Kind:
    """Demands that are alike to nodes and rules. need: over the rows; cap: pods that each node takes alone."""

    members: tuple[int, ...]
    need: Ints
    rows: tuple[int, ...]
    cap: Ints
    scores: Ints | None
    per_node: int | None
    ask: DeviceAsk | None = None

    @property
    def total(self) -> int:
        """Pods that all nodes together take alone."""
        return int(self.cap.sum())


@dataclass(slots=True, eq=False)
class Instance:
    """See the module.

    free: rows (requested resources, then slots) by nodes, not negative. segments: the number of the one domain that
    each node belongs to, -1 for none, None when there is no such rule. node_limits: (kinds, limit). partial: one-domain
    rules of some kinds only, (kinds, ids). soft: domains that are preferred, wide ones first. pools: devices that are
    asked for; the sum of what is left of them is a row too. The rest: see `between`.
    """

    problem: PlacementProblem
    rows: tuple[str, ...]
    free: Ints
    kinds: list[Kind]
    kind_of: list[int]
    composition: Composition
    segments: NDArray[np.int64] | None = None
    segment_count: int = 1
    segment_level: str = NODE
    node_limits: list[tuple[tuple[int, ...], int]] = field(default_factory=list)
    domain_limits: list[Limit] = field(default_factory=list)
    exclusions: list[Exclusion] = field(default_factory=list)
    partial: list[tuple[tuple[int, ...], NDArray[np.int64]]] = field(default_factory=list)
    soft: list[NDArray[np.int64]] = field(default_factory=list)
    shared: list[Shared] = field(default_factory=list)
    spreads: list[Spreading] = field(default_factory=list)
    follows: list[Following] = field(default_factory=list)
    few: list[Few] = field(default_factory=list)
    multiples: list[Multiple] = field(default_factory=list)
    crowds: list[Crowd] = field(default_factory=list)
    hard: list[str] = field(default_factory=list)
    levels: dict[str, Ints] = field(default_factory=dict)
    pools: dict[str, Devices] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """Number of nodes."""
        return int(self.free.shape[1])

    @property
    def countable(self) -> bool:
        """Whether sums decide it: one kind, and at most one rule over domains that are not nodes."""
        rules = len(self.domain_limits) + len(self.spreads)
        other = self.partial or self.follows or self.few or self.multiples
        return len(self.kinds) == 1 and not other and rules <= 1

    @property
    def open(self) -> bool:
        """Whether taking pods away may break a rule other than a minimum."""
        return bool(self.spreads or self.follows or self.multiples)

    def kinds_of(self, demands: Iterable[int]) -> tuple[int, ...]:
        """Return the kinds of these demands."""
        return tuple(sorted({self.kind_of[demand] for demand in demands}))

    def together(self, level: str, kinds: tuple[int, ...]) -> None:
        """Keep all pods of these kinds in one domain."""
        if len(kinds) == len(self.kinds):
            self.hard.append(level)
        elif kinds:
            ids = self.ids_of(level)
            self.partial.append((kinds, ids))
            for kind in kinds:
                self.kinds[kind].cap[ids < 0] = 0

    def ids_of(self, level: str) -> Ints:
        """Return the domain of every node, the same array for the same level."""
        if level not in self.levels:
            self.levels[level] = domain_ids(self.problem, level)
        return self.levels[level]

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


def build(problem: PlacementProblem) -> Instance:
    """Return the instance of a checked problem."""
    demands = problem.demands
    kind_of = _merge(problem)
    members: list[list[int]] = [[] for _ in range(max(kind_of, default=-1) + 1)]
    for number, kind in enumerate(kind_of):
        members[kind].append(number)
    asked = sorted({int(row) for group in members for row in np.flatnonzero(demands[group[0]].requests)})
    once = [rule for rule in problem.rules if isinstance(rule, Once) and rule.amount and rule.demands]
    asked = sorted({*asked, *(problem.nodes.resources.index(rule.resource) for rule in once)})
    caps = extra_rows(problem)
    pools = sorted({demand.devices.pool for demand in demands if demand.devices is not None})
    free = np.empty((len(asked) + len(caps) + len(pools) + 1, len(problem.nodes.names)), dtype=np.int64)
    for place, row in enumerate(asked):
        np.maximum(problem.nodes.free[row], 0, out=free[place])
    for place, cap in enumerate(caps, start=len(asked)):
        free[place] = cap.limits[: free.shape[1]]
    for place, name in enumerate(pools, start=len(asked) + len(caps)):
        free[place] = problem.nodes.devices[name].free.sum(axis=0)
    np.maximum(problem.nodes.slots, 0, out=free[-1])
    rows = tuple(problem.nodes.resources[row] for row in asked)
    shared = [Shared((), rows.index(rule.resource), rule.amount, ~rule.already) for rule in once]
    for part, rule in zip(shared, once, strict=True):
        part.kinds = tuple(sorted({kind_of[demand] for demand in rule.demands}))
    kinds = []
    for number, group in enumerate(members):
        weights = [dict(rule.weights).get(group[0], 0) for rule in caps]
        ask = demands[group[0]].devices
        taken = [ask.amount * ask.count if ask is not None and ask.pool == name else 0 for name in pools]
        need = np.array([*demands[group[0]].requests[asked].tolist(), *weights, *taken, 1], dtype=np.int64)
        spent = [part for part in shared if number in part.kinds]
        made = _kind(demands, tuple(sorted(group, key=lambda d: demands[d].name)), need, free, spent)
        if ask is not None:
            np.minimum(made.cap, alone(problem.nodes.devices[ask.pool].free, ask), out=made.cap)
        kinds.append(made)
    instance = Instance(
        problem=problem,
        rows=(*rows, *(VOLUMES for _ in caps), *pools, SLOTS),
        free=free,
        kinds=kinds,
        kind_of=kind_of,
        composition=Composition([], [], [], []),
        shared=shared,
        pools={name: problem.nodes.devices[name] for name in pools},
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
        if isinstance(rule, Within | Apart | AtMostDomains | Segments):
            sides.append(rule.demands is None or number in rule.demands)
        elif isinstance(rule, AtMostGroups):
            sides.append(next((at for at, group in enumerate(rule.groups) if number in group), -1))
        elif not isinstance(rule, Minimum | AtMost | Parts | Balanced):
            sides.extend(side(rule, number))
    return (
        demand.requests.tobytes(),
        demand.devices,
        None if demand.mask is None else demand.mask.tobytes(),
        None if demand.scores is None else demand.scores.tobytes(),
        None if demand.max_per_node is None else number,
        tuple(sides),
    )


def _kind(
    demands: tuple[Demand, ...], members: tuple[int, ...], need: Ints, free: Ints, spent: Iterable[Shared]
) -> Kind:
    demand = demands[members[0]]
    rows = tuple(int(row) for row in np.flatnonzero(need))
    cap: Ints = free[-1].copy()
    less: dict[int, Ints] = {}
    for part in spent:
        less[part.row] = less.get(part.row, free[part.row]) - part.amount * part.pays
    for row in rows[:-1]:
        np.minimum(cap, less.get(row, free[row]) // need[row], out=cap)
    for left in less.values():
        cap[left < 0] = 0
    most = sum(demands[d].count for d in members)
    if demand.max_per_node is not None:
        most = min(most, demand.max_per_node)
    np.minimum(cap, min(most, 2**31), out=cap)
    if demand.mask is not None:
        cap *= demand.mask
    return Kind(members, need, rows, cap, demand.scores, demand.max_per_node, demand.devices)


def _rules(instance: Instance) -> None:
    """Sort the rules by what the searches do with them, and lower the caps by those that one kind feels alone."""
    problem = instance.problem
    for rule in problem.rules:
        if isinstance(rule, Minimum | AtMost | Once | Parts | Balanced):
            continue
        if isinstance(rule, AtMostGroups):
            crowd(instance, rule)
            continue
        if not isinstance(rule, Apart | Within | AtMostDomains | Segments):
            add(instance, rule)
            continue
        kinds = instance.kinds_of(all_demands(problem, rule.demands))
        if isinstance(rule, Apart):
            apart(instance, rule.level, rule.limit, kinds)
        elif isinstance(rule, AtMostDomains):
            few(instance, rule, kinds)
        elif isinstance(rule, Segments):
            multiple(instance, rule, kinds)
        elif rule.hard:
            instance.together(rule.level, kinds)
        elif len(kinds) == len(instance.kinds):
            instance.soft.append(_as_one(instance.ids_of(rule.level), rule.present))
    instance.soft.sort(key=lambda ids: int(ids.max(initial=-1)))
    if instance.hard:
        _segment(instance, instance.hard)


def _as_one(ids: Ints, present: tuple[int, ...]) -> Ints:
    """Return the domains with those in which pods are already as one: to use another of these takes no domain more."""
    return np.where(np.isin(ids, present), max(present), ids) if len(present) > 1 else ids


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
