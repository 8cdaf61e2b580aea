"""The binder's pure parts: what an answer means, what a check finds, what nodes are charged with, and the fence."""

from __future__ import annotations

import json
from typing import Any

import pytest

from scheduler.binder import answers
from scheduler.binder.check import check
from scheduler.binder.fence import Fencing, fence
from scheduler.binder.ledger import Ledger
from scheduler.binder.objects import RequestObjects
from scheduler.binder.pool import binding, deletion
from scheduler.binder.record import Answer, Checked, Failure, Kind, Reading, Verb
from scheduler.cluster import feed
from scheduler.cluster.client import ApiError, OutcomeUnknown, Unreachable
from scheduler.model.bindrequest import BindRequest, GangOutcome
from scheduler.model.decisions import Assignment, Place
from scheduler.model.nodes import Node
from scheduler.model.pods import Pod, Shape, Toleration
from scheduler.model.rejections import rejected

SHAPE = Shape(key="one", requests=(("cpu", 1000), ("example.com/gpu", 1)))
TOLERANT = Shape(key="tolerant", tolerations=(Toleration("node.kubernetes.io/unschedulable", "Exists"),))


def pod(called: str, **changes: Any) -> Pod:
    values: dict[str, Any] = {"uid": f"u-{called}", "namespace": "ns", "name": called, "shape": "one", "ours": True}
    return Pod(**(values | changes))


def node(name: str = "n", cpu: int = 4000, gpu: int = 2, **changes: Any) -> Node:
    return Node(name=name, uid=name, allocatable=(("cpu", cpu), ("example.com/gpu", gpu)), **changes)


def look(pods: list[Pod], nodes: list[Node], spots: list[tuple[str, str]], **options: Any) -> Checked:
    ledger = Ledger()
    ledger.apply([feed.ShapeSet(SHAPE), feed.ShapeSet(TOLERANT), *(feed.PodSet(item) for item in pods)])
    by_uid, by_name = {item.uid: item for item in pods}, {item.name: item for item in nodes}
    place = Place("g", "gu", "ns", "g", "v1", "PodGroup", 1, tuple(Assignment(f"u-{p}", "ns", p, n) for p, n in spots))
    values: dict[str, Any] = {"now": 0.0, "claimed": lambda _uid: False, "ledger": ledger, "resumed": False}
    return check(place, pod_of=by_uid.get, node_of=by_name.get, **(values | options))


@pytest.mark.parametrize(
    ("status", "message", "kind", "cause", "permanent"),
    [
        (409, "", Kind.DOUBT, "Conflict", False),
        (404, "", Kind.REFUSED, "PodGone", True),
        (422, "", Kind.REFUSED, "Rejected", True),
        (400, "pod has non-empty .spec.schedulingGates", Kind.REFUSED, "PodGated", False),
        (403, "", Kind.REFUSED, "Forbidden", False),
        (429, "", Kind.RETRY, "TooManyRequests", False),
        (503, "", Kind.RETRY, "ServerError", False),
        (500, "", Kind.DOUBT, "ServerError", False),
        (504, "", Kind.DOUBT, "OutcomeUnknown", False),
        (401, "", Kind.RETRY, "Unauthorized", False),
    ],
)
def test_each_status_of_a_bind_has_its_meaning(
    status: int, message: str, kind: Kind, cause: str, permanent: bool
) -> None:
    answer = answers.failed(Verb.BIND, ApiError(status, "R", message))
    assert (answer.kind, answer.cause, answer.permanent) == (kind, cause, permanent)


def test_retry_after_travels_with_the_answer() -> None:
    assert answers.failed(Verb.BIND, ApiError(429, "R", "", 3.0)).after == 3.0


def test_no_answer_is_unknown_for_a_bind_and_a_retry_for_a_reading() -> None:
    assert answers.failed(Verb.BIND, OutcomeUnknown("x")) == Answer(Verb.BIND, Kind.DOUBT, "OutcomeUnknown")
    assert answers.failed(Verb.BIND, Unreachable("x")) == Answer(Verb.BIND, Kind.RETRY, "Unreachable")
    assert answers.failed(Verb.READ, Unreachable("x")).kind is Kind.RETRY


def test_a_missing_pod_is_gone_for_a_reading_and_done_for_a_deletion() -> None:
    assert answers.failed(Verb.READ, ApiError(404)).reading == Reading(gone=True)
    assert answers.failed(Verb.DELETE, ApiError(404)).kind is Kind.DONE


@pytest.mark.parametrize(
    ("spec", "status", "reading"),
    [
        ({}, {}, Reading(version="7")),
        ({"nodeName": "n"}, {"phase": "Pending"}, Reading(node="n", version="7")),
        ({"nodeName": "n"}, {"phase": "Running"}, Reading(node="n", started=True, version="7")),
        ({"nodeName": "n"}, {"phase": "Failed"}, Reading(node="n", ended=True, version="7")),
        ({"schedulingGates": [{"name": "x"}]}, {}, Reading(gated=True, version="7")),
        (
            {"nodeName": "n"},
            {"phase": "Pending", "initContainerStatuses": [{"state": {"running": {"startedAt": "x"}}}]},
            Reading(node="n", started=True, version="7"),
        ),
        (
            {"nodeName": "n"},
            {"phase": "Pending", "containerStatuses": [{"state": {"waiting": {"reason": "ContainerCreating"}}}]},
            Reading(node="n", version="7"),
        ),
    ],
)
def test_a_pod_is_read_for_what_matters(spec: dict[str, Any], status: dict[str, Any], reading: Reading) -> None:
    data = json.dumps({"metadata": {"uid": "u", "resourceVersion": "7"}, "spec": spec, "status": status}).encode()
    assert answers.read_pod(data, "u").reading == reading


def test_a_pod_of_another_uid_means_that_ours_is_gone_and_rubbish_is_asked_again() -> None:
    assert answers.read_pod(b'{"metadata":{"uid":"other"}}', "u").reading == Reading(gone=True)
    assert answers.read_pod(b"[]", "u").kind is Kind.RETRY


@pytest.mark.parametrize(
    ("found", "where", "failure"),
    [
        (None, node(), Failure(0, "PodGone", True)),
        (pod("a", deleting=True), node(), Failure(0, "PodGone", True)),
        (pod("a", gated=True), node(), Failure(0, "PodGated")),
        (pod("a", node="other"), node(), Failure(0, "Conflict", True)),
        (pod("a", phase="Failed"), node(), Failure(0, "PodEnded", True)),
        (pod("a", ours=False), node(), Failure(0, "ForeignPod", True)),
        (pod("a", name="b"), node(), Failure(0, "Malformed", True)),
        (pod("a"), None, Failure(0, "NodeGone", True)),
        (pod("a"), node(deleting=True), Failure(0, "NodeGone", True)),
        (pod("a"), node(unschedulable=True), Failure(0, "NodeCordoned")),
        (pod("a"), node(cpu=999), Failure(0, "NodeFull")),
        (pod("a"), node(slots=0), Failure(0, "NodeFull")),
    ],
)
def test_a_check_names_why_a_member_cannot_go_where_it_should(
    found: Pod | None, where: Node | None, failure: Failure
) -> None:
    checked = look([found] if found else [], [where] if where else [], [("a", "n")])
    assert checked.failures == (failure,)


def test_a_check_passes_what_fits_and_charges_members_one_after_another() -> None:
    pods = [pod(name) for name in "abc"]
    checked = look(pods, [node()], [("a", "n"), ("b", "n"), ("c", "n")])
    assert checked.failures == (Failure(2, "NodeFull"),)


def test_pods_of_anybody_are_charged_and_terminating_ones_until_they_are_gone() -> None:
    others = [pod("x", ours=False, node="n"), pod("y", node="n", deleting=True)]
    assert look([*others, pod("a")], [node()], [("a", "n")]).failures == (Failure(0, "NodeFull"),)
    ended = [pod("x", node="n", phase="Succeeded"), pod("y", node="n", phase="Failed")]
    assert look([*ended, pod("a")], [node()], [("a", "n")]).failures == ()


def test_a_cordoned_node_takes_a_pod_that_tolerates_it() -> None:
    assert look([pod("a", shape="tolerant")], [node(unschedulable=True)], [("a", "n")]).failures == ()


def test_members_on_their_node_are_present_and_those_that_ran_there_have_ended() -> None:
    pods = [pod("a", node="n"), pod("b", node="n", phase="Succeeded")]
    checked = look(pods, [node()], [("a", "n"), ("b", "n")], resumed=True)
    assert (checked.present, checked.ended, checked.failures) == ((0,), (1,), ())


def test_the_same_pod_twice_or_a_name_that_is_none_is_malformed() -> None:
    assert look([pod("a")], [node()], [("a", "n"), ("a", "n")]).failures == (Failure(1, "Malformed", True),)
    assert look([pod('a"')], [node()], [('a"', "n")]).failures == (Failure(0, "Malformed", True),)


def test_a_pod_that_another_gang_has_is_a_conflict_for_now() -> None:
    assert look([pod("a")], [node()], [("a", "n")], claimed=lambda _uid: True).failures == (Failure(0, "Conflict"),)


def test_a_ledger_gives_back_what_was_assumed_but_not_what_the_watch_has_shown() -> None:
    ledger = Ledger()
    ledger.apply([feed.ShapeSet(SHAPE), feed.PodSet(pod("a")), feed.PodSet(pod("b"))])
    ledger.assume(pod("a"), "n")
    ledger.assume(pod("b"), "n")
    ledger.apply([feed.PodSet(pod("a")), feed.PodSet(pod("b", node="n"))])
    assert ledger.used("n") == (2, {"cpu": 2000, "example.com/gpu": 2})
    ledger.release("u-a")
    ledger.release("u-b")
    assert ledger.used("n") == (1, {"cpu": 1000, "example.com/gpu": 1})
    ledger.apply([feed.PodGone("u-b")])
    assert ledger.used("n") == (0, {})


def test_a_pod_that_is_known_to_be_gone_holds_nothing_before_its_event_comes() -> None:
    ledger = Ledger()
    ledger.apply([feed.ShapeSet(SHAPE), feed.PodSet(pod("a", node="n"))])
    ledger.gone("u-a")
    assert ledger.used("n") == (0, {})
    ledger.apply([feed.PodGone("u-a")])
    assert ledger.used("n") == (0, {})


def test_a_pod_that_moves_its_charge_is_charged_once() -> None:
    ledger = Ledger()
    ledger.apply([feed.ShapeSet(SHAPE)])
    ledger.assume(pod("a"), "n")
    ledger.apply([feed.PodSet(pod("a", node="m", charge=(("cpu", 5),)))])
    assert (ledger.used("n"), ledger.used("m")) == ((0, {}), (1, {"cpu": 5}))


@pytest.mark.parametrize(
    ("written", "found", "expected"),
    [
        (5, True, Fencing.PROCEED),
        (5, False, Fencing.PROCEED),
        (4, True, Fencing.ADOPT),
        (4, False, Fencing.REFUSE),
        (6, True, Fencing.LEAVE),
        (6, False, Fencing.LEAVE),
    ],
)
def test_the_fence(written: int, found: bool, expected: Fencing) -> None:
    assert fence(written, 5, found=found) is expected


@pytest.mark.parametrize(
    ("reason", "started", "expected"),
    [
        ("OutOfcpu", False, "OutOfcpu"),
        ("OutOfexample.com/gpu", False, "OutOfexample.com/gpu"),
        ("UnexpectedAdmissionError", False, "UnexpectedAdmissionError"),
        ("NodeAffinity", False, "NodeAffinity"),
        ("TopologyAffinityError", False, "TopologyAffinityError"),
        ("Evicted", False, "Evicted"),
        ("Evicted", True, None),
        ("", True, None),
        ("DeadlineExceeded", True, None),
    ],
)
def test_a_kubelets_refusal_is_told_from_a_failure(reason: str, started: bool, expected: str | None) -> None:
    failed = pod("a", node="n", phase="Failed", status_reason=reason, started=started)
    assert rejected(failed) == expected
    assert rejected(pod("a", node="n", phase="Running", status_reason=reason, started=started)) is None


def test_a_binding_and_a_deletion_name_the_very_pod() -> None:
    target = Assignment("u-1", "ns", "p", "n")
    assert json.loads(binding(target)) == {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "p", "namespace": "ns", "uid": "u-1"},
        "target": {"apiVersion": "v1", "kind": "Node", "name": "n"},
    }
    assert json.loads(deletion(target, "7"))["preconditions"] == {"uid": "u-1", "resourceVersion": "7"}


class _Wire:
    """Records what is sent."""

    def __init__(self, missing: tuple[str, ...] = ()) -> None:
        self.sent: list[tuple[str, str, Any]] = []
        self.missing = missing

    async def request(self, method: str, path: str, *, body: Any = None, **_: Any) -> bytes:
        self.sent.append((method, path.rsplit("/bindrequests/", 1)[1], body))
        if path.endswith(self.missing) and self.missing:
            raise ApiError(404, "NotFound")
        return b"{}"


class _Parts:
    def part_names(self, name: str) -> list[str]:
        return [f"{name}-p1", f"{name}-p2"]

    def orphans(self, now: float, age: float) -> list[str]:
        return ["old-p1"] if now - age > 0 else []

    def incomplete(self) -> list[str]:
        return ["broken"]


REQUEST = BindRequest("r", "uid-r", "s-1", 3, 10.0, (), resource_version="42")


async def test_a_status_is_written_for_this_very_object_and_an_adoption_for_this_very_version() -> None:
    wire = _Wire()
    objects = RequestObjects(wire, _Parts(), "muster-system")
    place = Place("g", "gu", "ns", "g", "v1", "PodGroup", 1, ())
    request = BindRequest("r", "uid-r", "s-1", 3, 10.0, (place,), resource_version="42")
    await objects.report(request, "Bound", (GangOutcome(0, "Bound", 1),))
    await objects.adopt(request, 4)
    (_, status_path, status), (_, spec_path, spec) = wire.sent
    assert (status_path, spec_path) == ("r/status", "r")
    assert status["metadata"] == {"uid": "uid-r"}
    assert status["status"]["phase"] == "Bound"
    assert spec == {"metadata": {"uid": "uid-r", "resourceVersion": "42"}, "spec": {"epoch": 4}}


async def test_a_request_is_deleted_before_its_parts_and_what_is_missing_is_no_error() -> None:
    wire = _Wire(missing=("r-p1",))
    await RequestObjects(wire, _Parts(), "muster-system").delete(REQUEST)
    assert [(method, name) for method, name, _ in wire.sent] == [("DELETE", n) for n in ("r", "r-p1", "r-p2")]
    assert wire.sent[0][2]["preconditions"] == {"uid": "uid-r"}


async def test_old_parts_without_a_header_go_at_once_and_headers_that_lack_parts_at_the_second_look() -> None:
    wire = _Wire()
    objects = RequestObjects(wire, _Parts(), "muster-system", clock=lambda: 1000.0)
    assert await objects.sweep() == 1
    assert await objects.sweep() == 2
    assert [name for _, name, _ in wire.sent] == ["old-p1", "broken", "old-p1"]
