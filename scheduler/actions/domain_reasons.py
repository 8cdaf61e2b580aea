"""Which rule about domains keeps an ask out, and by how much each domain falls short.

Decided here: a rule is the cause when the ask would fit without it (the narrowest one is named first; where only all
together are, the last). Where one domain would hold those that the rule is about, no numbers of it are told. Numbers
are those of the moment, or of a cluster in which nothing runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from scheduler.actions.ask import Ask
from scheduler.actions.placing import Found, could_ever, most_ever, solve
from scheduler.actions.rooms import Room, amounts, asked
from scheduler.framework.protocols import (
    ApartDomains,
    Barred,
    EvenDomains,
    FewDomains,
    PartsApart,
    Sized,
    Wish,
    WithinDomain,
    must_hold,
)
from scheduler.framework.session import Session
from scheduler.framework.subgroups import is_under
from scheduler.model.resources import PODS
from scheduler.model.verdict import Fact

SHOWN = 4
"""Domains of which the room is told."""


def cause(session: Session, ask: Ask, *, empty: bool = False) -> Wish | None:
    """Return the rule about domains without which the ask would fit now (empty: if nothing ran), or None."""
    hard = [wish for wish in ask.wishes if must_hold(wish)]
    soft = tuple(wish for wish in ask.wishes if wish not in hard)
    if not hard or not _fits(session, replace(ask, wishes=soft), empty=empty):
        return None
    for wish in reversed(hard) if len(hard) > 1 and session.may_be_thorough() else ():
        if _fits(session, replace(ask, wishes=tuple(one for one in ask.wishes if one != wish)), empty=empty):
            return wish
    return hard[-1]


def _fits(session: Session, ask: Ask, *, empty: bool) -> bool:
    return could_ever(session, ask) if empty else isinstance(solve(session, ask), Found)


def shortfall(
    session: Session, ask: Ask, wish: Wish, rooms: Sequence[Room], resource: str, *, empty: bool = False
) -> dict[str, Fact]:
    """Return what is told about a rule that is the cause: for one domain, the room in the best ones.

    empty: of a cluster in which nothing runs, as the rooms are.
    """
    level = session.level_name(wish.label)
    has = "an empty cluster has" if empty else "there is"
    match wish:
        case WithinDomain():
            facts = _of_domains(session, ask, wish, rooms, resource, empty=empty)
            if facts is not None:
                return facts
            whole = f"sub-group {wish.part}" if wish.part else "it"
            rule = f"with all of {whole} in one {level}" + _and_the_others(ask, wish)
            return {"message": f"{has} room, but not {rule}", "subgroup": ""}
        case FewDomains():
            rule = f"in at most {wish.limit} domains of {level}"
        case Sized():
            rule = f"in multiples of {wish.size} in each {level}"
        case ApartDomains():
            rule = f"with at most {wish.limit} in each {level}"
        case PartsApart(limit=1):
            rule = f"with each sub-group in a {level} of its own"
        case PartsApart():
            rule = f"with at most {wish.limit} sub-groups in each {level}"
        case EvenDomains():
            rule = f"evenly over each {level}"
        case Barred():
            rule = f"in a {level} without others that are exclusive there"
    part = "" if isinstance(wish, PartsApart) else wish.part
    return {"message": f"{has} room, but not {rule}", "subgroup": part}


def _of_domains(
    session: Session, ask: Ask, wish: WithinDomain, rooms: Sequence[Room], resource: str, *, empty: bool
) -> dict[str, Fact] | None:
    """Return by how much domains fall short; None where one of them would hold all that the rule is about."""
    ids, names = session.domains(wish.label)
    level = session.level_name(wish.label)
    meant = [rooms[number] for number in ask.numbers(wish.part)]
    wanted, needed = sum(room.wanted for room in meant), _needed(meant, resource)
    roles = {room.kind.role for room in meant}
    facts: dict[str, Fact] = {"level": level, "subgroup": wish.part, "members": wanted, "needed": needed}
    facts["role"] = roles.pop() if len(roles) == 1 else ""
    eligible = np.logical_or.reduce([room.mask for room in meant])
    labelled = ids >= 0
    outside = eligible & ~labelled & np.logical_or.reduce([room.each > 0 for room in meant])
    if outside.any():
        facts["unlabelled"] = int(outside.sum())
    own = {int(ids[anchor.row]) for anchor in ask.anchors if is_under(anchor.part, wish.part)}
    known = eligible & labelled & (np.isin(ids, list(own)) if own else True)
    if not known.any():
        return facts | {"message": f"no node that may run it is in a {level}"}
    fits = np.zeros(len(names), dtype=np.int64)
    for room in meant:
        inside = room.mask & labelled
        there = np.bincount(ids[inside], weights=room.each[inside], minlength=len(names)).astype(np.int64)
        fits += np.minimum(there, room.wanted)

    def held(name: str) -> NDArray[np.int64]:
        found = np.maximum(amounts(session, name, empty=empty)[known], 0)
        return np.bincount(ids[known], weights=found, minlength=len(names)).astype(np.int64)

    free, domains = held(resource), np.unique(ids[known])
    order = sorted(domains.tolist(), key=lambda domain: (-int(fits[domain]), -int(free[domain]), names[domain]))
    alone = len(meant) == 1 and not any(_binds(one, empty=empty) for one in _inside(ask, wish))
    exact = alone or session.may_be_thorough()
    if not alone and exact:
        for one in order[:SHOWN]:
            fits[one] = _together(session, ask, wish, one, empty=empty)
        order[:SHOWN] = sorted(order[:SHOWN], key=lambda one: (-int(fits[one]), -int(free[one]), names[one]))
    best = order[0]
    if fits[best] >= wanted:
        return None
    facts |= {"domain": names[best], "domains": len(order), "joined": bool(own)}
    if empty:
        resource = max(
            _resources(meant), key=lambda name: (_lack(meant, name, int(held(name)[best])), name == resource)
        )
        has, needed = int(held(resource)[best]), _needed(meant, resource)
        facts |= {"resource": resource, "needed": needed, "capacity": has, "short": max(0, needed - has)}
    else:
        facts |= {"free": int(free[best]), "short": max(0, needed - int(free[best]))}
    if not exact:  # the sums count each kind as if it were alone
        return facts
    return facts | {"rooms": tuple((names[one], int(fits[one])) for one in order[:SHOWN])}


def _and_the_others(ask: Ask, wish: WithinDomain) -> str:
    others = [one for one in ask.wishes if one != wish and must_hold(one)]
    return " and what else is asked about domains" if others else ""


def _resources(rooms: Sequence[Room]) -> list[str]:
    return sorted({name for room in rooms for name, _ in room.kind.shape.requests} | {PODS})


def _needed(rooms: Sequence[Room], resource: str) -> int:
    return sum(room.wanted * asked(room, resource) for room in rooms)


def _lack(rooms: Sequence[Room], resource: str, has: int) -> float:
    """Return which part of what is needed is missing."""
    needed = _needed(rooms, resource)
    return max(0, needed - has) / needed if needed else 0.0


def _inside(ask: Ask, wish: WithinDomain) -> tuple[Wish, ...]:
    """Return the other rules about the members meant."""
    others = (one for one in ask.wishes if one != wish and not isinstance(one, PartsApart))
    return tuple(one for one in others if is_under(one.part, wish.part))


def _binds(wish: Wish, *, empty: bool) -> bool:
    """Whether a rule may keep members out (of an empty cluster)."""
    return must_hold(wish) and not (empty and isinstance(wish, Barred))


def _together(session: Session, ask: Ask, wish: WithinDomain, domain: int, *, empty: bool) -> int:
    """How many of the members meant fit into a domain together."""
    meant = ((ask.kinds[number], ask.members[number]) for number in ask.numbers(wish.part))
    kinds = tuple(replace(kind, pods=kind.pods[:wanted]) for kind, wanted in meant if wanted)
    ids = session.domains(wish.label)[0]
    others = tuple(int(one) for one in np.unique(ids) if one != domain)
    wishes = (*_inside(ask, wish), Barred(wish.label, others, always=True))
    total = sum(ask.members[number] for number in ask.numbers(wish.part))
    question = replace(ask, kinds=kinds, total=total, roles=(), each=True, wishes=wishes)
    if empty:
        return most_ever(session, question)
    answer = solve(session, question)
    return sum(int(counts.sum()) for _, counts in answer.parts) if isinstance(answer, Found) else 0
