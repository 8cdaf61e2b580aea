"""The labels of all nodes, compared with those of the session before, so that a change costs what it changes."""

from __future__ import annotations

from collections import Counter

from scheduler.model.selecting import Labels
from scheduler.model.snapshot import NodeTable


class NodeLabels:
    """names, labels: of the nodes, row by row. keys: of the labels that nodes carry. changed: the rows that differ from
    the reading before, None where the rows themselves do."""

    def __init__(self) -> None:
        self.names: tuple[str, ...] = ()
        self.labels: list[Labels] = []
        self.keys: frozenset[str] = frozenset()
        self.changed: list[int] | None = None
        self._times: Counter[str] = Counter()

    def read(self, table: NodeTable) -> None:
        """Take over the nodes of a table."""
        nodes = table.nodes
        labels = [nodes[name].labels for name in table.names]
        before = self.labels
        if table.names == self.names:
            self.changed = [row for row, (new, old) in enumerate(zip(labels, before, strict=True)) if new is not old]
            pairs = [(labels[row], before[row]) for row in self.changed]
        else:
            self.changed = None
            left = dict(zip(self.names, before, strict=True))
            pairs = [(own, left.pop(name, ())) for name, own in zip(table.names, labels, strict=True)]
            pairs += [((), own) for own in left.values()]
        for new, old in pairs:
            if new is not old:
                self._times.subtract(key for key, _ in old)
                self._times.update(key for key, _ in new)
        keys = frozenset(key for key, many in self._times.items() if many > 0)
        if keys != self.keys:
            self.keys = keys
        self.names, self.labels = table.names, labels
