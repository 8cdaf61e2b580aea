"""Move a gang, or sub-groups of it, that lost a member and can no longer keep its rules about domains where it runs.

Decided here: only a gang that opted in, of which so many members exist that its minimum can be whole again, and only
what lacks a lost member that has no place. Of the sub-groups with rules around that member the innermost is moved that
has a place as a whole (what it holds itself being free, the rest of the gang staying), at last the gang; a place for
all members that exist comes before one for those that run and are lost. Who has its place on the node where it runs
already stays there. Everybody who goes is made again by a controller, tied to no other pod and no volume, and may go by
plugins and disruption budgets. The lost members are placed in the same decision, and for those that go room is kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

from scheduler.actions.ask import Ask, make_ask, relate
from scheduler.actions.candidates import Candidate
from scheduler.actions.dealing import deal
from scheduler.actions.evicting import commit
from scheduler.actions.making_room import work_of
from scheduler.actions.placing import Found, solve
from scheduler.actions.rehousing import is_free
from scheduler.actions.rights import Rights, budgets_of, permitted
from scheduler.actions.steps import repairing
from scheduler.framework.gangs import Needs, is_running, membership, needs
from scheduler.framework.protocols import PartsApart, Wish, must_hold
from scheduler.framework.residents import Running
from scheduler.framework.session import Session
from scheduler.framework.subgroups import is_under
from scheduler.model.groups import GroupState
from scheduler.model.parts import tree_of
from scheduler.model.pods import Pod
from scheduler.placement import Placement

NAME = "move-whole"
WHY = "consolidate"


@dataclass(frozen=True, slots=True)
class _Try:
    """goes: running members that are placed anew, and lost: those that are placed in this decision; more: other waiting
    members for which there has to be room beside them."""

    goes: tuple[Pod, ...]
    lost: tuple[Pod, ...]
    more: tuple[Pod, ...]


def movable(session: Session, ask: Ask) -> Rights | None:
    """Return all that runs of the gang itself, where some of it may be moved; None where nothing may."""
    state = ask.state
    if not state.group.moves_whole or not is_running(state) or state.assumed or state.key in session.placed_of:
        return None
    if not any(map(must_hold, ask.wishes)) or session.hooks.allows(state, ask.amounts, session) is not None:
        return None
    there = session.cache.residents.of_queue(session.queue_of(state))
    running = next((one for one in there if one.key == state.key), None)
    if running is None or len(running.pods) != len(state.bound):
        return None
    if any(pod.uid in session.evicted for pod in running.pods):
        return None
    whole = replace(state, bound=(), waiting=(*state.bound, *state.waiting))
    return Rights(NAME, (Candidate(running, running.pods),)) if membership(whole) is None else None


def move(session: Session, ask: Ask, rights: Rights) -> bool:
    """Place what lost a member anew with all that runs of it, if that has a place; return whether it has."""
    state, (whole,) = ask.state, rights.candidates
    steps = [step for step in repairing(session, state) if not step.roles]
    lost = tuple({pod.uid: pod for step in steps for pod in step.pods}.values())
    for one in _tries(ask, lost):
        session.work_left -= work_of(session, len(one.goes))
        if _move(session, ask, whole.running, one):
            return True
    session.count("room_searches_total", action=NAME, result="none")
    return False


def _tries(ask: Ask, lost: tuple[Pod, ...]) -> Iterator[_Try]:
    """Yield what may be moved together: parts with rules that lack members, the innermost of each lost member first."""
    state = ask.state
    ruled = {path for wish in ask.wishes if must_hold(wish) for path in _bound_by(wish)}
    around = {pod.uid: [path for path in _chain(pod.part) if path in ruled and _lacks(state, path)] for pod in lost}
    lost = tuple(pod for pod in lost if around[pod.uid])
    for outermost in dict.fromkeys(around[pod.uid][-1] for pod in lost):
        mine = [pod for pod in lost if around[pod.uid][-1] == outermost]
        seen: list[set[str]] = []
        for wider in range(max(len(around[pod.uid]) for pod in mine)):
            paths = {around[pod.uid][min(wider, len(around[pod.uid]) - 1)] for pod in mine}
            if paths not in seen and all(_can_be_whole(state, path) for path in paths):
                seen.append(paths)
                yield from _both(state, paths, mine)


def _bound_by(wish: Wish) -> tuple[str, ...]:
    """Return the parts that a rule is about."""
    return (*wish.parts, wish.parts[0].rpartition("/")[0]) if isinstance(wish, PartsApart) else (wish.part,)


def _both(state: GroupState, paths: Collection[str], lost: list[Pod]) -> Iterator[_Try]:
    goes, waiting = (tuple(p for p in pods if _is_in(p, paths)) for pods in (state.bound, state.waiting))
    named = {pod.uid for pod in lost}
    more = tuple(pod for pod in waiting if pod.uid not in named)
    if goes and more:
        yield _Try(goes, tuple(lost), more)
    if goes:
        yield _Try(goes, tuple(lost), ())


def _is_in(pod: Pod, paths: Collection[str]) -> bool:
    return any(is_under(pod.part, path) for path in paths)


def _chain(path: str) -> Iterator[str]:
    """Yield a sub-group and those around it, the group ("") last."""
    while path:
        yield path
        path = path.rpartition("/")[0]
    yield ""


def _lacks(state: GroupState, path: str) -> bool:
    """Whether a part ("": the group) is below its minimum."""
    if path:
        part = tree_of(state).at(path)
        return part is not None and not part.met
    wanted = needs(state)
    if not state.group.subgroups:
        return wanted.total > 0
    tree = tree_of(state)
    few = state.placed < state.group.min_member or bool(wanted.roles)
    return few or sum(part.met for part in tree.parts) < tree.least


def _can_be_whole(state: GroupState, path: str) -> bool:
    """Whether so many members of a part exist that it can be made whole."""
    part = tree_of(state).at(path) if path else None
    return not path or (part is not None and part.lack is not None)


def _move(session: Session, ask: Ask, running: Running, one: _Try) -> bool:
    if not _may_go(session, ask, running, one.goes):
        return False
    asked = make_ask(session, ask.state, one.lost, Needs(len(one.lost)))
    if not isinstance(asked, Ask) or session.hooks.allows(ask.state, asked.amounts, session) is not None:
        return False
    rows = _anew(session, ask, running, one)
    if rows is None:
        return False
    names = session.table.names
    moves = {pod.uid: names[rows[pod.uid]] for pod in one.goes if names[rows[pod.uid]] != pod.node}
    if not moves:
        return False
    gone = tuple(pod for pod in one.goes if pod.uid in moves)
    session.count("room_searches_total", action=NAME, result="found")
    counts = tuple(tuple(sorted(Counter(rows[pod.uid] for pod in kind.pods).items())) for kind in asked.kinds)
    commit(session, asked, Placement(counts, "greedy"), [(running, gone)], WHY, moves)
    return True


def _may_go(session: Session, ask: Ask, running: Running, pods: tuple[Pod, ...]) -> bool:
    if not all(is_free(session, pod) for pod in pods):
        return False
    candidate = Candidate(replace(running, pods=pods), pods)
    if permitted(session, ask, [candidate]) != [candidate]:
        return False
    return all(len(one.pods) <= one.most for one in budgets_of(session, [candidate]))


def _anew(session: Session, ask: Ask, running: Running, one: _Try) -> dict[str, int] | None:
    """Return the rows of all members that are placed anew (uid), as if none of them ran; None: no such place."""
    everyone = (*one.goes, *one.lost, *one.more)
    named = {pod.uid for pod in everyone}
    staying = tuple(pod for pod in ask.state.bound if pod.uid not in named)
    anew = replace(ask.state, bound=staying, waiting=everyone)
    with session.statement() as statement:
        statement.evict([(running, one.goes)], WHY)
        again = make_ask(session, anew, everyone, Needs(len(everyone)))
        if not isinstance(again, Ask) or relate(session, again):
            return None
        answer = solve(session, again)
        if not isinstance(answer, Found):
            return None
        return _stay(session, deal(session, again, answer.parts).members, again)


def _stay(session: Session, members: list[tuple[Pod, int]], ask: Ask) -> dict[str, int]:
    """Return the rows by uid, where those that are alike and whose own node is among their rows stay on it."""
    dealt = {pod.uid: row for pod, row in members}
    alike: dict[tuple[object, ...], list[Pod]] = {}
    for kind in ask.kinds:
        alike.setdefault((kind.shape.key, kind.role, kind.part, kind.refused, kind.sort), []).extend(kind.pods)
    found: dict[str, int] = {}
    for pods in alike.values():
        left = [dealt[pod.uid] for pod in pods]
        for pod in pods:
            row = session.row(pod.node) if pod.node else None
            if row is not None and row in left:
                found[pod.uid] = row
                left.remove(row)
        found.update(zip((pod.uid for pod in pods if pod.uid not in found), left, strict=True))
    return found
