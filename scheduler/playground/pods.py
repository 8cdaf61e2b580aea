"""Pods: defaulting as the real server does it, and what a pod must satisfy to exist.

Decided here: default values of the pod spec, QoS class, initial status, and the validation that matters to a scheduler.
It must not know storage, priority classes (admission.py) or updates (podupdate.py). Invariant: a pod that passes
`validate_pod` has parseable quantities, unique container names and limits not below requests.
"""

from __future__ import annotations

from typing import Any

from scheduler.playground.errors import (
    Cause,
    Obj,
    bad_request,
    field_duplicate,
    field_forbidden,
    field_invalid,
    field_required,
    field_unsupported,
)
from scheduler.playground.metadata import dns_label, labels, now, qualified_name
from scheduler.playground.podrules import affinity, spread_constraints, tolerations
from scheduler.playground.quantities import canonicalise, exact, undecodable

CONTAINER_LISTS = ("initContainers", "containers")
_STANDARD = ("must be a standard resource type or fully qualified", "must be a standard resource for containers")
_OVERCOMMIT = frozenset({"cpu", "memory", "ephemeral-storage", "storage"})


def _negative(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value < 0


def _probe(probe: Obj | None) -> None:
    if not probe:
        return
    for field, value in (
        ("timeoutSeconds", 1),
        ("periodSeconds", 10),
        ("successThreshold", 1),
        ("failureThreshold", 3),
    ):
        probe.setdefault(field, value)
    if isinstance(probe.get("httpGet"), dict):
        probe["httpGet"].setdefault("path", "/")
        probe["httpGet"].setdefault("scheme", "HTTP")


def _container(container: Obj, host_network: bool) -> None:
    image = container.get("image") or ""
    tag = image.rsplit("/", 1)[-1]
    latest = "@" not in tag and (":" not in tag or tag.endswith(":latest"))
    container.setdefault("imagePullPolicy", "Always" if latest else "IfNotPresent")
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    resources = container.setdefault("resources", {}) or {}
    container["resources"] = resources
    limits = resources.get("limits") or {}
    if limits:
        requests = resources.setdefault("requests", {}) or {}
        resources["requests"] = requests
        for name, value in limits.items():
            requests.setdefault(name, value)
    for port in container.get("ports") or ():
        port.setdefault("protocol", "TCP")
        if host_network:
            port.setdefault("hostPort", port.get("containerPort"))
    for env in container.get("env") or ():
        reference = (env.get("valueFrom") or {}).get("fieldRef")
        if reference is not None:
            reference.setdefault("apiVersion", "v1")
    for probe in ("livenessProbe", "readinessProbe", "startupProbe"):
        _probe(container.get(probe))


_VOLUME_DEFAULTS: dict[str, Obj] = {
    "configMap": {"defaultMode": 420},
    "secret": {"defaultMode": 420},
    "projected": {"defaultMode": 420},
    "downwardAPI": {"defaultMode": 420},
    "hostPath": {"type": ""},
}


def default_pod_spec(spec: Obj) -> None:
    """Fill the defaults of a pod spec (of a pod or a template)."""
    for field, value in (
        ("restartPolicy", "Always"),
        ("terminationGracePeriodSeconds", 30),
        ("dnsPolicy", "ClusterFirst"),
        ("schedulerName", "default-scheduler"),
    ):
        spec.setdefault(field, value)
    if spec.get("securityContext") is None:
        spec["securityContext"] = {}
    if spec["terminationGracePeriodSeconds"] is not None and _negative(spec["terminationGracePeriodSeconds"]):
        spec["terminationGracePeriodSeconds"] = 1
    if spec.get("serviceAccountName"):
        spec["serviceAccount"] = spec["serviceAccountName"]
    for kind in CONTAINER_LISTS:
        for container in _rows(spec, kind):
            _container(container, bool(spec.get("hostNetwork")))
    for volume in spec.get("volumes") or ():
        for source, defaults in _VOLUME_DEFAULTS.items():
            if isinstance(volume.get(source), dict):
                for field, value in defaults.items():
                    volume[source].setdefault(field, value)
        if len(volume) == 1:
            volume["emptyDir"] = {}


def _rows(spec: Obj, field: str, kind: str = "Pod", version: str = "v1") -> list[Obj]:
    rows = spec.get(field) or []
    if not isinstance(rows, list) or any(not isinstance(row, dict) for row in rows):
        why = f"json: cannot unmarshal into Go struct field PodSpec.spec.{field} of type []v1.Container"
        raise undecodable(kind, version, why)
    return rows


def default_pod(pod: Obj) -> None:
    """Fill the defaults of a new pod; `enableServiceLinks` exists on pods only, not on templates."""
    spec = pod.get("spec")
    if spec is None:
        spec = pod["spec"] = {}
    if not isinstance(spec, dict):
        raise bad_request("json: cannot unmarshal spec: an object is expected")
    spec.setdefault("serviceAccountName", "default")
    default_pod_spec(spec)
    spec.setdefault("enableServiceLinks", True)
    _default_not_ready_tolerations(spec)


def _default_not_ready_tolerations(spec: Obj) -> None:
    rows = spec.setdefault("tolerations", []) or []
    spec["tolerations"] = rows
    for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"):
        if not any(
            (row.get("key") == key or (not row.get("key") and row.get("operator") == "Exists"))
            and row.get("effect") in (None, "", "NoExecute")
            for row in rows
        ):
            rows.append({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300})


def qos_class(spec: Obj) -> str:
    """Return Guaranteed, Burstable or BestEffort."""
    requests: dict[str, Any] = {}
    limits: dict[str, Any] = {}
    guaranteed = True
    pod_level = spec.get("resources")
    units = [{"resources": pod_level}] if pod_level else [c for k in CONTAINER_LISTS for c in spec.get(k) or ()]
    for unit in units:
        resources = unit.get("resources") or {}
        for name in ("cpu", "memory"):
            request = (resources.get("requests") or {}).get(name)
            limit = (resources.get("limits") or {}).get(name)
            if request is not None and exact(request) > 0:
                requests[name] = exact(request)
            if limit is not None and exact(limit) > 0:
                limits[name] = exact(limit)
            else:
                guaranteed = False
            if request is not None and limit is not None and exact(request) != exact(limit):
                guaranteed = False
    if not requests and not limits:
        return "BestEffort"
    return "Guaranteed" if guaranteed and set(limits) == {"cpu", "memory"} else "Burstable"


def initial_status(pod: Obj) -> None:
    """Set the status of a new pod: Pending, and SchedulingGated when a gate is left."""
    status: Obj = {"phase": "Pending", "qosClass": qos_class(pod["spec"])}
    gates = pod["spec"].get("schedulingGates")
    if gates:
        status["conditions"] = [
            {
                "type": "PodScheduled",
                "status": "False",
                "lastProbeTime": None,
                "lastTransitionTime": now(),
                "reason": "SchedulingGated",
                "message": "Scheduling is blocked due to non-empty scheduling gates",
            }
        ]
    pod["status"] = status


# ---- validation ----


def check_decodable(kind: str, version: str, pod: Obj) -> None:
    """Refuse what would not decode into a pod (or template), and put its quantities into canonical form."""
    spec = pod.get("spec") or {}
    if not isinstance(spec, dict):
        raise undecodable(kind, version, "json: cannot unmarshal into Go struct field .spec of type v1.PodSpec")
    for field in CONTAINER_LISTS:
        for container in _rows(spec, field, kind, version):
            resources = container.get("resources") or {}
            for part in ("requests", "limits"):
                canonicalise(kind, version, resources.get(part))
    for part in ("requests", "limits"):
        canonicalise(kind, version, (spec.get("resources") or {}).get(part))
    canonicalise(kind, version, spec.get("overhead"))


def validate_resources(where: str, resources: Obj) -> list[Cause]:
    """Return the errors of one requests/limits pair."""
    causes: list[Cause] = []
    limits = resources.get("limits") or {}
    for part in ("limits", "requests"):
        for name, text in sorted((resources.get(part) or {}).items()):
            field = f"{where}.{part}[{name}]"
            if "/" not in name and name not in _OVERCOMMIT and not name.startswith("hugepages-"):
                causes += [field_invalid(field, name, why) for why in _STANDARD]
                continue
            causes += qualified_name(field, name)
            amount = exact(text)
            if amount < 0:
                causes.append(field_invalid(f"{where}.{part}[{name}]", str(text), "must be greater than or equal to 0"))
            elif "/" in name and amount.denominator != 1:
                causes.append(field_invalid(field, str(text), "must be an integer"))
    for name, text in sorted((resources.get("requests") or {}).items()):
        limit = limits.get(name)
        if limit is None:
            if "/" in name:
                causes.append(field_required(f"{where}.limits", "Limit must be set for non overcommitable resources"))
        elif name not in _OVERCOMMIT and exact(text) != exact(limit):
            text_ = f"must be equal to {name} limit of {limit}"
            causes.append(field_invalid(f"{where}.requests", str(text), text_))
        elif exact(text) > exact(limit):
            text_ = f"must be less than or equal to {name} limit of {limit}"
            causes.append(field_invalid(f"{where}.requests", str(text), text_))
    return causes


def _containers(spec: Obj) -> list[Cause]:
    causes: list[Cause] = []
    names: set[str] = set()
    if not spec.get("containers"):
        causes.append(field_required("spec.containers"))
    for kind in CONTAINER_LISTS:
        for index, container in enumerate(spec.get(kind) or ()):
            where = f"spec.{kind}[{index}]"
            name = container.get("name")
            causes += dns_label(f"{where}.name", name)
            if name in names:
                causes.append(field_duplicate(f"{where}.name", name))
            names.add(name)
            if not container.get("image"):
                causes.append(field_required(f"{where}.image"))
            policy = container.get("imagePullPolicy")
            if policy not in ("Always", "IfNotPresent", "Never"):
                supported = ["Always", "IfNotPresent", "Never"]
                causes.append(field_unsupported(f"{where}.imagePullPolicy", policy, supported))
            for at, port in enumerate(container.get("ports") or ()):
                causes += _port(f"{where}.ports[{at}]", port)
            causes += validate_resources(f"{where}.resources", container.get("resources") or {})
    return causes


def _port(where: str, port: Obj) -> list[Cause]:
    causes: list[Cause] = []
    number = port.get("containerPort")
    if not number:
        causes.append(field_required(f"{where}.containerPort"))
    for field in ("containerPort", "hostPort"):
        value = port.get(field)
        if value and (not isinstance(value, int) or not 0 < value < 65536):
            causes.append(field_invalid(f"{where}.{field}", value, "must be between 1 and 65535, inclusive"))
    if port.get("protocol") not in ("TCP", "UDP", "SCTP"):
        causes.append(field_unsupported(f"{where}.protocol", port.get("protocol"), ["TCP", "UDP", "SCTP"]))
    return causes


def _gates(spec: Obj) -> list[Cause]:
    causes: list[Cause] = []
    seen: set[str] = set()
    for index, gate in enumerate(spec.get("schedulingGates") or ()):
        name = gate.get("name")
        causes += qualified_name(f"spec.schedulingGates[{index}]", name)
        if name in seen:
            causes.append(field_duplicate(f"spec.schedulingGates[{index}]", name))
        seen.add(name)
    if seen and spec.get("nodeName"):
        causes.append(field_forbidden("spec.nodeName", "cannot be set until all schedulingGates have been cleared"))
    return causes


def validate_pod_spec(spec: Obj, *, template: bool = False) -> list[Cause]:
    """Return the errors of a pod spec."""
    causes = _containers(spec)
    policies = ["Always", "OnFailure", "Never"]
    if spec.get("restartPolicy") not in policies:
        causes.append(field_unsupported("spec.restartPolicy", spec.get("restartPolicy"), policies))
    if spec.get("preemptionPolicy") not in (None, "Never", "PreemptLowerPriority"):
        supported = ["Never", "PreemptLowerPriority"]
        causes.append(field_unsupported("spec.preemptionPolicy", spec["preemptionPolicy"], supported))
    grace = spec.get("terminationGracePeriodSeconds")
    if not isinstance(grace, int) or isinstance(grace, bool):
        raise undecodable("Pod", "v1", "json: cannot unmarshal terminationGracePeriodSeconds into an integer")
    if grace < 0:
        causes.append(field_invalid("spec.terminationGracePeriodSeconds", grace, "must be greater than or equal to 0"))
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None and not 1 <= deadline <= 2**31 - 1:
        text = "must be between 1 and 2147483647, inclusive"
        causes.append(field_invalid("spec.activeDeadlineSeconds", deadline, text))
    causes += labels("spec.nodeSelector", spec.get("nodeSelector"))
    causes += tolerations("spec.tolerations", spec.get("tolerations") or [])
    causes += affinity("spec.affinity", spec.get("affinity") or {})
    causes += spread_constraints("spec.topologySpreadConstraints", spec.get("topologySpreadConstraints") or [])
    names: set[str] = set()
    for index, volume in enumerate(spec.get("volumes") or ()):
        causes += dns_label(f"spec.volumes[{index}].name", volume.get("name"))
        if volume.get("name") in names:
            causes.append(field_duplicate(f"spec.volumes[{index}].name", volume.get("name")))
        names.add(volume.get("name", ""))
    if not template:
        causes += _gates(spec)
    return causes


def validate_pod(pod: Obj) -> list[Cause]:
    """Return the errors of a new pod."""
    return validate_pod_spec(pod["spec"])
