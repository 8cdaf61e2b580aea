"""Which gangs wait for which victims, and for room on which nodes.

Decided here: what in a batch of events concerns a gang that waits for its victims. A victim is gone when its object is,
or when it has ended: an ended pod uses nothing. Must not know: what the gang does then (the machine decides).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from scheduler.binder.check import barred
from scheduler.binder.ledger import Ledger
from scheduler.binder.record import Failure, Member, Record
from scheduler.cluster import feed
from scheduler.model.nodes import Node
from scheduler.model.pods import Pod

Gang: TypeAlias = tuple[Any, int]
"""A request under way, and which of its gangs."""
Seen: TypeAlias = tuple[list[int], list[int]]
"""Victims of one gang that are gone, and those that are leaving."""


class Awaiting:
    """See the module."""

    def __init__(self) -> None:
        self._victims: dict[str, dict[Gang, int]] = {}
        self._rooms: dict[str, set[Gang]] = {}

    def begin(self, gang: Gang, record: Record, victims: Iterable[int]) -> None:
        """Take note of a gang and of the victims (their numbers) that it waits for."""
        for victim in victims:
            self._victims.setdefault(record.place.victims[victim].uid, {})[gang] = victim
        for assignment in record.place.assignments:
            self._rooms.setdefault(assignment.node, set()).add(gang)

    def end(self, gang: Gang, record: Record) -> None:
        """Forget a gang that waits no more."""
        for victim in record.place.victims:
            waiting = self._victims.get(victim.uid, {})
            if waiting.pop(gang, None) is not None and not waiting:
                del self._victims[victim.uid]
        for name in {assignment.node for assignment in record.place.assignments}:
            rooms = self._rooms.get(name, set())
            rooms.discard(gang)
            if not rooms:
                self._rooms.pop(name, None)

    def victims(self, events: Iterable[feed.Event]) -> dict[Gang, Seen]:
        """Return what the events say of victims, by the gangs that wait for them."""
        found: dict[Gang, Seen] = {}
        for event in events if self._victims else ():
            if isinstance(event, feed.PodGone):
                uid, gone = event.uid, True
            elif isinstance(event, feed.PodSet) and (event.pod.finished or event.pod.deleting):
                uid, gone = event.pod.uid, event.pod.finished
            else:
                continue
            for gang, victim in self._victims.get(uid, {}).items():
                found.setdefault(gang, ([], []))[0 if gone else 1].append(victim)
        return found

    def shaken(self, events: Iterable[feed.Event]) -> list[Gang]:
        """Return the gangs that wait for room on a node about which there is news, in the order of their waiting."""
        names: set[str] = set()
        for event in events if self._rooms else ():
            if isinstance(event, feed.NodeSet):
                names.add(event.node.name)
            elif isinstance(event, feed.NodeGone):
                names.add(event.name)
        return list(dict.fromkeys(gang for name in sorted(names) for gang in self._rooms.get(name, ())))


def barred_members(
    record: Record, pod_of: Callable[[str], Pod | None], node_of: Callable[[str], Node | None], ledger: Ledger
) -> tuple[Failure, ...]:
    """Return the members that can not be bound any more, however much room there will be."""
    failures: list[Failure] = []
    for member, assignment in enumerate(record.place.assignments):
        if record.states[member] == Member.IDLE:
            cause, permanent = barred(assignment, pod_of(assignment.uid), node_of(assignment.node), ledger)
            if cause:
                failures.append(Failure(member, cause, permanent))
    return tuple(failures)
