"""The specification of a placement, as a check of what rules say and nothing else. It shares no code with any search.

Returns every violated rule in words, so that a wrong answer can be read; an empty list means that the placement holds.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, product
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from scheduler.model.rules import Cap, Follow, Once, Repel, Spread
from scheduler.placement.problem import (
    NODE,
    Apart,
    AtMost,
    AtMostDomains,
    AtMostGroups,
    Balanced,
    Minimum,
    Part,
    Parts,
    Placement,
    PlacementProblem,
    Rule,
    Segments,
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
    failures = _demands(problem, rows, totals) + _capacity(problem, rows, totals) + _devices(problem, rows)
    if problem.rules:
        on_node = [dict(row) for row in placement.counts]
        for rule in problem.rules:
            failures.extend(_rule(problem, rule, on_node, totals))
        failures.extend(_follow(problem, on_node))
        if not problem.maximize and not failures:
            failures = _surplus(problem, on_node, totals)
    elif not problem.maximize and not failures:
        failures = _surplus(problem, [], totals)
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
    """Pods and amounts on every node that takes a pod. Where 64 bits could overflow, in Python integers."""
    failures: list[str] = []
    view = problem.nodes
    touched = (
        rows[0][0] if len(rows) == 1 else np.unique(np.concatenate([np.zeros(0, np.int64), *(n for n, _ in rows)]))
    )
    names = [view.names[node] for node in touched.tolist()]
    rows = [(np.searchsorted(touched, nodes), counts) for nodes, counts in rows]
    pods = np.zeros(touched.size, dtype=np.int64)
    for nodes, counts in rows:
        pods[nodes] += counts
    slots = view.slots[touched]
    full = np.flatnonzero(pods > slots).tolist()
    failures.extend(f"{names[n]}: {pods[n]} pods, {slots[n]} slots" for n in full)
    for resource, name in enumerate(view.resources):
        needs = [int(demand.requests[resource]) for demand in problem.demands]
        once = [rule for rule in problem.rules if isinstance(rule, Once) and rule.resource == name and rule.amount]
        if not any(needs) and not once:
            continue
        most = sum(need * total for need, total in zip(needs, totals, strict=True)) + sum(rule.amount for rule in once)
        small = most < 2**62
        used = np.zeros(touched.size, dtype=np.int64 if small else object)
        asked = np.zeros(touched.size, dtype=np.bool_)
        for need, (nodes, counts) in zip(needs, rows, strict=True):
            if need:
                used[nodes] += need * (counts if small else counts.astype(object))
                asked[nodes] = True
        for rule in once:
            hosts = np.zeros(touched.size, dtype=np.bool_)
            for demand in rule.demands:
                hosts[rows[demand][0]] = True
            hosts &= ~rule.already[touched]
            used[hosts] += rule.amount
            asked |= hosts
        free = view.free[resource, touched]
        over = np.flatnonzero(asked & (used > free)).tolist()
        failures.extend(f"{names[n]}: {used[n]} {name} asked, {free[n]} free" for n in over)
    return failures


def _devices(problem: PlacementProblem, rows: list[Row]) -> list[str]:
    """On every node each pod has devices of its own, and nothing is taken beyond what is left of one."""
    asked: dict[tuple[str, int], list[tuple[int, int]]] = {}
    for demand, (nodes, pods) in zip(problem.demands, rows, strict=True):
        ask = demand.devices
        if ask is None:
            continue
        for node, count in zip(nodes.tolist(), pods.tolist(), strict=True):
            asked.setdefault((ask.pool, node), []).extend([(ask.amount, ask.count)] * count)
    failures = []
    for (pool, node), each in asked.items():
        left = tuple(sorted(problem.nodes.devices[pool].free[:, node].tolist()))
        if not _seated(left, tuple(sorted(each, reverse=True)), set()):
            failures.append(f"{problem.nodes.names[node]}: {pool} left {list(left)}, asked (amount, devices) {each}")
    return failures


def _seated(left: tuple[int, ...], asked: tuple[tuple[int, int], ...], tried: set[tuple[tuple[int, ...], int]]) -> bool:
    """Whether the devices hold all that is asked; every choice of devices for the first pod is tried."""
    if not asked:
        return True
    if (left, len(asked)) in tried:
        return False
    tried.add((left, len(asked)))
    (amount, count), later = asked[0], asked[1:]
    able = [device for device, rest in enumerate(left) if rest >= amount]
    for chosen in combinations(able, count):
        after = list(left)
        for device in chosen:
            after[device] -= amount
        if _seated(tuple(sorted(after)), later, tried):
            return True
    return False


def _rule(problem: PlacementProblem, rule: Rule, on_node: list[dict[int, int]], totals: list[int]) -> list[str]:
    match rule:
        case Minimum(demands, count):
            placed = sum(totals[demand] for demand in set(demands))
            return [f"{placed} placed, {rule}"] if placed < count else []
        case AtMost(weights, limit):
            weight = sum(each * totals[demand] for demand, each in weights)
            return [f"weight {weight}, {rule}"] if weight > limit else []
        case Within() | AtMostDomains():
            return _domains(problem, rule, on_node)
        case Segments() | AtMostGroups():
            return _segments(problem, rule, on_node) if isinstance(rule, Segments) else _groups(problem, rule, on_node)
        case Apart(level, limit, demands_or_all):
            sums: dict[int, int] = {}
            for demand in _of(problem, demands_or_all):
                for node, count in on_node[demand].items():
                    domain = _domain(problem, level, node)
                    sums[domain] = sums.get(domain, 0) + count
            sums.pop(-1, None)
            return [f"{sums[d]} in domain {d}, {rule}" for d in sorted(sums) if sums[d] > limit]
        case Parts(parts, least):
            return _parts(parts, least, totals, "all")
        case Repel(level, carriers, targets):
            return _repel(problem, rule, level, set(carriers), set(targets), on_node)
        case Spread():
            return _spread(problem, rule, on_node)
        case Cap(level, weights, limits):
            sums = {}
            for demand, weight in weights:
                for node, count in on_node[demand].items():
                    domain = _domain(problem, level, node)
                    sums[domain] = sums.get(domain, 0) + weight * count
            sums.pop(-1, None)
            over = [d for d in sorted(sums) if sums[d] > limits[d]]
            return [f"weight {sums[d]} in domain {d} of {level!r}, at most {limits[d]}" for d in over]
        case Balanced() | Follow() | Once():
            return []  # a preference; all of them together, in `_follow` and in `_capacity`
        case _:
            raise UnsupportedRule(f"{type(rule).__name__}: this rule is not supported")


def _domains(problem: PlacementProblem, rule: Within | AtMostDomains, on_node: list[dict[int, int]]) -> list[str]:
    """In how many domains pods are."""
    ids = {_domain(problem, rule.level, node) for d in _of(problem, rule.demands) for node in on_node[d]}
    if isinstance(rule, Within):
        broken = rule.hard and (len(ids) > 1 or -1 in ids)
    else:
        broken = bool(ids) and (-1 in ids or len(ids | set(rule.present)) > rule.limit)
    return [f"in domains {sorted(ids)}, {rule}"] if broken else []


def _groups(problem: PlacementProblem, rule: AtMostGroups, on_node: list[dict[int, int]]) -> list[str]:
    """The domains that receive a group and then hold too many."""
    before: dict[int, set[int]] = {}
    for domain, group in rule.present:
        before.setdefault(domain, set()).add(group)
    placed: dict[int, set[int]] = {}
    for number, demands in enumerate(rule.groups):
        for demand in demands:
            for node in on_node[demand]:
                placed.setdefault(_domain(problem, rule.level, node), set()).add(number)
    placed.pop(-1, None)
    there = {domain: groups | before.get(domain, set()) for domain, groups in placed.items()}
    over = [d for d in sorted(there) if len(there[d]) > rule.limit and placed[d] - before.get(d, set())]
    return [f"groups {sorted(there[d])} in domain {d}, {rule}" for d in over]


def _segments(problem: PlacementProblem, rule: Segments, on_node: list[dict[int, int]]) -> list[str]:
    """The domains that receive pods and then do not hold a multiple of the size."""
    placed: dict[int, int] = {}
    for demand in _of(problem, rule.demands):
        for node, count in on_node[demand].items():
            domain = _domain(problem, rule.level, node)
            placed[domain] = placed.get(domain, 0) + count
    held = {domain: count + dict(rule.present).get(domain, 0) for domain, count in placed.items()}
    return [f"{held[d]} in domain {d}, {rule}" for d in sorted(held) if d < 0 or held[d] % rule.size]


def _parts(parts: tuple[Part, ...], least: int, totals: list[int], name: str) -> list[str]:
    """What is neither whole nor absent of some parts, and how many are missing."""
    placed = [part for part in parts if any(totals[demand] for demand in part.demands)]
    failures = [f"{len(placed)} parts of {name} placed, at least {least}"] if len(placed) < least else []
    for part in placed:
        pods = sum(totals[demand] for demand in set(part.demands))
        if pods < part.minimum:
            failures.append(f"part {part.demands}: {pods} placed, at least {part.minimum} or none")
        failures.extend(_parts(part.parts, part.least, totals, f"part {part.demands}"))
    return failures


def _repel(
    problem: PlacementProblem,
    rule: Repel,
    level: str,
    carriers: set[int],
    targets: set[int],
    on_node: list[dict[int, int]],
) -> list[str]:
    """In each domain, the pairs of a carrier and another pod that it repels: there must be none."""
    of: dict[int, list[int]] = {}
    for demand in carriers | targets:
        for node, count in on_node[demand].items():
            held = of.setdefault(_domain(problem, level, node), [0, 0, 0])
            held[0] += count * (demand in carriers)
            held[1] += count * (demand in targets)
            held[2] += count * (demand in carriers and demand in targets)
    of.pop(-1, None)
    return [f"repelled in domain {d}, {rule}" for d, (ours, theirs, both) in sorted(of.items()) if ours * theirs > both]


def _spread(problem: PlacementProblem, rule: Spread, on_node: list[dict[int, int]]) -> list[str]:
    ids = np.arange(len(problem.nodes.names)) if rule.level == NODE else problem.nodes.domains[rule.level]
    known = np.unique(ids[rule.nodes & (ids >= 0)])
    held = rule.present.copy()
    for demand in set(rule.counted):
        for node, count in on_node[demand].items():
            if rule.nodes[node] and ids[node] >= 0:
                held[ids[node]] += count
    receiving = {int(ids[node]) for demand in set(rule.carriers) for node in on_node[demand]}
    least = 0 if known.size < rule.min_domains else int(held[known].min())
    failures = [f"spread over {rule.level!r}: on a node without the label"] if -1 in receiving else []
    failures.extend(
        f"spread over {rule.level!r}: {held[domain]} in domain {domain}, the least is {least}"
        for domain in sorted(receiving - {-1})
        if held[domain] - least > rule.max_skew
    )
    return failures


def _follow(problem: PlacementProblem, on_node: list[dict[int, int]]) -> list[str]:
    """Whether some order of placing keeps all `Follow` rules together."""
    rules = [rule for rule in problem.rules if isinstance(rule, Follow)]
    for rule in rules:
        for demand in set(rule.followers):
            for node in on_node[demand]:
                if any(_domain(problem, level, node) < 0 for level in rule.levels):
                    return [f"{problem.demands[demand].name}: on {problem.nodes.names[node]} without a followed label"]
    if not rules or any(_order(problem, rules, firsts, on_node) for firsts in _firsts(problem, rules, on_node)):
        return []
    return [f"no order in which each pod finds those that it follows, {len(rules)} Follow"]


_Cell: TypeAlias = tuple[int, int]
"""A demand and a node that hosts pods of it."""


def _firsts(
    problem: PlacementProblem, rules: list[Follow], on_node: list[dict[int, int]]
) -> Iterator[tuple[_Cell | None, ...]]:
    """Yield, for all rules together, which pod is placed before all others that are followed; None: no such pod is
    needed. Of nodes that are alike to the rules, one is tried."""
    levels = sorted({level for rule in rules for level in rule.levels})
    choices: list[list[_Cell | None]] = []
    for rule in rules:
        alike: dict[tuple[int, ...], _Cell] = {}
        for demand in sorted(set(rule.followers) & set(rule.targets)) if rule.first else ():
            for node in on_node[demand]:
                alike.setdefault((demand, *(_domain(problem, level, node) for level in levels)), (demand, node))
        choices.append([None, *alike.values()])
    yield from product(*choices)


def _order(
    problem: PlacementProblem, rules: list[Follow], firsts: tuple[_Cell | None, ...], on_node: list[dict[int, int]]
) -> bool:
    """Place whatever may be placed, until nothing changes; True when everything is placed."""
    waiting = [(demand, node) for demand, row in enumerate(on_node) for node in row]
    holds = [
        {
            (level, int(d))
            for level, present in zip(rule.levels, rule.present, strict=True)
            for d in np.flatnonzero(present)
        }
        for rule in rules
    ]
    begun = [first is None for first in firsts]
    while waiting:
        left: list[_Cell] = []
        for cell in waiting:
            demand, node = cell
            allowed = True
            for number, rule in enumerate(rules):
                own = firsts[number] == cell
                if demand in rule.targets and not begun[number] and not own:
                    allowed = False
                if demand in rule.followers and not own:
                    around = [(level, _domain(problem, level, node)) for level in rule.levels]
                    allowed &= all(place in holds[number] for place in around)
            if not allowed:
                left.append(cell)
                continue
            for number, rule in enumerate(rules):
                begun[number] |= firsts[number] == cell
                if demand in rule.targets:
                    holds[number].update((level, _domain(problem, level, node)) for level in rule.levels)
        if len(left) == len(waiting):
            return False
        waiting = left
    return True


def _surplus(problem: PlacementProblem, on_node: list[dict[int, int]], totals: list[int]) -> list[str]:
    """Return the demands of which a pod, and the parts that as a whole could be taken away without breaking a rule."""
    failures = []
    for number, demand in enumerate(problem.demands):
        fewer = [count - (place == number) for place, count in enumerate(totals)]
        if totals[number] and _enough(problem, fewer) and _removable(problem, on_node, number):
            failures.append(f"{demand.name}: {totals[number]} placed, more than the minimums ask for")
    waiting = [part for rule in problem.rules if isinstance(rule, Parts) for part in rule.parts]
    while waiting:
        part = waiting.pop()
        waiting.extend(part.parts)
        fewer = [0 if place in part.demands else count for place, count in enumerate(totals)]
        if fewer != totals and _enough(problem, fewer):
            left = [{} if place in part.demands else row for place, row in enumerate(on_node)]
            if _stands(problem, left):
                failures.append(f"part {part.demands}: placed, more than the minimums ask for")
    return failures


def _enough(problem: PlacementProblem, totals: list[int]) -> bool:
    """Whether so many pods are as many as the minimums ask for, and parts whole or absent."""
    return all(total >= demand.minimum for demand, total in zip(problem.demands, totals, strict=True)) and not any(
        _rule(problem, rule, [], totals) for rule in problem.rules if isinstance(rule, Minimum | Parts)
    )


def _removable(problem: PlacementProblem, on_node: list[dict[int, int]], demand: int) -> bool:
    """Whether what is not closed downwards is kept without one pod of a demand, which no minimum needs."""
    if not any(isinstance(rule, Spread | Follow | Segments) for rule in problem.rules):
        return True
    for node, count in on_node[demand].items():
        fewer = list(on_node)
        fewer[demand] = {n: c for n, c in on_node[demand].items() if n != node} | (
            {node: count - 1} if count > 1 else {}
        )
        if _stands(problem, fewer):
            return True
    return False


def _stands(problem: PlacementProblem, on_node: list[dict[int, int]]) -> bool:
    """Whether the rules hold that fewer pods may break, minimums aside."""
    broken = any(_rule(problem, rule, on_node, []) for rule in problem.rules if isinstance(rule, Spread | Segments))
    return not broken and not _follow(problem, on_node)


def _of(problem: PlacementProblem, demands: tuple[int, ...] | None) -> set[int]:
    return set(range(len(problem.demands))) if demands is None else set(demands)


def _domain(problem: PlacementProblem, level: str, node: int) -> int:
    return node if level == NODE else int(problem.nodes.domains[level][node])
