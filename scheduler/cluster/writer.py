"""Everything that is written to the API server except bindings and the lease, in the order of its worth.

Decided here: which write goes first (bind requests, one status a group, conditions of pods, events), how many of each
are in flight, what is written again after a failure, and which events are not written at all. Must not know what a
write says. Invariants: the fence is asked right before each attempt; of several writes under one key only the latest
is made, and never two at once; nothing is written that was just written. What was offered together, as the conditions
of a gang's members are, is written together: the one that has to be repeated or waited for its turn goes before what
was offered later.

A write builds its request at the last moment, from what is known then, and builds none when there is nothing left to
say. While more urgent work is waiting (`pressed`), the lesser kinds go on one by one.

A little over 500 lines, because queueing, retrying and the commit of bind requests share one count of what flies.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import Any, Protocol

import structlog

from scheduler.cluster import bindrequests
from scheduler.cluster.client import JSON, ApiError, OutcomeUnknown, Params, RequestFailed, Unreachable, path_of

log = structlog.get_logger(__name__)

ECHO = 10.0
"""Seconds in which our own writes come back by the watch; until then memory is believed, not the cache."""

_FIRST_WAIT = 0.2
_LAST_WAIT = 10.0
_CONFLICTS = 5
_PARTS_AT_ONCE = 4
_STRICT = {"fieldValidation": "Strict"}


class Worth(IntEnum):
    """What goes first."""

    REQUEST = 0
    STATUS = 1
    CONDITION = 2
    EVENT = 3


class Result(StrEnum):
    """How a write ended; the label of its metric."""

    DONE = "done"
    UNCHANGED = "unchanged"
    REPLACED = "replaced"
    GONE = "gone"
    REFUSED = "refused"
    GAVE_UP = "gave_up"
    FENCED = "fenced"


AT_ONCE: Mapping[Worth, int] = {Worth.REQUEST: 8, Worth.STATUS: 16, Worth.CONDITION: 16, Worth.EVENT: 4}
WHEN_PRESSED: Mapping[Worth, int] = {Worth.REQUEST: 8, Worth.STATUS: 4, Worth.CONDITION: 1, Worth.EVENT: 1}
PATIENCE: Mapping[Worth, float] = {Worth.STATUS: 300.0, Worth.CONDITION: 300.0, Worth.EVENT: 5.0}
"""Seconds for which a write that fails for passing reasons is tried again."""


class Api(Protocol):
    """The API server."""

    async def request(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        params: Params | None = None,
        content_type: str = JSON,
        timeout: float = 15.0,
    ) -> bytes:
        """Send one request. Raises `RequestFailed`."""


class Meter(Protocol):
    """Counters and durations."""

    def count(self, name: str, amount: float = 1.0, **labels: str) -> None:
        """Add to a counter."""

    def seconds(self, name: str, value: float, **labels: str) -> None:
        """Note a duration."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request, ready to be sent."""

    path: str
    body: Any


@dataclass(frozen=True, slots=True)
class Write:
    """Something to say about one object.

    key: what it is said about; content: what is said, for comparison. build: the request, or None when the object says
    so already or nobody should say it any more.
    """

    worth: Worth
    key: Hashable
    content: Hashable
    method: str
    content_type: str
    build: Callable[[], Request | None]


@dataclass(slots=True)
class _Entry:
    write: Write
    since: float
    attempts: int = 0
    conflicts: int = 0


class NotCommitted(Exception):
    """A bind request could not be written. `taken`: another object has its name. The message is the cause."""

    def __init__(self, cause: str, *, taken: bool = False) -> None:
        super().__init__(cause)
        self.taken = taken


@dataclass(slots=True)
class _Bucket:
    """A token bucket for events."""

    rate: float
    burst: float
    tokens: float
    last: float

    def wait(self, now: float) -> float:
        """Take a token and return 0, or return the seconds until there is one."""
        self.tokens = min(self.burst, self.tokens + (now - self.last) * self.rate)
        self.last = now
        if self.tokens >= 1:
            self.tokens -= 1
            return 0.0
        return (1 - self.tokens) / self.rate


@dataclass(slots=True)
class _Lane:
    """The writes of one worth: `queue` may start, in order; `flying` is how many are in flight."""

    queue: deque[_Entry] = field(default_factory=deque)
    flying: int = 0


class Writer:
    """See the module. Used from the event loop only; `close` ends it."""

    def __init__(
        self,
        api: Api,
        may_write: Callable[[], bool],
        meter: Meter,
        *,
        pressed: Callable[[], bool] = lambda: False,
        at_once: Mapping[Worth, int] = AT_ONCE,
        when_pressed: Mapping[Worth, int] = WHEN_PRESSED,
        patience: Mapping[Worth, float] = PATIENCE,
        event_rate: float = 50.0,
        event_burst: int = 100,
        event_queue: int = 1000,
        clock: Callable[[], float] = time.monotonic,
        seed: int | None = None,
    ) -> None:
        self._api = api
        self._may_write = may_write
        self._meter = meter
        self._pressed = pressed
        self._at_once = at_once
        self._when_pressed = when_pressed
        self._patience = patience
        self._event_queue = event_queue
        self._clock = clock
        self._random = random.Random(seed)
        self._bucket = _Bucket(event_rate, event_burst, event_burst, clock())
        self._lanes = {worth: _Lane() for worth in Worth}
        self._queued: dict[Hashable, _Entry] = {}
        self._flying: dict[Hashable, _Entry] = {}
        self._next: dict[Hashable, Write] = {}
        self._written: OrderedDict[Hashable, tuple[Hashable, float]] = OrderedDict()
        self._commits = asyncio.Semaphore(at_once[Worth.REQUEST])
        self._tasks: set[asyncio.Task[None]] = set()
        self._timers: set[asyncio.TimerHandle] = set()
        self._pump_timer: asyncio.TimerHandle | None = None
        self._complained: dict[tuple[str, int, str], float] = {}
        self._quiet = asyncio.Event()
        self._quiet.set()
        self._closed = False

    # -- what callers do ------------------------------------------------------------------------------------------

    def offer(self, write: Write) -> None:
        """Queue a write; it replaces an older one of its key, and is dropped when it says what is said already."""
        key = write.key
        if self._closed:
            self._count(write, Result.FENCED)
        elif key in self._flying:
            self._follow(write)
        elif key in self._queued:
            entry = self._queued[key]
            if entry.write.content == write.content:
                self._count(write, Result.UNCHANGED)
                return
            self._count(entry.write, Result.REPLACED)
            entry.write = write
        elif self._recent(key) == write.content:
            self._count(write, Result.UNCHANGED)
        else:
            self._queue(_Entry(write, self._clock()))

    def takes_event(self, *, redundant: bool = False) -> bool:
        """Whether one more event may be offered; asked first, because most are dropped when there are many.

        A redundant one (its group's event says the same) is dropped as soon as there is a load.
        """
        if len(self._lanes[Worth.EVENT].queue) >= self._event_queue:
            self._meter.count("events_dropped", cause="queue_full")
            return False
        if redundant and self._pressed():
            self._meter.count("events_dropped", cause="redundant")
            return False
        return True

    def forget(self, key: Hashable) -> None:
        """Note that the object of this key is gone: what waits for it is not written."""
        self._written.pop(key, None)
        self._next.pop(key, None)

    def backlog(self) -> dict[str, int]:
        """Writes that are waiting or in flight, by worth."""
        counts = dict.fromkeys(Worth, 0)
        for entries in (self._queued, self._flying):
            for entry in entries.values():
                counts[entry.write.worth] += 1
        counts[Worth.REQUEST] = self._lanes[Worth.REQUEST].flying
        return {worth.name.lower(): count for worth, count in counts.items()}

    async def idle(self) -> None:
        """Wait until nothing is waiting or in flight."""
        await self._quiet.wait()

    async def close(self) -> None:
        """Write nothing more; what is in flight is abandoned."""
        self._closed = True
        for timer in self._timers:
            timer.cancel()
        if self._pump_timer is not None:
            self._pump_timer.cancel()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._queued.clear()
        self._next.clear()
        self._quiet.set()

    # -- the queue ------------------------------------------------------------------------------------------------

    def _recent(self, key: Hashable) -> Hashable | None:
        """What was written under this key so recently that the watch may not have shown it yet."""
        written = self._written.get(key)
        if written is None or self._clock() - written[1] > ECHO:
            return None
        return written[0]

    def _follow(self, write: Write) -> None:
        """A write for a key whose last one is in flight: it goes after that, if it says something else."""
        before = self._next.pop(write.key, None)
        if before is not None:
            self._count(before, Result.REPLACED)
        if self._flying[write.key].write.content == write.content:
            self._count(write, Result.UNCHANGED)
        else:
            self._next[write.key] = write

    def _queue(self, entry: _Entry, *, first: bool = False) -> None:
        self._quiet.clear()
        self._queued[entry.write.key] = entry
        queue = self._lanes[entry.write.worth].queue
        (queue.appendleft if first else queue.append)(entry)
        self._pump()

    def _pump(self) -> None:
        """Start what may be started, the worthiest first."""
        if self._closed:
            return
        limits = self._when_pressed if self._pressed() else self._at_once
        for worth, lane in self._lanes.items():
            while lane.queue and lane.flying < limits[worth]:
                if worth is Worth.EVENT and not self._event_allowed():
                    return
                entry = lane.queue.popleft()
                del self._queued[entry.write.key]
                self._flying[entry.write.key] = entry
                lane.flying += 1
                task = asyncio.get_running_loop().create_task(self._fly(entry))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    def _event_allowed(self) -> bool:
        wait = self._bucket.wait(self._clock())
        if wait > 0 and self._pump_timer is None:

            def again() -> None:
                self._pump_timer = None
                self._pump()

            self._pump_timer = asyncio.get_running_loop().call_later(wait, again)
        return wait == 0

    async def _fly(self, entry: _Entry) -> None:
        write = entry.write
        delay: float | None = None
        result = Result.REFUSED
        try:
            result, delay = await self._attempt(entry)
        finally:
            self._lanes[write.worth].flying -= 1
            del self._flying[write.key]
            following = self._next.pop(write.key, None)
            if following is not None:
                if delay is not None:
                    result = Result.REPLACED
                self._queue(_Entry(following, self._clock()), first=True)
            elif delay is not None:
                self._later(entry, delay)
            if delay is None or following is not None:
                self._count(write, result)
            self._pump()
            if not self._queued and not self._flying:
                self._quiet.set()

    def _later(self, entry: _Entry, delay: float) -> None:
        """Queue a write again after a while, unless a newer one of its key has been queued until then."""
        if self._closed:
            return
        loop = asyncio.get_running_loop()
        self._queued[entry.write.key] = entry  # not in its lane yet: it waits, and can be replaced while it does

        def due() -> None:
            self._timers.discard(timer)
            self._lanes[entry.write.worth].queue.appendleft(entry)
            self._pump()

        timer = loop.call_later(delay, due)
        self._timers.add(timer)

    # -- one attempt ----------------------------------------------------------------------------------------------

    async def _attempt(self, entry: _Entry) -> tuple[Result, float | None]:
        """Make one attempt; return its result, and the seconds to wait where there is to be another."""
        write = entry.write
        entry.attempts += 1
        if not self._may_write():
            return Result.FENCED, None
        try:
            request = write.build()
        except Exception:  # the fence: one object that cannot be put into words stops no other
            log.exception("write_not_built", kind=write.worth.name.lower(), key=str(write.key))
            return Result.REFUSED, None
        if request is None:
            # The cache says that there is nothing to do, but it may not have seen our last, different, write yet.
            recent = self._recent(write.key)
            stale = recent is not None and recent != write.content
            return Result.UNCHANGED, 0.5 if stale else None
        try:
            await self._api.request(write.method, request.path, body=request.body, content_type=write.content_type)
        except RequestFailed as error:
            return self._failed(entry, error)
        self._remember(write)
        return Result.DONE, None

    def _failed(self, entry: _Entry, error: RequestFailed) -> tuple[Result, float | None]:
        """Decide what an error means."""
        write = entry.write
        self._written.pop(write.key, None)
        if isinstance(error, ApiError):
            if error.status == 409 and error.reason == "AlreadyExists":
                return Result.DONE, None  # our own POST, whose answer was lost
            if error.status == 409 and entry.conflicts < _CONFLICTS:
                entry.conflicts += 1
                return Result.REFUSED, self._wait(entry.conflicts, None) / 4  # the watch is only a moment behind
            if error.status == 404:
                return Result.GONE, None
            if not passing(error):
                self._complain(write, error)
                return Result.REFUSED, None
        if self._clock() - entry.since > self._patience[write.worth]:
            log.warning("write_given_up", kind=write.worth.name.lower(), key=str(write.key), error=str(error))
            return Result.GAVE_UP, None
        return Result.GAVE_UP, self._wait(entry.attempts, error)

    def _wait(self, attempts: int, error: RequestFailed | None) -> float:
        wait = min(_LAST_WAIT, _FIRST_WAIT * float(2 ** (min(attempts, 10) - 1))) * (0.5 + self._random.random())
        asked = error.retry_after if isinstance(error, ApiError) else None
        return max(wait, asked or 0.0)

    def _remember(self, write: Write) -> None:
        now = self._clock()
        if write.worth is not Worth.EVENT:
            self._written[write.key] = (write.content, now)
            self._written.move_to_end(write.key)
        while self._written and now - next(iter(self._written.values()))[1] > ECHO:
            self._written.popitem(last=False)

    def _complain(self, write: Write, error: ApiError) -> None:
        """Log a refusal, one a minute for each kind of it."""
        kind = (write.worth.name.lower(), error.status, error.reason)
        now = self._clock()
        if now - self._complained.get(kind, float("-inf")) >= 60:
            self._complained[kind] = now
            log.error("write_refused", kind=kind[0], key=str(write.key), error=str(error))

    def _count(self, write: Write, result: Result) -> None:
        self._meter.count("writes", kind=write.worth.name.lower(), result=result.value)

    # -- bind requests --------------------------------------------------------------------------------------------

    async def commit(self, bundle: bindrequests.Bundle, namespace: str, until: float, unless_doubt: float) -> None:
        """Write a bind request: its parts, then its header.

        Returns when it is there. Raises `NotCommitted` when it is certain that it is not and will not be: refused by
        the server, or not sent until `unless_doubt` (by our clock). After an attempt whose outcome is unknown it is
        tried and read until `until`, from when on a binder would not perform it any more.
        """
        began = self._clock()
        path = path_of(bindrequests.GROUP, bindrequests.VERSION, bindrequests.PLURAL, namespace)
        async with self._commits:
            self._lanes[Worth.REQUEST].flying += 1
            result = Result.REFUSED
            try:
                for start in range(0, len(bundle.parts), _PARTS_AT_ONCE):
                    parts = bundle.parts[start : start + _PARTS_AT_ONCE]
                    # A part without a header is nothing: whether it was written need not be known for certain.
                    await _all(self._create(path, part, unless_doubt, unless_doubt) for part in parts)
                await self._create(path, bundle.header, until, unless_doubt)
                result = Result.DONE
            finally:
                self._lanes[Worth.REQUEST].flying -= 1
                self._meter.count("writes", kind="request", result=result.value)
        self._meter.seconds("handover_seconds", self._clock() - began)

    async def _create(self, path: str, document: bindrequests.Document, until: float, unless_doubt: float) -> None:
        """Create one object, and see to it that we know whether it is there.

        With strict fields: where the definition is of an older release, half of a request (its victims, its volumes)
        would be dropped without a word, and the rest performed.
        """
        doubt = False
        attempts = 0
        while True:
            if not self._may_write():
                raise NotCommitted("the lease is lost")
            attempts += 1
            error: RequestFailed
            try:
                if not (doubt and await self._is_there(path, document)):
                    await self._api.request("POST", path, body=document.body, params=_STRICT)
                return
            except (OutcomeUnknown, Unreachable) as failure:
                doubt = doubt or isinstance(failure, OutcomeUnknown)
                error = failure
            except ApiError as failure:
                if failure.status == 409 and failure.reason == "AlreadyExists":
                    doubt = True  # ours or not: the next round reads it
                    continue
                if not passing(failure):
                    raise NotCommitted(f"{document.name}: {failure}") from failure
                doubt = doubt or failure.ambiguous
                error = failure
            now = self._clock()
            end = until if doubt else unless_doubt
            if now >= end:
                raise NotCommitted(f"{document.name}: {error}") from error
            await asyncio.sleep(min(self._wait(attempts, error), max(0.0, end - now)))

    async def _is_there(self, path: str, document: bindrequests.Document) -> bool:
        """Whether the object exists as we meant it. Raises `NotCommitted` when another has its name."""
        try:
            found = await self._api.request("GET", f"{path}/{document.name}")
        except ApiError as error:
            if error.status == 404:
                return False
            raise
        if bindrequests.same_spec(document.body, found):
            return True
        raise NotCommitted(f"{document.name}: another object has this name", taken=True)


def passing(error: ApiError) -> bool:
    """Whether the same request may succeed later: the server is busy, or was not itself."""
    return error.status in (408, 429) or error.status >= 500


async def _all(coroutines: Any) -> None:
    """Await several; the first failure is raised after all have ended."""
    results = await asyncio.gather(*coroutines, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
