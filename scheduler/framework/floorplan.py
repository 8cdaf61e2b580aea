"""What a topology looks like in numbers: for every domain its nodes, what they have and what is free, and for every
level the largest gang that one domain of it holds now.

Decided here: what counts as free. A node that is cordoned, being deleted or not ready has its capacity and nothing
free. A node is whole when it has some of the resource and none of it is in use. The largest gang is that of whole
nodes, and that of units of the resource, one a pod; what else a pod would ask for is not looked at (`muster simulate`
and the scheduler do). Nothing here prints.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from scheduler.framework.session import Session
from scheduler.framework.topology_tree import TopologyTree, TreeLevel
from scheduler.model.floorplan import Domain, Largest, Picture, Room

Ints = NDArray[np.int64]


def main_resource(session: Session) -> str:
    """The resource that is worth looking at where nobody says: the extended one of which there is most, else cpu."""
    table = session.table
    sums = dict(zip(table.resources, table.allocatable.sum(axis=1).tolist(), strict=True))
    extended = {name: many for name, many in sums.items() if "/" in name and many > 0}
    gpus = {name: many for name, many in extended.items() if "gpu" in name.lower()} or extended
    return min(gpus, key=lambda name: (-gpus[name], name)) if gpus else "cpu"


def barred(session: Session) -> NDArray[np.bool_]:
    """Return for each node (N,) whether nothing is put there: it is cordoned, being deleted, or not ready."""
    table = session.table
    return np.array([one.is_down for one in table.classes], dtype=np.bool_)[table.class_of]


def look(session: Session, name: str, resource: str) -> Picture:
    """Return the picture of a topology that exists, by a resource that some node has."""
    tree = session.topology.trees[name]
    table = session.table
    row = table.resources.index(resource)
    shut = barred(session)
    total = table.allocatable[row]
    free = np.where(shut, 0, np.maximum(session.free[row], 0))
    whole = (total > 0) & (free == total)
    uids = [uid for uid, said in session.topology.facts.items() if said.hypernode or said.name == name]
    faults = [fault for uid in uids for fault in session.topology.faults.get(uid, ())]
    kinds = {"HyperNode"} if tree.tiers else {"Topology"}
    rooms = [_rooms(level, whole, total, free) for level in tree.levels]
    levels = tuple(
        (level.name, len(level.names), _largest(level.names, room))
        for level, room in zip(tree.levels, rooms, strict=True)
    )
    outside = tree.unlabelled if tree.levels else np.ones(len(table.names), dtype=np.bool_)
    return Picture(
        name=name,
        dialect=tree.dialect,
        resource=resource,
        levels=levels,
        domains=_domains(tree, rooms),
        everything=_room(np.ones(len(table.names), dtype=np.bool_), whole, total, free),
        unlabelled=_room(outside, whole, total, free),
        unlabelled_nodes=tuple(np.flatnonzero(outside).tolist()),
        nodes=tuple(zip(table.names, total.tolist(), free.tolist(), shut.tolist(), strict=True)),
        faults=tuple(fault for fault in faults if fault.kind in kinds),
    )


def _room(inside: NDArray[np.bool_], whole: NDArray[np.bool_], total: Ints, free: Ints) -> Room:
    return Room(
        int(inside.sum()), int((inside & whole).sum()), int(total[inside].sum()), int(free[inside].sum())
    )  # fmt: skip


def _rooms(level: TreeLevel, whole: NDArray[np.bool_], total: Ints, free: Ints) -> Ints:
    """Nodes, whole nodes, total and free: a row for each domain."""
    found = np.zeros((len(level.names), 4), dtype=np.int64)
    inside = level.ids >= 0
    values = np.stack([np.ones(len(level.ids), dtype=np.int64), whole.astype(np.int64), total, free], axis=1)
    np.add.at(found, level.ids[inside], values[inside])
    return found


def _largest(names: Sequence[str], rooms: Ints) -> Largest:
    if not len(names):
        return Largest(0, "", 0, "")
    nodes, units = int(rooms[:, 1].argmax()), int(rooms[:, 3].argmax())
    return Largest(
        int(rooms[nodes, 1]), names[nodes] if rooms[nodes, 1] else "",
        int(rooms[units, 3]), names[units] if rooms[units, 3] else "",
    )  # fmt: skip


def _domains(tree: TopologyTree, rooms: Sequence[Ints]) -> tuple[Domain, ...]:
    """Build the domains, narrowest first. A hyper-node that stands for itself at several tiers is shown at its own."""
    below: dict[int, list[Domain]] = {}
    for depth in reversed(range(len(tree.levels))):
        level = tree.levels[depth]
        members: dict[int, list[int]] = {}
        own = level.ids >= 0
        if depth + 1 < len(tree.levels):
            own = own & (tree.levels[depth + 1].ids < 0)
        for node in np.flatnonzero(own).tolist():
            members.setdefault(int(level.ids[node]), []).append(node)
        above: dict[int, list[Domain]] = {}
        for number, name in enumerate(level.names):
            inside = below.get(number, [])
            if len(inside) == 1 and inside[0].name == name and tree.tiers:
                made = inside[0]
            else:
                room = Room(*rooms[depth][number].tolist())
                made = Domain(depth, name, room, tuple(inside), tuple(members.get(number, ())))
            above.setdefault(int(level.parents[number]), []).append(made)
        below = above
    return tuple(below.get(-1, ()))
