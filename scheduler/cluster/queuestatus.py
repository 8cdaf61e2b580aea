"""The status of queues, written (`statuses`): at once when the state or a condition of a queue changes, else with the
newest numbers every few seconds. A queue that is no object has no status. Must not know how a status is worded
(dialects are given).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import replace
from typing import Any, ClassVar, Protocol

from scheduler.cluster.statuses import Statuses, Writer
from scheduler.model.decisions import SetQueueStatus
from scheduler.model.queues import Queue, QueueFacts

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


class QueueStatuses(Statuses[SetQueueStatus, Queue]):
    """See the module. Used from the event loop only. `words` gives the time as RFC 3339."""

    kind: ClassVar[str] = "queue"

    def __init__(
        self,
        writer: Writer,
        cache: Cache,
        dialects: Mapping[str, Dialect],
        words: Callable[[], str],
        *,
        timer: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(writer, timer)
        self._cache = cache
        self._dialects = dialects
        self._words = words

    def told(self) -> Iterator[tuple[Queue, QueueFacts]]:
        """Yield the queues of which something was said, with the newest of it."""
        for queue, status in self.newest():
            yield queue, status.facts

    def gone(self, dialect: str, name: str) -> None:
        """Note that a queue's object is gone."""
        self.drop(lambda status: (status.dialect, status.queue) == (dialect, name))

    def _object(self, status: SetQueueStatus) -> Queue | None:
        queue = self._cache.queue(status.dialect, status.queue)
        return queue if queue is not None and queue.uid == status.uid and status.dialect in self._dialects else None

    def _same(self, before: SetQueueStatus, after: SetQueueStatus) -> bool:
        """Whether nothing changed but how much was used over time, and that not long ago."""
        old, new = before.facts, after.facts
        plain = replace(new, decayed=old.decayed, decayed_at=old.decayed_at)
        return plain == old and new.decayed_at - old.decayed_at < USAGE_PERIOD

    def _news(self, status: SetQueueStatus) -> Hashable:
        """The state, and which conditions hold."""
        return (status.facts.state, status.facts.problem, bool(status.facts.over))

    def _patch(self, one: Queue, status: SetQueueStatus) -> tuple[str, dict[str, Any]] | None:
        dialect = self._dialects[status.dialect]
        patch = dialect.queue_status_patch(one, status.facts, self._words())
        return (dialect.queue_path(one), patch) if patch is not None else None
