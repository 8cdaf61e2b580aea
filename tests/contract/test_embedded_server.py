"""What only the embedded server offers: faults on purpose, forgotten history, dropped watchers, ways to start it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from scheduler.playground import PlaygroundServer, start_in_thread
from scheduler.playground.client import Client, HttpError
from tests.contract.conftest import pod
from tests.controlplane.rest import ApiError, Rest

PODS = "/api/v1/namespaces/default/pods"


@pytest.fixture
async def server() -> AsyncIterator[PlaygroundServer]:
    async with PlaygroundServer(bookmark_interval=0.1) as made:
        yield made


@pytest.fixture
async def client(server: PlaygroundServer) -> AsyncIterator[Client]:
    made = Client(server.url)
    yield made
    await made.close()


async def _events(server: PlaygroundServer, count: int, **query: str) -> list[dict[str, Any]]:
    """Return the first events of a watch; fewer when the stream ends."""
    events: list[dict[str, Any]] = []
    async with (
        asyncio.timeout(60),
        aiohttp.ClientSession() as session,
        session.get(server.url + PODS, params={"watch": "1", **query}) as response,
    ):
        async for line in response.content:
            events.append(json.loads(line))
            if len(events) == count:
                break
    return events


async def test_a_request_fails_as_often_as_it_was_told_to(server: PlaygroundServer, client: Client) -> None:
    rule = server.faults.fail("/pods$", 429, method="POST", count=2, retry_after=3)
    for _ in range(2):
        with pytest.raises(HttpError) as caught:
            await client.request("POST", PODS, pod("p"))
        body = json.loads(caught.value.body)
        assert (caught.value.status, body["reason"]) == (429, "TooManyRequests")
        assert body["details"]["retryAfterSeconds"] == 3
    assert (await client.request("POST", PODS, pod("p")))["metadata"]["name"] == "p"
    assert rule.hits == [f"POST {PODS}"] * 2


async def test_retry_after_is_a_header_too(server: PlaygroundServer) -> None:
    server.faults.fail(".*", 503, retry_after=7)
    async with aiohttp.ClientSession() as session, session.get(server.url + PODS) as response:
        assert (response.status, response.headers["Retry-After"]) == (503, "7")


async def test_a_connection_dropped_before_leaves_nothing_and_after_leaves_the_write(
    server: PlaygroundServer, client: Client
) -> None:
    server.faults.drop("/pods$", "before", method="POST")
    with pytest.raises(ConnectionError):
        await client.request("POST", PODS, pod("lost"))
    server.faults.drop("/pods$", "after", method="POST")
    with pytest.raises(ConnectionError):
        await client.request("POST", PODS, pod("kept"))
    listed = await client.request("GET", PODS)
    assert [one["metadata"]["name"] for one in listed["items"]] == ["kept"]


async def test_the_third_matching_request_can_be_the_one_that_fails(server: PlaygroundServer, client: Client) -> None:
    server.faults.fail("/pods$", 500, method="POST", skip=2)
    for name in ("a", "b"):
        await client.request("POST", PODS, pod(name))
    with pytest.raises(HttpError, match="HTTP 500"):
        await client.request("POST", PODS, pod("c"))
    await client.request("POST", PODS, pod("d"))


async def test_latency_delays_only_what_matches(server: PlaygroundServer, client: Client) -> None:
    rule = server.faults.latency("/pods", 0.2)
    loop = asyncio.get_running_loop()
    start = loop.time()
    await client.request("GET", PODS)
    assert loop.time() - start >= 0.2
    await client.request("GET", "/api/v1/nodes")
    assert rule.hits == [f"GET {PODS}"]
    server.faults.remove(rule)
    await client.request("GET", PODS)
    assert len(rule.hits) == 1


async def test_a_cut_watch_ends_cleanly_or_with_a_reset(server: PlaygroundServer) -> None:
    for abort in (False, True):
        task = asyncio.create_task(_events(server, 99))
        while not server.handlers.watchers:
            await asyncio.sleep(0.01)
        assert server.cut_watches("/pods", abort=abort) == 1
        if abort:
            with pytest.raises(aiohttp.ClientError):
                await task
        else:
            assert await task == []
        while server.handlers.watchers:
            await asyncio.sleep(0.01)


async def test_after_compaction_old_versions_and_tokens_are_gone(server: PlaygroundServer, client: Client) -> None:
    for index in range(4):
        await client.request("POST", PODS, pod(f"p{index}"))
    first = await client.request("GET", PODS, limit=2)
    version = first["metadata"]["resourceVersion"]
    await client.request("POST", PODS, pod("later"))
    server.compact("pods")
    (event,) = await _events(server, 1, resourceVersion=version)
    assert (event["type"], event["object"]["code"], event["object"]["reason"]) == ("ERROR", 410, "Expired")
    with pytest.raises(HttpError) as caught:
        await client.request("GET", PODS, limit=2, **{"continue": first["metadata"]["continue"]})
    assert caught.value.status == 410
    fresh = await client.request("GET", PODS)
    assert len(fresh["items"]) == 5


async def test_history_is_bounded() -> None:
    from scheduler.playground import ApiOptions

    async with PlaygroundServer(options=ApiOptions(history=5)) as server:
        client = Client(server.url)
        version = (await client.request("GET", PODS))["metadata"]["resourceVersion"]
        for index in range(6):
            await client.request("POST", PODS, pod(f"p{index}"))
        (event,) = await _events(server, 1, resourceVersion=version)
        assert event["object"]["code"] == 410
        await client.close()


async def test_bookmarks_move_an_idle_watch_forward(server: PlaygroundServer, client: Client) -> None:
    version = (await client.request("GET", PODS))["metadata"]["resourceVersion"]
    await client.request("POST", "/api/v1/namespaces/default/configmaps", {"metadata": {"name": "other"}})
    (event,) = await _events(server, 1, resourceVersion=version, allowWatchBookmarks="true")
    assert event["type"] == "BOOKMARK"
    assert int(event["object"]["metadata"]["resourceVersion"]) > int(version)


async def test_a_watcher_that_does_not_read_is_dropped_and_the_others_are_not() -> None:
    async with PlaygroundServer(max_watch_buffer=3_000_000) as server:
        client = Client(server.url)
        _, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=1024)
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        writer.write(f"GET {PODS}?watch=1 HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        await writer.drain()
        task = asyncio.create_task(_events(server, 60))
        while len(server.handlers.watchers) < 2:
            await asyncio.sleep(0.01)
        for index in range(60):
            await client.request("POST", PODS, pod(f"p{index}", annotations={"fill": "x" * 200_000}))
        assert len(await task) == 60
        async with asyncio.timeout(60):
            while server.handlers.watchers:
                await asyncio.sleep(0.01)
        writer.close()
        await client.close()


async def test_one_bad_request_does_not_end_the_server(server: PlaygroundServer, client: Client) -> None:
    for body in (b"\xff\xfe", b"[]", b'"x"', b"null", b'{"metadata": 5}', b'{"metadata": {"name": 7}}'):
        async with (
            aiohttp.ClientSession() as session,
            session.post(server.url + PODS, data=body, headers={"Content-Type": "application/json"}) as response,
        ):
            assert 400 <= response.status < 500, (body, await response.text())
            assert (await response.json())["kind"] == "Status"
    assert (await client.request("GET", PODS))["items"] == []


async def test_ten_thousand_pods_list_in_pages_and_watch_without_a_gap(server: PlaygroundServer) -> None:
    resource = server.api.resource("", "pods")
    from scheduler.playground.api import WriteOptions

    for index in range(10_000):
        server.api.create(resource, "v1", "default", pod(f"p{index:05d}"), WriteOptions())
    client = Client(server.url)
    names: list[str] = []
    query: dict[str, Any] = {"limit": 500}
    while True:
        listed = await client.request("GET", PODS, **query)
        names += [one["metadata"]["name"] for one in listed["items"]]
        if not listed["metadata"].get("continue"):
            break
        query["continue"] = listed["metadata"]["continue"]
        server.api.create(resource, "v1", "default", pod(f"new{len(names)}"), WriteOptions())
    assert names == [f"p{index:05d}" for index in range(10_000)]
    task = asyncio.create_task(_events(server, 300, resourceVersion=listed["metadata"]["resourceVersion"]))
    for index in range(300):
        body = {"metadata": {"name": f"p{index:05d}"}, "target": {"kind": "Node", "name": "n"}}
        server.api.bind_pod("default", f"p{index:05d}", body, WriteOptions())
    events = [event for event in await task if not event["object"]["metadata"]["name"].startswith("new")]
    assert len({event["object"]["metadata"]["name"] for event in events}) == len(events) >= 280
    await client.close()


def test_a_server_in_a_thread_serves_synchronous_users(tmp_path: Path) -> None:
    with start_in_thread() as threaded:
        rest = Rest(threaded.url, "anyone")
        rest.create(PODS, pod("p"))
        threaded.call(lambda: threaded.server.faults.fail("/pods/p", 500))
        with pytest.raises(ApiError):
            rest.get(f"{PODS}/p")
        assert rest.get(f"{PODS}/p")["metadata"]["name"] == "p"
        path = threaded.write_kubeconfig(tmp_path / "kubeconfig")
        assert path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(OSError):
        rest.get(f"{PODS}/p")


def test_the_command_starts_says_how_to_use_it_and_stops(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    command = [sys.executable, "-m", "scheduler.playground", "--kubeconfig", str(kubeconfig), "--nodes", "3"]
    command += ["--gpus-per-node", "4", "--resource", "example.com/nic=2"]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    try:
        assert process.stdout is not None
        first = process.stdout.readline()
        assert "Playground API server: http://127.0.0.1:" in first
        assert "export KUBECONFIG" in "".join(process.stdout.readline() for _ in range(3))
        url = first.split()[3]
        nodes = Rest(url, "anyone").list("/api/v1/nodes")
        assert [node["metadata"]["name"] for node in nodes] == ["worker-1", "worker-2", "worker-3"]
        allocatable = nodes[0]["status"]["allocatable"]
        assert (allocatable["example.com/gpu"], allocatable["example.com/nic"]) == ("4", "2")
        assert url in kubeconfig.read_text()
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(15) == 0


def test_the_command_refuses_a_resource_without_an_amount() -> None:
    command = [sys.executable, "-m", "scheduler.playground", "--resource", "gpu"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 2
    assert "--resource 'gpu' is not NAME=AMOUNT" in done.stderr
