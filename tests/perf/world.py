"""What the benchmarks put on an API server, and who they are to it: nodes, groups and pods by the thousand.

Decided here: how the objects look (small, one container), and that many requests are in flight while they are made.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
import uvloop

from tests.controlplane.cluster import ControlPlane

NAMESPACE = "bench"
GPU = "example.com/gpu"
IN_FLIGHT = 48
POD_GROUPS = "/apis/scheduling.volcano.sh/v1beta1/namespaces/bench/podgroups"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
NODES = "/api/v1/nodes"
RACKED = "scheduling.muster.sh/pod-group"
"""The label that names the gang of a pod whose gang asks for one rack."""
NO_LABELS: Mapping[str, str] = {}

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Server:
    """How to reach an API server."""

    url: str
    kubeconfig: str
    token: str = ""
    ca_file: str | None = None

    @classmethod
    def of(cls, plane: ControlPlane) -> Server:
        """Return the address of a real one."""
        return cls(plane.server, str(plane.kubeconfig), plane.token, str(plane.ca_file))

    def tls(self) -> ssl.SSLContext | bool:
        """Return what aiohttp wants to know."""
        return ssl.create_default_context(cafile=self.ca_file) if self.ca_file else True

    def headers(self) -> dict[str, str]:
        """Return who we are."""
        return {"Authorization": f"Bearer {self.token}"} if self.token else {}


@asynccontextmanager
async def session(server: Server, limit: int = IN_FLIGHT) -> AsyncIterator[aiohttp.ClientSession]:
    """Open connections to the server."""
    connector = aiohttp.TCPConnector(limit=limit, ssl=server.tls())
    async with aiohttp.ClientSession(
        server.url, connector=connector, headers=server.headers(), cookie_jar=aiohttp.DummyCookieJar()
    ) as made:
        yield made


async def post_all(server: Server, requests: Iterable[tuple[str, bytes]], in_flight: int = IN_FLIGHT) -> None:
    """POST each (path, body), in order, with so many in flight. Raises RuntimeError on the first refusal."""
    queue = iter(requests)
    headers = {"Content-Type": "application/json"}
    async with session(server, in_flight) as http:

        async def work() -> None:
            for path, body in queue:
                async with http.post(path, data=body, headers=headers) as answer:
                    text = await answer.read()
                    if answer.status >= 300:
                        raise RuntimeError(f"POST {path}: {answer.status}: {text[:300]!r}")

        async with asyncio.TaskGroup() as group:
            for _ in range(in_flight):
                group.create_task(work())


def make(server: Server, requests: Iterable[tuple[str, bytes]]) -> None:
    """`post_all` for those without an event loop."""
    uvloop.run(post_all(server, requests))


def delete_all(server: Server, path: str) -> None:
    """Delete every object of a collection at once. Raises RuntimeError when that is refused."""

    async def work() -> None:
        options = {"gracePeriodSeconds": 0, "kind": "DeleteOptions", "apiVersion": "v1"}
        async with session(server) as http, http.delete(path, json=options) as answer:
            text = await answer.read()
            if answer.status >= 300:
                raise RuntimeError(f"DELETE {path}: {answer.status}: {text[:300]!r}")

    uvloop.run(work())


# -- objects ----------------------------------------------------------------------------------------------------------


def namespace() -> tuple[str, bytes]:
    """Return the namespace of the benchmarks."""
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    return "/api/v1/namespaces", json.dumps(body).encode()


def node_name(number: int) -> str:
    """Return the name of a node."""
    return f"node-{number:05}"


def node(number: int, *, cpu: int = 96, gpu: int = 16, slots: int = 110, labels: Mapping[str, str] = NO_LABELS) -> Json:
    """Return a Ready node; `labels` beside its host name, system and rack."""
    name = node_name(number)
    resources = {"cpu": str(cpu), "memory": "512Gi", GPU: str(gpu), "pods": str(slots)}
    own = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "rack": f"r{number // 32:03}"}
    status = {
        "capacity": resources,
        "allocatable": resources,
        "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {**own, **labels}},
        "spec": {},
        "status": status,
    }


def nodes(count: int, per_rack: int = 32) -> Iterator[tuple[str, bytes]]:
    """Yield Ready nodes."""
    for number in range(count):
        yield NODES, json.dumps(node(number, labels={"rack": f"r{number // per_rack:03}"})).encode()


def pod(
    name: str, scheduler: str, *, group: str = "", node: str = "", cpu: str = "1", gpu: int = 1,
    selector: Mapping[str, str] = NO_LABELS,
) -> Json:  # fmt: skip
    """Return a pod with one container. selector: labels of nodes."""
    metadata: Json = {"name": name, "namespace": NAMESPACE, "labels": {"app": "bench"}}
    if group:
        metadata["annotations"] = {"scheduling.k8s.io/group-name": group}
    requests = {"cpu": cpu, **({GPU: str(gpu)} if gpu else {})}
    limits = {GPU: str(gpu)} if gpu else {}
    spec: Json = {
        "schedulerName": scheduler,
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 0,
        "enableServiceLinks": False,
        "automountServiceAccountToken": False,
        "containers": [{"name": "main", "image": "bench", "resources": {"requests": requests, "limits": limits}}],
    }
    if node:
        spec["nodeName"] = node
    if selector:
        spec["nodeSelector"] = dict(selector)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def group(name: str, minimum: int) -> tuple[str, bytes]:
    """Return a gang's object, as Volcano's users write it."""
    body = {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"minMember": minimum},
    }
    return POD_GROUPS, json.dumps(body).encode()


def racked(name: str, minimum: int) -> tuple[str, bytes]:
    """Return a gang's object that asks for one rack."""
    body = {
        "apiVersion": "scheduling.muster.sh/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"minMember": minimum, "topology": {"required": "rack"}},
    }
    return f"/apis/scheduling.muster.sh/v1alpha1/namespaces/{NAMESPACE}/podgroups", json.dumps(body).encode()


def gangs(count: int, size: int, scheduler: str, *, one_rack: bool = False) -> Iterator[tuple[str, bytes]]:
    """Yield `count` gangs of `size` pods; size 1 makes single pods without a group. one_rack: each asks for one."""
    if size > 1:
        for number in range(count):
            yield (racked if one_rack else group)(f"g{number:05}", size)
    for number in range(count):
        for member in range(size):
            name = f"g{number:05}" if size > 1 else ""
            made = pod(f"p{number:05}-{member:05}", scheduler, group="" if one_rack else name)
            if one_rack:
                made["metadata"]["labels"][RACKED] = name
            yield PODS, json.dumps(made).encode()


def running(count: int, place: Callable[[int], str]) -> Iterator[tuple[str, bytes]]:
    """Yield pods that are on their nodes already, without a GPU."""
    for number in range(count):
        yield PODS, json.dumps(pod(f"r{number:05}", "other", node=place(number), gpu=0)).encode()
