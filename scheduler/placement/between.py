"""Rules between pods made ready to be searched: over kinds instead of demands, with the domain of every node.

Decided here: which rules say the same as a simpler one, and what each forbids by itself. A pod that repels its own kind
is a limit of one; a rule whose followed pods all follow too keeps them where one is present already, or in one domain
together; an amount that is spent once is taken off what the node has. What is left stays as it was asked. Invariant:
the instance with these parts has the same placements as the rules.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from scheduler.model.rules import Cap, Follow, MemberRule, Once, Repel, Spread
from scheduler.placement.problem import NODE, AtMostDomains, AtMostGroups, PlacementProblem, Segments

if TYPE_CHECKING:
    from scheduler.placement.instance import Instance, Ints


@dataclass(slots=True, eq=False)
class Limit:
    """The sum of weight x pods in a domain is at most its limit. limits: over domains."""

    weights: dict[int, int]
    ids: Ints
    limits: Ints


@dataclass(slots=True, eq=False)
class Exclusion:
    """No domain hosts kinds of both sides. ids: None = the nodes themselves."""

    ours: tuple[int, ...]
    theirs: tuple[int, ...]
    ids: Ints | None


@dataclass(slots=True, eq=False)
class Shared:
    """A node that hosts any of the kinds spends an amount of a row once. pays: nodes on which it is not spent yet."""

    kinds: tuple[int, ...]
    row: int
    amount: int
    pays: NDArray[np.bool_]


@dataclass(slots=True, eq=False)
class Spreading:
    """`Spread` over kinds. domains: those of which the emptiest counts; floor: the least is 0, whatever they hold."""

    carriers: tuple[int, ...]
    counted: tuple[int, ...]
    ids: Ints
    present: Ints
    nodes: NDArray[np.bool_]
    domains: NDArray[np.intp]
    skew: int
    floor: bool
    level: str


@dataclass(slots=True, eq=False)
class Following:
    """`Follow` over kinds, for rules with a followed kind that does not follow itself."""

    followers: tuple[int, ...]
    targets: tuple[int, ...]
    ids: tuple[Ints, ...]
    present: tuple[NDArray[np.bool_], ...]
    first: bool


@dataclass(slots=True, eq=False)
class Few:
    """Kinds are in so many new domains at most. present: over domains, those that do not count as new."""

    kinds: tuple[int, ...]
    ids: Ints
    present: NDArray[np.bool_]
    new: int


@dataclass(slots=True, eq=False)
class Crowd:
    """A domain that receives a group of kinds which was not there holds at most so many groups. present: groups by
    domains, who is there already."""

    groups: tuple[tuple[int, ...], ...]
    ids: Ints
    present: NDArray[np.bool_]
    limit: int

    def of(self, kind: int) -> int:
        """Return the group of a kind, -1 for none."""
        return next((number for number, kinds in enumerate(self.groups) if kind in kinds), -1)


@dataclass(slots=True, eq=False)
class Multiple:
    """Pods of these kinds in a domain that receives any are so many more than a multiple of the size. over: domains."""

    kinds: tuple[int, ...]
    ids: Ints
    size: int
    more: Ints


def side(rule: MemberRule, demand: int) -> tuple[int, ...]:
    """Return what a rule says of a demand; demands of which all rules say the same are alike."""
    match rule:
        case Repel():
            return (int(demand in rule.carriers), int(demand in rule.targets))
        case Follow():
            return (int(demand in rule.followers), int(demand in rule.targets))
        case Spread():
            return (int(demand in rule.carriers), int(demand in rule.counted))
        case Cap():
            return (dict(rule.weights).get(demand, 0),)
        case Once():
            return (int(demand in rule.demands),)


def domain_ids(problem: PlacementProblem, level: str) -> Ints:
    """Return the domain of every node on a level."""
    if level == NODE:
        return np.arange(len(problem.nodes.names), dtype=np.int64)
    return problem.nodes.domains[level].astype(np.int64)


def extra_rows(problem: PlacementProblem) -> list[Cap]:
    """Return the limits that hold on each node: they are amounts like any other."""
    return [rule for rule in problem.rules if isinstance(rule, Cap) and rule.level == NODE]


def add(instance: Instance, rule: Repel | Follow | Spread | Cap) -> None:
    """Add one rule to an instance."""
    match rule:
        case Repel():
            _repel(instance, rule)
        case Cap():
            if rule.level != NODE:
                weights = {kind: weight for d, weight in rule.weights for kind in instance.kinds_of([d]) if weight}
                limit(instance, weights, instance.ids_of(rule.level), rule.limits)
        case Spread():
            _spread(instance, rule)
        case Follow():
            _follow(instance, rule)


def limit(instance: Instance, weights: dict[int, int], ids: Ints, limits: Ints) -> None:
    """Add a limit for each domain, and let each kind feel it alone."""
    if not weights or limits.size == 0:
        return
    instance.domain_limits.append(Limit(weights, ids, limits))
    for kind, weight in weights.items():
        cap = instance.kinds[kind].cap
        np.minimum(cap, limits[np.maximum(ids, 0)] // weight, out=cap, where=ids >= 0)


def apart(instance: Instance, level: str, most: int, kinds: tuple[int, ...]) -> None:
    """At most so many pods of these kinds in any one domain."""
    if not kinds:
        return
    if level == NODE:
        instance.node_limits.append((kinds, most))
        for kind in kinds:
            np.minimum(instance.kinds[kind].cap, most, out=instance.kinds[kind].cap)
        return
    ids = instance.ids_of(level)
    limit(instance, dict.fromkeys(kinds, 1), ids, np.full(int(ids.max(initial=-1)) + 1, most, dtype=np.int64))


def crowd(instance: Instance, rule: AtMostGroups) -> None:
    """At most so many of these groups are in a domain; one that is full of others takes no further group."""
    groups = tuple(instance.kinds_of(group) for group in rule.groups)
    ids = instance.ids_of(rule.level)
    present = np.zeros((len(groups), int(ids.max(initial=-1)) + 1), dtype=np.bool_)
    for domain, group in rule.present:
        if domain < present.shape[1]:
            present[group, domain] = True
    full = present.sum(axis=0) >= rule.limit
    for number, kinds in enumerate(groups):
        barred = np.append(full & ~present[number], False)[ids]  # the last: nodes without the label
        for kind in kinds:
            instance.kinds[kind].cap[barred] = 0
    if sum(map(bool, groups)) > 1 and len(groups) > rule.limit:
        instance.crowds.append(Crowd(groups, ids, present, rule.limit))


def few(instance: Instance, rule: AtMostDomains, kinds: tuple[int, ...]) -> None:
    """These kinds are in at most so many domains."""
    present = set(rule.present)
    if not kinds:
        return
    if rule.limit == 1 and not present:
        instance.together(rule.level, kinds)
        return
    ids, count = _labelled(instance, rule.level, kinds)
    there = np.zeros(count, dtype=np.bool_)
    there[[domain for domain in present if domain < count]] = True
    new = rule.limit - len(present)
    if new > 0 and count:
        instance.few.append(Few(kinds, ids, there, new))
        return
    barred = ~there[np.maximum(ids, 0)] if count and new == 0 else np.ones(ids.size, dtype=np.bool_)
    for kind in kinds:
        instance.kinds[kind].cap[barred] = 0


def multiple(instance: Instance, rule: Segments, kinds: tuple[int, ...]) -> None:
    """These kinds come in multiples to each domain."""
    if not kinds:
        return
    ids, count = _labelled(instance, rule.level, kinds)
    more = np.zeros(count, dtype=np.int64)
    for domain, pods in rule.present:
        if domain < count:
            more[domain] = -pods % rule.size
    if rule.size > 1:
        instance.multiples.append(Multiple(kinds, ids, rule.size, more))


def _labelled(instance: Instance, level: str, kinds: tuple[int, ...]) -> tuple[Ints, int]:
    """Keep kinds away from nodes without the label; return the domains, and how many there are."""
    ids = instance.ids_of(level)
    for kind in kinds:
        instance.kinds[kind].cap[ids < 0] = 0
    return ids, int(ids.max(initial=-1)) + 1


def _repel(instance: Instance, rule: Repel) -> None:
    carriers, targets = instance.kinds_of(rule.carriers), instance.kinds_of(rule.targets)
    both = tuple(kind for kind in carriers if kind in targets)
    apart(instance, rule.level, 1, both)
    only_carry = tuple(kind for kind in carriers if kind not in both)
    only_target = tuple(kind for kind in targets if kind not in both)
    ids = None if rule.level == NODE else instance.ids_of(rule.level)
    for ours, theirs in ((carriers, only_target), (only_carry, both)):
        if ours and theirs:
            instance.exclusions.append(Exclusion(ours, theirs, ids))


def _spread(instance: Instance, rule: Spread) -> None:
    carriers, counted = instance.kinds_of(rule.carriers), instance.kinds_of(rule.counted)
    if not carriers:
        return
    ids = instance.ids_of(rule.level)
    for kind in carriers:
        instance.kinds[kind].cap[ids < 0] = 0
    domains = np.unique(ids[rule.nodes & (ids >= 0)]).astype(np.intp)
    nodes, present = rule.nodes & (ids >= 0), rule.present.astype(np.int64)
    floor = domains.size < rule.min_domains
    instance.spreads.append(
        Spreading(carriers, counted, ids, present, nodes, domains, rule.max_skew, floor, rule.level)
    )


def _follow(instance: Instance, rule: Follow) -> None:
    followers, targets = instance.kinds_of(rule.followers), instance.kinds_of(rule.targets)
    if not followers:
        return
    ids = tuple(domain_ids(instance.problem, level) for level in rule.levels)
    around = np.ones(instance.size, dtype=np.bool_)
    there = around.copy()
    for each, present in zip(ids, rule.present, strict=True):
        around &= each >= 0
        there &= (each >= 0) & present[np.maximum(each, 0)] if present.size else False
    own = set(targets) <= set(followers)
    allowed = there if own and not (rule.first and targets) else around
    for kind in followers:
        instance.kinds[kind].cap[~allowed] = 0
    if not own or (rule.first and targets and set(targets) != set(followers)):
        instance.follows.append(Following(followers, targets, ids, rule.present, rule.first))
    if own and rule.first and targets:
        for level in rule.levels:
            instance.together(level, followers)
