"""What a group that runs asks for next, decision by decision: lost members, parts that have to start, parts that may,
then single members above the minimums.

Decided here: how much of a surplus one round hands out, that members which find no room do not hold up those of other
kinds, that of parts which may start the first that has room does, and how the question of a group is asked anew when an
earlier answer is only recalled.
"""

from __future__ import annotations

from collections.abc import Iterator

from scheduler.actions.ask import Ask, kinds_of, make_ask
from scheduler.actions.attempt import attempt, defers, perform
from scheduler.actions.gates import gate, losing
from scheduler.actions.placing import Found, solve
from scheduler.actions.wants import GROWTH_ROUNDS
from scheduler.framework.gangs import Needs, by_role, is_running, needs, roles_lacking, startable
from scheduler.framework.session import Session
from scheduler.framework.subgroups import Step, at_once, lacking_of, offered, repairs, singles, units, without_begun
from scheduler.model.groups import GroupState
from scheduler.model.parts import make_tree, tree_of
from scheduler.model.pods import Pod
from scheduler.model.verdict import Verdict


def placed_of(session: Session, state: GroupState) -> dict[str, str]:
    """Return which waiting members (uid) this session has placed, with their nodes."""
    places = session.placed_of.get(state.key, ())
    return {one.uid: one.node for place in places for one in place.assignments}


def repairing(session: Session, state: GroupState) -> Iterator[Step]:
    """Yield what brings a running group back to its minimum."""
    if state.group.subgroups:
        placed = placed_of(session, state)
        yield from repairs(state, placed, dict(roles_lacking(state, placed)))
        step = _at_once(session, state)  # of roles that only further parts have
        if step is not None:
            yield step
        return
    placed = placed_of(session, state)
    missing = needs(state)
    roles = dict(roles_lacking(state, placed))
    pods = by_role(session.remaining(state), roles, max(0, missing.total - len(placed)))
    if pods:
        yield _singly(pods)


def _at_once(session: Session, state: GroupState) -> Step | None:
    placed = placed_of(session, state)
    roles = roles_lacking(state, placed)
    return at_once(state, placed, roles) if roles and state.group.subgroups else None


def repair(session: Session, state: GroupState) -> None:
    """Bring a running group back to its minimum: minimums of roles and sub-groups together, where they cross, and by
    other waiting members than the first, where these have no room; else as much as has room. Note what has none."""
    step = _at_once(session, state)
    if step is not None:
        _start(session, state, step)
    elif _may_choose(session, state):
        for step in _chosen(session, state):
            _start(session, state, step)
    for part in repairing(session, state):
        take(session, state, part)


def _may_choose(session: Session, state: GroupState) -> bool:
    """Whether members of several kinds wait, more than the minimum lacks, and the first have not all room."""
    first = next(repairing(session, state), None)
    if first is None or not first.each or len(first.pods) == len(state.waiting):
        return False
    parted = bool(state.group.subgroups)
    if len(kinds_of(session, session.hooks.sort_members(state.waiting), keep_roles=False, parted=parted)) == 1:
        return False
    ask = make_ask(session, state, first.pods, Needs(len(first.pods)))
    return not isinstance(ask, Ask) or not isinstance(solve(session, ask), Found)


def _chosen(session: Session, state: GroupState) -> Iterator[Step]:
    """Yield what brings a running group back to its minimum, whichever members that takes: all, then part by part."""
    missing = needs(state)
    if not state.group.subgroups:
        if len(state.waiting) > missing.total:
            yield Step(state.waiting, missing.total, each=False, roles=missing.roles)
        return
    step = at_once(state)
    if step is not None:
        yield step
    for path, _ in missing.lacking.minimums:
        tree = tree_of(state, placed_of(session, state))
        count = dict(lacking_of(tree).minimums).get(path, 0)
        pods = next((leaf.waiting for leaf in tree.leaves() if leaf.path == path), ())
        if len(pods) > count > 0:
            yield Step(pods, count, each=False)


def started_elsewhere(session: Session, state: GroupState) -> bool:
    """Place the minimum of a group that never had it, of other parts than the begun ones where these have no room;
    return whether something was placed."""
    wanted = needs(state)
    if not state.placed or not wanted.lacking.minimums:
        return False
    others = without_begun(tree_of(state))
    lacking = lacking_of(others)
    if others.chosen() is None or not lacking.size:
        return False
    least = max(lacking.size, state.group.min_member - state.placed, sum(count for _, count in wanted.roles))
    for step in (
        Step(startable(state), wanted.total, each=False, lacking=wanted.lacking, roles=wanted.roles),
        Step(offered(others), least, each=False, lacking=lacking, roles=wanted.roles),
    ):
        if len(step.pods) >= step.total and _start(session, state, step):
            return True
        if state.key in session.deferred:
            return False
    return False


def surplus(session: Session, state: GroupState) -> Iterator[Step]:
    """Yield the part of the members above the minimum that is handed out in one round; then, where nothing of that has
    a place, as many of each kind of them."""
    pods = session.remaining(state)
    if state.group.subgroups:
        # What is being bound can still be unwound: nobody joins a part before so many of it are on their nodes.
        now = tree_of(state, placed_of(session, state))
        begun = [pod for leaf in now.leaves() if leaf.started and not leaf.met for pod in leaf.waiting]
        pods = (*singles(make_tree(state.group, placed=(*state.bound, *state.succeeded), waiting=pods)), *begun)
    if not pods:
        return
    size = max(state.group.min_member, -(-len(pods) // GROWTH_ROUNDS))
    yield _singly(pods[:size])
    kinds = kinds_of(session, session.hooks.sort_members(pods), keep_roles=False, parted=bool(state.group.subgroups))
    if len(kinds) > 1:
        yield from (_singly(kind.pods[:size]) for kind in kinds)


def _singly(pods: tuple[Pod, ...]) -> Step:
    return Step(pods, len(pods), each=True)


def next_step(session: Session, state: GroupState) -> Step | None:
    """Return the first thing that a running group asks for, None when nothing."""
    first = next(repairing(session, state), None)
    if first is None and state.group.subgroups:
        first = next(units(tree_of(state, placed_of(session, state))), None)
    return next(surplus(session, state), None) if first is None else first


def asked_again(session: Session, state: GroupState) -> Ask | Verdict | None:
    """Return what a waiting group asks for now, or why it may not be placed; None when it asks for nothing."""
    why = losing(session, state) or gate(session, state)
    if why is not None:
        return why
    wanted = needs(state)
    if is_running(state) or not wanted.total:
        step = next_step(session, state)
        if step is None:
            return None
        return make_ask(session, state, step.pods, Needs(1) if step.each else needs_of(step), each=step.each)
    pods = startable(state)
    return make_ask(session, state, pods, wanted) if pods else None


def needs_of(step: Step) -> Needs:
    """Return what a step wants."""
    return Needs(step.total, step.roles, step.lacking)


def take(session: Session, state: GroupState, step: Step) -> None:
    """Place what a step asks for, or note that it has no place."""
    attempt(session, state, step.pods, needs_of(step), each=step.each)


def grow(session: Session, state: GroupState, *, noted: bool = True) -> None:
    """Start one more part of a group as a whole, else hand out a part of its surplus; note what has no place (noted).

    Where something has a place that must be left to others first, the group comes again once that is settled.
    """
    blocked: list[Step] = []
    for steps in (
        units(tree_of(state, placed_of(session, state))) if state.group.subgroups else (),
        surplus(session, state),
    ):
        first: Step | None = None
        for step in steps:
            if _start(session, state, step):
                return
            first = first or step
        if first is not None:
            blocked.append(first)
    if state.key in session.deferred or not noted:
        return
    for step in reversed(blocked):
        take(session, state, step)


def _start(session: Session, state: GroupState, step: Step) -> bool:
    """Place what a step asks for; return whether there was room for any of it, and nobody to wait for."""
    ask = make_ask(session, state, step.pods, needs_of(step), each=step.each)
    if not isinstance(ask, Ask) or session.hooks.allows(state, ask.amounts, session) is not None:
        return False
    answer = solve(session, ask)
    if not isinstance(answer, Found) or defers(session, state, ask):
        return False
    session.deferred.pop(state.key, None)
    perform(session, ask, answer, each=step.each)
    return True
