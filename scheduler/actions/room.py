"""The question to placement who has to go: candidates as residents, rights as rows.

Decided here: what is asked with the candidates gone. What members may ask of other pods (ports, affinity, spread,
volumes) is asked again for each set of victims; amounts alone need no second question.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from scheduler.actions.ask import Ask, relate
from scheduler.actions.candidates import Candidate
from scheduler.actions.placing import problem_of
from scheduler.actions.rights import Rights
from scheduler.framework.residents import Running
from scheduler.framework.session import Session
from scheduler.model.pods import Pod, held_by
from scheduler.model.verdict import Verdict
from scheduler.placement import (
    AtMostEvicted,
    AtMostTaken,
    MustFree,
    PlacementProblem,
    Resident,
    RoomRow,
    RunningGang,
    VictimProblem,
    WhileOver,
)

MOST_LOST = 7 * 24 * 3600
"""Seconds of work beyond which it makes no difference how much is lost."""
START_COSTS = 60
"""Seconds that every pod loses by being started again."""


@dataclass(frozen=True, slots=True)
class Room:
    """The question, and the pods that its residents stand for."""

    problem: VictimProblem
    pods: tuple[Pod, ...]
    owners: tuple[Running, ...]


def room_for(session: Session, ask: Ask, rights: Rights) -> Room | None:
    """Return the question; None where the members cannot be asked about at all."""
    pods = tuple(pod for one in rights.candidates for pod in one.pods)
    owners = tuple(one.running for one in rights.candidates for _ in one.pods)
    with session.outlook.ahead():
        relations = relate(session, ask)
        if isinstance(relations, Verdict):
            return None
        problem = (
            _lasting(problem_of(session, ask, relations)) if not relations else _without(session, ask, pods, owners)
        )
    if problem is None:
        return None
    refine = None
    if relations:
        problem = _less(session, problem, pods)
        refine = _refined(session, ask, pods, owners, problem)
    numbers: dict[str, tuple[int, ...]] = {}
    first = 0
    for one in rights.candidates:
        numbers[one.running.key] = tuple(range(first, first + len(one.pods)))
        first += len(one.pods)
    residents = tuple(resident_of(session, problem, pod) for pod in pods)
    gangs = tuple(gang_of(one, numbers[one.running.key]) for one in rights.candidates)
    rows = tuple(rows_of(session, problem, rights, numbers, pods))
    return Room(VictimProblem(problem, residents, gangs, rows, refine), pods, owners)


def _without(session: Session, ask: Ask, pods: Sequence[Pod], owners: Sequence[Running]) -> PlacementProblem | None:
    """Return what the ask is when these pods are gone, what they hold being free; None where it cannot be asked."""
    parts: dict[str, tuple[Running, list[Pod]]] = {}
    for pod, running in zip(pods, owners, strict=True):
        parts.setdefault(running.key, (running, []))[1].append(pod)
    with session.statement() as statement:
        statement.evict([(running, tuple(part)) for running, part in parts.values()], "")
        relations = relate(session, ask)
        return None if isinstance(relations, Verdict) else _lasting(problem_of(session, ask, relations))


def _lasting(problem: PlacementProblem) -> PlacementProblem:
    """Return the problem with the amounts as they are now: they are looked at when they are no longer so."""
    nodes = problem.nodes
    return replace(problem, nodes=replace(nodes, free=nodes.free.copy(), slots=nodes.slots.copy()))


def _refined(
    session: Session, ask: Ask, pods: Sequence[Pod], owners: Sequence[Running], problem: PlacementProblem
) -> Callable[[frozenset[int]], PlacementProblem]:
    def refined(evicted: frozenset[int]) -> PlacementProblem:
        order = sorted(evicted)
        with session.outlook.ahead():
            found = _without(session, ask, [pods[number] for number in order], [owners[number] for number in order])
        if found is not None:
            return found
        nowhere = np.zeros(len(problem.nodes.names), dtype=np.bool_)
        return replace(problem, demands=tuple(replace(demand, mask=nowhere) for demand in problem.demands))

    return refined


def _less(session: Session, problem: PlacementProblem, pods: Sequence[Pod]) -> PlacementProblem:
    """Return the problem with what these pods hold taken again."""
    rows, amounts, slots = session.outlook.piece(pods)
    free, open_ = problem.nodes.free.copy(), problem.nodes.slots.copy()
    free[: amounts.shape[0], rows] -= amounts
    open_[rows] -= slots
    return replace(problem, nodes=replace(problem.nodes, free=free, slots=open_))


def resident_of(session: Session, problem: PlacementProblem, pod: Pod) -> Resident:
    """Return a running pod as one that may go."""
    held = session.outlook.amounts(pod)
    extra = len(problem.nodes.resources) - len(held)
    row = session.row(pod.node)
    assert row is not None  # candidates are on nodes of the snapshot
    return Resident(
        node=row,
        holds=np.concatenate([held, np.zeros(extra, dtype=np.int64)]) if extra else held,
        runtime=_lost(session, row, held, pod),
        name=pod.uid,
    )


def _lost(session: Session, row: int, held: NDArray[np.int64], pod: Pod) -> int:
    """Return the work that is lost with a pod: its time and what a start costs, times its part of the node in 64ths."""
    runtime = min(MOST_LOST, max(0, int(session.now - pod.since))) if pod.since else 0
    whole = np.maximum(session.table.allocatable[:, row], 1)
    part = int(np.max(held[: whole.size] * 64 // whole, initial=0))
    return (runtime + START_COSTS) * min(64, max(1, part))


def gang_of(candidate: Candidate, numbers: tuple[int, ...]) -> RunningGang:
    """Members that may not go, whoever they are, stay; a group that may not go whole counts one more that stays."""
    running = candidate.running
    staying = running.fixed + len(running.pods) - len(candidate.pods)
    minimum = running.minimum
    if not candidate.whole and not staying:
        staying, minimum = 1, minimum + 1
    chosen = {pod.uid: number for pod, number in zip(candidate.pods, numbers, strict=True)}
    roles = []
    for role, least in running.roles:
        members = [pod for pod in running.pods if running.role_of(pod) == role]
        may_go = tuple(chosen[pod.uid] for pod in members if pod.uid in chosen)
        roles.append((may_go, max(0, least - (len(members) - len(may_go)))))
    return RunningGang(numbers, minimum, tuple(roles), staying, running.priority)


def rows_of(
    session: Session,
    problem: PlacementProblem,
    rights: Rights,
    numbers: Mapping[str, tuple[int, ...]],
    pods: Sequence[Pod],
) -> Iterator[RoomRow]:
    """Yield the rows that a set of victims keeps. numbers: of the residents, by group."""
    names = session.book.ground.resources
    column = {name: number for number, name in enumerate(problem.nodes.resources)}
    keys = [one.running.key for one in rights.candidates]
    for share in rights.shares:
        over = tuple((column[names[c]], amount) for c, amount in share.over if names[c] in column)
        yield WhileOver(tuple(n for member in share.members for n in numbers[keys[member]]), over)
    for limit in rights.limits:
        name = names[limit.column]
        held = [(n, _held(session, pods[n], name)) for member in limit.members for n in numbers[keys[member]]]
        yield MustFree(tuple((n, amount) for n, amount in held if amount > 0), limit.least)
    for kept in rights.guarantees:
        name = names[kept.column]
        held = [(n, _held(session, pods[n], name)) for member in kept.members for n in numbers[keys[member]]]
        if sum(amount for _, amount in held) > kept.most:
            yield AtMostTaken(tuple((n, amount) for n, amount in held if amount > 0), kept.most)
    for budget in rights.budgets:
        yield AtMostEvicted(tuple(n for n, pod in enumerate(pods) if pod.uid in budget.pods), budget.most)


def _held(session: Session, pod: Pod, name: str) -> int:
    held = held_by(pod, session.snapshot.shapes)
    return dict(held).get(name, 0)
