"""The provisioner of the benchmarks: for a claim that was told its node it makes a volume there, and binds the two.

Run as `python -m tests.perf.provisioner KUBECONFIG NAMESPACE`, whoever schedules. Does what an external provisioner and
the controller of volumes do together, in two writes; says nothing about phases, which no scheduler reads.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from scheduler.playground.client import Client
from tests.perf import workloads

SELECTED = "volume.kubernetes.io/selected-node"
COMPLETED = "pv.kubernetes.io/bind-completed"
_IN_FLIGHT = 32

Json = dict[str, Any]


def wants(claim: Json) -> str:
    """Return the node for which a claim needs a volume, or ""."""
    notes = claim["metadata"].get("annotations") or {}
    return "" if claim["spec"].get("volumeName") else str(notes.get(SELECTED, ""))


async def serve(kubeconfig: str, namespace: str) -> None:
    """Follow the claims of a namespace until the end. Raises what a write raises."""
    client = Client(kubeconfig=kubeconfig, connections=_IN_FLIGHT)
    claims = f"/api/v1/namespaces/{namespace}/persistentvolumeclaims"
    seen: set[str] = set()
    room = asyncio.Semaphore(_IN_FLIGHT - 1)

    async def make(claim: Json, node: str) -> None:
        found = claim["metadata"]
        async with room:
            volume = workloads.made_volume(found["name"], found["uid"], node)
            await client.request("POST", "/api/v1/persistentvolumes", volume)
            bound = {
                "metadata": {"annotations": {COMPLETED: "yes"}},
                "spec": {"volumeName": volume["metadata"]["name"]},
            }
            await client.merge(f"{claims}/{found['name']}", bound)

    async with asyncio.TaskGroup() as group:
        async for kind, data in client.follow(claims):
            for claim in data if kind == "SYNC" else [data] if kind != "DELETED" else []:
                uid, node = claim["metadata"]["uid"], wants(claim)
                if node and uid not in seen:
                    seen.add(uid)
                    group.create_task(make(claim, node))


if __name__ == "__main__":
    asyncio.run(serve(*sys.argv[1:]))
