"""One domain and what it should hold, as an instance of its own, in which pods that are alike there are one kind.

Inside the domain that a unit needs, its one-domain rule says nothing any more, so that kinds that only this rule told
apart are one. Units with units inside keep their kinds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from scheduler.placement.composition import Composition
from scheduler.placement.devices import alone
from scheduler.placement.instance import Instance, Ints
from scheduler.placement.narrow import cut, narrowed
from scheduler.placement.units import kind_key


@dataclass(slots=True, eq=False)
class Contents:
    """The instance of one domain. groups: for each of its kinds, the (kind, pods) of the whole that it stands for."""

    instance: Instance
    groups: list[list[tuple[int, int]]]

    def split(self, x: Ints, kinds: int) -> Ints:
        """Return pods of this instance as pods of the kinds of the whole."""
        result = np.zeros((kinds, x.shape[1]), dtype=np.int64)
        for row, group in zip(x, self.groups, strict=True):
            before = np.cumsum(row) - row
            start = 0
            for kind, pods in group:
                result[kind] = np.clip(start + pods - before, 0, row) - np.clip(start - before, 0, row)
                start += pods
        return result


def contents(
    instance: Instance,
    nodes: NDArray[np.intp],
    amounts: Sequence[int],
    inner: Sequence[tuple[tuple[int, ...], Ints]] = (),
) -> Contents:
    """Return the instance of some nodes and so many pods of each kind. inner: one-domain rules that still hold."""
    here = narrowed(instance, nodes)
    kept = {kind for kinds, _ in inner for kind in kinds}
    groups: dict[object, list[int]] = {}
    for kind, amount in enumerate(amounts):
        if amount:
            key = kind if kind in kept else kind_key(here, kind, 0)
            groups.setdefault(key, []).append(kind)
    found = list(groups.values())
    new = {kind: place for place, group in enumerate(found) for kind in group}
    kinds = []
    for place, group in enumerate(found):
        first = here.kinds[group[0]]
        cap = first.cap
        if len(group) > 1:
            cap = sum((here.kinds[kind].cap for kind in group[1:]), cap)
            for row in first.rows:
                cap = np.minimum(cap, here.free[row] // first.need[row])
            for limited, limit in here.node_limits:
                if group[0] in limited:
                    cap = np.minimum(cap, limit)
            for part in here.domain_limits:
                if group[0] in part.weights:
                    most = part.limits[np.maximum(part.ids, 0)] // part.weights[group[0]]
                    cap = np.minimum(cap, np.where(part.ids >= 0, most, cap))
            if first.ask is not None:
                cap = np.minimum(cap, alone(here.pools[first.ask.pool].free, first.ask))
        kinds.append(replace(first, members=(place,), cap=cap))
    counts = [sum(amounts[kind] for kind in group) for group in found]

    def moved(old: Sequence[int]) -> tuple[int, ...]:
        return tuple(sorted({new[kind] for kind in old if kind in new}))

    def weighed(old: dict[int, int]) -> dict[int, int]:
        return {new[kind]: weight for kind, weight in old.items() if kind in new}

    smaller = replace(
        here,
        kinds=kinds,
        kind_of=list(range(len(kinds))),
        composition=Composition(counts, list(counts), [], []),
        node_limits=[(moved(old), limit) for old, limit in here.node_limits if moved(old)],
        exclusions=[
            replace(part, ours=moved(part.ours), theirs=moved(part.theirs))
            for part in here.exclusions
            if moved(part.ours) and moved(part.theirs)
        ],
        domain_limits=[
            replace(part, weights=weighed(part.weights)) for part in here.domain_limits if weighed(part.weights)
        ],
        multiples=[replace(part, kinds=moved(part.kinds)) for part in here.multiples if moved(part.kinds)],
        crowds=[replace(part, groups=tuple(map(moved, part.groups))) for part in here.crowds],
        shared=[replace(part, kinds=moved(part.kinds)) for part in here.shared if moved(part.kinds)],
        partial=cut([(moved(old), ids) for old, ids in inner if moved(old)], nodes),
        soft=[],
    )
    return Contents(smaller, [[(kind, amounts[kind]) for kind in group] for group in found])
