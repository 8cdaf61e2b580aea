"""What an ask says about sub-groups and domains, as rules of a placement problem, and as masks beside running members.

Decided here: members that run bind those that come. A required domain is theirs; what they hold of a limited number
counts. Without them a required level is a rule, and placement chooses the domain.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from scheduler.actions.ask import Anchor, Ask
from scheduler.framework.protocols import ApartDomains, Barred, EvenDomains, FewDomains, PartsApart, Sized, WithinDomain
from scheduler.framework.subgroups import Need, is_under
from scheduler.model.nodes import HOSTNAME
from scheduler.model.rules import Cap, Repel
from scheduler.placement.problem import (
    NODE,
    Apart,
    AtMostDomains,
    AtMostGroups,
    Balanced,
    Minimum,
    Part,
    Parts,
    Rule,
    Segments,
    Within,
)

Ids = NDArray[np.int32]
Masks = dict[int, NDArray[np.bool_]]
Confine = Callable[[Iterable[int], NDArray[np.bool_]], None]


def level_of(label: str) -> str:
    """Return the level of a wish as placement names it."""
    return NODE if label == HOSTNAME else label


def asked_rules(ask: Ask) -> tuple[Rule, ...]:
    """Return how many have to be placed: in all, of each role, of each sub-group."""
    if ask.each:
        return ()
    rules: list[Rule] = [Minimum(tuple(range(len(ask.kinds))), ask.total)]
    for role, count in ask.roles:
        rules.append(Minimum(tuple(number for number, kind in enumerate(ask.kinds) if kind.role == role), count))
    rules.extend(Minimum(ask.numbers(path), count) for path, count in ask.lacking.minimums)
    rules.extend(Parts(tuple(_part(ask, one) for one in choice.parts), choice.least) for choice in ask.lacking.choices)
    return tuple(rules)


def _part(ask: Ask, need: Need) -> Part:
    return Part(ask.numbers(need.path), need.minimum, tuple(_part(ask, below) for below in need.parts), need.least)


def wished_rules(ask: Ask, domains: Mapping[str, Ids], *, empty: bool) -> tuple[Masks, tuple[Rule, ...]]:
    """Return for each kind (number) the nodes to which members that run confine it, and the rules of the wishes.

    domains: of each level, for every node. empty: as if no other group ran.
    """
    masks: Masks = {}
    rules: list[Rule] = []
    everyone = tuple(range(len(ask.kinds)))

    def confine(numbers: Iterable[int], allowed: NDArray[np.bool_]) -> None:
        for number in numbers:
            masks[number] = masks[number] & allowed if number in masks else allowed

    for wish in ask.wishes:
        ids = domains[level_of(wish.label)]
        if isinstance(wish, PartsApart):
            rules.extend(_parted(ask, wish, ids, confine))
            continue
        meant = ask.numbers(wish.part)
        own = [one for one in ask.anchors if is_under(one.part, wish.part)]
        there = _counts(own, ids)
        if not meant:
            continue
        numbers = None if meant == everyone else meant
        level = level_of(wish.label)
        if isinstance(wish, ApartDomains | Barred):
            confine(meant, ids >= 0)  # whose domain is not known may be beside the others
        match wish:
            case WithinDomain(required=True) if own:
                confine(meant, np.isin(ids, list(there)))
            case WithinDomain():
                rules.append(Within(level, hard=wish.required, demands=numbers, present=tuple(sorted(there))))
            case ApartDomains() if there:
                rules.append(Cap(level, tuple((number, 1) for number in meant), _left(wish, ids, there)))
            case ApartDomains():
                rules.append(Apart(level, wish.limit, numbers))
            case FewDomains():
                rules.append(AtMostDomains(level, wish.limit, numbers, tuple(sorted(there))))
            case EvenDomains():
                rules.append(Balanced(level, numbers, tuple(sorted(there.items()))))
            case Sized():
                rules.append(Segments(level, wish.size, numbers, tuple(sorted(there.items()))))
            case Barred() if wish.always or not empty:
                confine(meant, ~np.isin(ids, wish.domains))
    return masks, tuple(rules)


def _left(wish: ApartDomains, ids: Ids, there: Mapping[int, int]) -> NDArray[np.int64]:
    """Return how many more each domain may take."""
    limits = np.full(max(int(ids.max(initial=-1)), *there) + 1, wish.limit, dtype=np.int64)
    for domain, count in there.items():
        limits[domain] = max(0, wish.limit - count)
    return limits


def _counts(anchors: Iterable[Anchor], ids: Ids) -> dict[int, int]:
    """Return how many members run in each domain; those outside of all are left out."""
    counts: dict[int, int] = {}
    for one in anchors:
        domain = int(ids[one.row])
        if domain >= 0:
            counts[domain] = counts.get(domain, 0) + one.count
    return counts


def _parted(ask: Ask, wish: PartsApart, ids: Ids, confine: Confine) -> Iterable[Rule]:
    if wish.limit > 1:
        groups = tuple(ask.numbers(path) for path in wish.parts)
        present: list[tuple[int, int]] = []
        for number, path in enumerate(wish.parts):
            confine(groups[number], ids >= 0)
            there = _counts((one for one in ask.anchors if is_under(one.part, path)), ids)
            present.extend((domain, number) for domain in sorted(there))
        if any(groups):
            yield AtMostGroups(level_of(wish.label), wish.limit, groups, tuple(present))
        return
    for path in wish.parts:
        others = [one for one in ask.anchors if any(is_under(one.part, part) for part in wish.parts if part != path)]
        confine(ask.numbers(path), (ids >= 0) & ~np.isin(ids, list(_counts(others, ids))))
    for one, other in combinations(wish.parts, 2):
        if ask.numbers(one) and ask.numbers(other):
            yield Repel(level_of(wish.label), ask.numbers(one), ask.numbers(other), parts=True)
