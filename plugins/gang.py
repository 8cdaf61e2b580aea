"""A gang that lacks members waits, and says which: in total, or of which role; gated ones are told apart.

That a gang is placed whole or not at all is not decided here (nor can it be switched off): placement keeps the minimum.
This plugin says early, and in words, that it cannot be kept yet. It also keeps a group out whose object asks for more
in `minResources` than the nodes have free in sum (its operator may create the rest of the pods only once it runs),
unless what is missing can be taken back for it: its queue is owed so much, or holds so much itself, of which groups of
a lower priority can go.
"""

from __future__ import annotations

import numpy as np

from scheduler.framework.gangs import membership
from scheduler.framework.protocols import View
from scheduler.framework.registry import Arguments
from scheduler.model.groups import GroupState
from scheduler.model.resources import PODS
from scheduler.model.verdict import Code, Verdict, verdict


class Gang:
    """See the module."""

    name = "gang"

    def __init__(self, arguments: Arguments) -> None:
        pass

    def ready(self, state: GroupState, view: View) -> Verdict | None:
        """Return NotEnoughMembers or Gated until the waiting members can complete the minimum."""
        return membership(state)

    def admits(self, state: GroupState, view: View) -> Verdict | None:
        """Return Resources while `minResources`, less what members already hold, exceeds what is free in sum."""
        if not state.group.min_resources:
            return None
        table = view.snapshot.table
        open_nodes = np.array([not node_class.unschedulable for node_class in table.classes], dtype=np.bool_)
        usable = open_nodes[table.class_of] if len(table.names) else np.zeros(0, dtype=np.bool_)
        rows = {name: number for number, name in enumerate(table.resources)}
        shapes = view.snapshot.shapes
        for name, asked in state.group.min_resources:
            held = sum(
                dict(shapes[pod.shape].requests).get(name, 1 if name == PODS else 0)
                for pod in (*state.bound, *state.assumed)
            )
            source = view.open_slots if name == PODS else view.free[rows[name]] if name in rows else None
            free = 0 if source is None else int(np.maximum(source[usable], 0).sum())
            if asked - held > free and not self._may_take(state, name, asked - held, asked - held - free, view):
                return verdict(
                    Code.RESOURCES,
                    field="spec.minResources",
                    resource=name,
                    needed=asked - held,
                    free=free,
                    short=asked - held - free,
                    nodes=int(usable.sum()),
                    members=state.group.min_member,
                )
        return None

    def _may_take(self, state: GroupState, name: str, needed: int, short: int, view: View) -> bool:
        """Whether so much is there for the group's queue by right, or is held in it."""
        book, row = view.book, view.queue_row(state)
        column = book.column(name)
        if row is None or column is None or needed > int(book.ground.total[column]):
            return False
        if short <= int(book.staying[row, column]) and state.priority > 0:
            return True
        one = np.zeros(len(book.ground.resources), dtype=np.int64)
        one[column] = needed
        return all(book.within(above, one) for above in book.lineage(row))
