"""A request under way, and the numbers that may be changed.

Decided here: what is known of a request when it is begun, and what of it was over already when it was found. Must not
know: how it goes on.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from msgspec.structs import replace

from scheduler.binder.ports import PreStep
from scheduler.binder.record import DEFAULT_TIMING, Failure, Phase, Record, Timing
from scheduler.model.bindrequest import BindRequest, GangOutcome

GIVEN_UP = (Phase.FAILED, Phase.UNWOUND)


@dataclass(frozen=True, slots=True)
class Settings:
    """Numbers that may be changed. Seconds, except `in_flight` and `keep`.

    in_flight: requests about pods under way at once. timeout: of one request. grace: what a gang gets at least after a
    restart or an outage, because neither was its fault. silence: no answer at all for so long is an outage. history,
    keep: a finished request is deleted after this time, or when so many newer ones have finished.
    """

    in_flight: int = 64
    timeout: float = 10.0
    grace: float = 15.0
    silence: float = 2.0
    history: float = 60.0
    keep: int = 50
    timing: Timing = DEFAULT_TIMING


@dataclass(eq=False, slots=True)
class Run:
    """A request under way. `told`: outcomes that its status had when it was found, by gang."""

    request: BindRequest
    records: list[Record]
    found: bool
    began: float
    open: int = 0
    withdrawn: bool = False
    told: dict[int, GangOutcome] = field(default_factory=dict)
    noting: bool = False
    points: set[str] = field(default_factory=set)


def begin(request: BindRequest, deadline: float, now: float, timing: Timing, *, found: bool) -> Run:
    """Return a run whose gangs have not begun, except those that were given up already."""
    told = {outcome.index: outcome for outcome in request.outcomes if outcome.phase in GIVEN_UP}
    run = Run(request, [], found, now, told=told)
    for index, place in enumerate(request.gangs):
        record = Record(index, place, deadline, found, timing)
        if index in told:
            record = replace(record, phase=Phase(told[index].phase))
        run.records.append(record)
    run.open = len(run.records) - len(told)
    return run


async def prepare(steps: Iterable[PreStep], run: Run, gang: int, members: tuple[int, ...]) -> tuple[Failure, ...]:
    """Run the pre-steps of a gang in order, each for the members that are ready so far; return the others."""
    failures: dict[int, Failure] = {}
    for step in steps:
        ready = tuple(member for member in members if member not in failures)
        found = await step.prepare(
            run.records[gang].place,
            ready,
            until=lambda: run.records[gang].deadline,
            withdrawn=lambda: run.records[gang].expired,
        )
        for failure in found:
            failures[failure.member] = failure
    return tuple(failures[member] for member in sorted(failures))
