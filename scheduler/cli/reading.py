"""What the read-only commands fetch: every dialect's groups and queues, pods, nodes, bind requests.

Works with a read-only kubeconfig and no scheduler: everything told here stands in the objects. An API that is not
served has no objects; any other refusal is an error.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from scheduler.cluster.client import ApiClient, ApiError, path_of
from scheduler.dialects import core
from scheduler.dialects.base import Dialect, DialectResource
from scheduler.dialects.registry import DIALECTS
from scheduler.model.groups import PodGroup
from scheduler.model.nodes import Node
from scheduler.model.pods import Pod, Shape
from scheduler.model.queues import Queue

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


async def groups(client: ApiClient, namespace: str | None) -> list[PodGroup]:
    """Return the groups of all dialects, by namespace and name."""
    found = [
        dialect.decode_group(raw, version)
        for dialect in DIALECTS
        for version, raw in await _served(client, dialect, "group", namespace)
    ]
    return sorted(found, key=lambda group: (group.namespace, group.name, group.dialect))


async def queues(client: ApiClient) -> list[Queue]:
    """Return the queues of all dialects, by name."""
    found = [
        dialect.decode_queue(raw, version)
        for dialect in DIALECTS
        for version, raw in await _served(client, dialect, "queue", None)
    ]
    return sorted(found, key=lambda queue: (queue.name, queue.dialect))


async def pods(client: ApiClient, namespace: str | None) -> list[tuple[Pod, Shape]]:
    """Return the pods of a namespace (None: all)."""
    raws = await items(client, path_of("", "v1", "pods", namespace))
    return [core.decode_pod(raw, EVERY_NAME) for raw in raws]


async def nodes(client: ApiClient) -> list[Node]:
    """Return the nodes, by name."""
    return sorted(
        (core.decode_node(raw) for raw in await items(client, path_of("", "v1", "nodes"))), key=lambda node: node.name
    )
