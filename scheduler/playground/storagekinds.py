"""Claims, persistent volumes and storage classes: what the server fills in, refuses, and never lets change.

Decided here: the checks of the real API server on which binding volumes relies: sizes and access modes, the one volume
source, and which fields are set once (the volume of a claim, the node affinity of a volume). Invariant: as in
strategies.py, what these functions accept may be stored.
"""

from __future__ import annotations

import re

from scheduler.playground.errors import Cause, Obj, field_forbidden, field_invalid, field_required, field_unsupported
from scheduler.playground.plain import spec_object
from scheduler.playground.quantities import canonicalise
from scheduler.playground.storage import Store

_MODES = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"]
_DRIVER = re.compile(r"[a-zA-Z0-9]([-a-zA-Z0-9.]{0,61}[a-zA-Z0-9])?")
_PLAIN = frozenset(
    {
        "accessModes", "capacity", "claimRef", "mountOptions", "nodeAffinity", "persistentVolumeReclaimPolicy",
        "storageClassName", "volumeAttributesClassName", "volumeMode",
    }
)  # fmt: skip
"""Fields of a volume's spec that are not its source."""


def _modes(modes: list[str] | None) -> list[Cause]:
    where = "spec.accessModes"
    if not modes:
        return [field_required(where, "at least 1 access mode is required")]
    causes = [field_unsupported(where, mode, _MODES) for mode in modes if mode not in _MODES]
    if "ReadWriteOncePod" in modes and len(modes) > 1:
        causes.append(field_forbidden(where, "may not use ReadWriteOncePod with other access modes"))
    return causes


def create_claim(store: Store, one: Obj) -> list[Cause]:
    """Complete a new claim: it is pending until a controller binds it."""
    spec = spec_object(one)
    spec.setdefault("volumeMode", "Filesystem")
    requests = (spec.get("resources") or {}).get("requests") or {}
    canonicalise("PersistentVolumeClaim", "v1", requests)
    one["status"] = {"phase": "Pending"}
    causes = _modes(spec.get("accessModes"))
    if "storage" not in requests:
        causes.append(field_required("spec.resources[storage]"))
    return causes


def update_claim(store: Store, old: Obj, new: Obj, status: bool) -> list[Cause]:
    """Let a claim change in what may change: its volume once, its request, and nothing else of its spec."""
    if status:
        new["spec"] = old["spec"]
        return []
    canonicalise("PersistentVolumeClaim", "v1", (new["spec"].get("resources") or {}).get("requests"))
    before, after = dict(old["spec"]), dict(new["spec"])
    if not before.get("volumeName"):
        after.pop("volumeName", None)
        before.pop("volumeName", None)
    for field in ("resources", "volumeAttributesClassName"):
        before.pop(field, None)
        after.pop(field, None)
    if before != after:
        text = (
            "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"
        )
        return [field_forbidden("spec", text)]
    return []


def create_volume(store: Store, one: Obj) -> list[Cause]:
    """Complete a new volume: it is available."""
    spec = spec_object(one)
    spec.setdefault("volumeMode", "Filesystem")
    spec.setdefault("persistentVolumeReclaimPolicy", "Retain")
    canonicalise("PersistentVolume", "v1", spec.get("capacity"))
    one["status"] = {"phase": "Available"}
    causes = _modes(spec.get("accessModes"))
    if "storage" not in (spec.get("capacity") or {}):
        causes.append(field_required("spec.capacity"))
    sources = [field for field in spec if field not in _PLAIN]
    if not sources:
        causes.append(field_required("spec", "must specify a volume type"))
    elif len(sources) > 1:
        causes.append(field_forbidden(f"spec.{sources[1]}", "may not specify more than 1 volume type"))
    elif sources == ["csi"] and not _DRIVER.fullmatch(str(spec["csi"].get("driver", ""))):
        causes.append(field_invalid("spec.csi.driver", spec["csi"].get("driver", ""), "must be a DNS subdomain name"))
    elif sources == ["local"] and not spec.get("nodeAffinity"):
        causes.append(field_required("spec.nodeAffinity", "Local volume requires node affinity"))
    return causes


def update_volume(store: Store, old: Obj, new: Obj, status: bool) -> list[Cause]:
    """Let a volume change in anything but its source and the nodes that reach it."""
    if status:
        new["spec"] = old["spec"]
        return []
    canonicalise("PersistentVolume", "v1", new["spec"].get("capacity"))
    causes = []
    source = {field: value for field, value in old["spec"].items() if field not in _PLAIN}
    if source != {field: value for field, value in new["spec"].items() if field not in _PLAIN}:
        causes.append(
            field_forbidden("spec.persistentvolumesource", "spec.persistentvolumesource is immutable after creation")
        )
    affinity = old["spec"].get("nodeAffinity")
    if affinity and affinity != new["spec"].get("nodeAffinity"):
        causes.append(field_invalid("spec.nodeAffinity", new["spec"].get("nodeAffinity"), "field is immutable"))
    return causes


def create_class(store: Store, one: Obj) -> list[Cause]:
    """Complete a new storage class."""
    one.setdefault("reclaimPolicy", "Delete")
    one.setdefault("volumeBindingMode", "Immediate")
    return [] if one.get("provisioner") else [field_required("provisioner")]


def update_class(store: Store, old: Obj, new: Obj, status: bool) -> list[Cause]:
    """Refuse to change what volumes were made by."""
    new.setdefault("reclaimPolicy", old.get("reclaimPolicy"))
    causes = [
        field_forbidden(field, f"updates to {field} are forbidden.")
        for field in ("provisioner", "parameters", "reclaimPolicy")
        if old.get(field) != new.get(field)
    ]
    if old.get("volumeBindingMode") != new.setdefault("volumeBindingMode", old.get("volumeBindingMode")):
        causes.append(field_invalid("volumeBindingMode", new["volumeBindingMode"], "field is immutable"))
    return causes
