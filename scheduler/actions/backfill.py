"""Backfill: those who waited until it was settled whether room is made for others take what is left.

Also pods that ask for nothing, which never keep anybody else from a place. Never ahead of a group that is within what
its queue is owed and has a place: such groups had their turn before.
"""

from __future__ import annotations

from scheduler.actions.allocate import passes
from scheduler.framework.session import Session


def run(session: Session) -> None:
    """Give the groups that allocate left out their turn."""
    states = [state for key, state in session.deferred.items() if key not in session.placed_of]
    session.deferred.clear()
    if states:
        passes(session, states)
