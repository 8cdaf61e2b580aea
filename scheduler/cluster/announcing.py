"""What is said once a bind request of ours has ended: what was bound and where, or why it was not.

Decided here: about which object it is said (once the group that has an object, else each pod), and how long a group is
said to have waited. Must not know how a sentence is worded (texts are given).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from scheduler.cluster.events import Events, of_group, of_pod
from scheduler.cluster.writer import Meter
from scheduler.model.bindrequest import BindRequest, GangOutcome, given_up
from scheduler.model.decisions import Assignment, Place
from scheduler.model.groups import PodGroup
from scheduler.model.pods import Pod
from scheduler.model.verdict import Verdict

_BOUND = "Bound"


class Texts(Protocol):
    """Verdicts in words."""

    def pod_message(self, verdict: Verdict) -> str:
        """Return the message for a waiting member."""


class Cache(Protocol):
    """The picture of the cluster."""

    def pod(self, uid: str) -> Pod | None:
        """Return the pod with this uid."""

    def group(self, key: str) -> PodGroup | None:
        """Return the group with this key."""

    def queue_of(self, group: PodGroup | None, members: Sequence[Pod]) -> str:
        """Return the name of the queue that members of a group are charged to."""


class Announcer:
    """See the module. clock: seconds since the epoch."""

    def __init__(self, cache: Cache, events: Events, texts: Texts, meter: Meter, clock: Callable[[], float]) -> None:
        self._cache, self._events, self._texts = cache, events, texts
        self._meter, self._clock = meter, clock

    def announce(self, request: BindRequest) -> None:
        """Say what was bound, or why it was not: once a group that has an object, else once a pod."""
        for outcome in request.outcomes:
            place = request.gangs[outcome.index]
            if outcome.phase != _BOUND:
                self._failure(request.session, place, outcome)
                continue
            failed = {failure.uid for failure in outcome.failures}
            bound = [assignment for assignment in place.assignments if assignment.uid not in failed]
            group = self._cache.group(place.group)
            if group is not None and group.uid != place.group_uid:
                group = None
            self._measure(place, group)
            if group is not None and group.has_object:
                about = partial(of_group, group, self._cache.pod(bound[0].uid) if bound else None)
                if outcome.more_failures:  # which of them are bound is not told
                    text = partial(_bound_some, outcome.bound, len(place.assignments))
                else:
                    text = partial(_bound_gang, bound)
                self._events.bound(request.session, about, text, redundant=False)
                continue
            if outcome.more_failures:
                continue
            for one in bound:
                about = partial(of_pod, one.namespace, one.pod, one.uid, self._cache.pod(one.uid))
                self._events.bound(request.session, about, partial(_bound_pod, one), redundant=True)

    def _failure(self, session: str, place: Place, outcome: GangOutcome) -> None:
        """Say why a gang was given up: the first cause that no waiting would change, else the first of all."""
        told = next((one for one in outcome.failures if one.permanent), next(iter(outcome.failures), None))
        if told is None:
            return
        why = given_up(place, outcome, told)
        group, pod = self._cache.group(place.group), self._cache.pod(told.uid)
        if group is not None and group.has_object:
            about = of_group(group, pod)
        else:
            about = of_pod(place.assignments[0].namespace, told.pod, told.uid, pod)
        self._events.waits(session, place.group, why.code.value, about, self._texts.pod_message(why))

    def _measure(self, place: Place, group: PodGroup | None) -> None:
        """Note how long a group waited for its minimum."""
        if place.minimum == 0 or (group is not None and group.was_running):
            return
        pods = [pod for pod in (self._cache.pod(assignment.uid) for assignment in place.assignments) if pod is not None]
        created = group.created if group is not None and group.created else min((p.created for p in pods), default=0.0)
        if created:
            queue = place.queue or self._cache.queue_of(group, pods)
            self._meter.seconds("pod_group_wait_seconds", max(0.0, self._clock() - created), queue=queue)


def _bound_gang(bound: Sequence[Assignment]) -> str:
    listed = ", ".join(f"{one.pod} to {one.node}" for one in bound)
    return f"Bound {len(bound)} member{'' if len(bound) == 1 else 's'}: {listed}"


def _bound_some(bound: int, members: int) -> str:
    return f"Bound {bound} of {members} members"


def _bound_pod(one: Assignment) -> str:
    return f"Successfully assigned {one.namespace}/{one.pod} to {one.node}"
