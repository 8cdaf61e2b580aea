"""Where members that come back to a running gang should go: where their rank stood, else beside the ranks next to it.

Decided here: who counts as coming back (a rank that stood before, or one below others that run), which rank a member
without an index of its own takes over, and how near a node is: the rank's own, those of the nearest ranks that run,
then nodes that share their domains, the more levels the better. It is a preference: no member waits for it. Indices are
counted by role and sub-group, given ranks over the whole gang.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from scheduler.framework.gangs import is_running
from scheduler.framework.protocols import Wish
from scheduler.framework.session import Session
from scheduler.model.groups import GroupState
from scheduler.model.pods import Pod

Scope: TypeAlias = tuple[str, str]
"""Role and sub-group."""
_GANG: Scope = ("*", "*")


@dataclass(frozen=True, slots=True)
class Seat:
    """Rows of the node table: where a rank stood (-1 = not known), and where the nearest that run stand."""

    home: int
    beside: tuple[int, ...]


NO_SEATS: tuple[dict[str, Seat], dict[str, int]] = ({}, {})


def seats(session: Session, state: GroupState, pods: Sequence[Pod]) -> tuple[dict[str, Seat], dict[str, int]]:
    """Return by uid the seats of those of the waiting pods that come back, and the ranks that they take over."""
    if not is_running(state) or state.group.dialect == "pod":
        return NO_SEATS
    there = {
        (scope, rank): row for scope, rank, node in _standing(session, state) if (row := session.row(node)) is not None
    }
    if not there:
        return NO_SEATS
    before = {(_scope(pod), pod.index): pod.node for pod in (*state.left, *state.failed, *state.terminating)}
    in_order: dict[Scope, list[int]] = {_GANG: sorted({rank for _, rank in there})}
    for scope, rank in sorted(there):
        in_order.setdefault(scope, []).append(rank)
    everywhere = {rank: row for (_, rank), row in there.items()}
    given = _given(pods, taken(session, state), {rank: scope for scope, rank in before})
    found: dict[str, Seat] = {}
    ranks: dict[str, int] = {}
    for pod in pods:
        own = pod.index >= 0
        rank = pod.index if own else given[pod.uid]
        scope = _scope(pod) if own else _GANG
        running = in_order.get(scope, [])
        home = before.get((_scope(pod), rank))
        if home is None and not (running and rank < running[-1]):
            continue
        place = bisect(running, rank)
        nearest = running[max(0, place - 1) : place + 1] if rank not in running else []
        beside = (there[scope, one] if own else everywhere[one] for one in nearest)
        row = session.row(home) if home else None
        found[pod.uid] = Seat(-1 if row is None else row, tuple(dict.fromkeys(beside)))
        if not own:
            ranks[pod.uid] = rank
    return found, ranks


def taken(session: Session, state: GroupState) -> set[int]:
    """Return the ranks of members that run, are about to, have ended or are being deleted."""
    there = (*state.bound, *state.assumed, *state.succeeded, *state.terminating)
    ranks = {pod.index for pod in there if pod.index >= 0}
    for place in session.placed_of.get(state.key, ()):
        ranks.update(one.mark.rank for one in place.assignments if one.mark is not None)
    return ranks


def levels_of(session: Session, wishes: Iterable[Wish]) -> list[str]:
    """Return the levels by which nodes are near each other, widest first: of the topologies that the wishes speak of,
    else of the only one that there is."""
    asked = [wish.label for wish in wishes]
    found = [[one.key for one in tree.levels] for tree in session.topology.trees.values()]
    meant = [keys for keys in found if any(label in keys for label in asked)] or (found if len(found) == 1 else [])
    known = [key for keys in meant for key in keys]
    return [*known, *(label for label in dict.fromkeys(asked) if label not in known)]


def nearness(
    session: Session, seat: Seat, levels: Sequence[str], scores: NDArray[np.int64] | None
) -> NDArray[np.int64]:
    """Return scores of the nodes for members of a seat: how near they are, and what was said before among equals."""
    size = len(session.table.names)
    near = np.zeros(size, dtype=np.int64)
    grouped = [session.domains(level)[0] for level in levels]
    rows = [*seat.beside, *([seat.home] if seat.home >= 0 else [])]
    for row in rows:
        shared = sum((((ids == ids[row]) & (ids >= 0)).astype(np.int64) for ids in grouped), np.zeros(size, np.int64))
        near = np.maximum(near, shared)
    near[list(seat.beside)] = len(levels) + 1
    if seat.home >= 0:
        near[seat.home] = len(levels) + 2
    if scores is None or not scores.size:
        return near
    low, high = int(scores.min()), int(scores.max())
    return near * (high - low + 1) + scores - low


def _scope(pod: Pod) -> Scope:
    return pod.role, pod.part


def _standing(session: Session, state: GroupState) -> Iterator[tuple[Scope, int, str]]:
    """Yield the ranks that run or are about to, this session's placements included, with their nodes."""
    for pod in (*state.bound, *state.assumed):
        if pod.index >= 0:
            yield _scope(pod), pod.index, pod.node or pod.nominated
    waiting = {pod.uid: pod for pod in state.waiting} if state.key in session.placed_of else {}
    for place in session.placed_of.get(state.key, ()):
        for one in place.assignments:
            pod = waiting[one.uid]
            rank = pod.index if pod.index >= 0 or one.mark is None else one.mark.rank
            if rank >= 0:
                yield _scope(pod), rank, one.node


def _given(pods: Sequence[Pod], used: set[int], owners: Mapping[int, Scope]) -> dict[str, int]:
    """Return the ranks of members that have no index: the lowest free ones, first those of their own role and part."""
    missing = [pod for pod in pods if pod.index < 0]
    free = [rank for rank in range(len(used) + len(missing)) if rank not in used][: len(missing)]
    owned: dict[Scope, list[int]] = {}
    for rank in reversed(free):
        if rank in owners:
            owned.setdefault(owners[rank], []).append(rank)
    found = {pod.uid: owned[_scope(pod)].pop() for pod in missing if owned.get(_scope(pod))}
    given = set(found.values())
    rest = (rank for rank in free if rank not in given)
    found.update(zip((pod.uid for pod in missing if pod.uid not in found), rest, strict=True))
    return found
