"""Making room for one group: the question to placement, and its answer as one statement.

Decided here: how rights become a question (`placement.make_room`), what holds for a set of victims beside amounts (what
members may ask of other pods is asked again with the victims gone), and that the beneficiary's whole minimum is placed
in the same statement, or nobody is evicted. Who may go is decided by `rights`, who does by placement.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from scheduler.actions.ask import Ask, relate
from scheduler.actions.attempt import spelled
from scheduler.actions.placing import problem_of
from scheduler.actions.rights import Candidate, Rights
from scheduler.framework.residents import Running
from scheduler.framework.session import Session
from scheduler.model.decisions import Victim
from scheduler.model.pods import Pod
from scheduler.model.verdict import Verdict
from scheduler.placement import (
    AtMostEvicted,
    MadeRoom,
    MustFree,
    PlacementProblem,
    Resident,
    RoomRow,
    RunningGang,
    VictimProblem,
    WhileOver,
    make_room,
)


@dataclass(frozen=True, slots=True)
class Room:
    """The question, and the pods that its residents stand for."""

    problem: VictimProblem
    pods: tuple[Pod, ...]
    owners: tuple[Running, ...]


def evict_for(session: Session, ask: Ask, rights: Rights) -> bool | None:
    """Place the ask with as few evictions as it takes. False: proven impossible; None: nothing was found in time."""
    ask = replace(ask, each=False)
    room = _room(session, ask, rights)
    if room is None:
        return False
    answer = make_room(room.problem)
    if not isinstance(answer, MadeRoom):
        session.count("room_searches_total", action=rights.why, result="none" if answer.proven else "unknown")
        return False if answer.proven else None
    session.count("room_searches_total", action=rights.why, result="optimal" if answer.optimal else "minimal")
    _carry_out(session, ask, rights, room, answer)
    return True


def _carry_out(session: Session, ask: Ask, rights: Rights, room: Room, answer: MadeRoom) -> None:
    gone: dict[str, tuple[Running, list[Pod]]] = {}
    for number in answer.evicted:
        running = room.owners[number]
        gone.setdefault(running.key, (running, []))[1].append(room.pods[number])
    with session.outlook.ahead(), session.statement() as statement:
        victims = statement.evict([(running, tuple(pods)) for running, pods in gone.values()], rights.why)
        members: list[tuple[Pod, int]] = []
        for kind, pairs in zip(ask.kinds, answer.placement.counts, strict=True):
            rows = np.array([node for node, _ in pairs], dtype=np.intp)
            counts = np.array([number for _, number in pairs], dtype=np.int64)
            statement.charge(kind.shape, rows, counts)
            members.extend(zip(kind.pods, spelled(rows, counts), strict=False))
        awaited = _awaited(session, {row for _, row in members}, {victim.uid for victim in victims}, rights.why)
        statement.place(ask.state, len(members), members, (*victims, *awaited))
        statement.commit()
    session.count("pods_evicted_total", float(len(victims)), action=rights.why)


def _awaited(session: Session, rows: set[int], known: set[str], why: str) -> Iterable[Victim]:
    """Pods that go anyway, on the nodes that are given out: they are named so that they are waited for."""
    for pod, _ in session.snapshot.releasing:
        row = session.row(pod.node)
        if row in rows and pod.uid not in known:
            name = pod.owner_name or pod.name
            yield Victim(
                uid=pod.uid, namespace=pod.namespace, pod=pod.name, node=pod.node, group=pod.group,
                holder=f"{pod.namespace}/{name}", why=why, grace=pod.grace,
            )  # fmt: skip


def _room(session: Session, ask: Ask, rights: Rights) -> Room | None:
    """Return the question; None where the members cannot be asked about at all."""
    pods = tuple(pod for one in rights.candidates for pod in one.pods)
    owners = tuple(one.running for one in rights.candidates for _ in one.pods)
    with session.outlook.ahead():
        relations = relate(session, ask)
        if isinstance(relations, Verdict):
            return None
        problem = problem_of(session, ask, relations) if not relations else _without(session, ask, pods, owners)
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
    residents = tuple(_resident(session, problem, pod) for pod in pods)
    gangs = tuple(_gang(one, numbers[one.running.key]) for one in rights.candidates)
    rows = tuple(_rows(session, problem, rights, numbers, pods))
    return Room(VictimProblem(problem, residents, gangs, rows, refine), pods, owners)


def _without(session: Session, ask: Ask, pods: Sequence[Pod], owners: Sequence[Running]) -> PlacementProblem | None:
    """Return what the ask is when these pods are gone, what they hold being free; None where it cannot be asked."""
    parts: dict[str, tuple[Running, list[Pod]]] = {}
    for pod, running in zip(pods, owners, strict=True):
        parts.setdefault(running.key, (running, []))[1].append(pod)
    with session.statement() as statement:
        statement.evict([(running, tuple(part)) for running, part in parts.values()], "")
        relations = relate(session, ask)
        return None if isinstance(relations, Verdict) else problem_of(session, ask, relations)


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


def _resident(session: Session, problem: PlacementProblem, pod: Pod) -> Resident:
    held = session.outlook.amounts(pod)
    extra = len(problem.nodes.resources) - len(held)
    row = session.row(pod.node)
    assert row is not None  # candidates are on nodes of the snapshot
    return Resident(
        node=row,
        holds=np.concatenate([held, np.zeros(extra, dtype=np.int64)]) if extra else held,
        runtime=max(0, int(session.now - pod.since)) if pod.since else 0,
        name=pod.uid,
    )


def _gang(candidate: Candidate, numbers: tuple[int, ...]) -> RunningGang:
    """Members that may not go, whoever they are, stay; a group that may not go whole counts one more that stays."""
    running = candidate.running
    staying = running.fixed + len(running.pods) - len(candidate.pods)
    minimum = running.minimum
    if not candidate.whole and not staying:
        staying, minimum = 1, minimum + 1
    chosen = {pod.uid: number for pod, number in zip(candidate.pods, numbers, strict=True)}
    roles = []
    for role, least in running.roles:
        members = [pod for pod in running.pods if pod.role == role]
        may_go = tuple(chosen[pod.uid] for pod in members if pod.uid in chosen)
        roles.append((may_go, max(0, least - (len(members) - len(may_go)))))
    return RunningGang(numbers, minimum, tuple(roles), staying, running.priority)


def _rows(
    session: Session,
    problem: PlacementProblem,
    rights: Rights,
    numbers: Mapping[str, tuple[int, ...]],
    pods: Sequence[Pod],
) -> Iterator[RoomRow]:
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
    for budget in rights.budgets:
        yield AtMostEvicted(tuple(n for n, pod in enumerate(pods) if pod.uid in budget.pods), budget.most)


def _held(session: Session, pod: Pod, name: str) -> int:
    held = pod.charge if pod.charge is not None else session.snapshot.shapes[pod.shape].requests
    return dict(held).get(name, 0)
