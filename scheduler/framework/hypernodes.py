"""Hyper-nodes made into one tree.

Decided here: which memberships count. One that contradicts others does not, and nothing else is lost: those that form a
circle, a member whose tier is not below that of its hyper-node, and whoever is in two hyper-nodes of which neither is
inside the other. What is below such a member keeps its place below it. Being in a hyper-node and also in one around it
says nothing new and is no fault.

A node's domain at the level of tier T is the widest hyper-node of a tier up to T that it is in, so that "at most tier
T" is one level whatever tiers lie on the way. Above the highest tier there is a level that holds all nodes.

Patterns are RE2, as the API's own scheduler reads them; no pattern can take longer than the name is long.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import networkx as nx
import numpy as np
import re2

from scheduler.framework.node_labels import NodeLabels
from scheduler.framework.topology_tree import (
    BAD_FIELD,
    CYCLE,
    MISSING,
    OVERLAP,
    TIER_NAME,
    TIER_ORDER,
    TWO_PARENTS,
    Ids,
    TopologyTree,
    TreeLevel,
    frozen,
    parents_of,
)
from scheduler.model.affinity import PodSelector
from scheduler.model.selecting import Labels, SelectorIndex, selects
from scheduler.model.topology import HYPERNODES, HyperNode, HyperNodeMember, TopologyFault, level_key

ALL_NODES = "all nodes"
_SHOWN = 3
_SPACE = "nodes"
_TOGETHER = 64


@dataclass(slots=True)
class _Graph:
    """Hyper-nodes that have a tier, with the memberships among them that count.

    parent: the narrowest hyper-node around each. faults: by name.
    """

    of: dict[str, HyperNode]
    parent: dict[str, str] = field(default_factory=dict)
    faults: dict[str, list[TopologyFault]] = field(default_factory=dict)

    def blame(self, name: str, reason: str, where: str, message: str) -> None:
        """Note a fault."""
        self.faults.setdefault(name, []).append(TopologyFault("HyperNode", name, reason, where, message))

    def chain(self, name: str) -> list[str]:
        """The hyper-node and those around it, the narrowest first."""
        found = [name]
        while found[-1] in self.parent:
            found.append(self.parent[found[-1]])
        return found

    def narrowest(self, names: Iterable[str]) -> str | None:
        """Return that of some hyper-nodes which is inside all others of them; None where they contradict."""
        ordered = sorted(names, key=lambda name: (self.of[name].tier, name))
        around = set(self.chain(ordered[0]))
        return ordered[0] if around.issuperset(ordered) else None


class Patterns:
    """Regular expressions over names; each name is looked at once."""

    def __init__(self, patterns: Iterable[str]) -> None:
        self.bad: dict[str, str] = {}
        """Pattern -> why it cannot be used."""
        options = re2.Options()
        options.log_errors, options.never_capture = False, True
        good = []
        for pattern in sorted(set(patterns)):
            try:
                re2.compile(pattern, options)
            except re2.error as error:
                said = error.args[0] if error.args else error
                self.bad[pattern] = said.decode(errors="replace") if isinstance(said, bytes) else str(said)
            else:
                good.append(pattern)
        self._sets: list[tuple[re2.Set, tuple[str, ...]]] = []
        for start in range(0, len(good), _TOGETHER):
            self._add(good[start : start + _TOGETHER], options)
        self._known: dict[str, tuple[str, ...]] = {}

    def _add(self, patterns: list[str], options: re2.Options) -> None:
        """Have these searched for together; in halves where they are too large for that."""
        one = re2.Set.SearchSet(options)
        try:
            for pattern in patterns:
                one.Add(pattern)
            one.Compile()
        except re2.error:
            if len(patterns) == 1:
                self.bad[patterns[0]] = "it is too large"
                return
            half = len(patterns) // 2
            self._add(patterns[:half], options)
            self._add(patterns[half:], options)
        else:
            self._sets.append((one, tuple(patterns)))

    def matching(self, name: str) -> tuple[str, ...]:
        """Return the patterns that match somewhere in a name."""
        found = self._known.get(name)
        if found is None:
            found = tuple(patterns[i] for one, patterns in self._sets for i in one.Match(name) or ())
            self._known[name] = found
        return found


class HyperNodeTree:
    """Builds the tree of all hyper-nodes; keeps what it read of nodes."""

    def __init__(self) -> None:
        self._hypernodes: tuple[HyperNode, ...] | None = None
        self._graph = _Graph({})
        self._patterns = Patterns(())
        self._by_pattern: dict[str, list[str]] = {}
        self._by_name: dict[str, list[str]] = {}
        self._selectors: list[tuple[HyperNodeMember, str]] = []
        self._index = SelectorIndex()
        self._number: dict[str, int] = {}
        self._place: Ids = np.zeros(0, dtype=np.int32)
        self._torn: dict[int, frozenset[str]] = {}

    def build(
        self, hypernodes: tuple[HyperNode, ...], nodes: NodeLabels
    ) -> tuple[TopologyTree | None, dict[str, list[TopologyFault]], dict[str, int]]:
        """Return the tree (None where there is no hyper-node), what is wrong by uid, and by name how many nodes are in
        each."""
        rows: Iterable[int] | None = nodes.changed
        if hypernodes != self._hypernodes:
            self._hypernodes, rows = hypernodes, None
            self._read(hypernodes)
        self._settle(nodes, rows)
        graph, place, order = self._graph, self._place, list(self._number)
        extra = self._blamed(nodes.names)
        counts = dict.fromkeys(order, 0)
        for i, many in enumerate(np.bincount(place[place >= 0], minlength=len(order)).tolist()):
            for name in graph.chain(order[i]):
                counts[name] += many
        faults = {
            graph.of[name].uid: [*graph.faults.get(name, ()), *extra.get(name, ())]
            for name in order
            if name in graph.faults or name in extra
        }
        for one in hypernodes:
            if one.name not in graph.of:
                faults[one.uid] = graph.faults[one.name]
        return (_tree(graph, self._number, place) if order else None), faults, counts

    # -- hyper-nodes --------------------------------------------------------------------------------------------

    def _read(self, hypernodes: tuple[HyperNode, ...]) -> None:
        graph = self._graph = _Graph({})
        for one in hypernodes:
            for problem in one.problems:
                graph.blame(one.name, BAD_FIELD, problem.field, problem.message)
            if not any(problem.field == "spec.tier" for problem in one.problems):
                graph.of[one.name] = one
        self._by_pattern, self._by_name, self._selectors, self._index = {}, {}, [], SelectorIndex()
        members = [(member, name) for name, one in graph.of.items() for member in one.members]
        self._patterns = Patterns(member.pattern for member, _ in members if member.pattern)
        for member, name in members:
            if member.pattern in self._patterns.bad:
                why = self._patterns.bad[member.pattern]
                graph.blame(name, BAD_FIELD, f"{member.field}.selector.regexMatch.pattern", f"does not compile: {why}")
            elif member.kind == "Node":
                self._note(member, name)
        _connect(graph, self._children(graph))
        _name_tiers(graph)
        order = sorted(graph.of, key=lambda name: list(reversed(graph.chain(name))))
        self._number = {name: i for i, name in enumerate(order)}

    def _note(self, member: HyperNodeMember, name: str) -> None:
        if member.pattern:
            self._by_pattern.setdefault(member.pattern, []).append(name)
        elif member.exact:
            self._by_name.setdefault(member.exact, []).append(name)
        elif member.labels is not None:
            self._index.add(len(self._selectors), (PodSelector(namespaces=(_SPACE,), labels=member.labels),))
            self._selectors.append((member, name))

    def _children(self, graph: _Graph) -> dict[tuple[str, str], str]:
        """(member, hyper-node) -> field, for the members that are hyper-nodes."""
        found: dict[tuple[str, str], str] = {}
        for name, one in graph.of.items():
            for member in one.members:
                if member.kind != "HyperNode" or member.pattern in self._patterns.bad:
                    continue
                if member.exact and member.exact not in graph.of:
                    where = f"{member.field}.selector.exactMatch.name"
                    graph.blame(name, MISSING, where, f"there is no HyperNode {member.exact} that can be used")
                elif member.exact:
                    found.setdefault((member.exact, name), member.field)
                else:
                    for other in graph.of:
                        if other != name and member.pattern in self._patterns.matching(other):
                            found.setdefault((other, name), member.field)
        return found

    # -- nodes --------------------------------------------------------------------------------------------------

    def _settle(self, nodes: NodeLabels, rows: Iterable[int] | None) -> None:
        """Find for each node (rows None; else for these rows) the narrowest hyper-node that it is in (-1: none)."""
        if rows is None:
            self._place, self._torn = np.full(len(nodes.names), -1, dtype=np.int32), {}
        for row in range(len(nodes.names)) if rows is None else rows:
            around = self._around(nodes.names[row], nodes.labels[row])
            inside = self._graph.narrowest(around) if around else None
            self._place[row] = -1 if inside is None else self._number[inside]
            self._torn.pop(row, None)
            if around and inside is None:
                self._torn[row] = frozenset(around)

    def _around(self, name: str, labels: Labels) -> tuple[str, ...]:
        """The hyper-nodes that name a node as a member."""
        found = dict.fromkeys(self._by_name.get(name, ()))
        if self._by_pattern:
            for pattern in self._patterns.matching(name):
                found.update(dict.fromkeys(self._by_pattern.get(pattern, ())))
        if self._selectors:
            values = dict(labels)
            for number in self._index.candidates(_SPACE, labels):
                member, hypernode = self._selectors[number]
                if member.labels is not None and selects(member.labels, values):
                    found[hypernode] = None
        return tuple(found)

    def _blamed(self, nodes: tuple[str, ...]) -> dict[str, list[TopologyFault]]:
        """What is wrong with memberships of nodes."""
        found: dict[str, list[TopologyFault]] = {}
        torn: dict[frozenset[str], list[str]] = {}
        for row in sorted(self._torn):
            torn.setdefault(self._torn[row], []).append(nodes[row])
        known = frozenset(nodes) if self._by_name else frozenset()

        def blame(name: str, reason: str, where: str, message: str) -> None:
            found.setdefault(name, []).append(TopologyFault("HyperNode", name, reason, where, message))

        for several, members in sorted(torn.items(), key=lambda item: sorted(item[0])):
            for name in sorted(several):
                others = ", ".join(sorted(several - {name}))
                which = f"{_some('node', members)} {'is' if len(members) == 1 else 'are'}"
                blame(name, OVERLAP, "spec.members", f"{which} in {others} too, and count for none of them")
        for exact, names in sorted(self._by_name.items()):
            if exact not in known:
                for name in names:
                    where = next(one.field for one in self._graph.of[name].members if one.exact == exact)
                    blame(name, MISSING, f"{where}.selector.exactMatch.name", f"there is no node {exact}")
        return found


def _some(what: str, names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"{what if len(names) == 1 else what + 's'} {', '.join(names[:_SHOWN])}{more}"


def _connect(graph: _Graph, edges: dict[tuple[str, str], str]) -> None:
    """Find the parents: of what contradicts itself there are none."""
    net = nx.DiGraph()
    net.add_nodes_from(graph.of)
    net.add_edges_from(edges)
    for circle in nx.strongly_connected_components(net):
        inside = [edge for edge in edges if edge[0] in circle and edge[1] in circle]
        if inside:
            text = f"members of each other in a circle: {', '.join(sorted(circle))}; that membership does not count"
            for child, name in inside:
                graph.blame(name, CYCLE, edges[child, name], text)
            net.remove_edges_from(inside)
    for child, name in tuple(net.edges):
        low, high = graph.of[child].tier, graph.of[name].tier
        if low >= high:
            text = f"HyperNode {child} has tier {low}, which is not below {high}; that membership does not count"
            graph.blame(name, TIER_ORDER, edges[child, name], text)
            net.remove_edge(child, name)
    for child in reversed(list(nx.topological_sort(net))):  # those around it are settled before
        around = sorted(net.successors(child))
        if not around:
            continue
        parent = graph.narrowest(around)
        if parent is not None:
            graph.parent[child] = parent
            continue
        which = f"{', '.join(around)}, none of which is inside the others; that membership does not count"
        graph.blame(child, TWO_PARENTS, "metadata.name", f"is a member of {which}")
        for name in around:
            graph.blame(name, TWO_PARENTS, edges[child, name], f"HyperNode {child} is a member of {which}")


def _name_tiers(graph: _Graph) -> None:
    """Find names that stand for several tiers."""
    for word, tiers in _tier_names(graph).items():
        if len(tiers) > 1:
            text = f'"{word}" is the name of the tiers {", ".join(map(str, sorted(tiers)))} and stands for none'
            for name, one in graph.of.items():
                if one.tier_name == word:
                    graph.blame(name, TIER_NAME, "spec.tierName", text)


def _tier_names(graph: _Graph) -> dict[str, set[int]]:
    found: dict[str, set[int]] = {}
    for one in graph.of.values():
        if one.tier_name:
            found.setdefault(one.tier_name, set()).add(one.tier)
    return found


def _tree(graph: _Graph, number: Mapping[str, int], place: Ids) -> TopologyTree:
    order = list(number)
    tiers = sorted({one.tier for one in graph.of.values()}, reverse=True)
    words = _tier_names(graph)
    clash = {
        word: f'"{word}" is the name of HyperNodes of the tiers {", ".join(map(str, sorted(found)))}'
        for word, found in words.items()
        if len(found) > 1
    }
    top = f"tier {tiers[0] + 1}"
    everything = np.zeros(len(place), dtype=np.int32)
    count = min(1, len(place))
    around = frozen(parents_of(everything, count, None))
    levels = [TreeLevel(level_key(HYPERNODES, top), top, "", (ALL_NODES,) * count, frozen(everything), around)]
    for tier in tiers:
        of = np.array([_at(graph, name, tier, number) for name in order], dtype=np.int32)
        raw = np.where(place >= 0, of[place], -1).astype(np.int32)
        present = np.unique(raw[raw >= 0])
        ids = np.where(raw >= 0, np.searchsorted(present, raw), -1).astype(np.int32)
        parents = parents_of(ids, len(present), levels[-1].ids)
        name = f"tier {tier}"
        own = tuple(sorted(word for word, found in words.items() if found == {tier}))
        names = tuple(order[i] for i in present.tolist())
        levels.append(TreeLevel(level_key(HYPERNODES, name), name, "", names, frozen(ids), frozen(parents), own))
    return TopologyTree(HYPERNODES, graph.of[order[0]].dialect, tuple(levels), (tiers[0] + 1, *tiers), clash)


def _at(graph: _Graph, name: str, tier: int, number: Mapping[str, int]) -> int:
    """The number of the widest hyper-node up to a tier that a hyper-node is in, -1 where it is wider itself."""
    within = [number[one] for one in graph.chain(name) if graph.of[one].tier <= tier]
    return within[-1] if within else -1
