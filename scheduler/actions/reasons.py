"""After all actions: a verdict on every group that still waits, true of the amounts at the end of the session.

Decided here: whose earlier verdict is brought up to date. What is said of whom is decided by `verdicts`.
"""

from __future__ import annotations

from dataclasses import replace

from scheduler.actions.ask import Ask
from scheduler.actions.placing import Nothing, could_ever
from scheduler.actions.steps import asked_again
from scheduler.actions.verdicts import explain
from scheduler.actions.wants import Want, wants
from scheduler.framework.session import Session
from scheduler.model.groups import GroupState
from scheduler.model.verdict import Verdict


def run(session: Session) -> None:
    """Leave a verdict on every group that wants something and was not placed."""
    changed = session.ledger.token != session.began
    for key, state in (session.recalled if changed else session.outdated).items():
        if key not in wants(session) and key not in session.placed_of:
            with session.guard(state):
                _look_again(session, state)
    for key in sorted(wants(session)):
        want = wants(session)[key]
        with session.guard(want.state):
            _say(session, want)


def _say(session: Session, want: Want) -> None:
    """Explain why there is no room; what queues forbid, or what is waited for, has been said."""
    if want.kept or not session.remaining(want.state):
        return
    if want.answer is None:
        if want.why is not None and not want.why.permanent and not could_ever(session, want.ask):
            session.reject(want.state, _nor_fits(want.why))
        return
    why = explain(session, want.ask, want.answer)
    session.reject(want.state, why)
    if want.answer.proven and want.state.key not in session.placed_of:
        session.remember(want.state, why, want.answer)


def _nor_fits(why: Verdict) -> Verdict:
    """What a queue forbids is the reason, since nodes alone would not help; that there are none is told beside it."""
    facts = {**dict(why.facts), "message": "no room on the nodes that there are either, never fits"}
    return replace(why, facts=tuple(sorted(facts.items())), permanent=True)


def _look_again(session: Session, state: GroupState) -> None:
    """Bring an earlier verdict up to date with what this session placed; what did not fit then does not fit now.

    What its queue has come to forbid goes first, as it would have in its turn.
    """
    known = session.cache.outcomes.get(state.key)
    ask = asked_again(session, state)
    forbidden = session.hooks.allows(state, ask.amounts, session) if isinstance(ask, Ask) else None
    if isinstance(ask, Ask) and forbidden is not None:
        session.cache.outcomes.pop(state.key, None)
        session.reject(state, forbidden)
        wants(session)[state.key] = Want(ask, why=forbidden)
        return
    if isinstance(ask, Ask) and known is not None and isinstance(known.answer, Nothing):
        wants(session)[state.key] = Want(ask, known.answer)
    elif ask is not None and not isinstance(ask, Ask):
        session.reject(state, ask)
        session.remember(state, ask)
