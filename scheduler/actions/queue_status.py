"""What the status of each queue should say: what it holds and is owed, and how many groups wait and run.

Decided here: what counts as waiting, running and let in, and that a queue is only spoken of when something about it
differs from the last time. How often that becomes a write, and in which words, is decided at the edge.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from scheduler.actions.enqueue import AT_THE_DOOR
from scheduler.framework.book import rows_of
from scheduler.framework.bookkeeping import asked_in, firmly_held
from scheduler.framework.session import Session
from scheduler.model.decisions import SetQueueStatus
from scheduler.model.filling import CEILING, Ints
from scheduler.model.queues import Queue, QueueFacts
from scheduler.model.quota import subtree
from scheduler.model.resources import Amounts, amounts

SUMS_REQUESTS = "kai"
"""The dialect whose queues tell what their groups hold or ask for, and what of it is firmly held."""
USAGE_AFTER = 60.0
"""Seconds after which usage over time alone is worth saying again."""


@dataclass(slots=True)
class Tally:
    """Numbers of one queue with all below it."""

    pending: int = 0
    admitted: int = 0
    running: int = 0
    pods: int = 0


@dataclass(slots=True)
class Spoken:
    """What was last said of a queue, and when; kept from session to session."""

    facts: dict[str, tuple[str, QueueFacts, float]] = field(default_factory=dict)


def run(session: Session) -> None:
    """Say what differs."""
    queues = {name: queue for name, queue in session.snapshot.queues.items() if queue.uid}
    spoken: Spoken = session.cache.spoken
    for name in [name for name in spoken.facts if name not in queues]:
        del spoken.facts[name]
    if not queues:
        return
    tallies = _tallies(session)
    requested = _requested(session) if any(queue.dialect == SUMS_REQUESTS for queue in queues.values()) else None
    for name, queue in queues.items():
        sums = requested if queue.dialect == SUMS_REQUESTS else None
        facts = facts_of(session, queue, tallies.get(name, Tally()), sums)
        known = spoken.facts.get(name)
        if known is not None and known[0] == queue.uid and _same(known[1], facts):
            due = known[2] + USAGE_AFTER
            if not facts.decayed_at or not facts.allocated or session.now < due:
                if facts.decayed_at and facts.allocated:
                    session.wake_no_later_than(due)
                continue
        spoken.facts[name] = (queue.uid, facts, session.now)
        session.say(SetQueueStatus(queue=name, uid=queue.uid, dialect=queue.dialect, facts=facts))


def _same(before: QueueFacts, now: QueueFacts) -> bool:
    """Whether nothing differs but usage over time."""
    return all(
        getattr(before, name) == getattr(now, name)
        for name in QueueFacts.__slots__
        if name not in ("decayed", "decayed_at")
    )


def _tallies(session: Session) -> dict[str, Tally]:
    """Count groups and pods for every queue and those above it."""
    own: dict[str, Tally] = {}
    for state in session.snapshot.groups.values():
        tally = own.setdefault(session.queue_of(state), Tally())
        tally.pods += len(state.bound) + len(state.assumed) + len(state.terminating)
        if state.placed - len(state.succeeded) > 0:
            tally.running += 1
        elif state.waiting or state.gated or (state.group.has_object and not state.succeeded and not state.failed):
            let_in = state.key in session.admitted or state.group.phase not in AT_THE_DOOR
            tally.admitted += let_in
            tally.pending += not let_in if state.group.has_object else 1
    for _, queue in session.snapshot.singles.values():
        tally = own.setdefault(queue, Tally())
        tally.running += 1
        tally.pods += 1
    found: dict[str, Tally] = {}
    tree = session.book.tree
    for name, tally in own.items():
        row = tree.index.get(name)
        for one in () if row is None else session.book.lineage(row):
            into = found.setdefault(tree.names[one], Tally())
            into.pending += tally.pending
            into.admitted += tally.admitted
            into.running += tally.running
            into.pods += tally.pods
    return found


def facts_of(session: Session, queue: Queue, tally: Tally, requested: Ints | None = None) -> QueueFacts:
    """Return what is so about a queue now. requested: what all queues hold and ask for, where that is to be told."""
    book, tree = session.book, session.book.tree
    row = tree.index[queue.name]
    closed = tree.closed(queue.name)
    state = "Open" if closed is None else closed[1]
    if closed is not None and state == "Hold" and tally.running:
        state = "Closing"
    decayed, at = session.cache.usage.of(queue.name)
    below = tree.children(queue.name)
    problem = tree.problem_of(queue.name) or ("", "")
    ground = book.ground
    counts = ground.counts[row]
    deserved = ground.total if row == tree.structure.root else ground.deserved[row]
    beyond = np.where(counts, np.maximum(book.used[row] - deserved, 0), 0)
    limit = ground.limit[row]
    return QueueFacts(
        state=state,
        allocated=_amounts(session, book.used[row]),
        entitlement=_amounts(session, np.where(counts, ground.entitled[row], 0)),
        borrowed=_amounts(session, beyond),
        guarantee=_amounts(session, ground.kept[row]),
        pending=tally.pending,
        admitted=tally.admitted,
        running=tally.running,
        decayed=decayed,
        decayed_at=at,
        children=below,
        problem=problem,
        over=_amounts(session, np.where(limit < CEILING, np.maximum(book.used[row] - limit, 0), 0)),
        pods=tally.pods,
        requested=None if requested is None else _amounts(session, requested[row]),
        fixed=None if requested is None else _amounts(session, firmly_held(session)[row]),
    )


def _requested(session: Session) -> Ints:
    """Return what every queue, with those below it, held and asked for when the session began; rows as in the book."""
    tree, resources = session.book.tree, session.book.ground.resources
    parts = (session.snapshot.queue_usage, asked_in(session, tree))
    held, asked = (subtree(tree.structure, rows_of(part, tree, resources)) for part in parts)
    found: Ints = np.minimum(held + asked, CEILING)
    return found


def _amounts(session: Session, values: np.ndarray[tuple[int, ...], np.dtype[np.int64]]) -> Amounts:
    return amounts(zip(session.book.ground.resources, values.tolist(), strict=True))
