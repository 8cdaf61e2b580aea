"""Who may be evicted for whom, and how far: the rights of preempt and reclaim, before plugins narrow them.

Decided here: the candidates of a group that wants room, and the rows that a set of them must keep. Preempt: in the same
queue, of a lower priority (or newer of the same one, where the queue says so), so many that the queue's limits hold.
Reclaim: in other queues that are over what they are owed, compared at the first ancestors that differ, for a group that
stays within what its own queue is owed, after what goes below that queue in the same decision; each taken while its
queue is still over, and never of what a queue is guaranteed. Where that does not suffice (pieces that are too small),
the same with what queues deserve in place of what they are owed: what is lent comes back. A gang that can live with
fewer members goes whole, to below what its queue deserves, only where neither suffices. In both actions: preemptible,
run for at least their queue's time (surplus members may go at once), never more of a disruption budget than it allows.

Which set is taken is decided by placement. Rights only ever shrink: `may_evict` of all plugins is asked at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from operator import is_
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from scheduler.actions.ask import Ask
from scheduler.actions.candidates import Candidate, Flags, Herd, Ints, herd_of
from scheduler.framework.protocols import Only
from scheduler.framework.session import Session
from scheduler.model.selecting import selects


@dataclass(frozen=True, slots=True)
class Share:
    """While a queue (with those below it) is over by these amounts, these candidates may be taken of it.

    over: (column of the book, amount). members: numbers of candidates. row: of the queue in the book.
    """

    row: int
    members: Sequence[int]
    over: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Limit:
    """So much of a resource must go with these candidates: a limit, or what is kept for others, allows no more.

    column: of the book. when: only if one of these candidates goes; None: always.
    """

    members: Sequence[int]
    column: int
    least: int
    when: Sequence[int] | None = None


@dataclass(frozen=True, slots=True)
class Guarantee:
    """At most so much of a resource goes with these candidates: their queue (with those below it) keeps the rest.

    row: of the queue in the book; column: of the book.
    """

    row: int
    members: Sequence[int]
    column: int
    most: int


@dataclass(frozen=True, slots=True)
class Budgeted:
    """At most `most` of these pods (uid) go."""

    pods: frozenset[str]
    most: int


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """Candidates of one herd by their numbers there. whole: where queues let them go whole."""

    herd: Herd
    numbers: NDArray[np.intp]
    whole: Flags

    def same(self, other: Part) -> bool:
        """Whether these are the same candidates."""
        return (
            self.herd is other.herd
            and np.array_equal(self.numbers, other.numbers)
            and np.array_equal(self.whole, other.whole)
        )

    def candidates(self) -> list[Candidate]:
        """Return them one by one."""
        found = [one for number in self.numbers.tolist() if (one := self.herd.candidates[number]) is not None]
        return [one if may else replace(one, whole=False) for one, may in zip(found, self.whole.tolist(), strict=True)]


@dataclass(frozen=True, eq=False)
class Rights:
    """Who may go for one group, and the rows that a set keeps. parts: where the candidates come from, in order. spared:
    what gangs keep of sub-groups of which some may go.

    Plugins and budgets are asked by `narrowed`.
    """

    why: str
    chosen: tuple[Candidate, ...] = ()
    shares: tuple[Share, ...] = ()
    limits: tuple[Limit, ...] = ()
    guarantees: tuple[Guarantee, ...] = ()
    budgets: tuple[Budgeted, ...] = ()
    parts: tuple[Part, ...] = ()
    spared: tuple[Budgeted, ...] = ()

    @cached_property
    def candidates(self) -> tuple[Candidate, ...]:
        """Those who may go: of the parts, else those who were chosen."""
        return tuple(one for part in self.parts for one in part.candidates()) if self.parts else self.chosen

    def same(self, other: Rights | None) -> bool:
        """Whether two rights that consist of parts are the same."""
        return (
            other is not None
            and self.shares == other.shares
            and len(self.parts) == len(other.parts)
            and all(map(Part.same, self.parts, other.parts))
        )


def preempting(session: Session, ask: Ask) -> Rights | None:
    """Return whom the group may evict in its own queue; None when nobody."""
    state, row = ask.state, session.served_row(ask.state)
    queue = session.queue(session.queue_of(state))
    if row is None or queue.within_queue == "Never":
        return None
    herd = herd_of(session, row, against_others=False)
    lower = herd.priority < state.priority
    if queue.within_queue == "LowerOrNewerEqualPriority":
        lower |= (herd.priority == state.priority) & (herd.created > state.group.created)
    if state.key in herd.position:
        lower[herd.position[state.key]] = False
    numbers = herd.of(lower)
    if not numbers.size:
        return None
    part = Part(herd, numbers, ~herd.grew[numbers])
    book = session.book
    asked = book.vector(ask.amounts)
    return Rights("preempt", limits=_limits(session, row, asked, {row: numbers.size}), parts=(part,))


def reclaiming(session: Session, ask: Ask) -> Rights | None:
    """Return whom the group may evict in other queues, which hold more than they are owed; None when nobody."""
    return _reclaiming(session, ask, session.book.ground.owed)[0]


def recalling(session: Session, ask: Ask) -> Iterator[Rights]:
    """Yield whom else the group may evict: in queues that hold more than they deserve, and then also gangs whole that
    can live with fewer."""
    first, over_owed = _reclaiming(session, ask, session.book.ground.owed)
    over_deserved = _reclaiming(session, ask, _deserved(session), _short(session, ask))
    known = [first]
    for rights in (over_deserved[0], over_owed, over_deserved[1]):
        if rights is not None and not any(rights is one or rights.same(one) for one in known):
            known.append(rights)
            yield rights


def _deserved(session: Session) -> Ints:
    ground = session.book.ground
    return np.minimum(ground.owed, ground.deserved)


def _short(session: Session, ask: Ask) -> Ints:
    """Return what is asked for of resources of which the nodes have too little for it; where none is, of all."""
    asked = session.book.vector(ask.amounts)
    short = np.zeros_like(asked)
    for kind, members in zip(ask.kinds, ask.members, strict=True):
        for name, request, free in zip(session.table.resources, session.request(kind.shape), session.free, strict=True):
            column = session.book.column(name)
            if request > 0 and column is not None and int((np.maximum(free, 0) // request).sum()) < members:
                short[column] = asked[column]
    return short if short.any() else asked


_Found: TypeAlias = tuple[Rights | None, Rights | None]
"""Rights as `_spared` leaves them, and all of them; one object where that takes nothing."""


def _reclaiming(session: Session, ask: Ask, most: Ints, short: Ints | None = None) -> _Found:
    """Return whom the group may evict where `most` is what queues may hold without giving back.

    short: that part of what is asked for in which others have to be over, None: all of it. An ask that is like an
    earlier one gets the same answer until somebody was placed or evicted.
    """
    row, priority = session.served_row(ask.state), ask.state.priority
    queue = session.queue(session.queue_of(ask.state))
    if row is None or queue.reclaim == "Never":
        return None, None
    asked = session.book.vector(ask.amounts)
    key = (queue.name, row, priority, asked.tobytes(), b"" if short is None else short.tobytes())
    known: dict[object, tuple[tuple[int, int], _Found, float]] = session.scratch.setdefault("reclaiming", {})
    stamp = len(session.places), len(session.evicted)
    if key not in known or known[key][0] != stamp:
        before, session.changes_at = session.changes_at, float("inf")
        rights = _reclaimed(session, ask, row, most, asked if short is None else short)
        found = (rights if rights is None else _spared(session, rights, row, asked)), rights
        known[key] = stamp, found, session.changes_at
        session.changes_at = before
    _, found, when = known[key]
    session.look_again_at(when)
    return found


def _reclaimed(session: Session, ask: Ask, row: int, most: Ints, matters: Ints) -> Rights | None:
    """Find whom a group of the queue of a row may evict. matters: in what of it others have to be over."""
    queue = session.queue(session.queue_of(ask.state))
    book = session.book
    asked = book.vector(ask.amounts)
    found: list[Part] = []
    shares: list[Share] = []
    inside: list[Limit] = []
    below_of = {row: 0}
    for below, above in pairwise(book.lineage(row)):
        beyond = book.beyond(below, asked, most)
        if any(amount > _holding(found, column) for column, amount in beyond):
            break
        inside.extend(Limit(range(below_of[below]), column, amount, ()) for column, amount in beyond)
        for child in book.children(above):
            if child != below:
                _collect(session, ask, child, matters, most, queue.reclaim == "LowerPriority", found, shares)
        below_of[above] = sum(part.numbers.size for part in found)
    limits = _limits(session, row, asked, below_of)
    if not found or any(not limit.members for limit in limits):
        return None
    everyone = sum(part.numbers.size for part in found)
    own = (replace(limit, when=range(len(limit.members), everyone)) for limit in inside)
    kept = tuple(guarantee for share in shares for guarantee in _guarantees(session, share))
    limits = (*limits, *(limit for limit in own if limit.when))
    return Rights("reclaim", shares=tuple(shares), limits=limits, guarantees=kept, parts=tuple(found))


def _spared(session: Session, rights: Rights, row: int, asked: Ints) -> Rights:
    """Return the rights without those to take a gang whole that can live with fewer, where its queue (or one above it,
    but not above the group's own) would then hold less than it deserves of something that is asked for.

    row: of the group's own queue.
    """
    if not any(part.herd.spare[part.numbers].any() for part in rights.parts):
        return rights
    book, deserved, own = session.book, _deserved(session), set(session.book.lineage(row))
    parts = []
    for part in rights.parts:
        spare = part.herd.spare[part.numbers]
        held = part.herd.held[part.numbers]
        for one in book.lineage(book.tree.index[part.herd.queue]) if spare.any() else ():
            above = book.staying[one] - deserved[one]
            matters = (asked > 0) & book.ground.counts[one] & (above > 0)
            if one not in own and matters.any():
                spare_only = spare & (held[:, matters] > above[matters]).any(axis=1)
                part = replace(part, whole=part.whole & ~spare_only)
        parts.append(part)
    return replace(rights, parts=tuple(parts))


def _holding(parts: Iterable[Part], column: int) -> int:
    """Return how much of a resource candidates hold together. column: of the book."""
    return sum(int(part.herd.held[part.numbers, column].sum()) for part in parts)


def _limits(session: Session, row: int, asked: Ints, below: Mapping[int, int]) -> tuple[Limit, ...]:
    """Return what has to go because the queue or one above it holds too much, or because others are guaranteed it.

    below: so many candidates are there.
    """
    book, count = session.book, 0
    found: list[Limit] = []
    for one in book.lineage(row):
        count = below.get(one, count)
        above = book.used[one] + asked - book.ground.limit[one]
        found.extend(Limit(range(count), int(c), int(above[c])) for c in np.flatnonzero((asked > 0) & (above > 0)))
    lacking = book.lacking(row, asked)
    found.extend(Limit(range(count), int(c), int(lacking[c])) for c in np.flatnonzero(lacking > 0))
    return tuple(found)


def _guarantees(session: Session, share: Share) -> Iterator[Guarantee]:
    """Yield how much of a queue may go so that it keeps what it is guaranteed, or all that it has of it."""
    book = session.book
    staying = book.staying[share.row]
    least = book.secured(share.row)
    for column in np.flatnonzero(least > 0).tolist():
        yield Guarantee(share.row, share.members, column, int(staying[column] - least[column]))


def _collect(
    session: Session,
    ask: Ask,
    row: int,
    asked: Ints,
    most: Ints,
    lower_only: bool,
    found: list[Part],
    shares: list[Share],
) -> None:
    """Add the candidates of a queue and all below it, with the rows that hold there."""
    book = session.book
    queue = session.queue(book.tree.names[row])
    over = book.over(row, asked, most)
    if not over or not queue.reclaimable:
        return
    first = sum(part.numbers.size for part in found)
    for child in book.children(row):
        _collect(session, ask, child, asked, most, lower_only, found, shares)
    herd = herd_of(session, row, against_others=True)  # in a queue that got others below it what ran there goes on
    meant: Flags = np.asarray((herd.held[:, [column for column, _ in over]] > 0).any(axis=1))
    if lower_only:
        meant &= herd.priority < ask.state.priority
    numbers = herd.of(meant)
    if numbers.size:
        found.append(Part(herd, numbers, ~herd.grew[numbers]))
    last = sum(part.numbers.size for part in found)
    if last > first:
        shares.append(Share(row, range(first, last), over))


def narrowed(session: Session, ask: Ask, rights: Rights) -> Rights | None:
    """Return what plugins leave of the rights, with the disruption budgets that hold; None when nobody is left."""
    found = permitted(session, ask, rights.candidates)
    if not found:
        return None
    if len(found) == len(rights.candidates) and all(map(is_, found, rights.candidates)):
        return replace(rights, budgets=budgets_of(session, found)) if session.snapshot.budgets else rights
    new = {id(candidate.running): number for number, candidate in enumerate(found)}
    old = [id(candidate.running) for candidate in rights.candidates]

    def left(members: Sequence[int]) -> tuple[int, ...]:
        return tuple(new[old[member]] for member in members if old[member] in new)

    shares = (replace(share, members=left(share.members)) for share in rights.shares)
    return Rights(
        rights.why,
        tuple(found),
        tuple(share for share in shares if share.members),
        tuple(only_of(limit, left) for limit in rights.limits),
        tuple(replace(one, members=left(one.members)) for one in rights.guarantees),
        budgets_of(session, found),
        spared=rights.spared,
    )


def only_of(limit: Limit, left: Callable[[Sequence[int]], Sequence[int]]) -> Limit:
    """Return a limit of fewer candidates. left: gives the new numbers of those that are left."""
    return replace(limit, members=left(limit.members), when=None if limit.when is None else left(limit.when))


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
            left.append(replace(one, pods=pods, whole=whole))
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
