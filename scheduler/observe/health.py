"""The ports of the process: /healthz, /readyz, /metrics, /debug/snapshot, /debug/state and the page, /page/...

Decided here: paths, status codes and who may look. Must not know what health, a snapshot or a page is: callbacks say.
Whether it lives and is ready anybody may ask. What the rest tells is about the cluster, so it is only for callers on
the same host (or in the same pod, which is where `kubectl port-forward` comes from) and for those whose bearer token
`access` lets in. A caller on the same host that asks for another name than the host's own is a web site that has had
its name resolved to this address to read what a browser here may read: it is refused. All of the page is one path to
`access`. GET and HEAD without a body are all that is understood; a web framework for that would take longer to import
than the caches take to fill.
"""

from __future__ import annotations

import asyncio
import ipaddress
import os
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, suppress
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import Any

import msgspec
import structlog
from prometheus_client import CONTENT_TYPE_LATEST

log = structlog.get_logger(__name__)

Check = Callable[[], tuple[bool, str]]
Access = Callable[[str, str], Awaitable[int]]
"""Takes a bearer token ("" = none) and a path; returns an HTTP status, 200 for those who may look."""

PAGE = "/page"
_FOR_ALL = frozenset({"/healthz", "/readyz"})
_REFUSED = {401: b"a bearer token is needed\n", 403: b"this user may not get this path\n"}
_ELSEWHERE = b"this address is not served under that name: use localhost, 127.0.0.1 or [::1]\n"

_SILENCE = 60.0
"""Seconds for which a caller may say nothing."""
_TEXT = "text/plain; charset=utf-8"

_encode = msgspec.json.Encoder(order="sorted").encode


@dataclass(frozen=True, slots=True)
class Reply:
    """What is answered. more: further header lines, each with its end. stream: follows instead of a body of one piece,
    until it ends or the caller has gone."""

    status: int
    body: bytes
    kind: str = _TEXT
    more: str = ""
    stream: AsyncGenerator[bytes] | None = None


Page = Callable[[str, str], Awaitable[Reply]]
"""Takes a path and the query behind it, without the "?"."""


@dataclass(frozen=True, slots=True)
class _Caller:
    remote: str | None
    token: str
    host: str


class CannotListen(RuntimeError):
    """The address of the ports is another process's, or nobody's; names it and the setting."""


class Health:
    """See the module. `start` binds (port 0: a free one), `address` says where."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        ready: Check,
        alive: Check,
        metrics: Callable[[], bytes],
        snapshot: Callable[[], Awaitable[bytes]] | None,
        state: Callable[[], dict[str, Any]],
        access: Access,
        page: Page | None = None,
    ) -> None:
        self._host, self._port = host, port
        self._access, self._page = access, page
        self._ready, self._alive = ready, alive
        self._metrics = metrics
        self._state = state
        self._one_at_a_time = asyncio.Lock()
        self._paths: dict[str, Callable[[], Awaitable[Reply]]] = {
            "/healthz": lambda: _checked(self._alive),
            "/readyz": lambda: _checked(self._ready),
            "/metrics": self._give_metrics,
            "/debug/state": self._give_state,
        }
        if snapshot is not None:
            self._paths["/debug/snapshot"] = partial(self._give_snapshot, snapshot)
        self._server: asyncio.Server | None = None
        self._callers: set[asyncio.Task[Any]] = set()

    @property
    def address(self) -> str:
        """host:port as bound."""
        if self._server is None or not self._server.sockets:
            return f"{self._host}:{self._port}"
        host, port = self._server.sockets[0].getsockname()[:2]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    async def start(self) -> None:
        """Listen. Raises `CannotListen`."""
        try:
            self._server = await asyncio.start_server(self._serve, self._host, self._port)
        except OSError as error:
            cause = os.strerror(error.errno) if error.errno is not None and error.errno > 0 else str(error)
            where = f"healthAddress {self._host}:{self._port}"
            raise CannotListen(f"{where}: {cause}; choose another with --health-address") from error

    async def stop(self) -> None:
        """Stop listening, and end the connections that there are."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for caller in tuple(self._callers):
            caller.cancel()
        await asyncio.gather(*self._callers, return_exceptions=True)

    # -- HTTP -----------------------------------------------------------------------------------------------------

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        caller = asyncio.current_task()
        assert caller is not None
        self._callers.add(caller)
        try:
            while await self._answer(reader, writer):
                pass
        except (OSError, EOFError, asyncio.LimitOverrunError):  # TimeoutError is an OSError
            pass  # whoever asked has gone, or speaks no HTTP
        except asyncio.CancelledError:
            pass  # by `stop`; asyncio logs a connection that ends as cancelled as an error
        finally:
            self._callers.discard(caller)
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answer one request; say whether the connection may be used for another."""
        async with asyncio.timeout(_SILENCE):
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        line, _, rest = head.partition("\r\n")
        headers = {
            name.strip().lower(): value.strip() for name, _, value in (x.partition(":") for x in rest.split("\r\n"))
        }
        words = line.split(" ")
        peer = writer.get_extra_info("peername")
        stays = len(words) == 3 and words[2] == "HTTP/1.1" and headers.get("connection", "").lower() != "close"
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            reply = Reply(400, b"this is no HTTP/1 request\n")
        elif words[0] not in ("GET", "HEAD"):
            reply, stays = Reply(405, b"only GET and HEAD\n", more="Allow: GET, HEAD\r\n"), False  # a body may follow
        else:
            scheme, _, token = headers.get("authorization", "").partition(" ")
            reply = await self._reply(
                words[1],
                _Caller(
                    peer[0] if isinstance(peer, tuple) else None,
                    token.strip() if scheme.lower() == "bearer" else "",
                    headers.get("host", ""),
                ),
            )
        if "content-length" in headers or "transfer-encoding" in headers or reply.stream is not None:
            stays = False
        if writer.is_closing():  # the caller left while its answer was made
            if reply.stream is not None:
                await reply.stream.aclose()
            return False
        length = f"Content-Length: {len(reply.body)}\r\n" if reply.stream is None else ""
        writer.write(
            f"HTTP/1.1 {reply.status} {HTTPStatus(reply.status).phrase}\r\n{reply.more}Content-Type: {reply.kind}\r\n"
            f"{length}Connection: {'keep-alive' if stays else 'close'}\r\n\r\n".encode()
        )
        if words[0] != "HEAD":
            writer.write(reply.body)
            await writer.drain()
            if reply.stream is not None:
                await _follow(reader, writer, reply.stream)
        await writer.drain()
        return stays and not writer.is_closing()

    async def _reply(self, target: str, caller: _Caller) -> Reply:
        """Keep strangers out, and a callback that raises inside its own answer."""
        path, _, query = target.partition("?")
        page = self._page if path == PAGE or path.startswith(f"{PAGE}/") else None
        if path == "/" and self._page is not None:
            return Reply(302, b"", more=f"Location: {PAGE}/\r\n")
        if path not in self._paths and page is None:
            return Reply(404, b"not found\n")
        try:
            if path not in _FOR_ALL:
                refused = await self._refuse(PAGE if page is not None else path, caller)
                if refused is not None:
                    return refused
            return await (page(path, query) if page is not None else self._paths[path]())
        except Exception as error:
            log.exception("port_failed", path=path)
            return Reply(500, f"{type(error).__name__}: {error}\n".encode())

    async def _refuse(self, path: str, caller: _Caller) -> Reply | None:
        """Return what a caller is told who may not look."""
        if _is_local(caller.remote):
            return None if _is_own(caller.host) else Reply(421, _ELSEWHERE)
        status = await self._access(caller.token, path)
        if status == HTTPStatus.OK:
            return None
        more = "WWW-Authenticate: Bearer\r\n" if status == HTTPStatus.UNAUTHORIZED else ""
        return Reply(status, _REFUSED.get(status, b"not now\n"), more=more)

    # -- what is served -------------------------------------------------------------------------------------------

    async def _give_metrics(self) -> Reply:
        return Reply(200, self._metrics(), CONTENT_TYPE_LATEST)

    async def _give_snapshot(self, snapshot: Callable[[], Awaitable[bytes]]) -> Reply:
        async with self._one_at_a_time:
            try:
                data = await snapshot()
            except TimeoutError:
                return Reply(504, b"the brain did not answer in time\n")
        name = 'Content-Disposition: attachment; filename="muster-snapshot"\r\n'
        return Reply(200, data, "application/octet-stream", name)

    async def _give_state(self) -> Reply:
        return Reply(200, _encode(self._state()), "application/json")


async def _follow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, stream: AsyncGenerator[bytes]) -> None:
    """Send a stream until it ends or the caller has gone, which its side tells also while there is nothing to send."""
    sending, hearing = asyncio.create_task(_send(writer, stream)), asyncio.create_task(_hear_out(reader))
    try:
        await asyncio.wait((sending, hearing), return_when=asyncio.FIRST_COMPLETED)
    finally:
        sending.cancel()
        hearing.cancel()
        sent, _ = await asyncio.gather(sending, hearing, return_exceptions=True)
    if isinstance(sent, Exception):
        raise sent


async def _send(writer: asyncio.StreamWriter, stream: AsyncGenerator[bytes]) -> None:
    async with aclosing(stream) as pieces:
        async for piece in pieces:
            if writer.is_closing():  # to write now would be a RuntimeError of uvloop
                return
            writer.write(piece)
            await writer.drain()


async def _hear_out(reader: asyncio.StreamReader) -> None:
    with suppress(OSError):
        while await reader.read(4096):
            pass  # what is asked behind a stream is not answered


async def _checked(check: Check) -> Reply:
    good, text = check()
    return Reply(200 if good else 503, f"{text}\n".encode())


def _is_local(remote: str | None) -> bool:
    return remote is not None and ipaddress.ip_address(remote.partition("%")[0]).is_loopback


def _is_own(host: str) -> bool:
    """Whether a Host header names this host, whatever the port; HTTP/1.0 may have none."""
    name = host.rpartition(":")[0] if ":" in host and not host.endswith("]") else host
    if name.lower() in ("", "localhost", socket.gethostname().lower()):
        return True
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True  # an address was not resolved by anybody
