"""Queues: who may use which, whose turn it is, and how much each may hold.

A group's queue must exist, be a leaf, be open up to the root and let the group's namespace in; "default" needs no
object. Queues are served in this order, level by level from the root: first those that stay within what they are
entitled to with their next group, then by priority, then by their dominant share (a leaf's: with that group). A queue,
with all above it, never holds more than its limit, nor what the idle guarantees of others need; groups that cannot be
preempted are placed only within what their queue deserves, because nobody could take it back. What each is entitled to
is arithmetic (`scheduler.model.quota`), shifted by what queues used in the past where they or the arguments state a
half-life: `fairShare.halfLifeHours`, `fairShare.factorPercent` (how much it shifts), `fairShare.on` (surplus: only what
is left over; weights: all that goes by weight). Members that replace lost ones of a running group may start in a held
queue.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from scheduler.framework.gangs import is_running, needs
from scheduler.framework.protocols import SortKey, View
from scheduler.framework.registry import Arguments
from scheduler.framework.usage import FairShare
from scheduler.model.filling import CEILING
from scheduler.model.groups import GroupState
from scheduler.model.queues import DEFAULT_QUEUE, Queue
from scheduler.model.resources import Amounts, add
from scheduler.model.selecting import selects
from scheduler.model.verdict import Code, Fact, Verdict, verdict


class Queues:
    """See the module."""

    name = "queues"

    def __init__(self, arguments: Arguments) -> None:
        hours = arguments.integer("fairShare.halfLifeHours", 0, high=100_000)
        percent = arguments.integer("fairShare.factorPercent", 100, high=10_000)
        on = arguments.choice("fairShare.on", "surplus", ("surplus", "weights"))
        self.fair_share = FairShare(hours * 3600.0 or None, percent / 100.0, on)

    # -- whose turn it is -----------------------------------------------------------------------------------------

    def order_queues(self, queue: Queue, head: GroupState, view: View) -> SortKey:
        """Return for each level whether it is over its entitlement, its priority, its dominant share."""
        row = view.queue_row(head)
        if row is None:
            return (0, -queue.priority)
        book = view.book
        ask = book.vector(view.least_of(head))
        nothing = np.zeros_like(ask)
        key: list[int | float | str] = []
        for one in reversed(list(book.lineage(row))[:-1]):
            here = book.tree.queues[one]
            within = book.within(one, ask)
            # Of what stands above, what it holds counts: a smaller group is no reason to prefer one of its queues.
            key += [int(not within), -here.priority, book.share(one, ask if one == row else nothing)]
        return tuple(key)

    # -- who may use which ----------------------------------------------------------------------------------------

    def admits(self, state: GroupState, view: View) -> Verdict | None:
        """Return what is wrong with the queue or its place in the tree, or which limit its `minResources` exceed."""
        why = self._verdict(state, view)
        row = view.queue_row(state)
        if why is not None or not state.group.min_resources or row is None:
            return why
        shapes = view.snapshot.shapes
        held = add(*(shapes[pod.shape].requests for pod in (*state.bound, *state.assumed)))
        wanted = np.maximum(view.book.vector(state.group.min_resources) - view.book.vector(held), 0)
        return self._limited(row, wanted, view, field="spec.minResources")

    def _verdict(self, state: GroupState, view: View) -> Verdict | None:
        name = state.queue or DEFAULT_QUEUE
        tree = view.book.tree
        leaf = tree.lookup(name)
        if leaf is None:
            return verdict(Code.QUEUE_NOT_FOUND, queue=name)
        if not tree.is_leaf(leaf):
            return verdict(Code.QUEUE_NOT_LEAF, queue=name)
        fault = tree.fault_of(leaf)
        if fault is not None and fault.parent:
            return verdict(Code.QUEUE_NOT_FOUND, queue=name, parent=fault.parent)
        if fault is not None:
            return verdict(
                Code.MISCONFIGURED,
                queue=fault.queue,
                field=f"queue {leaf}{'' if fault.queue == leaf else f', below {fault.queue}'}: {fault.field}",
                message=fault.message.removeprefix(f"{fault.field}: "),
            )
        closed = tree.closed(leaf)
        if closed is not None:
            return verdict(Code.QUEUE_CLOSED, queue=name, closed=closed[0], state=closed[1])
        for one in tree.lineage(leaf):
            queue = view.snapshot.queues.get(one)
            if queue is None or queue.namespaces is None:
                continue
            labels = dict(view.snapshot.presence.namespaces.get(state.group.namespace, ()))
            if not selects(queue.namespaces, labels):
                shut = f"closed to namespace {state.group.namespace}"
                return verdict(Code.QUEUE_CLOSED, queue=name, closed=one, state=shut)
        return None

    # -- how much -------------------------------------------------------------------------------------------------

    def allows(self, state: GroupState, ask: Amounts, view: View) -> Verdict | None:
        """Return which queue may not hold so much more, with its numbers."""
        if not (is_running(state) and needs(state).total > 0):
            why = self._verdict(state, view)
            if why is not None:
                return why
        row = view.queue_row(state)
        if row is None:
            return None
        book = view.book
        wanted = book.vector(ask)
        why = self._limited(row, wanted, view)
        if why is not None:
            return why
        kept = book.reserved(row, wanted)
        if kept is not None:
            facts = self._facts(view, kept[0], kept[1], wanted)
            root = book.tree.structure.root
            facts["free"] = int(book.ground.total[kept[1]] - book.used[root, kept[1]])
            facts["kept"] = book.kept_beside(row, kept[1])
            return _told(Code.WAITING_FOR_QUOTA, facts)
        return self._firmly(state, wanted, view)

    def _limited(self, row: int, wanted: NDArray[np.int64], view: View, field: str = "") -> Verdict | None:
        """Return which limit, of the queue or one above it, does not allow so much more."""
        limited = view.book.limited(row, wanted)
        if limited is None:
            return None
        one, column = limited
        never = int(wanted[column]) > int(view.book.ground.limit[one, column])
        facts = self._facts(view, one, column, wanted)
        if field:
            facts["field"] = field
        return _told(Code.EXCEEDS_LIMIT if never else Code.WAITING_FOR_QUOTA, facts, permanent=never)

    def _firmly(self, state: GroupState, wanted: NDArray[np.int64], view: View) -> Verdict | None:
        """A group that cannot be preempted stays within what its queue and those above it deserve."""
        beyond = view.beyond_deserved(state, wanted)
        if beyond is None:
            return None
        row, column, held = beyond
        facts = self._facts(view, row, column, wanted)
        facts["used"] = held
        facts["deserved"] = int(view.book.ground.deserved[row, column])
        facts["message"] = "a group that cannot be preempted stays within what its queue deserves"
        return _told(Code.WAITING_FOR_QUOTA, facts)

    def _facts(self, view: View, row: int, column: int, wanted: NDArray[np.int64]) -> dict[str, Fact]:
        """The numbers of a queue for one resource."""
        book = view.book
        facts: dict[str, Fact] = {
            "queue": book.tree.names[row],
            "resource": book.ground.resources[column],
            "needed": int(wanted[column]),
            "used": int(book.used[row, column]),
        }
        if book.ground.limit[row, column] < CEILING:
            facts["limit"] = int(book.ground.limit[row, column])
        if 0 < book.ground.deserved[row, column] < CEILING:
            facts["deserved"] = int(book.ground.deserved[row, column])
        return facts


def _told(code: Code, facts: dict[str, Fact], *, permanent: bool = False) -> Verdict:
    return Verdict(code, tuple(sorted(facts.items())), permanent=permanent)
