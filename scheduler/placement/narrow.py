"""A part of the nodes of an instance, as an instance: smaller arrays, the same kinds, rules and domains.

Decided here: what of an instance is indexed by nodes. Numbers of nodes change, numbers of kinds and domains do not, so
that pods found in a part are pods of the whole. One-domain rules of all pods are gone: the part is one of the domains.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from scheduler.placement.instance import Instance, Ints
from scheduler.placement.problem import NODE


def cut(rules: Sequence[tuple[tuple[int, ...], Ints]], nodes: NDArray[np.intp]) -> list[tuple[tuple[int, ...], Ints]]:
    """Return one-domain rules on some of the nodes; rules of one level keep sharing one array."""
    found: dict[int, Ints] = {}
    for _, ids in rules:
        if id(ids) not in found:
            found[id(ids)] = ids[nodes]
    return [(kinds, found[id(ids)]) for kinds, ids in rules]


def narrowed(instance: Instance, nodes: NDArray[np.intp]) -> Instance:
    """Return the instance with these nodes only, in their order."""
    found: dict[int, Ints] = {}

    def part_of(ids: Ints) -> Ints:
        """Return the same array for the same array, so that what shares a level keeps sharing it."""
        if id(ids) not in found:
            found[id(ids)] = ids[nodes]
        return found[id(ids)]

    return replace(
        instance,
        free=instance.free[:, nodes],
        kinds=[
            replace(kind, cap=kind.cap[nodes], scores=None if kind.scores is None else kind.scores[nodes])
            for kind in instance.kinds
        ],
        segments=None,
        segment_count=1,
        segment_level=NODE,
        hard=[],
        levels={},
        domain_limits=[replace(part, ids=part_of(part.ids)) for part in instance.domain_limits],
        exclusions=[part if part.ids is None else replace(part, ids=part_of(part.ids)) for part in instance.exclusions],
        partial=[(kinds, part_of(ids)) for kinds, ids in instance.partial],
        soft=[part_of(ids) for ids in instance.soft],
        shared=[replace(part, pays=part.pays[nodes]) for part in instance.shared],
        spreads=[replace(part, ids=part_of(part.ids), nodes=part.nodes[nodes]) for part in instance.spreads],
        follows=[replace(part, ids=tuple(ids[nodes] for ids in part.ids)) for part in instance.follows],
        few=[replace(part, ids=part_of(part.ids)) for part in instance.few],
        crowds=[replace(part, ids=part_of(part.ids)) for part in instance.crowds],
        pools={name: replace(pool, free=pool.free[:, nodes]) for name, pool in instance.pools.items()},
        multiples=[replace(part, ids=part_of(part.ids)) for part in instance.multiples],
    )
