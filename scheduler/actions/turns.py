"""Whose turn it is: queues by their keys, inside a queue groups by theirs; one group, or a run of pods that are alike.

Decided here: when a queue's key is looked at again (at each of its turns, because what it was given since counts; not
when no other queue is left), how long a run of single pods that are alike may be, and that queues with equal keys are
told apart by their groups' own keys, so that a queue without a policy delays nobody. The keys themselves are the
plugins'.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush
from typing import Any, TypeAlias

from scheduler.framework.session import Session
from scheduler.model.groups import GroupState

RUN_LENGTH = 10_000
"""Most single pods that are placed in one step."""
FAIR_PARTS = 64
"""Where queues compete, a run is at most such a part of what its queue still waits for."""

Key: TypeAlias = tuple[Any, ...]


class Order:
    """Groups with waiting members by queue, each queue in the order of its groups' keys; one for each pass."""

    def __init__(self, groups: dict[str, list[tuple[Key, GroupState]]], session: Session) -> None:
        self._groups, self._session = groups, session

    def only(self, take: Callable[[GroupState], bool]) -> Order:
        """Return the order of some of the groups."""
        parts = {name: [one for one in listed if take(one[1])] for name, listed in self._groups.items()}
        return Order({name: part for name, part in parts.items() if part}, self._session)

    def queues(self) -> list[str]:
        """Return the names of the queues in which somebody has a turn."""
        return list(self._groups)

    def states(self) -> list[GroupState]:
        """Return the groups, queue by queue."""
        return [state for listed in self._groups.values() for _, state in listed]

    def each(self) -> Iterator[GroupState]:
        """Yield one group after another until all have had a turn."""
        for turn in self.turns():
            yield from turn

    def turns(self) -> Iterator[list[GroupState]]:
        """Yield the next group, or a run of single pods that are alike, until all have had a turn."""
        rows = self._groups
        heap: list[tuple[Key, Key, str, int]] = [self._entry(rows[name], name, 0) for name in sorted(rows)]
        heapify(heap)
        while heap:
            told, _, name, position = heappop(heap)
            listed = rows[name]
            now = self._session.queue_key(name, listed[position][1]) if heap else told
            if now > told and heap and heap[0][:2] < (now, listed[position][0]):
                heappush(heap, (now, listed[position][0], name, position))
                continue
            end = self._end(listed, name, position, heap[0][:2] if heap else None)
            yield [state for _, state in listed[position:end]]
            if end < len(listed):
                heappush(heap, self._entry(listed, name, end) if heap else (told, listed[end][0], name, end))

    def _end(
        self, listed: list[tuple[Key, GroupState]], name: str, position: int, limit: tuple[Key, Key] | None
    ) -> int:
        """Where a turn that begins at a position ends."""
        end = position + 1
        head = listed[position][1]
        if not _is_single(self._session, head):
            return end
        length = RUN_LENGTH
        if limit is not None and self._session.shares_matter:
            length = max(1, (len(listed) - position) // FAIR_PARTS)
        queue_key = self._session.queue_key(name, head) if limit is not None else ()
        while end < len(listed) and end - position < length:
            key, state = listed[end]
            if not alike(head, state) or (limit is not None and (queue_key, key) > limit):
                break
            end += 1
        return end

    def _entry(self, listed: list[tuple[Key, GroupState]], name: str, position: int) -> tuple[Key, Key, str, int]:
        key, state = listed[position]
        return self._session.queue_key(name, state), key, name, position


def in_order(session: Session, states: list[GroupState]) -> Order:
    """Sort the groups by queue and key; groups of which no key can be made are told so and left out."""
    queues: dict[str, list[tuple[Key, GroupState]]] = {}
    for state in states:
        with session.guard(state):
            own = session.hooks.order_groups(state, session)
            same = state.waiting[0].shape if state.group.dialect == "pod" else ""
            key = (own, state.group.created, same, state.key)
            queues.setdefault(session.queue_of(state), []).append((key, state))
    for name in sorted(queues):
        with session.guard(*(state for _, state in queues[name])):
            queues[name].sort(key=lambda entry: entry[0])
            session.queue_key(name, queues[name][0][1])
            continue
        del queues[name]
    return Order(queues, session)


def _is_single(session: Session, state: GroupState) -> bool:
    return state.group.dialect == "pod" and len(state.waiting) == 1 and not session.refused_rows(state.waiting[0])


def alike(first: GroupState, other: GroupState) -> bool:
    """Whether two single pods may share one placement: same shape and priority; neither was refused by a node."""
    return (
        other.group.dialect == "pod"
        and len(other.waiting) == 1
        and first.waiting[0].shape == other.waiting[0].shape
        and first.priority == other.priority
        and first.group.topology is None  # one that asks for a domain does so for itself
        and other.group.topology is None
    )
