"""Allocate: place what can be placed now, in order, whole gangs first.

Three passes. (1) Repair: lost members of running groups come back, each for itself, so that what already runs is not
held up by newcomers. (2) Start: for the queue whose turn it is, its next group: its exact minimum or nothing. (3) Grow:
sub-groups and members above the minimum, in small decisions in the same order, so that elastic groups share what is
left. While a
minimum is being bound it can still be unwound: until that is settled nothing else of its group is placed.

Where a placement is found is decided by placement, whose turn it is by plugins, what is said about the rest by
`reasons`. Invariant: nothing of a group is decided unless its minimum is met by this decision or before it.
"""

from __future__ import annotations

from collections.abc import Collection

from scheduler.actions.attempt import attempt, attempt_run
from scheduler.actions.gates import gate, losing
from scheduler.actions.steps import grow, repair, started_elsewhere
from scheduler.actions.turns import Order, in_order
from scheduler.actions.wants import GROWTH_ROUNDS, waits_for_room, wants
from scheduler.framework.gangs import is_running, is_starting, needs, startable
from scheduler.framework.session import Session
from scheduler.model.groups import GroupState
from scheduler.model.verdict import Code, Verdict, verdict

STRICT = "StrictFIFO"
"""The order of queues in which nobody passes the head."""
NUMBERS_AFTER = 5.0
"""Seconds for which the numbers of a group that still does not fit may be those of an earlier session."""
LOSING_AGAIN = 10.0
"""Seconds after which it is asked again whether members of a group still are to go: they may stay after all."""


def run(session: Session) -> None:
    """Make all placements that there is room for."""
    passes(session, candidates(session))


def passes(session: Session, states: list[GroupState]) -> None:
    """Give each of these groups its turn."""
    order = in_order(session, states)
    lacking = {state.key: needs(state).total for state in states}
    running = {state.key for state in states if is_running(state)}
    _repair(session, order.only(lambda state: state.key in running and lacking[state.key] > 0))
    starting = order.only(lambda state: state.key not in running and lacking[state.key] > 0)
    lost = {key for key in running if key in wants(session) or key in session.verdicts}
    heads = _heads(session, starting)
    _start(session, in_order(session, [*starting.states(), *heads]) if heads else starting)
    more = order.only(lambda state: bool(state.group.subgroups) or len(state.waiting) > lacking[state.key])
    _grow(session, more, running, lost)


# -- who may be placed -----------------------------------------------------------------------------------------------


def candidates(session: Session) -> list[GroupState]:
    """Return the groups that may be placed. The others get their verdict here, or keep an earlier one that still holds.

    Nobody is searched for again before something happened that can help.
    """
    found: list[GroupState] = []
    for state in session.waiting.values():
        if is_starting(state):
            continue
        lost = losing(session, state)
        if lost is not None:  # not remembered: it changes without the group
            session.reject(state, lost)
            session.wake_no_later_than(session.now + LOSING_AGAIN)
            continue
        known = session.recall(state)
        if known is not None:
            session.reject(state, known)
            session.recalled[state.key] = state
            continue
        unfit = session.recall_unfit(state)
        if unfit is not None:
            session.reject(state, unfit.verdict)
            session.recalled[state.key] = state
            if session.now >= unfit.said + NUMBERS_AFTER:
                session.outdated[state.key] = state
            else:
                session.wake_no_later_than(unfit.said + NUMBERS_AFTER)
            continue
        with session.guard(state):
            why = gate(session, state)
            if why is not None:
                session.reject(state, why)
                session.remember(state, why)
            elif state.waiting:
                found.append(state)
    return found


# -- the passes -------------------------------------------------------------------------------------------------------


def _repair(session: Session, order: Order) -> None:
    for state in order.each():
        with session.guard(state):
            repair(session, state)


def _start(session: Session, order: Order) -> None:
    """Give each group its turn; in a strict queue nobody passes one that has no place."""
    ahead: dict[str, GroupState] = {}
    for turn in order.turns():
        name = session.queue_of(turn[0])
        strict = session.queue(name).order == STRICT
        if strict and name in ahead:
            for state in turn:
                session.reject(state, _behind(ahead[name], name))
            continue
        if turn[0].key in session.recalled:
            ahead[name] = turn[0]
            continue
        with session.guard(*turn):
            if len(turn) > 1:
                attempt_run(session, turn)
            else:
                state = turn[0]
                if not started_elsewhere(session, state):
                    attempt(session, state, startable(state), needs(state), each=False)
        if strict:
            left = [state for state in turn if state.key in wants(session) or state.key in session.deferred]
            if left:
                ahead[name] = left[0]


def _heads(session: Session, order: Order) -> list[GroupState]:
    """Groups of which it is known that there is no place for them, in strict queues in which others wait for a turn."""
    names = {name for name in order.queues() if session.queue(name).order == STRICT}
    return [
        state
        for state in session.recalled.values()
        if names and session.queue_of(state) in names and waits_for_room(session, state)
    ]


def _behind(head: GroupState, queue: str) -> Verdict:
    return verdict(Code.PRIORITY, queue=queue, group=f"{head.group.namespace}/{head.group.name}")


def _grow(session: Session, order: Order, running: Collection[str], lost: Collection[str]) -> None:
    """Hand out the surplus in rounds, in each a part of every group that still has some, until nothing more fits.

    lost: groups of which a lost member has no place. Their surplus may have one; what is said of them stays.
    """

    def grows(state: GroupState) -> bool:
        blocked = state.key not in lost and (state.key in wants(session) or state.key in session.verdicts)
        if blocked or state.key in session.deferred:
            return False
        # A minimum of several that was placed just now can still be unwound: its surplus waits until it is bound.
        whole = state.key in running or not needs(state).total or _stands_alone(session, state)
        return whole and bool(session.remaining(state))

    for number in range(GROWTH_ROUNDS):
        before = len(session.places)
        order = order.only(grows)
        if number:
            order = in_order(session, order.states())  # what was given changes whose turn it is
        for state in order.each():
            with session.guard(state):
                grow(session, state, noted=state.key not in lost)
        if len(session.places) == before:
            return


def _stands_alone(session: Session, state: GroupState) -> bool:
    """Whether this session placed the group's minimum, and that is one member."""
    return any(place.minimum == 1 for place in session.placed_of.get(state.key, ()))
