"""The objects, their versions and their history: one counter of resource versions, one bounded ring a collection.

Decided here: what a write is (a new immutable `Stored` and one `Event`), how an old state is rebuilt for consistent
paging, and when history is too old (410). It must not know HTTP, kinds or validation. Invariants: stored objects are
never mutated; resource versions only grow; an event is in the ring before any watcher sees it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

import msgspec

from scheduler.playground.errors import ApiError, Obj, gone

encode = msgspec.json.encode
_decode = msgspec.json.Decoder().decode

Key = tuple[str, str]
MAX_OBJECT = 1_572_864
"""Bytes of the largest request that etcd takes by default."""


def decode(raw: bytes) -> Any:
    """Return the JSON value."""
    return _decode(raw)


class Stored:
    """One version of one object, with its bytes."""

    __slots__ = ("_raw", "key", "obj", "rv")

    def __init__(self, key: Key, obj: Obj, rv: int) -> None:
        self.key = key
        self.obj = obj
        self.rv = rv
        self._raw: bytes | None = None

    @property
    def raw(self) -> bytes:
        """JSON bytes, built once."""
        if self._raw is None:
            self._raw = encode(self.obj)
        return self._raw

    def copy(self) -> Obj:
        """Return a deep copy that may be changed."""
        return _decode(self.raw)  # type: ignore[no-any-return]

    @property
    def uid(self) -> str:
        """metadata.uid"""
        return str(self.obj["metadata"]["uid"])


class Event:
    """One change. `stored` is the new state (for DELETED the last one, with the version of the deletion)."""

    __slots__ = ("lines", "prev", "rv", "stored", "type")

    def __init__(self, rv: int, kind: str, stored: Stored, prev: Stored | None) -> None:
        self.rv = rv
        self.type = kind
        self.stored = stored
        self.prev = prev
        self.lines: dict[tuple[int, str], bytes] = {}


class Listener(Protocol):
    """What receives events: a watcher or a server-side controller."""

    def offer(self, event: Event) -> None:
        """Take one event; must not block."""


class Collection:
    """The objects of one resource."""

    def __init__(self, name: str, capacity: int, start: int) -> None:
        self.name = name
        self.items: dict[Key, Stored] = {}
        self.ring: deque[Event] = deque(maxlen=capacity)
        self.compacted = start
        self.listeners: dict[int, Listener] = {}
        self.last_rv = start
        self._keys: list[Key] | None = None
        self._sorted: list[Stored] | None = None
        self._old: tuple[int, list[Stored]] | None = None

    def get(self, namespace: str, name: str) -> Stored | None:
        """Return the current version of an object."""
        return self.items.get((namespace, name))

    def ordered(self) -> list[Stored]:
        """Return the objects by namespace and name."""
        if self._sorted is None:
            if self._keys is None:
                self._keys = sorted(self.items)
            self._sorted = [self.items[key] for key in self._keys]
        return self._sorted

    def in_namespace(self, namespace: str) -> list[Stored]:
        """Return the objects of one namespace, by name; all of them for ""."""
        rows = self.ordered()
        return rows if not namespace else [row for row in rows if row.key[0] == namespace]

    def at(self, rv: int) -> list[Stored]:
        """Return the objects as they were at a version; 410 when history does not reach back."""
        if rv >= self.last_rv:
            return self.ordered()
        if rv < self.compacted:
            raise gone(
                "The provided continue parameter is too old to display a consistent list result. You can start a new "
                "list without the continue parameter, or use the continue token in this response to retrieve the "
                "remainder of the results."
            )
        if self._old is not None and self._old[0] == rv:
            return self._old[1]
        state = dict(self.items)
        for event in reversed(self.ring):
            if event.rv <= rv:
                break
            if event.prev is None:
                state.pop(event.stored.key, None)
            else:
                state[event.stored.key] = event.prev
        rows = [state[key] for key in sorted(state)]
        self._old = (rv, rows)
        return rows

    def since(self, rv: int) -> list[Event] | None:
        """Return the events after a version, or None when they are gone."""
        if rv < self.compacted:
            return None
        if rv >= self.last_rv:
            return []
        events: list[Event] = []
        for event in reversed(self.ring):
            if event.rv <= rv:
                break
            events.append(event)
        events.reverse()
        return events

    def compact(self, rv: int) -> None:
        """Forget history up to and with a version."""
        while self.ring and self.ring[0].rv <= rv:
            self.ring.popleft()
        self.compacted = max(self.compacted, rv)
        self._old = None

    def record(self, event: Event) -> None:
        """Apply an event and hand it to the listeners."""
        if len(self.ring) == self.ring.maxlen:
            self.compacted = max(self.compacted, self.ring[0].rv)
        self.ring.append(event)
        self.last_rv = event.rv
        key = event.stored.key
        # Lists that are being written keep the list they took; a new one is made only when somebody asks.
        self._sorted = None
        if event.type == "DELETED":
            self.items.pop(key, None)
            self._keys = None
        else:
            if key not in self.items:
                self._keys = None
            self.items[key] = event.stored
        for listener in tuple(self.listeners.values()):
            listener.offer(event)


class Store:
    """All collections and the counter of resource versions."""

    def __init__(self, history: int = 20_000) -> None:
        self.history = history
        self.rv = 1
        self.collections: dict[str, Collection] = {}
        self.hooks: list[Callable[[Collection, Event], None]] = []

    def collection(self, name: str) -> Collection:
        """Return a collection; it begins to exist when first asked for."""
        found = self.collections.get(name)
        if found is None:
            found = self.collections[name] = Collection(name, self.history, self.rv)
        return found

    def drop(self, name: str) -> None:
        """Forget a collection (its CRD is gone)."""
        self.collections.pop(name, None)

    def _commit(self, collection: Collection, kind: str, stored: Stored, prev: Stored | None) -> Stored:
        event = Event(self.rv, kind, stored, prev)
        collection.record(event)
        for hook in self.hooks:
            hook(collection, event)
        return stored

    def _stamp(self, obj: Obj) -> int:
        self.rv += 1
        obj["metadata"]["resourceVersion"] = str(self.rv)
        return self.rv

    def create(self, collection: Collection, key: Key, obj: Obj) -> Stored:
        """Store a new object; takes ownership of `obj`."""
        stored = self._sized(key, obj)
        return self._commit(collection, "ADDED", stored, None)

    def _sized(self, key: Key, obj: Obj) -> Stored:
        """Return the next version of an object, refused when it is larger than etcd takes."""
        obj["metadata"]["resourceVersion"] = str(self.rv + 1)
        stored = Stored(key, obj, self.rv + 1)
        if len(stored.raw) > MAX_OBJECT:
            raise ApiError(500, "", "etcdserver: request is too large")
        self.rv += 1
        return stored

    def update(self, collection: Collection, prev: Stored, obj: Obj) -> Stored:
        """Store a new version; takes ownership of `obj`. An unchanged object keeps its version."""
        obj["metadata"]["resourceVersion"] = str(prev.rv)
        if obj == prev.obj:
            return prev
        return self._commit(collection, "MODIFIED", self._sized(prev.key, obj), prev)

    def delete(self, collection: Collection, prev: Stored, last: Obj | None = None) -> Stored:
        """Remove an object; `last` is its final state when that differs from the stored one."""
        obj = last if last is not None else prev.copy()
        return self._commit(collection, "DELETED", Stored(prev.key, obj, self._stamp(obj)), prev)

    def compact(self, names: Iterable[str] | None = None) -> None:
        """Forget all history, of some collections or all."""
        chosen = self.collections.values() if names is None else [self.collection(name) for name in names]
        for collection in chosen:
            collection.compact(self.rv)

    def all_objects(self) -> Iterator[tuple[Collection, Stored]]:
        """Yield every object, in order."""
        for name in sorted(self.collections):
            collection = self.collections[name]
            for stored in collection.ordered():
                yield collection, stored
