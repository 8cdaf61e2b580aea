"""What a kubelet checks before it runs a pod: do the requests of all active pods fit on the node.

Decided here: the requests of a pod as the kubelet adds them up, and the reason and message of a rejection. It knows
nothing of HTTP. Invariant: what is admitted never exceeds allocatable.
"""

from __future__ import annotations

from collections.abc import Iterable

from scheduler.model.quantity import amount
from scheduler.playground.errors import Obj

Totals = dict[str, int]


def _sum(container: Obj, field: str = "requests") -> Totals:
    rows = (container.get("resources") or {}).get(field) or {}
    return {name: amount(name, value) for name, value in rows.items()}


def _plus(one: Totals, other: Totals) -> Totals:
    return {name: one.get(name, 0) + other.get(name, 0) for name in sorted(one.keys() | other.keys())}


def _most(one: Totals, other: Totals) -> Totals:
    return {name: max(one.get(name, 0), other.get(name, 0)) for name in sorted(one.keys() | other.keys())}


def pod_requests(pod: Obj) -> Totals:
    """Return what a pod takes: containers and sidecars, or the largest init step; pod level wins; plus overhead."""
    spec = pod["spec"]
    total: Totals = {}
    for container in spec.get("containers") or ():
        total = _plus(total, _sum(container))
    sidecars: Totals = {}
    steps: Totals = {}
    for container in spec.get("initContainers") or ():
        if container.get("restartPolicy") == "Always":
            sidecars = _plus(sidecars, _sum(container))
            steps = _most(steps, sidecars)
        else:
            steps = _most(steps, _plus(sidecars, _sum(container)))
    total = _most(_plus(total, sidecars), steps)
    for name, value in _sum(spec).items():
        total[name] = value
    overhead = {name: amount(name, value) for name, value in (spec.get("overhead") or {}).items()}
    return _plus(total, overhead)


def is_active(pod: Obj) -> bool:
    """Tell whether a pod still holds its resources: everything that has not ended, terminating pods too."""
    return (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed")


def _selector_mismatch(pod: Obj, node: Obj) -> bool:
    labels = node["metadata"].get("labels") or {}
    return any(labels.get(key) != value for key, value in (pod["spec"].get("nodeSelector") or {}).items())


def rejection(pod: Obj, node: Obj, others: Iterable[Obj]) -> tuple[str, str] | None:
    """Return (reason, message) when the node's kubelet would not run the pod beside the `others`, else None."""
    allocatable_text = (node.get("status") or {}).get("allocatable") or {}
    allocatable = {name: amount(name, value) for name, value in allocatable_text.items()}
    used: Totals = {}
    count = 0
    for other in others:
        used = _plus(used, pod_requests(other))
        count += 1
    limit = allocatable.get("pods", 110)
    if count + 1 > limit:
        return _out_of("pods", 1, count, limit)
    wanted = pod_requests(pod)
    for name in sorted(wanted, key=lambda one: (one not in ("cpu", "memory"), one)):
        value = wanted[name]
        if name not in allocatable and "/" in name:
            # The kubelet of a real node ignores extended resources that the node does not have (they may be handled
            # by the scheduler alone).
            continue
        if value and used.get(name, 0) + value > allocatable.get(name, 0):
            return _out_of(name, value, used.get(name, 0), allocatable.get(name, 0))
    if _selector_mismatch(pod, node):
        return "NodeAffinity", "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector"
    return None


def _out_of(name: str, wanted: int, used: int, capacity: int) -> tuple[str, str]:
    text = f"Node didn't have enough resource: {name}, requested: {wanted}, used: {used}, capacity: {capacity}"
    return f"OutOf{name}", f"Pod was rejected: {text}"
