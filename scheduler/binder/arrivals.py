"""Requests of a scheduler that is another process: when they may be begun, and which are refused.

Decided here: a request is begun once the lease of the scheduler, read after the request was seen, still has its epoch:
whoever leads next has the request in its picture then. One of an older epoch waits to be taken over by the leader of
now, who writes its epoch into those that it found (`adopting`); one that is not was written by a leader that had lost
its lease, and is refused. Must not know: gangs. Invariant: no request is begun on the word of a lease that was read
before the request was seen.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass

import structlog

from scheduler.binder.fence import Fencing
from scheduler.cluster.client import RequestFailed
from scheduler.model.bindrequest import BindRequest

log = structlog.get_logger(__name__)

PATIENCE = 30.0
"""Seconds in which a new leader takes over the requests that it found."""
_AGAIN = 0.5
_ODD = 5.0
"""Seconds after which a request is odd that is newer than the lease: somebody decides here who holds another one."""

Epoch = Callable[[], Awaitable[int]]
"""Reads the epoch of whoever decides now. Raises `RequestFailed` or ValueError when it cannot be read."""


@dataclass(slots=True)
class _Waiting:
    """A request that is not begun. half: it may be half bound. since: when its first version was seen. told: that it
    is odd."""

    request: BindRequest
    half: bool
    since: float
    told: bool = False


class Arrivals:
    """See the module. begin: takes the request, what to do with it, and whether it may be half bound already."""

    def __init__(
        self, epoch: Epoch, begin: Callable[[BindRequest, Fencing, bool], None], clock: Callable[[], float]
    ) -> None:
        self._epoch, self._begin, self._clock = epoch, begin, clock
        self._waiting: dict[str, _Waiting] = {}
        self._wake = asyncio.Event()

    def came(self, request: BindRequest, *, found: bool) -> None:
        """A request appeared or changed. found: it was there when the binder began."""
        known = self._waiting.get(request.name)
        if known is not None and known.request.uid == request.uid:
            known.half = known.half or found or known.request.epoch != request.epoch
            known.request = request
        else:
            self._waiting[request.name] = _Waiting(request, found, self._clock())
        self._wake.set()

    def gone(self, name: str) -> None:
        """A request is gone."""
        self._waiting.pop(name, None)

    async def run(self) -> None:
        """Judge what comes until cancelled; whatever `epoch` raises beside failed requests ends it."""
        problem = ""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(_AGAIN if self._waiting else None):
                    await self._wake.wait()
            self._wake.clear()
            waiting = dict(self._waiting)
            try:
                epoch = await self._epoch()
            except (RequestFailed, ValueError) as error:
                if str(error) != problem:
                    log.warning("binder.epoch-unknown", problem=str(error))
                problem = str(error)
                await asyncio.sleep(_AGAIN)
                self._wake.set()
                continue
            problem = ""
            for name, one in waiting.items():
                if self._waiting.get(name) is one:
                    self._judge(name, one, epoch)

    def _judge(self, name: str, one: _Waiting, epoch: int) -> None:
        written = one.request.epoch
        if written == epoch:
            fencing = Fencing.PROCEED
        elif written < epoch and self._clock() - one.since >= PATIENCE:
            fencing = Fencing.REFUSE
        else:
            if written > epoch and not one.told and self._clock() - one.since >= _ODD:
                one.told = True
                log.warning("binder.newer-epoch", request=name, epoch=written, deciding=epoch)
            return
        del self._waiting[name]
        self._begin(one.request, fencing, one.half)
