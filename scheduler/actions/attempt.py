"""One group's try: its exact minimum, or as many of its members as there is room for, and what is noted when not.

Decided here: that a queue is asked before nodes are (for fewer members where it does not allow so many that stand each
for itself), that what is wrong with one sub-group does not hold up such members of others, that pods which are being
deleted are waited for rather than more of them made, and that some have to wait for others (`wants.has_to_wait`). Where
members go is decided by placement.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from scheduler.actions.ask import Ask, make_ask
from scheduler.actions.dealing import deal
from scheduler.actions.placing import Found, Nothing, could_ever, solve
from scheduler.actions.wants import Want, has_to_wait, leave, wants
from scheduler.framework.gangs import Needs, count_by_role, meant
from scheduler.framework.session import Session
from scheduler.model.bindrequest import awaiting
from scheduler.model.groups import GroupState
from scheduler.model.pods import Pod
from scheduler.model.verdict import Verdict


def attempt(session: Session, state: GroupState, pods: Sequence[Pod], wanted: Needs, *, each: bool) -> None:
    """Place exactly what is wanted, or (each) as much of it as there is room for; otherwise note what it waits for."""
    ask = make_ask(session, state, pods, wanted, each=each)
    parts = dict.fromkeys(pod.part for pod in pods)
    if not isinstance(ask, Ask) and each and len(parts) > 1:
        for part in parts:
            attempt(session, state, [pod for pod in pods if pod.part == part], wanted, each=True)
        return
    if not isinstance(ask, Ask):
        session.reject(state, ask)
        return
    why = session.hooks.allows(state, ask.amounts, session)
    if why is not None and each and len(pods) > 1:
        attempt(session, state, pods[: len(pods) // 2], wanted, each=True)
        return
    if why is not None:
        session.reject(state, why)
        leave(session, Want(ask.for_one() if each else ask, why=why))
        return
    answer = solve(session, ask)
    if isinstance(answer, Nothing):
        note(session, ask.for_one() if each else ask, answer)
        return
    costlier = _costlier(session, ask, answer)
    if costlier is not None:
        cheapest = _cheapest(session, state, pods, wanted)
        if not cheapest:
            session.reject(state, costlier)
            leave(session, Want(ask, why=costlier))
        else:
            attempt(session, state, cheapest, wanted, each=False)
        return
    if defers(session, state, ask):
        return
    members = perform(session, ask, answer, each=each)
    if len(members) < len(pods) and each:
        placed = session.placed
        left = tuple(pod for pod in pods if pod.uid not in placed)
        rest = make_ask(session, state, left, Needs(1), each=True)
        if isinstance(rest, Ask):
            note(session, rest, _not_now(session, rest))


def _costlier(session: Session, ask: Ask, answer: Found) -> Verdict | None:
    """Return which limit says no to what was placed, where that is not what was asked about: of several sub-groups, or
    members of several sizes, placement may have chosen larger ones."""
    if ask.each or (len(ask.kinds) == 1 and not ask.lacking.choices):
        return None
    amounts = ask.amounts_of([int(counts.sum()) for _, counts in answer.parts])
    return None if amounts == ask.amounts else session.hooks.allows(ask.state, amounts, session)


def _cheapest(session: Session, state: GroupState, pods: Sequence[Pod], wanted: Needs) -> tuple[Pod, ...]:
    """Return the members about which the queue was asked; () where these are all, do not suffice, or never fit."""
    cheapest = meant(pods, wanted)
    there = count_by_role(cheapest)
    if len(cheapest) == len(pods) or any(there.get(role, 0) < count for role, count in wanted.roles):
        return ()
    ask = make_ask(session, state, cheapest, wanted)
    return cheapest if isinstance(ask, Ask) and could_ever(session, ask) else ()


def perform(session: Session, ask: Ask, answer: Found, *, each: bool) -> list[tuple[Pod, int]]:
    """Turn an answer into a decision; return the members with their rows."""
    with session.statement() as statement:
        for kind, (rows, counts) in zip(ask.kinds, answer.parts, strict=True):
            statement.charge(kind.shape, rows, counts)
        dealt = deal(session, ask, answer.parts)
        statement.place(ask.state, 0 if each else len(dealt.members), dealt.members, marks=dealt.marks)
        statement.commit()
    return dealt.members


def defers(session: Session, state: GroupState, ask: Ask) -> bool:
    """Leave the group to a later action when it has to wait for others; return whether that is so."""
    if not has_to_wait(session, state, ask):
        return False
    session.deferred[state.key] = state
    return True


def note(session: Session, ask: Ask, answer: Nothing) -> None:
    """Note that there is no room now; where there will be when pods that are being deleted are gone, keep that."""
    kept = False
    if session.outlook:
        with session.outlook.ahead():
            ahead = solve(session, ask)
        if isinstance(ahead, Found):
            for kind, (rows, counts) in zip(ask.kinds, ahead.parts, strict=True):
                session.outlook.keep(session.request(kind.shape), rows, counts)
            session.reject(ask.state, _coming(session, {int(row) for rows, _ in ahead.parts for row in rows}))
            kept = True
    leave(session, Want(ask, answer, kept=kept))


def _coming(session: Session, rows: set[int]) -> Verdict:
    """Return that the ask waits for pods that go on these nodes, with how many and the first few names."""
    going = {pod.uid: pod for pod, _ in session.snapshot.releasing} | session.evicted
    names = sorted(f"{pod.namespace}/{pod.name}" for pod in going.values() if session.row(pod.node) in rows)
    return awaiting(names)


def _not_now(session: Session, ask: Ask) -> Nothing:
    """What is known about the members that a search for as many as possible left over."""
    answer = solve(session, ask)
    return answer if isinstance(answer, Nothing) else Nothing(proven=False)


def attempt_run(session: Session, turn: list[GroupState]) -> None:
    """Place single pods that are alike with one search; each is a decision of its own.

    Where a plugin does not allow all of them at once, each is asked for on its own.
    """
    ask = make_ask(session, turn[0], [state.waiting[0] for state in turn], Needs(len(turn)), each=True)
    if (
        not isinstance(ask, Ask)
        or session.hooks.allows(turn[0], ask.amounts, session) is not None
        or has_to_wait(session, turn[0], ask)
    ):
        for state in turn:
            with session.guard(state):
                attempt(session, state, state.waiting, Needs(1), each=False)
        return
    answer = solve(session, ask)
    if isinstance(answer, Found):
        owner = {state.waiting[0].uid: state for state in turn}
        with session.statement() as statement:
            for kind, (rows, counts) in zip(ask.kinds, answer.parts, strict=True):
                statement.charge(kind.shape, rows, counts)
                rowed = zip(kind.pods, spelled(rows, counts), strict=False)
                statement.place_alike([(owner[pod.uid], pod, row) for pod, row in rowed])
            statement.commit()
    left = {state.waiting[0].uid: state for state in turn if state.key not in session.placed_of}
    for kind in ask.kinds:
        _block_alike(session, [left[pod.uid] for pod in kind.pods if pod.uid in left])


def _block_alike(session: Session, left: list[GroupState]) -> None:
    """Note what single pods that a search left over wait for: the first is asked for, the others lack the same."""
    if not left:
        return
    attempt(session, left[0], left[0].waiting, Needs(1), each=False)
    known = wants(session).get(left[0].key)
    for state in left[1:]:
        if known is None or known.answer is None or session.outlook:
            attempt(session, state, state.waiting, Needs(1), each=False)
        else:
            leave(session, Want(known.ask.of_single(state), known.answer))


def spelled(rows: NDArray[np.intp], counts: NDArray[np.int64]) -> list[int]:
    """Return one row for each pod: consecutive ranks share a node, then go on with the next."""
    return [int(row) for row in np.repeat(rows, counts)]
