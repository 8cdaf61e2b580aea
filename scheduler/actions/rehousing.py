"""Where evicted pods could go on: a victim that has room elsewhere is moved, not lost.

Decided here: after who goes is settled, what is still free is offered to the victims, gang by gang, the dearest first:
a gang that goes whole comes back with at least its minimum or not at all, surplus pods each for themselves. Only pods
that a controller makes again and that nothing ties to other pods or volumes, and so many as their queue allows then:
room that is kept for others would stay idle.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from scheduler.actions.ask import Ask
from scheduler.framework.residents import Running
from scheduler.framework.session import Session
from scheduler.model.groups import GroupState, PodGroup
from scheduler.model.pods import Pod, Shape, held_together
from scheduler.model.presence import relates
from scheduler.model.resources import Amounts
from scheduler.placement import Demand, Minimum, NodeView, Placement, PlacementProblem, place


def is_free(session: Session, pod: Pod) -> bool:
    """Whether a controller makes the pod again and nothing but its node's own state says where it may run."""
    return bool(pod.owner_uid) and pod.volumes is None and not relates(session.snapshot.shapes[pod.shape])


def domains_of(session: Session, running: Running) -> tuple[str, ...] | None:
    """Return the levels of which a running group has to stay in one domain; None where it says more about domains than
    that, so that nobody moves it."""
    state = session.snapshot.groups.get(running.key)
    if state is None:
        return ()
    wish = state.group.topology
    if any(one.topology is not None and one.topology.binds for one in state.group.subgroups):
        return None
    if wish is None or not wish.binds:
        return ()
    level = session.resolve(wish.name, wish.required)
    if wish.at_most or wish.segments or wish.apart or wish.exclusive or not isinstance(level, str):
        return None
    return (level,)


def rehoused(session: Session, ask: Ask, gone: Sequence[tuple[Running, tuple[Pod, ...]]]) -> dict[str, str]:
    """Return uid -> node for the victims that have room on what is free now, when the ask has its place."""
    if not bool((session.open_slots > 0).any()):
        return {}
    free, slots = session.free.copy(), session.open_slots.copy()
    shapes, moves = session.snapshot.shapes, dict[str, str]()
    undo = [_charge(session, session.queue_of(ask.state), ask.amounts)]
    undo += [_charge(session, running.queue, held_together(pods, shapes), -1) for running, pods in gone]
    try:
        for running, pods in sorted(gone, key=lambda one: (-one[0].priority, one[0].key)):
            whole = len(pods) == len(running.pods)
            if whole and not all(is_free(session, pod) for pod in pods):
                continue
            allowed = _allowed(session, running, pods)
            if allowed and not (whole and len(allowed) < running.minimum):
                found = dict(_house(session, running, allowed, free, slots, whole=whole))
                moved = held_together([pod for pod in allowed if pod.uid in found], shapes)
                undo.append(_charge(session, running.queue, moved))
                moves |= found
    finally:
        for back in reversed(undo):
            back()
    return moves


def _charge(session: Session, queue: str, amounts: Amounts, sign: int = 1) -> Callable[[], None]:
    """Let a queue hold so much more (or less); return the undo."""
    row = session.book.tree.index.get(queue)
    return (lambda: None) if row is None else session.book.charge(row, sign * session.book.vector(amounts))


def _allowed(session: Session, running: Running, pods: tuple[Pod, ...]) -> tuple[Pod, ...]:
    """Return the first of these pods that their queue allows to start again."""
    group = PodGroup(key="", uid="", dialect="", namespace="", name="", preemptible=running.preemptible)
    state = GroupState(group, priority=running.priority, queue=running.queue)

    def refused(count: int) -> bool:
        amounts = held_together(pods[:count], session.snapshot.shapes)
        return session.hooks.allows(state, amounts, session) is not None

    return pods[: bisect_left(range(1, len(pods) + 1), True, key=refused)]


def _house(
    session: Session,
    running: Running,
    pods: tuple[Pod, ...],
    free: NDArray[np.int64],
    slots: NDArray[np.int64],
    *,
    whole: bool,
) -> Iterable[tuple[str, str]]:
    if domains_of(session, running) != () or running.parted:
        return ()
    by_shape: dict[str, list[Pod]] = {}
    for pod in pods:
        if is_free(session, pod):
            by_shape.setdefault(pod.shape, []).append(pod)
    shapes = [session.snapshot.shapes[key] for key in by_shape]
    if not shapes or (whole and running.roles):
        return ()
    table = session.table
    problem = PlacementProblem(
        nodes=NodeView(names=table.names, resources=table.resources, free=free, slots=slots),
        demands=tuple(
            Demand(shape.key, session.request(shape), len(by_shape[shape.key]), mask=_mask(session, shape))
            for shape in shapes
        ),
        rules=(Minimum(tuple(range(len(shapes))), running.minimum),) if whole else (),
        seed=session.seed,
        maximize=True,
    )
    answer = place(problem)
    if not isinstance(answer, Placement):
        return ()
    moves: list[tuple[str, str]] = []
    for shape, pairs in zip(shapes, answer.counts, strict=True):
        homes = [node for node, count in pairs for _ in range(count)]
        for node, count in pairs:
            free[:, node] -= session.request(shape) * count
            slots[node] -= count
        moves.extend((pod.uid, table.names[node]) for pod, node in zip(by_shape[shape.key], homes, strict=False))
    return moves


def _mask(session: Session, shape: Shape) -> NDArray[np.bool_]:
    return session.fit(shape).mask
