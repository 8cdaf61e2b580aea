"""Answers about one group: its members with their nodes, why it waits, its turn, and who holds what it wants.

Decided here: how a member's state is called, and how much of a large group one answer holds. The words for its turn and
for what keeps others from going are those of `muster why` (`outlook`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from scheduler.actions.lineup import levels_of, turn_in
from scheduler.framework.floorplan import barred
from scheduler.framework.gangs import not_found
from scheduler.framework.hooks import HookRaised
from scheduler.model.groups import GroupState
from scheduler.model.nodes import HOSTNAME
from scheduler.model.pods import Pod, held_together
from scheduler.model.wishes import TopologyWish
from scheduler.web import answers, outlook
from scheduler.web.about import About, Arguments, start
from scheduler.web.answers import MEMBERS, Answer, Nothing


def gang(about: About, arguments: Arguments) -> Answer:
    """Answer for `namespace` and `name` (with `key` where several groups have that name)."""
    session = about.session
    where, name, key = (arguments.get(part, "") for part in ("namespace", "name", "key"))
    found = [
        one
        for one in session.snapshot.groups.values()
        if one.group.name == name and one.group.namespace == where and (not key or one.key == key)
    ]
    if not found:
        return Nothing(**about.head, message=f"namespace {where} has no group and no waiting pod {name}")
    state = found[0]
    members = list(_members(about, state))
    first = start(arguments, MEMBERS, len(members))
    order, obstacles = _outlook(about, state)
    return answers.Gang(
        **about.head,
        row=about.row(state),
        kind=state.group.kind,
        api_version=state.group.api_version,
        decided=_decided(about, state),
        order=order,
        obstacles=tuple(obstacles),
        levels=tuple(_levels(about, state)) if state.waiting else (),
        wants=tuple(_wants(about, state)),
        wishes=tuple(_wishes(state)),
        conditions=state.group.conditions,
        problems=state.group.problems,
        members=tuple(members[first : first + MEMBERS]),
        many=len(members),
        first=first,
        others=tuple(one.key for one in found[1:]),
    )


def place_of(about: About, node: str, topology: str = "") -> tuple[str, ...]:
    """Return the domains of a node, widest first, without those of single nodes. topology: "" = the first by name."""
    session = about.session
    trees = session.topology.trees
    name = topology if topology in trees else min(trees, default="")
    row = session.row(node)
    if not name or row is None:
        return ()
    return tuple(
        level.names[level.ids[row]] for level in trees[name].levels if level.label != HOSTNAME and level.ids[row] >= 0
    )


def _members(about: About, state: GroupState) -> Iterator[answers.Member]:
    session = about.session
    placed = {one.uid: one for place in session.placed_of.get(state.key, ()) for one in place.assignments}
    wish = state.group.topology
    topology = wish.name if wish is not None else ""
    states: tuple[tuple[str, tuple[Pod, ...]], ...] = (
        ("bound", state.bound),
        ("on its way", state.assumed),
        ("waits", state.waiting),
        ("names no sub-group", state.strays),
        ("gated", state.gated),
        ("being deleted", state.terminating),
        ("succeeded", state.succeeded),
        ("failed", state.failed),
    )
    everyone = [(pod, said) for said, pods in states for pod in pods]
    everyone.sort(key=lambda one: (one[0].index < 0, one[0].index, len(one[0].name), one[0].name))
    for pod, said in everyone:
        now = placed.get(pod.uid)
        node = pod.node or (now.node if now is not None else "")
        condition = pod.condition
        yield answers.Member(
            name=pod.name,
            rank=pod.index if pod.index >= 0 else now.mark.rank if now is not None and now.mark is not None else -1,
            part=pod.part or pod.role,
            state="on its way" if now is not None else said,
            phase=pod.phase,
            node=node,
            place=place_of(about, node, topology) if node else (),
            reason=condition.reason if condition is not None and not node else "",
            since=pod.since,
        )


def _decided(about: About, state: GroupState) -> str:
    """Return what this session did for the group, "" where nothing."""
    places = about.session.placed_of.get(state.key, [])
    if not places:
        return ""
    assigned = [one for place in places for one in place.assignments]
    nodes = len({one.node for one in assigned})
    pods = f"{len(assigned)} {'pod' if len(assigned) == 1 else 'pods'}"
    said = f"{pods} placed on {nodes} {'node' if nodes == 1 else 'nodes'}"
    victims = [f"{victim.namespace}/{victim.pod}" for place in places for victim in place.victims]
    return said + (f", once {outlook.named(victims)} have gone" if victims else "")


def _outlook(about: About, state: GroupState) -> tuple[str, list[str]]:
    """Return the group's turn, and what keeps others from going for it."""
    session = about.session
    if not state.waiting or state.key in session.placed_of:
        return "", []
    why = session.verdicts.get(state.key)
    if why is None and state.missing_object:
        why = not_found(state)
    try:
        turn = turn_in(session, about.line, state.key)
        obstacles = outlook.obstacles(session, state, why, about.actions)
    except HookRaised as raised:
        return str(raised), []
    return outlook.order(session, turn) if turn is not None else "", obstacles


def _levels(about: About, state: GroupState) -> Iterator[answers.Level]:
    for level in levels_of(about.session, state):
        share = round(level.share, 4) if math.isfinite(level.share) else None
        yield answers.Level(level.queue, level.within, level.over, level.priority, share)


def _wants(about: About, state: GroupState) -> Iterator[answers.Want]:
    session = about.session
    if not state.waiting or state.key in session.placed_of:
        return
    table, shut = session.table, barred(session)
    every = (one.group for one in session.snapshot.groups.values() if one.group.dialect != "pod")
    groups = frozenset(f"{one.namespace}/{one.name}" for one in every)
    for resource, wanted in held_together(state.waiting, session.snapshot.shapes):
        if resource not in table.resources:
            yield answers.Want(resource, wanted, 0, 0, 0, ())
            continue
        row = table.resources.index(resource)
        free = np.where(shut, 0, session.free[row].clip(0))
        total = int(table.allocatable[row].sum())
        largest = int(free.max(initial=0))
        holders = tuple((who, held, _group_of(who, groups)) for who, held in session.holders(resource))
        yield answers.Want(resource, wanted, int(free.sum()), total, largest, holders)


def _group_of(who: str, groups: frozenset[str]) -> str:
    """Return the group that "3 pods of NAMESPACE/NAME" is."""
    name = who.partition(" of ")[2]
    return name if name in groups else ""


def _wishes(state: GroupState) -> Iterator[str]:
    """Yield what the group and its sub-groups ask for, in words."""
    if state.group.topology is not None:
        yield from _wish(state.group.topology)
    for part in state.group.subgroups:
        if part.min_subgroups is not None:
            yield f"sub-group {part.path}: {part.min_subgroups} of its sub-groups start together"
        if part.min_member:
            yield f"sub-group {part.path}: {part.min_member} members start together"
        if part.topology is not None:
            yield from (f"sub-group {part.path}: {words}" for words in _wish(part.topology))


def _wish(wish: TopologyWish) -> Iterator[str]:
    if wish.required:
        yield f"must be in one {wish.required}"
    if wish.preferred:
        yield f"prefers one {wish.preferred}"
    for level, most in wish.at_most:
        yield f"in at most {most} of level {level}"
    for size, level in wish.segments:
        yield f"{size} members at a time in one {level}"
    for level, most in wish.apart:
        yield f"at most {most} in one {level}"
    if wish.exclusive:
        yield f"shares its {wish.exclusive} with no other exclusive group"
