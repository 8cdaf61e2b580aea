"""PodGroups that were made for owners, once grouping is switched off: they go, and no gang is torn by that.

Decided here: a group that is there keeps its members (the pods below its owner, found by uid) as long as one of them
waits, so that no gang starts by halves because a switch was turned. Then its object is deleted: what runs goes on, and
what its owner makes later runs one by one. None is made or changed, and owners are not read. Written by the leader
only, and only once everything has been listed.

Invariants: a pod that waits is not shown to the sessions before it is known whether such a group is above it; only
groups with the label `MADE_FOR` are deleted, and none that a pod names by itself.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from dataclasses import replace

import structlog

from scheduler.cluster import feed
from scheduler.cluster.cache import Cache
from scheduler.cluster.client import ApiError, RequestFailed, path_of
from scheduler.controllers.grouping import HOLD, TICK, Client, Meter, woken
from scheduler.controllers.kin import Following, Kin
from scheduler.dialects.membership import MADE_FOR
from scheduler.model.groups import PodGroup
from scheduler.model.owners import Reference
from scheduler.model.pods import Pod, Shape

log = structlog.get_logger(__name__)
COMMAND = f"kubectl delete podgroups.scheduling.muster.sh -A -l {MADE_FOR}"
"""What lets the waiting pods of all such groups go one by one."""
_FIRST_WAIT, _LAST_WAIT = 5.0, 300.0


class Leaving:
    """See the module. A sink for pods and, by `saw_job`, for what stands above them; `run` until cancelled.

    settled: whether everything has been listed. may_write: whether this process leads.
    """

    def __init__(
        self,
        cache: Cache,
        client: Client,
        *,
        settled: Callable[[], bool],
        may_write: Callable[[], bool],
        meter: Meter,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.kin = Kin(client, (), lambda _: Following.ABSENT)
        self._cache, self._client, self._meter, self._clock = cache, client, meter, clock
        self._settled, self._may_write = settled, may_write
        self._made: dict[str, PodGroup] = {}
        self._owner_of: dict[str, str] = {}
        self._raw: dict[str, tuple[Pod, Shape]] = {}
        self._of: dict[str, str] = {}
        self._members: dict[str, dict[str, None]] = {}
        self._asks: dict[str, tuple[Reference, str, dict[str, None]]] = {}
        self._held: dict[str, float] = {}
        self._refused: dict[str, str] = {}
        self._wait, self._not_before = _FIRST_WAIT, 0.0
        self._due = True
        self._wake = asyncio.Event()

    # -- pods in --------------------------------------------------------------------------------------------------

    def put(self, value: tuple[Pod, Shape]) -> None:
        """A pod appeared or changed."""
        pod = value[0]
        self._forget(pod.uid)
        if pod.ours and pod.owner_uid and not pod.group and not pod.min_member:
            self._raw[pod.uid] = value
            self._show(pod.uid)
        else:
            self._cache.pods.put(value)

    def drop(self, uid: str) -> None:
        """A pod is gone."""
        self._forget(uid)
        self._held.pop(uid, None)
        self._cache.pods.drop(uid)

    def _is_over(self) -> bool:
        """Whether there is no such group; one may still come, from a leader that is about to go."""
        return not self._made and self._settled()

    def _forget(self, uid: str) -> None:
        self._raw.pop(uid, None)
        owner = self._of.pop(uid, "")
        if owner:
            self._members[owner].pop(uid, None)
        self._changed()

    def _changed(self) -> None:
        self._due = True
        self._wake.set()

    def _show(self, uid: str) -> None:
        """Pass a pod on as what it is, or hold it until that is known."""
        pod, shape = self._raw[uid]
        known = self._of.pop(uid, "")
        if known:
            self._members[known].pop(uid, None)
        controller = Reference(pod.owner_api, pod.owner_kind, pod.owner_name, pod.owner_uid)
        above, missing = ([], None) if self._is_over() else self.kin.chain(controller)
        owner = next((one for one in reversed(above) if one in self._made), "")
        if owner:
            self._of[uid] = owner
            self._members.setdefault(owner, {})[uid] = None
            pod = replace(pod, group=self._made[owner].key)
        elif missing is not None:
            self._asks.setdefault(missing.uid, (missing, pod.namespace, {}))[2][uid] = None
            self._wake.set()
            if self._hold(pod):
                return
        self._held.pop(uid, None)
        self._cache.pods.put((pod, shape))

    def _hold(self, pod: Pod) -> bool:
        """Whether a pod must not be shown now: it could be bound, and nobody has seen it yet."""
        if not pod.waiting or pod.gated or pod.uid in self._cache.pods.pods:
            return False
        since = self._held.setdefault(pod.uid, self._clock())
        return not self._settled() or self._clock() - since < HOLD

    def _show_some(self, uids: Iterable[str]) -> None:
        for uid in tuple(uids):
            if uid in self._raw:
                self._show(uid)

    # -- what stands above them, and groups -----------------------------------------------------------------------

    def saw_job(self, uid: str, above: Reference | None) -> None:
        """A Job appeared; above: its controller."""
        self.kin.jobs[uid] = above
        self._answered(uid)

    def _answered(self, uid: str) -> None:
        """Look again at the pods for which an object had to be read."""
        if uid in self._asks:
            self._show_some(self._asks.pop(uid)[2])

    def lost_job(self, uid: str) -> None:
        """A Job is gone."""
        self.kin.jobs.pop(uid, None)

    def watch(self, events: list[feed.Event]) -> None:
        """What the cache tells: groups come and go."""
        new = False
        for event in events:
            if isinstance(event, feed.GroupSet) and event.group.made_for:
                new = new or event.group.made_for not in self._made
                self._made[event.group.made_for] = event.group
                self._owner_of[event.group.key] = event.group.made_for
            elif isinstance(event, feed.GroupGone) and event.key in self._owner_of:
                owner = self._owner_of.pop(event.key)
                self._made.pop(owner, None)
                self._refused.pop(owner, None)
                members = tuple(self._members.get(owner, ()))
                asyncio.get_running_loop().call_soon(self._show_some, members)
            else:
                continue
            self._changed()
        if new:
            asyncio.get_running_loop().call_soon(self._show_some, self._raw)

    # -- groups out -----------------------------------------------------------------------------------------------

    def lead(self) -> None:
        """This process may write now."""
        if self._made:
            log.info("groups_left", groups=len(self._made), command=COMMAND, kept="as long as a member waits")
        self._changed()

    @property
    def problems(self) -> dict[str, str]:
        """The groups that are still there, and why."""
        wait = "made before grouping was switched off; it is deleted once none of its members waits"
        found = {
            f"PodGroup {one.namespace}/{one.name}": self._refused.get(uid, wait) for uid, one in self._made.items()
        }
        return dict(sorted({**found, **self.kin.unclear}.items()))

    async def run(self) -> None:
        """Read what is missing, let go of what was held too long, delete what has no use any more."""
        while True:
            pause = TICK if self._held or self._asks or (self._due and self._made and self._may_write()) else None
            await woken(self._wake, pause)
            await self.step()

    async def step(self) -> None:
        """Do once what is due now."""
        if self._is_over():
            self._asks.clear()
            self._show_some(self._held)
            self._due = False
            return
        asked = [(namespace, missing) for missing, namespace, _ in self._asks.values()] if self._settled() else []
        if await self.kin.look_up(asked, self._asks, self._answered):
            self._wake.set()
        now = self._clock()
        self._show_some(uid for uid, since in tuple(self._held.items()) if now - since >= HOLD)
        if self._due and self._settled() and self._may_write() and not self._asks and now >= self._not_before:
            self._due = False
            await self._delete_idle()

    async def _delete_idle(self) -> None:
        """Delete the groups of which nothing waits, and which nobody but their owners' pods name."""
        named = {pod.group for uid, pod in self._cache.pods.pods.items() if pod.group and uid not in self._of}
        for owner, group in tuple(self._made.items()):
            members = self._members.get(owner, {})
            if group.deleting or group.key in named or any(self._raw[uid][0].waiting for uid in members):
                continue
            if not await self._delete(owner, group):
                return  # the same would be said of the others: they have their turn later, this one last

    async def _delete(self, owner: str, group: PodGroup) -> bool:
        """Delete one group; False where that was not possible."""
        path = path_of("scheduling.muster.sh", "v1alpha1", "podgroups", group.namespace, group.name)
        name = f"{group.namespace}/{group.name}"
        try:
            await self._client.request("DELETE", path, body={"preconditions": {"uid": group.uid}})
        except RequestFailed as error:
            if isinstance(error, ApiError) and error.status in (404, 409):
                return True  # it is gone, or another one has its name
            self._meter.count("owner_groups", result="failed")
            if owner not in self._refused:
                log.warning("group_failed", group=name, error=str(error), command=COMMAND)
            self._refused[owner] = f"cannot be deleted, and is not used any more: {error}"
            self._due, self._not_before = True, self._clock() + self._wait
            self._wait = min(_LAST_WAIT, 2 * self._wait)
            if owner in self._made:
                self._made[owner] = self._made.pop(owner)
            return False
        self._wait = _FIRST_WAIT
        self._meter.count("owner_groups", result="deleted")
        log.info("group_deleted", group=name, owner=owner, why="grouping is switched off")
        return True
