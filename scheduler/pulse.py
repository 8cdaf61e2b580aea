"""Whether the brain still answers: it is asked every few seconds, and answers between two sessions.

Decided here: when a brain counts as hanging. Any word of it is an answer. Time is counted in beats, and no beat counts
for more than two, so that a machine that slept, or this process if it was stopped, is not held against the brain.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from scheduler.cluster import feed

PATIENCE = 180.0
"""Seconds without a word after which a brain hangs: far more than the longest session and the first list take."""
BEATS = 36
"""Looks in that time."""


class Pulse:
    """Asks the brain, and counts the seconds without a word. `timer` gives monotonic seconds."""

    def __init__(
        self,
        send: Callable[[feed.Ping], None],
        *,
        patience: float = PATIENCE,
        timer: Callable[[], float] = time.monotonic,
    ) -> None:
        self._send, self._beat, self._patience, self._timer = send, patience / BEATS, patience, timer
        self._last = timer()
        self._answered = True
        self.silent = 0.0

    def heard(self) -> None:
        """Note a word of the brain, whatever it says."""
        self._answered = True
        self.silent = 0.0

    def beat(self) -> bool:
        """Ask where nothing is asked yet, else count the silence; return whether the brain hangs."""
        now = self._timer()
        passed, self._last = min(now - self._last, 2 * self._beat), now
        if self._answered:
            self._answered = False
            self._send(feed.Ping())
        else:
            self.silent += passed
        return self.silent >= self._patience

    @property
    def words(self) -> tuple[bool, str]:
        """Whether it is alive, and what /healthz says of it."""
        if self.silent < 2 * self._beat:
            return True, "ok"
        return self.silent < self._patience, f"the deciding process has not answered for {self.silent:.0f} s"

    async def run(self) -> None:
        """Return once the brain hangs."""
        while True:
            if self.beat():
                return
            await asyncio.sleep(self._beat)
