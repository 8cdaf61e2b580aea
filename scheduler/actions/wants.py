"""What a group still wants after it had its turn: left by one action for those that come later in the session.

Decided here: who has to wait until it is settled whether room is made for somebody before it. Nothing is searched for
here.
"""

from __future__ import annotations

from dataclasses import dataclass

from scheduler.actions.ask import Ask
from scheduler.actions.placing import Nothing
from scheduler.framework.session import Session
from scheduler.model.groups import GroupState
from scheduler.model.verdict import CAPACITY_CODES, Code, Verdict

GROWTH_ROUNDS = 16
"""A group's surplus is handed out in at most so many parts."""
_OF_QUEUES = frozenset({Code.WAITING_FOR_QUOTA, Code.WAITING_FOR_VICTIMS})
EVICTING = ("reclaim", "preempt")
"""The actions that may make room by eviction, each for those that it is for."""


@dataclass(frozen=True, slots=True)
class Want:
    """A group that has no place. answer: what a search said, None where it was not searched for because of `why`.

    kept: room that is about to be free is kept for it in this session.
    """

    ask: Ask
    answer: Nothing | None = None
    why: Verdict | None = None
    kept: bool = False

    @property
    def state(self) -> GroupState:
        """The group."""
        return self.ask.state


def wants(session: Session) -> dict[str, Want]:
    """Return the wants of the session by group, in the order in which the groups had their turn."""
    return session.wants


def waits_for_room(session: Session, state: GroupState) -> bool:
    """Whether the group, by what is said of it now, waits for room or for its queue's share, which may come."""
    why = session.verdicts.get(state.key)
    return why is not None and not why.permanent and (why.code in CAPACITY_CODES or why.code in _OF_QUEUES)


def evictions_follow(session: Session) -> bool:
    """Whether an action that may evict comes later, and after it one that serves those who waited for it."""
    later = session.later_actions
    return any(name in EVICTING for name in later) and "backfill" in later


def leave(session: Session, want: Want) -> None:
    """Note a want, for the actions that come later and for those who have their turn after it."""
    session.wants[want.state.key] = want
    row = session.queue_row(want.state)
    if want.kept or row is None:
        return
    contest, book = session.contest, session.book
    contest.priorities[row] = max(contest.priorities.get(row, want.state.priority), want.state.priority)
    if row not in contest.owed and book.within(row, book.vector(want.ask.amounts)):
        contest.owed[row] = None


def has_to_wait(session: Session, state: GroupState, ask: Ask) -> bool:
    """Whether a group must not take room before it is settled if room is made for one of those that came before it.

    That is one of its own queue with a higher priority, or one that is within what its queue is owed, while this one
    would be over what its own is owed.
    """
    if not session.wants or not evictions_follow(session):
        return False
    row, contest, book = session.queue_row(state), session.contest, session.book
    if row is None:
        return False
    if "preempt" in session.later_actions and contest.priorities.get(row, state.priority) > state.priority:
        return True
    if "reclaim" not in session.later_actions or all(other == row for other in contest.owed):
        return False
    return not book.within(row, book.vector(ask.amounts))
