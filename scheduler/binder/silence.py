"""Whether the API server is away, as the answers of the binder's own requests show it.

Decided here: what counts as an outage, and how long evidence of silence is good for. Must not know: what an outage does
to deadlines (the loop decides). Times are in seconds of the caller's clock.
"""

from __future__ import annotations

from collections.abc import Callable

from scheduler.binder import answers
from scheduler.binder.record import Answer, Kind


class Silence:
    """See the module. least: so long nothing was answered, at least, in an outage; recent: so old is good evidence."""

    def __init__(self, clock: Callable[[], float], least: float, recent: float) -> None:
        self._clock = clock
        self._least = least
        self._recent = recent
        self._since: float | None = None
        self._last = 0.0

    def hear(self, answer: Answer) -> float:
        """Take an answer; return how long an outage was that it ends, else 0."""
        now = self._clock()
        if answer.cause in answers.NO_ANSWER and answer.kind is not Kind.DONE:
            if self._since is None:
                self._since = now
            self._last = now
        elif self._since is not None:
            away, self._since = now - self._since, None
            return away if away >= self._least else 0.0
        return 0.0

    @property
    def now(self) -> bool:
        """Whether the API server does not answer now, by recent evidence."""
        return self._since is not None and self._clock() - self._last < self._recent
