"""Kubernetes' own PodGroup and Workload (scheduling.k8s.io): defaults and validation.

Decided here: what those two kinds must satisfy. The real server also keeps a PodGroup with a finalizer while pods
refer to it; the embedded one does not. It must not know other kinds. Invariant: a stored PodGroup has exactly one
policy.
"""

from __future__ import annotations

from typing import Any

from scheduler.playground.admission import resolve_priority
from scheduler.playground.errors import Cause, Obj, field_invalid, field_required
from scheduler.playground.storage import Store


def _one_of(where: str, value: Obj, *names: str) -> list[Cause]:
    present = [name for name in names if name in value]
    listed = ", ".join(f"`{name}`" for name in names)
    if not present:
        return [field_invalid(where, "", f"must specify one of: {listed}")]
    if len(present) > 1:
        text = f"must specify exactly one of: {listed}"
        return [field_invalid(where, "{" + ", ".join(present) + "}", text)]
    return []


def _policy(where: str, policy: Any) -> list[Cause]:
    policy = policy if isinstance(policy, dict) else {}
    causes = _one_of(where, policy, "basic", "gang")
    if causes or "gang" not in policy:
        return causes
    count = (policy["gang"] or {}).get("minCount")
    if not count:
        return [field_required(f"{where}.gang.minCount")]
    if not isinstance(count, int) or count < 0:
        return [field_invalid(f"{where}.gang.minCount", count, "must be greater than or equal to 1")]
    return []


def create_group(store: Store, one: Obj) -> list[Cause]:
    """Complete a new PodGroup and return its errors."""
    spec = one.get("spec")
    if not isinstance(spec, dict):
        spec = one["spec"] = {}
    resolve_priority(store, spec, "scheduling.k8s.io", "podgroups", one["metadata"]["name"])
    spec.setdefault("disruptionMode", {"single": {}})
    one["status"] = {}
    return _policy("spec.schedulingPolicy", spec.get("schedulingPolicy"))


def update_group(store: Store, old: Obj, new: Obj, status: bool) -> list[Cause]:
    """Complete a changed PodGroup and return its errors."""
    if status:
        new["spec"] = old["spec"]
        return []
    spec, before = new.get("spec") or {}, old["spec"]
    causes = _policy("spec.schedulingPolicy", spec.get("schedulingPolicy"))
    if not causes and set(spec["schedulingPolicy"]) != set(before["schedulingPolicy"]):
        causes.append(field_invalid("spec.schedulingPolicy", spec["schedulingPolicy"], "field is immutable"))
    for field in ("workloadRef", "priorityClassName", "priority", "disruptionMode", "schedulingConstraints"):
        if spec.get(field) != before.get(field):
            causes.append(field_invalid(f"spec.{field}", spec.get(field), "field is immutable"))
    return causes


def create_workload(store: Store, one: Obj) -> list[Cause]:
    """Return the errors of a new Workload."""
    spec = one.get("spec")
    if not isinstance(spec, dict):
        spec = one["spec"] = {}
    causes = _one_of("spec", spec, "podGroupTemplates", "compositePodGroupTemplates")
    for index, template in enumerate(spec.get("podGroupTemplates") or ()):
        causes += _policy(f"spec.podGroupTemplates[{index}].schedulingPolicy", template.get("schedulingPolicy"))
    return causes
