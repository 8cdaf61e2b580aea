"""What the grouping controller asks to be read: the owners of its kinds, and who stands above Jobs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import msgspec

from scheduler.cluster.cache import Cache
from scheduler.cluster.discovery import Wanted
from scheduler.cluster.events import Events, Regarding
from scheduler.cluster.watches import Beside, Watches
from scheduler.cluster.wire import head
from scheduler.controllers.grouping import Grouping
from scheduler.controllers.kin import Following
from scheduler.dialects import core, owners
from scheduler.dialects.owners import OwnerKind
from scheduler.model.groups import PodGroup
from scheduler.model.owners import Owner, Reference

Raw = bytes | msgspec.Raw


@dataclass(frozen=True, slots=True)
class _Job:
    """A Job: the group that its annotation makes of its pods, and its controller."""

    uid: str
    resource_version: str
    group: PodGroup | None
    above: Reference | None


class SeesJobs(Protocol):
    """Who wants to know what stands above Jobs."""

    def saw_job(self, uid: str, above: Reference | None) -> None:
        """A Job appeared; above: its controller."""

    def lost_job(self, uid: str) -> None:
        """A Job is gone."""


class _Jobs:
    def __init__(self, cache: Cache, grouping: SeesJobs) -> None:
        self._groups, self._grouping = cache.groups, grouping

    def put(self, job: _Job) -> None:
        if job.group is None:
            self._groups.drop(job.uid)
        else:
            self._groups.put(job.group)
        self._grouping.saw_job(job.uid, job.above)

    def drop(self, uid: str) -> None:
        self._groups.drop(uid)
        self._grouping.lost_job(uid)


class _Owners:
    def __init__(self, grouping: Grouping) -> None:
        self._grouping = grouping

    def put(self, owner: Owner) -> None:
        self._grouping.saw_owner(owner)

    def drop(self, uid: str) -> None:
        self._grouping.lost_owner(uid)


def _decode_job(raw: Raw) -> _Job:
    meta = head(raw)
    return _Job(meta.uid, meta.resource_version, core.decode_owner(raw, "Job"), owners.decode_above(raw, "Job")[1])


def _decode_owner(raw: Raw, api_version: str, kind: OwnerKind) -> Owner:
    return owners.decode(raw, kind, api_version)


def jobs(cache: Cache, grouping: SeesJobs) -> tuple[Callable[[Raw], _Job], _Jobs]:
    """Return how Jobs are decoded and where they go."""
    return _decode_job, _Jobs(cache, grouping)


def wanted(kind: OwnerKind) -> Wanted:
    """Return the resource of a kind."""
    return Wanted(kind.group, kind.plural, kind.versions)


def beside(grouping: Grouping) -> tuple[Beside, ...]:
    """Return what is to be followed."""
    sink = _Owners(grouping)
    return tuple(Beside(wanted(kind), partial(_decode_owner, kind=kind), sink) for kind in grouping.kinds)


def following(watches: Watches, kind: OwnerKind) -> Following:
    """Return how a kind is read now."""
    reflector = watches.reflector_of(wanted(kind))
    if reflector is None:
        return Following.ABSENT if watches.discovery.complete.is_set() else Following.PENDING
    if reflector.synced.is_set():
        return Following.FOLLOWED
    return Following.REFUSED if reflector.settled.is_set() else Following.PENDING


def telling(events: Callable[[], Events]) -> Callable[[Owner, str, str], None]:
    """Return what warns of an owner whose gang has no object, by an event on it."""

    def tell(owner: Owner, scheduler: str, why: str) -> None:
        one = owner.reference
        about = Regarding(one.api, one.kind, owner.namespace, one.name, owner.uid, scheduler)
        events().warn(about, "GroupNotMade", "Grouping", why)

    return tell
