"""What a group asks of placement in one decision: its members sorted into interchangeable kinds, how many must start
together, and the rules. Pure values; nothing here knows how a placement is found.

Members are of one kind when shape, role, sub-group, refused nodes, seat and what plugins tell apart are equal. Inside a
kind they keep the order in which they are to start and to be laid out (plugins' keys, then rank, then name).
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import repeat
from types import MappingProxyType

from scheduler.actions.seats import Seat, seats
from scheduler.framework.gangs import Needs, meant
from scheduler.framework.protocols import Unusable, Wish, WithinDomain, must_hold
from scheduler.framework.relations import Members, Relations
from scheduler.framework.session import Session
from scheduler.framework.subgroups import NOTHING, Lacking, is_under
from scheduler.model.groups import GroupState
from scheduler.model.pods import Pod, Shape
from scheduler.model.resources import Amounts, add, scale
from scheduler.model.verdict import Code, Verdict, verdict


@dataclass(frozen=True, slots=True)
class Kind:
    """Interchangeable members. `refused`: rows of the node table that they are kept away from for a while.

    part: the path of their sub-group. sort: what plugins tell them apart by from other pods of the same shape. seat:
    where they come back to.
    """

    shape: Shape
    role: str
    refused: tuple[int, ...]
    pods: tuple[Pod, ...]
    sort: Hashable = None
    part: str = ""
    seat: Seat | None = None


@dataclass(frozen=True, slots=True, order=True)
class Anchor:
    """Members of a sub-group ("": of none) that are on a row of the node table already, or about to be."""

    part: str
    row: int
    count: int


@dataclass(frozen=True)
class Ask:
    """Exactly `total` of the members (with `each`: as many as possible), among them so many of each role, and what the
    sub-groups lack; where those are chosen from, more than `total` as far as that makes them whole.

    anchors: the group's members that already run, which bind the domains of those that come. ranks: those that members
    (uid) without an index take over.
    """

    state: GroupState
    kinds: tuple[Kind, ...]
    total: int
    roles: tuple[tuple[str, int], ...] = ()
    each: bool = False
    wishes: tuple[Wish, ...] = ()
    anchors: tuple[Anchor, ...] = ()
    lacking: Lacking = NOTHING
    ranks: Mapping[str, int] = field(default_factory=dict)

    @cached_property
    def terms(self) -> tuple[Hashable, ...]:
        """What is asked about the members, whoever they are."""
        return (self.total, self.roles, self.each, self.wishes, self.anchors, self.lacking)

    @cached_property
    def signature(self) -> Hashable:
        """Equal for two asks about whose members plugins say the same."""
        kinds = tuple(
            (kind.shape.key, kind.role, kind.part, kind.refused, kind.sort, len(kind.pods)) for kind in self.kinds
        )
        return (kinds, *self.terms)

    @cached_property
    def members(self) -> tuple[int, ...]:
        """How many of each kind are meant when not all are asked for: the first in order that fill roles and parts."""
        if self.total >= sum(len(kind.pods) for kind in self.kinds):
            return tuple(len(kind.pods) for kind in self.kinds)
        if len(self.kinds) == 1 and not self.lacking.choices:
            return (self.total,)
        everyone = [pod for kind in self.kinds for pod in kind.pods]
        chosen = {pod.uid for pod in meant(everyone, Needs(self.total, self.roles, self.lacking))}
        return tuple(sum(pod.uid in chosen for pod in kind.pods) for kind in self.kinds)

    def for_one(self) -> Ask:
        """The question what any one of the members lacks; asked when members that stand alone do not fit."""
        return replace(self, total=min(1, self.total), roles=(), lacking=NOTHING)

    def of_single(self, state: GroupState) -> Ask:
        """The same question for another single pod that is like this one."""
        kind = self.kinds[0]
        return replace(self, state=state, kinds=(replace(kind, pods=state.waiting),))

    @cached_property
    def amounts(self) -> Amounts:
        """The sum of what those members request."""
        return self.amounts_of(self.members)

    @cached_property
    def preempts(self) -> bool:
        """Whether others may go for every one of the members."""
        return all(pod.preempts for kind in self.kinds for pod in kind.pods)

    def amounts_of(self, counts: Sequence[int]) -> Amounts:
        """The sum of what so many members of each kind request."""
        return add(*(scale(kind.shape.requests, n) for kind, n in zip(self.kinds, counts, strict=True)))

    def numbers(self, part: str) -> tuple[int, ...]:
        """Which kinds are of a sub-group or of those below it; "" = all."""
        return tuple(number for number, kind in enumerate(self.kinds) if is_under(kind.part, part))


def make_ask(
    session: Session, state: GroupState, pods: Sequence[Pod], needs: Needs, *, each: bool = False
) -> Ask | Verdict:
    """Return the ask for these waiting members, or a verdict when a rule of the group cannot be kept at all."""
    stated = session.hooks.wishes(state, session) if session.hooks.has("wishes") else ()
    if isinstance(stated, Verdict):
        return stated
    wishes = tuple(wish for wish in stated if not isinstance(wish, Unusable))
    unusable = [wish for wish in stated if isinstance(wish, Unusable)]
    if unusable:
        pods, needs = _usable(pods, needs, unusable)
        if len(pods) < (1 if each else needs.total) or not needs.lacking.possible:
            return verdict(Code.BAD_CONSTRAINTS, field=unusable[0].field, message=unusable[0].message)
    why = _unkept(state, stated) or _straddling(session, state, pods, wishes)
    if why is not None:
        return why
    parted = bool(state.group.subgroups)
    ordered = session.hooks.sort_members(pods)
    seated, ranks = seats(session, state, ordered)
    kinds = kinds_of(session, ordered, keep_roles=bool(needs.roles), parted=parted, seated=seated)
    ask = Ask(
        state=state,
        kinds=kinds,
        total=min(needs.total, len(pods)),
        roles=needs.roles,
        each=each,
        wishes=wishes,
        anchors=anchors_of(session, state) if wishes else (),
        lacking=needs.lacking,
        ranks=ranks,
    )
    relations = relate(session, ask)
    return relations if isinstance(relations, Verdict) else ask


def _usable(pods: Sequence[Pod], needs: Needs, unusable: Sequence[Unusable]) -> tuple[Sequence[Pod], Needs]:
    """Return what is left without the members of sub-groups that cannot start."""
    paths = [one.part for one in unusable]
    left = [pod for pod in pods if not any(is_under(pod.part, path) for path in paths)]
    lacking = needs.lacking.without(paths)
    return left, replace(needs, total=max(needs.total, lacking.size), lacking=lacking)


def likeness(session: Session, ask: Ask) -> Hashable:
    """Equal for two asks that the same placement answers when their relations have equal digests.

    What members say about other pods, and what sets them apart, is in the relations.
    """
    kinds = tuple(
        (session.plain_key(kind.shape), kind.role, kind.part, kind.refused, kind.seat, len(kind.pods))
        for kind in ask.kinds
    )
    return (kinds, *ask.terms)


def relate(session: Session, ask: Ask, *, empty: bool = False) -> Relations | Verdict:
    """Return what plugins say about the members of an ask as things are, or as if nothing ran."""
    members = tuple(Members(kind.shape, kind.pods) for kind in ask.kinds)
    return session.relations(members, ask.signature, empty=empty)


def kinds_of(
    session: Session,
    pods: Sequence[Pod],
    *,
    keep_roles: bool,
    parted: bool,
    seated: Mapping[str, Seat] = MappingProxyType({}),
) -> tuple[Kind, ...]:
    """Sort pods into interchangeable ones, those that stood on some node before the others.

    keep_roles, parted: their roles and their sub-groups tell them apart too. seated: where some (uid) come back to.
    """
    shapes = session.snapshot.shapes
    sorts = session.hooks.sorts(pods, session)
    alone = not (session.has_refusals or keep_roles or parted or seated) and len({pod.shape for pod in pods}) == 1
    if alone and sorts is None:
        return (Kind(shapes[pods[0].shape], "", (), tuple(pods)),)
    nowhere: tuple[int, ...] = ()
    found: dict[tuple[str, str, str, tuple[int, ...], Hashable, Seat | None], list[Pod]] = {}
    for pod, sort in zip(pods, repeat(None) if sorts is None else sorts, strict=False):
        rows = session.refused_rows(pod) if session.has_refusals else nowhere
        key = (pod.shape, pod.role if keep_roles else "", pod.part if parted else "", rows, sort, seated.get(pod.uid))
        found.setdefault(key, []).append(pod)
    kinds = (
        Kind(shapes[shape], role, rows, tuple(alike), sort, part, seat)
        for (shape, role, part, rows, sort, seat), alike in found.items()
    )
    return tuple(sorted(kinds, key=lambda kind: kind.seat is None or kind.seat.home < 0) if seated else kinds)


def anchors_of(session: Session, state: GroupState) -> tuple[Anchor, ...]:
    """Return where members run or are about to, this session's placements included."""
    counts: dict[tuple[str, str], int] = {}
    nodes = [(pod.part, pod.node or pod.nominated) for pod in (*state.bound, *state.assumed)]
    if state.key in session.placed_of:
        parts = {pod.uid: pod.part for pod in state.waiting}
        placed = (one for place in session.placed_of[state.key] for one in place.assignments)
        nodes.extend((parts.get(one.uid, ""), one.node) for one in placed)
    for key in nodes:
        counts[key] = counts.get(key, 0) + 1
    rows = ((part, session.row(node), count) for (part, node), count in counts.items())
    return tuple(sorted(Anchor(part, row, count) for part, row, count in rows if row is not None))


def _unkept(state: GroupState, wishes: tuple[Wish | Unusable, ...]) -> Verdict | None:
    """Return that something of what the group says about domains must hold and no plugin looks at it."""
    stated = (state.group.topology, *(one.topology for one in state.group.subgroups))
    kept = any(isinstance(wish, Unusable) or must_hold(wish) for wish in wishes)
    for wish in stated:
        if wish is not None and wish.binds and not kept:
            return verdict(Code.BAD_CONSTRAINTS, field=wish.field, message="no configured plugin keeps topology rules")
    return None


def _straddling(session: Session, state: GroupState, pods: Sequence[Pod], wishes: tuple[Wish, ...]) -> Verdict | None:
    """Return that members run in several domains of a level of which only one is allowed: no pod can join them."""
    if not (state.bound or state.assumed):
        return None
    anchors = anchors_of(session, state)
    for wish in wishes:
        if not isinstance(wish, WithinDomain) or not wish.required:
            continue
        if not any(is_under(pod.part, wish.part) for pod in pods):
            continue
        ids, names = session.domains(wish.label)
        own = {int(ids[one.row]): one.row for one in anchors if is_under(one.part, wish.part)}
        message = ""
        if len(own) > 1:
            known = ", ".join(sorted(names[domain] if domain >= 0 else "none" for domain in own))
            message = f"its running members are in several ({known}), so that no other can join them in one"
        elif -1 in own:
            message = f"its running members are on {session.table.names[own[-1]]}, which is in none"
        if message:
            part = (("subgroup", wish.part),) if wish.part else ()
            level = ("level", session.level_name(wish.label))
            return Verdict(Code.TOPOLOGY, (level, ("message", message), *part))
    return None
