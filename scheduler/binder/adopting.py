"""A new leader takes over the requests that it found: its epoch goes into them.

Decided here: how long that is tried, and when it has become pointless. Whoever binds does it for itself; a scheduler
whose binder is another process does it for that one, which begins no request of an older leader.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Protocol

import structlog

from scheduler.cluster.client import ApiError, RequestFailed
from scheduler.model.bindrequest import BindRequest

log = structlog.get_logger(__name__)

_FIRST_WAIT, _LAST_WAIT = 0.2, 5.0
_AT_ONCE = 8


class Requests(Protocol):
    """The objects."""

    async def adopt(self, request: BindRequest, epoch: int) -> None:
        """Write the epoch, provided that the object still has the version that was read. Raises `RequestFailed`."""


class Cache(Protocol):
    """The picture of the cluster."""

    def bind_request(self, name: str) -> BindRequest | None:
        """Return the request of this name, or None."""


async def adopt(
    requests: Requests, cache: Cache, request: BindRequest, epoch: int, guard: Callable[[], None]
) -> bool | BindRequest:
    """Write our epoch into a request of an older one. guard: raises when we may not write any more.

    False when it is gone or was taken by somebody newer; the request as it is now when it has ended meanwhile.
    """
    wait = _FIRST_WAIT
    while True:
        guard()
        try:
            await requests.adopt(request, epoch)
            return True
        except ApiError as error:
            if error.status == 404:
                return False
            log.warning("binder.adopt", request=request.name, error=str(error))
        except RequestFailed as error:
            log.warning("binder.adopt", request=request.name, error=str(error))
        await asyncio.sleep(wait)
        wait = min(_LAST_WAIT, wait * 2)
        latest = cache.bind_request(request.name)
        if latest is None or latest.uid != request.uid or latest.epoch > epoch:
            return False
        if not latest.open:  # the old leader, or the binder, reported it
            return latest
        if latest.epoch == epoch:
            return True
        request = latest


async def adopt_all(
    requests: Requests, cache: Cache, found: Iterable[BindRequest], epoch: int, guard: Callable[[], None]
) -> int:
    """Take over what is open of older leaders, for a binder that is another process; return how many were taken."""
    older = [request for request in found if request.open and request.epoch < epoch]
    count = 0
    for start in range(0, len(older), _AT_ONCE):
        some = older[start : start + _AT_ONCE]
        taken = await asyncio.gather(*(adopt(requests, cache, request, epoch, guard) for request in some))
        count += sum(one is True for one in taken)
    if older:
        log.info("bind_requests_adopted", found=len(older), taken=count, epoch=epoch)
    return count
