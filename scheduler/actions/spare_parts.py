"""Sub-groups that a running gang does not need: each may go as a whole while the gang lives on.

Decided here: where more sub-groups run whole than have to (K of N), so many of them may go as are too many, as far as
the minimum of the gang allows; of one that is not whole, where enough others are, each member may go. What else runs of
the gang goes only as far as it is above its minimums. Sub-groups inside of one that may go are looked at in a second
question. Who may go at all is decided by `rights`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from scheduler.actions.candidates import Candidate
from scheduler.actions.narrowing import WHOLE
from scheduler.actions.rights import Budgeted, Rights, Share, only_of
from scheduler.framework.session import Session
from scheduler.framework.subgroups import is_under
from scheduler.model.parts import Part, tree_of
from scheduler.model.pods import Pod, held_together


@dataclass(frozen=True, slots=True)
class _Level:
    """Sub-groups of one, of which something runs: at most `most` of those that are whole may go."""

    parts: tuple[Part, ...]
    most: int


def by_parts(session: Session, rights: Rights) -> Iterator[Rights]:
    """Yield the rights with its spare sub-groups in place of each gang that has some: outer ones, then inner ones."""
    if not any(one.running.parted for one in rights.candidates):
        return
    if sum(len(one.pods) for one in rights.candidates) > WHOLE:
        return
    seen: list[list[list[tuple[Pod, ...]]]] = []
    for inner in (False, True):
        pieces: list[list[Candidate]] = []
        limits: list[Budgeted] = []
        for one in rights.candidates:
            found, least = _spare(session, one, inner=inner) if one.running.parted else ([], [])
            pieces.append(found or [one])
            limits.extend(least)
        shown = [[piece.pods for piece in found] for found in pieces]
        if limits and shown not in seen:
            seen.append(shown)
            yield _in_pieces(rights, pieces, limits)


def _in_pieces(rights: Rights, pieces: Sequence[Sequence[Candidate]], limits: Sequence[Budgeted]) -> Rights:
    """Return the rights where each candidate consists of these."""
    first = [0]
    for found in pieces:
        first.append(first[-1] + len(found))

    def left(members: Sequence[int]) -> tuple[int, ...]:
        return tuple(number for member in members for number in range(first[member], first[member + 1]))

    shares: list[Share] = [replace(share, members=left(share.members)) for share in rights.shares]
    return Rights(
        rights.why,
        tuple(piece for found in pieces for piece in found),
        tuple(shares),
        tuple(only_of(limit, left) for limit in rights.limits),
        tuple(replace(one, members=left(one.members)) for one in rights.guarantees),
        rights.budgets,
        spared=tuple(limits),
    )


def _spare(session: Session, candidate: Candidate, *, inner: bool) -> tuple[list[Candidate], list[Budgeted]]:
    """Return a candidate in pieces that are each nothing else, and how many of these (by one pod of each) may go."""
    running = candidate.running
    state = session.snapshot.groups[running.key]
    if len(running.pods) != len(state.bound):
        return [], []  # some are about to go: what is spare then is not known
    tree = tree_of(state)
    may_go = {pod.uid for pod in candidate.pods}
    held_fast = [pod.part for pod in state.assumed]
    pieces: list[Candidate] = []
    limits: list[Budgeted] = []
    taken: set[str] = set()
    for level in _levels(tree.parts, tree.least, inner=inner):
        named: list[str] = []
        for part in level.parts:
            pods = tuple(pod for pod in running.pods if is_under(pod.part, part.path))
            if not pods or any(is_under(path, part.path) for path in held_fast):
                continue
            if not all(pod.uid in may_go for pod in pods):
                continue
            taken.update(pod.uid for pod in pods)
            if part.met:
                named.append(pods[0].uid)
            minimum = 0 if not part.met else len(pods) if part.parts else max(1, part.minimum)
            pieces.append(_piece(session, candidate, pods, minimum))
        if named:
            limits.append(Budgeted(frozenset(named), level.most))
    if not pieces:
        return [], []
    limits.append(Budgeted(frozenset(may_go), max(0, len(running.pods) + running.fixed - running.minimum)))
    for role, least in running.roles:  # of all pieces together
        mine = [pod.uid for pod in running.pods if pod.role == role]
        limits.append(Budgeted(frozenset(mine), max(0, len(mine) - least)))
    return [*pieces, *_rest(session, candidate, taken)], limits


def _piece(session: Session, candidate: Candidate, pods: tuple[Pod, ...], minimum: int) -> Candidate:
    held = held_together(pods, session.snapshot.shapes)
    alone = replace(candidate.running, pods=pods, minimum=minimum, roles=(), parts=(), fixed=0, held=held)
    return Candidate(alone, pods, spare_part=True)


def _rest(session: Session, candidate: Candidate, taken: set[str]) -> Iterator[Candidate]:
    """Yield what is in no spare sub-group, of which only what is above the minimums may go."""
    running = candidate.running
    pods = tuple(pod for pod in candidate.pods if pod.uid not in taken)
    if not pods:
        return
    kept = tuple(pod for pod in running.pods if pod.uid not in taken)
    there = {pod.part for pod in kept}
    parts = tuple((path, least) for path, least in running.parts if path in there)
    least = min(len(kept), sum(least for _, least in parts))
    if len(kept) > least:
        held = held_together(kept, session.snapshot.shapes)
        rest = replace(running, pods=kept, minimum=least, roles=(), parts=parts, held=held)
        yield Candidate(rest, pods, whole=False)


def _levels(parts: Sequence[Part], least: int, *, inner: bool) -> Iterator[_Level]:
    """Yield the sub-groups that may go beside each other. inner: those inside of others rather than these."""
    met = sum(part.met for part in parts)
    more = met - least
    mine: list[Part] = []
    for part in parts:
        below = tuple(_levels(part.parts, part.least, inner=inner)) if part.started and part.parts and part.met else ()
        may = part.started and (more > 0 or (more == 0 and not part.met))
        if below and (inner or not may):
            yield from below
        elif may:
            mine.append(part)
    if mine:
        yield _Level(tuple(mine), max(0, more))
