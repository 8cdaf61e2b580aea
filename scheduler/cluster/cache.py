"""The io process' picture of the cluster: the model values as last read, and the events that say how it changed.

Decided here: what counts as a change (a different value, the resource version aside), the order of events (a shape
before the first pod that uses it, the end of an old group before the start of a new one of its name), and how they are
batched (all of one turn of the event loop together). Must not know: JSON, HTTP, or what anybody does with the events.
Invariant: `replay` followed by the events after it gives the same picture as having listened from the start.

Used from the event loop only. A value in here is at least as new as any event that a subscriber has received.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Any, Generic, Protocol, TypeVar

from scheduler.cluster import feed
from scheduler.cluster.members import queue_of
from scheduler.model.bindrequest import BindRequest
from scheduler.model.budgets import DisruptionBudget
from scheduler.model.groups import PodGroup
from scheduler.model.nodes import Node
from scheduler.model.pods import Pod, Shape
from scheduler.model.queues import Queue
from scheduler.model.selecting import selects
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

Subscriber = Callable[[list[feed.Event]], None]


class Named(Protocol):
    """What every value that is kept has."""

    @property
    def uid(self) -> str:
        """Identity."""

    @property
    def resource_version(self) -> str:
        """Version as last read."""


V = TypeVar("V", bound=Named)


@dataclass(frozen=True, slots=True)
class PriorityClass:
    """A PriorityClass as kept here."""

    name: str
    uid: str
    value: int
    default: bool = False
    resource_version: str = ""


@dataclass(frozen=True, slots=True)
class Namespace:
    """A Namespace with the queue that its annotation names ("" = none), and its labels."""

    name: str
    uid: str
    queue: str = ""
    labels: tuple[tuple[str, str], ...] = ()
    resource_version: str = ""


def _content(kind: type[Any]) -> Callable[[Any], Any]:
    """Return a function that gives a value without its resource version, for comparison."""
    return attrgetter(*(item.name for item in fields(kind) if item.name != "resource_version"))


class Shelf(Generic[V]):
    """Values of one kind by key, filled by uid as a reflector does. A sink for `Reflector`.

    key: the key of a value. came, went: the events for it. When a value takes the key of one with another uid, the old
    one goes first; a late `drop` of the old uid then does nothing.
    """

    def __init__(
        self,
        kind: type[V],
        key: Callable[[V], str],
        emit: Callable[[feed.Event], None],
        came: Callable[[V], feed.Event],
        went: Callable[[V], feed.Event],
    ) -> None:
        self.by_key: dict[str, V] = {}
        self._key_of: dict[str, str] = {}
        self._key = key
        self._emit = emit
        self._came = came
        self._went = went
        self._content = _content(kind)

    def put(self, value: V) -> None:
        """Keep a value; an event follows if it differs in more than its resource version."""
        key = self._key(value)
        before = self._key_of.get(value.uid)
        if before is not None and before != key:
            self.drop(value.uid)
        old = self.by_key.get(key)
        if old is not None and old.uid != value.uid:
            self.drop(old.uid)
            old = None
        self.by_key[key] = value
        self._key_of[value.uid] = key
        if old is None or self._content(old) != self._content(value):
            self._emit(self._came(value))

    def drop(self, uid: str) -> None:
        """Forget a value."""
        key = self._key_of.pop(uid, None)
        if key is not None:
            self._emit(self._went(self.by_key.pop(key)))

    def events(self) -> list[feed.Event]:
        """Everything that is kept, as events in the order of the keys."""
        return [self._came(self.by_key[key]) for key in sorted(self.by_key)]


class PodShelf:
    """Pods by uid and their shapes, each shape once. A sink for a reflector of (pod, shape).

    Strings that many pods share are interned and equal pods share their shape's key, so that a pod costs about 1 kB.
    """

    def __init__(self, emit: Callable[[feed.Event], None]) -> None:
        self.pods: dict[str, Pod] = {}
        self.shapes: dict[str, Shape] = {}
        self._users: dict[str, int] = {}
        self._emit = emit
        self._content = _content(Pod)

    def put(self, value: tuple[Pod, Shape]) -> None:
        """Keep a pod; events follow as for `Shelf`, with the shape's first if nobody has used it."""
        pod, shape = value
        old = self.pods.get(pod.uid)
        _share(pod)
        if old is not None and self._content(old) == self._content(pod):
            self.pods[pod.uid] = pod
            return
        if old is None or old.shape != pod.shape:
            self._use(shape)
        self.pods[pod.uid] = pod
        self._emit(feed.PodSet(pod))
        if old is not None and old.shape != pod.shape:
            self._leave(old.shape)

    def drop(self, uid: str) -> None:
        """Forget a pod."""
        old = self.pods.pop(uid, None)
        if old is not None:
            self._emit(feed.PodGone(uid))
            self._leave(old.shape)

    def _use(self, shape: Shape) -> None:
        if shape.key not in self._users:
            self.shapes[shape.key] = shape
            self._emit(feed.ShapeSet(shape))
        self._users[shape.key] = self._users.get(shape.key, 0) + 1

    def _leave(self, key: str) -> None:
        # A shape without pods is forgotten here; should it come back it is simply sent again.
        self._users[key] -= 1
        if self._users[key] == 0:
            del self._users[key]
            del self.shapes[key]

    def events(self) -> list[feed.Event]:
        """Everything that is kept, as events: shapes, then pods by uid."""
        shapes: list[feed.Event] = [feed.ShapeSet(self.shapes[key]) for key in sorted(self.shapes)]
        return [*shapes, *(feed.PodSet(self.pods[uid]) for uid in sorted(self.pods))]


_SHARED = (
    "namespace",
    "shape",
    "node",
    "phase",
    "group",
    "role",
    "queue",
    "nominated",
    "scheduler_name",
    "owner_api",
    "owner_kind",
    "owner_name",
    "owner_uid",
    "status_reason",
)


def _share(pod: Pod) -> None:
    """Replace strings that other pods have too by the one copy of them.

    The value stays equal, which is why this may be done to a frozen one; a second copy would cost more than it saves.
    """
    for name in _SHARED:
        text = getattr(pod, name)
        if text:
            object.__setattr__(pod, name, sys.intern(text))


class StorageShelves:
    """Everything of storage; each is a sink for a reflector."""

    def __init__(self, emit: Callable[[feed.Event], None]) -> None:
        gone = feed.StorageGone
        self.classes = Shelf[StorageClass](
            StorageClass, lambda one: one.name, emit, feed.StorageClassSet, lambda one: gone("class", one.name)
        )
        self.drivers = Shelf[StorageDriver](
            StorageDriver, lambda one: one.name, emit, feed.StorageDriverSet, lambda one: gone("driver", one.name)
        )
        self.node_drivers = Shelf[NodeDrivers](
            NodeDrivers, lambda one: one.node, emit, feed.NodeDriversSet, lambda one: gone("node", one.node)
        )
        self.capacities = Shelf[StorageCapacity](
            StorageCapacity, lambda one: one.key, emit, feed.CapacitySet, lambda one: gone("capacity", one.key)
        )
        self.attachments = Shelf[Attachment](
            Attachment, lambda one: one.name, emit, feed.AttachmentSet, lambda one: gone("attachment", one.name)
        )
        self.volumes = Shelf[Volume](
            Volume, lambda one: one.name, emit, feed.VolumeSet, lambda one: gone("volume", one.name)
        )
        self.claims = Shelf[Claim](Claim, lambda one: one.key, emit, feed.ClaimSet, lambda one: gone("claim", one.key))

    def _all(self) -> dict[str, Shelf[Any]]:
        return {
            "storageclasses": self.classes,
            "csidrivers": self.drivers,
            "csinodes": self.node_drivers,
            "csistoragecapacities": self.capacities,
            "volumeattachments": self.attachments,
            "persistentvolumes": self.volumes,
            "persistentvolumeclaims": self.claims,
        }

    def sizes(self) -> dict[str, int]:
        """How many of each kind, for metrics."""
        return {name: len(shelf.by_key) for name, shelf in self._all().items()}

    def events(self) -> list[feed.Event]:
        """Everything that is kept, as events."""
        return [event for shelf in self._all().values() for event in shelf.events()]


class Cache:
    """See the module. `pods`, `nodes`, ... are sinks for reflectors; the methods are for everybody else."""

    def __init__(self) -> None:
        self._pending: list[feed.Event] = []
        self._subscribers: list[Subscriber] = []
        self._scheduled = False
        self._dialects: dict[str, bool] = {}
        self.synced = False
        self.failure: Exception | None = None
        self.failed = asyncio.Event()
        """Set, with the `failure`, when a subscriber raised: the process must end."""
        self.pods = PodShelf(self.emit)
        self.nodes = Shelf[Node](
            Node, lambda node: node.name, self.emit, feed.NodeSet, lambda node: feed.NodeGone(node.name)
        )
        self.groups = Shelf[PodGroup](
            PodGroup, lambda group: group.key, self.emit, feed.GroupSet, lambda group: feed.GroupGone(group.key)
        )
        self.queues = Shelf[Queue](
            Queue,
            lambda queue: f"{queue.dialect}/{queue.name}",
            self.emit,
            feed.QueueSet,
            lambda queue: feed.QueueGone(queue.name, queue.dialect),
        )
        self.topologies = Shelf[Topology](
            Topology,
            lambda one: f"{one.dialect}/{one.name}",
            self.emit,
            feed.TopologySet,
            lambda one: feed.TopologyGone(one.name, one.dialect),
        )
        self.hypernodes = Shelf[HyperNode](
            HyperNode,
            lambda one: f"{one.dialect}/{one.name}",
            self.emit,
            feed.HyperNodeSet,
            lambda one: feed.HyperNodeGone(one.name, one.dialect),
        )
        self.priority_classes = Shelf[PriorityClass](
            PriorityClass,
            lambda item: item.name,
            self.emit,
            lambda item: feed.PriorityClassSet(item.name, item.value, item.default),
            lambda item: feed.PriorityClassGone(item.name),
        )
        self.namespaces = Shelf[Namespace](
            Namespace,
            lambda item: item.name,
            self.emit,
            lambda item: feed.NamespaceSet(item.name, item.queue, item.labels),
            lambda item: feed.NamespaceGone(item.name),
        )
        self.storage = StorageShelves(self.emit)
        self.budgets = Shelf[DisruptionBudget](
            DisruptionBudget,
            lambda budget: budget.key,
            self.emit,
            feed.BudgetSet,
            lambda budget: feed.BudgetGone(budget.key),
        )
        self.bind_requests = Shelf[BindRequest](
            BindRequest,
            lambda request: request.name,
            self.emit,
            feed.RequestSet,
            lambda request: feed.RequestGone(request.name),
        )

    # -- what is in it --------------------------------------------------------------------------------------------

    def pod(self, uid: str) -> Pod | None:
        """The pod with this uid, or None."""
        return self.pods.pods.get(uid)

    def shape(self, key: str) -> Shape | None:
        """The shape with this key, while some pod uses it."""
        return self.pods.shapes.get(key)

    def node(self, name: str) -> Node | None:
        """The node of this name, or None."""
        return self.nodes.by_key.get(name)

    def group(self, key: str) -> PodGroup | None:
        """The group with this key, or None."""
        return self.groups.by_key.get(key)

    def claim(self, key: str) -> Claim | None:
        """The claim "namespace/name", or None."""
        return self.storage.claims.by_key.get(key)

    def volume(self, name: str) -> Volume | None:
        """The persistent volume of this name, or None."""
        return self.storage.volumes.by_key.get(name)

    def queue(self, dialect: str, name: str) -> Queue | None:
        """The queue of this name in a dialect, or None."""
        return self.queues.by_key.get(f"{dialect}/{name}")

    def queue_of(self, group: PodGroup | None, members: Sequence[Pod]) -> str:
        """The name of the queue that members of a group are charged to; there need not be one of that name."""
        return queue_of(group, members, self._queue_of_namespace)

    def _queue_of_namespace(self, name: str, default: str) -> str:
        found = self.namespaces.by_key.get(name)
        return found.queue if found is not None else default

    def topology(self, dialect: str, name: str) -> Topology | None:
        """The topology of this name in a dialect, or None."""
        return self.topologies.by_key.get(f"{dialect}/{name}")

    def hypernode(self, dialect: str, name: str) -> HyperNode | None:
        """The hyper-node of this name in a dialect, or None."""
        return self.hypernodes.by_key.get(f"{dialect}/{name}")

    def bind_request(self, name: str) -> BindRequest | None:
        """The bind request of this name, or None."""
        return self.bind_requests.by_key.get(name)

    def requests(self) -> tuple[BindRequest, ...]:
        """All bind requests, by name."""
        return tuple(self.bind_requests.by_key[name] for name in sorted(self.bind_requests.by_key))

    @property
    def dialects(self) -> Mapping[str, bool]:
        """Name -> whether it is active."""
        return self._dialects

    def sizes(self) -> dict[str, int]:
        """How many of each kind, for metrics."""
        return {
            "pods": len(self.pods.pods),
            "shapes": len(self.pods.shapes),
            "nodes": len(self.nodes.by_key),
            "groups": len(self.groups.by_key),
            "queues": len(self.queues.by_key),
            "topologies": len(self.topologies.by_key),
            "hypernodes": len(self.hypernodes.by_key),
            "priorityclasses": len(self.priority_classes.by_key),
            "namespaces": len(self.namespaces.by_key),
            "bindrequests": len(self.bind_requests.by_key),
            "poddisruptionbudgets": len(self.budgets.by_key),
            **self.storage.sizes(),
        }

    # -- events ---------------------------------------------------------------------------------------------------

    def set_dialect(self, name: str, *, active: bool) -> None:
        """Note that a dialect's API is served and read, or not."""
        if self._dialects.get(name) != active:
            self._dialects[name] = active
            self.emit(feed.DialectSet(name, active))

    def mark_synced(self) -> None:
        """Say, once, that everything has been listed."""
        if not self.synced:
            self.synced = True
            self.emit(feed.Synced())

    def emit(self, event: feed.Event) -> None:
        """Queue an event for all subscribers; it leaves with the others of this turn of the loop."""
        if not self._subscribers:
            return
        self._pending.append(event)
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self.flush)

    def flush(self) -> None:
        """Deliver what is queued now."""
        self._scheduled = False
        if self._pending:
            batch, self._pending = self._pending, []
            for subscriber in tuple(self._subscribers):
                try:
                    subscriber(batch)
                except Exception as error:
                    # It has missed a batch and its picture is wrong from here on: nobody may go on with it.
                    self.failure = self.failure or error
                    self.failed.set()
                    raise

    def subscribe(self, callback: Subscriber, *, replay: bool = True) -> Callable[[], None]:
        """Call `callback` with each batch from now on, first (before this returns) with the current state.

        The lists are shared between subscribers: do not change them. Returns the function that ends the subscription.
        """
        self.flush()
        if replay:
            callback(self.replay())
        self._subscribers.append(callback)

        def unsubscribe() -> None:
            if callback in self._subscribers:
                self._subscribers.remove(callback)

        return unsubscribe

    def guarded(self, pod: Pod) -> bool:
        """Whether a disruption budget covers a pod; its eviction then asks the budget."""
        labels = dict(pod.labels)
        return any(
            budget.namespace == pod.namespace and budget.selector is not None and selects(budget.selector, labels)
            for budget in self.budgets.by_key.values()
        )

    def replay(self) -> list[feed.Event]:
        """Return the current state as events, in an order in which nothing refers to what comes later."""
        parts: Iterable[list[feed.Event]] = (
            [feed.DialectSet(name, active) for name, active in sorted(self._dialects.items())],
            self.namespaces.events(),
            self.priority_classes.events(),
            self.queues.events(),
            self.topologies.events(),
            self.hypernodes.events(),
            self.nodes.events(),
            self.storage.events(),
            self.budgets.events(),
            self.groups.events(),
            self.pods.events(),
            self.bind_requests.events(),
            [feed.Synced()] if self.synced else [],
        )
        return [event for part in parts for event in part]
