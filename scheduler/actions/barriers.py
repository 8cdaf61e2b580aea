"""Why nobody is evicted for a group that waits: what stands in the way of each action, and of each group that runs.

Decided here: which of several obstacles is told of a running group (the first in the order in which the rules of
`rights` ask), and that only those are told that hold something of what the group asks for. Obstacles are values; their
words are made in `observe.explain`. True of the amounts as the session finds them; nothing is changed. That those who
may go do not suffice is not decided here: the session itself has searched for room.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from scheduler.actions.ask import Ask
from scheduler.actions.candidates import candidate_of, min_runtime
from scheduler.framework.protocols import Only
from scheduler.framework.residents import Running, without
from scheduler.framework.session import Session
from scheduler.model.barrier import Barrier
from scheduler.model.pods import held_by
from scheduler.model.selecting import selects


@dataclass(slots=True)
class _Found:
    """Obstacles by what they say, with who they are about; who may go."""

    rows: dict[tuple[str, str], list[tuple[Running, float]]] = field(default_factory=dict)
    free: list[Running] = field(default_factory=list)

    def add(self, kind: str, queue: str, running: Running, until: float = 0.0) -> None:
        self.rows.setdefault((kind, queue), []).append((running, until))


def barriers(session: Session, ask: Ask, actions: tuple[str, ...]) -> tuple[Barrier, ...]:
    """Return what keeps a group from evicting, action by action. actions: those that are configured."""
    if not ask.preempts:
        return (Barrier("never", action="preempt"),)
    if session.now < ask.state.evicts_from:
        return (Barrier("delayed", action="preempt", until=ask.state.evicts_from),)
    row = session.served_row(ask.state)
    if row is None:
        return ()
    found: list[Barrier] = []
    for action, look in (("preempt", _preempt), ("reclaim", _reclaim)):
        found += look(session, ask, row) if action in actions else [Barrier("off", action=action)]
    return tuple(found)


def _preempt(session: Session, ask: Ask, row: int) -> Iterator[Barrier]:
    """In the group's own queue."""
    name = session.book.tree.names[row]
    queue = session.queue(name)
    if queue.within_queue == "Never":
        yield Barrier("queue_never", action="preempt", queue=name)
        return
    newer = queue.within_queue == "LowerOrNewerEqualPriority"
    found = _Found()
    protected = min_runtime(session, row, against_others=False)
    for running in _holding(session, ask, name):
        lower = running.priority < ask.state.priority
        if newer and running.priority == ask.state.priority:
            lower = running.created > ask.state.group.created
        if not lower:
            found.add("priority", name, running)
        else:
            _look(session, running, protected, found)
    yield from _told(session, ask, found, "preempt")


def _reclaim(session: Session, ask: Ask, row: int) -> Iterator[Barrier]:
    """In other queues."""
    book = session.book
    name = book.tree.names[row]
    queue = session.queue(name)
    asked = book.vector(ask.amounts)
    others = (one for one in session.cache.residents.queues() if one != name)
    if not any(True for one in others for _ in _holding(session, ask, one)):
        return
    if queue.reclaim == "Never":
        yield Barrier("queue_never", action="reclaim", queue=name)
        return
    found = _Found()
    for below, above in pairwise(book.lineage(row)):
        beyond = book.beyond(below, asked)
        given = sum((book.vector(running.held) for running in found.free), start=np.zeros_like(asked))
        if any(amount > given[column] for column, amount in beyond):
            amounts = tuple((book.ground.resources[column], amount) for column, amount in beyond)
            yield Barrier("beyond_owed", action="reclaim", queue=book.tree.names[below], amounts=amounts)
            break
        for child in book.children(above):
            if child != below:
                _others(session, ask, child, asked, queue.reclaim == "LowerPriority", found)
    yield from _told(session, ask, found, "reclaim")


def _others(
    session: Session,
    ask: Ask,
    row: int,
    asked: np.ndarray[tuple[int, ...], np.dtype[np.int64]],
    lower: bool,
    found: _Found,
) -> None:
    """Look at a queue and all below it."""
    book = session.book
    name = book.tree.names[row]
    why = "" if book.over(row, asked) else "within_owed"
    why = why or ("" if session.queue(name).reclaimable else "not_reclaimable")
    if why:
        for leaf in _leaves(session, row):
            for running in _holding(session, ask, leaf):
                found.add(why, name, running)
        return
    children = book.children(row)
    for child in children:
        _others(session, ask, child, asked, lower, found)
    if not children:
        protected = min_runtime(session, row, against_others=True)
        for running in _holding(session, ask, name):
            if lower and running.priority >= ask.state.priority:
                found.add("priority", name, running)
            else:
                _look(session, running, protected, found)


def _leaves(session: Session, row: int) -> Iterator[str]:
    children = session.book.children(row)
    for child in children:
        yield from _leaves(session, child)
    if not children:
        yield session.book.tree.names[row]


def _holding(session: Session, ask: Ask, queue: str) -> Iterator[Running]:
    """Yield the groups that run in a leaf queue and hold something of what is asked for."""
    wanted = {name for name, value in ask.amounts if value > 0}
    for running in session.cache.residents.of_queue(queue):
        if running.key == ask.state.key:
            continue
        running = without(running, session.evicted, session.snapshot.shapes) or running
        held = (held_by(pod, session.snapshot.shapes) for pod in running.pods)
        if any(name in wanted and value > 0 for amounts in held for name, value in amounts):
            yield running


def _look(session: Session, running: Running, protected: float, found: _Found) -> None:
    """Sort one group by what protects it, if anything does."""
    time = running.min_runtime if running.min_runtime is not None else protected
    until = running.since + time if running.since else 0.0
    young = until > session.now
    if all(pod.uid in session.evicted for pod in running.pods):
        found.add("going", running.queue, running)
    elif not running.preemptible or all(pod.preemptible is False for pod in running.pods):
        found.add("not_preemptible", running.queue, running)
    elif candidate_of(session, running, young=young) is not None:
        found.free.append(running)
    elif young:
        found.add("min_runtime", running.queue, running, until)
    else:
        found.add("partly_fixed", running.queue, running)


def _told(session: Session, ask: Ask, found: _Found, action: str) -> Iterator[Barrier]:
    """Yield the obstacles, then what plugins and budgets say of those whom none of them protects."""
    for (kind, queue), rows in found.rows.items():
        until = min((when for _, when in rows if when), default=0.0)
        yield Barrier(kind, action, queue, tuple(running.holder for running, _ in rows), until=until)
    free = _spared(session, ask, found)
    if len(free) < len(found.free):
        spared = tuple(running.holder for running in found.free if running not in free)
        yield Barrier("plugin", action, who=spared)
    for budget in session.snapshot.budgets.values():
        if budget.selector is None or budget.allowed:
            continue
        labels = [dict(pod.labels) for one in free for pod in one.pods if pod.namespace == budget.namespace]
        meant = [one for one in labels if selects(budget.selector, one)]
        if meant:
            yield Barrier("budget", action, who=(budget.key,), count=len(meant))
    if free:
        yield Barrier("not_enough", action, who=tuple(running.holder for running in free))


def _spared(session: Session, ask: Ask, found: _Found) -> list[Running]:
    """Return those of whom plugins let something go."""
    if not found.free or not session.hooks.has("may_evict"):
        return found.free
    opinion = session.hooks.may_evict(ask.state, tuple(pod for one in found.free for pod in one.pods))
    if not isinstance(opinion, Only):
        return found.free
    return [one for one in found.free if any(pod.uid in opinion.uids for pod in one.pods)]
