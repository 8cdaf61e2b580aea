"""What the binder needs from outside: it performs, others hold the state.

Each port is as small as its use here; the cluster package and the composition root provide them, tests fake them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from scheduler.binder.record import Failure
from scheduler.cluster import feed
from scheduler.model.bindrequest import BindRequest, GangOutcome
from scheduler.model.decisions import Place, Victim
from scheduler.model.nodes import Node
from scheduler.model.pods import Pod


class Cache(Protocol):
    """The io process' picture of the cluster, at least as new as any event that was delivered."""

    def pod(self, uid: str) -> Pod | None:
        """Return the pod with this uid, or None."""

    def node(self, name: str) -> Node | None:
        """Return the node of this name, or None."""

    def bind_request(self, name: str) -> BindRequest | None:
        """Return the request of this name, or None."""

    def subscribe(self, callback: Callable[[list[feed.Event]], None], *, replay: bool = True) -> Callable[[], None]:
        """Deliver the current state before returning, then every batch of events. Returns the way to end it."""


class Api(Protocol):
    """One request to the API server: the body of a 2xx answer, or a `RequestFailed` of the client."""

    async def request(
        self,
        method: str,
        path: str,
        *,
        body: bytes | Mapping[str, Any] | None = None,
        params: Mapping[str, str | int] | None = None,
        content_type: str = "application/json",
        timeout: float = 15.0,
    ) -> bytes:
        """Send it once. Raises `ApiError`, `Unreachable` or `OutcomeUnknown`."""


class Elector(Protocol):
    """The lease."""

    @property
    def epoch(self) -> int:
        """Return the epoch with which this process leads."""

    def may_write(self) -> bool:
        """Whether the lease is held now, by the clock; False for ever after it was lost."""


class Requests(Protocol):
    """BindRequest objects. Each raises a `RequestFailed` of the client."""

    async def report(self, request: BindRequest, phase: str, outcomes: tuple[GangOutcome, ...]) -> None:
        """Write the status."""

    async def note(self, request: BindRequest, outcomes: tuple[GangOutcome, ...]) -> None:
        """Write what is known of an open request, provided that the object still has the version that was read."""

    async def adopt(self, request: BindRequest, epoch: int) -> None:
        """Write our epoch into the spec, provided that the object still has the resource version that was read."""

    async def delete(self, request: BindRequest) -> None:
        """Delete the object of this uid, and its parts."""

    async def sweep(self) -> int:
        """Delete parts that no header will ever join; return how many."""


class PreStep(Protocol):
    """Something that must be ready before a member is bound (a volume, a claim, a device)."""

    name: str

    async def prepare(
        self,
        place: Place,
        members: tuple[int, ...],
        *,
        until: Callable[[], float],
        withdrawn: Callable[[], bool],
    ) -> tuple[Failure, ...]:
        """Make it ready for these members; return those for which it cannot be.

        It ends as soon as the minimum is out of reach, at `until` (seconds since the epoch; an outage moves it), or
        once it is `withdrawn`.
        """

    async def undo(self, place: Place, members: tuple[int, ...]) -> None:
        """Take it back for these members, whether or not it had been made ready. Must not fail."""


class Words(Protocol):
    """What people read about an eviction."""

    def eviction(self, place: Place, victim: Victim) -> str:
        """Return why a victim goes, and for whom."""


class Meter(Protocol):
    """Counters and durations; names without prefix, few label values."""

    def count(self, name: str, amount: float = 1.0, **labels: str) -> None:
        """Add to a counter."""

    def seconds(self, name: str, value: float, **labels: str) -> None:
        """Note a duration."""


class NoMeter:
    """Measures nothing."""

    def count(self, name: str, amount: float = 1.0, **labels: str) -> None:
        """Do nothing."""

    def seconds(self, name: str, value: float, **labels: str) -> None:
        """Do nothing."""


POINTS = (
    "received",
    "adopted",
    "before-first-eviction",
    "after-first-eviction",
    "victims-gone",
    "before-first-bind",
    "after-first-bind",
    "after-last-bind",
    "unwinding",
    "before-first-delete",
    "after-first-delete",
    "before-status",
    "after-status",
    "before-forget",
)
"""Where an observer is called: each is a state of the world in which the process may die."""

Observer = Callable[[str, BindRequest], None]


def observe_nothing(_point: str, _request: BindRequest) -> None:
    """Do nothing."""


def tell_nobody(_request: BindRequest, _place: Place, _victim: Victim) -> None:
    """Do nothing."""


def no_queues(_place: Place, _uid: str) -> str:
    """Return the queue that a member is charged to: none is known."""
    return ""


def no_budgets(_pod: Pod) -> bool:
    """Whether a disruption budget covers a pod: none is known."""
    return False
