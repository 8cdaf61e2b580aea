"""Pods and their shapes.

A `Shape` is everything in a pod's spec that can change where it may run; pods with equal shapes are interchangeable for
predicates and placement, so work is done once a shape. A `Pod` is one member: identity, state, and a reference to its
shape by key. Requests are those of Kubernetes (init containers, sidecars, overhead, pod-level); the dialects sum them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from scheduler.model.affinity import HostPort, PodTerm, Requirement, SpreadTerm, WeightedPodTerm
from scheduler.model.podvolumes import PodVolumes
from scheduler.model.resources import Amounts, add
from scheduler.model.wishes import PodWish


@dataclass(frozen=True, slots=True)
class Toleration:
    """A toleration as written; empty key with operator Exists tolerates everything, empty effect every effect."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


@dataclass(frozen=True, slots=True)
class SelectorTerm:
    """A node selector term: all expressions and all fields must hold; an empty term matches nothing."""

    expressions: tuple[Requirement, ...] = ()
    fields: tuple[Requirement, ...] = ()


@dataclass(frozen=True, slots=True)
class PreferredTerm:
    """A term with its weight 1-100."""

    weight: int
    term: SelectorTerm


@dataclass(frozen=True, slots=True)
class Shape:
    """The scheduling-relevant part of a pod spec. `key` is a hash of all other fields.

    `required_terms` is None when the pod states no required node affinity; terms are ORed.
    `unstated` is what scores count besides requests: 100m and 200Mi for containers that ask for no cpu or memory.
    `features` are those that its node must declare.
    `unsupported` lists the spec fields (paths) that must hold but cannot be honoured by this version: such a pod waits.
    """

    key: str
    requests: Amounts = ()
    unstated: Amounts = ()
    node_selector: tuple[tuple[str, str], ...] = ()
    required_terms: tuple[SelectorTerm, ...] | None = None
    preferred_terms: tuple[PreferredTerm, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    host_ports: tuple[HostPort, ...] = ()
    affinity: tuple[PodTerm, ...] = ()
    anti_affinity: tuple[PodTerm, ...] = ()
    preferred_pods: tuple[WeightedPodTerm, ...] = ()
    spread: tuple[SpreadTerm, ...] = ()
    features: tuple[str, ...] = ()
    unsupported: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Condition:
    """A status condition: of a pod (PodScheduled) or of a group."""

    type: str
    status: str
    reason: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class Problem:
    """A field of an object that cannot be used, with the reason: what a person must change."""

    field: str
    message: str


@dataclass(frozen=True, slots=True)
class Pod:
    """One pod, whoever schedules it.

    `group` is the key of the group object that it names ("" = none: owner grouping or a group of one).
    `min_member` is the annotation scheduling.muster.sh/min-member (0 = absent). `index` is the completion index or rank
    (-1 = none). `charged_to` is the leaf queue that is written on it when it is bound ("" = none); before that somebody
    else wrote it, and it means nothing.
    `charge` replaces the shape's requests where the node is charged otherwise (in-place resize).
    `condition` is its PodScheduled condition when that is False. `created` is in seconds since the epoch.
    `generation` is metadata.generation, for the condition (0 = unknown).
    `owner_api`, `owner_kind`, `owner_name`, `owner_uid` are apiVersion, kind, name and uid of its controller.
    `images` has one name with tag or digest for each container, sorted.
    `ours` says that its schedulerName is one of those that this scheduler serves.
    `since` is when it was bound (seconds since the epoch, 0 = it is not, or nobody knows). `preempts` is False where
    its preemptionPolicy is Never. `preemptible` is what the pod itself says of being a victim (None = nothing).
    `wish` is what its labels and annotations say about domains. `part` is the path of the sub-group that it is in ("" =
    none), known of members only.
    `grace` is its terminationGracePeriodSeconds. `ends` is when the grace period of its deletion ends (0 = it is not
    being deleted).
    """

    uid: str
    namespace: str
    name: str
    shape: str
    ours: bool = False
    node: str = ""
    phase: str = "Pending"
    priority: int = 0
    created: float = 0.0
    gated: bool = False
    deleting: bool = False
    started: bool = False
    group: str = ""
    role: str = ""
    index: int = -1
    queue: str = ""
    charged_to: str = ""
    min_member: int = 0
    nominated: str = ""
    scheduler_name: str = ""
    owner_api: str = ""
    owner_kind: str = ""
    owner_name: str = ""
    owner_uid: str = ""
    charge: Amounts | None = None
    condition: Condition | None = None
    problems: tuple[Problem, ...] = ()
    status_reason: str = ""
    resource_version: str = ""
    generation: int = 0
    labels: tuple[tuple[str, str], ...] = ()
    images: tuple[str, ...] = ()
    volumes: PodVolumes | None = None
    since: float = 0.0
    preempts: bool = True
    preemptible: bool | None = None
    grace: int = 30
    ends: float = 0.0
    wish: PodWish | None = None
    part: str = ""

    @property
    def finished(self) -> bool:
        """Whether it has ended; an ended pod uses nothing on its node."""
        return self.phase in ("Succeeded", "Failed")

    @property
    def waiting(self) -> bool:
        """Whether it may still be bound by somebody: unbound, alive, not being deleted."""
        return not self.node and not self.finished and not self.deleting


def holder_of(pod: Pod) -> str:
    """Return the name under which what a pod holds is told to people: its group, its owner, or itself."""
    if pod.ours and pod.group:
        return pod.group.split("/", 1)[1]
    return f"{pod.namespace}/{pod.owner_name or pod.name}"


def held_by(pod: Pod, shapes: Mapping[str, Shape]) -> Amounts:
    """Return what a pod takes from its node and its queue: its own charge if it has one, else what its shape asks."""
    return pod.charge if pod.charge is not None else shapes[pod.shape].requests


def held_together(pods: Sequence[Pod], shapes: Mapping[str, Shape]) -> Amounts:
    """Return what several pods hold, as `held_by`."""
    return held_by(pods[0], shapes) if len(pods) == 1 else add(*(held_by(pod, shapes) for pod in pods))
