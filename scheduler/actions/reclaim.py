"""Reclaim: give a queue back what it is owed, from queues that hold more than what they are owed.

The rules of who may go are `rights.reclaiming` and, for those whom that gives no place, `rights.recalling`; nobody is
evicted unless the same decision places the group's minimum.
"""

from __future__ import annotations

from scheduler.actions.consolidate import moving_first
from scheduler.actions.making_room import make_room_for, one
from scheduler.actions.rights import recalling, reclaiming
from scheduler.framework.session import Session


def run(session: Session) -> None:
    """Make room in other queues."""
    make_room_for(session, "reclaim", one(reclaiming), moving_first)
    make_room_for(session, "recall", recalling, moving_first)
