"""`muster get`: one table for the objects of every dialect."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Container
from functools import partial
from pathlib import Path
from typing import Any

from scheduler.app import load_configuration
from scheduler.cli import picture, reading
from scheduler.cli.kin import Served
from scheduler.cli.output import NOT_FOUND, OK, USAGE, age, complain, emit, hint, note, timestamp, with_client
from scheduler.cluster.assembler import Assembler
from scheduler.cluster.client import ApiClient, ApiError, path_of
from scheduler.config import ConfigError
from scheduler.dialects.queues import amounts_said
from scheduler.framework.gangs import membership, not_found
from scheduler.framework.queue_tree import QueueTree, build
from scheduler.model.groups import GroupState, PodGroup, said_of_stray
from scheduler.model.phases import word_of
from scheduler.model.pods import Condition
from scheduler.model.quantity import format_amount
from scheduler.model.queues import DEFAULT_QUEUE, ROOT_QUEUE, WEIGHT_UNIT, Queue, leaf_of, that_counts
from scheduler.model.resources import add
from scheduler.model.shares import GONE
from scheduler.model.verdict import Code
from scheduler.observe.explain import sentence

Row = dict[str, Any]
_SCHEDULED = ("Scheduled", "PodGroupInitiallyScheduled", "PodGroupScheduled")
_GENERAL = ("Unschedulable", "NotEnoughResources", "NotEnoughTasks")
"""Reasons that say less than the message, which begins with its own."""
COLUMNS = {
    "groups": ("namespace", "name", "dialect", "queue", "phase", "bound", "minimum", "age", "reason"),
    "queues": (
        *("name", "dialect", "parent", "state", "weight", "deserved", "limit"),
        *("entitlement", "allocated", "borrowed", "problem"),
    ),
    "nodes": ("name", "schedulable", "pods", "used", "allocatable"),
    "requests": ("name", "session", "epoch", "phase", "gangs", "pods", "age"),
}


def list_objects(
    kind: str,
    name: str | None,
    *,
    kubeconfig: str | None,
    context: str | None,
    namespace: str | None,
    all_namespaces: bool,
    output: str,
    config: Path | None = None,
) -> int:
    """Print the objects of a kind; exit code. config: the file of `muster run`, for groups and queues."""
    try:
        settings = load_configuration(config)
    except ConfigError as error:
        complain(f"{config}: {error}" if config else str(error))
        return USAGE
    served = Served(settings.scheduler_names, guess=config is None, grouping=settings.grouping)
    fetch: dict[str, Callable[[ApiClient, str | None], Awaitable[list[Row]]]] = {
        "groups": partial(_groups, served),
        "queues": partial(_queues, served),
        "nodes": _nodes,
        "requests": _requests,
    }

    async def work(client: ApiClient) -> int:
        where = None if all_namespaces else namespace or client.credentials.identity.namespace or "default"
        if kind == "requests" and namespace is None:
            where = None
        rows = await fetch[kind](client, where)
        if name is not None:
            known, rows = [row["name"] for row in rows], [row for row in rows if row["name"] == name]
            if not rows:
                scope = f" in namespace {where}" if where and kind == "groups" else ""
                complain(f"no {kind[:-1]} {name}{scope}{hint(name, known)}")
                return NOT_FOUND
        if not rows and output in ("table", "wide"):
            scoped = where is not None and kind in ("groups", "requests")
            note(f"no {kind} found" + (f" in namespace {where}" if scoped else ""))
            return OK
        emit(rows, COLUMNS[kind], output)
        return OK

    return with_client(kubeconfig, context, work)


def waiting_reason(state: GroupState) -> str:
    """Return why a group waits, or "": what its own object says, else its members' conditions, else what they count.

    The last is for objects that cannot say it: those without pods whose schema keeps no conditions, say.
    """
    group = state.group
    if state.missing_object:
        return sentence(not_found(state))
    if state.waiting or state.gated or not state.placed or group.phase == "Degraded":
        for condition in group.conditions:
            bad = condition.type == "Unschedulable" and condition.status == "True"
            if bad or (condition.type in _SCHEDULED and condition.status == "False"):
                return _said(condition)
    if state.placed and group.phase != "Completed":
        for condition in group.conditions:
            if said_of_stray(condition):
                return _said(condition)
    for pod in (*state.waiting, *state.gated):
        if pod.condition is not None and pod.condition.status == "False":
            return _said(pod.condition)
    ended = group.phase in ("Completed", "Failed")
    lacking = membership(state) if group.has_object and not (ended or state.waiting) else None
    return sentence(lacking) if lacking is not None else ""


def _said(condition: Condition) -> str:
    """Return the message; where it does not begin with the reason in words, the reason before it."""
    message = condition.message
    if not message or message.startswith((f"{condition.reason}:", "0/")) or condition.reason in _GENERAL:
        return message or condition.reason
    return f"{condition.reason}: {message}"


def phase_of(state: GroupState) -> str:
    """Return the phase in the word of its object's status; for a group without one, what its members amount to."""
    group = state.group
    if state.missing_object:
        return "Missing"
    if group.phase or group.has_object:
        kept_out = any(one.status == "False" and one.reason == Code.SUSPENDED for one in group.conditions)
        return word_of(group.dialect, group.phase or "Pending", kept_out=kept_out)
    if state.waiting or state.gated:
        return "Running" if state.ever_ran else "Pending"
    return "Running" if state.bound or state.assumed else "Completed"


def dialect_of(group: PodGroup) -> str:
    """Return the dialect for people: a group by annotation is told by the kind of its owner."""
    return group.kind.lower() if group.dialect == "owner" else group.dialect


async def _groups(served: Served, client: ApiClient, namespace: str | None) -> list[Row]:
    pods = [pod for pod, _ in await reading.pods(client, namespace, served)]
    queues = await reading.namespace_queues(client)
    return [
        {
            "namespace": state.group.namespace,
            "name": state.group.name,
            "dialect": dialect_of(state.group),
            "queue": leaf_of(state.queue),
            "phase": phase_of(state),
            "bound": len(state.bound),
            "minimum": None if state.missing_object else state.group.min_member,
            "members": state.existing,
            "gated": len(state.gated),
            "succeeded": len(state.succeeded),
            "failed": len(state.failed),
            "created": timestamp(state.group.created),
            "age": age(state.group.created),
            "reason": waiting_reason(state),
        }
        for state in reading.states(await reading.groups(client, namespace), pods, queues)
        if state.group.dialect != "pod"
    ]


def _shown(amounts: tuple[tuple[str, int], ...]) -> dict[str, str]:
    return {name: "unlimited" if value < 0 else format_amount(name, value) for name, value in amounts}


def _weight(thousandths: int) -> float | int:
    return thousandths // WEIGHT_UNIT if thousandths % WEIGHT_UNIT == 0 else thousandths / WEIGHT_UNIT


def _problem(queue: Queue, counts: Queue, tree: QueueTree) -> str:
    """Return what is wrong with a queue: what its own object says, else what is found in it or in its place.

    counts: the queue of its name that counts.
    """
    if counts is not queue:
        return f"does not count beside the queue of its name of {counts.dialect}"
    for condition in queue.conditions:
        if (condition.type, condition.status) in (("Ready", "False"), ("OverQuota", "True")):
            return _said(condition)
    found = tree.problem_of(queue.name)
    return f"{found[0]}: {found[1]}" if found is not None else ""


async def _queues(served: Served, client: ApiClient, _: str | None) -> list[Row]:
    queues = await reading.queues(client)
    by_name: dict[str, dict[str, Queue]] = {}
    for queue in queues:
        by_name.setdefault(queue.name, {})[queue.dialect] = queue
    counting = {name: that_counts(named) for name, named in by_name.items()}
    tree = build(counting)
    rows: list[Row] = [
        {
            "name": queue.name,
            "dialect": queue.dialect,
            "parent": queue.parent,
            "state": queue.state,
            "weight": _weight(queue.weight),
            "weights": {name: _weight(value) for name, value in queue.weights},
            "priority": queue.priority,
            "guarantee": _shown(queue.guarantee),
            "deserved": _shown(queue.deserved),
            "limit": _shown(queue.limit),
            "order": queue.order,
            "reclaimable": queue.reclaimable,
            **{name: _shown(amounts_said(queue, name)) for name in ("entitlement", "allocated", "borrowed")},
            "problem": _problem(queue, counting[queue.name], tree),
        }
        for queue in queues
    ]
    return rows + await _gone(served, client, {queue.name for queue in queues})


async def _gone(served: Served, client: ApiClient, known: Container[str]) -> list[Row]:
    """Return a row for each queue in which something runs and that has no object."""
    try:
        snapshot = await picture.read(client, served.names, guess=served.guess, grouping=served.grouping)
    except ApiError as error:
        if error.status != 403:
            raise
        note(f"what runs in queues that do not exist is not shown: {error}")
        return []
    return [
        {
            "name": name,
            "dialect": "",
            "state": GONE,
            "allocated": _shown(held),
            "problem": "does not exist; what runs there is owed nothing",
        }
        for name, held in sorted(snapshot.queue_usage.items())
        if name not in known and name not in (DEFAULT_QUEUE, ROOT_QUEUE)
    ]


async def _nodes(client: ApiClient, _: str | None) -> list[Row]:
    on: dict[str, list[tuple[tuple[str, int], ...]]] = {}
    for pod, shape in await reading.pods(client, None):
        if pod.node and not pod.finished:
            on.setdefault(pod.node, []).append(reading.requests(pod, shape))
    return [
        {
            "name": node.name,
            "schedulable": "no" if node.is_down else "yes",
            "pods": f"{len(on.get(node.name, []))}/{node.slots}",
            "used": _shown(add(*on.get(node.name, []))),
            "allocatable": _shown(node.allocatable),
            "taints": ",".join(f"{taint.key}={taint.value}:{taint.effect}" for taint in node.taints),
        }
        for node in await reading.nodes(client)
    ]


async def _requests(client: ApiClient, namespace: str | None) -> list[Row]:
    try:
        raws = await reading.items(client, path_of("scheduling.muster.sh", "v1alpha1", "bindrequests", namespace))
    except ApiError as error:
        if error.status == 404:
            return []
        raise
    assembler = Assembler()
    found = {}
    for raw in raws:
        request = assembler.offer(bytes(raw))
        if request is not None:
            found[request.name] = request
    return [
        {
            "name": request.name,
            "session": request.session,
            "epoch": request.epoch,
            "phase": request.phase or "Pending",
            "gangs": len(request.gangs),
            "pods": sum(len(gang.assignments) for gang in request.gangs),
            "created": timestamp(request.created),
            "age": age(request.created),
            "failures": sum(len(outcome.failures) for outcome in request.outcomes),
        }
        for request in sorted(found.values(), key=lambda request: (request.created, request.name))
    ]
