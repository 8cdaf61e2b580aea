"""Muster's own API: scheduling.muster.sh/v1alpha1 PodGroup, Queue and Topology.

Decided here: how the fields of the API become model values and what the status says. A flat list of sub-groups
that says no more than how many of each must start is read as roles. That a group once reached its minimum is remembered
in status.start.actual.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import msgspec

from scheduler.dialects import queues, topologies
from scheduler.dialects.base import (
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
from scheduler.dialects.membership import MADE_FOR
from scheduler.dialects.meta import seconds
from scheduler.dialects.wishes import MAX_DEPTH, check_segments, check_tree, selector_of, texts
from scheduler.model.decisions import LayoutFacts, SetStatus
from scheduler.model.groups import PodGroup, RoleMinimum, SubGroup
from scheduler.model.phases import SUSPENDED, WORDS, word_of
from scheduler.model.pods import Problem
from scheduler.model.quantity import BadQuantity, amount
from scheduler.model.queues import ROOT_QUEUE, UNLIMITED, WEIGHT_UNIT, Queue, QueueFacts
from scheduler.model.resources import Amounts
from scheduler.model.topology import HyperNode, Level, Topology, TopologyFacts
from scheduler.model.verdict import Code
from scheduler.model.wishes import TopologyWish

_NEUTRAL = {word: neutral for neutral, word in WORDS["muster"].items() if neutral != "Unknown"} | {SUSPENDED: "Pending"}
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
        minimum, roles = spec.integer("minMember", 1, 1), _roles(spec)
        known = self.identified(opened, api_version)
        return replace(
            known,
            min_member=minimum,
            roles=roles,
            subgroups=_subgroups(spec, roles),
            min_subgroups=_least(spec),
            queue=spec.text("queue"),
            priority_class=spec.text("priorityClassName"),
            preemptible=spec.flag("preemptible"),
            moves_whole=spec.choice("onDomainLost", "Wait", ("Wait", "MoveWhole")) == "MoveWhole" or known.moves_whole,
            suspended=spec.at("suspend") if spec.flag("suspend") else opened.suspended,
            min_runtime=queues.duration(spec, "minRuntime"),
            topology=_topology(spec, minimum),
            phase=_NEUTRAL.get(phase, phase),
            was_running=phase in RAN or (isinstance(start, dict) and bool(start.get("actual"))),
            counts=read_counts(members if isinstance(members, dict) else {}, _COUNTS),
            problems=tuple(problems),
            made_for=(opened.metadata.labels or {}).get(MADE_FOR, ""),
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
            namespaces=selector_of(spec, "namespaceSelector"),
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
        found, envelope = topologies.read(
            self.name, "Topology.scheduling.muster.sh", raw, api_version, lambda item: (_level(item), item.path)
        )
        conditions = read_conditions(plain(envelope.status))
        return replace(found, conditions=conditions, raw_status=bytes(envelope.status))

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
            "phase": word_of(self.name, status.phase, kept_out=reason == Code.SUSPENDED),
            "conditions": conditions,
        }
        if status.place is not None or "queuePosition" in before:
            wish["queuePosition"] = None if status.place is None else status.place.position
        if members := counted(status, _COUNTS):
            wish["members"] = members
        if status.nodes:
            before_domains = _dict(_dict(before.get("decision")).get("domains"))
            domains: dict[str, Any] = {level: None for level in before_domains if level not in dict(status.domains)}
            domains |= {level: list(names) for level, names in status.domains}
            decision: dict[str, Any] = {"nodes": status.nodes, "domains": domains}
            if status.layout or "layout" in _dict(before.get("decision")):
                decision["layout"] = [_layout(one) for one in status.layout] or None
            if any(value is None for value in domains.values()) or before.get("decision") != decision:
                wish["decision"] = decision
        start = before.get("start")
        if status.phase in RAN and not (isinstance(start, dict) and start.get("actual")):
            wish["start"] = {"actual": now}
        return difference(before, wish)


def _dict(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _layout(facts: LayoutFacts) -> dict[str, Any]:
    part = {"subGroup": facts.subgroup} if facts.subgroup else {}
    return {"level": facts.level, **part, "members": dict(facts.members)}


def _level(item: Reader) -> Level:
    """Read a level: exactly one of a label and a prefix of labels."""
    label, prefix = item.text("label"), item.text("labelPrefix")
    if label and prefix:
        item.refuse("labelPrefix", "cannot be there beside label")
        prefix = ""
    rising = item.choice("widest", "Highest", ("Highest", "Lowest")) == "Lowest"
    return Level(item.text("name") or label or prefix, label, prefix, rising)


_TREE = ("subGroups", "minSubGroups", "selector", "matchLabelKeys", "topology")


def _topology(spec: Reader, members: int) -> TopologyWish | None:
    wish = spec.object("topology")
    if not wish.fields:
        return None
    most = wish.object("atMostDomains")
    at_most = ((most.text("level"), most.integer("max", 1, 1)),) if most.fields else ()
    segments = tuple((one.integer("size", 1, 1), one.text("level")) for one in wish.objects("segments"))
    check_segments(segments, members, wish.at("segments"), spec.problems)
    apart = tuple((one.text("level"), one.integer("max", 1, 1)) for one in wish.objects("apart"))
    layout = wish.object("layout")
    even = layout.choice("mode", "Packed", ("Packed", "Balanced")) == "Balanced"
    if even and not layout.text("level"):
        layout.problems.append(Problem(layout.at("level"), "must be there for the mode Balanced"))
    return TopologyWish(
        wish.text("name"), wish.text("required"), wish.text("preferred"), wish.at("required"),
        at_most=at_most, segments=segments, apart=apart, exclusive=wish.text("exclusive"),
        balanced=layout.text("level") if even else "", packed="" if even else layout.text("level"),
    )  # fmt: skip


def _roles(spec: Reader) -> tuple[RoleMinimum, ...]:
    """Read a flat list of sub-groups as roles, joined by the label scheduling.muster.sh/subgroup."""
    groups = list(spec.objects("subGroups"))
    if "minSubGroups" in spec or any(field in group for group in groups for field in _TREE):
        return ()
    roles = {name: group.integer("minMember", 1, 0) for group, name in _siblings(groups)}
    return tuple(RoleMinimum(name, count) for name, count in sorted(roles.items()) if count)


def _siblings(groups: list[Reader]) -> list[tuple[Reader, str]]:
    """Return sub-groups of one level with their names; those without a usable name are problems."""
    found: dict[str, Reader] = {}
    for group in groups:
        name = group.text("name")
        if not name or name in found or "/" in name:
            wish = 'must not contain "/"' if "/" in name else "must be there and differ from its siblings"
            group.problems.append(Problem(group.at("name"), wish))
            continue
        found[name] = group
    return [(group, name) for name, group in found.items()]


def _subgroups(spec: Reader, roles: tuple[RoleMinimum, ...]) -> tuple[SubGroup, ...]:
    if roles:
        return ()
    groups = list(spec.objects("subGroups"))
    if "minSubGroups" not in spec and not any(field in group for group in groups for field in _TREE):
        return ()
    found: list[SubGroup] = []
    _collect(groups, "", found)
    check_tree(found, _least(spec), spec.at("minSubGroups"), spec.problems)
    return tuple(found)


def _collect(groups: list[Reader], above: str, found: list[SubGroup]) -> None:
    for group, name in _siblings(groups):
        path = f"{above}/{name}" if above else name
        below = list(group.objects("subGroups"))
        keys = texts(group, "matchLabelKeys")
        if below and path.count("/") >= MAX_DEPTH:
            group.problems.append(Problem(group.at("subGroups"), f"deeper than {MAX_DEPTH} levels"))
            below = []
        for field in ("minMember", "selector", "matchLabelKeys") if below else ():
            group.refuse(field, "must not stand beside subGroups")
        if not below and not keys:
            group.refuse("minSubGroups", "needs subGroups or matchLabelKeys beside it")
        minimum = 0 if below else group.integer("minMember", 1, 0)
        found.append(
            SubGroup(
                path,
                min_member=minimum,
                min_subgroups=_least(group) if below or keys else None,
                selector=selector_of(group, "selector"),
                keys=keys,
                topology=_topology(group, minimum),
                field=group.path,
            )
        )
        _collect(below, path, found)


def _least(spec: Reader) -> int | None:
    return spec.integer("minSubGroups", 0, 0) if "minSubGroups" in spec else None


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
