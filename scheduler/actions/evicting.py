"""Making room for one group: placement's answer as one statement.

Decided here: that the beneficiary's whole minimum is placed in the same statement, or nobody is evicted, and who of
those that go anyway is waited for. Who may go is decided by `rights`, who does by placement.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np

from scheduler.actions.ask import Ask
from scheduler.actions.attempt import spelled
from scheduler.actions.candidates import lost
from scheduler.actions.making_room import BASE_WORK
from scheduler.actions.rehousing import rehoused
from scheduler.actions.rights import Rights, narrowed
from scheduler.actions.room import Room, room_for
from scheduler.actions.singles import ask_single
from scheduler.framework.residents import Running
from scheduler.framework.session import Session
from scheduler.model.decisions import Victim
from scheduler.model.pods import Pod
from scheduler.placement import MadeRoom, Placement, make_room


def evict_for(session: Session, ask: Ask, rights: Rights) -> bool:
    """Place the ask with as few evictions as it takes; return whether that was possible."""
    found = ask_single(session, ask, rights)
    if found is None:
        narrower = narrowed(session, ask, rights)
        room = room_for(session, ask, narrower) if narrower is not None else None
        if room is None:
            return False
        session.work_left -= BASE_WORK + len(room.pods)
        found = room, make_room(room.problem)
    room, answer = found
    if not isinstance(answer, MadeRoom):
        session.count("room_searches_total", action=rights.why, result="none" if answer.proven else "unknown")
        return False
    session.count("room_searches_total", action=rights.why, result="optimal" if answer.optimal else "minimal")
    _carry_out(session, ask, rights.why, room, answer)
    return True


def _carry_out(session: Session, ask: Ask, why: str, room: Room, answer: MadeRoom) -> None:
    gone: dict[str, tuple[Running, list[Pod]]] = {}
    for number in answer.evicted:
        running = room.owners[number]
        gone.setdefault(running.key, (running, []))[1].append(room.pods[number])
    commit(session, ask, answer.placement, [(one, tuple(pods)) for one, pods in gone.values()], why)


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
        members: list[tuple[Pod, int]] = []
        for kind, pairs in zip(ask.kinds, placement.counts, strict=True):
            rows = np.array([node for node, _ in pairs], dtype=np.intp)
            counts = np.array([number for _, number in pairs], dtype=np.int64)
            statement.charge(kind.shape, rows, counts)
            members.extend(zip(kind.pods, spelled(rows, counts), strict=False))
        pods = {pod.uid: pod for _, part in gone for pod in part}
        homes = rehoused(session, gone) if moves is None else moves
        victims = tuple(_moved(session, victim, pods[victim.uid], homes.get(victim.uid, "")) for victim in victims)
        awaited = _awaited(session, {row for _, row in members}, {victim.uid for victim in victims}, why)
        statement.place(ask.state, len(members), members, (*victims, *awaited))
        statement.commit()
    lost(session, [running for running, _ in gone])
    session.count("pods_evicted_total", float(len(victims)), action=why)
    for uid, node in homes.items():
        row = session.row(node)
        if row is not None:
            session.outlook.keep(session.outlook.amounts(pods[uid]), np.array([row]), np.ones(1, dtype=np.int64))


def _moved(session: Session, victim: Victim, pod: Pod, node: str) -> Victim:
    """Return the victim as one for which room is kept."""
    if not node:
        return victim
    held = pod.charge if pod.charge is not None else session.snapshot.shapes[pod.shape].requests
    return replace(victim, move_to=node, owner=pod.owner_uid, requests=held)


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
