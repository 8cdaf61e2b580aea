"""The whole output of the brain: a tuple of values that the edge performs.

`Place` holds a gang's minimum or one smaller decision above it (elastic surplus, repair), never part of a minimum.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from scheduler.model.podvolumes import VolumeStep
from scheduler.model.queues import QueueFacts
from scheduler.model.resources import Amounts
from scheduler.model.topology import TopologyFacts
from scheduler.model.verdict import Verdict


@dataclass(frozen=True, slots=True)
class Mark:
    """What is written on a pod when it is bound: its rank in its gang (-1 = it has an index of its own), and (level,
    name) of the domains of its node that its gang asked about."""

    rank: int = -1
    domains: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Assignment:
    """One pod on one node."""

    uid: str
    namespace: str
    pod: str
    node: str
    mark: Mark | None = None


@dataclass(frozen=True, slots=True)
class Victim:
    """A running pod that must go before the placement that it is named in can be bound.

    group: the key of its group, holder: the name under which people know it. why: preempt, reclaim, consolidate or
    drain. grace: seconds that it is given to end. move_to: the node where room is kept for the pod that its controller
    makes in its place ("" = it is lost), with the uid of that controller and what the pod asks for.
    """

    uid: str
    namespace: str
    pod: str
    node: str
    group: str
    holder: str = ""
    why: str = "preempt"
    grace: int = 30
    move_to: str = ""
    owner: str = ""
    requests: Amounts = ()


@dataclass(frozen=True, slots=True)
class Place:
    """Bind these members together. `minimum` of them must be bound or all are unwound (0: each stands alone).

    steps: what must be done, for all members, before the first of them is bound. victims: who must be gone before; they
    are evicted for this placement and for nothing else. queue: name of the leaf queue that was asked and is charged;
    "" = not told.
    """

    group: str
    group_uid: str
    namespace: str
    name: str
    api_version: str
    kind: str
    minimum: int
    assignments: tuple[Assignment, ...]
    steps: tuple[VolumeStep, ...] = ()
    victims: tuple[Victim, ...] = ()
    queue: str = ""


@dataclass(frozen=True, slots=True)
class Drain:
    """Evict these pods of a queue that is being drained (its state says so); nothing is placed for it."""

    queue: str
    victims: tuple[Victim, ...]

    def as_place(self) -> Place:
        """Return it as a placement of nobody, which is how it is handed over."""
        return Place(f"queue/{self.queue}", "", "", self.queue, "", "Queue", 0, (), victims=self.victims)


@dataclass(frozen=True, slots=True)
class SetQueueStatus:
    """What the status of a queue's object should say; the dialect turns it into its own words."""

    queue: str
    uid: str
    dialect: str
    facts: QueueFacts


@dataclass(frozen=True, slots=True)
class SetTopologyStatus:
    """What the status of a topology's (or hyper-node's) object should say; the dialect puts it into its own words.

    generation: of the object that was looked at.
    """

    name: str
    uid: str
    dialect: str
    hypernode: bool
    facts: TopologyFacts
    generation: int = 0


@dataclass(frozen=True, slots=True)
class QueuePlace:
    """Where a group stands in its queue. position: from 1; exact only while `exact`, else at most so far back.

    ahead: the first groups before it ("namespace/name"), the next to be served first, and how many `more` there are;
    none where the position is not exact.
    """

    queue: str
    position: int
    exact: bool = True
    ahead: tuple[str, ...] = ()
    more: int = 0


@dataclass(frozen=True, slots=True)
class LayoutFacts:
    """How many members of a group, or of a sub-group (its path), are in each domain of a level."""

    level: str
    subgroup: str
    members: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class SetStatus:
    """What the status of a group's object should say; the dialect turns it into its own words.

    phase: Pending, Inqueue, Scheduling, Running, Degraded, Completed, Failed or Unknown (neutral words).
    counts: (name, number) for desired, existing, gated, bound, running, succeeded, failed.
    verdict: why it waits; None when it does not. `uid` guards against an object re-created under the name.
    nodes: on how many its members are. domains: (level, names) of the levels that it asks about. Both are told of
    groups that ask about any.
    place: where it stands among those that wait for room or quota; None where it is not one of them.
    layout: of levels that it is shared evenly over.
    """

    group: str
    uid: str
    phase: str
    counts: tuple[tuple[str, int], ...] = ()
    verdict: Verdict | None = None
    nodes: int = 0
    domains: tuple[tuple[str, tuple[str, ...]], ...] = ()
    place: QueuePlace | None = None
    layout: tuple[LayoutFacts, ...] = ()


@dataclass(frozen=True, slots=True)
class Explain:
    """Why members wait: the PodScheduled condition of each pod in `pods` (uids), and one event for the group."""

    group: str
    verdict: Verdict
    pods: tuple[str, ...] = ()


Decision: TypeAlias = Place | Drain | SetStatus | SetQueueStatus | SetTopologyStatus | Explain


@dataclass(frozen=True, slots=True)
class Decisions:
    """What one session decided, in the order in which it was decided."""

    session: str
    generation: int
    items: tuple[Decision, ...] = ()

    @property
    def places(self) -> tuple[Place, ...]:
        """Return what is bound or evicted, in order; a queue that is drained is a placement of nobody."""
        found = (item.as_place() if isinstance(item, Drain) else item for item in self.items)
        return tuple(item for item in found if isinstance(item, Place))
