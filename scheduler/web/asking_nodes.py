"""Answers about nodes: those of a domain, of a pool, or with room, with what each has and what of it is used.

Decided here: how nodes are filtered, all at once over the node table, and which labels name pools.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from scheduler.framework.floorplan import barred
from scheduler.framework.session import Session
from scheduler.model.hints import near
from scheduler.model.nodes import HOSTNAME, Taint
from scheduler.model.pods import held_by
from scheduler.web import answers
from scheduler.web.about import About, Arguments, Refused, chosen, start, totals
from scheduler.web.answers import GUESTS, NODES
from scheduler.web.asking_gang import place_of

STATES = ("free", "full", "cordoned")
CHOICES = 400
"""Domains, and pools, that are offered to choose from."""
_POOLS = ("pool", "nodepool", "node-pool", "agentpool", "gke-nodepool", "nodegroup", "node-group", "instance-type")


def nodes(about: About, arguments: Arguments) -> answers.Answer:
    """Answer for `topology`, `in` (LEVEL=DOMAIN), `label` (KEY=VALUE), `q` (a part of the name), `state` and `sort`."""
    session = about.session
    table, every = session.table, totals(session)
    trees = session.topology.trees
    topology = chosen(arguments, "topology", sorted(trees), min(trees, default=""))
    shut = barred(session)
    rows = np.flatnonzero(_passing(session, topology, shut, every, arguments))
    if arguments.get("sort") == "free" and every:
        free = session.free[table.resources.index(every[0].resource)][rows]
        rows = rows[np.argsort(-free, kind="stable")]
    first = start(arguments, NODES, len(rows))
    columns = [table.resources.index(one.resource) for one in every[:3]]
    found = [_row(about, row, columns, topology) for row in rows[first : first + NODES].tolist()]
    sums = ((column, int(table.allocatable[column, rows].sum())) for column in columns)
    levels = trees[topology].levels if topology else ()
    return answers.NodeList(
        **about.head,
        rows=tuple(found),
        many=len(rows),
        first=first,
        topology=topology,
        topologies=tuple(sorted(trees)),
        levels=tuple(level.name for level in levels if level.label != HOSTNAME),
        domains=tuple(_domains(session, topology)),
        pools=tuple(sorted(_pools(session))[:CHOICES]),
        totals=tuple(
            answers.Total(table.resources[column], total, total - int(session.free[column, rows].sum()))
            for column, total in sums
        ),
        barred=int(shut[rows].sum()),
    )


def node(about: About, arguments: Arguments) -> answers.Answer:
    """Answer for `name`: the node, its labels, and the pods that are there."""
    session = about.session
    name = arguments.get("name", "")
    row = session.row(name)
    if row is None:
        return answers.Nothing(**about.head, message=f"there is no node {name}")
    table, trees = session.table, session.topology.trees
    topology = min(trees, default="")
    columns = [table.resources.index(one.resource) for one in totals(session)]
    guests = sorted(_guests(session, name), key=lambda one: (one.namespace, one.name))
    first = start(arguments, GUESTS, len(guests))
    levels = trees[topology].levels if topology else ()
    return answers.NodePage(
        **about.head,
        row=_row(about, row, columns, topology),
        levels=tuple(level.name for level in levels if level.label != HOSTNAME),
        labels=table.nodes[name].labels,
        guests=tuple(guests[first : first + GUESTS]),
        many=len(guests),
        first=first,
        others=max(0, int(table.pods[row]) - sum(one.state != "comes" for one in guests)),
    )


def _guests(session: Session, node: str) -> Iterator[answers.Guest]:
    snapshot = session.snapshot
    for state in snapshot.groups.values():
        group = state.group
        name = f"{group.namespace}/{group.name}" if group.dialect != "pod" else ""
        coming = {
            one.uid for place in session.placed_of.get(state.key, ()) for one in place.assignments if one.node == node
        }
        for pods, said in (
            (state.bound, "bound"),
            (state.assumed, "on its way"),
            (state.terminating, "being deleted"),
            (state.waiting if coming else (), "comes"),
        ):
            for pod in pods:
                if pod.node == node or pod.uid in coming:
                    held = held_by(pod, snapshot.shapes)
                    queue = session.queue_of(state)
                    yield answers.Guest(pod.namespace, pod.name, name, queue, said, held, pod.since)
    for pod, queue in snapshot.singles.values():
        if pod.node == node:
            held = held_by(pod, snapshot.shapes)
            yield answers.Guest(pod.namespace, pod.name, "", queue, "bound", held, pod.since)


def _row(about: About, row: int, columns: list[int], topology: str) -> answers.NodeRow:
    table = about.session.table
    free = about.session.free
    amounts = tuple(
        answers.Amount(
            table.resources[column],
            int(table.allocatable[column, row]),
            int(table.allocatable[column, row] - free[column, row]),
        )
        for column in columns
    )
    name, kind = table.names[row], table.classes[table.class_of[row]]
    place = place_of(about, name, topology)
    taints = tuple(_taint(one) for one in kind.taints)
    return answers.NodeRow(name, place, kind.state, taints, int(table.pods[row]), int(table.slots[row]), amounts)


def _passing(
    session: Session,
    topology: str,
    shut: NDArray[np.bool_],
    every: tuple[answers.Total, ...],
    arguments: Arguments,
) -> NDArray[np.bool_]:
    table = session.table
    passes = np.ones(len(table.names), dtype=np.bool_)
    level, _, domain = arguments.get("in", "").partition("=")
    if level:
        levels = {one.name: one for one in session.topology.trees[topology].levels} if topology else {}
        if level not in levels:
            raise Refused(f"there is no level {level}{near(level, levels)}")
        names = levels[level].names
        if domain not in names:
            raise Refused(f"level {level} has no domain {domain}")
        passes &= levels[level].ids == names.index(domain)
    key, _, value = arguments.get("label", "").partition("=")
    if key:
        of_class = np.array([one.label(key) == value for one in table.classes], dtype=np.bool_)
        passes &= of_class[table.class_of] if len(of_class) else False
    text = arguments.get("q", "")
    if text:
        passes &= np.array([text in name for name in table.names], dtype=np.bool_)
    state = chosen(arguments, "state", STATES, "")
    if state == "cordoned":
        passes &= shut
    elif state in ("free", "full") and every:
        row = table.resources.index(every[0].resource)
        has = table.allocatable[row] > 0
        passes &= has & ~shut & ((session.free[row] > 0) == (state == "free"))
    return passes


def _taint(taint: Taint) -> str:
    value = f"={taint.value}" if taint.value else ""
    return f"{taint.key}{value}:{taint.effect}"


def _domains(session: Session, topology: str) -> Iterator[tuple[str, str]]:
    left = CHOICES
    for level in session.topology.trees[topology].levels if topology else ():
        if level.label != HOSTNAME and len(level.names) <= left:
            left -= len(level.names)
            yield from ((level.name, name) for name in level.names)


def _pools(session: Session) -> set[tuple[str, str]]:
    return {
        (key, value) for one in session.table.classes for key, value in one.labels if key.rpartition("/")[2] in _POOLS
    }
