"""What several answers need of one session, each made when it is first asked for and kept as long as the session is.

Decided here: what counts as waiting and as running, the order in which those that wait are told, and who is counted in
which queue. A session is only read: nothing here changes what the next one decides.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

from scheduler.actions.lineup import left_over
from scheduler.actions.status import phase_of
from scheduler.framework.floorplan import main_resource
from scheduler.framework.session import Session
from scheduler.framework.shares import line_of, standings
from scheduler.model.groups import GroupState
from scheduler.model.hints import near
from scheduler.model.phases import word_of
from scheduler.model.pods import held_together
from scheduler.model.resources import Amounts
from scheduler.model.shares import Standing
from scheduler.model.verdict import Code
from scheduler.web import answers
from scheduler.web.answers import GangRow, QueueRow, Total

Arguments = Mapping[str, str]
ENDED = frozenset({"Completed", "Failed"})


class About:
    """See the module. actions: those that are configured."""

    def __init__(self, session: Session, actions: tuple[str, ...]) -> None:
        self._session = weakref.ref(session)  # what is kept for the page must not keep a session
        self.actions = actions

    @property
    def session(self) -> Session:
        """The session; it lives while it is asked about."""
        found = self._session()
        assert found is not None
        return found

    def is_about(self, session: Session) -> bool:
        """Whether it is this session."""
        return self._session() is session

    @property
    def head(self) -> dict[str, Any]:
        """What every answer begins with."""
        return {"session": self.session.session_id, "now": self.session.now}

    @cached_property
    def line(self) -> list[tuple[str, GroupState]]:
        """Those that wait for room or their turn, in order."""
        return left_over(self.session)

    @cached_property
    def places(self) -> dict[str, answers.Place]:
        """Where each of them stands."""
        sizes = Counter(self.session.queue_of(state) for _, state in self.line)
        served: dict[str, list[str]] = {}
        found: dict[str, answers.Place] = {}
        for number, (_, state) in enumerate(self.line, 1):
            queue = self.session.queue_of(state)
            before = served.setdefault(queue, [])
            found[state.key] = answers.Place(len(before) + 1, sizes[queue], number, len(self.line), tuple(before[:3]))
            before.append(f"{state.group.namespace}/{state.group.name}")
        return found

    @cached_property
    def standings(self) -> tuple[Standing, ...]:
        """The queues, from the root down."""
        return standings(self.session)

    @cached_property
    def phases(self) -> dict[str, str]:
        """The phase of each group in the model's words; one of which the session placed something is about to start."""
        session = self.session
        return {
            key: "Scheduling"
            if key in session.placed_of and not state.placed
            else phase_of(state, admitted=key in session.admitted)
            for key, state in session.snapshot.groups.items()
        }

    def word(self, state: GroupState) -> str:
        """Return the phase of a group in the word that its object's status has for it."""
        why = self.session.verdicts.get(state.key)
        kept_out = why is not None and why.code is Code.SUSPENDED
        return word_of(state.group.dialect, self.phases[state.key], kept_out=kept_out)

    def waits(self, state: GroupState) -> bool:
        """Whether something of the group waits, or nothing of it is there yet."""
        if self.phases[state.key] in ENDED or state.key in self.session.placed_of:
            return False
        return bool(state.waiting or state.gated or state.key in self.session.verdicts or not state.placed)

    def in_state(self, name: str) -> list[GroupState]:
        """Return the groups that wait (in order), run (and do not wait), have ended, or all."""
        everyone = self.session.snapshot.groups.values()
        if name == "running":
            return [one for one in everyone if one.placed and self.phases[one.key] not in ENDED]
        if name == "ended":
            return [one for one in everyone if self.phases[one.key] in ENDED]
        rank = {state.key: number for number, (_, state) in enumerate(self.line)}
        last = len(rank)
        return sorted(
            (one for one in everyone if name == "all" or self.waits(one)),
            key=lambda one: (rank.get(one.key, last), one.queue, one.group.created, one.key),
        )

    def row(self, state: GroupState) -> GangRow:
        """Return a group for a list."""
        session, group = self.session, state.group
        shapes = session.snapshot.shapes
        placed = (*state.assumed, *state.bound)
        wants: Amounts = held_together(state.waiting, shapes) if state.waiting else ()
        held: Amounts = held_together(placed, shapes) if placed else ()
        return GangRow(
            key=state.key,
            namespace=group.namespace,
            name=group.name,
            dialect=group.kind.lower() if group.dialect == "owner" else group.dialect,
            queue=session.queue_of(state),
            priority=state.priority,
            phase=self.word(state),
            created=group.created,
            minimum=group.min_member,
            existing=state.existing,
            placed=state.placed,
            waiting=len(state.waiting),
            gated=len(state.gated),
            wants=wants,
            held=held,
            nodes=len({pod.node for pod in placed}),
            why=session.verdicts.get(state.key) or state.held,
            place=self.places.get(state.key),
        )

    def queue_rows(self, found: Iterable[Standing], resource: str | None) -> tuple[QueueRow, ...]:
        """Return queues for a list, with the share of one resource, or (None) of all."""
        waiting, running = self.counts
        return tuple(
            QueueRow(
                one.name,
                one.parent,
                one.depth,
                one.state,
                one.priority,
                one.fault,
                waiting[one.name],
                running[one.name],
                tuple(share for share in one.shares if resource is None or share.resource == resource),
            )
            for one in found
        )

    @cached_property
    def counts(self) -> tuple[Counter[str], Counter[str]]:
        """How many groups wait, and run, in each queue and below it."""
        waiting: Counter[str] = Counter()
        running: Counter[str] = Counter()
        for state in self.session.snapshot.groups.values():
            into = waiting if self.waits(state) else running if state.placed else None
            if into is None or self.phases[state.key] in ENDED:
                continue
            into.update(self.line_of(self.session.queue_of(state)))
        return waiting, running

    def line_of(self, queue: str) -> tuple[str, ...]:
        """Return a queue and those above it, each once."""
        return line_of(queue, self._above)

    @cached_property
    def _above(self) -> dict[str, str]:
        return {one.name: one.parent for one in self.standings}


class Refused(Exception):
    """What an argument names is not there; the message says so to whoever looks."""


def chosen(arguments: Arguments, name: str, known: Sequence[str], default: str) -> str:
    """Return one of the known values that an argument names; `default` where it is not given. Raises `Refused`."""
    asked = arguments.get(name, "")
    if asked and asked not in known:
        raise Refused(f"there is no {name} {asked}{near(asked, known)}")
    return asked or default


def totals(session: Session) -> tuple[Total, ...]:
    """Return every resource that nodes have, the one that is worth looking at first."""
    table = session.table
    first = main_resource(session)
    total, free = table.allocatable.sum(axis=1).tolist(), session.free.sum(axis=1).tolist()
    found = [
        Total(name, have, have - left) for name, have, left in zip(table.resources, total, free, strict=True) if have
    ]
    usual = (first, "cpu", "memory")
    return tuple(
        sorted(found, key=lambda one: (usual.index(one.resource) if one.resource in usual else 3, one.resource))
    )


def start(arguments: Arguments, size: int, many: int) -> int:
    """Return where the page that is asked for (`page`, from 1) begins; the last one where it is beyond the end."""
    text = arguments.get("page", "1")
    number = int(text) if text.isdecimal() and len(text) < 9 else 1
    return max(0, min(number - 1, (many - 1) // size)) * size
