"""Allocate: place what can be placed now, in order, whole gangs first.

Three passes. (1) Repair: lost members of running groups come back, each for itself, so that what already runs is not
held up by newcomers. (2) Start: for the queue whose turn it is, its next group: its exact minimum or nothing. (3) Grow:
members above the minimum, in small decisions in the same order, so that elastic groups share what is left. While a
minimum is being bound it can still be unwound: until that is settled nothing else of its group is placed.

Where a placement is found is decided by placement, whose turn it is by plugins, what is said about the rest by
`verdicts`. Invariant: nothing of a group is decided unless its minimum is met by this decision or before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from heapq import heapify, heappop, heappush
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from scheduler.actions.ask import Ask, make_ask
from scheduler.actions.gates import gate
from scheduler.actions.placing import Found, Nothing, solve
from scheduler.actions.verdicts import explain
from scheduler.framework.gangs import Needs, by_role, is_running, is_starting, needs
from scheduler.framework.session import Session
from scheduler.model.groups import GroupState
from scheduler.model.pods import Pod

RUN_LENGTH = 10_000
"""Most single pods that are placed in one step."""
NUMBERS_AFTER = 5.0
"""Seconds for which the numbers of a group that still does not fit may be those of an earlier session."""
GROWTH_ROUNDS = 16
"""A group's surplus is handed out in at most so many parts."""

Key: TypeAlias = tuple[Any, ...]
Blocked: TypeAlias = dict[str, tuple[Ask, Nothing]]
"""Groups that wait for room, with what they asked for and the answer."""


def run(session: Session) -> None:
    """Make all placements of this session and leave a verdict on every group that waits."""
    blocked: Blocked = {}
    candidates, recalled, outdated = _candidates(session)
    began = session.ledger.token
    order = _in_order(session, candidates)
    lacking = {state.key: needs(state).total for state in candidates}
    running = {state.key for state in candidates if is_running(state)}
    _repair(session, order.only(lambda state: state.key in running and lacking[state.key] > 0), blocked)
    _start(session, order.only(lambda state: state.key not in running and lacking[state.key] > 0), blocked)
    _grow(session, order.only(lambda state: len(state.waiting) > lacking[state.key]), running, blocked)
    for state in recalled if session.ledger.token != began else outdated:
        with session.guard(state):
            _look_again(session, state, blocked)
    for key in sorted(blocked):
        ask, answer = blocked[key]
        with session.guard(ask.state):
            why = explain(session, ask, answer)
            session.reject(ask.state, why)
            if answer.proven and key not in session.placed_of:
                session.remember(ask.state, why, answer)


def _look_again(session: Session, state: GroupState, blocked: Blocked) -> None:
    """Bring an earlier verdict up to date with what this session placed; what did not fit then does not fit now."""
    answer = session.cache.outcomes[state.key].answer
    why = gate(session, state)
    if why is None and isinstance(answer, Nothing):
        if is_running(state):
            pods = _replacements(state) or _surplus(session, state)
            ask = make_ask(session, state, pods, Needs(1), each=True)
        else:
            ask = make_ask(session, state, state.waiting, needs(state))
        if isinstance(ask, Ask):
            blocked[state.key] = (ask, answer)
            return
        why = ask
    if why is not None:
        session.reject(state, why)
        session.remember(state, why)


# -- whose turn it is -------------------------------------------------------------------------------------------------


class Order:
    """Groups with waiting members by queue, each queue in the order of its groups' keys; one for each pass."""

    def __init__(self, groups: dict[str, list[tuple[Key, GroupState]]], session: Session) -> None:
        self._groups, self._session = groups, session

    def only(self, take: Callable[[GroupState], bool]) -> Order:
        """Return the order of some of the groups."""
        parts = {name: [one for one in listed if take(one[1])] for name, listed in self._groups.items()}
        return Order({name: part for name, part in parts.items() if part}, self._session)

    def turns(self) -> Iterator[list[GroupState]]:
        """Yield the next group, or a run of single pods that are alike, until all have had a turn.

        Between queues with equal keys the groups' own keys decide, so that a queue without a policy delays nobody.
        """
        heap: list[tuple[Key, Key, str, int]] = []
        rows = self._groups
        for name in sorted(rows):
            self._push(heap, rows[name], name, 0)
        heapify(heap)
        while heap:
            _, _, name, position = heappop(heap)
            listed = rows[name]
            end = position + 1
            head = listed[position][1]
            if _is_single(self._session, head):
                limit = heap[0][:2] if heap else None
                queue_key = self._session.queue_key(name)
                while end < len(listed) and end - position < RUN_LENGTH:
                    key, state = listed[end]
                    if not _alike(head, state) or (limit is not None and (queue_key, key) > limit):
                        break
                    end += 1
            yield [state for _, state in listed[position:end]]
            if end < len(listed):
                self._push(heap, listed, name, end)

    def _push(
        self,
        heap: list[tuple[Key, Key, str, int]],
        listed: Sequence[tuple[Key, GroupState]],
        name: str,
        position: int,
    ) -> None:
        heappush(heap, (self._session.queue_key(name), listed[position][0], name, position))


def _candidates(session: Session) -> tuple[list[GroupState], list[GroupState], list[GroupState]]:
    """Return the groups that may be placed, those whose earlier verdict still holds, and of these the ones whose
    numbers are to be brought up to date. Groups that may not be placed get their verdict here.

    Nobody is searched for again before something happened that can help.
    """
    found: list[GroupState] = []
    recalled: list[GroupState] = []
    outdated: list[GroupState] = []
    for state in session.waiting.values():
        if is_starting(state):
            continue
        known = session.recall(state)
        if known is not None:
            session.reject(state, known)
            recalled.append(state)
            continue
        unfit = session.recall_unfit(state)
        if unfit is not None:
            session.reject(state, unfit.verdict)
            recalled.append(state)
            if session.now >= unfit.said + NUMBERS_AFTER:
                outdated.append(state)
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
    return found, recalled, outdated


def _in_order(session: Session, states: list[GroupState]) -> Order:
    queues: dict[str, list[tuple[Key, GroupState]]] = {}
    for state in states:
        with session.guard(state):
            own = session.hooks.order_groups(state, session)
            alike = state.waiting[0].shape if state.group.dialect == "pod" else ""
            key = (own, state.group.created, alike, state.key)
            queues.setdefault(session.queue_of(state), []).append((key, state))
    for name in sorted(queues):
        with session.guard(*(state for _, state in queues[name])):
            session.queue_key(name)
            queues[name].sort(key=lambda entry: entry[0])
            continue
        del queues[name]
    return Order(queues, session)


def _is_single(session: Session, state: GroupState) -> bool:
    return state.group.dialect == "pod" and len(state.waiting) == 1 and not session.refused_rows(state.waiting[0])


def _alike(first: GroupState, other: GroupState) -> bool:
    """Whether two single pods may share one placement: same shape and priority; neither was refused by a node."""
    return (
        other.group.dialect == "pod"
        and len(other.waiting) == 1
        and first.waiting[0].shape == other.waiting[0].shape
        and first.priority == other.priority
        and first.group.topology == other.group.topology
    )


# -- the passes -------------------------------------------------------------------------------------------------------


def _repair(session: Session, order: Order, blocked: Blocked) -> None:
    for turn in order.turns():
        for state in turn:
            with session.guard(state):
                pods = _replacements(state)
                _place(session, state, pods, Needs(len(pods)), blocked, each=True)


def _replacements(state: GroupState) -> tuple[Pod, ...]:
    """Members that bring a running group back to its minimum."""
    missing = needs(state)
    return by_role(state.waiting, dict(missing.roles), missing.total)


def _surplus(session: Session, state: GroupState) -> tuple[Pod, ...]:
    """The part of the members above the minimum that is handed out in one round."""
    pods = session.remaining(state)
    return pods[: max(state.group.min_member, -(-len(pods) // GROWTH_ROUNDS))]


def _start(session: Session, order: Order, blocked: Blocked) -> None:
    for turn in order.turns():
        with session.guard(*turn):
            if len(turn) > 1:
                _place_run(session, turn, blocked)
            else:
                state = turn[0]
                _place(session, state, state.waiting, needs(state), blocked, each=False)


def _grow(session: Session, order: Order, running: set[str], blocked: Blocked) -> None:
    """Hand out the surplus in rounds, in each a part of every group that still has some, until nothing more fits."""

    def grows(state: GroupState) -> bool:
        if state.key in blocked or state.key in session.verdicts:
            return False
        # A minimum of several that was placed just now can still be unwound: its surplus waits until it is bound.
        whole = state.key in running or not needs(state).total or _stands_alone(session, state)
        return whole and bool(session.remaining(state))

    for _ in range(GROWTH_ROUNDS):
        before = len(session.places)
        order = order.only(grows)
        for turn in order.turns():
            for state in turn:
                with session.guard(state):
                    pods = _surplus(session, state)
                    _place(session, state, pods, Needs(len(pods)), blocked, each=True)
        if len(session.places) == before:
            return


def _stands_alone(session: Session, state: GroupState) -> bool:
    """Whether this session placed the group's minimum, and that is one member."""
    return any(place.minimum == 1 for place in session.placed_of.get(state.key, ()))


def _place(
    session: Session, state: GroupState, pods: Sequence[Pod], wanted: Needs, blocked: Blocked, *, each: bool
) -> None:
    """Place exactly what is wanted, or (each) as much of it as there is room for; otherwise note what it waits for."""
    ask = make_ask(session, state, pods, wanted, each=each)
    if not isinstance(ask, Ask):
        session.reject(state, ask)
        return
    why = session.hooks.allows(state, ask.amounts, session)
    if why is not None:
        session.reject(state, why)
        return
    answer = solve(session, ask)
    if isinstance(answer, Nothing):
        blocked[state.key] = (ask.for_one() if each else ask, answer)
        return
    with session.statement() as statement:
        members: list[tuple[Pod, int]] = []
        for kind, (rows, counts) in zip(ask.kinds, answer.parts, strict=True):
            statement.charge(kind.shape, rows, counts)
            members.extend(zip(kind.pods, spelled(rows, counts), strict=False))
        statement.place(state, 0 if each else len(members), members)
        statement.commit()
    if len(members) < len(pods) and each:
        placed = session.placed
        left = tuple(pod for pod in pods if pod.uid not in placed)
        rest = make_ask(session, state, left, Needs(1), each=True)
        if isinstance(rest, Ask):
            blocked[state.key] = (rest, _not_now(session, rest))


def _not_now(session: Session, ask: Ask) -> Nothing:
    """What is known about the members that a search for as many as possible left over."""
    answer = solve(session, ask)
    return answer if isinstance(answer, Nothing) else Nothing(proven=False)


def _place_run(session: Session, turn: list[GroupState], blocked: Blocked) -> None:
    """Place single pods that are alike with one search; each is a decision of its own.

    Where a plugin does not allow all of them at once, each is asked for on its own.
    """
    ask = make_ask(session, turn[0], [state.waiting[0] for state in turn], Needs(len(turn)), each=True)
    if not isinstance(ask, Ask) or session.hooks.allows(turn[0], ask.amounts, session) is not None:
        for state in turn:
            with session.guard(state):
                _place(session, state, state.waiting, Needs(1), blocked, each=False)
        return
    answer = solve(session, ask)
    if isinstance(answer, Found):
        owner = {state.waiting[0].uid: state for state in turn}
        with session.statement() as statement:
            for kind, (rows, counts) in zip(ask.kinds, answer.parts, strict=True):
                statement.charge(kind.shape, rows, counts)
                for pod, row in zip(kind.pods, spelled(rows, counts), strict=False):
                    statement.place(owner[pod.uid], 1, [(pod, row)])
            statement.commit()
    left = {state.waiting[0].uid: state for state in turn if state.key not in session.placed_of}
    for kind in ask.kinds:
        _block_alike(session, [left[pod.uid] for pod in kind.pods if pod.uid in left], blocked)


def _block_alike(session: Session, left: list[GroupState], blocked: Blocked) -> None:
    """Note what single pods that a search left over wait for: the first is asked for, the others lack the same."""
    if not left:
        return
    _place(session, left[0], left[0].waiting, Needs(1), blocked, each=False)
    known = blocked.get(left[0].key)
    for state in left[1:]:
        if known is None:
            _place(session, state, state.waiting, Needs(1), blocked, each=False)
        else:
            blocked[state.key] = (known[0].of_single(state), known[1])


def spelled(rows: NDArray[np.intp], counts: NDArray[np.int64]) -> list[int]:
    """Return one row for each pod: consecutive ranks share a node, then go on with the next."""
    return [int(row) for row in np.repeat(rows, counts)]
