"""Pods in the gangs of their owners, told from objects alone.

Decided here: a group that was made for an owner names it by uid; a pod is in it when that uid is found above the pod,
through Jobs, StatefulSets and pods as the controller climbs them. Where no group was made, the pods of a scheduler that
is served are the gang that their topmost known owner makes of them, as the scheduler has it where it may write none.
What may not be read is told of, and its pods stand alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from scheduler.cli import reading
from scheduler.cli.output import complain, note
from scheduler.cluster.client import ApiClient, ApiError, path_of
from scheduler.config import GroupingConfig
from scheduler.dialects.meta import Undecodable
from scheduler.dialects.owners import OwnerKind, configured, decode, decode_above
from scheduler.model.groups import PodGroup
from scheduler.model.owners import Owner, Reference, without_object
from scheduler.model.pods import Pod, Shape

OTHERS = "default-scheduler"
"""Pods of this scheduler are never taken to be served by Muster unless it is named."""
_BETWEEN = (("Job", "batch", "jobs"), ("StatefulSet", "apps", "statefulsets"))


@dataclass(frozen=True, slots=True)
class Served:
    """Whose pods are gangs by their owners. names: of schedulers; guess: and those of pods that name a group."""

    names: tuple[str, ...]
    guess: bool
    grouping: GroupingConfig = field(default_factory=GroupingConfig)

    def known(self, pods: Iterable[Pod]) -> frozenset[str]:
        """Return the names of the schedulers that are served."""
        guessed = {pod.scheduler_name for pod in pods if pod.group} - {OTHERS} if self.guess else set()
        return frozenset((*self.names, *guessed))


async def with_groups(
    client: ApiClient,
    namespace: str | None,
    pods: list[tuple[Pod, Shape]],
    groups: Iterable[PodGroup],
    served: Served | None,
) -> list[tuple[Pod, Shape]]:
    """Return the pods, those of an owner as members of its gang. served: None, where only groups count that are there.

    Raises `ApiError` for what keeps everything from being read.
    """
    made = {group.made_for: group.key for group in groups if group.made_for}
    served = served if served is not None and served.grouping.enabled else None
    loose = [pod for pod, _ in pods if pod.owner_uid and not pod.group and not pod.min_member]
    if not loose or not (made or served):
        return pods
    above = {pod.uid: _controller(pod) for pod, _ in pods if pod.owner_uid}
    for kind, group, plural in _BETWEEN:
        if any(pod.owner_kind == kind for pod in loose):
            above.update(await _above(client, kind, path_of(group, "v1", plural, namespace)))
    joined = [(_joined(pod, made, above), shape) for pod, shape in pods]
    if served is None:
        return joined
    names = served.known(pod for pod, _ in joined)
    owners = _Owners(client, namespace, configured(served.grouping.owners), above)
    found = []
    for pod, shape in joined:
        if pod.owner_uid and not pod.group and not pod.min_member and pod.scheduler_name in names:
            owner = await owners.topmost(_controller(pod))
            pod = without_object(pod, owner) if owner is not None else pod
        found.append((pod, shape))
    return found


def _controller(pod: Pod) -> Reference:
    return Reference(pod.owner_api, pod.owner_kind, pod.owner_name, pod.owner_uid)


async def _above(client: ApiClient, kind: str, path: str) -> dict[str, Reference]:
    try:
        found = [decode_above(raw, kind) for raw in await reading.items(client, path)]
    except ApiError as error:
        if error.status != 403:
            raise
        note(f"gangs of owners above a {kind} are not shown: {error}")
        return {}
    return {uid: reference for uid, reference in found if reference is not None}


def _joined(pod: Pod, made: Mapping[str, str], above: Mapping[str, Reference]) -> Pod:
    if pod.group or pod.min_member:
        return pod
    uid, key, seen = pod.owner_uid, "", set[str]()
    while uid and uid not in seen:
        seen.add(uid)
        key = made.get(uid, key)
        uid = above[uid].uid if uid in above else ""
    return replace(pod, group=key) if key else pod


class _Owners:
    """The owners of known kinds, each kind read when somebody stands below one of it."""

    def __init__(
        self, client: ApiClient, namespace: str | None, kinds: Iterable[OwnerKind], above: Mapping[str, Reference]
    ) -> None:
        self._client, self._namespace, self._above = client, namespace, above
        self._kinds = {(kind.group, kind.kind): kind for kind in kinds}
        self._between = {(group, kind) for kind, group, _ in _BETWEEN} | {("", "Pod")}
        self._read: dict[tuple[str, str], dict[str, Owner]] = {}

    async def topmost(self, reference: Reference) -> Owner | None:
        """Return the topmost owner of a known kind above a pod with this controller."""
        found, here, seen = None, reference, set[str]()
        while here.uid not in seen:
            seen.add(here.uid)
            kind = self._kinds.get((here.group, here.kind))
            if kind is not None:
                owner = (await self._all(kind, here.api)).get(here.uid)
                if owner is None:
                    return found
                found, up = owner, owner.above
            else:
                up = self._above.get(here.uid) if (here.group, here.kind) in self._between else None
            if up is None:
                return found
            here = up
        return found

    async def _all(self, kind: OwnerKind, api: str) -> dict[str, Owner]:
        key = (kind.group, kind.kind)
        if key not in self._read:
            self._read[key] = {}
            path = path_of(kind.group, api.rpartition("/")[2], kind.plural, self._namespace)
            try:
                raws = await reading.items(self._client, path)
            except ApiError as error:
                if error.status not in (403, 404):
                    raise
                if error.status == 403:  # a kind that is not served has no owners
                    note(f"gangs of {kind.title} for which no PodGroup was made are not shown: {error}")
                return {}
            for raw in raws:
                try:
                    owner = decode(raw, kind, api)
                except Undecodable as error:
                    complain(str(error))
                    continue
                self._read[key][owner.uid] = owner
        return self._read[key]
