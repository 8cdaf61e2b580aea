"""PodGroups as every dialect reads them, and the state of a group's members.

Identity is the uid; `key` ("dialect/namespace/name") is only how members name their group. A group of one has no
object: its key is "pod/namespace/uid" and it is made from the pod. A group by owner annotation has the key
"owner/namespace/owner uid".
"""

from __future__ import annotations

from dataclasses import dataclass

from scheduler.model.affinity import LabelSelector
from scheduler.model.pods import Condition, Pod, Problem
from scheduler.model.resources import Amounts
from scheduler.model.verdict import Code, Verdict
from scheduler.model.wishes import TopologyWish


@dataclass(frozen=True, slots=True)
class RoleMinimum:
    """At least `count` members of role `name` must start together with the rest."""

    name: str
    count: int


@dataclass(frozen=True, slots=True)
class SubGroup:
    """A part of a gang with a minimum of its own; it has either members or sub-groups.

    path: its name behind those of the sub-groups above it, joined by "/". min_member: of a part with members.
    min_subgroups: how many of its sub-groups (with `keys`: of the parts that it stands for) start together, None = all.
    selector: which members are its; None = with `keys` all, else those whose role is its name or its path. keys:
    labels; it stands for one part for each tuple of their values, and members without them are not its; `min_member`
    and `topology` are those of each such part. `field` is its path in the object.
    """

    path: str
    min_member: int = 0
    min_subgroups: int | None = None
    selector: LabelSelector | None = None
    keys: tuple[str, ...] = ()
    topology: TopologyWish | None = None
    field: str = ""

    @property
    def name(self) -> str:
        """The last part of its path."""
        return self.path.rpartition("/")[2]

    @property
    def above(self) -> str:
        """The path of the sub-group above it, "" = the group itself."""
        return self.path.rpartition("/")[0]


@dataclass(frozen=True, slots=True)
class PodGroup:
    """A gang as read from its object (or made for a pod or an owner that has none).

    `problems` non-empty: the group waits as Misconfigured and nothing else is believed. `was_running`: its status says
    that it once reached its minimum. `phase` and `conditions` are those last read, so that only changes are written.
    `counts` are those last written. `raw_status` is the status as read, verbatim: only its dialect looks into it.
    `created` is in seconds since the epoch. `generation` is metadata.generation.
    `moves_whole`: when a lost member has no place that keeps its rules about domains, all of it may be moved.
    `suspended`: the field of its object that says that nothing of it starts ("" = none).
    `min_runtime`: seconds for which it is not evicted once it runs (None: as its queue says). `evicts_after`: seconds
    for which it waits before anybody is evicted or moved for it.
    subgroups: all of the tree, each behind the one above it, siblings in their author's order. min_subgroups: how many
    of the outermost start together, None = all. In the state of a group those with `keys` have been replaced by the
    parts that they stand for (below them), and each member's `part` is the path of its own; `unmatched`: (path, field)
    of those that say which members are theirs and have none, though there are members.
    made_for: uid of the owner for which the grouping controller made the object, "" = somebody else made it.
    """

    key: str
    uid: str
    dialect: str
    namespace: str
    name: str
    api_version: str = ""
    kind: str = "PodGroup"
    min_member: int = 1
    roles: tuple[RoleMinimum, ...] = ()
    min_resources: Amounts = ()
    queue: str = ""
    priority_class: str = ""
    preemptible: bool | None = None
    suspended: str = ""
    moves_whole: bool = False
    min_runtime: float | None = None
    evicts_after: float = 0.0
    topology: TopologyWish | None = None
    subgroups: tuple[SubGroup, ...] = ()
    min_subgroups: int | None = None
    unmatched: tuple[tuple[str, str], ...] = ()
    created: float = 0.0
    generation: int = 0
    phase: str = ""
    was_running: bool = False
    conditions: tuple[Condition, ...] = ()
    counts: tuple[tuple[str, int], ...] = ()
    problems: tuple[Problem, ...] = ()
    deleting: bool = False
    resource_version: str = ""
    raw_status: bytes = b""
    made_for: str = ""

    @property
    def has_object(self) -> bool:
        """Whether there is an object whose status can be written."""
        return self.dialect not in ("pod", "owner")


@dataclass(frozen=True, slots=True)
class GroupState:
    """A group with its members, as of one snapshot; each member is in exactly one tuple, sorted by (index, name).

    waiting: may be placed now. gated: scheduling gates. assumed: placed, bind not confirmed. bound: on a node, alive.
    terminating: being deleted (bound or not). succeeded / failed: ended. `priority` is resolved. `missing_object`: the
    members name an object that does not exist. `ever_ran`: the minimum was once reached. `starting`: a request that
    binds its minimum has not ended yet; should it fail, what it bound is unwound. `held`: why nothing of it is placed
    for a while, after a bind that failed for a reason that no other node would cure. `foreign`: pods that name
    the group and another scheduler; they are no members. `strays`: would be waiting, but name a sub-group that is not
    there. `left`: former members that are gone and whose rank nobody has; on the node on which they were.
    """

    group: PodGroup
    priority: int = 0
    queue: str = ""
    waiting: tuple[Pod, ...] = ()
    gated: tuple[Pod, ...] = ()
    assumed: tuple[Pod, ...] = ()
    bound: tuple[Pod, ...] = ()
    terminating: tuple[Pod, ...] = ()
    succeeded: tuple[Pod, ...] = ()
    failed: tuple[Pod, ...] = ()
    missing_object: bool = False
    ever_ran: bool = False
    starting: bool = False
    held: Verdict | None = None
    foreign: int = 0
    strays: tuple[Pod, ...] = ()
    left: tuple[Pod, ...] = ()

    @property
    def key(self) -> str:
        """The group's key."""
        return self.group.key

    @property
    def placed(self) -> int:
        """Members that count toward the minimum: assumed, bound or succeeded."""
        return len(self.assumed) + len(self.bound) + len(self.succeeded)

    @property
    def evicts_from(self) -> float:
        """When others may go for it: so long after it, or what waits of it, was made; 0: at any time."""
        delay = self.group.evicts_after
        made = min((pod.created for pod in self.waiting), default=0.0)
        return max(self.group.created, made) + delay if delay else 0.0

    @property
    def existing(self) -> int:
        """Members that exist and have not ended in failure."""
        return self.placed + len(self.waiting) + len(self.gated)


STRAY = frozenset({Code.QUEUE_NOT_FOUND, Code.MISCONFIGURED})
"""Reasons of the condition of a group that runs, although its queue takes no part."""


def said_of_stray(condition: Condition) -> bool:
    """Whether a condition says that a group runs in a queue that takes no part."""
    return (condition.type, condition.status) == ("Scheduled", "True") and condition.reason in STRAY
