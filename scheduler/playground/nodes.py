"""Nodes: validation, what the server fills in, and the taints that follow from conditions.

Decided here: which taints a node carries because of its conditions and its cordon. On a real cluster a node controller
keeps them, a moment later; here they change in the same write. It must not know storage. Invariant: no node
that says it is not ready lacks the taint. A node without conditions has none; pods are not evicted by NoExecute taints.
"""

from __future__ import annotations

from scheduler.playground.errors import (
    Cause,
    Obj,
    field_duplicate,
    field_invalid,
    field_required,
    field_unsupported,
)
from scheduler.playground.metadata import now
from scheduler.playground.quantities import canonicalise

_PREFIX = "node.kubernetes.io/"
_PRESSURES = {
    ("MemoryPressure", "True"): "memory-pressure",
    ("DiskPressure", "True"): "disk-pressure",
    ("PIDPressure", "True"): "pid-pressure",
    ("NetworkUnavailable", "True"): "network-unavailable",
    ("Ready", "False"): "not-ready",
    ("Ready", "Unknown"): "unreachable",
}
_KEPT = frozenset({*(f"{_PREFIX}{name}" for name in _PRESSURES.values()), f"{_PREFIX}unschedulable"})
_EFFECTS = ["NoSchedule", "PreferNoSchedule", "NoExecute"]
_INFO = (
    "architecture",
    "bootID",
    "containerRuntimeVersion",
    "kernelVersion",
    "kubeProxyVersion",
    "kubeletVersion",
    "machineID",
    "operatingSystem",
    "osImage",
    "systemUUID",
)


def complete_node(node: Obj) -> list[Cause]:
    """Fill the defaults of a node in place and return its errors."""
    status = node.get("status")
    if not isinstance(status, dict):
        status = node["status"] = {}
    for part in ("capacity", "allocatable"):
        canonicalise("Node", "v1", status.get(part))
    if status.get("capacity") and "allocatable" not in status:
        status["allocatable"] = dict(status["capacity"])
    status.setdefault("daemonEndpoints", {"kubeletEndpoint": {"Port": 0}})
    info = status.setdefault("nodeInfo", {})
    for field in _INFO:
        info.setdefault(field, "")
    for row in status.get("conditions") or ():
        row.setdefault("lastHeartbeatTime", None)
        row.setdefault("lastTransitionTime", None)
    return _taints((node.get("spec") or {}).get("taints") or [])


def _taints(rows: list[Obj]) -> list[Cause]:
    causes: list[Cause] = []
    seen = set()
    for index, taint in enumerate(rows):
        where = f"metadata.taints[{index}]"
        if not taint.get("key"):
            causes.append(field_invalid(f"{where}.key", "", "name part must be non-empty"))
        if not taint.get("effect"):
            causes.append(field_required(f"{where}.effect"))
        elif taint["effect"] not in _EFFECTS:
            causes.append(field_unsupported(f"{where}.effect", taint["effect"], _EFFECTS))
        identity = (taint.get("key"), taint.get("effect"))
        if identity in seen:
            cause = field_duplicate(where, taint)
            cause.message += ": taints must be unique by key and effect pair"
            causes.append(cause)
        seen.add(identity)
    return causes


def keep_taints(node: Obj) -> None:
    """Set the taints that conditions and cordon ask for, in place; other taints stay."""
    spec = node.get("spec")
    if not isinstance(spec, dict):
        spec = node["spec"] = {}
    conditions = {row.get("type"): row.get("status") for row in node["status"].get("conditions") or ()}
    wanted = [
        (f"{_PREFIX}{name}", "NoSchedule") for key, name in _PRESSURES.items() if conditions.get(key[0]) == key[1]
    ]
    ready = {"False": "not-ready", "Unknown": "unreachable"}.get(conditions.get("Ready", ""))
    if ready:
        wanted.append((f"{_PREFIX}{ready}", "NoExecute"))
    if spec.get("unschedulable"):
        wanted.append((f"{_PREFIX}unschedulable", "NoSchedule"))
    rows = [
        row
        for row in spec.get("taints") or ()
        if row.get("key") not in _KEPT or (row.get("key"), row.get("effect")) in wanted
    ]
    known = {(row.get("key"), row.get("effect")) for row in rows}
    rows += [{"key": key, "effect": effect, "timeAdded": now()} for key, effect in wanted if (key, effect) not in known]
    if rows:
        spec["taints"] = rows
    else:
        spec.pop("taints", None)
