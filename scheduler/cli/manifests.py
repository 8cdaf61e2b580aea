"""Objects of manifests as the events that they would be in a cluster, for what is asked before anything is created.

Decided here: which kinds are understood, and what the API server would have filled in: metadata, priorities, requests
where there are limits. Pods of a workload that name no group are the gang of their owner, as the grouping controller
would have it. Which pods a workload makes: `workloads`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from scheduler.cli.workloads import NotUnderstood, Unusable, workload_of
from scheduler.cluster import feed
from scheduler.dialects import core
from scheduler.dialects.owners import GROUP_API, KINDS, decode, group_for
from scheduler.dialects.registry import BY_NAME, DIALECTS
from scheduler.model.pods import Problem

Json = dict[str, Any]
Classes: TypeAlias = Mapping[str, int]
"""The value of each priority class; that of "" is the default."""
_OWNERS = {(one.group, one.kind): one for one in KINDS}


class _AnyClass(dict[str, int]):
    def __contains__(self, name: object) -> bool:
        return True


ANY_CLASS: Classes = _AnyClass()
"""Every priority class exists: where nobody can tell, or somebody has checked."""


@dataclass(frozen=True, slots=True)
class Understood:
    """One object. pods: path of the template, and a pod of it as JSON. unseen: what there will be besides, in words."""

    events: list[feed.Event]
    pods: tuple[tuple[str, Json], ...] = ()
    unseen: tuple[str, ...] = ()


def added(documents: list[Json], namespace: str, classes: Classes) -> Understood:
    """Return the objects as events: groups, queues, topologies, pods, and the pods of workloads.

    classes: the value of each priority class, that of "" is the default. Raises `Unusable` for another kind,
    `Undecodable` for what cannot be read.
    """
    found = [understood(complete(one, namespace, number), classes) for number, one in enumerate(documents)]
    return Understood(
        [event for one in found for event in one.events],
        tuple(pod for one in found for pod in one.pods),
        tuple(text for one in found for text in one.unseen),
    )


def understood(body: Json, classes: Classes) -> Understood:
    """Return one object, completed. Raises as `added`."""
    kind, version = body["kind"], str(body.get("apiVersion", ""))
    if kind == "Pod":
        return Understood(pod_events(body, classes), (("", body),))
    work = workload_of(body)
    if work is None:
        return Understood([_object(body, kind, version)])
    events = [event for _, pod in work.pods for event in pod_events(pod, classes)]
    groups = [_object(one, one["kind"], one["apiVersion"]) for one in work.groups]
    return Understood([*groups, *_owning(work.owner, events), *events], work.pods, work.unseen)


def as_grouped(events: list[feed.Event], *, grouping: bool) -> list[feed.Event]:
    """Return the events as they are where grouping by owner is on or off."""
    if grouping:
        return events
    return [one for one in events if not (isinstance(one, feed.GroupSet) and one.group.made_for)]


def _owning(body: Json, events: list[feed.Event]) -> list[feed.Event]:
    """Return the group that an owner is to those of its pods that name none."""
    if (body["kind"], body["apiVersion"]) == ("Job", "batch/v1"):
        group = core.decode_owner(_raw(body), "Job", str(body["apiVersion"]))
        return [feed.GroupSet(group)] if group is not None else []
    kind = _OWNERS.get((str(body["apiVersion"]).rpartition("/")[0], body["kind"]))
    if kind is None:
        return []
    owner = decode(_raw(body), kind, str(body["apiVersion"]))
    if owner.problems:
        prefix = f"{body['kind']} {owner.reference.name}: "
        own = [Problem(one.field.removeprefix(prefix), one.message) for one in owner.problems]
        raise Unusable(f"{prefix}{own[0].field}: {own[0].message}", own)
    loose = [one.pod for one in events if isinstance(one, feed.PodSet) and not (one.pod.group or one.pod.min_member)]
    if owner.minimum < 2 or not loose:
        return []
    made = group_for(owner, preemptible=loose[0].preemptible)
    made["metadata"] |= {"uid": owner.uid, "creationTimestamp": body["metadata"]["creationTimestamp"]}
    group = BY_NAME["muster"].decode_group(_raw(made), GROUP_API)
    name, key = owner.reference.name, f"owner/{owner.namespace}/{owner.uid}"
    return [feed.GroupSet(replace(group, key=key, dialect="owner", kind=body["kind"], name=name))]


def _object(body: Json, kind: str, version: str) -> feed.Event:
    group, _, number = version.partition("/")
    for dialect in DIALECTS:
        for resource in dialect.resources:
            if (resource.group, resource.kind) != (group, kind) or number not in resource.versions:
                continue
            if resource.role == "group":
                return feed.GroupSet(dialect.decode_group(_raw(body), version))
            if resource.role == "queue":
                return feed.QueueSet(dialect.decode_queue(_raw(body), version))
            if resource.role == "topology":
                return feed.TopologySet(dialect.decode_topology(_raw(body), version))
            if resource.role == "hypernode":
                return feed.HyperNodeSet(dialect.decode_hypernode(_raw(body), version))
    name = body["metadata"].get("name", "")
    wish = "neither a group, queue or topology nor a kind of which is known what pods become of it"
    raise NotUnderstood(f"{kind} {name} ({version}): {wish} (docs/reference/operators.md)")


def complete(document: Json, namespace: str, number: int) -> Json:
    """Return the object with the metadata that the API server would have added. Raises `Unusable`."""
    meta = document.get("metadata") or {}
    if not isinstance(meta, dict):
        raise Unusable(f"{document['kind']}: metadata is not an object")
    meta = {**meta}
    if not isinstance(document.get("spec"), dict):
        raise Unusable(f"{document['kind']} {meta.get('name', '')}: has no spec")
    meta.setdefault("name", f"{meta.get('generateName', 'simulated-')}{number}")
    meta.setdefault("namespace", namespace)
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    meta |= {"uid": f"simulated-{number}", "resourceVersion": "1", "generation": 1, "creationTimestamp": stamp}
    return {**document, "metadata": meta, "status": {}}


def templates_of(body: Json, number: int) -> Iterator[tuple[str, Json]]:
    """Yield each pod template inside an object of a kind that is not understood, as a pod, with its path."""
    for path, template in _templates(body.get("spec"), "spec"):
        own = template.get("metadata")
        meta = {**(own if isinstance(own, dict) else {})}
        name, stamp = f"{body['metadata']['name']}-template", body["metadata"]["creationTimestamp"]
        meta |= {"name": name, "namespace": body["metadata"]["namespace"], "uid": f"template-{number}-{path}"}
        yield path, {"kind": "Pod", "metadata": meta | {"creationTimestamp": stamp}, "spec": template["spec"]}


def _templates(value: Any, path: str) -> Iterator[tuple[str, Json]]:
    if isinstance(value, dict):
        spec = value.get("spec")
        if isinstance(spec, dict) and isinstance(spec.get("containers"), list):
            yield path, value
            return
        for name, inner in value.items():
            yield from _templates(inner, f"{path}.{name}")
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from _templates(inner, f"{path}[{number}]")


def pod_events(body: Json, classes: Classes) -> list[feed.Event]:
    """Return a pod with what the API server would have filled in: its priority, and requests where there are limits."""
    spec = {**body["spec"]}
    named = spec.get("priorityClassName") or ""
    if not isinstance(named, str):
        raise Unusable(f"Pod {body['metadata']['name']}: spec.priorityClassName must be a string")
    if named and named not in classes:
        raise Unusable(f"Pod {body['metadata']['name']}: there is no PriorityClass {named}")
    spec.setdefault("priority", classes.get(named, 0))
    for field in ("containers", "initContainers"):
        if isinstance(spec.get(field), list):
            spec[field] = [_defaulted(one) if isinstance(one, dict) else one for one in spec[field]]
    pod, shape = core.decode_pod(_raw({**body, "spec": spec}), frozenset())
    return [feed.ShapeSet(shape), feed.PodSet(replace(pod, ours=True))]


def _defaulted(container: Json) -> Json:
    resources = container.get("resources")
    if not isinstance(resources, dict) or not isinstance(resources.get("limits"), dict):
        return container
    requests = {**resources["limits"], **(resources.get("requests") or {})}
    return {**container, "resources": {**resources, "requests": requests}}


def _raw(body: Json) -> bytes:
    return json.dumps(body).encode()
