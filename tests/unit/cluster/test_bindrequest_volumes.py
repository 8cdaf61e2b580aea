"""The volumes of a placement as text in a bind request, whole, cut and put together again."""

from __future__ import annotations

import pytest

from scheduler.cluster.assembler import Assembler, read
from scheduler.cluster.bindlines import BadRequest
from scheduler.cluster.bindrequests import batches, bundle, bundles, status_patch
from scheduler.model.bindrequest import BindFailure, BindRequest, GangOutcome
from scheduler.model.decisions import Assignment, Place
from scheduler.model.podvolumes import VolumeStep


def place(name: str, members: int, *, minimum: int | None = None, volumes: bool = True) -> Place:
    assignments = tuple(Assignment(f"u-{name}-{i}", "a", f"{name}-{i}", f"n{i}") for i in range(members))
    steps = tuple(
        step
        for i in range(members if volumes else 0)
        for step in (
            VolumeStep(f"u-{name}-{i}", "a", f"data-{i}", f"c-{i}", "", kept=i % 2 == 1),
            VolumeStep(f"u-{name}-{i}", "a", f"log-{i}", f"l-{i}", f"v-{i}"),
        )
    )
    size = members if minimum is None else minimum
    return Place(f"muster/a/{name}", f"g-{name}", "a", name, "v1", "PodGroup", size, assignments, steps)


def test_steps_are_read_as_they_were_written() -> None:
    far = Place(
        "x", "x", "a", "x", "v1", "PodGroup", 1, (Assignment("u", "b", "p", "n"),),
        (VolumeStep("u", "b", "data", "c"),),
    )  # fmt: skip
    made = bundle("r", "s-1", 1, 10.0, "ns", (place("g", 2), far))
    assert read(made.header.body).request.gangs == (place("g", 2), far)
    assert b'"volumes"' not in bundle("r", "s-1", 1, 10.0, "ns", (place("g", 2, volumes=False),)).header.body


def test_a_large_gang_keeps_the_steps_of_its_members_in_every_part() -> None:
    gang = place("g", 120)
    made = bundle("r", "s-1", 1, 10.0, "ns", (gang,), size=6 * 1024)
    assert len(made.parts) > 1
    assert all(len(part.body) <= 6 * 1024 for part in made.parts)
    assembler = Assembler()
    found: list[BindRequest | None] = [assembler.offer(document.body) for document in (made.header, *made.parts)]
    whole = found[-1]
    assert whole is not None
    assert whole.gangs == (gang,)


def test_what_waits_for_volumes_has_requests_of_its_own_with_more_time() -> None:
    singles = [place(f"s{i}", 1) for i in range(30)]
    plain, gang = place("p", 3, volumes=False), place("g", 40)
    made = bundles("s-1", 1, 10.0, "ns", [gang, plain, *singles], volume_time=600.0)
    assert [[one.name for one in each.places] for each in made][:2] == [["p"], ["g"]]
    assert [each.deadline for each in made] == [10.0, *[610.0] * (len(made) - 1)]
    assert [len(each.places) for each in made[2:]] == [20, 10]


def test_members_that_stand_alone_keep_their_steps_when_they_are_cut() -> None:
    pieces = [piece for batch in batches([place("g", 50, minimum=0)]) for piece in batch]
    assert sum(len(piece.assignments) for piece in pieces) == 50
    for piece in pieces:
        assert {step.uid for step in piece.steps} == {one.uid for one in piece.assignments}


@pytest.mark.parametrize("line", ["u data c v", "u data c v maybe", "u data c v new ns more"])
def test_a_line_that_says_something_else_is_refused(line: str) -> None:
    body = bundle("r", "s-1", 1, 10.0, "ns", (place("g", 1),)).header.body
    wrong = body.replace(b"u-g-0 data-0 c-0 - new", line.encode())
    with pytest.raises(BadRequest, match=r"spec.gangs\[0\].volumes: line 1"):
        read(wrong)


def test_a_failure_says_which_claim_it_is_about() -> None:
    outcome = GangOutcome(0, "Failed", 0, (BindFailure("u", "p", "n", "ProvisioningFailed", about="claim a/data"),))
    request = BindRequest("r", "r", "s-1", 1, 9.0, (place("g", 1),), "Failed", (outcome,))
    assert status_patch(request)["status"]["gangs"][0]["failures"][0]["about"] == "claim a/data"
