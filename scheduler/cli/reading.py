"""What the read-only commands fetch: every dialect's groups and queues, pods, nodes, bind requests.

Works with a read-only kubeconfig and no scheduler: everything told here stands in the objects. An API that is not
served has no objects; any other refusal is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import msgspec

from scheduler.cli import kin
from scheduler.cli.output import complain, note
from scheduler.cluster import feed
from scheduler.cluster.client import ApiClient, ApiError, path_of
from scheduler.cluster.members import group_key, group_state
from scheduler.dialects import core
from scheduler.dialects import storage as stored
from scheduler.dialects.base import Dialect, DialectResource
from scheduler.dialects.registry import BY_NAME, DIALECTS
from scheduler.model.groups import GroupState, PodGroup
from scheduler.model.nodes import Node
from scheduler.model.pods import Pod, Shape
from scheduler.model.queues import Queue
from scheduler.model.resources import Amounts

T = TypeVar("T")
EVERY_NAME: frozenset[str] = frozenset()


class _Page(msgspec.Struct):
    metadata: dict[str, Any] = {}
    items: list[msgspec.Raw] = []


async def items(client: ApiClient, path: str) -> list[msgspec.Raw]:
    """Return the raw objects of a collection, read in pages."""
    found: list[msgspec.Raw] = []
    token = ""
    while True:
        params: dict[str, str | int] = {"limit": 500, **({"continue": token} if token else {})}
        page = msgspec.json.decode(await client.request("GET", path, params=params), type=_Page)
        found += page.items
        token = page.metadata.get("continue", "")
        if not token:
            return found


async def _served(
    client: ApiClient, dialect: Dialect, role: str, namespace: str | None
) -> list[tuple[str, msgspec.Raw]]:
    found = []
    for resource in dialect.resources:
        if resource.role == role:
            version = await served_version(client, resource)
            if version:
                where = namespace if resource.namespaced else None
                path = path_of(resource.group, version, resource.plural, where)
                found += [(f"{resource.group}/{version}", raw) for raw in await items(client, path)]
    return found


async def served_version(client: ApiClient, resource: DialectResource) -> str:
    """Return the best version of a resource that the server has, or ""."""
    for version in resource.versions:
        try:
            listed = await client.get_json(f"/apis/{resource.group}/{version}")
        except ApiError as error:
            if error.status == 404:
                continue
            raise
        if any(entry["name"] == resource.plural for entry in listed["resources"]):
            return version
    return ""


def _decoded(raws: list[tuple[str, msgspec.Raw]], decode: Callable[[msgspec.Raw, str], T]) -> list[T]:
    """Decode what can be decoded; an object that cannot be is told of and stops no other."""
    found = []
    for version, raw in raws:
        try:
            found.append(decode(raw, version))
        except core.Undecodable as error:
            complain(str(error))
    return found


async def groups(client: ApiClient, namespace: str | None) -> list[PodGroup]:
    """Return the group objects of all dialects and the Jobs that are annotated with a minimum."""
    found: list[PodGroup] = []
    for dialect in DIALECTS:
        found += _decoded(await _served(client, dialect, "group", namespace), dialect.decode_group)
    jobs = [("batch/v1", raw) for raw in await items(client, path_of("batch", "v1", "jobs", namespace))]
    owners = _decoded(jobs, lambda raw, version: core.decode_owner(raw, "Job", version))
    return found + [group for group in owners if group is not None]


async def queues(client: ApiClient) -> list[Queue]:
    """Return the queues of all dialects, by name."""
    found: list[Queue] = []
    for dialect in DIALECTS:
        found += _decoded(await _served(client, dialect, "queue", None), dialect.decode_queue)
    return sorted(found, key=lambda queue: (queue.name, queue.dialect))


async def wiring(client: ApiClient) -> list[feed.Event]:
    """Return the topologies and hyper-nodes of all dialects, as events."""
    found: list[feed.Event] = []
    for dialect in DIALECTS:
        levels = _decoded(await _served(client, dialect, "topology", None), dialect.decode_topology)
        grouped = _decoded(await _served(client, dialect, "hypernode", None), dialect.decode_hypernode)
        found += [feed.TopologySet(one) for one in levels] + [feed.HyperNodeSet(one) for one in grouped]
    return found


async def pods(
    client: ApiClient, namespace: str | None, served: kin.Served | None = None
) -> list[tuple[Pod, Shape]]:  # fmt: skip
    """Return the pods of a namespace (None: all), also as members of the groups that were made for their owners.

    served: also as members of gangs of owners for which none was made.
    """
    raws = [("v1", raw) for raw in await items(client, path_of("", "v1", "pods", namespace))]
    found = _decoded(raws, lambda raw, _: core.decode_pod(raw, EVERY_NAME))
    if not any(pod.owner_uid and not pod.group for pod, _ in found):
        return found
    own = BY_NAME["muster"]
    made = _decoded(await _served(client, own, "group", namespace), own.decode_group)
    return await kin.with_groups(client, namespace, found, made, served)


async def namespaces(client: ApiClient) -> list[tuple[str, str, tuple[tuple[str, str], ...]]]:
    """Return name, queue and labels of each namespace."""
    raws = [("v1", raw) for raw in await items(client, path_of("", "v1", "namespaces"))]
    return _decoded(raws, lambda raw, _: core.decode_namespace(raw))


async def nodes(client: ApiClient) -> list[Node]:
    """Return the nodes, by name."""
    raws = [("v1", raw) for raw in await items(client, path_of("", "v1", "nodes"))]
    return sorted(_decoded(raws, lambda raw, _: core.decode_node(raw)), key=lambda node: node.name)


async def storage(client: ApiClient) -> list[feed.Event]:
    """Return everything of storage, as events."""
    found: list[feed.Event] = []

    async def read(
        group: str, plural: str, decode: Callable[[msgspec.Raw], T], tell: Callable[[T], feed.Event]
    ) -> None:
        raws = [("v1", raw) for raw in await items(client, path_of(group, "v1", plural))]
        found.extend(tell(one) for one in _decoded(raws, lambda raw, _: decode(raw)))

    kind = "storage.k8s.io"
    await read("", "persistentvolumeclaims", stored.decode_claim, feed.ClaimSet)
    await read("", "persistentvolumes", stored.decode_volume, feed.VolumeSet)
    await read(kind, "storageclasses", stored.decode_storage_class, feed.StorageClassSet)
    await read(kind, "csinodes", stored.decode_node_drivers, feed.NodeDriversSet)
    await read(kind, "csidrivers", stored.decode_driver, feed.StorageDriverSet)
    await read(kind, "csistoragecapacities", stored.decode_capacity, feed.CapacitySet)
    await read(kind, "volumeattachments", stored.decode_attachment, feed.AttachmentSet)
    return found


async def namespace_queues(client: ApiClient) -> dict[str, str]:
    """Return the queue that each namespace names; none where they may not be read, which is told."""
    try:
        return {name: queue for name, queue, _ in await namespaces(client) if queue}
    except ApiError as error:
        if error.status != 403:
            raise
        note(f"queues that namespaces name are not shown: {error}")
        return {}


def states(
    groups: Iterable[PodGroup], pods: Iterable[Pod], of_namespace: Mapping[str, str] | None = None
) -> list[GroupState]:
    """Return the groups with their members, by namespace and name, as the scheduler sees them.

    Also those whose object is missing. A pod that stands alone is a group of one. of_namespace: the queue that each
    namespace names.
    """
    queue_in = (of_namespace or {}).get
    known = {group.key: group for group in groups}
    members: dict[str, list[Pod]] = {key: [] for key, group in known.items() if group.has_object}
    for pod in pods:
        members.setdefault(group_key(pod, known), []).append(pod)
    made = (
        group_state(
            key,
            known.get(key),
            mine,
            assumed={},
            priorities={},
            namespace_queue=queue_in,
            ran=(),
        )
        for key, mine in members.items()
    )
    found = [state for state in made if state is not None]
    return sorted(found, key=lambda state: (state.group.namespace, state.group.name, state.group.dialect))


def members_of(state: GroupState) -> list[Pod]:
    """Return all members of a group, in their order."""
    everyone = (
        *state.waiting, *state.gated, *state.assumed, *state.bound, *state.terminating, *state.succeeded, *state.failed
    )  # fmt: skip
    return sorted(everyone, key=lambda pod: (pod.index < 0, pod.index, len(pod.name), pod.name))


def requests(pod: Pod, shape: Shape) -> Amounts:
    """Return what a node is charged for a pod."""
    return shape.requests if pod.charge is None else pod.charge
