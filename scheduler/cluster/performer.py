"""What a session decided, done: bind requests, the status of groups and queues, conditions of pods, events.

Decided here: which decision becomes which write, about which object, and when an event is worth one. Must not know why
something was decided, nor how a status or a sentence is worded (dialects and texts are given). Invariants: a placement
is durable or the brain is told that it is not; a pod that is about to be bound, is bound, gated, ending or not ours
gets no condition; nothing is said that the object says already.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any, Protocol

import structlog

from scheduler.cluster import announcing, bindrequests, feed, queuestatus, topologystatus
from scheduler.cluster.announcing import Announcer
from scheduler.cluster.bindrequests import Bundle
from scheduler.cluster.client import MERGE, STRATEGIC, path_of
from scheduler.cluster.events import Events, Regarding, of_group, of_pod
from scheduler.cluster.roomnews import RoomNews
from scheduler.cluster.writer import Meter, NotCommitted, Request, Worth, Write
from scheduler.model.bindrequest import BindRequest
from scheduler.model.decisions import Assignment, Explain, Place, SetStatus, Victim
from scheduler.model.groups import PodGroup
from scheduler.model.pods import Pod
from scheduler.model.queues import DEFAULT_QUEUE, Queue, QueueFacts
from scheduler.model.verdict import Code, Verdict

log = structlog.get_logger(__name__)

_FIRST_PAUSE = 0.5
_LAST_PAUSE = 30.0
_GIVEN_UP = ("Failed", "Unwound")
_WHYS = 1000
"""Reasons that are kept before those of pods that wait no more are looked for; then twice as many as are left."""


class Dialect(queuestatus.Dialect, topologystatus.Dialect, Protocol):
    """What is needed of a dialect to answer in its words."""

    def status_patch(self, group: PodGroup, status: SetStatus, text: str, now: str) -> dict[str, Any] | None:
        """Return a merge patch, or None when the object says so already."""

    def api_path(self, group: PodGroup) -> str:
        """Return the path of the object."""


class Texts(Protocol):
    """Verdicts in words."""

    def sentence(self, verdict: Verdict) -> str:
        """Return the sentence for a group."""

    def status_text(self, status: SetStatus) -> str:
        """Return what a group's condition says."""

    def pod_message(self, verdict: Verdict) -> str:
        """Return the message for a waiting member."""

    def condition_reason(self, verdict: Verdict) -> str:
        """Return the reason for a waiting member."""

    def note(self, text: str) -> str:
        """Return text that fits into an event."""

    def eviction(self, place: Place, victim: Victim) -> str:
        """Return why a victim goes, and for whom."""


class Cache(queuestatus.Cache, topologystatus.Cache, announcing.Cache, Protocol):
    """The picture of the cluster."""


class Writer(Protocol):
    """Who writes."""

    def offer(self, write: Write) -> None:
        """Queue a write."""

    def takes_event(self, *, redundant: bool = False) -> bool:
        """Whether one more event may be offered."""

    def forget(self, key: Any) -> None:
        """Forget what was written."""

    async def commit(self, bundle: Bundle, namespace: str, until: float, unless_doubt: float) -> None:
        """Write a bind request. Raises `NotCommitted`."""


@dataclass(slots=True)
class _Placing:
    """A member on its way: in which request, and until when that is believed without seeing the request."""

    request: str
    until: float


@dataclass(frozen=True, slots=True)
class _Why:
    """Why a group waits, as last told, and the members that wait with it. placed: they have their nodes."""

    reason: str
    queue: str
    uids: tuple[str, ...]
    placed: bool


class Performer:
    """See the module. `handle` each hand-over of the brain, `watch` the events of the cache; `close` ends it.

    has_status: whether the status of a group's object is a subresource, as it is served now.
    """

    def __init__(
        self,
        writer: Writer,
        cache: Cache,
        dialects: Mapping[str, Dialect],
        texts: Texts,
        *,
        namespace: str,
        epoch: Callable[[], int],
        send: Callable[[feed.HandoverFailed], None],
        meter: Meter,
        has_status: Callable[[PodGroup], bool] = lambda _: True,
        deadline: float = 120.0,
        volume_time: float = 600.0,
        victim_time: float = 300.0,
        controller: str = "muster",
        host: str = "",
        clock: Callable[[], float] = time.time,
        timer: Callable[[], float] = time.monotonic,
    ) -> None:
        self._writer = writer
        self._cache = cache
        self._dialects = dialects
        self._texts = texts
        self._namespace = namespace
        self._epoch = epoch
        self._send = send
        self._meter = meter
        self._deadline = deadline
        self._volume_time = volume_time
        self._victim_time = victim_time
        self.events = Events(writer, texts.note, controller=controller, host=host, clock=clock, timer=timer)
        self._queues = queuestatus.QueueStatuses(writer, cache, dialects, lambda: _now(clock()), timer=timer)
        self._wiring = topologystatus.TopologyStatuses(writer, cache, dialects, lambda: _now(clock()), timer=timer)
        self._announcer = Announcer(cache, self.events, texts, meter, clock)
        self._room = RoomNews(writer, cache, self.events, texts, self._condition)
        self._clock = clock
        self._timer = timer
        self._placing: dict[str, _Placing] = {}
        self._ours: set[str] = set()
        self._members: dict[str, tuple[str, ...]] = {}
        self._why: dict[str, _Why] = {}
        self._most_whys = _WHYS
        self._has_status = has_status
        self._failures = 0
        self._tasks: set[asyncio.Task[None]] = set()

    # -- from the brain -------------------------------------------------------------------------------------------

    def handle(self, handover: feed.Handover) -> None:
        """Perform the decisions of one session; returns at once."""
        if handover.places:
            self._place(handover)
        for status in handover.statuses:
            with self._fence(handover.session, status.group):
                self._say_status(status)
        for about in handover.queue_statuses:
            with self._fence(handover.session, about.queue):
                self._queues.say(about)
        for wired in handover.topology_statuses:
            with self._fence(handover.session, wired.name):
                self._wiring.say(wired)
        for explain in handover.explains:
            with self._fence(handover.session, explain.group):
                self._explain(handover.session, explain)

    @contextmanager
    def _fence(self, session: str, group: str) -> Iterator[None]:
        """Confine what cannot be put into words to its group."""
        try:
            yield
        except Exception:
            self._meter.count("perform_failures")
            log.exception("decision_not_performed", session=session, group=group)

    async def idle(self) -> None:
        """Wait until no bind request is being written."""
        while self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def close(self) -> None:
        """Stop; requests that are being written may or may not come to be."""
        self._queues.close()
        self._wiring.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # -- for metrics ----------------------------------------------------------------------------------------------

    @property
    def assumed(self) -> int:
        """Members on their way: placed, and not yet seen to be bound or refused."""
        return len(self._placing)

    def pending(self) -> dict[tuple[str, str], int]:
        """(queue, reason) -> groups that wait; a queue that does not exist is "": anybody can think up names."""
        counts: dict[tuple[str, str], int] = {}
        for key, why in list(self._why.items()):
            pods = [pod for pod in map(self._cache.pod, why.uids) if pod is not None and pod.waiting]
            if why.uids and not pods:
                del self._why[key]
            elif why.placed or not why.uids or any(not self._is_placing(pod.uid) for pod in pods):
                queue = why.queue if self._is_queue(why.queue) else ""
                counts[queue, why.reason] = counts.get((queue, why.reason), 0) + 1
        return counts

    def _is_queue(self, name: str) -> bool:
        return name == DEFAULT_QUEUE or any(self._cache.queue(dialect, name) for dialect in self._dialects)

    def queues(self) -> Iterator[tuple[Queue, QueueFacts]]:
        """Yield the queues that have an object, with what was last decided to be said of them."""
        return self._queues.told()

    def topology_faults(self) -> dict[str, int]:
        """Reason -> how many, of all topology objects."""
        return self._wiring.faults()

    # -- placements -----------------------------------------------------------------------------------------------

    def _place(self, handover: feed.Handover) -> None:
        deadline = self._clock() + self._deadline
        epoch = self._epoch()
        made = bindrequests.bundles(
            handover.session,
            epoch,
            deadline,
            self._namespace,
            handover.places,
            volume_time=self._volume_time,
            victim_time=self._victim_time,
        )
        for bundle in made:
            self._mark(bundle)
            self._spawn(self._commit(handover.session, epoch, bundle))

    def _mark(self, bundle: Bundle) -> None:
        until = self._timer() + self._deadline
        for uid in _uids(bundle.places):
            self._placing[uid] = _Placing(bundle.name, until)

    async def _commit(self, session: str, epoch: int, bundle: Bundle) -> None:
        """Write one request; when that fails for good, tell the brain, the later the more often it has happened."""
        try:
            try:
                await self._write(bundle)
            except NotCommitted as error:
                if not error.taken:
                    raise
                # Session numbers begin anew with each brain; a name that is taken says nothing about our decision.
                salt = bindrequests.digest(bundle.places)
                name = f"{bundle.name}-{salt}"
                bundle = bindrequests.bundle(name, session, epoch, bundle.deadline, self._namespace, bundle.places)
                self._mark(bundle)
                await self._write(bundle)
            self._failures = 0
        except NotCommitted as error:
            await self._tell_failure(session, bundle, str(error))
        except Exception as error:  # a fault of ours must not leave the brain believing in this placement
            log.exception("handover_raised", session=session, request=bundle.name)
            await self._tell_failure(session, bundle, repr(error))

    async def _write(self, bundle: Bundle) -> None:
        self._ours.add(bundle.name)
        now = self._timer()
        await self._writer.commit(bundle, self._namespace, now + self._deadline, now + self._deadline / 2)

    async def _tell_failure(self, session: str, bundle: Bundle, cause: str) -> None:
        self._failures += 1
        self._ours.discard(bundle.name)
        pause = min(_LAST_PAUSE, _FIRST_PAUSE * float(2 ** min(self._failures - 1, 10)))
        self._meter.count("handover_failures")
        log.error("handover_failed", session=session, request=bundle.name, cause=cause, pause=pause)
        await asyncio.sleep(pause)
        self._clear(bundle.name, _uids(bundle.places))
        groups = tuple(dict.fromkeys(place.group for place in bundle.places))
        self._send(feed.HandoverFailed(session=session, groups=groups, cause=cause))

    def _clear(self, request: str, uids: Sequence[str]) -> None:
        for uid in uids:
            placing = self._placing.get(uid)
            if placing is not None and placing.request == request:
                del self._placing[uid]

    def _is_placing(self, uid: str) -> bool:
        placing = self._placing.get(uid)
        return placing is not None and placing.until > self._timer()

    # -- from the cache -------------------------------------------------------------------------------------------

    def watch(self, events: Sequence[feed.Event]) -> None:
        """Take what the cache tells its subscribers: which requests are open, what was bound, what is gone."""
        for event in events:
            match event:
                case feed.RequestSet(request=request):
                    self._request(request)
                case feed.RequestGone(name=name):
                    self._clear(name, self._members.pop(name, ()))
                    self._ours.discard(name)
                    self._room.request_gone(name)
                case feed.PodGone(uid=uid):
                    self._room.gone(uid)
                    self._placing.pop(uid, None)
                    self._writer.forget(("condition", uid))
                case feed.QueueGone(name=name, dialect=dialect):
                    self._queues.gone(dialect, name)
                case feed.TopologyGone(name=name, dialect=dialect):
                    self._wiring.gone(dialect, name, hypernode=False)
                case feed.HyperNodeGone(name=name, dialect=dialect):
                    self._wiring.gone(dialect, name, hypernode=True)
                case feed.GroupGone(key=key):
                    self.events.forget(key)
                    self._why.pop(key, None)

    def _request(self, request: BindRequest) -> None:
        uids = self._members.setdefault(request.name, _uids(request.gangs))
        self._tell_of_room(request)
        if request.open:
            over = {outcome.index for outcome in request.outcomes if outcome.phase in _GIVEN_UP}
            if over:  # they wait again, while others of their request go on
                self._clear(request.name, _uids([request.gangs[index] for index in sorted(over)]))
                uids = _uids([place for index, place in enumerate(request.gangs) if index not in over])
            until = max(self._timer() + self._deadline, self._timer() + request.deadline - self._clock())
            for uid in uids:
                self._placing[uid] = _Placing(request.name, until)
            return
        self._clear(request.name, uids)
        if request.name in self._ours:
            self._ours.discard(request.name)
            self._announcer.announce(request)

    def _tell_of_room(self, request: BindRequest) -> None:
        """Say who waits for victims, and who does not any more."""
        told = (one for one in request.outcomes if not request.open or one.phase in _GIVEN_UP)
        ended = {outcome.index: outcome for outcome in told}
        for index in range(len(request.gangs)):
            if index in ended:
                self._room.over(request, ended[index])
            elif request.open:
                self._room.waits(request, index, ours=request.name in self._ours)

    def evicted(self, request: BindRequest, place: Place, victim: Victim) -> None:
        """Hear from the binder that the eviction of a victim was accepted."""
        self._room.evicted(request, place, victim)

    # -- status of groups -----------------------------------------------------------------------------------------

    def _say_status(self, status: SetStatus) -> None:
        group = self._group(status)
        if group is None:
            return
        text = self._texts.status_text(status)
        self._writer.offer(
            Write(
                worth=Worth.STATUS,
                key=("status", status.uid),
                content=status,
                method="PATCH",
                content_type=MERGE,
                build=partial(self._status_request, status, text),
            )
        )

    def _group(self, status: SetStatus) -> PodGroup | None:
        """The object that a status is about, unless it is gone or another one of its name."""
        group = self._cache.group(status.group)
        if group is None or group.uid != status.uid or not group.has_object or group.dialect not in self._dialects:
            return None
        return group

    def _status_request(self, status: SetStatus, text: str) -> Request | None:
        group = self._group(status)
        if group is None:
            return None
        dialect = self._dialects[group.dialect]
        patch = dialect.status_patch(group, status, text, _now(self._clock()))
        if patch is None:
            return None
        metadata = {"uid": group.uid}
        if any(isinstance(value, list) for value in patch.get("status", {}).values()):
            # A merge patch replaces lists: it may only meet the list that it was made from.
            metadata["resourceVersion"] = group.resource_version
        # Both ways round are needed: a subresource that is not there is a 404, and where it is there the server drops
        # a status that is patched on the object itself.
        sub = "/status" if self._has_status(group) else ""
        return Request(dialect.api_path(group) + sub, {"metadata": metadata, **patch})

    # -- conditions of pods ---------------------------------------------------------------------------------------

    def _explain(self, session: str, explain: Explain) -> None:
        reason = self._texts.condition_reason(explain.verdict)
        message = self._texts.pod_message(explain.verdict)
        placed = explain.verdict.code is Code.WAITING_FOR_BINDER
        pods = [pod for uid in explain.pods if (pod := self._waiting(uid, placed=placed)) is not None]
        news = [pod for pod in pods if not _says(pod, reason, message)]
        for pod in pods:
            self._writer.offer(
                Write(
                    worth=Worth.CONDITION,
                    key=("condition", pod.uid),
                    content=(reason, message),
                    method="PATCH",
                    content_type=STRATEGIC,
                    build=partial(self._condition_request, pod.uid, reason, message, placed),
                )
            )
        group = self._cache.group(explain.group)
        queue = self._cache.queue_of(group, [*filter(None, map(self._cache.pod, explain.pods))])
        self._why[explain.group] = _Why(explain.verdict.code.value, queue, explain.pods, placed)
        if len(self._why) > self._most_whys:
            self.pending()  # forgets what nobody may ever ask for, where no metrics are read
            self._most_whys = max(_WHYS, 2 * len(self._why))
        if group is not None and group.has_object:
            sentence = self._texts.sentence(explain.verdict)
            known = not explain.pods and any(sentence in condition.message for condition in group.conditions)
            if (news or not explain.pods) and not known:
                self._warn(session, explain, of_group(group, pods[0] if pods else None))
        elif news:
            first = news[0]
            self._warn(session, explain, of_pod(first.namespace, first.name, first.uid, first))

    def _warn(self, session: str, explain: Explain, about: Regarding) -> None:
        text = self._texts.pod_message(explain.verdict)
        self.events.waits(session, explain.group, explain.verdict.code.value, about, text)

    def _waiting(self, uid: str, *, placed: bool) -> Pod | None:
        """The pod, if it is one that waits for us, and is not about to be bound. placed: also then."""
        pod = self._cache.pod(uid)
        if pod is None or not pod.ours or not pod.waiting or pod.gated or (self._is_placing(uid) and not placed):
            return None
        return pod

    def _condition_request(self, uid: str, reason: str, message: str, placed: bool) -> Request | None:
        pod = self._waiting(uid, placed=placed)
        if pod is None or _says(pod, reason, message):
            return None
        condition = self._unscheduled(pod, reason, message)
        path = path_of("", "v1", "pods", pod.namespace, pod.name, "status")
        # The API server repeats a patch that meets another write; without the version it would undo what a bind said.
        metadata = {"uid": uid, "resourceVersion": pod.resource_version}
        return Request(path, {"metadata": metadata, "status": {"conditions": [condition]}})

    def _condition(self, pod: Pod, why: Verdict) -> dict[str, Any] | None:
        """Return the condition of a pod that waits; None when it says so already."""
        reason, message = self._texts.condition_reason(why), self._texts.pod_message(why)
        return None if _says(pod, reason, message) else self._unscheduled(pod, reason, message)

    def _unscheduled(self, pod: Pod, reason: str, message: str) -> dict[str, Any]:
        condition: dict[str, Any] = {"type": "PodScheduled", "status": "False", "reason": reason, "message": message}
        if pod.condition is None:
            condition["lastTransitionTime"] = _now(self._clock())
        if pod.generation:
            condition["observedGeneration"] = pod.generation
        return condition


def _uids(places: Sequence[Place]) -> tuple[str, ...]:
    assignments: list[Assignment] = [assignment for place in places for assignment in place.assignments]
    return tuple(assignment.uid for assignment in assignments)


def _says(pod: Pod, reason: str, message: str) -> bool:
    condition = pod.condition
    return (
        condition is not None
        and condition.status == "False"
        and condition.reason == reason
        and condition.message == message
    )


def _now(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
