"""CP-SAT: exact yes or no where counting and greedy leave it open.

Decided here: the two models. *Patterns*: nodes that can host the same combinations of this gang form a class, whatever
their free amounts are; a variable counts the nodes of a class that host a maximal combination. *Integer*: pods of a
demand on a node, for few nodes or many demands. Both are built as protobufs, run with one worker, a fixed seed and a
deterministic limit; UNKNOWN is a normal answer. Nothing outside this module knows OR-Tools.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scheduler.placement.arrays import Ints
from scheduler.placement.compiled import Compiled
from scheduler.placement.problem import Method

GRID = 2000
"""Most combinations of the leading demands for which patterns are listed."""
MAX_PATTERNS = 20_000
MAX_VARIABLES = 100_000
_BIG = 2**40


@dataclass(frozen=True, slots=True)
class Solved:
    """table: (D, N) when there is an answer; proven: with no table, that there is none; spent: deterministic time."""

    table: Ints | None
    proven: bool
    spent: float
    method: Method


class _Model:
    """A model written straight into its protobuf: two to three times faster than operators."""

    def __init__(self) -> None:
        from ortools.sat.python import cp_model_helper

        self.proto = cp_model_helper.CpModelProto()
        self.size = 0

    def variables(self, bounds: Sequence[tuple[int, int]]) -> list[int]:
        """Add integer variables; return their numbers."""
        for low, high in bounds:
            self.proto.variables.add().domain.extend([low, high])
        first, self.size = self.size, self.size + len(bounds)
        return list(range(first, self.size))

    def row(self, terms: Sequence[tuple[int, int]], low: int, high: int, enforced: Sequence[int] = ()) -> None:
        """Add low <= sum(coefficient * variable) <= high, divided by the common divisor of the coefficients."""
        divisor = math.gcd(*(abs(coefficient) for _, coefficient in terms)) if terms else 1
        divisor = divisor or 1
        constraint = self.proto.constraints.add()
        constraint.linear.vars.extend([variable for variable, _ in terms])
        constraint.linear.coeffs.extend([coefficient // divisor for _, coefficient in terms])
        constraint.linear.domain.extend([-((-low) // divisor), high // divisor])
        if enforced:
            constraint.enforcement_literal.extend(list(enforced))


def _kinds(compiled: Compiled) -> list[list[int]]:
    """Demands that no node can tell apart: equal requests, equal fit, same side of every exclusive rule."""
    kinds: dict[bytes, list[int]] = {}
    for d in range(len(compiled.lower)):
        sides = [(d in rule.demands_a, d in rule.demands_b) for rule in compiled.exclusive]
        caps = [d in demands for _, _, demands in compiled.caps]
        per_node = compiled.problem.demands[d].max_per_node
        own = d if per_node is not None else -1  # a limit of its own: pods of two demands must not share it
        key = repr((compiled.req[d].tolist(), sides, caps, own)).encode() + _usable(compiled, d).tobytes()
        kinds.setdefault(key, []).append(d)
    return list(kinds.values())


def _usable(compiled: Compiled, d: int) -> NDArray[np.bool_]:
    usable: NDArray[np.bool_] = compiled.fit[d] > 0
    return usable


def _kind_fit(compiled: Compiled, kind: Sequence[int]) -> Ints:
    """Pods of a merged kind that a node takes alone."""
    d = kind[0]
    fit: Ints = compiled.fit[d]
    if len(kind) == 1:
        return fit
    fit = np.full(compiled.fit.shape[1], sum(compiled.upper[e] for e in kind), dtype=np.int64)
    for row in np.flatnonzero(compiled.req[d]):
        np.minimum(fit, compiled.cap[row] // compiled.req[d, row], out=fit)
    fit[compiled.fit[d] == 0] = 0
    return fit


def solve(compiled: Compiled, seconds: float, wall: float, *, method: str = "auto") -> Solved:
    """Decide exactly within `seconds` of deterministic time. method: auto, pattern or integer (for tests)."""
    kinds = _kinds(compiled)
    if method != "integer" and not compiled.caps:
        classes = _classes(compiled, kinds)
        if classes is not None:
            return _solve_patterns(compiled, kinds, classes, seconds, wall)
        if method == "pattern":
            return Solved(None, False, 0.0, "pattern")
    return _solve_integer(compiled, kinds, seconds, wall)


# -- patterns ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Class:
    """Nodes that can host the same combinations; patterns: (P, kinds) maximal ones."""

    nodes: NDArray[np.intp]
    patterns: Ints


def _classes(compiled: Compiled, kinds: Sequence[Sequence[int]]) -> list[_Class] | None:
    """Group nodes by the staircase of the last kind over the grid of the others; None when the grid is too large."""
    fits = np.stack([_kind_fit(compiled, kind) for kind in kinds])
    limits = np.array([sum(compiled.upper[d] for d in kind) for kind in kinds])
    fits = np.minimum(fits, limits[:, None])
    most = fits.max(axis=1, initial=0)
    order = sorted(range(len(kinds)), key=lambda k: (int(most[k]), k))
    head, last = order[:-1], order[-1]
    size = math.prod(int(most[k]) + 1 for k in head)
    if size > GRID:
        return None
    grid = np.array(list(itertools.product(*(range(int(most[k]) + 1) for k in head))), dtype=np.int64)
    grid = grid.reshape(size, len(head))
    req = np.stack([compiled.req[kind[0]] for kind in kinds])
    usable = np.flatnonzero(fits.any(axis=0))
    columns = np.concatenate([compiled.cap[:, usable], fits[:, usable]]).T
    unique, inverse = np.unique(columns, axis=0, return_inverse=True)
    inverse = np.asarray(inverse).reshape(-1)
    capacity, alone = unique[:, : compiled.cap.shape[0]], unique[:, compiled.cap.shape[0] :]
    use = grid @ req[head] if head else np.zeros((1, req.shape[1]), dtype=np.int64)
    stairs = _stairs(compiled, kinds, (capacity, alone), (grid, use), (head, last), req)
    signatures, which = np.unique(stairs, axis=0, return_inverse=True)
    which = np.asarray(which).reshape(-1)
    found = []
    for number, signature in enumerate(signatures):
        patterns = _maximal(grid, signature, head, last, len(kinds))
        found.append(_Class(usable[np.flatnonzero(which[inverse] == number)], patterns))
    if sum(len(item.patterns) for item in found) > MAX_PATTERNS:
        return None
    return found


def _stairs(
    compiled: Compiled,
    kinds: Sequence[Sequence[int]],
    nodes: tuple[Ints, Ints],
    combos: tuple[Ints, Ints],
    order: tuple[list[int], int],
    req: Ints,
) -> Ints:
    """(unique nodes, grid): most pods of the last kind beside each combination of the others; -1: impossible."""
    capacity, alone = nodes
    grid, use = combos
    head, last = order
    result = np.empty((len(capacity), len(grid)), dtype=np.int64)
    forbidden, alone_only = _exclusions(compiled, kinds, grid, head, last)
    asked = np.flatnonzero(req[last])
    for start in range(0, len(capacity), 512):  # blocks keep the three-dimensional array small
        part = slice(start, start + 512)
        left = capacity[part, None, :] - use[None, :, :]
        ok = (left >= 0).all(axis=2)
        if head:
            ok &= (grid[None, :, :] <= alone[part][:, None, head]).all(axis=2)
        ok &= ~forbidden[None, :]
        most = (np.maximum(left[:, :, asked], 0) // req[last][asked]).min(axis=2)
        most = np.minimum(most, alone[part, last][:, None])
        most[:, alone_only] = 0
        result[part] = np.where(ok, most, -1)
    return result


def _exclusions(
    compiled: Compiled, kinds: Sequence[Sequence[int]], grid: Ints, head: list[int], last: int
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which combinations break an exclusive rule, and which leave no room for the last kind because of one."""
    forbidden = np.zeros(len(grid), dtype=np.bool_)
    alone_only = np.zeros(len(grid), dtype=np.bool_)
    for rule in compiled.exclusive:
        first = [k for k, kind in enumerate(kinds) if kind[0] in rule.demands_a]
        second = [k for k, kind in enumerate(kinds) if kind[0] in rule.demands_b]
        has = []
        for side in (first, second):
            columns = [head.index(k) for k in side if k in head]
            has.append((grid[:, columns] > 0).any(axis=1) if columns else np.zeros(len(grid), dtype=np.bool_))
        forbidden |= has[0] & has[1]
        if last in first:
            alone_only |= has[1]
        if last in second:
            alone_only |= has[0]
        if last in first and last in second:
            alone_only[:] = True
        for k in set(first) & set(second) & set(head):
            forbidden |= grid[:, head.index(k)] > 0
    return forbidden, alone_only


def _maximal(grid: Ints, signature: Ints, head: list[int], last: int, size: int) -> Ints:
    """The combinations of a class that no other one contains."""
    possible = np.flatnonzero(signature >= 0)
    points = np.zeros((len(possible), size), dtype=np.int64)
    if head:
        points[:, head] = grid[possible]
    points[:, last] = signature[possible]
    order = np.argsort(-points.sum(axis=1), kind="stable")
    kept: list[Ints] = []
    for point in points[order]:
        if not kept or not (np.array(kept) >= point).all(axis=1).any():
            kept.append(point)
    return np.array(kept)


def _solve_patterns(
    compiled: Compiled, kinds: Sequence[Sequence[int]], classes: list[_Class], seconds: float, wall: float
) -> Solved:
    model = _Model()
    totals = model.variables(list(zip(compiled.lower, compiled.upper, strict=True)))
    cover: list[list[tuple[int, int]]] = [[] for _ in kinds]
    chosen = []
    for item in classes:
        numbers = model.variables([(0, len(item.nodes))] * len(item.patterns))
        chosen.append(numbers)
        model.row([(number, 1) for number in numbers], 0, len(item.nodes))
        for k in range(len(kinds)):
            cover[k] += [(n, int(p)) for n, p in zip(numbers, item.patterns[:, k], strict=True) if p]
    for k, kind in enumerate(kinds):
        model.row([*cover[k], *((totals[d], -1) for d in kind)], 0, _BIG)
    _rows(model, compiled, totals)
    values, proven, spent = _run(model, compiled, seconds, wall)
    if values is None:
        return Solved(None, proven, spent, "pattern")
    want = [sum(values[totals[d]] for d in kind) for kind in kinds]
    by_kind = np.zeros((len(kinds), compiled.fit.shape[1]), dtype=np.int64)
    for item, numbers in zip(classes, chosen, strict=True):
        position = 0
        for number, pattern in zip(numbers, item.patterns, strict=True):
            for node in item.nodes[position : position + values[number]]:
                for k in range(len(kinds)):
                    part = min(int(pattern[k]), want[k])
                    by_kind[k, node] = part
                    want[k] -= part
            position += values[number]
    return Solved(_split(compiled, kinds, by_kind, [values[t] for t in totals]), False, spent, "pattern")


def _split(compiled: Compiled, kinds: Sequence[Sequence[int]], by_kind: Ints, totals: list[int]) -> Ints:
    """Hand the pods of merged kinds out to their demands."""
    table = np.zeros_like(compiled.fit)
    for k, kind in enumerate(kinds):
        left = by_kind[k].copy()
        for d in kind:
            before = np.cumsum(left) - left
            taken = np.clip(totals[d] - before, 0, left)
            table[d] = taken
            left -= taken
    return table


def _rows(model: _Model, compiled: Compiled, totals: Sequence[int]) -> None:
    for rule in compiled.minimums:
        model.row([(totals[d], 1) for d in rule.demands], rule.count, _BIG)
    for limit in compiled.at_most:
        if limit.weights:
            model.row([(totals[d], weight) for d, weight in limit.weights], 0, limit.limit)


# -- integers ---------------------------------------------------------------------------------------------------------


def _solve_integer(compiled: Compiled, kinds: Sequence[Sequence[int]], seconds: float, wall: float) -> Solved:
    fits = np.stack([_kind_fit(compiled, kind) for kind in kinds])
    if int((fits > 0).sum()) > MAX_VARIABLES:
        return Solved(None, False, 0.0, "integer")
    model = _Model()
    totals = model.variables(list(zip(compiled.lower, compiled.upper, strict=True)))
    at: dict[tuple[int, int], int] = {}
    for k in range(len(kinds)):
        nodes = np.flatnonzero(fits[k])
        numbers = model.variables([(0, int(fits[k, n])) for n in nodes])
        at |= {(k, int(n)): number for n, number in zip(nodes, numbers, strict=True)}
        model.row([*((number, 1) for number in numbers), *((totals[d], -1) for d in kinds[k])], 0, 0)
    req = [compiled.req[kind[0]] for kind in kinds]
    for n in (int(number) for number in np.flatnonzero(fits.any(axis=0))):
        here = [k for k in range(len(kinds)) if fits[k, n] > 0]
        for row in range(compiled.cap.shape[0]):
            terms = [(at[k, n], int(req[k][row])) for k in here if req[k][row] > 0]
            if sum(int(fits[k, n]) * int(req[k][row]) for k in here) > int(compiled.cap[row, n]):
                model.row(terms, 0, int(compiled.cap[row, n]))
        _exclude(model, compiled, kinds, at, n, here)
    for ids, limit, demands in compiled.caps:
        for domain in np.unique(ids[ids >= 0]):
            terms = [(v, 1) for (k, n), v in at.items() if ids[n] == domain and kinds[k][0] in demands]
            if terms:
                model.row(terms, 0, limit)
    _rows(model, compiled, totals)
    values, proven, spent = _run(model, compiled, seconds, wall)
    if values is None:
        return Solved(None, proven, spent, "integer")
    by_kind = np.zeros((len(kinds), compiled.fit.shape[1]), dtype=np.int64)
    for (k, node), number in at.items():
        by_kind[k, node] = values[number]
    return Solved(_split(compiled, kinds, by_kind, [values[t] for t in totals]), False, spent, "integer")


def _exclude(
    model: _Model,
    compiled: Compiled,
    kinds: Sequence[Sequence[int]],
    at: dict[tuple[int, int], int],
    node: int,
    here: list[int],
) -> None:
    for rule in compiled.exclusive:
        first = [at[k, node] for k in here if kinds[k][0] in rule.demands_a]
        second = [at[k, node] for k in here if kinds[k][0] in rule.demands_b]
        if first and second:
            (side,) = model.variables([(0, 1)])
            model.row([(number, 1) for number in first], 0, 0, enforced=(-side - 1,))
            model.row([(number, 1) for number in second], 0, 0, enforced=(side,))


# -- the solver -------------------------------------------------------------------------------------------------------


def _run(model: _Model, compiled: Compiled, seconds: float, wall: float) -> tuple[list[int] | None, bool, float]:
    """Return the values of an answer, whether infeasibility is proven, and the deterministic time that was spent."""
    from ortools.sat.python import cp_model

    built = cp_model.CpModel(model.proto)
    solver = cp_model.CpSolver()
    parameters: Any = solver.parameters
    parameters.num_workers = 1
    parameters.random_seed = compiled.problem.seed % (2**31)
    parameters.max_deterministic_time = seconds
    parameters.max_time_in_seconds = wall
    parameters.cp_model_probing_level = 0
    parameters.symmetry_level = 0
    parameters.log_search_progress = False
    status = solver.solve(built)
    spent = float(solver.response_proto.deterministic_time)
    if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return [int(value) for value in solver.response_proto.solution], False, spent
    return None, status == cp_model.INFEASIBLE, spent
