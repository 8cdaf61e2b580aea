"""`muster simulate -f gang.yaml`: would it run now, where, whom would it evict, and what is the least that would help.

Decided here: the objects of the files are added to the cluster as it is, with the pods that a Job would make of its
template, and a whole session is run on it, everybody who waits included; nothing is created and nothing is carried
out. With `--nodes N --template NODE` so many nodes like one that exists are added first. What would help is solved,
not guessed: the smallest set of restrictions without which the gang fits what is free.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from scheduler.actions.ask import Ask, relate
from scheduler.actions.placing import problem_of
from scheduler.actions.steps import asked_again
from scheduler.app import load_configuration
from scheduler.cli import picture
from scheduler.cli.output import FAILED, NOT_FOUND, OK, USAGE, complain, emit, with_client
from scheduler.cluster import feed
from scheduler.cluster.client import ApiClient
from scheduler.cluster.store import Store
from scheduler.config import ConfigError, SchedulerConfiguration
from scheduler.dialects import core
from scheduler.dialects.meta import Undecodable
from scheduler.dialects.registry import DIALECTS
from scheduler.framework.session import Session
from scheduler.model.groups import GroupState
from scheduler.model.nodes import HOSTNAME, Node
from scheduler.model.pods import Pod
from scheduler.model.topology import split_key
from scheduler.model.verdict import Verdict
from scheduler.observe import explain
from scheduler.placement import Infeasible, place
from scheduler.placement.relax import explain as relaxations

Json = dict[str, Any]
Facts = dict[str, Any]
_MOST_PODS = 100_000


class Unusable(ValueError):
    """An object of a file that cannot be simulated; the message names it."""


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked. nodes: so many more like the node named `template`."""

    files: tuple[Path, ...]
    nodes: int = 0
    template: str = ""
    namespace: str | None = None


def simulate(
    question: Question, *, kubeconfig: str | None, context: str | None, config: Path | None, output: str
) -> int:
    """Print what a session would do with the objects of the files; exit code."""
    try:
        settings = load_configuration(config)
        documents = list(_documents(question.files))
    except (ConfigError, Unusable) as error:
        complain(f"{config}: {error}" if isinstance(error, ConfigError) and config else str(error))
        return USAGE
    except OSError as error:
        complain(f"{error.filename}: {error.strerror}")
        return FAILED

    async def work(client: ApiClient) -> int:
        where = question.namespace or client.credentials.identity.namespace or "default"
        known = await picture.events(client, settings.scheduler_names, guess=True)
        classes: dict[str, int] = {}
        for one in known:
            if isinstance(one, feed.PriorityClassSet):
                classes |= {one.name: one.value} | ({"": one.value} if one.default else {})
        try:
            events = added(documents, where, classes)
        except (Unusable, Undecodable) as error:
            complain(str(error))
            return USAGE
        if question.nodes:
            there = (one.node for one in known if isinstance(one, feed.NodeSet))
            like = next((node for node in there if node.name == question.template), None)
            if like is None:
                complain(f"there is no node {question.template!r} to take as a template")
                return NOT_FOUND
            events = [*(feed.NodeSet(one) for one in clones(like, question.nodes)), *events]
        facts = answer([*known, *events], events, settings)
        if not facts:
            complain("there is no gang with pods and no pod in these files")
            return USAGE
        if output in ("json", "yaml"):
            emit(facts, (), output)
        else:
            print("\n".join(line for one in facts for line in _told(one)))
        return OK

    return with_client(kubeconfig, context, work)


def answer(events: list[feed.Event], mine: list[feed.Event], settings: SchedulerConfiguration) -> list[Facts]:
    """Return, for each group of which `mine` has pods, what a session on all these events decides."""
    store, now = Store(), time.time()
    store.apply([*events, feed.Synced()], now)
    snapshot = store.snapshot(now, owners=True)
    uids = {one.pod.uid for one in mine if isinstance(one, feed.PodSet)}
    keys = [key for key, state in snapshot.groups.items() if any(pod.uid in uids for pod in _members(state))]
    session = picture.Picture(snapshot, settings).decided()
    return [_facts(session, snapshot.groups[key]) for key in keys]


def _members(state: GroupState) -> Iterator[Pod]:
    yield from (*state.waiting, *state.gated, *state.strays)


# -- what is added ----------------------------------------------------------------------------------------------------


def _documents(files: tuple[Path, ...]) -> Iterator[Json]:
    for file in files:
        try:
            for document in yaml.safe_load_all(file.read_text()):
                if document is None:
                    continue
                if not isinstance(document, dict) or not isinstance(document.get("kind"), str):
                    raise Unusable(f"{file}: a document is not an object with a kind")
                yield from document.get("items") or [document] if document["kind"] == "List" else [document]
        except yaml.YAMLError as error:
            raise Unusable(f"{file}: {error}") from error


def added(documents: list[Json], namespace: str, classes: Mapping[str, int]) -> list[feed.Event]:
    """Return the objects as events: groups, queues, topologies, pods, and the pods of Jobs and Deployments.

    classes: the value of each priority class, that of "" is the default. Raises `Unusable` for another kind,
    `Undecodable` for what cannot be read.
    """
    found: list[feed.Event] = []
    for number, document in enumerate(documents):
        body = _complete(document, namespace, number)
        kind, version = body["kind"], str(body.get("apiVersion", ""))
        if kind == "Pod":
            found += _pod(body, classes)
        elif kind == "Job" and version == "batch/v1":
            group = core.decode_owner(_raw(body), "Job", version)
            found += [feed.GroupSet(group)] if group is not None else []
            found += _replicas(body, int(body["spec"].get("parallelism", 1)), classes)
        elif kind in ("Deployment", "ReplicaSet", "StatefulSet") and version == "apps/v1":
            found += _replicas(body, int(body["spec"].get("replicas", 1)), classes)
        else:
            found.append(_object(body, kind, version))
    return found


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


def _complete(document: Json, namespace: str, number: int) -> Json:
    """Return the object with the metadata that the API server would have added."""
    meta = {**(document.get("metadata") or {})}
    if not isinstance(document.get("spec"), dict):
        raise Unusable(f"{document['kind']} {meta.get('name', '')}: has no spec")
    meta.setdefault("name", f"{meta.get('generateName', 'simulated-')}{number}")
    meta.setdefault("namespace", namespace)
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    meta |= {"uid": f"simulated-{number}", "resourceVersion": "1", "generation": 1, "creationTimestamp": stamp}
    return {**document, "metadata": meta, "status": {}}


def _replicas(owner: Json, count: int, classes: Mapping[str, int]) -> list[feed.Event]:
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
        found += _pod(pod, classes)
    return found


def _pod(body: Json, classes: Mapping[str, int]) -> list[feed.Event]:
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


def clones(like: Node, count: int) -> Iterator[Node]:
    """Yield nodes like one, empty, each with a hostname of its own."""
    for number in range(count):
        name = f"{like.name}-simulated-{number}"
        labels = tuple((key, name if key == HOSTNAME else value) for key, value in like.labels)
        yield replace(like, name=name, uid=f"simulated-node-{number}", labels=labels, unschedulable=False)


# -- what is told -----------------------------------------------------------------------------------------------------


def _facts(session: Session, state: GroupState) -> Facts:
    group = state.group
    kind = "pod" if group.dialect == "pod" else "group"
    facts: Facts = {kind: f"{group.namespace}/{group.name}", "queue": session.queue_of(state)}
    places = session.placed_of.get(state.key, [])
    facts["runs"] = bool(places)
    if places:
        counts = Counter(one.node for place_ in places for one in place_.assignments)
        facts["pods"] = sum(counts.values())
        facts["nodes"] = [{"node": node, "pods": count} for node, count in sorted(counts.items())]
        domains: dict[str, set[str]] = {}
        for one in (one for place_ in places for one in place_.assignments if one.mark is not None):
            for level, domain in one.mark.domains if one.mark is not None else ():
                domains.setdefault(level, set()).add(domain)
        facts["domains"] = {level: sorted(names) for level, names in sorted(domains.items())}
        victims = [victim for place_ in places for victim in place_.victims]
        facts["evicts"] = sorted(f"{one.namespace}/{one.pod}" for one in victims if not one.move_to)
        facts["moves"] = sorted(f"{one.namespace}/{one.pod} to {one.move_to}" for one in victims if one.move_to)
        return facts
    why = session.verdicts.get(state.key)
    facts["reason"] = explain.sentence(why) if why is not None else "it has no member that waits"
    if why is not None and state.waiting:
        facts["relaxations"] = _relaxations(session, state)
    return facts


def _relaxations(session: Session, state: GroupState) -> list[str]:
    """Return what would help, each the smallest of its kind; nothing where room is not what is missing."""
    ask = asked_again(session, state)
    if not isinstance(ask, Ask):
        return []
    relations = relate(session, ask)
    if isinstance(relations, Verdict):
        return []
    problem = problem_of(session, ask, relations)
    wider = {level: session.domains(level)[0] for own in problem.nodes.domains for level in session.topology.wider(own)}
    problem = replace(problem, nodes=replace(problem.nodes, domains={**problem.nodes.domains, **wider}))
    refused = place(problem)
    if not isinstance(refused, Infeasible):
        return []
    found = relaxations(problem, refused)
    name = session.level_name
    told = [f"if {name(level)} were {name(wide)}" for level, wide in found.wider]
    told += [f"in {most} instead of {limit} domains of {name(level)}" for level, limit, most in found.more]
    told += [f"with {fewer} instead of {needed} sub-groups" for needed, fewer in found.fewer]
    if found.placeable:
        told.append(f"with {found.placeable} instead of {found.needed} members")
    return told + [f"without {' and '.join(map(_restriction, names))}" for names in found.relaxations]


def _restriction(name: str) -> str:
    """Return a restriction of placement's in words."""
    return {"pods": "limits of pods on nodes", "masks": "rules about nodes", "topology": "its rule about domains"}.get(
        name, name if not name.startswith("topology ") else f"its rule about {split_key(name[9:])[1]}"
    )


def _many(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _told(facts: Facts) -> Iterator[str]:
    who = "pod" if "pod" in facts else "group"
    name = f"{who} {facts[who]} (queue {facts['queue']})"
    if not facts["runs"]:
        yield f"{name} would wait"
        yield f"  {facts['reason']}"
        for line in facts.get("relaxations", ()):
            yield f"  would fit {line}"
        return
    where = "; ".join(f"{level} {', '.join(names)}" for level, names in facts["domains"].items())
    size = f"{_many(facts['pods'], 'pod')} on {_many(len(facts['nodes']), 'node')}"
    yield f"{name} would run: {size}" + (f" in {where}" if where else "")
    for row in facts["nodes"]:
        yield f"  {row['node']}: {row['pods']}"
    for verb, victims in (("evicts", facts["evicts"]), ("moves", facts["moves"])):
        if victims:
            yield f"  {verb} {', '.join(victims)}"
