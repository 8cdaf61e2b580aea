"""The tree of domains of a snapshot, kept from session to session.

Decided here: when it is built anew (the topology objects or the static part of the node table changed, and nothing
else), which of several topologies of one name holds (the first in the snapshot), and what is said of each object.
Only speed depends on what is kept.
"""

from __future__ import annotations

from collections.abc import Sequence

from scheduler.framework.hypernodes import HyperNodeTree
from scheduler.framework.label_levels import LabelTrees
from scheduler.framework.node_labels import NodeLabels
from scheduler.framework.topology_tree import SHADOWED, Domains, TopologyTree
from scheduler.model.decisions import SetTopologyStatus
from scheduler.model.snapshot import NodeTable, Snapshot
from scheduler.model.topology import HYPERNODES, HyperNode, Topology, TopologyFacts, TopologyFault

EMPTY = Domains({}, {}, {}, frozenset())


class DomainCache:
    """See the module. `number` changes with every tree that is built."""

    def __init__(self) -> None:
        self.number = 0
        self._nodes = NodeLabels()
        self._trees, self._hypernodes = LabelTrees(), HyperNodeTree()
        self._table: NodeTable | None = None
        self._objects: tuple[tuple[Topology, ...], tuple[HyperNode, ...]] = ((), ())
        self._domains = EMPTY

    def of(self, snapshot: Snapshot) -> Domains:
        """Return the domains of a snapshot."""
        objects = (snapshot.topologies, snapshot.hypernodes)
        if self._table is None or not _same(snapshot.table, self._table) or objects != self._objects:
            self._domains = self._build(snapshot)
            self.number += 1
        self._table, self._objects = snapshot.table, objects
        return self._domains

    def _build(self, snapshot: Snapshot) -> Domains:
        nodes, self._nodes = self._nodes, NodeLabels()  # should this raise, everything is read anew
        nodes.read(snapshot.table)
        holding: dict[str, Topology] = {}
        faults: dict[str, list[TopologyFault]] = {}
        for topology in snapshot.topologies:
            first = holding.setdefault(topology.name, topology)
            if first is not topology:
                text = f"the topology of this name in the API of {first.dialect} holds instead"
                faults[topology.uid] = [TopologyFault("Topology", topology.name, SHADOWED, "metadata.name", text)]
        trees, wrong = self._trees.build(tuple(holding.values()), nodes)
        by_name = {tree.name: tree for tree in trees}
        grouped, broken, counts = self._hypernodes.build(snapshot.hypernodes, nodes)
        if grouped is not None and HYPERNODES not in by_name:
            by_name[HYPERNODES] = grouped
        for uid, found in (*wrong.items(), *broken.items()):
            faults.setdefault(uid, []).extend(found)
        facts = {}
        for topology in snapshot.topologies:
            tree = by_name[topology.name] if holding[topology.name] is topology else None
            said = _facts(tree, faults.get(topology.uid, ()), len(nodes.names))
            facts[topology.uid] = _status(topology, said)
        for one in snapshot.hypernodes:
            said = TopologyFacts(nodes=counts.get(one.name, 0), faults=_said(faults.get(one.uid, ())))
            facts[one.uid] = _status(one, said)
        self._nodes = nodes
        return Domains(by_name, {uid: tuple(found) for uid, found in faults.items()}, facts, nodes.keys)


def _status(one: Topology | HyperNode, said: TopologyFacts) -> SetTopologyStatus:
    return SetTopologyStatus(one.name, one.uid, one.dialect, isinstance(one, HyperNode), said, one.generation)


def _facts(tree: TopologyTree | None, faults: Sequence[TopologyFault], nodes: int) -> TopologyFacts:
    """tree: None where another of that name holds."""
    if tree is None:
        return TopologyFacts(faults=_said(faults))
    return TopologyFacts(
        domains=tuple((level.name, len(level.names)) for level in tree.levels),
        unlabelled=int(tree.unlabelled.sum()) if tree.levels else nodes,
        faults=_said(faults),
    )


def _said(faults: Sequence[TopologyFault]) -> tuple[tuple[str, str], ...]:
    return tuple((fault.reason, f"{fault.field}: {fault.message}") for fault in faults)


def _same(table: NodeTable, before: NodeTable) -> bool:
    """Whether nothing that a tree is made of differs; identity is enough, it differs at most too often."""
    return table.names is before.names and table.classes is before.classes and table.class_of is before.class_of
