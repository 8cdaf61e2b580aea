"""What is special about each built-in kind when it is created or changed.

Decided here: defaults, initial status, immutable fields and validation by kind, behind two functions that every write
goes through: `prepare_create` and `prepare_update`. It must not know HTTP, patches or deletion. Invariant: what these
functions accept may be stored.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from scheduler.playground import admission, native, plain, storagekinds
from scheduler.playground.errors import (
    Cause,
    Obj,
    bad_request,
    field_forbidden,
    field_invalid,
    field_required,
    field_unsupported,
)
from scheduler.playground.nodes import complete_node
from scheduler.playground.pods import (
    check_decodable,
    default_pod,
    default_pod_spec,
    initial_status,
    qos_class,
    validate_pod,
    validate_pod_spec,
)
from scheduler.playground.podupdate import validate_pod_update
from scheduler.playground.quantities import undecodable
from scheduler.playground.storage import Store

Create = Callable[[Store, Obj], list[Cause]]
Update = Callable[[Store, Obj, Obj, bool], list[Cause]]


def _spec(obj: Obj) -> Obj:
    spec = obj.get("spec")
    if spec is None:
        spec = obj["spec"] = {}
    if not isinstance(spec, dict):
        raise bad_request("json: cannot unmarshal spec: an object is expected")
    return spec


# ---- pods ----


def _create_pod(store: Store, pod: Obj) -> list[Cause]:
    check_decodable("Pod", "v1", pod)
    default_pod(pod)
    admission.admit_runtime_class(store, pod)
    admission.admit_priority(store, pod)
    causes = validate_pod(pod)
    initial_status(pod)
    return causes


def _update_pod(store: Store, old: Obj, new: Obj, status: bool) -> list[Cause]:
    if status:
        new["spec"] = old["spec"]
        pod_conditions(new.setdefault("status", {}))
        new["status"]["qosClass"] = old.get("status", {}).get("qosClass") or qos_class(old["spec"])
        return []
    check_decodable("Pod", "v1", new)
    default_pod(new)
    spec, before = new["spec"], old["spec"]
    for field in ("priority", "preemptionPolicy", "priorityClassName"):
        if field not in spec and field in before:
            spec[field] = before[field]
    if not spec.get("schedulingGates"):
        spec.pop("schedulingGates", None)
    return validate_pod_update(old, new)


def pod_conditions(status: Obj) -> None:
    """Write the times of conditions that were not given as null, as the real server does."""
    for row in status.get("conditions") or ():
        row.setdefault("lastProbeTime", None)
        row.setdefault("lastTransitionTime", None)


# ---- nodes and namespaces ----


def _create_node(store: Store, node: Obj) -> list[Cause]:
    _spec(node)
    return complete_node(node)


def _update_node(store: Store, old: Obj, new: Obj, status: bool) -> list[Cause]:
    if status:
        new["spec"] = dict(old.get("spec", {}))
    return complete_node(new)


def _create_namespace(store: Store, one: Obj) -> list[Cause]:
    one["spec"] = {"finalizers": ["kubernetes"]}
    one["status"] = {"phase": "Active"}
    one["metadata"].setdefault("labels", {})["kubernetes.io/metadata.name"] = one["metadata"]["name"]
    return []


def _update_namespace(store: Store, old: Obj, new: Obj, status: bool) -> list[Cause]:
    new["spec"] = old.get("spec", {})
    new["metadata"].setdefault("labels", {})["kubernetes.io/metadata.name"] = new["metadata"]["name"]
    return []


# ---- workloads ----


def _template(spec: Obj, restart: str | None = None) -> list[Cause]:
    template = spec.get("template")
    if not isinstance(template, dict):
        return [field_required("spec.template.spec.containers")]
    inner = template.setdefault("spec", {})
    check_decodable("Pod", "v1", template)
    if restart is not None and "restartPolicy" not in inner:
        inner["restartPolicy"] = restart
    default_pod_spec(inner)
    template.setdefault("metadata", {})
    causes = validate_pod_spec(inner, template=True)
    for cause in causes:
        cause.field = f"spec.template.{cause.field}"
    return causes


def _integer(spec: Obj, *fields: str) -> list[Cause]:
    causes: list[Cause] = []
    for field in fields:
        value = spec.get(field)
        if value is None:
            continue
        if not isinstance(value, int) or isinstance(value, bool):
            raise bad_request(f"json: cannot unmarshal {type(value).__name__} into field spec.{field} of type int32")
        if value < 0:
            causes.append(field_invalid(f"spec.{field}", value, "must be greater than or equal to 0"))
    return causes


def _default_job(job: Obj) -> Obj:
    spec = _spec(job)
    if spec.get("completions") is None and spec.get("parallelism") is None:
        spec["completions"] = 1
    for field, value in (
        ("parallelism", 1),
        ("backoffLimit", 6),
        ("completionMode", "NonIndexed"),
        ("suspend", False),
        ("manualSelector", False),
        ("podReplacementPolicy", "TerminatingOrFailed"),
    ):
        spec.setdefault(field, value)
    return spec


def _create_job(store: Store, job: Obj) -> list[Cause]:
    spec = _default_job(job)
    causes = _template(spec)
    policy = spec.get("template", {}).get("spec", {}).get("restartPolicy")
    if policy not in ("OnFailure", "Never"):
        where = "spec.template.spec.restartPolicy"
        causes.append(
            field_required(where, 'valid values: "OnFailure", "Never"')
            if policy == "Always"
            else field_unsupported(where, policy, ["OnFailure", "Never"])
        )
    causes += _integer(spec, "parallelism", "completions", "backoffLimit", "activeDeadlineSeconds")
    if spec["completionMode"] == "Indexed" and spec.get("completions") is None:
        causes.append(field_required("spec.completions", "when completion mode is Indexed"))
    if not spec.get("manualSelector"):
        uid, name = job["metadata"]["uid"], job["metadata"]["name"]
        wanted = {
            "batch.kubernetes.io/controller-uid": uid,
            "batch.kubernetes.io/job-name": name,
            "controller-uid": uid,
            "job-name": name,
        }
        spec["selector"] = {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}
        if isinstance(spec.get("template"), dict):
            spec["template"]["metadata"].setdefault("labels", {}).update(wanted)
        if not job["metadata"].get("labels") and isinstance(spec.get("template"), dict):
            job["metadata"]["labels"] = dict(spec["template"]["metadata"]["labels"])
    job["status"] = {}
    return causes


_JOB_IMMUTABLE = ("selector", "completionMode")


def _update_job(store: Store, old: Obj, new: Obj, status: bool) -> list[Cause]:
    if status:
        new["spec"] = old["spec"]
        pod_conditions(new.get("status") or {})
        return []
    spec, before = _default_job(new), old["spec"]
    causes = _template(spec) + _integer(spec, "parallelism", "completions", "backoffLimit")
    for field in _JOB_IMMUTABLE:
        if spec.get(field) != before.get(field):
            causes.append(field_invalid(f"spec.{field}", spec.get(field), "field is immutable"))
    if spec.get("completions") != before.get("completions") and not (
        spec["completionMode"] == "Indexed" and spec.get("completions") == spec.get("parallelism")
    ):
        indexed = spec["completionMode"] == "Indexed"
        text = "can only be modified in tandem with spec.parallelism" if indexed else "field is immutable"
        causes.append(field_invalid("spec.completions", spec.get("completions"), text))
    suspended = before.get("suspend") and not (old.get("status") or {}).get("startTime")
    if spec.get("template") != before.get("template") and not suspended:
        causes.append(field_invalid("spec.template", spec.get("template"), "field is immutable"))
    return causes


def _replicated(store: Store, one: Obj) -> list[Cause]:
    spec = _spec(one)
    spec.setdefault("replicas", 1)
    causes = _template(spec) + _integer(spec, "replicas")
    labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels") or {}
    selector = spec.get("selector")
    if not selector:
        causes.append(field_required("spec.selector"))
    if not selector or any(labels.get(key) != value for key, value in (selector.get("matchLabels") or {}).items()):
        text = "`selector` does not match template `labels`"
        causes.append(field_invalid("spec.template.metadata.labels", labels, text))
    return causes


def _create_replicated(store: Store, one: Obj) -> list[Cause]:
    causes = _replicated(store, one)
    if one["kind"] == "Deployment":
        _default_deployment(one["spec"])
    one["status"] = {"replicas": 0} if one["kind"] == "ReplicaSet" else {}
    return causes


def _default_deployment(spec: Obj) -> None:
    strategy = spec.setdefault("strategy", {})
    strategy.setdefault("type", "RollingUpdate")
    if strategy["type"] == "RollingUpdate":
        rolling = strategy.setdefault("rollingUpdate", {})
        rolling.setdefault("maxUnavailable", "25%")
        rolling.setdefault("maxSurge", "25%")
    spec.setdefault("revisionHistoryLimit", 10)
    spec.setdefault("progressDeadlineSeconds", 600)


def _update_replicated(store: Store, old: Obj, new: Obj, status: bool) -> list[Cause]:
    if status:
        new["spec"] = old["spec"]
        return []
    causes = _replicated(store, new)
    if new["kind"] == "Deployment":
        _default_deployment(new["spec"])
    if new["spec"].get("selector") != old["spec"].get("selector"):
        causes.append(field_invalid("spec.selector", new["spec"].get("selector"), "field is immutable"))
    return causes


# ---- policy, scheduling, storage ----


def _create_priority_class(store: Store, one: Obj) -> list[Cause]:
    value = one.get("value", 0)
    if not isinstance(value, int) or isinstance(value, bool):
        why = "json: cannot unmarshal into Go struct field PriorityClass.value of type int32"
        raise undecodable("PriorityClass", "v1", why)
    one["value"] = value
    one.setdefault("preemptionPolicy", "PreemptLowerPriority")
    admission.admit_priority_class(store, one)
    causes: list[Cause] = []
    if value > 1_000_000_000 and not one["metadata"]["name"].startswith("system-"):
        text = "maximum allowed value of a user defined priority is 1000000000"
        causes.append(field_forbidden("value", text))
    if one["preemptionPolicy"] not in ("Never", "PreemptLowerPriority"):
        supported = ["PreemptLowerPriority", "Never"]
        causes.append(field_unsupported("preemptionPolicy", one["preemptionPolicy"], supported))
    return causes


def _update_priority_class(store: Store, old: Obj, new: Obj, status: bool) -> list[Cause]:
    new.setdefault("value", 0)
    new.setdefault("preemptionPolicy", "PreemptLowerPriority")
    admission.admit_priority_class(store, new)
    causes: list[Cause] = []
    if new["value"] != old.get("value"):
        causes.append(field_forbidden("value", "may not be changed in an update."))
    if new["preemptionPolicy"] != old.get("preemptionPolicy"):
        text = "field is immutable"
        causes.append(field_invalid("preemptionPolicy", new["preemptionPolicy"], text))
    return causes


def _create_pdb(store: Store, one: Obj) -> list[Cause]:
    one["status"] = {
        "currentHealthy": 0,
        "desiredHealthy": 0,
        "disruptionsAllowed": 0,
        "expectedPods": 0,
    }
    return _check_pdb(one)


def _check_pdb(one: Obj) -> list[Cause]:
    spec = _spec(one)
    if spec.get("minAvailable") is not None and spec.get("maxUnavailable") is not None:
        text = "minAvailable and maxUnavailable cannot be both set"
        return [field_invalid("spec", spec, text)]
    return []


def _update_pdb(store: Store, old: Obj, new: Obj, status: bool) -> list[Cause]:
    if status:
        new["spec"] = old["spec"]
        return []
    return _check_pdb(new)


def _create_event(store: Store, one: Obj) -> list[Cause]:
    one.setdefault("involvedObject", {})
    if one.pop("modern", False):
        if not one.get("eventTime"):
            return [field_required("eventTime")]
        for field, value in (("firstTimestamp", None), ("lastTimestamp", None), ("source", {})):
            one.setdefault(field, value)
    for field, empty in (("eventTime", None), ("reportingComponent", ""), ("reportingInstance", "")):
        one.setdefault(field, empty)
    namespace = one["involvedObject"].get("namespace") or "default"
    if namespace != one["metadata"].get("namespace") and one["involvedObject"].get("namespace"):
        return [field_invalid("involvedObject.namespace", namespace, "does not match event.namespace")]
    return []


def _create_lease(store: Store, one: Obj) -> list[Cause]:
    return _check_lease(one)


def _check_lease(one: Obj) -> list[Cause]:
    causes: list[Cause] = []
    seconds = _spec(one).get("leaseDurationSeconds")
    if seconds is not None and (not isinstance(seconds, int) or seconds <= 0):
        causes.append(field_invalid("spec.leaseDurationSeconds", seconds, "must be greater than 0"))
    moves = one["spec"].get("leaseTransitions")
    if moves is not None and moves < 0:
        causes.append(field_invalid("spec.leaseTransitions", moves, "must be greater than or equal to 0"))
    return causes


_CREATE: dict[str, Create] = {
    "pods": _create_pod,
    "nodes": _create_node,
    "namespaces": _create_namespace,
    "jobs.batch": _create_job,
    "deployments.apps": _create_replicated,
    "replicasets.apps": _create_replicated,
    "statefulsets.apps": _create_replicated,
    "priorityclasses.scheduling.k8s.io": _create_priority_class,
    "poddisruptionbudgets.policy": _create_pdb,
    "persistentvolumeclaims": storagekinds.create_claim,
    "persistentvolumes": storagekinds.create_volume,
    "storageclasses.storage.k8s.io": storagekinds.create_class,
    "events": _create_event,
    "leases.coordination.k8s.io": _create_lease,
    "podgroups.scheduling.k8s.io": native.create_group,
    "workloads.scheduling.k8s.io": native.create_workload,
    "services": plain.create_service,
    "secrets": plain.complete_secret,
    "configmaps": lambda store, one: plain.data_keys(one),
    "limitranges": plain.create_limit_range,
}
_UPDATE: dict[str, Update] = {
    "pods": _update_pod,
    "nodes": _update_node,
    "namespaces": _update_namespace,
    "jobs.batch": _update_job,
    "deployments.apps": _update_replicated,
    "replicasets.apps": _update_replicated,
    "statefulsets.apps": _update_replicated,
    "priorityclasses.scheduling.k8s.io": _update_priority_class,
    "poddisruptionbudgets.policy": _update_pdb,
    "podgroups.scheduling.k8s.io": native.update_group,
    "persistentvolumeclaims": storagekinds.update_claim,
    "persistentvolumes": storagekinds.update_volume,
    "storageclasses.storage.k8s.io": storagekinds.update_class,
    "secrets": lambda store, old, new, status: plain.complete_secret(store, new),
    "configmaps": lambda store, old, new, status: plain.data_keys(new),
    "leases.coordination.k8s.io": lambda store, old, new, status: _check_lease(new),
}

FIXED_GENERATION = frozenset({"priorityclasses.scheduling.k8s.io"})
"""Resources whose generation is 1 for ever."""
RETURN_DELETED = frozenset(
    {
        "pods",
        "podtemplates",
        "persistentvolumes",
        "persistentvolumeclaims",
        "resourcequotas",
        "serviceaccounts",
        "storageclasses.storage.k8s.io",
        "csidrivers.storage.k8s.io",
        "csinodes.storage.k8s.io",
    }
)
"""Resources whose DELETE answers with the object that is gone, not with a Status."""
REQUIRE_VERSION = frozenset(
    {"leases.coordination.k8s.io", "poddisruptionbudgets.policy", "customresourcedefinitions.apiextensions.k8s.io"}
)
"""Resources whose PUT must name the resourceVersion (custom resources too)."""


def prepare_create(store: Store, storage: str, obj: Obj) -> list[Cause]:
    """Complete a new object and return its errors."""
    strategy = _CREATE.get(storage)
    return strategy(store, obj) if strategy else []


def prepare_update(store: Store, storage: str, old: Obj, new: Obj, status: bool) -> list[Cause]:
    """Complete a changed object and return its errors; `status` is a write of the status sub-resource."""
    strategy = _UPDATE.get(storage)
    if strategy:
        return strategy(store, old, new, status)
    if status and "spec" in old:
        new["spec"] = old["spec"]
    return []


def spec_of(obj: Obj) -> Any:
    """Return what generation counts: everything but metadata and status."""
    return {key: value for key, value in obj.items() if key not in ("metadata", "status", "apiVersion", "kind")}
