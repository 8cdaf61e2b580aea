"""Nodes, and the part of them on which static predicates depend (`NodeClass`).

Two nodes with equal `NodeClass` get the same verdict from every static predicate, so a predicate runs once a class and
never once a node. The labels are part of the class except those that name the node itself.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from scheduler.model.resources import Amounts

HOSTNAME = "kubernetes.io/hostname"
_DOWN = frozenset(f"node.kubernetes.io/{why}" for why in ("not-ready", "unreachable", "unschedulable"))
"""Taints that node controllers set on nodes that are not there to be used."""


@dataclass(frozen=True, slots=True)
class Taint:
    """A taint; effect is NoSchedule, PreferNoSchedule or NoExecute."""

    key: str
    value: str = ""
    effect: str = "NoSchedule"


@dataclass(frozen=True, slots=True)
class Node:
    """What a scheduler needs to know of a node. `allocatable` has no "pods"; those are `slots`.

    images: names and bytes of the images there that are large enough to matter. features: of those that it declares the
    ones that some pod may need, sorted.
    """

    name: str
    uid: str = ""
    allocatable: Amounts = ()
    slots: int = 110
    labels: tuple[tuple[str, str], ...] = ()
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    deleting: bool = False
    resource_version: str = ""
    images: tuple[tuple[str, int], ...] = ()
    features: tuple[str, ...] = ()

    @property
    def is_down(self) -> bool:
        """Whether nothing is to be put there whatever it has: it is cordoned, being deleted, or not ready."""
        return self.unschedulable or self.deleting or any(taint.key in _DOWN for taint in self.taints)

    @property
    def as_ready(self) -> Node:
        """The node as it would be if it were there to be used, with the taints of its pool."""
        taints = tuple(taint for taint in self.taints if taint.key not in _DOWN)
        return replace(self, taints=taints, unschedulable=False, deleting=False)


@dataclass(frozen=True, slots=True)
class NodeClass:
    """Static attributes shared by nodes that every static predicate treats alike.

    `name` is set only where some waiting shape asks for the node by name or by its hostname label, or where the node
    has no such label; the labels are complete then.
    """

    labels: tuple[tuple[str, str], ...] = ()
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    name: str = ""
    features: tuple[str, ...] = ()

    @property
    def is_down(self) -> bool:
        """Whether nothing is to be put there whatever it has: it is cordoned, being deleted, or not ready."""
        return self.unschedulable or any(taint.key in _DOWN for taint in self.taints)

    @property
    def state(self) -> str:
        """One word for people: ready, cordoned (or being deleted), not ready."""
        return "cordoned" if self.unschedulable else "not ready" if self.is_down else "ready"

    def label(self, key: str) -> str | None:
        """Return the value of a label, or None."""
        for name, value in self.labels:
            if name == key:
                return value
        return None
