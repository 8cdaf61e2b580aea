"""Who may be evicted for whom, and how far: the rights of preempt and reclaim, before plugins narrow them.

Decided here: the candidates of a group that wants room, and the rows that a set of them must keep. Preempt: in the same
queue, of a lower priority (or newer of the same one, where the queue says so), so many that the queue's limits hold.
Reclaim: in other queues that are over what they are owed, compared at the first ancestors that differ, for a group that
stays within what its own queue is owed; each taken while its queue is still over. Where that does not suffice (pieces
that are too small), the same with what queues deserve in place of what they are owed: what is lent comes back. In both
actions: preemptible, run for at least their queue's time (surplus members may go at once), never more of a disruption
budget than it allows.

Which set is taken is decided by placement. Rights only ever shrink: `may_evict` of all plugins is asked at the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from scheduler.actions.ask import Ask
from scheduler.framework.protocols import Only
from scheduler.framework.residents import Running
from scheduler.framework.session import Session
from scheduler.model.pods import Pod
from scheduler.model.selecting import selects

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A running group of which something may go: `pods` of it; all of them together only with `whole`."""

    running: Running
    pods: tuple[Pod, ...]
    whole: bool = True


@dataclass(frozen=True, slots=True)
class Share:
    """While a queue (with those below it) is over by these amounts, these candidates may be taken of it.

    over: (column of the book, amount). members: numbers of candidates. keep: (column, most) of what may be taken in all
    where a guarantee is kept.
    """

    members: tuple[int, ...]
    over: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Limit:
    """So much of a resource must go with these candidates, because a limit allows no more. column: of the book."""

    members: tuple[int, ...]
    column: int
    least: int


@dataclass(frozen=True, slots=True)
class Budgeted:
    """At most `most` of these pods (uid) go."""

    pods: frozenset[str]
    most: int


@dataclass(frozen=True, slots=True)
class Rights:
    """Who may go for one group, and the rows that a set keeps."""

    why: str
    candidates: tuple[Candidate, ...]
    shares: tuple[Share, ...] = ()
    limits: tuple[Limit, ...] = ()
    budgets: tuple[Budgeted, ...] = field(default=())


def preempting(session: Session, ask: Ask) -> Rights | None:
    """Return whom the group may evict in its own queue; None when nobody."""
    state, row = ask.state, session.queue_row(ask.state)
    queue = session.queue(session.queue_of(state))
    if row is None or queue.within_queue == "Never":
        return None
    newer = queue.within_queue == "LowerOrNewerEqualPriority"

    def lower(running: Running) -> bool:
        if running.priority < state.priority:
            return True
        return newer and running.priority == state.priority and running.created > state.group.created

    protected = min_runtime(session, row, against_others=False)
    found = [
        candidate
        for running in session.cache.residents.of_queue(queue.name)
        if running.key != state.key and lower(running) and (candidate := candidate_of(session, running, protected))
    ]
    found = permitted(session, ask, found)
    if not found:
        return None
    everyone = tuple(range(len(found)))
    book = session.book
    asked = book.vector(ask.amounts)
    limits: list[Limit] = []
    for one in book.lineage(row):
        above = book.used[one] + asked - book.ground.limit[one]
        limits.extend(Limit(everyone, int(c), int(above[c])) for c in np.flatnonzero((asked > 0) & (above > 0)))
    return Rights("preempt", tuple(found), limits=tuple(limits), budgets=budgets_of(session, found))


def reclaiming(session: Session, ask: Ask) -> Rights | None:
    """Return whom the group may evict in other queues, which hold more than they are owed; None when nobody."""
    return _reclaiming(session, ask, session.book.ground.owed)


def recalling(session: Session, ask: Ask) -> Rights | None:
    """Return whom else the group may evict in queues that hold more than they deserve; None when nobody else."""
    ground = session.book.ground
    rights = _reclaiming(session, ask, np.minimum(ground.owed, ground.deserved))
    return rights if rights is not None and rights != reclaiming(session, ask) else None


def _reclaiming(session: Session, ask: Ask, most: Ints) -> Rights | None:
    """Return whom the group may evict where `most` is what queues may hold without giving back."""
    state, row = ask.state, session.queue_row(ask.state)
    queue = session.queue(session.queue_of(state))
    if row is None or queue.reclaim == "Never":
        return None
    book = session.book
    asked = book.vector(ask.amounts)
    if book.limited(row, asked) is not None:
        return None
    owed = list(_within(session, row, asked, most))
    if len(owed) < 2:
        return None
    found: list[Candidate] = []
    shares: list[Share] = []
    for below, above in pairwise(owed):
        for child in book.children(above):
            if child != below:
                _collect(session, ask, child, asked, most, queue.reclaim == "LowerPriority", found, shares)
    allowed = permitted(session, ask, found)
    if not allowed:
        return None
    kept = {candidate.running.key: number for number, candidate in enumerate(allowed)}
    shares = [
        Share(tuple(kept[found[m].running.key] for m in share.members if found[m].running.key in kept), share.over)
        for share in shares
    ]
    return Rights(
        "reclaim", tuple(allowed), tuple(s for s in shares if s.members), budgets=budgets_of(session, allowed)
    )


def _within(session: Session, row: int, asked: Ints, most: Ints) -> Iterator[int]:
    """Yield the queue and those above it for as long as each below holds at most that with so much more."""
    for one in session.book.lineage(row):
        yield one
        if not session.book.within(one, asked, most):
            return


def _collect(
    session: Session,
    ask: Ask,
    row: int,
    asked: Ints,
    most: Ints,
    lower_only: bool,
    found: list[Candidate],
    shares: list[Share],
) -> None:
    """Add the candidates of a queue and all below it, with the rows that hold there."""
    book = session.book
    queue = session.queue(book.tree.names[row])
    over = book.over(row, asked, most)
    if not over or not queue.reclaimable:
        return
    first = len(found)
    children = book.children(row)
    for child in children:
        _collect(session, ask, child, asked, most, lower_only, found, shares)
    if not children:
        protected = min_runtime(session, row, against_others=True)
        columns = [column for column, _ in over]
        for running in session.cache.residents.of_queue(queue.name):
            if lower_only and running.priority >= ask.state.priority:
                continue
            candidate = candidate_of(session, running, protected)
            if candidate is not None and _holds_any(session, candidate, columns):
                found.append(_keeping_guarantee(session, candidate, row))
    if len(found) > first:
        shares.append(Share(tuple(range(first, len(found))), over))


def _holds_any(session: Session, candidate: Candidate, columns: list[int]) -> bool:
    """Whether the candidate holds something of what its queue is over in."""
    held = session.book.vector(candidate.running.holds(session.snapshot.shapes))
    return bool(any(held[column] > 0 for column in columns))


def _keeping_guarantee(session: Session, candidate: Candidate, row: int) -> Candidate:
    """Let a group go whole only where that leaves every queue above it what it is guaranteed."""
    book = session.book
    held = book.vector(candidate.running.holds(session.snapshot.shapes))
    for one in book.lineage(row):
        if one == book.tree.structure.root:
            continue
        kept = book.ground.kept[one]
        if bool(((kept > 0) & (held > 0) & (book.staying[one] - held < np.minimum(kept, book.staying[one]))).any()):
            return Candidate(candidate.running, candidate.pods, whole=False)
    return candidate


def candidate_of(session: Session, running: Running, protected: float) -> Candidate | None:
    """Return what of a running group may go, or None."""
    if not running.preemptible:
        return None
    pods = tuple(
        pod
        for pod in running.pods
        if pod.preemptible is not False and pod.uid not in session.evicted and session.row(pod.node) is not None
    )
    if not pods:
        return None
    time = running.min_runtime if running.min_runtime is not None else protected
    young = running.since + time > session.now if running.since else False
    whole = not young and len(pods) == len(running.pods) and not running.fixed
    if young:
        session.look_again_at(running.since + time)
    if not whole and len(running.pods) + running.fixed <= running.minimum:
        return None
    return Candidate(running, pods, whole)


def min_runtime(session: Session, row: int, *, against_others: bool) -> float:
    """Return the seconds for which groups of a queue are left alone: its own setting, or that of those above it."""
    for one in session.book.lineage(row):
        queue = session.queue(session.book.tree.names[one])
        if against_others and queue.reclaim_min_runtime is not None:
            return queue.reclaim_min_runtime
        if queue.min_runtime is not None:
            return queue.min_runtime
    return 0.0


def permitted(session: Session, ask: Ask, candidates: Iterable[Candidate]) -> list[Candidate]:
    """Ask the plugins, which only ever shrink the set."""
    found = list(candidates)
    if not found or not session.hooks.has("may_evict"):
        return found
    opinion = session.hooks.may_evict(ask.state, tuple(pod for one in found for pod in one.pods))
    if not isinstance(opinion, Only):
        return found
    left = []
    for one in found:
        pods = tuple(pod for pod in one.pods if pod.uid in opinion.uids)
        whole = one.whole and len(pods) == len(one.pods)
        if pods and (whole or len(one.running.pods) + one.running.fixed > one.running.minimum):
            left.append(Candidate(one.running, pods, whole))
    return left


def budgets_of(session: Session, candidates: list[Candidate]) -> tuple[Budgeted, ...]:
    """Return the disruption budgets of the candidates, with what is left of each."""
    snapshot = session.snapshot
    if not snapshot.budgets:
        return ()
    spaces = {pod.namespace for one in candidates for pod in one.pods}
    going = [*(pod for pod, _ in snapshot.releasing if not pod.deleting), *session.evicted.values()]
    rows = []
    for budget in snapshot.budgets.values():
        selector = budget.selector
        if selector is None or budget.namespace not in spaces:
            continue
        members = [pod for one in candidates for pod in one.pods if pod.namespace == budget.namespace]
        meant = frozenset(pod.uid for pod in members if selects(selector, dict(pod.labels)))
        if meant:
            spent = sum(pod.namespace == budget.namespace and selects(selector, dict(pod.labels)) for pod in going)
            rows.append(Budgeted(meant, max(0, budget.allowed - spent)))
    return tuple(rows)
