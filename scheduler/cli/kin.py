"""Pods in the groups that were made for their owners, told from objects alone.

Decided here: such a group names its owner by uid; a pod is in it when that uid is found above the pod, through Jobs,
StatefulSets and pods as the controller climbs them. What may not be read is told of, and its pods stand alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from scheduler.cli import reading
from scheduler.cli.output import note
from scheduler.cluster.client import ApiClient, ApiError, path_of
from scheduler.dialects.owners import decode_above
from scheduler.model.groups import PodGroup
from scheduler.model.pods import Pod, Shape


async def with_made_groups(
    client: ApiClient, namespace: str | None, pods: list[tuple[Pod, Shape]], groups: Iterable[PodGroup]
) -> list[tuple[Pod, Shape]]:
    """Return the pods, those of an owner for which a group was made as its members."""
    made = {group.made_for: group.key for group in groups if group.made_for}
    if not made:
        return pods
    above = {pod.uid: pod.owner_uid for pod, _ in pods if pod.owner_uid}
    for kind, group, plural in (("Job", "batch", "jobs"), ("StatefulSet", "apps", "statefulsets")):
        if any(pod.owner_kind == kind for pod, _ in pods):
            above.update(await _above(client, kind, path_of(group, "v1", plural, namespace)))
    return [(_joined(pod, made, above), shape) for pod, shape in pods]


async def _above(client: ApiClient, kind: str, path: str) -> dict[str, str]:
    try:
        found = [decode_above(raw, kind) for raw in await reading.items(client, path)]
    except ApiError as error:
        if error.status != 403:
            raise
        note(f"gangs of owners above a {kind} are not shown: {error}")
        return {}
    return {uid: reference.uid for uid, reference in found if reference is not None}


def _joined(pod: Pod, made: Mapping[str, str], above: Mapping[str, str]) -> Pod:
    if pod.group or pod.min_member:
        return pod
    uid, key, seen = pod.owner_uid, "", set[str]()
    while uid and uid not in seen:
        seen.add(uid)
        key = made.get(uid, key)
        uid = above.get(uid, "")
    return replace(pod, group=key) if key else pod
