"""KAI-Scheduler's API: scheduling.run.ai Queue (v2) and PodGroup (v2alpha2), kai.scheduler Topology.

Decided here: what its numbers mean (GPUs in units, cpu in millicores, memory in millions of bytes; -1 is unlimited, an
absent quota or weight is none, an absent limit allows nothing) and how our verdicts are said in its conditions. It
knows exactly three resources in queues; of every other resource they say nothing. A flat list of sub-groups that says
no more than how many of each must start is read as roles.

There is no phase in its status. A condition Scheduled, whatever its status, says that the group once reached its
minimum.
"""

from __future__ import annotations

from dataclasses import replace
from math import ceil, floor, isfinite
from typing import Any, ClassVar

import msgspec

from scheduler.dialects import queues, topologies
from scheduler.dialects.base import (
    RAN,
    DialectResource,
    Opened,
    PodGroupDialect,
    Reader,
    copied_conditions,
    difference,
    has_condition,
    open_envelope,
    open_spec,
    plain,
    read_conditions,
    set_condition,
)
from scheduler.dialects.membership import KAI_WORDS
from scheduler.dialects.meta import seconds
from scheduler.dialects.wishes import MAX_DEPTH, check_tree, in_order
from scheduler.model.decisions import SetStatus
from scheduler.model.groups import PodGroup, RoleMinimum, SubGroup
from scheduler.model.pods import Problem
from scheduler.model.quantity import MAX_AMOUNT
from scheduler.model.queues import ROOT_QUEUE, UNLIMITED, WEIGHT_UNIT, Queue, QueueFacts
from scheduler.model.resources import Amounts
from scheduler.model.topology import Level, Topology
from scheduler.model.verdict import CAPACITY_CODES
from scheduler.model.wishes import TopologyWish

_RESOURCES = {"cpu": ("cpu", 1), "memory": ("memory", 10**6), "gpu": ("nvidia.com/gpu", 1)}
"""Its name -> ours, and how many of our units are one of its."""
_PRIORITY = 100
_WAITS = "UnschedulableOnNodePool"
_POOL = "default"


class KaiDialect(PodGroupDialect):
    """See the module."""

    name: ClassVar[str] = "kai"
    resources: ClassVar[tuple[DialectResource, ...]] = (
        DialectResource("scheduling.run.ai", ("v2alpha2",), "podgroups", "PodGroup", True, "group"),
        DialectResource("scheduling.run.ai", ("v2",), "queues", "Queue", False, "queue"),
        DialectResource("kai.scheduler", ("v1alpha1",), "topologies", "Topology", False, "topology", read_only=True),
    )

    def decode_group(self, raw: bytes | msgspec.Raw, api_version: str) -> PodGroup:
        """Return the group. Whether it may be evicted depends on its priority where it does not say."""
        opened = self.open_group(raw)
        spec, status, problems = opened.spec, opened.status, opened.problems
        roles, subgroups = _parts(spec)
        if subgroups and "minSubGroup" in spec:
            check_tree(subgroups, spec.integer("minSubGroup", 0, 0), spec.at("minSubGroup"), problems)
        elif subgroups:
            check_tree(subgroups, None, "", problems)
        found = copied_conditions(status)
        running, ran = has_condition(found, "Scheduled", "True"), has_condition(found, "Scheduled")
        waits = has_condition(copied_conditions({"conditions": status.get("schedulingConditions")}), _WAITS)
        return replace(
            self.identified(opened, api_version),
            min_member=max(spec.integer("minMember", 0, 0), sum(role.count for role in roles), 1),
            roles=roles,
            subgroups=subgroups,
            min_subgroups=spec.integer("minSubGroup", 0, 0) if subgroups and "minSubGroup" in spec else None,
            queue=spec.text("queue") or _label(opened),
            priority_class=spec.text("priorityClassName"),
            preemptible=_preemptible(spec),
            evicts_after=queues.duration(spec, "preemptionDelay") or 0.0,
            topology=_topology(spec),
            phase="Running" if running else "Degraded" if ran else "Pending" if waits else "",
            was_running=ran,
            problems=tuple(problems),
        )

    def decode_queue(self, raw: bytes | msgspec.Raw, api_version: str) -> Queue:
        """Return the queue; its resources must be there, as its own scheduler demands."""
        envelope = open_envelope("Queue.scheduling.run.ai", raw)
        meta, problems = envelope.metadata, list[Problem]()
        spec, status = open_spec(envelope, problems), plain(envelope.status)
        if "resources" not in spec:
            problems.append(Problem("spec.resources", "must be there"))
        return Queue(
            name=meta.name,
            uid=meta.uid,
            dialect=self.name,
            parent=spec.text("parentQueue") or ROOT_QUEUE,
            weights=_weights(spec),
            priority=spec.integer("priority", _PRIORITY, -(2**31)),
            deserved=_amounts(spec, "quota"),
            limit=_amounts(spec, "limit"),
            min_runtime=queues.duration(spec, "preemptMinRuntime"),
            reclaim_min_runtime=queues.duration(spec, "reclaimMinRuntime"),
            created=seconds(meta.creation_timestamp),
            generation=meta.generation,
            conditions=read_conditions(status),
            problems=tuple(dict.fromkeys(problems)),
            resource_version=meta.resource_version,
            raw_status=bytes(envelope.status),
        )

    def decode_topology(self, raw: bytes | msgspec.Raw, api_version: str) -> Topology:
        """Return the topology; a level is known by its alias and by its label. The object has no status."""
        return topologies.read(self.name, "Topology.kai.scheduler", raw, api_version, _level)[0]

    def status_patch(self, group: PodGroup, status: SetStatus, text: str, now: str) -> dict[str, Any] | None:
        """Return the merge patch for the status."""
        before = plain(group.raw_status)
        conditions = copied_conditions(before)
        runs = status.phase in ("Running", "Completed")
        if runs:
            said = "MinimumBound" if status.verdict is None else str(status.verdict.code)
            set_condition(conditions, "Scheduled", "True", said, text, now)
        elif status.phase in RAN or has_condition(conditions, "Scheduled", "True"):
            set_condition(conditions, "Scheduled", "False", "BelowMinimum", text, now)
        waiting = copied_conditions({"conditions": before.get("schedulingConditions")})
        if status.verdict is not None and not runs:
            code = status.verdict.code
            reason = "NotEnoughResources" if code in CAPACITY_CODES else str(code)
            last = max((_number(item.get("transitionID")) for item in waiting if isinstance(item, dict)), default=0)
            set_condition(waiting, _WAITS, "True", reason, text, now, nodePool=_POOL, transitionID=str(last + 1))
        else:
            waiting = [item for item in waiting if not (isinstance(item, dict) and item.get("type") == _WAITS)]
        return difference(before, {"conditions": conditions, "schedulingConditions": waiting})

    def queue_status_patch(self, queue: Queue, facts: QueueFacts, now: str) -> dict[str, Any] | None:
        """Return the merge patch for the status of a queue."""
        before = plain(queue.raw_status)
        wish: dict[str, Any] = {
            "childQueues": sorted(facts.children),
            "conditions": queues.conditions(queue, before, facts, now, ready=False),
        }
        changed = (difference(before, wish) or {"status": {}})["status"]
        for name, value in (
            ("allocated", facts.allocated),
            ("allocatedNonPreemptible", facts.fixed),
            ("requested", facts.requested),
        ):
            if value is not None and (part := queues.told(before.get(name), value)):
                changed[name] = part
        return {"status": changed} if changed else None


def _number(text: object) -> int:
    return int(text) if isinstance(text, str) and text.isascii() and text.isdigit() and len(text) < 19 else 0


def _label(opened: Opened) -> str:
    return (opened.metadata.labels or {}).get("kai.scheduler/queue", "") or opened.marked_queue


def _preemptible(spec: Reader) -> bool | None:
    return KAI_WORDS.get(spec.choice("preemptibility", "", tuple(KAI_WORDS))) if spec.text("preemptibility") else None


def _level(item: Reader) -> tuple[Level, str]:
    label = item.text("nodeLabel")
    return Level(item.text("alias") or label, label), item.at("nodeLabel")


def _topology(spec: Reader) -> TopologyWish | None:
    wish = spec.object("topologyConstraint")
    name, required = wish.text("topology"), wish.text("requiredTopologyLevel")
    preferred = wish.text("preferredTopologyLevel")
    if not required and not preferred:
        return None
    return TopologyWish(name, required, preferred, field=wish.at("requiredTopologyLevel"))


_TREE = ("parent", "minSubGroup", "topologyConstraint")


def _parts(spec: Reader) -> tuple[tuple[RoleMinimum, ...], tuple[SubGroup, ...]]:
    """Read sub-groups, joined by the label kai.scheduler/subgroup-name: as roles, or as a tree where they make one."""
    groups: dict[str, Reader] = {}
    for group in spec.objects("subGroups"):
        name = group.text("name")
        if not name or name in groups or "/" in name:
            group.problems.append(Problem(group.at("name"), "must be there and differ from its siblings"))
            continue
        groups[name] = group
    deep = "minSubGroup" in spec or any(
        group.fields.get(f) not in (None, "") for group in groups.values() for f in _TREE
    )
    if deep:
        return (), _subgroups(groups)
    counts = {name: group.integer("minMember", 0, 0) for name, group in groups.items()}
    return tuple(RoleMinimum(name, count) for name, count in sorted(counts.items()) if count), ()


def _subgroups(groups: dict[str, Reader]) -> tuple[SubGroup, ...]:
    parents = {name: group.text("parent") for name, group in groups.items()}
    inner = set(parents.values())
    found = []
    for name, group in groups.items():
        path = _path(name, parents, group)
        if not path:
            continue
        if name in inner and group.integer("minMember", 0, 0):
            group.problems.append(Problem(group.at("minMember"), "must not be there: it has sub-groups"))
        elif name not in inner:
            group.refuse("minSubGroup", "must not be there: it has no sub-groups")
        least = group.integer("minSubGroup", 0, 0) if name in inner and "minSubGroup" in group else None
        minimum = 0 if name in inner else group.integer("minMember", 0, 0)
        found.append(SubGroup(path, minimum, least, topology=_topology(group), field=group.path))
    return in_order(found)


def _path(name: str, parents: dict[str, str], group: Reader) -> str:
    """Return the names from the outermost to this one, "" (and why) where they lead nowhere or round in a circle."""
    path = [name]
    while parents[path[-1]]:
        above = parents[path[-1]]
        if above not in parents:
            if path[-1] == name:
                group.problems.append(Problem(group.at("parent"), f"there is no sub-group {above!r}"))
            return ""
        if above in path:
            group.problems.append(Problem(group.at("parent"), f"is below itself: {' in '.join([*path, above])}"))
            return ""
        path.append(above)
        if len(path) > MAX_DEPTH:
            group.problems.append(Problem(group.at("parent"), f"is deeper than {MAX_DEPTH} levels"))
            return ""
    return "/".join(reversed(path))


MAX_WEIGHT = 2**31 - 1
"""The largest weight, as in the other dialects."""


def _numbers(spec: Reader, field: str) -> list[tuple[str, int, float]]:
    """Return our name, units and value of one field of each resource, 0 where it is absent or cannot be used."""
    found = []
    resources = spec.object("resources")
    for theirs, (ours, unit) in _RESOURCES.items():
        entry = resources.object(theirs)
        value = entry.fields.get(field)
        number = 0.0
        is_weight = field == "overQuotaWeight"
        lowest, most = (0, MAX_WEIGHT) if is_weight else (UNLIMITED, MAX_AMOUNT)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
            entry.problems.append(Problem(entry.at(field), f"must be a number, not {queues.shown(value)}"))
        elif value is not None and not (value >= 0 or value == lowest):
            wish = "must be at least 0" + (" or -1 (unlimited)" if lowest else "")
            entry.problems.append(Problem(entry.at(field), f"{wish}, not {queues.shown(value)}"))
        elif is_weight and value is not None and value > most:
            entry.problems.append(Problem(entry.at(field), f"must be at most {most}, not {queues.shown(value)}"))
        elif value is not None:
            number = float(min(value, most)) if isfinite(value) else float(most)
        found.append((ours, unit, number))
    return found


def _amounts(spec: Reader, field: str) -> Amounts:
    """Return quotas or limits: all three, zeros too; fractions of what we count are left off."""
    return tuple(
        sorted(
            (ours, UNLIMITED if value < 0 else min(MAX_AMOUNT, floor(value * unit)))
            for ours, unit, value in _numbers(spec, field)
        )
    )


def _weights(spec: Reader) -> Amounts:
    """Return the weights in thousandths; one that is not zero stays so."""
    return tuple(sorted((ours, ceil(value * WEIGHT_UNIT)) for ours, _, value in _numbers(spec, "overQuotaWeight")))
