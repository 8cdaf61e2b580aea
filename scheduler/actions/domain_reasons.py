"""Which rule about domains keeps an ask out, and by how much each domain falls short.

Decided here: a rule is the cause when the ask would fit without it (the narrowest one is named first; where only all
together are, the last). Numbers are those of the moment, or of a cluster in which nothing runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from scheduler.actions.ask import Ask
from scheduler.actions.placing import Found, could_ever, solve
from scheduler.actions.rooms import Room
from scheduler.framework.protocols import (
    ApartDomains,
    Barred,
    FewDomains,
    PartsApart,
    Sized,
    Wish,
    WithinDomain,
)
from scheduler.framework.session import Session
from scheduler.framework.subgroups import is_under
from scheduler.model.verdict import Fact

SHOWN = 4
"""Domains of which the room is told."""


def cause(session: Session, ask: Ask, *, empty: bool = False) -> Wish | None:
    """Return the rule about domains without which the ask would fit now (empty: if nothing ran), or None."""
    hard = [wish for wish in ask.wishes if not isinstance(wish, WithinDomain) or wish.required]
    soft = tuple(wish for wish in ask.wishes if wish not in hard)
    if not hard or not _fits(session, replace(ask, wishes=soft), empty=empty):
        return None
    for wish in reversed(hard) if len(hard) > 1 and session.may_be_thorough() else ():
        if _fits(session, replace(ask, wishes=tuple(one for one in ask.wishes if one != wish)), empty=empty):
            return wish
    return hard[-1]


def _fits(session: Session, ask: Ask, *, empty: bool) -> bool:
    return could_ever(session, ask) if empty else isinstance(solve(session, ask), Found)


def shortfall(session: Session, ask: Ask, wish: Wish, rooms: Sequence[Room], resource: str) -> dict[str, Fact]:
    """Return what is told about a rule that is the cause: for one domain, the room in the best ones."""
    level = session.level_name(wish.label)
    match wish:
        case WithinDomain():
            return _of_domains(session, ask, wish, rooms, resource)
        case FewDomains():
            message = f"there is room, but not in at most {wish.limit} domains of {level}"
        case Sized():
            message = f"there is room, but not in multiples of {wish.size} in each {level}"
        case ApartDomains():
            message = f"there is room, but not with at most {wish.limit} in each {level}"
        case PartsApart():
            message = f"there is room, but not with each sub-group in a {level} of its own"
        case Barred():
            message = f"there is room, but not in a {level} without others that are exclusive there"
    part = "" if isinstance(wish, PartsApart) else wish.part
    return {"message": message, "subgroup": part}


def _of_domains(
    session: Session, ask: Ask, wish: WithinDomain, rooms: Sequence[Room], resource: str
) -> dict[str, Fact]:
    ids, names = session.domains(wish.label)
    table, level = session.table, session.level_name(wish.label)
    meant = [rooms[number] for number in ask.numbers(wish.part)]
    wanted = sum(room.wanted for room in meant)
    one = [dict(room.kind.shape.requests).get(resource, 1 if resource not in table.resources else 0) for room in meant]
    needed = sum(room.wanted * each for room, each in zip(meant, one, strict=True))
    facts: dict[str, Fact] = {"level": level, "subgroup": wish.part, "members": wanted, "needed": needed}
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
    source = session.free[table.resources.index(resource)] if resource in table.resources else session.open_slots
    free = np.bincount(ids[known], weights=np.maximum(source[known], 0), minlength=len(names)).astype(np.int64)
    domains = np.unique(ids[known])
    order = sorted(domains.tolist(), key=lambda domain: (-int(fits[domain]), -int(free[domain]), names[domain]))
    best = order[0]
    shown = [(names[domain], _together(session, ask, wish, domain, int(fits[domain]))) for domain in order[:SHOWN]]
    shown.sort(key=lambda pair: -pair[1])
    facts |= {"domain": names[best], "free": int(free[best]), "short": max(0, needed - int(free[best]))}
    return facts | {"rooms": tuple(shown), "domains": len(order), "joined": bool(own)}


def _together(session: Session, ask: Ask, wish: WithinDomain, domain: int, alone: int) -> int:
    """How many of the members meant fit into a domain together; `alone`: each kind for itself."""
    kinds = tuple(ask.kinds[number] for number in ask.numbers(wish.part))
    if len(kinds) == 1 or not session.may_be_thorough():
        return alone
    ids = session.domains(wish.label)[0]
    others = tuple(int(one) for one in np.unique(ids) if one != domain)
    inside = tuple(one for one in ask.wishes if not isinstance(one, PartsApart) and is_under(one.part, wish.part))
    wishes = (*(one for one in inside if one != wish), Barred(wish.label, others))
    total = sum(ask.members[number] for number in ask.numbers(wish.part))
    answer = solve(session, replace(ask, kinds=kinds, total=total, roles=(), each=True, wishes=wishes))
    return sum(int(counts.sum()) for _, counts in answer.parts) if isinstance(answer, Found) else 0
