"""`muster why`: why a pod or a gang waits, from what the scheduler wrote on the objects."""

from __future__ import annotations

from typing import Any

from scheduler.cli import reading
from scheduler.cli.get import waiting_reason
from scheduler.cli.output import NOT_FOUND, OK, complain, emit, with_client
from scheduler.cluster.client import ApiClient
from scheduler.model.groups import PodGroup
from scheduler.model.pods import Pod


def explain(target: str, *, kubeconfig: str | None, context: str | None, namespace: str | None, output: str) -> int:
    """Print why `target` (NAME, pod/NAME or group/NAME) waits; exit code."""
    kind, _, name = target.rpartition("/")
    if kind not in ("", "pod", "po", "pods", "group", "groups", "podgroup", "podgroups"):
        complain(f"{target}: write NAME, pod/NAME or group/NAME")
        return 2

    async def work(client: ApiClient) -> int:
        where = namespace or client.credentials.identity.namespace or "default"
        members = [pod for pod, _ in await reading.pods(client, where)]
        known = await reading.groups(client, where)
        pod = next((pod for pod in members if pod.name == name), None) if not kind.startswith("g") else None
        if pod is not None and not kind.startswith("podgroup"):
            group = next((group for group in known if group.key == pod.group), None)
            return _tell(_facts(group, [pod] if group is None else _of(members, group), pod), output)
        found = (
            [group for group in known if group.name == name]
            if not kind.startswith("po") or kind[:8] == "podgroup"
            else []
        )
        if not found:
            complain(f"namespace {where} has no pod and no group {name}")
            return NOT_FOUND
        for group in found:
            _tell(_facts(group, _of(members, group), None), output)
        return OK

    return with_client(kubeconfig, context, work)


def _of(members: list[Pod], group: PodGroup) -> list[Pod]:
    return [pod for pod in members if pod.group == group.key]


def _facts(group: PodGroup | None, members: list[Pod], pod: Pod | None) -> dict[str, Any]:
    facts: dict[str, Any] = {}
    if group is not None:
        bound = sum(bool(member.node) and not member.finished for member in members)
        facts |= {
            "group": f"{group.namespace}/{group.name} ({group.dialect})",
            "phase": group.phase or "Pending",
            "members": f"{bound} bound, {len(members)} exist, {group.min_member} needed",
            "gated": sum(member.gated for member in members),
            "reason": waiting_reason(group, members),
        }
        if group.problems:
            facts["problems"] = "; ".join(f"{problem.field}: {problem.message}" for problem in group.problems)
    if pod is not None:
        facts |= {"pod": f"{pod.namespace}/{pod.name}", "node": pod.node, "state": pod.phase}
        if pod.condition is not None:
            facts["reason"] = f"{pod.condition.reason}: {pod.condition.message}"
        elif not pod.node:
            names = pod.scheduler_name
            facts["reason"] = f"nothing has been said yet; its scheduler is {names!r}: does one of that name run?"
    return facts


def _tell(facts: dict[str, Any], output: str) -> int:
    if output in ("json", "yaml"):
        emit([facts], list(facts), output)
        return OK
    width = max(len(key) for key in facts)
    for key, value in facts.items():
        print(f"{key.ljust(width)}  {value if value not in ('', None) else '-'}")
    return OK
