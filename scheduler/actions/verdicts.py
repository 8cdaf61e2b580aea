"""Why a group that waits for room waits: numbers that are true of the amounts at the end of the session.

Decided here: which resource is named, and whether the gang never fits, lacks room, has room in pieces that are too
small, or lacks it in one domain only. Makes facts, never sentences. What is said to fit has been placed, not guessed.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from scheduler.actions.ask import Ask, likeness, relate
from scheduler.actions.binding import binding
from scheduler.actions.domain_reasons import cause, shortfall
from scheduler.actions.placing import Found, Nothing, could_ever, solve
from scheduler.actions.rooms import Room, amounts, asked, counted, counted_by_rules, room_of
from scheduler.framework.relations import Relations
from scheduler.framework.session import Session
from scheduler.model.pods import Pod
from scheduler.model.quantity import MAX_SHOWN
from scheduler.model.resources import PODS
from scheduler.model.verdict import Code, Fact, Verdict


def explain(session: Session, ask: Ask, answer: Nothing) -> Verdict:
    """Return the verdict on an ask that has no placement now; equal asks get the same one."""
    relations = relate(session, ask)
    if isinstance(relations, Verdict):
        return relations
    key = ("why", session.ledger.token, session.tenancy, likeness(session, ask), answer.proven, relations.digest)
    known: Verdict | None = session.cache.memo.get(key)
    if known is None:
        known = _explain(session, ask, answer, relations)
        session.cache.memo.put(key, known)
    return known


def _explain(session: Session, ask: Ask, answer: Nothing, relations: Relations) -> Verdict:
    rooms = _rooms(session, ask, relations)
    thorough = not relations.rules or session.may_be_thorough()
    scarce = max(rooms, key=lambda room: (room.total < room.wanted, room.wanted - min(room.wanted, room.total)))
    resource, needed, free, held = _scarcest(session, rooms, scarce)
    facts: dict[str, Fact] = {
        "members": sum(room.wanted for room in rooms),
        "resource": resource,
        "needed": needed,
        "free": free,
        "nodes": int(np.logical_or.reduce([room.mask for room in rooms]).sum()),
        "short": max(0, needed - free),
        "largest": int(held.max(initial=0)),
    }
    if thorough:
        facts["placeable"] = _placeable(session, ask, rooms, relations)
    if scarce.kind.role:
        facts["role"] = scarce.kind.role
    holders = session.holders(resource)
    if holders:
        facts["holders"] = holders
    code, permanent, wish = Code.RESOURCES, False, None
    if not could_ever(session, ask, under_rules=thorough):
        permanent = True
        hard = binding(session, ask, empty=True, alone=thorough)
        if hard:
            facts = _but_rules(facts, f"an empty cluster has room, but not with {hard}")
        elif (wish := cause(session, ask, empty=True)) is not None:
            code = Code.TOPOLOGY
            ever = relate(session, ask, empty=True)
            then = _rooms(session, ask, relations if isinstance(ever, Verdict) else ever, empty=True)
            facts = _never(facts, shortfall(session, ask, wish, then, resource, empty=True))
        else:
            del facts["largest"]  # what is free now says nothing about what could ever be
            facts |= _for_ever(session, rooms, scarce, resource)
    elif not answer.proven:
        code = Code.SEARCH_BUDGET_EXHAUSTED
    elif hard := binding(session, ask, alone=thorough):
        code = Code.TOPOLOGY
        facts = _but_rules(facts, f"there is room, but not with {hard}")
    elif (wish := cause(session, ask)) is not None:
        code = Code.TOPOLOGY
        facts |= shortfall(session, ask, wish, rooms, resource)
    elif needed <= free:
        code = Code.FRAGMENTED
    facts = {name: value for name, value in facts.items() if value != ""}
    if wish is not None:
        nodes = counted_by_rules(session, scarce)
    else:
        nodes = _counted_for_one(session, ask, scarce) if relations and thorough else counted(session, scarce)
    return Verdict(
        code=code,
        facts=tuple(sorted((name, _told(value)) for name, value in facts.items())),
        nodes=nodes,
        total=len(session.table.names),
        permanent=permanent,
    )


def _rooms(session: Session, ask: Ask, relations: Relations, *, empty: bool = False) -> list[Room]:
    return [
        room_of(session, kind, wanted, number, relations, empty=empty)
        for number, (kind, wanted) in enumerate(zip(ask.kinds, ask.members, strict=True))
    ]


def _but_rules(facts: dict[str, Fact], message: str) -> dict[str, Fact]:
    """What is told where rules are the cause: that, and no amounts that are free or missing."""
    kept = ("members", "resource", "needed", "nodes", "placeable", "role")
    return {**{name: value for name, value in facts.items() if name in kept}, "message": message}


def _never(facts: dict[str, Fact], more: dict[str, Fact]) -> dict[str, Fact]:
    """What is told where no domain could ever hold it: what domains have when they are empty, not what is free now."""
    kept = {name: facts[name] for name in ("members", "resource", "needed", "role") if name in facts}
    return kept | {"message": f"not even an empty {more.get('level')} has room for them"} | more


def _told(value: Fact) -> Fact:
    """Cut what absurd requests of many members sum up to, so that it can be sent."""
    return min(value, MAX_SHOWN) if isinstance(value, int) else value


def _scarcest(session: Session, rooms: list[Room], scarce: Room) -> tuple[str, int, int, NDArray[np.int64]]:
    """Return the resource to name, what is needed and free of it, and what each eligible node has free.

    The one that is shortest in proportion; when none is short in sum, the one of which the fewest members fit.
    """
    absent = session.missing_resources(scarce.kind.shape)
    if absent:
        name = absent[0]
        needed = sum(room.wanted * dict(room.kind.shape.requests).get(name, 0) for room in rooms)
        return name, needed, 0, np.zeros(0, dtype=np.int64)
    best: tuple[float, float, bool, str] | None = None
    chosen: tuple[str, int, int, NDArray[np.int64]] = (PODS, 0, 0, np.zeros(0, dtype=np.int64))
    names = session.table.resources
    for number in (*(int(row) for row in np.flatnonzero(scarce.request)), len(names)):
        name = names[number] if number < len(names) else PODS
        asked = [int(room.request[number]) if name != PODS else 1 for room in rooms]
        mask = np.logical_or.reduce([room.mask for room, one in zip(rooms, asked, strict=True) if one])
        source = session.free[number] if name != PODS else session.open_slots
        held = np.maximum(source[mask], 0)
        needed = sum(room.wanted * one for room, one in zip(rooms, asked, strict=True))
        free = int(held.sum())
        one = int(scarce.request[number]) if name != PODS else 1
        missing = max(0, needed - free) / needed if needed else 0.0
        rank = (-missing, float((held // one).sum()), "/" not in name, name)
        if best is None or rank < best:
            best, chosen = rank, (name, needed, free, held)
    return chosen


def _placeable(session: Session, ask: Ask, rooms: list[Room], relations: Relations) -> int:
    """How many of the members could start now if the others were not needed."""
    wanted = sum(room.wanted for room in rooms)
    if len(rooms) == 1 and not ask.wishes and not relations.rules:
        return min(wanted, rooms[0].total)
    if ask.roles or ask.lacking.size or ask.lacking.choices:  # else any others are as good as those that are meant
        meant = tuple(replace(room.kind, pods=room.kind.pods[: room.wanted]) for room in rooms if room.wanted)
        ask = replace(ask, kinds=meant)
    answer = solve(session, replace(ask, each=True, roles=()))
    return min(wanted, sum(int(counts.sum()) for _, counts in answer.parts)) if isinstance(answer, Found) else 0


def _for_ever(session: Session, rooms: list[Room], scarce: Room, resource: str) -> dict[str, Fact]:
    """Why it would not fit the empty cluster either: a resource of which no node has enough for one member, or all
    nodes together not enough for all; where none is short, what is scarce now is named."""
    if not session.fit(scarce.kind.shape).ever.any():
        return {"message": "no node may run it"}
    best: tuple[float, bool, str, str] | None = None
    found: dict[str, Fact] = {"message": "not even when the cluster is empty"}
    for room in rooms:
        ever = session.fit(room.kind.shape).ever
        for name, one in (*room.kind.shape.requests, (PODS, 1)):
            held = amounts(session, name, empty=True)[ever]
            wanted = sum(other.wanted * asked(other, name) for other in rooms)
            largest, capacity = int(held.max(initial=0)), int(held.sum())
            lack = 1 + (one - largest) / one if largest < one else max(0, wanted - capacity) / max(1, wanted)
            rank = (-lack, name != resource, room.kind.role, name)
            if lack > 0 and (best is None or rank < best):
                told: dict[str, Fact] = {"largest": largest} if largest < one else {"capacity": capacity}
                best, found = rank, {"resource": name, "needed": wanted, "each": one, **told}
                found |= {"role": room.kind.role} if room.kind.role else {}
    return found


def _counted_for_one(session: Session, ask: Ask, scarce: Room) -> tuple[tuple[str, int], ...]:
    """As `counted`, with those that would fit placed for as long as it takes to ask about the next."""
    kind = scarce.kind
    left = list(kind.pods)
    with session.statement() as statement:
        answer = solve(session, replace(ask, each=True, roles=())) if ask.total > 1 else None
        if isinstance(answer, Found):
            members: list[tuple[Pod, int]] = []
            for one, (rows, counts) in zip(ask.kinds, answer.parts, strict=True):
                statement.charge(one.shape, rows, counts)
                members.extend(zip(one.pods, np.repeat(rows, counts).tolist(), strict=False))
            statement.place(ask.state, 0, members)
            left = [pod for pod in left if pod.uid not in session.placed] or left[-1:]
        single = replace(ask, kinds=(replace(kind, pods=(left[0],)),), total=1, roles=(), each=False)
        relations = relate(session, single)
        if isinstance(relations, Verdict):
            return counted(session, scarce)
        return counted(session, room_of(session, single.kinds[0], 1, 0, relations))
