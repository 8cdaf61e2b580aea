"""How a session's book is opened: the tree of the queues, the capacity, and what each leaf holds and wants.

Decided here: what is kept from session to session (the tree while the queues are the same, the division while also the
capacity and all sums are). Nothing is decided about queues.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from scheduler.framework.book import Book, Ground, capacity, rows_of
from scheduler.framework.gangs import is_running, meant, membership, needs, startable
from scheduler.framework.never import Question, never_fits, question_of
from scheduler.framework.outlook import going
from scheduler.framework.queue_tree import QueueTree, Trees
from scheduler.framework.residents import is_preemptible
from scheduler.model.filling import CEILING
from scheduler.model.groups import GroupState
from scheduler.model.pods import held_by
from scheduler.model.quota import subtree
from scheduler.model.resources import Amounts, add, scale

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scheduler.framework.session import Session


@dataclass(slots=True)
class Shelf:
    """What is kept from session to session."""

    trees: Trees = field(default_factory=Trees)
    asks: dict[str, tuple[GroupState, Amounts, Question | None]] = field(default_factory=dict)
    minimums: dict[str, tuple[GroupState, Amounts]] = field(default_factory=dict)
    key: tuple[object, ...] = ()
    ground: Ground | None = None
    space: int = -1
    never: dict[Question, bool] = field(default_factory=dict)
    """Of the nodes as they are (`space`)."""


def asked_by(session: Session, state: GroupState) -> Amounts:
    """Return what the waiting members of a group ask for in all: nothing while too few are there to start it, or where
    it never fits.

    A group on which this fails asks for nothing and waits as Misconfigured.
    """
    shelf = session.cache.shelf
    known = shelf.asks.get(state.key)
    if known is None or known[0] is not state:
        known = shelf.asks[state.key] = _asked_by(session, state)
    _, found, question = known
    if not found or question is None:
        return found
    if question not in shelf.never:
        shelf.never[question] = False
        with session.guard(state):
            shelf.never[question] = never_fits(session, question)
    return () if shelf.never[question] else found


def _asked_by(session: Session, state: GroupState) -> tuple[GroupState, Amounts, Question | None]:
    found: Amounts = ()
    question: Question | None = None
    with session.guard(state):
        counts: dict[str, int] = {}
        for pod in state.waiting if is_running(state) or membership(state) is None else ():
            counts[pod.shape] = counts.get(pod.shape, 0) + 1
        shapes = session.snapshot.shapes
        found = add(*(scale(shapes[key].requests, count) for key, count in counts.items()))
        question = question_of(state)
    return state, found, question


def least_of(session: Session, state: GroupState) -> Amounts:
    """Return what a group asks for at its next turn: its minimum, or one member where that is met."""
    shelf = session.cache.shelf
    known = shelf.minimums.get(state.key)
    if known is not None and known[0] is state:
        return known[1]
    missing = needs(state)
    pods = meant(startable(state), replace(missing, total=max(1, missing.total)))
    shapes = session.snapshot.shapes
    found = add(*(shapes[pod.shape].requests for pod in pods))
    shelf.minimums[state.key] = (state, found)
    return found


def beyond_deserved(session: Session, state: GroupState, wanted: NDArray[np.int64]) -> tuple[int, int, int] | None:
    """Return where a group that cannot be preempted would hold more than is deserved: queue, column, what is held so.

    Only what cannot be taken back counts. None: it may be preempted, or all is within what the queue and those above it
    deserve.
    """
    row, book = session.queue_row(state), session.book
    if row is None or is_preemptible(state):
        return None
    firm = firmly_held(session)
    for one in book.lineage(row):
        for name, _ in book.tree.queues[one].deserved:
            column = book.column(name)
            if column is None or not wanted[column]:
                continue
            held, deserved = int(firm[one, column]), int(book.ground.deserved[one, column])
            if deserved < CEILING and held + int(wanted[column]) > deserved:
                return one, column, held
    return None


def hold_firmly(session: Session, state: GroupState, amounts: NDArray[np.int64], sign: int) -> None:
    """Count (sign 1), or take back (-1), what a group that cannot be preempted is given."""
    row = session.queue_row(state)
    if session.firm is not None and row is not None and not is_preemptible(state):
        for one in session.book.lineage(row):
            session.firm[one] += sign * amounts


def firmly_held(session: Session) -> NDArray[np.int64]:
    """Return what every queue, with those below it, holds in groups that cannot be preempted; rows as in the book."""
    if session.firm is None:
        session.firm = _firm(session)
    return session.firm


def _firm(session: Session) -> NDArray[np.int64]:
    shapes, held = session.snapshot.shapes, dict[str, list[Amounts]]()
    for state in session.snapshot.groups.values():
        if (state.bound or state.assumed) and not is_preemptible(state):
            parts = held.setdefault(session.queue_of(state), [])
            for pod in (*state.bound, *state.assumed):
                parts.append(held_by(pod, shapes))
    for pod, queue in session.snapshot.singles.values():
        if pod.preemptible is False:
            part = held_by(pod, shapes)
            held.setdefault(queue, []).append(part)
    ground = session.book.ground
    sums = {queue: add(*parts) for queue, parts in held.items()}
    return subtree(ground.tree.structure, rows_of(sums, ground.tree, ground.resources))


def open_book(session: Session) -> Book:
    """Return the account as it is when the session begins."""
    snapshot, shelf = session.snapshot, session.cache.shelf
    if shelf.space != session.space:
        shelf.space = session.space
        shelf.never.clear()
    tree = shelf.trees.of(snapshot.queues, (*snapshot.queue_usage, *session.cache.residents.queues()))
    table = snapshot.table
    wants = asked_in(session, tree)
    _forget(shelf, session.waiting)
    demand = {
        queue: add(snapshot.queue_usage.get(queue, ()), wants.get(queue, ()))
        for queue in {**dict.fromkeys(snapshot.queue_usage), **dict.fromkeys(wants)}
    }
    down = [one.is_down for one in table.classes]
    usable = ~np.array(down, dtype=np.bool_)[table.class_of] if table.names else np.zeros(0, dtype=np.bool_)
    fields = (part for queue in tree.queues for part in (queue.guarantee, queue.deserved, queue.limit))
    named = sorted({name for part in fields for name, _ in part})
    resources, total = capacity(table.resources, table.allocatable, table.used, usable, snapshot.foreign, named)
    key = (id(tree), resources, total.tobytes(), tuple(sorted(demand.items())))
    usage, fair = session.cache.usage, session.hooks.fair_share
    held = subtree(tree.structure, rows_of(snapshot.queue_usage, tree, resources))
    usage.advance(tree, snapshot.queues, resources, held, fair, snapshot.now)
    history = usage.history(total, fair)
    stamp = None if history is None else history.used.tobytes()
    if shelf.ground is None or shelf.key != (*key, stamp):
        shelf.key, shelf.ground = (*key, stamp), Ground.of(tree, resources, total, demand, history)
    waiting = add(*wants.values()) if wants else ()
    return Book(shelf.ground, held, _leaving(session), waiting)


def asked_in(session: Session, tree: QueueTree) -> dict[str, Amounts]:
    """Return what waiting members ask for, by leaf. In a queue that takes no part, or is no leaf, nothing can start;
    in one that is not open only what runs is repaired. Of a suspended group nothing starts."""
    asked: dict[str, dict[str, int]] = {}
    is_open: dict[str, bool] = {}
    for state in session.waiting.values():
        queue = session.queue_of(state)
        into = asked.get(queue)
        if into is None:
            if queue not in tree or not tree.is_leaf(queue):
                continue
            into, is_open[queue] = asked.setdefault(queue, {}), tree.closed(queue) is None
        if state.group.suspended or (not is_open[queue] and not is_running(state)):
            continue
        for name, value in asked_by(session, state):
            into[name] = into.get(name, 0) + value
    return {queue: tuple(sorted(sums.items())) for queue, sums in asked.items()}


def _leaving(session: Session) -> dict[str, Amounts]:
    """What pods that are about to go hold, by leaf queue."""
    found: dict[str, list[Amounts]] = {}
    shapes = session.snapshot.shapes
    for pod, queue in going(session.snapshot):
        if queue:
            found.setdefault(queue, []).append(held_by(pod, shapes))
    return {queue: add(*parts) for queue, parts in found.items()}


def _forget(shelf: Shelf, waiting: Mapping[str, GroupState]) -> None:
    """Forget groups that wait no more, once there are many of them."""
    for kept in (shelf.asks, shelf.minimums):
        if len(kept) > 2 * len(waiting) + 100:
            for key in [key for key in kept if key not in waiting]:
                del kept[key]
