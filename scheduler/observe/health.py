"""The ports of the process: /healthz, /readyz, /metrics, /debug/snapshot, /debug/state.

Decided here: paths, status codes and who may look. Must not know what health or a snapshot is: callbacks say. Whether
it lives and is ready anybody may ask. What the rest tells is about the cluster, so it is only for callers on the same
host (or in the same pod, which is where `kubectl port-forward` comes from) and for those whose bearer token `access`
lets in. GET and HEAD without a body are all that is understood; a web framework for that would take longer to import
than the caches take to fill.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import msgspec
import structlog
from prometheus_client import CONTENT_TYPE_LATEST

log = structlog.get_logger(__name__)

Check = Callable[[], tuple[bool, str]]
Access = Callable[[str, str], Awaitable[int]]
"""Takes a bearer token ("" = none) and a path; returns an HTTP status, 200 for those who may look."""

_FOR_ALL = frozenset({"/healthz", "/readyz"})
_REFUSED = {401: b"a bearer token is needed\n", 403: b"this user may not get this path\n"}

_SILENCE = 60.0
"""Seconds for which a caller may say nothing."""
_TEXT = "text/plain; charset=utf-8"

_encode = msgspec.json.Encoder(order="sorted").encode


@dataclass(frozen=True, slots=True)
class _Reply:
    status: int
    body: bytes
    kind: str = _TEXT
    more: str = ""


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
        snapshot: Callable[[], Awaitable[bytes]],
        state: Callable[[], dict[str, Any]],
        access: Access,
    ) -> None:
        self._host, self._port = host, port
        self._access = access
        self._ready, self._alive = ready, alive
        self._metrics = metrics
        self._snapshot = snapshot
        self._state = state
        self._one_at_a_time = asyncio.Lock()
        self._paths: dict[str, Callable[[], Awaitable[_Reply]]] = {
            "/healthz": lambda: _checked(self._alive),
            "/readyz": lambda: _checked(self._ready),
            "/metrics": self._give_metrics,
            "/debug/snapshot": self._give_snapshot,
            "/debug/state": self._give_state,
        }
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
        """Listen. Raises OSError, naming the address, when that cannot be."""
        self._server = await asyncio.start_server(self._serve, self._host, self._port)

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
            reply = _Reply(400, b"this is no HTTP/1 request\n")
        elif words[0] not in ("GET", "HEAD"):
            reply, stays = _Reply(405, b"only GET and HEAD\n", more="Allow: GET, HEAD\r\n"), False  # a body may follow
        else:
            scheme, _, token = headers.get("authorization", "").partition(" ")
            reply = await self._reply(
                words[1].partition("?")[0],
                peer[0] if isinstance(peer, tuple) else None,
                token.strip() if scheme.lower() == "bearer" else "",
            )
        if "content-length" in headers or "transfer-encoding" in headers:
            stays = False
        writer.write(
            f"HTTP/1.1 {reply.status} {HTTPStatus(reply.status).phrase}\r\n{reply.more}Content-Type: {reply.kind}\r\n"
            f"Content-Length: {len(reply.body)}\r\nConnection: {'keep-alive' if stays else 'close'}\r\n\r\n".encode()
        )
        if words[0] != "HEAD":
            writer.write(reply.body)
        await writer.drain()
        return stays

    async def _reply(self, path: str, remote: str | None, token: str) -> _Reply:
        """Keep strangers out, and a callback that raises inside its own answer."""
        if path not in self._paths:
            return _Reply(404, b"not found\n")
        try:
            if path not in _FOR_ALL and not _is_local(remote):
                status = await self._access(token, path)
                if status != HTTPStatus.OK:
                    more = "WWW-Authenticate: Bearer\r\n" if status == HTTPStatus.UNAUTHORIZED else ""
                    return _Reply(status, _REFUSED.get(status, b"not now\n"), more=more)
            return await self._paths[path]()
        except Exception as error:
            log.exception("port_failed", path=path)
            return _Reply(500, f"{type(error).__name__}: {error}\n".encode())

    # -- what is served -------------------------------------------------------------------------------------------

    async def _give_metrics(self) -> _Reply:
        return _Reply(200, self._metrics(), CONTENT_TYPE_LATEST)

    async def _give_snapshot(self) -> _Reply:
        async with self._one_at_a_time:
            try:
                data = await self._snapshot()
            except TimeoutError:
                return _Reply(504, b"the brain did not answer in time\n")
        name = 'Content-Disposition: attachment; filename="muster-snapshot"\r\n'
        return _Reply(200, data, "application/octet-stream", name)

    async def _give_state(self) -> _Reply:
        return _Reply(200, _encode(self._state()), "application/json")


async def _checked(check: Check) -> _Reply:
    good, text = check()
    return _Reply(200 if good else 503, f"{text}\n".encode())


def _is_local(remote: str | None) -> bool:
    return remote is not None and ipaddress.ip_address(remote.partition("%")[0]).is_loopback
