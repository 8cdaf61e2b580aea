"""The status of objects, written: which of what sessions say about an object becomes a write, and when.

Decided here: at most one write in a few seconds an object, unless what matters changed; what is held back meanwhile is
said later, in its newest form. Must not know: the kinds of objects, nor how a status is worded. Invariant: nothing is
written that the object says already.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from scheduler.cluster.client import MERGE
from scheduler.cluster.writer import Request, Worth, Write

PERIOD = 5.0
"""Seconds between two writes to one object."""


class Writer(Protocol):
    """Who writes."""

    def offer(self, write: Write) -> None:
        """Queue a write."""

    def forget(self, key: Any) -> None:
        """Forget what was written."""


class Status(Hashable, Protocol):
    """What is to be said of an object."""

    @property
    def uid(self) -> str:
        """Identity of the object."""


class Subject(Protocol):
    """The object, as last read."""

    @property
    def uid(self) -> str:
        """Identity."""

    @property
    def resource_version(self) -> str:
        """Version as last read."""


S = TypeVar("S", bound=Status)
V = TypeVar("V", bound=Subject)


@dataclass(slots=True)
class _Said(Generic[S]):
    """The newest that is to be said of an object; when, and with which news, it was last written."""

    status: S
    version: str = ""
    written: float = float("-inf")
    news: Hashable | None = None
    timer: asyncio.TimerHandle | None = None


class Statuses(Generic[S, V]):
    """See the module. Used from the event loop only; the abstract methods are for each kind of object."""

    kind: ClassVar[str]

    def __init__(self, writer: Writer, timer: Callable[[], float]) -> None:
        self._writer = writer
        self._timer = timer
        self._said: dict[str, _Said[S]] = {}

    @abstractmethod
    def _object(self, status: S) -> V | None:
        """Return the object that is meant, unless it is gone, was never there or is another one of its name."""

    @abstractmethod
    def _same(self, before: S, after: S) -> bool:
        """Whether nothing changed that is worth a write."""

    @abstractmethod
    def _news(self, status: S) -> Hashable:
        """Return what is worth a write at once when it changes."""

    @abstractmethod
    def _patch(self, one: V, status: S) -> tuple[str, dict[str, Any]] | None:
        """Return the path of the object and a merge patch, or None when it says so already."""

    def say(self, status: S) -> None:
        """Write a status, at once or later."""
        one = self._object(status)
        if one is None:
            return
        said = self._said.get(status.uid)
        if said is None:
            said = self._said[status.uid] = _Said(status)
        elif said.version == one.resource_version and self._same(said.status, status):
            return
        said.status, said.version = status, one.resource_version
        wait = said.written + PERIOD - self._timer()
        if wait <= 0 or said.news != self._news(status):
            self._offer(status.uid)
        elif said.timer is None:
            said.timer = asyncio.get_running_loop().call_later(wait, self._offer, status.uid)

    def newest(self) -> Iterator[tuple[V, S]]:
        """Yield the objects of which something was said, with the newest of it."""
        for said in self._said.values():
            one = self._object(said.status)
            if one is not None:
                yield one, said.status

    def drop(self, test: Callable[[S], bool]) -> None:
        """Note that the objects of which this is so are gone."""
        for uid, said in tuple(self._said.items()):
            if test(said.status):
                self._stop(said)
                del self._said[uid]
                self._writer.forget((self.kind, uid))

    def close(self) -> None:
        """Say nothing more."""
        for said in self._said.values():
            self._stop(said)
        self._said.clear()

    def _stop(self, said: _Said[S]) -> None:
        if said.timer is not None:
            said.timer.cancel()
            said.timer = None

    def _offer(self, uid: str) -> None:
        said = self._said[uid]
        self._stop(said)
        self._writer.offer(
            Write(
                worth=Worth.STATUS,
                key=(self.kind, uid),
                content=said.status,
                method="PATCH",
                content_type=MERGE,
                build=partial(self._request, said.status),
            )
        )

    def _request(self, status: S) -> Request | None:
        one = self._object(status)
        if one is None:
            return None
        found = self._patch(one, status)
        said = self._said.get(status.uid)
        if said is not None:
            said.news = self._news(status)
        if found is None:
            return None
        if said is not None:
            said.written = self._timer()
        path, patch = found
        metadata = {"uid": one.uid}
        if any(isinstance(value, list) for value in patch.get("status", {}).values()):
            # A merge patch replaces lists: it may only meet the list that it was made from.
            metadata["resourceVersion"] = one.resource_version
        return Request(path + "/status", {"metadata": metadata, **patch})
