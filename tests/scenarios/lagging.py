"""A watch that lags: a proxy between the scheduler and an API server that shows what happened only some time later.

Decided here: which answers are late (watches of the given resources; lists and all writes are not), and by how much.
It must not know what is in them.
"""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import aiohttp
import yaml
from aiohttp import web

_PASS_ON = ("Authorization", "Accept", "Content-Type", "User-Agent", "Accept-Encoding")
_PASS_BACK = ("Content-Type", "Content-Encoding", "Retry-After")


class Lagging:
    """Serves the API server of a kubeconfig once more; `kubeconfig` leads there. seconds: resource -> how late."""

    def __init__(self, kubeconfig: Path, directory: Path, seconds: Mapping[str, float]) -> None:
        self.kubeconfig = directory / "kubeconfig.lagging"
        self._document: dict[str, Any] = yaml.safe_load(kubeconfig.read_text())
        self._cluster = self._document["clusters"][0]["cluster"]
        self._server = str(self._cluster["server"]).rstrip("/")
        self._seconds = seconds
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="lagging", daemon=True)

    def start(self) -> Lagging:
        """Listen, and write the kubeconfig."""
        self._thread.start()
        port = asyncio.run_coroutine_threadsafe(self._start(), self._loop).result(30)
        for name in [key for key in self._cluster if key != "server"]:
            del self._cluster[name]
        self._cluster["server"] = f"http://127.0.0.1:{port}"
        self.kubeconfig.write_text(json.dumps(self._document))  # JSON is YAML
        return self

    def stop(self) -> None:
        """End all connections."""
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(30)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _start(self) -> int:
        connector = aiohttp.TCPConnector(ssl=self._tls(), limit=0)
        self._client = aiohttp.ClientSession(
            connector=connector, auto_decompress=False, timeout=aiohttp.ClientTimeout(total=None)
        )
        app = web.Application(client_max_size=2**26)
        app.router.add_route("*", "/{path:.*}", self._serve)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        port: int = self._runner.addresses[0][1]
        return port

    async def _stop(self) -> None:
        await self._runner.cleanup()
        await self._client.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    def _tls(self) -> ssl.SSLContext | bool:
        if "certificate-authority-data" in self._cluster:
            data = base64.b64decode(self._cluster["certificate-authority-data"]).decode()
            return ssl.create_default_context(cadata=data)
        if "certificate-authority" in self._cluster:
            return ssl.create_default_context(cafile=self._cluster["certificate-authority"])
        return True

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        late = self._seconds.get(request.path.rpartition("/")[2], 0.0)
        if request.query.get("watch") not in ("1", "true"):
            late = 0.0
        headers = {name: request.headers[name] for name in _PASS_ON if name in request.headers}
        url, body = f"{self._server}{request.raw_path}", await request.read()
        async with self._client.request(request.method, url, headers=headers, data=body or None) as answer:
            response = web.StreamResponse(status=answer.status)
            response.headers.update({name: answer.headers[name] for name in _PASS_BACK if name in answer.headers})
            await response.prepare(request)
            await self._pass(answer, response, late)
            return response

    async def _pass(self, answer: aiohttp.ClientResponse, response: web.StreamResponse, late: float) -> None:
        """Write what comes, each part that much later than it came."""
        parts: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

        async def read() -> None:
            try:
                async for part in answer.content.iter_any():
                    parts.put_nowait((self._loop.time() + late, part))
            finally:
                parts.put_nowait((0.0, b""))

        reader = asyncio.ensure_future(read())
        try:
            while True:
                when, part = await parts.get()
                if not part:
                    break
                await asyncio.sleep(max(0.0, when - self._loop.time()))
                await response.write(part)
        finally:
            reader.cancel()
