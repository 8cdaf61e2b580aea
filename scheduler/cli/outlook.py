"""What `muster why` says beyond the objects: what a session finds now, the group's turn, and why nobody goes for it.

Decided here: a whole session is run on the cluster as it is (`picture`), so that what is said to fit, or not to, has
been searched for and not guessed; nothing of it is carried out. Where it would place the group, that is told, with who
would have to go; the scheduler may not have come to it yet. The words are those of `web.outlook`.
"""

from __future__ import annotations

from typing import Any

from scheduler.actions.lineup import turn_of
from scheduler.cli.picture import Picture
from scheduler.framework.hooks import HookRaised
from scheduler.framework.session import Session
from scheduler.model.bindrequest import awaiting, awaits_binder
from scheduler.observe import explain
from scheduler.web import outlook as words

Facts = dict[str, Any]


def outlook(picture: Picture, key: str) -> Facts:
    """Return now, order and eviction of a group that waits, as far as there is something to say."""
    state = picture.snapshot.groups.get(key)
    if state is None:
        return {}
    if not state.waiting:
        victims = picture.snapshot.awaited.get(key, ())
        way = awaiting(victims) if victims else awaits_binder(state)
        return {"now": explain.sentence(way)} if state.assumed else {}
    session = picture.decided()
    facts: Facts = {}
    verdict = session.verdicts.get(key)
    placed = words.placing(session, key)
    if placed:
        facts["now"] = placed
    elif verdict is not None:
        facts["now"] = explain.sentence(verdict)
    order = _order(picture.session(), key)
    if order:
        facts["order"] = order
    if not placed:
        try:
            lines = words.obstacles(session, state, verdict, picture.config.actions)
        except HookRaised as raised:
            lines = [str(raised)]
        facts |= {"eviction": lines} if lines else {}
    return facts


def _order(session: Session, key: str) -> str:
    try:
        turn = turn_of(session, key)
    except HookRaised as raised:
        return str(raised)
    return "" if turn is None else words.order(session, turn)
