"""What a placement question is, and what its answers are. Values only; nothing here knows how an answer is found.

Decided here: the meaning of a problem. `verify` states the same meaning as a check, and every answer must pass it.

A problem asks for pods on nodes. Identical pods are one `Demand`; how many of each run where is the whole answer, so
nothing here costs per pod. Without `maximize` an answer places no more than is asked for: taking any one pod away
would break a rule. With it, the answer places as many pods as it can, never fewer than the minimums.

Most rules are closed downwards (a part of what may run may run). The minimums are not, nor are `Parts` (numbers of pods
alone, like the minimums), `Follow` (what others follow may be taken away), `Spread` (the emptiest domain may become
emptier) and `Segments`: after a search took pods away, the last three must be looked at again. A problem with one of
these is called open.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from scheduler.model.rules import Cap, Follow, MemberRule, Once, Repel, Spread

Objective: TypeAlias = Literal["scores", "pack", "spread"]
Method: TypeAlias = Literal["counting", "greedy", "master", "pattern", "integer"]

NODE = ""
"""The level whose domains are the nodes themselves."""
SLOTS = "pods"
"""The name under which pod slots are reported beside the resources."""


class BadProblem(ValueError):
    """A problem that means nothing; the message names the part and the field."""


class UnsupportedRule(BadProblem):
    """A rule that this engine does not know."""


@dataclass(frozen=True, slots=True, eq=False)
class Devices:
    """A pool: the devices of one sort on every node, as bins of one size.

    free: devices by nodes, what is left of each; 0 where a node has fewer devices. size: of an untouched device. What
    a partitioned device offers (MIG) is a pool of its own for each profile, in which devices are taken whole.
    """

    free: NDArray[np.int64]
    size: int = 1000


@dataclass(frozen=True, slots=True)
class DeviceAsk:
    """One pod takes `amount` of `count` different devices of a pool: whole devices, or a share of a single one."""

    pool: str
    amount: int
    count: int = 1


@dataclass(frozen=True, slots=True, eq=False)
class NodeView:
    """The nodes as a problem sees them. Arrays are read, never written.

    free: resources by nodes; where it is negative, the node takes nothing that asks for that resource.
    domains: for each level the number of every node's domain, -1 where the node carries no such label.
    devices: pools of devices; a demand takes from one of them by `Demand.devices`, not by its requests.
    """

    names: Sequence[str]
    resources: tuple[str, ...]
    free: NDArray[np.int64]
    slots: NDArray[np.int64]
    domains: Mapping[str, NDArray[np.int32]] = field(default_factory=dict)
    domain_names: Mapping[str, Sequence[str]] = field(default_factory=dict)
    devices: Mapping[str, Devices] = field(default_factory=dict)

    def domain_name(self, level: str, number: int) -> str:
        """Return the name of a domain, or its number when it has none."""
        names = self.domain_names.get(level, ())
        return str(names[number]) if 0 <= number < len(names) else str(number)


@dataclass(frozen=True, slots=True, eq=False)
class Demand:
    """At least `minimum` and at most `count` identical pods; earlier demands are preferred where there is a choice.

    mask: the nodes that may host them, None = all. scores: higher is better, None = all alike.
    """

    name: str
    requests: NDArray[np.int64]
    count: int
    minimum: int = 0
    mask: NDArray[np.bool_] | None = None
    scores: NDArray[np.int64] | None = None
    max_per_node: int | None = None
    devices: DeviceAsk | None = None


@dataclass(frozen=True, slots=True)
class Minimum:
    """At least `count` pods of these demands together."""

    demands: tuple[int, ...]
    count: int


@dataclass(frozen=True, slots=True)
class AtMost:
    """The sum of weight x pods is at most `limit`; weights are (demand, weight) and not negative."""

    weights: tuple[tuple[int, int], ...]
    limit: int


@dataclass(frozen=True, slots=True)
class Within:
    """All pods of these demands (None: of all) are in one domain of a level; nodes without the label host none.

    Not hard: one domain, else few, when that costs no pod.
    """

    level: str
    hard: bool = True
    demands: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Apart:
    """At most `limit` pods of these demands (None: of all) in any one domain; nodes without the label do not count."""

    level: str
    limit: int
    demands: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class AtMostDomains:
    """The pods of these demands (None: of all) are in at most `limit` domains; nodes without the label host none.

    present: domains in which such pods are already; they count as soon as one pod is placed.
    """

    level: str
    limit: int
    demands: tuple[int, ...] | None = None
    present: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Segments:
    """In each domain that receives any, the number of pods of these demands (None: of all) is a multiple of `size`,
    those in `present` (domain, pods already there) included; nodes without the label host none."""

    level: str
    size: int
    demands: tuple[int, ...] | None = None
    present: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Part:
    """No pod of `demands` is placed, or at least `minimum` of them are, and at least `least` of `parts` (whose demands
    are among these, and which share none) are placed. A part is placed when a pod of its demands is."""

    demands: tuple[int, ...]
    minimum: int = 0
    parts: tuple[Part, ...] = ()
    least: int = 0


@dataclass(frozen=True, slots=True)
class Parts:
    """Each part is whole or absent, and at least `least` of them are placed. Parts do not share demands."""

    parts: tuple[Part, ...]
    least: int


Rule: TypeAlias = Minimum | AtMost | Within | Apart | AtMostDomains | Segments | Parts | MemberRule
"""Those of one question alone, and those that plugins state (`scheduler.model.rules`)."""


@dataclass(frozen=True, slots=True)
class Budget:
    """deterministic_time: the limit of all solver runs of one problem together, in the solver's own seconds.

    wall_limit is only a fuse (seconds). max_domains: so many domains are given to the solver, the roomiest first.
    """

    deterministic_time: float = 1.0
    wall_limit: float = 5.0
    max_domains: int = 64


@dataclass(frozen=True, slots=True, eq=False)
class PlacementProblem:
    """See the module."""

    nodes: NodeView
    demands: tuple[Demand, ...]
    rules: tuple[Rule, ...] = ()
    seed: int = 0
    budget: Budget = field(default_factory=Budget)
    objective: Objective = "pack"
    maximize: bool = False


Counts: TypeAlias = tuple[tuple[tuple[int, int], ...], ...]
"""For each demand its (node, pods) in order of nodes, none with zero pods."""


@dataclass(frozen=True, slots=True)
class Placement:
    """optimal: with `maximize`, no placement holds more pods, and that is proven; else True.

    kept: the numbers of the rules that are preferred (`Within`, not hard) and hold.
    """

    counts: Counts
    method: Method
    optimal: bool = True
    kept: tuple[int, ...] = ()

    def placed(self, demand: int) -> int:
        """How many pods of a demand are placed."""
        return sum(count for _, count in self.counts[demand])

    @property
    def total(self) -> int:
        """How many pods are placed."""
        return sum(count for row in self.counts for _, count in row)


@dataclass(frozen=True, slots=True)
class BestDomain:
    """The domain that comes closest: how many of each demand fit there, each alone."""

    level: str
    name: str
    alone: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Shortage:
    """A resource against what is needed of it: by all, free on the nodes that may host them, on the largest node."""

    resource: str
    needed: int
    free: int
    largest: int


@dataclass(frozen=True, slots=True)
class Infeasible:
    """There is no placement (`proven`), or none was found within the budget.

    cause: "rules" (the minimums contradict the limits), "bound" (numbers alone forbid it), "search" (every way was
    tried) or "budget". needed, alone: for each demand how many are needed, and how many fit at most, the others absent.
    binding: the resource that is shortest in proportion. placeable: the largest number that could be placed together
    under the other rules, when it is known.
    """

    proven: bool
    cause: Literal["rules", "bound", "search", "budget"]
    needed: tuple[int, ...]
    alone: tuple[int, ...]
    binding: Shortage | None = None
    best: BestDomain | None = None
    placeable: int | None = None

    @property
    def short(self) -> tuple[int, ...]:
        """The demands that do not even fit alone."""
        return tuple(d for d, (need, fit) in enumerate(zip(self.needed, self.alone, strict=True)) if fit < need)


@dataclass(frozen=True, slots=True)
class Explanation:
    """relaxations: the smallest sets of restrictions without which it fits; empty: none of up to three helps.

    A restriction is a resource, "pods" (slots), "topology" (of several levels: "topology LEVEL"), "atMostDomains",
    "segments", "minimum parts", "apart", "ports/anti-affinity", "affinity", "spread", "volumes", "masks", "devices" or
    "limits". wider: (level, wider level): it would fit if the one were the other. placeable: so many fit of `needed`,
    None: not known. more: (level, limit of domains, limit that would do). fewer: (parts needed, as many as would do).
    """

    relaxations: tuple[tuple[str, ...], ...]
    wider: tuple[tuple[str, str], ...]
    placeable: int | None
    needed: int
    complete: bool
    more: tuple[tuple[str, int, int], ...] = ()
    fewer: tuple[tuple[int, int], ...] = ()


class PlacementBug(RuntimeError):
    """The engine contradicted itself: its answer does not pass `verify`. Carries everything to reproduce it."""

    def __init__(self, problem: PlacementProblem, placement: Placement, failures: list[str]) -> None:
        self.problem, self.placement, self.failures = problem, placement, failures
        super().__init__(
            f"{placement.method} gave a wrong answer: {'; '.join(failures[:5])}\n{dump(problem, placement)}"
        )


def all_demands(problem: PlacementProblem, demands: tuple[int, ...] | None) -> tuple[int, ...]:
    """Return the demands that a rule speaks of, without doubles."""
    return tuple(range(len(problem.demands))) if demands is None else tuple(dict.fromkeys(demands))


def check_problem(problem: PlacementProblem) -> None:
    """Raise `BadProblem` for what means nothing."""
    nodes = problem.nodes
    size, width = len(nodes.names), len(nodes.resources)
    if nodes.free.shape != (width, size):
        raise BadProblem(f"nodes.free: shape {nodes.free.shape} is not resources by nodes ({width}, {size})")
    if nodes.slots.shape != (size,):
        raise BadProblem(f"nodes.slots: shape {nodes.slots.shape} is not ({size},)")
    if problem.objective not in ("scores", "pack", "spread"):
        raise BadProblem(f"objective: {problem.objective!r} is not scores, pack or spread")
    for name, pool in nodes.devices.items():
        _check_pool(pool, size, f"nodes.devices[{name!r}]")
    names: set[str] = set()
    for demand in problem.demands:
        where = f"demand {demand.name!r}"
        if demand.name in names:
            raise BadProblem(f"{where}: the name is used twice")
        names.add(demand.name)
        if demand.requests.shape != (width,):
            raise BadProblem(f"{where}.requests: shape {demand.requests.shape} is not ({width},)")
        if width and int(demand.requests.min()) < 0:
            raise BadProblem(f"{where}.requests: negative")
        if not 0 <= demand.minimum <= demand.count:
            raise BadProblem(f"{where}: minimum {demand.minimum} is not between 0 and count {demand.count}")
        if demand.max_per_node is not None and demand.max_per_node < 0:
            raise BadProblem(f"{where}.max_per_node: {demand.max_per_node} is negative")
        for field_name, row in (("mask", demand.mask), ("scores", demand.scores)):
            if row is not None and row.shape != (size,):
                raise BadProblem(f"{where}.{field_name}: shape {row.shape} is not ({size},)")
        if demand.devices is not None:
            _check_ask(nodes, demand.devices, f"{where}.devices")
    for number, rule in enumerate(problem.rules):
        _check_rule(problem, rule, f"rule {number} ({type(rule).__name__})")


def _check_pool(pool: Devices, size: int, where: str) -> None:
    if pool.free.ndim != 2 or pool.free.shape[1] != size:
        raise BadProblem(f"{where}.free: shape {pool.free.shape} is not devices by {size} nodes")
    if pool.size < 1:
        raise BadProblem(f"{where}.size: {pool.size} is less than 1")
    if int(pool.free.min(initial=0)) < 0 or int(pool.free.max(initial=0)) > pool.size:
        raise BadProblem(f"{where}.free: not between 0 and the size {pool.size}")


def _check_ask(nodes: NodeView, ask: DeviceAsk, where: str) -> None:
    pool = nodes.devices.get(ask.pool)
    if pool is None:
        raise BadProblem(f"{where}.pool: there is no pool {ask.pool!r}")
    if ask.pool in nodes.resources:
        raise BadProblem(f"{where}.pool: {ask.pool!r} is the name of a resource too")
    if ask.count < 1:
        raise BadProblem(f"{where}.count: {ask.count} is less than 1")
    if not 1 <= ask.amount <= pool.size:
        raise BadProblem(f"{where}.amount: {ask.amount} is not between 1 and the size {pool.size}")
    if ask.count > 1 and ask.amount < pool.size:
        raise BadProblem(f"{where}.amount: {ask.count} devices are taken whole, not {ask.amount} of {pool.size} each")


def _check_rule(problem: PlacementProblem, rule: Rule, where: str) -> None:
    match rule:
        case Minimum(demands, count):
            used: tuple[int, ...] = demands
            if count < 0:
                raise BadProblem(f"{where}.count: {count} is negative")
        case AtMost(weights, _):
            used = _check_weights(weights, where)
        case Within(level, _, demands_or_all):
            used = demands_or_all or ()
            _check_level(problem, level, where)
        case Apart(level, limit, demands_or_all):
            used = demands_or_all or ()
            if limit < 0:
                raise BadProblem(f"{where}.limit: {limit} is negative")
            _check_level(problem, level, where)
        case AtMostDomains() | Segments():
            used = _check_domain_rule(problem, rule, where)
        case Parts(parts, least):
            used = tuple(demand for part in parts for demand in part.demands)
            _check_parts(parts, least, where)
        case _:
            used = _check_member_rule(problem, rule, where)
    for demand in used:
        if not 0 <= demand < len(problem.demands):
            raise BadProblem(f"{where}: there is no demand {demand}")


def _check_domain_rule(problem: PlacementProblem, rule: AtMostDomains | Segments, where: str) -> tuple[int, ...]:
    """Return the demands that it names."""
    _check_level(problem, rule.level, where)
    if isinstance(rule, AtMostDomains):
        if rule.limit < 0:
            raise BadProblem(f"{where}.limit: {rule.limit} is negative")
        present = rule.present
    else:
        if rule.size < 1:
            raise BadProblem(f"{where}.size: {rule.size} is less than 1")
        present = tuple(domain for domain, _ in rule.present)
        if any(pods < 0 for _, pods in rule.present):
            raise BadProblem(f"{where}.present: negative")
    if len(set(present)) < len(present):
        raise BadProblem(f"{where}.present: a domain is named twice")
    if any(domain < 0 for domain in present):
        raise BadProblem(f"{where}.present: nodes without the label are no domain")
    return rule.demands or ()


def _check_parts(parts: tuple[Part, ...], least: int, where: str) -> None:
    if not 0 <= least <= len(parts):
        raise BadProblem(f"{where}.least: {least} is not between 0 and the {len(parts)} parts")
    seen: set[int] = set()
    for number, part in enumerate(parts):
        here = f"{where}.parts[{number}]"
        mine = set(part.demands)
        if seen & mine:
            raise BadProblem(f"{here}.demands: demand {min(seen & mine)} is in two parts")
        seen |= mine
        if part.minimum < 0:
            raise BadProblem(f"{here}.minimum: {part.minimum} is negative")
        if not {demand for inner in part.parts for demand in inner.demands} <= mine:
            raise BadProblem(f"{here}.parts: one of them has a demand that the part has not")
        _check_parts(part.parts, part.least, here)


def _check_member_rule(problem: PlacementProblem, rule: MemberRule, where: str) -> tuple[int, ...]:
    """Return the demands that it names."""
    match rule:
        case Repel(level, carriers, targets):
            _check_level(problem, level, where)
            return (*carriers, *targets)
        case Follow():
            _check_follow(problem, rule, where)
            return (*rule.followers, *rule.targets)
        case Spread():
            _check_level(problem, rule.level, where)
            _check_amounts(problem, rule.level, rule.present, f"{where}.present")
            _check_nodes(problem, rule.nodes, f"{where}.nodes")
            for field_name, number in (("max_skew", rule.max_skew), ("min_domains", rule.min_domains)):
                if number < 1:
                    raise BadProblem(f"{where}.{field_name}: {number} is less than 1")
            return (*rule.carriers, *rule.counted)
        case Cap(level, weights, limits):
            _check_level(problem, level, where)
            _check_amounts(problem, level, limits, f"{where}.limits")
            return _check_weights(weights, where)
        case Once():
            if rule.resource not in problem.nodes.resources:
                raise BadProblem(f"{where}.resource: there is no resource {rule.resource!r}")
            if rule.amount < 0:
                raise BadProblem(f"{where}.amount: {rule.amount} is negative")
            _check_nodes(problem, rule.already, f"{where}.already")
            return rule.demands
        case _:
            raise UnsupportedRule(f"{where}: this rule is not supported")


def _check_follow(problem: PlacementProblem, rule: Follow, where: str) -> None:
    if not rule.levels:
        raise BadProblem(f"{where}.levels: none is given")
    if len(rule.present) != len(rule.levels):
        raise BadProblem(f"{where}.present: {len(rule.present)} arrays for {len(rule.levels)} levels")
    for level, present in zip(rule.levels, rule.present, strict=True):
        _check_level(problem, level, where)
        _check_domains(problem, level, present.shape, f"{where}.present")
        if rule.first and present.any():
            raise BadProblem(f"{where}.first: nobody is the first, a followed pod is present in a domain of {level!r}")


def _check_weights(weights: tuple[tuple[int, int], ...], where: str) -> tuple[int, ...]:
    used = tuple(demand for demand, _ in weights)
    if any(weight < 0 for _, weight in weights):
        raise BadProblem(f"{where}.weights: negative")
    if len(set(used)) < len(used):
        raise BadProblem(f"{where}.weights: a demand is named twice")
    return used


def _check_level(problem: PlacementProblem, level: str, where: str) -> None:
    if level == NODE:
        return
    ids = problem.nodes.domains.get(level)
    if ids is None:
        raise BadProblem(f"{where}.level: no domains are given for {level!r}")
    if ids.shape != (len(problem.nodes.names),):
        raise BadProblem(f"{where}.level: the domains of {level!r} have shape {ids.shape}")


def _check_nodes(problem: PlacementProblem, row: NDArray[np.bool_], where: str) -> None:
    if row.shape != (len(problem.nodes.names),):
        raise BadProblem(f"{where}: shape {row.shape} is not ({len(problem.nodes.names)},)")


def _check_amounts(problem: PlacementProblem, level: str, amounts: NDArray[np.int64], where: str) -> None:
    _check_domains(problem, level, amounts.shape, where)
    if int(amounts.min(initial=0)) < 0:
        raise BadProblem(f"{where}: negative")


def _check_domains(problem: PlacementProblem, level: str, shape: tuple[int, ...], where: str) -> None:
    size = len(problem.nodes.names)
    count = size if level == NODE else int(problem.nodes.domains[level].max(initial=-1)) + 1
    if len(shape) != 1 or shape[0] < count:
        raise BadProblem(f"{where}: shape {shape} does not cover the {count} domains of {level!r}")


def dump(problem: PlacementProblem, placement: Placement | None = None) -> str:
    """Return everything that matters of a problem as text, nodes that are touched or few only."""
    touched = sorted({node for row in placement.counts for node, _ in row}) if placement else []
    shown = list(range(len(problem.nodes.names))) if len(problem.nodes.names) <= 16 else touched[:64]
    lines = [f"seed={problem.seed} objective={problem.objective} maximize={problem.maximize} budget={problem.budget}"]
    lines.append(f"resources={problem.nodes.resources}")
    for node in shown:
        domains = {level: int(ids[node]) for level, ids in sorted(problem.nodes.domains.items())}
        free, slots = problem.nodes.free[:, node].tolist(), int(problem.nodes.slots[node])
        lines.append(f"node {node} {problem.nodes.names[node]}: free={free} slots={slots} domains={domains}")
        for name, pool in sorted(problem.nodes.devices.items()):
            lines.append(f"  devices {name} of {pool.size}: {pool.free[:, node].tolist()}")
    for number, demand in enumerate(problem.demands):
        mask = None if demand.mask is None else demand.mask[shown].astype(int).tolist()
        lines.append(
            f"demand {number} {demand.name}: requests={demand.requests.tolist()} count={demand.count} "
            f"minimum={demand.minimum} max_per_node={demand.max_per_node} mask={mask} devices={demand.devices}"
        )
    lines.extend(f"rule {rule}" for rule in problem.rules)
    if placement is not None:
        lines.append(f"placement {placement}")
    return "\n".join(lines)
