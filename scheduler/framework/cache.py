"""What a session may remember of earlier ones. Only speed depends on it, and what has already been said.

Invariant: an empty cache gives the same placements and the same verdicts. Everything here is keyed by the content that
it was computed from: a group's state by identity (values are frozen), node classes by `StaticFits.generation`, free
amounts by the ledger's token, and the rest of the cluster by `world`. A session works on its own copy of what it
changes and hands it back when it ends, so that one that is lost half-way leaves nothing behind.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scheduler.framework.bookkeeping import Shelf
from scheduler.framework.domains import DomainCache
from scheduler.framework.fits import StaticFits
from scheduler.framework.growth import Growth
from scheduler.framework.hooks import Hooks
from scheduler.framework.ledger import Ledger
from scheduler.framework.neighbours import Matches
from scheduler.framework.residents import Residents
from scheduler.framework.usage import Usage
from scheduler.model.decisions import SetTopologyStatus
from scheduler.model.groups import GroupState
from scheduler.model.pods import Shape
from scheduler.model.snapshot import Snapshot
from scheduler.model.verdict import Verdict

_REMEMBERED_TOKENS = 4
_MEMO_LIMIT = 20_000


@dataclass(frozen=True, slots=True)
class Told:
    """What has been said about a group, and when: status (phase, counts, verdict, place), and why its pods wait.

    overdue_at: when it is to be said that it has its nodes and is not bound yet; 0 while it is not on its way.
    """

    uid: str = ""
    status: tuple[Hashable, ...] = ()
    read: tuple[Hashable, ...] = ()
    status_at: float = float("-inf")
    verdict: Verdict | None = None
    pods: frozenset[str] = frozenset()
    explained_at: float = float("-inf")
    overdue_at: float = 0.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """The verdict on a waiting group, with what it was computed from; `answer` is for the action that left it.

    For a group that did not fit: `growth` and `surroundings` say what must change before it is searched for again,
    `searched` is when that was done last. `said`: when the verdict was made.
    """

    state: GroupState
    token: int
    world: int
    verdict: Verdict
    answer: object = None
    growth: int = -1
    surroundings: tuple[object, ...] = ()
    searched: float = 0.0
    said: float = 0.0


@dataclass(frozen=True, slots=True)
class Settled:
    """That nothing is left to say about a group in this state with this verdict, before that time."""

    state: GroupState
    verdict: Verdict | None
    admitted: bool
    until: float


@dataclass(slots=True)
class Memo:
    """Results by content, bounded: when full, everything is forgotten at once."""

    values: dict[Hashable, Any] = field(default_factory=dict)

    def get(self, key: Hashable) -> Any:
        """Return what is known, or None."""
        return self.values.get(key)

    def put(self, key: Hashable, value: Any) -> None:
        """Remember."""
        if len(self.values) >= _MEMO_LIMIT:
            self.values.clear()
        self.values[key] = value


class SessionCache:
    """Kept by whoever runs sessions, one for each configuration."""

    def __init__(self, hooks: Hooks) -> None:
        self.hooks = hooks
        self.fits = StaticFits(hooks)
        self.memo = Memo()
        self.matches = Matches()
        self.growth = Growth()
        self.domains = DomainCache()
        self.residents = Residents()
        self.shelf = Shelf()
        self.usage = Usage()
        self.spoken: Any = None
        """What was last said of queues, for the action that says it."""
        self.wiring: Mapping[str, SetTopologyStatus] = {}
        """What was last said of topology objects, by uid, for the action that says it."""
        self.strays: dict[str, Verdict] = {}
        """What was last said of groups that run in queues that take no part."""
        self.lines: tuple[frozenset[str], float] = (frozenset(), float("-inf"))
        """Who stood in line when the places in queues were last looked at, and when that was."""
        self.tried: dict[tuple[str, str], Any] = {}
        """By action and group: searches for room that found nothing, for the action that made them."""
        self.outcomes: dict[str, Outcome] = {}
        self.told: dict[str, Told] = {}
        self.settled: dict[str, Settled] = {}
        self.entries: dict[str, tuple[GroupState, int, int, bool]] = {}
        self.delayed: dict[str, float] = {}
        self.seen: dict[str, GroupState] = {}
        self.waiting: dict[str, GroupState] = {}
        self._tokens: list[tuple[int, NDArray[np.int64], NDArray[np.int64]]] = []
        self._next_token = 1
        self._serial = 0
        self._space_of: tuple[Any, ...] = ()
        self._space = 0
        self._world_of: tuple[Any, ...] = ()
        self._world = 0
        self._requests: dict[str, NDArray[np.int64]] = {}
        self._missing: dict[str, tuple[str, ...]] = {}
        self._resources: tuple[str, ...] = ()

    def next_serial(self) -> int:
        """Return a number that no other session with this cache has."""
        self._serial += 1
        return self._serial

    # -- amounts --------------------------------------------------------------------------------------------------

    def token(self, free: NDArray[np.int64], slots: NDArray[np.int64]) -> int:
        """Return the token of these amounts; the same as before when they have been seen lately."""
        for token, known_free, known_slots in reversed(self._tokens):
            if np.array_equal(known_free, free) and np.array_equal(known_slots, slots):
                return token
        token = self._next_token
        self._next_token += 1
        self.remember(token, free, slots)
        return token

    def remember(self, token: int, free: NDArray[np.int64], slots: NDArray[np.int64]) -> None:
        """Keep the amounts of a token, so that a later session that starts with them recognises them."""
        self._tokens = [entry for entry in self._tokens if entry[0] != token][-_REMEMBERED_TOKENS + 1 :]
        self._tokens.append((token, free.copy(), slots.copy()))

    def request(self, shape: Shape, resources: tuple[str, ...]) -> NDArray[np.int64]:
        """Return what one pod of the shape asks for, as a vector over the node table's resources."""
        if resources != self._resources:
            self._resources = resources
            self._requests.clear()
            self._missing.clear()
        vector = self._requests.get(shape.key)
        if vector is None:
            row = {name: number for number, name in enumerate(resources)}
            vector = np.zeros(len(resources), dtype=np.int64)
            for name, value in shape.requests:
                if name in row:
                    vector[row[name]] = value
            vector.flags.writeable = False
            self._requests[shape.key] = vector
            self._missing[shape.key] = tuple(name for name, value in shape.requests if name not in row and value > 0)
            if len(self._requests) > _MEMO_LIMIT:
                self._requests = {shape.key: vector}
        return vector

    def missing_resources(self, shape: Shape, resources: tuple[str, ...]) -> tuple[str, ...]:
        """Return the resources that the shape asks for and no node has."""
        self.request(shape, resources)
        return self._missing[shape.key]

    # -- the cluster beside its amounts ---------------------------------------------------------------------------

    def space(self, snapshot: Snapshot) -> int:
        """Return a number that changes when the nodes (names, classes, allocatable amounts, slots) or their domains
        did."""
        table = snapshot.table
        self.domains.of(snapshot)
        fields = (
            *(self.fits.generation, self.domains.number),
            *(table.names, table.resources, table.slots, table.allocatable),
        )
        if not _same(fields, self._space_of):
            self._space += 1
        self._space_of = fields
        return self._space

    def world(self, snapshot: Snapshot) -> int:
        """Return a number that changes when anything but groups and free amounts did since the last session."""
        fields = (
            *(self.space(snapshot), snapshot.queues, snapshot.usage, snapshot.no_goods, snapshot.presence),
            *(snapshot.storage, snapshot.nominations),
        )
        if not _same(fields, self._world_of) or self.hooks.volatile:
            self._world += 1
        self._world_of = fields
        return self._world

    # -- groups ---------------------------------------------------------------------------------------------------

    def changes(self, snapshot: Snapshot) -> tuple[list[GroupState], list[str]]:
        """Return the states that are not those of the last finished session, and the keys that are gone."""
        seen = self.seen
        changed = [state for key, state in snapshot.groups.items() if seen.get(key) is not state]
        fresh = sum(1 for state in changed if state.key not in seen)
        gone: list[str] = []
        if len(seen) + fresh != len(snapshot.groups):
            gone = [key for key in seen if key not in snapshot.groups]
        return changed, gone

    def finish(
        self,
        changed: list[GroupState],
        gone: list[str],
        waiting: dict[str, GroupState],
        told: dict[str, Told],
        delayed: dict[str, float],
        ledger: Ledger,
    ) -> None:
        """Take over what a finished session has seen and said."""
        self.told.update(told)
        self.delayed = delayed
        for state in changed:
            self.seen[state.key] = state
        for key in gone:
            for kept in (self.seen, self.outcomes, self.told, self.settled, self.entries, self.delayed):
                kept.pop(key, None)
        if gone and self.tried:
            left = frozenset(gone)
            self.tried = {key: tried for key, tried in self.tried.items() if key[1] not in left}
        self.waiting = waiting
        self.remember(ledger.base, ledger.free, ledger.open_slots)


def _same(fields: tuple[Any, ...], before: tuple[Any, ...]) -> bool:
    if len(fields) != len(before):
        return False
    for ours, theirs in zip(fields, before, strict=True):
        if ours is theirs:
            continue
        if isinstance(ours, np.ndarray):
            if not np.array_equal(ours, theirs):
                return False
        elif ours != theirs:
            return False
    return True
