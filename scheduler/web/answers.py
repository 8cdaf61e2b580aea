"""What the session process answers to the page, as values: each answer is as large as what one page shows.

Must not know HTML, nor what a session is. Amounts are in the units of the model; times are seconds since the epoch.
A verdict crosses as it is: its words are made where it is shown.
"""

from __future__ import annotations

import msgspec

from scheduler.model.floorplan import Picture
from scheduler.model.pods import Condition, Problem
from scheduler.model.resources import Amounts
from scheduler.model.shares import Share
from scheduler.model.verdict import Verdict

GANGS, MEMBERS, NODES, GUESTS = 50, 100, 100, 100
"""Groups, members of one, nodes, and pods of one on a page of a list."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What every answer says first: the session it is about and when that began."""

    session: str
    now: float


class Place(msgspec.Struct, frozen=True):
    """Where a group stands, from 1: in its queue, among all. ahead: of its queue, the next to be served first."""

    in_queue: int
    of_queue: int
    in_all: int
    of_all: int
    ahead: tuple[str, ...] = ()

    @property
    def more(self) -> int:
        """How many are ahead in the queue and not named."""
        return self.in_queue - 1 - len(self.ahead)


class GangRow(msgspec.Struct, frozen=True):
    """A group in a list. phase: in the words of its status. wants: of the members that wait, held: of those placed."""

    key: str
    namespace: str
    name: str
    dialect: str
    queue: str
    priority: int
    phase: str
    created: float
    minimum: int
    existing: int
    placed: int
    waiting: int
    gated: int
    wants: Amounts
    held: Amounts
    nodes: int
    why: Verdict | None = None
    place: Place | None = None


class QueueRow(msgspec.Struct, frozen=True):
    """A queue of the tree. groups that wait, and that run, are those of the queue and all below it."""

    name: str
    parent: str
    depth: int
    state: str
    priority: int
    fault: str
    waiting: int
    running: int
    shares: tuple[Share, ...] = ()


class Total(msgspec.Struct, frozen=True):
    """A resource over the whole cluster."""

    resource: str
    total: int
    used: int


class Overview(Answer, frozen=True, kw_only=True):
    """The first page. resource: the one whose shares are shown; queues: at most so many as were asked for, of `many`.

    phases: (phase, groups). waiting: the first in order, of `pending`.
    """

    resource: str
    totals: tuple[Total, ...]
    nodes: int
    barred: int
    phases: tuple[tuple[str, int], ...]
    queues: tuple[QueueRow, ...]
    many: int
    waiting: tuple[GangRow, ...]
    pending: int


class GangList(Answer, frozen=True, kw_only=True):
    """Groups that pass a filter, one page of `many`. queues, namespaces: what there is to choose from."""

    rows: tuple[GangRow, ...]
    many: int
    first: int
    queues: tuple[str, ...]
    namespaces: tuple[str, ...]


class Member(msgspec.Struct, frozen=True):
    """A member of a group. state: waiting, gated, on its way, bound, ...; place: the domains of its node, widest
    first."""

    name: str
    rank: int
    part: str
    state: str
    phase: str
    node: str
    place: tuple[str, ...] = ()
    reason: str = ""
    since: float = 0.0


class Want(msgspec.Struct, frozen=True):
    """A resource that waiting members ask for, and who holds most of it and stays. free: on all nodes
    that take pods; largest: on one; total: on all."""

    resource: str
    wanted: int
    free: int
    total: int
    largest: int
    holders: tuple[tuple[str, int, str], ...]
    """Who, how much, and "namespace/name" of the group that it is ("" = it is none)."""


class Level(msgspec.Struct, frozen=True):
    """A queue of a group's line, with its next members counted in; over: by how much more than it is owed."""

    queue: str
    within: bool
    over: Amounts
    priority: int
    share: float | None


class Gang(Answer, frozen=True, kw_only=True):
    """One group. decided: what this session placed of it; order, obstacles: as `muster why` words them.

    wishes: what it asks of the topology, in words. members: the first, of `many`.
    """

    row: GangRow
    kind: str
    api_version: str
    decided: str
    order: str
    obstacles: tuple[str, ...]
    levels: tuple[Level, ...]
    wants: tuple[Want, ...]
    wishes: tuple[str, ...]
    conditions: tuple[Condition, ...]
    problems: tuple[Problem, ...]
    members: tuple[Member, ...]
    many: int
    first: int
    others: tuple[str, ...] = ()
    """Keys of other groups of this name."""


class QueuePage(Answer, frozen=True, kw_only=True):
    """One queue, with the path to it from the root, what is below it (by `resource`), and its groups."""

    row: QueueRow
    resource: str
    path: tuple[str, ...]
    settings: tuple[tuple[str, str], ...]
    children: tuple[QueueRow, ...]
    waiting: tuple[GangRow, ...]
    pending: int
    running: tuple[GangRow, ...]
    runs: int


class Amount(msgspec.Struct, frozen=True):
    """A resource of one node."""

    resource: str
    total: int
    used: int


class NodeRow(msgspec.Struct, frozen=True):
    """A node in a list. place: its domains, widest first. state: ready; else why nothing is put there."""

    name: str
    place: tuple[str, ...]
    state: str
    taints: tuple[str, ...]
    pods: int
    slots: int
    amounts: tuple[Amount, ...]


class NodeList(Answer, frozen=True, kw_only=True):
    """Nodes that pass a filter, one page of `many`. topology: whose domains are told; levels: its levels.

    domains: (level, domain) to choose from, as many as are worth a list. pools: (label, value) of labels that name
    pools. totals: of what passes.
    """

    rows: tuple[NodeRow, ...]
    many: int
    first: int
    topology: str
    topologies: tuple[str, ...]
    levels: tuple[str, ...]
    domains: tuple[tuple[str, str], ...]
    pools: tuple[tuple[str, str], ...]
    totals: tuple[Total, ...]
    barred: int


class Guest(msgspec.Struct, frozen=True):
    """A pod on a node. group: "namespace/name" of its group ("" = it stands alone); state: as of members."""

    namespace: str
    name: str
    group: str
    queue: str
    state: str
    holds: Amounts
    since: float


class NodePage(Answer, frozen=True, kw_only=True):
    """One node. guests: the first of `many` pods that are known one by one; others: pods of other schedulers."""

    row: NodeRow
    levels: tuple[str, ...]
    labels: tuple[tuple[str, str], ...]
    guests: tuple[Guest, ...]
    many: int
    first: int
    others: int


class Wiring(Answer, frozen=True, kw_only=True):
    """The topologies that there are, the resources that nodes have, and the picture of one (None: there is none)."""

    topologies: tuple[str, ...]
    resources: tuple[str, ...]
    picture: Picture | None


class Nothing(Answer, frozen=True, kw_only=True):
    """What was asked for is not there."""

    message: str
