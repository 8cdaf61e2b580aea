"""Decisions of a session as they arrive at the API server: through the real writer, against a scripted server."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from aiohttp import web

from scheduler.cluster import feed
from scheduler.cluster.members import queue_of
from scheduler.cluster.performer import Performer
from scheduler.cluster.writer import Writer
from scheduler.model.bindrequest import BindFailure, BindRequest, GangOutcome
from scheduler.model.decisions import Assignment, Explain, Place, SetStatus
from scheduler.model.groups import PodGroup
from scheduler.model.pods import Condition, Pod
from scheduler.model.queues import Queue
from scheduler.model.verdict import Code, Verdict, verdict
from scheduler.observe import explain
from tests.unit.cluster.scripted import client_of, scripted, status

GPU = "example.com/gpu"
KEY = "volcano/ns/train"
REQUESTS = "/apis/scheduling.muster.sh/v1alpha1/namespaces/muster/bindrequests"
GROUP_PATH = "/apis/scheduling.volcano.sh/v1beta1/namespaces/ns/podgroups/train"


def shortage(free: int = 1) -> Verdict:
    made = verdict(Code.RESOURCES, resource=GPU, needed=4, members=4, free=free, short=4 - free)
    return replace(made, nodes=((f"Insufficient {GPU}", 2),), total=2)


def pod(number: int, **fields: Any) -> Pod:
    made = Pod(
        uid=f"u{number}",
        namespace="ns",
        name=f"train-{number}",
        shape="s",
        ours=True,
        group=KEY,
        scheduler_name="volcano",
    )
    return replace(made, **fields)


def group(**fields: Any) -> PodGroup:
    made = PodGroup(
        key=KEY,
        uid="g1",
        dialect="fake",
        namespace="ns",
        name="train",
        api_version="scheduling.volcano.sh/v1beta1",
        min_member=4,
        resource_version="77",
    )
    return replace(made, **fields)


def place(*numbers: int, minimum: int | None = None, **fields: Any) -> Place:
    assignments = tuple(Assignment(f"u{n}", "ns", f"train-{n}", f"n{n % 2}") for n in numbers)
    count = len(numbers) if minimum is None else minimum
    made = Place(KEY, "g1", "ns", "train", "scheduling.volcano.sh/v1beta1", "PodGroup", count, assignments)
    return replace(made, **fields)


class FakeDialect:
    """Writes a phase, and conditions where there is a text."""

    def status_patch(self, group: PodGroup, status: SetStatus, text: str, now: str) -> dict[str, Any] | None:
        if group.phase == status.phase and not text:
            return None
        wish: dict[str, Any] = {"phase": status.phase}
        if text:
            wish["conditions"] = [{"type": "Unschedulable", "message": text, "lastTransitionTime": now}]
        return {"status": wish}

    def api_path(self, group: PodGroup) -> str:
        return f"/apis/{group.api_version}/namespaces/{group.namespace}/podgroups/{group.name}"


class FakeCache:
    def __init__(self) -> None:
        self.pods: dict[str, Pod] = {}
        self.groups: dict[str, PodGroup] = {}
        self.queues: set[str] = set()

    def queue(self, dialect: str, name: str) -> Queue | None:
        return Queue(name=name) if dialect == "fake" and name in self.queues else None

    def pod(self, uid: str) -> Pod | None:
        return self.pods.get(uid)

    def group(self, key: str) -> PodGroup | None:
        return self.groups.get(key)

    def queue_of(self, group: PodGroup | None, members: Iterable[Pod]) -> str:
        return queue_of(group, members, lambda _, default: default)


class Case:
    """A performer with its world; acts like an API server whose watch is as fast as its answers."""

    def __init__(self) -> None:
        self.cache = FakeCache()
        self.failed: list[feed.HandoverFailed] = []
        self.bodies: list[tuple[str, str, Any]] = []
        self.answers: dict[str, list[Any]] = {}
        self.objects: dict[str, Any] = {}
        self.counts: Counter[str] = Counter()
        self.time = 1_764_430_000.0
        self.pressed = False
        self.session = 0
        self.leads = True
        self.waits: list[tuple[float, str]] = []
        self.without_subresource: set[str] = set()

    async def serve(self, request: web.Request) -> web.StreamResponse:
        body = json.loads(await request.read() or b"null")
        self.bodies.append((request.method, request.path, body))
        waiting = self.answers.get(f"{request.method} {request.path}")
        if waiting:
            answer = waiting.pop(0)
            return answer(request) if callable(answer) else answer
        if request.method == "GET":
            found = self.objects.get(request.path)
            return web.json_response(found) if found else status(404, "NotFound")
        if request.method == "POST" and request.path == REQUESTS:
            name = f"{REQUESTS}/{body['metadata']['name']}"
            if name in self.objects:
                return status(409, "AlreadyExists")
            self.objects[name] = body
        return web.json_response(body)

    def count(self, name: str, amount: float = 1.0, **labels: str) -> None:
        self.counts[":".join([name, *(labels[key] for key in sorted(labels))])] += int(amount)

    def seconds(self, name: str, value: float, **labels: str) -> None:
        if name == "pod_group_wait_seconds":
            self.waits.append((value, labels["queue"]))

    def put(self, *things: Pod | PodGroup) -> None:
        for thing in things:
            if isinstance(thing, Pod):
                self.cache.pods[thing.uid] = thing
            else:
                self.cache.groups[thing.key] = thing

    async def do(self, *decisions: Any) -> None:
        """Hand over decisions and wait until all is written."""
        self.session += 1
        self.performer.handle(
            feed.Handover(
                session=f"s-{self.session:06d}",
                generation=self.session,
                places=tuple(item for item in decisions if isinstance(item, Place)),
                statuses=tuple(item for item in decisions if isinstance(item, SetStatus)),
                explains=tuple(item for item in decisions if isinstance(item, Explain)),
            )
        )
        await self.settle()

    async def settle(self) -> None:
        async with asyncio.timeout(20):
            await self.performer.idle()
            await self.writer.idle()

    def sent(self, method: str, part: str) -> list[Any]:
        return [body for seen, path, body in self.bodies if seen == method and part in path]

    @property
    def events(self) -> list[Any]:
        return self.sent("POST", "/events")

    @property
    def conditions(self) -> list[Any]:
        return [body["status"]["conditions"][0] for body in self.sent("PATCH", "/pods/")]


@pytest.fixture
async def case():
    made = Case()
    async with scripted(made.serve) as server, client_of(server) as client:
        made.writer = Writer(client, lambda: made.leads, made, pressed=lambda: made.pressed, seed=1)
        made.performer = Performer(
            made.writer,
            made.cache,
            {"fake": FakeDialect()},
            explain,
            namespace="muster",
            epoch=lambda: 7,
            send=made.failed.append,
            meter=made,
            has_status=lambda group: group.dialect not in made.without_subresource,
            host="host-1",
            clock=lambda: made.time,
            timer=lambda: made.time,
        )
        yield made
        await made.performer.close()
        await made.writer.close()


# -- why pods wait ----------------------------------------------------------------------------------------------------


async def test_every_waiting_member_gets_the_condition_and_the_group_one_event(case: Case):
    case.put(group(), *(pod(n) for n in range(4)))
    await case.do(Explain(KEY, shortage(), tuple(f"u{n}" for n in range(4))))
    assert len(case.conditions) == 4
    assert case.conditions[0] == {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "0/2 nodes are available: 2 Insufficient example.com/gpu. "
        "Resources: needs 4 example.com/gpu for 4 members, 1 free on 2 nodes, 3 short",
        "lastTransitionTime": "2025-11-29T15:26:40Z",
    }
    (event,) = case.events
    assert event["regarding"] == {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "namespace": "ns",
        "name": "train",
        "uid": "g1",
    }
    assert (event["type"], event["reason"], event["action"]) == ("Warning", "FailedScheduling", "Scheduling")
    assert event["reportingController"] == "volcano"
    assert event["reportingInstance"] == "volcano-host-1"
    assert event["note"].startswith("0/2 nodes are available:")
    assert event["metadata"]["annotations"] == {"scheduling.muster.sh/session": "s-000001"}


async def test_the_condition_says_which_generation_of_the_pod_was_looked_at(case: Case):
    case.put(group(), pod(0, generation=3))
    await case.do(Explain(KEY, shortage(), ("u0",)))
    assert case.conditions[0]["observedGeneration"] == 3


async def test_the_patch_names_uid_and_version_so_that_neither_a_namesake_nor_a_bound_pod_is_touched(case: Case):
    case.put(group(), pod(0))
    await case.do(Explain(KEY, shortage(), ("u0",)))
    ((_, path, body),) = [seen for seen in case.bodies if seen[0] == "PATCH"]
    assert path == "/api/v1/namespaces/ns/pods/train-0/status"
    assert body["metadata"] == {"uid": "u0", "resourceVersion": case.cache.pod("u0").resource_version}


async def test_quota_and_order_have_their_own_reason(case: Case):
    case.put(group(), pod(0))
    await case.do(Explain(KEY, verdict(Code.NOT_ENOUGH_MEMBERS, existing=1, minimum=4, gated=0), ("u0",)))
    assert case.conditions[0]["reason"] == "NotEnoughMembers"
    assert case.conditions[0]["message"] == "NotEnoughMembers: 1 of 4 members exists"


async def test_a_pod_that_says_so_already_is_not_patched_and_no_event_is_written(case: Case):
    text = explain.pod_message(shortage())
    case.put(group(), pod(0, condition=Condition("PodScheduled", "False", "Unschedulable", text)))
    await case.do(Explain(KEY, shortage(), ("u0",)))
    assert case.bodies == []


async def test_a_changed_number_is_patched_without_moving_the_transition_time(case: Case):
    text = explain.pod_message(shortage(free=1))
    case.put(group(), pod(0, condition=Condition("PodScheduled", "False", "Unschedulable", text)))
    await case.do(Explain(KEY, shortage(free=2), ("u0",)))
    (condition,) = case.conditions
    assert "2 free" in condition["message"]
    assert "lastTransitionTime" not in condition


@pytest.mark.parametrize(
    "fields",
    [
        {"node": "n1"},
        {"gated": True},
        {"deleting": True},
        {"phase": "Failed"},
        {"ours": False},
    ],
    ids=lambda fields: next(iter(fields)),
)
async def test_a_pod_that_does_not_wait_for_us_gets_no_condition(case: Case, fields: dict[str, Any]):
    case.put(group(), pod(0, **fields))
    await case.do(Explain(KEY, shortage(), ("u0",)))
    assert case.conditions == []


async def test_members_of_a_gang_that_was_given_up_wait_again_while_their_request_goes_on(case: Case):
    case.put(group(), pod(0), pod(1))
    request = BindRequest("r", "ur", "s-000001", 7, case.time + 100, (place(0), place(1)), "Binding")
    case.performer.watch([feed.RequestSet(request)])
    case.performer.watch([feed.RequestSet(replace(request, outcomes=(GangOutcome(0, "Unwound"),)))])
    await case.do(Explain(KEY, shortage(), ("u0", "u1")))
    assert [body["metadata"]["uid"] for body in case.sent("PATCH", "/pods/")] == ["u0"]


async def test_a_pod_about_to_be_bound_gets_no_condition_until_its_request_has_failed(case: Case):
    case.put(group(), pod(0), pod(1))
    await case.do(place(0), Explain(KEY, shortage(), ("u0", "u1")))
    assert [body["metadata"]["uid"] for body in case.sent("PATCH", "/pods/")] == ["u1"]

    request = BindRequest("s-000001-e7-1", "r1", "s-000001", 7, case.time + 100, (place(0),))
    case.performer.watch([feed.RequestSet(request)])
    await case.do(Explain(KEY, shortage(2), ("u0",)))
    assert len(case.conditions) == 1

    case.performer.watch([feed.RequestSet(replace(request, phase="Failed", outcomes=(GangOutcome(0, "Failed"),)))])
    await case.do(Explain(KEY, shortage(2), ("u0",)))
    assert len(case.conditions) == 2


async def test_a_pod_that_is_not_bound_for_long_is_told_so_until_it_is_bound(case: Case):
    case.put(group(), pod(0), pod(1))
    request = BindRequest("r", "ur", "s-000001", 7, case.time + 100, (place(0, 1),), "Binding")
    case.performer.watch([feed.RequestSet(request)])
    late = verdict(Code.WAITING_FOR_BINDER, members=2, bound=0)
    case.put(replace(pod(1), node="n1"))
    await case.do(Explain(KEY, late, ("u0", "u1")))
    assert [body["metadata"]["uid"] for body in case.sent("PATCH", "/pods/")] == ["u0"]
    assert case.conditions[0]["reason"] == "WaitingForBinder"
    assert case.performer.pending() == {("default", "WaitingForBinder"): 1}
    case.put(replace(pod(0), node="n0"))
    assert case.performer.pending() == {}


async def test_requests_of_a_former_leader_protect_their_pods_too(case: Case):
    case.put(group(), pod(0))
    request = BindRequest("s-000009-e6-1", "r1", "s-000009", 6, case.time + 100, (place(0),), phase="Binding")
    case.performer.watch([feed.RequestSet(request)])
    await case.do(Explain(KEY, shortage(), ("u0",)))
    assert case.bodies == []
    case.performer.watch([feed.RequestGone(request.name)])
    await case.do(Explain(KEY, shortage(), ("u0",)))
    assert len(case.conditions) == 1


async def test_a_pod_bound_while_its_condition_waits_to_be_written_is_left_alone(case: Case):
    case.put(group(), pod(0))
    case.answers["PATCH /api/v1/namespaces/ns/pods/train-0/status"] = [status(503, "ServiceUnavailable")]
    case.performer.handle(feed.Handover("s-1", 1, explains=(Explain(KEY, shortage(), ("u0",)),)))
    async with asyncio.timeout(20):
        while not case.conditions:
            await asyncio.sleep(0.005)
    case.put(pod(0, node="n1"))
    await case.settle()
    assert len(case.conditions) == 1


async def test_an_event_is_written_once_a_minute_for_a_reason_and_only_in_new_words(case: Case):
    case.put(group(), pod(0))
    for free, seconds in ((1, 0), (2, 10), (3, 61), (3, 100)):
        case.time = 1_764_430_000.0 + seconds
        await case.do(Explain(KEY, shortage(free), ("u0",)))
    assert ["1 free" in event["note"] for event in case.events] == [True, False]
    await case.do(Explain(KEY, verdict(Code.GATED, gated=1, members=4), ("u0",)))
    assert len(case.events) == 3


async def test_a_group_without_object_has_its_event_on_the_pod(case: Case):
    case.put(pod(0, group="", scheduler_name="muster"))
    await case.do(Explain("pod/ns/u0", shortage(), ("u0",)))
    (event,) = case.events
    assert event["regarding"] == {"apiVersion": "v1", "kind": "Pod", "namespace": "ns", "name": "train-0", "uid": "u0"}
    assert event["reportingController"] == "muster"


async def test_members_that_name_a_missing_group_have_one_event(case: Case):
    case.put(*(pod(n) for n in range(3)))
    await case.do(Explain(KEY, verdict(Code.POD_GROUP_NOT_FOUND, group="ns/train"), ("u0", "u1", "u2")))
    assert len(case.conditions) == 3
    (event,) = case.events
    assert event["note"] == "PodGroupNotFound: PodGroup ns/train does not exist"


async def test_a_group_without_members_has_its_event_unless_its_object_says_so(case: Case):
    wrong = verdict(Code.MISCONFIGURED, field="spec.minMember", message="0 is less than 1")
    case.put(group())
    await case.do(Explain(KEY, wrong))
    assert len(case.events) == 1
    case.time += 3600
    case.put(group(conditions=(Condition("Ready", "False", "x", f"said: {explain.sentence(wrong)}"),)))
    await case.do(Explain(KEY, wrong))
    assert len(case.events) == 1


async def test_a_long_note_is_cut_to_what_the_server_accepts(case: Case):
    case.put(group(), pod(0))
    await case.do(Explain(KEY, verdict(Code.MISCONFIGURED, field="f", message="x" * 5000), ("u0",)))
    assert len(case.events[0]["note"]) == 1024
    assert len(case.conditions[0]["message"]) > 5000


async def test_reasons_of_pods_that_wait_no_more_are_forgotten_also_where_nobody_reads_metrics(case: Case):
    for number in range(3000):
        case.cache.pods = {f"u{number}": pod(number, group="")}
        told = Explain(f"pod/ns/u{number}", shortage(), (f"u{number}",))
        case.performer.handle(feed.Handover("s-000001", 1, explains=(told,)))
    assert len(case.performer._why) <= 1001
    assert case.performer.pending() == {("default", "Resources"): 1}


async def test_waiting_groups_are_counted_by_queue_and_reason_until_their_members_are_gone(case: Case):
    case.put(group(queue="research"), pod(0), pod(1), pod(7, group=""))
    missing = verdict(Code.NOT_ENOUGH_MEMBERS, existing=0, minimum=4)
    case.cache.queues.add("research")
    case.put(group(key="volcano/ns/empty", uid="g5", name="empty"))
    await case.do(
        Explain(KEY, shortage(), ("u0", "u1")),
        Explain("pod/ns/u7", shortage(), ("u7",)),
        Explain("volcano/ns/empty", missing),
    )
    few = {("default", "Resources"): 1, ("default", "NotEnoughMembers"): 1}
    assert case.performer.pending() == {("research", "Resources"): 1, **few}
    case.cache.queues.clear()  # a name of which no queue exists is no series of its own
    assert case.performer.pending() == {("", "Resources"): 1, **few}
    await case.do(place(0, 1))
    assert case.performer.assumed == 2
    assert case.performer.pending() == few
    case.cache.pods.clear()
    case.performer.watch([feed.GroupGone("volcano/ns/empty")])
    assert case.performer.pending() == {}


# -- the status of groups ---------------------------------------------------------------------------------------------


async def test_a_status_is_patched_in_the_words_of_its_dialect(case: Case):
    case.put(group())
    await case.do(SetStatus(KEY, "g1", "Inqueue"))
    assert case.bodies == [
        ("PATCH", f"{GROUP_PATH}/status", {"metadata": {"uid": "g1"}, "status": {"phase": "Inqueue"}})
    ]


async def test_a_status_that_the_object_shows_is_not_written(case: Case):
    case.put(group(phase="Inqueue"))
    await case.do(SetStatus(KEY, "g1", "Inqueue"))
    assert case.bodies == []


async def test_a_list_is_only_replaced_in_the_version_that_was_read_and_a_conflict_reads_again(case: Case):
    def newer(_request: web.Request) -> web.Response:
        case.put(group(resource_version="78"))
        return status(409, "Conflict")

    case.put(group())
    case.answers[f"PATCH {GROUP_PATH}/status"] = [newer]
    await case.do(SetStatus(KEY, "g1", "Pending", verdict=shortage()))
    first, second = case.sent("PATCH", "podgroups")
    assert first["metadata"]["resourceVersion"] == "77"
    assert second["metadata"]["resourceVersion"] == "78"
    assert second["status"]["conditions"][0]["message"].startswith("Resources: needs 4")


async def test_a_group_of_the_same_name_with_another_uid_is_not_touched(case: Case):
    case.put(group(uid="g2"))
    await case.do(SetStatus(KEY, "g1", "Running"))
    assert case.bodies == []


async def test_where_the_status_is_no_subresource_the_object_itself_is_patched(case: Case):
    case.put(group())
    case.without_subresource.add("fake")
    await case.do(SetStatus(KEY, "g1", "Inqueue"))
    case.without_subresource.clear()
    await case.do(SetStatus(KEY, "g1", "Running"))
    assert [(method, path) for method, path, _ in case.bodies] == [
        ("PATCH", GROUP_PATH),
        ("PATCH", f"{GROUP_PATH}/status"),
    ]


async def test_a_group_that_was_deleted_costs_one_refused_write(case: Case):
    case.put(group())
    case.answers[f"PATCH {GROUP_PATH}/status"] = [status(404, "NotFound")]
    await case.do(SetStatus(KEY, "g1", "Inqueue"))
    assert [path for _, path, _ in case.bodies] == [f"{GROUP_PATH}/status"]


async def test_a_dialect_that_raises_stops_no_other_group(case: Case):
    class Broken(FakeDialect):
        def status_patch(self, *_: Any) -> None:
            raise KeyError("x")

    case.performer._dialects["broken"] = Broken()
    case.put(group(dialect="broken"), group(key="volcano/ns/other", uid="g9", name="other"))
    await case.do(SetStatus(KEY, "g1", "Inqueue"), SetStatus("volcano/ns/other", "g9", "Inqueue"))
    assert [path for _, path, _ in case.bodies] == [GROUP_PATH.replace("train", "other") + "/status"]


# -- placements -------------------------------------------------------------------------------------------------------


async def test_placements_of_one_session_become_requests_in_the_schedulers_namespace(case: Case):
    case.put(group(), *(pod(n) for n in range(4)))
    await case.do(place(0, 1, 2, 3))
    (request,) = case.sent("POST", "bindrequests")
    assert request["metadata"] == {"name": "s-000001-e7-1", "namespace": "muster"}
    assert request["spec"]["deadline"] == "2025-11-29T15:28:40.000Z"
    assert request["spec"]["epoch"] == 7
    assert case.failed == []


async def test_the_brain_is_told_of_a_request_that_cannot_be_written(case: Case):
    case.answers[f"POST {REQUESTS}"] = [status(403, "Forbidden", "bindrequests is forbidden")]
    await case.do(place(0, 1))
    (failed,) = case.failed
    assert (failed.session, failed.groups) == ("s-000001", (KEY,))
    assert "forbidden" in failed.cause
    case.put(group(), pod(0))
    await case.do(Explain(KEY, shortage(), ("u0",)))
    assert len(case.conditions) == 1


async def test_repeated_failures_are_told_ever_more_slowly(case: Case):
    case.answers[f"POST {REQUESTS}"] = [lambda _: status(403, "Forbidden")] * 3
    loop = asyncio.get_running_loop()
    pauses = []
    for _ in range(3):
        began = loop.time()
        await case.do(place(0))
        pauses.append(loop.time() - began)
    assert pauses[0] < pauses[1] < pauses[2]


async def test_without_the_lease_nothing_is_written_and_the_brain_is_told(case: Case):
    case.leads = False
    await case.do(place(0))
    assert case.bodies == []
    assert "lease" in case.failed[0].cause


async def test_a_name_that_another_brain_used_is_replaced_by_one_of_its_own(case: Case):
    await case.do(place(0))
    case.session = 0
    await case.do(place(1))
    names = sorted(path.rpartition("/")[2] for path in case.objects)
    assert names[0] == "s-000001-e7-1"
    assert names[1].startswith("s-000001-e7-1-")
    assert case.failed == []


async def test_a_bound_gang_has_one_event_on_its_group(case: Case):
    case.put(group(), pod(0), pod(1))
    await case.do(place(0, 1))
    request = BindRequest("s-000001-e7-1", "r1", "s-000001", 7, case.time + 100, (place(0, 1),))
    done = replace(request, phase="Bound", outcomes=(GangOutcome(0, "Bound", 2),))
    case.put(group(created=case.time - 30))
    case.performer.watch([feed.RequestSet(request), feed.RequestSet(done), feed.RequestSet(done)])
    await case.settle()
    (event,) = case.events
    assert (event["type"], event["reason"], event["regarding"]["kind"]) == ("Normal", "Scheduled", "PodGroup")
    assert event["note"] == "Bound 2 members: train-0 to n0, train-1 to n1"
    assert case.waits == [(30.0, "default")]


async def test_single_pods_have_an_event_each_that_is_dropped_under_load(case: Case):
    single = place(0, group="pod/ns/u0", group_uid="", api_version="", kind="", minimum=1)
    case.put(pod(0, group=""))
    await case.do(single, replace(single, group="pod/ns/u1", assignments=(Assignment("u1", "ns", "train-1", "n1"),)))
    request = BindRequest("s-000001-e7-1", "r1", "s-000001", 7, case.time + 100, (single,))
    done = replace(request, phase="Bound", outcomes=(GangOutcome(0, "Bound", 1),))
    case.performer.watch([feed.RequestSet(done)])
    await case.settle()
    assert [event["note"] for event in case.events] == ["Successfully assigned ns/train-0 to n0"]
    assert case.events[0]["regarding"]["kind"] == "Pod"

    case.pressed = True
    await case.do(single)
    case.performer.watch([feed.RequestSet(replace(done, name="s-000002-e7-1"))])
    await case.settle()
    assert len(case.events) == 1
    assert case.counts["events_dropped:redundant"] == 1


async def test_members_that_could_not_be_bound_are_not_announced(case: Case):
    single = place(0, 1, minimum=0)
    await case.do(single)
    request = BindRequest("s-000001-e7-1", "r1", "s-000001", 7, case.time + 100, (single,), phase="Bound")
    outcome = GangOutcome(0, "Bound", 1, (BindFailure("u0", "train-0", "n0", "NodeGone"),))
    case.performer.watch([feed.RequestSet(replace(request, outcomes=(outcome,)))])
    await case.settle()
    assert [event["regarding"]["name"] for event in case.events] == ["train-1"]


async def test_a_gang_that_was_given_up_says_why_on_its_group(case: Case):
    case.put(group(), pod(0), pod(1))
    await case.do(place(0, 1))
    request = BindRequest("s-000001-e7-1", "r1", "s-000001", 7, case.time + 100, (place(0, 1),), phase="Failed")
    failures = (
        BindFailure("u0", "train-0", "n0", "DeadlineExceeded"),
        BindFailure("u1", "train-1", "n1", "Rejected", True),
    )
    done = replace(request, outcomes=(GangOutcome(0, "Unwound", 0, failures),))
    case.performer.watch([feed.RequestSet(done)])
    await case.settle()
    (event,) = case.events
    assert (event["type"], event["regarding"]["kind"], event["regarding"]["name"]) == ("Warning", "PodGroup", "train")
    assert event["note"] == "BindFailed: 2 of 2 members could not be bound; train-1, node n1: Rejected"


async def test_a_single_pod_that_could_not_be_bound_says_why_itself(case: Case):
    single = place(0, group="pod/ns/u0", group_uid="", api_version="", kind="", minimum=1)
    case.put(pod(0, group=""))
    await case.do(single)
    request = BindRequest("s-000001-e7-1", "r1", "s-000001", 7, case.time + 100, (single,), phase="Failed")
    outcome = GangOutcome(0, "Failed", 0, (BindFailure("u0", "train-0", "n0", "NodeGone", True),))
    case.performer.watch([feed.RequestSet(replace(request, outcomes=(outcome,)))])
    await case.settle()
    (event,) = case.events
    assert (event["regarding"]["kind"], event["regarding"]["name"]) == ("Pod", "train-0")
    assert event["note"] == "BindFailed: 1 of 1 member could not be bound; train-0, node n0: NodeGone"


async def test_requests_of_others_are_not_announced_again(case: Case):
    request = BindRequest(
        "s-000001-e6-1", "r1", "s-000001", 6, case.time, (place(0),), "Bound", (GangOutcome(0, "Bound", 1),)
    )
    case.performer.watch([feed.RequestSet(request)])
    await case.settle()
    assert case.events == []
