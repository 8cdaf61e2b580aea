"""Which domain hosts which units of a gang, exactly: a small model that counts units of each type in each domain, and
for each domain the question whether what it should hold fits there; what does not is forbidden, and the model asked
again.

Units of one type are interchangeable, and so are domains with the same nodes, so that one "no" rules out much. The rows
of the model are necessary, never sufficient; its "no" is a proof.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from scheduler.placement.between import Crowd
from scheduler.placement.capacity import Capacity, Coming, Type
from scheduler.placement.cpsat import Clock, Model, Status
from scheduler.placement.exact import composition_rows
from scheduler.placement.greedy import Draft
from scheduler.placement.instance import Instance, Ints
from scheduler.placement.merging import contents
from scheduler.placement.units import Unit

_TURNS = 100
"""So many times the model is asked again."""

Decide: TypeAlias = Callable[[Instance, Clock], tuple[Ints | None, bool]]
"""Return pods (kinds by nodes) for an instance of one domain, or None and whether that is proven."""
Held: TypeAlias = tuple[int, ...]
"""Of each item how many are in one domain."""


@dataclass(slots=True, eq=False)
class Master:
    """The search in one segment after the other. What was learnt of a domain holds for all that are alike.

    wanted: as `Capacity` has it. free: units may be left out, and pods of other kinds vary; else all of it is placed.
    """

    capacity: Capacity
    wanted: Sequence[int]
    free: bool
    decide: Decide
    clock: Clock
    _cliques: list[list[int]] = field(init=False)
    _crowds: list[tuple[Crowd, list[Coming]]] = field(init=False)
    _known: dict[tuple[int, Held], tuple[Ints | None, bool]] = field(default_factory=dict)
    _refused: dict[int, list[Held]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._cliques = self.capacity.cliques()
        self._crowds = self.capacity.crowds()

    def solve(self, segment: int) -> tuple[Draft | None, bool]:
        """Return pods in a segment, or None and whether there are provably none."""
        domains = np.flatnonzero(self.capacity.segment == segment).tolist()
        for _ in range(_TURNS):
            model = Model()
            places, placed, counts = self._model(model, domains)
            result = model.solve(self.clock)
            if result.status not in (Status.FOUND, Status.BETTER):
                return None, result.status is Status.IMPOSSIBLE
            held = {
                domain: tuple(result.values[variable] if variable >= 0 else 0 for variable in here)
                for domain, here in zip(domains, places, strict=True)
            }
            failed = False
            for domain, what in held.items():
                if not any(what):
                    continue
                x, proven = self._fits(domain, what)
                if x is None:
                    failed = True
                    if not proven:
                        return None, False
                    self._refused.setdefault(self.capacity.alike[domain], []).append(self._smaller(domain, what))
            if not failed:
                chosen = [
                    [unit for unit, flag in zip(one.units, flags, strict=True) if flag < 0 or result.values[flag]]
                    for one, flags in zip(self.capacity.types, placed, strict=True)
                ]
                found = [result.values[count] for count in counts] if counts else list(self.wanted)
                return Draft(self._joined(held, chosen), found, segment), True
        return None, False

    def impossible(self, segment: int) -> bool:
        """Return whether sums over domains forbid a segment already."""
        model = Model()
        self._model(model, np.flatnonzero(self.capacity.segment == segment).tolist())
        return model.solve(self.clock).status is Status.IMPOSSIBLE

    def _model(self, model: Model, domains: Sequence[int]) -> tuple[list[list[int]], list[list[int]], list[int]]:
        """Add variables and rows; return, for each domain, the variable of each item (-1: none fits), for each unit of
        each type whether it is placed (-1: it is), and the pods of each demand (none: they are as wanted)."""
        capacity = self.capacity
        places: list[list[int]] = []
        for domain in domains:
            here = [model.variable(0, most) if most else -1 for most in capacity.times[:, domain].tolist()]
            places.append(here)
            for per, room in ((capacity.needs, capacity.usable), (capacity.pods, capacity.fits)):
                for column, weights in enumerate(per.T.tolist()):
                    chosen = [(v, w) for v, w in zip(here, weights, strict=True) if v >= 0 and w]
                    if chosen:
                        model.row([v for v, _ in chosen], [w for _, w in chosen], None, int(room[column, domain]))
        counts = composition_rows(capacity.instance, model) if self.free else []
        placed = [[-1] * len(one.units) for one in capacity.types]
        for item, total in enumerate(capacity.totals):
            variables = [here[item] for here in places if here[item] >= 0] or [model.variable(0, 0)]
            if not self.free:
                model.row(variables, [1] * len(variables), total, total)
                continue
            if item < len(placed):
                others = placed[item] = self._flags(model, capacity.types[item], counts)
            else:
                kind = capacity.instance.kinds[capacity.loose[item - len(placed)]]
                others = [counts[demand] for demand in kind.members]
            model.row([*variables, *others], [*[1] * len(variables), *[-1] * len(others)], 0, 0)
        for clique in self._cliques:
            for here in places:
                flags = [_used(model, here[item]) for item in clique if here[item] >= 0]
                model.row(flags, [1] * len(flags), None, 1)
        for crowd, groups in self._crowds:
            for domain, here in zip(domains, places, strict=True):
                _crowd_row(model, crowd, groups, here, int(crowd.ids[capacity.nodes[domain][0]]))
        for domain, here in zip(domains, places, strict=True):
            for what in self._refused.get(capacity.alike[domain], ()):
                _forbid(model, here, what)
        return places, placed, counts

    def _flags(self, model: Model, one: Type, counts: Sequence[int]) -> list[int]:
        """Return whether each unit of a type is placed; if so, with all that is wanted of it."""
        flags = []
        for unit in one.units:
            flag = model.variable(0, 1)
            flags.append(flag)
            for kind in unit.kinds:
                for demand in self.capacity.instance.kinds[kind].members:
                    model.row([counts[demand], flag], [1, -self.wanted[demand]], 0, 0)
        return flags

    def _fits(self, domain: int, what: Held) -> tuple[Ints | None, bool]:
        """Return pods of the first units of each type on the nodes of a domain, or None and whether that is proven."""
        capacity = self.capacity
        refused = self._refused.get(capacity.alike[domain], ())
        if any(all(one >= other for one, other in zip(what, held, strict=True)) for held in refused):
            return None, True
        if (domain, what) not in self._known:
            amounts = [0] * len(capacity.instance.kinds)
            inner: list[tuple[tuple[int, ...], Ints]] = []
            for one, count in zip(capacity.types, what, strict=False):
                for unit in one.units[:count]:
                    inner.extend(unit.inner)
                    for kind in unit.kinds:
                        amounts[kind] = capacity.amounts[kind]
            for kind, pods in zip(capacity.loose, what[len(capacity.types) :], strict=True):
                amounts[kind] = pods
            asked = contents(capacity.instance, capacity.nodes[domain], amounts, inner)
            x, proven = self.decide(asked.instance, self.clock)
            self._known[domain, what] = (None if x is None else asked.split(x, len(amounts)), proven)
        return self._known[domain, what]

    def _smaller(self, domain: int, what: Held) -> Held:
        """Return a part of what does not fit that does not fit either."""
        for place in reversed(range(len(what))):
            if what[place] and sum(map(bool, what)) > 1:
                less = (*what[:place], 0, *what[place + 1 :])
                x, proven = self._fits(domain, less)
                if x is None and proven:
                    what = less
        return what

    def _joined(self, held: dict[int, Held], chosen: Sequence[Sequence[Unit]]) -> Ints:
        """Put what each domain holds together; the next chosen units of each type take the places of the first ones."""
        capacity = self.capacity
        result = np.zeros((len(capacity.instance.kinds), capacity.instance.size), dtype=np.int64)
        begun = [0] * len(capacity.types)
        for domain, what in held.items():
            if not any(what):
                continue
            x, _ = self._fits(domain, what)
            assert x is not None
            nodes = capacity.nodes[domain]
            for place, one in enumerate(capacity.types):
                for turn in range(what[place]):
                    unit, first = chosen[place][begun[place] + turn], one.units[turn]
                    for kind, other in zip(unit.kinds, first.kinds, strict=True):
                        result[kind, nodes] = x[other]
                begun[place] += what[place]
            for kind in capacity.loose:
                result[kind, nodes] = x[kind]
        return result


def _used(model: Model, variable: int) -> int:
    """Return a variable that is 1 when another one is not 0."""
    most = model.most([variable], [1])
    if most == 1:
        return variable
    flag = model.variable(0, 1)
    model.row([variable, flag], [1, -most], None, 0)
    return flag


def _crowd_row(model: Model, part: Crowd, groups: Sequence[Coming], here: list[int], domain: int) -> None:
    """Of the groups that are not in a domain yet so many come as there is room for."""
    if domain < 0:
        return
    coming: list[int] = []
    for group in groups:
        used = [here[item] for item in group.items if here[item] >= 0]
        if not used or part.present[group.group, domain]:
            continue
        if group.each:
            coming.extend(used)
            continue
        flags = [_used(model, variable) for variable in used]
        flag = flags[0] if len(flags) == 1 else model.variable(0, 1)
        for one in flags if len(flags) > 1 else ():
            model.row([one, flag], [1, -1], None, 0)
        coming.append(flag)
    room = max(0, part.limit - int(part.present[:, domain].sum()))
    if model.most(coming, [1] * len(coming)) > room:
        model.row(coming, [1] * len(coming), None, room)


def _forbid(model: Model, here: list[int], what: Held) -> None:
    """Not so many of each at once."""
    flags = []
    for variable, count in zip(here, what, strict=True):
        if not count:
            continue
        most = model.most([variable], [1]) if variable >= 0 else 0
        if most < count:
            return
        flag = model.variable(0, 1)
        model.row([variable, flag], [1, count - 1 - most], None, count - 1)
        flags.append(flag)
    model.row(flags, [1] * len(flags), None, len(flags) - 1)
