"""Enqueue: which groups whose object waits at the door may enter the competition.

Operators of Volcano's kind create a group's pods only after its object says Inqueue, so entry must not depend on
members. Entry is a mark in the session; the status step writes it unless the group is placed in the same session.
"""

from __future__ import annotations

from scheduler.actions.gates import malformed, suspended
from scheduler.framework.session import Session

AT_THE_DOOR = ("", "Pending")
"""Phases (neutral words) of an object that has not been let in."""


def run(session: Session) -> None:
    """Admit every group with an object that is well formed, not suspended, and that no plugin keeps out."""
    for state in session.waiting.values():
        if not state.group.has_object or state.group.phase not in AT_THE_DOOR:
            continue
        admitted = session.recall_entry(state)
        if admitted is None:
            with session.guard(state):
                kept_out = malformed(session, state) or suspended(state) or session.hooks.admits(state, session)
                admitted = kept_out is None
                session.remember_entry(state, admitted=admitted)
        if admitted:
            session.admitted[state.key] = None
