"""Events: one storage, two API groups.

Decided here: how a stored (core/v1) Event looks through events.k8s.io/v1 and back. Invariant: writing through one
group and reading through the other loses no field that both have.
"""

from __future__ import annotations

from scheduler.playground.errors import Obj

# (core/v1 field, events.k8s.io/v1 field)
_RENAMED = (
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("reportingComponent", "reportingController"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
)


def to_events_v1(event: Obj) -> Obj:
    """Return a stored event as events.k8s.io/v1 shows it."""
    seen = dict(event)
    for core, modern in _RENAMED:
        if core in seen:
            seen[modern] = seen.pop(core)
    seen["apiVersion"] = "events.k8s.io/v1"
    return seen


def from_events_v1(event: Obj) -> Obj:
    """Return an events.k8s.io/v1 object as it is stored."""
    stored = dict(event)
    for core, modern in _RENAMED:
        if modern in stored:
            stored[core] = stored.pop(modern)
    stored["apiVersion"] = "v1"
    stored.setdefault("involvedObject", {})
    return stored
