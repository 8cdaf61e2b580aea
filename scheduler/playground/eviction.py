"""Eviction: a delete that asks the pod's disruption budgets first.

Decided here: when a budget refuses (429) and what an allowed eviction costs it. The budget's numbers are kept by a
controller (controllers.py), as on a real cluster. Invariant: an eviction that is allowed lowers `disruptionsAllowed`
in the same step.
"""

from __future__ import annotations

from typing import Any

from scheduler.playground import deletion
from scheduler.playground.api import Api
from scheduler.playground.errors import ApiError, bad_request
from scheduler.playground.metadata import meta, now
from scheduler.playground.podupdate import set_condition
from scheduler.playground.selectors import match_label_selector
from scheduler.playground.storage import Stored

_TARGET = {
    "type": "DisruptionTarget",
    "status": "True",
    "reason": "EvictionByEvictionAPI",
    "message": "Eviction API: evicting",
}


def evict(api: Api, namespace: str, name: str, body: Any) -> None:
    """Evict a pod or raise: 404, 429 (a budget), 500 (two budgets)."""
    if not isinstance(body, dict):
        raise bad_request("the body must be an Eviction")
    found = meta(body)
    if found.get("name") != name:
        raise bad_request("name in URL does not match name in Eviction object")
    options = deletion.parse_options(body.get("deleteOptions"), {})
    pods = api.resource("", "pods")
    pod = api.get(pods, namespace, name)
    phase = (pod.obj.get("status") or {}).get("phase")
    if phase in ("Succeeded", "Failed", "Pending") or pod.obj["metadata"].get("deletionTimestamp"):
        deletion.delete(api, pods, namespace, name, options)
        return
    labels = pod.obj["metadata"].get("labels") or {}
    budgets = [
        stored
        for stored in api.store.collection("poddisruptionbudgets.policy").in_namespace(namespace)
        if match_label_selector(stored.obj["spec"].get("selector"), labels)
    ]
    if len(budgets) > 1:
        text = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
        raise ApiError(500, "", text)
    if budgets and not _unhealthy_exempt(pod, budgets[0]):
        _charge(api, budgets[0], name, options.dry_run)
    if not options.dry_run:
        obj = pod.copy()
        set_condition(obj.setdefault("status", {}), dict(_TARGET))
        api.commit(pods, pod, obj)
    deletion.delete(api, pods, namespace, name, options)


def _unhealthy_exempt(pod: Stored, budget: Stored) -> bool:
    """A running pod that is not ready may go when the budget's healthy pods suffice, or always by policy."""
    rows = (pod.obj.get("status") or {}).get("conditions") or ()
    if any(row.get("type") == "Ready" and row.get("status") == "True" for row in rows):
        return False
    if budget.obj["spec"].get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
        return True
    status = budget.obj.get("status") or {}
    healthy, desired = status.get("currentHealthy", 0), status.get("desiredHealthy", 0)
    return bool(healthy >= desired and desired > 0)


def _charge(api: Api, budget: Stored, pod: str, dry_run: bool) -> None:
    found, status = budget.obj["metadata"], budget.obj.get("status") or {}
    name = found["name"]
    if status.get("observedGeneration", 0) < found.get("generation", 0):
        raise _refused(f"The disruption budget {name} is still being processed by the server.", 10)
    allowed = status.get("disruptionsAllowed", 0)
    if allowed <= 0:
        desired, healthy = status.get("desiredHealthy", 0), status.get("currentHealthy", 0)
        raise _refused(f"The disruption budget {name} needs {desired} healthy pods and has {healthy} currently", 0)
    if dry_run:
        return
    obj = budget.copy()
    obj["status"]["disruptionsAllowed"] = allowed - 1
    obj["status"].setdefault("disruptedPods", {})[pod] = now()
    resource = api.resource("policy", "poddisruptionbudgets")
    api.commit(resource, budget, obj)


def _refused(text: str, retry_after: int) -> ApiError:
    return ApiError(
        429,
        "TooManyRequests",
        "Cannot evict pod as it would violate the pod's disruption budget.",
        details={"causes": [{"reason": "DisruptionBudget", "message": text}]},
        retry_after=retry_after or None,
    )
