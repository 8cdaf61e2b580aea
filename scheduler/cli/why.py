"""`muster why`: why a pod or a gang waits, from what the scheduler wrote on the objects, and who holds what it needs.

Decided here: what is told. The reason is the scheduler's; the room and its holders are counted, in `room`, from the
pods as they are now; the turn and why nobody is evicted are those of a session on the cluster as it is (`outlook`).
Works with a read-only kubeconfig and without a running scheduler.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from scheduler.app import load_configuration
from scheduler.cli import picture, reading
from scheduler.cli.choosing import Refused, target_of
from scheduler.cli.get import dialect_of, phase_of, waiting_reason
from scheduler.cli.kin import Served
from scheduler.cli.outlook import outlook
from scheduler.cli.output import NOT_FOUND, OK, USAGE, complain, hint, listing, named, note, table, tell, with_client
from scheduler.cli.room import left_out, scarce, sentence
from scheduler.cli.verdicts import verdicts
from scheduler.cluster import feed
from scheduler.cluster.client import ApiClient, ApiError
from scheduler.cluster.members import group_key
from scheduler.config import ConfigError, SchedulerConfiguration
from scheduler.dialects.base import plain
from scheduler.framework.gangs import stray
from scheduler.model.groups import GroupState, PodGroup
from scheduler.model.pods import Pod, Shape
from scheduler.model.queues import leaf_of
from scheduler.observe import explain as words

Facts = dict[str, Any]
_KINDS = {
    "": "any", "pod": "pod", "pods": "pod", "po": "pod",
    "group": "group", "groups": "group", "podgroup": "group", "podgroups": "group", "pg": "group", "job": "group",
}  # fmt: skip
_FORMS = "NAME, NAMESPACE/NAME, pod/NAME or group/NAME"
_HOLDERS = 10
"""Holders of a resource that are shown in a table, the largest first."""
_LISTED = 3
"""Nodes that are named for a holder."""


def explain(
    target: str,
    *,
    kubeconfig: str | None,
    context: str | None,
    namespace: str | None,
    output: str,
    by_node: bool = False,
    config: Path | None = None,
) -> int:
    """Print why `target` (see `_FORMS`) waits, and what each node says (`by_node`); exit code."""
    try:
        meant = target_of(target, namespace, _KINDS, _FORMS)
        settings = load_configuration(config)
    except Refused as refused:
        complain(str(refused))
        return refused.code
    except ConfigError as error:
        complain(f"{config}: {error}" if config else str(error))
        return USAGE

    async def work(client: ApiClient) -> int:
        where = meant.namespace or client.credentials.identity.namespace or "default"
        kind, name = meant.kind, meant.name
        guess = config is None
        found = await reading.pods(client, where, Served(settings.scheduler_names, guess, settings.grouping))
        queues = await reading.namespace_queues(client)
        states = reading.states(await reading.groups(client, where), [pod for pod, _ in found], queues)
        chosen = _choose(states, [pod for pod, _ in found], name, kind)
        if not chosen:
            what = {"any": "no group and no pod", "pod": "no pod", "group": "no group"}[kind]
            known = {state.group.name for state in states} | {pod.name for pod, _ in found}
            complain(f"namespace {where} has {what} {name}{hint(name, known)}")
            return NOT_FOUND
        shapes = {shape.key: shape for _, shape in found}
        told = []
        for state, pod in chosen:
            facts = _facts(state, pod)
            if state is not None:
                facts |= await _scarce(client, settings, state, str(facts["reason"]), shapes, guess=guess)
                facts |= await _outlook(client, settings, state, guess=guess)
                if pod is not None and any(one.uid == pod.uid for one in state.strays):
                    facts["now"] = words.sentence(stray(state, pod))
            if by_node:
                facts |= await _by_node(client, state, pod)
            told.append(facts)
        tell(told, output, _tell)
        return OK

    return with_client(kubeconfig, context, work)


def _choose(
    states: list[GroupState], pods: list[Pod], name: str, kind: str
) -> list[tuple[GroupState | None, Pod | None]]:
    """Return the groups of that name, and else the pod with its group (None: it stands alone and is placed)."""
    if kind != "pod":
        groups = [state for state in states if state.group.name == name and state.group.dialect != "pod"]
        if groups or kind == "group":
            return [(state, None) for state in groups]
    by_key = {state.key: state for state in states}
    known: dict[str, PodGroup] = {state.key: state.group for state in states}
    return [(by_key.get(group_key(pod, known)), pod) for pod in pods if pod.name == name]


def _facts(state: GroupState | None, pod: Pod | None) -> Facts:
    facts: Facts = {}
    alone = state is None or state.group.dialect == "pod"
    if pod is not None:
        facts |= {"pod": f"{pod.namespace}/{pod.name}", "node": pod.node, "state": _state(pod)}
    if state is not None and not alone:
        group = state.group
        facts |= {
            "group": f"{group.namespace}/{group.name}",
            "dialect": dialect_of(group),
            "queue": leaf_of(state.queue),
            "phase": phase_of(state),
            "minimum": None if state.missing_object else group.min_member,
            "bound": len(state.bound),
            "existing": state.existing,
            "gated": len(state.gated),
        }
        where = _where(group)
        facts |= {"domains": where} if where else {}
        layout = _layout(group)
        facts |= {"layout": layout} if layout else {}
    facts["reason"] = _reason(state, pod)
    if state is not None:
        problems = [f"{problem.field}: {problem.message}" for problem in state.group.problems]
        facts |= {"problems": problems} if problems else {}
        facts |= {} if alone else {"members": [_member(one) for one in reading.members_of(state)]}
    return facts


def _decision(group: PodGroup) -> dict[str, Any]:
    decision = plain(group.raw_status).get("decision") if group.dialect == "muster" else None
    return decision if isinstance(decision, dict) else {}


def _layout(group: PodGroup) -> str:
    """Return how many members the status says are in each domain of the levels that they are shared evenly over."""
    said = []
    for one in _decision(group).get("layout") or ():
        held = ", ".join(f"{name}: {count}" for name, count in one.get("members", {}).items())
        part = f" of {one['subGroup']}" if "subGroup" in one else ""
        said.append(f"{one.get('level')}{part} {held}")
    return "; ".join(said)


def _where(group: PodGroup) -> str:
    """Return in which domains the status says that the members run."""
    domains = _decision(group).get("domains")
    if not isinstance(domains, dict):
        return ""
    return "; ".join(f"{level} {', '.join(map(str, names))}" for level, names in sorted(domains.items()) if names)


def _state(pod: Pod) -> str:
    if pod.deleting:
        return "Terminating"
    return "Gated" if pod.gated and not pod.node else pod.phase


def _member(pod: Pod) -> Facts:
    said = pod.condition.reason if pod.condition is not None and pod.condition.status == "False" else ""
    return {"pod": pod.name, "node": pod.node, "state": _state(pod), "reason": said}


def _reason(state: GroupState | None, pod: Pod | None) -> str:
    if pod is not None and pod.waiting and pod.condition is not None:
        return pod.condition.message or pod.condition.reason
    reason = waiting_reason(state) if state is not None else ""
    waiting = (pod,) if pod is not None else state.waiting if state is not None else ()
    if not reason and any(one.waiting and not one.gated for one in waiting):
        return f"nothing has been said yet; its scheduler is {waiting[0].scheduler_name!r}: does one of that name run?"
    return reason


async def _scarce(
    client: ApiClient,
    settings: SchedulerConfiguration,
    state: GroupState,
    reason: str,
    shapes: Mapping[str, Shape],
    *,
    guess: bool,
) -> Facts:
    """Return who holds each resource of which less is free, where the waiting members may run, than they want.

    Pods of one group that is served hold as one. guess: nobody said which scheduler names are served.
    """
    if not state.waiting:
        return {}
    try:
        served = Served(_served_names(settings, state, guess=guess), guess, settings.grouping)
        nodes, everyone = await reading.nodes(client), await reading.pods(client, None, served)
    except ApiError as error:
        if error.status != 403:
            raise
        note(f"who holds what is not shown: {error}")
        return {}
    everyone = picture.marked(everyone, served.names, guess=guess)
    rows = scarce([shapes[pod.shape] for pod in state.waiting], nodes, everyone, reason)
    return {"resources": rows} if rows else {}


def _served_names(settings: SchedulerConfiguration, state: GroupState, *, guess: bool) -> tuple[str, ...]:
    """Return the scheduler names that are served; where nobody said which (`guess`), also that of who waits."""
    waiting = state.waiting if guess else ()
    return (*settings.scheduler_names, *sorted({pod.scheduler_name for pod in waiting}))


async def _outlook(client: ApiClient, settings: SchedulerConfiguration, state: GroupState, *, guess: bool) -> Facts:
    """Return what a session on the whole cluster says about a group that waits.

    guess: nobody said which scheduler names are served.
    """
    if not state.waiting:
        return {}
    names = _served_names(settings, state, guess=guess)
    try:
        snapshot = await picture.read(client, names, guess=guess, grouping=settings.grouping)
    except ApiError as error:
        if error.status != 403:
            raise
        note(f"turn and evictions are not shown: {error}")
        return {}
    return outlook(picture.Picture(snapshot, settings), state.key)


async def _by_node(client: ApiClient, state: GroupState | None, pod: Pod | None) -> Facts:
    """Return what each node says to the pod, or to the first member of the group that waits."""
    one = pod if pod is not None else next(iter(state.waiting), None) if state is not None else None
    if one is None or not one.waiting:
        return {}
    everyone = await reading.pods(client, None)
    storage: list[feed.Event] | None = []
    if one.volumes is not None:
        try:
            storage = await reading.storage(client)
        except ApiError as error:
            if error.status != 403:
                raise
            note(f"volumes are not looked at: {error}")
            storage = None
    return {"verdicts": verdicts(one, await reading.nodes(client), everyone, await reading.namespaces(client), storage)}


def _tell(facts: Facts) -> None:
    lines = {key: value for key, value in facts.items() if key not in _ASIDE}
    if "group" in lines:
        lines["group"] = f"{lines['group']} ({facts['dialect']})"
        needed = "minimum unknown" if facts["minimum"] is None else f"{facts['minimum']} needed"
        gated = f", {facts['gated']} gated" if facts["gated"] else ""
        exist = "exists" if facts["existing"] == 1 else "exist"
        lines["members"] = f"{facts['bound']} bound, {needed}, {facts['existing']} {exist}{gated}"
    lines["reason"] = facts["reason"] or "-"
    if facts.get("now") and str(facts["now"]) not in str(facts["reason"]):
        lines["now"] = facts["now"]
    if facts.get("order"):
        lines["order"] = facts["order"]
    listing((*lines.items(), *(("problem", problem) for problem in facts.get("problems", ()))))
    if facts.get("eviction"):
        print("\nNobody is evicted for it:")
        for line in facts["eviction"]:
            print(f"  {line}")
    if facts.get("members"):
        print()
        table(facts["members"], ("pod", "node", "state", "reason"))
    if facts.get("verdicts"):
        print()
        table(
            [{**row, "nodes": named(row["nodes"], _LISTED)} for row in facts["verdicts"]], ("count", "nodes", "verdict")
        )
    for row in facts.get("resources", ()):
        print(f"\n{sentence(row)}" + ("; held by" if row["holders"] else ", held by nobody" if row["nodes"] else ""))
        if row["holders"]:
            shown = row["holders"][:_HOLDERS]
            table([{**held, "nodes": named(held["nodes"], _LISTED)} for held in shown], _HELD)
            if rest := len(row["holders"]) - len(shown):
                print(f"and {rest} more")
        if row["excluded"]:
            print(left_out(row))


_ASIDE = (
    *("dialect", "minimum", "bound", "existing", "gated", "members", "resources", "problems", "reason", "verdicts"),
    *("now", "order", "eviction"),
)
_HELD = ("holder", "pods", "amount", "nodes")
