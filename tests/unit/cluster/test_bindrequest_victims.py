"""The victims of a placement as text in a bind request, whole, cut and put together again."""

from __future__ import annotations

import msgspec
import pytest

from scheduler.cluster.assembler import Assembler, read
from scheduler.cluster.bindlines import BadRequest
from scheduler.cluster.bindrequests import batches, bundle, bundles
from scheduler.cluster.feed import Handover
from scheduler.model.bindrequest import BindRequest
from scheduler.model.decisions import Assignment, Decisions, Drain, Place, Victim


def victim(number: int, grace: int = 30) -> Victim:
    return Victim(f"u-low-{number}", "b", f"low-{number}", f"n{number}", "muster/b/low", "low", "reclaim", grace)


FULL = Victim(
    "u-full", "b", "full", "n1", "muster/b/full", "Job b/full of somebody", "consolidate", 600, "n2", "u-owner",
    (("cpu", 1500), ("nvidia.com/gpu", 8)),
)  # fmt: skip
BARE = Victim("u-bare", "b", "bare", "n1", "", grace=0)


def place(name: str, members: int, victims: tuple[Victim, ...] = (), minimum: int | None = None) -> Place:
    assignments = tuple(Assignment(f"u-{name}-{i}", "a", f"{name}-{i}", f"n{i}") for i in range(members))
    size = members if minimum is None else minimum
    return Place(f"muster/a/{name}", f"g-{name}", "a", name, "v1", "PodGroup", size, assignments, (), victims)


def test_victims_are_read_as_they_were_written() -> None:
    gang = place("g", 2, (victim(1), FULL, BARE))
    made = bundle("r", "s-1", 1, 10.0, "ns", (gang,))
    assert read(made.header.body).request.gangs == (gang,)
    assert b'"victims"' not in bundle("r", "s-1", 1, 10.0, "ns", (place("g", 2),)).header.body


def test_a_large_gang_has_every_victim_once_over_its_parts() -> None:
    gang = place("g", 120, tuple(victim(number) for number in range(300)))
    made = bundle("r", "s-1", 1, 10.0, "ns", (gang,), size=8 * 1024)
    assert len(made.parts) > 2
    assert all(len(part.body) <= 8 * 1024 for part in made.parts)
    assembler = Assembler()
    found: list[BindRequest | None] = [assembler.offer(document.body) for document in (made.header, *made.parts)]
    assert found[-1] is not None
    assert found[-1].gangs == (gang,)


def test_nobody_waits_for_the_victims_of_another() -> None:
    first, second = place("first", 1, (victim(1, 5),)), place("second", 3, (victim(2, 3600), victim(3, 30)))
    made = bundles("s-1", 1, 10.0, "ns", [first, place("p", 2), second, place("q", 2)], victim_time=300.0)
    assert [[one.name for one in each.places] for each in made] == [["p", "q"], ["first"], ["second"]]
    assert [each.deadline for each in made] == [10.0, 315.0, 3910.0]


def test_members_that_stand_alone_stay_with_the_victims_that_they_need() -> None:
    gang = place("g", 50, (victim(1),), minimum=0)
    assert batches([gang], pods=20) == [(gang,)]


def test_victims_without_a_placement_are_written() -> None:
    drain = place("queue", 0, (victim(1), victim(2)))
    (made,) = bundles("s-1", 1, 10.0, "ns", [drain])
    assert read(made.header.body).request.gangs == (drain,)
    parts = bundle("r", "s-1", 1, 10.0, "ns", (place("q", 0, tuple(map(victim, range(300)))),), size=8 * 1024).parts
    assert all(read(part.body).request.gangs[0].victims for part in parts)


@pytest.mark.parametrize(
    "line",
    [
        "low b u n1 - preempt 30 - - -",
        "low b u n1 - preempt soon - - - low",
        "low b u n1 - preempt 30 - - cpu low",
        "low b u n1 - preempt 30 - - cpu=much low",
    ],
)
def test_a_line_that_cannot_be_read_is_told_with_its_number(line: str) -> None:
    body = msgspec.json.decode(bundle("r", "s-1", 1, 10.0, "ns", (place("g", 1, (victim(1),)),)).header.body)
    body["spec"]["gangs"][0]["victims"] += f"{line}\n"
    with pytest.raises(BadRequest, match=r"r: spec.gangs\[0\].victims: line 2 must be: pod namespace uid node"):
        read(body)


def test_the_same_pod_is_not_a_victim_twice() -> None:
    made = bundle("r", "s-1", 1, 10.0, "ns", (place("g", 1, (victim(1), victim(1))),))
    with pytest.raises(BadRequest, match="line 2: uid u-low-1 is there already"):
        read(made.header.body)


def test_a_queue_that_is_drained_is_handed_over_as_a_placement_of_nobody() -> None:
    drain, gang = Drain("research", (victim(1), victim(2))), place("g", 2)
    handed = Handover.of(Decisions("s-1", 1, (drain, gang))).places
    assert handed == (drain.as_place(), gang)
    made = bundles("s-1", 1, 10.0, "ns", handed)
    assert [read(each.header.body).request.gangs for each in made] == [(gang,), (drain.as_place(),)]
