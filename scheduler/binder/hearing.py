"""What an answer about one member means for that member: what it is now, and what is asked next.

Decided here: when a member is tried again, when it is read first, and when it is lost. Must not know: what that does to
the rest of the gang (the machine decides).
"""

from __future__ import annotations

from scheduler.binder.causes import CONFLICT, DEADLINE, POD_ENDED, POD_GATED, POD_GONE, STARTED, UNKNOWN
from scheduler.binder.draft import Draft
from scheduler.binder.record import Answer, Kind, Member, Phase, Reading, Verb


def bind_answered(draft: Draft, member: int, answer: Answer) -> None:
    """Take the answer to a bind."""
    match answer.kind:
        case Kind.DONE:
            draft.states[member] = Member.BOUND
        case Kind.DOUBT:
            draft.trouble = answer.cause
            if answer.cause == UNKNOWN:
                draft.doubt(member)
            draft.ask(Verb.READ, member)
        case Kind.RETRY if not draft.record.expired:
            draft.trouble = answer.cause
            draft.ask(Verb.BIND, member, draft.wait(member, answer.after))
        case Kind.NOT_SENT:
            draft.lose(member, draft.trouble if draft.tries[member] and draft.trouble else DEADLINE)
        case _:
            draft.lose(member, answer.cause, answer.permanent)


def read_answered(draft: Draft, member: int, answer: Answer) -> None:
    """Take what a pod says of itself while its gang is being bound."""
    confirming = draft.record.phase is Phase.CONFIRMING
    if answer.reading is None:
        if answer.kind is Kind.REFUSED and draft.record.expired:
            draft.lose(member, answer.cause, answer.permanent)
        else:
            draft.ask(Verb.READ, member, draft.wait(member, answer.after))
        return
    reading = answer.reading
    if reading.gone:
        if confirming:
            draft.states[member] = Member.VANISHED
        else:
            draft.lose(member, POD_GONE, permanent=True)
    elif reading.node == draft.node(member):
        draft.states[member] = Member.VANISHED if reading.ended else Member.CONFIRMED
    elif cause := _unbindable(reading):
        draft.lose(member, cause, permanent=cause != POD_GATED)
    elif draft.record.expired:
        draft.lose(member, draft.trouble or DEADLINE)
    else:
        draft.ask(Verb.BIND, member, draft.wait(member))


def _unbindable(reading: Reading) -> str:
    """Return why a pod that is not on its node can never get there, or ""."""
    if reading.node:
        return CONFLICT
    if reading.deleting:
        return POD_GONE
    if reading.ended:
        return POD_ENDED
    return POD_GATED if reading.gated else ""


def read_unwinding(draft: Draft, member: int, answer: Answer) -> None:
    """Take what a pod says of itself while its gang is being unwound."""
    reading = answer.reading
    if reading is None:
        if answer.kind is Kind.REFUSED:
            draft.lose(member, answer.cause, answer.permanent, Member.KEPT)
        else:
            draft.ask(Verb.READ, member, draft.wait(member, answer.after))
    elif reading.gone:
        draft.states[member] = Member.UNWOUND
    elif reading.node == draft.node(member):
        if reading.deleting:
            draft.states[member] = Member.UNWOUND
        elif reading.started or reading.ended:
            draft.lose(member, STARTED, state=Member.KEPT)
        else:
            draft.ask(Verb.DELETE, member, version=reading.version)
    elif reading.node:
        draft.lose(member, CONFLICT, permanent=True)
    elif (member in draft.record.doubted and draft.now < draft.record.doubted_until) or member in draft.doubted:
        draft.ask(Verb.READ, member, max(draft.record.doubted_until, draft.now))
    else:
        draft.states[member] = Member.LOST
