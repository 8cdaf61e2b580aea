"""Tables: the columns and cells that `kubectl get` prints.

Decided here: columns by kind, and how a CRD's printer columns are evaluated. It must not know HTTP. Invariant: a row
has as many cells as there are columns.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from scheduler.playground.errors import Obj
from scheduler.playground.kinds import Resource

Cell = Callable[[Obj], Any]
Column = tuple[str, str, int, Cell]
"""name, type, priority (0 is shown without -o wide), cell"""


def age(stamp: str | None) -> str:
    """Return how long ago a time was, as kubectl writes durations."""
    if not stamp:
        return "<unknown>"
    seconds = int((datetime.now(UTC) - datetime.fromisoformat(stamp)).total_seconds())
    return duration(max(0, seconds))


def duration(seconds: int) -> str:
    """Return a duration as kubectl writes it."""
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if seconds < 120:
        return f"{seconds}s"
    if minutes < 10:
        return f"{minutes}m{seconds % 60}s" if seconds % 60 else f"{minutes}m"
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        return f"{hours}h{minutes % 60}m" if minutes % 60 else f"{hours}h"
    if hours < 48:
        return f"{hours}h"
    if days < 8:
        return f"{days}d{hours % 24}h" if hours % 24 else f"{days}d"
    return f"{days}d" if days < 730 else f"{days // 365}y"


def _name(obj: Obj) -> Any:
    return obj["metadata"]["name"]


def _age(obj: Obj) -> Any:
    return age(obj["metadata"].get("creationTimestamp"))


def _get(obj: Any, path: str, default: Any = "") -> Any:
    for part in path.split("."):
        if not isinstance(obj, dict) or part not in obj:
            return default
        obj = obj[part]
    return obj


def _field(path: str, default: Any = "<none>") -> Cell:
    return lambda obj: _get(obj, path, default)


def pod_status(pod: Obj) -> str:
    """Return the STATUS column of a pod."""
    status = pod.get("status") or {}
    text = status.get("reason") or status.get("phase") or "Unknown"
    for row in status.get("conditions") or ():
        if row.get("type") == "PodScheduled" and row.get("reason") == "SchedulingGated":
            text = "SchedulingGated"
    for row in status.get("containerStatuses") or ():
        state = row.get("state") or {}
        for kind in ("waiting", "terminated"):
            if state.get(kind, {}).get("reason"):
                text = state[kind]["reason"]
    if pod["metadata"].get("deletionTimestamp"):
        text = "Terminating" if status.get("phase") not in ("Failed", "Succeeded") else text
    return str(text)


def _ready(pod: Obj) -> str:
    rows = _get(pod, "status.containerStatuses", [])
    return f"{sum(1 for row in rows if row.get('ready'))}/{len(_get(pod, 'spec.containers', []))}"


def _restarts(pod: Obj) -> str:
    return str(sum(row.get("restartCount", 0) for row in _get(pod, "status.containerStatuses", [])))


def _gates(pod: Obj) -> str:
    return "<none>"


def _node_status(node: Obj) -> str:
    rows = {row["type"]: row["status"] for row in _get(node, "status.conditions", [])}
    text = {"True": "Ready", None: "Unknown"}.get(rows.get("Ready"), "NotReady")
    return text + ",SchedulingDisabled" if _get(node, "spec.unschedulable", False) else text


def _roles(node: Obj) -> str:
    prefix = "node-role.kubernetes.io/"
    found = sorted(key.removeprefix(prefix) for key in _get(node, "metadata.labels", {}) if key.startswith(prefix))
    return ",".join(found) or "<none>"


def _job_status(job: Obj) -> str:
    for row in _get(job, "status.conditions", []):
        if row.get("status") == "True" and row.get("type") in ("Complete", "Failed", "Suspended"):
            return str(row["type"])
    return "Suspended" if _get(job, "spec.suspend", False) else "Running"


def _job_completions(job: Obj) -> str:
    done = _get(job, "status.succeeded", 0)
    wanted = _get(job, "spec.completions", None)
    if wanted is None:
        parallel = _get(job, "spec.parallelism", 1)
        return f"{done}/1 of {parallel}" if parallel > 1 else f"{done}/1"
    return f"{done}/{wanted}"


def _job_duration(job: Obj) -> str:
    start = _get(job, "status.startTime", None)
    if not start:
        return ""
    end = _get(job, "status.completionTime", None)
    last = datetime.fromisoformat(end) if end else datetime.now(UTC)
    return duration(int((last - datetime.fromisoformat(start)).total_seconds()))


def _last_seen(event: Obj) -> str:
    return age(event.get("lastTimestamp") or event.get("eventTime") or event["metadata"].get("creationTimestamp"))


def _about(event: Obj) -> str:
    about = event.get("involvedObject") or event.get("regarding") or {}
    return f"{about.get('kind', '').lower()}/{about.get('name', '')}"


def _selector(obj: Obj) -> str:
    rows = _get(obj, "spec.selector.matchLabels", {}) or {}
    return ",".join(f"{key}={value}" for key, value in sorted(rows.items())) or "<none>"


_NAME: Column = ("Name", "string", 0, _name)
_AGE: Column = ("Age", "string", 0, _age)

_COLUMNS: dict[str, list[Column]] = {
    "pods": [
        _NAME,
        ("Ready", "string", 0, _ready),
        ("Status", "string", 0, pod_status),
        ("Restarts", "string", 0, _restarts),
        _AGE,
        ("IP", "string", 1, _field("status.podIP")),
        ("Node", "string", 1, _field("spec.nodeName")),
        ("Nominated Node", "string", 1, _field("status.nominatedNodeName")),
        ("Readiness Gates", "string", 1, _gates),
    ],
    "nodes": [
        _NAME,
        ("Status", "string", 0, _node_status),
        ("Roles", "string", 0, _roles),
        _AGE,
        ("Version", "string", 0, _field("status.nodeInfo.kubeletVersion", "")),
    ],
    "namespaces": [_NAME, ("Status", "string", 0, _field("status.phase")), _AGE],
    "jobs.batch": [
        _NAME,
        ("Status", "string", 0, _job_status),
        ("Completions", "string", 0, _job_completions),
        ("Duration", "string", 0, _job_duration),
        _AGE,
    ],
    "deployments.apps": [
        _NAME,
        ("Ready", "string", 0, lambda o: f"{_get(o, 'status.readyReplicas', 0)}/{_get(o, 'spec.replicas', 1)}"),
        ("Up-to-date", "string", 0, _field("status.updatedReplicas", 0)),
        ("Available", "string", 0, _field("status.availableReplicas", 0)),
        _AGE,
        ("Selector", "string", 1, _selector),
    ],
    "replicasets.apps": [
        _NAME,
        ("Desired", "integer", 0, _field("spec.replicas", 1)),
        ("Current", "integer", 0, _field("status.replicas", 0)),
        ("Ready", "integer", 0, _field("status.readyReplicas", 0)),
        _AGE,
        ("Selector", "string", 1, _selector),
    ],
    "events": [
        ("Last Seen", "string", 0, _last_seen),
        ("Type", "string", 0, _field("type", "")),
        ("Reason", "string", 0, _field("reason", "")),
        ("Object", "string", 0, _about),
        ("Message", "string", 0, lambda o: str(o.get("message") or o.get("note") or "").strip()),
        ("Name", "string", 1, _name),
    ],
    "services": [
        _NAME,
        ("Type", "string", 0, _field("spec.type")),
        ("Cluster-IP", "string", 0, _field("spec.clusterIP")),
        (
            "Port(s)",
            "string",
            0,
            lambda o: ",".join(f"{p.get('port')}/{p.get('protocol', 'TCP')}" for p in _get(o, "spec.ports", [])),
        ),
        _AGE,
    ],
    "leases.coordination.k8s.io": [_NAME, ("Holder", "string", 0, _field("spec.holderIdentity", "")), _AGE],
    "configmaps": [_NAME, ("Data", "string", 0, lambda o: len(o.get("data") or {})), _AGE],
    "secrets": [
        _NAME,
        ("Type", "string", 0, _field("type", "")),
        ("Data", "string", 0, lambda o: len(o.get("data") or {})),
        _AGE,
    ],
    "priorityclasses.scheduling.k8s.io": [
        _NAME,
        ("Value", "integer", 0, _field("value", 0)),
        ("Global-Default", "boolean", 0, _field("globalDefault", False)),
        _AGE,
        ("Preemptionpolicy", "string", 0, _field("preemptionPolicy", "")),
    ],
    "poddisruptionbudgets.policy": [
        _NAME,
        ("Min Available", "string", 0, _field("spec.minAvailable", "N/A")),
        ("Max Unavailable", "string", 0, _field("spec.maxUnavailable", "N/A")),
        ("Allowed Disruptions", "integer", 0, _field("status.disruptionsAllowed", 0)),
        _AGE,
    ],
    "persistentvolumeclaims": [
        _NAME,
        ("Status", "string", 0, _field("status.phase", "")),
        ("Volume", "string", 0, _field("spec.volumeName", "")),
        ("StorageClass", "string", 0, _field("spec.storageClassName", "")),
        _AGE,
    ],
    "customresourcedefinitions.apiextensions.k8s.io": [
        _NAME,
        ("Created At", "date", 0, _field("metadata.creationTimestamp")),
    ],
    "podgroups.scheduling.k8s.io": [
        _NAME,
        ("MinCount", "string", 0, _field("spec.schedulingPolicy.gang.minCount", "")),
        _AGE,
    ],
}
_DEFAULT: list[Column] = [_NAME, ("Created At", "date", 0, _field("metadata.creationTimestamp"))]
_PATH_PART = re.compile(
    r"\.?([^.\[\]]+)|\[(\d+|\*|'[^']*'|\"[^\"]*\"|\?\(@\.([^=\s)]+)\s*==\s*['\"]([^'\"]*)['\"]\))\]"
)


def json_path(obj: Any, path: str) -> Any:
    """Return the first value of the simple JSONPaths that printer columns use; None when there is none."""
    text = path.strip().strip("{}").removeprefix("$").replace("\\.", "\0")
    value = obj
    for found in _PATH_PART.finditer(text):
        key, inner, filter_field, filter_value = found.groups()
        if key is not None:
            value = value.get(key.replace("\0", ".")) if isinstance(value, dict) else None
        elif filter_field is not None:
            rows = value if isinstance(value, list) else []
            value = next((row for row in rows if str(_get(row, filter_field, None)) == filter_value), None)
        elif inner == "*":
            value = value[0] if isinstance(value, list) and value else None
        elif inner.isdigit():
            value = value[int(inner)] if isinstance(value, list) and int(inner) < len(value) else None
        else:
            value = value.get(inner[1:-1].replace("\0", ".")) if isinstance(value, dict) else None
        if value is None:
            return None
    return value


def _custom_cell(column: Obj) -> Cell:
    path, kind = column.get("jsonPath", ""), column.get("type")

    def cell(obj: Obj) -> Any:
        value = json_path(obj, path)
        if value is None:
            return None
        if kind == "date":
            return age(value) if isinstance(value, str) else "<invalid>"
        if kind == "string" and not isinstance(value, str):
            return json.dumps(value, separators=(",", ":")) if isinstance(value, dict | list | bool) else str(value)
        return value

    return cell


def _columns(resource: Resource, version: str) -> list[Column]:
    if resource.crd is None:
        return _COLUMNS.get(resource.storage, _DEFAULT)
    rows: list[Column] = [_NAME]
    custom = resource.crd.columns.get(version) or [
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}
    ]
    rows += [(one["name"], one["type"], one.get("priority", 0), _custom_cell(one)) for one in custom]
    return rows


def table_columns(resource: Resource, version: str) -> list[Obj]:
    """Return the column definitions."""
    return [
        {"name": name, "type": kind, "format": "name" if name == "Name" else "", "description": name, "priority": rank}
        for name, kind, rank, _ in _columns(resource, version)
    ]


def table_row(resource: Resource, version: str, obj: Obj) -> list[Any]:
    """Return the cells of one object."""
    return [cell(obj) for _, _, _, cell in _columns(resource, version)]
