"""Watches: which events a watcher sees, as bytes that are built once and shared.

Decided here: the translation of a change into ADDED, MODIFIED or DELETED for a selector, where a watch starts,
bookmarks, and when a slow watcher is dropped. It must not know kinds or handlers. Invariant: a watcher sees every
matching change after its start exactly once and in order, or its stream ends.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable

from scheduler.playground.errors import ApiError, Obj, gone
from scheduler.playground.selectors import Match
from scheduler.playground.storage import Collection, Event, Stored, encode

_ids = itertools.count(1)

Render = Callable[[str, Stored], bytes]
"""(event type, object) -> the JSON of the object as this watcher wants it."""


class Watcher:
    """One watch connection: receives events, keeps lines until the connection takes them."""

    def __init__(
        self,
        collection: Collection,
        namespace: str,
        match: Match | None,
        render: Render,
        view: int,
        max_buffer: int,
    ) -> None:
        self.id = next(_ids)
        self.collection = collection
        self.namespace = namespace
        self.match = match
        self.render = render
        self.view = view
        self.max_buffer = max_buffer
        self.pending: list[bytes] = []
        self.size = 0
        self.wake = asyncio.Event()
        self.closed = False
        self.abort = False
        self.on_abort: Callable[[], None] | None = None

    def _selects(self, stored: Stored | None) -> bool:
        if stored is None or (self.namespace and stored.key[0] != self.namespace):
            return False
        return self.match is None or self.match(stored.obj)

    def offer(self, event: Event) -> None:
        """Queue the event when it concerns this watcher."""
        if event.type == "ADDED":
            if not self._selects(event.stored):
                return
            kind, stored = "ADDED", event.stored
        elif event.type == "DELETED":
            if not self._selects(event.prev):
                return
            kind, stored = "DELETED", event.stored
        else:
            now, before = self._selects(event.stored), self._selects(event.prev)
            if not now and not before:
                return
            kind = "MODIFIED" if now and before else "ADDED" if now else "DELETED"
            stored = event.stored
            if not now and event.prev is not None:
                # The client knew the previous state; it gets that state, at the version at which it left the selection.
                last = event.prev.copy()
                last["metadata"]["resourceVersion"] = str(event.rv)
                stored = Stored(event.stored.key, last, event.rv)
        line = event.lines.get((self.view, kind)) if self.view else None
        if line is None:
            line = event_line(kind, self.render(kind, stored))
            if self.view:
                event.lines[self.view, kind] = line
        self.push(line)

    def push(self, line: bytes) -> None:
        """Queue one line; a watcher that does not read is dropped."""
        self.pending.append(line)
        self.size += len(line)
        if self.size > self.max_buffer:
            self.close(abort=True)
        self.wake.set()

    def take(self) -> bytes:
        """Return everything queued."""
        data = self.pending[0] if len(self.pending) == 1 else b"".join(self.pending)
        self.pending.clear()
        self.size = 0
        return data

    def close(self, abort: bool = False) -> None:
        """End the stream; `abort` resets the connection instead of ending the body."""
        self.closed = True
        self.abort = self.abort or abort
        if abort and self.on_abort is not None:
            self.on_abort()
        self.collection.listeners.pop(self.id, None)
        self.wake.set()

    def start(self, rv: int | None, initial_events: bool, end_of_initial: bytes | None) -> None:
        """Queue what the watcher starts with and subscribe. `rv` None or 0 starts with all present objects.

        `end_of_initial` is the bookmark object that ends the initial events, None for clients without bookmarks.
        """
        if initial_events or not rv:
            for stored in self.collection.ordered():
                if self._selects(stored):
                    self.pending.append(event_line("ADDED", self.render("ADDED", stored)))
            if initial_events and end_of_initial is not None:
                self.pending.append(event_line("BOOKMARK", end_of_initial))
            if self.pending:
                self.wake.set()
        else:
            events = self.collection.since(rv)
            if events is None:
                expired = gone(f"too old resource version: {rv} ({self.collection.compacted})")
                self.push(error_line(expired))
                self.closed = True
                return
            for event in events:
                self.offer(event)
        self.collection.listeners[self.id] = self


def event_line(kind: str, body: bytes) -> bytes:
    """Return one line of a watch stream."""
    return b'{"type":"' + kind.encode() + b'","object":' + body + b"}\n"


def error_line(error: ApiError) -> bytes:
    """Return an ERROR event."""
    return event_line("ERROR", encode(error.status()))


def bookmark_object(api_version: str, kind: str, rv: int, initial_end: bool) -> Obj:
    """Return the object of a BOOKMARK event."""
    metadata: Obj = {"resourceVersion": str(rv), "creationTimestamp": None}
    if initial_end:
        metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
    return {"kind": kind, "apiVersion": api_version, "metadata": metadata}
