"""Move a whole gang that lost a member and can no longer keep its rules about domains where it runs, if it opted in.

Decided here: only a gang below its minimum whose lost members have no place is moved, only when a place for all of it
is found first (what it holds itself being free), and only when every running member is made again by a controller, tied
to no other pod and no volume, and may go by plugins and disruption budgets. All that runs of it goes in one decision;
its lost members are placed in that decision, and for those that go room is kept where they come back.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from scheduler.actions.ask import Ask, make_ask, relate
from scheduler.actions.candidates import Candidate
from scheduler.actions.dealing import deal
from scheduler.actions.evicting import commit
from scheduler.actions.making_room import make_room_for, work_of
from scheduler.actions.placing import Found, solve
from scheduler.actions.rehousing import is_free
from scheduler.actions.rights import Rights, budgets_of, permitted
from scheduler.actions.steps import repairing
from scheduler.framework.gangs import Needs, is_running
from scheduler.framework.protocols import must_hold
from scheduler.framework.residents import Running
from scheduler.framework.session import Session
from scheduler.model.pods import Pod
from scheduler.placement import Placement

NAME = "move-whole"
WHY = "consolidate"


def run(session: Session) -> None:
    """Move the gangs that have to be."""
    make_room_for(session, NAME, movable, move)


def movable(session: Session, ask: Ask) -> Rights | None:
    """Return all that runs of the gang itself, where it may be moved; None where it may not."""
    state = ask.state
    if not state.group.moves_whole or not is_running(state) or state.assumed or state.key in session.placed_of:
        return None
    if not any(map(must_hold, ask.wishes)) or session.hooks.allows(state, ask.amounts, session) is not None:
        return None
    there = session.cache.residents.of_queue(session.queue_of(state))
    running = next((one for one in there if one.key == state.key), None)
    if running is None or len(running.pods) != len(state.bound):
        return None
    if any(pod.uid in session.evicted or not is_free(session, pod) for pod in running.pods):
        return None
    whole = Candidate(running, running.pods)
    if permitted(session, ask, [whole]) != [whole]:
        return None
    budgets = budgets_of(session, [whole])
    return None if any(len(one.pods) > one.most for one in budgets) else Rights(NAME, (whole,), budgets=budgets)


def move(session: Session, ask: Ask, rights: Rights) -> bool:
    """Place the gang anew with all that runs of it, if it has a place as a whole; return whether it has."""
    state, (whole,) = ask.state, rights.candidates
    session.work_left -= work_of(session, len(whole.pods))
    lost = tuple({pod.uid: pod for step in repairing(session, state) for pod in step.pods}.values())
    asked = make_ask(session, state, lost, Needs(len(lost))) if lost else None
    if not isinstance(asked, Ask) or session.hooks.allows(state, asked.amounts, session) is not None:
        return False
    rows = _whole(session, ask, whole.running, lost)
    session.count("room_searches_total", action=NAME, result="none" if rows is None else "found")
    if rows is None:
        return False
    counts = tuple(tuple(sorted(Counter(rows[pod.uid] for pod in kind.pods).items())) for kind in asked.kinds)
    moves = {pod.uid: session.table.names[rows[pod.uid]] for pod in whole.pods}
    commit(session, asked, Placement(counts, "greedy"), [(whole.running, whole.pods)], WHY, moves)
    return True


def _whole(session: Session, ask: Ask, running: Running, lost: tuple[Pod, ...]) -> dict[str, int] | None:
    """Return the rows of all members (uid), those that run included, as if none of them ran; None: no such place."""
    everyone = (*running.pods, *lost)
    anew = replace(ask.state, bound=(), waiting=everyone)
    with session.statement() as statement:
        statement.evict([(running, running.pods)], WHY)
        again = make_ask(session, anew, everyone, Needs(len(everyone)))
        if not isinstance(again, Ask) or relate(session, again):
            return None
        answer = solve(session, again)
        if not isinstance(answer, Found):
            return None
        return {pod.uid: row for pod, row in deal(session, again, answer.parts).members}
