"""What the io process tells the brain, and what the brain answers: the only words that cross the process border.

Events carry model values, not Kubernetes objects. Order matters only inside one entity; `Synced` comes after every
cache has been listed once, and no session runs before it. `Leading` carries the epoch (the lease's transitions).
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from scheduler.model.bindrequest import BindRequest
from scheduler.model.budgets import DisruptionBudget
from scheduler.model.decisions import (
    Decision,
    Decisions,
    Explain,
    Place,
    SetQueueStatus,
    SetStatus,
    SetTopologyStatus,
)
from scheduler.model.groups import PodGroup
from scheduler.model.nodes import Node
from scheduler.model.pods import Pod, Shape
from scheduler.model.queues import Queue
from scheduler.model.topology import HyperNode, Topology
from scheduler.model.volumes import (
    Attachment,
    Claim,
    NodeDrivers,
    StorageCapacity,
    StorageClass,
    StorageDriver,
    Volume,
)


class _Event(msgspec.Struct, frozen=True, tag=True, array_like=True, gc=False):
    pass


class NodeSet(_Event, frozen=True, tag=True, array_like=True, gc=False):
    """A node appeared or changed."""

    node: Node


class NodeGone(_Event, frozen=True, tag=True, array_like=True, gc=False):
    """A node object was deleted; pods still bound to it keep counting where it re-appears."""

    name: str


class ShapeSet(_Event, frozen=True, tag=True, array_like=True, gc=False):
    """A shape, sent once, before the first pod that refers to it."""

    shape: Shape


class PodSet(_Event, frozen=True, tag=True, array_like=True, gc=False):
    """A pod appeared or changed in something that matters to scheduling."""

    pod: Pod


class PodGone(_Event, frozen=True, tag=True, array_like=True, gc=False):
    """A pod object is gone."""

    uid: str


class GroupSet(_Event, frozen=True, tag=True, array_like=True, gc=False):
    """A group object (or an owner annotated with a minimum) appeared or changed."""

    group: PodGroup


class GroupGone(_Event, frozen=True, tag=True, array_like=True, gc=False):
    """A group object is gone; its running members stay."""

    key: str


class QueueSet(_Event, frozen=True, tag=True, array_like=True, gc=False):
    """A queue appeared or changed."""

    queue: Queue


class QueueGone(_Event, frozen=True, tag=True, array_like=True, gc=False):
    """A queue object is gone."""

    name: str
    dialect: str


class TopologySet(_Event, frozen=True, tag=True, array_like=True, gc=False):
    """A topology appeared or changed."""

    topology: Topology


class TopologyGone(_Event, frozen=True, tag=True, array_like=True, gc=False):
    """A topology object is gone."""

    name: str
    dialect: str


class HyperNodeSet(_Event, frozen=True, tag=True, array_like=True, gc=False):
    """A hyper-node appeared or changed."""

    hypernode: HyperNode


class HyperNodeGone(_Event, frozen=True, tag=True, array_like=True, gc=False):
    """A hyper-node object is gone."""

    name: str
    dialect: str


class PriorityClassSet(_Event, frozen=True, tag=True, array_like=True, gc=False):
    """A PriorityClass appeared or changed."""

    name: str
    value: int
    default: bool = False


class PriorityClassGone(_Event, frozen=True, tag=True, array_like=True, gc=False):
    """A PriorityClass is gone."""

    name: str


class NamespaceSet(_Event, frozen=True, tag=True, array_like=True, gc=False):
    """A namespace with its default queue ("" = none) and its labels."""

    name: str
    queue: str = ""
    labels: tuple[tuple[str, str], ...] = ()


class NamespaceGone(_Event, frozen=True, tag=True, array_like=True, gc=False):
    """A namespace is gone."""

    name: str


class ClaimSet(_Event, frozen=True, tag=True, array_like=True, gc=False):
    """A claim appeared or changed."""

    claim: Claim


class VolumeSet(_Event, frozen=True, tag=True, array_like=True, gc=False):
    """A persistent volume appeared or changed."""

    volume: Volume


class StorageClassSet(_Event, frozen=True, tag=True, array_like=True, gc=False):
    """A storage class appeared or changed."""

    storage_class: StorageClass


class NodeDriversSet(_Event, frozen=True, tag=True, array_like=True, gc=False):
    """The storage drivers of a node appeared or changed."""

    drivers: NodeDrivers


class StorageDriverSet(_Event, frozen=True, tag=True, array_like=True, gc=False):
    """A storage driver appeared or changed."""

    driver: StorageDriver


class CapacitySet(_Event, frozen=True, tag=True, array_like=True, gc=False):
    """How much storage is left somewhere appeared or changed."""

    capacity: StorageCapacity


class AttachmentSet(_Event, frozen=True, tag=True, array_like=True, gc=False):
    """An attachment of a volume to a node appeared or changed."""

    attachment: Attachment


class BudgetSet(_Event, frozen=True, tag=True, array_like=True, gc=False):
    """A disruption budget appeared or changed."""

    budget: DisruptionBudget


class BudgetGone(_Event, frozen=True, tag=True, array_like=True, gc=False):
    """A disruption budget is gone; key is "namespace/name"."""

    key: str


class StorageGone(_Event, frozen=True, tag=True, array_like=True, gc=False):
    """Something of storage is gone. kind: claim, volume, class, node, driver, capacity or attachment."""

    kind: str
    key: str


class RequestSet(_Event, frozen=True, tag=True, array_like=True, gc=False):
    """A BindRequest was written or its status changed; while it is open its placements are assumed."""

    request: BindRequest


class RequestGone(_Event, frozen=True, tag=True, array_like=True, gc=False):
    """A BindRequest object is gone (after its history, or because somebody deleted it)."""

    name: str


class HandoverFailed(_Event, frozen=True, tag=True, array_like=True, gc=False):
    """A decision could not be made durable: nothing of it was bound; its assumptions end."""

    session: str
    groups: tuple[str, ...]
    cause: str


class Synced(_Event, frozen=True, tag=True, array_like=True, gc=False):
    """Every cache has been listed; sessions may run."""


class Leading(_Event, frozen=True, tag=True, array_like=True, gc=False):
    """This replica leads, with this epoch."""

    epoch: int


class ConfigSet(_Event, frozen=True, tag=True, array_like=True, gc=False):
    """The configuration file changed and is valid: the new configuration, as JSON."""

    data: bytes


class DialectSet(_Event, frozen=True, tag=True, array_like=True, gc=False):
    """A dialect's API is served (active) or not."""

    name: str
    active: bool


Event: TypeAlias = (
    NodeSet
    | NodeGone
    | ShapeSet
    | PodSet
    | PodGone
    | GroupSet
    | GroupGone
    | QueueSet
    | QueueGone
    | TopologySet
    | TopologyGone
    | HyperNodeSet
    | HyperNodeGone
    | PriorityClassSet
    | PriorityClassGone
    | NamespaceSet
    | NamespaceGone
    | ClaimSet
    | VolumeSet
    | StorageClassSet
    | NodeDriversSet
    | StorageDriverSet
    | CapacitySet
    | AttachmentSet
    | StorageGone
    | BudgetSet
    | BudgetGone
    | RequestSet
    | RequestGone
    | HandoverFailed
    | Synced
    | Leading
    | DialectSet
)


class Handover(_Event, frozen=True, tag=True, array_like=True, gc=False):
    """The decisions of one session, on their way to the API server, by kind (msgpack has no union of dataclasses)."""

    session: str
    generation: int
    places: tuple[Place, ...] = ()
    statuses: tuple[SetStatus, ...] = ()
    explains: tuple[Explain, ...] = ()
    queue_statuses: tuple[SetQueueStatus, ...] = ()
    topology_statuses: tuple[SetTopologyStatus, ...] = ()

    @staticmethod
    def of(decisions: Decisions) -> Handover:
        """Sort decisions by kind; the order inside a kind is kept."""
        items: tuple[Decision, ...] = decisions.items
        return Handover(
            session=decisions.session,
            generation=decisions.generation,
            places=decisions.places,
            statuses=tuple(item for item in items if isinstance(item, SetStatus)),
            explains=tuple(item for item in items if isinstance(item, Explain)),
            queue_statuses=tuple(item for item in items if isinstance(item, SetQueueStatus)),
            topology_statuses=tuple(item for item in items if isinstance(item, SetTopologyStatus)),
        )


class SessionDone(_Event, frozen=True, tag=True, array_like=True, gc=False):
    """Figures of a session for metrics: seconds by action, counters by (name, labels as text), overcommitted nodes."""

    session: str
    seconds: dict[str, float]
    counters: dict[str, float]
    overcommitted: int = 0


class SnapshotReply(_Event, frozen=True, tag=True, array_like=True, gc=False):
    """A pickled snapshot (with its configuration), in answer to a request of the debug port."""

    data: bytes


class SnapshotAsk(_Event, frozen=True, tag=True, array_like=True, gc=False):
    """The debug port asks the brain for its snapshot."""


class PageAsk(_Event, frozen=True, tag=True, array_like=True, gc=False):
    """Somebody looks at the page. view: which part of it, with its arguments; number: comes back with the answer."""

    number: int
    view: str
    arguments: dict[str, str]


class PageReply(_Event, frozen=True, tag=True, array_like=True, gc=False):
    """What is shown, encoded as the view has it; b"": there has been no session, or (`fault`) it could not be made."""

    number: int
    data: bytes = b""
    fault: str = ""


class Ping(_Event, frozen=True, tag=True, array_like=True, gc=False):
    """Whether the brain still answers."""


class Pong(_Event, frozen=True, tag=True, array_like=True, gc=False):
    """It does."""


class Stop(_Event, frozen=True, tag=True, array_like=True, gc=False):
    """Finish and exit."""


ToBrain: TypeAlias = Event | ConfigSet | SnapshotAsk | PageAsk | Ping | Stop
FromBrain: TypeAlias = Handover | SessionDone | SnapshotReply | PageReply | Pong

to_brain = msgspec.msgpack.Decoder(list[ToBrain])
from_brain = msgspec.msgpack.Decoder(list[FromBrain])
encode = msgspec.msgpack.Encoder().encode
