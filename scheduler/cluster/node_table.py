"""The growing node table behind the store: one column a node, one row a resource, updated in place by events.

Decided here: how a charge reaches the arrays. Columns are given out in order of arrival and re-used; `view` permutes
them into name order, so a snapshot does not depend on the order of events. Charges on a node that does not exist (yet,
or any more) are kept by the store and handed in again when the node appears.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from scheduler.model.nodes import HOSTNAME, Node, NodeClass
from scheduler.model.resources import BASE, Amounts
from scheduler.model.snapshot import NodeTable


class GrowingTable:
    """Mutable arrays of allocatable and used amounts; int64, resource-major."""

    def __init__(self) -> None:
        self._resources: dict[str, int] = {}
        self._columns: dict[str, int] = {}
        self._free_columns: list[int] = []
        self._nodes: dict[str, Node] = {}
        self._allocatable: NDArray[np.int64] = np.zeros((4, 16), dtype=np.int64)
        self._used: NDArray[np.int64] = np.zeros((4, 16), dtype=np.int64)
        self._slots: NDArray[np.int64] = np.zeros(16, dtype=np.int64)
        self._pods: NDArray[np.int64] = np.zeros(16, dtype=np.int64)
        self._unstated: NDArray[np.int64] = np.zeros((len(BASE), 16), dtype=np.int64)
        self._static: tuple[tuple[str, ...], NDArray[np.intp], NDArray[np.int32], tuple[NodeClass, ...]] | None = None
        self._named: frozenset[str] = frozenset()

    def __contains__(self, name: str) -> bool:
        return name in self._nodes

    def _row(self, resource: str) -> int:
        row = self._resources.get(resource)
        if row is None:
            row = self._resources[resource] = len(self._resources)
            if row >= self._used.shape[0]:
                grow = ((0, self._used.shape[0]), (0, 0))
                self._allocatable, self._used = np.pad(self._allocatable, grow), np.pad(self._used, grow)
        return row

    def _column(self, name: str) -> int:
        column = self._columns.get(name)
        if column is None:
            column = self._free_columns.pop() if self._free_columns else len(self._columns)
            size = self._used.shape[1]
            if column >= size:
                grow = ((0, 0), (0, size))
                self._allocatable, self._used = np.pad(self._allocatable, grow), np.pad(self._used, grow)
                self._slots, self._pods = np.pad(self._slots, (0, size)), np.pad(self._pods, (0, size))
                self._unstated = np.pad(self._unstated, grow)
            self._columns[name] = column
        return column

    def set_node(self, node: Node) -> None:
        """Add a node or replace its attributes; what is charged to it stays."""
        old = self._nodes.get(node.name)
        column = self._column(node.name)
        self._nodes[node.name] = node
        self._allocatable[:, column] = 0
        for resource, value in node.allocatable:
            row = self._row(resource)
            self._allocatable[row, column] = value
        self._slots[column] = node.slots
        if old is None or _static(old) != _static(node):
            self._static = None

    def remove_node(self, name: str) -> None:
        """Forget a node with all that is charged to it."""
        column = self._columns.pop(name, None)
        if column is None:
            return
        del self._nodes[name]
        self._allocatable[:, column] = 0
        self._used[:, column] = 0
        self._unstated[:, column] = 0
        self._slots[column] = self._pods[column] = 0
        self._free_columns.append(column)
        self._static = None

    def charge(self, name: str, amounts: Amounts, pods: int, unstated: Amounts = ()) -> None:
        """Add (pods = 1) or take back (pods = -1) one pod's amounts on a node; a node not in the table is ignored."""
        column = self._columns.get(name)
        if column is None:
            return
        for resource, value in amounts:
            row = self._row(resource)  # may replace the arrays by larger ones
            self._used[row, column] += value * pods
        for resource, value in unstated:
            self._unstated[BASE.index(resource), column] += value * pods
        self._pods[column] += pods

    def _build_static(
        self, named: frozenset[str]
    ) -> tuple[tuple[str, ...], NDArray[np.intp], NDArray[np.int32], tuple[NodeClass, ...]]:
        names = tuple(sorted(self._nodes))
        order = np.fromiter((self._columns[name] for name in names), dtype=np.intp, count=len(names))
        classes: dict[NodeClass, int] = {}
        class_of = np.zeros(len(names), dtype=np.int32)
        for position, name in enumerate(names):
            node = self._nodes[name]
            hostname = dict(node.labels).get(HOSTNAME)
            by_name = hostname is None or name in named or hostname in named
            cls = NodeClass(
                labels=tuple(pair for pair in node.labels if by_name or pair[0] != HOSTNAME),
                taints=node.taints,
                unschedulable=node.unschedulable or node.deleting,
                name=name if by_name else "",
                features=node.features,
            )
            class_of[position] = classes.setdefault(cls, len(classes))
        return names, order, class_of, tuple(classes)

    def view(self, named: frozenset[str]) -> NodeTable:
        """Return the table as of now, in name order.

        named: node names or hostname labels that some shape asks for; those nodes get a class of their own.
        """
        if self._static is None or self._named != named:
            self._static, self._named = self._build_static(named), named
        names, order, class_of, classes = self._static
        rows = np.array(sorted(range(len(self._resources)), key=list(self._resources).__getitem__), dtype=np.intp)
        pick = np.ix_(rows, order)
        return NodeTable(
            names=names,
            resources=tuple(sorted(self._resources)),
            allocatable=self._allocatable[pick],
            used=self._used[pick],
            slots=self._slots[order],
            pods=self._pods[order],
            unstated=self._unstated[:, order],
            class_of=class_of,
            classes=classes,
            nodes=dict(self._nodes),
        )


def _static(node: Node) -> tuple[object, ...]:
    return node.labels, node.taints, node.unschedulable, node.deleting, node.features
