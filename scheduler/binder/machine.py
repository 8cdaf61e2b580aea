"""How a gang is bound: a pure function from a record and an event to a record and effects.

    Queued -> Checking -> [AwaitingVictims -> Checking] -> Preparing -> Binding -> Confirming -> Bound
                  \\______________________\\______________\\__________\\-> [Unwinding] -> [Undoing] -> Failed | Unwound

Decided here: what a failure does to the rest of the gang. Must not know: HTTP, clocks, caches, other gangs. Invariants:
a gang ends with at least its minimum bound, or with nothing that this request bound, except members that had started
before they could be unwound (they are named in the outcome); victims are asked to go only while the minimum can still
be bound, and nothing is bound before the last of them is gone (who goes when: clearing); a member has at most one
request under way that the record still waits for; a bind whose outcome is unknown is read before it is repeated. The
deadline ends the tries to reach the
minimum; it never ends an unwinding, because a part of a gang holds its nodes for nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from msgspec.structs import replace

from scheduler.binder.causes import (
    CONFLICT,
    DEADLINE,
    MALFORMED,
    POD_ENDED,
    POD_GONE,
    UNKNOWN,
    VICTIMS_REMAIN,
    WITHDRAWN,
)
from scheduler.binder.clearing import Clearing
from scheduler.binder.draft import Draft
from scheduler.binder.hearing import bind_answered, read_answered, read_unwinding
from scheduler.binder.record import (
    Answered,
    Ask,
    AwaitVictims,
    Check,
    Checked,
    Effect,
    Event,
    Extend,
    Failure,
    Fate,
    Finish,
    Kind,
    Member,
    Phase,
    Prepare,
    Prepared,
    Recall,
    Record,
    Refuse,
    Start,
    Undo,
    Undone,
    Verb,
    VictimsAnswered,
    VictimsSeen,
    Wake,
    Watched,
    Withdraw,
    Woke,
)

_NEVER_BOUND = frozenset({POD_GONE, POD_ENDED, CONFLICT, MALFORMED})
_STORY = 32

Result: TypeAlias = tuple[Record, tuple[Effect, ...]]


class ImpossibleTransition(Exception):
    """An event that cannot happen in this phase: a defect in the loop or here. The message tells the record's story."""

    def __init__(self, record: Record, event: Event) -> None:
        story = "; ".join(record.story) or "nothing happened before"
        gang = f"gang {record.place.group!r} (number {record.index} of its request)"
        super().__init__(f"{gang} is {record.phase} and got {event!r}; {story}")


def step(record: Record, event: Event) -> Result:
    """Return the record after `event`, and what must be done now, in order.

    Raises `ImpossibleTransition` for a pair of phase and event that is not in the table.
    """
    handler = TABLE.get((record.phase, type(event)))
    if handler is None:
        raise ImpossibleTransition(record, event)
    after, effects = handler(record, event)
    if after.phase is not record.phase:
        line = f"{record.phase} --{type(event).__name__}--> {after.phase}"
        after = replace(after, story=(*after.story, line)[-_STORY:])
    return after, effects


def _members(record: Record, *states: Member) -> tuple[int, ...]:
    return tuple(member for member, state in enumerate(record.states) if state in states)


def _ignore(record: Record, _event: Event) -> Result:
    return record, ()


# -- before the first bind -------------------------------------------------------------------------------------------


def _fail_whole(record: Record, cause: str, permanent: bool = False) -> Result:
    """End a gang of which nothing was tried; the cause is written once, at the first member."""
    failures = (Failure(0, cause, permanent),) if record.place.assignments else ()
    return _end(replace(record, failures=(*record.failures, *failures)), Phase.FAILED)


def _on_start(record: Record, event: Start) -> Result:
    size = len(record.place.assignments)
    victims = len(record.place.victims)
    record = replace(record, states=bytes(size), tries=bytes(size))
    record = replace(record, fates=bytes(victims), efforts=bytes(victims), cleared=not victims)
    if not 0 <= record.place.minimum <= size or not size + victims:
        return _fail_whole(record, MALFORMED, permanent=True)
    if event.now >= record.deadline and not record.resumed:
        return _fail_whole(record, DEADLINE)
    return replace(record, phase=Phase.CHECKING), (Wake(record.deadline), Check(room=record.cleared))


def _on_refuse(record: Record, event: Refuse) -> Result:
    return _fail_whole(record, event.cause, permanent=True)


def _on_withdraw(record: Record, _event: Withdraw) -> Result:
    if record.phase is Phase.QUEUED:
        return _fail_whole(record, WITHDRAWN)
    return _give_up_idle(record, WITHDRAWN, 0.0)


def _on_checked(record: Record, event: Checked) -> Result:
    draft = Draft(record, event.now)
    draft.states = bytearray(len(record.place.assignments))
    for member in event.present:
        draft.states[member] = Member.CONFIRMED if record.resumed else Member.TAKEN
    for member in event.ended:
        draft.states[member] = Member.VANISHED
    for failure in event.failures:
        draft.lose(failure.member, failure.cause, failure.permanent)
    record = draft.finish()
    if record.resumed and record.place.minimum > 1:
        # The process that died may have sent binds that have not landed yet.
        over = {failure.member for failure in event.failures if failure.cause in _NEVER_BOUND}
        doubted = frozenset(m for m in _members(record, Member.IDLE, Member.LOST) if m not in over)
        record = replace(record, doubted=doubted, doubted_until=event.now + record.timing.straggle)
    if not _reachable(record):
        return _give_up(record, event.now)
    idle = _members(record, Member.IDLE)
    if not idle and (record.cleared or record.place.assignments):
        return _end(record, Phase.BOUND)
    if event.now >= record.deadline:
        return _give_up_idle(record, DEADLINE, event.now)
    if not record.cleared:
        return _clear(record, event)
    return replace(record, phase=Phase.PREPARING, prepared=True), (Prepare(idle),)


# -- making room -----------------------------------------------------------------------------------------------------


def _clear(record: Record, event: Checked) -> Result:
    """Ask those who are in the way to go."""
    record = replace(record, covered=frozenset(event.covered))
    clearing = Clearing(record, event.now)
    clearing.see(event.gone, event.leaving)
    record, asks = clearing.finish()
    remaining = tuple(victim for victim, fate in enumerate(record.fates) if fate != Fate.GONE)
    if not remaining:
        return _cleared(record)
    return replace(record, phase=Phase.AWAITING_VICTIMS), (AwaitVictims(remaining), *asks)


def _cleared(record: Record) -> Result:
    return replace(record, phase=Phase.CHECKING, failures=(), trouble="", cleared=True), (Check(room=True),)


def _on_victims_seen(record: Record, event: VictimsSeen) -> Result:
    clearing = Clearing(record, event.now)
    clearing.see(event.gone, event.leaving)
    record, asks = clearing.finish()
    return (record, asks) if any(fate != Fate.GONE for fate in record.fates) else _cleared(record)


def _on_victims_answered(record: Record, event: VictimsAnswered) -> Result:
    clearing = Clearing(record, event.now)
    for victim, answer in event.answers:
        clearing.hear(victim, answer)
    record, asks = clearing.finish()
    if clearing.refused is None:
        return record, asks
    victim, answer = clearing.refused
    return _give_up_idle(record, answer.cause, event.now, _named(record, victim), permanent=answer.permanent)


def _on_watched_awaiting(record: Record, event: Watched) -> Result:
    """Stop asking victims to go as soon as it would be in vain."""
    draft = Draft(record, event.now)
    for member, node in event.on:
        if draft.states[member] == Member.IDLE:
            if node == draft.node(member):
                draft.states[member] = Member.CONFIRMED if record.resumed else Member.TAKEN
            else:
                draft.lose(member, CONFLICT, permanent=True)
    for member in event.gone:
        if draft.states[member] == Member.IDLE:
            draft.lose(member, POD_GONE, permanent=True)
        elif draft.states[member] in (Member.TAKEN, Member.CONFIRMED):
            draft.states[member] = Member.VANISHED
    for failure in event.barred:
        if draft.states[failure.member] == Member.IDLE:
            draft.fail(failure)
    record = draft.finish()
    if not _reachable(record):
        return _give_up(record, event.now)
    if record.place.assignments and not record.count(Member.IDLE):
        return _end(record, Phase.BOUND)
    return record, ()


def _on_woke_awaiting(record: Record, event: Woke) -> Result:
    if event.now < record.deadline:
        return record, ()
    victim = next(victim for victim, fate in enumerate(record.fates) if fate != Fate.GONE)
    about = _named(record, victim)
    if record.trouble and record.fates[victim] != Fate.LEAVING:
        about = f"{about}: {record.trouble}"
    return _give_up_idle(record, VICTIMS_REMAIN, event.now, about)


def _named(record: Record, victim: int) -> str:
    named = record.place.victims[victim]
    return f"{named.namespace}/{named.pod}"


# -- preparing -------------------------------------------------------------------------------------------------------


def _on_withdraw_preparing(record: Record, _event: Withdraw) -> Result:
    return replace(record, expired=True, trouble=WITHDRAWN), ()


def _on_prepared(record: Record, event: Prepared) -> Result:
    draft = Draft(record, event.now)
    for failure in event.failures:
        draft.fail(failure)
    record = draft.finish()
    if not _reachable(record):
        return _give_up(record, event.now)
    if record.expired or event.now >= record.deadline:
        return _give_up_idle(record, record.trouble or DEADLINE, event.now)
    idle = _members(record, Member.IDLE)
    states = record.states.replace(bytes((Member.IDLE,)), bytes((Member.ASKED,)))
    slow = record.place.steps or record.place.victims
    deadline = min(record.deadline, event.now + record.timing.bind) if slow else record.deadline
    wake = () if deadline == record.deadline else (Wake(deadline),)
    record = replace(record, phase=Phase.BINDING, states=states, deadline=deadline)
    return (record, (Ask(Verb.BIND, idle), *wake)) if idle else _settle(record, event.now, wake)


def _give_up_idle(record: Record, cause: str, now: float, about: str = "", *, permanent: bool = False) -> Result:
    """Nothing more is tried: what is not bound is lost. Members above the minimum may already hold it."""
    if not record.place.assignments:
        return _end(record, Phase.FAILED)
    idle = _members(record, Member.IDLE)
    record = replace(
        record,
        states=record.states.replace(bytes((Member.IDLE,)), bytes((Member.LOST,))),
        failures=(*record.failures, *(Failure(member, cause, permanent, about) for member in idle)),
    )
    return _end(record, Phase.BOUND) if _reachable(record) else _give_up(record, now)


# -- binding and confirming ------------------------------------------------------------------------------------------


def _reachable(record: Record) -> bool:
    """Whether the minimum can still be bound; a request that only evicts has none."""
    return not record.states or len(record.states) - record.count(Member.LOST) >= max(1, record.place.minimum)


def _on_answers(record: Record, event: Answered) -> Result:
    draft = Draft(record, event.now)
    for member, answer in event.answers:
        state = draft.states[member]
        if answer.verb is Verb.BIND and state == Member.ASKED:
            bind_answered(draft, member, answer)
        elif answer.verb is Verb.READ and state == Member.DOUBTFUL:
            read_answered(draft, member, answer)
        # any other pair is an answer that the watch overtook
    return _settle(draft.finish(), event.now, draft.effects())


def _on_watched(record: Record, event: Watched) -> Result:
    draft = Draft(record, event.now)
    was_bound = {Member.BOUND, Member.CONFIRMED, Member.TAKEN}
    if record.phase is Phase.CONFIRMING:
        was_bound.add(Member.DOUBTFUL)  # only what the server had called bound is read there
    for member, node in event.on:
        if draft.states[member] in (Member.ASKED, Member.DOUBTFUL, Member.BOUND):
            if node == draft.node(member):
                draft.states[member] = Member.CONFIRMED
            else:
                draft.lose(member, CONFLICT, permanent=True)
    for member in event.gone:
        state = draft.states[member]
        if state in was_bound:
            draft.states[member] = Member.VANISHED
        elif state in (Member.ASKED, Member.DOUBTFUL):
            draft.lose(member, POD_GONE, permanent=True)
    return _settle(draft.finish(), event.now, draft.effects())


def _on_woke_binding(record: Record, event: Woke) -> Result:
    if record.expired or event.now < record.deadline:
        return record, ()
    return _settle(replace(record, expired=True), event.now, (Recall(),))


def _on_woke_confirming(record: Record, event: Woke) -> Result:
    late = _members(record, Member.BOUND) if event.now >= record.confirm_at else ()
    if not late:
        return record, ()
    draft = Draft(record, event.now)
    for member in late:
        draft.ask(Verb.READ, member)
    return draft.finish(), draft.effects()


def _settle(record: Record, now: float, effects: tuple[Effect, ...]) -> Result:
    """Move on when enough is known: give up, wait, confirm or end."""
    if not _reachable(record):
        record, more = _give_up(record, now)
        return record, (*effects, *more)
    if record.count(Member.ASKED):
        if record.phase is Phase.CONFIRMING:  # a pod that the server had called bound is not; the deadline counts again
            return replace(record, phase=Phase.BINDING), (*effects, Wake(record.deadline))
        return record, effects
    if record.count(Member.DOUBTFUL):
        return record, effects
    if not record.count(Member.BOUND):
        record, more = _end(record, Phase.BOUND)
        return record, (*effects, *more)
    if record.phase is Phase.CONFIRMING:
        return record, effects
    confirm_at = now + record.timing.confirm
    return replace(record, phase=Phase.CONFIRMING, confirm_at=confirm_at), (*effects, Wake(confirm_at))


# -- giving up -------------------------------------------------------------------------------------------------------


def _give_up(record: Record, now: float) -> Result:
    """The minimum is out of reach. What this request bound, or may have bound, is read and then deleted."""
    unbound = (Member.IDLE, Member.LOST)
    late = record.doubted.intersection(_members(record, *unbound)) if record.place.minimum > 1 else frozenset()
    if not late and not record.count(Member.ASKED, Member.DOUBTFUL, Member.BOUND, Member.CONFIRMED):
        return _end(record, Phase.FAILED)
    draft = Draft(record, now)
    for member, state in enumerate(record.states):
        if state in (Member.BOUND, Member.CONFIRMED):
            draft.ask(Verb.READ, member)
        elif member in late:
            draft.ask(Verb.READ, member, record.doubted_until)
    record = replace(draft.finish(), phase=Phase.UNWINDING)
    return _settle_unwinding(record, (Recall(), *draft.effects()))


def _on_answers_unwinding(record: Record, event: Answered) -> Result:
    draft = Draft(record, event.now)
    for member, answer in event.answers:
        state = draft.states[member]
        if answer.verb is Verb.BIND and state == Member.ASKED:
            if answer.kind in (Kind.DONE, Kind.DOUBT, Kind.RETRY):
                if answer.cause == UNKNOWN:
                    draft.doubt(member)
                draft.ask(Verb.READ, member)
            else:
                draft.lose(member, answer.cause if answer.kind is Kind.REFUSED else "", answer.permanent)
        elif answer.verb is Verb.READ and state == Member.DOUBTFUL:
            read_unwinding(draft, member, answer)
        elif answer.verb is Verb.DELETE and state == Member.DELETING:
            if answer.kind is Kind.DONE:
                draft.states[member] = Member.UNWOUND
            elif answer.kind is Kind.REFUSED:
                draft.lose(member, answer.cause, answer.permanent, Member.KEPT)
            else:
                draft.ask(Verb.READ, member, draft.wait(member, answer.after))
    return _settle_unwinding(draft.finish(), draft.effects())


def _on_watched_unwinding(record: Record, event: Watched) -> Result:
    draft = Draft(record, event.now)
    for member, node in event.on:
        if draft.states[member] == Member.LOST and node == draft.node(member):
            draft.ask(Verb.READ, member)  # a late bind has landed
    for member in event.gone:
        if draft.states[member] in (Member.ASKED, Member.DOUBTFUL, Member.DELETING):
            draft.states[member] = Member.UNWOUND
    return _settle_unwinding(draft.finish(), draft.effects())


def _settle_unwinding(record: Record, effects: tuple[Effect, ...]) -> Result:
    if record.count(Member.ASKED, Member.DOUBTFUL, Member.DELETING):
        return record, effects
    record, more = _end(record, Phase.UNWOUND if record.count(Member.UNWOUND, Member.KEPT) else Phase.FAILED)
    return record, (*effects, *more)


def _end(record: Record, phase: Phase) -> Result:
    """End the gang; the preparation of members that are not bound is undone first."""
    stays = {Member.BOUND, Member.CONFIRMED, Member.TAKEN, Member.VANISHED, Member.KEPT}
    # The process that died may have prepared what this one has not.
    prepared = record.prepared or (record.resumed and bool(record.place.steps))
    undo = tuple(m for m, state in enumerate(record.states) if state not in stays) if prepared else ()
    if undo:
        return replace(record, phase=Phase.UNDOING, ending=phase), (Undo(undo),)
    return replace(record, phase=phase), (Finish(),)


def _on_undone(record: Record, _event: Undone) -> Result:
    return replace(record, phase=record.ending), (Finish(),)


def _on_extend(record: Record, event: Extend) -> Result:
    if event.deadline <= record.deadline:
        return record, ()
    return replace(record, deadline=event.deadline), (Wake(event.deadline),)


def _on_extend_queued(record: Record, event: Extend) -> Result:
    return replace(record, deadline=max(record.deadline, event.deadline)), ()


Handler: TypeAlias = Callable[[Record, Any], Result]


def _ignoring(phase: Phase, *events: type[Any]) -> dict[tuple[Phase, type[Any]], Handler]:
    return {(phase, event): _ignore for event in events}


_OF_VICTIMS = (VictimsSeen, VictimsAnswered)

TABLE: dict[tuple[Phase, type[Any]], Handler] = {
    (Phase.QUEUED, Start): _on_start,
    (Phase.QUEUED, Refuse): _on_refuse,
    (Phase.QUEUED, Withdraw): _on_withdraw,
    (Phase.QUEUED, Extend): _on_extend_queued,
    **_ignoring(Phase.QUEUED, Watched),
    (Phase.CHECKING, Checked): _on_checked,
    (Phase.CHECKING, Withdraw): _on_withdraw,
    (Phase.CHECKING, Extend): _on_extend,
    **_ignoring(Phase.CHECKING, Watched, Woke, *_OF_VICTIMS),
    (Phase.AWAITING_VICTIMS, VictimsSeen): _on_victims_seen,
    (Phase.AWAITING_VICTIMS, VictimsAnswered): _on_victims_answered,
    (Phase.AWAITING_VICTIMS, Watched): _on_watched_awaiting,
    (Phase.AWAITING_VICTIMS, Withdraw): _on_withdraw,
    (Phase.AWAITING_VICTIMS, Woke): _on_woke_awaiting,
    (Phase.AWAITING_VICTIMS, Extend): _on_extend,
    (Phase.PREPARING, Prepared): _on_prepared,
    (Phase.PREPARING, Withdraw): _on_withdraw_preparing,
    (Phase.PREPARING, Extend): _on_extend,
    **_ignoring(Phase.PREPARING, Watched, Woke, *_OF_VICTIMS),
    (Phase.BINDING, Answered): _on_answers,
    (Phase.BINDING, Watched): _on_watched,
    (Phase.BINDING, Woke): _on_woke_binding,
    (Phase.BINDING, Extend): _on_extend,
    **_ignoring(Phase.BINDING, Withdraw, *_OF_VICTIMS),
    (Phase.CONFIRMING, Answered): _on_answers,
    (Phase.CONFIRMING, Watched): _on_watched,
    (Phase.CONFIRMING, Woke): _on_woke_confirming,
    (Phase.CONFIRMING, Extend): _on_extend,
    **_ignoring(Phase.CONFIRMING, Withdraw, *_OF_VICTIMS),
    (Phase.UNWINDING, Answered): _on_answers_unwinding,
    (Phase.UNWINDING, Watched): _on_watched_unwinding,
    **_ignoring(Phase.UNWINDING, Withdraw, Woke, Extend, *_OF_VICTIMS),
    (Phase.UNDOING, Undone): _on_undone,
    **_ignoring(Phase.UNDOING, Answered, Watched, Withdraw, Woke, Extend, *_OF_VICTIMS),
    **_ignoring(Phase.BOUND, Answered, Watched, Withdraw, Woke, Extend, *_OF_VICTIMS),
    **_ignoring(Phase.FAILED, Answered, Watched, Withdraw, Woke, Extend, *_OF_VICTIMS),
    **_ignoring(Phase.UNWOUND, Answered, Watched, Withdraw, Woke, Extend, *_OF_VICTIMS),
}
"""Every pair that can happen. `Answered` after an end is an answer that the watch overtook; so are those of victims."""
