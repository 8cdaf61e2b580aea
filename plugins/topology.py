"""A group that asks for one domain (all members behind the same value of a node label) gets one.

Levels are node label keys here. A level that no node carries, or that is not a label key, is said, not ignored.
"""

from __future__ import annotations

from scheduler.framework.protocols import View, Wish, WithinDomain
from scheduler.framework.registry import Arguments
from scheduler.model.groups import GroupState
from scheduler.model.nodes import HOSTNAME, NodeClass
from scheduler.model.verdict import Code, Verdict, verdict


class Topology:
    """See the module."""

    name = "topology"

    def __init__(self, arguments: Arguments) -> None:
        self._classes: tuple[NodeClass, ...] = ()
        self._labels: frozenset[str] = frozenset((HOSTNAME,))

    def on_session(self, view: View) -> None:
        """Collect the label keys in use."""
        classes = view.snapshot.table.classes
        if classes is not self._classes:
            self._classes = classes
            self._labels = frozenset(key for one in classes for key, _ in one.labels) | {HOSTNAME}

    def wishes(self, state: GroupState, view: View) -> tuple[Wish, ...] | Verdict:
        """Return the required and the preferred domain of the group."""
        wish = state.group.topology
        if wish is None:
            return ()
        if wish.required and wish.required not in self._labels:
            return verdict(Code.BAD_CONSTRAINTS, field=wish.field, message=f"no node has the label {wish.required}")
        wishes: list[Wish] = []
        if wish.required:
            wishes.append(WithinDomain(wish.required, required=True))
        if wish.preferred in self._labels:
            wishes.append(WithinDomain(wish.preferred, required=False))
        return tuple(wishes)
