"""Kubernetes' storage objects from raw JSON to model values, and the volumes that a pod names.

Decided here: which fields are read. Everything else is skipped while decoding, so that tens of thousands of claims cost
little. Not known here: who reads, and what a claim that is not bound means for a pod. Invariant: as in `core`, an
object decodes as a whole or raises `Undecodable` naming it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from sys import intern
from typing import TypeVar

import msgspec

from scheduler.dialects.intree import InTree, csi_of, moved_terms
from scheduler.dialects.meta import Int64, OwnerReference, Undecodable, undecodable
from scheduler.model.affinity import LabelSelector, Requirement
from scheduler.model.pods import SelectorTerm
from scheduler.model.podvolumes import Disk, PodClaim, PodVolumes
from scheduler.model.quantity import BadQuantity, amount
from scheduler.model.volumes import (
    ZONE_LABELS,
    Attachment,
    Claim,
    NodeDrivers,
    StorageCapacity,
    StorageClass,
    StorageDriver,
    Volume,
)

Raw = bytes | msgspec.Raw
T = TypeVar("T")
V = TypeVar("V")


class _Notes(msgspec.Struct, gc=False):
    """The annotations that matter."""

    bound: str | None = msgspec.field(name="pv.kubernetes.io/bind-completed", default=None)
    selected: str = msgspec.field(name="volume.kubernetes.io/selected-node", default="")
    storage_class: str | None = msgspec.field(name="volume.beta.kubernetes.io/storage-class", default=None)
    moved: str = msgspec.field(name="storage.alpha.kubernetes.io/migrated-plugins", default="")


_NO_NOTES = _Notes()


class _Meta(msgspec.Struct, gc=False, rename="camel"):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    deletion_timestamp: str | None = None
    annotations: _Notes | None = None
    owner_references: list[OwnerReference] | None = None


class _LabelledMeta(_Meta, gc=False, rename="camel"):
    labels: dict[str, str] | None = None


class _Expression(msgspec.Struct, gc=False):
    key: str = ""
    operator: str = ""
    values: list[str] | None = None


class _Selector(msgspec.Struct, gc=False, rename="camel"):
    match_labels: dict[str, str] | None = None
    match_expressions: list[_Expression] | None = None


class _Amount(msgspec.Struct, gc=False):
    storage: str | int | float | None = None


class _Resources(msgspec.Struct, gc=False):
    requests: _Amount | None = None


class _ClaimSpec(msgspec.Struct, gc=False, rename="camel"):
    storage_class_name: str | None = None
    volume_name: str | None = None
    access_modes: list[str] | None = None
    volume_mode: str | None = None
    volume_attributes_class_name: str | None = None
    resources: _Resources | None = None
    selector: _Selector | None = None


class _Phase(msgspec.Struct, gc=False):
    phase: str = ""


class _Claim(msgspec.Struct, gc=False):
    metadata: _Meta
    spec: _ClaimSpec
    status: _Phase | None = None


class _Reference(msgspec.Struct, gc=False):
    namespace: str = ""
    name: str = ""
    uid: str = ""


class _Term(msgspec.Struct, gc=False, rename="camel"):
    match_expressions: list[_Expression] | None = None
    match_fields: list[_Expression] | None = None


class _Terms(msgspec.Struct, gc=False, rename="camel"):
    node_selector_terms: list[_Term] | None = None


class _Affinity(msgspec.Struct, gc=False):
    required: _Terms | None = None


class _Csi(msgspec.Struct, gc=False, rename="camel"):
    driver: str = ""
    volume_handle: str = ""


class _VolumeSpec(InTree, gc=False, rename="camel"):
    storage_class_name: str | None = None
    capacity: _Amount | None = None
    access_modes: list[str] | None = None
    volume_mode: str | None = None
    volume_attributes_class_name: str | None = None
    claim_ref: _Reference | None = None
    node_affinity: _Affinity | None = None
    csi: _Csi | None = None


class _Volume(msgspec.Struct, gc=False):
    metadata: _LabelledMeta
    spec: _VolumeSpec
    status: _Phase | None = None


class _TopologyTerm(msgspec.Struct, gc=False, rename="camel"):
    match_label_expressions: list[_Expression] | None = None


class _StorageClass(msgspec.Struct, gc=False, rename="camel"):
    metadata: _Meta
    provisioner: str = ""
    volume_binding_mode: str | None = None
    allowed_topologies: list[_TopologyTerm] | None = None


class _Allocatable(msgspec.Struct, gc=False):
    count: Int64 | None = None


class _NodeDriver(msgspec.Struct, gc=False, rename="camel"):
    name: str = ""
    allocatable: _Allocatable | None = None
    topology_keys: list[str] | None = None


class _CsiNodeSpec(msgspec.Struct, gc=False):
    drivers: list[_NodeDriver] | None = None


class _CsiNode(msgspec.Struct, gc=False):
    metadata: _Meta
    spec: _CsiNodeSpec | None = None


class _DriverSpec(msgspec.Struct, gc=False, rename="camel"):
    storage_capacity: bool | None = None
    prevent_pod_scheduling_if_missing: bool | None = None


class _CsiDriver(msgspec.Struct, gc=False):
    metadata: _Meta
    spec: _DriverSpec | None = None


class _Capacity(msgspec.Struct, gc=False, rename="camel"):
    metadata: _Meta
    storage_class_name: str = ""
    node_topology: _Selector | None = None
    capacity: str | int | float | None = None
    maximum_volume_size: str | int | float | None = None


class _AttachmentSource(msgspec.Struct, gc=False, rename="camel"):
    persistent_volume_name: str | None = None


class _AttachmentSpec(msgspec.Struct, gc=False, rename="camel"):
    attacher: str = ""
    node_name: str = ""
    source: _AttachmentSource | None = None


class _Attachment(msgspec.Struct, gc=False):
    metadata: _Meta
    spec: _AttachmentSpec


def _reader(kind: str, struct: type[T], make: Callable[[T], V]) -> Callable[[Raw], V]:
    decode = msgspec.json.Decoder(struct).decode

    def read(raw: Raw) -> V:
        try:
            return make(decode(raw))
        except (msgspec.DecodeError, UnicodeDecodeError, BadQuantity) as cause:
            raise undecodable(kind, raw, cause) from cause

    read.__doc__ = f"Return a {kind}. Raises `Undecodable`."
    return read


def _bytes(value: str | int | float | None, missing: int = 0) -> int:
    return missing if value is None else amount("storage", value)


@lru_cache(maxsize=4096)
def _modes(modes: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(sorted({intern(mode) for mode in modes}))


def _requirement(expression: _Expression) -> Requirement:
    values = tuple(sorted({intern(value) for value in expression.values or ()}))
    return Requirement(intern(expression.key), intern(expression.operator), values)


def _selector(selector: _Selector | None) -> LabelSelector | None:
    if selector is None:
        return None
    needs = [Requirement(intern(key), "In", (intern(value),)) for key, value in (selector.match_labels or {}).items()]
    needs += [_requirement(expression) for expression in selector.match_expressions or ()]
    return LabelSelector(tuple(sorted(set(needs), key=lambda need: (need.key, need.operator, need.values))))


def _term(expressions: list[_Expression] | None, fields: list[_Expression] | None = None) -> SelectorTerm:
    return SelectorTerm(
        tuple(sorted(map(_requirement, expressions or ()), key=lambda need: (need.key, need.operator, need.values))),
        tuple(_requirement(field) for field in fields or ()),
    )


def _class_name(notes: _Notes, name: str | None) -> str:
    return intern(notes.storage_class if notes.storage_class is not None else name or "")


def _claim(struct: _Claim) -> Claim:
    meta, spec = struct.metadata, struct.spec
    notes = meta.annotations or _NO_NOTES
    requests = spec.resources.requests if spec.resources else None
    owner = next((one.uid for one in meta.owner_references or () if one.controller), "")
    return Claim(
        uid=meta.uid,
        namespace=intern(meta.namespace),
        name=meta.name,
        storage_class=_class_name(notes, spec.storage_class_name),
        volume=spec.volume_name or "",
        bound=bool(spec.volume_name) and notes.bound is not None,
        selected=intern(notes.selected),
        deleting=meta.deletion_timestamp is not None,
        lost=struct.status is not None and struct.status.phase == "Lost",
        size=_bytes(requests.storage if requests else None),
        modes=_modes(tuple(spec.access_modes or ())),
        block=spec.volume_mode == "Block",
        selector=_selector(spec.selector),
        attributes=intern(spec.volume_attributes_class_name or ""),
        owner=owner,
        resource_version=meta.resource_version,
    )


def _volume(struct: _Volume) -> Volume:
    meta, spec = struct.metadata, struct.spec
    required = spec.node_affinity.required if spec.node_affinity else None
    terms = None
    if required is not None:
        terms = tuple(_term(one.match_expressions, one.match_fields) for one in required.node_selector_terms or ())
    reference, labels = spec.claim_ref, meta.labels or {}
    moved = csi_of(spec, labels) if spec.csi is None else None
    csi = spec.csi or _Csi()
    plugin, driver, handle = moved or ("", csi.driver, csi.volume_handle)
    return Volume(
        uid=meta.uid,
        name=meta.name,
        storage_class=_class_name(meta.annotations or _NO_NOTES, spec.storage_class_name),
        size=_bytes(spec.capacity.storage if spec.capacity else None),
        modes=_modes(tuple(spec.access_modes or ())),
        block=spec.volume_mode == "Block",
        attributes=intern(spec.volume_attributes_class_name or ""),
        claim=f"{reference.namespace}/{reference.name}" if reference else "",
        claim_uid=reference.uid if reference else "",
        available=struct.status is not None and struct.status.phase == "Available",
        deleting=meta.deletion_timestamp is not None,
        terms=terms,
        zones=tuple((label, _zones(labels[label])) for label in ZONE_LABELS if _zones(labels.get(label, ""))),
        labels=tuple(sorted((intern(key), intern(value)) for key, value in labels.items())),
        driver=intern(driver),
        handle=handle,
        plugin=plugin,
        moved=moved_terms(plugin, terms, labels) if plugin else None,
        resource_version=meta.resource_version,
    )


@lru_cache(maxsize=4096)
def _zones(value: str) -> tuple[str, ...]:
    """Return the zones of a label, "a__b" being two; one that cannot be read restricts nothing."""
    parts = value.split("__") if value else []
    return tuple(sorted({part.strip() for part in parts})) if all(part.strip() for part in parts) else ()


def _storage_class(struct: _StorageClass) -> StorageClass:
    return StorageClass(
        uid=struct.metadata.uid,
        name=struct.metadata.name,
        provisioner=struct.provisioner,
        delayed=struct.volume_binding_mode == "WaitForFirstConsumer",
        topologies=tuple(_topology(one) for one in struct.allowed_topologies or ()),
        resource_version=struct.metadata.resource_version,
    )


def _topology(term: _TopologyTerm) -> SelectorTerm:
    expressions = [_Expression(one.key, "In", one.values) for one in term.match_label_expressions or ()]
    return _term(expressions)


def _node_drivers(struct: _CsiNode) -> NodeDrivers:
    drivers, topology, notes = [], [], struct.metadata.annotations or _NO_NOTES
    for one in (struct.spec.drivers if struct.spec else None) or ():
        count = one.allocatable.count if one.allocatable else None
        drivers.append((intern(one.name), -1 if count is None else count))
        if one.topology_keys:
            topology.append((intern(one.name), tuple(sorted(map(intern, one.topology_keys)))))
    return NodeDrivers(
        uid=struct.metadata.uid,
        node=intern(struct.metadata.name),
        drivers=tuple(sorted(drivers)),
        topology=tuple(sorted(topology)),
        moved=tuple(sorted({intern(name) for name in notes.moved.split(",") if name})),
        resource_version=struct.metadata.resource_version,
    )


def _driver(struct: _CsiDriver) -> StorageDriver:
    spec = struct.spec or _DriverSpec()
    return StorageDriver(
        uid=struct.metadata.uid,
        name=struct.metadata.name,
        tracks=bool(spec.storage_capacity),
        insists=bool(spec.prevent_pod_scheduling_if_missing),
        resource_version=struct.metadata.resource_version,
    )


def _capacity(struct: _Capacity) -> StorageCapacity:
    left = _bytes(struct.capacity, -1)
    return StorageCapacity(
        uid=struct.metadata.uid,
        key=f"{struct.metadata.namespace}/{struct.metadata.name}",
        storage_class=intern(struct.storage_class_name),
        largest=_bytes(struct.maximum_volume_size, left),
        left=left,
        nodes=_selector(struct.node_topology),
        resource_version=struct.metadata.resource_version,
    )


def _attachment(struct: _Attachment) -> Attachment:
    meta, spec = struct.metadata, struct.spec
    name = spec.source.persistent_volume_name if spec.source else None
    return Attachment(meta.uid, meta.name, intern(spec.node_name), spec.attacher, name or "", meta.resource_version)


decode_claim = _reader("PersistentVolumeClaim", _Claim, _claim)
decode_volume = _reader("PersistentVolume", _Volume, _volume)
decode_storage_class = _reader("StorageClass", _StorageClass, _storage_class)
decode_node_drivers = _reader("CSINode", _CsiNode, _node_drivers)
decode_driver = _reader("CSIDriver", _CsiDriver, _driver)
decode_capacity = _reader("CSIStorageCapacity", _Capacity, _capacity)
decode_attachment = _reader("VolumeAttachment", _Attachment, _attachment)


# -- the volumes of a pod --------------------------------------------------------------------------------------------


class _ClaimSource(msgspec.Struct, gc=False, rename="camel"):
    claim_name: str = ""


class _Ephemeral(msgspec.Struct, gc=False):
    pass


class _Iscsi(msgspec.Struct, gc=False, rename="camel"):
    iqn: str = ""
    read_only: bool | None = None


class _Rbd(msgspec.Struct, gc=False, rename="camel"):
    monitors: list[str] | None = None
    pool: str | None = None
    image: str = ""
    read_only: bool | None = None


class VolumeStruct(InTree, gc=False, rename="camel"):
    """An entry of spec.volumes; the other kinds do not constrain placement."""

    name: str = ""
    persistent_volume_claim: _ClaimSource | None = None
    ephemeral: _Ephemeral | None = None
    iscsi: _Iscsi | None = None
    rbd: _Rbd | None = None


def pod_volumes(pod: str, volumes: list[VolumeStruct] | None) -> PodVolumes | None:
    """Return what of a pod's volumes can constrain it, in canonical order; None when nothing can.

    The claim of an ephemeral volume is named after the pod and the volume. Naming a claim twice is naming it once.
    """
    claims: dict[PodClaim, None] = {}
    disks: dict[Disk, None] = {}
    attached: set[tuple[str, str]] = set()
    for one in volumes or ():
        if one.persistent_volume_claim is not None:
            claims[PodClaim(one.persistent_volume_claim.claim_name)] = None
        elif one.ephemeral is not None:
            claims[PodClaim(f"{pod}-{one.name}", ephemeral=True)] = None
        else:
            if (disk := _disk(one)) is not None:
                disks[disk] = None
            if (moved := csi_of(one, {})) is not None:
                attached.add(moved[1:])
    if not claims and not disks and not attached:
        return None
    return PodVolumes(
        tuple(sorted(claims, key=lambda claim: (claim.name, claim.ephemeral))),
        tuple(sorted(disks, key=lambda disk: (disk.kind, disk.name, disk.parts, disk.reads))),
        tuple(sorted(attached)),
    )


def _disk(volume: VolumeStruct) -> Disk | None:
    if volume.gce_persistent_disk is not None:
        return Disk("gce", volume.gce_persistent_disk.pd_name, reads=bool(volume.gce_persistent_disk.read_only))
    if volume.aws_elastic_block_store is not None:
        return Disk("aws", volume.aws_elastic_block_store.volume_id)
    if volume.iscsi is not None:
        return Disk("iscsi", volume.iscsi.iqn, reads=bool(volume.iscsi.read_only))
    if volume.rbd is not None:
        name = f"{volume.rbd.pool or 'rbd'}/{volume.rbd.image}"
        return Disk("rbd", name, tuple(sorted(set(volume.rbd.monitors or ()))), bool(volume.rbd.read_only))
    return None


__all__ = [
    "Undecodable",
    "VolumeStruct",
    "decode_attachment",
    "decode_capacity",
    "decode_claim",
    "decode_driver",
    "decode_node_drivers",
    "decode_storage_class",
    "decode_volume",
    "pod_volumes",
]
