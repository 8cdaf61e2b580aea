"""`muster lint -f FILE`: what is wrong with manifests before they are applied, and which gangs they would form.

Decided here: which findings there are and how strong they are. An error keeps a gang from ever starting, or from being
one; a warning is something that is not read, or that these files alone cannot tell. Fields are held against the schemas
in `config/crd` (in a clone); with `--cluster` queues, priority classes, groups, topologies and what the configured
plugins say of the gang are those of the cluster. Nothing is created.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from scheduler.actions.lineup import lineup
from scheduler.app import load_configuration
from scheduler.cli import picture
from scheduler.cli.documents import documents_of
from scheduler.cli.findings import Finding, fields_of, has_schema, of_dialects, of_pod_fields, of_references
from scheduler.cli.get import dialect_of
from scheduler.cli.kin import OTHERS
from scheduler.cli.manifests import (
    ANY_CLASS,
    Json,
    as_grouped,
    complete,
    pod_events,
    templates_of,
    understood,
)
from scheduler.cli.output import FAILED, OK, USAGE, complain, emit, note, with_client
from scheduler.cli.picture import Picture
from scheduler.cli.reading import members_of
from scheduler.cli.workloads import NotUnderstood, Unusable
from scheduler.cluster import feed
from scheduler.cluster.client import ApiClient
from scheduler.cluster.store import Store
from scheduler.config import ConfigError, SchedulerConfiguration
from scheduler.dialects.meta import Undecodable
from scheduler.framework.gangs import membership, not_found, stray
from scheduler.framework.session import Session
from scheduler.model.groups import GroupState
from scheduler.model.pods import Problem
from scheduler.model.queues import DEFAULT_QUEUE
from scheduler.model.verdict import Code, Verdict
from scheduler.observe.explain import sentence

_SAID_BY_SESSION = frozenset(
    {Code.BAD_CONSTRAINTS, Code.NEVER_FITS, Code.QUEUE_NOT_FOUND, Code.QUEUE_NOT_LEAF, Code.EXCEEDS_LIMIT}
)
"""Verdicts of the cluster that no waiting changes."""


@dataclass
class _Read:
    """What the files hold. partial: keys of groups of which a template makes pods whose number is not known here."""

    findings: list[Finding] = field(default_factory=list)
    events: list[feed.Event] = field(default_factory=list)
    documents: list[Json] = field(default_factory=list)
    partial: set[str] = field(default_factory=set)
    unseen: list[str] = field(default_factory=list)


def lint(
    files: list[Path], *, cluster: bool, strict: bool, config: Path | None, namespace: str | None,
    kubeconfig: str | None, context: str | None, output: str,
) -> int:  # fmt: skip
    """Print findings and gangs; exit code 1 where there is an error (strict: or a warning)."""
    try:
        settings = load_configuration(config)
        documents = list(documents_of(files))
    except (ConfigError, Unusable) as error:
        complain(f"{config}: {error}" if isinstance(error, ConfigError) and config else str(error))
        return USAGE
    except OSError as error:
        complain(f"{error.filename}: {error.strerror}")
        return USAGE
    if not documents:
        complain("there is no object in these files")
        return USAGE
    if not cluster:
        read = _read(documents, namespace or "default", ANY_CLASS)
        return _report(read, _gangs(read, [], settings, None), output, strict=strict)

    async def work(client: ApiClient) -> int:
        known = await picture.events(client, settings.scheduler_names, guess=True, grouping=settings.grouping)
        classes = await picture.classes(client)
        where = namespace or client.credentials.identity.namespace or "default"
        read = _read(documents, where, classes)
        marked = frozenset(
            one.name
            for one in known
            if isinstance(one, feed.NamespaceSet) and ("scheduling.muster.sh/schedule", "muster") in one.labels
        )
        return _report(read, _gangs(read, known, settings, marked), output, strict=strict)

    return with_client(kubeconfig, context, work)


def _read(documents: list[Json], namespace: str, classes: Mapping[str, int]) -> _Read:
    """Read every object for itself; what cannot be read stops no other."""
    read = _Read()
    for number, document in enumerate(documents):
        name = _called(document)
        if document.get("spec") is None and has_schema(document):
            document = {**document, "spec": {}}
        try:
            body = complete(document, namespace, number)
        except Unusable as error:
            read.unseen.append(str(error))
            continue
        read.documents.append(body)
        read.findings += fields_of(name, document)
        _read_one(read, name, body, classes, number)
    return read


def _read_one(read: _Read, name: str, body: Json, classes: Mapping[str, int], number: int) -> None:
    try:
        found = understood(body, classes)
    except Undecodable as error:
        read.findings.append(Finding("error", name, "", str(error)))
        return
    except NotUnderstood as error:
        _read_templates(read, name, body, classes, number, str(error))
        return
    except Unusable as error:
        wrong = [Finding("error", name, one.field, one.message) for one in error.problems]
        read.findings += wrong or [Finding("error", name, "", str(error))]
        return
    shown = {path: pod for path, pod in found.pods if path not in ("", "spec.template")}  # those are looked at already
    for path, pod in shown.items():
        read.findings += [Finding("warning", name, f"{path}.{one}", text) for one, text in of_pod_fields(pod)]
    for one in found.events:
        read.findings += [Finding("error", name, problem.field, problem.message) for problem in _problems(one)]
    read.findings += of_references(name, dict(found.pods))
    read.findings += _of_loose(name, body, found.events)
    read.unseen += found.unseen
    read.events += found.events


def _of_loose(name: str, body: Json, events: list[feed.Event]) -> Iterator[Finding]:
    """Yield what there is to say of a Job whose pods start one by one."""
    pods = [one.pod for one in events if isinstance(one, feed.PodSet)]
    grouped = any(isinstance(one, feed.GroupSet) for one in events)
    if body["kind"] == "Job" and len(pods) > 1 and not grouped and not any(pod.group or pod.min_member for pod in pods):
        wish = "annotate it with scheduling.muster.sh/min-member if they are a gang"
        yield Finding("warning", name, "", f"its {len(pods)} pods name no group and start one by one; {wish}")


def _read_templates(
    read: _Read, name: str, body: Json, classes: Mapping[str, int], number: int, reason: str
) -> None:  # fmt: skip
    """Read an object of which only its templates say something."""
    templates = list(templates_of(body, number))
    known = of_dialects(body)
    if not templates:
        if known:
            read.findings.append(Finding("error", name, "apiVersion", known))
        else:
            read.unseen.append(reason)
        return
    for path, pod in templates:
        read.findings += [Finding("warning", name, f"{path}.{one}", text) for one, text in of_pod_fields(pod)]
        try:
            made = pod_events(pod, classes)
        except (Unusable, Undecodable) as wrong:
            read.findings.append(Finding("error", name, path, str(wrong)))
            continue
        read.partial |= {one.pod.group for one in made if isinstance(one, feed.PodSet) and one.pod.group}
        read.events += made
    read.findings += of_references(name, dict(templates))


def _called(document: Json) -> str:
    meta = document.get("metadata")
    meta = meta if isinstance(meta, dict) else {}
    place = f"{meta['namespace']}/" if meta.get("namespace") else ""
    return f"{document['kind']} {place}{meta.get('name') or meta.get('generateName', '')}".strip()


def _problems(event: feed.Event) -> tuple[Problem, ...]:
    match event:
        case feed.GroupSet(group=one):
            return one.problems
        case feed.QueueSet(queue=queue):
            return queue.problems
        case feed.TopologySet(topology=topology):
            return topology.problems
        case feed.HyperNodeSet(hypernode=hypernode):
            return hypernode.problems
    return ()


# -- gangs ------------------------------------------------------------------------------------------------------------


def _gangs(
    read: _Read, known: list[feed.Event], settings: SchedulerConfiguration, marked: frozenset[str] | None
) -> list[Json]:
    """Return the gangs that the files form and add what is wrong with them.

    marked: namespaces in which a policy of the cluster names the scheduler; None: the cluster is not looked at.
    """
    store = Store()
    mine = as_grouped(read.events, grouping=settings.grouping.enabled)
    store.apply([*known, *mine, feed.Synced()], 0.0)
    snapshot = store.snapshot(0.0, owners=True)
    session = Picture(snapshot, settings).session()
    if marked is not None:
        lineup(session)  # so that whoever cannot be placed has a verdict
    uids = {one.pod.uid for one in read.events if isinstance(one, feed.PodSet)}
    keys = {one.group.key for one in mine if isinstance(one, feed.GroupSet)}
    queues = {one.queue.name for one in read.events if isinstance(one, feed.QueueSet)}
    gangs = []
    for key, state in snapshot.groups.items():
        members = members_of(state)
        if key not in keys and not any(pod.uid in uids for pod in (*members, *state.strays)):
            continue
        name = f"gang {state.group.namespace}/{state.group.name}"
        alone = state.group.dialect == "pod"
        if alone:
            name = f"pod {state.group.namespace}/{state.group.name}"
        else:
            gangs.append(_told(session, state, partial=key in read.partial))
        told = [*_of_members(session, state, partial=key in read.partial), *_of_names(state, settings, marked)]
        if marked is not None:
            told += _of_cluster(session, state)
        elif queues:
            told += _of_queue(session, state, queues)
        read.findings += [Finding(level, name, "", text) for level, text in told if not (alone and level == "warning")]
    for queue in sorted(queues):
        wrong = session.book.tree.problem_of(queue)
        if wrong is not None:
            read.findings.append(Finding("error", f"Queue {queue}", "", f"{wrong[0]}: {wrong[1]}"))
    return gangs


def _told(session: Session, state: GroupState, *, partial: bool) -> Json:
    members = members_of(state)
    return {
        "gang": f"{state.group.namespace}/{state.group.name}",
        "dialect": dialect_of(state.group),
        "minimum": None if state.missing_object else state.group.min_member,
        "pods": None if partial else len(members),
        "queue": session.queue_of(state),
        "priority": state.priority,
        "schedulerNames": sorted({pod.scheduler_name or OTHERS for pod in members}),
        "suspended": bool(state.group.suspended),
    }


def _of_members(session: Session, state: GroupState, *, partial: bool) -> Iterator[tuple[str, str]]:
    fields = {one for pod in state.waiting for one in session.snapshot.shapes[pod.shape].unsupported}
    if fields:
        yield "error", f"{', '.join(sorted(fields))}: not supported by this version"
    if state.missing_object:
        yield "warning", sentence(not_found(state))
        return
    if state.group.problems:
        own = [one for one in state.group.problems if one.field.startswith("pod ")]
        yield from (("error", f"{one.field}: {one.message}") for one in own)
        return
    lacking = None if partial else membership(state)
    if lacking is not None and not members_of(state) and state.group.has_object:
        yield "warning", f"no pod of these files names it; it starts with {state.group.min_member}"
    elif lacking is not None and lacking.code is not Code.GATED:
        yield "error", sentence(lacking)
    for pod in state.strays:
        yield "error", sentence(stray(state, pod))


def _of_names(
    state: GroupState, settings: SchedulerConfiguration, marked: frozenset[str] | None
) -> Iterator[tuple[str, str]]:
    """What is wrong with the scheduler names of members: who else would start them, or nobody."""
    names = {pod.scheduler_name or OTHERS for pod in members_of(state)}
    if marked is not None and state.group.namespace in marked:
        names = {"muster" if name == OTHERS else name for name in names}
    if len(names) > 1:
        yield "error", f"its members name several schedulers: {', '.join(sorted(names))}"
    elif names == {OTHERS}:
        yield "error", f"spec.schedulerName of its pods is {OTHERS}, which starts them one by one; say muster"
    elif names and not names & set(settings.scheduler_names):
        (name,) = names
        yield "warning", f"schedulerName {name} is served by `muster run --scheduler-name {name}` only"


def _of_queue(session: Session, state: GroupState, queues: set[str]) -> Iterator[tuple[str, str]]:
    queue = session.queue_of(state)
    if queue not in queues and queue != DEFAULT_QUEUE:
        yield "warning", f"queue {queue} is not in these files"
    elif queue in session.book.tree and not session.book.tree.is_leaf(queue):
        yield "error", f"queue {queue} has queues below it; name one of those"


def _of_cluster(session: Session, state: GroupState) -> Iterator[tuple[str, str]]:
    why = session.verdicts.get(state.key)
    if why is not None and (why.code in _SAID_BY_SESSION or why.permanent):
        yield "error", sentence(why)
    elif session.hooks.has("wishes"):
        wishes = session.hooks.wishes(state, session)
        if isinstance(wishes, Verdict):
            yield "error", sentence(wishes)


# -- words ------------------------------------------------------------------------------------------------------------


def _report(read: _Read, gangs: list[Json], output: str, *, strict: bool) -> int:
    last = {(one.object, one.field) if one.field else one: one for one in read.findings}  # ours behind the schema's
    findings = sorted(last.values(), key=lambda one: one.level)
    errors = sum(one.level == "error" for one in findings)
    if output in ("json", "yaml"):
        rows = [dataclasses.asdict(one) for one in findings]
        emit([{"gangs": gangs, "findings": rows}], (), output)
    else:
        for gang in gangs:
            print(_gang(gang))
        for one in findings:
            print(f"{one.level}: {': '.join(part for part in (one.object, one.field, one.message) if part)}")
        for name in read.unseen:
            note(f"not looked at: {name}")
        note(f"{errors} errors, {len(findings) - errors} warnings")
    return FAILED if errors or (strict and findings) else OK


def _gang(gang: Json) -> str:
    pods = "pods of a template" if gang["pods"] is None else f"{gang['pods']} pod{'' if gang['pods'] == 1 else 's'}"
    together = "" if gang["minimum"] is None else f", {gang['minimum']} start together"
    names = f", schedulerName {', '.join(gang['schedulerNames'])}" if gang["schedulerNames"] else ""
    held = ", suspended" if gang["suspended"] else ""
    return f"gang {gang['gang']} ({gang['dialect']}): {pods}{together}, queue {gang['queue']}{names}{held}"
