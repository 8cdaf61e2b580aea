"""Which member goes to which of the nodes that placement chose, and what is written on it: its rank and its domains.

Decided here: placement says how many of each kind a node takes; members come in their order (plugins' keys, rank,
name), nodes by their domains from the widest level to the narrowest, in each the fullest first. So consecutive ranks
share nodes, then the narrowest domains, then wider ones. A member that has no index of its own gets the rank that it
takes over (`seats`), else the lowest that is free in its gang; those that run keep theirs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scheduler.actions.ask import Ask
from scheduler.actions.seats import levels_of, taken
from scheduler.framework.session import Session
from scheduler.model.decisions import Mark
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
        for level in levels_of(session, ask.wishes):
            ids = session.domains(level)[0]
            inside: dict[int, int] = {}
            for row, count in pods.items():
                inside[int(ids[row])] = inside.get(int(ids[row]), 0) + count
            for row, key in keys.items():
                key.extend((-inside[int(ids[row])], int(ids[row])))
    ordered = sorted(keys, key=lambda row: (keys[row], -pods[row], row))
    return {row: position for position, row in enumerate(ordered)}


def _marks(session: Session, ask: Ask, members: Iterable[tuple[Pod, int]]) -> dict[str, Mark]:
    used = taken(session, ask.state).union(ask.ranks.values())
    levels = [(session.level_name(label), *session.domains(label)) for label in dict.fromkeys(_told(ask))]
    marks: dict[str, Mark] = {}
    rank = 0
    for pod, row in members:
        mine = -1
        if pod.index < 0:
            mine = ask.ranks.get(pod.uid, -1)
            while mine < 0:
                mine, rank = -1 if rank in used else rank, rank + 1
        where = tuple((name, names[ids[row]]) for name, ids, names in levels if ids[row] >= 0)
        if mine >= 0 or where:
            marks[pod.uid] = Mark(mine, where)
    return marks


def _told(ask: Ask) -> Iterable[str]:
    return (wish.label for wish in ask.wishes)
