"""What is sent about a victim, as bytes.

Decided here: that every request names the uid of the pod that is meant, so that a pod made again under its name is left
alone, and which condition says why it goes (the one that kube-scheduler writes, so that controllers that know a
disruption from a failure know this one too). Its own grace period is left to it.
"""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec

from scheduler.binder.record import Verb
from scheduler.model.decisions import Assignment

CONDITION = "DisruptionTarget"
REASON = "PreemptionByScheduler"

_encode = msgspec.json.Encoder().encode


def eviction_body(verb: Verb, target: Assignment, text: str, now: float) -> bytes:
    """Return the body of a request about a victim; text: why it goes, now: seconds since the epoch."""
    options = {"preconditions": {"uid": target.uid}}
    match verb:
        case Verb.MARK:
            condition = {
                "type": CONDITION,
                "status": "True",
                "reason": REASON,
                "message": text,
                "lastTransitionTime": datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            }
            return _encode({"metadata": {"uid": target.uid}, "status": {"conditions": [condition]}})
        case Verb.EVICT:
            metadata = {"name": target.pod, "namespace": target.namespace}
            eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata, "deleteOptions": options}
            return _encode(eviction)
        case Verb.REMOVE:
            return _encode({"apiVersion": "v1", "kind": "DeleteOptions", **options})
        case _:
            return b""
