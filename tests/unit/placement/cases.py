"""Short ways to write placement problems."""

from __future__ import annotations

import numpy as np

from scheduler.placement import Budget, Demand, NodeView, Placement, PlacementProblem

RESOURCES = ("gpu", "cpu", "memory")


def nodes(*rows, slots=110, **domains) -> NodeView:
    """Nodes with (gpu, cpu, memory) free; domains by level, as one name (or None) for each node."""
    free = np.array([[*row, *[1000] * (3 - len(row))] for row in rows], dtype=np.int64).reshape(-1, 3).T
    ids, names = {}, {}
    for level, given in domains.items():
        names[level] = sorted({name for name in given if name is not None})
        ids[level] = np.array([-1 if name is None else names[level].index(name) for name in given], dtype=np.int32)
    return NodeView(
        names=[f"n{number}" for number in range(len(rows))],
        resources=RESOURCES,
        free=free.copy(),
        slots=np.broadcast_to(np.array(slots, dtype=np.int64), (len(rows),)).copy(),
        domains=ids,
        domain_names=names,
    )


def pods(name, count, gpu=0, cpu=0, memory=0, *, at_least=None, on=None, scores=None, max_per_node=None, size=None):
    """A demand; all pods are needed unless `at_least` says so. on: the numbers of the nodes that may host it."""
    mask = None
    if on is not None:
        mask = np.zeros(size, dtype=np.bool_)
        mask[list(on)] = True
    return Demand(
        name=name,
        requests=np.array([gpu, cpu, memory], dtype=np.int64),
        count=count,
        minimum=count if at_least is None else at_least,
        mask=mask,
        scores=None if scores is None else np.array(scores, dtype=np.int64),
        max_per_node=max_per_node,
    )


def problem(view, demands, *rules, objective="pack", maximize=False, budget=None, seed=0) -> PlacementProblem:
    """A problem."""
    return PlacementProblem(
        nodes=view,
        demands=tuple(demands),
        rules=tuple(rules),
        seed=seed,
        budget=budget or Budget(),
        objective=objective,
        maximize=maximize,
    )


def where(answer, demand=0) -> dict[int, int]:
    """Pods of one demand by node."""
    assert isinstance(answer, Placement), answer
    return dict(answer.counts[demand])
