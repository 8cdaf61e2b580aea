"""The binder's machine as a table: a list of (event, expected effects) and the end that it must come to."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from msgspec.structs import replace

from scheduler.binder.machine import TABLE, ImpossibleTransition, step
from scheduler.binder.record import (
    ENDS,
    Answer,
    Answered,
    Ask,
    Check,
    Checked,
    Effect,
    Event,
    Extend,
    Failure,
    Finish,
    Kind,
    Phase,
    Prepare,
    Prepared,
    Reading,
    Recall,
    Record,
    Refuse,
    Start,
    Timing,
    Undo,
    Undone,
    Verb,
    Wake,
    Watched,
    Withdraw,
    Woke,
)
from scheduler.model.decisions import Assignment, Place
from scheduler.model.podvolumes import VolumeStep

TIMING = Timing(first_wait=1.0, last_wait=8.0, settle=5.0, confirm=3.0)
DEADLINE = 100.0
OK = Answer(Verb.BIND, Kind.DONE)
CONFLICT = Answer(Verb.BIND, Kind.DOUBT, "Conflict")
UNKNOWN = Answer(Verb.BIND, Kind.DOUBT, "OutcomeUnknown")
BUSY = Answer(Verb.BIND, Kind.RETRY, "TooManyRequests", after=7.0)
GONE = Answer(Verb.BIND, Kind.REFUSED, "PodGone", permanent=True)
NOT_SENT = Answer(Verb.BIND, Kind.NOT_SENT)
DELETED = Answer(Verb.DELETE, Kind.DONE)
LATER = Ask(Verb.READ, (0, 2), 16.0)
CHANGED = Answer(Verb.DELETE, Kind.DOUBT, "Conflict")


def place(minimum: int, size: int) -> Place:
    assignments = tuple(Assignment(f"u{i}", "ns", f"p{i}", f"n{i}") for i in range(size))
    return Place("muster/ns/g", "gu", "ns", "g", "scheduling.muster.sh/v1alpha1", "PodGroup", minimum, assignments)


def gang(minimum: int = 2, size: int = 2, **changes: Any) -> Record:
    return replace(Record(0, place(minimum, size), DEADLINE, timing=TIMING), **changes)


def seen(**reading: Any) -> Answer:
    return Answer(Verb.READ, Kind.SEEN, reading=Reading(**reading))


def got(now: float, *pairs: tuple[int, Answer]) -> Answered:
    return Answered(now, pairs)


def asks(verb: Verb, *members: int, at: float = 0.0) -> Ask:
    return Ask(verb, members, at)


def play(record: Record, *rows: tuple[Event, list[Effect]]) -> Record:
    for number, (event, expected) in enumerate(rows):
        record, effects = step(record, event)
        assert list(effects) == expected, f"row {number}: {event}"
    return record


def begun(record: Record) -> list[tuple[Event, list[Effect]]]:
    """The rows that bring a gang with nothing in its way to its binds."""
    members = tuple(range(len(record.place.assignments)))
    return [
        (Start(1.0), [Wake(DEADLINE), Check()]),
        (Checked(1.0), [Prepare(members)]),
        (Prepared(1.0), [Ask(Verb.BIND, members)]),
    ]


def causes(record: Record) -> list[tuple[str, str, bool]]:
    return [(failure.pod, failure.cause, failure.permanent) for failure in record.outcome().failures]


def test_a_gang_without_trouble_is_checked_prepared_bound_and_confirmed_by_the_watch() -> None:
    record = play(
        gang(),
        *begun(gang()),
        (got(2.0, (0, OK)), []),
        (got(2.1, (1, OK)), [Wake(5.1)]),
        (Watched(2.2, on=((0, "n0"),)), []),
        (Watched(2.3, on=((1, "n1"),)), [Finish()]),
    )
    assert record.phase is Phase.BOUND
    assert record.outcome().bound == 2
    assert record.outcome().failures == ()


def test_a_watch_that_overtakes_the_answers_ends_the_gang_and_late_answers_change_nothing() -> None:
    record = play(
        gang(),
        *begun(gang()),
        (Watched(2.0, on=((0, "n0"), (1, "n1"))), [Finish()]),
        (got(2.1, (0, OK), (1, CONFLICT)), []),
    )
    assert record.phase is Phase.BOUND


def test_a_watch_that_lags_makes_the_binder_read_the_pods() -> None:
    record = play(
        gang(),
        *begun(gang()),
        (got(2.0, (0, OK), (1, OK)), [Wake(5.0)]),
        (Woke(4.0), []),
        (Woke(5.0), [asks(Verb.READ, 0, 1)]),
        (got(5.1, (0, seen(node="n0")), (1, seen(node="n1", started=True))), [Finish()]),
    )
    assert record.phase is Phase.BOUND


@pytest.mark.parametrize("failing", [0, 1, 2])
def test_a_member_that_fails_its_check_leaves_the_whole_gang_unbound(failing: int) -> None:
    record = play(
        gang(3, 3),
        (Start(1.0), [Wake(DEADLINE), Check()]),
        (Checked(1.0, failures=(Failure(failing, "NodeGone", True),)), [Finish()]),
    )
    assert record.phase is Phase.FAILED
    assert record.outcome().bound == 0
    assert causes(record) == [(f"p{failing}", "NodeGone", True)]


def test_members_above_the_minimum_may_fail_and_are_listed() -> None:
    record = play(
        gang(2, 3),
        (Start(1.0), [Wake(DEADLINE), Check()]),
        (Checked(1.0, failures=(Failure(1, "NodeFull"),)), [Prepare((0, 2))]),
        (Prepared(1.0), [asks(Verb.BIND, 0, 2)]),
        (Watched(2.0, on=((0, "n0"), (2, "n2"))), [Undo((1,))]),
        (Undone(), [Finish()]),
    )
    assert record.phase is Phase.BOUND
    assert record.outcome().bound == 2
    assert causes(record) == [("p1", "NodeFull", False)]


def test_with_minimum_zero_every_member_stands_alone() -> None:
    record = play(
        gang(0, 3),
        *begun(gang(0, 3)),
        (got(2.0, (0, GONE), (1, OK), (2, GONE)), [Wake(5.0)]),
        (Watched(2.1, on=((1, "n1"),)), [Undo((0, 2))]),
        (Undone(), [Finish()]),
    )
    assert record.phase is Phase.BOUND
    assert (record.outcome().bound, len(causes(record))) == (1, 2)


def test_with_minimum_zero_and_no_member_left_the_gang_has_failed() -> None:
    record = play(
        gang(0, 2), *begun(gang(0, 2)), (got(2.0, (0, GONE), (1, GONE)), [Undo((0, 1))]), (Undone(), [Finish()])
    )
    assert record.phase is Phase.FAILED


def test_a_preparation_that_fails_is_undone_and_nothing_is_bound() -> None:
    record = play(
        gang(),
        *begun(gang())[:2],
        (Prepared(1.0, failures=(Failure(1, "VolumeGone"),)), [Undo((0, 1))]),
        (Undone(), [Finish()]),
    )
    assert record.phase is Phase.FAILED
    assert causes(record) == [("p1", "VolumeGone", False)]


@pytest.mark.parametrize("failing", [0, 1, 2])
def test_a_permanent_failure_after_some_binds_unwinds_those_that_were_bound(failing: int) -> None:
    others = [member for member in range(3) if member != failing]
    record = play(
        gang(3, 3),
        *begun(gang(3, 3)),
        (got(2.0, *((member, OK) for member in others)), []),
        (got(2.1, (failing, GONE)), [Recall(), asks(Verb.READ, *others)]),
        (
            got(2.2, *((member, seen(node=f"n{member}", version=f"v{member}")) for member in others)),
            [Ask(Verb.DELETE, tuple(others), 0.0, tuple(f"v{member}" for member in others))],
        ),
        (got(2.3, *((member, DELETED) for member in others)), [Undo((0, 1, 2))]),
        (Undone(), [Finish()]),
    )
    assert record.phase is Phase.UNWOUND
    assert record.outcome().bound == 0
    assert causes(record) == [(f"p{failing}", "PodGone", True)]


def test_binds_that_are_still_queued_when_the_gang_gives_up_are_recalled_and_those_in_flight_awaited() -> None:
    record = play(
        gang(3, 3),
        *begun(gang(3, 3)),
        (got(2.0, (0, GONE)), [Recall()]),
        (got(2.1, (1, NOT_SENT)), []),
        (got(2.2, (2, OK)), [asks(Verb.READ, 2)]),
        (got(2.3, (2, seen(node="n2", version="v"))), [Ask(Verb.DELETE, (2,), 0.0, ("v",))]),
        (got(2.4, (2, DELETED)), [Undo((0, 1, 2))]),
        (Undone(), [Finish()]),
    )
    assert record.phase is Phase.UNWOUND
    assert causes(record) == [("p0", "PodGone", True)]


def test_a_member_that_has_started_is_not_unwound_and_is_named() -> None:
    record = play(
        gang(2, 2),
        *begun(gang(2, 2)),
        (got(2.0, (0, OK), (1, GONE)), [Recall(), asks(Verb.READ, 0)]),
        (got(2.1, (0, seen(node="n0", started=True, version="v"))), [Undo((1,))]),
        (Undone(), [Finish()]),
    )
    assert record.phase is Phase.UNWOUND
    assert record.outcome().bound == 1
    assert causes(record) == [("p0", "Started", False), ("p1", "PodGone", True)]


def test_a_pod_that_changes_between_the_reading_and_its_deletion_is_read_again() -> None:
    record = play(
        gang(2, 2),
        *begun(gang(2, 2)),
        (got(2.0, (0, OK), (1, GONE)), [Recall(), asks(Verb.READ, 0)]),
        (got(2.1, (0, seen(node="n0", version="v1"))), [Ask(Verb.DELETE, (0,), 0.0, ("v1",))]),
        (got(3.0, (0, CHANGED)), [asks(Verb.READ, 0, at=4.0)]),
        (got(4.1, (0, seen(node="n0", started=True, version="v2"))), [Undo((1,))]),
        (Undone(), [Finish()]),
    )
    assert ("p0", "Started", False) in causes(record)


@pytest.mark.parametrize(
    ("reading", "cause"),
    [
        (Reading(gone=True), ("p1", "PodGone", True)),
        (Reading(node="elsewhere"), ("p1", "Conflict", True)),
        (Reading(deleting=True), ("p1", "PodGone", True)),
        (Reading(gated=True), ("p1", "PodGated", False)),
        (Reading(ended=True), ("p1", "PodEnded", True)),
    ],
)
def test_a_conflict_is_read_and_its_cause_told(reading: Reading, cause: tuple[str, str, bool]) -> None:
    record = play(
        gang(0, 2),
        *begun(gang(0, 2)),
        (got(2.0, (0, OK), (1, CONFLICT)), [asks(Verb.READ, 1)]),
        (got(2.1, (1, Answer(Verb.READ, Kind.SEEN, reading=reading))), [Wake(5.1)]),
        (Watched(2.2, on=((0, "n0"),)), [Undo((1,))]),
        (Undone(), [Finish()]),
    )
    assert causes(record) == [cause]


def test_a_conflict_over_a_pod_that_is_on_the_same_node_is_a_success() -> None:
    record = play(
        gang(),
        *begun(gang()),
        (got(2.0, (0, OK), (1, CONFLICT)), [asks(Verb.READ, 1)]),
        (got(2.1, (1, seen(node="n1"))), [Wake(5.1)]),
        (Watched(2.2, on=((0, "n0"),)), [Finish()]),
    )
    assert record.phase is Phase.BOUND


def test_a_bind_with_unknown_outcome_is_read_before_it_is_repeated() -> None:
    record = play(
        gang(1, 1),
        *begun(gang(1, 1)),
        (got(2.0, (0, UNKNOWN)), [asks(Verb.READ, 0)]),
        (got(2.5, (0, seen())), [asks(Verb.BIND, 0, at=3.5)]),
        (got(4.0, (0, UNKNOWN)), [asks(Verb.READ, 0)]),
        (got(4.5, (0, seen(node="n0"))), [Finish()]),
    )
    assert record.phase is Phase.BOUND


def test_a_reading_that_fails_is_repeated_with_growing_waits() -> None:
    busy = Answer(Verb.READ, Kind.RETRY, "Unreachable")
    play(
        gang(1, 1),
        *begun(gang(1, 1)),
        (got(2.0, (0, UNKNOWN)), [asks(Verb.READ, 0)]),
        (got(3.0, (0, busy)), [asks(Verb.READ, 0, at=4.0)]),
        (got(5.0, (0, busy)), [asks(Verb.READ, 0, at=7.0)]),
        (got(8.0, (0, busy)), [asks(Verb.READ, 0, at=12.0)]),
    )


def test_the_servers_retry_after_is_honoured_over_our_own_wait() -> None:
    play(gang(1, 1), *begun(gang(1, 1)), (got(2.0, (0, BUSY)), [asks(Verb.BIND, 0, at=9.0)]))


def test_at_the_deadline_unsent_binds_are_recalled_and_a_gang_below_its_minimum_unwinds() -> None:
    record = play(
        gang(2, 2),
        *begun(gang(2, 2)),
        (got(2.0, (0, OK), (1, BUSY)), [asks(Verb.BIND, 1, at=9.0)]),
        (Woke(99.0), []),
        (Woke(DEADLINE), [Recall()]),
        (got(100.1, (1, NOT_SENT)), [Recall(), asks(Verb.READ, 0)]),
        (got(100.2, (0, seen(node="n0", version="v"))), [Ask(Verb.DELETE, (0,), 0.0, ("v",))]),
        (got(100.3, (0, DELETED)), [Undo((0, 1))]),
        (Undone(), [Finish()]),
    )
    assert causes(record) == [("p1", "TooManyRequests", False)]


def test_at_the_deadline_a_gang_that_has_its_minimum_stays_bound() -> None:
    record = play(
        gang(1, 2),
        *begun(gang(1, 2)),
        (got(2.0, (0, OK), (1, BUSY)), [asks(Verb.BIND, 1, at=9.0)]),
        (Watched(2.1, on=((0, "n0"),)), []),
        (Woke(DEADLINE), [Recall()]),
        (got(100.1, (1, NOT_SENT)), [Undo((1,))]),
        (Undone(), [Finish()]),
    )
    assert record.phase is Phase.BOUND


def test_an_extended_deadline_is_the_one_that_counts() -> None:
    record = play(
        gang(),
        *begun(gang()),
        (Extend(150.0), [Wake(150.0)]),
        (Woke(DEADLINE), []),
        (Extend(120.0), []),
        (Woke(150.0), [Recall()]),
    )
    assert record.expired


def test_unwinding_waits_for_a_bind_that_timed_out_and_may_still_land() -> None:
    record = play(
        gang(2, 2),
        *begun(gang(2, 2)),
        (got(2.0, (1, UNKNOWN)), [asks(Verb.READ, 1)]),
        (got(2.1, (0, GONE)), [Recall()]),
        (got(3.0, (1, seen())), [asks(Verb.READ, 1, at=7.0)]),
        (got(7.0, (1, seen(node="n1", version="v"))), [Ask(Verb.DELETE, (1,), 0.0, ("v",))]),
        (got(7.1, (1, DELETED)), [Undo((0, 1))]),
        (Undone(), [Finish()]),
    )
    assert record.phase is Phase.UNWOUND


def test_a_late_bind_that_does_not_land_in_time_means_that_nothing_was_bound() -> None:
    record = play(
        gang(2, 2),
        *begun(gang(2, 2)),
        (got(2.0, (1, UNKNOWN)), [asks(Verb.READ, 1)]),
        (got(2.1, (0, GONE)), [Recall()]),
        (got(3.0, (1, seen())), [asks(Verb.READ, 1, at=7.0)]),
        (got(7.0, (1, seen())), [Undo((0, 1))]),
        (Undone(), [Finish()]),
    )
    assert record.phase is Phase.FAILED


def test_members_found_on_their_node_after_a_restart_are_ours_and_the_rest_is_bound() -> None:
    record = play(
        gang(3, 3, resumed=True),
        (Start(1.0), [Wake(DEADLINE), Check()]),
        (Checked(1.0, present=(0,), ended=(1,)), [Prepare((2,))]),
        (Prepared(1.0), [asks(Verb.BIND, 2)]),
        (Watched(2.0, on=((2, "n2"),)), [Finish()]),
    )
    assert record.outcome().bound == 3


def test_a_restart_that_finds_the_minimum_out_of_reach_unwinds_what_was_bound_before() -> None:
    play(
        gang(2, 2, resumed=True),
        (Start(1.0), [Wake(DEADLINE), Check()]),
        (Checked(1.0, present=(0,), failures=(Failure(1, "PodGone", True),)), [Recall(), asks(Verb.READ, 0)]),
    )


def test_a_restart_that_gives_up_reads_members_whose_bind_the_dead_process_may_have_sent() -> None:
    record = play(
        gang(3, 3, resumed=True),
        (Start(1.0), [Wake(DEADLINE), Check()]),
        (Checked(1.0, failures=(Failure(1, "PodGone", True), Failure(2, "NodeGone", True))), [Recall(), LATER]),
        (got(16.0, (0, seen(node="n0", version="v")), (2, seen())), [Ask(Verb.DELETE, (0,), 0.0, ("v",))]),
        (got(16.1, (0, DELETED)), [Finish()]),
    )
    assert record.phase is Phase.UNWOUND


def test_a_member_that_somebody_else_put_on_its_node_counts_but_is_never_unwound() -> None:
    taken = play(
        gang(2, 2),
        (Start(1.0), [Wake(DEADLINE), Check()]),
        (Checked(1.0, present=(0,)), [Prepare((1,))]),
        (Prepared(1.0), [asks(Verb.BIND, 1)]),
    )
    assert play(taken, (Watched(2.0, on=((1, "n1"),)), [Finish()])).phase is Phase.BOUND
    failed = play(taken, (got(2.0, (1, GONE)), [Undo((1,))]), (Undone(), [Finish()]))
    assert failed.phase is Phase.FAILED
    assert failed.outcome().bound == 1


def test_a_member_that_is_deleted_after_its_bind_does_not_unwind_the_gang() -> None:
    record = play(
        gang(),
        *begun(gang()),
        (got(2.0, (0, OK)), []),
        (Watched(2.1, gone=(0,)), []),
        (Watched(2.2, on=((1, "n1"),)), [Finish()]),
    )
    assert record.phase is Phase.BOUND


def test_a_member_that_is_deleted_before_its_bind_does() -> None:
    play(
        gang(),
        *begun(gang()),
        (got(2.0, (0, OK)), []),
        (Watched(2.1, gone=(1,)), [Recall(), asks(Verb.READ, 0)]),
    )


@pytest.mark.parametrize("event", [Refuse("StaleEpoch"), Withdraw()])
def test_a_refused_or_withdrawn_gang_that_waits_never_begins(event: Event) -> None:
    record = play(gang(), (event, [Finish()]))
    assert record.phase is Phase.FAILED
    assert causes(record)[0][1] in ("StaleEpoch", "Withdrawn")


def test_a_gang_that_comes_to_its_turn_after_its_deadline_fails() -> None:
    assert causes(play(gang(), (Start(DEADLINE), [Finish()]))) == [("p0", "DeadlineExceeded", False)]


@pytest.mark.parametrize(("minimum", "size"), [(3, 2), (-1, 2), (0, 0)])
def test_a_malformed_placement_fails_without_a_check(minimum: int, size: int) -> None:
    assert play(gang(minimum, size), (Start(1.0), [Finish()])).phase is Phase.FAILED


def test_an_event_that_cannot_happen_tells_the_records_story() -> None:
    record = play(gang(), *begun(gang()))
    with pytest.raises(ImpossibleTransition, match=r"Binding and got Undone.*Queued --Start--> Checking"):
        step(record, Undone())


def test_every_end_ignores_what_the_watch_overtook_and_nothing_leads_out_of_it() -> None:
    for (phase, event), handler in TABLE.items():
        if phase in ENDS:
            assert handler(gang(phase=phase), object()) == (gang(phase=phase), ()), (phase, event)


def with_volumes(record: Record) -> Record:
    """The same gang, whose first member waits for a claim."""
    step = VolumeStep(record.place.assignments[0].uid, "a", "data", "c")
    return replace(record, place=dataclasses.replace(record.place, steps=(step,)))


def test_once_its_volumes_are_bound_a_gang_has_no_more_time_for_its_binds_than_others() -> None:
    start = with_volumes(gang())
    start = replace(start, deadline=1000.0)
    record = play(
        start,
        (Start(1.0), [Wake(1000.0), Check()]),
        (Checked(1.0), [Prepare((0, 1))]),
        (Prepared(500.0), [Ask(Verb.BIND, (0, 1)), Wake(500.0 + start.timing.bind)]),
    )
    assert record.deadline == 500.0 + start.timing.bind


def test_what_a_process_that_died_had_prepared_is_taken_back_when_its_gang_is_given_up() -> None:
    start = replace(with_volumes(gang()), resumed=True)
    record = play(
        start,
        (Start(1.0), [Wake(DEADLINE), Check()]),
        (
            Checked(1.0, failures=(Failure(0, "PodGone", True),)),
            [Recall(), Ask(Verb.READ, (1,), 1.0 + start.timing.straggle)],
        ),
        (Answered(17.0, ((1, Answer(Verb.READ, Kind.SEEN, reading=Reading())),)), [Undo((0, 1))]),
        (Undone(), [Finish()]),
    )
    assert record.phase is Phase.FAILED
