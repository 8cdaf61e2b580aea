"""All-or-nothing as an object: operations with their undo, which count together or not at all.

    with session.statement() as statement:
        victims = statement.evict(gone, "reclaim")
        statement.charge(shape, rows, counts)
        statement.place(state, minimum, members, victims)
        statement.commit()

Leaving without `commit()`, by any way, undoes every operation in reverse order. Nothing of a statement is a decision
before it is committed. What evicted pods hold is free inside the statement only: once it is committed they are there
again until they are gone, under what was placed in their stead.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from scheduler.framework.bookkeeping import hold_firmly
from scheduler.framework.residents import Running, victim_of
from scheduler.model.decisions import Assignment, Mark, Place, Victim
from scheduler.model.groups import GroupState
from scheduler.model.pods import Pod, Shape, held_together
from scheduler.model.podvolumes import VolumeStep
from scheduler.model.resources import Amounts, add

if TYPE_CHECKING:
    from scheduler.framework.session import Session


NO_MARKS: Mapping[str, Mark] = MappingProxyType({})


class NotYours(Exception):
    """A placement of a pod that is not waiting, or is already placed in this session."""


def _forget(placed: dict[str, str], assignments: list[Assignment]) -> None:
    for one in assignments:
        placed.pop(one.uid, None)


class Statement:
    """See the module."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._undo: list[Callable[[], object]] = []
        self._places: list[Place] = []
        self._members: list[tuple[Pod, int]] = []
        self._gone: list[tuple[Running, tuple[Pod, ...]]] = []
        self._open = True

    def __enter__(self) -> Statement:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._open:
            self.discard()

    def charge(self, shape: Shape, rows: NDArray[np.intp], counts: NDArray[np.int64]) -> None:
        """Charge pods of one shape to nodes. Raises `Overcommitted`; what was done before stays until discarded."""
        self._undo.append(self._session.ledger.charge(self._session.request(shape), rows, counts))

    def evict(self, gone: Sequence[tuple[Running, tuple[Pod, ...]]], why: str) -> tuple[Victim, ...]:
        """Let these running pods go; what they hold can be charged to others. Return them as victims for `place`."""
        session = self._session
        pods = [pod for _, part in gone for pod in part]
        piece = session.outlook.piece(pods)
        self._undo.append(session.ledger.adjust(*piece))
        where = tuple((pod, row) for pod in pods if (row := session.row(pod.node)) is not None)
        session.neighbours.lose(where)
        self._undo.append(partial(session.neighbours.regain, where))
        session.moved()
        self._undo.append(session.moved)
        for running, part in gone:
            row = session.book.tree.index.get(running.queue)
            if row is not None:
                held = held_together(part, session.snapshot.shapes)
                self._undo.append(session.book.leave(row, session.book.vector(held)))
        self._gone.extend(gone)
        return tuple(victim_of(running, pod, why) for running, part in gone for pod in part)

    def place(
        self,
        state: GroupState,
        minimum: int,
        members: Sequence[tuple[Pod, int]],
        victims: tuple[Victim, ...] = (),
        marks: Mapping[str, Mark] = NO_MARKS,
    ) -> None:
        """Record that these waiting members go to these rows of the node table; their amounts are charged separately.

        minimum: how many of them must be bound or all are unwound. victims: who must be gone before. marks: what is
        written on members, by uid. Raises `NotYours`.
        """
        assignments: list[Assignment] = []
        self._undo.append(partial(_forget, self._session.placed, assignments))
        self._record(state, minimum, members, victims, assignments, marks)
        self._tell(tuple(members))
        amounts = self._amounts(members)
        self._charge_queue([state], amounts)
        self._tell_allocated([state], amounts)

    def place_alike(self, turn: Sequence[tuple[GroupState, Pod, int]]) -> None:
        """Record single pods that are alike and wait in one queue, each as a placement of its own. As `place`."""
        if not turn:
            return
        assignments: list[Assignment] = []
        self._undo.append(partial(_forget, self._session.placed, assignments))
        for state, pod, row in turn:
            self._record(state, 1, ((pod, row),), (), assignments)
        self._tell(tuple((pod, row) for _, pod, row in turn))
        one = self._session.snapshot.shapes[turn[0][1].shape].requests
        states = [state for state, _, _ in turn]
        self._charge_queue(states, one)
        self._tell_allocated(states, one)

    def _record(
        self,
        state: GroupState,
        minimum: int,
        members: Sequence[tuple[Pod, int]],
        victims: tuple[Victim, ...],
        assignments: list[Assignment],
        marks: Mapping[str, Mark] = NO_MARKS,
    ) -> None:
        """Add a placement, and its assignments to what is undone together."""
        placed, names, first = self._session.placed, self._session.table.names, len(assignments)
        waiting = self._session.waiting_uids(state)
        for pod, row in members:
            if pod.uid in placed or pod.uid not in waiting:
                raise NotYours(f"pod {pod.namespace}/{pod.name} is not waiting in group {state.key}")
            placed[pod.uid] = names[row]
            assignments.append(Assignment(pod.uid, pod.namespace, pod.name, names[row], marks.get(pod.uid)))
        group = state.group
        self._places.append(
            Place(
                group=group.key,
                group_uid=group.uid,
                namespace=group.namespace,
                name=group.name,
                api_version=group.api_version,
                kind=group.kind,
                minimum=minimum,
                assignments=tuple(assignments[first:]),
                victims=victims,
                queue=self._session.queue_of(state),
            )
        )

    def _tell(self, where: tuple[tuple[Pod, int], ...]) -> None:
        """Let everybody who keeps an account of pods on nodes know."""
        session = self._session
        self._members.extend(where)
        if session.neighbours.concern(where):
            session.neighbours.place(where, 1)
            self._undo.append(partial(session.neighbours.place, where, -1))
        session.moved()
        self._undo.append(session.moved)
        if session.hooks.has("on_place"):
            session.hooks.on_place(where, session, undone=False)
            self._undo.append(lambda: session.hooks.on_place(where, session, undone=True))

    def _charge_queue(self, states: Sequence[GroupState], amounts: Amounts) -> None:
        """Charge so much for each of these groups, which wait in one queue."""
        session = self._session
        queue = session.queue_row(states[0])
        if queue is None:
            return
        vector = session.book.vector(amounts)
        self._undo.append(session.book.charge(queue, vector * len(states)))
        if session.firm is not None:
            for state in states:
                hold_firmly(session, state, vector, 1)
                self._undo.append(partial(hold_firmly, session, state, vector, -1))

    def _tell_allocated(self, states: Sequence[GroupState], amounts: Amounts) -> None:
        hooks = self._session.hooks
        if not hooks.has("on_allocate"):
            return
        for state in states:
            hooks.on_allocate(state, amounts, undone=False)
            self._undo.append(partial(hooks.on_allocate, state, amounts, undone=True))

    def _amounts(self, members: Sequence[tuple[Pod, int]]) -> Amounts:
        shapes = self._session.snapshot.shapes
        return add(*(shapes[pod.shape].requests for pod, _ in members))

    def commit(self) -> None:
        """Turn what was placed into decisions, with what plugins want done before its pods are bound."""
        if self._session.hooks.has("prepares"):
            self._prepare()
        self._close()
        if self._gone:
            self._stay()
        self._session.decide(self._places)

    def _stay(self) -> None:
        """The evicted pods are there until they are gone; what they hold beside what was placed will be free then."""
        session = self._session
        pods = [pod for _, part in self._gone for pod in part]
        rows, amounts, slots = session.outlook.piece(pods)
        session.ledger.adjust(rows, -amounts, -slots)
        session.neighbours.regain(tuple((pod, row) for pod in pods if (row := session.row(pod.node)) is not None))
        session.moved()
        session.outlook.add(pods)
        session.evicted.update((pod.uid, pod) for pod in pods)

    def _prepare(self) -> None:
        steps: dict[str, list[VolumeStep]] = {}
        for step in self._session.hooks.prepares(tuple(self._members), self._session):
            steps.setdefault(step.uid, []).append(step)
        for number, place in enumerate(self._places if steps else ()):
            mine = tuple(step for one in place.assignments for step in steps.get(one.uid, ()))
            self._places[number] = replace(place, steps=mine) if mine else place

    def discard(self) -> None:
        """Undo everything."""
        self._close()
        while self._undo:
            self._undo.pop()()

    def _close(self) -> None:
        if not self._open:
            raise RuntimeError("the statement is already closed")
        self._open = False
