"""Rules between pods that are placed in one decision, as values: what plugins state and placement keeps.

Decided here: what each rule means. A number names a demand (interchangeable members) of the question, a level names
domains of nodes ("" = the node itself); -1 is the domain of a node without the label. Arrays over domains are indexed
by domain number. Pods that are on nodes already are in `present`, never among the demands.

A rule speaks of the state after the decision; where the order of placing would matter (`Follow`), some order must
exist, because then scheduling pod by pod could have reached the same state.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Repel:
    """No domain hosts a pod of `carriers` together with another pod of `targets` (required anti-affinity, host ports).

    A demand on both sides has at most one pod in a domain. Nodes without the label are not limited. parts: it keeps two
    sub-groups apart; only what is told of it differs.
    """

    level: str
    carriers: tuple[int, ...]
    targets: tuple[int, ...]
    parts: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Follow:
    """Pods of `followers` go only where a pod that they follow is (required affinity, all terms of one shape together).

    Some order of placing all pods exists in which each follower, when its turn comes, is on a node with the labels of
    all levels and for every level its domain holds a pod that is present or a pod of `targets` placed earlier; or, with
    `first`, it is itself of `targets` and nothing of `targets` was placed before it (nothing is present then).
    present: for each level, over its domains: whether a followed pod is there already.
    """

    levels: tuple[str, ...]
    followers: tuple[int, ...]
    targets: tuple[int, ...]
    present: tuple[NDArray[np.bool_], ...]
    first: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Spread:
    """In each domain that receives a pod of `carriers`: pods counted there - the least of any domain <= max_skew.

    Counted are `present` (over domains) and placed pods of `counted`, on nodes of `nodes` only. The domains are those
    with a node of `nodes`; when they are fewer than `min_domains` the least is 0. Carriers go to nodes with the label.
    """

    level: str
    carriers: tuple[int, ...]
    counted: tuple[int, ...]
    present: NDArray[np.int64]
    nodes: NDArray[np.bool_]
    max_skew: int
    min_domains: int = 1


@dataclass(frozen=True, slots=True, eq=False)
class Cap:
    """The sum of weight x pods in a domain is at most its limit; nodes without the label are not limited.

    weights: (demand, weight), weight not negative. limits: over domains, not negative.
    """

    level: str
    weights: tuple[tuple[int, int], ...]
    limits: NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Once:
    """A node that hosts any pod of `demands` spends `amount` of a resource, however many they are (a shared volume).

    resource: its name in the question. already: nodes on which it is spent before the decision.
    """

    resource: str
    amount: int
    demands: tuple[int, ...]
    already: NDArray[np.bool_]


MemberRule: TypeAlias = Repel | Follow | Spread | Cap | Once
