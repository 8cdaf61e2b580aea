"""`muster get`: one table for the objects of every dialect."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from scheduler.cli import reading
from scheduler.cli.output import NOT_FOUND, OK, age, complain, emit, with_client
from scheduler.cluster.bindrequests import Assembler
from scheduler.cluster.client import ApiClient, ApiError, path_of
from scheduler.model.groups import PodGroup
from scheduler.model.pods import Pod
from scheduler.model.quantity import format_amount
from scheduler.model.resources import add

Row = dict[str, Any]
COLUMNS = {
    "groups": ("namespace", "name", "dialect", "queue", "phase", "bound", "minimum", "age", "reason"),
    "queues": ("name", "dialect", "parent", "state", "weight", "deserved", "limit"),
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
) -> int:
    """Print the objects of a kind; exit code."""
    fetch: dict[str, Callable[[ApiClient, str | None], Awaitable[list[Row]]]] = {
        "groups": _groups,
        "queues": _queues,
        "nodes": _nodes,
        "requests": _requests,
    }

    async def work(client: ApiClient) -> int:
        where = None if all_namespaces else namespace or client.credentials.identity.namespace or "default"
        if kind == "requests" and namespace is None:
            where = None
        rows = await fetch[kind](client, where)
        if name is not None:
            rows = [row for row in rows if row["name"] == name]
            if not rows:
                complain(f"no {kind[:-1]} {name}" + (f" in namespace {where}" if where and kind == "groups" else ""))
                return NOT_FOUND
        emit(rows, COLUMNS[kind], output)
        return OK

    return with_client(kubeconfig, context, work)


def waiting_reason(group: PodGroup, members: list[Pod]) -> str:
    """Return why a group waits as its members' conditions tell it, or its own conditions."""
    for pod in members:
        if pod.waiting and pod.condition is not None and pod.condition.status == "False":
            return f"{pod.condition.reason}: {pod.condition.message}"
    for condition in group.conditions:
        bad = condition.type == "Unschedulable" and condition.status == "True"
        if bad or (condition.type in ("Scheduled", "PodGroupInitiallyScheduled") and condition.status == "False"):
            return f"{condition.reason}: {condition.message}"
    return ""


async def _groups(client: ApiClient, namespace: str | None) -> list[Row]:
    members: dict[str, list[Pod]] = {}
    for pod, _ in await reading.pods(client, namespace):
        if pod.group:
            members.setdefault(pod.group, []).append(pod)
    rows = []
    for group in await reading.groups(client, namespace):
        mine = members.get(group.key, [])
        bound = sum(bool(pod.node) and not pod.finished for pod in mine)
        rows.append(
            {
                "namespace": group.namespace,
                "name": group.name,
                "dialect": group.dialect,
                "queue": group.queue,
                "phase": group.phase or "Pending",
                "bound": bound,
                "minimum": group.min_member,
                "members": len(mine),
                "age": age(group.created),
                "reason": waiting_reason(group, mine),
            }
        )
    return rows


def _shown(amounts: tuple[tuple[str, int], ...]) -> dict[str, str]:
    return {name: "unlimited" if value < 0 else format_amount(name, value) for name, value in amounts}


async def _queues(client: ApiClient, _: str | None) -> list[Row]:
    return [
        {
            "name": queue.name,
            "dialect": queue.dialect,
            "parent": queue.parent,
            "state": queue.state,
            "weight": queue.weight,
            "priority": queue.priority,
            "guarantee": _shown(queue.guarantee),
            "deserved": _shown(queue.deserved),
            "limit": _shown(queue.limit),
        }
        for queue in await reading.queues(client)
    ]


async def _nodes(client: ApiClient, _: str | None) -> list[Row]:
    on: dict[str, list[tuple[tuple[str, int], ...]]] = {}
    for pod, shape in await reading.pods(client, None):
        if pod.node and not pod.finished:
            on.setdefault(pod.node, []).append(shape.requests if pod.charge is None else pod.charge)
    return [
        {
            "name": node.name,
            "schedulable": "no" if node.unschedulable or node.deleting else "yes",
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
            "age": age(request.created),
            "failures": sum(len(outcome.failures) for outcome in request.outcomes),
        }
        for request in sorted(found.values(), key=lambda request: (request.created, request.name))
    ]
