"""The status of queues, written: which of what a session says about a queue becomes a write, and when.

Decided here: at most one write in a few seconds a queue, unless its state or a condition of it changed; what is held
back meanwhile is said later, in its newest form. A queue that is no object has no status. Must not know how a status is
worded (dialects are given). Invariant: nothing is written that the object says already.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

import structlog

from scheduler.cluster.client import MERGE
from scheduler.cluster.writer import Request, Worth, Write
from scheduler.model.decisions import SetQueueStatus
from scheduler.model.queues import Queue, QueueFacts

log = structlog.get_logger(__name__)

PERIOD = 5.0
"""Seconds between two writes to one queue."""
USAGE_PERIOD = 60.0
"""Seconds after which usage over time alone is offered to the dialect again."""


class Dialect(Protocol):
    """What is needed of a dialect to say something of a queue in its words."""

    def queue_status_patch(self, queue: Queue, facts: QueueFacts, now: str) -> dict[str, Any] | None:
        """Return a merge patch, or None when the object says so already."""

    def queue_path(self, queue: Queue) -> str:
        """Return the path of the object."""


class Cache(Protocol):
    """The picture of the cluster."""

    def queue(self, dialect: str, name: str) -> Queue | None:
        """Return the queue of this name."""


class Writer(Protocol):
    """Who writes."""

    def offer(self, write: Write) -> None:
        """Queue a write."""

    def forget(self, key: Any) -> None:
        """Forget what was written."""


@dataclass(slots=True)
class _Said:
    """The newest that is to be said of a queue; when, and with which state and conditions, it was last written."""

    status: SetQueueStatus
    version: str = ""
    written: float = float("-inf")
    news: tuple[Any, ...] | None = None
    timer: asyncio.TimerHandle | None = None


class QueueStatuses:
    """See the module. Used from the event loop only. `words` gives the time as RFC 3339."""

    def __init__(
        self,
        writer: Writer,
        cache: Cache,
        dialects: Mapping[str, Dialect],
        words: Callable[[], str],
        *,
        timer: Callable[[], float] = time.monotonic,
    ) -> None:
        self._writer = writer
        self._cache = cache
        self._dialects = dialects
        self._words = words
        self._timer = timer
        self._said: dict[str, _Said] = {}

    def say(self, status: SetQueueStatus) -> None:
        """Write a status, at once or later."""
        queue = self._queue(status)
        if queue is None:
            return
        said = self._said.get(status.uid)
        if said is None:
            said = self._said[status.uid] = _Said(status)
        elif said.version == queue.resource_version and _same(said.status.facts, status.facts):
            return
        said.status, said.version = status, queue.resource_version
        wait = said.written + PERIOD - self._timer()
        if wait <= 0 or said.news != _news(status.facts):
            self._offer(status.uid)
        elif said.timer is None:
            said.timer = asyncio.get_running_loop().call_later(wait, self._offer, status.uid)

    def told(self) -> Iterator[tuple[Queue, QueueFacts]]:
        """Yield the queues of which something was said, with the newest of it."""
        for said in self._said.values():
            queue = self._queue(said.status)
            if queue is not None:
                yield queue, said.status.facts

    def gone(self, dialect: str, name: str) -> None:
        """Note that a queue's object is gone."""
        for uid, said in tuple(self._said.items()):
            if (said.status.dialect, said.status.queue) == (dialect, name):
                self._stop(said)
                del self._said[uid]
                self._writer.forget(("queue", uid))

    def close(self) -> None:
        """Say nothing more."""
        for said in self._said.values():
            self._stop(said)
        self._said.clear()

    def _stop(self, said: _Said) -> None:
        if said.timer is not None:
            said.timer.cancel()
            said.timer = None

    def _queue(self, status: SetQueueStatus) -> Queue | None:
        """The object that a status is about, unless it is gone, was never there or is another one of its name."""
        queue = self._cache.queue(status.dialect, status.queue)
        return queue if queue is not None and queue.uid == status.uid and status.dialect in self._dialects else None

    def _offer(self, uid: str) -> None:
        said = self._said[uid]
        self._stop(said)
        self._writer.offer(
            Write(
                worth=Worth.STATUS,
                key=("queue", uid),
                content=said.status,
                method="PATCH",
                content_type=MERGE,
                build=partial(self._request, said.status),
            )
        )

    def _request(self, status: SetQueueStatus) -> Request | None:
        queue = self._queue(status)
        if queue is None:
            return None
        dialect = self._dialects[status.dialect]
        patch = dialect.queue_status_patch(queue, status.facts, self._words())
        said = self._said.get(status.uid)
        if said is not None:
            said.news = _news(status.facts)
        if patch is None:
            return None
        if said is not None:
            said.written = self._timer()
        metadata = {"uid": queue.uid}
        if any(isinstance(value, list) for value in patch.get("status", {}).values()):
            # A merge patch replaces lists: it may only meet the list that it was made from.
            metadata["resourceVersion"] = queue.resource_version
        return Request(dialect.queue_path(queue) + "/status", {"metadata": metadata, **patch})


def _same(before: QueueFacts, after: QueueFacts) -> bool:
    """Whether nothing changed but how much was used over time, and that not long ago."""
    plain = replace(after, decayed=before.decayed, decayed_at=before.decayed_at)
    return plain == before and after.decayed_at - before.decayed_at < USAGE_PERIOD


def _news(facts: QueueFacts) -> tuple[Any, ...]:
    """What is worth a write at once: the state, and which conditions hold."""
    return (facts.state, facts.problem, bool(facts.over))
