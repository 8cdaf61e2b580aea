"""What people see of room that is made: the victims, the group for which they go, and its members that wait meanwhile.

Decided here: that a member names the node that is kept for it and says that it waits for pods to end, until it is bound
or its request is over; that the group is told once how many go, and each victim why. Must not know: who goes when, or
how a sentence is worded (texts are given). Invariant: what is set on a member is taken back unless it is bound.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from scheduler.cluster.client import STRATEGIC, path_of
from scheduler.cluster.events import Events, of_group, of_pod
from scheduler.cluster.writer import Request, Worth, Write
from scheduler.model.bindrequest import BindRequest, GangOutcome, awaits, given_up
from scheduler.model.decisions import Assignment, Place, Victim
from scheduler.model.groups import PodGroup
from scheduler.model.pods import Pod
from scheduler.model.verdict import Verdict

_ACTIONS = {"preempt": "Preempting", "reclaim": "Reclaiming", "consolidate": "Moving", "drain": "Draining"}


class Texts(Protocol):
    """What is said, in words."""

    def sentence(self, verdict: Verdict) -> str:
        """Return the sentence for a group."""

    def eviction(self, place: Place, victim: Victim) -> str:
        """Return why a victim goes, and for whom."""


class Cache(Protocol):
    """The picture of the cluster."""

    def pod(self, uid: str) -> Pod | None:
        """Return the pod with this uid."""

    def group(self, key: str) -> PodGroup | None:
        """Return the group with this key."""


class Writer(Protocol):
    """Who writes."""

    def offer(self, write: Write) -> None:
        """Queue a write."""

    def forget(self, key: Any) -> None:
        """Forget what was written."""


Condition = Callable[[Pod, Verdict], dict[str, Any] | None]
"""Makes the condition of a pod that waits; None when the pod says so already."""


class RoomNews:
    """See the module. condition: makes a member's condition from a verdict."""

    def __init__(self, writer: Writer, cache: Cache, events: Events, texts: Texts, condition: Condition) -> None:
        self._writer = writer
        self._cache = cache
        self._events = events
        self._texts = texts
        self._condition = condition
        self._kept: dict[str, tuple[str, str]] = {}
        self._told: set[tuple[str, int]] = set()
        self._over: set[tuple[str, int]] = set()
        self._requests: dict[str, BindRequest] = {}

    def evicted(self, request: BindRequest, place: Place, victim: Victim) -> None:
        """Tell a victim why it goes; its eviction was accepted."""
        about = partial(of_pod, victim.namespace, victim.pod, victim.uid, self._cache.pod(victim.uid))
        text = partial(self._texts.eviction, place, victim)
        self._events.room(request.session, about, "Preempted", _ACTIONS.get(victim.why, "Preempting"), text)

    def waits(self, request: BindRequest, index: int, *, ours: bool) -> None:
        """A gang's request is open. ours: this process wrote it, so that nobody has told the group."""
        place = request.gangs[index]
        if not place.victims:
            return
        self._requests[request.name] = request
        why = awaits(place)
        for assignment in place.assignments:
            self._kept[assignment.uid] = (request.name, assignment.node)
            self._writer.forget(("nomination", assignment.uid))
            self._offer("condition", assignment, why, partial(self._keep, request.name, assignment, why))
        if ours and place.assignments and (request.uid, index) not in self._told:
            self._told.add((request.uid, index))
            group = self._cache.group(place.group)
            first = place.assignments[0]
            pod = self._cache.pod(first.uid)
            if group is not None and group.has_object and group.uid == place.group_uid:
                about = partial(of_group, group, pod)
            else:
                about = partial(of_pod, first.namespace, first.pod, first.uid, pod)
            action = _ACTIONS.get(place.victims[0].why, "Preempting")
            self._events.room(request.session, about, "WaitingForVictims", action, partial(self._texts.sentence, why))

    def over(self, request: BindRequest, outcome: GangOutcome) -> None:
        """A gang has ended: who is not bound has no node any more, and says why."""
        place = request.gangs[outcome.index]
        if place.victims and (request.uid, outcome.index) not in self._over:
            self._requests[request.name] = request
            told = next((one for one in outcome.failures if one.permanent), next(iter(outcome.failures), None))
            self._end(request, place, outcome, given_up(place, outcome, told) if told is not None else None)
            self._over.add((request.uid, outcome.index))

    def request_gone(self, name: str) -> None:
        """A request is gone; what it kept for gangs that had not ended is kept no more."""
        request = self._requests.pop(name, None)
        if request is None:
            return
        for index, place in enumerate(request.gangs):
            key = (request.uid, index)
            if key not in self._over:
                self._end(request, place, None, None)
            self._over.discard(key)
            self._told.discard(key)

    def _end(self, request: BindRequest, place: Place, outcome: GangOutcome | None, why: Verdict | None) -> None:
        failed = {failure.uid for failure in outcome.failures} if outcome is not None else set()
        bound = outcome is not None and outcome.phase == "Bound"
        for assignment in place.assignments:
            if self._kept.get(assignment.uid, (request.name, ""))[0] != request.name:
                continue  # another request has placed it anew
            self._kept.pop(assignment.uid, None)
            if bound and assignment.uid not in failed:
                continue
            self._writer.forget(("condition", assignment.uid))
            self._offer("nomination", assignment, "", partial(self._release, assignment))
            if why is not None:
                self._offer("condition", assignment, why, partial(self._say, assignment, why))

    def gone(self, uid: str) -> None:
        """A pod is gone."""
        self._kept.pop(uid, None)
        self._writer.forget(("nomination", uid))

    def _offer(self, key: str, assignment: Assignment, content: Any, build: Callable[[], Request | None]) -> None:
        write = Write(
            worth=Worth.CONDITION,
            key=(key, assignment.uid),
            content=content if key == "nomination" else (content, assignment.node),
            method="PATCH",
            content_type=STRATEGIC,
            build=build,
        )
        self._writer.offer(write)

    def _pod(self, assignment: Assignment) -> Pod | None:
        pod = self._cache.pod(assignment.uid)
        return pod if pod is not None and pod.ours and pod.waiting and not pod.gated else None

    def _keep(self, request: str, assignment: Assignment, why: Verdict) -> Request | None:
        pod = self._pod(assignment)
        if pod is None or self._kept.get(assignment.uid) != (request, assignment.node):
            return None
        condition = self._condition(pod, why)
        if condition is None and pod.nominated == assignment.node:
            return None
        return _patch(pod, {"nominatedNodeName": assignment.node}, condition)

    def _say(self, assignment: Assignment, why: Verdict) -> Request | None:
        pod = self._pod(assignment)
        condition = self._condition(pod, why) if pod is not None and assignment.uid not in self._kept else None
        return _patch(pod, {}, condition) if pod is not None and condition is not None else None

    def _release(self, assignment: Assignment) -> Request | None:
        """Also where the cache does not show the node: it may be on its way there."""
        pod = self._pod(assignment)
        if pod is None or assignment.uid in self._kept:
            return None
        path = path_of("", "v1", "pods", pod.namespace, pod.name, "status")
        return Request(path, {"metadata": {"uid": pod.uid}, "status": {"nominatedNodeName": None}})


def _patch(pod: Pod, status: dict[str, Any], condition: dict[str, Any] | None) -> Request:
    if condition is not None:
        status = {**status, "conditions": [condition]}
    # The API server repeats a patch that meets another write; without the version it would undo what a bind said.
    metadata = {"uid": pod.uid, "resourceVersion": pod.resource_version}
    return Request(
        path_of("", "v1", "pods", pod.namespace, pod.name, "status"), {"metadata": metadata, "status": status}
    )
