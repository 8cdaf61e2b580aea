"""Higher priority first: groups by the priority of their class, members by their own."""

from __future__ import annotations

from scheduler.framework.protocols import SortKey, View
from scheduler.framework.registry import Arguments
from scheduler.model.groups import GroupState
from scheduler.model.pods import Pod


class Priority:
    """See the module."""

    name = "priority"

    def __init__(self, arguments: Arguments) -> None:
        pass

    def order_groups(self, state: GroupState, view: View) -> SortKey:
        """Sort by priority, highest first."""
        return (-state.priority,)

    def order_members(self, pod: Pod) -> SortKey:
        """Sort by the pod's priority, highest first."""
        return (-pod.priority,)
