"""What keeps a group from being placed at all, before any node is looked at; in the order in which reasons are shown.

A verdict from here is about the group, its object, its members or its queue; a new node would not help.
"""

from __future__ import annotations

from scheduler.framework.gangs import is_running, not_found
from scheduler.framework.session import Session
from scheduler.model.bindrequest import awaiting
from scheduler.model.groups import GroupState
from scheduler.model.pods import Pod
from scheduler.model.verdict import Code, Verdict, verdict


def malformed(session: Session, state: GroupState) -> Verdict | None:
    """Return what is wrong with the object or its members' specs, naming the fields, or None."""
    group = state.group
    if group.problems:
        first = group.problems[0]
        return verdict(Code.MISCONFIGURED, field=first.field, message=first.message, problems=len(group.problems))
    if state.missing_object or group.deleting:
        return not_found(state)
    for pod in state.waiting if session.hooks.unkept else ():
        field = unkept_field(pod, session)
        if field:
            return verdict(Code.BAD_CONSTRAINTS, field=field, message="no configured plugin keeps this rule")
    fields = {field: None for pod in state.waiting for field in session.snapshot.shapes[pod.shape].unsupported}
    if fields:
        return verdict(Code.BAD_CONSTRAINTS, field=", ".join(sorted(fields)), message="not supported by this version")
    return None


def losing(session: Session, state: GroupState) -> Verdict | None:
    """Return that members of the group are about to go, for this session's decisions or earlier ones, or None.

    What it needs is not known before it is seen that they go: who is placed meanwhile could be left over alone.
    """
    leaving, evicted = session.snapshot.leaving, session.evicted
    if not leaving and not evicted:
        return None
    gone = [pod for pod in state.bound if pod.uid in leaving or pod.uid in evicted]
    return awaiting([f"{pod.namespace}/{pod.name}" for pod in gone]) if gone else None


def suspended(state: GroupState) -> Verdict | None:
    """Return that the group's object suspends it: nothing of it starts, what runs goes on."""
    return verdict(Code.SUSPENDED, field=state.group.suspended) if state.group.suspended else None


def unkept_field(pod: Pod, session: Session) -> str:
    """Return the field of a pod's spec that must hold and that no configured plugin looks at, or ""."""
    shape = session.snapshot.shapes[pod.shape]
    asked = {
        "hostPorts": ("spec.containers[].ports[].hostPort", shape.host_ports),
        "podAffinity": ("spec.affinity", shape.affinity or shape.anti_affinity),
        "spread": ("spec.topologySpreadConstraints", any(term.hard for term in shape.spread)),
        "volumes": ("spec.volumes", pod.volumes is not None),
    }
    return next((asked[rule][0] for rule in sorted(session.hooks.unkept) if asked[rule][1]), "")


def gate(session: Session, state: GroupState) -> Verdict | None:
    """Return why the group may not be placed now, or None. A running group is not asked whether it may start."""
    why = malformed(session, state) or suspended(state) or state.held
    if why is not None or is_running(state):
        return why
    return session.hooks.ready(state, session) or session.hooks.admits(state, session)
