"""Runs sessions: the configured actions in order, then the statuses; measures each; keeps the cache between them.

This is what the loop calls. An action that fails as a whole is counted and logged, and those after it still run: what
was decided before stays valid, because statements commit or vanish.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import structlog

from scheduler.actions import (
    allocate,
    backfill,
    consolidate,
    drain,
    enqueue,
    preempt,
    queue_status,
    reasons,
    reclaim,
    status,
    topology_status,
)
from scheduler.actions.making_room import WORK
from scheduler.framework.cache import SessionCache
from scheduler.framework.hooks import Hooks
from scheduler.framework.invariants import validate
from scheduler.framework.registry import Registry, Tiers
from scheduler.framework.session import Budget, Session
from scheduler.model.decisions import Decisions
from scheduler.model.snapshot import Snapshot
from scheduler.model.verdict import Verdict

log = structlog.get_logger("muster.session")

ACTIONS: Mapping[str, Callable[[Session], None]] = {
    "enqueue": enqueue.run,
    "allocate": allocate.run,
    "reclaim": reclaim.run,
    "preempt": preempt.run,
    "backfill": backfill.run,
    "consolidate": consolidate.run,
}
"""The actions that exist, by the name under which they are configured."""

VALIDATE_EVERY = 64
"""One session in so many is checked against the invariants in production; a violation is counted and logged."""


class Solver(Protocol):
    """The budget of one placement search, as configured."""

    @property
    def max_deterministic_time(self) -> float:
        """Solver seconds after which a search gives up; the only limit that decides."""

    @property
    def wall_limit(self) -> float:
        """A fuse, in seconds of the wall clock."""

    @property
    def workers(self) -> int:
        """Threads of the solver."""


class Settings(Protocol):
    """What a session needs of the configuration (`scheduler.config.SchedulerConfiguration` has it)."""

    @property
    def actions(self) -> Sequence[str]:
        """Names, in order."""

    @property
    def tiers(self) -> Tiers:
        """Plugins, in order of opinion."""

    @property
    def solver(self) -> Solver:
        """Budget of each search."""

    @property
    def seed(self) -> int:
        """Seed of the solver."""


@dataclass(frozen=True, slots=True)
class SessionResult:
    """What one session gave. `counters`: name{label="value"} -> number. `wake_at`: run again at that time at the
    latest (seconds since the epoch), even if nothing happens; None when there is no need to.
    `verdicts`: why each waiting group waits, whether or not it was said in this session. `overcommitted`: nodes that
    held more than they have when it began. `session`: as it ended, to be read until the next one begins."""

    decisions: Decisions
    seconds: dict[str, float] = field(default_factory=dict)
    counters: dict[str, float] = field(default_factory=dict)
    wake_at: float | None = None
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    overcommitted: tuple[str, ...] = ()
    session: Session | None = None


class Sessions:
    """Sessions of one configuration. Raises `BadPlugin` for plugins or arguments that cannot be used."""

    def __init__(
        self,
        settings: Settings,
        registry: Registry,
        *,
        check: bool = False,
        timer: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._settings, self._check, self._timer = settings, check, timer
        self.cache = SessionCache(Hooks(registry.build(settings.tiers)))
        self.cache.spoken = queue_status.Spoken()
        self._count = 0

    @property
    def counts_owners(self) -> bool:
        """Whether snapshots must say where the pods of each controller are."""
        return self.cache.hooks.counts_owners

    def run(self, snapshot: Snapshot, session_id: str) -> SessionResult:
        """Decide. Does not change the snapshot. With `check`, raises AssertionError when an invariant is violated."""
        session = new_session(snapshot, self._settings, self.cache, session_id)
        overcommitted = session.overcommitted()
        seconds: dict[str, float] = {}
        self._count += bool(session.waiting)
        session.work_left = WORK
        self._timed(session, seconds, "drain", drain.run)
        for number, name in enumerate(self._settings.actions):
            session.later_actions = tuple(self._settings.actions[number + 1 :])
            self._timed(session, seconds, name, ACTIONS[name])
        self._timed(session, seconds, "reasons", reasons.run)
        self._timed(session, seconds, "status", status.run)
        self._timed(session, seconds, "queue_status", queue_status.run)
        self._timed(session, seconds, "topology_status", topology_status.run)
        if session.places and self._count % VALIDATE_EVERY == 0:
            self._validate(session, "all")
        decisions = session.close()
        return SessionResult(
            decisions, seconds, session.counters, session.wake_at, session.verdicts, overcommitted, session
        )

    def _timed(self, session: Session, seconds: dict[str, float], name: str, action: Callable[[Session], None]) -> None:
        began = self._timer()
        try:
            action(session)
        except Exception:  # the fence around an action: what was committed before it is whole
            session.count("action_failures", action=name)
            log.exception("action_failed", session=session.session_id, action=name)
            if self._check:
                raise
        seconds[name] = self._timer() - began
        if self._check:
            self._validate(session, name)

    def _validate(self, session: Session, action: str) -> None:
        violations = validate(session)
        if violations:
            session.count("invariant_violations_total", float(len(violations)), invariant="session")
            log.error("invariant_violated", session=session.session_id, action=action, violations=violations[:10])
        assert not (self._check and violations), violations


def decided(snapshot: Snapshot, settings: Settings, cache: SessionCache, session_id: str) -> Session:
    """Return a session after all actions; for tools that look inside. What an action raises is not caught."""
    session = new_session(snapshot, settings, cache, session_id)
    session.work_left = WORK
    for number, name in enumerate(settings.actions):
        session.later_actions = tuple(settings.actions[number + 1 :])
        ACTIONS[name](session)
    reasons.run(session)
    return session


def new_session(snapshot: Snapshot, settings: Settings, cache: SessionCache, session_id: str) -> Session:
    """Return a session that no action has touched; for tools and tests that look inside."""
    budget = Budget(settings.solver.max_deterministic_time, settings.solver.wall_limit, settings.solver.workers)
    return Session(snapshot, cache, session_id=session_id, seed=settings.seed, budget=budget)
