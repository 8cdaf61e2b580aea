"""Questions of the harness put to the engine, as a session would put them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from scheduler.placement import Budget, Demand, DeviceAsk, Devices, NodeView, PlacementProblem
from tests.quality.experiment import Cluster
from tests.quality.trace import MILLI, Ints, Workload

POOL = "gpu"


def view(cluster: Cluster) -> NodeView:
    """Return the nodes as they are."""
    size = cluster.sort.size
    return NodeView(
        names=[f"n{node:05}" for node in range(size)],
        resources=("cpu", "memory"),
        free=cluster.other,
        slots=np.full(size, 1000, dtype=np.int64),
        devices={POOL: Devices(cluster.left.T.copy(), MILLI)},
    )


def demand(cluster: Cluster, workload: Workload, kind: int, count: int, growth: np.ndarray | None) -> Demand:
    """Return so many pods of a kind, none of which has to be placed; the less a node's cost grows, the better."""
    amount = int(workload.amount[kind])
    scores: Ints | None = None
    if growth is not None:
        fits = np.isfinite(growth)
        scores = np.zeros(growth.size, dtype=np.int64)
        scores[fits] = -np.unique(growth[fits], return_inverse=True)[1]
    return Demand(
        f"kind {kind:05}",
        workload.other[:, kind],
        count,
        mask=workload.suits[kind, cluster.sort] if amount else None,
        scores=scores,
        devices=DeviceAsk(POOL, amount, int(workload.count[kind])) if amount else None,
    )


def problem(cluster: Cluster, demands: Sequence[Demand], *, maximize: bool) -> PlacementProblem:
    """Return the question."""
    budget = Budget(deterministic_time=0.2)
    return PlacementProblem(view(cluster), tuple(demands), objective="scores", maximize=maximize, budget=budget)
