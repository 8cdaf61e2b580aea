"""The victims of a gang under change, inside one step of the machine: who is asked to go, and in which order.

Decided here: pods under a disruption budget go first, and nobody else is asked before the API server has accepted all
of those, so that a budget that refuses costs nobody else anything; a pod that is going already is only awaited; a pod
is told why it goes. Must not know: whether the gang can still be bound (the machine decides), HTTP, caches. Invariants:
a victim has at most one request under way that is still waited for; one whose outcome is unknown is read before it is
repeated; only the watch says that a victim is gone, because the room is counted from what it says.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from scheduler.binder.causes import UNKNOWN
from scheduler.binder.record import Answer, Clear, Fate, Kind, Reading, Record, Verb

_FATE_OF = {Verb.MARK: Fate.MARKING, Verb.EVICT: Fate.EVICTING, Verb.REMOVE: Fate.EVICTING, Verb.LOOK: Fate.DOUBTFUL}
_OPEN = (Fate.STAYS, Fate.MARKING, Fate.EVICTING, Fate.DOUBTFUL)
"""Not accepted yet."""


def expects(fate: int, verb: Verb) -> bool:
    """Whether a request about a victim that is there still makes sense, or its answer."""
    return _FATE_OF.get(verb) == fate or (verb is Verb.MARK and fate == Fate.SIGNING)


class Clearing:
    """Fates being changed, and requests to send. `refused`: the victim that can not be made to go, and the answer."""

    def __init__(self, record: Record, now: float) -> None:
        self._record = record
        self._now = now
        self._fates = bytearray(record.fates)
        self._efforts = bytearray(record.efforts)
        self._trouble = record.trouble
        self._asks: dict[tuple[Verb, float], list[int]] = {}
        self.refused: tuple[int, Answer] | None = None

    def see(self, gone: Iterable[int], leaving: Iterable[int]) -> None:
        """Take what the watch showed."""
        for victim in gone:
            self._fates[victim] = Fate.GONE
        for victim in leaving:
            if self._fates[victim] in _OPEN:
                asked = self._fates[victim] in (Fate.EVICTING, Fate.DOUBTFUL)
                self._accepted(victim, by_us=asked)

    def hear(self, victim: int, answer: Answer) -> None:
        """Take an answer; one that the watch overtook changes nothing."""
        fate = self._fates[victim]
        if not expects(fate, answer.verb):
            return
        if fate == Fate.SIGNING:
            if answer.kind is Kind.RETRY or answer.cause == UNKNOWN:
                self._ask(Verb.MARK, victim, self._wait(victim, answer.after), Fate.SIGNING)
            else:
                self._fates[victim] = Fate.LEAVING
        elif answer.reading is not None:
            self._read(victim, answer.reading)
        elif answer.kind is Kind.DONE:
            if answer.verb is Verb.MARK:
                self._ask(Verb.REMOVE, victim)
            else:
                self._accepted(victim, by_us=True)
        elif answer.kind is Kind.RETRY:
            self._trouble = answer.cause
            self._ask(answer.verb, victim, self._wait(victim, answer.after))
        elif answer.kind is Kind.DOUBT:
            self._trouble = answer.cause
            self._ask(Verb.LOOK, victim)
        else:
            self._fates[victim] = Fate.STAYS
            self.refused = (victim, answer)

    def _read(self, victim: int, reading: Reading) -> None:
        if reading.gone or reading.ended:
            self._fates[victim] = Fate.LEAVING
        elif reading.deleting:
            self._accepted(victim, by_us=True)
        else:
            self._begin(victim, self._wait(victim))

    def _accepted(self, victim: int, *, by_us: bool) -> None:
        if by_us and victim in self._record.covered:
            self._ask(Verb.MARK, victim, fate=Fate.SIGNING)
        else:
            self._fates[victim] = Fate.LEAVING

    def _begin(self, victim: int, at: float = 0.0) -> None:
        self._ask(Verb.EVICT if victim in self._record.covered else Verb.MARK, victim, at)

    def _ask(self, verb: Verb, victim: int, at: float = 0.0, fate: Fate | None = None) -> None:
        self._fates[victim] = _FATE_OF[verb] if fate is None else fate
        self._asks.setdefault((verb, at), []).append(victim)

    def _wait(self, victim: int, after: float = 0.0) -> float:
        """Count a try and return when the next may be: doubling, spread by the number, not before `after`."""
        tries = self._efforts[victim] = min(255, self._efforts[victim] + 1)
        timing = self._record.timing
        pause = min(timing.last_wait, timing.first_wait * 2.0 ** min(tries - 1, 30))
        return self._now + max(after, pause * (1.0 + (victim * 37 % 64) / 256.0))

    def finish(self) -> tuple[Record, tuple[Clear, ...]]:
        """Return the record, and what is to be sent now."""
        fates = self._fates
        if self.refused is None:
            first = [victim for victim in sorted(self._record.covered) if fates[victim] in _OPEN]
            for victim in first or range(len(fates)):
                if fates[victim] == Fate.STAYS:
                    self._begin(victim)
        record = replace(self._record, fates=bytes(fates), efforts=bytes(self._efforts), trouble=self._trouble)
        return record, tuple(Clear(verb, tuple(victims), at) for (verb, at), victims in self._asks.items())
