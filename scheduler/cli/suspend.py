"""`muster suspend` and `muster resume`: a group, or a whole queue, that is to wait; the only commands beside adopt that
write.

Decided here: which field of which API says so. A Muster PodGroup has `spec.suspend`, every other object that is a group
(a PodGroup of another API, a Job with a minimum) takes the annotation; a Muster Queue has `spec.state`, a Volcano queue
is closed in `status.state`. Nothing is evicted from a suspended group: what runs goes on. Only `--drain` of a queue
gives its pods away.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from scheduler.cli import reading
from scheduler.cli.choosing import Refused, target_of
from scheduler.cli.get import dialect_of
from scheduler.cli.output import FAILED, NOT_FOUND, OK, USAGE, complain, hint, note, with_client
from scheduler.cluster.client import ApiClient, ApiError
from scheduler.dialects.membership import SUSPEND
from scheduler.dialects.registry import DIALECTS
from scheduler.model.groups import GroupState, PodGroup
from scheduler.model.queues import Queue, that_counts

Json = dict[str, Any]
_KINDS = {"": "group", "group": "group", "queue": "queue"}
_FORMS = "NAME, NAMESPACE/NAME, group/NAME or queue/NAME"
_BY_NAME = {dialect.name: dialect for dialect in DIALECTS}


def suspend(target: str, namespace: str | None, kubeconfig: str | None, context: str | None, *, drain: bool) -> int:
    """Suspend a group or a queue (see `_FORMS`); exit code. drain: of a queue, what runs is evicted too."""
    return _change(target, namespace, kubeconfig, context, "Drain" if drain else "Hold")


def resume(target: str, namespace: str | None, kubeconfig: str | None, context: str | None) -> int:
    """Undo `suspend`; exit code."""
    return _change(target, namespace, kubeconfig, context, "Open")


def _change(target: str, namespace: str | None, kubeconfig: str | None, context: str | None, state: str) -> int:
    try:
        meant = target_of(target, namespace, _KINDS, _FORMS)
    except Refused as refused:
        complain(str(refused))
        return refused.code
    if meant.kind == "queue" and meant.namespace != namespace:
        complain(f"{target}: a queue is in no namespace; write queue/NAME")
        return USAGE
    if state == "Drain" and meant.kind != "queue":
        complain("--drain is for queues (queue/NAME): a group is never evicted by suspending it")
        return USAGE

    async def work(client: ApiClient) -> int:
        if meant.kind == "queue":
            return await _queue(client, meant.name, state)
        where = meant.namespace or client.credentials.identity.namespace or "default"
        return await _group(client, where, meant.name, suspended=state != "Open")

    return with_client(kubeconfig, context, work)


# -- groups -----------------------------------------------------------------------------------------------------------


async def _group(client: ApiClient, namespace: str, name: str, *, suspended: bool) -> int:
    groups = await reading.groups(client, namespace)
    chosen = [group for group in groups if group.name == name]
    if not chosen:
        complain(f"namespace {namespace} has no group {name}{hint(name, (group.name for group in groups))}")
        note(
            "a pod that stands alone, and one whose gang is made by an annotation of its own, has no object to suspend"
        )
        return NOT_FOUND
    for group in chosen:
        called = f"{dialect_of(group)} group {namespace}/{name}"
        if bool(group.suspended) == suspended:
            print(f"{called} is {'already' if suspended else 'not'} suspended")
            continue
        await client.patch(_path(group), _body(group, suspended=suspended))
        print(f"{called} {'suspended' if suspended else 'resumed'}")
    if suspended:
        await _tell_running(client, namespace, chosen)
    return OK


def _path(group: PodGroup) -> str:
    if group.dialect == "owner":
        return f"/apis/{group.api_version}/namespaces/{group.namespace}/jobs/{group.name}"
    return _BY_NAME[group.dialect].api_path(group)


def _body(group: PodGroup, *, suspended: bool) -> Json:
    """Return a merge patch. Resuming takes both words away, so that it never leaves one behind."""
    if group.dialect == "muster" and suspended:
        return {"spec": {"suspend": True}}
    annotation = {"metadata": {"annotations": {SUSPEND: "true" if suspended else None}}}
    return annotation | ({"spec": {"suspend": None}} if group.dialect == "muster" else {})


async def _tell_running(client: ApiClient, namespace: str, chosen: Sequence[PodGroup]) -> None:
    """Say what of the groups goes on; who may not see pods is told nothing."""
    try:
        pods = [pod for pod, _ in await reading.pods(client, namespace)]
    except ApiError as error:
        if error.status != 403:
            raise
        return
    states: list[GroupState] = reading.states(chosen, pods)
    keys = {group.key for group in chosen}
    count = sum(len(state.bound) for state in states if state.key in keys)
    if count:
        note(f"{count} of its pods run and go on; nothing more of it starts until `muster resume {chosen[0].name}`")


# -- queues -----------------------------------------------------------------------------------------------------------


async def _queue(client: ApiClient, name: str, state: str) -> int:
    known = await reading.queues(client)
    named = {queue.dialect: queue for queue in known if queue.name == name}
    if not named:
        complain(f"there is no queue {name}{hint(name, (queue.name for queue in known))}")
        return NOT_FOUND
    queue: Queue = that_counts(named)
    dialect = _BY_NAME[queue.dialect]
    if queue.state == state:
        print(f"{queue.dialect} queue {name} is already {_IN_WORDS[state]}")
        return OK
    if queue.dialect == "muster":
        await client.patch(dialect.queue_path(queue), {"spec": {"state": state}})
    elif queue.dialect == "volcano" and state != "Drain":
        body = {"status": {"state": "Open" if state == "Open" else "Closed"}}
        await client.patch(f"{dialect.queue_path(queue)}/status", body)
    else:
        what = "cannot be drained" if queue.dialect == "volcano" else "has no state that could be changed"
        complain(f"a queue of {queue.dialect} {what}; `muster convert` makes a Muster queue of it, which can")
        return FAILED
    print(f"{queue.dialect} queue {name} is {_IN_WORDS[state]}")
    return OK


_IN_WORDS = {"Open": "open", "Hold": "on hold: nothing new starts", "Drain": "draining: what runs is evicted too"}
