"""HTTP/1.1 as it is spoken to the API server: connections, and a pool that keeps them.

Decided here: how bytes become an answer, when a connection may be used again, and who gets the next free one (whoever
has waited longest). Must not know: what is requested, or whether anything may be repeated. Invariants: one request at a
time on a connection; one whose answer did not come whole, or that spoke unasked, is never used again; nothing is sent
before the caller of `exchange` or `begin` asks for it, and then in one piece.

Own, because a general client costs three times the CPU a request: bindings come by the thousand.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from base64 import b64encode
from collections import deque
from dataclasses import dataclass
from typing import cast
from urllib.parse import unquote, urlsplit

import httptools

IDLE = 15.0
"""Seconds for which an unused connection is kept: less than any server or load balancer does."""
_READ_AHEAD = 2**18
"""Bytes of a stream that are taken before its reader takes them."""


class ConnectionFailed(OSError):
    """The connection ended before the answer did, or what came is no HTTP."""


@dataclass(frozen=True, slots=True, eq=False)
class Target:
    """One way to the API server; compared by identity, so that new credentials mean new connections.

    `prefix`: what the paths begin with. `head`: the header lines of every request. `tls`: None for plain HTTP.
    """

    host: str
    port: int
    prefix: str
    head: bytes
    tls: ssl.SSLContext | None = None
    tls_name: str = ""
    proxy: str = ""

    @staticmethod
    def of(
        server: str, headers: dict[str, str], tls: ssl.SSLContext | None = None, tls_name: str = "", proxy: str = ""
    ) -> Target:
        """Return the way to a server's URL. Raises ValueError for one that is no URL, or a header in several lines."""
        url = urlsplit(server)
        host = url.hostname
        if not host:
            raise ValueError(f"{server!r} is not the URL of a server")
        for name, value in headers.items():
            if not value.isprintable():
                raise ValueError(f"the header {name} is not one line of text")
        lines = {"Host": url.netloc.rpartition("@")[2], **headers}
        prefix = url.path.rstrip("/")
        if proxy and tls is None:  # a proxy for plain HTTP is asked for the whole URL
            prefix = f"http://{lines['Host']}{prefix}"
            lines |= _proxy_authorization(proxy)
        head = "".join(f"{name}: {value}\r\n" for name, value in lines.items()).encode("latin-1")
        port = url.port or (443 if url.scheme == "https" else 80)
        return Target(host, port, prefix, head, tls, tls_name, proxy)

    def request(self, method: str, path: str, headers: str, body: bytes | None) -> bytes:
        """Return a request as it is sent. `headers`: further lines, each ended. Raises ValueError for an odd path."""
        if not path.isascii() or not path.isprintable() or " " in path:
            raise ValueError(f"{path!r} cannot be the path of a request")
        if body is None:
            return f"{method} {self.prefix}{path} HTTP/1.1\r\n{headers}".encode() + self.head + b"\r\n"
        line = f"{method} {self.prefix}{path} HTTP/1.1\r\n{headers}Content-Length: {len(body)}\r\n"
        return b"".join((line.encode(), self.head, b"\r\n", body))


@dataclass(slots=True)
class Answer:
    """What the server said. `reason` and `retry_after` as in the head; the body of a stream comes by `read`."""

    status: int
    reason: str = ""
    retry_after: str = ""
    body: bytes = b""


class Connection(asyncio.Protocol):
    """One connection; the pool makes them. Either `exchange`, or `begin` and then `read` to the end."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.idle_since = 0.0
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._waiter: asyncio.Future[None] | None = None
        self._busy = False
        self._streaming = False
        self._lost: OSError | None = None
        self._fresh()

    def _fresh(self) -> None:
        self._answer: Answer | None = None
        self._status_line = b""
        self._retry_after = b""
        self._framed = False
        self._complete = False
        self._chunks: list[bytes] = []
        self._held = 0
        self._paused = False

    @property
    def reusable(self) -> bool:
        """Whether another request may be sent."""
        transport = self._transport
        if self._busy or self._paused or self._lost is not None or transport is None:
            return False
        return not transport.is_closing()

    # -- what the caller does -------------------------------------------------------------------------------------

    async def exchange(self, request: bytes) -> Answer:
        """Send a request and return its whole answer. Raises OSError; when cancelled the connection is done for."""
        return await self._send(request, streaming=False)

    async def begin(self, request: bytes) -> Answer:
        """Send a request and return the head of its answer; its body is to be had by `read`. Raises OSError."""
        return await self._send(request, streaming=True)

    async def _send(self, request: bytes, *, streaming: bool) -> Answer:
        if self._transport is None or self._busy or self._lost is not None:
            raise ConnectionFailed("the connection is closed")
        self._fresh()
        self._busy, self._streaming = True, streaming
        try:
            self._transport.write(request)
            while not self._complete and not (streaming and self._answer is not None):
                await self._wait()
        except BaseException:
            self.abort()
            raise
        answer = self._answer
        assert answer is not None
        if not streaming:
            chunks = self._chunks
            answer.body = chunks[0] if len(chunks) == 1 else b"".join(chunks)
            self._chunks = []
        return answer

    async def read(self) -> bytes:
        """Return the next bytes of the body, or b"" at its end. Raises OSError when the end does not come."""
        while not self._chunks:
            if self._complete:
                return b""
            try:
                await self._wait()
            except BaseException:
                self.abort()
                raise
        data = b"".join(self._chunks)
        self._chunks.clear()
        self._held = 0
        if self._paused and self._transport is not None:
            self._paused = False
            self._transport.resume_reading()
        return data

    async def _wait(self) -> None:
        if self._lost is not None:
            raise self._lost
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def abort(self) -> None:
        """Close at once, whatever is under way."""
        self._lost = self._lost or ConnectionFailed("the connection was closed")
        if self._transport is not None:
            self._transport.abort()

    # -- what asyncio calls ---------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is there, with TLS if there is any."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Bytes came."""
        if not self._busy:
            self.abort()
            return
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._lost = ConnectionFailed(f"not an answer in HTTP: {error}")
            self.abort()
            self._wake()
            return
        if self._streaming:
            if self._held > _READ_AHEAD and not self._paused and self._transport is not None:
                self._paused = True
                self._transport.pause_reading()
            if self._answer is not None:
                self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        self._transport = None
        if exc is None and self._answer is not None and not self._framed:
            self._complete = True  # a body without a length ends with the connection
        if self._lost is None:
            self._lost = exc if isinstance(exc, OSError) else ConnectionFailed("the server closed the connection")
        if self._complete:
            self._busy = False
        self._wake()

    # -- what the parser calls ------------------------------------------------------------------------------------

    def on_status(self, status: bytes) -> None:
        """The words after the status code."""
        self._status_line += status

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header line."""
        if len(name) not in (11, 14, 17):
            return
        match name.lower():
            case b"retry-after":
                self._retry_after = value
            case b"content-length" | b"transfer-encoding":
                self._framed = True

    def on_headers_complete(self) -> None:
        """The head is there; one with 1xx is followed by the real one."""
        if self._complete:
            self.abort()  # a second answer to one request
            return
        status = self._parser.get_status_code()
        if status >= 200:
            self._framed = self._framed or status in (204, 304)
            self._answer = Answer(status, self._status_line.decode("latin-1"), self._retry_after.decode("latin-1"))
        self._status_line = b""

    def on_body(self, body: bytes) -> None:
        """Some of the body."""
        if not self._complete:
            self._chunks.append(body)
            self._held += len(body)

    def on_message_complete(self) -> None:
        """The answer is whole."""
        if self._answer is None or self._complete:
            return
        self._complete = True
        if not self._parser.should_keep_alive():
            self.abort()
        self._busy = False
        self._wake()


class Pool:
    """Connections in use and kept. limit: how many may be in use at once (0: any number)."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._taken = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._kept: list[Connection] = []
        self._using: set[Connection] = set()
        self._reaper: asyncio.TimerHandle | None = None
        self._closed = False

    async def acquire(self, target: Target, timeout: float) -> Connection:
        """Return a connection to the target, kept or new; give it to `release` afterwards.

        Raises OSError; TimeoutError when a new one takes longer than `timeout` seconds.
        """
        if self._closed:
            raise ConnectionFailed("the client is closed")
        if self._limit and self._taken >= self._limit:
            await self._turn()
        else:
            self._taken += 1
        connection = self._keep_best(target)
        try:
            if connection is None:
                connection = await _dial_in_time(target, timeout)
                if self._closed:
                    connection.abort()
                    raise ConnectionFailed("the client is closed")
        except BaseException:
            self._pass_on()
            raise
        self._using.add(connection)
        return connection

    async def _turn(self) -> None:
        waiter = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self._pass_on()
            raise

    def _keep_best(self, target: Target) -> Connection | None:
        """Return the connection that was used last, and close those that lead elsewhere or have been idle too long."""
        oldest = asyncio.get_running_loop().time() - IDLE
        while self._kept:
            connection = self._kept.pop()
            if connection.reusable and connection.target is target and connection.idle_since >= oldest:
                return connection
            connection.abort()
        return None

    def release(self, connection: Connection) -> None:
        """Take a connection back; one whose answer has not ended is closed."""
        self._using.discard(connection)
        if connection.reusable and not self._closed:
            loop = asyncio.get_running_loop()
            connection.idle_since = loop.time()
            self._kept.append(connection)
            if self._reaper is None:
                self._reaper = loop.call_later(IDLE, self._reap)
        else:
            connection.abort()
        self._pass_on()

    def _pass_on(self) -> None:
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return
        self._taken -= 1

    def _reap(self) -> None:
        loop = asyncio.get_running_loop()
        oldest = loop.time() - IDLE
        stale = [connection for connection in self._kept if not connection.reusable or connection.idle_since <= oldest]
        for connection in stale:
            self._kept.remove(connection)
            connection.abort()
        self._reaper = loop.call_later(IDLE, self._reap) if self._kept else None

    def close(self) -> None:
        """Close all connections, also those in use."""
        self._closed = True
        if self._reaper is not None:
            self._reaper.cancel()
        for connection in (*self._kept, *self._using):
            connection.abort()
        self._kept.clear()
        for waiter in self._waiting:
            if not waiter.done():
                waiter.set_exception(ConnectionFailed("the client is closed"))
        self._waiting.clear()


async def _dial_in_time(target: Target, timeout: float) -> Connection:
    where = f"{target.host}:{target.port}" + (f" through {_address(target.proxy)[0]}" if target.proxy else "")
    try:
        async with asyncio.timeout(timeout):
            return await dial(target)
    except TimeoutError as error:
        raise TimeoutError(str(error) or f"no connection to {where} within {timeout:g} s") from error
    except OSError as error:
        raise ConnectionFailed(f"no connection to {where}: {error.strerror or error}") from error


async def dial(target: Target) -> Connection:
    """Open a connection. Raises OSError."""
    loop = asyncio.get_running_loop()
    name = (target.tls_name or target.host) if target.tls is not None else None
    if target.proxy and target.tls is not None:
        return await _dial_through(target, name or "")
    host, port = (target.host, target.port) if not target.proxy else _address(target.proxy)
    tls = target.tls
    if target.proxy.startswith("https:"):
        tls, name = ssl.create_default_context(), host
    transport, connection = await loop.create_connection(
        lambda: Connection(target), host, port, ssl=tls, server_hostname=name
    )
    notice_dead_peer(transport.get_extra_info("socket"))
    return connection


async def _dial_through(target: Target, name: str) -> Connection:
    """Ask a proxy for a tunnel, and speak TLS to the server through it."""
    loop = asyncio.get_running_loop()
    host, port = _address(target.proxy)
    tls = ssl.create_default_context() if target.proxy.startswith("https:") else None
    transport, tunnel = await loop.create_connection(_Tunnel, host, port, ssl=tls)
    try:
        notice_dead_peer(transport.get_extra_info("socket"))
        where = f"[{target.host}]:{target.port}" if ":" in target.host else f"{target.host}:{target.port}"
        extra = "".join(f"{key}: {value}\r\n" for key, value in _proxy_authorization(target.proxy).items())
        transport.write(f"CONNECT {where} HTTP/1.1\r\nHost: {where}\r\n{extra}\r\n".encode("latin-1"))
        await tunnel.open
        connection = Connection(target)
        secure = await loop.start_tls(transport, connection, cast(ssl.SSLContext, target.tls), server_hostname=name)
        if secure is None:
            raise ConnectionFailed(f"proxy {host}:{port}: closed the tunnel")
        connection.connection_made(secure)
    except BaseException:
        transport.abort()
        raise
    return connection


class _Tunnel(asyncio.Protocol):
    """The first words to a proxy; `open` is done when it has agreed."""

    def __init__(self) -> None:
        self.open: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._seen = b""

    def data_received(self, data: bytes) -> None:
        self._seen += data
        head, end, _ = self._seen.partition(b"\r\n\r\n")
        if self.open.done() or not (end or len(head) > 2**16):
            return
        line = head.split(b"\r\n", 1)[0].decode("latin-1")
        words = line.split(" ", 2)
        if end and words[0].startswith("HTTP/1.") and len(words) > 1 and words[1].startswith("2"):
            self.open.set_result(None)
        else:
            self.open.set_exception(ConnectionFailed(f"the proxy refused the tunnel: {line[:200]}"))

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.open.done():
            self.open.set_exception(ConnectionFailed(f"the proxy closed the connection: {exc or 'without a word'}"))


def _address(proxy: str) -> tuple[str, int]:
    url = urlsplit(proxy)
    return url.hostname or "", url.port or (443 if url.scheme == "https" else 80)


def _proxy_authorization(proxy: str) -> dict[str, str]:
    url = urlsplit(proxy)
    if url.username is None:
        return {}
    user = f"{unquote(url.username)}:{unquote(url.password or '')}"
    return {"Proxy-Authorization": "Basic " + b64encode(user.encode()).decode()}


def notice_dead_peer(made: socket.socket) -> None:
    """See to it that a socket notices within about a minute that its peer is gone: a watch has no other way."""
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3), ("TCP_USER_TIMEOUT", 60_000)):
        option = getattr(socket, name, None)  # not on every platform
        if option is not None:
            made.setsockopt(socket.IPPROTO_TCP, option, value)
