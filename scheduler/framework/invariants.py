"""What must hold after every action, checked from the snapshot and the decisions alone, not from the ledger's word.

Used in every test and on a sample of sessions in production.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from scheduler.framework.gangs import count_by_role
from scheduler.framework.residents import Running
from scheduler.framework.session import Session
from scheduler.model.decisions import Drain, Place
from scheduler.model.groups import GroupState
from scheduler.model.parts import make_tree, tree_of
from scheduler.model.pods import Pod


def validate(session: Session) -> list[str]:
    """Return one sentence for each violation, in a fixed order; empty when all is well."""
    found: list[str] = []
    seen: dict[str, str] = {}
    by_group: dict[str, list[Place]] = {}
    used = session.table.used.copy()
    pods = session.table.pods.copy()
    above: dict[int, int] = {}
    for place in session.places:
        state = session.snapshot.groups.get(place.group)
        if state is None:
            found.append(f"{place.group} is placed but not in the snapshot")
            continue
        by_group.setdefault(place.group, []).append(place)
        waiting = {pod.uid: pod for pod in state.waiting}
        for one in place.assignments:
            if one.uid in seen:
                found.append(f"pod {one.namespace}/{one.pod} is placed twice: on {seen[one.uid]} and {one.node}")
            seen[one.uid] = one.node
            row, pod = session.row(one.node), waiting.get(one.uid)
            if row is None or pod is None:
                what = "its node" if row is None else "it"
                found.append(f"pod {one.namespace}/{one.pod} is placed on {one.node} but {what} is not in the snapshot")
                continue
            shape = session.snapshot.shapes[pod.shape]
            if not session.fit(shape).mask[row]:
                found.append(f"pod {one.namespace}/{one.pod} may not run on {one.node}")
            used[:, row] += session.request(shape)
            pods[row] += 1
            above[row] = max(above.get(row, state.priority), state.priority)
    going = tuple((pod, row) for pod in _going(session) if (row := session.row(pod.node)) is not None)
    session.neighbours.place(going, -1)
    try:
        found.extend(_neighbours(session, seen))
    finally:
        session.neighbours.place(going, 1)
    found.extend(_victims(session))
    found.extend(_limits(session))
    for key in sorted(by_group):
        found.extend(_minimum(session.snapshot.groups[key], by_group[key]))
    found.extend(_capacity(session, used, pods, above))
    return found


def _going(session: Session) -> list[Pod]:
    """The pods that must be gone before what was placed is bound."""
    named = {victim.uid for place in session.places for victim in place.victims}
    return [
        *session.evicted.values(),
        *(pod for pod, _ in session.snapshot.releasing if pod.uid in named and pod.uid not in session.evicted),
    ]


def _victims(session: Session) -> list[str]:
    """Nobody is evicted for nothing, and of a gang that is not evicted whole its minimum stays, unless some of it goes
    for its own members: then it was below the minimum already."""
    found: list[str] = []
    parts: tuple[Place | Drain, ...] = (*session.places, *session.drains)
    named = {victim.uid for part in parts for victim in part.victims}
    if not named.issuperset(session.evicted):
        found.append("a pod is evicted for no placement")
    moved = {place.group for place in session.places for victim in place.victims if victim.group == place.group}
    for running in session.cache.residents.everybody() if session.evicted else ():
        if running.key in moved and session.snapshot.groups[running.key].group.moves_whole:
            continue
        left = [pod for pod in running.pods if pod.uid not in session.evicted]
        if not left and not running.fixed and running.key in session.placed_of:
            found.append(f"{running.key} goes whole, and something of it is placed")
        if len(left) == len(running.pods) or (not left and not running.fixed):
            continue
        if len(left) + running.fixed < running.minimum:
            found.append(f"{running.key} is left with {len(left)} of {running.minimum} members")
        short = _short(session, running, left)
        if short:
            found.append(f"{running.key} is left without the minimum of {', '.join(short)}")
    return found


def _short(session: Session, running: Running, left: list[Pod]) -> list[str]:
    """Return the roles and sub-groups that are left with less than their minimum, and may not be."""
    held, had = (Counter(pod.role for pod in pods) for pods in (left, running.pods))
    # Of a group with sub-groups some may go that are spare, though a role lacks members: none of that role.
    least = {role: min(count, had[role]) if running.parted else count for role, count in running.roles}
    roles = [f"role {role}" for role, count in least.items() if held[role] < count]
    held, had = (Counter(pod.part for pod in pods) for pods in (left, running.pods))
    parts = [part for part, count in running.parts if held[part] < count]
    gone = all(held[part] == 0 or had[part] < count for part, count in running.parts if part in parts)
    return roles if gone and _whole(session, running, left) else [*roles, *parts]


def _whole(session: Session, running: Running, left: list[Pod]) -> bool:
    """Whether so many sub-groups are whole with these members as have to be."""
    state = session.snapshot.groups[running.key]
    tree = make_tree(state.group, placed=(*left, *state.assumed, *state.succeeded))
    return sum(part.met for part in tree.parts) >= tree.least


def _limits(session: Session) -> list[str]:
    """No queue goes over its limit by what is placed; what is about to go counts no more."""
    book = session.book
    found: list[str] = []
    for queue in {session.queue_row(session.snapshot.groups[place.group]) for place in session.places}:
        for row in () if queue is None else book.lineage(queue):
            over = (book.staying[row] > book.ground.limit[row]) & (book.staying[row] > session.began_with[row])
            if over.any():
                name = book.ground.resources[int(np.argmax(over))]
                found.append(f"queue {book.tree.names[row]} is over its limit of {name}")
    return sorted(set(found))


def _neighbours(session: Session, placed: Mapping[str, str]) -> list[str]:
    """Host ports and required anti-affinity of the pods that were placed, each against everybody that is there now."""
    found: list[str] = []
    states = {place.group: session.snapshot.groups[place.group] for place in session.places}
    pods = {pod.uid: (pod, state) for state in states.values() for pod in state.waiting}
    for uid, node in sorted(placed.items()):
        row = session.row(node)
        if uid in pods and row is not None:
            pod, state = pods[uid]
            with session.standing(state.priority):
                found.extend(f"pod {pod.namespace}/{pod.name} on {node} {what}" for what in _met(session, pod, row))
    return found


def _met(session: Session, pod: Pod, row: int) -> list[str]:
    """What a pod that was placed there meets and must not."""
    found: list[str] = []
    shape = session.snapshot.shapes[pod.shape]
    for port in shape.host_ports:
        own = sum(port.conflicts(other) for other in shape.host_ports)
        if session.neighbours.claims(port, row) > own:
            found.append(f"shares port {port.port}")
    for term in shape.anti_affinity:
        others = session.neighbours.count((term.selector,))
        own = int(session.neighbours.means((term.selector,), pod))
        if _in_domain(session, others, term.key, row) > own:
            found.append(f"is with a pod that it keeps away from, by {term.key}")
    for one, carriers in session.neighbours.meeting(pod):
        own = int(one.kind == "anti" and one.term in shape.anti_affinity)
        if one.kind == "anti" and _in_domain(session, carriers, one.term.key, row) > own:
            found.append(f"is with a pod that keeps it away, by {one.term.key}")
    return found


def _in_domain(session: Session, counts: NDArray[np.int64], key: str, row: int) -> int:
    """How many there are in the node's domain; none where it has no such label."""
    ids = session.domains(key)[0]
    return int(counts[ids == ids[row]].sum()) if ids[row] >= 0 else 0


def _minimum(state: GroupState, places: list[Place]) -> list[str]:
    waiting: Mapping[str, Pod] = {pod.uid: pod for pod in state.waiting}
    new = [waiting[one.uid] for place in places for one in place.assignments if one.uid in waiting]
    if state.ever_ran and state.placed:
        return []
    total = state.placed + len(new)
    if total < state.group.min_member:
        return [f"{state.key} is placed with {total} of {state.group.min_member} members"]
    roles = count_by_role((*state.assumed, *state.bound, *state.succeeded, *new))
    short = [role.name for role in state.group.roles if roles.get(role.name, 0) < role.count]
    if short:
        return [f"{state.key} is placed without the minimum of role {', '.join(short)}"]
    if state.group.subgroups:
        tree = tree_of(state, {pod.uid: "" for pod in new})
        if sum(part.met for part in tree.parts) < tree.least:
            return [f"{state.key} is placed without the minimum of its sub-groups"]
    first = places[0]
    if not state.placed and first.minimum != len(first.assignments):
        return [f"{state.key} starts with a decision of which {first.minimum} of {len(first.assignments)} may be bound"]
    return []


def _capacity(
    session: Session,
    used: np.ndarray[tuple[int, ...], np.dtype[np.int64]],
    pods: np.ndarray[tuple[int, ...], np.dtype[np.int64]],
    above: Mapping[int, int],
) -> list[str]:
    """above: the highest priority that was placed on a row; pods that are nominated below it do not count there."""
    table = session.table
    found: list[str] = []
    counted, crowd = used.copy(), pods.copy()
    rows, amounts, slots = session.outlook.piece(_going(session))
    counted[:, rows] -= amounts
    crowd[rows] -= slots
    for row, priority in above.items():
        lift = session.nominations.below(priority)
        if lift is not None and row in lift.rows:
            place = int(np.flatnonzero(lift.rows == row)[0])
            counted[:, row] -= lift.amounts[:, place]
            crowd[row] -= lift.slots[place]
    over = (counted > table.allocatable) & (used > table.used)
    for resource, row in zip(*np.nonzero(over), strict=True):
        found.append(f"node {table.names[int(row)]} is over its allocatable {table.resources[int(resource)]}")
    crowded = (crowd > table.slots) & (pods > table.pods)
    found.extend(f"node {table.names[int(row)]} is over its pod slots" for row in np.flatnonzero(crowded))
    free, open_ = table.allocatable - used, table.slots - pods
    for rows, amounts, slots in (*session.outlook.kept, *session.holds.taken):
        free[:, rows] += amounts
        open_[rows] += slots
    ledger = session.ledger
    if not np.array_equal(free, ledger.free) or not np.array_equal(open_, ledger.open_slots):
        found.append("the ledger does not hold what the decisions charge")
    return found
