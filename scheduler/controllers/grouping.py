"""Groups for pods whose owners state none: one PodGroup for each owner whose pods start together.

Decided here: which pods stand in whose gang (a pod of ours that names no group and no minimum belongs to the topmost
known owner above it), when a PodGroup is written for it, kept up to date and taken away, and that a pod is not shown to
the sessions before it is known where it belongs, so that none of a gang starts alone. A pod that is bound is always
shown. Where no PodGroup can be written the pods are a gang all the same, without an object, and it is said why. Written
by the leader only. Must not know: how many pods an owner needs (`dialects.owners`), nor how gangs are placed.

Invariants: a group is named after its owner's uid, so that an owner that is made again has another one; it is owned by
its owner, so that it goes with it; only groups with the label `MADE_FOR` are ever changed or deleted.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import structlog

from scheduler.cluster import feed
from scheduler.cluster.cache import Cache
from scheduler.cluster.client import ApiError, RequestFailed, path_of
from scheduler.controllers.kin import Following, Kin
from scheduler.dialects.owners import OwnerKind, group_for, group_name, group_spec
from scheduler.model.groups import PodGroup
from scheduler.model.owners import Owner, Reference, without_object
from scheduler.model.pods import Pod, Shape

log = structlog.get_logger(__name__)

HOLD = 10.0
"""Seconds for which a pod that waits is not shown, at most, because it is not known where it belongs."""
TICK = 0.25
_FIRST_WAIT, _LAST_WAIT = 0.2, 30.0
_AT_ONCE = 8


class Client(Protocol):
    """The API server."""

    async def request(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        content_type: str = ...,
        accept: str | None = None,
    ) -> bytes:
        """Send one request. Raises `RequestFailed`."""


class Meter(Protocol):
    """Counters."""

    def count(self, name: str, amount: float = 1.0, **labels: str) -> None:
        """Add to a counter."""


@dataclass(slots=True)
class _Gang:
    """An owner with its pods. virtual: why no object can be written for it. gone: the owner is not there any more."""

    owner: Owner
    pods: dict[str, None] = field(default_factory=dict)
    virtual: str = ""
    gone: bool = False


@dataclass(frozen=True, slots=True)
class _Ask:
    """An object without which it cannot be told where some pods belong, and since when (seconds) that is so."""

    missing: Reference
    namespace: str
    since: float


async def woken(wake: asyncio.Event, pause: float | None) -> None:
    """Wait until there is something to do, so many seconds at most, and take note of it."""
    with suppress(TimeoutError):
        async with asyncio.timeout(pause):
            await wake.wait()
    wake.clear()


class Grouping:
    """See the module. A sink for pods and, by `owners` and `jobs`, for what stands above them; `run` until cancelled.

    following: how a kind is read. may_write: whether this process leads. tell: hears of an owner that has no object for
    its gang, the scheduler that its pods ask for, and why. decides: where another process writes the groups, whether
    this one leads the sessions; it waits for each group, and goes on without its object where none is made in time.
    """

    def __init__(
        self,
        cache: Cache,
        client: Client,
        kinds: Iterable[OwnerKind],
        *,
        following: Callable[[OwnerKind], Following],
        may_write: Callable[[], bool],
        meter: Meter,
        tell: Callable[[Owner, str, str], None] = lambda *_: None,
        decides: Callable[[], bool] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.kinds = tuple(kinds)
        self.kin = Kin(client, self.kinds, following)
        self._cache, self._client, self._meter, self._clock = cache, client, meter, clock
        self._following, self._may_write, self._tell = following, may_write, tell
        self._written_elsewhere = decides is not None
        self._decides = decides or may_write
        self._raw: dict[str, tuple[Pod, Shape]] = {}
        self._of: dict[str, str] = {}
        self._gangs: dict[str, _Gang] = {}
        self._key_of: dict[str, str] = {}
        self._asks: dict[str, _Ask] = {}
        self._waiting: dict[str, dict[str, None]] = {}
        self._waits_for: dict[str, str] = {}
        self._held: dict[str, float] = {}
        self._dirty: dict[str, None] = {}
        self._missing: dict[str, float] = {}
        """By owner: since when the group is missing that another process is to make."""
        self._failures: dict[str, tuple[int, float]] = {}
        """By owner: how often in a row it could not be written, and before when it is not tried again."""
        self._wake = asyncio.Event()
        self._led = False

    # -- pods in --------------------------------------------------------------------------------------------------

    def put(self, value: tuple[Pod, Shape]) -> None:
        """A pod appeared or changed."""
        pod = value[0]
        if not self._concerns(pod):
            self._forget(pod.uid)
            self._cache.pods.put(value)
            return
        self._raw[pod.uid] = value
        self._show(pod.uid)

    def drop(self, uid: str) -> None:
        """A pod is gone."""
        self._forget(uid)
        self._cache.pods.drop(uid)

    def _concerns(self, pod: Pod) -> bool:
        if not pod.ours or not pod.owner_uid or pod.group or pod.min_member:
            return False
        if pod.uid in self._of:
            return True
        if not self.kin.starts(pod.owner_api, pod.owner_kind, pod.owner_uid):
            return False
        return any(self._following(kind) in (Following.PENDING, Following.FOLLOWED) for kind in self.kinds)

    def _forget(self, uid: str) -> None:
        if self._raw.pop(uid, None) is None and uid not in self._of:
            return
        self._held.pop(uid, None)
        self._waits_no_more(uid)
        owner = self._of.pop(uid, "")
        gang = self._gangs.get(owner)
        if gang is not None and gang.pods.pop(uid, uid) is None and not gang.pods:
            self._mark(owner)

    def _show(self, uid: str) -> None:
        """Pass a pod on as what it is, or hold it until that is known."""
        pod, shape = self._raw[uid]
        gang = self._gang_of(pod)
        if gang is None:
            if self._hold(pod):
                return
            if uid not in self._waits_for:
                del self._raw[uid]
            shown = pod
        else:
            gang.pods[uid] = None
            self._of[uid] = gang.owner.uid
            shown = self._as_member(pod, gang)
            if shown.group and shown.group not in self._cache.groups.by_key:
                self._mark(gang.owner.uid)
                if self._written_elsewhere:
                    self._missing.setdefault(gang.owner.uid, self._clock())
                if self._decides() and not gang.gone and self._hold(pod):
                    return
        self._held.pop(uid, None)
        self._cache.pods.put((shown, shape))

    def _gang_of(self, pod: Pod) -> _Gang | None:
        """Return the gang of a pod; None when it has none, or when that is not known yet (it then waits)."""
        known = self._of.get(pod.uid)
        if known is not None:
            return self._gangs.get(known)
        owner, missing = self.kin.climb(_controller(pod))
        self._waits_no_more(pod.uid)
        if missing is not None:
            self._waits_for[pod.uid] = missing.uid
            self._waiting.setdefault(missing.uid, {})[pod.uid] = None
            if missing.uid not in self._asks:
                self._asks[missing.uid] = _Ask(missing, pod.namespace, self._clock())
                self._wake.set()
            return None
        if owner is None:
            return None
        return self._gangs.setdefault(owner.uid, _Gang(owner))

    def _waits_no_more(self, uid: str) -> None:
        missing = self._waits_for.pop(uid, "")
        if missing in self._waiting:
            self._waiting[missing].pop(uid, None)

    def _as_member(self, pod: Pod, gang: _Gang) -> Pod:
        owner = gang.owner
        if owner.problems:  # a group that was made keeps its members and its last number
            group = self._key(owner) if self._made(owner.uid) is not None else ""
            return replace(pod, group=group, problems=(*pod.problems, *owner.problems))
        if owner.minimum < 2 or gang.virtual:
            return without_object(pod, owner)
        return replace(pod, group=self._key(owner))

    def _hold(self, pod: Pod) -> bool:
        """Whether a pod must not be shown now: it could be bound, nobody has seen it yet, and something is missing."""
        missing = pod.uid in self._waits_for or pod.uid in self._of
        if not missing or not pod.waiting or pod.gated or pod.uid in self._cache.pods.pods:
            return False
        since = self._held.setdefault(pod.uid, self._clock())
        self._wake.set()
        return self._clock() - since < HOLD

    def _key(self, owner: Owner) -> str:
        key = f"muster/{owner.namespace}/{group_name(owner.reference)}"
        self._key_of[key] = owner.uid
        return key

    def _show_all(self, owner: str) -> None:
        gang = self._gangs.get(owner)
        for uid in tuple(gang.pods) if gang is not None else ():
            self._show(uid)

    def _unblock(self, missing: str) -> None:
        """Look again at the pods that waited for one object."""
        self._asks.pop(missing, None)
        for uid in self._waiting.pop(missing, ()):
            if uid in self._raw:
                self._show(uid)

    # -- what stands above pods -----------------------------------------------------------------------------------

    def saw_owner(self, owner: Owner) -> None:
        """An owner of a known kind appeared or changed."""
        self.kin.saw(owner)
        gang = self._gangs.get(owner.uid)
        if gang is not None and (gang.gone or gang.owner != owner):
            alike = not gang.gone and replace(owner, resource_version=gang.owner.resource_version) == gang.owner
            gang.owner, gang.gone = owner, False
            if not alike:
                gang.virtual = ""
                self._failures.pop(owner.uid, None)
                self._show_all(owner.uid)
                self._mark(owner.uid)
        self._unblock(owner.uid)

    def lost_owner(self, uid: str) -> None:
        """An owner is gone."""
        if self.kin.owners.pop(uid, None) is not None and uid in self._gangs:
            self._gangs[uid].gone = True
            self._mark(uid)

    def saw_job(self, uid: str, above: Reference | None) -> None:
        """A Job appeared; above: its controller."""
        self.kin.jobs[uid] = above
        self._unblock(uid)

    def lost_job(self, uid: str) -> None:
        """A Job is gone."""
        self.kin.jobs.pop(uid, None)

    def watch(self, events: list[feed.Event]) -> None:
        """What the cache tells: groups come, change and go."""
        for event in events:
            if isinstance(event, feed.GroupSet) and event.group.dialect == "muster":
                key = event.group.key
                self._is_made(event.group)
                if event.group.made_for and self._led:
                    self._mark(event.group.made_for)
            elif isinstance(event, feed.GroupGone):
                key = event.key
            else:
                continue
            owner = self._key_of.get(key)
            if owner is not None:
                self._mark(owner)
                asyncio.get_running_loop().call_soon(self._show_all, owner)

    def _is_made(self, group: PodGroup) -> None:
        self._missing.pop(group.made_for, None)
        gang = self._gangs.get(group.made_for)
        if self._written_elsewhere and gang is not None:
            gang.virtual = ""

    # -- groups out -----------------------------------------------------------------------------------------------

    def lead(self) -> None:
        """This process may write now: look at everything once."""
        self._led = True
        for owner in self._gangs:
            self._mark(owner)
        for group in self._cache.groups.by_key.values():
            if group.made_for:
                self._mark(group.made_for)

    @property
    def problems(self) -> dict[str, str]:
        """What is not as it should be: owners without an object for their gang, kinds that cannot be read."""
        found = {gang.owner.title: gang.virtual for gang in self._gangs.values() if gang.virtual}
        found |= {one.field.split(": ")[0]: one.message for g in self._gangs.values() for one in g.owner.problems}
        return dict(sorted({**found, **self.kin.unclear}.items()))

    def _mark(self, owner: str) -> None:
        self._dirty[owner] = None
        self._wake.set()

    async def run(self) -> None:
        """Read what is missing, write what is due, let go of what was held too long."""
        while True:
            await woken(self._wake, TICK if self._held or self._asks or self._dirty or self._missing else None)
            await self.step()

    async def step(self) -> None:
        """Do once what is due now."""
        await self._climb()
        self._let_go(self._clock())
        await self._write(self._clock())

    async def _climb(self) -> None:
        """Look for what is missing: it is waited for, or read; what cannot be read now is tried at the next step."""
        unread = []
        for ask in tuple(self._asks.values()):
            if self.kin.watched(ask.missing):
                self._wait_for(ask)
            else:
                unread.append((ask.namespace, ask.missing))
        if await self.kin.look_up(unread, self._asks, self._unblock):
            self._wake.set()

    def _wait_for(self, ask: _Ask) -> None:
        """Wait for an owner that a watch will show, but not for ever for one that is not there."""
        missing = ask.missing
        if not any(uid in self._raw for uid in self._waiting.get(missing.uid, ())):
            self._unblock(missing.uid)
        elif self.kin.climb(missing)[1] is None:
            self._unblock(missing.uid)  # its kind turned out not to be readable
        elif self._clock() - ask.since >= HOLD and self.kin.follows(missing):
            self.kin.give_up(missing)
            self._unblock(missing.uid)

    def _let_go(self, now: float) -> None:
        for uid in [uid for uid, since in self._held.items() if now - since >= HOLD]:
            if uid in self._raw:
                self._show(uid)
            self._held.pop(uid, None)
        for owner in [uid for uid, since in self._missing.items() if now - since >= HOLD]:
            if owner not in self._gangs or self._decides():
                del self._missing[owner]
                self._do_without_object(owner)

    def _do_without_object(self, owner: str) -> None:
        """Let a gang start whole without an object where another process should have made one, and has not."""
        gang = self._gangs.get(owner)
        if gang is not None and not gang.virtual and self._made(owner) is None:
            gang.virtual = f"no PodGroup was made for it within {HOLD:g} s: does the controllers' process run?"
            log.warning("group_missing", owner=gang.owner.title, problem=gang.virtual)
            self._show_all(owner)

    async def _write(self, now: float) -> None:
        if not self._may_write():
            if not self._led:
                for uid in self._dirty:
                    self._forget_idle(uid)
                self._dirty.clear()  # `lead` marks everything
            return
        due = [uid for uid in self._dirty if self._failures.get(uid, (0, now))[1] <= now]
        for start in range(0, len(due), _AT_ONCE):
            some = due[start : start + _AT_ONCE]
            for uid in some:
                self._dirty.pop(uid, None)
            await asyncio.gather(*(self._reconcile(uid) for uid in some))

    def _made(self, uid: str) -> PodGroup | None:
        """The group that was made for an owner."""
        gang = self._gangs.get(uid)
        if gang is not None:
            group = self._cache.groups.by_key.get(self._key(gang.owner))
            return group if group is not None and group.made_for == uid else None
        made = (group for group in self._cache.groups.by_key.values() if group.made_for == uid)
        return next(made, None)

    async def _reconcile(self, uid: str) -> None:
        gang, group = self._gangs.get(uid), self._made(uid)
        owner = self.kin.owners.get(uid)
        try:
            if group is not None and self._is_left(uid, owner):
                await self._request("deleted", "DELETE", group, {"preconditions": {"uid": group.uid}})
            elif gang is not None and owner is not None and owner.minimum >= 2 and not owner.deleting:
                if group is None and gang.pods and not gang.virtual and not await self._create(gang):
                    self._again(uid)
                    return
                if group is not None and _differs(group, owner):
                    await self._request("changed", "PATCH", group, {"spec": group_spec(owner)})
            self._failures.pop(uid, None)
        except RequestFailed as error:
            self._failed(uid, gang, error)
        self._forget_idle(uid)

    def _forget_idle(self, uid: str) -> None:
        """Forget a gang of which nothing is left."""
        gang = self._gangs.get(uid)
        if gang is not None and not gang.pods and (uid not in self.kin.owners or self._made(uid) is None):
            self._gangs.pop(uid, None)
            self._failures.pop(uid, None)
            self._key_of.pop(f"muster/{gang.owner.namespace}/{group_name(gang.owner.reference)}", None)

    def _is_left(self, uid: str, owner: Owner | None) -> bool:
        """Whether a group that was made for an owner has nobody to be there for."""
        if owner is not None:
            return owner.minimum < 2 and not owner.problems
        if uid in self._gangs and self._gangs[uid].pods:
            return False  # its pods go first, or are given up by it
        states = [self._following(kind) for kind in self.kinds]
        return Following.PENDING not in states and Following.REFUSED not in states

    async def _create(self, gang: _Gang) -> bool:
        """Create the group of a gang; False: one of that name is there, and not seen yet."""
        owner = gang.owner
        first = self._raw[next(iter(gang.pods))][0]
        body = group_for(owner, preemptible=first.preemptible)
        path = path_of("scheduling.muster.sh", "v1alpha1", "podgroups", owner.namespace)
        try:
            await self._client.request("POST", path, body=body)
        except ApiError as error:
            there = self._cache.groups.by_key.get(self._key(owner))
            if error.status != 409 or (there is not None and there.made_for != owner.uid):
                raise
            return False
        self._meter.count("owner_groups", result="made")
        log.info("group_made", owner=owner.title, group=group_name(owner.reference), minimum=owner.minimum)
        return True

    async def _request(self, result: str, method: str, group: PodGroup, body: dict[str, Any]) -> None:
        path = path_of("scheduling.muster.sh", "v1alpha1", "podgroups", group.namespace, group.name)
        merge = {"content_type": "application/merge-patch+json"} if method == "PATCH" else {}
        try:
            await self._client.request(method, path, body=body, **merge)
        except ApiError as error:
            if error.status not in (404, 409):
                raise
            return  # it is gone, or another one has its name
        self._meter.count("owner_groups", result=result)
        log.info(f"group_{result}", group=f"{group.namespace}/{group.name}", owner=group.made_for)

    def _failed(self, uid: str, gang: _Gang | None, error: RequestFailed) -> None:
        """Try again what may pass; else the pods are a gang without an object, or the object stays as it is."""
        self._meter.count("owner_groups", result="failed")
        if not isinstance(error, ApiError) or error.status == 429 or error.status >= 500:
            self._again(uid)
        elif gang is None:
            self._failures.pop(uid, None)
            log.warning("group_failed", owner=uid, problem=str(error))
        elif gang.virtual or self._made(uid) is not None:
            self._later(uid)
            log.warning("group_failed", owner=gang.owner.title, problem=str(error))
        else:
            gang.virtual = f"no PodGroup can be written for it, so it is a gang without an object: {error}"
            log.warning("group_failed", owner=gang.owner.title, problem=gang.virtual)
            names = [self._raw[pod][0].scheduler_name for pod in gang.pods if pod in self._raw]
            self._tell(gang.owner, names[0] if names else "", gang.virtual)
            self._show_all(uid)

    def _again(self, uid: str) -> None:
        """Come back to an owner."""
        self._later(uid)
        self._mark(uid)

    def _later(self, uid: str) -> None:
        """Write nothing for an owner for a while, the longer the more often that was in vain."""
        count = self._failures.get(uid, (0, 0.0))[0] + 1
        self._failures[uid] = count, self._clock() + min(_LAST_WAIT, _FIRST_WAIT * 2.0 ** min(count, 16))


def _controller(pod: Pod) -> Reference:
    return Reference(pod.owner_api, pod.owner_kind, pod.owner_name, pod.owner_uid)


def _differs(group: PodGroup, owner: Owner) -> bool:
    parts = {one.min_member for one in group.subgroups}
    return group.min_member != owner.minimum or bool(owner.shard and parts != {owner.minimum})
