"""One resource, read completely and then followed: list, watch, and again, for as long as the process lives.

Decided here: how to list (pages, or the streaming list), where a watch resumes, when to list again (410 in both its
forms; several refusals in a row), and how long to wait after anything that went wrong. Must not know: what the objects
mean; `decode` says it. Invariants: every object that is in the API server reaches the sink or is named in
`bad_objects`; every one that left it is dropped, even when it left while nobody watched; an object that cannot be read
never stops the others and never takes away its previous version; and no answer of the server makes a hot loop.

A little over 500 lines, because list, watch and back-off share one state (version, known, seen) that is right only as a
whole.
"""

from __future__ import annotations

import asyncio
import gc
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import msgspec
import structlog

from scheduler.cluster.client import ApiClient, ApiError, RequestFailed
from scheduler.cluster.discovery import Resource
from scheduler.cluster.wire import (
    INITIAL_EVENTS_END,
    METADATA_LIST,
    METADATA_WATCH,
    Meta,
    decode_event,
    decode_failure,
    decode_page,
    head,
)

log = structlog.get_logger(__name__)

FIRST_DELAY, LAST_DELAY = 0.2, 15.0
"""Seconds of the exponential back-off, before jitter."""
CUT_DELAY = 1.0
"""Longest delay after a watch that was open and was cut, and before the list after a version that has expired."""
OUTAGE_DELAY = 5.0
"""Longest delay while nobody answers: asking costs such a server nothing, and work waits for its return."""
_LIST_REST = 30.0
HEALTHY = 5.0
"""A watch that lived this long ends the back-off; a shorter one counts as a failure, however politely it ended."""
SILENCE = 150.0
"""A watch that lived this long without an event or a bookmark is not believed. A server whose versions went back (it
was restored) says nothing to a client that asks for what comes after a version from its future."""
_MAX_RETRY_AFTER = 120.0
_REFUSALS_BEFORE_LIST = 3
_INITIAL_EVENTS_SILENCE = 20.0
_READ_SLACK = 30.0
_LIST_TIMEOUT = 60.0

_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError)

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)


class Sink(Protocol[T_contra]):
    """Where decoded objects go."""

    def put(self, value: T_contra) -> None:
        """An object appeared or changed."""

    def drop(self, uid: str) -> None:
        """The object with this uid is gone; it may be one that was never put."""


class _Expired(Exception):
    """The server no longer has what happened since our resource version."""


class _Broken(Exception):
    """A stream or list that cannot be believed from here on."""

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


_pauses = 0
_was_enabled = False


@contextmanager
def gc_paused() -> Iterator[None]:
    """Keep the garbage collector off while many objects that will stay are made; nests, also across tasks."""
    global _pauses, _was_enabled
    if _pauses == 0:
        _was_enabled = gc.isenabled()
        gc.disable()
    _pauses += 1
    try:
        yield
    finally:
        _pauses -= 1
        if _pauses == 0 and _was_enabled:
            gc.enable()


class Backoff:
    """Exponential, with jitter between half and the whole; `wait` honours what the server asked for."""

    def __init__(self, first: float, last: float, rng: random.Random) -> None:
        self._first = first
        self._last = last
        self._random = rng
        self.failures = 0

    def succeeded(self) -> None:
        """Forget the failures."""
        self.failures = 0

    def ease(self) -> None:
        """Forget most of the failures: they were another trouble's."""
        self.failures = min(self.failures, 2)

    def next(self, retry_after: float | None = None, at_most: float | None = None) -> float:
        """Count a failure and return the seconds to wait."""
        last = self._last if at_most is None else min(self._last, at_most)
        delay: float = min(last, self._first * 2 ** min(self.failures, 30)) * self._random.uniform(0.5, 1.0)
        self.failures += 1
        if retry_after is None:
            return delay
        return min(retry_after, _MAX_RETRY_AFTER) * self._random.uniform(1.0, 1.1) + delay


@dataclass(slots=True)
class Counters:
    """Of one reflector, for metrics."""

    lists: int = 0
    watches: int = 0
    events: int = 0
    failures: int = 0
    bad: int = 0


class Reflector(Generic[T]):
    """Follows one resource. `run` until cancelled; everything else may be read at any time.

    decode: raw JSON of one object -> value, or None for an object that is of no interest. It may raise anything.
    identify: value -> (uid, resource version), if the value carries them (saves a second look at the bytes).
    `synced` is set after the first complete list. `settled` is set then too, or as soon as the server has refused us
    (403, 404): nothing is to be waited for. `bad_objects`: (kind, "namespace/name") -> what is wrong with it.
    """

    def __init__(
        self,
        client: ApiClient,
        resource: Resource,
        decode: Callable[[msgspec.Raw], T | None],
        sink: Sink[T],
        *,
        identify: Callable[[T], tuple[str, str]] | None = None,
        namespace: str | None = None,
        field_selector: str | None = None,
        label_selector: str | None = None,
        page: int = 500,
        streaming: bool = False,
        metadata_only: bool = False,
        first_delay: float = FIRST_DELAY,
        last_delay: float = LAST_DELAY,
        healthy: float = HEALTHY,
        silence: float = SILENCE,
        watch_seconds: tuple[int, int] = (300, 600),
        seed: int | None = None,
    ) -> None:
        self.resource = resource
        self.synced = asyncio.Event()
        self.settled = asyncio.Event()
        self.bad_objects: dict[tuple[str, str], str] = {}
        self.counters = Counters()
        self.problem = ""
        self.watching = False
        self._client = client
        self._decode = decode
        self._sink = sink
        self._identify = identify
        self._path = resource.path(namespace)
        self._page = page
        self._streaming = streaming
        self._accept_list = METADATA_LIST if metadata_only else None
        self._accept_watch = METADATA_WATCH if metadata_only else None
        self._selectors = {
            key: value for key, value in (("fieldSelector", field_selector), ("labelSelector", label_selector)) if value
        }
        self._healthy = healthy
        self._silence = silence
        self._watch_seconds = watch_seconds
        self._random = random.Random(seed)
        self._backoff = Backoff(first_delay, last_delay, self._random)
        self._known: dict[str, str] = {}
        self._bad: dict[str, tuple[str, tuple[str, str]]] = {}
        self._rv: str | None = None
        self._seen: dict[str, None] | None = None
        self._refusals = 0
        self._whole_list = False
        self._anonymous: dict[tuple[str, str], int] = {}
        self._opened: float | None = None
        self._heard = False
        self._sign_of_life = time.monotonic()
        self._listed_at = float("-inf")
        self._unanswered = False

    # -- what others may ask --------------------------------------------------------------------------------------

    def __len__(self) -> int:
        """How many objects are known."""
        return len(self._known)

    def stale_for(self) -> float:
        """Seconds for which we have not been following; 0 while a watch is open."""
        return 0.0 if self.watching else time.monotonic() - self._sign_of_life

    def silent_for(self) -> float:
        """Seconds since the server last said anything; bookmarks make this small on a healthy connection."""
        return time.monotonic() - self._sign_of_life

    def clear(self) -> None:
        """Drop everything that is known, as when the resource itself is gone."""
        for uid in list(self._known):
            self._forget(uid)
        self.bad_objects.clear()
        self._bad.clear()
        self._anonymous.clear()
        self._rv = None

    def inherit(self, other: Reflector[T]) -> None:
        """Before `run`: take over what another version of the resource has shown; nothing disappears between."""
        self._known = dict.fromkeys(other._known, "")

    # -- the loop -------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """List and watch until cancelled."""
        while True:
            self._opened = None
            problem, retry_after, longest = "", None, None
            try:
                if self._rv is None and self._streaming:
                    await self._watch(initial=True)
                elif self._rv is None:
                    await self._list()
                    continue
                else:
                    await self._watch(initial=False)
            except _Expired as expired:
                problem = f"resource version expired: {expired}"
                self._rv = None
                self._answered()
                longest = CUT_DELAY if time.monotonic() - self._listed_at > _LIST_REST else None
            except (ApiError, _Broken) as error:
                problem, retry_after = str(error), error.retry_after
                self._answered()
                self._refused(error)
            except RequestFailed as error:
                problem, longest = str(error), OUTAGE_DELAY
                self._unanswered = True
            finally:
                self.watching = False
                self._seen = None
            self._note(problem)
            opened = self._opened
            if opened is not None and time.monotonic() - opened >= self._healthy:
                self._backoff.succeeded()
                if not self._heard and time.monotonic() - opened >= self._silence:
                    self._rv = None
                if retry_after is None:
                    continue
            # A stream that was open and is cut costs little to open again; being refused, or listing, costs a lot.
            gentle = opened is not None and self._rv is not None and retry_after is None
            await asyncio.sleep(self._backoff.next(retry_after, at_most=CUT_DELAY if gentle else longest))

    def _answered(self) -> None:
        """The server is there again, even if it refuses us: what it was silent for makes the next wait no longer."""
        if self._unanswered:
            self._unanswered = False
            self._backoff.ease()

    def _note(self, problem: str) -> None:
        if problem:
            self.counters.failures += 1
            if problem != self.problem:
                log.warning("cannot follow a resource; trying again", resource=str(self.resource), problem=problem)
        self.problem = problem

    def _refused(self, error: ApiError | _Broken) -> None:
        """After a refusal that is not an outage: fall back, settle, or list again when watching leads nowhere."""
        status = error.status if isinstance(error, ApiError) else 0
        if self._rv is None:
            if status in (400, 422) and self._streaming:
                log.info("no streaming list here; listing in pages", resource=str(self.resource))
                self._streaming = False
            if status in (403, 404):
                self.settled.set()
            return
        if status in (401, 429, 502, 503):
            return  # overload or outage: our version is as good as before, and a list would make it worse
        self._refusals += 1
        if self._refusals >= _REFUSALS_BEFORE_LIST:
            self._rv = None

    # -- list -----------------------------------------------------------------------------------------------------

    async def _list(self) -> None:
        self.counters.lists += 1
        params: dict[str, str | int] = {**self._selectors}
        if not self._whole_list:
            params["limit"] = self._page
        seen: dict[str, None] = {}
        fresh = not self._known
        with gc_paused():
            while True:
                try:
                    body = await self._client.request(
                        "GET", self._path, params=params, accept=self._accept_list, timeout=_LIST_TIMEOUT, retries=0
                    )
                    page = decode_page(body)
                except ApiError as error:
                    if error.status == 410:  # the rest of the pages is gone; next time all at once
                        self._whole_list = True
                        raise _Expired(error.message or "while listing") from error
                    raise
                except _UNREADABLE as error:
                    raise _Broken(f"a list that is not one: {error}") from error
                self._sign_of_life = time.monotonic()
                for raw in page.items or ():
                    uid = self._take(raw, fresh=fresh)
                    if uid:
                        seen[uid] = None
                if not page.metadata.continue_:
                    break
                params["continue"] = page.metadata.continue_
        self._whole_list = False
        self._finish(seen, page.metadata.resource_version)

    def _finish(self, seen: dict[str, None], resource_version: str) -> None:
        """After a complete list: drop what is no longer there."""
        for uid in [uid for uid in self._known if uid not in seen]:
            self._forget(uid)
        for uid in [uid for uid in self._bad if uid not in seen]:
            self._heal(uid)
        for key in [key for key, number in self._anonymous.items() if number != self.counters.lists]:
            del self._anonymous[key]
            self.bad_objects.pop(key, None)
        self._rv = resource_version
        self._listed_at = time.monotonic()
        self._refusals = 0
        self.problem = ""
        if not self.synced.is_set():
            log.info("listed", resource=str(self.resource), objects=len(self._known), bad=len(self.bad_objects))
        self.synced.set()
        self.settled.set()

    # -- watch ----------------------------------------------------------------------------------------------------

    async def _watch(self, *, initial: bool) -> None:
        self.counters.watches += 1
        seconds = self._random.randint(*self._watch_seconds)
        params: dict[str, str | int] = {
            **self._selectors,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": seconds,
        }
        if initial:
            params |= {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
            self._seen = {}
            self.counters.lists += 1
        else:
            params["resourceVersion"] = self._rv or ""
        batches = self._client.stream_batches(
            self._path, params, read_timeout=seconds + _READ_SLACK, accept=self._accept_watch
        )
        self._heard = False
        try:
            while True:
                try:
                    # A server too old for the streaming list sends the objects but never says that these were all.
                    limit = _INITIAL_EVENTS_SILENCE if self._seen is not None else None
                    async with asyncio.timeout(limit):
                        lines = await anext(batches)
                except StopAsyncIteration:
                    return
                except TimeoutError:
                    self._streaming = False
                    raise _Broken("the streaming list did not end; listing in pages from now on") from None
                self._sign_of_life = time.monotonic()
                if self._opened is None:
                    self._opened = self._sign_of_life
                self.watching = self._seen is None
                self._heard = self._heard or bool(lines)
                for line in lines:
                    self._event(line)
        except ApiError as error:
            if error.status == 410:
                raise _Expired(error.message) from error
            raise
        finally:
            await batches.aclose()  # type: ignore[attr-defined]  # an async generator

    def _event(self, line: bytes) -> None:
        try:
            event = decode_event(line)
        except _UNREADABLE as error:
            raise _Broken(f"a watch event that is not one: {error}") from error
        if event.type in ("ADDED", "MODIFIED"):
            self._refusals = 0
            self.counters.events += 1
            fresh = self._seen is None or not self.synced.is_set()
            uid = self._take(event.object, fresh=fresh, following=True)
            if uid and self._seen is not None:
                self._seen[uid] = None
        elif event.type == "DELETED":
            self._refusals = 0
            self.counters.events += 1
            self._deleted(event.object)
        elif event.type == "BOOKMARK":
            self._bookmark(event.object)
        elif event.type == "ERROR":
            self._server_error(event.object)
        else:
            raise _Broken(f"a watch event of type {event.type!r}")

    def _deleted(self, raw: msgspec.Raw) -> None:
        try:
            meta = head(raw)
        except _UNREADABLE as error:
            # Without a uid we cannot say what is gone; the list can.
            self._rv = None
            raise _Broken(f"a deletion that names nothing: {error}") from error
        self._advance(meta.resource_version)
        self._forget(meta.uid)

    def _bookmark(self, raw: msgspec.Raw) -> None:
        try:
            meta = head(raw)
        except _UNREADABLE as error:
            raise _Broken(f"a bookmark that is not one: {error}") from error
        self._refusals = 0
        if self._seen is None:
            if _is_before(meta.resource_version, self._rv or ""):
                raise _Expired(f"the server's version is {meta.resource_version}, ours {self._rv}")
            self._advance(meta.resource_version)
        elif (meta.annotations or {}).get(INITIAL_EVENTS_END) == "true":
            self._finish(self._seen, meta.resource_version)
            self._seen = None
            self.watching = True

    def _server_error(self, raw: msgspec.Raw) -> None:
        try:
            failure = decode_failure(raw)
        except _UNREADABLE as error:
            raise _Broken(f"an error event that is not one: {error}") from error
        text = failure.message or failure.reason or "error event"
        if failure.code == 410 or failure.reason in ("Expired", "Gone"):
            raise _Expired(text)
        raise _Broken(text, failure.details.retry_after_seconds if failure.details is not None else None)

    def _advance(self, resource_version: str) -> None:
        # While the initial events run, their versions are no point to resume from: they come in no order.
        if resource_version and self._seen is None:
            self._rv = resource_version

    # -- one object -----------------------------------------------------------------------------------------------

    def _take(self, raw: msgspec.Raw, *, fresh: bool, following: bool = False) -> str:
        """Decode one object and pass it on; return its uid ("" when even that cannot be read).

        fresh: it cannot be one that we have in this version already, so do not look.
        """
        if not fresh:
            meta = self._head(raw)
            if meta is not None and meta.uid and self._known.get(meta.uid, "") == meta.resource_version != "":
                return meta.uid
        try:
            value = self._decode(raw)
            if value is None or self._identify is None:
                meta = head(raw)
                uid, version = meta.uid, meta.resource_version
            else:
                uid, version = self._identify(value)
            if not uid:
                raise ValueError("metadata.uid is missing")
        except Exception as error:  # noqa: BLE001  the fence: whatever an object does to its decoder stays with the object
            return self._bad_object(raw, error, following=following)
        if uid in self._bad:
            self._heal(uid)
        self._known[uid] = version
        if following:
            self._advance(version)
        if value is None:
            self._sink.drop(uid)
        else:
            self._sink.put(value)
        return uid

    @staticmethod
    def _head(raw: msgspec.Raw) -> Meta | None:
        try:
            return head(raw)
        except _UNREADABLE:
            return None

    def _bad_object(self, raw: msgspec.Raw, error: Exception, *, following: bool) -> str:
        """Note an object that cannot be read. Its previous version, if there is one, stays where it is."""
        meta = self._head(raw) or Meta()
        where = f"{meta.namespace}/{meta.name}" if meta.namespace else meta.name
        key = (self.resource.kind, where or "(unreadable metadata)")
        message = str(error) or type(error).__name__
        known = self._bad.get(meta.uid)
        if known is None or known[0] != meta.resource_version or not meta.uid:
            self.counters.bad += 1
            log.warning("an object cannot be read and is left out", kind=key[0], object=key[1], problem=message)
        self.bad_objects[key] = message
        if meta.uid:
            self._bad[meta.uid] = (meta.resource_version, key)
            # Known, so that its deletion is delivered; in no version, so that the next list looks at it again.
            self._known[meta.uid] = ""
        else:
            self._anonymous[key] = self.counters.lists
        if following:
            self._advance(meta.resource_version)
        return meta.uid

    def _heal(self, uid: str) -> None:
        _, key = self._bad.pop(uid)
        if all(other != key for _, other in self._bad.values()):  # one of the same name may have followed it
            self.bad_objects.pop(key, None)

    def _forget(self, uid: str) -> None:
        if uid in self._bad:
            self._heal(uid)
        self._known.pop(uid, None)
        self._sink.drop(uid)


def _is_before(version: str, other: str) -> bool:
    """Whether a version is an earlier one; False where that cannot be told."""
    return version.isdecimal() and other.isdecimal() and int(version) < int(other)


def settle_gc() -> None:
    """After the first complete lists: what lives now lives long and is never walked again, and the rest rarely."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
