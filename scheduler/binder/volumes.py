"""The volumes of a gang, bound before its first pod: the step of the binder that `PREPARING` waits for.

Decided here: how a claim is told its node and a volume is given to a claim (each write only onto the version that was
read, so that whatever somebody else does in between is seen), what the signals of failure are, and what is taken back.
All claims of a gang are written first and then watched together; the gang waits as long as its minimum can still be
reached. Must not know why a volume was chosen. Nothing is kept: after a crash the objects themselves tell what was
done, and doing it again changes nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec
import structlog

from scheduler.binder.causes import DEADLINE, POD_GONE
from scheduler.binder.check import NODE_GONE
from scheduler.binder.objects import Api
from scheduler.binder.pool import LeaseLost
from scheduler.binder.record import Failure
from scheduler.cluster import feed
from scheduler.cluster.client import MERGE, ApiError, RequestFailed
from scheduler.dialects.storage import decode_claim, decode_volume
from scheduler.model.decisions import Place
from scheduler.model.nodes import Node
from scheduler.model.pods import Pod
from scheduler.model.podvolumes import VolumeStep
from scheduler.model.volumes import Claim, Volume, reaches

log = structlog.get_logger(__name__)

CLAIM_GONE = "ClaimGone"
CLAIM_TAKEN = "ClaimElsewhere"
VOLUME_GONE = "VolumeGone"
VOLUME_TAKEN = "VolumeTaken"
PROVISIONING = "ProvisioningFailed"
UNREACHED = "VolumeNotOnNode"
REFUSED = "VolumeWriteRefused"
TIMEOUT = "VolumeBindingTimeout"
"""Causes that this step gives."""

SELECTED_NODE = "volume.kubernetes.io/selected-node"
BOUND_BY = "pv.kubernetes.io/bound-by-controller"

_FIRST_WAIT, _LAST_WAIT = 0.1, 5.0
_LOOK = 5.0
"""Seconds after which everything is looked at again even if nothing was seen to happen."""
_SETTLE = 2.0
"""Seconds that taking back waits for the watch to show it, so that nobody decides on what was there before."""


class Cache(Protocol):
    """The picture of the cluster."""

    def pod(self, uid: str) -> Pod | None:
        """Return the pod with this uid."""

    def node(self, name: str) -> Node | None:
        """Return the node of this name."""

    def claim(self, key: str) -> Claim | None:
        """Return the claim "namespace/name"."""

    def volume(self, name: str) -> Volume | None:
        """Return the volume of this name."""

    def subscribe(self, callback: Callable[[list[feed.Event]], None], *, replay: bool = True) -> Callable[[], None]:
        """Deliver every batch of events."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Seconds, and requests at once. time: how long volumes of one gang may take."""

    time: float = 600.0
    in_flight: int = 32
    timeout: float = 10.0


@dataclass(slots=True, eq=False)
class _Work:
    """One step under way. `version`: of our own write; an older object in the cache does not show it yet."""

    member: int
    step: VolumeStep
    node: str
    version: int = 0

    @property
    def key(self) -> str:
        return f"{self.step.namespace}/{self.step.claim}"


@dataclass(slots=True, eq=False)
class _Watcher:
    """Who wants to know when one of these objects changes."""

    names: frozenset[str]
    woken: asyncio.Event = field(default_factory=asyncio.Event)


class VolumeBinding:
    """See the module. A `PreStep` of the binder."""

    name = "volumes"

    def __init__(
        self,
        cache: Cache,
        api: Api,
        may_write: Callable[[], bool],
        *,
        settings: Settings | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._cache = cache
        self._api = api
        self._may_write = may_write
        self._settings = settings or Settings()
        self._clock = clock
        self._watchers: dict[int, _Watcher] = {}
        self._unsubscribe: Callable[[], None] | None = None
        self._gate: asyncio.Semaphore | None = None

    # -- the port -------------------------------------------------------------------------------------------------

    async def prepare(
        self,
        place: Place,
        members: tuple[int, ...],
        *,
        until: Callable[[], float],
        withdrawn: Callable[[], bool],
    ) -> tuple[Failure, ...]:
        """Bind the claims of these members; return the members whose claims are not."""
        works = _works(place, members)
        if not works:
            return ()
        began = self._clock()

        def ends() -> float:
            return min(until(), began + self._settings.time)

        spare = len(place.assignments) - max(1, place.minimum)
        with _Watching(self, works) as watcher:
            failures: dict[int, Failure] = {}
            causes = await asyncio.gather(*(self._begin(work, ends) for work in works))
            for work, cause in zip(works, causes, strict=True):
                if cause:
                    failures.setdefault(work.member, _failure(work, cause))
            while True:
                watcher.woken.clear()
                waiting = self._look(works, failures)
                if not waiting or len(failures) > spare or withdrawn():
                    break
                left = ends() - self._clock()
                if left <= 0:
                    for work in waiting:
                        failures.setdefault(work.member, _failure(work, TIMEOUT))
                    break
                try:
                    async with asyncio.timeout(min(left, _LOOK)):
                        await watcher.woken.wait()
                except TimeoutError:
                    continue
        for failure in failures.values():
            log.warning("binder.volumes", group=place.group, cause=failure.cause, claim=failure.about)
        return tuple(failures[member] for member in sorted(failures))

    async def undo(self, place: Place, members: tuple[int, ...]) -> None:
        """Take back what is not bound: the node that a claim was told, the claim that a volume was given to."""
        works = [work for work in _works(place, members) if not work.step.kept]
        await asyncio.gather(*(self._take_back(work) for work in works))

    # -- watching -------------------------------------------------------------------------------------------------

    def watch(self, watcher: _Watcher) -> None:
        """Wake a watcher when something that it names changes."""
        if self._unsubscribe is None:
            self._unsubscribe = self._cache.subscribe(self._on_events, replay=False)
        self._watchers[id(watcher)] = watcher

    def forget(self, watcher: _Watcher) -> None:
        """End it."""
        del self._watchers[id(watcher)]
        if not self._watchers and self._unsubscribe is not None:
            self._unsubscribe()
            self._unsubscribe = None

    def _on_events(self, events: list[feed.Event]) -> None:
        names: set[str] = set()
        for event in events:
            match event:
                case feed.ClaimSet(claim=claim):
                    names.add(claim.key)
                case feed.VolumeSet(volume=volume):
                    names.update((volume.name, volume.claim))
                case feed.StorageGone(key=key):
                    names.add(key)
                case feed.PodSet(pod=pod):
                    names.add(pod.uid)
                case feed.PodGone(uid=uid):
                    names.add(uid)
                case feed.RequestGone():
                    names.add("")
                case _:
                    pass
        for watcher in self._watchers.values():
            if not watcher.names.isdisjoint(names):
                watcher.woken.set()

    def _look(self, works: Iterable[_Work], failures: dict[int, Failure]) -> list[_Work]:
        """Return the steps that are still waited for; note those that have failed."""
        waiting = []
        for work in works:
            if work.member in failures:
                continue
            ready, cause = self._state(work)
            if cause:
                failures[work.member] = _failure(work, cause)
            elif not ready:
                waiting.append(work)
        return waiting

    def _state(self, work: _Work) -> tuple[bool, str]:
        """Return whether a claim is bound to a volume that its node reaches, or why it will not be."""
        pod, node = self._cache.pod(work.step.uid), self._cache.node(work.node)
        if pod is None or pod.deleting:
            return False, POD_GONE
        if node is None:
            return False, NODE_GONE
        claim = self._cache.claim(work.key)
        if claim is None or claim.uid != work.step.claim_uid or claim.deleting or claim.lost:
            return False, CLAIM_GONE
        if claim.bound:
            volume = self._cache.volume(claim.volume)
            if volume is None:
                return False, ""
            return (True, "") if reaches(volume, dict(node.labels)) else (False, UNREACHED)
        if not work.step.volume:
            if claim.selected == work.node or claim.volume or _number(claim.resource_version) < work.version:
                return False, ""
            return False, PROVISIONING
        volume = self._cache.volume(work.step.volume)
        if volume is None:
            return False, VOLUME_GONE
        if volume.claim_uid == claim.uid or (work.step.kept and volume.given_to(claim)):
            return False, ""
        return False, "" if _number(volume.resource_version) < work.version else VOLUME_TAKEN

    # -- writing --------------------------------------------------------------------------------------------------

    async def _begin(self, work: _Work, ends: Callable[[], float]) -> str:
        """Write what a step wants; return why it cannot be, or ""."""
        if work.step.kept:
            return ""
        wait, fresh = _FIRST_WAIT, False
        while True:
            try:
                if work.step.volume:
                    return await self._give(work, fresh=fresh)
                return await self._choose(work, fresh=fresh)
            except ApiError as error:
                if error.status == 404:
                    return VOLUME_GONE if work.step.volume else CLAIM_GONE
                if error.status in (400, 401, 403, 422):
                    log.error("binder.volumes.refused", claim=work.key, error=str(error))
                    return REFUSED
                if error.status != 409:
                    log.warning("binder.volumes.write", claim=work.key, error=str(error))
            except RequestFailed as error:
                log.warning("binder.volumes.write", claim=work.key, error=str(error))
            fresh = True
            if self._clock() + wait >= ends():
                return DEADLINE
            await asyncio.sleep(wait)
            wait = min(_LAST_WAIT, wait * 2)

    async def _choose(self, work: _Work, *, fresh: bool) -> str:
        """Tell a claim its node. Raises `RequestFailed`; 409 when it is not as it was read."""
        known = None if fresh else self._cache.claim(work.key)
        claim = known or decode_claim(await self._send("GET", _claim_path(work.step)))
        if claim.uid != work.step.claim_uid:
            return CLAIM_GONE
        if claim.volume or claim.selected == work.node:
            return ""
        if claim.selected and known is not None:
            claim = decode_claim(await self._send("GET", _claim_path(work.step)))
        if claim.selected and claim.selected != work.node:
            return CLAIM_TAKEN
        note = {"annotations": {SELECTED_NODE: work.node}}
        body = {"metadata": {"uid": claim.uid, "resourceVersion": claim.resource_version, **note}}
        written = decode_claim(await self._send("PATCH", _claim_path(work.step), body))
        work.version = _number(written.resource_version)
        return ""

    async def _give(self, work: _Work, *, fresh: bool) -> str:
        """Give a volume to a claim. Raises `RequestFailed`; 409 when it is not as it was read."""
        step = work.step
        known = None if fresh else self._cache.volume(step.volume)
        volume = known or decode_volume(await self._send("GET", _volume_path(step)))
        if volume.claim and volume.claim_uid != step.claim_uid and known is not None:
            volume = decode_volume(await self._send("GET", _volume_path(step)))
        if volume.claim_uid == step.claim_uid:
            return ""
        if volume.claim:
            return VOLUME_TAKEN
        reference = {
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": step.namespace, "name": step.claim,
            "uid": step.claim_uid,
        }  # fmt: skip
        head = {"uid": volume.uid, "resourceVersion": volume.resource_version, "annotations": {BOUND_BY: "yes"}}
        body = {"metadata": head, "spec": {"claimRef": reference}}
        written = decode_volume(await self._send("PATCH", _volume_path(step), body))
        work.version = _number(written.resource_version)
        return ""

    async def _take_back(self, work: _Work) -> None:
        wait = _FIRST_WAIT
        while True:
            try:
                if work.step.volume:
                    await self._take_volume(work)
                else:
                    await self._free_claim(work)
                return
            except ApiError as error:
                if error.status == 404:
                    return
                if error.status in (400, 401, 403, 422):
                    log.error("binder.volumes.refused", claim=work.key, error=str(error))
                    return
                if error.status != 409:
                    log.warning("binder.volumes.undo", claim=work.key, error=str(error))
            except RequestFailed as error:
                log.warning("binder.volumes.undo", claim=work.key, error=str(error))
            await asyncio.sleep(wait)
            wait = min(_LAST_WAIT, wait * 2)

    async def _free_claim(self, work: _Work) -> None:
        claim = decode_claim(await self._send("GET", _claim_path(work.step)))
        if claim.uid != work.step.claim_uid or claim.volume or claim.selected != work.node:
            return
        note = {"annotations": {SELECTED_NODE: None}}
        body = {"metadata": {"uid": claim.uid, "resourceVersion": claim.resource_version, **note}}
        written = decode_claim(await self._send("PATCH", _claim_path(work.step), body))
        await self._settle(lambda: self._cache.claim(work.key), _number(written.resource_version))

    async def _take_volume(self, work: _Work) -> None:
        step = work.step
        volume = decode_volume(await self._send("GET", _volume_path(step)))
        if volume.claim_uid != step.claim_uid:
            return
        claim = self._cache.claim(work.key)
        if claim is not None and claim.uid == step.claim_uid:
            claim = decode_claim(await self._send("GET", _claim_path(step)))
            if claim.volume == step.volume:
                return  # it is bound, or about to be: the claim keeps its volume for the next try
        head = {"uid": volume.uid, "resourceVersion": volume.resource_version, "annotations": {BOUND_BY: None}}
        written = decode_volume(
            await self._send("PATCH", _volume_path(step), {"metadata": head, "spec": {"claimRef": None}})
        )
        await self._settle(lambda: self._cache.volume(step.volume), _number(written.resource_version))

    async def _settle(self, read: Callable[[], Claim | Volume | None], version: int) -> None:
        """Wait a moment for the watch to show a write."""
        for _ in range(int(_SETTLE / 0.02)):
            now = read()
            if now is None or _number(now.resource_version) >= version:
                return
            await asyncio.sleep(0.02)

    async def _send(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> bytes:
        if self._gate is None:
            self._gate = asyncio.Semaphore(self._settings.in_flight)
        async with self._gate:
            if method != "GET" and not self._may_write():
                raise LeaseLost("the lease is not held: the binder stops writing")
            return await self._api.request(
                method,
                path,
                body=msgspec.json.encode(body) if body is not None else None,
                content_type=MERGE if body is not None else "application/json",
                timeout=self._settings.timeout,
            )


class _Watching:
    """A watcher for as long as a block runs."""

    def __init__(self, steps: VolumeBinding, works: Iterable[_Work]) -> None:
        names = {name for work in works for name in (work.key, work.step.volume, work.step.uid)}
        self._steps, self._watcher = steps, _Watcher(frozenset(names | {""}))

    def __enter__(self) -> _Watcher:
        self._steps.watch(self._watcher)
        return self._watcher

    def __exit__(self, *_: object) -> None:
        self._steps.forget(self._watcher)


def _works(place: Place, members: Iterable[int]) -> list[_Work]:
    by_uid = {place.assignments[member].uid: member for member in members}
    return [
        _Work(by_uid[step.uid], step, place.assignments[by_uid[step.uid]].node)
        for step in place.steps
        if step.uid in by_uid
    ]


def _failure(work: _Work, cause: str) -> Failure:
    return Failure(work.member, cause, permanent=cause == POD_GONE, about=f"claim {work.key}")


def _number(version: str) -> int:
    return int(version) if version.isdigit() else 0


def _claim_path(step: VolumeStep) -> str:
    return f"/api/v1/namespaces/{step.namespace}/persistentvolumeclaims/{step.claim}"


def _volume_path(step: VolumeStep) -> str:
    return f"/api/v1/persistentvolumes/{step.volume}"
