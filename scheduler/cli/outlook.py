"""What `muster why` says beyond the objects: what a session finds now, the group's turn, and why nobody goes for it.

Decided here: a whole session is run on the cluster as it is (`picture`), so that what is said to fit, or not to, has
been searched for and not guessed; nothing of it is carried out. Where it would place the group, that is told, with who
would have to go; the scheduler may not have come to it yet.
"""

from __future__ import annotations

from typing import Any

from scheduler.actions.ask import Ask
from scheduler.actions.barriers import barriers
from scheduler.actions.lineup import turn_of
from scheduler.actions.steps import asked_again
from scheduler.cli.output import named
from scheduler.cli.picture import Picture
from scheduler.framework.hooks import HookRaised
from scheduler.framework.session import Session
from scheduler.model.groups import GroupState
from scheduler.model.verdict import CAPACITY_CODES, Code
from scheduler.observe import explain

Facts = dict[str, Any]
_NAMED = 3
_ROOM = CAPACITY_CODES | {Code.WAITING_FOR_QUOTA}
"""Verdicts against which eviction could help."""


def outlook(picture: Picture, key: str) -> Facts:
    """Return now, order and eviction of a group that waits, as far as there is something to say."""
    state = picture.snapshot.groups.get(key)
    if state is None or not state.waiting:
        return {}
    session = picture.decided()
    places = session.placed_of.get(key, [])
    facts: Facts = {}
    verdict = session.verdicts.get(key)
    if places:
        victims = [f"{victim.namespace}/{victim.pod}" for place in places for victim in place.victims]
        moved = sum(bool(victim.move_to) for place in places for victim in place.victims)
        facts["now"] = _next(sum(len(place.assignments) for place in places), victims, moved)
    elif verdict is not None:
        facts["now"] = explain.sentence(verdict)
    order = _order(picture.session(), key)
    if order:
        facts["order"] = order
    if not places and verdict is not None and verdict.code in _ROOM and not verdict.permanent:
        try:
            facts["eviction"] = _eviction(session, state, tuple(picture.config.actions))
        except HookRaised as raised:
            facts["eviction"] = [str(raised)]
    return facts


def _next(pods: int, victims: list[str], moved: int) -> str:
    """Return what the next session would do, in words."""
    said = f"the next session would place {pods} {'pod' if pods == 1 else 'pods'} of it"
    if not victims:
        return said
    gone = len(victims) - moved
    parts = [f"{gone} evicted" if gone else "", f"{moved} moved" if moved else ""]
    return f"{said}, with {' and '.join(part for part in parts if part)} before: {named(victims, _NAMED)}"


def _order(session: Session, key: str) -> str:
    try:
        turn = turn_of(session, key)
    except HookRaised as raised:
        return str(raised)
    if turn is None:
        return ""
    queue = session.queue_of(turn.state)
    ahead = [f"{one.group.namespace}/{one.group.name}" for one in turn.before]
    behind = f", behind {named(ahead, _NAMED)}" if ahead else ""
    return f"{turn.position} of {turn.in_queue} in queue {queue}, {turn.in_all} of {turn.waiting} in all{behind}"


def _eviction(session: Session, state: GroupState, actions: tuple[str, ...]) -> list[str]:
    """Return one line for each obstacle."""
    ask = asked_again(session, state)
    if not isinstance(ask, Ask):
        return []
    found = barriers(session, ask.for_one() if ask.each else ask, actions)
    return [f"{one.action}: {explain.barrier(one)}" for one in found]
