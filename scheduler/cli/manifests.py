"""Objects of manifests as the events that they would be in a cluster, for what is asked before anything is created.

Decided here: which kinds are understood, which pods a Job or a Deployment would make of its template, and what the API
server would have filled in: metadata, priorities, requests where there are limits.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import yaml

from scheduler.cluster import feed
from scheduler.dialects import core
from scheduler.dialects.registry import DIALECTS

Json = dict[str, Any]
Classes: TypeAlias = Mapping[str, int]
"""The value of each priority class; that of "" is the default."""
_MOST_PODS = 100_000


class _AnyClass(dict[str, int]):
    def __contains__(self, name: object) -> bool:
        return True


ANY_CLASS: Classes = _AnyClass()
"""Every priority class exists: where nobody can tell, or somebody has checked."""


class Unusable(ValueError):
    """An object of a file that cannot be understood; the message names it."""


def documents_of(files: Iterable[Path]) -> Iterator[Json]:
    """Yield the objects of files (`-` is standard input), those of lists one by one. Raises `Unusable`, `OSError`."""
    for file in files:
        try:
            text = sys.stdin.read() if str(file) == "-" else file.read_text()
            for document in yaml.safe_load_all(text):
                if document is None:
                    continue
                if not isinstance(document, dict) or not isinstance(document.get("kind"), str):
                    raise Unusable(f"{file}: a document is not an object with a kind")
                yield from document.get("items") or [document] if document["kind"] == "List" else [document]
        except yaml.YAMLError as error:
            raise Unusable(f"{file}: {error}") from error


def added(documents: list[Json], namespace: str, classes: Classes) -> list[feed.Event]:
    """Return the objects as events: groups, queues, topologies, pods, and the pods of Jobs and Deployments.

    classes: the value of each priority class, that of "" is the default. Raises `Unusable` for another kind,
    `Undecodable` for what cannot be read.
    """
    return [
        event for number, one in enumerate(documents) for event in events_of(complete(one, namespace, number), classes)
    ]


def events_of(body: Json, classes: Classes) -> list[feed.Event]:
    """Return one object, completed, as events. Raises as `added`."""
    kind, version = body["kind"], str(body.get("apiVersion", ""))
    if kind == "Pod":
        return pod_events(body, classes)
    if kind == "Job" and version == "batch/v1":
        group = core.decode_owner(_raw(body), "Job", version)
        found: list[feed.Event] = [feed.GroupSet(group)] if group is not None else []
        return found + _replicas(body, _count(body, "parallelism"), classes)
    if kind in ("Deployment", "ReplicaSet", "StatefulSet") and version == "apps/v1":
        return _replicas(body, _count(body, "replicas"), classes)
    return [_object(body, kind, version)]


def _count(body: Json, field: str) -> int:
    value = body["spec"].get(field, 1)
    if isinstance(value, bool) or not isinstance(value, int):
        raise Unusable(f"{body['kind']} {body['metadata']['name']}: spec.{field}: must be an integer, not {value!r}")
    return value


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
    wish = "only groups, queues, topologies, pods, Jobs and Deployments are simulated"
    raise Unusable(f"{kind} {name} ({version}): {wish}")


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


def _replicas(owner: Json, count: int, classes: Classes) -> list[feed.Event]:
    template = owner["spec"].get("template")
    if not isinstance(template, dict) or not isinstance(template.get("spec"), dict):
        raise Unusable(f"{owner['kind']} {owner['metadata']['name']}: has no pod template")
    if not 0 <= count <= _MOST_PODS:
        raise Unusable(f"{owner['kind']} {owner['metadata']['name']}: {count} pods are not simulated")
    found: list[feed.Event] = []
    meta = owner["metadata"]
    reference = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "controller": True}
    for index in range(count):
        own = template.get("metadata") or {}
        annotations = {**(own.get("annotations") or {})}
        if owner["spec"].get("completionMode") == "Indexed":
            annotations["batch.kubernetes.io/job-completion-index"] = str(index)
        pod = {
            "metadata": {
                **own,
                "annotations": annotations,
                "name": f"{meta['name']}-{index}",
                "namespace": meta["namespace"],
                "uid": f"{meta['uid']}-{index}",
                "resourceVersion": "1",
                "creationTimestamp": meta["creationTimestamp"],
                "ownerReferences": [reference | {"name": meta["name"], "uid": meta["uid"]}],
            },
            "spec": template["spec"],
        }
        found += pod_events(pod, classes)
    return found


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
