"""A way to the API server on which things go wrong, as `faults` says; plain HTTP for the client, TLS to the server.

Decided here: how each fault looks on a socket. Must not know the scheduler. Invariant: a request is passed on at most
once, unchanged, with the client's own credentials; with the faults over, everything passes as it is.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
import time
from collections import Counter

import aiohttp
from aiohttp import web

from tests.chaos.faults import Asked, Fault, Sky, asked
from tests.controlplane.cluster import ControlPlane

REASONS = {
    409: "Conflict", 410: "Expired", 429: "TooManyRequests", 500: "InternalError", 502: "", 503: "ServiceUnavailable",
    504: "Timeout",
}  # fmt: skip
_PASSED = ("Authorization", "Content-Type", "Accept", "Accept-Encoding", "User-Agent")
_RETRY_AFTER = 1


def _status(code: int) -> bytes:
    details = {"details": {"retryAfterSeconds": _RETRY_AFTER}} if code == 429 else {}
    body = {
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": code,
        "reason": REASONS[code], "message": "an accident between client and server", **details,
    }  # fmt: skip
    return json.dumps(body).encode()


class Proxy:
    """Use as an async context manager. `faults`: how many of each kind were done; `binds`: successful ones, by uid."""

    def __init__(self, cluster: ControlPlane, sky: Sky) -> None:
        self._server, self._ca, self._sky = cluster.server, cluster.ca_file, sky
        self.faults: Counter[str] = Counter()
        self.requests = 0
        self.bad = False
        """Whether things go wrong now."""
        self.url = ""
        self._began = 0.0
        self._session: aiohttp.ClientSession | None = None
        self._runner: web.AppRunner | None = None
        self._calm = asyncio.Event()

    async def __aenter__(self) -> Proxy:
        tls = ssl.create_default_context(cafile=str(self._ca))
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=tls),
            timeout=aiohttp.ClientTimeout(total=None),
            auto_decompress=False,
        )
        app = web.Application(client_max_size=64 * 2**20)
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5, handler_cancellation=True)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        host, port = self._runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._calm.set()
        if self._runner is not None:
            await self._runner.cleanup()
        if self._session is not None:
            await self._session.close()

    def begin(self) -> None:
        """Let things go wrong from now on."""
        self._began, self.bad = time.monotonic(), True
        self._calm.clear()

    def end(self) -> None:
        """Let nothing go wrong any more; what is under way ends well."""
        self.bad = False
        self._calm.set()

    # -- one request ----------------------------------------------------------------------------------------------

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        self.requests += 1
        what = asked(request.method, request.path, dict(request.query))
        fault = self._sky.fault(what, time.monotonic() - self._began) if self.bad else None
        if fault is not None:
            self.faults[f"{fault.name} {fault.status}" if fault.status else fault.name] += 1
        body = await request.read()
        if fault is not None and fault.name == "refuse":
            headers = {"Retry-After": str(_RETRY_AFTER)} if fault.status == 429 else {}
            return web.Response(
                status=fault.status, body=_status(fault.status), content_type="application/json", headers=headers
            )
        if fault is not None and fault.name == "reset":
            return self._break(request)
        if fault is not None and fault.name == "slow":
            await asyncio.sleep(fault.seconds)
        if what.watch:
            return await self._stream(request, fault)
        # Once sent, a write is the server's, whatever becomes of the client.
        exchange = asyncio.ensure_future(self._exchange(request, body))
        status, headers, content = await asyncio.shield(exchange)
        return await self._answer(request, what, fault, status, headers, content)

    async def _exchange(self, request: web.Request, body: bytes) -> tuple[int, dict[str, str], bytes]:
        assert self._session is not None
        headers = {name: request.headers[name] for name in _PASSED if name in request.headers}
        async with self._session.request(
            request.method, self._server + request.raw_path, data=body or None, headers=headers
        ) as answer:
            content = await answer.read()
            kept = {name: answer.headers[name] for name in ("Content-Type", "Retry-After") if name in answer.headers}
            return answer.status, kept, content

    async def _answer(
        self, request: web.Request, what: Asked, fault: Fault | None, status: int, headers: dict[str, str], body: bytes
    ) -> web.StreamResponse:
        if fault is not None and fault.name == "lost":
            return self._break(request)
        if fault is not None and fault.name == "held":
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._calm.wait(), fault.seconds)
        if fault is not None and fault.name == "torn":
            response = web.StreamResponse(status=status, headers={**headers, "Content-Length": str(len(body))})
            await response.prepare(request)
            with contextlib.suppress(ConnectionError):
                await response.write(body[: len(body) // 2])
            return self._break(request, response)
        return web.Response(status=status, body=body, headers=headers)

    @staticmethod
    def _break(request: web.Request, response: web.StreamResponse | None = None) -> web.StreamResponse:
        if request.transport is not None:
            request.transport.abort()
        return response or web.Response(status=500)

    # -- watches --------------------------------------------------------------------------------------------------

    async def _stream(self, request: web.Request, fault: Fault | None) -> web.StreamResponse:
        assert self._session is not None
        headers = {name: request.headers[name] for name in _PASSED if name in request.headers}
        async with self._session.get(self._server + request.raw_path, headers=headers) as answer:
            kept = {"Content-Type": answer.headers.get("Content-Type", "application/json")}
            response = web.StreamResponse(status=answer.status, headers=kept)
            await response.prepare(request)
            lines: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
            reader = asyncio.create_task(self._read(answer, lines))
            try:
                return await self._write(request, response, lines, fault)
            except ConnectionError:  # the client has gone
                return response
            finally:
                reader.cancel()

    async def _read(self, answer: aiohttp.ClientResponse, lines: asyncio.Queue[tuple[float, bytes]]) -> None:
        rest = b""
        with contextlib.suppress(aiohttp.ClientError):
            async for chunk in answer.content.iter_any():
                *whole, rest = (rest + chunk).split(b"\n")
                for line in whole:
                    lines.put_nowait((time.monotonic(), line + b"\n"))
        lines.put_nowait((0.0, rest))

    async def _write(
        self,
        request: web.Request,
        response: web.StreamResponse,
        lines: asyncio.Queue[tuple[float, bytes]],
        fault: Fault | None,
    ) -> web.StreamResponse:
        count = 0
        while True:
            arrived, line = await lines.get()
            count += 1
            if fault is not None and self.bad and arrived:
                if fault.name == "lag":
                    await self._rest(arrived + fault.seconds - time.monotonic())
                elif count == fault.after:
                    broken = await self._spoil(request, response, fault, line)
                    if broken is not None:
                        return broken
            if line:
                await response.write(line)
            if not arrived:
                return response

    async def _spoil(
        self, request: web.Request, response: web.StreamResponse, fault: Fault, line: bytes
    ) -> web.StreamResponse | None:
        """Do what a watch has in store at this event; the response if it ends here."""
        if fault.name == "stall":
            await self._rest(fault.seconds)
            return None
        if fault.name == "gone":
            event = b'{"type":"ERROR","object":' + _status(410) + b"}\n"
            await response.write(event)
            return response
        if fault.name == "noise":
            await response.write(b"<html>nothing to see here</html>\n")
            return response
        if fault.name == "tear":
            await response.write(line[: len(line) // 2])
        return self._break(request, response)

    async def _rest(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._calm.wait(), max(0.0, seconds))
