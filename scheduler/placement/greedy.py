"""The greedy portfolio: several orders and node choices, each vectorised per demand. Gives most "yes" in about 1 ms.

Decided here: which portfolios are tried. "No" proves nothing. When there is a choice which members start, the first
demands in order fill what the minimums leave open.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from scheduler.placement.arrays import Ints
from scheduler.placement.choose import choose
from scheduler.placement.compiled import Compiled


def targets(compiled: Compiled) -> list[tuple[int, ...]]:
    """Return how many pods of each demand to place: the minimums, filled up in order, then in reverse order."""
    found: list[tuple[int, ...]] = []
    size = len(compiled.lower)
    sums = compiled.fit.sum(axis=1)
    for order in (range(size), range(size - 1, -1, -1)):
        target = list(compiled.lower)
        for rule in compiled.minimums:
            missing = rule.count - sum(target[d] for d in rule.demands)
            for d in (d for d in order if d in rule.demands):
                step = min(missing, min(compiled.upper[d], int(sums[d])) - target[d], _allowed(compiled, target, d))
                if step > 0:
                    target[d] += step
                    missing -= step
        if all(sum(target[d] for d in rule.demands) >= rule.count for rule in compiled.minimums):
            found.append(tuple(target))
    return list(dict.fromkeys(found))


def _allowed(compiled: Compiled, target: list[int], d: int) -> int:
    """How many more of demand d the `AtMost` rows allow."""
    most = compiled.upper[d] - target[d]
    for row in compiled.at_most:
        weights = dict(row.weights)
        if weights.get(d, 0) > 0:
            used = sum(weight * target[e] for e, weight in row.weights)
            most = min(most, (row.limit - used) // weights[d])
    return most


def search(compiled: Compiled) -> Ints | None:
    """Return the (D, N) table of an answer that keeps all but the hard domain rules, or None."""
    for target in targets(compiled):
        for order in _orders(compiled):
            for choice in ("pack", "tight", "kind", "first"):
                table = _pack(compiled, target, order, choice)
                if table is not None:
                    return table
    return None


def _orders(compiled: Compiled) -> Iterator[tuple[int, ...]]:
    """Largest share of a node first, scarcest first, as given, smallest first."""
    size = len(compiled.lower)
    largest = compiled.cap.max(axis=1, initial=1)
    share = (compiled.req / np.maximum(largest, 1)).max(axis=1)
    sums = compiled.fit.sum(axis=1)
    slack = [int(sums[d]) / max(1, compiled.lower[d]) for d in range(size)]
    orders = (
        tuple(sorted(range(size), key=lambda d: (-share[d], d))),
        tuple(sorted(range(size), key=lambda d: (slack[d], d))),
        tuple(range(size)),
        tuple(sorted(range(size), key=lambda d: (share[d], d))),
    )
    yield from dict.fromkeys(orders)


class _State:
    """What is left while demands are placed one after the other."""

    def __init__(self, compiled: Compiled) -> None:
        self.compiled = compiled
        self.left = compiled.cap.copy()
        self.table: Ints = np.zeros_like(compiled.fit)
        self.blocked = np.zeros(compiled.fit.shape, dtype=np.bool_)

    def fit(self, d: int) -> Ints:
        """Pods of demand d that each node takes now."""
        compiled = self.compiled
        fit: Ints = compiled.fit[d] - self.table[d]
        for row in np.flatnonzero(compiled.req[d]):
            np.minimum(fit, self.left[row] // compiled.req[d, row], out=fit)
        fit[self.blocked[d]] = 0
        np.maximum(fit, 0, out=fit)
        return fit

    def take(self, d: int, taken: Ints) -> None:
        """Place pods of demand d."""
        compiled = self.compiled
        self.table[d] += taken
        for row in np.flatnonzero(compiled.req[d]):
            self.left[row] -= taken * compiled.req[d, row]
        here = taken > 0
        for rule in compiled.exclusive:
            for mine, other in ((rule.demands_a, rule.demands_b), (rule.demands_b, rule.demands_a)):
                if d in mine:
                    self.blocked[np.ix_(list(other), list(np.flatnonzero(here)))] = True

    def within_caps(self, d: int, fit: Ints) -> Ints:
        """Cut `fit` to what the limits per domain leave."""
        for ids, limit, demands in self.compiled.caps:
            if d not in demands:
                continue
            known = ids >= 0
            size = int(ids.max(initial=-1)) + 1
            used = np.bincount(ids[known], weights=self.table[list(demands)].sum(axis=0)[known], minlength=size)
            for domain in range(size):
                inside = np.flatnonzero(ids == domain)
                room = limit - int(used[domain])
                if int(fit[inside].sum()) > room:
                    fit[inside] = choose(fit[inside], max(0, room), None, "pack")
        return fit


def _pack(compiled: Compiled, target: tuple[int, ...], order: tuple[int, ...], choice: str) -> Ints | None:
    state = _State(compiled)
    problem = compiled.problem
    for position, d in enumerate(order):
        if target[d] == 0:
            continue
        fit = state.within_caps(d, state.fit(d))
        if int(fit.sum()) < target[d]:
            return None
        if choice == "pack":
            demand = problem.demands[d]
            scores = None if demand.scores is None else demand.scores[compiled.rows]
            taken = choose(fit, target[d], scores, problem.objective)
        else:
            key = _keys(state, d, fit, order[position + 1 :], choice)
            nodes = np.argsort(key, kind="stable")
            before = np.cumsum(fit[nodes]) - fit[nodes]
            taken = np.zeros_like(fit)
            taken[nodes] = np.clip(target[d] - before, 0, fit[nodes])
        state.take(d, taken)
    return state.table


def _keys(state: _State, d: int, fit: Ints, later: tuple[int, ...], choice: str) -> np.ndarray:
    if choice == "first":
        return np.arange(len(fit))
    if choice == "tight":
        return fit
    harm = np.zeros(len(fit))  # "kind": where one pod costs the demands that come later the least
    compiled = state.compiled
    for other in later:
        now = state.fit(other)
        after = now.copy()
        for row in np.flatnonzero(compiled.req[other]):
            rest = np.maximum(state.left[row] - compiled.req[d, row], 0)
            np.minimum(after, rest // compiled.req[other, row], out=after)
        harm += (now - after) / max(1, int(now.sum()))
    return harm


def fill(compiled: Compiled, table: Ints) -> Ints:
    """Return a table with as many more pods as fit, demand by demand in order, for `maximize`."""
    state = _State(compiled)
    for d in range(len(compiled.lower)):
        if table[d].any():
            state.take(d, table[d])
    placed = [int(value) for value in state.table.sum(axis=1)]
    for d in range(len(compiled.lower)):
        fit = state.within_caps(d, state.fit(d))
        more = min(int(fit.sum()), _allowed(compiled, placed, d))
        if more > 0:
            demand = compiled.problem.demands[d]
            scores = None if demand.scores is None else demand.scores[compiled.rows]
            state.take(d, choose(fit, more, scores, compiled.problem.objective))
            placed[d] += more
    return state.table
