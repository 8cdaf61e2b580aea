"""Topology objects of every API on both servers: read, followed as they change, and answered in their status, once."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from scheduler.cluster import feed
from scheduler.cluster.cache import Cache
from scheduler.cluster.client import ApiClient
from scheduler.cluster.performer import Performer
from scheduler.cluster.watches import Watches
from scheduler.cluster.writer import Writer
from scheduler.dialects.registry import BY_NAME, DIALECTS
from scheduler.model.decisions import SetTopologyStatus
from scheduler.model.topology import HyperNode, Topology, TopologyFacts
from scheduler.observe import explain
from scheduler.observe.metrics import Metrics
from tests.contract.conftest import CRDS, Server, eventually
from tests.contract.test_queue_status import until
from tests.controlplane.crds import read_crds
from tests.controlplane.fixtures import CRD_FOLDER
from tests.controlplane.rest import ApiError, Json

PRESETS = sorted((CRD_FOLDER.parent / "presets" / "topologies").glob("*.yaml"))
COLLECTIONS = {
    "muster": "/apis/scheduling.muster.sh/v1alpha1/topologies",
    "kai": "/apis/kai.scheduler/v1alpha1/topologies",
    "kueue": "/apis/kueue.x-k8s.io/v1beta2/topologies",
    "volcano": "/apis/topology.volcano.sh/v1alpha1/hypernodes",
}
LABEL = {"muster": "label", "kai": "nodeLabel", "kueue": "nodeLabel"}
FACTS = TopologyFacts((("rack", 2),), 3, 5, (("Cycle", "spec.members[0]: members of each other"),))


def install(server: Server) -> None:
    """Have the kinds; the real control plane has them from its start."""
    for crd in read_crds(CRD_FOLDER):
        if crd["spec"]["names"]["kind"] in ("Topology", "HyperNode"):
            with suppress(ApiError):
                server.rest.create(CRDS, crd)
    for collection in COLLECTIONS.values():
        eventually(lambda path=collection: server.rest.get(path)["kind"])


def spec(name: str, label: str) -> Json:
    if name == "volcano":
        return {"tier": 1, "members": [{"type": "Node", "selector": {"exactMatch": {"name": label}}}]}
    level = {LABEL[name]: label, **({"name": "rack"} if name == "muster" else {})}
    return {"levels": [level]}


@asynccontextmanager
async def followed(server: Server) -> AsyncIterator[tuple[Cache, Performer]]:
    """A cache that follows the server, and what writes to it."""
    cache = Cache()
    async with ApiClient.connect(str(server.kubeconfig)) as client:
        names: dict[str, Any] = {"scheduler_names": ("nobody",), "namespace": server.namespace}
        watches = Watches(client, cache, DIALECTS, discovery_period=0.5, freeze=False, **names)
        running, writer = asyncio.create_task(watches.run()), Writer(client, lambda: True, Metrics())
        performer = Performer(
            writer, cache, BY_NAME, explain, namespace=server.namespace, epoch=lambda: 1, send=lambda _: None,
            meter=Metrics(),
        )  # fmt: skip
        try:
            yield cache, performer
        finally:
            await performer.close()
            await writer.close()
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running


def found(cache: Cache, name: str, key: str) -> Topology | HyperNode | None:
    return cache.hypernode(name, key) if name == "volcano" else cache.topology(name, key)


def says(one: Topology | HyperNode | None) -> str:
    """The label, or the name of the member."""
    if one is None:
        return ""
    return one.members[0].exact if isinstance(one, HyperNode) else one.levels[0].label


@pytest.mark.parametrize("name", COLLECTIONS)
async def test_an_object_is_read_followed_and_answered_once(server: Server, name: str) -> None:
    key, dialect = f"t-{secrets.token_hex(4)}", BY_NAME[name]
    path = f"{COLLECTIONS[name]}/{key}"
    await asyncio.to_thread(install, server)
    version, _, _ = COLLECTIONS[name].removeprefix("/apis/").rpartition("/")
    kind = "HyperNode" if name == "volcano" else "Topology"
    body = {"apiVersion": version, "kind": kind, "metadata": {"name": key}, "spec": spec(name, "first")}
    await asyncio.to_thread(server.rest.create, COLLECTIONS[name], body)
    async with followed(server) as (cache, performer):
        await until(lambda: says(found(cache, name, key)) == "first")
        await asyncio.to_thread(server.rest.patch, path, {"spec": spec(name, "second")})
        await until(lambda: says(found(cache, name, key)) == "second")
        one = found(cache, name, key)
        assert one is not None and not one.problems
        said = SetTopologyStatus(key, one.uid, name, name == "volcano", FACTS)
        performer.handle(feed.Handover("s-1", 1, topology_statuses=(said,)))

        def patch() -> Any:
            read = found(cache, name, key)
            assert read is not None
            return dialect.topology_status_patch(read, FACTS, "2026-11-01T00:00:00Z")

        await until(lambda: patch() is None)
        status = (await asyncio.to_thread(server.rest.get, path)).get("status", {})
        await asyncio.to_thread(server.rest.delete, path)
        await until(lambda: found(cache, name, key) is None)
    if name in ("kai", "kueue"):
        assert status == {}
        return
    assert [(one["type"], one["status"], one["reason"]) for one in status["conditions"]] == [
        ("Ready", "False", "Cycle")
    ]
    wanted = {"nodeCount": 5} if name == "volcano" else {"domains": {"rack": 2}, "unlabelledNodes": 3}
    assert {key: status[key] for key in wanted} == wanted


@pytest.mark.parametrize("preset", PRESETS, ids=lambda path: path.name)
def test_a_preset_applies_as_it_is(server: Server, preset: Path) -> None:
    install(server)
    for obj in yaml.safe_load_all(preset.read_text()):
        made = server.rest.create(COLLECTIONS["muster"], obj, dryRun="All", fieldValidation="Strict")
        assert made["spec"] == obj["spec"]
