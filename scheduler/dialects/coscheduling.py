"""The PodGroup of scheduler-plugins: scheduling.x-k8s.io/v1alpha1.

Decided here: what its fields mean and how our verdicts are said in its phases. Its own schema keeps no conditions, so
they are written along with other changes and compared only on servers that kept them. scheduleStartTime is set when the
group first reaches its minimum, which is how that is remembered.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import msgspec

from scheduler.dialects.base import (
    RAN,
    DialectResource,
    PodGroupDialect,
    copied_conditions,
    counted,
    difference,
    plain,
    read_counts,
    set_condition,
)
from scheduler.model.decisions import SetStatus
from scheduler.model.groups import PodGroup
from scheduler.model.phases import word_of

_NEUTRAL = {"Unknown": "Degraded", "Finished": "Completed"}
_COUNTS = ("running", "succeeded", "failed")


class CoschedulingDialect(PodGroupDialect):
    """See the module."""

    name: ClassVar[str] = "coscheduling"
    resources: ClassVar[tuple[DialectResource, ...]] = (
        DialectResource("scheduling.x-k8s.io", ("v1alpha1",), "podgroups", "PodGroup", True, "group"),
    )

    def decode_group(self, raw: bytes | msgspec.Raw, api_version: str) -> PodGroup:
        """Return the group. The API has no queue; a label scheduling.muster.sh/queue on the object names one."""
        opened = self.open_group(raw)
        spec, status, problems = opened.spec, opened.status, opened.problems
        phase = str(status.get("phase") or "")
        neutral = _NEUTRAL.get(phase, phase)
        return replace(
            self.identified(opened, api_version),
            min_member=spec.integer("minMember", 1, 1),
            min_resources=spec.amounts("minResources"),
            queue=opened.marked_queue,
            phase=neutral,
            was_running=neutral in RAN or bool(status.get("scheduleStartTime")),
            counts=read_counts(status, _COUNTS),
            problems=tuple(problems),
        )

    def status_patch(self, group: PodGroup, status: SetStatus, text: str, now: str) -> dict[str, Any] | None:
        """Return the merge patch for the status."""
        before = plain(group.raw_status)
        conditions = copied_conditions(before)
        if status.phase in ("Running", "Completed"):
            said = "MinimumBound" if status.verdict is None else str(status.verdict.code)
            set_condition(conditions, "Scheduled", "True", said, text, now)
        elif status.verdict is not None:
            set_condition(conditions, "Scheduled", "False", str(status.verdict.code), text, now)
        wish: dict[str, Any] = {"phase": word_of(self.name, status.phase), **counted(status, _COUNTS)}
        if status.phase in RAN and not before.get("scheduleStartTime"):
            wish["scheduleStartTime"] = now
        if "conditions" in before:
            wish["conditions"] = conditions
        patch = difference(before, wish)
        if patch is not None and conditions:
            patch["status"]["conditions"] = conditions
        return patch
