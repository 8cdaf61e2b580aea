"""A record under change, inside one step of the machine.

Decided here: when a member is tried again, and that each state change and the request that it causes happen together.
"""

from __future__ import annotations

from msgspec.structs import replace

from scheduler.binder.record import Ask, Effect, Failure, Member, Record, Verb

_STATE_OF = {Verb.BIND: Member.ASKED, Verb.READ: Member.DOUBTFUL, Verb.DELETE: Member.DELETING}


class Draft:
    """A record being changed: states as a bytearray, requests to send collected by verb and time."""

    def __init__(self, record: Record, now: float) -> None:
        self.record = record
        self.now = now
        self.states = bytearray(record.states)
        self.tries = bytearray(record.tries)
        self.failures: list[Failure] = []
        self.doubted: set[int] = set()
        self.trouble = record.trouble
        self._asks: dict[tuple[Verb, float], tuple[list[int], list[str]]] = {}

    def node(self, member: int) -> str:
        return self.record.place.assignments[member].node

    def lose(self, member: int, cause: str, permanent: bool = False, state: Member = Member.LOST) -> None:
        self.states[member] = state
        if cause:
            self.failures.append(Failure(member, cause, permanent))

    def fail(self, failure: Failure) -> None:
        self.states[failure.member] = Member.LOST
        self.failures.append(failure)

    def ask(self, verb: Verb, member: int, at: float = 0.0, version: str = "") -> None:
        self.states[member] = _STATE_OF[verb]
        members, versions = self._asks.setdefault((verb, at), ([], []))
        members.append(member)
        if verb is Verb.DELETE:
            versions.append(version)

    def wait(self, member: int, after: float = 0.0) -> float:
        """Count a try and return when the next may be: doubling, spread by the member's number, not before `after`."""
        tries = self.tries[member] = min(255, self.tries[member] + 1)
        timing = self.record.timing
        pause = min(timing.last_wait, timing.first_wait * 2.0 ** min(tries - 1, 30))
        return self.now + max(after, pause * (1.0 + (member * 37 % 64) / 256.0))

    def doubt(self, member: int) -> None:
        self.doubted.add(member)

    def finish(self) -> Record:
        record = self.record
        return replace(
            record,
            states=bytes(self.states),
            tries=bytes(self.tries),
            failures=(*record.failures, *self.failures),
            doubted=record.doubted | self.doubted if self.doubted else record.doubted,
            doubted_until=max(record.doubted_until, self.now + record.timing.settle)
            if self.doubted
            else record.doubted_until,
            trouble=self.trouble,
        )

    def effects(self) -> tuple[Effect, ...]:
        return tuple(
            Ask(verb, tuple(members), at, tuple(versions)) for (verb, at), (members, versions) in self._asks.items()
        )
