"""Preempt: make room for a group by evicting groups of its own queue that matter less.

The rule of who may go is `rights.preempting`; nobody is evicted unless the same decision places the group's minimum.
"""

from __future__ import annotations

from scheduler.actions.consolidate import moving_first
from scheduler.actions.making_room import make_room_for, one
from scheduler.actions.rights import preempting
from scheduler.framework.session import Session


def run(session: Session) -> None:
    """Make room in the groups' own queues."""
    make_room_for(session, "preempt", one(preempting), moving_first)
