"""Topologies that are levels of node labels, made into trees.

Decided here: a domain is the path of values down to its level, so that a rack 1 in two blocks is two racks. A node
without the label of a level, or of a wider one, has no domain there nor in what is narrower; an empty value is none. A
level that no node carries does not exist, and what is narrower than it stands. The level of the hostname label is the
node itself. A level with a prefix stands for the levels that nodes' labels show there are.

Invariant: equal topologies and nodes give equal trees, whatever was built before.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from scheduler.framework.node_labels import NodeLabels
from scheduler.framework.topology_tree import (
    BAD_FIELD,
    NO_NODE,
    Ids,
    TopologyTree,
    TreeLevel,
    frozen,
    parents_of,
    shown,
)
from scheduler.model.nodes import HOSTNAME
from scheduler.model.selecting import Labels
from scheduler.model.topology import Level, Topology, TopologyFault, level_key

Path = tuple[str | None, ...]


@dataclass(slots=True)
class _Paths:
    """The paths of values of all nodes: number of each path, and for each node the number of its own."""

    numbers: dict[Path, int]
    of_node: Ids


class LabelTrees:
    """Builds the trees; keeps what it read of nodes."""

    def __init__(self) -> None:
        self._paths: dict[tuple[str, ...], _Paths] = {}

    def build(
        self, topologies: tuple[Topology, ...], nodes: NodeLabels
    ) -> tuple[list[TopologyTree], dict[str, list[TopologyFault]]]:
        """Return the trees, and what is wrong, by uid."""
        trees, faults = [], {}
        paths: dict[tuple[str, ...], _Paths] = {}
        for topology in topologies:
            wrong = [
                TopologyFault("Topology", topology.name, BAD_FIELD, problem.field, problem.message)
                for problem in topology.problems
            ]
            levels, missing = _levels(topology, nodes.keys, wrong, empty=not nodes.names)
            labels = tuple(level.label for level in levels if level.label != HOSTNAME)
            if labels not in paths:
                paths[labels] = _read(self._paths.get(labels), labels, nodes)
            built = _arrays(topology.name, levels, nodes.names, paths[labels])
            trees.append(TopologyTree(topology.name, topology.dialect, built, (), missing))
            if wrong:
                faults[topology.uid] = wrong
        self._paths = paths
        return trees, faults


def _read(known: _Paths | None, labels: tuple[str, ...], nodes: NodeLabels) -> _Paths:
    """Return the paths of all nodes; with those of the last time only the rows that changed are read."""
    if known is None or nodes.changed is None or len(known.numbers) > len(nodes.names) + 1000:
        known = _Paths({}, np.zeros(len(nodes.names), dtype=np.int32))
        rows: Iterable[int] = range(len(nodes.names))
    else:
        rows = nodes.changed
    for row in rows:
        path = _path(nodes.labels[row], labels)
        known.of_node[row] = known.numbers.setdefault(path, len(known.numbers))
    return known


def _arrays(topology: str, levels: Sequence[Level], nodes: tuple[str, ...], read: _Paths) -> tuple[TreeLevel, ...]:
    paths, present = list(read.numbers), np.unique(read.of_node).tolist()
    order = sorted(present, key=lambda number: [value or "" for value in paths[number]])
    built: list[TreeLevel] = []
    wider: Ids | None = None
    for depth, level in enumerate(levels):
        if level.label == HOSTNAME:
            ids, names = _single(paths, read.of_node, nodes)
        else:
            ids, names = _numbered(paths, order, read.of_node, depth)
        parents = parents_of(ids, len(names), wider)
        key = level_key(topology, level.name)
        built.append(TreeLevel(key, level.name, level.label, names, frozen(ids), frozen(parents)))
        wider = ids
    return tuple(built)


def _single(paths: list[Path], of_node: Ids, nodes: tuple[str, ...]) -> tuple[Ids, tuple[str, ...]]:
    """Every node that has all labels is a domain."""
    inside = np.array([None not in path for path in paths], dtype=np.bool_)[of_node]
    if inside.all():
        return np.arange(len(nodes), dtype=np.int32), nodes
    ids = np.where(inside, np.cumsum(inside) - 1, -1).astype(np.int32)
    return ids, tuple(name for name, here in zip(nodes, inside.tolist(), strict=True) if here)


def _path(own: Labels, labels: tuple[str, ...]) -> Path:
    """The values of a node's labels, None from the first on that it does not have."""
    values = dict(own)
    path: list[str | None] = []
    for label in labels:
        value = values.get(label) if not path or path[-1] is not None else None
        path.append(value or None)
    return tuple(path)


def _numbered(paths: list[Path], order: list[int], of_node: Ids, depth: int) -> tuple[Ids, tuple[str, ...]]:
    """Number the domains of a level in the order of their paths."""
    numbers: dict[tuple[str, ...], int] = {}
    of_path = np.full(len(paths), -1, dtype=np.int32)
    for number in order:
        path = tuple(value for value in paths[number][: depth + 1] if value is not None)
        if len(path) == depth + 1:
            of_path[number] = numbers.setdefault(path, len(numbers))
    return of_path[of_node], shown(list(numbers))


def _levels(
    topology: Topology, carried: frozenset[str], wrong: list[TopologyFault], *, empty: bool
) -> tuple[list[Level], dict[str, str]]:
    """Return the levels that nodes carry, those of prefixes found, and for each other one what is to be said of it."""
    found: list[Level] = []
    missing: dict[str, str] = {}
    names: set[str] = set()
    for number, level in enumerate(topology.levels):
        part, field = f"spec.levels[{number}]", "labelPrefix" if level.prefix else "label"
        expanded = _expanded(level, carried) if level.prefix else [level]
        present = [one for one in expanded if one.label in carried or one.label == HOSTNAME]
        if not present:
            what = f"a label {level.prefix}NUMBER" if level.prefix else f"the label {level.label}"
            text = f'no node has {what} of level "{level.name}" of topology "{topology.name}"'
            missing |= {word: text for word in (level.name, level.label) if word}
            if not empty:
                wrong.append(TopologyFault("Topology", topology.name, NO_NODE, f"{part}.{field}", text))
        for one in present:
            if one.name in names or any(one.label == other.label for other in found):
                text = f'level "{one.name}" ({one.label}) is there already'
                wrong.append(TopologyFault("Topology", topology.name, BAD_FIELD, f"{part}.{field}", text))
                continue
            names.add(one.name)
            found.append(one)
    return found, missing


def _expanded(level: Level, carried: frozenset[str]) -> list[Level]:
    """The levels for which a prefix stands, widest first."""
    size = len(level.prefix)
    tails = {key[size:]: key for key in carried if key.startswith(level.prefix)}
    numbers = sorted(
        (int(tail) for tail in tails if tail.isascii() and tail.isdigit() and str(int(tail)) == tail),
        reverse=not level.rising,
    )
    return [Level(f"{level.name}-{number}", tails[str(number)]) for number in numbers]
