"""The brain's loop: take in events, run a session when something can have changed, hand the decisions over.

Decided here: when a session runs. It runs at once (after a breath of a few milliseconds that lets a burst arrive
whole) when an event may change a verdict, when a cool-down ends, and at the latest every resync period; never before
every cache is synced, never on a replica that does not lead. A session that raises is counted, logged and tried again
after a pause: the loop goes on. Knows nothing of sockets, HTTP or Kubernetes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import structlog

from scheduler.cluster import feed
from scheduler.cluster.store import Store
from scheduler.config import SchedulerConfiguration
from scheduler.model.decisions import Decisions
from scheduler.model.snapshot import Snapshot
from scheduler.sim import replay

BREATH = 0.004
"""Seconds between the first event of a burst and the session that answers it."""
IDLE = 1.0
"""Seconds without an event after which there is time for what need not be done at once."""
REST = 4.0
"""A session is followed by a rest of so many times its length (at most the period): while thousands of binds are being
confirmed, each confirmation is a change, and sessions without a break would take the processor from the binder."""
PAUSE_AFTER_CRASH = 1.0
log = structlog.get_logger("muster.loop")


class SessionOutcome(Protocol):
    """What one session gave."""

    @property
    def decisions(self) -> Decisions:
        """The whole output."""

    @property
    def seconds(self) -> dict[str, float]:
        """Seconds by action."""

    @property
    def counters(self) -> dict[str, float]:
        """Figures for metrics."""

    @property
    def wake_at(self) -> float | None:
        """Run again at that time at the latest (seconds since the epoch), even if nothing happens."""

    @property
    def overcommitted(self) -> tuple[str, ...]:
        """Nodes that held more than they have when it began."""

    @property
    def session(self) -> Any:
        """What can be asked about it until the next one begins."""


class Link(Protocol):
    """The brain's end of the line to the io process."""

    def receive(self, timeout: float) -> Sequence[feed.ToBrain]:
        """Return what has arrived, waiting at most `timeout` seconds. Raises EOFError when the io process is gone."""

    def send(self, items: Sequence[feed.FromBrain]) -> None:
        """Send to the io process."""


class Sessions(Protocol):
    """Runs one session; made anew for each configuration, keeps its caches between sessions."""

    @property
    def counts_owners(self) -> bool:
        """Whether snapshots must say where the pods of each controller are."""

    def run(self, snapshot: Snapshot, session_id: str) -> SessionOutcome:
        """Decide; must not keep or change the snapshot."""


MakeSessions = Callable[[SchedulerConfiguration], Sessions]
ParseConfig = Callable[[bytes], SchedulerConfiguration]
Describe = Callable[[Any, Sequence[str], str, Mapping[str, str]], bytes]
"""Takes a session as it ended, the configured actions, and what the page asks (view, arguments)."""


def _says_nothing(session: Any, actions: Sequence[str], view: str, arguments: Mapping[str, str]) -> bytes:
    return b""


class Loop:
    """See the module. `clock` gives seconds since the epoch, `timer` monotonic seconds.

    when_idle: called once, when for the first time nothing has come for a while after the first session.
    """

    def __init__(
        self,
        link: Link,
        config: SchedulerConfiguration,
        make_sessions: MakeSessions,
        parse_config: ParseConfig,
        *,
        when_idle: Callable[[], None] | None = None,
        describe: Describe = _says_nothing,
        clock: Callable[[], float] = time.time,
        timer: Callable[[], float] = time.monotonic,
    ) -> None:
        self._when_idle, self._describe = when_idle, describe
        self._link = link
        self._config = config
        self._make_sessions = make_sessions
        self._parse_config = parse_config
        self._sessions = make_sessions(config)
        self._store = Store()
        self._clock, self._timer = clock, timer
        self._number = 0
        self._not_before = 0.0
        self._last_session = float("-inf")
        self._wake_at: float | None = None
        self._last: tuple[Snapshot, Decisions] | None = None
        self._ended: Any = None
        self._overcommitted: tuple[str, ...] = ()

    def run(self) -> None:
        """Loop until `feed.Stop` or the end of the link."""
        while True:
            try:
                items = self._link.receive(self._wait())
                if not items and self._when_idle is not None and self._number > 0:
                    idle, self._when_idle = self._when_idle, None
                    idle()
                if not self._take(items):
                    return
                if self._due():
                    self._session()
            except EOFError:
                log.info("io_process_gone")
                return

    def _may_run(self) -> bool:
        return self._store.synced and self._store.epoch is not None

    def _wait(self) -> float:
        """Seconds to sleep when no event comes."""
        if not self._may_run():
            return 60.0
        now = self._timer()
        if self._store.changed:
            return max(0.0, self._not_before - now)
        ends = [self._last_session + self._config.resync_period - now + 0.001]
        due = self._due_at()
        if due is not None:
            ends.append(due - self._clock() + 0.001)
        if self._when_idle is not None:
            ends.append(IDLE)
        return max(0.0, min(60.0, *ends))

    def _due(self) -> bool:
        if not self._may_run():
            return False
        now = self._timer()
        if now < self._not_before:
            return False
        if self._store.changed or now - self._last_session >= self._config.resync_period:
            return True
        due = self._due_at()
        return due is not None and self._clock() >= due

    def _due_at(self) -> float | None:
        """When a cool-down ends, or something that waits to be said may be said."""
        times = [at for at in (self._store.next_due(), self._wake_at) if at is not None]
        return min(times, default=None)

    def _take(self, items: Sequence[feed.ToBrain]) -> bool:
        """Apply what arrived; return whether to go on."""
        events: list[feed.Event] = []
        was_quiet = not self._store.changed
        for item in items:
            match item:
                case feed.Stop():
                    return False
                case feed.SnapshotAsk():
                    self._store.apply(events, self._clock())
                    events = []
                    self._send_snapshot()
                case feed.PageAsk():
                    self._tell(item)
                case feed.Ping():
                    self._link.send([feed.Pong()])
                case feed.ConfigSet(data=data):
                    self._reload(data)
                case _:
                    events.append(item)
        self._store.apply(events, self._clock())
        if was_quiet and self._store.changed:
            self._not_before = max(self._not_before, self._timer() + BREATH)
        return True

    def _reload(self, data: bytes) -> None:
        self._config = self._parse_config(data)
        self._sessions = self._make_sessions(self._config)
        self._store.changed = True
        log.info("config_reloaded", actions=list(self._config.actions))

    def _send_snapshot(self) -> None:
        """Send the last session: what it saw and what it decided."""
        if self._last is None:
            self._link.send([feed.SnapshotReply(b"")])
            return
        snapshot, decisions = self._last
        self._link.send([feed.SnapshotReply(replay.dump(decisions.session, self._config, snapshot, decisions))])

    def _tell(self, asked: feed.PageAsk) -> None:
        """Answer what the page asks about the last session; what goes wrong there stays there."""
        if self._ended is None:
            self._link.send([feed.PageReply(asked.number)])
            return
        try:
            data = self._describe(self._ended, self._config.actions, asked.view, asked.arguments)
        except Exception as error:
            log.exception("page_failed", view=asked.view)
            self._link.send([feed.PageReply(asked.number, fault=f"{type(error).__name__}: {error}")])
            return
        self._link.send([feed.PageReply(asked.number, data)])

    def _note_overcommitted(self, nodes: tuple[str, ...]) -> None:
        if nodes != self._overcommitted:
            self._overcommitted = nodes
            log.warning("nodes_overcommitted", number=len(nodes), nodes=list(nodes[:10]))

    def _session(self) -> None:
        started = self._timer()
        self._number += 1
        session_id = f"s-{self._number:06d}"
        snapshot = self._store.snapshot(self._clock(), owners=self._sessions.counts_owners)
        self._ended = None  # nobody can ask meanwhile, and two of them need not be kept
        try:
            outcome = self._sessions.run(snapshot, session_id)
        except Exception:  # the panic fence: one session is lost, the scheduler is not
            log.exception("session_failed", session=session_id)
            self._link.send([feed.SessionDone(session_id, {}, {"session_failures": 1.0})])
            self._store.changed = True
            self._not_before = self._timer() + PAUSE_AFTER_CRASH
            self._last_session = self._timer()
            return
        self._last = (snapshot, outcome.decisions)
        self._ended = outcome.session
        self._note_overcommitted(outcome.overcommitted)
        self._wake_at = None if outcome.wake_at is None else max(outcome.wake_at, self._clock() + BREATH)
        for place in outcome.decisions.places:
            self._store.assume(place, session_id)
        took = self._timer() - started
        answer: list[feed.FromBrain] = []
        if outcome.decisions.items:
            answer.append(feed.Handover.of(outcome.decisions))
        seconds = {**outcome.seconds, "session": took}
        answer.append(feed.SessionDone(session_id, seconds, outcome.counters, len(outcome.overcommitted)))
        try:
            self._link.send(answer)
        except (OverflowError, TypeError, ValueError):  # a figure that cannot travel must not take placements along
            log.exception("words_not_sent", session=session_id)
            decided = outcome.decisions
            bare = feed.Handover(session=session_id, generation=decided.generation, places=decided.places)
            self._link.send([bare, feed.SessionDone(session_id, seconds, {"session_failures": 1.0})])
        self._last_session = self._timer()
        self._not_before = self._last_session + min(REST * took, self._config.session_period)
