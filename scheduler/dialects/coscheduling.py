"""The PodGroup of scheduler-plugins: scheduling.x-k8s.io/v1alpha1.

Decided here: what its fields mean and how our verdicts are said in its phases. Its own schema keeps no conditions, so
they are written along with other changes and compared only on servers that kept them. scheduleStartTime is set when the
group first reaches its minimum, which is how that is remembered.
"""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec

from scheduler.dialects.base import (
    DialectResource,
    copied_conditions,
    difference,
    open_envelope,
    open_spec,
    plain,
    read_conditions,
    read_counts,
    set_condition,
)
from scheduler.dialects.meta import Undecodable, seconds
from scheduler.model.decisions import SetStatus
from scheduler.model.groups import PodGroup
from scheduler.model.pods import Problem
from scheduler.model.queues import Queue

_PHASES = {
    "Pending": "Pending",
    "Inqueue": "Pending",
    "Scheduling": "Scheduling",
    "Running": "Running",
    "Degraded": "Unknown",
    "Completed": "Finished",
    "Failed": "Failed",
    "Unknown": "Unknown",
}
_NEUTRAL = {"Unknown": "Degraded", "Finished": "Completed"}
_RAN = ("Running", "Degraded", "Completed", "Unknown")
_COUNTS = ("running", "succeeded", "failed")


class CoschedulingDialect:
    """See the module."""

    name: ClassVar[str] = "coscheduling"
    resources: ClassVar[tuple[DialectResource, ...]] = (
        DialectResource("scheduling.x-k8s.io", ("v1alpha1",), "podgroups", "PodGroup", True, "group"),
    )

    def decode_group(self, raw: bytes | msgspec.Raw, api_version: str) -> PodGroup:
        """Return the group. The API has no queue; a label scheduling.muster.sh/queue on the object names one."""
        envelope = open_envelope("PodGroup.scheduling.x-k8s.io", raw)
        meta, problems = envelope.metadata, list[Problem]()
        spec, status = open_spec(envelope, problems), plain(envelope.status)
        phase = str(status.get("phase") or "")
        neutral = _NEUTRAL.get(phase, phase)
        marks = {**(meta.annotations or {}), **(meta.labels or {})}
        return PodGroup(
            key=f"coscheduling/{meta.namespace}/{meta.name}",
            uid=meta.uid,
            dialect=self.name,
            namespace=meta.namespace,
            name=meta.name,
            api_version=api_version,
            kind="PodGroup",
            min_member=spec.integer("minMember", 1, 1),
            min_resources=spec.amounts("minResources"),
            queue=marks.get("scheduling.muster.sh/queue", ""),
            created=seconds(meta.creation_timestamp),
            generation=meta.generation,
            phase=neutral,
            was_running=neutral in _RAN or bool(status.get("scheduleStartTime")),
            conditions=read_conditions(status),
            counts=read_counts(status, _COUNTS),
            problems=tuple(problems),
            deleting=meta.deletion_timestamp is not None,
            resource_version=meta.resource_version,
            raw_status=bytes(envelope.status),
        )

    def decode_queue(self, raw: bytes | msgspec.Raw, api_version: str) -> Queue:
        """There are no queues in this API."""
        raise Undecodable("scheduling.x-k8s.io has no queues")

    def status_patch(self, group: PodGroup, status: SetStatus, text: str, now: str) -> dict[str, Any] | None:
        """Return the merge patch for the status."""
        before = plain(group.raw_status)
        conditions = copied_conditions(before)
        if status.phase in ("Running", "Completed"):
            set_condition(conditions, "Scheduled", "True", "MinimumBound", "", now)
        elif status.verdict is not None:
            set_condition(conditions, "Scheduled", "False", str(status.verdict.code), text, now)
        counts = dict(status.counts)
        wish: dict[str, Any] = {"phase": _PHASES[status.phase]}
        wish.update((name, counts.get(name, 0)) for name in _COUNTS if counts)
        if status.phase in _RAN and not before.get("scheduleStartTime"):
            wish["scheduleStartTime"] = now
        if "conditions" in before:
            wish["conditions"] = conditions
        patch = difference(before, wish)
        if patch is not None and conditions:
            patch["status"]["conditions"] = conditions
        return patch

    def api_path(self, group: PodGroup) -> str:
        """Return the path of the object."""
        return f"/apis/{group.api_version}/namespaces/{group.namespace}/podgroups/{group.name}"
