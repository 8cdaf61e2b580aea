"""Consolidate: place a group by moving running pods together, so that nobody loses anything.

Decided here: who may be moved. Only pods that a controller makes again (a pod without one would be lost), that nothing
ties to other pods or to volumes, of groups that have their minimum (what is left of others could not start again) and
may be victims at all, not before their queue's time, never more of a disruption budget than it allows. For the pod that
is made in place of a moved one its room is kept. Only a group that can be preempted itself is served like this: what it
gets can be had back. How few moves it takes is decided by placement.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from scheduler.actions import moving_whole
from scheduler.actions.ask import Ask, relate
from scheduler.actions.candidates import Candidate, herd_of
from scheduler.actions.evicting import commit, evict_for
from scheduler.actions.making_room import make_room_for, one, work_of
from scheduler.actions.placing import problem_of
from scheduler.actions.rehousing import domains_of, is_free
from scheduler.actions.rights import Rights, budgets_of, permitted
from scheduler.actions.room import gang_of, numbered, residents_of, rows_of
from scheduler.framework.gangs import needs
from scheduler.framework.residents import Running
from scheduler.framework.session import Session
from scheduler.model.pods import Pod
from scheduler.model.verdict import Verdict
from scheduler.placement import MoveProblem, Relocated, Together, VictimProblem, relocate

NAME = "consolidate"


def run(session: Session) -> None:
    """Move pods together for groups that have no place; a gang that lost its domain and opted in moves itself where
    that does not help."""
    make_room_for(session, NAME, one(_either), _serve)


def _either(session: Session, ask: Ask) -> Rights | None:
    return movable(session, ask) or moving_whole.movable(session, ask)


def _serve(session: Session, ask: Ask, rights: Rights) -> bool:
    if rights.why == NAME and move_for(session, ask, rights):
        return True
    whole = moving_whole.movable(session, ask) if rights.why == NAME else rights
    return whole is not None and moving_whole.move(session, ask, whole)


def moving_first(session: Session, ask: Ask, rights: Rights) -> bool:
    """Serve an ask by moves where that is configured and suffices, else by evicting whom the rights allow."""
    if NAME in session.later_actions:
        moves = movable(session, ask)
        if moves is not None and move_for(session, ask, moves):
            return True
    return evict_for(session, ask, rights)


def movable(session: Session, ask: Ask) -> Rights | None:
    """Return who may be moved for the group; None when nobody, or when moves are not for it."""
    if session.served_row(ask.state) is None or not session.is_preemptible(ask.state):
        return None
    if session.hooks.allows(ask.state, ask.amounts, session) is not None or not _suffices(session, ask):
        return None
    found = _everybody(session)
    if any(one.running.key == ask.state.key for one in found):
        found = [one for one in found if one.running.key != ask.state.key]
    allowed = permitted(session, ask, found)
    return Rights(NAME, tuple(allowed), budgets=budgets_of(session, allowed)) if allowed else None


def _everybody(session: Session) -> list[Candidate]:
    """Return who can be moved for anybody; looked at once as long as nothing is decided."""
    stamp = (len(session.places), len(session.evicted))
    known = session.scratch.get("movable")
    if known is None or known[0] != stamp:
        before, session.changes_at = session.changes_at, float("inf")
        found: list[Candidate] = []
        for queue in session.cache.residents.queues():
            there = herd_of(session, session.book.tree.index[queue], against_others=True)
            for number in there.of(np.ones(len(there.candidates), dtype=np.bool_)).tolist():
                candidate = there.candidates[number]
                if candidate is not None and (moving := _moving(session, candidate)) is not None:
                    found.append(moving)
        known = session.scratch["movable"] = (stamp, found, session.changes_at)
        session.changes_at = before
    session.look_again_at(known[2])
    movable: list[Candidate] = known[1]
    return movable


def _suffices(session: Session, ask: Ask) -> bool:
    """Whether what is free on all nodes together is as much as the ask needs."""
    free = np.maximum(session.free, 0).sum(axis=1)
    needed = sum(session.request(kind.shape) * count for kind, count in zip(ask.kinds, ask.members, strict=True))
    return bool((free >= needed).all())


def _moving(session: Session, candidate: Candidate) -> Candidate | None:
    """Return what of a candidate can be moved, or None."""
    pods = tuple(pod for pod in candidate.pods if is_free(session, pod))
    whole = candidate.whole and len(pods) == len(candidate.pods)
    running = candidate.running
    if not pods or not (whole or len(running.pods) + running.fixed > running.minimum):
        return None
    bound = domains_of(session, running)
    if bound is None or (bound and not whole) or _lacks(session, running):
        return None
    return Candidate(running, pods, whole)


def _lacks(session: Session, running: Running) -> bool:
    """Whether a group is below its minimum: what runs of it could not start again elsewhere."""
    state = session.snapshot.groups.get(running.key)
    if len(running.pods) + running.fixed < running.minimum:
        return True
    return state is not None and needs(state).total > 0


def move_for(session: Session, ask: Ask, rights: Rights) -> bool:
    """Place the ask with as few moves as it takes; return whether that was possible."""
    session.work_left -= work_of(session, sum(len(one.pods) for one in rights.candidates))
    relations = relate(session, ask)
    if isinstance(relations, Verdict) or relations:
        return False  # what members ask of other pods would change with every move
    problem = problem_of(session, ask, relations)
    pods = tuple(pod for one in rights.candidates for pod in one.pods)
    owners = tuple(one.running for one in rights.candidates for _ in one.pods)
    numbers = numbered(rights)
    together = tuple(_together(session, rights))
    levels = {rule.level: session.domains(rule.level)[0] for rule in together}
    problem = replace(problem, nodes=replace(problem.nodes, domains={**problem.nodes.domains, **levels}))
    masks, kinds = _masks(session, pods)
    room = VictimProblem(
        problem,
        residents_of(session, problem, pods),
        tuple(map(gang_of, rights.candidates, numbers)),
        tuple(rows_of(session, problem, rights, numbers, pods)),
    )
    answer = relocate(MoveProblem(room, masks, kinds, together))
    found = isinstance(answer, Relocated)
    session.count("room_searches_total", action=NAME, result="found" if found else "none")
    if isinstance(answer, Relocated):
        _carry_out(session, ask, pods, owners, answer)
    return found


def _together(session: Session, rights: Rights) -> list[Together]:
    """The groups that run in one domain of a level stay in one."""
    return [
        Together(number, level)
        for number, one in enumerate(rights.candidates)
        for level in domains_of(session, one.running) or ()
    ]


def _masks(session: Session, pods: tuple[Pod, ...]) -> tuple[tuple[NDArray[np.bool_], ...], tuple[int, ...]]:
    """Return where the pods may go, each mask once, and which is whose."""
    numbers: dict[str, int] = {}
    masks: list[NDArray[np.bool_]] = []
    for pod in pods:
        if pod.shape not in numbers:
            numbers[pod.shape] = len(masks)
            masks.append(session.fit(session.snapshot.shapes[pod.shape]).mask)
    return tuple(masks), tuple(numbers[pod.shape] for pod in pods)


def _carry_out(
    session: Session, ask: Ask, pods: tuple[Pod, ...], owners: tuple[Running, ...], answer: Relocated
) -> None:
    gone: dict[str, tuple[Running, list[Pod]]] = {}
    moves: dict[str, str] = {}
    for number, node in answer.moves:
        gone.setdefault(owners[number].key, (owners[number], []))[1].append(pods[number])
        moves[pods[number].uid] = session.table.names[node]
    commit(session, ask, answer.placement, [(one, tuple(part)) for one, part in gone.values()], NAME, moves)
