"""`muster why POD --nodes`: what each node says to one more pod like this, now.

Decided here: nodes that say the same are one row. The question is put to the scheduler's own plugins, with their
default settings, over the objects as they are in the API server; what is decided and not written yet is not known.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from plugins import built_in
from scheduler.actions.ask import make_ask
from scheduler.actions.rooms import by_node
from scheduler.actions.run import Sessions, new_session
from scheduler.cluster import feed
from scheduler.cluster.store import Store
from scheduler.config import SchedulerConfiguration
from scheduler.framework.gangs import Needs
from scheduler.model.groups import GroupState, PodGroup
from scheduler.model.nodes import Node
from scheduler.model.pods import Pod, Shape
from scheduler.model.verdict import Verdict
from scheduler.observe.explain import sentence

Facts = dict[str, Any]
FITS = "fits"
_VOLUMES = "volumes"


def verdicts(
    pod: Pod,
    nodes: list[Node],
    pods: list[tuple[Pod, Shape]],
    namespaces: list[tuple[str, str, tuple[tuple[str, str], ...]]],
    storage: Iterable[feed.Event] | None = (),
) -> list[Facts]:
    """Return one row for each distinct answer of a node, most nodes first: {verdict, count, nodes}.

    storage: all of it, or None when it is not known and volumes are not to be looked at.
    """
    store = Store()
    store.apply([feed.NamespaceSet(name, queue, labels) for name, queue, labels in namespaces], 0.0)
    store.apply([feed.NodeSet(node) for node in nodes], 0.0)
    for one, shape in pods:
        store.apply([feed.ShapeSet(shape), feed.PodSet(replace(one, ours=one.uid == pod.uid))], 0.0)
    store.apply(list(storage or ()), 0.0)
    settings = SchedulerConfiguration()
    if storage is None:
        tiers = tuple(tuple(plugin for plugin in tier if plugin.name != _VOLUMES) for tier in settings.tiers)
        settings = SchedulerConfiguration(tiers=tiers)
        pod = replace(pod, volumes=None)
    session = new_session(store.snapshot(0.0), settings, Sessions(settings, built_in()).cache, "why")
    alone = PodGroup(
        key=f"pod/{pod.namespace}/{pod.uid}", uid="", dialect="pod", namespace=pod.namespace, name=pod.name
    )
    state = GroupState(group=alone, waiting=(pod,), priority=pod.priority)
    with session.standing(pod.priority):
        ask = make_ask(session, state, (pod,), Needs(1))
        answers = ask if isinstance(ask, Verdict) else by_node(session, ask)
    if isinstance(answers, Verdict):
        return [{"verdict": sentence(answers), "count": len(nodes), "nodes": [node.name for node in nodes]}]
    rows: dict[str, list[str]] = {}
    for name, reasons in zip(session.table.names, answers, strict=True):
        rows.setdefault(", ".join(reasons) or FITS, []).append(name)
    ordered = sorted(rows.items(), key=lambda item: (-len(item[1]), item[0]))
    return [{"verdict": verdict, "count": len(names), "nodes": names} for verdict, names in ordered]
