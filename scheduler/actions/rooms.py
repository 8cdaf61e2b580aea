"""How much room the nodes have for one kind of member, and why each of the others has none, in kube-scheduler's words.

Decided here: in which order a node's reasons count. Numbers are those of the moment; nothing is placed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from scheduler.actions.ask import Ask, Kind, relate
from scheduler.framework.relations import Bar, Extra, Relations
from scheduler.framework.session import Session
from scheduler.model.resources import PODS
from scheduler.model.verdict import Verdict

REFUSED = "node(s) had just refused the pod"
RULED_OUT = "node(s) didn't satisfy the topology rules of the group"

Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Room:
    """One kind of member against the nodes: where it may run, and how many of it each node could take now."""

    kind: Kind
    wanted: int
    mask: NDArray[np.bool_]
    request: NDArray[np.int64]
    each: NDArray[np.int64]
    bars: tuple[Bar, ...] = ()
    extras: tuple[tuple[Extra, int], ...] = ()

    @property
    def total(self) -> int:
        return int(self.each.sum())


def room_of(
    session: Session, kind: Kind, wanted: int, number: int, relations: Relations, *, empty: bool = False
) -> Room:
    """Return the room for the kind with this number in an ask with these relations; `empty`: if nothing ran."""
    fit, table = session.fit(kind.shape), session.table
    mask = fit.ever if empty else fit.mask
    free, slots = (table.allocatable, table.slots) if empty else (session.free, session.open_slots)
    barred = relations.barred(number)
    if kind.refused and not empty:
        mask = mask.copy()
        mask[list(kind.refused)] = False
    if barred is not None:
        mask = mask & ~barred
    request = session.request(kind.shape)
    each = np.where(mask, np.maximum(slots, 0), 0)
    for row in np.flatnonzero(request):
        each = np.minimum(each, np.maximum(free[row], 0) // request[row])
    if session.missing_resources(kind.shape):
        each = np.zeros_like(each)
    extras = tuple((extra, extra.needs[number]) for extra in relations.extras if extra.needs[number])
    for extra, need in extras:
        each = np.minimum(each, np.maximum(extra.free, 0) // need)
    bars = tuple(bar for bar in relations.bars if bar.kind == number)
    return Room(kind=kind, wanted=wanted, mask=mask, request=request, each=each, bars=bars, extras=extras)


def amounts(session: Session, resource: str, *, empty: bool) -> NDArray[np.int64]:
    """Return what each node has free of a resource (or of pods); `empty`: what it has in all."""
    table = session.table
    if resource in table.resources:
        row = table.resources.index(resource)
        found: NDArray[np.int64] = table.allocatable[row] if empty else session.free[row]
        return found
    if resource == PODS:
        return table.slots if empty else session.open_slots
    return np.zeros(len(table.names), dtype=np.int64)


def asked(room: Room, resource: str) -> int:
    """Return what one member asks for."""
    return dict(room.kind.shape.requests).get(resource, 1 if resource == PODS else 0)


def counted(session: Session, room: Room) -> tuple[tuple[str, int], ...]:
    """Count the nodes by why they take no further member, after those that would fit; sorted."""
    reasons = dict(session.fit(room.kind.shape).misfits)
    for reason, nodes in found(session, room):
        reasons[reason] = reasons.get(reason, 0) + int(nodes.sum())
    return tuple(sorted((reason, count) for reason, count in reasons.items() if count))


def counted_by_rules(session: Session, room: Room) -> tuple[tuple[str, int], ...]:
    """As `counted`, where rules about domains are the cause: a node that has room for one member says so."""
    reasons = dict(counted(session, replace(room, each=np.zeros_like(room.each))))
    if able := int((room.each > 0).sum()):
        reasons[RULED_OUT] = able
    return tuple(sorted(reasons.items()))


def found(session: Session, room: Room) -> Iterator[tuple[str, Mask]]:
    """Yield each reason with its nodes, for the nodes that pass the static predicates.

    A node says the first that holds: what is barred early, each amount that it lacks, further resources, what else is
    barred.
    """
    left: Mask = session.fit(room.kind.shape).mask
    if room.kind.refused:
        refused = np.zeros_like(left)
        refused[list(room.kind.refused)] = True
        yield REFUSED, left & refused
        left = left & ~refused
    for bar in (bar for bar in room.bars if bar.early):
        yield bar.reason, left & bar.nodes
        left = left & ~bar.nodes
    each = np.where(left, room.each, 0)
    short = np.zeros_like(left)
    for name in session.missing_resources(room.kind.shape):
        yield f"Insufficient {name}", left
        short = left
    for row in np.flatnonzero(room.request):
        lacks = left & (session.free[row] - each * room.request[row] < room.request[row])
        yield f"Insufficient {session.table.resources[int(row)]}", lacks
        short = short | lacks
    full = left & (session.open_slots - each < 1)
    yield "Too many pods", full
    left = left & ~(short | full)
    for extra, need in room.extras:
        lacks = left & (extra.free - each * need < need)
        yield extra.reason, lacks
        left = left & ~lacks
    for bar in (bar for bar in room.bars if not bar.early):
        yield bar.reason, left & bar.nodes
        left = left & ~bar.nodes


def by_node(session: Session, ask: Ask) -> list[tuple[str, ...]] | Verdict:
    """Return for each node why it does not take the first member of an ask now; () where it does."""
    relations = relate(session, ask)
    if isinstance(relations, Verdict):
        return relations
    kind = ask.kinds[0]
    table = session.table
    misfits = [session.hooks.fits(kind.shape, one) for one in table.classes]
    reasons: list[tuple[str, ...]] = [
        (misfit.reason,) if (misfit := misfits[number]) is not None else () for number in table.class_of.tolist()
    ]
    room = room_of(session, kind, 1, 0, relations)
    for reason, nodes in found(session, replace(room, each=np.zeros_like(room.each))):
        for row in np.flatnonzero(nodes).tolist():
            reasons[row] = (*reasons[row], reason)
    return reasons
