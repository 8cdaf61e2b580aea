"""A problem in the form that all solving steps share.

Decided here: what of a rule becomes a row of capacity, a bound or a search. Pod slots and node-level `Apart` rules are
resources like any other; masks and per-node maxima are in `fit`. Bounds of the demands are tightened by what `Minimum`
and `AtMost` imply, so that in the usual case (start the whole gang) nothing is left to choose.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from scheduler.placement.arrays import Ints
from scheduler.placement.problem import (
    NODE,
    Apart,
    AtMost,
    BadProblem,
    Counts,
    Exclusive,
    Minimum,
    PlacementProblem,
    Within,
)


@dataclass(frozen=True, slots=True, eq=False)
class Compiled:
    """D demands, N nodes (a subset: `rows` are their numbers in the problem), K rows of capacity.

    cap: (K, N) >= 0. req: (D, K). fit: (D, N) pods that a node takes of one demand alone. lower, upper: bounds of each
    demand's pods. caps: domain-level `Apart` as (ids, limit, demands). within: hard domain rules as (level, demands).
    """

    problem: PlacementProblem
    rows: NDArray[np.intp]
    cap: Ints
    req: Ints
    fit: Ints
    lower: tuple[int, ...]
    upper: tuple[int, ...]
    minimums: tuple[Minimum, ...]
    at_most: tuple[AtMost, ...]
    exclusive: tuple[Exclusive, ...]
    caps: tuple[tuple[NDArray[np.int32], int, tuple[int, ...]], ...]
    within: tuple[Within, ...]
    possible: bool

    def only(self, inside: NDArray[np.intp]) -> Compiled:
        """Return the same on a subset of the nodes."""
        return replace(
            self,
            rows=self.rows[inside],
            cap=self.cap[:, inside],
            fit=self.fit[:, inside],
            caps=tuple((ids[inside], limit, demands) for ids, limit, demands in self.caps),
        )

    def confined(self, demands: tuple[int, ...], inside: NDArray[np.bool_]) -> Compiled:
        """Return the same with some demands kept to some of the nodes."""
        fit = self.fit.copy()
        for d in demands:
            fit[d, ~inside] = 0
        return replace(self, fit=fit)

    def counts(self, table: Ints) -> Counts:
        """Return a (D, N) table as the counts of an answer."""
        return tuple(
            tuple((int(self.rows[n]), int(table[d, n])) for n in np.flatnonzero(table[d]))
            for d in range(table.shape[0])
        )


def compile_problem(problem: PlacementProblem) -> Compiled:
    """Return the compiled form. Raises `BadProblem` naming what contradicts itself."""
    nodes, demands = problem.nodes, problem.demands
    total = len(nodes.names)
    if not demands:
        raise BadProblem("a problem needs at least one demand")
    everyone = tuple(range(len(demands)))
    asks = np.stack([demand.requests for demand in demands])
    if asks.shape[1] != len(nodes.resources):
        raise BadProblem(f"requests have {asks.shape[1]} resources, nodes {len(nodes.resources)}")
    wanted = np.flatnonzero(asks.any(axis=0))
    cap_rows = [np.maximum(nodes.free[wanted], 0), np.maximum(nodes.slots, 0)[None, :]]
    req_rows = [asks[:, wanted], np.ones((len(demands), 1), dtype=np.int64)]
    caps: list[tuple[NDArray[np.int32], int, tuple[int, ...]]] = []
    for rule in problem.rules:
        if isinstance(rule, Apart):
            chosen = everyone if rule.demands is None else rule.demands
            if rule.level == NODE:
                cap_rows.append(np.full((1, total), max(0, rule.limit), dtype=np.int64))
                req_rows.append(np.isin(np.arange(len(demands)), chosen).astype(np.int64)[:, None])
            else:
                ids = _ids(problem, rule.level)
                caps.append((ids, max(0, rule.limit), chosen))
    cap, req = np.concatenate(cap_rows), np.concatenate(req_rows, axis=1)
    fit = np.empty((len(demands), total), dtype=np.int64)
    for d, demand in enumerate(demands):
        fit[d] = _fit(cap, req[d])
        np.minimum(fit[d], _most(demand.count, demand.max_per_node), out=fit[d])
        if demand.mask is not None:
            fit[d][~demand.mask] = 0
    minimums = tuple(rule for rule in problem.rules if isinstance(rule, Minimum))
    at_most = tuple(rule for rule in problem.rules if isinstance(rule, AtMost))
    lower, upper, possible = _bounds(problem, minimums, at_most)
    return Compiled(
        problem=problem,
        rows=np.arange(total),
        cap=cap,
        req=req,
        fit=fit,
        lower=lower,
        upper=upper,
        minimums=minimums,
        at_most=at_most,
        exclusive=tuple(rule for rule in problem.rules if isinstance(rule, Exclusive)),
        caps=tuple(caps),
        within=tuple(rule for rule in problem.rules if isinstance(rule, Within)),
        possible=possible,
    )


def _most(count: int, per_node: int | None) -> int:
    return max(0, count if per_node is None else min(count, per_node))


def _ids(problem: PlacementProblem, level: str) -> NDArray[np.int32]:
    ids = problem.nodes.domains.get(level)
    if ids is None:
        raise BadProblem(f"level {level!r} is not known; known: {sorted(problem.nodes.domains)}")
    return ids


def _fit(cap: Ints, req: Ints) -> Ints:
    """Pods of one demand that each node takes of the capacity."""
    asked = np.flatnonzero(req > 0)
    if len(asked) == 1:
        result: Ints = cap[asked[0]] // req[asked[0]]
        return result
    best: Ints = cap[asked[0]] // req[asked[0]]
    for row in asked[1:]:
        np.minimum(best, cap[row] // req[row], out=best)
    return best


def _bounds(
    problem: PlacementProblem, minimums: tuple[Minimum, ...], at_most: tuple[AtMost, ...]
) -> tuple[tuple[int, ...], tuple[int, ...], bool]:
    """Tighten the bounds of each demand by what the rows imply, until nothing changes."""
    lower = [max(0, demand.minimum) for demand in problem.demands]
    upper = [max(0, demand.count) for demand in problem.demands]
    for row in at_most:
        if any(weight < 0 for _, weight in row.weights):
            raise BadProblem(f"{row}: negative weights are not defined")
    changed = True
    while changed:
        changed = False
        for minimum in minimums:
            most = sum(upper[d] for d in minimum.demands)
            for d in minimum.demands:
                need = minimum.count - (most - upper[d])
                if need > lower[d]:
                    lower[d], changed = need, True
        for row in at_most:
            least = sum(weight * lower[d] for d, weight in row.weights)
            for d, weight in row.weights:
                if weight > 0:
                    room = (row.limit - least + weight * lower[d]) // weight
                    if room < upper[d]:
                        upper[d], changed = max(room, -1), True
        if any(low > high for low, high in zip(lower, upper, strict=True)):
            return tuple(lower), tuple(upper), False
    return tuple(lower), tuple(upper), True
