"""Which pods are where, as far as other pods ask: counts of the pods that selectors mean, of carriers, of host ports.

Decided here: what of a shape makes others count (`selections`), and what it lays on others (`carried`). Values only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from scheduler.model.affinity import HostPort, PodSelector, PodTerm
from scheduler.model.pods import Shape
from scheduler.model.selecting import Labels

Selectors: TypeAlias = tuple[PodSelector, ...]
"""Pods that all of these selectors mean."""


@dataclass(frozen=True, slots=True, eq=False)
class Spots:
    """How many of something are on which rows of the node table; rows ascend, counts are positive."""

    rows: NDArray[np.intp]
    counts: NDArray[np.int64]

    def dense(self, size: int) -> NDArray[np.int64]:
        """Return the count of every node."""
        made = np.zeros(size, dtype=np.int64)
        made[self.rows] = self.counts
        return made


@dataclass(frozen=True, slots=True)
class Carried:
    """A term that a placed pod lays on pods that come later: anti-affinity that is required, and what is only scored.

    weight: of a preferred term; 0 otherwise.
    """

    kind: Literal["anti", "affinity", "preferred"]
    term: PodTerm
    weight: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Presence:
    """Placed pods (bound, assumed, nominated and another scheduler's; not ended) as other pods ask about them.

    tallies: for everything that waiting pods count, where such pods are. carriers: for every term that a placed pod
    carries, where its carriers are. ports: host ports in use. namespaces: the labels of each namespace. A part that did
    not change is the same object as in the snapshot before.
    """

    tallies: Mapping[Selectors, Spots] = field(default_factory=dict)
    carriers: Mapping[Carried, Spots] = field(default_factory=dict)
    ports: Mapping[HostPort, Spots] = field(default_factory=dict)
    namespaces: Mapping[str, Labels] = field(default_factory=dict)


def together(terms: Iterable[PodTerm]) -> Selectors:
    """The pods that satisfy all terms at once, whatever their topology keys."""
    return tuple(dict.fromkeys(term.selector for term in terms))


def selections(shape: Shape) -> tuple[Selectors, ...]:
    """What has to be counted before a pod of the shape can be placed, and what it would carry afterwards."""
    found: dict[Selectors, None] = {}
    if shape.affinity:
        found[together(shape.affinity)] = None
    for term in (*shape.affinity, *shape.anti_affinity, *(one.term for one in shape.preferred_pods)):
        found[(term.selector,)] = None
    for constraint in shape.spread:
        found[(constraint.selector,)] = None
    return tuple(found)


def carried(shape: Shape) -> tuple[Carried, ...]:
    """What a placed pod of the shape lays on others."""
    return (
        *(Carried("anti", term) for term in shape.anti_affinity),
        *(Carried("affinity", term) for term in shape.affinity),
        *(Carried("preferred", one.term, one.weight) for one in shape.preferred_pods),
    )


def relates(shape: Shape) -> bool:
    """Whether the shape says anything about other pods."""
    return bool(shape.host_ports or shape.affinity or shape.anti_affinity or shape.preferred_pods or shape.spread)
