"""What is said in the status of queues arrives on both servers, in every dialect, and is then said no more."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from scheduler.cluster import feed
from scheduler.cluster.cache import Cache
from scheduler.cluster.client import ApiClient
from scheduler.cluster.performer import Performer
from scheduler.cluster.watches import Watches
from scheduler.cluster.writer import Writer
from scheduler.dialects.registry import BY_NAME
from scheduler.model.decisions import SetQueueStatus
from scheduler.model.queues import QueueFacts
from scheduler.observe import explain
from scheduler.observe.metrics import Metrics
from tests.contract.conftest import CRDS, Server, eventually
from tests.controlplane.crds import read_crds
from tests.controlplane.fixtures import CRD_FOLDER
from tests.controlplane.rest import ApiError, Json

GPU = "nvidia.com/gpu"
COLLECTIONS = {
    "muster": "/apis/scheduling.muster.sh/v1alpha1/queues",
    "volcano": "/apis/scheduling.volcano.sh/v1beta1/queues",
    "kai": "/apis/scheduling.run.ai/v2/queues",
}
SPECS: dict[str, Json] = {
    "muster": {"weight": 2, "resources": {GPU: {"guarantee": 1, "deserved": "4", "limit": "unlimited"}}},
    "volcano": {"deserved": {GPU: "4"}},
    "kai": {"resources": {"gpu": {"quota": 4, "limit": -1, "overQuotaWeight": 1}}},
}
FACTS = QueueFacts(
    state="Open",
    allocated=(("cpu", 1500), (GPU, 6)),
    entitlement=((GPU, 4),),
    borrowed=((GPU, 2),),
    guarantee=((GPU, 1),),
    pending=2,
    running=3,
    decayed=((GPU, 21600),),
    decayed_at=1793534400.0,
    over=((GPU, 1),),
    pods=6,
    requested=((GPU, 9),),
)


async def until(what: Callable[[], Any]) -> None:
    async with asyncio.timeout(60):
        while not await asyncio.to_thread(what):
            await asyncio.sleep(0.05)


def install(server: Server) -> None:
    """Have the kinds of the queues; the real control plane has them from its start."""
    for crd in read_crds(CRD_FOLDER):
        if crd["spec"]["names"]["kind"] == "Queue":
            with suppress(ApiError):
                server.rest.create(CRDS, crd)
    for collection in COLLECTIONS.values():
        eventually(lambda path=collection: server.rest.get(path)["kind"])


@pytest.mark.parametrize("name", COLLECTIONS)
async def test_the_status_of_a_queue_arrives_and_is_said_once(server: Server, name: str) -> None:
    queue, cache, dialect = f"q-{secrets.token_hex(4)}", Cache(), BY_NAME[name]
    path = f"{COLLECTIONS[name]}/{queue}"
    await asyncio.to_thread(install, server)
    api = COLLECTIONS[name].removeprefix("/apis/").removesuffix("/queues")
    body = {"apiVersion": api, "kind": "Queue", "metadata": {"name": queue}, "spec": SPECS[name]}
    await asyncio.to_thread(server.rest.create, COLLECTIONS[name], body)
    async with ApiClient.connect(str(server.kubeconfig)) as client:
        names = {"scheduler_names": ("nobody",), "namespace": server.namespace}
        watches = Watches(client, cache, (dialect,), discovery_period=0.5, freeze=False, **names)
        running, writer = asyncio.create_task(watches.run()), Writer(client, lambda: True, Metrics())
        performer = Performer(
            writer, cache, BY_NAME, explain, namespace=server.namespace, epoch=lambda: 1, send=lambda _: None,
            meter=Metrics(),
        )  # fmt: skip
        try:
            await until(lambda: cache.queue(name, queue) is not None)
            found = cache.queue(name, queue)
            assert found is not None and not found.problems
            said = SetQueueStatus(queue, found.uid, name, FACTS)
            performer.handle(feed.Handover("s-1", 1, queue_statuses=(said,)))

            def patch() -> Any:
                read = cache.queue(name, queue)
                assert read is not None
                return dialect.queue_status_patch(read, FACTS, "2026-11-01T00:00:00Z")

            await until(lambda: patch() is None)
        finally:
            await performer.close()
            await writer.close()
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running
    status = (await asyncio.to_thread(server.rest.get, path))["status"]
    assert status["allocated"][GPU] == "6"
    if name != "volcano":
        assert "OverQuota" in [one["type"] for one in status["conditions"]]
    await asyncio.to_thread(server.rest.delete, path)
