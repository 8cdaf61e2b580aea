"""Where a group stands in its queue: what is told, and how little is written when a long queue moves."""

from __future__ import annotations

import pytest

from scheduler.actions.standing import AGAIN_AFTER, rounded
from scheduler.model.decisions import QueuePlace, SetStatus
from tests.unit.framework.world import GPU, World


def places(w: World) -> dict[str, QueuePlace | None]:
    assert w.result is not None
    return {one.group.rpartition("/")[2]: one.place for one in w.result.decisions.items if isinstance(one, SetStatus)}


def test_the_first_are_told_their_number_and_who_is_ahead_the_others_roughly() -> None:
    w = World().nodes(1, gpu=1).queue("q", deserved=((GPU, 1),))
    w.gang("runs", 1, queue="q")
    w.session()
    w.carry_out()
    for number in range(60):
        w.gang(f"g{number:02}", 1, queue="q", created=w.now + number)
    w.gang("other", 1, created=w.now)
    w.session(later=1)
    told = places(w)
    assert told["g00"] == QueuePlace("q", 1)
    assert told["g02"] == QueuePlace("q", 3, ahead=("ns/g00", "ns/g01"))
    assert told["g09"] == QueuePlace("q", 10, ahead=("ns/g00", "ns/g01", "ns/g02"), more=6)
    assert told["g10"] == told["g19"] == QueuePlace("q", 20, exact=False)
    assert told["g20"] == told["g49"] == QueuePlace("q", 50, exact=False)
    assert told["g50"] == QueuePlace("q", 100, exact=False)
    assert told["other"] == QueuePlace("default", 1)


def test_when_the_head_of_a_long_queue_is_served_few_are_written_and_not_at_once() -> None:
    w = World().nodes(1, gpu=4).queue("q", limit=((GPU, 1),))  # so that nothing but the place of the others changes
    running = w.gang("runs", 1, queue="q")
    w.session()
    w.carry_out()
    for number in range(1000):
        w.gang(f"g{number:04}", 1, queue="q", created=w.now + number)
    w.session(later=1)
    w.carry_out()
    assert len(places(w)) >= 1000
    w.session(later=10)
    w.carry_out()
    assert not places(w)
    w.drop_pod("runs-0")
    w.drop_group(running.key)
    w.session(later=AGAIN_AFTER)
    assert w.result is not None
    assert [place.group for place in w.places] == ["muster/ns/g0000"]
    moved = places(w)
    w.carry_out()
    assert moved["g0001"] == QueuePlace("q", 1)
    assert moved["g0020"] == QueuePlace("q", 20, exact=False)
    assert len(moved) < 25, sorted(moved)
    w.gang("late", 1, queue="q", created=w.now - 1e6)
    w.session(later=1)
    told = places(w)
    assert told["late"] == QueuePlace("q", 1)
    assert set(told) <= {"late", "g0000"}, "the others are told later"
    assert w.result.wake_at is not None
    w.carry_out()
    w.session(later=AGAIN_AFTER)
    assert places(w)["g0001"] == QueuePlace("q", 2, ahead=("ns/late",))


def test_who_cannot_be_placed_anyway_stands_in_no_line() -> None:
    w = World().nodes(1, gpu=1)
    w.gang("never", 1, pod={"queue": "nix"}, queue="nix")
    w.gang("short", 3, count=1)
    w.session()
    told = places(w)
    assert told["never"] is None
    assert told["short"] is None


@pytest.mark.parametrize(
    ("number", "told"), [(11, 20), (20, 20), (21, 50), (51, 100), (101, 200), (501, 1000), (1001, 2000)]
)
def test_places_are_rounded_up(number: int, told: int) -> None:
    assert rounded(number) == told
