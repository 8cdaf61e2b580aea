"""A frozen picture of the cluster for one session.

Arrays are resource-major and read only; the node order is by name, so that the same cluster gives the same rows in
whatever order its events came. Picklable: a snapshot on disk replays the session.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from scheduler.model.budgets import DisruptionBudget
from scheduler.model.groups import GroupState
from scheduler.model.nodes import Node, NodeClass
from scheduler.model.pods import Pod, Shape
from scheduler.model.presence import Presence
from scheduler.model.queues import Queue
from scheduler.model.resources import Amounts
from scheduler.model.topology import HyperNode, Topology
from scheduler.model.volumes import NO_STORAGE, Storage


@dataclass(frozen=True, slots=True, eq=False)
class NodeTable:
    """Nodes as rows: R resources by N nodes, int64.

    names: N, sorted. resources: R names. allocatable, used: (R, N). slots, pods: (N,) pod slots and pods that count.
    unstated: (2, N) what scores count besides `used`, of cpu and of memory. class_of: (N,) index into classes. nodes:
    name -> Node.
    """

    names: tuple[str, ...]
    resources: tuple[str, ...]
    allocatable: NDArray[np.int64]
    used: NDArray[np.int64]
    slots: NDArray[np.int64]
    pods: NDArray[np.int64]
    unstated: NDArray[np.int64]
    class_of: NDArray[np.int32]
    classes: tuple[NodeClass, ...]
    nodes: Mapping[str, Node]


@dataclass(frozen=True, slots=True)
class NoGood:
    """A (pod, node) that the binder or a kubelet refused; not tried again before `until` (seconds since the epoch).

    uid "" means every pod of `shape`.
    """

    node: str
    until: float
    cause: str
    uid: str = ""
    shape: str = ""


@dataclass(frozen=True, slots=True)
class Hold:
    """Room for one pod that is kept on a node, until a time, for what a controller makes in place of an evicted pod.

    owner: uid of the controller. group: key of the group of the evicted pod. uid: of the evicted pod.
    """

    node: str
    owner: str
    group: str
    requests: Amounts
    until: float
    uid: str


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """Everything that one session may look at.

    groups: key -> state, sorted by key, of every group that has an object or something left to decide; a state that did
    not change is the same object as in the snapshot before. usage: holder ("namespace/name" of a group, an owner or a
    pod) -> (pods, amounts) on nodes, assumed ones included, whoever scheduled them. shapes only grow.
    owners: uid of a controller with waiting pods -> node -> how many of its living pods are there; filled only where a
    plugin counts them.
    queue_usage: name of a leaf queue -> what its pods hold on nodes, assumed ones included. foreign: what the pods of
    other schedulers hold. singles: bound pods that are groups of one, by uid, with their leaf queue; they are in no
    group's state. leaving: pods (uid) that a request evicts or is about to. awaited: group -> pods (namespace/name)
    that go for what it has been given, while one of them is there. budgets: by namespace/name. holds: room that is kept
    for pods that will be made in place of others. releasing: pods of anybody that are being deleted, or about to be
    evicted, and still hold what they hold, with their leaf queue ("" = another scheduler's). topologies: sorted by
    name, the one of several of a name that holds first. hypernodes: sorted by name.
    """

    generation: int
    now: float
    table: NodeTable
    shapes: Mapping[str, Shape]
    groups: Mapping[str, GroupState]
    queues: Mapping[str, Queue] = field(default_factory=dict)
    usage: Mapping[str, tuple[int, Amounts]] = field(default_factory=dict)
    no_goods: tuple[NoGood, ...] = ()
    foreign_nominated: tuple[Pod, ...] = ()
    dialects: tuple[str, ...] = ()
    owners: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    presence: Presence = field(default_factory=Presence)
    storage: Storage = NO_STORAGE
    queue_usage: Mapping[str, Amounts] = field(default_factory=dict)
    foreign: Amounts = ()
    singles: Mapping[str, tuple[Pod, str]] = field(default_factory=dict)
    leaving: frozenset[str] = frozenset()
    awaited: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    budgets: Mapping[str, DisruptionBudget] = field(default_factory=dict)
    holds: tuple[Hold, ...] = ()
    releasing: tuple[tuple[Pod, str], ...] = ()
    topologies: tuple[Topology, ...] = ()
    hypernodes: tuple[HyperNode, ...] = ()

    @property
    def nominations(self) -> tuple[tuple[str, int, str], ...]:
        """Node, priority and shape of every nominated pod of another scheduler."""
        return tuple((pod.nominated, pod.priority, pod.shape) for pod in self.foreign_nominated)
