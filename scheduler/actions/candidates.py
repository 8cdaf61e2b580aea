"""Who could go at all, queue by queue, as columns: made once for a session, brought up to date where somebody goes.

Decided here: what of a running group may go for anybody: preemptible, run for at least its queue's time (surplus
members may go at once), on nodes that are there, and not evicted in this session already. For whom, and how far, is
decided by `rights`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from scheduler.framework.residents import Running, without
from scheduler.framework.session import Session
from scheduler.model.pods import Pod, held_by
from scheduler.model.resources import Amounts

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A running group of which something may go: `pods` of it; all of them together only with `whole`.

    spare_part: it is a part of a gang that lives on without it.
    """

    running: Running
    pods: tuple[Pod, ...]
    whole: bool = True
    spare_part: bool = False

    @property
    def spare(self) -> bool:
        """Whether some of it may go while the group lives, as far as the minimum of all tells."""
        return len(self.running.pods) + self.running.fixed > self.running.minimum


class Herd:
    """What runs in one leaf queue, in order of keys. protected: seconds for which groups are left alone.

    candidates: None where nothing may go. there: where something may. spare: of whom some may while they live. grew: of
    whom this session has placed a member, which would be left alone if all others went. held: (groups, resources of the
    book), what the pods of each hold together, also those that may not go.
    """

    def __init__(self, session: Session, queue: str, protected: float) -> None:
        self._session, self._protected = session, protected
        self.queue = queue
        self._running = list(session.cache.residents.of_queue(queue))
        count = len(self._running)
        self.position = {one.key: number for number, one in enumerate(self._running)}
        self.priority: Ints = np.fromiter((one.priority for one in self._running), np.int64, count)
        self.created = np.fromiter((one.created for one in self._running), np.float64, count)
        self.candidates: list[Candidate | None] = [None] * count
        self.there: Flags = np.zeros(count, dtype=np.bool_)
        self.spare: Flags = np.zeros(count, dtype=np.bool_)
        self.pods: Ints = np.zeros(count, dtype=np.int64)
        self.grew: Flags = np.zeros(count, dtype=np.bool_)
        self._places = 0
        self._until = np.full(count, np.inf)
        self.held: Ints = np.zeros((count, len(session.book.ground.resources)), dtype=np.int64)
        self._flat: tuple[NDArray[np.intp], Ints, NDArray[np.intp], NDArray[np.float64]] | None = None
        known: dict[Amounts, Ints] = {}
        for number, one in enumerate(self._running):
            if session.evicted:
                self.lose(one.key)
                continue
            if one.held not in known:
                known[one.held] = session.book.vector(one.held)
            self.held[number] = known[one.held]
            self._look(number)

    def _look(self, number: int) -> None:
        session, running = self._session, self._running[number]
        time = running.min_runtime if running.min_runtime is not None else self._protected
        young = running.since + time > session.now if running.since else False
        self._until[number] = running.since + time if young else np.inf
        self.grew[number] = running.key in session.placed_of
        found = candidate_of(session, running, young=young or bool(self.grew[number]))
        self.candidates[number] = found
        self.there[number], self.spare[number] = found is not None, found is not None and found.spare
        self.pods[number] = len(found.pods) if found is not None else 0

    def lose(self, key: str) -> None:
        """Somebody of a group goes."""
        number = self.position.get(key)
        if number is None:
            return
        self._flat = None
        left = without(self._running[number], self._session.evicted, self._session.snapshot.shapes)
        if left is None:
            self.candidates[number] = None
            self.there[number], self.spare[number], self.pods[number] = False, False, 0
            self._until[number] = np.inf
            return
        self._running[number] = left
        self.held[number] = self._session.book.vector(left.held)
        self._look(number)

    def flat(self) -> tuple[NDArray[np.intp], Ints, NDArray[np.intp], NDArray[np.float64]]:
        """Return for every pod that may go its row, what it holds (resources of the table by pods), group and start."""
        if self._flat is None:
            session, kinds = self._session, dict[Amounts, int]()
            rows, kind, group, amounts, since = list[int](), list[int](), list[int](), list[Ints](), list[float]()
            for number, candidate in enumerate(self.candidates):
                for pod in candidate.pods if candidate is not None else ():
                    held = held_by(pod, session.snapshot.shapes)
                    if held not in kinds:
                        kinds[held] = len(kinds)
                        amounts.append(session.outlook.amounts(pod))
                    row = session.row(pod.node)
                    assert row is not None  # candidates are on nodes of the snapshot
                    rows.append(row)
                    kind.append(kinds[held])
                    group.append(number)
                    since.append(pod.since)
            table = np.array(amounts, dtype=np.int64).reshape(len(amounts), len(session.table.resources))
            self._flat = np.array(rows, dtype=np.intp), table[kind].T, np.array(group, dtype=np.intp), np.array(since)
        return self._flat

    def of(self, asked: Flags) -> NDArray[np.intp]:
        """Return the numbers of those of the asked of whom something may go; note when more of them may."""
        for place in islice(self._session.places, self._places, None):
            number = self.position.get(place.group)
            if number is not None and self.pods[number]:
                self._look(number)
        self._places = len(self._session.places)
        self._session.look_again_at(float(self._until[asked].min(initial=np.inf)))
        return np.flatnonzero(asked & self.there)


def herd_of(session: Session, row: int, *, against_others: bool) -> Herd:
    """Return the herd of a leaf queue. against_others: as those of other queues see it."""
    queue = session.book.tree.names[row]
    return herd(session, queue, min_runtime(session, row, against_others=against_others))


def herd(session: Session, queue: str, protected: float) -> Herd:
    """Return the herd of a leaf queue whose groups are left alone for so many seconds."""
    herds: dict[tuple[str, float], Herd] = session.scratch.setdefault("herds", {})
    found = herds.get((queue, protected))
    if found is None:
        found = herds[queue, protected] = Herd(session, queue, protected)
    return found


def lost(session: Session, groups: Iterable[Running]) -> None:
    """Bring the herds up to date after pods of these groups were evicted."""
    herds: dict[tuple[str, float], Herd] = session.scratch.get("herds", {})
    for running in groups:
        for (queue, _), one in herds.items():
            if queue == running.queue:
                one.lose(running.key)


def candidate_of(session: Session, running: Running, *, young: bool) -> Candidate | None:
    """Return what of a running group may go, or None. young: it may not go whole yet."""
    if not running.preemptible:
        return None
    pods = running.pods
    if not all(pod.preemptible is not False and session.row(pod.node) is not None for pod in pods):
        pods = tuple(pod for pod in pods if pod.preemptible is not False and session.row(pod.node) is not None)
        if not pods:
            return None
    whole = not young and len(pods) == len(running.pods) and not running.fixed
    found = Candidate(running, pods, whole)
    return found if whole or found.spare else None


def min_runtime(session: Session, row: int, *, against_others: bool) -> float:
    """Return the seconds for which groups of a queue are left alone: its own setting, or that of those above it."""
    for one in session.book.lineage(row):
        queue = session.queue(session.book.tree.names[one])
        if against_others and queue.reclaim_min_runtime is not None:
            return queue.reclaim_min_runtime
        if queue.min_runtime is not None:
            return queue.min_runtime
    return 0.0
