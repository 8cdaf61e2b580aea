"""The embedded API server: start, stop, address, kubeconfig, and the handles that tests pull.

Decided here: the life of the listening socket and of the loop it runs in. Invariant: after `stop` nothing listens,
no watch is open and no task of the server is left.
"""

from __future__ import annotations

import asyncio
import os
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import yaml
from aiohttp import web

from scheduler.playground.api import Api, ApiOptions
from scheduler.playground.apply import track
from scheduler.playground.faults import Faults
from scheduler.playground.gc import Collector
from scheduler.playground.handlers import Handlers

T = TypeVar("T")
_MAX_BODY = 3 * 1024 * 1024


class PlaygroundServer:
    """An in-memory Kubernetes API server on a free port of 127.0.0.1."""

    def __init__(
        self,
        *,
        port: int = 0,
        options: ApiOptions | None = None,
        bookmark_interval: float = 10.0,
        max_watch_buffer: int = 64 * 1024 * 1024,
    ) -> None:
        self.api = Api(options)
        self.api.track = track
        self.faults = Faults()
        self.handlers = Handlers(
            self.api, self.faults, bookmark_interval=bookmark_interval, max_buffer=max_watch_buffer
        )
        self.collector = Collector(self.api, self._soon)
        self.port = port
        self._loop: asyncio.AbstractEventLoop | None = None
        self._runner: web.ServerRunner | None = None

    def _soon(self, work: Callable[[], None]) -> None:
        if self._loop is not None and self._loop.is_running():
            self._loop.call_soon(work)
        else:
            work()

    @property
    def url(self) -> str:
        """Base URL; valid after `start`."""
        return f"http://127.0.0.1:{self.port}"

    async def start(self) -> PlaygroundServer:
        """Listen."""
        self._loop = loop = asyncio.get_running_loop()

        def make_request(message: Any, payload: Any, protocol: Any, writer: Any, task: Any) -> web.BaseRequest:
            return web.BaseRequest(message, payload, protocol, writer, task, loop, client_max_size=_MAX_BODY)

        server = web.Server(
            self.handlers.handle, request_factory=make_request, handler_cancellation=True, access_log=None
        )
        self._runner = web.ServerRunner(server, shutdown_timeout=0.2)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port, backlog=1024, reuse_address=True)
        await site.start()
        self.port = self._runner.addresses[0][1]
        return self

    async def stop(self) -> None:
        """End every watch and stop listening."""
        self.cut_watches()
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def __aenter__(self) -> PlaygroundServer:
        return await self.start()

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def kubeconfig(self, namespace: str = "default") -> dict[str, Any]:
        """Return a kubeconfig for this server."""
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "muster-playground", "cluster": {"server": self.url}}],
            "users": [{"name": "muster-playground", "user": {}}],
            "contexts": [
                {
                    "name": "muster-playground",
                    "context": {"cluster": "muster-playground", "user": "muster-playground", "namespace": namespace},
                }
            ],
            "current-context": "muster-playground",
        }

    def write_kubeconfig(self, path: str | Path) -> Path:
        """Write a kubeconfig (readable by its owner only) and return its path."""
        target = Path(path)
        handle = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(handle, "w") as file:
            yaml.safe_dump(self.kubeconfig(), file, sort_keys=False)
        return target

    # ---- faults that are not rules about requests ----

    def cut_watches(self, path: str = "", *, abort: bool = False) -> int:
        """End the watches whose path matches; `abort` resets their connections. Return how many."""
        pattern = re.compile(path)
        chosen = [watcher for where, watcher in self.handlers.watchers.values() if pattern.search(where)]
        for watcher in chosen:
            watcher.close(abort)
        return len(chosen)

    def compact(self, *storages: str) -> None:
        """Forget history: watches that resume from an older version, and older continue tokens, get 410."""
        self.api.store.compact(storages or None)


class ThreadedServer:
    """A `PlaygroundServer` in a thread of its own, for synchronous users."""

    def __init__(self, server: PlaygroundServer) -> None:
        self.server = server
        self._ready = threading.Event()
        self._error: BaseException | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._thread = threading.Thread(target=self._run, name="muster-playground", daemon=True)

    def _run(self) -> None:
        import uvloop

        try:
            uvloop.run(self._main())
        except BaseException as error:  # noqa: BLE001 - handed to the thread that waits
            self._error = error
            self._ready.set()

    async def _main(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        async with self.server:
            self._ready.set()
            await self._stop.wait()

    def start(self) -> ThreadedServer:
        """Start the thread and wait until the server listens."""
        self._thread.start()
        self._ready.wait(30)
        if self._error is not None:
            raise RuntimeError("the playground server did not start") from self._error
        return self

    def stop(self) -> None:
        """Stop the server and its thread."""
        if self._loop is not None and self._stop is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)

    def call(self, work: Callable[[], T]) -> T:
        """Run a function in the server's loop (faults, cut_watches, direct reads) and return its result."""
        if self._loop is None:
            raise RuntimeError("the server has not started")

        async def wrapped() -> T:
            return work()

        return asyncio.run_coroutine_threadsafe(wrapped(), self._loop).result(30)

    @property
    def url(self) -> str:
        """Base URL."""
        return self.server.url

    def write_kubeconfig(self, path: str | Path) -> Path:
        """Write a kubeconfig and return its path."""
        return self.server.write_kubeconfig(path)

    def __enter__(self) -> ThreadedServer:
        return self if self._thread.ident is not None else self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()


def start_in_thread(**options: Any) -> ThreadedServer:
    """Start a server in a thread; takes the arguments of `PlaygroundServer`."""
    return ThreadedServer(PlaygroundServer(**options)).start()
