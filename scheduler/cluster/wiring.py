"""How nodes are wired, as objects of all dialects say it, collected for snapshots.

Decided here: their order (Muster's own topology comes before others of its name), and that a snapshot gets the same
tuples as the one before it unless something changed that the tree of domains depends on.
"""

from __future__ import annotations

from scheduler.cluster import feed
from scheduler.model.topology import HyperNode, Topology


class Wiring:
    """See the module."""

    def __init__(self) -> None:
        self._topologies: dict[tuple[str, bool, str], Topology] = {}
        self._hypernodes: dict[str, HyperNode] = {}
        self._view: tuple[tuple[Topology, ...], tuple[HyperNode, ...]] | None = None

    def apply(self, event: feed.Event) -> bool | None:
        """Take over an event; whether it changed more than what is written back. None: it is about something else."""
        match event:
            case feed.TopologySet(topology=topology):
                key = _key(topology.name, topology.dialect)
                changed = self._topologies.get(key) != topology
                self._topologies[key] = topology
            case feed.TopologyGone(name=name, dialect=dialect):
                changed = self._topologies.pop(_key(name, dialect), None) is not None
            case feed.HyperNodeSet(hypernode=hypernode):
                changed = self._hypernodes.get(hypernode.name) != hypernode
                self._hypernodes[hypernode.name] = hypernode
            case feed.HyperNodeGone(name=name):
                changed = self._hypernodes.pop(name, None) is not None
            case _:
                return None
        if changed:
            self._view = None
        return changed

    def view(self) -> tuple[tuple[Topology, ...], tuple[HyperNode, ...]]:
        """Return topologies and hyper-nodes, sorted."""
        if self._view is None:
            topologies = tuple(self._topologies[key] for key in sorted(self._topologies))
            self._view = topologies, tuple(self._hypernodes[name] for name in sorted(self._hypernodes))
        return self._view


def _key(name: str, dialect: str) -> tuple[str, bool, str]:
    return name, dialect != "muster", dialect
