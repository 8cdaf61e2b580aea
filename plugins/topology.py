"""A group that asks for one domain gets one: all members in one domain of a level, or behind one value of a label.

A level that is not there, or that no node carries, is said, not ignored.
"""

from __future__ import annotations

from scheduler.framework.protocols import View, Wish, WithinDomain
from scheduler.framework.registry import Arguments
from scheduler.model.groups import GroupState
from scheduler.model.verdict import Code, Verdict, verdict


class Topology:
    """See the module."""

    name = "topology"

    def __init__(self, arguments: Arguments) -> None:
        """Takes no arguments."""

    def wishes(self, state: GroupState, view: View) -> tuple[Wish, ...] | Verdict:
        """Return the required and the preferred domain of the group."""
        wish = state.group.topology
        if wish is None:
            return ()
        wishes: list[Wish] = []
        if wish.required:
            found = view.resolve(wish.name, wish.required)
            if not isinstance(found, str):
                return verdict(Code.BAD_CONSTRAINTS, field=wish.field, message=found.message)
            wishes.append(WithinDomain(found, required=True))
        if wish.preferred:
            found = view.resolve(wish.name, wish.preferred)
            if isinstance(found, str):
                wishes.append(WithinDomain(found, required=False))
        return tuple(wishes)
