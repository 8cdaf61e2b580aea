"""The ports, asked over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
import uvloop

from scheduler.observe import health
from scheduler.observe.health import CannotListen, Health, Reply


class World:
    def __init__(self) -> None:
        self.ready: tuple[bool, str] = (False, "waiting for pods")
        self.alive: tuple[bool, str] = (True, "ok")
        self.running = 0
        self.most = 0
        self.hang = False
        self.ended = False
        self.asked: list[tuple[str, str]] = []

    async def access(self, token: str, path: str) -> int:
        self.asked.append((token, path))
        return {"": 401, "reader": 200}.get(token, 403)

    async def snapshot(self) -> bytes:
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            if self.hang:
                await asyncio.wait_for(asyncio.Event().wait(), 0.05)
            await asyncio.sleep(0.02)
            return b"\x80pickle"
        finally:
            self.running -= 1

    def state(self) -> dict[str, Any]:
        return {"synced": True, "epoch": 7}

    async def page(self, path: str, query: str) -> Reply:
        async def pieces() -> AsyncGenerator[bytes]:
            try:
                yield b"one "
                yield b"two"
                if query == "forever":
                    while True:
                        yield b"."
                        await asyncio.sleep(0)
                if query == "silent":
                    await asyncio.Event().wait()
            finally:
                self.ended = True

        if path == "/page/events":
            return Reply(200, b"", "text/event-stream", stream=pieces())
        return Reply(200, f"{path} {query}".encode(), "text/html", "X-More: yes\r\n")

    def metrics(self) -> bytes:
        return b"muster_leader 1.0\n"


@asynccontextmanager
async def serving(world: World) -> AsyncIterator[str]:
    ports = Health(
        "127.0.0.1",
        0,
        ready=lambda: world.ready,
        alive=lambda: world.alive,
        metrics=lambda: world.metrics(),
        snapshot=world.snapshot,
        state=lambda: world.state(),
        access=world.access,
        page=world.page,
    )
    await ports.start()
    try:
        yield f"http://{ports.address}"
    finally:
        await ports.stop()


async def get(url: str) -> tuple[int, bytes, str]:
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        return response.status, await response.read(), response.headers.get("Content-Type", "")


async def test_health_and_readiness_say_why_not():
    world = World()
    async with serving(world) as url:
        assert (await get(f"{url}/healthz"))[:2] == (200, b"ok\n")
        assert (await get(f"{url}/readyz"))[:2] == (503, b"waiting for pods\n")
        world.ready = (True, "ok")
        assert (await get(f"{url}/readyz"))[0] == 200
        world.alive = (False, "no session for 60 s")
        assert (await get(f"{url}/healthz"))[:2] == (503, b"no session for 60 s\n")


async def test_metrics_are_served_in_the_text_format():
    async with serving(World()) as url:
        code, body, kind = await get(f"{url}/metrics")
    assert (code, body) == (200, b"muster_leader 1.0\n")
    assert kind.startswith("text/plain")


async def test_the_state_is_json():
    async with serving(World()) as url:
        code, body, kind = await get(f"{url}/debug/state")
    assert (code, body, kind) == (200, b'{"epoch":7,"synced":true}', "application/json")


async def test_a_snapshot_is_bytes_and_the_brain_is_asked_by_one_at_a_time():
    world = World()
    async with serving(world) as url:
        answers = await asyncio.gather(*(get(f"{url}/debug/snapshot") for _ in range(3)))
    assert {answer[:2] for answer in answers} == {(200, b"\x80pickle")}
    assert world.most == 1


async def test_a_brain_that_does_not_answer_is_a_504():
    world = World()
    world.hang = True
    async with serving(world) as url:
        assert (await get(f"{url}/debug/snapshot"))[0] == 504


async def test_a_callback_that_raises_is_a_500_and_the_port_lives_on(monkeypatch: pytest.MonkeyPatch):
    world = World()
    async with serving(world) as url:
        monkeypatch.setattr(world, "state", lambda: 1 // 0)
        code, body, _ = await get(f"{url}/debug/state")
        assert (code, body) == (500, b"ZeroDivisionError: integer division or modulo by zero\n")
        assert (await get(f"{url}/healthz"))[0] == 200


async def test_strangers_may_look_at_health_and_with_a_token_that_is_let_in_at_the_rest(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(health, "_is_local", lambda _remote: False)
    world = World()
    async with serving(world) as url, aiohttp.ClientSession() as session:

        async def status(path: str, sent: str | None = None) -> int:
            headers = {} if sent is None else {"Authorization": sent}
            async with session.get(f"{url}{path}", headers=headers) as response:
                assert ("WWW-Authenticate" in response.headers) == (response.status == 401)
                return response.status

        assert await status("/healthz") == 200
        assert world.asked == []
        for path in ("/metrics", "/debug/snapshot", "/debug/state"):
            assert await status(path) == 401
            assert await status(path, "Basic reader") == 401
            assert await status(path, "Bearer other") == 403
            assert await status(path, "bearer reader") == 200
        assert ("other", "/metrics") in world.asked


@pytest.mark.parametrize(
    ("remote", "local"),
    [("127.0.0.1", True), ("::1", True), ("10.0.0.7", False), ("fe80::1%eth0", False), (None, False)],
)
def test_only_the_same_host_is_local(remote: str | None, local: bool):
    assert health._is_local(remote) is local


async def test_unknown_paths_are_404():
    async with serving(World()) as url:
        assert (await get(f"{url}/nothing"))[0] == 404


async def test_an_address_in_use_is_an_error_that_names_it():
    async with serving(World()) as url:
        host, _, port = url.removeprefix("http://").rpartition(":")
        second = Health(
            host,
            int(port),
            ready=lambda: (True, ""),
            alive=lambda: (True, ""),
            metrics=lambda: b"",
            snapshot=World().snapshot,
            state=dict,
            access=World().access,
        )
        with pytest.raises(CannotListen, match=rf"^healthAddress .*:{port}: Address already in use; choose another"):
            await second.start()
        await second.stop()


async def test_a_connection_is_kept_and_what_is_not_understood_is_refused_and_ends_it():
    async with serving(World()) as url:
        host, _, port = url.removeprefix("http://").rpartition(":")
        for request, line, kept in (
            (b"GET /healthz?x=1 HTTP/1.1\r\nHost: a\r\n\r\n", b"200", True),
            (b"HEAD /healthz HTTP/1.1\r\n\r\n", b"200", True),
            (b"GET /healthz HTTP/1.1\r\nConnection: close\r\n\r\n", b"200", False),
            (b"GET /healthz HTTP/1.0\r\n\r\n", b"200", False),
            (b"POST /healthz HTTP/1.1\r\nContent-Length: 2\r\n\r\nhi", b"405", False),
            (b"what is this\r\n\r\n", b"400", False),
        ):
            reader, writer = await asyncio.open_connection(host, int(port))
            for _ in range(2 if kept else 1):
                writer.write(request)
                head = await reader.readuntil(b"\r\n\r\n")
                assert head.startswith(b"HTTP/1.1 " + line)
                if not request.startswith(b"HEAD") and kept:
                    assert await reader.readexactly(3) == b"ok\n"
            if not kept:
                await asyncio.wait_for(reader.read(), 5)  # to the end
            writer.close()


async def test_the_page_gets_its_path_and_query_and_adds_headers():
    async with serving(World()) as url, aiohttp.ClientSession() as session:
        async with session.get(f"{url}/page/gangs/a%2Fb?q=1&x=%3C") as response:
            assert await response.text() == "/page/gangs/a%2Fb q=1&x=%3C"
            assert response.headers["X-More"] == "yes"
        async with session.get(f"{url}/", allow_redirects=False) as response:
            assert (response.status, response.headers["Location"]) == (302, "/page/")
        async with session.get(f"{url}/pages") as response:
            assert response.status == 404
        async with session.post(f"{url}/page/") as response:
            assert response.status == 405


async def test_a_stream_is_sent_piece_by_piece_and_ends_with_its_caller():
    world = World()
    async with serving(world) as url, aiohttp.ClientSession() as session:
        async with session.get(f"{url}/page/events") as response:
            assert await response.read() == b"one two"
        assert world.ended
        world.ended = False
        async with session.get(f"{url}/page/events?forever") as response:
            assert (await response.content.readexactly(10)).startswith(b"one two")
            response.close()
        async with asyncio.timeout(5):
            while not world.ended:
                await asyncio.sleep(0.01)


@pytest.mark.parametrize("query", ["silent", "forever"])
@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_a_caller_that_leaves_a_stream_is_noticed_at_once_and_is_no_error(run: Any, query: str):
    failures: list[dict[str, Any]] = []

    async def leave() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))
        for _ in range(20):
            world = World()
            async with serving(world) as url:
                host, port = url.removeprefix("http://").split(":")
                reader, writer = await asyncio.open_connection(host, int(port))
                writer.write(f"GET /page/events?{query} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
                await reader.readuntil(b"one two")
                writer.transport.abort()
                async with asyncio.timeout(5):
                    while not world.ended:
                        await asyncio.sleep(0.001)

    run(leave())
    assert not failures


async def test_the_page_is_for_strangers_with_a_token_for_page(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(health, "_is_local", lambda remote: False)
    world = World()
    async with serving(world) as url, aiohttp.ClientSession() as session:
        for path in ("/page/", "/page/gangs/x/y", "/page/static/style.css", "/page/events"):
            for token, status in (("", 401), ("other", 403), ("reader", 200)):
                headers = {"Authorization": f"Bearer {token}"} if token else {}
                async with session.get(f"{url}{path}", headers=headers) as response:
                    assert response.status == status, path
    assert {path for _, path in world.asked} == {"/page"}


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost:8080", 200), ("LOCALHOST", 200), ("127.0.0.1:1", 200), ("[::1]:8080", 200), ("[::1]", 200),
        ("evil.example", 421), ("evil.example:8080", 421), ("localhost.evil.example", 421),
        ("127.0.0.1.evil.example", 421),
    ],
)  # fmt: skip
async def test_a_web_site_that_resolves_to_this_host_reads_nothing(host: str, status: int):
    async with serving(World()) as url, aiohttp.ClientSession() as session:
        for path in ("/page/", "/debug/state", "/metrics"):
            async with session.get(f"{url}{path}", headers={"Host": host}) as response:
                assert response.status == status, path
        async with session.get(f"{url}/healthz", headers={"Host": host}) as response:
            assert response.status == 200
