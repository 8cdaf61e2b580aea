"""Volumes of the old in-tree drivers as the CSI volumes that they have become.

Decided here: driver and handle of such a volume, and from where it is reached on nodes whose kubelet has left the
plugin to the CSI driver. As the translation of Kubernetes 1.37 does, for the plugins whose volumes kube-scheduler
counts; a volume that has no translation is None.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from sys import intern

import msgspec

from scheduler.model.affinity import Requirement
from scheduler.model.pods import SelectorTerm
from scheduler.model.volumes import MOVED, ZONE_LABELS

Terms = tuple[SelectorTerm, ...] | None
Csi = tuple[str, str, str]
"""Plugin, driver and handle."""

_OLD_ZONE, _OLD_REGION, _ZONE, _REGION = ZONE_LABELS
_TOPOLOGY = {
    "kubernetes.io/gce-pd": "topology.gke.io/zone",
    "kubernetes.io/aws-ebs": "topology.ebs.csi.aws.com/zone",
    "kubernetes.io/cinder": "topology.cinder.csi.openstack.org/zone",
}
_UNKNOWN = "UNSPECIFIED"
_MANY = "__"


class GceDisk(msgspec.Struct, gc=False, rename="camel"):
    """gcePersistentDisk."""

    pd_name: str = ""
    read_only: bool | None = None


class AwsDisk(msgspec.Struct, gc=False, rename="camel"):
    """awsElasticBlockStore."""

    volume_id: str = msgspec.field(name="volumeID", default="")


class AzureDisk(msgspec.Struct, gc=False, rename="camel"):
    """azureDisk."""

    disk_uri: str = msgspec.field(name="diskURI", default="")
    kind: str | None = None


class Numbered(msgspec.Struct, gc=False):
    """cinder, portworxVolume."""

    volume_id: str = msgspec.field(name="volumeID", default="")


class InTree(msgspec.Struct, gc=False, rename="camel"):
    """The sources of a persistent volume or of a pod's volume that have moved to CSI."""

    gce_persistent_disk: GceDisk | None = None
    aws_elastic_block_store: AwsDisk | None = None
    azure_disk: AzureDisk | None = None
    cinder: Numbered | None = None
    portworx_volume: Numbered | None = None


def csi_of(source: InTree, labels: Mapping[str, str]) -> Csi | None:
    """Return what a source has become. labels: of the persistent volume, which tell the zones of a disk."""
    plugin, handle = "", ""
    if source.gce_persistent_disk is not None:
        plugin, handle = "kubernetes.io/gce-pd", _gce(source.gce_persistent_disk.pd_name, labels)
    elif source.aws_elastic_block_store is not None:
        plugin, handle = "kubernetes.io/aws-ebs", _aws(source.aws_elastic_block_store.volume_id)
    elif source.azure_disk is not None:
        managed = source.azure_disk.kind is None or source.azure_disk.kind.lower() == "managed"
        plugin, handle = "kubernetes.io/azure-disk", source.azure_disk.disk_uri if managed else ""
    elif source.cinder is not None:
        plugin, handle = "kubernetes.io/cinder", source.cinder.volume_id
    elif source.portworx_volume is not None:
        plugin, handle = "kubernetes.io/portworx-volume", source.portworx_volume.volume_id
    return (plugin, MOVED[plugin], handle) if handle else None


def _gce(name: str, labels: Mapping[str, str]) -> str:
    zones = (labels.get(_OLD_ZONE) or labels.get(_ZONE) or _UNKNOWN).split(_MANY)
    if len(zones) == 1:
        return f"projects/{_UNKNOWN}/zones/{zones[0]}/disks/{name}"
    parts = [zone.split("-") for zone in zones]
    regions = {"-".join(part[:2]) for part in parts}
    if len(regions) > 1 or any(len(part) != 3 for part in parts):
        return ""
    return f"projects/{_UNKNOWN}/regions/{regions.pop()}/disks/{name}"


def _aws(name: str) -> str:
    if not name.startswith("aws://"):
        return name
    found = re.fullmatch(r"aws://[^/?#]*/+(vol-[^/?#]*)/*([?#].*)?", name)
    return found[1] if found else ""


def moved_terms(plugin: str, terms: Terms, labels: Mapping[str, str]) -> Terms:
    """Return from where a persistent volume is reached on a node whose kubelet has left the plugin to CSI."""
    topology = _TOPOLOGY.get(plugin)
    if topology is None:
        return terms
    named = {need.key for term in terms or () for need in term.expressions}
    old = _ZONE not in named and (_OLD_ZONE in named or (_ZONE not in labels and _OLD_ZONE in labels))
    zone = _OLD_ZONE if old else _ZONE
    moved = terms
    if any(need.key == zone and need.values for term in terms or () for need in term.expressions):
        moved = _renamed(terms or (), zone, topology)
    else:
        zones = sorted({one.strip() for one in labels.get(zone, "").split(_MANY)} - {""})
        if zones:
            need = Requirement(intern(topology), "In", tuple(zones))
            moved = tuple(
                replace(term, expressions=(*term.expressions, need)) for term in terms or (SelectorTerm((), ()),)
            )
    return _renamed(moved or (), _OLD_REGION, _REGION) if old and moved else moved


def _renamed(terms: Iterable[SelectorTerm], key: str, other: str) -> tuple[SelectorTerm, ...]:
    return tuple(
        replace(
            term,
            expressions=tuple(replace(need, key=other) if need.key == key else need for need in term.expressions),
        )
        for term in terms
    )
