"""The BindRequest: what the scheduler hands to the binder, as one durable object.

A request holds whole gangs of one session. A gang too large for one object is written as numbered parts, and a header
whose write is the commit: parts without a header are not a request.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from scheduler.model.decisions import Place, Victim
from scheduler.model.groups import GroupState
from scheduler.model.verdict import Code, Verdict, verdict

_NAMED = 3
"""Victims whose names a group is told; of the rest it is told how many."""
OPEN_PHASES = ("", "Pending", "AwaitingVictims", "Preparing", "Binding", "Unwinding")


@dataclass(frozen=True, slots=True)
class BindFailure:
    """One member that could not be bound; cause is a stable CamelCase word (PodGone, NodeGone, PodGated, ...).

    about: the claim that it is about ("" = none).
    """

    uid: str
    pod: str
    node: str
    cause: str
    permanent: bool = False
    about: str = ""


@dataclass(frozen=True, slots=True)
class GangOutcome:
    """How far a gang of a request has come. Gangs are named by the group's uid and the position in the request.

    more_failures: members that could not be bound either and are not listed.
    """

    index: int
    phase: str
    bound: int = 0
    failures: tuple[BindFailure, ...] = ()
    more_failures: int = 0


@dataclass(frozen=True, slots=True)
class BindRequest:
    """A request as written. `deadline` and `created` are in seconds since the epoch; `epoch` is the leader's."""

    name: str
    uid: str
    session: str
    epoch: int
    deadline: float
    gangs: tuple[Place, ...]
    phase: str = ""
    outcomes: tuple[GangOutcome, ...] = ()
    created: float = 0.0
    resource_version: str = ""

    @property
    def open(self) -> bool:
        """Whether the binder still has work with it."""
        return self.phase in OPEN_PHASES


def given_up(place: Place, outcome: GangOutcome, told: BindFailure) -> Verdict:
    """Return why a gang was given up, told by one of its failures."""
    return verdict(
        Code.BIND_FAILED,
        failed=len(outcome.failures) + outcome.more_failures,
        members=len(place.assignments),
        pod=told.pod,
        domain=told.node,
        cause=f"{told.cause} ({told.about})" if told.about else told.cause,
    )


def awaits_binder(state: GroupState) -> Verdict:
    """Return that members have their nodes and wait to be bound, and how many are bound already."""
    return verdict(Code.WAITING_FOR_BINDER, members=len(state.assumed), bound=len(state.bound))


def awaits(place: Place) -> Verdict:
    """Return why members wait whose victims are still there: how many pods go first, and the first of them by name."""
    return awaiting(names_of(place.victims))


def names_of(victims: Iterable[Victim]) -> tuple[str, ...]:
    """Return victims as they are told: namespace/name."""
    return tuple(f"{victim.namespace}/{victim.pod}" for victim in victims)


def awaiting(pods: Sequence[str]) -> Verdict:
    """Return that somebody waits for these pods to go: how many, and the first of them by name."""
    more = len(pods) - _NAMED
    listed = ", ".join(pods[:_NAMED]) + (f" and {more} more" if more > 0 else "")
    return verdict(Code.WAITING_FOR_VICTIMS, victims=len(pods), message=listed)
