"""Parts of a gang that each need a domain of their own ("units"): which they are, and which of them are alike.

Decided here: pods that a one-domain rule of some kinds joins are one unit; rules of a part of its kinds are inside it.
Rules that overlap without one around the other make no units. Units are of one type when exchanging their pods changes
nothing: the kinds match one to one in what they ask, where they may go, how many are wanted, and in every rule.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from scheduler.placement.between import Crowd
from scheduler.placement.instance import Instance, Ints


@dataclass(slots=True, eq=False)
class Unit:
    """kinds: in an order in which those of units of one type match. ids: the domain of every node.

    inner: as `partial`, of some of the kinds.
    """

    kinds: tuple[int, ...]
    ids: Ints
    inner: list[tuple[tuple[int, ...], Ints]]
    type: int = -1

    @property
    def domains(self) -> int:
        """How many domains there are."""
        return int(self.ids.max(initial=-1)) + 1


@dataclass(slots=True, eq=False)
class Layout:
    """The units of an instance, and the kinds that are in none. owned: of which crowds the groups are units."""

    units: list[Unit]
    loose: tuple[int, ...]
    owned: list[bool]

    @classmethod
    def of(cls, instance: Instance, amounts: Sequence[int]) -> Layout | None:
        """Return the units; None where rules overlap. amounts: wanted pods of each kind."""
        groups: list[set[int]] = []
        for kinds, _ in instance.partial:
            joined = set(kinds)
            for group in [group for group in groups if group & joined]:
                groups.remove(group)
                joined |= group
            groups.append(joined)
        units = []
        joined_of: dict[tuple[int, ...], Ints] = {}
        for group in sorted(groups, key=min):
            mine = [(kinds, ids) for kinds, ids in instance.partial if group.issuperset(kinds)]
            around = [ids for kinds, ids in mine if len(kinds) == len(group)]
            if not around:
                return None
            inner = [(kinds, ids) for kinds, ids in mine if len(kinds) < len(group)]
            levels = tuple(id(ids) for ids in around)
            if levels not in joined_of:
                joined_of[levels] = _joined(around)
            units.append(Unit(tuple(sorted(group)), joined_of[levels], inner))
        inside = {kind for unit in units for kind in unit.kinds}
        owned = [_of_units(part, units) for part in instance.crowds]
        _types(instance, units, amounts, owned)
        return cls(units, tuple(kind for kind in range(len(instance.kinds)) if kind not in inside), owned)


def _joined(levels: Sequence[Ints]) -> Ints:
    """Return domains in which nodes are together on every level."""
    joined = levels[0]
    for ids in levels[1:]:
        if ids is joined or np.array_equal(ids, joined):
            continue
        both = np.where((joined >= 0) & (ids >= 0), joined * (int(ids.max(initial=0)) + 1) + ids, -1)
        numbers, place = np.unique(both, return_inverse=True)
        joined = place.astype(np.int64) - int(numbers.size > 0 and int(numbers[0]) < 0)
    return joined


def _types(instance: Instance, units: list[Unit], amounts: Sequence[int], owned: Sequence[bool]) -> None:
    levels: list[Ints] = []
    numbers: dict[object, int] = {}
    for unit in units:
        keys = {kind: kind_key(instance, kind, amounts[kind], owned) for kind in unit.kinds}
        unit.kinds = tuple(sorted(unit.kinds, key=lambda kind: (keys[kind], kind)))
        inner = tuple(
            (_number(levels, ids), tuple(place for place, kind in enumerate(unit.kinds) if kind in kinds))
            for kinds, ids in unit.inner
        )
        key = (tuple(keys[kind] for kind in unit.kinds), _number(levels, unit.ids), tuple(sorted(inner)))
        unit.type = numbers.setdefault(key, len(numbers))


def _number(levels: list[Ints], ids: Ints) -> int:
    for number, other in enumerate(levels):
        if other is ids or np.array_equal(other, ids):
            return number
    levels.append(ids)
    return len(levels) - 1


def _of_units(part: Crowd, units: Sequence[Unit]) -> bool:
    """Whether each group of a crowd is a unit, in domains that are those of the crowd: each then counts for itself."""
    found = {unit.kinds: unit.ids for unit in units}
    return all(not group or found.get(tuple(sorted(group))) is part.ids for group in part.groups)


def kind_key(instance: Instance, number: int, amount: int, owned: Sequence[bool] = ()) -> tuple[object, ...]:
    """Return what nodes and rules, other than one-domain rules, see of a kind.

    owned: of which crowds the groups are units, so that those which are in the same domains already are alike.
    """
    kind = instance.kinds[number]
    sides: list[object] = [number in kinds for kinds, _ in instance.node_limits]
    sides.extend(limit.weights.get(number, 0) for limit in instance.domain_limits)
    for exclusion in instance.exclusions:
        sides.extend((number in exclusion.ours, number in exclusion.theirs))
    sides.extend(number in shared.kinds for shared in instance.shared)
    for spread in instance.spreads:
        sides.extend((number in spread.carriers, number in spread.counted))
    for follow in instance.follows:
        sides.extend((number in follow.followers, number in follow.targets))
    for place, crowd in enumerate(instance.crowds):
        group = crowd.of(number)
        alike = group >= 0 and place < len(owned) and owned[place]
        sides.append(crowd.present[group].tobytes() if alike else group)
    sides.extend(number in few.kinds for few in instance.few)
    sides.extend(number in multiple.kinds for multiple in instance.multiples)
    scores = b"" if kind.scores is None else kind.scores.tobytes()
    return (
        kind.need.tobytes(),
        () if kind.ask is None else (kind.ask.pool, kind.ask.amount, kind.ask.count),
        kind.cap.tobytes(),
        scores,
        amount,
        -1 if kind.per_node is None else number,
        tuple(sides),
    )
