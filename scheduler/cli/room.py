"""What `muster why` tells of the room that waiting members want: how much is free where they may run, and who has it.

Decided here: which nodes count. Those that may host a member at all, by the predicates that the scheduler asks by
default (cordons, taints, node selector, node affinity); the others are counted by the reason that keeps them out. The
amounts are those of the pods and nodes as they are now.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from plugins.predicates import Predicates
from scheduler.cli import reading
from scheduler.framework.registry import Arguments
from scheduler.model.nodes import Node, NodeClass
from scheduler.model.pods import Pod, Shape, holder_of
from scheduler.model.quantity import MAX_AMOUNT, format_amount
from scheduler.model.resources import Amounts, add

Facts = dict[str, Any]
Pods = list[tuple[Pod, Shape]]


@dataclass(frozen=True, slots=True)
class _Places:
    """Names of the nodes that may host one of some shapes, and how many of the others each reason keeps out."""

    open: frozenset[str]
    excluded: tuple[tuple[str, int], ...]


def scarce(waiting: Sequence[Shape], nodes: list[Node], pods: Pods, reason: str) -> list[Facts]:
    """Return one row for each resource of which the waiting members want more than is free, or that `reason` names.

    waiting: the shape of each waiting member. pods: those of the whole cluster.
    """
    rows = []
    for resource, wanted in add(*(shape.requests for shape in waiting)):
        places = _places([shape for shape in waiting if _of(shape.requests, resource)], nodes)
        here = [(pod, shape) for pod, shape in pods if pod.node in places.open and not pod.finished]
        free, have = _free(nodes, here, resource, places.open)
        if wanted <= free and resource not in reason:
            continue
        rows.append(
            {
                "resource": resource,
                "wanted": _shown(resource, wanted),
                "free": _shown(resource, free),
                "allocatable": _shown(resource, have),
                "nodes": len(places.open),
                "excluded": dict(places.excluded),
                "holders": _held(here, resource),
            }
        )
    return rows


def _places(shapes: Sequence[Shape], nodes: list[Node]) -> _Places:
    """A node that may host none of the shapes is told by what keeps the first of them out."""
    predicates = Predicates(Arguments({}))
    kinds = list({shape.key: shape for shape in shapes}.values())
    found: list[str] = []
    excluded: dict[str, int] = {}
    for node in nodes:
        one = NodeClass(node.labels, node.taints, node.unschedulable or node.deleting, node.name)
        misfits = [predicates.fits(shape, one) for shape in kinds]
        first = misfits[0]
        if first is None or None in misfits:
            found.append(node.name)
        else:
            excluded[first.reason] = excluded.get(first.reason, 0) + 1
    return _Places(frozenset(found), tuple(sorted(excluded.items())))


def _of(requests: Amounts, resource: str) -> int:
    return dict(requests).get(resource, 0)


def _shown(resource: str, value: int) -> str:
    """What is above the largest amount that is kept may be the cut sum of more."""
    return f"{'at least ' if value >= MAX_AMOUNT else ''}{format_amount(resource, value)}"


def _free(nodes: list[Node], here: Pods, resource: str, names: frozenset[str]) -> tuple[int, int]:
    """Return what is free and what there is on the named nodes. A node that is overcommitted has nothing free."""
    have = {node.name: _of(node.allocatable, resource) for node in nodes if node.name in names}
    left = dict(have)
    for pod, shape in here:
        left[pod.node] -= _of(reading.requests(pod, shape), resource)
    return sum(max(0, value) for value in left.values()), sum(have.values())


def _held(here: Pods, resource: str) -> list[Facts]:
    """Return who holds a resource and stays, the largest first."""
    found: dict[str, list[tuple[int, str]]] = {}
    for pod, shape in here:
        value = 0 if pod.deleting else _of(reading.requests(pod, shape), resource)
        if value:
            found.setdefault(holder_of(pod), []).append((value, pod.node))
    totals = {name: sum(value for value, _ in held) for name, held in found.items()}
    return [
        {
            "holder": name,
            "pods": len(found[name]),
            "amount": _shown(resource, totals[name]),
            "nodes": sorted({node for _, node in found[name]}),
        }
        for name in sorted(found, key=lambda name: (-totals[name], name))
    ]


def sentence(row: Facts) -> str:
    """Return the first line about one resource: "example.com/gpu: 4 wanted, 1 of 4 free on the 2 nodes that ..."."""
    nodes = row["nodes"]
    if nodes == 0:
        return f"{row['resource']}: {row['wanted']} wanted, no node may run it"
    where = "the node that may run it" if nodes == 1 else f"the {nodes} nodes that may run it"
    return f"{row['resource']}: {row['wanted']} wanted, {row['free']} of {row['allocatable']} free on {where}"


def left_out(row: Facts) -> str:
    """Return the line about the nodes that do not count, or ""."""
    excluded = row["excluded"]
    if not excluded:
        return ""
    count = sum(excluded.values())
    reasons = ", ".join(f"{number} {reason}" for reason, number in excluded.items())
    other = "other " if row["nodes"] else ""
    return f"{count} {other}{'node' if count == 1 else 'nodes'} not counted: {reasons}"
