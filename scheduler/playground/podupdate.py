"""What may change on a pod after it exists, and binding it to a node.

Decided here: immutable spec fields, gate removal, and every check that the `binding` sub-resource makes. It must not
know HTTP or storage. Invariant: `bind` never gives a pod that has a node another one.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from scheduler.playground.errors import Cause, Obj, conflict, field_forbidden, field_invalid
from scheduler.playground.metadata import now
from scheduler.playground.pods import CONTAINER_LISTS

_ALLOWED_TEXT = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)


def validate_pod_update(old: Obj, new: Obj) -> list[Cause]:
    """Return the errors of a change to a pod's spec."""
    before, after = old["spec"], deepcopy(new["spec"])
    if before == after:
        return []
    causes = _gates(before, after)
    gated = bool(before.get("schedulingGates"))
    for kind in CONTAINER_LISTS:
        rows, olds = after.get(kind) or [], before.get(kind) or []
        if len(rows) == len(olds):
            for row, one in zip(rows, olds, strict=True):
                row["image"] = one.get("image")
    causes += _deadline(before, after)
    causes += _tolerations(before, after)
    if before.get("terminationGracePeriodSeconds", 0) < 0 and after.get("terminationGracePeriodSeconds") == 1:
        after["terminationGracePeriodSeconds"] = before["terminationGracePeriodSeconds"]
    if gated:
        causes += _node_rules(before, after)
    _keep(before, after, "schedulingGates", "activeDeadlineSeconds", "tolerations")
    if after != before:
        causes.append(field_forbidden("spec", _ALLOWED_TEXT))
    return causes


def _keep(before: Obj, after: Obj, *fields: str) -> None:
    for field in fields:
        if field in before:
            after[field] = before[field]
        else:
            after.pop(field, None)


def _gates(before: Obj, after: Obj) -> list[Cause]:
    known = [gate.get("name") for gate in before.get("schedulingGates") or ()]
    return [
        field_forbidden(
            f"spec.schedulingGates[{index}].name",
            f"only deletion is allowed, but found new scheduling gate '{gate.get('name')}'",
        )
        for index, gate in enumerate(after.get("schedulingGates") or ())
        if gate.get("name") not in known
    ]


def _deadline(before: Obj, after: Obj) -> list[Cause]:
    was, now_ = before.get("activeDeadlineSeconds"), after.get("activeDeadlineSeconds")
    if was is not None and (now_ is None or now_ > was):
        text = (
            "must be less than or equal to previous value"
            if now_ is not None
            else "must not update from a positive integer to nil value"
        )
        return [field_invalid("spec.activeDeadlineSeconds", now_, text)]
    return []


def _tolerations(before: Obj, after: Obj) -> list[Cause]:
    rows = after.get("tolerations") or []
    missing = [row for row in before.get("tolerations") or () if row not in rows]
    if missing:
        text = "existing toleration can not be modified except its tolerationSeconds"
        relaxed = [{k: v for k, v in row.items() if k != "tolerationSeconds"} for row in rows]
        if any({k: v for k, v in row.items() if k != "tolerationSeconds"} not in relaxed for row in missing):
            return [field_forbidden("spec.tolerations", text)]
    return []


def _node_rules(before: Obj, after: Obj) -> list[Cause]:
    """A gated pod may tighten its node selector and node affinity."""
    causes: list[Cause] = []
    was, now_ = before.get("nodeSelector") or {}, after.get("nodeSelector") or {}
    if any(now_.get(key) != value for key, value in was.items()):
        text = "only additions to spec.nodeSelector are allowed (no mutations or deletions)"
        causes.append(field_invalid("spec.nodeSelector", now_, text))
    _keep(before, after, "nodeSelector")
    old_affinity = (before.get("affinity") or {}).get("nodeAffinity")
    new_affinity = (after.get("affinity") or {}).get("nodeAffinity")
    if new_affinity != old_affinity:
        hard = "requiredDuringSchedulingIgnoredDuringExecution"
        old_terms = ((old_affinity or {}).get(hard) or {}).get("nodeSelectorTerms") or []
        new_terms = ((new_affinity or {}).get(hard) or {}).get("nodeSelectorTerms") or []
        place = f"spec.affinity.nodeAffinity.{hard}.nodeSelectorTerms"
        if old_terms and len(old_terms) != len(new_terms):
            causes.append(
                field_invalid(
                    place, new_terms, "no additions/deletions to non-empty NodeSelectorTerms list are allowed"
                )
            )
        elif old_terms:
            for index, (one, other) in enumerate(zip(old_terms, new_terms, strict=True)):
                if not _tightened(one, other):
                    text = "only additions are allowed (no mutations or deletions)"
                    causes.append(field_invalid(f"{place}[{index}]", other, text))
        affinity = after.get("affinity") or {}
        affinity.pop("nodeAffinity", None)
        if old_affinity is not None:
            affinity["nodeAffinity"] = old_affinity
        if affinity or before.get("affinity") is not None:
            after["affinity"] = affinity
        else:
            after.pop("affinity", None)
    return causes


def _tightened(old: Obj, new: Obj) -> bool:
    for field in ("matchExpressions", "matchFields"):
        rows = new.get(field) or []
        if any(row not in rows for row in old.get(field) or ()):
            return False
    return True


_COPIED_NODE_LABELS = ("topology.kubernetes.io/zone", "topology.kubernetes.io/region")


def bind(pod: Obj, binding: Obj, node: Obj | None) -> Obj:
    """Change a copy of a pod so that it is bound; 409 when it may not be. `node` is the target if it exists."""
    name, found = pod["metadata"]["name"], pod["metadata"]
    wanted = binding.get("metadata") or {}
    for field, label in (("uid", "UID"), ("resourceVersion", "ResourceVersion")):
        asked = wanted.get(field)
        if asked and asked != found[field]:
            text = (
                f"StorageError: invalid object, Code: 4, Key: /registry/pods/{found['namespace']}/{name}, "
                f"ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: {label} in precondition: {asked}, "
                f"{label} in object meta: {found[field]}"
            )
            raise conflict("", "pods", name, text)
    if found.get("deletionTimestamp"):
        raise conflict("", "pods/binding", name, f"pod {name} is being deleted, cannot be assigned to a host")
    if pod["spec"].get("nodeName"):
        text = f'pod {name} is already assigned to node "{pod["spec"]["nodeName"]}"'
        raise conflict("", "pods/binding", name, text)
    if pod["spec"].get("schedulingGates"):
        raise conflict("", "pods/binding", name, f"pod {name} has non-empty .spec.schedulingGates")
    pod["spec"]["nodeName"] = binding["target"]["name"]
    if wanted.get("annotations"):
        found.setdefault("annotations", {}).update(wanted["annotations"])
    copied = {**(wanted.get("labels") or {})}
    for label in _COPIED_NODE_LABELS:
        value = ((node or {}).get("metadata") or {}).get("labels", {}).get(label)
        if value is not None:
            copied[label] = value
    if copied:
        found.setdefault("labels", {}).update(copied)
    status = pod.setdefault("status", {})
    status.pop("nominatedNodeName", None)
    set_condition(status, {"type": "PodScheduled", "status": "True"})
    return pod


def set_condition(status: Obj, condition: Obj) -> None:
    """Set a pod condition by type; its transition time moves only when its status does."""
    rows: list[Any] = status.setdefault("conditions", [])
    for index, row in enumerate(rows):
        if row["type"] == condition["type"]:
            same = row.get("status") == condition["status"]
            kept = row.get("lastTransitionTime") if same else now()
            rows[index] = {"lastProbeTime": None, **condition, "lastTransitionTime": kept or now()}
            return
    rows.append({"lastProbeTime": None, **condition, "lastTransitionTime": now()})
