"""What keeps a group from being placed at all, before any node is looked at; in the order in which reasons are shown.

A verdict from here is about the group, its object, its members or its queue; a new node would not help.
"""

from __future__ import annotations

from scheduler.framework.gangs import is_running, not_found
from scheduler.framework.session import Session
from scheduler.model.groups import GroupState
from scheduler.model.verdict import Code, Verdict, verdict


def malformed(session: Session, state: GroupState) -> Verdict | None:
    """Return what is wrong with the object or its members' specs, naming the fields, or None."""
    group = state.group
    if group.problems:
        first = group.problems[0]
        return verdict(Code.MISCONFIGURED, field=first.field, message=first.message, problems=len(group.problems))
    if state.missing_object or group.deleting:
        return not_found(state)
    fields = {field: None for pod in state.waiting for field in session.snapshot.shapes[pod.shape].unsupported}
    if fields:
        return verdict(Code.BAD_CONSTRAINTS, field=", ".join(sorted(fields)), message="not supported by this version")
    return None


def gate(session: Session, state: GroupState) -> Verdict | None:
    """Return why the group may not be placed now, or None. A running group is not asked whether it may start."""
    why = malformed(session, state)
    if why is not None or is_running(state):
        return why
    return session.hooks.ready(state, session) or session.hooks.admits(state, session)
