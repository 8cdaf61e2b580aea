"""Admission: what depends on other objects when something is created.

Decided here: namespace life cycle, pod priority from PriorityClasses, runtime classes. It reads the store and never
writes. Invariant: no pod exists whose priority disagrees with its class.
"""

from __future__ import annotations

from scheduler.playground.errors import Obj, forbidden, not_found
from scheduler.playground.kinds import Resource
from scheduler.playground.quantities import canonical
from scheduler.playground.storage import Store

_SYSTEM_PRIORITIES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
_ALWAYS_NAMESPACES = frozenset({"default", "kube-system", "kube-public", "kube-node-lease"})


def check_namespace(store: Store, resource: Resource, namespace: str, name: str) -> None:
    """Refuse creation in a namespace that does not exist (404) or is being deleted (403)."""
    found = store.collection("namespaces").get("", namespace)
    if found is None:
        raise not_found("", "namespaces", namespace)
    if found.obj["metadata"].get("deletionTimestamp"):
        text = f"unable to create new content in namespace {namespace} because it is being terminated"
        error = forbidden(resource.group, resource.plural, name, text)
        error.details = {
            **(error.details or {}),
            "causes": [
                {
                    "reason": "NamespaceTerminating",
                    "message": f"namespace {namespace} is being terminated",
                    "field": "metadata.namespace",
                }
            ],
        }
        raise error


def check_namespace_delete(name: str) -> None:
    """Refuse deletion of the namespaces that a cluster cannot be without."""
    if name in _ALWAYS_NAMESPACES - {"kube-node-lease"}:
        raise forbidden("", "namespaces", name, "this namespace may not be deleted")


def _default_class(store: Store) -> Obj | None:
    """Return the global default class; of several the one with the lowest value, as the real server chooses."""
    best: Obj | None = None
    for stored in store.collection("priorityclasses.scheduling.k8s.io").ordered():
        one = stored.obj
        if one.get("globalDefault") and (best is None or int(one["value"]) < int(best["value"])):
            best = one
    return best


def admit_priority(store: Store, pod: Obj) -> None:
    """Resolve a pod's priorityClassName into priority and preemptionPolicy."""
    resolve_priority(store, pod["spec"], "", "pods", pod["metadata"].get("name") or "")


def resolve_priority(store: Store, spec: Obj, group: str, plural: str, name: str) -> None:
    """Resolve priorityClassName of a spec into priority and preemptionPolicy; 403 when they contradict each other."""
    given = spec.get("priority")
    class_name = spec.get("priorityClassName") or ""
    policy = "PreemptLowerPriority"
    if not class_name:
        chosen = _default_class(store)
        value = int(chosen["value"]) if chosen else 0
        if chosen:
            spec["priorityClassName"] = chosen["metadata"]["name"]
            policy = chosen.get("preemptionPolicy") or policy
    else:
        stored = store.collection("priorityclasses.scheduling.k8s.io").get("", class_name)
        if stored is not None:
            value = int(stored.obj["value"])
            policy = stored.obj.get("preemptionPolicy") or policy
        elif class_name in _SYSTEM_PRIORITIES:
            value = _SYSTEM_PRIORITIES[class_name]
        else:
            raise forbidden(group, plural, name, f"no PriorityClass with name {class_name} was found")
    if given is not None and given != value:
        text = (
            f"the integer value of priority ({given}) must not be provided in pod spec; "
            f"priority admission controller computed {value} from the given PriorityClass name"
        )
        raise forbidden(group, plural, name, text)
    spec["priority"] = value
    if spec.get("preemptionPolicy") is not None and spec["preemptionPolicy"] != policy:
        text = (
            f"the string value of PreemptionPolicy ({spec['preemptionPolicy']}) must not be provided in pod spec; "
            f"priority admission controller computed {policy} from the given PriorityClass name"
        )
        raise forbidden(group, plural, name, text)
    spec["preemptionPolicy"] = policy


def admit_priority_class(store: Store, one: Obj) -> None:
    """Only one class may be the global default."""
    if not one.get("globalDefault"):
        return
    present = _default_class(store)
    if present and present["metadata"]["name"] != one["metadata"]["name"]:
        name = one["metadata"]["name"]
        text = f"PriorityClass {present['metadata']['name']} is already marked as default. Only one default can exist"
        raise forbidden("scheduling.k8s.io", "priorityclasses", name, text)


def admit_runtime_class(store: Store, pod: Obj) -> None:
    """Give a pod the overhead and placement rules of its RuntimeClass."""
    spec, name = pod["spec"], pod["metadata"].get("name") or ""
    class_name = spec.get("runtimeClassName")
    runtime: Obj = {}
    if class_name:
        stored = store.collection("runtimeclasses.node.k8s.io").get("", class_name)
        if stored is None:
            raise forbidden("", "pods", name, f'pod rejected: RuntimeClass "{class_name}" not found')
        runtime = stored.copy()
    fixed = (runtime.get("overhead") or {}).get("podFixed")
    given = spec.get("overhead")
    if given and not fixed:
        text = "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"
        raise forbidden("", "pods", name, text)
    if given and fixed and {key: canonical(value) for key, value in fixed.items()} != given:
        raise forbidden("", "pods", name, "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead")
    if fixed:
        spec["overhead"] = {key: canonical(value) for key, value in fixed.items()}
    rules = runtime.get("scheduling") or {}
    for key, value in (rules.get("nodeSelector") or {}).items():
        present = spec.setdefault("nodeSelector", {})
        if present.get(key, value) != value:
            text = (
                f"pod rejected: conflict: runtimeClass.scheduling.nodeSelector[{key}] = {value}; pod = {present[key]}"
            )
            raise forbidden("", "pods", name, text)
        present[key] = value
    if rules.get("tolerations"):
        rows = spec.get("tolerations") or []
        spec["tolerations"] = rows + [row for row in rules["tolerations"] if row not in rows]
