"""Which groups can never start, as the nodes are, by sums that take a glance: they ask for nothing.

Decided here: only what is a proof counts (members of each shape against what empty nodes hold, in all or in the best
domain of the level that the group has to be in), and only what the snapshot says, so that a session decides the same
whatever was found out before it. Invariant: a group of which this says that it never fits has no placement.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from scheduler.framework.gangs import needs
from scheduler.model.groups import GroupState

if TYPE_CHECKING:
    from scheduler.framework.session import Session

Question: TypeAlias = tuple[int, tuple[tuple[str, int], ...], tuple[str, str] | None]
"""How many members start together, how many of each shape there are, and the topology and level that they share."""


def question_of(state: GroupState) -> Question | None:
    """Return what there must be room for, the same for groups that are alike; None where something of it is placed."""
    if state.placed:
        return None
    topology = state.group.topology
    level = (topology.name, topology.required) if topology is not None and topology.required else None
    return needs(state).total, tuple(sorted(Counter(pod.shape for pod in state.waiting).items())), level


def never_fits(session: Session, question: Question) -> bool:
    """Whether not even the empty cluster holds so many. Without nodes nothing is known."""
    total, counts, level = question
    if not session.table.names:
        return False
    ids: NDArray[np.int32] | None = None
    if level is not None:
        key = session.resolve(*level)
        if not isinstance(key, str):
            return False
        ids = session.domains(key)[0]
    held = sum((np.minimum(_held(session, shape, ids), count) for shape, count in counts), np.zeros(1, dtype=np.int64))
    return int(held.max(initial=0)) < total


def _held(session: Session, key: str, ids: NDArray[np.int32] | None) -> NDArray[np.int64]:
    """Return how many members of a shape the empty nodes of each domain hold, or (no ids) all of them."""
    shape, table = session.snapshot.shapes[key], session.table
    size = 1 if ids is None else int(ids.max(initial=-1)) + 1
    if session.missing_resources(shape):
        return np.zeros(size, dtype=np.int64)
    request, each = session.request(shape), np.maximum(table.slots, 0)
    for row in np.flatnonzero(request).tolist():
        each = np.minimum(each, np.maximum(table.allocatable[row], 0) // request[row])
    each = np.where(session.fit(shape).ever, each, 0)
    if ids is None:
        return np.array([each.sum()], dtype=np.int64)
    found = np.zeros(size, dtype=np.int64)
    np.add.at(found, ids[ids >= 0], each[ids >= 0])
    return found
