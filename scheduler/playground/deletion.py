"""Deleting: grace periods, finalizers, preconditions and propagation.

Decided here: whether a delete removes an object now, marks it, or changes nothing, and what the client is told. It must
not know HTTP. Dependents and namespace contents are cleaned up by gc.py. Invariant: an object with a finalizer or an
unexpired grace period is never removed here.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from scheduler.playground import admission
from scheduler.playground.api import CRD_STORAGE, Api
from scheduler.playground.errors import Obj, bad_request, field_invalid, field_unsupported, invalid, precondition
from scheduler.playground.kinds import Resource
from scheduler.playground.metadata import now
from scheduler.playground.storage import Stored

FOREGROUND = "foregroundDeletion"
ORPHAN = "orphan"
CRD_CLEANUP = "customresourcecleanup.apiextensions.k8s.io"


@dataclass(slots=True)
class DeleteOptions:
    """What a client asks of one delete."""

    grace: int | None = None
    propagation: str | None = None
    uid: str = ""
    resource_version: str = ""
    dry_run: bool = False


def parse_options(body: Any, query: dict[str, str]) -> DeleteOptions:
    """Return the options of a DELETE from its body or, without one, its query."""
    if body is not None and not isinstance(body, dict):
        raise bad_request("the body must be DeleteOptions")
    source: Obj = body or {}
    if source.get("kind") not in (None, "DeleteOptions"):
        raise bad_request("the body must be DeleteOptions")
    grace: Any = source.get("gracePeriodSeconds", query.get("gracePeriodSeconds"))
    propagation = source.get("propagationPolicy", query.get("propagationPolicy"))
    orphan = source.get("orphanDependents", {"true": True, "false": False}.get(query.get("orphanDependents", "")))
    if orphan is not None and propagation is None:
        propagation = "Orphan" if orphan else "Background"
    if grace is not None:
        try:
            grace = int(grace)
        except (TypeError, ValueError):
            raise bad_request(f"gracePeriodSeconds: {grace!r} is not an integer") from None
        if grace < 0:
            grace = 1
    if propagation not in (None, "Background", "Foreground", "Orphan"):
        cause = field_unsupported("propagationPolicy", propagation, ["Foreground", "Background", "Orphan", "nil"])
        raise invalid("meta.k8s.io", "DeleteOptions", "", [cause])
    wanted = source.get("preconditions") or {}
    dry_run = source.get("dryRun") or ([query["dryRun"]] if query.get("dryRun") else [])
    if dry_run and dry_run != ["All"]:
        raise invalid("meta.k8s.io", "DeleteOptions", "", [field_invalid("dryRun", dry_run, "must be All")])
    return DeleteOptions(
        grace=grace,
        propagation=propagation,
        uid=wanted.get("uid") or "",
        resource_version=wanted.get("resourceVersion") or "",
        dry_run=bool(dry_run),
    )


def pod_grace(pod: Obj, asked: int | None) -> int:
    """Return the grace that a pod gets: none when it has no node or has ended."""
    if not pod["spec"].get("nodeName") or (pod.get("status") or {}).get("phase") in ("Failed", "Succeeded"):
        return 0
    return asked if asked is not None else int(pod["spec"].get("terminationGracePeriodSeconds", 30))


def delete(api: Api, resource: Resource, namespace: str, name: str, options: DeleteOptions) -> tuple[Stored, bool]:
    """Delete an object; return its last state and whether it is gone."""
    prev = api.get(resource, namespace, name)
    if options.uid and options.uid != prev.uid:
        raise precondition(resource.kind, name, "UID", options.uid, prev.uid)
    if options.resource_version and options.resource_version != str(prev.rv):
        raise precondition(resource.kind, name, "ResourceVersion", options.resource_version, str(prev.rv))
    if resource.storage == "namespaces":
        admission.check_namespace_delete(name)
    grace = pod_grace(prev.obj, options.grace) if resource.storage == "pods" else 0
    found = prev.obj["metadata"]
    finalizers = _finalizers(resource, found.get("finalizers") or [], options.propagation)
    held = bool(finalizers) or (resource.storage == "namespaces" and bool(prev.obj["spec"].get("finalizers")))
    at_once = grace == 0 and not held
    if at_once and resource.storage != "pods":
        return (prev if options.dry_run else api.remove(resource, prev)), True
    obj = prev.copy()
    marked = _mark(obj, grace)
    if options.dry_run:
        return Stored(prev.key, obj, prev.rv), at_once
    if at_once:
        # As on the real server, watchers of pods see the mark before the end.
        return api.remove(resource, api.store.update(api.collection(resource), prev, obj)), True
    if not marked and finalizers == (found.get("finalizers") or []):
        return prev, False
    if finalizers:
        obj["metadata"]["finalizers"] = finalizers
    if resource.storage == "namespaces":
        obj["status"]["phase"] = "Terminating"
    if resource.storage == CRD_STORAGE:
        _terminating_crd(obj)
    return api.commit(resource, prev, obj), False


def _finalizers(resource: Resource, present: list[str], propagation: str | None) -> list[str]:
    rows = list(present)
    if propagation is not None:
        rows = [one for one in rows if one not in (FOREGROUND, ORPHAN)]
        if propagation == "Foreground":
            rows.append(FOREGROUND)
        elif propagation == "Orphan":
            rows.append(ORPHAN)
    if resource.storage == CRD_STORAGE and CRD_CLEANUP not in rows:
        rows.append(CRD_CLEANUP)
    return rows


def _mark(obj: Obj, grace: int) -> bool:
    """Set the time of deletion; a later delete can only shorten it. Tell whether anything changed."""
    found = obj["metadata"]
    before = found.get("deletionTimestamp")
    if before is not None:
        left = found.get("deletionGracePeriodSeconds") or 0
        if grace >= left:
            return False
        start = datetime.fromisoformat(before) - timedelta(seconds=left)
    else:
        start = datetime.now(UTC)
        if found.get("generation"):
            found["generation"] += 1
    found["deletionTimestamp"] = (start + timedelta(seconds=grace)).strftime("%Y-%m-%dT%H:%M:%SZ")
    found["deletionGracePeriodSeconds"] = grace
    return True


def _terminating_crd(obj: Obj) -> None:
    rows = obj.setdefault("status", {}).setdefault("conditions", [])
    if not any(row["type"] == "Terminating" for row in rows):
        rows.append(
            {
                "type": "Terminating",
                "status": "True",
                "reason": "InstanceDeletionPending",
                "message": "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
                "lastTransitionTime": now(),
            }
        )
