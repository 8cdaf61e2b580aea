"""The question to placement who has to go: candidates as residents, rights as rows.

Decided here: what is asked with the candidates gone. What members may ask of other pods (ports, affinity, spread,
volumes), and which domains others bar, is asked again for each set of victims; amounts alone need no second question.
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
from scheduler.framework.protocols import Barred
from scheduler.framework.relations import Relations
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
        again = bool(relations) or _opened(ask, pods) is not ask
        problem = _without(session, ask, pods, owners) if again else _lasting(problem_of(session, ask, relations))
    if problem is None:
        return None
    refine = None
    extras: dict[str, NDArray[np.int64]] = {}
    if again:
        extras = _extras(session, problem, pods, relations)
        problem = _less(session, problem, pods, extras)
        refine = _refined(session, ask, pods, owners, problem)
    numbers = numbered(rights)
    residents = _later_first(rights, residents_of(session, problem, pods, extras))
    gangs = tuple(map(gang_of, rights.candidates, numbers))
    rows = (
        *rows_of(session, problem, rights, numbers, pods),
        *_in_the_way(ask, relations, pods),
        *_barring(session, ask, pods),
    )
    return Room(VictimProblem(problem, residents, gangs, rows, refine), pods, owners)


def _later_first(rights: Rights, residents: tuple[Resident, ...]) -> tuple[Resident, ...]:
    """Let earlier sub-groups count as a little more work than later ones: of those that are alike the later go."""
    if not any(one.spare_part for one in rights.candidates):
        return residents
    more = [place * one.spare_part for place, one in enumerate(reversed(rights.candidates))]
    each = [extra for extra, one in zip(reversed(more), rights.candidates, strict=True) for _ in one.pods]
    return tuple(replace(one, runtime=one.runtime + extra) for one, extra in zip(residents, each, strict=True))


def numbered(rights: Rights) -> list[tuple[int, ...]]:
    """Return the numbers of the residents of each candidate."""
    found: list[tuple[int, ...]] = []
    first = 0
    for one in rights.candidates:
        found.append(tuple(range(first, first + len(one.pods))))
        first += len(one.pods)
    return found


def _opened(ask: Ask, gone: Sequence[Pod]) -> Ask:
    """Return the ask without the bars on domains that all go with these pods; the same one where there are none."""
    uids = {pod.uid for pod in gone}
    wishes = tuple(_open(wish, uids) if isinstance(wish, Barred) else wish for wish in ask.wishes)
    return ask if wishes == ask.wishes else replace(ask, wishes=wishes)


def _open(wish: Barred, gone: set[str]) -> Barred:
    if not wish.until:
        return wish
    kept = [(domain, pods) for domain, pods in zip(wish.domains, wish.until, strict=True) if not pods <= gone]
    return replace(wish, domains=tuple(domain for domain, _ in kept), until=tuple(pods for _, pods in kept))


def _without(session: Session, ask: Ask, pods: Sequence[Pod], owners: Sequence[Running]) -> PlacementProblem | None:
    """Return what the ask is when these pods are gone, what they hold being free; None where it cannot be asked."""
    parts: dict[str, tuple[Running, list[Pod]]] = {}
    for pod, running in zip(pods, owners, strict=True):
        parts.setdefault(running.key, (running, []))[1].append(pod)
    with session.statement() as statement:
        statement.evict([(running, tuple(part)) for running, part in parts.values()], "")
        relations = relate(session, ask)
        if isinstance(relations, Verdict):
            return None
        return _lasting(problem_of(session, _opened(ask, pods), relations))


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


def _less(
    session: Session, problem: PlacementProblem, pods: Sequence[Pod], extras: Mapping[str, NDArray[np.int64]]
) -> PlacementProblem:
    """Return the problem with what these pods hold taken again."""
    rows, amounts, slots = session.outlook.piece(pods)
    free, open_ = problem.nodes.free.copy(), problem.nodes.slots.copy()
    free[: amounts.shape[0], rows] -= amounts
    open_[rows] -= slots
    for pod in pods:
        if pod.uid in extras:
            free[amounts.shape[0] :, session.row(pod.node)] -= extras[pod.uid]
    return replace(problem, nodes=replace(problem.nodes, free=free, slots=open_))


def _extras(
    session: Session, problem: PlacementProblem, pods: Sequence[Pod], relations: Relations
) -> dict[str, NDArray[np.int64]]:
    """Return what single pods (uid) give back of the resources that are there for this question only."""
    width = len(session.table.resources)
    names = problem.nodes.resources[width:]
    found: dict[str, NDArray[np.int64]] = {}
    for extra in relations.extras:
        if extra.name in names:
            held = extra.held()
            for pod in pods:
                if pod.uid in held:
                    found.setdefault(pod.uid, np.zeros(len(names), dtype=np.int64))
                    found[pod.uid][names.index(extra.name)] = held[pod.uid]
    return found


def _in_the_way(ask: Ask, relations: Relations, pods: Sequence[Pod]) -> Iterator[MustFree]:
    """Yield a row for each pod that has to go because it keeps needed members off all nodes."""
    number = {pod.uid: n for n, pod in enumerate(pods)}
    for bar in relations.bars:
        if bar.until and bar.nodes.all() and _needed(ask, bar.kind):
            yield from (MustFree(((number[uid], 1),), 1) for uid in bar.until if uid in number)


def _barring(session: Session, ask: Ask, pods: Sequence[Pod]) -> Iterator[MustFree]:
    """Yield a row for those who bar a domain and could go: they count wherever in it they hold something, and have to
    go when it is the only one that can be opened for the group."""
    number = {pod.uid: n for n, pod in enumerate(pods)}
    for wish in (wish for wish in ask.wishes if isinstance(wish, Barred)):
        able = [holders for holders in wish.until if holders <= number.keys()]
        outside = ~np.isin(session.domains(wish.label)[0], wish.domains)
        free = any(bool((session.fit(kind.shape).mask & outside).any()) for kind in ask.kinds)
        only = len(able) == 1 and not wish.part and not free
        for holders in able:
            amounts = tuple((number[uid], 1) for uid in sorted(holders))
            yield MustFree(amounts, len(amounts) if only else 0)


def _needed(ask: Ask, kind: int) -> bool:
    """Whether the ask cannot be met without members of a kind."""
    others = [one for number, one in enumerate(ask.kinds) if number != kind]
    return sum(len(one.pods) for one in others) < ask.total or any(
        sum(len(one.pods) for one in others if one.role == role) < count for role, count in ask.roles
    )


def residents_of(
    session: Session,
    problem: PlacementProblem,
    pods: Sequence[Pod],
    extras: Mapping[str, NDArray[np.int64]] | None = None,
) -> tuple[Resident, ...]:
    """Return running pods as such that may go. extras: what they (uid) hold of what only this question has."""
    width = len(session.table.resources)
    rows = [row for pod in pods if (row := session.row(pod.node)) is not None]
    assert len(rows) == len(pods)  # candidates are on nodes of the snapshot
    held = np.array([session.outlook.amounts(pod) for pod in pods], dtype=np.int64).reshape(len(pods), width)
    since = np.array([pod.since for pod in pods], dtype=np.float64)
    lost = work_lost(session, np.array(rows, dtype=np.intp), held.T, since).tolist()
    none = np.zeros(len(problem.nodes.resources) - width, dtype=np.int64)
    if none.size:
        more = np.array([(extras or {}).get(pod.uid, none) for pod in pods]).reshape(len(pods), none.size)
        held = np.concatenate([held, more], axis=1)
    return tuple(
        Resident(row, amounts, work, pod.uid) for row, amounts, work, pod in zip(rows, held, lost, pods, strict=True)
    )


def work_lost(
    session: Session, rows: NDArray[np.intp], held: NDArray[np.int64], since: NDArray[np.float64]
) -> NDArray[np.int64]:
    """Return the work that is lost with pods: their time and what a start costs, times their part of the node in 64ths.

    rows: of their nodes; held: (resources of the table, pods); since: when they began, 0: not known.
    """
    runtime = np.where(since > 0, np.clip(session.now - since, 0, MOST_LOST), 0).astype(np.int64)
    whole = np.maximum(session.table.allocatable[:, rows], 1)
    part = np.max(held[: whole.shape[0]] * 64 // whole, axis=0, initial=0)
    lost: NDArray[np.int64] = (runtime + START_COSTS) * np.clip(part, 1, 64)
    return lost


def gang_of(candidate: Candidate, numbers: tuple[int, ...]) -> RunningGang:
    """Members that may not go, whoever they are, stay; a group that may not go whole counts one more that stays."""
    running = candidate.running
    staying = running.fixed + len(running.pods) - len(candidate.pods)
    minimum = running.minimum
    if not candidate.whole and not staying:
        staying, minimum = 1, minimum + 1
    if not running.roles and not running.parts:
        return RunningGang(numbers, minimum, (), staying, running.priority, candidate.spare_part)
    chosen = {pod.uid: number for pod, number in zip(candidate.pods, numbers, strict=True)}
    roles = []
    for _, members, least in running.floors():
        may_go = tuple(chosen[pod.uid] for pod in members if pod.uid in chosen)
        roles.append((may_go, max(0, least - (len(members) - len(may_go)))))
    return RunningGang(numbers, minimum, tuple(roles), staying, running.priority)


def rows_of(
    session: Session,
    problem: PlacementProblem,
    rights: Rights,
    numbers: Sequence[tuple[int, ...]],
    pods: Sequence[Pod],
) -> Iterator[RoomRow]:
    """Yield the rows that a set of victims keeps. numbers: of the residents of each candidate."""
    names = session.book.ground.resources
    column = {name: number for number, name in enumerate(problem.nodes.resources)}
    for share in rights.shares:
        over = tuple((column[names[c]], amount) for c, amount in share.over if names[c] in column)
        yield WhileOver(tuple(n for member in share.members for n in numbers[member]), over)
    for limit in rights.limits:
        name = names[limit.column]
        held = [(n, _held(session, pods[n], name)) for member in limit.members for n in numbers[member]]
        when = None if limit.when is None else tuple(n for member in limit.when for n in numbers[member])
        yield MustFree(tuple((n, amount) for n, amount in held if amount > 0), limit.least, when)
    for kept in rights.guarantees:
        name = names[kept.column]
        held = [(n, _held(session, pods[n], name)) for member in kept.members for n in numbers[member]]
        if sum(amount for _, amount in held) > kept.most:
            yield AtMostTaken(tuple((n, amount) for n, amount in held if amount > 0), kept.most)
    for budget in (*rights.budgets, *rights.spared):
        yield AtMostEvicted(tuple(n for n, pod in enumerate(pods) if pod.uid in budget.pods), budget.most)


def _held(session: Session, pod: Pod, name: str) -> int:
    held = held_by(pod, session.snapshot.shapes)
    return dict(held).get(name, 0)
