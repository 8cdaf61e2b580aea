"""Rules over domains as rows of the solver's model.

The pods of a kind on nodes that are alike to all such rules are one variable, so that the rows cost per domain, not per
node. Decided here: how "an order exists" becomes rows (a time for each kind in each group, only where a circle of
kinds that follow each other makes one necessary).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from scheduler.placement.between import Crowd, Few, Following, Multiple, Spreading
from scheduler.placement.cpsat import Model
from scheduler.placement.instance import Instance, Ints


@dataclass(slots=True, eq=False)
class Cells:
    """pods: for each kind, (variable, most) of each group; node: one node of each group."""

    pods: list[dict[int, tuple[int, int]]]
    node: Ints

    def inside(self, kinds: Sequence[int], ids: Ints) -> dict[int, list[tuple[int, int]]]:
        """Return, for each domain, the (kind, group) of these kinds in it."""
        found: dict[int, list[tuple[int, int]]] = {}
        for kind in kinds:
            for group in self.pods[kind]:
                domain = int(ids[self.node[group]])
                if domain >= 0:
                    found.setdefault(domain, []).append((kind, group))
        return found


def domain_rows(instance: Instance, model: Model, cells: Cells) -> None:
    """Add the rows of all rules over domains."""
    for part in instance.domain_limits:
        for domain, here in sorted(cells.inside(list(part.weights), part.ids).items()):
            variables = [cells.pods[kind][group][0] for kind, group in here]
            model.row(variables, [part.weights[kind] for kind, _ in here], None, int(part.limits[domain]))
    for kinds, ids in instance.partial:
        inside = cells.inside(kinds, ids)
        chosen = {domain: _receives(model, cells, here) for domain, here in sorted(inside.items())}
        if len(chosen) > 1:
            model.row(list(chosen.values()), [1] * len(chosen), None, 1)
    for exclusion in instance.exclusions:
        if exclusion.ids is None:
            continue
        ours, theirs = cells.inside(exclusion.ours, exclusion.ids), cells.inside(exclusion.theirs, exclusion.ids)
        for domain in sorted(set(ours) & set(theirs)):
            sides = [_receives(model, cells, ours[domain]), _receives(model, cells, theirs[domain])]
            model.row(sides, [1, 1], None, 1)
    for spread in instance.spreads:
        _spread(model, cells, spread)
    for crowd in instance.crowds:
        _crowd(model, cells, crowd)
    for few in instance.few:
        _few(model, cells, few)
    for multiple in instance.multiples:
        _multiple(model, cells, multiple)
    if instance.follows:
        _Order(instance, model, cells).add()


def _receives(model: Model, cells: Cells, here: Sequence[tuple[int, int]]) -> int:
    """Return a variable that is 1 when any of the cells has a pod."""
    flag = model.variable(0, 1)
    for kind, group in here:
        variable, most = cells.pods[kind][group]
        model.row([variable, flag], [1, -most], None, 0)
    return flag


def _crowd(model: Model, cells: Cells, part: Crowd) -> None:
    """Of the groups that are not in a domain yet so many come as there is room for."""
    coming: dict[int, list[int]] = {}
    for group, kinds in enumerate(part.groups):
        for domain, here in sorted(cells.inside(kinds, part.ids).items()):
            if not part.present[group, domain]:
                coming.setdefault(domain, []).append(_receives(model, cells, here))
    for domain, flags in sorted(coming.items()):
        room = max(0, part.limit - int(part.present[:, domain].sum()))
        if len(flags) > room:
            model.row(flags, [1] * len(flags), None, room)


def _few(model: Model, cells: Cells, part: Few) -> None:
    inside = {d: here for d, here in sorted(cells.inside(part.kinds, part.ids).items()) if not part.present[d]}
    if len(inside) > part.new:
        used = [_receives(model, cells, here) for here in inside.values()]
        model.row(used, [1] * len(used), None, part.new)


def _multiple(model: Model, cells: Cells, part: Multiple) -> None:
    """Pods of a domain = size x a number (+ what is missing there, where it receives any)."""
    for domain, here in sorted(cells.inside(part.kinds, part.ids).items()):
        variables = [cells.pods[kind][group][0] for kind, group in here]
        weights = [1] * len(variables)
        more = int(part.more[domain])
        most = sum(cells.pods[kind][group][1] for kind, group in here)
        if more:
            variables, weights = [*variables, _receives(model, cells, here)], [*weights, -more]
        model.row([*variables, model.variable(0, most // part.size)], [*weights, -part.size], 0, 0)


def _spread(model: Model, cells: Cells, part: Spreading) -> None:
    """The emptiest domain is a variable that no domain is below; who receives is above it by the skew at most."""
    counted = {
        domain: [cells.pods[kind][group] for kind, group in here if part.nodes[cells.node[group]]]
        for domain, here in cells.inside(part.counted, part.ids).items()
    }
    carried = cells.inside(part.carriers, part.ids)
    domains = [int(domain) for domain in part.domains]
    tops = {d: int(part.present[d]) + sum(most for _, most in counted.get(d, ())) for d in {*domains, *carried}}
    least, low = None, 0
    if not part.floor:
        low, high = min(int(part.present[d]) for d in domains), min(tops[d] for d in domains)
        if high > low:
            least = model.variable(0, high - low)
            for domain in domains:
                variables = [variable for variable, _ in counted.get(domain, ())]
                model.row([*variables, least], [*[1] * len(variables), -1], low - int(part.present[domain]), None)
    for domain in sorted(carried):
        limit = low + part.skew - int(part.present[domain])
        if tops[domain] <= low + part.skew:
            continue
        receives = _receives(model, cells, carried[domain])
        variables = [variable for variable, _ in counted.get(domain, ())]
        weights = [1] * len(variables)
        if least is not None:
            variables, weights = [*variables, least], [*weights, -1]
        model.row(variables, weights, None, limit, when=receives)


class _Order:
    """All `Follow` rules together."""

    def __init__(self, instance: Instance, model: Model, cells: Cells) -> None:
        self._rules = instance.follows
        self._model = model
        self._cells = cells
        self._used: dict[tuple[int, int], int] = {}
        self._time: dict[tuple[int, int], int] = {}

    def add(self) -> None:
        """Add the rows."""
        kinds = sorted({kind for rule in self._rules for kind in (*rule.followers, *rule.targets)})
        model = self._model
        for kind in kinds:
            for group, (variable, most) in self._cells.pods[kind].items():
                flag = self._used[kind, group] = model.variable(0, 1)
                model.row([variable, flag], [1, -most], None, 0)
                model.row([variable, flag], [1, -1], 0, None)
        if circular(self._rules):
            self._time = {cell: model.variable(0, len(self._used)) for cell in self._used}
        for rule in self._rules:
            self._rule(rule)

    def _rule(self, rule: Following) -> None:
        model = self._model
        first = self._first(rule) if rule.first else {}
        for ids, present in zip(rule.ids, rule.present, strict=True):
            targets = self._cells.inside(rule.targets, ids)
            for domain, here in sorted(self._cells.inside(rule.followers, ids).items()):
                if present[domain]:
                    continue
                there, begin = self._holds(targets.get(domain, []))
                for cell in here:
                    flags = [self._used[cell], there]
                    own = first.get(cell)
                    if own is None:
                        model.row(flags, [1, -1], None, 0)
                        when = self._used[cell]
                    else:
                        model.row([*flags, own], [1, -1, -1], None, 0)
                        when = model.variable(0, 1)  # this cell is used and is not the first
                        model.row([when, own, self._used[cell]], [1, 1, -1], 0, None)
                    if begin is not None:
                        model.row([self._time[cell], begin], [1, -1], 0, None, when=when)

    def _holds(self, targets: Sequence[tuple[int, int]]) -> tuple[int, int | None]:
        """Return whether a domain holds a followed pod, and (where times matter) a time at which one is there."""
        model = self._model
        there = model.variable(0, 1 if targets else 0)
        used = [self._used[cell] for cell in targets]
        if not self._time or not targets:
            model.row([*used, there], [*[1] * len(used), -1], 0, None)
            return there, None
        begin = model.variable(0, len(self._used) + 1)
        chosen = []
        for cell in targets:
            flag = model.variable(0, 1)
            chosen.append(flag)
            model.row([self._used[cell], flag], [1, -1], 0, None)
            model.row([begin, self._time[cell]], [1, -1], 1, None, when=flag)
        model.row([*chosen, there], [*[1] * len(chosen), -1], 0, None)
        return there, begin

    def _first(self, rule: Following) -> dict[tuple[int, int], int]:
        """Return, for each cell that may hold it, whether it holds the first of all followed pods."""
        model = self._model
        may = [cell for cell in self._used if cell[0] in rule.followers and cell[0] in rule.targets]
        first = {cell: model.variable(0, 1) for cell in may}
        if not first:
            return first
        model.row(list(first.values()), [1] * len(first), None, 1)
        some = model.variable(0, 1)
        model.row([some, *first.values()], [-1, *[1] * len(first)], 0, 0)
        begin = model.variable(0, len(self._used))
        for cell, flag in first.items():
            model.row([self._used[cell], flag], [1, -1], 0, None)
            model.row([begin, self._time[cell]], [1, -1], 0, None, when=flag)
        for cell in self._used:
            if cell[0] not in rule.targets:
                continue
            when = some
            if cell in first:
                when = model.variable(0, 1)  # another cell holds the first
                model.row([when, first[cell], some], [1, 1, -1], 0, 0)
            model.row([self._time[cell], begin], [1, -1], 1, None, when=when)
        return first


def circular(rules: Sequence[Following]) -> bool:
    """Whether kinds follow each other in a circle, or somebody must be the first."""
    if any(rule.first for rule in rules):
        return True
    edges = {(kind, other) for rule in rules for kind in rule.followers for other in rule.targets}
    left = {kind for edge in edges for kind in edge}
    while left:
        free = {kind for kind in left if not any((kind, other) in edges for other in left)}
        if not free:
            return True
        left -= free
    return False


def cells_of(model: Model, variables: list[dict[int, int]], caps: list[Ints], group: Ints) -> Cells:
    """Return the cells of a model with one variable for each kind and node."""
    node = np.unique(group, return_index=True)[1].astype(np.int64)
    pods: list[dict[int, tuple[int, int]]] = []
    for number, placed in enumerate(variables):
        inside: dict[int, list[int]] = {}
        for host in placed:
            inside.setdefault(int(group[host]), []).append(host)
        here: dict[int, tuple[int, int]] = {}
        for one, hosts in inside.items():
            most = sum(int(caps[number][host]) for host in hosts)
            if len(hosts) == 1:
                here[one] = (placed[hosts[0]], most)
                continue
            variable = model.variable(0, most)
            model.row([*(placed[host] for host in hosts), variable], [*[1] * len(hosts), -1], 0, 0)
            here[one] = (variable, most)
        pods.append(here)
    return Cells(pods, node)
