"""`muster nodes`: what nodes have and what is free, one by one or summed up by a level or a label.

Decided here: what is summed up. A node that is cordoned, being deleted or not ready has its capacity and nothing free,
as in `framework.floorplan`. A hole is what is free in one piece: on one node. A gang is counted in each domain that
holds one of its members. Also which label tells pools of nodes apart where nobody says.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scheduler.cli.choosing import Refused, resource_of
from scheduler.cli.output import NOT_FOUND, OK, complain, emit, named, note
from scheduler.cli.picture import Picture, Source, with_picture
from scheduler.framework.floorplan import barred
from scheduler.framework.session import Session
from scheduler.framework.topology_tree import LevelFault
from scheduler.model.quantity import format_amount

Row = dict[str, Any]
NODE_COLUMNS = ("name", "state", "pods", "total", "free", "gangs")
DOMAIN_COLUMNS = ("domain", "nodes", "cordoned", "total", "free", "whole", "hole", "gangs")
POOL_LABELS = (
    "scheduling.muster.sh/pool",
    "karpenter.sh/nodepool",
    "cloud.google.com/gke-nodepool",
    "eks.amazonaws.com/nodegroup",
    "kubernetes.azure.com/agentpool",
    "nvidia.com/gpu.product",
    "node.kubernetes.io/instance-type",
)
"""Labels by which pools are told apart, the first that some node has."""
_NAMED = 3


def show(by: str | None, resource: str | None, source: Source, output: str) -> int:
    """Print nodes, or the domains of `by`: a level of a topology or a node label; exit code."""

    def work(picture: Picture, _: str) -> int:
        session = picture.session()
        try:
            counted = resource_of(session, resource)
            rows = nodes(session, counted) if by is None else domains(session, by, counted)
        except Refused as refused:
            complain(str(refused))
            return refused.code
        if output == "name":
            emit(rows, (), output, "name" if by is None else "domain")
            return OK
        if output in ("json", "yaml"):
            emit(rows, (), output)
            return OK
        note(f"by {counted}")
        shown = [_shown(row) for row in rows]
        emit(shown, NODE_COLUMNS if by is None else DOMAIN_COLUMNS, output)
        return OK

    return with_picture(source, work)


def nodes(session: Session, resource: str) -> list[Row]:
    """Return a row for each node, by name; amounts of the resource as text, as in manifests."""
    table = session.table
    total, free = amounts(session, resource)
    held = gangs_on(session)
    return [
        {
            "name": name,
            "state": table.classes[table.class_of[row]].state,
            "pods": f"{int(table.pods[row])}/{int(table.slots[row])}",
            "resource": resource,
            "total": format_amount(resource, int(total[row])),
            "free": format_amount(resource, int(free[row])),
            "gangs": sorted(held.get(name, ())),
        }
        for row, name in enumerate(table.names)
    ]


def domains(session: Session, by: str, resource: str) -> list[Row]:
    """Return a row for each domain of a level or label, by name; last, without a name, the nodes that have none.

    Raises `Refused` where no node has such a level or label.
    """
    level = session.resolve("", by)
    if isinstance(level, LevelFault):
        raise Refused(NOT_FOUND, level.message)
    ids, names = session.domains(level)
    return sums(session, ids, names, resource)


def sums(session: Session, ids: NDArray[np.int32], names: Sequence[str], resource: str) -> list[Row]:
    """Return a row for each number in `ids` (N,), -1 being nodes without a domain."""
    total, free = amounts(session, resource)
    shut, held = barred(session), gangs_on(session)
    table = session.table
    used = table.used[table.resources.index(resource)]
    rows = []
    for number in sorted(set(ids.tolist()), key=lambda one: (one < 0, names[one] if one >= 0 else "")):
        inside = np.flatnonzero(ids == number)
        hole = int(inside[int(free[inside].argmax())])
        gangs = {gang for row in inside.tolist() for gang in held.get(table.names[row], ())}
        rows.append(
            {
                "domain": names[number] if number >= 0 else "",
                "nodes": len(inside),
                "cordoned": int(shut[inside].sum()),
                "resource": resource,
                "total": format_amount(resource, int(total[inside].sum())),
                "free": format_amount(resource, int(free[inside].sum())),
                "used": format_amount(resource, int(used[inside].sum())),
                "share": round(int(used[inside].sum()) / int(total[inside].sum()), 4) if total[inside].any() else None,
                "whole": int(((total[inside] > 0) & (free[inside] == total[inside])).sum()),
                "hole": format_amount(resource, int(free[hole])),
                "holeOn": table.names[hole] if free[hole] else "",
                "gangs": sorted(gangs),
            }
        )
    return rows


def pools(session: Session, resource: str, label: str | None) -> tuple[str, list[Row]]:
    """Return the label that tells pools apart ("" = none does) and a row for each pool. Raises `Refused`."""
    carried = session.topology.labels
    chosen = label or next((one for one in POOL_LABELS if one in carried), "")
    if chosen:
        return chosen, domains(session, chosen, resource)
    return "", sums(session, np.zeros(len(session.table.names), dtype=np.int32), ("all nodes",), resource)


def amounts(session: Session, resource: str) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return (N,) what nodes have of a resource and what of it may be used now."""
    row = session.table.resources.index(resource)
    free = np.where(barred(session), 0, np.maximum(session.free[row], 0))
    return session.table.allocatable[row], free


def gangs_on(session: Session) -> Mapping[str, set[str]]:
    """Return which gangs (namespace/name) have members on a node; a pod that stands alone is none."""
    found: dict[str, set[str]] = {}
    for node, gang in _members(session):
        found.setdefault(node, set()).add(gang)
    return found


def _members(session: Session) -> Iterator[tuple[str, str]]:
    for state in session.snapshot.groups.values():
        if state.group.dialect == "pod":
            continue
        for pod in (*state.bound, *state.assumed):
            yield pod.node or pod.nominated, f"{state.group.namespace}/{state.group.name}"


def _shown(row: Row) -> Row:
    shown = row | {"gangs": named(row["gangs"], _NAMED) if "name" in row else len(row["gangs"])}
    if row.get("holeOn"):
        shown["hole"] = f"{row['hole']} on {row['holeOn']}"
    return shown
