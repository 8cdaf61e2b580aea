"""`muster simulate -f gang.yaml`: would it run now, where, whom would it evict, and what is the least that would help.

Decided here: the objects of the files are added to the cluster as it is, with the pods that controllers and operators
would make of them, and a whole session is run on it, everybody who waits included; nothing is created and nothing is
carried out. With `--nodes N --template NODE` so many nodes like one that exists are added first. What would help is
solved, not guessed: the smallest set of restrictions without which the gang fits what is free.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from scheduler.actions.ask import Ask, relate
from scheduler.actions.placing import problem_of
from scheduler.actions.steps import asked_again
from scheduler.app import load_configuration
from scheduler.cli import picture
from scheduler.cli.documents import documents_of
from scheduler.cli.kin import OTHERS
from scheduler.cli.manifests import Understood, added, as_grouped
from scheduler.cli.output import NOT_FOUND, OK, USAGE, complain, emit, note, with_client
from scheduler.cli.workloads import Unusable
from scheduler.cluster import feed
from scheduler.cluster.client import ApiClient
from scheduler.cluster.store import Store
from scheduler.config import ConfigError, SchedulerConfiguration
from scheduler.dialects.meta import Undecodable
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
        documents = list(documents_of(question.files))
    except (ConfigError, Unusable) as error:
        complain(f"{config}: {error}" if isinstance(error, ConfigError) and config else str(error))
        return USAGE
    except OSError as error:
        complain(f"{error.filename}: {error.strerror}")
        return USAGE
    if not documents:
        complain("there is no object in these files")
        return USAGE

    async def work(client: ApiClient) -> int:
        where = question.namespace or client.credentials.identity.namespace or "default"
        known = await picture.events(client, settings.scheduler_names, guess=True, grouping=settings.grouping)
        classes = await picture.classes(client)
        try:
            read = added(documents, where, classes)
        except (Unusable, Undecodable) as error:
            complain(str(error))
            return USAGE
        for text in (*_remarks(read, settings), *_there(known, read.events)):
            note(text)
        events = as_grouped(read.events, grouping=settings.grouping.enabled)
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


def _remarks(read: Understood, settings: SchedulerConfiguration) -> Iterator[str]:
    """Yield what is simulated otherwise than it stands in the files."""
    yield from (f"not looked at: {text}" for text in read.unseen)
    names = Counter(one.pod.scheduler_name or OTHERS for one in read.events if isinstance(one, feed.PodSet))
    for name, count in sorted(names.items()):
        if name not in settings.scheduler_names:
            ours = settings.scheduler_names[0]
            yield f"{_many(count, 'pod')} with schedulerName {name}: simulated as if it were {ours}"


def _there(known: Iterable[feed.Event], mine: list[feed.Event]) -> Iterator[str]:
    """Yield which of the objects are there already: their pods count beside those of the files."""
    groups = {one.group.key: one.group for one in mine if isinstance(one, feed.GroupSet)}
    owners = {_owner(one.pod) for one in mine if isinstance(one, feed.PodSet)}
    there = Counter[tuple[str, str, str]]()
    for one in known:
        if isinstance(one, feed.GroupSet) and one.group.key in groups:
            there[one.group.kind, one.group.namespace, one.group.name] += 0
        elif isinstance(one, feed.PodSet) and _owner(one.pod) in owners and not one.pod.finished:
            there[_owner(one.pod)] += 1
    for (kind, namespace, name), count in sorted(there.items()):
        pods = f" with {_many(count, 'pod')}" if count and kind != "Pod" else ""
        yield f"{kind} {namespace}/{name} is there already{pods}; what is in the files is simulated beside it"


def _owner(pod: Pod) -> tuple[str, str, str]:
    """Return what made a pod, or the pod that nobody made."""
    return (pod.owner_kind, pod.namespace, pod.owner_name) if pod.owner_kind else ("Pod", pod.namespace, pod.name)


def _members(state: GroupState) -> Iterator[Pod]:
    yield from (*state.waiting, *state.gated, *state.strays)


# -- what is added ----------------------------------------------------------------------------------------------------


def clones(like: Node, count: int) -> Iterator[Node]:
    """Yield nodes like one, empty, each with a hostname of its own."""
    for number in range(count):
        name = f"{like.name}-simulated-{number}"
        labels = tuple((key, name if key == HOSTNAME else value) for key, value in like.labels)
        yield replace(like.as_ready, name=name, uid=f"simulated-node-{number}", labels=labels)


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
