"""The specification of a placement, as a check of what rules say and nothing else. It shares no code with any search.

Returns every violated rule in words, so that a wrong answer can be read; an empty list means that the placement holds.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from scheduler.placement.problem import (
    NODE,
    Apart,
    AtMost,
    Exclusive,
    Minimum,
    Placement,
    PlacementProblem,
    Rule,
    UnsupportedRule,
    Within,
)

Row: TypeAlias = tuple[NDArray[np.int64], NDArray[np.int64]]
"""Nodes, and the pods of one demand on each."""


def verify(problem: PlacementProblem, placement: Placement) -> list[str]:
    """Return what the placement violates; [] = valid."""
    if len(placement.counts) != len(problem.demands):
        return [f"{len(placement.counts)} rows for {len(problem.demands)} demands"]
    rows = []
    for row in placement.counts:
        pairs = np.array(row, dtype=np.int64).reshape(-1, 2)
        rows.append((pairs[:, 0], pairs[:, 1]))
    failures = _form(problem, rows)
    if failures:
        return failures
    totals = [int(pods.sum()) for _, pods in rows]
    failures = _demands(problem, rows, totals) + _capacity(problem, rows, totals)
    if problem.rules:
        on_node = [dict(row) for row in placement.counts]
        for rule in problem.rules:
            failures.extend(_rule(problem, rule, on_node, totals))
    if not problem.maximize and not failures:
        failures = _surplus(problem, totals)
    return failures


def _form(problem: PlacementProblem, rows: list[Row]) -> list[str]:
    size = len(problem.nodes.names)
    failures = []
    for demand, (nodes, pods) in zip(problem.demands, rows, strict=True):
        if nodes.size and (int(nodes.min()) < 0 or int(nodes.max()) >= size):
            failures.append(f"{demand.name}: a node that does not exist")
        if (nodes[1:] <= nodes[:-1]).any():
            failures.append(f"{demand.name}: nodes are not in order")
        if (pods <= 0).any():
            failures.append(f"{demand.name}: not a positive number of pods on a node")
    return failures


def _demands(problem: PlacementProblem, rows: list[Row], totals: list[int]) -> list[str]:
    failures = []
    names = problem.nodes.names
    for demand, (nodes, pods), total in zip(problem.demands, rows, totals, strict=True):
        if total > demand.count:
            failures.append(f"{demand.name}: {total} placed, at most {demand.count}")
        if total < demand.minimum:
            failures.append(f"{demand.name}: {total} placed, at least {demand.minimum}")
        if demand.mask is not None:
            barred = nodes[~demand.mask[nodes]].tolist()
            failures.extend(f"{demand.name}: on {names[node]}, which may not host it" for node in barred)
        if demand.max_per_node is not None:
            crowded = nodes[pods > demand.max_per_node].tolist()
            failures.extend(f"{demand.name}: more than {demand.max_per_node} on {names[node]}" for node in crowded)
    return failures


def _capacity(problem: PlacementProblem, rows: list[Row], totals: list[int]) -> list[str]:
    """Pods and amounts on every node. Where 64 bits could overflow, in Python integers."""
    failures: list[str] = []
    view = problem.nodes
    size = len(view.names)
    pods = np.zeros(size, dtype=np.int64)
    for nodes, counts in rows:
        pods[nodes] += counts
    full = np.flatnonzero((pods > 0) & (pods > view.slots)).tolist()
    failures.extend(f"{view.names[node]}: {pods[node]} pods, {view.slots[node]} slots" for node in full)
    for resource, name in enumerate(view.resources):
        needs = [int(demand.requests[resource]) for demand in problem.demands]
        if not any(needs):
            continue
        small = sum(need * total for need, total in zip(needs, totals, strict=True)) < 2**62
        used = np.zeros(size, dtype=np.int64 if small else object)
        asked = np.zeros(size, dtype=np.bool_)
        for need, (nodes, counts) in zip(needs, rows, strict=True):
            if need:
                used[nodes] += need * (counts if small else counts.astype(object))
                asked[nodes] = True
        free = view.free[resource]
        over = np.flatnonzero(asked & (used > free)).tolist()
        failures.extend(f"{view.names[n]}: {used[n]} {name} asked, {free[n]} free" for n in over)
    return failures


def _rule(problem: PlacementProblem, rule: Rule, on_node: list[dict[int, int]], totals: list[int]) -> list[str]:
    match rule:
        case Minimum(demands, count):
            placed = sum(totals[demand] for demand in set(demands))
            return [f"{placed} placed, {rule}"] if placed < count else []
        case AtMost(weights, limit):
            weight = sum(each * totals[demand] for demand, each in weights)
            return [f"weight {weight}, {rule}"] if weight > limit else []
        case Within(level, hard, demands_or_all):
            if not hard:
                return []
            nodes = {node for demand in _of(problem, demands_or_all) for node in on_node[demand]}
            ids = {_domain(problem, level, node) for node in nodes}
            return [f"in domains {sorted(ids)}, {rule}"] if len(ids) > 1 or -1 in ids else []
        case Apart(level, limit, demands_or_all):
            sums: dict[int, int] = {}
            for demand in _of(problem, demands_or_all):
                for node, count in on_node[demand].items():
                    domain = _domain(problem, level, node)
                    sums[domain] = sums.get(domain, 0) + count
            sums.pop(-1, None)
            return [f"{sums[d]} in domain {d}, {rule}" for d in sorted(sums) if sums[d] > limit]
        case Exclusive(ours, theirs):
            here = {node for demand in ours for node in on_node[demand]}
            there = {node for demand in theirs for node in on_node[demand]}
            return [f"both on {problem.nodes.names[node]}, {rule}" for node in sorted(here & there)]
        case _:
            raise UnsupportedRule(f"{type(rule).__name__}: this rule is not supported")


def _surplus(problem: PlacementProblem, totals: list[int]) -> list[str]:
    """Return the demands of which a pod could be taken away without breaking a minimum."""
    failures = []
    minimums = [rule for rule in problem.rules if isinstance(rule, Minimum)]
    placed = [sum(totals[demand] for demand in set(rule.demands)) for rule in minimums]
    for number, demand in enumerate(problem.demands):
        if totals[number] <= demand.minimum:
            continue
        needed = any(number in rule.demands and have <= rule.count for rule, have in zip(minimums, placed, strict=True))
        if not needed:
            failures.append(f"{demand.name}: {totals[number]} placed, more than the minimums ask for")
    return failures


def _of(problem: PlacementProblem, demands: tuple[int, ...] | None) -> set[int]:
    return set(range(len(problem.demands))) if demands is None else set(demands)


def _domain(problem: PlacementProblem, level: str, node: int) -> int:
    return node if level == NODE else int(problem.nodes.domains[level][node])
