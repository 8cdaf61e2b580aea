"""Muster's own API: scheduling.muster.sh/v1alpha1 PodGroup, Queue and Topology.

Decided here: how the fields of the API become model values and which words the status uses. Topology rules and
selectors that this version cannot hold are problems of the group, so that it waits and says why instead of running
elsewhere. That a group once reached its minimum is remembered in status.start.actual.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import msgspec

from scheduler.dialects import queues, topologies
from scheduler.dialects.base import (
    LATER,
    RAN,
    DialectResource,
    Envelope,
    PodGroupDialect,
    Reader,
    copied_conditions,
    counted,
    difference,
    open_envelope,
    open_spec,
    plain,
    read_conditions,
    read_counts,
    set_condition,
)
from scheduler.dialects.meta import seconds
from scheduler.dialects.neighbours import SelectorStruct, label_selector
from scheduler.model.affinity import LabelSelector
from scheduler.model.decisions import SetStatus
from scheduler.model.groups import PodGroup, RoleMinimum, TopologyWish
from scheduler.model.pods import Problem
from scheduler.model.quantity import BadQuantity, amount
from scheduler.model.queues import ROOT_QUEUE, UNLIMITED, WEIGHT_UNIT, Queue, QueueFacts
from scheduler.model.resources import Amounts
from scheduler.model.topology import HyperNode, Level, Topology, TopologyFacts
from scheduler.model.verdict import Code

_PHASES = {
    "Pending": "Pending",
    "Inqueue": "Admitted",
    "Scheduling": "Binding",
    "Running": "Running",
    "Degraded": "Degraded",
    "Completed": "Completed",
    "Failed": "Failed",
    "Unknown": "Degraded",
}
_NEUTRAL = {word: neutral for neutral, word in _PHASES.items() if neutral != "Unknown"}
_WITHIN = ("LowerPriority", "LowerOrNewerEqualPriority", "Never")
_COUNTS = ("desired", "existing", "gated", "bound", "running", "succeeded", "failed")


class MusterDialect(PodGroupDialect):
    """See the module."""

    name: ClassVar[str] = "muster"
    resources: ClassVar[tuple[DialectResource, ...]] = (
        DialectResource("scheduling.muster.sh", ("v1alpha1",), "podgroups", "PodGroup", True, "group"),
        DialectResource("scheduling.muster.sh", ("v1alpha1",), "queues", "Queue", False, "queue"),
        DialectResource("scheduling.muster.sh", ("v1alpha1",), "topologies", "Topology", False, "topology"),
    )

    def decode_group(self, raw: bytes | msgspec.Raw, api_version: str) -> PodGroup:
        """Return the group."""
        opened = self.open_group(raw)
        spec, status, problems = opened.spec, opened.status, opened.problems
        start = status.get("start")
        members = status.get("members")
        phase = str(status.get("phase") or "")
        return replace(
            self.identified(opened, api_version),
            min_member=spec.integer("minMember", 1, 1),
            roles=_roles(spec),
            queue=spec.text("queue"),
            priority_class=spec.text("priorityClassName"),
            preemptible=spec.flag("preemptible"),
            min_runtime=queues.duration(spec, "minRuntime"),
            topology=_topology(spec),
            phase=_NEUTRAL.get(phase, phase),
            was_running=phase in RAN or (isinstance(start, dict) and bool(start.get("actual"))),
            counts=read_counts(members if isinstance(members, dict) else {}, _COUNTS),
            problems=tuple(problems),
        )

    def decode_queue(self, raw: bytes | msgspec.Raw, api_version: str) -> Queue:
        """Return the queue."""
        envelope: Envelope = open_envelope("Queue.scheduling.muster.sh", raw)
        meta, problems = envelope.metadata, list[Problem]()
        spec, status = open_spec(envelope, problems), plain(envelope.status)
        preemption = spec.object("preemption")
        decayed, decayed_at = queues.read_usage(status)
        return Queue(
            name=meta.name,
            uid=meta.uid,
            dialect=self.name,
            parent=spec.text("parent") or ROOT_QUEUE,
            weight=spec.integer("weight", 1, 0) * WEIGHT_UNIT,
            priority=spec.integer("priority", 0, -(2**31)),
            guarantee=_resources(spec, "guarantee"),
            deserved=_resources(spec, "deserved"),
            limit=_resources(spec, "limit"),
            reclaimable=preemption.flag("reclaimable") is not False,
            state=spec.choice("state", "Open", ("Open", "Hold", "Drain")),
            order=spec.choice("order", "BestEffort", ("BestEffort", "StrictFIFO")),
            within_queue=preemption.choice("withinQueue", "LowerPriority", _WITHIN),
            reclaim=preemption.choice("reclaim", "Any", ("Any", "LowerPriority", "Never")),
            min_runtime=queues.duration(preemption, "minRuntime"),
            namespaces=_namespaces(spec),
            half_life=queues.duration(spec.object("fairShare"), "halfLife", positive=True),
            decayed=decayed,
            decayed_at=decayed_at,
            created=seconds(meta.creation_timestamp),
            generation=meta.generation,
            conditions=read_conditions(status),
            problems=tuple(dict.fromkeys(problems)),
            resource_version=meta.resource_version,
            raw_status=bytes(envelope.status),
        )

    def decode_topology(self, raw: bytes | msgspec.Raw, api_version: str) -> Topology:
        """Return the topology."""
        envelope = open_envelope("Topology.scheduling.muster.sh", raw)
        meta, problems = envelope.metadata, list[Problem]()
        spec, status = open_spec(envelope, problems), plain(envelope.status)
        levels = [(_level(item), item.path) for item in spec.objects("levels")]
        return Topology(
            name=meta.name,
            uid=meta.uid,
            dialect=self.name,
            levels=topologies.usable(levels, problems),
            api_version=api_version,
            created=seconds(meta.creation_timestamp),
            problems=tuple(dict.fromkeys(problems)),
            generation=meta.generation,
            conditions=read_conditions(status),
            resource_version=meta.resource_version,
            raw_status=bytes(envelope.status),
        )

    def topology_status_patch(self, one: Topology | HyperNode, facts: TopologyFacts, now: str) -> dict[str, Any] | None:
        """Return the merge patch for the status of a topology."""
        before = plain(one.raw_status)
        conditions = topologies.conditions(one, before, facts, now, always=True)
        changed = (difference(before, {"conditions": conditions}) or {"status": {}})["status"]
        if before.get("unlabelledNodes") != facts.unlabelled:
            changed["unlabelledNodes"] = facts.unlabelled
        said = before.get("domains")
        said = said if isinstance(said, dict) else {}
        domains: dict[str, int | None] = {name: many for name, many in facts.domains if said.get(name) != many}
        domains |= dict.fromkeys(name for name in said if name not in dict(facts.domains))
        if domains:
            changed["domains"] = domains
        return {"status": changed} if changed else None

    def queue_status_patch(self, queue: Queue, facts: QueueFacts, now: str) -> dict[str, Any] | None:
        """Return the merge patch for the status of a queue."""
        before = plain(queue.raw_status)
        waiting = facts.pending + facts.admitted
        wish: dict[str, Any] = {"state": facts.state, "pending": waiting, "running": facts.running}
        wish["conditions"] = queues.conditions(queue, before, facts, now, ready=True)
        changed = (difference(before, wish) or {"status": {}})["status"]
        for name, value in (
            ("entitlement", facts.entitlement),
            ("allocated", facts.allocated),
            ("borrowed", facts.borrowed),
        ):
            if part := queues.told(before.get(name), value):
                changed[name] = part
        changed |= queues.usage(queue, before, facts, alone=not changed) or {}
        return {"status": changed} if changed else None

    def status_patch(self, group: PodGroup, status: SetStatus, text: str, now: str) -> dict[str, Any] | None:
        """Return the merge patch for the status."""
        before = plain(group.raw_status)
        conditions = copied_conditions(before)
        generation = group.generation
        reason = str(status.verdict.code) if status.verdict else ""
        if status.phase != "Pending":
            set_condition(conditions, "Admitted", "True", "Admitted", "", now, observedGeneration=generation)
        elif reason:
            set_condition(conditions, "Admitted", "False", reason, text, now, observedGeneration=generation)
        if status.phase in ("Running", "Completed"):
            said = reason or "MinimumBound"
            set_condition(conditions, "Scheduled", "True", said, text, now, observedGeneration=generation)
        elif reason:
            set_condition(conditions, "Scheduled", "False", reason, text, now, observedGeneration=generation)
        wish: dict[str, Any] = {
            "phase": "Suspended"
            if status.verdict is not None and status.verdict.code is Code.SUSPENDED
            else _PHASES[status.phase],
            "conditions": conditions,
        }
        if status.place is not None or "queuePosition" in before:
            wish["queuePosition"] = None if status.place is None else status.place.position
        if members := counted(status, _COUNTS):
            wish["members"] = members
        start = before.get("start")
        if status.phase in RAN and not (isinstance(start, dict) and start.get("actual")):
            wish["start"] = {"actual": now}
        return difference(before, wish)


def _level(item: Reader) -> Level:
    """Read a level: exactly one of a label and a prefix of labels."""
    label, prefix = item.text("label"), item.text("labelPrefix")
    if label and prefix:
        item.refuse("labelPrefix", "cannot be there beside label")
        prefix = ""
    rising = item.choice("widest", "Highest", ("Highest", "Lowest")) == "Lowest"
    return Level(item.text("name") or label or prefix, label, prefix, rising)


def _namespaces(spec: Reader) -> LabelSelector | None:
    """Read namespaceSelector; without one every namespace may use the queue, and so with an empty one."""
    value = spec.fields.get("namespaceSelector")
    if value is None:
        return None
    path = spec.at("namespaceSelector")
    try:
        struct = msgspec.convert(value, SelectorStruct)
    except msgspec.ValidationError as bad:
        spec.problems.append(Problem(path, f"is not a selector: {bad}"))
        return None
    return label_selector(struct, path, spec.problems)


def _topology(spec: Reader) -> TopologyWish | None:
    wish = spec.object("topology")
    wish.refuse("atMostDomains", LATER)
    wish.refuse("segments", LATER)
    name, required, preferred = wish.text("name"), wish.text("required"), wish.text("preferred")
    return TopologyWish(name, required, preferred) if required or preferred else None


def _roles(spec: Reader) -> tuple[RoleMinimum, ...]:
    """Read the leaves of a flat list of sub-groups as roles, joined by the label scheduling.muster.sh/subgroup."""
    roles: dict[str, int] = {}
    for group in spec.objects("subGroups"):
        for field in ("subGroups", "minSubGroups", "selector", "matchLabelKeys"):
            group.refuse(field, f"{LATER}; label the members scheduling.muster.sh/subgroup")
        if group.object("topology").text("required"):
            group.refuse("topology", LATER)
        name = group.text("name")
        if not name or name in roles:
            group.problems.append(Problem(group.at("name"), "must be there and differ from its siblings"))
            continue
        roles[name] = group.integer("minMember", 1, 0)
    return tuple(RoleMinimum(name, count) for name, count in sorted(roles.items()) if count)


def _resources(spec: Reader, field: str) -> Amounts:
    """Return one field of every resource; zero is a value here, absent is not."""
    resources = spec.object("resources")
    found: list[tuple[str, int]] = []
    for name in sorted(resources.fields):
        entry = resources.object(name)
        value = entry.fields.get(field)
        if value is None:
            continue
        if value == "unlimited":
            found.append((name, UNLIMITED))
            continue
        try:
            number = amount(name, value) if isinstance(value, str | int | float) else -1
        except BadQuantity as bad:
            spec.problems.append(Problem(entry.at(field), str(bad)))
            continue
        if number < 0 or isinstance(value, bool):
            spec.problems.append(Problem(entry.at(field), f'must be a quantity >= 0 or "unlimited", not {value!r}'))
            continue
        found.append((name, number))
    return tuple(found)
