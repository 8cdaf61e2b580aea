"""Whether a problem means anything: shapes, ranges, and rules that name what there is."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from scheduler.model.rules import Cap, Follow, MemberRule, Once, Repel, Spread
from scheduler.placement.problem import (
    NODE,
    Apart,
    AtMost,
    AtMostDomains,
    AtMostGroups,
    BadProblem,
    Balanced,
    Demand,
    DeviceAsk,
    Devices,
    Minimum,
    NodeView,
    Part,
    Parts,
    PlacementProblem,
    Rule,
    Segments,
    UnsupportedRule,
    Within,
)


def check_problem(problem: PlacementProblem) -> None:
    """Raise `BadProblem` for what means nothing."""
    nodes = problem.nodes
    size, width = len(nodes.names), len(nodes.resources)
    if nodes.free.shape != (width, size):
        raise BadProblem(f"nodes.free: shape {nodes.free.shape} is not resources by nodes ({width}, {size})")
    if nodes.slots.shape != (size,):
        raise BadProblem(f"nodes.slots: shape {nodes.slots.shape} is not ({size},)")
    if problem.objective not in ("scores", "pack", "spread"):
        raise BadProblem(f"objective: {problem.objective!r} is not scores, pack or spread")
    for name, pool in nodes.devices.items():
        _check_pool(pool, size, f"nodes.devices[{name!r}]")
    names: set[str] = set()
    for demand in problem.demands:
        if demand.name in names:
            raise BadProblem(f"demand {demand.name!r}: the name is used twice")
        names.add(demand.name)
        _check_demand(nodes, demand, f"demand {demand.name!r}")
    for number, rule in enumerate(problem.rules):
        _check_rule(problem, rule, f"rule {number} ({type(rule).__name__})")


def _check_demand(nodes: NodeView, demand: Demand, where: str) -> None:
    size, width = len(nodes.names), len(nodes.resources)
    if demand.requests.shape != (width,):
        raise BadProblem(f"{where}.requests: shape {demand.requests.shape} is not ({width},)")
    if width and int(demand.requests.min()) < 0:
        raise BadProblem(f"{where}.requests: negative")
    if not 0 <= demand.minimum <= demand.count:
        raise BadProblem(f"{where}: minimum {demand.minimum} is not between 0 and count {demand.count}")
    if demand.max_per_node is not None and demand.max_per_node < 0:
        raise BadProblem(f"{where}.max_per_node: {demand.max_per_node} is negative")
    for field_name, row in (("mask", demand.mask), ("scores", demand.scores)):
        if row is not None and row.shape != (size,):
            raise BadProblem(f"{where}.{field_name}: shape {row.shape} is not ({size},)")
    if demand.devices is not None:
        _check_ask(nodes, demand.devices, f"{where}.devices")


def _check_pool(pool: Devices, size: int, where: str) -> None:
    if pool.free.ndim != 2 or pool.free.shape[1] != size:
        raise BadProblem(f"{where}.free: shape {pool.free.shape} is not devices by {size} nodes")
    if pool.size < 1:
        raise BadProblem(f"{where}.size: {pool.size} is less than 1")
    if int(pool.free.min(initial=0)) < 0 or int(pool.free.max(initial=0)) > pool.size:
        raise BadProblem(f"{where}.free: not between 0 and the size {pool.size}")


def _check_ask(nodes: NodeView, ask: DeviceAsk, where: str) -> None:
    pool = nodes.devices.get(ask.pool)
    if pool is None:
        raise BadProblem(f"{where}.pool: there is no pool {ask.pool!r}")
    if ask.pool in nodes.resources:
        raise BadProblem(f"{where}.pool: {ask.pool!r} is the name of a resource too")
    if ask.count < 1:
        raise BadProblem(f"{where}.count: {ask.count} is less than 1")
    if not 1 <= ask.amount <= pool.size:
        raise BadProblem(f"{where}.amount: {ask.amount} is not between 1 and the size {pool.size}")
    if ask.count > 1 and ask.amount < pool.size:
        raise BadProblem(f"{where}.amount: {ask.count} devices are taken whole, not {ask.amount} of {pool.size} each")


def _check_rule(problem: PlacementProblem, rule: Rule, where: str) -> None:
    match rule:
        case Minimum(demands, count):
            used: tuple[int, ...] = demands
            if count < 0:
                raise BadProblem(f"{where}.count: {count} is negative")
        case AtMost(weights, _):
            used = _check_weights(weights, where)
        case Within(level, _, demands_or_all):
            used = demands_or_all or ()
            _check_level(problem, level, where)
        case Apart(level, limit, demands_or_all):
            used = demands_or_all or ()
            if limit < 0:
                raise BadProblem(f"{where}.limit: {limit} is negative")
            _check_level(problem, level, where)
        case AtMostGroups():
            used = _check_groups(problem, rule, where)
        case AtMostDomains() | Segments() | Balanced():
            used = _check_domain_rule(problem, rule, where)
        case Parts(parts, least):
            used = tuple(demand for part in parts for demand in part.demands)
            _check_parts(parts, least, where)
        case _:
            used = _check_member_rule(problem, rule, where)
    for demand in used:
        if not 0 <= demand < len(problem.demands):
            raise BadProblem(f"{where}: there is no demand {demand}")


def _check_domain_rule(
    problem: PlacementProblem, rule: AtMostDomains | Segments | Balanced, where: str
) -> tuple[int, ...]:
    """Return the demands that it names."""
    _check_level(problem, rule.level, where)
    if isinstance(rule, AtMostDomains):
        if rule.limit < 0:
            raise BadProblem(f"{where}.limit: {rule.limit} is negative")
        present = rule.present
    else:
        if isinstance(rule, Segments) and rule.size < 1:
            raise BadProblem(f"{where}.size: {rule.size} is less than 1")
        present = tuple(domain for domain, _ in rule.present)
        if any(pods < 0 for _, pods in rule.present):
            raise BadProblem(f"{where}.present: negative")
    if len(set(present)) < len(present):
        raise BadProblem(f"{where}.present: a domain is named twice")
    if any(domain < 0 for domain in present):
        raise BadProblem(f"{where}.present: nodes without the label are no domain")
    return rule.demands or ()


def _check_groups(problem: PlacementProblem, rule: AtMostGroups, where: str) -> tuple[int, ...]:
    """Return the demands that it names."""
    _check_level(problem, rule.level, where)
    if rule.limit < 0:
        raise BadProblem(f"{where}.limit: {rule.limit} is negative")
    used = tuple(demand for group in rule.groups for demand in group)
    if len(set(used)) < len(used):
        raise BadProblem(f"{where}.groups: a demand is named twice")
    for domain, group in rule.present:
        if domain < 0:
            raise BadProblem(f"{where}.present: nodes without the label are no domain")
        if not 0 <= group < len(rule.groups):
            raise BadProblem(f"{where}.present: there is no group {group}")
    return used


def _check_parts(parts: tuple[Part, ...], least: int, where: str) -> None:
    if not 0 <= least <= len(parts):
        raise BadProblem(f"{where}.least: {least} is not between 0 and the {len(parts)} parts")
    seen: set[int] = set()
    for number, part in enumerate(parts):
        here = f"{where}.parts[{number}]"
        mine = set(part.demands)
        if seen & mine:
            raise BadProblem(f"{here}.demands: demand {min(seen & mine)} is in two parts")
        seen |= mine
        if part.minimum < 0:
            raise BadProblem(f"{here}.minimum: {part.minimum} is negative")
        if not {demand for inner in part.parts for demand in inner.demands} <= mine:
            raise BadProblem(f"{here}.parts: one of them has a demand that the part has not")
        _check_parts(part.parts, part.least, here)


def _check_member_rule(problem: PlacementProblem, rule: MemberRule, where: str) -> tuple[int, ...]:
    """Return the demands that it names."""
    match rule:
        case Repel(level, carriers, targets):
            _check_level(problem, level, where)
            return (*carriers, *targets)
        case Follow():
            _check_follow(problem, rule, where)
            return (*rule.followers, *rule.targets)
        case Spread():
            _check_level(problem, rule.level, where)
            _check_amounts(problem, rule.level, rule.present, f"{where}.present")
            _check_nodes(problem, rule.nodes, f"{where}.nodes")
            for field_name, number in (("max_skew", rule.max_skew), ("min_domains", rule.min_domains)):
                if number < 1:
                    raise BadProblem(f"{where}.{field_name}: {number} is less than 1")
            return (*rule.carriers, *rule.counted)
        case Cap(level, weights, limits):
            _check_level(problem, level, where)
            _check_amounts(problem, level, limits, f"{where}.limits")
            return _check_weights(weights, where)
        case Once():
            if rule.resource not in problem.nodes.resources:
                raise BadProblem(f"{where}.resource: there is no resource {rule.resource!r}")
            if rule.amount < 0:
                raise BadProblem(f"{where}.amount: {rule.amount} is negative")
            _check_nodes(problem, rule.already, f"{where}.already")
            return rule.demands
        case _:
            raise UnsupportedRule(f"{where}: this rule is not supported")


def _check_follow(problem: PlacementProblem, rule: Follow, where: str) -> None:
    if not rule.levels:
        raise BadProblem(f"{where}.levels: none is given")
    if len(rule.present) != len(rule.levels):
        raise BadProblem(f"{where}.present: {len(rule.present)} arrays for {len(rule.levels)} levels")
    for level, present in zip(rule.levels, rule.present, strict=True):
        _check_level(problem, level, where)
        _check_domains(problem, level, present.shape, f"{where}.present")
        if rule.first and present.any():
            raise BadProblem(f"{where}.first: nobody is the first, a followed pod is present in a domain of {level!r}")


def _check_weights(weights: tuple[tuple[int, int], ...], where: str) -> tuple[int, ...]:
    used = tuple(demand for demand, _ in weights)
    if any(weight < 0 for _, weight in weights):
        raise BadProblem(f"{where}.weights: negative")
    if len(set(used)) < len(used):
        raise BadProblem(f"{where}.weights: a demand is named twice")
    return used


def _check_level(problem: PlacementProblem, level: str, where: str) -> None:
    if level == NODE:
        return
    ids = problem.nodes.domains.get(level)
    if ids is None:
        raise BadProblem(f"{where}.level: no domains are given for {level!r}")
    if ids.shape != (len(problem.nodes.names),):
        raise BadProblem(f"{where}.level: the domains of {level!r} have shape {ids.shape}")


def _check_nodes(problem: PlacementProblem, row: NDArray[np.bool_], where: str) -> None:
    if row.shape != (len(problem.nodes.names),):
        raise BadProblem(f"{where}: shape {row.shape} is not ({len(problem.nodes.names)},)")


def _check_amounts(problem: PlacementProblem, level: str, amounts: NDArray[np.int64], where: str) -> None:
    _check_domains(problem, level, amounts.shape, where)
    if int(amounts.min(initial=0)) < 0:
        raise BadProblem(f"{where}: negative")


def _check_domains(problem: PlacementProblem, level: str, shape: tuple[int, ...], where: str) -> None:
    size = len(problem.nodes.names)
    count = size if level == NODE else int(problem.nodes.domains[level].max(initial=-1)) + 1
    if len(shape) != 1 or shape[0] < count:
        raise BadProblem(f"{where}: shape {shape} does not cover the {count} domains of {level!r}")
