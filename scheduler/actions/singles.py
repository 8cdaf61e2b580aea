"""Room for single pods one after the other: who may go is put to placement once, and kept as long as it is asked for.

Decided here: for which asks the kept question is the same as a new one (one pod that asks nothing of other pods, no
domains, candidates that the kept question knows just as they are now), and that plugins are asked about the victims
that were chosen; where they object, the whole question is asked, of those whom they allow.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from scheduler.actions.ask import Ask, relate
from scheduler.actions.candidates import Flags, Herd
from scheduler.actions.placing import problem_of
from scheduler.actions.rights import Rights
from scheduler.actions.room import Room, room_for
from scheduler.framework.protocols import Only
from scheduler.framework.session import Session
from scheduler.model.pods import held_by
from scheduler.model.verdict import Verdict
from scheduler.placement import (
    AtMostTaken,
    Infeasible,
    MadeRoom,
    MustFree,
    RoomRow,
    SinglePods,
    WhileOver,
)


@dataclass(eq=False)
class Pool:
    """A kept question. at: for each herd, the number of the gang of each of its groups there, -1: none.

    whole: over gangs, whether they may go whole.
    """

    room: Room
    pods: SinglePods
    at: dict[Herd, NDArray[np.intp]]
    whole: Flags
    number: dict[str, int]
    seen: int = 0
    """So many of the session's evictions are known here."""
    members: dict[int, tuple[int, ...]] = field(default_factory=dict)
    amounts: dict[tuple[int | None, int], tuple[tuple[int, int], ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, room: Room, rights: Rights) -> Pool:
        """Keep a question about all whom the rights name."""
        at: dict[Herd, NDArray[np.intp]] = {}
        first = 0
        for part in rights.parts:
            at[part.herd] = np.full(len(part.herd.candidates), -1, dtype=np.intp)
            at[part.herd][part.numbers] = np.arange(first, first + part.numbers.size)
            first += part.numbers.size
        whole = np.array([one.whole for one in rights.candidates], dtype=np.bool_)
        numbers = {pod.uid: number for number, pod in enumerate(room.pods)}
        return cls(room, SinglePods(room.problem), at, whole, numbers)

    def allowed(self, rights: Rights) -> Flags | None:
        """Return over gangs who may go by these rights; None where that cannot be said of the kept question."""
        found = np.zeros(self.whole.size, dtype=np.bool_)
        for part in rights.parts:
            at = self.at.get(part.herd)
            if at is None:
                return None
            gangs = at[part.numbers]
            if (gangs < 0).any():
                return None
            if (part.whole & ~self.whole[gangs]).any():
                return None  # the question was made with a gang that had to stay then
            same = part.whole | ~self.whole[gangs]
            if not same.all() and (part.herd.pods[part.numbers][~same] > 1).any():
                return None  # of a gang that has to stay, surplus may go
            found[gangs[same]] = True
        return found

    def rows(self, session: Session, rights: Rights) -> Iterator[RoomRow]:
        """Yield the rows of the rights; they name also those who may not go, of whom they say nothing."""
        names = session.book.ground.resources
        column = {name: number for number, name in enumerate(self.room.problem.problem.nodes.resources)}
        for share in rights.shares:
            over = tuple((column[names[c]], amount) for c, amount in share.over if names[c] in column)
            yield WhileOver(self._below(session, share.row), over)
        for limit in rights.limits:
            yield MustFree(self._amounts(session, None, limit.column), limit.least)
        for kept in rights.guarantees:
            yield AtMostTaken(self._amounts(session, kept.row, kept.column), kept.most)

    def _below(self, session: Session, row: int) -> tuple[int, ...]:
        """The residents whose queue is that of the row, or below it."""
        if row not in self.members:
            book = session.book
            queues = {one.queue for one in self.room.owners}
            below = {queue for queue in queues if row in book.lineage(book.tree.index[queue])}
            self.members[row] = tuple(n for n, one in enumerate(self.room.owners) if one.queue in below)
        return self.members[row]

    def _amounts(self, session: Session, row: int | None, column: int) -> tuple[tuple[int, int], ...]:
        """What each resident of a queue, and of those below it, holds of a resource; row None: of all queues."""
        known = self.amounts.get((row, column))
        if known is None:
            name, shapes = session.book.ground.resources[column], session.snapshot.shapes
            members = range(len(self.room.pods)) if row is None else self._below(session, row)
            held = ((n, dict(held_by(self.room.pods[n], shapes)).get(name, 0)) for n in members)
            known = self.amounts[row, column] = tuple((n, amount) for n, amount in held if amount > 0)
        return known

    def catch_up(self, session: Session) -> None:
        """Take note of what was decided since."""
        lost = list(islice(session.evicted, self.seen, None))
        self.seen += len(lost)
        self.pods.lose([self.number[uid] for uid in lost if uid in self.number])


def ask_single(session: Session, ask: Ask, rights: Rights) -> tuple[Room, MadeRoom | Infeasible] | None:
    """Return who goes for one pod; None where the kept question cannot tell."""
    if ask.total != 1 or len(ask.kinds) != 1 or len(ask.kinds[0].pods) != 1 or ask.wishes or not rights.parts:
        return None
    everyone = sum(part.numbers.size for part in rights.parts)
    if session.snapshot.budgets or any(len(limit.members) < everyone for limit in rights.limits):
        return None
    relations = relate(session, ask)
    if isinstance(relations, Verdict) or relations:
        return None
    pool, may = _pool(session, ask, rights)
    if pool is None or may is None:
        return None
    with session.outlook.ahead():
        problem = problem_of(session, ask, relations)
        pool.pods.free[:], pool.pods.slots[:] = problem.nodes.free, problem.nodes.slots
    session.work_left -= len(pool.room.pods) // CHEAPER + 1
    rows = tuple(pool.rows(session, rights))
    answer = pool.pods.ask(problem.demands[0], allowed=may, rows=rows, rules=problem.rules)
    if isinstance(answer, MadeRoom) and session.hooks.has("may_evict"):
        victims = tuple(pool.room.pods[number] for number in answer.evicted)
        opinion = session.hooks.may_evict(ask.state, victims)
        if isinstance(opinion, Only) and any(pod.uid not in opinion.uids for pod in victims):
            return None
    return pool.room, answer


def _pool(session: Session, ask: Ask, rights: Rights) -> tuple[Pool | None, Flags | None]:
    """Return the kept question and who may go in it; a new one where there is none that knows them."""
    pools: dict[tuple[str, str, bool], Pool] = session.scratch.setdefault("pools", {})
    key = (rights.why, session.queue_of(ask.state), all(part.whole.all() for part in rights.parts))
    pool = pools.get(key)
    if pool is not None:
        pool.catch_up(session)
        may = pool.allowed(rights)
        if may is not None:
            return pool, may
    room = room_for(session, ask, rights)
    if room is None:
        return None, None
    session.work_left -= len(room.pods)
    pool = pools[key] = Pool.of(room, rights)
    pool.seen = len(session.evicted)
    return pool, pool.allowed(rights)


CHEAPER = 40
"""A question to what is kept costs so much less than a new one."""
