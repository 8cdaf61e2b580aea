"""Whether a group's queue exists, is a leaf and is open; and whose turn it is by the queues' priority.

"default" and "root" need no object. A queue is held when it or a queue above it is not Open; members that replace lost
ones of a running group still start there. How much a queue may use is not decided here yet.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from scheduler.framework.gangs import is_running, needs
from scheduler.framework.protocols import SortKey, View
from scheduler.framework.registry import Arguments
from scheduler.model.groups import GroupState
from scheduler.model.queues import DEFAULT_QUEUE, Queue
from scheduler.model.resources import Amounts
from scheduler.model.verdict import Code, Verdict, verdict

ROOT = "root"


def _lineage(queue: Queue, queues: Mapping[str, Queue]) -> Iterator[Queue | str]:
    """The queue and those above it, up to the root; a name (str) ends it where the tree is broken."""
    seen: list[str] = []
    while True:
        if queue.name in seen:
            yield queue.name
            return
        yield queue
        seen.append(queue.name)
        if queue.parent in ("", ROOT):
            return
        parent = queues.get(queue.parent)
        if parent is None:
            yield queue.parent
            return
        queue = parent


class Queues:
    """See the module."""

    name = "queues"

    def __init__(self, arguments: Arguments) -> None:
        self._parents: frozenset[str] = frozenset()

    def on_session(self, view: View) -> None:
        """Collect which queues have children."""
        self._parents = frozenset(queue.parent for queue in view.snapshot.queues.values() if queue.parent)

    def order_queues(self, queue: Queue, view: View) -> SortKey:
        """Sort by priority, highest first."""
        return (-queue.priority,)

    def admits(self, state: GroupState, view: View) -> Verdict | None:
        """Return what is wrong with the queue or its place in the tree, or None."""
        return self._verdict(state, view)

    def allows(self, state: GroupState, ask: Amounts, view: View) -> Verdict | None:
        """Return the same, except for members that repair a running group."""
        if is_running(state) and needs(state).total > 0:
            return None
        return self._verdict(state, view)

    def _verdict(self, state: GroupState, view: View) -> Verdict | None:
        name = state.queue or DEFAULT_QUEUE
        queues = view.snapshot.queues
        *above, leaf = name.strip("/").split("/")
        queue = queues.get(leaf)
        if leaf in self._parents or leaf == ROOT:
            return verdict(Code.QUEUE_NOT_LEAF, queue=name)
        if queue is None:
            return None if name == DEFAULT_QUEUE else verdict(Code.QUEUE_NOT_FOUND, queue=name)
        line: list[str] = []
        for one in _lineage(queue, queues):
            if isinstance(one, str):
                return verdict(Code.QUEUE_NOT_FOUND, queue=name, parent=one)
            if one.problems:
                first = one.problems[0]
                return verdict(
                    Code.MISCONFIGURED, queue=one.name, field=f"queue {one.name}: {first.field}", message=first.message
                )
            if one.state != "Open":
                return verdict(Code.QUEUE_CLOSED, queue=name, closed=one.name, state=one.state)
            line.append(one.name)
        path = [part for part in above if part != ROOT]
        if path and list(reversed(line))[-len(path) - 1 : -1] != path:
            return verdict(Code.QUEUE_NOT_FOUND, queue=name)
        return None
