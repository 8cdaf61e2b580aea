"""Where evicted pods could go on: a victim that has room elsewhere is moved, not lost.

Decided here: after who goes is settled, what is still free is offered to the victims, gang by gang, the dearest first:
a gang that goes whole comes back with at least its minimum or not at all, surplus pods each for themselves. Only pods
that a controller makes again and that nothing ties to other pods or volumes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from scheduler.framework.residents import Running
from scheduler.framework.session import Session
from scheduler.model.pods import Pod, Shape
from scheduler.model.presence import relates
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


def rehoused(session: Session, gone: Sequence[tuple[Running, tuple[Pod, ...]]]) -> dict[str, str]:
    """Return uid -> node for the victims that have room on what is free now."""
    if not bool((session.open_slots > 0).any()):
        return {}
    free, slots = session.free.copy(), session.open_slots.copy()
    moves: dict[str, str] = {}
    for running, pods in sorted(gone, key=lambda one: (-one[0].priority, one[0].key)):
        whole = len(pods) == len(running.pods)
        if not whole or all(is_free(session, pod) for pod in pods):
            moves.update(_house(session, running, pods, free, slots, whole=whole))
    return moves


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
