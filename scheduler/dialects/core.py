"""Core objects of Kubernetes (Pod, Node, PriorityClass, Namespace, annotated owners) from raw JSON to model values.

Decided here: which fields are read and what a pod's state is. Not known here: who reads, what else exists, what will be
done about it. Invariant: an object either decodes as a whole, with its unusable fields listed in `problems`, or raises
`Undecodable` naming it; decoding one object never depends on another.
"""

from __future__ import annotations

from sys import intern

import msgspec

from scheduler.dialects import features, membership
from scheduler.dialects.membership import NO_KEYS, Keys
from scheduler.dialects.meta import Identity, Int64, OwnerReference, Undecodable, seconds, undecodable
from scheduler.dialects.requests import ContainerAsk, PodAsk, charged
from scheduler.dialects.shapes import ContainerStruct, SpecStruct, pod_ask, quantities, shape_of
from scheduler.dialects.storage import pod_volumes
from scheduler.dialects.wishes import pod_wish
from scheduler.model.groups import PodGroup
from scheduler.model.nodes import Node, Taint
from scheduler.model.pods import Condition, Pod, Problem, Shape
from scheduler.model.quantity import BadQuantity, amount
from scheduler.model.resources import PODS, Amounts, amounts

__all__ = [
    "Undecodable",
    "decode_namespace",
    "decode_node",
    "decode_owner",
    "decode_pod",
    "decode_priority_class",
]


class _Meta(Identity, gc=False, rename="camel"):
    labels: Keys | None = None
    annotations: Keys | None = None
    owner_references: list[OwnerReference] | None = None


class _ConditionStruct(msgspec.Struct, gc=False, rename="camel"):
    type: str = ""
    status: str = ""
    reason: str | None = None
    message: str | None = None
    last_transition_time: str | None = None


class _StateStruct(msgspec.Struct, gc=False):
    running: msgspec.Raw = msgspec.Raw(b"")
    terminated: msgspec.Raw = msgspec.Raw(b"")


class _StatusResources(msgspec.Struct, gc=False):
    requests: msgspec.Raw = msgspec.Raw(b"")


class _ContainerStatus(msgspec.Struct, gc=False, rename="camel"):
    name: str = ""
    restart_count: Int64 = 0
    state: _StateStruct | None = None
    allocated_resources: msgspec.Raw = msgspec.Raw(b"")
    resources: _StatusResources | None = None


class _PodStatus(msgspec.Struct, gc=False, rename="camel"):
    phase: str = "Pending"
    reason: str | None = None
    start_time: str | None = None
    conditions: list[_ConditionStruct] | None = None
    nominated_node_name: str | None = None
    container_statuses: list[_ContainerStatus] | None = None
    init_container_statuses: list[_ContainerStatus] | None = None
    allocated_resources: msgspec.Raw = msgspec.Raw(b"")
    resources: _StatusResources | None = None


class _PodMeta(Identity, gc=False, rename="camel"):
    """As `_Meta`, but all labels count, as they are written: those of equal pods are decoded once."""

    labels: msgspec.Raw = msgspec.Raw(b"")
    annotations: Keys | None = None
    owner_references: list[OwnerReference] | None = None


class _Spec(SpecStruct, gc=False, rename="camel"):
    """With what does not change where a pod may run, only what it may do to others and they to it."""

    preemption_policy: str | None = None
    termination_grace_period_seconds: Int64 | None = None


class _PodStruct(msgspec.Struct, gc=False):
    metadata: _PodMeta
    spec: _Spec
    status: _PodStatus | None = None


class _GroupReference(msgspec.Struct, gc=False, rename="camel"):
    pod_group_name: str | None = None


_pod = msgspec.json.Decoder(_PodStruct)
_all_labels = msgspec.json.Decoder(dict[str, str] | None)
_known_labels = msgspec.json.Decoder(Keys | None)
_LABEL_SETS = 8192
_label_sets: dict[bytes, tuple[tuple[str, str], ...]] = {}
_image_sets: dict[tuple[str, ...], tuple[str, ...]] = {}
_reference = msgspec.json.Decoder(_GroupReference | None)
_NO_STATUS = _PodStatus()
_NO_OWNER = OwnerReference()
_GRACE = 30
"""Seconds that a pod has to end when it does not say."""
_STARTED_PHASES = ("Running", "Succeeded", "Failed")


def decode_pod(raw: bytes | msgspec.Raw, scheduler_names: frozenset[str]) -> tuple[Pod, Shape]:
    """Return a pod and its shape. `scheduler_names` are the names that this scheduler serves. Raises `Undecodable`."""
    try:
        return _decode_pod(raw, scheduler_names)
    except (msgspec.DecodeError, UnicodeDecodeError) as cause:
        raise undecodable("Pod", raw, cause) from cause


def _decode_pod(raw: bytes | msgspec.Raw, scheduler_names: frozenset[str]) -> tuple[Pod, Shape]:
    struct = _pod.decode(raw)
    meta, spec, status = struct.metadata, struct.spec, struct.status or _NO_STATUS
    labels, annotations = _keys_of(meta.labels), meta.annotations or NO_KEYS
    namespace = intern(meta.namespace)
    marks = _labels(meta.labels)
    shape, shape_problems = shape_of(spec, (), namespace, marks)
    problems = list(shape_problems)
    minimum = membership.min_member(labels, annotations, problems)
    preemptible = membership.preemptible(labels, annotations, problems)
    wish = pod_wish(labels, annotations, problems)
    owner = _controller(meta.owner_references)
    scheduler_name = intern(spec.scheduler_name or "default-scheduler")
    node = intern(spec.node_name or "")
    pod = Pod(
        uid=meta.uid,
        namespace=namespace,
        name=meta.name,
        shape=shape.key,
        ours=scheduler_name in scheduler_names,
        node=node,
        phase=intern(status.phase),
        priority=spec.priority or 0,
        created=seconds(meta.creation_timestamp),
        gated=bool(spec.scheduling_gates),
        deleting=meta.deletion_timestamp is not None,
        started=_started(status),
        group=membership.group_key(namespace, labels, annotations, _native_group(spec.scheduling_group)),
        role=membership.role(labels, annotations),
        index=membership.index(labels, annotations),
        queue=membership.queue(labels, annotations),
        charged_to=intern(annotations.charged_to),
        min_member=minimum,
        nominated=status.nominated_node_name or "",
        scheduler_name=scheduler_name,
        owner_api=intern(owner.api_version),
        owner_kind=intern(owner.kind),
        owner_name=intern(owner.name),
        owner_uid=intern(owner.uid),
        charge=_charge(spec, status, shape) if node and status.phase not in ("Succeeded", "Failed") else None,
        condition=_scheduled_condition(status.conditions) if status.conditions else None,
        wish=wish,
        problems=tuple(problems),
        status_reason=status.reason or "",
        resource_version=meta.resource_version,
        generation=meta.generation,
        labels=marks,
        images=_images(spec),
        volumes=pod_volumes(meta.name, spec.volumes) if spec.volumes else None,
        since=_bound_at(status, meta) if node else 0.0,
        preempts=spec.preemption_policy != "Never",
        preemptible=preemptible,
        grace=_GRACE if spec.termination_grace_period_seconds is None else spec.termination_grace_period_seconds,
        ends=seconds(meta.deletion_timestamp),
    )
    return pod, shape


def _bound_at(status: _PodStatus, meta: _PodMeta) -> float:
    """Return when a pod on a node was bound, as far as anything tells: seconds since the epoch."""
    for condition in status.conditions or ():
        if condition.type == "PodScheduled" and condition.status == "True" and condition.last_transition_time:
            return seconds(condition.last_transition_time)
    return seconds(status.start_time or meta.creation_timestamp)


def _labels(raw: msgspec.Raw) -> tuple[tuple[str, str], ...]:
    """Return labels sorted and interned; pods that are written alike share one value."""
    data = bytes(raw)
    known = _label_sets.get(data)
    if known is None:
        values = (_all_labels.decode(data) if data else None) or {}
        known = tuple(sorted((intern(key), intern(value)) for key, value in values.items()))
        if len(_label_sets) >= _LABEL_SETS:
            _label_sets.clear()
        _label_sets[data] = known
    return known


def _keys_of(raw: msgspec.Raw) -> Keys:
    return (_known_labels.decode(raw) if raw else None) or NO_KEYS


def _images(spec: SpecStruct) -> tuple[str, ...]:
    """Return the images of a pod, one for each container, as nodes name them."""
    names = tuple(sorted(_tagged(one.image) for one in _all_containers(spec) if one.image))
    known = _image_sets.get(names)
    if known is None:
        if len(_image_sets) >= _LABEL_SETS:
            _image_sets.clear()
        known = _image_sets[names] = tuple(intern(name) for name in names)
    return known


def _tagged(name: str) -> str:
    return name if name.rfind(":") > name.rfind("/") else f"{name}:latest"


def _native_group(raw: msgspec.Raw) -> str:
    reference = _reference.decode(raw) if raw else None
    return (reference.pod_group_name or "") if reference else ""


def _controller(owners: list[OwnerReference] | None) -> OwnerReference:
    for owner in owners or ():
        if owner.controller:
            return owner
    return _NO_OWNER


def _started(status: _PodStatus) -> bool:
    """Whether any container has run. That the kubelet has seen the pod (startTime) is not a start."""
    if status.phase in _STARTED_PHASES:
        return True
    for statuses in (status.init_container_statuses, status.container_statuses):
        for container in statuses or ():
            state = container.state
            if container.restart_count or (state is not None and (state.running or state.terminated)):
                return True
    return False


def _scheduled_condition(conditions: list[_ConditionStruct]) -> Condition | None:
    for condition in conditions:
        if condition.type == "PodScheduled" and condition.status == "False":
            return Condition("PodScheduled", "False", condition.reason or "", condition.message or "")
    return None


def _charge(spec: SpecStruct, status: _PodStatus, shape: Shape) -> Amounts | None:
    """Return what a pod on a node is charged with where that is not what its spec asks for."""
    statuses = {s.name: s for s in status.init_container_statuses or ()}
    statuses.update((s.name, s) for s in status.container_statuses or ())
    pending = (c.reason for c in status.conditions or () if c.type == "PodResizePending")
    infeasible = next(pending, None) == "Infeasible"
    plain = not infeasible and not status.allocated_resources and status.resources is None
    if plain and (not statuses or all(_as_asked(c, statuses) for c in _all_containers(spec))):
        return None
    ignored: list[Problem] = []  # the same spec was reported once, by its shape; status is written by the kubelet
    ask = pod_ask(spec, ignored)
    total = charged(
        PodAsk(
            containers=_with_status(ask.containers, spec.containers, statuses),
            init_containers=_with_status(ask.init_containers, spec.init_containers, statuses),
            pod_level=ask.pod_level,
            overhead=ask.overhead,
            status_allocated=quantities(status.allocated_resources, "status.allocatedResources", ignored),
            status_actuated=(
                None
                if status.resources is None
                else quantities(status.resources.requests, "status.resources.requests", ignored)
            ),
            infeasible=infeasible,
        )
    )
    return total if total != shape.requests else None


def _all_containers(spec: SpecStruct) -> list[ContainerStruct]:
    return (spec.containers or []) + (spec.init_containers or [])


def _as_asked(container: ContainerStruct, statuses: dict[str, _ContainerStatus]) -> bool:
    """Whether the status of a container says, byte for byte, what its spec asks for (or says nothing)."""
    status = statuses.get(container.name)
    if status is None:
        return True
    asked = bytes(container.resources.requests) if container.resources else b""
    if status.allocated_resources and bytes(status.allocated_resources) != asked:
        return False
    return not (status.resources and status.resources.requests) or bytes(status.resources.requests) == asked


def _with_status(
    asks: tuple[ContainerAsk, ...], containers: list[ContainerStruct] | None, statuses: dict[str, _ContainerStatus]
) -> tuple[ContainerAsk, ...]:
    result = []
    ignored: list[Problem] = []
    for ask, container in zip(asks, containers or (), strict=True):
        status = statuses.get(container.name)
        if status is None:
            result.append(ask)
            continue
        actuated = status.resources.requests if status.resources else msgspec.Raw(b"")
        result.append(
            ContainerAsk(
                requests=ask.requests,
                sidecar=ask.sidecar,
                allocated=quantities(status.allocated_resources, "allocatedResources", ignored),
                actuated=quantities(actuated, "resources.requests", ignored),
            )
        )
    return tuple(result)


class _NodeMeta(msgspec.Struct, gc=False, rename="camel"):
    name: str = ""
    uid: str = ""
    resource_version: str = ""
    deletion_timestamp: str | None = None
    labels: dict[str, str] | None = None


class _TaintStruct(msgspec.Struct, gc=False):
    key: str = ""
    value: str | None = None
    effect: str = ""


class _NodeSpec(msgspec.Struct, gc=False):
    taints: list[_TaintStruct] | None = None
    unschedulable: bool | None = None


class _ImageStruct(msgspec.Struct, gc=False, rename="camel"):
    names: list[str] | None = None
    size_bytes: Int64 = 0


class _NodeStatus(msgspec.Struct, gc=False, rename="camel"):
    allocatable: dict[str, str | int | float] | None = None
    images: list[_ImageStruct] | None = None
    declared_features: list[str] | None = None


_LARGE = 23 * 1024 * 1024
"""Bytes below which an image on a node makes no difference to anybody."""


class _NodeStruct(msgspec.Struct, gc=False):
    metadata: _NodeMeta
    spec: _NodeSpec | None = None
    status: _NodeStatus | None = None


_node = msgspec.json.Decoder(_NodeStruct)


def decode_node(raw: bytes | msgspec.Raw) -> Node:
    """Return a node. Raises `Undecodable`, also for a quantity that does not parse: half a node is not a node."""
    try:
        struct = _node.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as cause:
        raise undecodable("Node", raw, cause) from cause
    meta, spec, status = struct.metadata, struct.spec or _NodeSpec(), struct.status or _NodeStatus()
    allocatable: dict[str, int] = {}
    for name, text in (status.allocatable or {}).items():
        try:
            allocatable[intern(name)] = amount(name, text)
        except BadQuantity as cause:
            raise Undecodable(f"Node {meta.name}: status.allocatable[{name}]: {cause}") from cause
    # A node that says nothing of pods takes none, as in Kubernetes.
    slots = allocatable.pop(PODS, 0)
    taints = (Taint(t.key, t.value or "", t.effect) for t in spec.taints or ())
    return Node(
        name=intern(meta.name),
        uid=meta.uid,
        allocatable=amounts(allocatable),
        slots=slots,
        labels=tuple(sorted((intern(key), intern(value)) for key, value in (meta.labels or {}).items())),
        taints=tuple(sorted(taints, key=lambda t: (t.key, t.effect, t.value))),
        unschedulable=bool(spec.unschedulable),
        deleting=meta.deletion_timestamp is not None,
        resource_version=meta.resource_version,
        images=tuple(
            sorted(
                (intern(name), image.size_bytes)
                for image in status.images or ()
                if image.size_bytes >= _LARGE
                for name in image.names or ()
            )
        ),
        features=tuple(sorted(features.KNOWN.intersection(status.declared_features or ()))),
    )


class _PriorityClassStruct(msgspec.Struct, gc=False, rename="camel"):
    metadata: _Meta
    value: Int64 = 0
    global_default: bool | None = None


class _NamespaceStruct(msgspec.Struct, gc=False):
    metadata: _PodMeta


class _OwnerStruct(msgspec.Struct, gc=False, rename="camel"):
    metadata: _Meta
    api_version: str = ""


_priority_class = msgspec.json.Decoder(_PriorityClassStruct)
_namespace = msgspec.json.Decoder(_NamespaceStruct)
_owner = msgspec.json.Decoder(_OwnerStruct)


def decode_priority_class(raw: bytes | msgspec.Raw) -> tuple[str, int, bool]:
    """Return name, value and whether it is the default. Raises `Undecodable`."""
    try:
        struct = _priority_class.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as cause:
        raise undecodable("PriorityClass", raw, cause) from cause
    return struct.metadata.name, struct.value, bool(struct.global_default)


def decode_namespace(raw: bytes | msgspec.Raw) -> tuple[str, str, tuple[tuple[str, str], ...]]:
    """Return name, default queue ("" = none; Muster's annotation, else the one of Volcano) and labels.

    Raises `Undecodable`.
    """
    try:
        meta = _namespace.decode(raw).metadata
        labels, keys = _labels(meta.labels), _keys_of(meta.labels)
    except (msgspec.DecodeError, UnicodeDecodeError) as cause:
        raise undecodable("Namespace", raw, cause) from cause
    return meta.name, membership.queue(keys, meta.annotations or NO_KEYS), labels


def decode_owner(raw: bytes | msgspec.Raw, kind: str, api_version: str = "batch/v1") -> PodGroup | None:
    """Return the group that an owner's annotation makes of its pods; None without one. Raises `Undecodable`.

    A minimum that cannot be used is a problem of the group: its pods wait and say why.
    """
    try:
        meta = _owner.decode(raw).metadata
    except (msgspec.DecodeError, UnicodeDecodeError) as cause:
        raise undecodable(kind, raw, cause) from cause
    labels, annotations = meta.labels or NO_KEYS, meta.annotations or NO_KEYS
    if annotations.min_member is None and labels.min_member is None:
        return None
    problems: list[Problem] = []
    minimum = membership.min_member(labels, annotations, problems)
    wish = pod_wish(labels, annotations, problems)
    return PodGroup(
        key=f"owner/{meta.namespace}/{meta.uid}",
        uid=meta.uid,
        dialect="owner",
        namespace=meta.namespace,
        name=meta.name,
        api_version=api_version,
        kind=kind,
        min_member=minimum or 1,
        queue=membership.queue(labels, annotations),
        preemptible=membership.preemptible(labels, annotations, problems),
        suspended=membership.suspended(annotations.suspend or labels.suspend, problems),
        topology=wish.wish if wish is not None else None,
        created=seconds(meta.creation_timestamp),
        generation=meta.generation,
        problems=tuple(problems),
        deleting=meta.deletion_timestamp is not None,
        resource_version=meta.resource_version,
    )
