"""A waiting group's place in the order, and what decides it; for people, and for the session's own words.

Decided here: what counts as ahead: groups that allocate looks at before this one, as long as nothing is placed (what
is placed changes whose turn it is). Lost members of running groups come before those that start, surplus members after
them, as in allocate. The keys are the plugins' own; nothing is ordered anew here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from scheduler.actions.allocate import candidates
from scheduler.actions.standing import IN_LINE
from scheduler.actions.turns import in_order
from scheduler.framework.gangs import is_running, needs
from scheduler.framework.protocols import SortKey
from scheduler.framework.session import Session
from scheduler.model.groups import GroupState

PASSES = ("repair", "start", "grow")


@dataclass(frozen=True, slots=True)
class Level:
    """One queue of the group's line, with the group's next ask counted in.

    within: whether it then holds at most what it is owed. over: by how much not, (resource, amount). share: its
    dominant share of what it is owed (inf: of nothing).
    """

    queue: str
    within: bool
    over: tuple[tuple[str, int], ...]
    priority: int
    share: float


@dataclass(frozen=True, slots=True)
class Turn:
    """Where a group stands. levels: from below the root down. keys: of the group, by plugin, smallest first.

    step: repair, start or grow. position: in its queue, in_all: among all, both from 1. ahead: those of its queue
    before it, before: all before it.
    """

    state: GroupState
    step: str
    levels: tuple[Level, ...]
    keys: tuple[tuple[str, SortKey], ...]
    ahead: tuple[GroupState, ...]
    before: tuple[GroupState, ...]
    in_queue: int
    waiting: int

    @property
    def position(self) -> int:
        """Place in the group's queue."""
        return len(self.ahead) + 1

    @property
    def in_all(self) -> int:
        """Place among all."""
        return len(self.before) + 1


def turn_of(session: Session, key: str) -> Turn | None:
    """Return where a group stands; None where it is not looked at (its verdict, if any, is in the session)."""
    return turn_in(session, lineup(session), key)


def turn_in(session: Session, line: list[tuple[str, GroupState]], key: str) -> Turn | None:
    """Return where a group stands in a line; None: it is not in it."""
    place = next((number for number, (_, state) in enumerate(line) if state.key == key), None)
    if place is None:
        return None
    step, state = line[place]
    queue = session.queue_of(state)
    before = tuple({other.key: other for _, other in line[:place]}.values())
    everyone = {other.key: other for _, other in line}.values()
    return Turn(
        state=state,
        step=step,
        levels=tuple(levels_of(session, state)),
        keys=session.hooks.keys_by_plugin("order_groups", state, session),
        ahead=tuple(other for other in before if session.queue_of(other) == queue),
        before=before,
        in_queue=sum(session.queue_of(other) == queue for other in everyone),
        waiting=len(everyone),
    )


def lineup(session: Session) -> list[tuple[str, GroupState]]:
    """Return the groups in the order in which they are looked at, each with the pass: its first one."""
    return line_of(session, candidates(session))


def left_over(session: Session) -> list[tuple[str, GroupState]]:
    """Return, once every action has run, the groups that wait for room or for their turn, in order as `lineup`."""
    groups, found = session.snapshot.groups, []
    for key in sorted(session.verdicts):
        why, state = session.verdicts[key], groups.get(key)
        if why.code in IN_LINE and not why.permanent and state is not None and state.waiting:
            found.append(state)
    return line_of(session, found)


def line_of(session: Session, states: list[GroupState]) -> list[tuple[str, GroupState]]:
    """Put groups that may be placed into the order in which they are looked at."""
    order = in_order(session, states)
    lacking = {state.key: needs(state).total for state in states}
    running = {state.key for state in states if is_running(state)}
    parts = (
        order.only(lambda state: state.key in running and lacking[state.key] > 0),
        order.only(lambda state: state.key not in running and lacking[state.key] > 0),
        order.only(lambda state: len(state.waiting) > lacking[state.key]),
    )
    found: dict[str, tuple[str, GroupState]] = {}
    for step, part in zip(PASSES, parts, strict=True):
        for state in part.each():
            found.setdefault(state.key, (step, state))
    return list(found.values())


def levels_of(session: Session, state: GroupState) -> Iterator[Level]:
    """Yield the queues of a group's line, from below the root down."""
    row = session.queue_row(state)
    if row is None:
        return
    book = session.book
    ask = book.vector(session.least_of(state))
    for one in reversed(list(book.lineage(row))[:-1]):
        beyond = book.staying[one] + ask - book.ground.owed[one]
        over = tuple(
            (book.ground.resources[column], int(beyond[column]))
            for column in range(len(beyond))
            if ask[column] > 0 and book.ground.counts[one, column] and beyond[column] > 0
        )
        share = book.share(one, ask)
        yield Level(book.tree.names[one], book.within(one, ask), over, book.tree.queues[one].priority, share)
