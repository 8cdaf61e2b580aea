"""The BindRequest objects themselves: adopted, reported once, kept for a short history, deleted.

Decided here: how long a write about a request is tried (until it succeeds or the object is gone: nothing else would end
the assumptions that hang on it) and which finished requests are kept. Must not know: pods.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

import structlog

from scheduler.binder.adopting import adopt
from scheduler.binder.pool import Alarms, LeaseLost
from scheduler.binder.ports import Cache, Elector, Meter, Observer, Requests
from scheduler.cluster.client import ApiError, RequestFailed
from scheduler.model.bindrequest import BindRequest, GangOutcome

log = structlog.get_logger(__name__)

_FIRST_WAIT, _LAST_WAIT = 0.2, 5.0
SWEEP_PERIOD = 600.0
"""Seconds between searches for parts without a header."""


class _Settings(Protocol):
    @property
    def history(self) -> float: ...

    @property
    def keep(self) -> int: ...


class Desk:
    """See the module."""

    def __init__(
        self,
        requests: Requests,
        cache: Cache,
        elector: Elector,
        alarms: Alarms,
        clock: Callable[[], float],
        spawn: Callable[[Coroutine[Any, Any, None]], None],
        observer: Observer,
        meter: Meter,
        settings: _Settings,
    ) -> None:
        self._requests = requests
        self._cache = cache
        self._elector = elector
        self._alarms = alarms
        self._clock = clock
        self._spawn = spawn
        self._observer = observer
        self._meter = meter
        self._settings = settings
        self._past: dict[str, BindRequest] = {}
        self._order: deque[str] = deque()

    def start(self) -> None:
        """Begin to look for parts without a header."""
        self._spawn(self._sweep())

    def is_new(self, request: BindRequest) -> bool:
        """Whether there is work to do; a finished request goes to the history."""
        known = self._past.get(request.uid)
        if known is not None:
            self._past[request.uid] = request
            return False
        if request.open:
            return True
        self._keep(request)
        return False

    def report(self, request: BindRequest, phase: str, outcomes: tuple[GangOutcome, ...]) -> None:
        """Write how it ended; then it is history."""
        self._past[request.uid] = request
        self._spawn(self._report(request, phase, outcomes))

    async def note(self, request: BindRequest, outcomes: tuple[GangOutcome, ...]) -> bool:
        """Write how far an open request has come, once; the caller may try again from what is known then."""
        self._guard()
        try:
            await self._requests.note(request, outcomes)
        except RequestFailed as error:
            log.info("binder.note", request=request.name, error=str(error))
            return False
        return True

    def gone(self, name: str) -> None:
        """The object of this name does not exist any more."""
        for uid in [uid for uid, request in self._past.items() if request.name == name]:
            del self._past[uid]

    async def adopt(self, request: BindRequest) -> bool:
        """Write our epoch into a request of an older one; False when it is gone or was taken by somebody else."""
        taken = await adopt(self._requests, self._cache, request, self._elector.epoch, self._guard)
        if isinstance(taken, BindRequest):
            self._keep(taken)
        return taken is True

    async def _report(self, request: BindRequest, phase: str, outcomes: tuple[GangOutcome, ...]) -> None:
        self._observer("before-status", request)
        if await self._write(request, "report", lambda: self._requests.report(request, phase, outcomes)):
            self._observer("after-status", request)
        self._keep(request)

    async def _write(self, request: BindRequest, what: str, send: Callable[[], Coroutine[Any, Any, None]]) -> bool:
        """Send until it succeeds; False when the object is gone or the server will never take it."""
        wait = _FIRST_WAIT
        while True:
            self._guard()
            pause = wait
            try:
                await send()
                return True
            except ApiError as error:
                if error.status == 404:
                    return False
                latest = self._cache.bind_request(request.name)
                if error.status == 409 and (latest is None or latest.uid != request.uid):
                    return False
                if error.status in (400, 413, 422):
                    log.error(f"binder.{what}", request=request.name, error=str(error))
                    self._meter.count("bind_request_write_failures", what=what)
                    return False
                pause = max(wait, error.retry_after or 0.0)
                log.warning(f"binder.{what}", request=request.name, error=str(error))
            except RequestFailed as error:
                log.warning(f"binder.{what}", request=request.name, error=str(error))
            self._meter.count("bind_request_write_failures", what=what)
            await asyncio.sleep(pause)
            wait = min(_LAST_WAIT, wait * 2)

    def _keep(self, request: BindRequest) -> None:
        self._past[request.uid] = request
        self._order.append(request.uid)
        self._alarms.at(self._clock() + self._settings.history, lambda: self._forget(request.uid))
        while len(self._order) > self._settings.keep:
            self._forget(self._order[0])

    def _forget(self, uid: str) -> None:
        if uid not in self._order:
            return
        self._order.remove(uid)
        request = self._past.get(uid)
        if request is not None:
            self._spawn(self._delete(request))

    async def _delete(self, request: BindRequest) -> None:
        self._observer("before-forget", request)
        await self._write(request, "forget", lambda: self._requests.delete(request))

    async def _sweep(self) -> None:
        while True:
            self._guard()
            try:
                count = await self._requests.sweep()
                if count:
                    log.info("binder.swept", parts=count)
            except RequestFailed as error:
                log.warning("binder.sweep", error=str(error))
            await asyncio.sleep(SWEEP_PERIOD)

    def _guard(self) -> None:
        if not self._elector.may_write():
            raise LeaseLost("the lease is not held: the binder stops writing")
