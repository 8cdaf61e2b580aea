"""The components of Muster where they run apart: who leads which, and who makes way for whom.

Decided here: whose lease a process takes, how it is told from the lease of the scheduler whether the whole of Muster
holds it or the scheduler alone, and that there is never a second binder at work. A binder that runs alone binds only
while it holds its own lease and the scheduler's is not held by a process that binds itself; such a process binds only
once nobody holds the binder's lease. Each takes its own lease before it looks at the other's, so that one of the two
sees the other. Must not know: what a component does.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Protocol

import structlog

from scheduler.cluster.client import ApiError, RequestFailed, path_of
from scheduler.cluster.lease import decode, unique_identity
from scheduler.model.components import Component, leading_component

log = structlog.get_logger(__name__)

_ALONE = "_scheduler-only"
"""How the identity of a scheduler ends that leaves binding to another process."""
_LOOK = 1.0
"""Seconds between two looks at somebody else's lease."""
_SAY = 5.0


class WholeLeads(ValueError):
    """A process that binds itself has become the leader.

    It has no epoch for a binder that runs alone, which must end.
    """


class Api(Protocol):
    """The client."""

    async def request(self, method: str, path: str, *, timeout: float = 15.0) -> bytes:
        """Send one request. Raises `RequestFailed`."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A lease as it was read. seconds: for how long a renewal counts. version: of the object."""

    holder: str = ""
    epoch: int = 0
    seconds: float = 0.0
    version: str = ""


def lease_name(name: str, components: Collection[Component]) -> str:
    """Return the lease that a process with these components takes, where the scheduler's is called `name`."""
    leading = leading_component(components)
    return name if leading is Component.SCHEDULER else f"{name}-{leading.value}"


def identity(components: Collection[Component]) -> str:
    """Return an identity that no other process has, and that tells whether this one binds what it decides."""
    return unique_identity() + (
        _ALONE if Component.SCHEDULER in components and Component.BINDER not in components else ""
    )


async def look(api: Api, namespace: str, name: str) -> Seen:
    """Read a lease; one that is not there is held by nobody. Raises `RequestFailed`, or ValueError for an odd one."""
    try:
        body = await api.request("GET", path_of("coordination.k8s.io", "v1", "leases", namespace, name), timeout=5.0)
    except ApiError as error:
        if error.status == 404:
            return Seen()
        raise
    lease = decode(body)
    version, spec = lease.metadata.resource_version, lease.spec
    if spec is None:
        return Seen(version=version)
    seconds = float(spec.lease_duration_seconds or 15)
    return Seen(spec.holder_identity or "", spec.lease_transitions or 0, seconds, version)


class SchedulerLease:
    """The lease of the scheduler, as a binder looks at it that runs alone."""

    def __init__(self, api: Api, namespace: str, name: str) -> None:
        self._api, self._namespace, self._name = api, namespace, name

    async def ask(self) -> int:
        """Return the epoch of whoever decides now. Raises `WholeLeads`, `RequestFailed` or ValueError."""
        seen = await look(self._api, self._namespace, self._name)
        if seen.holder and not seen.holder.endswith(_ALONE):
            raise WholeLeads(f"lease {self._namespace}/{self._name} is held by {seen.holder}, which binds by itself")
        return seen.epoch

    async def until_ours(self) -> None:
        """Wait until the scheduler runs alone, or nobody decides."""
        said = -math.inf
        while True:
            try:
                await self.ask()
                return
            except (RequestFailed, ValueError) as error:
                said = _say("not_binding_yet", str(error), said)
            await asyncio.sleep(_LOOK)

    async def watch(self) -> None:
        """Look again and again. Raises `WholeLeads`."""
        said = -math.inf
        while True:
            await asyncio.sleep(_LOOK)
            try:
                await self.ask()
            except WholeLeads:
                raise
            except (RequestFailed, ValueError) as error:
                said = _say("scheduler_lease_unread", str(error), said)


class BinderLease:
    """The lease of a binder that runs alone, as the scheduler looks at it, whose own is called `name`."""

    def __init__(self, api: Api, namespace: str, name: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._api, self._namespace, self._clock = api, namespace, clock
        self._name = lease_name(name, {Component.BINDER})
        self._version, self._since = "", clock()

    def __str__(self) -> str:
        return f"lease {self._namespace}/{self._name}"

    async def holder(self) -> str:
        """Return who holds it and still renews it, or "". Raises `RequestFailed` or ValueError."""
        seen = await look(self._api, self._namespace, self._name)
        if seen.version != self._version:
            self._version, self._since = seen.version, self._clock()
        return seen.holder if self._clock() - self._since < seen.seconds else ""

    async def watch(self, waiting: Callable[[], int]) -> None:
        """Say so, now and then, while requests wait and nobody is there to bind. waiting: how many wait for long."""
        said = -math.inf
        while True:
            await asyncio.sleep(_SAY)
            count = waiting()
            try:
                holder = await self.holder() if count else ""
            except (RequestFailed, ValueError) as error:
                said = _say("binder_lease_unread", str(error), said)
                continue
            if count and not holder:
                said = _say("no_binder", f"{count} bind requests wait, and nobody renews {self}", said)


async def until_no_binder(lease: BinderLease, *, pause: float = _LOOK) -> None:
    """Wait until no binder that runs alone holds its lease; the caller holds the scheduler's.

    Who may not read that lease is told so and goes on: the rights of a release that knew no components lack it.
    """
    said = -math.inf
    while True:
        try:
            holder = await lease.holder()
        except (RequestFailed, ValueError) as error:
            if isinstance(error, ApiError) and error.status == 403:
                log.warning("binder_lease_unread", problem=str(error), note="no binder may run apart from this process")
                return
            said = _say("not_binding_yet", str(error), said)
        else:
            if not holder:
                return
            said = _say("not_binding_yet", f"{lease} is held by {holder}", said)
        await asyncio.sleep(pause)


def _say(event: str, problem: str, said: float) -> float:
    """Say what is waited for, now and then; return when it was said last."""
    now = time.monotonic()
    if now - said < _SAY:
        return said
    log.warning(event, problem=problem)
    return now
