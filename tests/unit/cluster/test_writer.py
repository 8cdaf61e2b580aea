"""The order, the repetition and the fence of writes, against a server that answers by script."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from aiohttp import web

from scheduler.cluster import bindrequests as br
from scheduler.cluster import writer as w
from scheduler.cluster.client import MERGE, ApiClient
from scheduler.model.decisions import Assignment, Place
from tests.unit.cluster.scripted import client_of, scripted, status

REQUESTS = "/apis/scheduling.muster.sh/v1alpha1/namespaces/muster/bindrequests"


class Meter:
    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def count(self, name: str, amount: float = 1.0, **labels: str) -> None:
        self.counts[":".join([name, *(labels[key] for key in sorted(labels))])] += int(amount)

    def seconds(self, name: str, value: float, **labels: str) -> None:
        self.counts[name] += 1


class Server:
    """Answers from a list of scripted answers, then 200; keeps what was sent; can hold its answers back."""

    def __init__(self) -> None:
        self.bodies: list[tuple[str, str, Any]] = []
        self.answers: list[Callable[[web.Request], web.Response]] = []
        self.objects: dict[str, Any] = {}
        self.gate = asyncio.Event()
        self.gate.set()
        self.busy = 0
        self.most = 0

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        body = json.loads(await request.read() or b"null")
        self.bodies.append((request.method, request.path, body))
        self.busy += 1
        self.most = max(self.most, self.busy)
        try:
            await self.gate.wait()
            if self.answers:
                answer = self.answers.pop(0)(request)
                if answer is not None:
                    return answer
            return self.act(request, body)
        finally:
            self.busy -= 1

    def act(self, request: web.Request, body: Any) -> web.Response:
        if request.method == "GET":
            found = self.objects.get(request.path)
            return web.json_response(found) if found else status(404, "NotFound")
        if request.method == "POST":
            path = f"{request.path}/{body['metadata']['name']}"
            if path in self.objects:
                return status(409, "AlreadyExists")
            self.objects[path] = body
        return web.json_response(body)

    @property
    def sent(self) -> list[str]:
        return [body["say"] for method, _, body in self.bodies if method == "PATCH"]


class Case:
    """A writer, its server and its fence."""

    def __init__(self, server: Server, client: ApiClient, **options: Any) -> None:
        self.server = server
        self.meter = Meter()
        self.leads = True
        self.pressed = False
        self.writer = w.Writer(
            client, lambda: self.leads, self.meter, pressed=lambda: self.pressed, seed=1, **options
        )  # fmt: skip

    def write(self, say: str, worth: w.Worth = w.Worth.STATUS, key: str = "k", **options: Any) -> w.Write:
        build = options.pop("build", lambda: w.Request(f"/objects/{key}", {"say": say}))
        return w.Write(worth, (worth, key), say, "PATCH", MERGE, build, **options)

    def offer(self, say: str, worth: w.Worth = w.Worth.STATUS, key: str = "k", **options: Any) -> None:
        self.writer.offer(self.write(say, worth, key, **options))

    async def arrived(self, count: int) -> None:
        """Wait until the server has so many requests, answered or held back."""
        async with asyncio.timeout(20):
            while len(self.server.bodies) < count:
                await asyncio.sleep(0.005)

    async def idle(self) -> None:
        await asyncio.wait_for(self.writer.idle(), 20)


@pytest.fixture
async def case(request: pytest.FixtureRequest):
    server = Server()
    async with scripted(server) as running, client_of(running) as client:
        made = Case(server, client, **getattr(request, "param", {}))
        made.running = running
        yield made
        server.gate.set()
        await made.writer.close()


ONE_BY_ONE = {
    "at_once": dict.fromkeys(w.Worth, 1),
    "when_pressed": dict.fromkeys(w.Worth, 0) | {w.Worth.STATUS: 1},
}


def cut(request: web.Request) -> web.Response:
    """Lose the connection before anything was done."""
    request.transport.abort()
    return web.Response()


async def test_a_write_is_made_with_its_method_type_and_body(case: Case):
    case.offer("hello")
    await case.idle()
    assert case.server.bodies == [("PATCH", "/objects/k", {"say": "hello"})]
    assert case.meter.counts["writes:status:done"] == 1


async def test_the_latest_of_several_waiting_writes_of_one_object_wins(case: Case):
    case.server.gate.clear()
    case.offer("first")
    await case.arrived(1)
    for say in ("second", "third", "fourth"):
        case.offer(say)
    case.server.gate.set()
    await case.idle()
    assert case.server.sent == ["first", "fourth"]
    assert case.meter.counts["writes:status:replaced"] == 2


async def test_two_writes_of_one_object_are_never_in_flight_together(case: Case):
    case.server.gate.clear()
    case.offer("first")
    await case.arrived(1)
    case.offer("second")
    await asyncio.sleep(0.05)
    assert case.server.most == 1
    case.server.gate.set()
    await case.idle()
    assert case.server.most == 1


async def test_what_was_just_written_is_not_written_again_but_something_else_is(case: Case):
    for say in ("a", "a", "b", "a"):
        case.offer(say)
        await case.idle()
    assert case.server.sent == ["a", "b", "a"]
    assert case.meter.counts["writes:status:unchanged"] == 1


async def test_going_back_to_what_is_in_flight_cancels_the_write_between(case: Case):
    case.server.gate.clear()
    case.offer("a")
    await case.arrived(1)
    case.offer("b")
    case.offer("a")
    case.server.gate.set()
    await case.idle()
    assert case.server.sent == ["a"]


async def test_nothing_is_sent_when_there_is_nothing_left_to_say(case: Case):
    case.offer("a", build=lambda: None)
    await case.idle()
    assert case.server.bodies == []
    assert case.meter.counts["writes:status:unchanged"] == 1


async def test_a_cache_that_has_not_seen_our_last_write_is_not_believed(case: Case):
    shown = {"say": "old"}
    case.offer("new")
    await case.idle()

    def build() -> w.Request | None:
        return None if shown["say"] == "old" else w.Request("/objects/k", {"say": "old"})

    case.offer("old", build=build)
    await asyncio.sleep(0.1)
    shown["say"] = "new"
    await case.idle()
    assert case.server.sent == ["new", "old"]


@pytest.mark.parametrize("case", [ONE_BY_ONE], indirect=True)
async def test_status_goes_before_conditions_and_these_before_events(case: Case):
    case.server.gate.clear()
    for worth in w.Worth:
        case.offer(f"hold {worth}", worth, f"hold-{worth}")
    await case.arrived(len(w.Worth))
    case.pressed = True
    for worth in (w.Worth.EVENT, w.Worth.CONDITION, w.Worth.STATUS):
        case.offer(f"{worth.name}", worth, f"late-{worth}")
    case.server.gate.set()
    await case.arrived(5)
    await asyncio.sleep(0.2)
    assert case.server.sent[4:] == ["STATUS"]
    case.pressed = False
    case.offer("push", w.Worth.STATUS, "push")
    await case.idle()
    assert set(case.server.sent[6:]) == {"CONDITION", "EVENT"}


async def test_the_number_in_flight_is_bounded_and_smaller_under_pressure(case: Case):
    case.server.gate.clear()
    for number in range(40):
        case.offer("x", w.Worth.CONDITION, f"p{number}")
    await case.arrived(16)
    await asyncio.sleep(0.1)
    assert case.server.most == 16
    case.server.gate.set()
    await case.idle()
    case.server.most, case.pressed = 0, True
    for number in range(10):
        case.offer("y", w.Worth.CONDITION, f"p{number}")
    await case.idle()
    assert case.server.most == 1
    assert len(case.server.sent) == 50


@pytest.mark.parametrize(
    "answer",
    [
        lambda _: status(500, "InternalError"),
        lambda _: status(503, "ServiceUnavailable"),
        lambda _: status(429, "TooManyRequests", **{"Retry-After": "0.1"}),
        cut,
    ],
    ids=["500", "503", "429", "connection lost"],
)
async def test_a_passing_failure_is_tried_again(case: Case, answer: Any):
    case.server.answers = [answer, answer]
    case.offer("a")
    await case.idle()
    assert case.server.sent == ["a", "a", "a"]
    assert case.meter.counts["writes:status:done"] == 1


async def test_a_server_that_asks_for_time_gets_it(case: Case):
    case.server.answers = [lambda _: status(429, "TooManyRequests", **{"Retry-After": "0.7"})]
    case.offer("a")
    await case.idle()
    first, second = case.running.times
    assert second - first >= 0.69


async def test_a_newer_write_takes_the_place_of_one_that_waits_to_be_tried_again(case: Case):
    case.server.answers = [lambda _: status(503, "ServiceUnavailable", **{"Retry-After": "0.3"})]
    case.offer("old")
    await case.arrived(1)
    case.offer("new")
    await case.idle()
    assert case.server.sent == ["old", "new"]


@pytest.mark.parametrize(
    ("code", "reason", "result"),
    [
        (404, "NotFound", "gone"),
        (403, "Forbidden", "refused"),
        (422, "Invalid", "refused"),
        (400, "BadRequest", "refused"),
    ],
)
async def test_a_final_answer_is_not_argued_with_and_stops_nobody_else(case: Case, code: int, reason: str, result: str):
    case.server.answers = [lambda _: status(code, reason)]
    case.offer("a")
    await case.idle()
    case.offer("b", key="other")
    await case.idle()
    assert case.server.sent == ["a", "b"]
    assert case.meter.counts[f"writes:status:{result}"] == 1


async def test_a_conflict_is_built_again_from_what_is_known_then(case: Case):
    versions = iter("12")
    case.server.answers = [lambda _: status(409, "Conflict")]
    case.offer("a", build=lambda: w.Request("/objects/k", {"say": f"a{next(versions)}"}))
    await case.idle()
    assert case.server.sent == ["a1", "a2"]


@pytest.mark.parametrize("case", [ONE_BY_ONE], indirect=True)
async def test_what_has_to_be_repeated_or_followed_goes_before_what_was_offered_later(case: Case):
    case.server.gate.clear()
    case.server.answers = [lambda _: status(409, "Conflict")]
    case.offer("old", w.Worth.CONDITION, "a0")
    await case.arrived(1)
    case.offer("a0", w.Worth.CONDITION, "a0")
    case.offer("b0", w.Worth.CONDITION, "b0")
    case.server.gate.set()
    await case.idle()
    assert case.server.sent == ["old", "a0", "b0"]

    def held() -> w.Request:
        case.server.gate.clear()
        return w.Request("/objects/d0", {"say": "d0"})

    case.server.answers = [lambda _: status(409, "Conflict")]
    case.offer("c0", w.Worth.CONDITION, "c0")
    case.offer("d0", w.Worth.CONDITION, "d0", build=held)
    case.offer("e0", w.Worth.CONDITION, "e0")
    await case.arrived(5)
    while case.writer._timers:
        await asyncio.sleep(0.005)
    case.server.gate.set()
    await case.idle()
    assert case.server.sent[3:] == ["c0", "d0", "c0", "e0"]


async def test_endless_conflicts_end(case: Case):
    case.server.answers = [lambda _: status(409, "Conflict")] * 50
    case.offer("a")
    await case.idle()
    assert 2 <= len(case.server.sent) <= 7


@pytest.mark.parametrize("case", [{"patience": dict.fromkeys(w.Worth, 0.5)}], indirect=True)
async def test_patience_ends_and_the_next_write_is_made_all_the_same(case: Case):
    case.server.answers = [lambda _: status(500, "InternalError")] * 4
    case.offer("a")
    await case.idle()
    assert case.meter.counts["writes:status:gave_up"] == 1
    case.server.answers = []
    case.offer("a")
    await case.idle()
    assert case.meter.counts["writes:status:done"] == 1


async def test_nothing_is_written_without_the_lease(case: Case):
    case.server.gate.clear()
    for number in range(20):
        case.offer("x", key=f"k{number}")
    await case.arrived(16)
    case.leads = False
    case.server.gate.set()
    await case.idle()
    assert len(case.server.sent) == 16
    assert case.meter.counts["writes:status:fenced"] == 4


async def test_the_lease_is_asked_again_before_a_repetition(case: Case):
    case.server.answers = [lambda _: status(503, "ServiceUnavailable", **{"Retry-After": "0.2"})]
    case.offer("a")
    await case.arrived(1)
    case.leads = False
    await case.idle()
    assert case.server.sent == ["a"]


async def test_a_write_that_cannot_be_built_stops_no_other(case: Case):
    def broken() -> w.Request | None:
        raise ZeroDivisionError

    case.offer("a", build=broken)
    case.offer("b", key="other")
    await case.idle()
    assert case.server.sent == ["b"]


@pytest.mark.parametrize("case", [{"event_rate": 20.0, "event_burst": 2, "event_queue": 5}], indirect=True)
async def test_events_are_limited_in_rate_and_number_and_the_dropped_ones_counted(case: Case):
    began = asyncio.get_running_loop().time()
    for number in range(10):
        if case.writer.takes_event():
            case.offer("e", w.Worth.EVENT, f"e{number}")
    await case.idle()
    sent = len(case.server.sent)
    assert 5 <= sent <= 7
    assert case.meter.counts["events_dropped:queue_full"] == 10 - sent
    assert asyncio.get_running_loop().time() - began >= (sent - 2) / 20 - 0.02


async def test_redundant_events_are_dropped_only_under_load(case: Case):
    assert case.writer.takes_event(redundant=True)
    case.pressed = True
    assert not case.writer.takes_event(redundant=True)
    assert case.writer.takes_event()
    assert case.meter.counts["events_dropped:redundant"] == 1


async def test_a_closed_writer_sends_nothing_more(case: Case):
    case.server.answers = [lambda _: status(503, "ServiceUnavailable")]
    case.offer("a")
    await case.arrived(1)
    await case.writer.close()
    case.offer("b", key="other")
    await asyncio.sleep(0.5)
    assert case.server.sent == ["a"]


# -- bind requests ----------------------------------------------------------------------------------------------------


def bundle(pods: int = 2, size: int = br.BYTES_AN_OBJECT, name: str = "s-1-e1-1") -> br.Bundle:
    assignments = tuple(Assignment(f"u{i}", "ns", f"p{i}", "n1") for i in range(pods))
    place = Place("volcano/ns/g", "ug", "ns", "g", "v", "PodGroup", pods, assignments)
    return br.bundle(name, "s-1", 1, 1000.0, "muster", (place,), size=size)


async def commit(case: Case, made: br.Bundle, seconds: float = 20.0, undoubted: float = 10.0) -> None:
    now = asyncio.get_running_loop().time()
    await case.writer.commit(made, "muster", now + seconds, now + undoubted)


async def test_a_request_is_one_post(case: Case):
    await commit(case, bundle())
    assert [(method, path) for method, path, _ in case.server.bodies] == [("POST", REQUESTS)]
    assert f"{REQUESTS}/s-1-e1-1" in case.server.objects


async def test_the_header_is_written_after_all_parts(case: Case):
    made = bundle(600, size=6000)
    await commit(case, made)
    names = [body["metadata"]["name"] for _, _, body in case.server.bodies]
    assert sorted(names[:-1]) == sorted(part.name for part in made.parts)
    assert names[-1] == "s-1-e1-1"


async def test_a_refused_part_leaves_no_header(case: Case):
    case.server.answers = [lambda _: status(403, "Forbidden", "no")]
    with pytest.raises(w.NotCommitted, match="Forbidden"):
        await commit(case, bundle(600, size=6000))
    assert f"{REQUESTS}/s-1-e1-1" not in case.server.objects


async def test_a_lost_answer_is_read_before_it_is_repeated(case: Case):
    made = bundle()

    def store_and_drop(request: web.Request) -> Any:
        case.server.objects[f"{REQUESTS}/s-1-e1-1"] = json.loads(made.header.body)
        request.transport.abort()

    case.server.answers = [store_and_drop]
    await commit(case, made)
    assert [method for method, _, _ in case.server.bodies] == ["POST", "GET"]


async def test_a_lost_request_is_read_and_then_repeated(case: Case):
    case.server.answers = [cut]
    await commit(case, bundle())
    assert [method for method, _, _ in case.server.bodies] == ["POST", "GET", "POST"]


@pytest.mark.parametrize("code", [500, 503, 504])
async def test_an_error_after_which_the_object_may_exist_is_read_too(case: Case, code: int):
    made = bundle()

    def store_and_fail(_request: web.Request) -> Any:
        case.server.objects[f"{REQUESTS}/s-1-e1-1"] = json.loads(made.header.body)
        return status(code, "InternalError")

    case.server.answers = [store_and_fail]
    await commit(case, made)
    assert [method for method, _, _ in case.server.bodies] == ["POST", "GET"]


async def test_a_busy_server_is_asked_again_without_reading(case: Case):
    case.server.answers = [lambda _: status(429, "TooManyRequests", **{"Retry-After": "0.05"})]
    await commit(case, bundle())
    assert [method for method, _, _ in case.server.bodies] == ["POST", "POST"]


async def test_another_object_of_the_name_is_told_apart(case: Case):
    case.server.objects[f"{REQUESTS}/s-1-e1-1"] = json.loads(bundle(3).header.body)
    with pytest.raises(w.NotCommitted) as raised:
        await commit(case, bundle(2))
    assert raised.value.taken


async def test_a_request_that_exists_as_meant_is_committed(case: Case):
    made = bundle()
    case.server.objects[f"{REQUESTS}/s-1-e1-1"] = json.loads(made.header.body)
    await commit(case, made)


async def test_a_request_that_was_never_sent_is_given_up_early_and_one_in_doubt_is_not(case: Case):
    case.server.answers = [lambda _: status(429, "TooManyRequests")] * 50
    began = asyncio.get_running_loop().time()
    with pytest.raises(w.NotCommitted, match="429"):
        await commit(case, bundle(), seconds=30, undoubted=0.5)
    assert asyncio.get_running_loop().time() - began < 3

    case.server.answers = [cut] * 3
    await commit(case, bundle(), seconds=30, undoubted=0.0)
    assert f"{REQUESTS}/s-1-e1-1" in case.server.objects


async def test_no_request_is_written_without_the_lease(case: Case):
    case.leads = False
    with pytest.raises(w.NotCommitted, match="lease"):
        await commit(case, bundle())
    assert case.server.bodies == []


async def test_the_lease_is_asked_before_each_object(case: Case):
    made = bundle(600, size=6000)
    case.server.answers = [lambda _: setattr(case, "leads", False)]
    with pytest.raises(w.NotCommitted, match="lease"):
        await commit(case, made)
    assert f"{REQUESTS}/s-1-e1-1" not in case.server.objects
