"""Whether pods where they stand keep the rules that filling nodes one by one does not see to: spreading, an order for
those that follow others, numbers of domains, and multiples in each. Also which nodes are alike to rules over domains.

The searches ask this after they took pods away. It shares no code with `verify`, which judges what they answer.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from scheduler.placement.between import Crowd, Exclusion, Few, Following, Limit, Multiple, Spreading
from scheduler.placement.counting import segment_sums
from scheduler.placement.instance import Instance, Ints


def grouping(instance: Instance) -> Ints:
    """Return a number for each node; nodes of one number are in the same domains of every rule between pods."""
    columns: list[Ints] = []
    for spread in instance.spreads:
        columns.extend((spread.ids, spread.nodes.astype(np.int64)))
    for follow in instance.follows:
        columns.extend(follow.ids)
    columns.extend(part.ids for part in instance.domain_limits)
    columns.extend(part.ids for part in instance.few)
    columns.extend(part.ids for part in instance.multiples)
    columns.extend(part.ids for part in instance.crowds)
    columns.extend(part.ids for part in instance.exclusions if part.ids is not None)
    columns.extend(ids for _, ids in instance.partial)
    group = np.zeros(instance.size, dtype=np.int64)
    for column in columns:
        values, place = np.unique(column, return_inverse=True)
        group = np.unique(group * values.size + place, return_inverse=True)[1].astype(np.int64)
    return group


def holds(instance: Instance, x: Ints) -> bool:
    """Whether pods (kinds by nodes) keep these rules."""
    return (
        all(limited(part, x) for part in instance.domain_limits)
        and all(apart(part, x) for part in instance.exclusions)
        and all(crowded(part, x) for part in instance.crowds)
        and all(spreads(part, x) for part in instance.spreads)
        and all(few(part, x) for part in instance.few)
        and all(multiples(part, x) for part in instance.multiples)
        and follows(instance, x)
    )


def limited(part: Limit, x: Ints) -> bool:
    """Whether no domain holds more than its limit."""
    weight = sum((each * x[kind] for kind, each in part.weights.items()), np.zeros(x.shape[1], dtype=np.int64))
    held = segment_sums(weight, part.ids, part.limits.size)
    return bool((held <= part.limits).all())


def apart(part: Exclusion, x: Ints) -> bool:
    """Whether no domain hosts kinds of both sides."""
    ids = np.arange(x.shape[1]) if part.ids is None else part.ids
    ours, theirs = (ids[x[list(side)].any(axis=0) & (ids >= 0)] for side in (part.ours, part.theirs))
    return not np.intersect1d(ours, theirs).size


def groups_there(part: Crowd, x: Ints) -> NDArray[np.bool_]:
    """Return for each group and domain whether some of it is there."""
    found = part.present.copy()
    for number, kinds in enumerate(part.groups):
        hosts = x[list(kinds)].any(axis=0) & (part.ids >= 0)
        found[number, part.ids[hosts]] = True
    return found


def crowded(part: Crowd, x: Ints) -> bool:
    """Whether no domain that received another group holds too many."""
    inside = groups_there(part, x)
    return not ((inside & ~part.present).any(axis=0) & (inside.sum(axis=0) > part.limit)).any()


def few(part: Few, x: Ints) -> bool:
    """Whether pods are in no more new domains than allowed."""
    used = np.unique(part.ids[x[list(part.kinds)].any(axis=0)])
    return int(np.count_nonzero(~part.present[used])) <= part.new


def multiples(part: Multiple, x: Ints) -> bool:
    """Whether each domain that received pods holds a multiple."""
    pods = x[list(part.kinds)].sum(axis=0)
    inside = pods > 0
    placed = np.bincount(part.ids[inside], weights=pods[inside], minlength=part.more.size).astype(np.int64)
    return not ((placed > 0) & ((placed - part.more) % part.size != 0)).any()


def held(part: Spreading, x: Ints) -> Ints:
    """Return the pods that count in each domain."""
    pods = x[list(part.counted)].sum(axis=0) if part.counted else np.zeros(x.shape[1], dtype=np.int64)
    inside = part.nodes & (pods > 0)
    placed = np.bincount(part.ids[inside], weights=pods[inside], minlength=part.present.size)
    return part.present + placed.astype(np.int64)


def spreads(part: Spreading, x: Ints) -> bool:
    """Whether no domain that received pods is ahead of the emptiest by more than the skew."""
    count = held(part, x)
    least = 0 if part.floor else int(count[part.domains].min())
    receiving = part.ids[x[list(part.carriers)].any(axis=0)]
    return bool((receiving >= 0).all() and (count[receiving] <= least + part.skew).all())


def follows(instance: Instance, x: Ints) -> bool:
    """Whether the pods can be placed in some order. Where somebody has to be the first, every choice is tried."""
    rules = instance.follows
    if not rules:
        return True
    group = grouping(instance)
    firsts = np.unique(group, return_index=True)[1]
    pods = np.zeros((x.shape[0], firsts.size), dtype=np.bool_)
    for kind in range(x.shape[0]):
        pods[kind, group[x[kind] > 0]] = True
    ids = [[each[firsts] for each in rule.ids] for rule in rules]
    needing = [number for number, rule in enumerate(rules) if rule.first and _both(rule, pods).any()]
    return _ordered(rules, ids, pods, {}, needing)


def _both(rule: Following, pods: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]) -> Ints:
    """Return (kind, group) pairs that may be the first of a rule."""
    kinds = [kind for kind in rule.followers if kind in rule.targets]
    return np.array([(kind, group) for kind in kinds for group in np.flatnonzero(pods[kind])], dtype=np.int64)


def _ordered(
    rules: list[Following],
    ids: list[list[Ints]],
    pods: np.ndarray[tuple[int, ...], np.dtype[np.bool_]],
    chosen: dict[int, tuple[int, int]],
    open_rules: list[int],
) -> bool:
    """Place what may be placed until nothing changes; where that is not all, choose the first pod of one more rule."""
    if _reach(rules, ids, pods, chosen):
        return True
    for place, number in enumerate(open_rules):
        for kind, group in _both(rules[number], pods).tolist():
            if _ordered(rules, ids, pods, {**chosen, number: (kind, group)}, open_rules[place + 1 :]):
                return True
    return False


def _reach(
    rules: list[Following],
    ids: list[list[Ints]],
    pods: np.ndarray[tuple[int, ...], np.dtype[np.bool_]],
    chosen: dict[int, tuple[int, int]],
) -> bool:
    there = [[present.copy() for present in rule.present] for rule in rules]
    waiting = pods.copy()
    begun = [number not in chosen for number in range(len(rules))]
    changed = True
    while changed and waiting.any():
        changed = False
        for kind in np.flatnonzero(waiting.any(axis=1)).tolist():
            may = waiting[kind].copy()
            for number, rule in enumerate(rules):
                own = np.zeros(may.size, dtype=np.bool_)
                if number in chosen and chosen[number][0] == kind:
                    own[chosen[number][1]] = True
                if kind in rule.targets and not begun[number]:
                    may &= own
                if kind in rule.followers:
                    around = np.ones(may.size, dtype=np.bool_)
                    for each, present in zip(ids[number], there[number], strict=True):
                        around &= (each >= 0) & present[np.maximum(each, 0)]
                    may &= own | around
            if not may.any():
                continue
            changed = True
            waiting[kind] &= ~may
            for number, rule in enumerate(rules):
                if number in chosen and chosen[number][0] == kind and may[chosen[number][1]]:
                    begun[number] = True
                if kind in rule.targets:
                    for each, present in zip(ids[number], there[number], strict=True):
                        present[each[may & (each >= 0)]] = True
    return not waiting.any()
