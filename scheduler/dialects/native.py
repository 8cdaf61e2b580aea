"""The PodGroup of Kubernetes itself: scheduling.k8s.io, in whichever of its known versions the server has.

Decided here: that a basic policy is no gang (each pod stands alone), that a gang needs minCount, and that the one
condition of this API becomes True once and never False again. Composite groups and shared claims are problems of the
group until something can hold them. Workloads are not read: a PodGroup carries its own copy of the policy.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import msgspec

from scheduler.dialects.base import (
    LATER,
    RAN,
    DialectResource,
    PodGroupDialect,
    Reader,
    copied_conditions,
    difference,
    has_condition,
    plain,
    set_condition,
)
from scheduler.model.decisions import SetStatus
from scheduler.model.groups import PodGroup
from scheduler.model.pods import Problem
from scheduler.model.verdict import CAPACITY_CODES
from scheduler.model.wishes import TopologyWish


class NativeDialect(PodGroupDialect):
    """See the module."""

    name: ClassVar[str] = "native"
    resources: ClassVar[tuple[DialectResource, ...]] = (
        DialectResource(
            "scheduling.k8s.io", ("v1beta1", "v1alpha3", "v1alpha2"), "podgroups", "PodGroup", True, "group"
        ),
    )

    def decode_group(self, raw: bytes | msgspec.Raw, api_version: str) -> PodGroup:
        """Return the group. The API has no queue; a label scheduling.muster.sh/queue on the object names one."""
        opened = self.open_group(raw)
        spec, status, problems = opened.spec, opened.status, opened.problems
        spec.refuse("parentCompositePodGroupName", LATER)
        spec.refuse("resourceClaims", LATER)
        done = has_condition(copied_conditions(status), _condition_type(api_version), "True")
        waits = has_condition(copied_conditions(status), _condition_type(api_version))
        return replace(
            self.identified(opened, api_version),
            min_member=_minimum(spec),
            queue=opened.marked_queue,
            priority_class=spec.text("priorityClassName"),
            topology=_topology(spec),
            phase="Running" if done else "Pending" if waits else "",
            was_running=done,
            problems=tuple(problems),
        )

    def status_patch(self, group: PodGroup, status: SetStatus, text: str, now: str) -> dict[str, Any] | None:
        """Return the merge patch for the status: one condition, which is final once it is True."""
        before = plain(group.raw_status)
        conditions = copied_conditions(before)
        kind = _condition_type(group.api_version)
        observed = {"observedGeneration": group.generation} if group.generation else {}
        if has_condition(conditions, kind, "True"):
            return None
        if status.phase in RAN:
            set_condition(conditions, kind, "True", "Scheduled", "", now, **observed)
        elif status.verdict is not None:
            reason = "Unschedulable" if status.verdict.code in CAPACITY_CODES else str(status.verdict.code)
            set_condition(conditions, kind, "False", reason, text, now, **observed)
        return difference(before, {"conditions": conditions})


def _condition_type(api_version: str) -> str:
    return "PodGroupScheduled" if api_version.endswith("/v1alpha2") else "PodGroupInitiallyScheduled"


def _minimum(spec: Reader) -> int:
    policy = spec.object("schedulingPolicy")
    if "gang" in policy:
        gang = policy.object("gang")
        if "minCount" not in gang:
            gang.problems.append(Problem(gang.at("minCount"), "must be there"))
        return gang.integer("minCount", 1, 1)
    if "basic" not in policy:
        spec.problems.append(Problem(spec.at("schedulingPolicy"), "must be basic or gang"))
    return 1


def _topology(spec: Reader) -> TopologyWish | None:
    rules = list(spec.object("schedulingConstraints").objects("topology"))
    keys = [rule.text("key") for rule in rules]
    if len(keys) > 1:
        spec.problems.append(Problem(spec.at("schedulingConstraints.topology"), f"more than one {LATER}"))
    return TopologyWish(required=keys[0], field=rules[0].at("key")) if keys and keys[0] else None
