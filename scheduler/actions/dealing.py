"""Which member goes to which of the nodes that placement chose, and what is written on it: its rank and its domains.

Decided here: placement says how many of each kind a node takes; members come in their order (plugins' keys, rank,
name), nodes by their domains from the widest level to the narrowest, in each the fullest first. So consecutive ranks
share nodes, then the narrowest domains, then wider ones. A member that has no index of its own gets the lowest rank
that is free in its gang; those that run keep theirs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scheduler.actions.ask import Ask
from scheduler.framework.session import Session
from scheduler.model.decisions import Mark
from scheduler.model.groups import GroupState
from scheduler.model.pods import Pod

Part = tuple[NDArray[np.intp], NDArray[np.int64]]


@dataclass(frozen=True, slots=True)
class Dealt:
    """Members with their rows, kind by kind, and what is written on each (by uid)."""

    members: list[tuple[Pod, int]]
    marks: dict[str, Mark]


def deal(session: Session, ask: Ask, parts: Sequence[Part]) -> Dealt:
    """Return where each member goes. parts: for each kind of the ask the rows, and how many members each takes."""
    order = _order(session, ask, parts)
    members: list[tuple[Pod, int]] = []
    for kind, (rows, counts) in zip(ask.kinds, parts, strict=True):
        known = sorted(zip(rows.tolist(), counts.tolist(), strict=True), key=lambda pair: order[pair[0]])
        homes = (row for row, count in known for _ in range(count))
        members.extend(zip(kind.pods, homes, strict=False))
    if ask.state.group.dialect == "pod":
        return Dealt(members, {})
    ranked = sorted(members, key=lambda member: order[member[1]])
    return Dealt(members, _marks(session, ask, ranked))


def _order(session: Session, ask: Ask, parts: Sequence[Part]) -> dict[int, int]:
    """Return the position of each row that takes members."""
    pods: dict[int, int] = {}
    for rows, counts in parts:
        for row, count in zip(rows.tolist(), counts.tolist(), strict=True):
            pods[row] = pods.get(row, 0) + count
    keys: dict[int, list[int]] = {row: [] for row in sorted(pods)}
    if len(pods) > 1:
        for level in _levels(session, ask):
            ids = session.domains(level)[0]
            inside: dict[int, int] = {}
            for row, count in pods.items():
                inside[int(ids[row])] = inside.get(int(ids[row]), 0) + count
            for row, key in keys.items():
                key.extend((-inside[int(ids[row])], int(ids[row])))
    ordered = sorted(keys, key=lambda row: (keys[row], -pods[row], row))
    return {row: position for position, row in enumerate(ordered)}


def _levels(session: Session, ask: Ask) -> list[str]:
    """Return the levels by which nodes are ordered, widest first: of the topologies that the ask speaks of, else of the
    only one that there is."""
    trees = session.topology.trees
    asked = [wish.label for wish in ask.wishes]
    found = [[one.key for one in tree.levels] for tree in trees.values()]
    meant = [keys for keys in found if any(label in keys for label in asked)] or (found if len(found) == 1 else [])
    known = [key for keys in meant for key in keys]
    return [*known, *(label for label in dict.fromkeys(asked) if label not in known)]


def _marks(session: Session, ask: Ask, members: Iterable[tuple[Pod, int]]) -> dict[str, Mark]:
    taken = _taken(session, ask.state)
    levels = [(session.level_name(label), *session.domains(label)) for label in dict.fromkeys(_told(ask))]
    marks: dict[str, Mark] = {}
    rank = 0
    for pod, row in members:
        mine = -1
        if pod.index < 0:
            while rank in taken:
                rank += 1
            taken.add(rank)
            mine = rank
        where = tuple((name, names[ids[row]]) for name, ids, names in levels if ids[row] >= 0)
        if mine >= 0 or where:
            marks[pod.uid] = Mark(mine, where)
    return marks


def _told(ask: Ask) -> Iterable[str]:
    return (wish.label for wish in ask.wishes)


def _taken(session: Session, state: GroupState) -> set[int]:
    """Return the ranks of members that run, are about to, or have ended."""
    there = (*state.bound, *state.assumed, *state.succeeded, *state.terminating)
    ranks = {pod.index for pod in there if pod.index >= 0}
    for place in session.placed_of.get(state.key, ()):
        ranks.update(one.mark.rank for one in place.assignments if one.mark is not None)
    return ranks
