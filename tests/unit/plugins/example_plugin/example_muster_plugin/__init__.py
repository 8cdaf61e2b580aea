"""Nodes with the label example.com/reserved take only pods that select it; small gangs go first.

Arguments: `labels` (default [example.com/reserved]), `smallestFirst` (0 or 1, default 0).
"""

from __future__ import annotations

from scheduler.framework.protocols import Misfit, SortKey, View
from scheduler.framework.registry import Arguments
from scheduler.model.groups import GroupState
from scheduler.model.nodes import NodeClass
from scheduler.model.pods import Shape
from scheduler.model.verdict import Code, Verdict, verdict


class Reserved:
    """See the module."""

    name = "reserved"

    def __init__(self, arguments: Arguments) -> None:
        labels = arguments.texts("labels", ("example.com/reserved",))
        if not labels:
            raise arguments.refuse("labels", "must name at least one label")
        self._labels = labels
        self._smallest_first = arguments.integer("smallestFirst", 0, high=1) == 1

    def fits(self, shape: Shape, node_class: NodeClass) -> Misfit | None:
        """Called once for each kind of pod and class of nodes: may such a pod run there?"""
        selected = dict(shape.node_selector)
        for label in self._labels:
            owner = node_class.label(label)
            if owner is not None and selected.get(label) != owner:
                return Misfit(f"node(s) were reserved for {owner}")
        return None

    def order_groups(self, state: GroupState, view: View) -> SortKey:
        """Called for each waiting group: the smallest key goes first."""
        return (state.group.min_member,) if self._smallest_first else ()

    def admits(self, state: GroupState, view: View) -> Verdict | None:
        """Called before a group may start: None, or the reason that its owner will read."""
        if state.group.min_member > 1000:
            return verdict(Code.SUSPENDED, message="gangs of more than 1000 members need an appointment")
        return None
