"""The reflector against a server that does everything that servers do wrong."""

from __future__ import annotations

import asyncio
import gc
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest
from aiohttp import web

from scheduler.cluster.discovery import Resource
from scheduler.cluster.reflector import Backoff, Reflector, gc_paused
from tests.unit.cluster.scripted import Scripted, client_of, line, scripted, status

THINGS = Resource("t.io", "v1", "things", "Thing")


class _Meta(msgspec.Struct, rename="camel"):
    uid: str = ""
    name: str = ""
    resource_version: str = ""


class Thing(msgspec.Struct):
    metadata: _Meta
    size: int = 0


_decode = msgspec.json.Decoder(Thing).decode


def thing(uid: str, rv: int, size: Any = 1) -> dict[str, Any]:
    return {
        "metadata": {"uid": uid, "name": f"n-{uid}", "namespace": "ns", "resourceVersion": str(rv)},
        "size": size,
    }


def page(*items: dict[str, Any], rv: int, more: str = "") -> web.Response:
    meta = {"resourceVersion": str(rv)} | ({"continue": more} if more else {})
    return web.json_response({"kind": "ThingList", "metadata": meta, "items": list(items)})


def bookmark(rv: int, **annotations: str) -> bytes:
    notes = {key.replace("_", "-"): value for key, value in annotations.items()}
    return line("BOOKMARK", {"metadata": {"resourceVersion": str(rv), "annotations": notes}})


@dataclass
class Recorder:
    """A sink that remembers, and lets a test wait for a state."""

    things: dict[str, int] = field(default_factory=dict)
    log: list[str] = field(default_factory=list)
    moved: asyncio.Event = field(default_factory=asyncio.Event)

    def put(self, value: Thing) -> None:
        self.things[value.metadata.uid] = value.size
        self.log.append(f"+{value.metadata.uid}={value.size}")
        self.moved.set()

    def drop(self, uid: str) -> None:
        self.things.pop(uid, None)
        self.log.append(f"-{uid}")
        self.moved.set()


async def until(condition: Callable[[], object], seconds: float = 10.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.005)


async def stream(request: web.Request, *lines: bytes, hold: bool = True) -> web.StreamResponse:
    """Send lines, then stay open until the client goes (or end at once)."""
    response = web.StreamResponse()
    await response.prepare(request)
    for text in lines:
        await response.write(text)
    if hold:
        await asyncio.sleep(60)
    return response


Script = Callable[[web.Request, int], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def following(
    on_list: Script, on_watch: Script, **options: Any
) -> AsyncIterator[tuple[Reflector[Thing], Recorder, Scripted]]:
    """Run a reflector against two scripts, each of which gets the number of the call, from 1."""
    calls = {"list": 0, "watch": 0}

    async def handler(request: web.Request) -> web.StreamResponse:
        kind = "watch" if "watch" in request.query else "list"
        calls[kind] += 1
        return await (on_watch if kind == "watch" else on_list)(request, calls[kind])

    sink = Recorder()
    defaults: dict[str, Any] = {"first_delay": 0.01, "last_delay": 0.05, "seed": 1}
    async with scripted(handler) as server, client_of(server) as client:
        identify = options.pop("identify", lambda value: (value.metadata.uid, value.metadata.resource_version))
        reflector = Reflector(client, THINGS, _decode, sink, identify=identify, **defaults | options)
        task = asyncio.create_task(reflector.run())
        try:
            yield reflector, sink, server
        finally:
            assert not task.done(), "a reflector must never end by itself"
            task.cancel()
            await asyncio.wait([task])


async def quiet(request: web.Request, _: int) -> web.StreamResponse:
    return await stream(request)


def listing(*items: dict[str, Any], rv: int = 10) -> Script:
    async def answer(_: web.Request, __: int) -> web.StreamResponse:
        return page(*items, rv=rv)

    return answer


async def test_pages_are_read_to_the_end_and_the_watch_starts_at_the_lists_version() -> None:
    async def on_list(request: web.Request, _: int) -> web.StreamResponse:
        if request.query.get("continue") == "next":
            return page(thing("c", 3), rv=10)
        return page(thing("a", 1), thing("b", 2), rv=10, more="next")

    async with following(on_list, quiet, page=2) as (reflector, sink, server):
        await asyncio.wait_for(reflector.synced.wait(), 10)
        await until(lambda: server.count("GET", watch="true"))
    assert sink.things == {"a": 1, "b": 1, "c": 1}
    assert [query for _, _, query in server.seen[:2]] == [{"limit": "2"}, {"limit": "2", "continue": "next"}]
    watch = server.seen[2][2]
    assert (watch["resourceVersion"], watch["allowWatchBookmarks"]) == ("10", "true")
    assert 300 <= int(watch["timeoutSeconds"]) <= 600


async def test_events_and_bookmarks_move_the_version_at_which_a_cut_watch_resumes() -> None:
    async def on_watch(request: web.Request, number: int) -> web.StreamResponse:
        if number == 1:
            return await stream(request, line("MODIFIED", thing("a", 11, 2)), line("ADDED", thing("b", 12)), hold=False)
        if number == 2:
            return await stream(request, line("DELETED", thing("a", 13)), bookmark(20), hold=False)
        return await stream(request)

    async with following(listing(thing("a", 1)), on_watch) as (reflector, sink, server):
        await until(lambda: server.count("GET", watch="true") == 3)
        assert reflector.counters.lists == 1
    assert [query["resourceVersion"] for _, _, query in server.seen if "watch" in query] == ["10", "12", "20"]
    assert sink.log == ["+a=1", "+a=2", "+b=1", "-a"]


@pytest.mark.parametrize("form", ["status", "event", "event without code"])
async def test_410_in_every_form_lists_again_and_delivers_what_changed_meanwhile(form: str) -> None:
    async def on_list(_: web.Request, number: int) -> web.StreamResponse:
        if number == 1:
            return page(thing("a", 1), thing("b", 2), thing("c", 3), rv=10)
        return page(thing("b", 2), thing("c", 30, 5), thing("d", 31), rv=40)

    async def on_watch(request: web.Request, number: int) -> web.StreamResponse:
        if number > 1:
            return await stream(request)
        if form == "status":
            return status(410, "Expired", "too old resource version")
        gone = {"kind": "Status", "reason": "Expired", "message": "too old"}
        return await stream(request, line("ERROR", gone | ({"code": 410} if form == "event" else {})))

    async with following(on_list, on_watch) as (reflector, sink, server):
        await until(lambda: server.count("GET", watch="true") == 2)
        assert reflector.problem == ""
    assert sink.things == {"b": 1, "c": 5, "d": 1}
    # b was there in the same version: it is not decoded or delivered again.
    assert sink.log == ["+a=1", "+b=1", "+c=1", "+c=5", "+d=1", "-a"]
    assert server.seen[-1][2]["resourceVersion"] == "40"


async def test_410_in_the_middle_of_the_pages_lists_everything_at_once() -> None:
    async def on_list(request: web.Request, number: int) -> web.StreamResponse:
        if number == 1:
            return page(thing("a", 1), rv=10, more="next")
        if number == 2:
            return status(410, "Expired", "continue token")
        assert "limit" not in request.query
        return page(thing("a", 1), thing("b", 2), rv=20)

    async with following(on_list, quiet, page=1) as (reflector, sink, _):
        await asyncio.wait_for(reflector.synced.wait(), 10)
    assert sink.things == {"a": 1, "b": 1}


@pytest.mark.parametrize("code", [403, 429, 500, 502])
async def test_refused_lists_are_tried_again_with_growing_delays(code: int) -> None:
    async def on_list(_: web.Request, number: int) -> web.StreamResponse:
        if code == 502:
            return web.Response(status=502, text="<html>bad gateway</html>", content_type="text/html")
        return status(code, "Whatever", "not now")

    async with following(on_list, quiet, first_delay=0.02, last_delay=0.2) as (reflector, _, server):
        await until(lambda: len(server.seen) >= 5)
        assert str(code) in reflector.problem
        assert not reflector.synced.is_set()
        assert reflector.settled.is_set() == (code == 403)
        gaps = [after - before for before, after in zip(server.times, server.times[1:], strict=False)]
    assert all(gap >= 0.02 * 2**number / 2 for number, gap in enumerate(gaps[:4]))


async def test_retry_after_is_honoured() -> None:
    async def on_list(_: web.Request, number: int) -> web.StreamResponse:
        if number == 1:
            return status(429, "TooManyRequests", "slow down", **{"Retry-After": "0.3"})
        return page(rv=1)

    async with following(on_list, quiet) as (reflector, _, server):
        await asyncio.wait_for(reflector.synced.wait(), 10)
    assert server.times[1] - server.times[0] >= 0.3


async def test_a_server_that_ends_every_watch_at_once_is_not_asked_in_a_loop() -> None:
    async def on_watch(request: web.Request, number: int) -> web.StreamResponse:
        return await stream(request, line("MODIFIED", thing("a", 10 + number)), hold=False)

    async with following(listing(thing("a", 1)), on_watch, first_delay=0.05, last_delay=1.0) as (_, _, server):
        await asyncio.sleep(0.6)
        watches = server.count("GET", watch="true")
    # 0.05, 0.1, 0.2, 0.4 halved by jitter at most: five or six, where a hot loop makes hundreds.
    assert 2 <= watches <= 7


async def test_a_persistent_410_does_not_list_in_a_loop() -> None:
    async def on_watch(_: web.Request, __: int) -> web.StreamResponse:
        return status(410, "Expired")

    async with following(listing(thing("a", 1)), on_watch, first_delay=0.05, last_delay=1.0) as (_, _, server):
        await asyncio.sleep(0.6)
    assert 2 <= server.count("GET", watch="true") <= 7


async def test_what_a_server_that_was_away_says_is_not_paid_for_with_its_absence() -> None:
    async def on_watch(request: web.Request, number: int) -> web.StreamResponse:
        if number <= 6:
            assert request.transport is not None
            request.transport.abort()
        return status(503, "ServiceUnavailable", "starting") if number == 7 else await stream(request)

    async with following(listing(thing("a", 1)), on_watch) as (reflector, _, server):
        await until(lambda: reflector.watching)
        assert server.count("GET", watch="true") == 8
        assert reflector._backoff.failures == 3  # seven, had the silence counted


async def test_a_watch_that_is_refused_again_and_again_leads_to_a_list() -> None:
    async def on_list(_: web.Request, number: int) -> web.StreamResponse:
        return page(thing("a", number), rv=number)

    async def on_watch(_: web.Request, __: int) -> web.StreamResponse:
        return status(403, "Forbidden", "no watch")

    async with following(on_list, on_watch) as (reflector, _, server):
        await until(lambda: reflector.counters.lists >= 2)
    assert [("watch" in query) for _, _, query in server.seen[:5]] == [False, True, True, True, False]


async def test_a_watch_that_lived_long_without_a_word_is_followed_by_a_list() -> None:
    """A server that was restored to an earlier version has nothing to say to us, and never will."""

    async def on_list(_: web.Request, number: int) -> web.StreamResponse:
        return page(thing("a", 9), rv=10) if number == 1 else page(thing("b", 5), rv=6)

    async def on_watch(request: web.Request, number: int) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await asyncio.sleep(0.2 if number == 1 else 60)
        return response

    async with following(on_list, on_watch, healthy=0.05, silence=0.1) as (_, sink, server):
        await until(lambda: server.count("GET", watch="true") == 2)
    assert sink.things == {"b": 1}
    assert server.seen[-1][2]["resourceVersion"] == "6"


async def test_a_bookmark_that_goes_back_is_followed_by_a_list() -> None:
    async def on_list(_: web.Request, number: int) -> web.StreamResponse:
        return page(thing("a", 9), rv=10) if number == 1 else page(thing("b", 5), rv=6)

    async def on_watch(request: web.Request, number: int) -> web.StreamResponse:
        return await stream(request, bookmark(4 if number == 1 else 7))

    async with following(on_list, on_watch) as (_, sink, server):
        await until(lambda: server.count("GET", watch="true") == 2)
    assert sink.things == {"b": 1}


async def test_a_short_or_a_talking_watch_is_resumed_without_a_list() -> None:
    async def on_watch(request: web.Request, number: int) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        if number == 1:
            await response.write(bookmark(20))
        await asyncio.sleep({1: 0.7, 2: 0.01}.get(number, 60))
        return response

    async with following(listing(thing("a", 1)), on_watch, healthy=0.05, silence=0.5) as (reflector, _, server):
        await until(lambda: server.count("GET", watch="true") == 3)
        assert reflector.counters.lists == 1


async def test_overload_of_the_watch_does_not_lead_to_a_list() -> None:
    async def on_watch(_: web.Request, __: int) -> web.StreamResponse:
        return status(429, "TooManyRequests")

    async with following(listing(thing("a", 1)), on_watch) as (reflector, _, server):
        await until(lambda: server.count("GET", watch="true") >= 6)
        assert reflector.counters.lists == 1


async def test_a_line_that_is_cut_is_read_again_from_the_version_before_it() -> None:
    async def on_watch(request: web.Request, number: int) -> web.StreamResponse:
        whole, cut = line("ADDED", thing("b", 11)), line("ADDED", thing("c", 12))
        if number == 1:
            return await stream(request, whole, cut[:25], hold=False)
        return await stream(request, cut)

    async with following(listing(thing("a", 1)), on_watch) as (_, sink, server):
        await until(lambda: "c" in sink.things)
    assert [query["resourceVersion"] for _, _, query in server.seen if "watch" in query] == ["10", "11"]


async def test_html_in_a_stream_is_not_fatal() -> None:
    async def on_watch(request: web.Request, number: int) -> web.StreamResponse:
        if number < 3:
            return await stream(request, b"<html>\n", b"<body>\n")
        return await stream(request, line("ADDED", thing("b", 11)))

    async with following(listing(thing("a", 1)), on_watch) as (_, sink, _):
        await until(lambda: "b" in sink.things)


async def test_a_poison_object_in_a_list_is_named_and_the_others_are_read() -> None:
    items = (thing("a", 1), thing("bad", 2, "many"), thing("c", 3))
    async with following(listing(*items), quiet) as (reflector, sink, _):
        await asyncio.wait_for(reflector.synced.wait(), 10)
        assert sink.things == {"a": 1, "c": 1}
        assert list(reflector.bad_objects) == [("Thing", "ns/n-bad")]
        assert "size" in reflector.bad_objects[("Thing", "ns/n-bad")]
        assert reflector.counters.bad == 1


async def test_a_poison_event_keeps_the_previous_version_and_its_deletion_is_delivered() -> None:
    turn = asyncio.Event()

    async def on_watch(request: web.Request, number: int) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(line("MODIFIED", thing("a", 11, "many")) + line("ADDED", thing("b", 12)))
        await turn.wait()
        await response.write(line("DELETED", thing("a", 13, "many")))
        await asyncio.sleep(60)
        return response

    async with following(listing(thing("a", 1, 7)), on_watch) as (reflector, sink, _):
        await until(lambda: "b" in sink.things)
        assert sink.things["a"] == 7
        assert ("Thing", "ns/n-a") in reflector.bad_objects
        turn.set()
        await until(lambda: "a" not in sink.things)
        assert reflector.bad_objects == {}


async def test_a_poison_object_is_counted_once_a_version_and_healed_by_a_good_one() -> None:
    async def on_list(_: web.Request, number: int) -> web.StreamResponse:
        return page(thing("a", 1, "many"), rv=number)

    async def on_watch(request: web.Request, number: int) -> web.StreamResponse:
        if number < 3:
            return status(410, "Expired")
        return await stream(request, line("MODIFIED", thing("a", 9, 4)))

    async with following(on_list, on_watch) as (reflector, sink, _):
        await until(lambda: sink.things == {"a": 4})
        assert reflector.counters.lists == 3
        assert reflector.counters.bad == 1
        assert reflector.bad_objects == {}


async def test_a_poison_event_still_moves_the_version() -> None:
    async def on_watch(request: web.Request, number: int) -> web.StreamResponse:
        return await stream(request, line("MODIFIED", thing("a", 11, "many")), hold=number > 1)

    async with following(listing(thing("a", 1)), on_watch) as (_, _, server):
        await until(lambda: server.count("GET", watch="true") == 2)
    assert server.seen[-1][2]["resourceVersion"] == "11"


async def test_an_object_without_readable_metadata_is_shown_until_a_list_is_without_it() -> None:
    async def on_list(_: web.Request, number: int) -> web.StreamResponse:
        strange: list[Any] = [{"metadata": 7}] if number == 1 else []
        return page(thing("a", 1), *strange, rv=number)

    released = asyncio.Event()

    async def on_watch(request: web.Request, number: int) -> web.StreamResponse:
        if number == 1:
            await released.wait()
            return status(410, "Expired")
        return await stream(request)

    async with following(on_list, on_watch) as (reflector, sink, _):
        await asyncio.wait_for(reflector.synced.wait(), 10)
        assert list(reflector.bad_objects) == [("Thing", "(unreadable metadata)")]
        released.set()
        await until(lambda: reflector.bad_objects == {})
        assert sink.things == {"a": 1}


async def test_the_streaming_list_syncs_at_its_bookmark_and_drops_what_it_did_not_show() -> None:
    async def on_list(_: web.Request, __: int) -> web.StreamResponse:
        raise AssertionError("no list is needed")

    async def on_watch(request: web.Request, number: int) -> web.StreamResponse:
        end = {"k8s.io/initial-events-end": "true"}
        if number == 1:
            first = line("ADDED", thing("a", 1)), line("ADDED", thing("b", 2)), bookmark(10, **end)
            return await stream(request, *first, line("ERROR", {"code": 410, "reason": "Expired"}))
        return await stream(request, line("ADDED", thing("b", 2)), bookmark(20, **end), line("ADDED", thing("c", 21)))

    async with following(on_list, on_watch, streaming=True) as (reflector, sink, server):
        await until(lambda: "c" in sink.things)
        assert reflector.watching
    assert sink.log == ["+a=1", "+b=1", "-a", "+c=1"]
    first = server.seen[0][2]
    assert (first["sendInitialEvents"], first["resourceVersionMatch"]) == ("true", "NotOlderThan")
    assert "resourceVersion" not in first


@pytest.mark.parametrize("code", [400, 422])
async def test_a_server_without_the_streaming_list_is_read_in_pages(code: int) -> None:
    async def on_watch(request: web.Request, _: int) -> web.StreamResponse:
        if "sendInitialEvents" in request.query:
            return status(code, "Invalid", "sendInitialEvents is forbidden")
        return await stream(request)

    async with following(listing(thing("a", 1)), on_watch, streaming=True) as (reflector, sink, _):
        await asyncio.wait_for(reflector.synced.wait(), 10)
    assert sink.things == {"a": 1}


async def test_a_streaming_list_that_is_cut_does_not_count_as_one() -> None:
    async def on_watch(request: web.Request, number: int) -> web.StreamResponse:
        if number == 1:
            return await stream(request, line("ADDED", thing("a", 1)), hold=False)
        return await stream(request, line("ADDED", thing("b", 2)), bookmark(9, **{"k8s.io/initial-events-end": "true"}))

    async with following(listing(), on_watch, streaming=True) as (reflector, sink, server):
        await asyncio.wait_for(reflector.synced.wait(), 10)
        assert sink.things == {"b": 1}
    assert all("sendInitialEvents" in query for _, _, query in server.seen)


async def test_a_decoder_that_says_of_no_interest_means_not_there() -> None:
    def odd_ones(raw: msgspec.Raw) -> Thing | None:
        value = _decode(raw)
        return value if value.size % 2 else None

    async def on_watch(request: web.Request, _: int) -> web.StreamResponse:
        return await stream(request, line("MODIFIED", thing("a", 11, 2)), line("MODIFIED", thing("b", 12, 3)))

    sink = Recorder()
    calls = 0

    async def handler(request: web.Request) -> web.StreamResponse:
        nonlocal calls
        calls += 1
        if "watch" in request.query:
            return await on_watch(request, calls)
        return page(thing("a", 1, 1), thing("b", 2, 2), rv=10)

    async with scripted(handler) as server, client_of(server) as client:
        task = asyncio.create_task(Reflector(client, THINGS, odd_ones, sink).run())
        await until(lambda: sink.things == {"b": 3})
        task.cancel()


async def test_staleness_is_zero_while_a_watch_is_open() -> None:
    cut = asyncio.Event()

    async def on_watch(request: web.Request, number: int) -> web.StreamResponse:
        if number > 1:
            return status(500, "InternalError")
        response = web.StreamResponse()
        await response.prepare(request)
        await cut.wait()
        return response

    async with following(listing(thing("a", 1)), on_watch) as (reflector, _, _):
        await until(lambda: reflector.watching)
        assert reflector.stale_for() == 0
        cut.set()
        await until(lambda: reflector.problem)
        assert reflector.stale_for() > 0
        assert reflector.counters.failures >= 1


async def test_clear_drops_everything_that_was_shown() -> None:
    async with following(listing(thing("a", 1), thing("b", 2, "many")), quiet) as (reflector, sink, _):
        await until(lambda: reflector.watching)
        reflector.clear()
        assert sink.things == {}
        assert (len(reflector), reflector.bad_objects) == (0, {})


def test_the_back_off_grows_to_its_limit_with_jitter_and_starts_again() -> None:
    backoff = Backoff(1.0, 8.0, random.Random(3))
    delays = [backoff.next() for _ in range(6)]
    for delay, top in zip(delays, (1, 2, 4, 8, 8, 8), strict=True):
        assert top / 2 <= delay <= top
    assert len(set(delays)) == 6
    assert backoff.next(retry_after=30) >= 30
    assert backoff.next(retry_after=1e9) < 150
    assert backoff.next(at_most=1.0) <= 1.0
    backoff.ease()
    assert 2 <= backoff.next() <= 4
    backoff.succeeded()
    assert backoff.next() <= 1.0
    backoff.ease()
    assert backoff.next() <= 2.0


def test_the_collector_is_paused_until_the_last_list_ends() -> None:
    assert gc.isenabled()
    with gc_paused():
        with gc_paused():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()
