"""BindRequests as objects: names, batches, parts, and back."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from typing import Any

import pytest

from scheduler.cluster import bindrequests as br
from scheduler.cluster.assembler import Assembler, read, read_time
from scheduler.cluster.bindlines import BadRequest
from scheduler.model.bindrequest import BindFailure, BindRequest, GangOutcome
from scheduler.model.decisions import Assignment, Place


def gang(name: str, pods: int, minimum: int | None = None, long: int = 0) -> Place:
    pad = "x" * long
    return Place(
        group=f"volcano/ns/{name}",
        group_uid=f"uid-{name}",
        namespace="ns",
        name=name,
        api_version="scheduling.volcano.sh/v1beta1",
        kind="PodGroup",
        minimum=pods if minimum is None else minimum,
        assignments=tuple(Assignment(f"u-{name}-{i}{pad}", "ns", f"{name}-{i}", f"n{i % 7}") for i in range(pods)),
        queue="q",
    )


def stored(document: br.Document, created: str = "2026-11-29T10:00:00Z", **status: Any) -> dict[str, Any]:
    """The object as the API server would serve it."""
    obj = json.loads(document.body)
    obj["metadata"] |= {"uid": f"uid-of-{document.name}", "resourceVersion": "5", "creationTimestamp": created}
    if status:
        obj["status"] = status
    return obj


def write(*places: Place, session: str = "s-000042", **options: Any) -> list[br.Bundle]:
    return br.bundles(session, 7, 1764430000.25, "muster", places, **options)


def test_a_request_comes_back_as_it_was_written():
    places = (gang("a", 3), replace(gang("b", 1), assignments=(Assignment("u", "elsewhere", "p", "n"),)))
    (bundle,) = write(*places)
    request = Assembler().offer(json.dumps(stored(bundle.header)).encode())
    assert request == BindRequest(
        name="s-000042-e7-1",
        uid="uid-of-s-000042-e7-1",
        session="s-000042",
        epoch=7,
        deadline=1764430000.25,
        gangs=places,
        created=read_time("2026-11-29T10:00:00Z"),
        resource_version="5",
    )


def test_the_object_has_the_documented_fields():
    (bundle,) = write(gang("a", 1))
    assert json.loads(bundle.header.body) == {
        "apiVersion": "scheduling.muster.sh/v1alpha1",
        "kind": "BindRequest",
        "metadata": {"name": "s-000042-e7-1", "namespace": "muster"},
        "spec": {
            "session": "s-000042",
            "epoch": 7,
            "deadline": "2025-11-29T15:26:40.250Z",
            "gangs": [
                {
                    "group": {
                        "key": "volcano/ns/a",
                        "namespace": "ns",
                        "name": "a",
                        "uid": "uid-a",
                        "apiVersion": "scheduling.volcano.sh/v1beta1",
                        "kind": "PodGroup",
                    },
                    "queue": "q",
                    "minimum": 1,
                    "placements": "a-0 u-a-0 n0\n",
                }
            ],
        },
    }


def test_status_comes_back_as_it_was_written():
    (bundle,) = write(gang("a", 2), gang("b", 2))
    request = Assembler().offer(stored(bundle.header))
    assert request is not None
    outcomes = (
        GangOutcome(0, "Bound", 2),
        GangOutcome(1, "Failed", 0, (BindFailure("u-b-0", "b-0", "n0", "NodeGone", True),)),
    )
    done = replace(request, phase="Failed", outcomes=outcomes)
    patch = br.status_patch(done)
    assert patch["status"]["gangs"][0] == {"index": 0, "uid": "uid-a", "phase": "Bound", "bound": 2}
    assert Assembler().offer(stored(bundle.header, **patch["status"])) == done


@pytest.mark.parametrize("lost", [0, 1])
def test_of_many_gangs_that_were_all_bound_whole_none_is_listed(lost: int):
    (bundle,) = write(*(gang(f"g{i}", 2) for i in range(br.MANY_GANGS + 1)))
    request = Assembler().offer(stored(bundle.header))
    assert request is not None
    outcomes = tuple(GangOutcome(i, "Bound", 2 - (lost if i == 7 else 0)) for i in range(br.MANY_GANGS + 1))
    done = replace(request, phase="Bound", outcomes=outcomes)
    status = br.status_patch(done)["status"]
    assert (status["gangs"] is None) == (lost == 0)
    assert Assembler().offer(stored(bundle.header, **{key: value for key, value in status.items() if value})) == done
    assert request.outcomes == ()


def test_many_small_gangs_share_a_request_and_none_is_split():
    places = [gang(f"g{i}", 20) for i in range(60)]
    batches = br.batches(places)
    assert [sum(len(place.assignments) for place in batch) for batch in batches] == [500, 500, 200]
    assert [place for batch in batches for place in batch] == places


def test_a_gang_that_does_not_fit_beside_the_others_begins_a_new_request():
    batches = br.batches([gang("a", 300), gang("b", 300), gang("c", 200)])
    assert [[place.name for place in batch] for batch in batches] == [["a"], ["b", "c"]]


def test_a_large_gang_stays_whole_in_a_request_of_its_own():
    batches = br.batches([gang("a", 10), gang("big", 2000), gang("c", 10)])
    assert [[place.name for place in batch] for batch in batches] == [["a"], ["big"], ["c"]]


def test_members_that_stand_alone_may_be_spread_over_requests():
    batches = br.batches([gang("surplus", 1200, minimum=0)])
    assert [sum(len(place.assignments) for place in batch) for batch in batches] == [500, 500, 200]
    assert all(place.minimum == 0 for batch in batches for place in batch)


def test_a_decision_without_members_is_not_written():
    assert br.bundles("s-1", 1, 0.0, "muster", [gang("empty", 0)]) == []


def test_names_are_numbered_lower_case_dns_names():
    names = [bundle.name for bundle in write(gang("a", 400), gang("b", 400), session="S_000042")]
    assert names == ["s-000042-e7-1", "s-000042-e7-2"]
    assert br.request_name("s-1", 2, 3, "0badcafe") == "s-1-e2-3-0badcafe"


def test_the_same_decisions_give_the_same_bytes():
    assert write(gang("a", 3), gang("b", 900)) == write(gang("a", 3), gang("b", 900))


def test_a_gang_too_large_for_one_object_is_written_in_parts_that_each_fit():
    place = gang("big", 1000)
    (bundle,) = write(place, size=12_000)
    assert len(bundle.parts) > 2
    assert all(len(document.body) <= 12_000 for document in (*bundle.parts, bundle.header))
    assert [document.name for document in bundle.parts][:2] == ["s-000042-e7-1-p1", "s-000042-e7-1-p2"]
    header = json.loads(bundle.header.body)
    assert header["spec"]["parts"] == len(bundle.parts)
    assert header["spec"]["gangs"][0]["placements"] == ""
    assert header["spec"]["gangs"][0]["minimum"] == 1000
    for number, document in enumerate(bundle.parts, start=1):
        part = json.loads(document.body)
        assert part["metadata"]["labels"] == {"scheduling.muster.sh/part-of": "s-000042-e7-1"}
        assert part["spec"]["part"] == number


def test_ten_thousand_pods_with_long_names_are_cut_by_their_real_size():
    place = gang("big", 10_000, long=120)
    (bundle,) = write(place)
    assert bundle.parts
    assert all(len(document.body) <= br.BYTES_AN_OBJECT for document in bundle.parts)


@pytest.mark.parametrize("seed", range(5))
def test_parts_and_header_in_any_order_give_the_request_once(seed: int):
    place = gang("big", 500)
    (bundle,) = write(place, size=10_000)
    documents = [*bundle.parts, bundle.header]
    random.Random(seed).shuffle(documents)
    assembler = Assembler()
    answers = [assembler.offer(stored(document)) for document in documents]
    assert answers[:-1] == [None] * (len(documents) - 1)
    assert answers[-1] is not None
    assert answers[-1].name == "s-000042-e7-1"
    assert answers[-1].gangs == (place,)


def test_parts_without_a_header_are_nothing_and_become_orphans_with_age():
    (bundle,) = write(gang("big", 500), size=10_000)
    assembler = Assembler()
    for document in bundle.parts:
        assert assembler.offer(stored(document, created="2026-11-29T10:00:00Z")) is None
    written = read_time("2026-11-29T10:00:00Z")
    assert assembler.orphans(written + 100, 300) == []
    assert assembler.orphans(written + 301, 300) == sorted(document.name for document in bundle.parts)
    assert assembler.remove(bundle.parts[0].name) is False
    assert bundle.parts[0].name not in assembler.orphans(written + 301, 300)


def test_a_header_without_all_its_parts_is_reported_as_incomplete():
    (bundle,) = write(gang("big", 500), size=10_000)
    assembler = Assembler()
    for document in (*bundle.parts[:-1], bundle.header):
        assert assembler.offer(stored(document)) is None
    assert assembler.incomplete() == [bundle.name]
    assert assembler.remove(bundle.name) is False


def test_a_status_change_of_a_header_keeps_its_placements():
    place = gang("big", 500)
    (bundle,) = write(place, size=10_000)
    assembler = Assembler()
    for document in (*bundle.parts, bundle.header):
        assembler.offer(stored(document))
    changed = assembler.offer(stored(bundle.header, phase="Binding"))
    assert changed is not None
    assert (changed.phase, changed.gangs) == ("Binding", (place,))
    assert assembler.offer(stored(bundle.parts[0])) is None
    assert assembler.incomplete() == []


def test_parts_of_a_deleted_header_are_orphans():
    (bundle,) = write(gang("big", 500), size=10_000)
    assembler = Assembler()
    for document in (*bundle.parts, bundle.header):
        assembler.offer(stored(document))
    assert assembler.orphans(1e12, 60) == []
    assert assembler.part_names(bundle.name) == [document.name for document in bundle.parts]
    assert assembler.remove(bundle.name) is True
    assert assembler.orphans(1e12, 60) == sorted(document.name for document in bundle.parts)


def test_removing_a_plain_request_takes_it_away():
    (bundle,) = write(gang("a", 1))
    assembler = Assembler()
    assembler.offer(stored(bundle.header))
    assert assembler.remove(bundle.name) is True


def test_several_gangs_that_cannot_share_an_object_are_refused_by_name():
    with pytest.raises(ValueError, match="s-000042-e7-1: 2 gangs"):
        br.bundle("s-000042-e7-1", "s-000042", 7, 0.0, "muster", (gang("a", 50), gang("b", 50)), size=2000)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda o: o["spec"].pop("session"), "session"),
        (lambda o: o["spec"].update(deadline="tomorrow"), "deadline"),
        (lambda o: o["spec"].update(deadline="2026-11-29T10:00:00"), "time zone"),
        (lambda o: o["spec"].update(part=1), "part-of"),
        (lambda o: o["spec"].update(epoch="seven"), "epoch"),
        (lambda o: o.update(status={"gangs": [{"index": 4}]}), r"status.gangs\[0\].index"),
        (
            lambda o: _first(o).update(placements="a-0 u-a-0\n"),
            r"spec.gangs\[0\].placements: line 1 must be: pod uid node",
        ),
        (lambda o: _first(o).update(placements="a u n\n\nb v n\n"), r"placements: line 2 must be"),
        (lambda o: _first(o).update(placements="a u n ns too-much\n"), r"line 1 must be.*too-much"),
        (lambda o: _first(o).update(placements="a u n\nb u m\n"), r"line 2: uid u is there already"),
        (lambda o: _first(o).update(placements=[{"pod": "a"}]), r"Expected `str`.*placements"),
    ],
)
def test_an_object_that_cannot_be_a_request_is_refused_with_the_field(change: Any, text: str):
    (bundle,) = write(gang("a", 1))
    obj = stored(bundle.header)
    change(obj)
    with pytest.raises(BadRequest, match=text):
        read(obj)


def _first(obj: Any) -> Any:
    return obj["spec"]["gangs"][0]


def test_a_member_of_another_namespace_keeps_it():
    place = gang("a", 2)
    foreign = replace(place, assignments=(place.assignments[0], replace(place.assignments[1], namespace="other")))
    (bundle,) = write(foreign)
    assert json.loads(bundle.header.body)["spec"]["gangs"][0]["placements"].splitlines()[1].endswith(" other")
    request = Assembler().offer(stored(bundle.header))
    assert request is not None
    assert request.gangs == (foreign,)


def test_of_many_failures_the_status_names_some_and_counts_the_rest():
    (bundle,) = write(gang("a", 300))
    request = Assembler().offer(stored(bundle.header))
    assert request is not None
    failures = tuple(BindFailure(f"u-a-{i}", f"a-{i}", "n0", "NodeGone", True) for i in range(250))
    done = replace(request, phase="Failed", outcomes=(GangOutcome(0, "Failed", 0, failures),))
    status = br.status_patch(done)["status"]
    assert (len(status["gangs"][0]["failures"]), status["gangs"][0]["moreFailures"]) == (100, 150)
    again = Assembler().offer(stored(bundle.header, **status))
    assert again is not None
    assert again.outcomes == (GangOutcome(0, "Failed", 0, failures[:100], 150),)
    assert br.status_patch(again)["status"] == status


def test_what_was_written_is_recognised_by_its_spec_only():
    first, other = write(gang("a", 2))[0], write(gang("a", 3))[0]
    assert br.same_spec(first.header.body, json.dumps(stored(first.header, phase="Bound")).encode())
    assert not br.same_spec(first.header.body, json.dumps(stored(other.header)).encode())
    assert br.digest(first.places) != br.digest(other.places)


@pytest.mark.parametrize("seconds", [0.0, 1764430000.0, 1764430000.999, 1764430000.9996])
def test_times_survive_to_the_millisecond(seconds: float):
    assert read_time(br.write_time(seconds)) == pytest.approx(seconds, abs=0.0006)
