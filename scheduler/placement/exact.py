"""The exact searches: patterns where combinations are few, else one integer for each kind and node; domain by domain.

Decided here: which model decides which segment, in which order (the roomiest first, because it is the likeliest to
hold the gang and its "no" often covers others), and when the answer counts as proven.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scheduler.placement.bounds import Bounds
from scheduler.placement.composition import Composition
from scheduler.placement.cpsat import LARGEST_MODEL, Clock, Model, Result, Status
from scheduler.placement.greedy import Draft, settle
from scheduler.placement.instance import Instance, Ints
from scheduler.placement.patterns import Classes, classify
from scheduler.placement.problem import Method, Part
from scheduler.placement.rows import Cells, cells_of, domain_rows
from scheduler.placement.standing import grouping

_LARGEST_CROSSING = 40_000
"""Most integers where pods spread or follow: what they share makes larger models outlast any limit on time."""
_GROUPS = 512
"""Most groups of nodes in different domains for which patterns are counted; beyond it integers cost less."""


@dataclass(slots=True, eq=False)
class Found:
    """proven: the draft is the best, or without a draft, there is none."""

    draft: Draft | None
    proven: bool
    method: Method


@dataclass(slots=True, eq=False)
class _Search:
    instance: Instance
    bounds: Bounds
    methods: Collection[Method]
    clock: Clock
    best: Draft | None
    method: Method
    proven: bool = True
    runs: int = 0


def solve(
    instance: Instance,
    bounds: Bounds,
    draft: Draft | None,
    methods: Collection[Method],
    clock: Clock | None = None,
) -> Found:
    """Return the exact answer, or the best known when the budget ends. `draft`: the incumbent to beat."""
    problem = instance.problem
    clock = clock or Clock(problem.budget, problem.seed)
    search = _Search(instance, bounds, methods, clock, draft, "greedy")
    ids = instance.segment_ids()
    segments = [int(s) for s in np.lexsort((-bounds.room,)) if bounds.alive[s]]
    alive = (ids >= 0) & bounds.alive[np.maximum(ids, 0)]
    group = grouping(instance)
    several = any(sum(k.ask is not None and k.ask.pool == name for k in instance.kinds) > 1 for name in instance.pools)
    simple = "pattern" in methods and not instance.shared and not several and int(group.max(initial=0)) < _GROUPS
    classes = _classes(instance, alive, group) if simple else None
    refused: list[Ints] = []
    for segment in segments:
        nodes = alive & (ids == segment)
        if search.best is not None and _most(instance, bounds, segment) <= sum(search.best.counts):
            continue
        here = classes
        sizes = None
        if classes is not None:
            sizes = _sizes(classes, nodes)
            if any((sizes <= other).all() for other in refused):
                continue
        elif simple and len(segments) > 1:
            here = _classes(instance, nodes, group)
        if search.runs >= problem.budget.max_domains:
            search.proven = False
            break
        search.runs += 1
        status = _segment(search, segment, nodes, here)
        if status is Status.IMPOSSIBLE and sizes is not None and not problem.maximize:
            refused.append(sizes)
        if status is Status.UNKNOWN or (status is Status.BETTER and problem.maximize):
            search.proven = False
        if search.best is not None and not problem.maximize:
            return Found(search.best, True, search.method)
    return Found(search.best, search.proven, search.method)


def _classes(instance: Instance, nodes: NDArray[np.bool_], group: Ints) -> Classes | None:
    """Return the classes of these nodes; nodes in different domains of any rule are in different classes."""
    classes = classify(instance, nodes)
    return classes if classes is None or not group.any() else classes.split(group)


def _most(instance: Instance, bounds: Bounds, segment: int) -> int:
    highs = [sum(instance.composition.highs[d] for d in kind.members) for kind in instance.kinds]
    return sum(min(high, int(bounds.fits[number, segment])) for number, high in enumerate(highs))


def _sizes(classes: Classes, nodes: NDArray[np.bool_]) -> Ints:
    picked = classes.class_of[nodes]
    return np.bincount(picked[picked >= 0], minlength=len(classes.patterns)).astype(np.int64)


def _segment(search: _Search, segment: int, nodes: NDArray[np.bool_], classes: Classes | None) -> Status:
    """Decide one segment; a better answer becomes the best one."""
    if classes is not None:
        status = _by_patterns(search, segment, nodes, classes)
        if status is not Status.UNKNOWN:
            return status
    if "integer" in search.methods:
        return _by_integers(search, segment, nodes)
    return Status.UNKNOWN


def composition_rows(instance: Instance, model: Model) -> list[int]:
    """Add one variable for each demand, and the rows of the composition."""
    composition = instance.composition
    counts = [model.variable(low, high) for low, high in zip(composition.lows, composition.highs, strict=True)]
    for demands, count in composition.floors:
        model.row([counts[d] for d in demands], [1] * len(demands), count, None)
    for weights, limit in composition.ceilings:
        model.row([counts[d] for d in weights], list(weights.values()), None, limit)
    for rule in composition.parts:
        _part_rows(composition, model, counts, rule.parts, rule.least, None)
    return counts


def _part_rows(
    composition: Composition, model: Model, counts: list[int], parts: Sequence[Part], least: int, within: int | None
) -> None:
    """Each part is whole or absent; at least so many are placed. within: whether what they are of is placed."""
    flags = [model.variable(0, 1) for _ in parts]
    if within is None:
        model.row(flags, [1] * len(flags), least, None)
    else:
        model.row([*flags, within], [*[1] * len(flags), -least], 0, None)
    for part, flag in zip(parts, flags, strict=True):
        demands = tuple(dict.fromkeys(part.demands))
        mine = [counts[d] for d in demands]
        model.row([*mine, flag], [*[1] * len(mine), -sum(composition.highs[d] for d in demands)], None, 0)
        model.row([*mine, flag], [*[1] * len(mine), -max(1, part.minimum)], 0, None)
        _part_rows(composition, model, counts, part.parts, part.least, flag)


def demand_rows(instance: Instance, model: Model, best: Draft | None = None) -> list[int]:
    """As `composition_rows`, with the objective; with `maximize` more than the incumbent."""
    composition, counts = instance.composition, composition_rows(instance, model)
    if instance.problem.maximize:
        if best is not None:
            model.row(counts, [1] * len(counts), sum(best.counts) + 1, None)
        model.maximize(counts)
    elif (instance.open or composition.parts) and composition.lows != composition.highs:
        model.minimize(counts)
    return counts


def _take(search: _Search, result: Result, x: Ints, counts: list[int], segment: int, method: Method) -> Status:
    """Make a solution the best one."""
    draft = Draft(x, [result.values[number] for number in counts], segment)
    if not search.instance.problem.maximize:
        settle(search.instance, draft)
    search.best, search.method = draft, method
    return result.status


def _lower(x: Ints, kind: int, inside: NDArray[np.intp], wanted: int) -> None:
    """Take away the pods of some nodes that patterns hold beyond what is wanted there."""
    surplus = int(x[kind, inside].sum()) - wanted
    if surplus > 0:
        nodes = inside[np.flatnonzero(x[kind, inside])]
        order = nodes[np.argsort(x[kind, nodes], kind="stable")]
        held = x[kind, order]
        x[kind, order] -= np.clip(surplus - (np.cumsum(held) - held), 0, held)


def _cover_rows(
    instance: Instance,
    model: Model,
    counts: list[int],
    cover: list[dict[int, tuple[list[int], list[int]]]],
    classes: Classes,
) -> Cells:
    """Add what patterns hold as an upper bound of the pods of each kind in each group, and their sum as its pods."""
    pods: list[dict[int, tuple[int, int]]] = []
    for number, kind in enumerate(instance.kinds):
        high = sum(instance.composition.highs[d] for d in kind.members)
        here: dict[int, tuple[int, int]] = {}
        for one, (variables, weights) in sorted(cover[number].items()):
            most = min(high, model.most(variables, weights))
            held = model.variable(0, most)
            model.row([*variables, held], [*weights, -1], 0, None)
            here[one] = (held, most)
        mine = [counts[d] for d in kind.members]
        model.row([*(held for held, _ in here.values()), *mine], [*[1] * len(here), *[-1] * len(mine)], 0, 0)
        pods.append(here)
    group = classes.group_of
    node = np.zeros(1, dtype=np.int64) if group is None else np.unique(group, return_index=True)[1].astype(np.int64)
    return Cells(pods, node)


def _by_patterns(search: _Search, segment: int, nodes: NDArray[np.bool_], classes: Classes) -> Status:
    """How many nodes of each class use which pattern."""
    instance = search.instance
    sizes = _sizes(classes, nodes)
    model = Model()
    counts = demand_rows(instance, model, search.best)
    cover: list[dict[int, tuple[list[int], list[int]]]] = [{} for _ in instance.kinds]
    used: list[tuple[int, Ints, int]] = []
    for number, patterns in enumerate(classes.patterns):
        size = int(sizes[number])
        if size == 0 or not len(patterns):
            continue
        if model.size + len(patterns) > LARGEST_MODEL:
            return Status.UNKNOWN
        here = []
        for pattern in patterns:
            variable = model.variable(0, size)
            here.append(variable)
            used.append((number, pattern, variable))
            for kind in np.flatnonzero(pattern).tolist():
                held = cover[kind].setdefault(classes.group(number), ([], []))
                held[0].append(variable)
                held[1].append(int(pattern[kind]))
        model.row(here, [1] * len(here), None, size)
    cells = _cover_rows(instance, model, counts, cover, classes)
    domain_rows(instance, model, cells)
    result = model.solve(search.clock)
    if result.status not in (Status.FOUND, Status.BETTER):
        return result.status
    x = np.zeros((len(instance.kinds), instance.size), dtype=np.int64)
    free = {n: iter(np.flatnonzero(nodes & (classes.class_of == n)).tolist()) for n, _, _ in used}
    for number, pattern, variable in used:
        for _ in range(result.values[variable]):
            x[:, next(free[number])] = pattern
    for kind, inside_of in enumerate(cells.pods):
        for one, (variable, _) in inside_of.items():
            inside = np.flatnonzero(classes.group_of == one) if classes.group_of is not None else np.arange(x.shape[1])
            _lower(x, kind, inside, result.values[variable])
    return _take(search, result, x, counts, segment, "pattern")


def _by_integers(search: _Search, segment: int, nodes: NDArray[np.bool_]) -> Status:
    """How many pods of each kind are on each node."""
    instance = search.instance
    caps = [np.where(nodes, kind.cap, 0) for kind in instance.kinds]
    largest = _LARGEST_CROSSING if instance.open else LARGEST_MODEL
    if sum(int(np.count_nonzero(cap)) for cap in caps) > largest:
        return Status.UNKNOWN
    model = Model()
    counts = demand_rows(instance, model, search.best)
    variables: list[dict[int, int]] = []
    for number, cap in enumerate(caps):
        hosts = np.flatnonzero(cap).tolist()
        variables.append({node: model.variable(0, int(cap[node])) for node in hosts})
        mine = [counts[d] for d in instance.kinds[number].members]
        placed = list(variables[number].values())
        model.row([*placed, *mine], [*[1] * len(placed), *[-1] * len(mine)], 0, 0)
    _node_rows(instance, model, variables, caps, nodes)
    _device_rows(instance, model, variables, caps)
    domain_rows(instance, model, cells_of(model, variables, caps, grouping(instance)))
    result = model.solve(search.clock)
    if result.status not in (Status.FOUND, Status.BETTER):
        return result.status
    x = np.zeros((len(instance.kinds), instance.size), dtype=np.int64)
    for number, placed_on in enumerate(variables):
        for node, variable in placed_on.items():
            x[number, node] = result.values[variable]
    return _take(search, result, x, counts, segment, "integer")


def _node_rows(
    instance: Instance,
    model: Model,
    variables: list[dict[int, int]],
    caps: list[Ints],
    nodes: NDArray[np.bool_],
) -> None:
    """What holds on one node: amounts (also those that are spent once), apart, exclusive."""
    spent = [spent_once(instance, model, variables, caps, number) for number in range(len(instance.shared))]
    for row in range(len(instance.rows)):
        asking = [n for n, kind in enumerate(instance.kinds) if row in kind.rows]
        wanted = sum((caps[n].astype(np.float64) * float(instance.kinds[n].need[row]) for n in asking), np.float64(0))
        once = [(part.amount, flags) for part, flags in zip(instance.shared, spent, strict=True) if part.row == row]
        wanted = wanted + sum(amount for amount, _ in once)
        tight = np.flatnonzero(nodes & (wanted > instance.free[row] * (1 - 1e-9)))
        for node in tight.tolist():
            here = [n for n in asking if node in variables[n]]
            flags = [(amount, flag[node]) for amount, flag in once if node in flag]
            if len(here) + len(flags) > 1:
                needs = [*(int(instance.kinds[n].need[row]) for n in here), *(amount for amount, _ in flags)]
                held = [*(variables[n][node] for n in here), *(flag for _, flag in flags)]
                model.row(held, needs, None, int(instance.free[row, node]))
    apart_rows(instance, model, variables, caps, nodes)


def _device_rows(instance: Instance, model: Model, variables: list[dict[int, int]], caps: list[Ints]) -> None:
    """Which device each pod takes, where pods of several kinds could meet on the devices of a node.

    One kind alone is settled by its cap.
    """
    for name, pool in instance.pools.items():
        asks = {number: kind.ask for number, kind in enumerate(instance.kinds) if kind.ask and kind.ask.pool == name}
        for node in range(instance.size):
            here = [number for number in asks if node in variables[number]]
            if len(here) < 2:
                continue
            free = pool.free[:, node].tolist()
            taken: list[tuple[list[int], list[int]]] = [([], []) for _ in free]
            for number in here:
                ask = asks[number]
                seats = []
                for rest, (held, weights) in zip(free, taken, strict=True):
                    most = min(rest // ask.amount, int(caps[number][node]))
                    if most:
                        seats.append(model.variable(0, most))
                        held.append(seats[-1])
                        weights.append(ask.amount)
                model.row([*seats, variables[number][node]], [*[1] * len(seats), -ask.count], 0, 0)
            for rest, (held, weights) in zip(free, taken, strict=True):
                if model.most(held, weights) > rest:
                    model.row(held, weights, None, rest)


def apart_rows(
    instance: Instance,
    model: Model,
    variables: list[dict[int, int]],
    caps: list[Ints],
    nodes: NDArray[np.bool_],
) -> None:
    """Add who may not be on a node with whom, and how many of several kinds together."""
    several = [part for part in instance.node_limits if len(part[0]) > 1]
    for node in np.flatnonzero(nodes).tolist():
        for kinds, limit in several:
            here = [variables[n][node] for n in kinds if node in variables[n]]
            if len(here) > 1:
                model.row(here, [1] * len(here), None, limit)
        for part in instance.exclusions:
            if part.ids is not None:
                continue
            mine = [(variables[n][node], int(caps[n][node])) for n in part.ours if node in variables[n]]
            other = [(variables[n][node], int(caps[n][node])) for n in part.theirs if node in variables[n]]
            if mine and other:
                side = model.variable(0, 1)
                for variable, cap in mine:
                    model.row([variable, side], [1, -cap], None, 0)
                for variable, cap in other:
                    model.row([variable, side], [1, cap], None, cap)


def spent_once(
    instance: Instance, model: Model, variables: list[dict[int, int]], caps: list[Ints], number: int
) -> dict[int, int]:
    """Return, for each node that would pay it, whether a shared amount is spent there."""
    part = instance.shared[number]
    hosts = sorted({node for kind in part.kinds for node in variables[kind] if part.pays[node]})
    flags = {node: model.variable(0, 1) for node in hosts}
    for kind in part.kinds:
        for node, variable in variables[kind].items():
            if node in flags:
                model.row([variable, flags[node]], [1, -int(caps[kind][node])], None, 0)
    return flags
