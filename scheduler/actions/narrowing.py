"""Which of very many candidates a search looks at, part by part, and what every set costs that it leaves out.

Decided here: up to `WHOLE` pods all of them are looked at, and the answer is the cheapest that placement can prove.
Beyond that a part is, which leaves more room than is asked for: nodes on which most members fit when all candidates are
gone, then those with the fewest groups. With a required domain the parts are whole domains, in the order of what they
cost at least by sums alone; as no set needs candidates of two domains, the cheapest is found when the next domain costs
no less. Where that is not so, what comes out is minimal and within the rights, and not said to be the cheapest. Also
here: "no", where not even all of them together leave room.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from scheduler.actions.ask import Ask, relate
from scheduler.actions.candidates import Ints
from scheduler.actions.rights import Part, Rights, only_of
from scheduler.actions.room import work_lost
from scheduler.framework.protocols import WithinDomain
from scheduler.framework.session import Session
from scheduler.placement import Cost

WHOLE = 4_000
"""Up to so many pods all candidates are looked at."""
PART = 1_000
"""Beyond that about so many pods are at first, or `SLACK` times what is asked for."""
SLACK = 3


@dataclass(frozen=True, slots=True)
class Portion:
    """What to look at next. rest: what every set costs at least that is in none of the portions so far; None: there is
    no other one. apart: whether what comes next is worth a look when this has an answer, which may not be the cheapest.
    """

    rights: Rights
    rest: Cost | None = None
    apart: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class _Pods:
    """Pods that may go, as columns. candidate: its number in the rights, in order. spare: of a group that may lose some
    and live. lost: the work that is lost with it."""

    rows: NDArray[np.intp]
    amounts: Ints
    candidate: Ints
    spare: NDArray[np.bool_]
    lost: Ints


@dataclass(frozen=True, slots=True, eq=False)
class _Wanted:
    """At least so many members that each ask for `request`, on nodes of the mask; `likely` so many.

    free, slots: without what goes anyway.
    """

    count: int
    likely: int
    request: Ints
    mask: NDArray[np.bool_]
    free: Ints
    slots: Ints


def portions(session: Session, ask: Ask, rights: Rights) -> Iterator[Portion]:
    """Yield the candidates to look at, the most promising first; none when no set of them leaves enough room.

    Numbers in shares, limits and guarantees follow.
    """
    if sum(int(part.herd.pods[part.numbers].sum()) for part in rights.parts) <= WHOLE:
        yield Portion(rights)
        return
    wanted = _wanted(session, ask)
    everybody = _pods(session, rights.parts)
    priority = np.concatenate([part.herd.priority[part.numbers] for part in rights.parts])
    levels = np.unique(priority).tolist()
    together = (wish for wish in ask.wishes if isinstance(wish, WithinDomain) and wish.required and not wish.part)
    label = next((wish.label for wish in together), None)
    if label is not None:
        ids = session.domains(label)[0].astype(np.int64)
        apart = not rights.limits and not relate(session, ask)
        for level, higher in zip(levels, [*levels[1:], None], strict=True):
            pods = _chosen(everybody, priority[everybody.candidate] <= level)
            yield from _by_domain(rights, wanted, pods, ids, level, higher, apart=apart)
        return
    ids = np.zeros(wanted.mask.size, dtype=np.int64)
    for level in levels:
        pods = _chosen(everybody, priority[everybody.candidate] <= level)
        fits, groups, count = _by_node(wanted, pods)
        if int(fits.sum()) >= wanted.count:
            rest = _least(wanted, pods, ids, level)[0]
            yield Portion(_only(rights, pods, _nodes(wanted, fits, groups, count, PART)), rest)
            yield Portion(_only(rights, everybody, _nodes(wanted, *_by_node(wanted, everybody), WHOLE)), rest)
            return


def _wanted(session: Session, ask: Ask) -> _Wanted:
    """Return what those members of one kind ask for that are there in any case: what is too little for them is so."""
    total = sum(len(kind.pods) for kind in ask.kinds)
    sure = [max(0, ask.total - total + len(kind.pods)) for kind in ask.kinds]
    kind = max(range(len(ask.kinds)), key=lambda number: (sure[number], ask.members[number], -number))
    shape = ask.kinds[kind].shape
    with session.outlook.ahead():
        free, slots = session.free.copy(), session.open_slots.copy()
    return _Wanted(
        sure[kind], max(sure[kind], ask.members[kind]), session.request(shape), session.fit(shape).mask, free, slots
    )


def _pods(session: Session, parts: Sequence[Part]) -> _Pods:
    """Return the pods of all candidates."""
    found: list[tuple[NDArray[np.intp], Ints, Ints, NDArray[np.bool_], Ints]] = []
    first = 0
    for part in parts:
        number = np.full(len(part.herd.candidates), -1, dtype=np.int64)
        number[part.numbers] = np.arange(first, first + part.numbers.size)
        spare = np.array([one is not None and one.spare for one in part.herd.candidates], dtype=np.bool_)
        rows, amounts, group, since = part.herd.flat()
        kept = number[group] >= 0
        rows, amounts, group, since = rows[kept], amounts[:, kept], group[kept], since[kept]
        found.append((rows, amounts, number[group], spare[group], work_lost(session, rows, amounts, since)))
        first += part.numbers.size
    rows_, amounts_, candidate, spare_, lost = zip(*found, strict=True)
    return _Pods(
        np.concatenate(rows_),
        np.concatenate(amounts_, axis=1),
        np.concatenate(candidate),
        np.concatenate(spare_),
        np.concatenate(lost),
    )


def _chosen(pods: _Pods, which: NDArray[np.bool_]) -> _Pods:
    return _Pods(pods.rows[which], pods.amounts[:, which], pods.candidate[which], pods.spare[which], pods.lost[which])


def _by_node(wanted: _Wanted, pods: _Pods) -> tuple[Ints, Ints, Ints]:
    """Return for each node how many members fit with all of these gone, of how many groups and pods they are."""
    count = np.bincount(pods.rows, minlength=wanted.slots.size)
    size = wanted.slots.size
    groups = np.bincount(np.unique(pods.candidate * size + pods.rows) % size, minlength=size)
    fits = np.maximum(wanted.slots + count, 0)
    for resource in np.flatnonzero(wanted.request).tolist():
        free = wanted.free[resource].copy()
        np.add.at(free, pods.rows, pods.amounts[resource])
        fits = np.minimum(fits, np.maximum(free, 0) // wanted.request[resource])
    return np.where(wanted.mask, fits, 0), groups, count


def _nodes(wanted: _Wanted, fits: Ints, groups: Ints, pods: Ints, most: int) -> NDArray[np.bool_]:
    """Return the nodes to look at, with about `most` pods."""
    order = np.lexsort((np.arange(fits.size), groups, -fits))
    order = order[fits[order] > 0]
    enough = int(np.searchsorted(np.cumsum(fits[order]), SLACK * wanted.likely)) + 1
    many = int(np.searchsorted(np.cumsum(pods[order]), most)) + 1
    taken = np.zeros(fits.size, dtype=np.bool_)
    taken[order[: max(enough, many)]] = True
    return taken


def _by_domain(
    rights: Rights, wanted: _Wanted, pods: _Pods, ids: Ints, level: int, higher: int | None, *, apart: bool
) -> Iterator[Portion]:
    """Yield whole domains that have room with all of these gone, the cheapest first. higher: the next priority.

    apart: whether a set needs nobody outside of a domain.
    """
    known = ids >= 0
    domains = int(ids.max(initial=-1)) + 1
    fits, _, count = _by_node(wanted, pods)
    room, size = (
        np.bincount(ids[known], weights=values[known], minlength=domains).astype(np.int64) for values in (fits, count)
    )
    least = _least(wanted, pods, ids, level)
    order = sorted(np.flatnonzero(room >= wanted.count).tolist(), key=lambda domain: (least[domain], domain))
    after: Cost | None = None if higher is None else (higher, 0, 0, 0)
    most = PART
    while order:
        many = int(np.searchsorted(np.cumsum(size[order]), most)) + 1
        most = min(2 * most, WHOLE)
        here, order = order[:many], order[many:]
        rest = least[order[0]] if order else after
        yield Portion(_only(rights, pods, np.isin(ids, here)), rest if apart else (level, 0, 0, 0), apart)


def _least(wanted: _Wanted, pods: _Pods, ids: Ints, level: int) -> list[Cost]:
    """Return for each domain what every set costs at least that makes room there, if it hurts a group of this priority.

    A gang breaks where all pods of groups that may lose some do not suffice. So many pods go at least as the largest of
    them must to free what is missing, and at least the work of as many that cost the least is lost.
    """
    domains = int(ids.max(initial=-1)) + 1
    usable = wanted.mask & (ids >= 0)
    pods = _chosen(pods, usable[pods.rows])
    inside = ids[pods.rows]
    spared = _by_node(wanted, _chosen(pods, pods.spare))[0]
    gangs = np.bincount(ids[usable], weights=spared[usable], minlength=domains) < wanted.count
    needed = np.zeros(domains, dtype=np.int64)
    rows = [(wanted.free[r], pods.amounts[r], int(wanted.request[r])) for r in np.flatnonzero(wanted.request).tolist()]
    for free, amounts, each in [*rows, (wanted.slots, np.ones_like(inside), 1)]:
        missing = np.full(domains, wanted.count * each, dtype=np.int64)
        np.subtract.at(missing, ids[usable], np.maximum(free[usable], 0))
        np.maximum(needed, _until(inside, -amounts, amounts, missing), out=needed)
    order = np.lexsort((pods.lost, inside))
    starts = np.searchsorted(inside[order], np.arange(domains))
    lost = [int(pods.lost[order[at : at + n]].sum()) for at, n in zip(starts.tolist(), needed.tolist(), strict=True)]
    return [(level, int(gang), int(n), work) for gang, n, work in zip(gangs, needed, lost, strict=True)]


def _until(inside: Ints, order_by: Ints, amounts: Ints, missing: Ints) -> Ints:
    """Return for each domain how many of its pods, in this order, it takes until nothing is missing."""
    order = np.lexsort((order_by, inside))
    starts = np.searchsorted(inside[order], np.arange(missing.size + 1))
    found = np.zeros(missing.size, dtype=np.int64)
    for domain in np.flatnonzero(missing > 0).tolist():
        upto = np.cumsum(amounts[order[starts[domain] : starts[domain + 1]]])
        found[domain] = min(upto.size, int(np.searchsorted(upto, missing[domain])) + 1)
    return found


def _only(rights: Rights, pods: _Pods, nodes: NDArray[np.bool_]) -> Rights:
    """Return the rights of the candidates with a pod on one of the nodes."""
    kept = np.zeros(sum(part.numbers.size for part in rights.parts), dtype=np.bool_)
    kept[pods.candidate[nodes[pods.rows]]] = True
    before = np.concatenate([[0], np.cumsum(kept)]).tolist()
    parts, first = [], 0
    for part in rights.parts:
        mine = kept[first : first + part.numbers.size]
        first += part.numbers.size
        if mine.any():
            parts.append(Part(part.herd, part.numbers[mine], part.whole[mine]))

    def left(members: Sequence[int]) -> range:
        if not members:
            return range(0)
        return range(before[members[0]], before[members[-1] + 1])  # members of rights that consist of parts are ranges

    shares = (replace(one, members=left(one.members)) for one in rights.shares)
    return Rights(
        rights.why,
        shares=tuple(share for share in shares if share.members),
        limits=tuple(only_of(one, left) for one in rights.limits),
        guarantees=tuple(replace(one, members=left(one.members)) for one in rights.guarantees if left(one.members)),
        parts=tuple(parts),
    )
