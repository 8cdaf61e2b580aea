"""Volcano's API: scheduling.volcano.sh/v1beta1 PodGroup and Queue, topology.volcano.sh/v1alpha1 HyperNode.

Decided here: what its fields mean to the model and how our verdicts are said in its phases and conditions. A minimum of
0 is legal there and means that no member waits for another: the minimum is 1. Role minimums hold only where the minimum
covers their sum, as its users are used to. Of several policies that match a pod the first counts. Conditions become
False when they stop being true; a condition Scheduled, whatever its status, says that the group once reached its
minimum.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import msgspec

from scheduler.dialects import queues, topologies
from scheduler.dialects.base import (
    RAN,
    DialectResource,
    PodGroupDialect,
    Reader,
    copied_conditions,
    counted,
    difference,
    has_condition,
    open_envelope,
    open_spec,
    plain,
    read_conditions,
    read_counts,
    set_condition,
)
from scheduler.dialects.membership import VOLCANO_TRUE
from scheduler.dialects.meta import seconds
from scheduler.dialects.neighbours import SelectorStruct, label_selector
from scheduler.dialects.wishes import selector_of, texts
from scheduler.model.affinity import LabelSelector
from scheduler.model.decisions import SetStatus
from scheduler.model.groups import PodGroup, RoleMinimum, SubGroup
from scheduler.model.phases import word_of
from scheduler.model.pods import Problem
from scheduler.model.queues import DEFAULT_QUEUE, ROOT_QUEUE, WEIGHT_UNIT, Queue, QueueFacts
from scheduler.model.resources import PODS, Amounts
from scheduler.model.topology import HyperNode, HyperNodeMember, Topology, TopologyFacts
from scheduler.model.verdict import CAPACITY_CODES, Code, Verdict
from scheduler.model.wishes import NARROWEST, TopologyWish

_NEUTRAL = {"Unknown": "Degraded"}
_COUNTS = ("running", "succeeded", "failed")
_STATES = ("Open", "Closed", "Closing", "Unknown")
_SCHEDULED_REASON = "tasks in gang are ready to be scheduled"


class VolcanoDialect(PodGroupDialect):
    """See the module."""

    name: ClassVar[str] = "volcano"
    resources: ClassVar[tuple[DialectResource, ...]] = (
        DialectResource(
            "scheduling.volcano.sh", ("v1beta1",), "podgroups", "PodGroup", True, "group", status_subresource=False
        ),
        DialectResource("scheduling.volcano.sh", ("v1beta1",), "queues", "Queue", False, "queue"),
        DialectResource("topology.volcano.sh", ("v1alpha1",), "hypernodes", "HyperNode", False, "hypernode"),
    )

    def decode_group(self, raw: bytes | msgspec.Raw, api_version: str) -> PodGroup:
        """Return the group."""
        opened = self.open_group(raw)
        meta, spec, status, problems = opened.metadata, opened.spec, opened.status, opened.problems
        minimum = spec.integer("minMember", 0, 0)
        queue = spec.text("queue")
        phase = str(status.get("phase") or "")
        marks = {**(meta.labels or {}), **(meta.annotations or {})}
        return replace(
            self.identified(opened, api_version),
            min_member=max(minimum, 1),
            roles=_roles(spec, minimum),
            min_resources=spec.amounts("minResources"),
            # Its schema fills in "default" where nobody chose; the default of the namespace must still count then.
            queue="" if queue == DEFAULT_QUEUE else queue,
            priority_class=spec.text("priorityClassName"),
            preemptible=_preemptible(marks.get("volcano.sh/preemptable")),
            topology=_topology(spec),
            subgroups=_subgroups(spec),
            phase=_NEUTRAL.get(phase, phase),
            was_running=phase in RAN or has_condition(copied_conditions(status), "Scheduled"),
            counts=read_counts(status, _COUNTS),
            problems=tuple(problems),
        )

    def decode_queue(self, raw: bytes | msgspec.Raw, api_version: str) -> Queue:
        """Return the queue. Closed, Closing and Unknown all mean that nothing new starts; no state at all is Open."""
        envelope = open_envelope("Queue.scheduling.volcano.sh", raw)
        meta, problems = envelope.metadata, list[Problem]()
        spec, status = open_spec(envelope, problems), plain(envelope.status)
        state = Reader(status, "status", problems).choice("state", "Open", _STATES) if status.get("state") else "Open"
        return Queue(
            name=meta.name,
            uid=meta.uid,
            dialect=self.name,
            parent="" if meta.name == ROOT_QUEUE else spec.text("parent") or ROOT_QUEUE,
            weight=spec.integer("weight", 1, 1, 65535) * WEIGHT_UNIT,
            priority=spec.integer("priority", 0, 0),
            guarantee=_kept(spec.object("guarantee"), "resource"),
            deserved=_kept(spec, "deserved"),
            limit=_kept(spec, "capability"),
            reclaimable=spec.flag("reclaimable") is not False,
            state="Open" if state == "Open" else "Hold",
            created=seconds(meta.creation_timestamp),
            generation=meta.generation,
            conditions=read_conditions(status),
            problems=tuple(dict.fromkeys(problems)),
            resource_version=meta.resource_version,
            raw_status=bytes(envelope.status),
        )

    def queue_status_patch(self, queue: Queue, facts: QueueFacts, now: str) -> dict[str, Any] | None:
        """Return the merge patch for the status of a queue.

        Its state is also where its users close it: only what the queue says of itself is said back, never what it
        inherits, or it would stay closed when the queue above opens again. Counters go along, but are no reason to
        write: not every version of its schema keeps them.
        """
        before = plain(queue.raw_status)
        said = before.get("state")
        if queue.state == "Open":
            state = "Open"
        elif said == "Unknown":
            state = "Unknown"
        else:
            state = "Closing" if facts.state == "Closing" else "Closed"
        changed = (difference(before, {"state": state}) or {"status": {}})["status"]
        pods = {PODS: str(facts.pods)} if facts.pods else {}
        allocated = {name: queues.written(name, value) for name, value in facts.allocated} | pods
        if part := queues.told(before.get("allocated"), allocated):
            changed["allocated"] = part
        if part := queues.told(before.get("reservation"), facts.guarantee):
            changed["reservation"] = part
        counts = {"pending": facts.pending, "inqueue": facts.admitted, "running": facts.running}
        counted = (difference(before, counts) or {"status": {}})["status"]
        if changed or any(name in before for name in counted):
            changed |= counted
        return {"status": changed} if changed else None

    def decode_hypernode(self, raw: bytes | msgspec.Raw, api_version: str) -> HyperNode:
        """Return the hyper-node."""
        envelope = open_envelope("HyperNode.topology.volcano.sh", raw)
        meta, problems = envelope.metadata, list[Problem]()
        spec, status = open_spec(envelope, problems), plain(envelope.status)
        if "tier" not in spec:
            problems.append(Problem("spec.tier", "must be there"))
        members = (_member(item) for item in spec.objects("members"))
        return HyperNode(
            name=meta.name,
            uid=meta.uid,
            dialect=self.name,
            tier=spec.integer("tier", 0, 0),
            tier_name=spec.text("tierName"),
            members=tuple(member for member in members if member is not None),
            api_version=api_version,
            created=seconds(meta.creation_timestamp),
            problems=tuple(dict.fromkeys(problems)),
            generation=meta.generation,
            conditions=read_conditions(status),
            resource_version=meta.resource_version,
            raw_status=bytes(envelope.status),
        )

    def topology_status_patch(self, one: Topology | HyperNode, facts: TopologyFacts, now: str) -> dict[str, Any] | None:
        """Return the merge patch for the status of a hyper-node."""
        before = plain(one.raw_status)
        told = topologies.conditions(one, before, facts, now, always=False)
        return difference(before, {"nodeCount": facts.nodes, "conditions": told})

    def status_patch(self, group: PodGroup, status: SetStatus, text: str, now: str) -> dict[str, Any] | None:
        """Return the merge patch for the status."""
        before = plain(group.raw_status)
        conditions = copied_conditions(before)
        runs = status.phase in ("Running", "Completed")
        if status.verdict is not None and not runs:
            set_condition(conditions, "Unschedulable", "True", _reason(status.verdict), text, now, transitionID=now)
        elif has_condition(conditions, "Unschedulable", "True"):
            set_condition(conditions, "Unschedulable", "False", "Schedulable", "", now, transitionID=now)
        if runs:
            said = _SCHEDULED_REASON if status.verdict is None else _reason(status.verdict)
            set_condition(conditions, "Scheduled", "True", said, text, now, transitionID=now)
        elif status.phase in ("Degraded", "Unknown") or has_condition(conditions, "Scheduled", "True"):
            set_condition(conditions, "Scheduled", "False", "BelowMinimum", text, now, transitionID=now)
        wish: dict[str, Any] = {
            "phase": word_of(self.name, status.phase),
            "conditions": conditions,
            **counted(status, _COUNTS),
        }
        return difference(before, wish)


def _reason(verdict: Verdict) -> str:
    """Return the reason in Volcano's words where it has one, else ours."""
    if verdict.code in CAPACITY_CODES:
        return "NotEnoughResources"
    if verdict.code is Code.NOT_ENOUGH_MEMBERS:
        return "NotEnoughTasks"
    return str(verdict.code)


def _roles(spec: Reader, minimum: int) -> tuple[RoleMinimum, ...]:
    """Read minTaskMember; its controller fills it in for every vcjob, so it holds only when the minimum covers it."""
    reader = spec.object("minTaskMember")
    counts = {name: reader.integer(name, 0, 0) for name in sorted(reader.fields)}
    if sum(counts.values()) > minimum:
        return ()
    return tuple(RoleMinimum(name, count) for name, count in counts.items() if count)


def _preemptible(text: str | None) -> bool | None:
    return None if text is None else text in VOLCANO_TRUE


def _topology(spec: Reader) -> TopologyWish | None:
    """Read networkTopology; tiers are named "tier N", and hard (its default mode) means required: the lowest that will
    do. Hard without a tier would mean nothing, so it is a problem."""
    topology = spec.object("networkTopology")
    if not topology.fields:
        return None
    mode = topology.choice("mode", "hard", ("hard", "soft"))
    level, field = topology.text("highestTierName"), topology.at("highestTierName")
    if level and "highestTierAllowed" in topology:
        topology.problems.append(Problem(field, "must not stand beside highestTierAllowed"))
    if not level and "highestTierAllowed" in topology:
        level, field = f"tier {topology.integer('highestTierAllowed', 1, 0)}", topology.at("highestTierAllowed")
    if mode == "soft":
        return TopologyWish(name="volcano", preferred=level or NARROWEST)
    if not level:
        topology.problems.append(Problem(topology.at("highestTierAllowed"), "must be there in mode hard"))
        return None
    return TopologyWish(name="volcano", required=level, preferred=NARROWEST, field=field)


def _subgroups(spec: Reader) -> tuple[SubGroup, ...]:
    """Read subGroupPolicy; a policy without matchLabelKeys is one sub-group of those that its selector matches."""
    found: dict[str, list[SubGroup]] = {}
    for policy in spec.objects("subGroupPolicy"):
        name = policy.text("name").replace("/", "_")
        if not name or name in found:
            policy.problems.append(Problem(policy.at("name"), "must be there and differ from the others"))
            continue
        least, keys = policy.integer("minSubGroups", 0, 0), texts(policy, "matchLabelKeys")
        leaf = SubGroup(
            name, policy.integer("subGroupSize", 1, 1), least, selector_of(policy, "labelSelector"), keys,
            _topology(policy), policy.path,
        )  # fmt: skip
        if keys:
            found[name] = [leaf]
            continue
        if least > 1:
            policy.problems.append(Problem(policy.at("minSubGroups"), f"is {least}, but there is 1 sub-group"))
        above = SubGroup(name, min_subgroups=min(least, 1), field=policy.path)
        found[name] = [above, replace(leaf, path=f"{name}/all", min_subgroups=None)]
    return tuple(one for part in found.values() for one in part)


def _member(item: Reader) -> HyperNodeMember | None:
    """Read a member of a hyper-node; None where it cannot be used."""
    kind = item.choice("type", "", ("Node", "HyperNode"))
    selector = item.object("selector")
    given = [name for name in ("exactMatch", "regexMatch", "labelMatch") if name in selector]
    if len(given) != 1:
        wish = "needs exactly one of exactMatch, regexMatch and labelMatch"
        item.problems.append(Problem(selector.path, wish))
    if len(given) != 1 or kind not in ("Node", "HyperNode"):
        return None
    exact, pattern = selector.object("exactMatch").text("name"), selector.object("regexMatch").text("pattern")
    labels = None
    if given == ["labelMatch"]:
        labels = _labels(selector, kind)
    elif not exact and not pattern:
        item.problems.append(Problem(selector.at(given[0]), "is empty"))
    if labels is None and not exact and not pattern:
        return None
    return HyperNodeMember("Node" if kind == "Node" else "HyperNode", exact, pattern, labels, item.path)


def _labels(selector: Reader, kind: str) -> LabelSelector | None:
    path, before = selector.at("labelMatch"), len(selector.problems)
    if kind != "Node":
        selector.problems.append(Problem(path, "is only for members of type Node"))
        return None
    try:
        struct = msgspec.convert(selector.fields["labelMatch"], SelectorStruct)
    except msgspec.ValidationError as bad:
        selector.problems.append(Problem(path, f"is not a selector: {bad}"))
        return None
    found = label_selector(struct, path, selector.problems)
    if found is not None and not found.requirements:
        selector.problems.append(Problem(path, "is empty"))
    return found if len(selector.problems) == before else None


def _kept(spec: Reader, field: str) -> Amounts:
    """Return quantities of a queue; zero is a value here, absent is not."""
    stated = spec.object(field).fields
    known = dict(spec.amounts(field, bounded=False))
    bad = {problem.field for problem in spec.problems}
    return tuple((name, known.get(name, 0)) for name in sorted(stated) if f"{spec.at(field)}[{name}]" not in bad)
