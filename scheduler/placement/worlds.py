"""Where the portfolio looks: for each try, the nodes that a kind may use, and the kinds in an order that rules allow.

A rule over domains is easiest to keep when its pods are confined to one of them beforehand. Decided here: which domains
are tried, the likeliest first. A world that is left out costs a chance, never correctness.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice, product

import numpy as np

from scheduler.placement.board import Board
from scheduler.placement.bounds import Bounds
from scheduler.placement.counting import segment_sums, truncate
from scheduler.placement.instance import Instance, Ints
from scheduler.placement.levelling import Pairs

_SEGMENTS = 16
"""Most segments that are tried one after the other."""
_FIRST, _MORE = 3, 8
"""Domains that pods and those that they follow try together, before and after a try without."""


def crossing(instance: Instance) -> bool:
    """Whether a rule joins nodes of different segments, so that segments cannot be searched side by side."""
    crowds = any(_spans(instance, part.ids) for part in instance.crowds)
    return instance.open or crowds or any(part.ids is not None for part in instance.exclusions)


def _spans(instance: Instance, ids: Ints) -> bool:
    """Whether a domain has nodes of several segments."""
    segments = instance.segment_ids()
    inside = (ids >= 0) & (segments >= 0)
    joint = np.unique(ids[inside] * instance.segment_count + segments[inside])
    return joint.size > np.unique(ids[inside]).size


def worlds(instance: Instance, bounds: Bounds) -> Iterator[list[Ints]]:
    """Yield caps to search with, for each kind.

    Those of all living segments at once, or one segment after the other; of demands with a domain of their own those of
    one choice after the other; of pods that follow others those of one domain for both.
    """
    segments = instance.segment_ids()
    alive = (segments >= 0) & bounds.alive[np.maximum(segments, 0)]
    caps = [np.where(alive, kind.cap, 0) for kind in instance.kinds]
    for base in (few for roomy in _bases(instance, bounds, caps) for few in _few(instance, roomy)):
        if not instance.partial:
            yield from _following(instance, base)
            continue
        choices = [roomiest(instance, kinds, ids, base) for kinds, ids in instance.partial]
        for choice in islice(product(*choices), instance.problem.budget.max_domains):
            chosen = list(base)
            for (kinds, ids), domain in zip(instance.partial, choice, strict=True):
                _confine(chosen, kinds, ids, domain)
            yield from _following(instance, chosen)


def _few(instance: Instance, caps: list[Ints]) -> Iterator[list[Ints]]:
    """Confine kinds that may be in few domains to the roomiest of each segment, for all of them or the scarcest."""
    kinds = sorted({kind for part in instance.few for kind in part.kinds})
    needs = {kind: instance.composition.least(instance.kinds[kind].members) for kind in kinds}
    asked = [kind for kind in kinds if needs[kind]]
    scarcest = sorted(asked, key=lambda kind: int(caps[kind].sum()) / needs[kind])[:1]
    for ranked in (asked, scarcest) if len(asked) > 1 else (asked,) if asked else ():
        chosen = list(caps)
        for part in instance.few:
            pairs = Pairs.make(part.ids, instance.segments)
            mine = [kind for kind in ranked if kind in part.kinds] or list(part.kinds)
            room = np.min([pairs.sums(caps[kind]) / max(1, needs[kind]) for kind in mine], axis=0)
            there = part.present[pairs.domain]
            order = np.lexsort((-room, there, pairs.segment))
            rank = np.arange(order.size) - np.searchsorted(pairs.segment[order], pairs.segment[order], side="left")
            kept = there.copy()
            kept[order[rank < part.new]] = True
            inside = (pairs.of >= 0) & (kept[np.maximum(pairs.of, 0)] if kept.size else False)
            for kind in part.kinds:
                chosen[kind] = np.where(inside, chosen[kind], 0)
        yield chosen
    yield caps


def _confine(caps: list[Ints], kinds: Sequence[int], ids: Ints, domain: int) -> None:
    for kind in kinds:
        caps[kind] = np.where(ids == domain, caps[kind], 0)


def _bases(instance: Instance, bounds: Bounds, caps: list[Ints]) -> Iterator[list[Ints]]:
    segments = instance.segments
    if segments is None or not crossing(instance):
        yield caps
        return
    alive = np.flatnonzero(bounds.alive)
    sign = 1 if instance.problem.objective == "pack" and not instance.problem.maximize else -1
    for segment in alive[np.argsort(sign * bounds.room[alive], kind="stable")][:_SEGMENTS].tolist():
        yield [np.where(segments == segment, cap, 0) for cap in caps]


def _following(instance: Instance, caps: list[Ints]) -> Iterator[list[Ints]]:
    """Confine pods and those that they follow to one domain of the widest level, then do not, then try more domains.

    Where some of them have to spread, one domain is not likely to do: that is tried last.
    """
    parts = _families(instance)
    choices = [roomiest(instance, kinds, ids, caps)[:_MORE] for kinds, ids in parts]
    spreading = {kind for spread in instance.spreads for kind in spread.carriers}
    turns = max((len(choice) for choice in choices), default=0)
    free = 0 if any(spreading & set(kinds) for kinds, _ in parts) else min(_FIRST, turns)
    for turn in range(turns + 1):
        if turn == free:
            yield caps
        if turn == turns:
            return
        chosen = list(caps)
        for (kinds, ids), choice in zip(parts, choices, strict=True):
            _confine(chosen, kinds, ids, choice[min(turn, len(choice) - 1)])
        yield chosen


def _families(instance: Instance) -> list[tuple[tuple[int, ...], Ints]]:
    """Join the rules that share a kind; return the kinds of each, and the domains of the widest level."""
    families: list[tuple[set[int], Ints]] = []
    for rule in instance.follows:
        kinds = {*rule.followers, *rule.targets}
        ids = min(rule.ids, key=_width)
        for other in [family for family in families if family[0] & kinds]:
            families.remove(other)
            kinds |= other[0]
            ids = min(ids, other[1], key=_width)
        families.append((kinds, ids))
    return [(tuple(sorted(kinds)), ids) for kinds, ids in families]


def _width(ids: Ints) -> int:
    return int(ids.max(initial=-1))


def roomiest(instance: Instance, kinds: Sequence[int], ids: Ints, caps: Sequence[Ints]) -> list[int]:
    """Return the domains that take some of each kind, those that hold the largest part of all first."""
    room = np.full(int(ids.max(initial=-1)) + 1, np.inf)
    for kind in kinds:
        need = max(1, instance.composition.least(instance.kinds[kind].members))
        room = np.minimum(room, segment_sums(caps[kind], ids, room.size) / need)
    return [int(domain) for domain in np.argsort(-room, kind="stable") if room[domain] > 0] or [-1]


def arranged(instance: Instance, numbers: Sequence[int]) -> list[int]:
    """Return kinds in nearly the given order: those that are followed, or only counted, before those that depend on
    them; where they depend on each other, one that may be the first."""
    if not instance.open:
        return list(numbers)
    before: dict[int, set[int]] = {number: set() for number in numbers}
    starters: set[int] = set()
    for follow in instance.follows:
        starters |= set(follow.followers) & set(follow.targets) if follow.first else set()
        for number in before.keys() & set(follow.followers):
            before[number] |= set(follow.targets) - {number}
    for spread in instance.spreads:
        for number in before.keys() & set(spread.carriers):
            before[number] |= set(spread.counted) - set(spread.carriers)
    left, result = list(numbers), []
    while left:
        free = [number for number in left if not before[number] & set(left)]
        free = free or [number for number in left if number in starters] or left
        result.append(free[0])
        left.remove(free[0])
    return result


def seeded(board: Board, number: int, need: int, amounts: Sequence[int]) -> Ints | None:
    """Return caps that put one pod of a followed kind into each of the domains that its followers will need.

    Those that take the most followers come first, as many as hold all of them. None: nobody needs this kind to begin.
    """
    instance = board.instance
    for rule in instance.follows:
        behind = [n for n in rule.followers if n != number and amounts[n] > 0]
        if number not in rule.targets or number in rule.followers or not behind:
            continue
        ids, present = max(zip(rule.ids, rule.present, strict=True), key=lambda level: _width(level[0]))
        cap = board.cap(number)
        begun = present.copy()
        begun[ids[(board.x[list(rule.targets)].sum(axis=0) > 0) & (ids >= 0)]] = True
        room = np.full(begun.size, np.inf)
        for other in behind:
            room = np.minimum(
                room, segment_sums(np.where(ids >= 0, board.room(other), 0), ids, begun.size) / amounts[other]
            )
        room[segment_sums(np.where(ids >= 0, cap, 0), ids, begun.size) == 0] = 0
        order = np.argsort(-np.where(begun, 0, room), kind="stable")
        missing = 1 - float(room[begun].sum())
        enough = int(np.searchsorted(np.cumsum(room[order]), missing)) + 1 if missing > 0 else 0
        chosen = np.zeros(begun.size, dtype=np.bool_)
        chosen[order[: min(need, enough)]] = True
        chosen &= (room > 0) & ~begun
        allowed = np.where((ids >= 0) & chosen[np.maximum(ids, 0)], cap, 0)
        return truncate(allowed, np.where(allowed > 0, ids, -1), 1)
    return None
