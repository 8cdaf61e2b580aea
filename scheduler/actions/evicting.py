"""Making room for one group: placement's answer as one statement.

Decided here: that the beneficiary's whole minimum is placed in the same statement, or nobody is evicted, and who of
those that go anyway is waited for. Who may go is decided by `rights`, who does by placement.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from scheduler.actions.ask import Ask
from scheduler.actions.candidates import lost
from scheduler.actions.dealing import deal
from scheduler.actions.gates import losing
from scheduler.actions.making_room import WORK, work_of
from scheduler.actions.narrowing import portions
from scheduler.actions.placing import parts_of
from scheduler.actions.rehousing import rehoused
from scheduler.actions.rights import Rights, narrowed
from scheduler.actions.room import Room, room_for
from scheduler.actions.singles import ask_single
from scheduler.actions.spare_parts import by_parts
from scheduler.framework.residents import Running
from scheduler.framework.session import Session
from scheduler.model.decisions import Victim
from scheduler.model.pods import Pod, held_by, held_together
from scheduler.placement import Cost, Infeasible, MadeRoom, Placement, cost_of, make_room


def evict_for(session: Session, ask: Ask, rights: Rights) -> bool:
    """Place the ask with as few evictions as it takes; return whether that was possible."""
    found = _with_parts(
        session, ask, rights, ask_single(session, ask, rights) or _ask_by_portions(session, ask, rights)
    )
    if found is None:
        return False
    room, answer = found
    if not isinstance(answer, MadeRoom):
        session.count("room_searches_total", action=rights.why, result="none" if answer.proven else "unknown")
        return False
    session.count("room_searches_total", action=rights.why, result="optimal" if answer.optimal else "minimal")
    return _carry_out(session, ask, rights.why, room, answer)


def _with_parts(
    session: Session, ask: Ask, rights: Rights, found: tuple[Room, MadeRoom | Infeasible] | None
) -> tuple[Room, MadeRoom | Infeasible] | None:
    """Return a cheaper answer that takes spare sub-groups of gangs, else the one that was found."""
    for portion in by_parts(session, rights):
        narrower = narrowed(session, ask, portion)
        room = room_for(session, ask, narrower) if narrower is not None else None
        session.work_left -= work_of(session, len(room.pods) if room is not None else 0)
        answer = make_room(room.problem) if room is not None else None
        if room is None or not isinstance(answer, MadeRoom):
            continue
        if found is None or not isinstance(found[1], MadeRoom) or _cost(room, answer) < _cost(found[0], found[1]):
            found = room, replace(answer, optimal=False)
    return found


def _cost(room: Room, made: MadeRoom) -> Cost:
    return cost_of(room.problem, made.evicted)


def _ask_by_portions(session: Session, ask: Ask, rights: Rights) -> tuple[Room, MadeRoom | Infeasible] | None:
    """Ask portion by portion until the cheapest set is found, or, where that takes too long, any; None: it cannot be
    asked. An answer is optimal, and a "no" proven, only when that holds for all portions together."""
    best: tuple[Room, MadeRoom] | None = None
    last: tuple[Room, Infeasible] | None = None
    proven, rest = True, None
    for portion in portions(session, ask, rights):
        rest = portion.rest
        narrower = narrowed(session, ask, portion.rights)
        room = room_for(session, ask, narrower) if narrower is not None else None
        session.work_left -= work_of(session, len(room.pods) if room is not None else 0)
        if room is not None:
            answer = make_room(room.problem)
            if isinstance(answer, Infeasible):
                last, proven = (room, answer), proven and answer.proven
            else:
                proven = proven and answer.optimal
                if best is None or cost_of(room.problem, answer.evicted) < cost_of(best[0].problem, best[1].evicted):
                    best = room, answer
        if best is not None and (not portion.apart or _is_least(best, rest) or session.work_left <= WORK // 2):
            break
        if best is None and session.work_left <= 0 and rest is not None:
            break
    if best is not None:
        return best[0], replace(best[1], optimal=proven and _is_least(best, rest))
    return None if last is None else (last[0], replace(last[1], proven=proven and rest is None))


def _is_least(best: tuple[Room, MadeRoom], rest: Cost | None) -> bool:
    """Whether no set that was not looked at costs less."""
    room, made = best
    return rest is None or rest >= cost_of(room.problem, made.evicted)


def _carry_out(session: Session, ask: Ask, why: str, room: Room, answer: MadeRoom) -> bool:
    gone: dict[int, tuple[Running, list[Pod]]] = {}
    for number in answer.evicted:
        running = room.owners[number]
        gone.setdefault(id(running), (running, []))[1].append(room.pods[number])
    parts = [(one, tuple(pods)) for one, pods in gone.values()]
    if not _allowed(session, ask, answer.placement, parts):
        session.count("room_searches_total", action=why, result="forbidden")
        return False
    commit(session, ask, answer.placement, parts, why)
    return True


def _allowed(session: Session, ask: Ask, placement: Placement, gone: list[tuple[Running, tuple[Pod, ...]]]) -> bool:
    """Whether plugins allow the ask when these are gone; of what they say limits and guarantees are rows already."""
    undo: list[Callable[[], None]] = []
    for running, pods in gone:
        row = session.book.tree.index.get(running.queue)
        if row is not None:
            undo.append(session.book.charge(row, -session.book.vector(held_together(pods, session.snapshot.shapes))))
    try:
        amounts = ask.amounts_of([placement.placed(number) for number in range(len(ask.kinds))])
        return session.hooks.allows(ask.state, amounts, session) is None
    finally:
        for back in undo:
            back()


def commit(
    session: Session,
    ask: Ask,
    placement: Placement,
    gone: list[tuple[Running, tuple[Pod, ...]]],
    why: str,
    moves: Mapping[str, str] | None = None,
) -> None:
    """Evict, and place the ask where they were.

    moves: uid -> node, of those for which room is kept elsewhere; None: of those that have room on what is left.
    """
    with session.outlook.ahead(), session.statement() as statement:
        victims = statement.evict(gone, why)
        found = parts_of(placement.counts)
        for kind, (rows, counts) in zip(ask.kinds, found, strict=True):
            statement.charge(kind.shape, rows, counts)
        dealt = deal(session, ask, found)
        members = dealt.members
        pods = {pod.uid: pod for _, part in gone for pod in part}
        homes = rehoused(session, ask, gone) if moves is None else moves
        victims = tuple(_moved(session, victim, pods[victim.uid], homes.get(victim.uid, "")) for victim in victims)
        awaited = _awaited(session, {row for _, row in members}, {victim.uid for victim in victims}, why)
        statement.place(ask.state, len(members), members, (*victims, *awaited), dealt.marks)
        statement.commit()
    _note_spare(session, list(pods.values()), members)
    lost(session, [running for running, _ in gone])
    for running, _ in gone:
        _stand_back(session, running.key)
    session.count("pods_evicted_total", float(len(victims)), action=why)
    for uid, node in homes.items():
        row = session.row(node)
        if row is not None:
            session.outlook.keep(session.outlook.amounts(pods[uid]), np.array([row]), np.ones(1, dtype=np.int64))


def _stand_back(session: Session, key: str) -> None:
    """A group of which somebody goes gets nothing more in this session."""
    state = session.snapshot.groups.get(key)
    why = losing(session, state) if state is not None and session.remaining(state) else None
    if state is not None and why is not None:
        session.wants.pop(key, None)
        session.deferred.pop(key, None)
        session.reject(state, why)


def _moved(session: Session, victim: Victim, pod: Pod, node: str) -> Victim:
    """Return the victim as one for which room is kept."""
    if not node:
        return victim
    return replace(victim, move_to=node, owner=pod.owner_uid, requests=held_by(pod, session.snapshot.shapes))


def _awaited(session: Session, rows: set[int], known: set[str], why: str) -> Iterable[Victim]:
    """Pods that go anyway, on nodes of which what they leave is given out: they are named so that they are waited for.

    Also those that go for others by an earlier decision of this session, where what they leave over is used.
    """
    going = _going(session)
    for row, pod in ((at, pod) for at in sorted(rows) for pod in going.get(at, ())):
        wanted = _overdrawn(session, row) if pod.uid in session.evicted else session.outlook.is_used(row)
        if pod.uid not in known and wanted:
            name = pod.owner_name or pod.name
            yield Victim(
                uid=pod.uid, namespace=pod.namespace, pod=pod.name, node=pod.node, group=pod.group,
                holder=f"{pod.namespace}/{name}", why=why, grace=pod.grace,
            )  # fmt: skip


def _going(session: Session) -> dict[int, list[Pod]]:
    """Return the pods that go, by the rows of their nodes."""
    found: dict[int, list[Pod]] = session.scratch.setdefault("going", {})
    seen: int = session.scratch.get("going_seen", 0)
    first = () if "going_seen" in session.scratch else (pod for pod, _ in session.snapshot.releasing)
    for pod in (*first, *islice(session.evicted.values(), seen, None)):
        row = session.row(pod.node)
        if row is not None:
            found.setdefault(row, []).append(pod)
    session.scratch["going_seen"] = len(session.evicted)
    return found


Spare = tuple[NDArray[np.int64], int]
"""Amounts, and pod slots."""


def _note_spare(session: Session, gone: list[Pod], members: list[tuple[Pod, int]]) -> None:
    """Keep what the victims of a decision leave over on their nodes, beside what is placed there in their stead."""
    spare: dict[int, Spare] = session.scratch.setdefault("spare", {})
    rows, amounts, slots = session.outlook.piece(gone)
    for place, row in enumerate(rows.tolist()):
        mine = [session.request(session.snapshot.shapes[pod.shape]) for pod, at in members if at == row]
        more = np.maximum(amounts[:, place] - sum(mine), 0)
        known, crowd = spare.get(row, (np.zeros_like(more), 0))
        spare[row] = known + more, crowd + max(0, int(slots[place]) - len(mine))


def _overdrawn(session: Session, row: int) -> bool:
    """Whether more is given out on a node than there is without what is left over by victims of earlier decisions."""
    spare: dict[int, Spare] = session.scratch.get("spare", {})
    if row not in spare:
        return False
    amounts, slots = spare[row]
    return bool((session.free[:, row] < amounts).any()) or int(session.open_slots[row]) < slots
