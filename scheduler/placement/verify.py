"""The specification of a placement, as a check of what rules say and nothing else. It shares no code with any search.

Returns every violated rule in words, so that a wrong answer can be read; an empty list means that the placement holds.
"""

from __future__ import annotations

from itertools import pairwise

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


def verify(problem: PlacementProblem, placement: Placement) -> list[str]:
    """Return what the placement violates; [] = valid."""
    if len(placement.counts) != len(problem.demands):
        return [f"{len(placement.counts)} rows for {len(problem.demands)} demands"]
    failures = _form(problem, placement)
    if failures:
        return failures
    on_node = [dict(row) for row in placement.counts]
    totals = [sum(row.values()) for row in on_node]
    failures = _demands(problem, on_node, totals) + _capacity(problem, on_node)
    for rule in problem.rules:
        failures.extend(_rule(problem, rule, on_node, totals))
    if not problem.maximize and not failures:
        failures = _surplus(problem, totals)
    return failures


def _form(problem: PlacementProblem, placement: Placement) -> list[str]:
    size = len(problem.nodes.names)
    failures = []
    for demand, row in zip(problem.demands, placement.counts, strict=True):
        nodes = [node for node, _ in row]
        if any(not 0 <= node < size for node in nodes):
            failures.append(f"{demand.name}: a node that does not exist")
        if any(before >= after for before, after in pairwise(nodes)):
            failures.append(f"{demand.name}: nodes are not in order")
        if any(count <= 0 for _, count in row):
            failures.append(f"{demand.name}: not a positive number of pods on a node")
    return failures


def _demands(problem: PlacementProblem, on_node: list[dict[int, int]], totals: list[int]) -> list[str]:
    failures = []
    names = problem.nodes.names
    for demand, row, total in zip(problem.demands, on_node, totals, strict=True):
        if total > demand.count:
            failures.append(f"{demand.name}: {total} placed, at most {demand.count}")
        if total < demand.minimum:
            failures.append(f"{demand.name}: {total} placed, at least {demand.minimum}")
        for node, count in row.items():
            if demand.mask is not None and not demand.mask[node]:
                failures.append(f"{demand.name}: on {names[node]}, which may not host it")
            if demand.max_per_node is not None and count > demand.max_per_node:
                failures.append(f"{demand.name}: {count} on {names[node]}, at most {demand.max_per_node}")
    return failures


def _capacity(problem: PlacementProblem, on_node: list[dict[int, int]]) -> list[str]:
    """Sums in Python integers: nothing overflows."""
    failures = []
    nodes = problem.nodes
    requests = [[(row, value) for row, value in enumerate(d.requests.tolist()) if value] for d in problem.demands]
    used: dict[int, dict[int, int]] = {}
    pods: dict[int, int] = {}
    for asked, row in zip(requests, on_node, strict=True):
        for node, count in row.items():
            pods[node] = pods.get(node, 0) + count
            sums = used.setdefault(node, {})
            for resource, value in asked:
                sums[resource] = sums.get(resource, 0) + value * count
    for node, sums in used.items():
        for resource, value in sums.items():
            free = int(nodes.free[resource, node])
            if value > free:
                failures.append(f"{nodes.names[node]}: {value} {nodes.resources[resource]} asked, {free} free")
        if pods[node] > int(nodes.slots[node]):
            failures.append(f"{nodes.names[node]}: {pods[node]} pods, {int(nodes.slots[node])} slots")
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
