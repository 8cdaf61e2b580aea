"""What sessions decided lately and what became of it, kept in memory for people who look: by session and by group.

Decided here: how much is kept, what is one step in the life of a group, and that the same reason with other numbers is
the same step. It lives as long as the process. Words are made when somebody looks, by `explain`. Pods that stand alone
have no life of their own here, because ten thousand of them may start in one session. Fed from the event loop only.
"""

from __future__ import annotations

import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from scheduler.cluster import feed
from scheduler.model.bindrequest import BindRequest, given_up
from scheduler.model.decisions import Place, SetStatus
from scheduler.model.phases import word_of
from scheduler.model.verdict import Verdict
from scheduler.observe import explain

SESSIONS, PLACES, WAITS = 200, 50, 20
"""Sessions that are kept, and of each so many placements and so many reasons."""
GROUPS, STEPS = 2000, 30
"""Groups whose life is kept, and its last steps."""
_ALONE = "pod/"
_GIVEN_UP = ("Failed", "Unwound")


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a group. at, since: when it was last and first so, in seconds since the epoch.

    kind: waits, placed, evicted, bound, failed, or the phase of its status. text: what is said of it.
    """

    at: float
    since: float
    session: str
    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class _Note:
    """A step before it has words."""

    at: float
    since: float
    session: str
    kind: str
    of: Verdict | SetStatus | str


@dataclass(frozen=True, slots=True)
class Placed:
    """One placement of a session. victims: the first, of `going`, with why they go."""

    key: str
    namespace: str
    name: str
    kind: str
    pods: int
    nodes: int
    minimum: int
    victims: tuple[str, ...]
    going: int


@dataclass(frozen=True, slots=True)
class Waits:
    """A reason that a session gave."""

    key: str
    why: Verdict


@dataclass(frozen=True, slots=True)
class Done:
    """A session. at: when it was told. seconds: by action, `session` is the whole. placements, reasons: the first, of
    `gangs` and `said`."""

    session: str
    at: float
    seconds: dict[str, float]
    gangs: int = 0
    pods: int = 0
    evicted: int = 0
    said: int = 0
    failed: bool = False
    placements: tuple[Placed, ...] = ()
    reasons: tuple[Waits, ...] = ()


class Journal:
    """See the module. `clock` gives seconds since the epoch."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self.began = clock()
        self.count = 0
        """Sessions so far."""
        self.last: Done | None = None
        self._sessions: deque[Done] = deque(maxlen=SESSIONS)
        self._groups: OrderedDict[str, deque[_Note]] = OrderedDict()
        self._handed: Done | None = None
        self._phases: dict[str, dict[int, str]] = {}

    # -- what is told to it ---------------------------------------------------------------------------------------

    def handover(self, handed: feed.Handover) -> None:
        """Take what a session decided; `done` of the same session follows."""
        now = self._clock()
        evicted = 0
        for place in handed.places:
            evicted += len(place.victims)
            self._placed(place, handed.session, now)
        reasons: list[Waits] = []
        said = 0
        for status in handed.statuses:
            self._status(status, handed.session, now)
            if status.verdict is not None:
                said += 1
                if len(reasons) < WAITS:
                    reasons.append(Waits(status.group, status.verdict))
        known = {status.group for status in handed.statuses}
        for told in handed.explains:
            if told.group not in known:
                said += 1
                if len(reasons) < WAITS:
                    reasons.append(Waits(told.group, told.verdict))
                if not told.group.startswith(_ALONE):
                    self._note(told.group, _Note(now, now, handed.session, "waits", told.verdict))
        self._handed = Done(
            handed.session,
            now,
            {},
            gangs=sum(bool(place.assignments) for place in handed.places),
            pods=sum(len(place.assignments) for place in handed.places),
            evicted=evicted,
            said=said,
            placements=tuple(_placement(place) for place in handed.places[:PLACES]),
            reasons=tuple(reasons),
        )

    def done(self, told: feed.SessionDone) -> None:
        """Take the figures of a session."""
        self.count += 1
        failed = bool(told.counters.get("session_failures"))
        handed, self._handed = self._handed, None
        if handed is None or handed.session != told.session:
            handed = Done(told.session, self._clock(), {})
        self.last = replace(handed, seconds=told.seconds, failed=failed)
        if handed.gangs or handed.evicted or handed.said or failed:
            self._sessions.append(self.last)

    def watch(self, events: Sequence[feed.Event]) -> None:
        """Take what the cache tells its subscribers: how far requests have come."""
        for event in events:
            match event:
                case feed.RequestSet(request=request):
                    self._request(request)
                case feed.RequestGone(name=name):
                    self._phases.pop(name, None)
                case feed.GroupGone(key=key):
                    self._groups.pop(key, None)

    def refused(self, session: str, groups: Iterable[str], cause: str) -> None:
        """Take note that a decision could not be written."""
        now = self._clock()
        for key in groups:
            if not key.startswith(_ALONE):
                self._note(key, _Note(now, now, session, "failed", f"the decision could not be written: {cause}"))

    def _placed(self, place: Place, session: str, now: float) -> None:
        for key, count in Counter(victim.group for victim in place.victims).items():
            if not key.startswith(_ALONE):
                first = next(victim for victim in place.victims if victim.group == key)
                pods = f"{count} {'pod' if count == 1 else 'pods'}"
                self._note(key, _Note(now, now, session, "evicted", f"{pods}. {explain.eviction(place, first)}"))
        if place.assignments and not place.group.startswith(_ALONE):
            made = _placement(place)
            pods = f"{made.pods} {'pod' if made.pods == 1 else 'pods'}"
            text = f"{pods} on {made.nodes} {'node' if made.nodes == 1 else 'nodes'}"
            if made.going:
                more = f" and {made.going - len(made.victims)} more" if made.going > len(made.victims) else ""
                text += f", once {', '.join(made.victims)}{more} have gone"
            self._note(place.group, _Note(now, now, session, "placed", text))

    def _status(self, status: SetStatus, session: str, now: float) -> None:
        if not status.group.startswith(_ALONE):
            word = word_of(status.group.partition("/")[0], status.phase)
            kind = "waits" if status.verdict is not None else word
            self._note(status.group, _Note(now, now, session, kind, status))

    def _request(self, request: BindRequest) -> None:
        known = self._phases.setdefault(request.name, {})
        for outcome in request.outcomes:
            if known.get(outcome.index) == outcome.phase or outcome.index >= len(request.gangs):
                continue
            known[outcome.index] = outcome.phase
            place = request.gangs[outcome.index]
            if place.group.startswith(_ALONE) or not place.assignments:
                continue
            # One that was written before this process began is told with the time of its own.
            now = request.created if 0 < request.created < self.began else self._clock()
            if outcome.phase in _GIVEN_UP:
                why: Verdict | str = "its bind was given up"
                if outcome.failures:
                    why = given_up(place, outcome, outcome.failures[0])
                self._note(place.group, _Note(now, now, request.session, "failed", why))
            elif outcome.phase == "Bound":
                text = f"{outcome.bound} of {len(place.assignments)} members bound"
                self._note(place.group, _Note(now, now, request.session, "bound", text))

    def _note(self, key: str, note: _Note) -> None:
        steps = self._groups.get(key)
        if steps is None:
            steps = self._groups[key] = deque(maxlen=STEPS)
            if len(self._groups) > GROUPS:
                self._groups.popitem(last=False)
        else:
            self._groups.move_to_end(key)
        if steps and steps[-1].kind == note.kind and _same(steps[-1].of, note.of):
            steps[-1] = replace(note, since=steps[-1].since)
        else:
            steps.append(note)

    # -- what it tells --------------------------------------------------------------------------------------------

    def sessions(self) -> list[Done]:
        """Return the sessions that decided or said something, the last first."""
        return list(reversed(self._sessions))

    def session(self, name: str) -> Done | None:
        """Return one of them."""
        return next((one for one in reversed(self._sessions) if one.session == name), None)

    def life(self, key: str) -> list[Step]:
        """Return the steps of a group, the last first."""
        return [
            Step(note.at, note.since, note.session, note.kind, _words(note.of))
            for note in reversed(self._groups.get(key, ()))
        ]


def _placement(place: Place) -> Placed:
    return Placed(
        place.group,
        place.namespace,
        place.name,
        place.kind,
        len(place.assignments),
        len({one.node for one in place.assignments}),
        place.minimum,
        tuple(f"{victim.namespace}/{victim.pod}" for victim in place.victims[:3]),
        len(place.victims),
    )


def _same(one: Verdict | SetStatus | str, other: Verdict | SetStatus | str) -> bool:
    """Whether two notes say the same, numbers aside."""
    return _code(one) == _code(other)


def _code(told: Verdict | SetStatus | str) -> str:
    if isinstance(told, SetStatus):
        return told.verdict.code.value if told.verdict is not None else told.phase
    return told.code.value if isinstance(told, Verdict) else told


def _words(told: Verdict | SetStatus | str) -> str:
    if isinstance(told, SetStatus):
        return explain.status_text(told) if told.verdict is not None else ""
    return explain.sentence(told) if isinstance(told, Verdict) else told
