"""Connections and their pool: what counts as an answer, what is never used again, and who goes next."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import uvloop

from scheduler.cluster.connections import Connection, ConnectionFailed, Pool, Target, dial

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@asynccontextmanager
async def serving(serve: Serve) -> AsyncIterator[Target]:
    """A server that speaks raw bytes."""
    tasks: set[asyncio.Task[None]] = set()

    async def run(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            await serve(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(run, "127.0.0.1", 0)
    try:
        yield Target.of(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", {})
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def answering(*answers: bytes, close: bool = False) -> Serve:
    """Give each request of a connection the next answer, in the pieces that `|` marks."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for answer in answers:
            await reader.readuntil(b"\r\n\r\n")
            for piece in answer.split(b"|"):
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0.005)
        if not close:
            await reader.read()

    return serve


def get(target: Target, path: str = "/x") -> bytes:
    return target.request("GET", path, "", None)


@pytest.mark.parametrize(
    ("answer", "status", "body"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Le|ngth: 4\r\n\r|\nab|cd", 200, b"abcd"),
        (b"HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n2\r\na|b\r\n2\r\ncd\r\n0\r\n\r\n", 201, b"abcd"),
        (b"HTTP/1.1 100 Continue\r\n\r\n|HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx", 200, b"x"),
        (b"HTTP/1.1 204 No Content\r\n\r\n", 204, b""),
    ],
)
async def test_an_answer_is_whole_however_it_is_cut_and_its_connection_is_used_again(
    answer: bytes, status: int, body: bytes
) -> None:
    async with serving(answering(answer, OK)) as target:
        connection = await dial(target)
        got = await connection.exchange(get(target))
        assert (got.status, got.body) == (status, body)
        assert connection.reusable
        assert (await connection.exchange(get(target))).body == b"ok"


async def test_a_body_without_a_length_ends_with_the_connection() -> None:
    async with serving(answering(b"HTTP/1.1 200 OK\r\n\r\nto |the end", close=True)) as target:
        connection = await dial(target)
        assert (await connection.exchange(get(target))).body == b"to the end"
        assert not connection.reusable


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nContent-",
        b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nonly",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nonly",
        b"SSH-2.0-OpenSSH\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n",
    ],
)
async def test_what_is_no_whole_answer_is_an_error(answer: bytes) -> None:
    async with serving(answering(answer, close=True)) as target:
        connection = await dial(target)
        with pytest.raises(OSError, match=r"closed|HTTP"):
            await asyncio.wait_for(connection.exchange(get(target)), 5)
        assert not connection.reusable


@pytest.mark.parametrize(
    "answer",
    [OK + b"HTTP/1.1 500 Oops\r\nContent-Length: 3\r\n\r\nbad", b"HTTP/1.1 200 OK\r\nConnection: close\r\n" + OK[17:]],
)
async def test_a_connection_that_says_more_or_says_goodbye_is_not_used_again(answer: bytes) -> None:
    async with serving(answering(answer)) as target:
        connection = await dial(target)
        got = await connection.exchange(get(target))
        assert (got.status, got.body) == (200, b"ok")
        assert not connection.reusable


async def test_bytes_that_nobody_asked_for_end_an_idle_connection() -> None:
    async with serving(answering(OK + b"|" + OK)) as target:
        connection = await dial(target)
        await connection.exchange(get(target))
        async with asyncio.timeout(20):
            while connection.reusable:
                await asyncio.sleep(0.005)


async def test_a_request_that_is_given_up_takes_its_connection_along() -> None:
    async with serving(answering(b"", OK)) as target:
        connection = await dial(target)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(connection.exchange(get(target)), 0.02)
        assert not connection.reusable
        with pytest.raises(ConnectionFailed, match="closed"):
            await connection.exchange(get(target))


async def test_a_stream_is_read_as_it_comes_and_holds_back_a_sender_that_is_faster() -> None:
    sent = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        for _ in range(400):
            writer.write(b"10000\r\n" + b"x" * 65536 + b"\r\n")
            await writer.drain()
            sent += 65536
        writer.write(b"0\r\n\r\n")
        await reader.read()

    async with serving(serve) as target:
        connection = await dial(target)
        assert (await connection.begin(get(target))).status == 200
        await asyncio.sleep(0.3)
        assert sent < 400 * 65536, "a reader that does not read must not take 26 MB into memory"
        taken = 0
        while data := await asyncio.wait_for(connection.read(), 5):
            taken += len(data)
        assert taken == 400 * 65536
        assert connection.reusable


async def _ok_for_ever(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while True:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(OK)


async def test_the_pool_keeps_connections_and_lets_those_wait_that_are_too_many() -> None:
    async with serving(_ok_for_ever) as target:
        pool = Pool(2)
        first, second = await pool.acquire(target, 1), await pool.acquire(target, 1)
        order: list[int] = []

        async def want(number: int) -> Connection:
            connection = await pool.acquire(target, 1)
            order.append(number)
            return connection

        waiting = [asyncio.create_task(want(number)) for number in range(3)]
        await asyncio.sleep(0)
        pool.release(first)
        late = asyncio.create_task(want(9))  # asks when one is free, but others have waited
        assert await waiting[0] is first
        waiting[1].cancel()
        await asyncio.gather(waiting[1], return_exceptions=True)
        pool.release(second)
        assert await waiting[2] is second
        pool.release(second)
        assert await late is second
        assert order == [0, 2, 9]
        pool.close()


async def test_a_turn_that_comes_to_somebody_who_has_just_gone_passes_to_the_next() -> None:
    async with serving(_ok_for_ever) as target:
        pool = Pool(1)
        only = await pool.acquire(target, 1)
        gone, next_one = (asyncio.create_task(pool.acquire(target, 1)) for _ in range(2))
        await asyncio.sleep(0)
        pool.release(only)
        gone.cancel()
        assert await asyncio.wait_for(next_one, 1) is only
        pool.close()


async def test_a_failed_dial_gives_its_turn_back() -> None:
    nobody = Target.of("http://127.0.0.1:1", {})
    pool = Pool(1)
    for _ in range(3):
        with pytest.raises(OSError):
            await asyncio.wait_for(pool.acquire(nobody, 1), 2)


async def test_new_credentials_mean_a_new_connection_and_a_closed_pool_gives_none() -> None:
    async with serving(_ok_for_ever) as target:
        pool = Pool(0)
        old = await pool.acquire(target, 1)
        pool.release(old)
        renewed = Target.of(f"http://{target.host}:{target.port}", {"Authorization": "Bearer new"})
        new = await pool.acquire(renewed, 1)
        assert new is not old
        assert not old.reusable
        pool.close()
        assert not new.reusable
        with pytest.raises(ConnectionFailed):
            await pool.acquire(renewed, 1)


async def test_closing_a_pool_ends_those_that_wait_and_those_that_dial() -> None:
    async with serving(_ok_for_ever) as target:
        pool = Pool(1)
        dialling = asyncio.create_task(pool.acquire(target, 1))
        waiting = asyncio.create_task(pool.acquire(target, 1))
        await asyncio.sleep(0)
        pool.close()
        for task in (dialling, waiting):
            with pytest.raises(ConnectionFailed, match="the client is closed"):
                await asyncio.wait_for(task, 2)


async def test_a_connection_that_was_idle_too_long_is_not_used_and_not_kept() -> None:
    async with serving(_ok_for_ever) as target:
        pool = Pool(0)
        old = await pool.acquire(target, 1)
        pool.release(old)
        old.idle_since -= 60
        assert await pool.acquire(target, 1) is not old
        assert not old.reusable
        pool.close()


async def test_a_proxy_is_asked_for_a_tunnel_or_for_the_whole_url() -> None:
    asked: list[bytes] = []

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
        await reader.read()

    async with serving(refuse) as proxy:
        address = f"http://us:er@127.0.0.1:{proxy.port}"
        secure = Target.of("https://api.example:6443", {}, ssl.create_default_context(), proxy=address)
        with pytest.raises(ConnectionFailed, match="407 Proxy Authentication Required"):
            await dial(secure)
        plain = Target.of("http://api.example:8080/base", {}, proxy=address)
        answer = await (await dial(plain)).exchange(get(plain, "/x?y=1"))
        assert answer.status == 407
    assert asked[0].startswith(b"CONNECT api.example:6443 HTTP/1.1\r\nHost: api.example:6443\r\n")
    assert b"Proxy-Authorization: Basic dXM6ZXI=\r\n" in asked[0]
    assert asked[1].startswith(b"GET http://api.example:8080/base/x?y=1 HTTP/1.1\r\n")
    assert b"Host: api.example:8080\r\n" in asked[1]
    assert b"Proxy-Authorization: Basic dXM6ZXI=\r\n" in asked[1]


def test_what_would_smuggle_a_second_request_is_refused() -> None:
    target = Target.of("https://api/base/", {"X": "y"})
    assert target.request("GET", "/a", "", None) == b"GET /base/a HTTP/1.1\r\nHost: api\r\nX: y\r\n\r\n"
    assert target.request("POST", "/a", "", b"{}").endswith(b"\r\n\r\n{}")
    assert b"Content-Length: 2\r\n" in target.request("POST", "/a", "", b"{}")
    for path in ("/a b", "/a\r\nX: y", "/\u00e4"):
        with pytest.raises(ValueError, match="path"):
            target.request("GET", path, "", None)
    with pytest.raises(ValueError, match="Authorization"):
        Target.of("https://api", {"Authorization": "Bearer a\r\nX: y"})
    with pytest.raises(ValueError, match="URL"):
        Target.of("nonsense", {})


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_tls_is_spoken_through_the_tunnel_of_a_proxy(run: Callable[[Awaitable[None]], None], tmp_path: Path) -> None:
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-keyout", "key", "-out", "crt", "-days", "2", "-subj", "/CN=localhost"]
    command += ["-addext", "subjectAltName=DNS:localhost"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    inside = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    inside.load_cert_chain(tmp_path / "crt", tmp_path / "key")

    async def story() -> None:
        server = await asyncio.start_server(_ok_for_ever, "127.0.0.1", 0, ssl=inside)
        port = server.sockets[0].getsockname()[1]

        async def tunnel(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"CONNECT api.example:6443 ")
            further, back = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            await asyncio.gather(_copy(reader, back), _copy(further, writer))

        async with serving(tunnel) as proxy:
            trusting = ssl.create_default_context(cafile=str(tmp_path / "crt"))
            address = f"http://127.0.0.1:{proxy.port}"
            target = Target.of("https://api.example:6443", {}, trusting, "localhost", address)
            connection = await dial(target)
            for _ in range(2):
                assert (await asyncio.wait_for(connection.exchange(get(target)), 5)).body == b"ok"
            connection.abort()
            other = Target.of("https://api.example:6443", {}, trusting, "", address)
            with pytest.raises(ssl.SSLCertVerificationError):
                await dial(other)
        server.close()

    run(story())


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
    writer.close()
