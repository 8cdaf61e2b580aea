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

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from scheduler.model.rules import MemberRule

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

    Not hard: one domain, else few, when that costs no pod; of these `present`, in which such pods are already, first.
    """

    level: str
    hard: bool = True
    demands: tuple[int, ...] | None = None
    present: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Apart:
    """At most `limit` pods of these demands (None: of all) in any one domain; nodes without the label do not count."""

    level: str
    limit: int
    demands: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class AtMostGroups:
    """No domain receives pods of a group that was not there and then holds pods of more than `limit` of these groups of
    demands; groups share no demand. present: (domain, group), pods of which are there already; nodes without the label
    do not count."""

    level: str
    limit: int
    groups: tuple[tuple[int, ...], ...]
    present: tuple[tuple[int, int], ...] = ()


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
class Balanced:
    """The pods of these demands (None: of all) are shared evenly over as few domains as hold them, those in `present`
    (domain, pods already there) included: their numbers differ by one at most. Only as far as that costs no pod."""

    level: str
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


Rule: TypeAlias = (
    Minimum | AtMost | Within | Apart | AtMostGroups | AtMostDomains | Segments | Balanced | Parts | MemberRule
)
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
    """See the module. Domains are filled one after the other, unless a rule says otherwise."""

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

    kept: the numbers of the rules that are preferred (`Within`, not hard; `Balanced`) and hold.
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
class Lacks:
    """needed, alone: for each demand how many are needed, and how many fit at most, the others absent.

    binding: the resource that is shortest in proportion. placeable: the largest number that could be placed together
    under the other rules, when it is known.
    """

    needed: tuple[int, ...]
    alone: tuple[int, ...]
    binding: Shortage | None = None
    best: BestDomain | None = None
    placeable: int | None = None


@dataclass(frozen=True)
class Infeasible:
    """There is no placement (`proven`), or none was found within the budget.

    cause: "rules" (the minimums contradict the limits), "bound" (numbers alone forbid it), "search" (every way was
    tried) or "budget". tell: counts what is lacking, once somebody asks.
    """

    proven: bool
    cause: Literal["rules", "bound", "search", "budget"]
    tell: Callable[[], Lacks] = field(repr=False, compare=False)

    @cached_property
    def lacks(self) -> Lacks:
        """The numbers, those of the moment at which the question was asked."""
        return self.tell()

    @property
    def short(self) -> tuple[int, ...]:
        """The demands that do not even fit alone."""
        pairs = zip(self.lacks.needed, self.lacks.alone, strict=True)
        return tuple(d for d, (need, fit) in enumerate(pairs) if fit < need)


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
