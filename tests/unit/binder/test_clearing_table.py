"""The part of the machine that makes room, as tables: what is asked of which victim, when, and when no more."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from scheduler.binder.machine import TABLE, step
from scheduler.binder.record import (
    ENDS,
    Answer,
    AwaitVictims,
    Check,
    Checked,
    Clear,
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
    Reading,
    Recall,
    Record,
    Refuse,
    Start,
    Timing,
    Verb,
    VictimsAnswered,
    VictimsSeen,
    Wake,
    Watched,
    Withdraw,
    Woke,
)
from scheduler.model.decisions import Assignment, Place, Victim

DEADLINE = 100.0
TIMING = Timing(first_wait=1.0, last_wait=8.0, bind=20.0)
LATER = 3.0 + 10 / 256
NODE_GONE = Failure(0, "NodeGone", True)


def gang(victims: int = 2, size: int = 2, minimum: int | None = None, **changes: Any) -> Record:
    assignments = tuple(Assignment(f"u{i}", "ns", f"p{i}", f"n{i}") for i in range(size))
    going = tuple(Victim(f"v{i}", "low", f"low-{i}", "n0", "muster/low/g") for i in range(victims))
    least = size if minimum is None else minimum
    place = Place("muster/ns/g", "gu", "ns", "g", "v1", "PodGroup", least, assignments, victims=going)
    return replace(Record(0, place, DEADLINE, timing=TIMING), **changes)


def said(verb: Verb, kind: Kind, cause: str = "", **more: Any) -> Answer:
    return Answer(verb, kind, cause, **more)


def done(verb: Verb) -> Answer:
    return Answer(verb, Kind.DONE)


def looked(**reading: Any) -> Answer:
    return Answer(Verb.LOOK, Kind.SEEN, reading=Reading(**reading))


def heard(now: float, *pairs: tuple[int, Answer]) -> VictimsAnswered:
    return VictimsAnswered(now, pairs)


def play(record: Record, *rows: tuple[Event, list[Effect]]) -> Record:
    for number, (event, expected) in enumerate(rows):
        record, effects = step(record, event)
        assert list(effects) == expected, f"row {number}: {event}"
    return record


def awaiting(*, covered: tuple[int, ...] = (), **changes: Any) -> Record:
    """A gang whose victims have been asked for the first time."""
    record = play(gang(**changes), (Start(1.0), [Wake(DEADLINE), Check(room=False)]))
    return step(record, Checked(1.0, covered=covered))[0]


def fates(record: Record) -> list[Fate]:
    return [Fate(fate) for fate in record.fates]


def causes(record: Record) -> set[tuple[str, bool, str]]:
    return {(failure.cause, failure.permanent, failure.about) for failure in record.failures}


def test_victims_are_marked_deleted_and_awaited_and_everything_is_checked_again_after_them() -> None:
    record = play(
        gang(),
        (Start(1.0), [Wake(DEADLINE), Check(room=False)]),
        (Checked(1.0), [AwaitVictims((0, 1)), Clear(Verb.MARK, (0, 1))]),
        (heard(1.1, (0, done(Verb.MARK))), [Clear(Verb.REMOVE, (0,))]),
        (heard(1.2, (1, done(Verb.MARK)), (0, done(Verb.REMOVE))), [Clear(Verb.REMOVE, (1,))]),
        (VictimsSeen(1.3, leaving=(0, 1)), []),
        (heard(1.4, (1, done(Verb.REMOVE))), []),
        (VictimsSeen(31.0, gone=(1,)), []),
        (VictimsSeen(32.0, gone=(0,)), [Check(room=True)]),
        (Checked(32.0), [Prepare((0, 1))]),
    )
    assert record.phase is Phase.PREPARING
    record, _ = step(record, Prepared(40.0))
    assert record.deadline == 60.0  # time that was meant for victims is not spent on binds


def test_nobody_is_deleted_before_all_that_a_budget_covers_are_accepted() -> None:
    busy = said(Verb.EVICT, Kind.RETRY, "DisruptionBudget")
    record = play(
        gang(victims=3),
        (Start(1.0), [Wake(DEADLINE), Check(room=False)]),
        (Checked(1.0, covered=(1, 2)), [AwaitVictims((0, 1, 2)), Clear(Verb.EVICT, (1, 2))]),
        (
            heard(2.0, (1, done(Verb.EVICT)), (2, busy)),
            [Clear(Verb.MARK, (1,)), Clear(Verb.EVICT, (2,), 3.0 + 10 / 256)],
        ),
        (heard(2.1, (1, done(Verb.MARK))), []),
        (heard(5.0, (2, done(Verb.EVICT))), [Clear(Verb.MARK, (2, 0))]),
    )
    assert fates(record) == [Fate.MARKING, Fate.LEAVING, Fate.SIGNING]


def test_victims_that_are_going_or_gone_are_only_awaited() -> None:
    play(
        gang(victims=3),
        (Start(1.0), [Wake(DEADLINE), Check(room=False)]),
        (Checked(1.0, gone=(0,), leaving=(1,)), [AwaitVictims((1, 2)), Clear(Verb.MARK, (2,))]),
        (VictimsSeen(2.0, leaving=(2,)), []),
        (heard(2.1, (2, done(Verb.MARK))), []),
        (VictimsSeen(3.0, gone=(1, 2)), [Check(room=True)]),
    )
    play(
        gang(),
        (Start(1.0), [Wake(DEADLINE), Check(room=False)]),
        (Checked(1.0, gone=(0, 1)), [Check(room=True)]),
        (Checked(1.0), [Prepare((0, 1))]),
    )


@pytest.mark.parametrize("resumed", [False, True])
def test_a_new_leader_asks_only_those_who_were_not_asked_and_decides_nothing_new(resumed: bool) -> None:
    record = play(
        gang(resumed=resumed),
        (Start(500.0 if resumed else 1.0), [Wake(DEADLINE), Check(room=False)]),
        (Checked(1.0, leaving=(0,)), [AwaitVictims((0, 1)), Clear(Verb.MARK, (1,))]),
    )
    assert fates(record) == [Fate.LEAVING, Fate.MARKING]


@pytest.mark.parametrize(
    ("event", "cause"),
    [
        (Watched(2.0, gone=(1,)), ("PodGone", True, "")),
        (Watched(2.0, on=((1, "elsewhere"),)), ("Conflict", True, "")),
        (Watched(2.0, barred=(Failure(1, "PodGated"),)), ("PodGated", False, "")),
        (Watched(2.0, barred=(NODE_GONE,)), ("NodeGone", True, "")),
        (Withdraw(), ("Withdrawn", False, "")),
    ],
)
def test_no_victim_is_asked_any_more_once_the_gang_can_not_be_bound(event: Event, cause: tuple[str, bool, str]) -> None:
    record, effects = step(awaiting(), event)
    assert record.phase is Phase.FAILED
    assert effects == (Finish(),)
    assert cause in causes(record)
    assert step(record, heard(3.0, (0, done(Verb.MARK)))) == (record, ())


def test_a_member_that_is_lost_above_the_minimum_stops_nothing() -> None:
    record = play(awaiting(minimum=1), (Watched(2.0, gone=(0,)), []))
    assert record.phase is Phase.AWAITING_VICTIMS
    assert play(record, (Watched(2.1, gone=(1,)), [Finish()])).phase is Phase.FAILED


def test_a_gang_that_somebody_else_has_bound_needs_no_victims() -> None:
    record = play(awaiting(), (Watched(2.0, on=((0, "n0"),)), []), (Watched(2.1, on=((1, "n1"),)), [Finish()]))
    assert record.phase is Phase.BOUND
    assert set(record.states) == {Member.TAKEN}


def test_what_was_bound_before_a_restart_is_unwound_when_the_rest_can_not_be() -> None:
    record = play(awaiting(resumed=True), (Watched(2.0, on=((0, "n0"),)), []))
    record, effects = step(record, Watched(3.0, gone=(1,)))
    assert record.phase is Phase.UNWINDING
    assert effects[0] == Recall()
    assert step(record, VictimsSeen(4.0, gone=(0, 1))) == (record, ())


def test_victims_that_remain_fail_the_gang_at_the_deadline_and_one_is_named() -> None:
    record = play(awaiting(), (Woke(50.0), []), (VictimsSeen(60.0, gone=(0,)), []), (Woke(DEADLINE), [Finish()]))
    assert record.phase is Phase.FAILED
    assert causes(record) == {("VictimsRemain", False, "low/low-1")}
    busy = said(Verb.EVICT, Kind.RETRY, "DisruptionBudget")
    record = step(awaiting(covered=(0,)), heard(2.0, (0, busy)))[0]
    record = play(record, (Woke(DEADLINE), [Finish()]))
    assert causes(record) == {("VictimsRemain", False, "low/low-0: DisruptionBudget")}


@pytest.mark.parametrize("verb", [Verb.MARK, Verb.REMOVE])
def test_an_answer_that_is_not_known_is_read_before_anything_is_repeated(verb: Verb) -> None:
    record = awaiting(victims=1)
    if verb is Verb.REMOVE:
        record = step(record, heard(1.5, (0, done(Verb.MARK))))[0]
    record = play(record, (heard(2.0, (0, said(verb, Kind.DOUBT, "OutcomeUnknown"))), [Clear(Verb.LOOK, (0,))]))
    still = play(record, (heard(2.5, (0, looked(version="7"))), [Clear(Verb.MARK, (0,), 3.5)]))
    assert fates(still) == [Fate.MARKING]
    for reading in ({"gone": True}, {"deleting": True}, {"ended": True}):
        waiting = play(record, (heard(2.5, (0, looked(**reading))), []))
        assert fates(waiting) == [Fate.LEAVING], "only the watch says that it is gone"
        play(waiting, (VictimsSeen(3.0, gone=(0,)), [Check(room=True)]))


def test_an_eviction_that_is_not_known_is_read_and_signed_where_it_was_accepted() -> None:
    record = play(
        awaiting(victims=1, covered=(0,)),
        (heard(2.0, (0, said(Verb.EVICT, Kind.DOUBT, "OutcomeUnknown"))), [Clear(Verb.LOOK, (0,))]),
        (heard(3.0, (0, said(Verb.LOOK, Kind.RETRY, "Unreachable"))), [Clear(Verb.LOOK, (0,), 4.0)]),
    )
    play(record, (heard(4.5, (0, looked())), [Clear(Verb.EVICT, (0,), 6.5)]))
    signing = play(
        record,
        (heard(4.5, (0, looked(deleting=True))), [Clear(Verb.MARK, (0,))]),
        (heard(5.0, (0, said(Verb.MARK, Kind.RETRY, "ServerError"))), [Clear(Verb.MARK, (0,), 7.0)]),
        (heard(7.1, (0, said(Verb.MARK, Kind.REFUSED, "Forbidden"))), []),
    )
    assert fates(signing) == [Fate.LEAVING]


def test_an_eviction_whose_answer_the_watch_overtook_is_signed_once() -> None:
    play(
        awaiting(victims=1, covered=(0,)),
        (VictimsSeen(2.0, leaving=(0,)), [Clear(Verb.MARK, (0,))]),
        (heard(2.1, (0, done(Verb.EVICT))), []),
        (VictimsSeen(2.2, leaving=(0,)), []),
        (heard(2.3, (0, done(Verb.MARK))), []),
        (VictimsSeen(9.0, gone=(0,)), [Check(room=True)]),
    )


@pytest.mark.parametrize("verb", [Verb.MARK, Verb.EVICT, Verb.REMOVE])
def test_a_refusal_gives_the_gang_up_and_asks_nobody_else(verb: Verb) -> None:
    record = awaiting(covered=(0,) if verb is Verb.EVICT else ())
    if verb is Verb.REMOVE:
        record = step(record, heard(1.5, (0, done(Verb.MARK))))[0]
    refusal = said(verb, Kind.REFUSED, "Forbidden", permanent=True)
    record = play(record, (heard(2.0, (0, refusal), (1, done(Verb.MARK))), [Finish()]))
    assert record.phase is Phase.FAILED
    assert causes(record) == {("Forbidden", True, "low/low-0")}


def test_room_that_is_taken_after_the_victims_are_gone_fails_the_gang_as_ever() -> None:
    record = play(awaiting(), (VictimsSeen(2.0, gone=(0, 1)), [Check(room=True)]))
    full = tuple(Failure(member, "NodeFull") for member in range(2))
    assert play(record, (Checked(2.0, failures=full), [Finish()])).phase is Phase.FAILED


def test_a_request_that_only_evicts_ends_when_its_victims_are_gone() -> None:
    drain = gang(size=0, minimum=0)
    record = play(
        drain,
        (Start(1.0), [Wake(DEADLINE), Check(room=False)]),
        (Checked(1.0), [AwaitVictims((0, 1)), Clear(Verb.MARK, (0, 1))]),
        (VictimsSeen(2.0, leaving=(0, 1)), []),
        (VictimsSeen(9.0, gone=(0, 1)), [Check(room=True)]),
        (Checked(9.0), [Finish()]),
    )
    assert record.phase is Phase.BOUND
    assert play(awaiting(size=0, minimum=0), (Woke(DEADLINE), [Finish()])).phase is Phase.FAILED
    assert play(awaiting(size=0, minimum=0), (Withdraw(), [Finish()])).phase is Phase.FAILED
    assert play(gang(size=0, victims=0, minimum=0), (Start(1.0), [Finish()])).phase is Phase.FAILED
    assert play(gang(size=0, minimum=1), (Start(1.0), [Finish()])).phase is Phase.FAILED


def test_an_outage_gives_victims_more_time() -> None:
    record = play(awaiting(), (Extend(130.0), [Wake(130.0)]), (Woke(DEADLINE), []))
    assert play(record, (Woke(130.0), [Finish()])).phase is Phase.FAILED


ALWAYS = {VictimsSeen: VictimsSeen(2.0, gone=(0,)), VictimsAnswered: heard(2.0, (0, done(Verb.MARK)))}


@pytest.mark.parametrize("event", [VictimsSeen, VictimsAnswered])
@pytest.mark.parametrize("phase", [phase for phase in Phase if phase not in (Phase.QUEUED, Phase.AWAITING_VICTIMS)])
def test_news_of_victims_changes_nothing_when_they_are_not_awaited(phase: Phase, event: type[Any]) -> None:
    record = replace(awaiting(), phase=phase)
    assert step(record, ALWAYS[event]) == (record, ())


def test_every_event_that_can_reach_a_waiting_gang_is_in_the_table() -> None:
    known = {event for phase, event in TABLE if phase is Phase.AWAITING_VICTIMS}
    assert known == {VictimsSeen, VictimsAnswered, Watched, Withdraw, Woke, Extend}
    assert not any(event in (Refuse, Start) for phase, event in TABLE if phase in ENDS)
