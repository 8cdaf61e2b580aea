"""What a group asks of placement in one decision: its members sorted into interchangeable kinds, how many must start
together, and the rules. Pure values; nothing here knows how a placement is found.

Members are of one kind when shape, role, refused nodes and what plugins tell apart are equal. Inside a kind they keep
the order in which they are to start and to be laid out (plugins' keys, then rank, then name).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from scheduler.framework.gangs import Needs, by_role
from scheduler.framework.protocols import Wish, WithinDomain
from scheduler.framework.relations import Members, Relations
from scheduler.framework.session import Session
from scheduler.model.groups import GroupState
from scheduler.model.pods import Pod, Shape
from scheduler.model.resources import Amounts, add, scale
from scheduler.model.verdict import Code, Verdict, verdict


@dataclass(frozen=True, slots=True)
class Kind:
    """Interchangeable members. `refused`: rows of the node table that they are kept away from for a while.

    sort: what plugins tell them apart by from other pods of the same shape.
    """

    shape: Shape
    role: str
    refused: tuple[int, ...]
    pods: tuple[Pod, ...]
    sort: Hashable = None


@dataclass(frozen=True)
class Ask:
    """Exactly `total` of the members (with `each`: as many as possible), among them so many of each role.

    anchors: for each required domain label, the rows of the group's members that already run, which bind the domain.
    """

    state: GroupState
    kinds: tuple[Kind, ...]
    total: int
    roles: tuple[tuple[str, int], ...] = ()
    each: bool = False
    wishes: tuple[Wish, ...] = ()
    anchors: tuple[int, ...] = ()

    @cached_property
    def terms(self) -> tuple[Hashable, ...]:
        """What is asked about the members, whoever they are."""
        return (self.total, self.roles, self.each, self.wishes, self.anchors)

    @cached_property
    def signature(self) -> Hashable:
        """Equal for two asks about whose members plugins say the same."""
        kinds = tuple((kind.shape.key, kind.role, kind.refused, kind.sort, len(kind.pods)) for kind in self.kinds)
        return (kinds, *self.terms)

    @cached_property
    def members(self) -> tuple[int, ...]:
        """How many of each kind are meant when not all are asked for: the first in order that fill the roles."""
        if self.total >= sum(len(kind.pods) for kind in self.kinds):
            return tuple(len(kind.pods) for kind in self.kinds)
        if len(self.kinds) == 1:
            return (self.total,)
        everyone = [pod for kind in self.kinds for pod in kind.pods]
        chosen = {pod.uid for pod in by_role(everyone, dict(self.roles), self.total)}
        return tuple(sum(pod.uid in chosen for pod in kind.pods) for kind in self.kinds)

    def for_one(self) -> Ask:
        """The question what any one of the members lacks; asked when members that stand alone do not fit."""
        return replace(self, total=min(1, self.total))

    def of_single(self, state: GroupState) -> Ask:
        """The same question for another single pod that is like this one."""
        kind = self.kinds[0]
        return replace(self, state=state, kinds=(replace(kind, pods=state.waiting),))

    @property
    def amounts(self) -> Amounts:
        """The sum of what those members request."""
        return add(*(scale(kind.shape.requests, n) for kind, n in zip(self.kinds, self.members, strict=True)))


def make_ask(
    session: Session, state: GroupState, pods: Sequence[Pod], needs: Needs, *, each: bool = False
) -> Ask | Verdict:
    """Return the ask for these waiting members, or a verdict when a rule of the group cannot be kept at all."""
    wishes: tuple[Wish, ...] = ()
    if session.hooks.has("wishes"):
        answer = session.hooks.wishes(state, session)
        if isinstance(answer, Verdict):
            return answer
        wishes = answer
    topology = state.group.topology
    if (
        topology is not None
        and topology.required
        and not any(isinstance(wish, WithinDomain) and wish.required for wish in wishes)
    ):
        return verdict(Code.BAD_CONSTRAINTS, field=topology.field, message="no configured plugin keeps topology rules")
    kinds = _kinds(session, session.hooks.sort_members(pods), keep_roles=bool(needs.roles))
    ask = Ask(
        state=state,
        kinds=kinds,
        total=min(needs.total, len(pods)),
        roles=needs.roles,
        each=each,
        wishes=wishes,
        anchors=_anchors(session, state) if wishes else (),
    )
    relations = relate(session, ask)
    return relations if isinstance(relations, Verdict) else ask


def likeness(session: Session, ask: Ask) -> Hashable:
    """Equal for two asks that the same placement answers when their relations have equal digests.

    What members say about other pods, and what sets them apart, is in the relations.
    """
    kinds = tuple((session.plain_key(kind.shape), kind.role, kind.refused, len(kind.pods)) for kind in ask.kinds)
    return (kinds, *ask.terms)


def relate(session: Session, ask: Ask, *, empty: bool = False) -> Relations | Verdict:
    """Return what plugins say about the members of an ask as things are, or as if nothing ran."""
    members = tuple(Members(kind.shape, kind.pods) for kind in ask.kinds)
    return session.relations(members, ask.signature, empty=empty)


def _kinds(session: Session, pods: Sequence[Pod], *, keep_roles: bool) -> tuple[Kind, ...]:
    shapes = session.snapshot.shapes
    told_apart = session.hooks.has("sorts")
    nowhere: tuple[int, ...] = ()
    parts: dict[tuple[str, str, tuple[int, ...], Hashable], list[Pod]] = {}
    for pod in pods:
        rows = session.refused_rows(pod) if session.has_refusals else nowhere
        sort = session.hooks.sorts(pod, shapes[pod.shape], session) if told_apart else None
        parts.setdefault((pod.shape, pod.role if keep_roles else "", rows, sort), []).append(pod)
    return tuple(
        Kind(shapes[shape], role, rows, tuple(part), sort) for (shape, role, rows, sort), part in parts.items()
    )


def _anchors(session: Session, state: GroupState) -> tuple[int, ...]:
    """Rows of the nodes on which members run or are about to, this session's placements included."""
    nodes = {pod.node or pod.nominated for pod in (*state.bound, *state.assumed)}
    nodes.update(one.node for place in session.placed_of.get(state.key, ()) for one in place.assignments)
    rows = (session.row(node) for node in sorted(nodes))
    return tuple(row for row in rows if row is not None)
