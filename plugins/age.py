"""Older groups first: by when the group, or its first member, was made.

The session does the same as its last resort; listed in an earlier tier, age decides before what comes after it.
"""

from __future__ import annotations

from scheduler.framework.protocols import SortKey, View
from scheduler.framework.registry import Arguments
from scheduler.model.groups import GroupState


class Age:
    """See the module."""

    name = "age"

    def __init__(self, arguments: Arguments) -> None:
        pass

    def order_groups(self, state: GroupState, view: View) -> SortKey:
        """Sort by age, oldest first."""
        return (state.group.created,)
