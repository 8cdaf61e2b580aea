"""Where a group's status is written: to the subresource, or to the object of a definition that has none."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, ClassVar

import pytest

from scheduler.cluster import feed
from scheduler.cluster.cache import Cache
from scheduler.cluster.client import ApiClient
from scheduler.cluster.performer import Performer
from scheduler.cluster.watches import Watches
from scheduler.cluster.writer import Writer
from scheduler.dialects.base import DialectResource
from scheduler.dialects.volcano import VolcanoDialect
from scheduler.model.decisions import SetStatus
from scheduler.observe import explain
from scheduler.observe.metrics import Metrics
from tests.contract.conftest import CRDS, GROUP, Server, gadget_crd, install_crd

Json = dict[str, Any]
ANYTHING = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def definition(group: str, *, subresource: bool) -> Json:
    """The PodGroup of a peer under a group name of the test's own."""
    crd = gadget_crd(group, "podgroups", "PodGroup")
    version = crd["spec"]["versions"][0]
    properties = {"spec": ANYTHING, "status": ANYTHING}
    version["schema"] = {"openAPIV3Schema": {"type": "object", "properties": properties}}
    version["additionalPrinterColumns"] = []
    version["subresources"] = {"status": {}} if subresource else {}
    return crd


async def until(what: Callable[[], Any]) -> None:
    async with asyncio.timeout(60):
        while not await asyncio.to_thread(what):
            await asyncio.sleep(0.05)


@asynccontextmanager
async def telling(server: Server, group: str) -> AsyncIterator[Callable[[str], None]]:
    """A performer as the scheduler has it; yields a function that says a phase of the group `g`."""

    class Peer(VolcanoDialect):
        resources: ClassVar[tuple[DialectResource, ...]] = (
            DialectResource(group, ("v1",), "podgroups", "PodGroup", True, "group"),
        )

    peer, cache, key = Peer(), Cache(), f"volcano/{server.namespace}/g"
    async with ApiClient.connect(str(server.kubeconfig)) as client:
        names = {"scheduler_names": ("nobody",), "namespace": server.namespace}
        watches = Watches(client, cache, (peer,), discovery_period=0.5, freeze=False, **names)
        running, writer = asyncio.create_task(watches.run()), Writer(client, lambda: True, Metrics())
        performer = Performer(
            writer,
            cache,
            {"volcano": peer},
            explain,
            namespace=server.namespace,
            epoch=lambda: 1,
            send=lambda _: None,
            meter=Metrics(),
            has_status=watches.has_status,
        )

        def tell(phase: str) -> None:
            found = cache.group(key)
            assert found is not None
            said = SetStatus(key, found.uid, phase, (("running", 4),))
            performer.handle(feed.Handover("s-1", 1, (), (said,), ()))

        try:
            await until(lambda: cache.group(key) is not None)
            yield tell
        finally:
            await performer.close()
            await writer.close()
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running


@pytest.mark.parametrize("subresource", [True, False])
async def test_a_status_reaches_the_object_with_and_without_the_subresource_and_when_that_changes(
    server: Server, subresource: bool
) -> None:
    group = f"g{secrets.token_hex(3)}.{GROUP}"
    crd = definition(group, subresource=subresource)
    prefix = await asyncio.to_thread(install_crd, server.rest, crd)
    path = server.path("podgroups", api=prefix)
    body = {"apiVersion": f"{group}/v1", "kind": "PodGroup", "metadata": {"name": "g"}, "spec": {"minMember": 4}}
    await asyncio.to_thread(server.rest.create, path, body)

    def phase() -> str:
        return str(server.rest.get(f"{path}/g").get("status", {}).get("phase", ""))

    async with telling(server, group) as tell:
        tell("Inqueue")
        await until(lambda: phase() == "Inqueue")
        changed = definition(group, subresource=not subresource)["spec"]
        await asyncio.to_thread(server.rest.patch, f"{CRDS}/podgroups.{group}", {"spec": changed})

        def switched() -> bool:
            listed = {row["name"] for row in server.rest.get(prefix)["resources"]}
            return ("podgroups/status" in listed) is not subresource

        await until(switched)

        def said() -> bool:
            tell("Running")
            return phase() == "Running"

        async with asyncio.timeout(60):
            while not said():
                await asyncio.sleep(0.3)
    await asyncio.to_thread(server.rest.delete, f"{CRDS}/podgroups.{group}")
