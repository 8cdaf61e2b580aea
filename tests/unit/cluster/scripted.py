"""A small API server that answers by script: each request goes to a handler that the test supplies."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from scheduler.cluster.auth import Credentials
from scheduler.cluster.client import ApiClient

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass
class Scripted:
    """The server's address and what it was asked: (method, path, query) in order."""

    url: str = ""
    seen: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)
    times: list[float] = field(default_factory=list)

    def count(self, method: str, **query: str) -> int:
        """How many requests had this method and these query values."""
        return sum(
            1 for seen, _, asked in self.seen if seen == method and all(asked.get(k) == v for k, v in query.items())
        )


@asynccontextmanager
async def scripted(handler: Handler) -> AsyncIterator[Scripted]:
    """Serve `handler` on a free port."""
    state = Scripted()

    async def record(request: web.Request) -> web.StreamResponse:
        state.seen.append((request.method, request.path, dict(request.query)))
        state.times.append(asyncio.get_running_loop().time())
        return await handler(request)

    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", record)
    runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    state.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield state
    finally:
        await runner.cleanup()


@asynccontextmanager
async def client_of(server: Scripted | str, **options: Any) -> AsyncIterator[ApiClient]:
    """A client of a scripted server."""
    url = server if isinstance(server, str) else server.url
    async with ApiClient(Credentials.plain(url), **options) as client:
        yield client


def status(code: int, reason: str, message: str = "", **headers: str) -> web.Response:
    """A Status answer."""
    body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "message": message}
    return web.json_response(body | {"code": code}, status=code, headers=headers)


def line(kind: str, obj: Any) -> bytes:
    """One watch event."""
    return json.dumps({"type": kind, "object": obj}).encode() + b"\n"
