"""The ports of the process: /healthz, /readyz, /metrics, /debug/snapshot, /debug/state.

Decided here: paths, status codes and who may look. Must not know what health or a snapshot is: callbacks say. What lies
under /debug tells everything about the cluster, so it is only for callers on the same host (or in the same pod, which
is where `kubectl port-forward` comes from).
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import structlog
from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST

log = structlog.get_logger(__name__)

Check = Callable[[], tuple[bool, str]]

_encode = msgspec.json.Encoder(order="sorted").encode


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
    ) -> None:
        self._host, self._port = host, port
        self._ready, self._alive = ready, alive
        self._metrics = metrics
        self._snapshot = snapshot
        self._state = state
        self._one_at_a_time = asyncio.Lock()
        self._runner: web.AppRunner | None = None

    @property
    def address(self) -> str:
        """host:port as bound."""
        if self._runner is None or not self._runner.addresses:
            return f"{self._host}:{self._port}"
        host, port = self._runner.addresses[0][:2]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    async def start(self) -> None:
        """Listen. Raises OSError, naming the address, when that cannot be."""
        app = web.Application(middlewares=[_confine])
        app.router.add_get("/healthz", self._serve_check(self._alive))
        app.router.add_get("/readyz", self._serve_check(self._ready))
        app.router.add_get("/metrics", self._serve_metrics)
        app.router.add_get("/debug/snapshot", self._serve_snapshot)
        app.router.add_get("/debug/state", self._serve_state)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        await self._runner.setup()
        await web.TCPSite(self._runner, self._host, self._port).start()

    async def stop(self) -> None:
        """Stop listening."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    def _serve_check(self, check: Check) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def serve(_request: web.Request) -> web.Response:
            good, text = check()
            return web.Response(status=200 if good else 503, text=f"{text}\n")

        return serve

    async def _serve_metrics(self, _request: web.Request) -> web.Response:
        return web.Response(body=self._metrics(), headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def _serve_snapshot(self, _request: web.Request) -> web.Response:
        async with self._one_at_a_time:
            try:
                data = await self._snapshot()
            except TimeoutError:
                return web.Response(status=504, text="the brain did not answer in time\n")
        headers = {"Content-Disposition": 'attachment; filename="muster-snapshot"'}
        return web.Response(body=data, content_type="application/octet-stream", headers=headers)

    async def _serve_state(self, _request: web.Request) -> web.Response:
        return web.Response(body=_encode(self._state()), content_type="application/json")


@web.middleware
async def _confine(request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> Any:
    """Keep strangers out of /debug, and a callback that raises inside its own answer."""
    if request.path.startswith("/debug/") and not _is_local(request.remote):
        return web.Response(status=403, text="only from the same host; use kubectl port-forward\n")
    try:
        return await handler(request)
    except web.HTTPException:
        raise
    except Exception as error:
        log.exception("port_failed", path=request.path)
        return web.Response(status=500, text=f"{type(error).__name__}: {error}\n")


def _is_local(remote: str | None) -> bool:
    return remote is not None and ipaddress.ip_address(remote.partition("%")[0]).is_loopback
