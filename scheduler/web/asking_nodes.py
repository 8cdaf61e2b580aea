"""Answers about nodes: those of a domain, of a pool, or with room, with what each has and what of it is used.

Decided here: how nodes are filtered, all at once over the node table, and which labels name pools.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from scheduler.framework.session import Session
from scheduler.model.nodes import HOSTNAME, Taint
from scheduler.web import answers
from scheduler.web.about import About, Arguments, barred, start, totals
from scheduler.web.asking_gang import place_of

NODES = 100
"""Nodes on one page."""
CHOICES = 400
"""Domains, and pools, that are offered to choose from."""
_POOLS = ("pool", "nodepool", "node-pool", "agentpool", "gke-nodepool", "nodegroup", "node-group", "instance-type")


def nodes(about: About, arguments: Arguments) -> answers.Answer:
    """Answer for `topology`, `in` (LEVEL=DOMAIN), `label` (KEY=VALUE), `q` (a part of the name), `state` and `sort`."""
    session = about.session
    table, every = session.table, totals(session)
    trees = session.topology.trees
    asked = arguments.get("topology", "")
    topology = asked if asked in trees else min(trees, default="")
    shut = barred(session)
    rows = np.flatnonzero(_chosen(session, topology, shut, every, arguments))
    if arguments.get("sort") == "free" and every:
        free = session.free[table.resources.index(every[0].resource)][rows]
        rows = rows[np.argsort(-free, kind="stable")]
    first = start(arguments, NODES, len(rows))
    columns = [table.resources.index(one.resource) for one in every[:3]]
    found = []
    for row in rows[first : first + NODES].tolist():
        kind = table.classes[table.class_of[row]]
        amounts = tuple(
            answers.Amount(
                table.resources[column],
                int(table.allocatable[column, row]),
                int(table.allocatable[column, row] - session.free[column, row]),
            )
            for column in columns
        )
        found.append(
            answers.NodeRow(
                table.names[row],
                place_of(about, table.names[row], topology),
                bool(shut[row]),
                tuple(_taint(one) for one in kind.taints),
                int(table.pods[row]),
                int(table.slots[row]),
                amounts,
            )
        )
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


def _chosen(
    session: Session,
    topology: str,
    shut: NDArray[np.bool_],
    every: tuple[answers.Total, ...],
    arguments: Arguments,
) -> NDArray[np.bool_]:
    table = session.table
    chosen = np.ones(len(table.names), dtype=np.bool_)
    level, _, domain = arguments.get("in", "").partition("=")
    if level:
        known = [one for one in session.topology.trees[topology].levels if one.name == level] if topology else []
        if known and domain in known[0].names:
            chosen &= known[0].ids == known[0].names.index(domain)
        else:
            chosen[:] = False
    key, _, value = arguments.get("label", "").partition("=")
    if key:
        of_class = np.array([one.label(key) == value for one in table.classes], dtype=np.bool_)
        chosen &= of_class[table.class_of] if len(of_class) else False
    text = arguments.get("q", "")
    if text:
        chosen &= np.array([text in name for name in table.names], dtype=np.bool_)
    state = arguments.get("state", "")
    if state == "cordoned":
        chosen &= shut
    elif state in ("free", "full") and every:
        row = table.resources.index(every[0].resource)
        has = table.allocatable[row] > 0
        chosen &= has & ~shut & ((session.free[row] > 0) == (state == "free"))
    return chosen


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
