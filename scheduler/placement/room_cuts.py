"""Rows that no right answer breaks and that the solver does not see for itself: who has to go before a pod fits at all.

A pod that needs nearly all of a node fits only when nearly everybody there goes. As sums of amounts, half a pod fits
when half of them go, and the solver's bounds are worth nothing. Decided here: for each piece and each kind of pods how
many of the piece must go when all others on the node go too; only rows of that form.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np

from scheduler.placement.cpsat import Model
from scheduler.placement.instance import Instance, Ints
from scheduler.placement.problem import NodeView

_PODS = 16
"""Most pods of a kind on a node for which the rows are worked out."""


def necessary_rows(
    model: Model,
    instance: Instance,
    view: NodeView,
    pods: Sequence[Mapping[int, int]],
    released: Mapping[int, Sequence[tuple[int, Ints, int]]],
) -> None:
    """Add the rows. pods: the variable of each kind on each node; released: (variable, amounts, slots) of what goes."""
    for node, gone in sorted(released.items()):
        most = [model.most([variable], [1]) for variable, _, _ in gone]
        for number, kind in enumerate(instance.kinds):
            variable = pods[number].get(node)
            if variable is None or not 0 < int(kind.cap[node]) <= _PODS:
                continue
            needs = instance.problem.demands[kind.members[0]].requests
            amounts = [(int(needs[r]), int(view.free[r, node]), r) for r in np.flatnonzero(needs).tolist()]
            amounts.append((1, int(view.slots[node]), -1))
            strongest: dict[int, tuple[int, int]] = {}
            for need, free, resource in amounts:
                held = [slots if resource < 0 else int(holds[resource]) for _, holds, slots in gone]
                total = free + sum(each * count for each, count in zip(held, most, strict=True))
                for place, each in enumerate(held):
                    if each:
                        ratio = _least(need, total - each * most[place], each, int(kind.cap[node]))
                        strongest[place] = max(strongest.get(place, (0, 1)), ratio, key=lambda one: one[0] / one[1])
            for place, (units, count) in sorted(strongest.items()):
                if units:
                    model.row([gone[place][0], variable], [count, -units], 0, None)


@lru_cache(maxsize=4096)
def _least(need: int, others: int, each: int, cap: int) -> tuple[int, int]:
    """Return (units, pods): at least so many units go for so many pods, in proportion, with all others gone."""
    ratios = [(max(0, -((others - pods * need) // each)), pods) for pods in range(1, cap + 1)]
    return min(ratios, key=lambda one: (one[0] / one[1], one[1]))
