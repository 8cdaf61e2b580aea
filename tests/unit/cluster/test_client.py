"""The HTTP client: errors, what is repeated and what never is, streams."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys

import pytest
from aiohttp import web
from structlog.testing import capture_logs

from scheduler.cluster.client import (
    STRATEGIC,
    ApiClient,
    ApiError,
    OutcomeUnknown,
    RateLimit,
    Unreachable,
    parse_retry_after,
    path_of,
)
from tests.unit.cluster.scripted import client_of, scripted, status


async def _abort(request: web.Request) -> web.Response:
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


async def test_a_status_becomes_an_error_with_its_words() -> None:
    async def handler(_: web.Request) -> web.Response:
        return status(409, "Conflict", "pod a is bound", **{"Retry-After": "3"})

    async with scripted(handler) as server, client_of(server) as client:
        with pytest.raises(ApiError) as caught:
            await client.post_json("/api/v1/x", {"a": 1})
    error = caught.value
    assert (error.status, error.reason, error.message, error.retry_after) == (409, "Conflict", "pod a is bound", 3.0)
    assert not error.ambiguous


async def test_an_html_answer_of_a_proxy_is_an_error_with_its_text() -> None:
    async def handler(_: web.Request) -> web.Response:
        return web.Response(status=502, text="<html>Bad Gateway</html>", content_type="text/html")

    async with scripted(handler) as server, client_of(server) as client:
        with pytest.raises(ApiError, match="<html>Bad Gateway") as caught:
            await client.get_json("/api/v1/x")
    assert caught.value.status == 502
    assert caught.value.ambiguous


async def test_a_write_whose_answer_is_lost_is_unknown_and_sent_once() -> None:
    async with scripted(_abort) as server, client_of(server) as client:
        for method in ("POST", "PUT", "PATCH", "DELETE"):
            with pytest.raises(OutcomeUnknown):
                await client.request(method, "/api/v1/x", body=b"{}")
        assert [method for method, _, _ in server.seen] == ["POST", "PUT", "PATCH", "DELETE"]


async def test_a_write_on_a_connection_that_turned_out_closed_is_not_repeated() -> None:
    """A kept connection that the server closes under the request: even DELETE and PUT must not be sent again."""
    answered = 0

    async def handler(request: web.Request) -> web.Response:
        nonlocal answered
        answered += 1
        return web.json_response({}) if answered == 1 else await _abort(request)

    async with scripted(handler) as server, client_of(server) as client:
        await client.get_json("/api/v1/x")
        with pytest.raises(OutcomeUnknown):
            await client.delete("/api/v1/x", uid="u1")
        assert server.count("DELETE") == 1


async def test_a_write_that_never_reached_anybody_is_only_unreachable() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    async with client_of(f"http://127.0.0.1:{port}") as client:
        with pytest.raises(Unreachable):
            await client.post_json("/api/v1/x", {})


async def test_a_write_without_an_answer_in_time_is_unknown_and_a_read_is_unreachable() -> None:
    async def handler(_: web.Request) -> web.Response:
        await asyncio.sleep(30)
        return web.Response()

    async with scripted(handler) as server, client_of(server) as client:
        with pytest.raises(OutcomeUnknown, match=r"no answer within 0\.3 s"):
            await client.post_json("/api/v1/x", {}, timeout=0.3)
        with pytest.raises(Unreachable):
            await client.request("GET", "/api/v1/x", timeout=0.3, retries=1)
        assert server.count("GET") == 2


async def test_a_read_is_repeated_until_it_is_answered() -> None:
    tries = 0

    async def handler(request: web.Request) -> web.Response:
        nonlocal tries
        tries += 1
        return await _abort(request) if tries < 3 else web.json_response({"ok": True})

    async with scripted(handler) as server, client_of(server) as client:
        assert await client.get_json("/api/v1/x") == {"ok": True}
    assert tries == 3


async def test_401_reloads_the_credentials_and_repeats_once_even_a_write() -> None:
    async def handler(request: web.Request) -> web.Response:
        if request.headers.get("Authorization") != "Bearer new":
            return status(401, "Unauthorized")
        return web.json_response({"by": request.method})

    async with scripted(handler) as server, client_of(server) as client:
        from scheduler.cluster.auth import Identity

        client.credentials._source = lambda: Identity(server=server.url, authorization="Bearer new")
        assert await client.post_json("/api/v1/x", {}) == {"by": "POST"}
        assert server.count("POST") == 2


async def test_401_that_stays_is_raised_after_one_repeat() -> None:
    async def handler(_: web.Request) -> web.Response:
        return status(401, "Unauthorized")

    async with scripted(handler) as server, client_of(server) as client:
        with pytest.raises(ApiError, match="401"):
            await client.get_json("/api/v1/x")
        assert len(server.seen) == 2


async def test_bodies_content_types_and_preconditions_are_sent_as_asked() -> None:
    got: list[tuple[str, str, object]] = []

    async def handler(request: web.Request) -> web.Response:
        got.append((request.method, request.headers["Content-Type"], json.loads(await request.read())))
        return web.json_response({})

    async with scripted(handler) as server, client_of(server) as client:
        await client.patch("/api/v1/x", {"a": 1}, content_type=STRATEGIC)
        await client.delete("/api/v1/x", uid="u1", grace=0)
    assert got[0] == ("PATCH", STRATEGIC, {"a": 1})
    options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": "u1"}, "gracePeriodSeconds": 0}
    assert got[1] == ("DELETE", "application/json", options)


async def test_lines_are_split_wherever_the_chunks_are_cut() -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for part in (b"one\ntw", b"o\n\nthr", b"ee\n", b"cut"):
            await response.write(part)
            await asyncio.sleep(0.01)
        return response

    async with scripted(handler) as server, client_of(server) as client:
        found = [line async for lines in client.stream_batches("/w") for line in lines]
    assert found == [b"one", b"two", b"three", b"cut"]


async def test_a_silent_stream_ends_at_its_read_timeout() -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"one\n")
        await asyncio.sleep(30)
        return response

    got: list[bytes] = []
    async with scripted(handler) as server, client_of(server) as client:
        with pytest.raises(Unreachable):
            async for lines in client.stream_batches("/w", read_timeout=0.1):
                got += lines
    assert got == [b"one"]


async def test_a_refused_stream_is_an_error_before_its_first_line() -> None:
    async def handler(_: web.Request) -> web.Response:
        return status(410, "Expired", "too old")

    async with scripted(handler) as server, client_of(server) as client:
        with pytest.raises(ApiError) as caught:
            async for _ in client.stream_batches("/w"):
                pass
    assert (caught.value.status, caught.value.reason) == (410, "Expired")


async def test_each_request_is_reported_once_with_its_status() -> None:
    seen: list[tuple[str, str, int]] = []

    async def handler(_: web.Request) -> web.Response:
        return web.json_response({})

    def hook(method: str, path: str, code: int, _: float) -> None:
        seen.append((method, path, code))

    async with scripted(handler) as server, client_of(server, on_request=hook) as client:
        await client.get_json("/api/v1/pods")
    assert seen == [("GET", "/api/v1/pods", 200)]


async def test_an_urgent_request_does_not_wait_for_the_rate_limit() -> None:
    async def handler(_: web.Request) -> web.Response:
        return web.json_response({})

    async with scripted(handler) as server, client_of(server, qps=0.001, burst=1) as client:
        await client.get_json("/a")
        await client.request("GET", "/lease", urgent=True)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(client.get_json("/b"), 0.1)
        assert [path for _, path, _ in server.seen] == ["/a", "/lease"]


def test_the_bucket_allows_a_burst_and_then_the_rate() -> None:
    now = 0.0
    limit = RateLimit(10, 3, clock=lambda: now)
    assert [limit.reserve() for _ in range(5)] == pytest.approx([0, 0, 0, 0.1, 0.2])
    now = 1.0
    assert limit.reserve() == 0


def test_no_rate_means_no_limit() -> None:
    limit = RateLimit(0, 1)
    assert {limit.reserve() for _ in range(1000)} == {0.0}


def test_names_in_paths_are_escaped() -> None:
    assert path_of("", "v1", "pods", "ns", "a/b", "binding") == "/api/v1/namespaces/ns/pods/a%2Fb/binding"
    assert path_of("x.io", "v1", "things", name="system:a") == "/apis/x.io/v1/things/system:a"
    assert path_of("", "v1", "nodes") == "/api/v1/nodes"


def test_retry_after_is_seconds_or_a_date() -> None:
    assert parse_retry_after("7") == 7.0
    assert parse_retry_after("Thu, 01 Jan 1970 00:00:10 GMT", now=4.0) == 6.0
    assert parse_retry_after("soon") is None
    assert parse_retry_after(None) is None


async def test_a_client_that_is_not_open_says_so() -> None:
    from scheduler.cluster.auth import Credentials

    with pytest.raises(RuntimeError, match="not open"):
        await ApiClient(Credentials.plain("http://x")).get_json("/a")


def test_importing_the_client_does_not_import_kubernetes() -> None:
    code = "import sys, scheduler.cluster.client; print(any(m.split('.')[0] == 'kubernetes' for m in sys.modules))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "False"


async def test_a_fence_holds_back_a_write_that_waited_for_a_connection_but_no_read_and_no_urgent_request() -> None:
    async def handler(_: web.Request) -> web.Response:
        return web.json_response({})

    async with scripted(handler) as server, client_of(server) as client:
        client.fence = lambda: True
        await client.request("POST", "/api/v1/x", body=b"{}")
        client.fence = lambda: False
        for method in ("POST", "PATCH", "DELETE"):
            with pytest.raises(Unreachable, match="lease was lost"):
                await client.request(method, "/api/v1/x", body=b"{}")
        await client.request("GET", "/api/v1/x")
        await client.request("PUT", "/api/v1/lease", body=b"{}", urgent=True)
        assert [method for method, _, _ in server.seen] == ["POST", "GET", "PUT"]


async def test_a_right_that_is_missing_is_named_once_whoever_asked() -> None:
    words = (
        'pods "{}" is forbidden: User "u" cannot create resource "pods/binding" in API group "" in the namespace "a"'
    )

    async def refuse(request: web.Request) -> web.Response:
        return status(403, "Forbidden", words.format(request.path.split("/")[-2]))

    async with scripted(refuse) as server, client_of(server) as client:
        with capture_logs() as said:
            for name in ("p", "q"):
                with pytest.raises(ApiError):
                    await client.post_json(f"/api/v1/namespaces/a/pods/{name}/binding", {})
        client._missing.clear()
        client.log_refusals = False  # a command says it itself, and what it prints is read by programs
        with capture_logs() as kept, pytest.raises(ApiError):
            await client.post_json("/api/v1/namespaces/b/pods/p/eviction", {})
        assert kept == []
    (entry,) = [one for one in said if one["event"] == "right_missing"]
    assert (entry["verb"], entry["resource"], entry["group"]) == ("create", "pods/binding", "")
    assert '"p" is forbidden' in entry["problem"]
