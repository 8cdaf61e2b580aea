"""Where waiting groups stand in their queues, so told that a long queue is not rewritten whenever its head is served.

Decided here: who stands in the line of a queue (groups that wait for room, quota, victims or those before them; lost
members of running groups first, then those that start, each in the plugins' order), and how coarsely a place is told:
the first `EXACT` by number and by who is ahead, the others rounded up to 20, 50, 100, 200, 500 and so on. A place alone
is looked at again at most once in `AGAIN_AFTER` seconds, so that what a queue costs is bounded: the first few places
and one group for each rounded number, however long it is.
"""

from __future__ import annotations

from scheduler.actions.turns import in_order
from scheduler.framework.gangs import is_running, needs
from scheduler.framework.session import Session
from scheduler.model.decisions import QueuePlace
from scheduler.model.groups import GroupState
from scheduler.model.verdict import CAPACITY_CODES, Code

EXACT = 10
"""Places that are told by their number."""
NAMED = 3
"""Groups ahead that are named."""
AGAIN_AFTER = 5.0
"""Seconds after which the places of a queue are looked at again where they alone may differ."""
IN_LINE = CAPACITY_CODES | {Code.WAITING_FOR_QUOTA, Code.WAITING_FOR_VICTIMS, Code.PRIORITY}


class Lines:
    """The lines of one session, each made when it is asked for. due: whether what was told is to be looked at again."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._by_queue: dict[str, list[GroupState]] | None = None
        self._places: dict[str, dict[str, QueuePlace]] = {}
        known, at = session.cache.lines
        keys = frozenset(key for key, why in session.verdicts.items() if why.code in IN_LINE and not why.permanent)
        self.due = keys != known and session.now >= at + AGAIN_AFTER
        if self.due:
            session.cache.lines = (keys, session.now)
        elif keys != known:
            session.wake_no_later_than(at + AGAIN_AFTER)
        self._keys = keys

    def place(self, state: GroupState) -> QueuePlace | None:
        """Return where a group stands now; None: in no line."""
        if state.key not in self._keys:
            return None
        queue = self._session.queue_of(state)
        if queue not in self._places:
            self._places[queue] = self._line(queue)
        return self._places[queue].get(state.key)

    def with_objects(self) -> list[str]:
        """Return the groups in line that have an object, by key."""
        groups = self._session.snapshot.groups
        return sorted(key for key in self._keys if key in groups and groups[key].group.has_object)

    def _line(self, queue: str) -> dict[str, QueuePlace]:
        if self._by_queue is None:
            self._by_queue = {}
            for key in sorted(self._keys):
                state = self._session.snapshot.groups.get(key)
                if state is not None and (needs(state).total > 0 or not is_running(state)):
                    self._by_queue.setdefault(self._session.queue_of(state), []).append(state)
        order = in_order(self._session, self._by_queue.get(queue, []))
        states = [*order.only(is_running).states(), *order.only(lambda state: not is_running(state)).states()]
        return {state.key: _told(queue, number, states) for number, state in enumerate(states, 1)}


def _told(queue: str, number: int, states: list[GroupState]) -> QueuePlace:
    if number > EXACT:
        return QueuePlace(queue, rounded(number), exact=False)
    ahead = tuple(f"{one.group.namespace}/{one.group.name}" for one in states[: min(NAMED, number - 1)])
    return QueuePlace(queue, number, ahead=ahead, more=number - 1 - len(ahead))


def rounded(number: int) -> int:
    """Return the next of 20, 50, 100, 200, 500, ... that is not less."""
    scale = 10
    while True:
        for step in (1, 2, 5):
            if number <= step * scale and step * scale > EXACT:
                return step * scale
        scale *= 10
