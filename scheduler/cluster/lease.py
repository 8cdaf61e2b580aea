"""Leader election on a Lease: who may write, and since which epoch.

Decided here: when a candidate may take the lease, when a leader has lost it, and the epoch (the lease's transitions,
which grow at every acquisition, also by the same identity). All deadlines are on the monotonic clock, which goes on
while the process is stopped. Must not know: what the leader writes. Invariants: `may_write` is False from the moment
at which somebody else could have taken over, before any renewal is tried; a leader that has lost it never leads again
in this process; and no two acquisitions have the same epoch while the lease, or anything that `floor` knows of, lives.
"""

from __future__ import annotations

import asyncio
import math
import os
import random
import socket
import time
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, NoReturn

import msgspec
import structlog

from scheduler.cluster.client import ApiClient, ApiError, OutcomeUnknown, RequestFailed, path_of

log = structlog.get_logger(__name__)

_JITTER = 1.2
_LOOKS = 4
"""How often a candidate looks in one retry period: a lease counts from when its renewal is seen, and one that was given
back is free at once."""
_EARLY = 0.75
"""Retry periods by which a lease counts as free before it ends: a renewal is seen up to a look late, and whoever takes
over still has to begin, so that all of it fits into the lease. A leader stops at its own, earlier deadline; of the time
between the two no more than half is given away."""


class LeadershipLost(Exception):
    """The lease is no longer ours, or may no longer be; the process must end before its next write."""


class _Spec(msgspec.Struct, gc=False, rename="camel", omit_defaults=True):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class _Meta(msgspec.Struct, gc=False, rename="camel"):
    resource_version: str = ""


class _Lease(msgspec.Struct, gc=False):
    metadata: _Meta
    spec: _Spec | None = None


decode = msgspec.json.Decoder(_Lease).decode
"""Reads a lease as the API server has it. Raises `msgspec.DecodeError`, a ValueError."""


def unique_identity() -> str:
    """Return an identity that no other process has: host, process and a random part."""
    return f"{socket.gethostname()}_{os.getpid()}_{uuid.uuid4().hex[:8]}"


def _micro_time() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


class Elector:
    """One candidate. `run` it; await `leading`; ask `may_write` before every write.

    lease_duration > renew_deadline > retry_period, in seconds. floor: the highest epoch that anything still carries, so
    that the epoch grows even after somebody deleted the lease.
    """

    def __init__(
        self,
        client: ApiClient,
        namespace: str,
        name: str,
        identity: str,
        lease_duration: float = 15.0,
        renew_deadline: float = 10.0,
        retry_period: float = 2.0,
        clock: Callable[[], float] = time.monotonic,
        *,
        floor: Callable[[], int] = lambda: 0,
        seed: int | None = None,
    ) -> None:
        if not lease_duration > renew_deadline > retry_period > 0:
            raise ValueError("lease_duration > renew_deadline > retry_period > 0 must hold")
        self.identity = identity
        self.epoch: int | None = None
        self.holder = ""
        self.leading = asyncio.Event()
        self.lost = asyncio.Event()
        self.problem = ""
        self._client = client
        self._path = path_of("coordination.k8s.io", "v1", "leases", namespace, name)
        self._collection = path_of("coordination.k8s.io", "v1", "leases", namespace)
        self._namespace = namespace
        self._name = name
        self._duration = lease_duration
        self._deadline = renew_deadline
        self._retry = retry_period
        self._clock = clock
        self._floor = floor
        self._random = random.Random(seed)
        self._renewed = -math.inf
        self._acquired_at = ""
        self._lease: dict[str, Any] | None = None
        self._observed: tuple[str, float] = ("", 0.0)
        self._free_at = 0.0
        self._claim: tuple[int, str] | None = None

    # -- what others ask ------------------------------------------------------------------------------------------

    def may_write(self) -> bool:
        """Whether this process leads for certain, as of now."""
        return self.leading.is_set() and not self.lost.is_set() and self._left() >= 0

    def _left(self) -> float:
        return self._renewed + self._deadline - self._clock()

    # -- running --------------------------------------------------------------------------------------------------

    async def run(self) -> NoReturn:
        """Become leader and stay it. Raises `LeadershipLost`; when cancelled, gives the lease back first.

        Stop everything that writes before cancelling this.
        """
        try:
            while True:
                if await self.try_acquire():
                    break
                await asyncio.sleep(self.pause())
            log.info("leading", identity=self.identity, epoch=self.epoch)
            wait = self._retry
            while True:
                await asyncio.sleep(min(wait, max(0.0, self._left())))
                wait = self._retry if await self.renew() else self._retry / 2
        except asyncio.CancelledError:
            await self.release()
            raise

    # -- candidate ------------------------------------------------------------------------------------------------

    def pause(self) -> float:
        """Return the seconds after which a candidate looks again: never later than when the lease would be free."""
        usual, left = self._retry / _LOOKS * self._random.uniform(1.0, _JITTER), self._free_at - self._clock()
        return min(usual, left) if left > 0 else usual

    async def try_acquire(self) -> bool:
        """Look at the lease once and take it if it is free; say whether it is ours now."""
        try:
            taken = await self._try_acquire()
            self.problem = ""
        except (RequestFailed, msgspec.DecodeError, TimeoutError) as error:
            if str(error) != self.problem:
                log.warning("the lease cannot be read or taken", lease=self._path, problem=str(error))
            self.problem = str(error) or type(error).__name__
            return False
        return taken

    async def _try_acquire(self) -> bool:
        try:
            body = await self._call("GET", self._path)
        except ApiError as error:
            if error.status != 404:
                raise
            return await self._take(None, 0)
        lease = decode(body)
        spec = lease.spec or _Spec()
        self.holder = spec.holder_identity or ""
        transitions = spec.lease_transitions or 0
        if self._claim == (transitions, spec.acquire_time or "") and self.holder == self.identity:
            # Our own claim, whose answer was lost. Its age is unknown: renew it before believing it.
            return await self._take(msgspec.json.decode(body), transitions, again=True)
        if self._observed[0] != lease.metadata.resource_version:
            self._observed = (lease.metadata.resource_version, self._clock())
        self._free_at = self._observed[1] + self._good_for(spec.lease_duration_seconds) if self.holder else 0.0
        if self._clock() < self._free_at:
            return False
        return await self._take(msgspec.json.decode(body), transitions)

    def _good_for(self, seconds: int | None) -> float:
        """Return for how many seconds somebody else's renewal counts, from when it was seen."""
        if seconds is None or seconds != self._seconds():
            return seconds or self._duration  # when such a leader stops is not known: it has other settings
        return seconds - min(_EARLY * self._retry, (self._duration - self._deadline) / 2)

    def _seconds(self) -> int:
        return max(1, math.ceil(self._duration))

    async def _take(self, lease: dict[str, Any] | None, transitions: int, *, again: bool = False) -> bool:
        epoch = transitions if again else max(transitions, self._floor()) + 1
        now = _micro_time()
        acquired = self._claim[1] if again and self._claim is not None else now
        began = self._clock()
        body = self._body(lease, epoch, self.identity, acquired, now)
        try:
            if lease is None:
                answer = await self._call("POST", self._collection, body)
            else:
                answer = await self._call("PUT", self._path, body)
        except OutcomeUnknown:
            self._claim = (epoch, acquired)
            raise
        except ApiError as error:
            if error.ambiguous:
                self._claim = (epoch, acquired)
            if error.status == 409:
                return False  # another candidate was faster
            raise
        self._lease = msgspec.json.decode(answer)
        self._acquired_at = acquired
        self._renewed = began
        if self._left() < 0:
            return False  # it took longer than the lease is good for
        self.epoch = epoch
        self.holder = self.identity
        self.leading.set()
        return True

    # -- leader ---------------------------------------------------------------------------------------------------

    async def renew(self, *, again: bool = True) -> bool:
        """Renew once; False when it failed and may be tried again. Raises `LeadershipLost`.

        again: whether to try once more at once when the lease turns out to be ours in a newer version.
        """
        if not self.may_write():
            self._lose(f"not renewed for {self._deadline:g} s" + (f": {self.problem}" if self.problem else ""))
        began = self._clock()
        epoch = self.epoch or 0
        try:
            body = self._body(self._lease, epoch, self.identity, self._acquired_at, _micro_time())
            self._lease = msgspec.json.decode(await self._call("PUT", self._path, body))
        except ApiError as error:
            if error.status == 404:
                self._lose("the lease was deleted")
            if error.status == 409:
                return await self._look_after_conflict() and again and await self.renew(again=False)
            return self._failed(error)
        except (RequestFailed, msgspec.DecodeError, TimeoutError) as error:
            return self._failed(error)
        self._renewed = began
        self.problem = ""
        return True

    async def _look_after_conflict(self) -> bool:
        """Somebody wrote the lease: ourselves, when an answer was lost; a person's annotation; or another leader.

        Return whether it is still ours, and was read again.
        """
        try:
            body = await self._call("GET", self._path)
            spec = decode(body).spec or _Spec()
        except ApiError as error:
            if error.status == 404:
                self._lose("the lease was deleted")
            return self._failed(error)
        except (RequestFailed, msgspec.DecodeError, TimeoutError) as error:
            return self._failed(error)
        if spec.holder_identity != self.identity or (spec.lease_transitions or 0) != self.epoch:
            self.holder = spec.holder_identity or ""
            self._lose(f"the lease is held by {self.holder or 'nobody'}")
        self._lease = msgspec.json.decode(body)
        return True

    def _failed(self, error: Exception) -> bool:
        self.problem = str(error) or type(error).__name__
        log.warning("the lease could not be renewed", lease=self._path, problem=self.problem, seconds_left=self._left())
        return False

    def _lose(self, why: str) -> NoReturn:
        self.lost.set()
        log.error("leadership lost", why=why, epoch=self.epoch)
        raise LeadershipLost(why)

    async def release(self) -> None:
        """Give the lease back, if it is certainly ours, so that the next leader need not wait. From here on nothing may
        be written."""
        held = self.may_write()
        self.lost.set()
        if not held or self._lease is None:
            return
        body = self._body(self._lease, self.epoch or 0, "", self._acquired_at, _micro_time())
        try:
            await self._call("PUT", self._path, body)
            log.info("lease released", epoch=self.epoch)
        except (RequestFailed, TimeoutError) as error:
            log.warning("the lease could not be released; it will expire", problem=str(error))

    # -- requests -------------------------------------------------------------------------------------------------

    async def _call(self, method: str, path: str, body: Any = None) -> bytes:
        """One request that never outlives its use.

        A candidate looks again after the retry period anyway. A leader has more to lose: a busy API server gets half of
        the deadline for one renewal, so that there is time for a second, and never more than is left of it.
        """
        leads = self.leading.is_set() and not self.lost.is_set()
        limit = max(0.001, min(self._deadline / 2, self._left())) if leads else self._retry
        return await self._client.request(method, path, body=body, timeout=limit, retries=0, urgent=True)

    def _body(
        self, lease: dict[str, Any] | None, epoch: int, holder: str, acquired: str, renewed: str
    ) -> dict[str, Any]:
        """The lease as it shall be; what others have put into its metadata stays."""
        base = lease or {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": self._name, "namespace": self._namespace},
        }
        spec = {
            "holderIdentity": holder,
            "leaseDurationSeconds": self._seconds() if holder else 1,
            "acquireTime": acquired,
            "renewTime": renewed,
            "leaseTransitions": epoch,
        }
        return {**base, "spec": {**(base.get("spec") or {}), **spec}}
