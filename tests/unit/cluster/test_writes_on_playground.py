"""Decisions written to the embedded control plane and read back through the reflectors."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from scheduler.binder.objects import RequestObjects
from scheduler.cluster import bindrequests, feed
from scheduler.cluster.auth import Credentials
from scheduler.cluster.cache import Cache
from scheduler.cluster.client import ApiClient, ApiError
from scheduler.cluster.performer import Performer
from scheduler.cluster.watches import Watches
from scheduler.cluster.writer import Writer
from scheduler.dialects.registry import BY_NAME, DIALECTS
from scheduler.model.bindrequest import GangOutcome
from scheduler.model.decisions import Assignment, Explain, Place, SetStatus, Victim
from scheduler.model.verdict import Code, verdict
from scheduler.observe import explain
from scheduler.observe.metrics import Metrics
from scheduler.playground import PlaygroundServer

CRDS = Path(__file__).parents[3] / "config" / "crd"
GROUP = {
    "apiVersion": "scheduling.volcano.sh/v1beta1",
    "kind": "PodGroup",
    "metadata": {"name": "train", "namespace": "default"},
    "spec": {"minMember": 2},
}
KEY = "volcano/default/train"
SHORT = verdict(Code.RESOURCES, resource="example.com/gpu", needed=2, members=2, free=1, short=1)


def pod(name: str, **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "default",
            "annotations": {"scheduling.k8s.io/group-name": "train"},
            **metadata,
        },
        "spec": {
            "schedulerName": "volcano",
            "containers": [{"name": "main", "image": "x", "resources": {"requests": {"cpu": "1"}}}],
        },
    }


class World:
    """A client, the picture of the cluster, and the write side on top of them."""

    def __init__(self, client: ApiClient, cache: Cache, watches: Watches, performer: Performer, writer: Writer) -> None:
        self.client, self.cache, self.watches = client, cache, watches
        self.performer, self.writer = performer, writer
        self.failed: list[feed.HandoverFailed] = []

    async def create(self, path: str, obj: dict[str, Any]) -> dict[str, Any]:
        return await self.client.post_json(path, obj)

    async def get(self, path: str) -> dict[str, Any]:
        return await self.client.get_json(path)

    async def until(self, what: Callable[[], Any]) -> Any:
        async with asyncio.timeout(10):
            while not (found := what()):
                await asyncio.sleep(0.01)
        return found

    async def settle(self) -> None:
        async with asyncio.timeout(20):
            await self.performer.idle()
            await self.writer.idle()


@pytest.fixture
async def world() -> AsyncIterator[World]:
    cache = Cache()
    failed: list[feed.HandoverFailed] = []
    async with PlaygroundServer() as server, ApiClient(Credentials.plain(server.url)) as client:
        for file in sorted(CRDS.rglob("*.yaml")):
            for crd in yaml.safe_load_all(file.read_text()):
                await client.post_json("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd)
        await client.post_json("/api/v1/namespaces", {"metadata": {"name": "muster"}})
        watches = Watches(client, cache, DIALECTS, scheduler_names=("volcano",), namespace="muster", freeze=False)
        running = asyncio.create_task(watches.run())
        metrics = Metrics()
        writer = Writer(client, lambda: True, metrics)
        performer = Performer(
            writer,
            cache,
            BY_NAME,
            explain,
            namespace="muster",
            epoch=lambda: 7,
            send=failed.append,
            meter=metrics,
            has_status=watches.has_status,
        )
        cache.subscribe(performer.watch)
        async with asyncio.timeout(20):
            await watches.all_synced.wait()
        made = World(client, cache, watches, performer, writer)
        made.failed = failed
        yield made
        await performer.close()
        await writer.close()
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running


async def gang(world: World) -> list[dict[str, Any]]:
    await world.create("/apis/scheduling.volcano.sh/v1beta1/namespaces/default/podgroups", GROUP)
    pods = [await world.create("/api/v1/namespaces/default/pods", pod(f"train-{n}")) for n in range(2)]
    await world.until(lambda: world.cache.group(KEY) and all(world.cache.pod(p["metadata"]["uid"]) for p in pods))
    return pods


def place(pods: list[dict[str, Any]], uid: str = "") -> Place:
    members = tuple(Assignment(p["metadata"]["uid"], "default", p["metadata"]["name"], "n1") for p in pods)
    return Place(KEY, uid, "default", "train", "scheduling.volcano.sh/v1beta1", "PodGroup", len(members), members)


async def test_a_waiting_gang_is_explained_on_pods_and_group_and_then_the_cluster_is_quiet(world: World):
    pods = await gang(world)
    group = world.cache.group(KEY)
    assert group is not None
    uids = tuple(p["metadata"]["uid"] for p in pods)
    handover = feed.Handover(
        "s-000001",
        1,
        statuses=(SetStatus(KEY, group.uid, "Inqueue", (), SHORT),),
        explains=(Explain(KEY, SHORT, uids),),
    )
    world.performer.handle(handover)
    await world.settle()
    for name in ("train-0", "train-1"):
        read = await world.get(f"/api/v1/namespaces/default/pods/{name}")
        (condition,) = [c for c in read["status"]["conditions"] if c["type"] == "PodScheduled"]
        assert (condition["status"], condition["reason"]) == ("False", "Unschedulable")
        assert condition["message"] == explain.pod_message(SHORT)
    read = await world.get("/apis/scheduling.volcano.sh/v1beta1/namespaces/default/podgroups/train")
    assert read["status"]["phase"] == "Inqueue"
    assert any("needs 2 example.com/gpu" in c["message"] for c in read["status"]["conditions"])
    events = (await world.get("/apis/events.k8s.io/v1/namespaces/default/events"))["items"]
    assert [(e["reason"], e["regarding"]["kind"], e["reportingController"]) for e in events] == [
        ("FailedScheduling", "PodGroup", "volcano")
    ]

    await world.until(lambda: world.cache.pod(uids[0]).condition and world.cache.group(KEY).phase == "Inqueue")
    before = read["metadata"]["resourceVersion"]
    world.performer.handle(handover)
    await world.settle()
    read = await world.get("/apis/scheduling.volcano.sh/v1beta1/namespaces/default/podgroups/train")
    assert read["metadata"]["resourceVersion"] == before
    assert len((await world.get("/apis/events.k8s.io/v1/namespaces/default/events"))["items"]) == 1


async def test_a_namesake_with_another_uid_is_not_told_why_the_old_one_waited(world: World):
    pods = await gang(world)
    uid = pods[0]["metadata"]["uid"]
    await world.client.delete("/api/v1/namespaces/default/pods/train-0", grace=0)
    await world.create("/api/v1/namespaces/default/pods", pod("train-0"))
    # The cache may or may not have noticed; the server must not be misled in either case.
    world.performer.handle(feed.Handover("s-000001", 1, explains=(Explain(KEY, SHORT, (uid,)),)))
    await world.settle()
    read = await world.get("/api/v1/namespaces/default/pods/train-0")
    assert not [c for c in read.get("status", {}).get("conditions", []) if c["type"] == "PodScheduled"]


async def test_a_placement_becomes_a_request_that_the_reflector_reads_back_whole(world: World):
    pods = await gang(world)
    wanted = place(pods)
    world.performer.handle(feed.Handover("s-000001", 1, places=(wanted,)))
    await world.settle()
    request = await world.until(lambda: world.cache.bind_request("s-000001-e7-1"))
    assert request.gangs == (wanted,)
    assert (request.session, request.epoch, request.phase) == ("s-000001", 7, "")
    assert world.failed == []

    objects = RequestObjects(world.client, world.watches.assembler, "muster")
    await objects.report(request, "Bound", (GangOutcome(0, "Bound", 2),))
    await world.until(lambda: world.cache.bind_request("s-000001-e7-1").phase == "Bound")
    await world.settle()
    events = (await world.get("/apis/events.k8s.io/v1/namespaces/default/events"))["items"]
    assert [event["reason"] for event in events] == ["Scheduled", "Scheduled"]


async def test_a_request_in_parts_is_seen_once_whole_and_leaves_nothing_behind(world: World):
    members = tuple(Assignment(f"u{n}", "default", f"train-{n}", "n1") for n in range(900))
    wanted = Place(KEY, "", "default", "train", "v", "PodGroup", 900, members)
    bundle = bindrequests.bundle("s-9-e7-1", "s-9", 7, 2e9, "muster", (wanted,), size=8000)
    assert len(bundle.parts) > 2
    now = asyncio.get_running_loop().time()
    await world.writer.commit(bundle, "muster", now + 20, now + 20)
    request = await world.until(lambda: world.cache.bind_request("s-9-e7-1"))
    assert request.gangs == (wanted,)
    assert [known.name for known in world.cache.requests()] == ["s-9-e7-1"]

    objects = RequestObjects(world.client, world.watches.assembler, "muster")
    await objects.note(request, (GangOutcome(0, "Unwound"),))
    noted = await world.until(lambda: (r := world.cache.bind_request("s-9-e7-1")) and r.outcomes and r)
    assert (noted.open, noted.outcomes, noted.gangs) == (True, (GangOutcome(0, "Unwound"),), (wanted,))
    with pytest.raises(ApiError, match="409"):  # of the version that was there before
        await objects.note(request, (GangOutcome(0, "Bound"),))
    request = noted
    await objects.adopt(request, 8)
    adopted = await world.until(lambda: (r := world.cache.bind_request("s-9-e7-1")) and r.epoch == 8 and r)
    assert adopted.gangs == (wanted,)
    await objects.delete(adopted)
    await world.until(lambda: world.cache.bind_request("s-9-e7-1") is None)
    listed = await world.get("/apis/scheduling.muster.sh/v1alpha1/namespaces/muster/bindrequests")
    assert listed["items"] == []


async def test_without_the_definition_of_bindrequests_the_brain_is_told(world: World):
    pods = await gang(world)
    await world.client.delete(
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/bindrequests.scheduling.muster.sh"
    )
    world.performer.handle(feed.Handover("s-000001", 1, places=(place(pods),)))
    await world.settle()
    (failed,) = world.failed
    assert failed.groups == (KEY,)
    assert "404" in failed.cause


async def test_a_definition_that_would_drop_a_part_of_a_request_refuses_the_whole_and_names_the_part(world: World):
    pods = await gang(world)
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/bindrequests.scheduling.muster.sh"
    definition = await world.get(path)
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    del schema["properties"]["spec"]["properties"]["gangs"]["items"]["properties"]["victims"]  # of an older release
    await world.client.request("PUT", path, body=definition)
    victim = Victim("u-9", "default", "other", "n1", "pod/default/other")
    whole = place(pods)
    world.performer.handle(feed.Handover("s-000001", 1, places=(replace(whole, victims=(victim,)),)))
    await world.settle()
    (failed,) = world.failed
    assert failed.groups == (KEY,)
    assert "spec.gangs[0].victims" in failed.cause
    listed = await world.get("/apis/scheduling.muster.sh/v1alpha1/namespaces/muster/bindrequests")
    assert listed["items"] == []
    world.performer.handle(feed.Handover("s-000002", 1, places=(whole,)))
    await world.until(lambda: world.cache.requests())
