"""A topology as it looks in numbers: its domains with what their nodes have and what of it is free.

Values only; they are made in `framework.floorplan`, told by the command line and drawn by `observe.heatmap`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from scheduler.model.topology import TopologyFault


@dataclass(frozen=True, slots=True)
class Room:
    """Sums over some nodes: how many, how many of them whole, and of the resource what they have and what is free."""

    nodes: int
    whole: int
    total: int
    free: int


@dataclass(frozen=True, slots=True)
class Largest:
    """The largest gang in one domain: of whole nodes and of units of the resource, with the first domain that holds it
    ("" where none holds any)."""

    nodes: int
    nodes_in: str
    units: int
    units_in: str


@dataclass(frozen=True, slots=True)
class Domain:
    """A domain with what is inside it. level: its number in `Picture.levels`."""

    level: int
    name: str
    room: Room
    inside: tuple[Domain, ...] = ()
    members: tuple[int, ...] = ()
    """Rows of its nodes that are in no domain inside it."""


@dataclass(frozen=True, slots=True, eq=False)
class Picture:
    """A topology. levels: widest first, each with how many domains it has and the largest gang.

    nodes: of each node its name, what it has, what is free, and whether nothing may be put there.
    """

    name: str
    dialect: str
    resource: str
    levels: tuple[tuple[str, int, Largest], ...]
    domains: tuple[Domain, ...]
    everything: Room
    unlabelled: Room
    unlabelled_nodes: tuple[int, ...]
    nodes: tuple[tuple[str, int, int, bool], ...]
    faults: tuple[TopologyFault, ...]

    def depth(self, rows: int) -> int:
        """How many levels can be shown in so many rows; at least one."""
        shown, count = 0, 0
        for _, domains, _ in self.levels:
            count += domains
            if count > rows and shown:
                break
            shown += 1
        return shown

    def walk(self, depth: int) -> Iterator[Domain]:
        """Yield the domains of the first levels, each before those inside it."""
        yield from _walk(self.domains, depth)


def _walk(domains: Sequence[Domain], depth: int) -> Iterator[Domain]:
    for one in domains:
        if one.level < depth:
            yield one
            yield from _walk(one.inside, depth)
