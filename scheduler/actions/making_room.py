"""The frame of preempt and reclaim: who is looked at, in which order, how often, and what is remembered of a "no".

Decided here: groups that had no place in this session come in the order of their turns, together with those of whom an
earlier session found that they have none; nobody is searched for again while neither the group nor who runs nor what
queues are owed has changed. A search that found nothing is not made again at once only because others have started or
ask for something; whatever may help (`news`) ends the rest. Only so much is searched in one session (by the number of
running pods looked at), and half of it is for those who are not cutting a rest short; who is left over comes in the
next one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from scheduler.actions.ask import Ask
from scheduler.actions.rights import Rights
from scheduler.actions.steps import asked_again
from scheduler.actions.turns import in_order
from scheduler.actions.wants import Want, waits_for_room, wants
from scheduler.framework.session import Session
from scheduler.model.groups import GroupState
from scheduler.model.queues import Queue
from scheduler.model.volumes import Storage

WORK = 64_000
"""What the searches of one session may cost together, in pods that are looked at; the last one may cost more."""
BASE_WORK, NODE_WORK = 1_000, 3
"""What one search costs beside the pods that it looks at, and what it costs for each node."""
FIRST_REST, LAST_REST = 1.0, 10.0
"""Seconds between two searches for a group for which nothing was found, although something has changed."""

AGAIN_AFTER = 60.0
"""Seconds after which a search is made again although nothing changed."""

Rule = Callable[[Session, Ask], Iterable[Rights]]
"""Who may go for an ask; the later only where the earlier do not suffice."""
Serve = Callable[[Session, Ask, Rights], bool]
"""Make room with these rights and place the ask; return whether that was possible."""


@dataclass(frozen=True, slots=True)
class Tried:
    """That a search for a group in this state found nothing, and what it depended on.

    until: not again before, unless there are news. due: when something that it depends on changes by itself.
    storage: what volumes there were, None for a group that has none.
    """

    state: GroupState
    stamp: tuple[object, ...]
    news: tuple[object, ...]
    storage: Storage | None
    until: float
    rest: float
    due: float


def one(rule: Callable[[Session, Ask], Rights | None]) -> Rule:
    """Return the rule that knows nobody beyond these."""
    return lambda session, ask: filter(None, (rule(session, ask),))


def make_room_for(session: Session, name: str, rule: Rule, serve: Serve) -> None:
    """Let every group that has no place try to get one by the rule of an action."""
    states = [want.state for want in wants(session).values() if not want.kept]
    known = {state.key for state in states}
    for key, state in session.recalled.items():
        if key not in known and key not in session.placed_of and waits_for_room(session, state):
            states.append(state)
    states = [state for state in states if may_try(session, name, state)]
    for state in in_order(session, states).each() if states and session.work_left > 0 else ():
        if session.work_left <= 0:
            break
        if session.work_left <= WORK // 2 and (until := _resting(session, name, state)) is not None:
            session.wake_no_later_than(until)
            continue
        with session.guard(state):
            _try(session, name, state, rule, serve)
    if states and session.work_left <= 0:
        session.wake_no_later_than(session.now)


def stamp(session: Session) -> tuple[object, ...]:
    """Equal as long as the same groups run and queues are owed and allow the same."""
    if "policies" not in session.scratch:
        session.scratch["policies"] = hash(tuple(_policy(queue) for queue in session.snapshot.queues.values()))
    return session.cache.residents.version, session.book.ground, session.space, session.scratch["policies"]


def news(session: Session) -> tuple[object, ...]:
    """Equal as long as nothing has happened that can give a search that found nothing another result.

    That is: a pod went or is no longer about to go, something became free, nodes or queues changed, a budget, or what
    protects somebody who runs.
    """
    if "budgets" not in session.scratch:
        budgets = session.snapshot.budgets.values()
        session.scratch["budgets"] = tuple((one.key, one.allowed, one.selector) for one in budgets)
    return session.cache.growth.count, session.cache.residents.losses, session.space, session.scratch["budgets"]


def _storage(session: Session, state: GroupState) -> Storage | None:
    return session.snapshot.storage if any(pod.volumes is not None for pod in state.waiting) else None


def _policy(queue: Queue) -> tuple[object, ...]:
    """Return what a queue says about who may go, and for whom."""
    return (
        queue.name, queue.within_queue, queue.reclaim, queue.reclaimable, queue.min_runtime, queue.reclaim_min_runtime
    )  # fmt: skip


def work_of(session: Session, pods: int) -> int:
    """What a search costs that looks at so many pods. Counted, not timed, so that equal sessions decide the same."""
    return BASE_WORK + NODE_WORK * len(session.table.names) + pods


def may_try(session: Session, name: str, state: GroupState) -> bool:
    """Whether others may go for the group by now, and a search can have another result than the last one."""
    if session.now < state.evicts_from:
        session.wake_no_later_than(state.evicts_from)
        return False
    tried: Tried | None = session.cache.tried.get((name, state.key))
    if tried is None or tried.state is not state:
        return True
    if session.now >= tried.due or tried.news != news(session) or tried.storage is not _storage(session, state):
        return True
    until = tried.due if tried.stamp == stamp(session) else min(tried.until, tried.due)
    if session.now < until:
        session.wake_no_later_than(until)
        return False
    return True


def _resting(session: Session, name: str, state: GroupState) -> float | None:
    """Return until when a group would rest if there were no news; None when it would not."""
    tried: Tried | None = session.cache.tried.get((name, state.key))
    until = min(tried.until, tried.due) if tried is not None and tried.state is state else session.now
    return until if session.now < until else None


def _of_those_who_preempt(ask: Ask) -> Ask | None:
    """Return the ask without members that never preempt; None where it needs one of them."""
    if ask.preempts:
        return ask
    kinds = tuple(replace(kind, pods=tuple(pod for pod in kind.pods if pod.preempts)) for kind in ask.kinds)
    kinds = tuple(kind for kind in kinds if kind.pods)
    roles = {role: sum(len(kind.pods) for kind in kinds if kind.role == role) for role, _ in ask.roles}
    enough = sum(len(kind.pods) for kind in kinds) >= ask.total
    if not enough or any(roles[role] < count for role, count in ask.roles):
        return None
    return replace(ask, kinds=kinds)


def _try(session: Session, name: str, state: GroupState, rule: Rule, serve: Serve) -> None:
    ask = _ask(session, state)
    if ask is None:
        return
    session.changes_at = session.now + AGAIN_AFTER
    if any(serve(session, ask, rights) for rights in rule(session, ask)):
        wants(session).pop(state.key, None)
        session.verdicts.pop(state.key, None)
        session.cache.tried.pop((name, state.key), None)
        return
    before: Tried | None = session.cache.tried.get((name, state.key))
    rest = min(LAST_REST, before.rest * 2) if before is not None and before.state is state else FIRST_REST
    due = session.changes_at
    session.wake_no_later_than(due)
    session.cache.tried[name, state.key] = Tried(
        state, stamp(session), news(session), _storage(session, state), session.now + rest, rest, due
    )


def _ask(session: Session, state: GroupState) -> Ask | None:
    want: Want | None = wants(session).get(state.key)
    ask = want.ask if want is not None else asked_again(session, state)
    if not isinstance(ask, Ask):
        return None
    if ask.each:
        ask = replace(ask, each=False, total=min(1, ask.total))
    return _of_those_who_preempt(ask)
