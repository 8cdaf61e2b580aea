"""The hooks of a plugin. A plugin proposes, the session disposes.

A plugin is any object with a `name` and some of the methods below; it implements those that it cares about and inherits
nothing. Hooks are given in the order of a session. Each says when it is called, what it may read, what it must not do
and what its answer makes the caller do.

Rules for all hooks. They answer from their arguments: the group, the shape, the class of nodes, the `View`. Answers are
reused while the group, the node classes, the queues, the usage and the free amounts are unchanged; a plugin whose
answers depend on anything else (the clock, a counter of its own) says so with the attribute `volatile = True`, and is
asked again every session. They must not change what they are given, block, sleep or do I/O. A hook that raises harms
only the group, the queue or the shape that it was asked about: that one waits as `Misconfigured`, naming the plugin.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from scheduler.framework.book import Book
from scheduler.framework.neighbours import Neighbours
from scheduler.framework.relations import Members, Relations
from scheduler.framework.topology_tree import Domains, LevelFault
from scheduler.model.groups import GroupState
from scheduler.model.nodes import NodeClass
from scheduler.model.pods import Pod, Shape
from scheduler.model.podvolumes import VolumeStep
from scheduler.model.queues import Queue
from scheduler.model.resources import Amounts
from scheduler.model.snapshot import Snapshot
from scheduler.model.verdict import Verdict

SortKey: TypeAlias = tuple[int | float | str, ...]
"""Smaller goes first. The keys of all plugins are concatenated in the order of the tiers; the last resort is the age
and the name, which the session adds."""


class View(Protocol):
    """What a plugin may look at besides its arguments: the frozen snapshot, and the amounts as decided so far."""

    @property
    def snapshot(self) -> Snapshot:
        """The cluster as it was when the session began."""

    @property
    def now(self) -> float:
        """The time of the snapshot, in seconds since the epoch."""

    @property
    def free(self) -> NDArray[np.int64]:
        """What is free, resources by nodes, read only; negative where a node shrank below its usage."""

    @property
    def open_slots(self) -> NDArray[np.int64]:
        """How many more pods each node may hold, read only."""

    @property
    def placed(self) -> Mapping[str, str]:
        """Pods (uid) that this session has placed so far, with their nodes."""

    @property
    def book(self) -> Book:
        """What every queue holds, wants and is owed, with what this session has placed so far."""

    def queue_row(self, state: GroupState) -> int | None:
        """Row of the group's leaf queue in the book; None where there is no such queue."""

    def least_of(self, state: GroupState) -> Amounts:
        """What the group asks for at its next turn: its minimum, or one member where that is met."""

    def is_preemptible(self, state: GroupState) -> bool:
        """Whether the group may be a victim by what it and its members say."""

    def beyond_deserved(self, state: GroupState, wanted: NDArray[np.int64]) -> tuple[int, int, int] | None:
        """Where a group that is not preemptible would hold more than is deserved, with so much more: the row of the
        queue, the column of the book, and what is held there by such groups; None where it would not."""

    @property
    def neighbours(self) -> Neighbours:
        """Which pods are where, as other pods ask about them, with what this session has placed so far."""

    def request(self, shape: Shape) -> NDArray[np.int64]:
        """What one pod of the shape asks for, in the order of `snapshot.table.resources`."""

    def domains(self, level: str) -> tuple[NDArray[np.int32], tuple[str, ...]]:
        """For each node the number of its domain (-1: it has none), and the names of the domains.

        level: a level key of `topology`, or the key of a node label.
        """

    @property
    def topology(self) -> Domains:
        """The levels that topology objects name; `wider` gives the levels around one."""

    def resolve(self, topology: str, level: str) -> str | LevelFault:
        """The level key (or node label key) that a wish means. topology: "" = whichever knows the level."""


@dataclass(frozen=True, slots=True)
class Misfit:
    """Why no node of a class can host a shape, in the words that kube-scheduler uses.

    `lasting` is False for what usually passes by itself (a cordon, a node that is not ready): such nodes still count
    when it is asked whether a gang could ever fit.
    """

    reason: str
    lasting: bool = True


@dataclass(frozen=True, slots=True)
class WithinDomain:
    """The members that start now (and later ones with them) run in one domain of a level.

    `required` False: only when that costs nothing but score. part: the path of the sub-group whose members are meant,
    "" = of the whole group; the same in all wishes.
    """

    label: str
    required: bool = True
    part: str = ""


@dataclass(frozen=True, slots=True)
class ApartDomains:
    """At most `limit` members run in any one domain of a level ("kubernetes.io/hostname" = node)."""

    label: str
    limit: int = 1
    part: str = ""


@dataclass(frozen=True, slots=True)
class FewDomains:
    """The members run in at most `limit` domains of a level."""

    label: str
    limit: int
    part: str = ""


@dataclass(frozen=True, slots=True)
class Sized:
    """In every domain of a level the number of members is a multiple of `size`."""

    label: str
    size: int
    part: str = ""


@dataclass(frozen=True, slots=True)
class EvenDomains:
    """The members are shared evenly over as few domains of a level as hold them; only when that costs no member."""

    label: str
    part: str = ""


@dataclass(frozen=True, slots=True)
class PartsApart:
    """No domain of a level has members of more than `limit` of these sub-groups."""

    label: str
    parts: tuple[str, ...]
    limit: int = 1


@dataclass(frozen=True, slots=True)
class Barred:
    """No member runs in one of these domains (numbers) of a level.

    until: for each of the domains, the pods (uid) on nodes or about to be that bar it: it is open when they are gone;
    () = nobody's going opens any. always: also in a cluster in which nothing runs.
    """

    label: str
    domains: tuple[int, ...]
    part: str = ""
    until: tuple[frozenset[str], ...] = field(default=(), compare=False)
    always: bool = False


Wish: TypeAlias = WithinDomain | ApartDomains | FewDomains | Sized | EvenDomains | PartsApart | Barred


def must_hold(wish: Wish) -> bool:
    """Whether members rather wait than run without it."""
    return wish.required if isinstance(wish, WithinDomain) else not isinstance(wish, EvenDomains)


@dataclass(frozen=True, slots=True)
class Unusable:
    """No member of a sub-group starts, because of what a field of it says; the others are not held up."""

    part: str
    field: str
    message: str


@dataclass(frozen=True, slots=True)
class NoOpinion:
    """The plugin does not care who is evicted."""


@dataclass(frozen=True, slots=True)
class Only:
    """Only these pods (uids) may be evicted, says this plugin. An empty set is not the same as no opinion."""

    uids: frozenset[str] = field(default_factory=frozenset)


Opinion: TypeAlias = NoOpinion | Only


class OrdersQueues(Protocol):
    """Called when it is decided which queue's first group is looked at next, and again at each turn of a queue.

    May depend on the queue, its next group and what the queue and those above it hold now (`view.book`). What the
    session places must never make a key smaller.
    """

    def order_queues(self, queue: Queue, head: GroupState, view: View) -> SortKey:
        """Return the queue's key if `head` is its next group; the smallest is served first."""


class OrdersGroups(Protocol):
    """Called once a session for every group with waiting members."""

    def order_groups(self, state: GroupState, view: View) -> SortKey:
        """Return the group's key inside its queue; the smallest is served first."""


class OrdersMembers(Protocol):
    """Called for the waiting members of a group, before rank and name decide."""

    def order_members(self, pod: Pod) -> SortKey:
        """Return the member's key; when not all members can start, the smallest start first."""


class Admits(Protocol):
    """Called in enqueue, and before any group that does not run yet is placed."""

    def admits(self, state: GroupState, view: View) -> Verdict | None:
        """Return None when the group may enter the competition (its operator may create pods), else why not."""


class Ready(Protocol):
    """Called before the group's minimum is placed."""

    def ready(self, state: GroupState, view: View) -> Verdict | None:
        """Return None when enough members are there to start the group as a whole, else what is missing."""


class Allows(Protocol):
    """Called before every placement, with the sum of what the members about to be placed ask for."""

    def allows(self, state: GroupState, ask: Amounts, view: View) -> Verdict | None:
        """Return None when the group's queue may hold so much more now, else which limit says no."""


class Fits(Protocol):
    """Called once for each pair of shape and node class; the answer is kept, across sessions, while both exist.

    May read its two arguments only. Amounts of resources and pod slots are not its business, nor are rules about other
    pods (affinity, spread, host ports): the shape comes without them, so that shapes that are alike in the rest share
    one answer.
    """

    def fits(self, shape: Shape, node_class: NodeClass) -> Misfit | None:
        """Return None when nodes of the class may host the shape, else why none of them can."""


class Scores(Protocol):
    """Called like `fits`, for node classes that passed it. May read its two arguments only."""

    def scores(self, shape: Shape, node_class: NodeClass) -> int:
        """Return how well the class suits the shape, 0 (indifferent) to 100; multiplied by the plugin's weight."""


class ScoresNodes(Protocol):
    """Called before a placement that is not yet known to be impossible. Vectorised: one call for all nodes."""

    def scores_nodes(self, shape: Shape, view: View) -> NDArray[np.int64]:
        """Return for each node, 0 to 100, how much a pod of the shape should go there now; weighted like `scores`."""


class Wishes(Protocol):
    """Called before each placement of a group."""

    def wishes(self, state: GroupState, view: View) -> tuple[Wish | Unusable, ...] | Verdict:
        """Return the rules that the placement must keep, or a verdict when a rule cannot be understood."""


class Sorts(Protocol):
    """Called for every pod before it is asked for; only members with equal answers are interchangeable."""

    def sorts(self, pod: Pod, shape: Shape, view: View) -> Hashable:
        """Return what besides the shape decides how `relates` answers about this pod (labels, claims), None = nothing.

        Equal answers must mean equal relations, as long as nothing is placed in between.
        """


class Relates(Protocol):
    """Called before each placement, with the members in question; also `empty`: as if no pod ran in the cluster.

    Answers are for the moment: they must count what this session placed (`view.placed`, `on_place`). They are asked for
    again after each placement, and compared by content.
    """

    def relates(self, members: tuple[Members, ...], view: View, *, empty: bool) -> Relations | Verdict:
        """Return barred nodes, rules between the members, further resources and scores; or why they have to wait."""


class OnPlace(Protocol):
    """Called when members are placed inside a statement, and again with `undone` (in reverse) when it is discarded.

    For what the plugin keeps for `relates`; it must start from the snapshot in each session.
    """

    def on_place(self, members: tuple[tuple[Pod, int], ...], view: View, *, undone: bool) -> None:
        """Take note that these pods go (or, undone, do not go) to these rows of the node table."""


class Prepares(Protocol):
    """Called once for each statement, when it is committed, with all members that it placed."""

    def prepares(self, members: tuple[tuple[Pod, int], ...], view: View) -> tuple[VolumeStep, ...]:
        """Return what must be done before these pods, on these rows of the node table, are bound (volumes).

        What is returned counts as taken from then on. An error discards the statement.
        """


class MayEvict(Protocol):
    """Called when room is to be made. Plugins only narrow the set; the answers of all plugins are intersected."""

    def may_evict(self, preemptor: GroupState, victims: tuple[Pod, ...]) -> Opinion:
        """Return `NoOpinion`, or which of the victims may be evicted for this preemptor."""


class OnAllocate(Protocol):
    """Called when members are placed inside a statement, and again with `undone` when the statement is discarded.

    For sums that the plugin keeps for `allows` and `order_queues`; they must start from the snapshot in each session.
    """

    def on_allocate(self, state: GroupState, amounts: Amounts, *, undone: bool) -> None:
        """Add the amounts to (or, undone, take them from) the plugin's own sums."""


class OnSession(Protocol):
    """Called first in each session."""

    def on_session(self, view: View) -> None:
        """Forget what belongs to the previous session."""


HOOKS = (
    "on_session",
    "order_queues",
    "order_groups",
    "order_members",
    "admits",
    "ready",
    "allows",
    "fits",
    "scores",
    "scores_nodes",
    "wishes",
    "sorts",
    "relates",
    "may_evict",
    "on_allocate",
    "on_place",
    "prepares",
)


KEEPS = ("hostPorts", "podAffinity", "spread", "volumes")
"""Rules of a pod's spec that must hold; a pod with one that no configured plugin `keeps` waits and says so."""


class Plugin(Protocol):
    """What every plugin has. Five more attributes are read where present: `volatile` (see above); `spreads`, with
    which a gang's members are laid out evenly over the nodes instead of on as few as possible; `keeps`, those of
    `KEEPS` that the plugin sees to; `counts_owners`, with which snapshots tell where the pods of each controller are;
    and `fair_share`, how past usage of queues counts (`scheduler.framework.usage.FairShare`)."""

    @property
    def name(self) -> str:
        """The name under which it is configured."""
