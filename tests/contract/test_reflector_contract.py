"""What the read side and the lease rely on, held against the playground and against the real API server alike."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pytest

from scheduler.cluster import feed
from scheduler.cluster.cache import Cache
from scheduler.cluster.client import JSON_PATCH, MERGE, ApiClient, ApiError
from scheduler.cluster.discovery import Resource
from scheduler.cluster.lease import Elector, LeadershipLost
from scheduler.cluster.reflector import Reflector
from scheduler.cluster.watches import Watches
from scheduler.dialects.base import DialectResource, open_envelope
from scheduler.dialects.registry import DIALECTS
from scheduler.model.groups import PodGroup
from scheduler.model.queues import Queue
from scheduler.playground.server import PlaygroundServer, ThreadedServer
from tests.controlplane.crds import read_crds
from tests.controlplane.fixtures import CRD_FOLDER
from tests.controlplane.rest import Rest

CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")
_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


@dataclass
class Target:
    """An API server to hold to the contract. `rest` shares no code with the client under test."""

    rest: Rest
    kubeconfig: Path
    namespace: str

    def put_map(self, name: str, **data: str) -> dict[str, Any]:
        body = {"metadata": {"name": name}, "data": data}
        return self.rest.create(f"/api/v1/namespaces/{self.namespace}/configmaps", body)

    def change_map(self, name: str, **data: str) -> dict[str, Any]:
        return self.rest.patch(f"/api/v1/namespaces/{self.namespace}/configmaps/{name}", {"data": data})

    def delete_map(self, name: str) -> None:
        self.rest.delete(f"/api/v1/namespaces/{self.namespace}/configmaps/{name}")

    def pod(self, name: str, **labels: str) -> dict[str, Any]:
        container = {"name": "main", "image": "x", "resources": {"requests": {"cpu": "100m"}}}
        body = {
            "metadata": {"name": name, "labels": labels},
            "spec": {"schedulerName": "muster", "containers": [container]},
        }
        return self.rest.create(f"/api/v1/namespaces/{self.namespace}/pods", body)


@pytest.fixture(params=["playground", pytest.param("real", marks=pytest.mark.real)])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Target]:
    if request.param == "real":
        cluster = request.getfixturevalue("real_control_plane")
        yield Target(cluster.rest, cluster.kubeconfig, request.getfixturevalue("real_namespace"))
        return
    with ThreadedServer(PlaygroundServer(bookmark_interval=0.5)) as server:
        rest = Rest(server.url, "")
        for crd in read_crds(CRD_FOLDER):
            rest.create(_CRDS, crd)
        rest.create("/api/v1/namespaces", {"metadata": {"name": "test"}})
        yield Target(rest, server.write_kubeconfig(tmp_path / "kubeconfig"), "test")


async def until(condition: Callable[[], object], seconds: float = 60.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.02)


class _Map(msgspec.Struct):
    metadata: dict[str, Any]
    data: dict[str, str] = {}


@dataclass
class Maps:
    """A sink of ConfigMaps: name -> data."""

    names: dict[str, str] = field(default_factory=dict)
    maps: dict[str, dict[str, str]] = field(default_factory=dict)

    def put(self, value: _Map) -> None:
        if value.metadata["name"] != "kube-root-ca.crt":  # the controllers put one into each namespace
            self.names[value.metadata["uid"]] = value.metadata["name"]
            self.maps[value.metadata["name"]] = value.data

    def drop(self, uid: str) -> None:
        name = self.names.pop(uid, None)
        if name is not None:
            self.maps.pop(name, None)


@asynccontextmanager
async def reflecting(
    target: Target, *, start_at: str | None = None, **options: Any
) -> AsyncIterator[tuple[Reflector[_Map], Maps]]:
    sink = Maps()
    decode = msgspec.json.Decoder(_Map).decode
    async with ApiClient.connect(str(target.kubeconfig)) as client:
        reflector = Reflector(client, CONFIG_MAPS, decode, sink, namespace=target.namespace, **options)
        reflector._rv = start_at
        task = asyncio.create_task(reflector.run())
        try:
            await asyncio.wait_for(reflector.synced.wait(), 60)
            yield reflector, sink
        finally:
            task.cancel()
            await asyncio.wait([task])


@pytest.mark.parametrize("options", [{"page": 2}, {"streaming": True}], ids=["pages", "streaming"])
async def test_what_exists_is_listed_and_what_happens_is_followed(target: Target, options: dict[str, Any]) -> None:
    for number in range(5):
        target.put_map(f"m{number}", v="1")
    async with reflecting(target, **options) as (reflector, sink):
        assert sink.maps == {f"m{number}": {"v": "1"} for number in range(5)}
        await until(lambda: reflector.watching)
        target.put_map("late", v="1")
        target.change_map("m0", v="2")
        target.delete_map("m1")
        await until(lambda: "m1" not in sink.maps)
        assert sink.maps["m0"] == {"v": "2"}
        assert sink.maps["late"] == {"v": "1"}
        assert reflector.counters.lists == 1
        assert reflector.problem == ""


async def test_a_field_selector_limits_the_list_and_the_watch(target: Target) -> None:
    for name in ("one", "two"):
        target.put_map(name)
    async with reflecting(target, field_selector="metadata.name=one") as (_, sink):
        assert set(sink.maps) == {"one"}
        target.change_map("two", v="2")
        target.change_map("one", v="2")
        await until(lambda: sink.maps["one"] == {"v": "2"})
        assert set(sink.maps) == {"one"}


@pytest.mark.parametrize("version", ["nonsense", "999999999999999"])
async def test_a_version_that_is_none_or_from_the_future_ends_in_a_new_list(target: Target, version: str) -> None:
    """As after the restore of an older state: the server has nothing to say, and only a list can tell."""
    target.put_map("one", v="1")
    options = {"first_delay": 0.01, "last_delay": 0.05, "healthy": 0.2, "silence": 0.5, "watch_seconds": (1, 1)}
    async with reflecting(target, start_at=version, **options) as (reflector, sink):
        assert set(sink.maps) == {"one"}
        assert reflector.counters.lists == 1
        assert reflector.counters.watches >= 1


async def test_bookmarks_keep_an_idle_watch_fresh(target: Target, request: pytest.FixtureRequest) -> None:
    if "real" in request.node.name:
        pytest.skip("the real server sends a bookmark once a minute: too long to wait for; the embedded one is asked")
    async with reflecting(target) as (reflector, _):
        await until(lambda: reflector.watching)
        before = reflector._rv
        for number in range(3):
            target.rest.create("/api/v1/namespaces", {"metadata": {"name": f"elsewhere-{number}"}})
        await until(lambda: reflector._rv != before)
        assert reflector.counters.events == 0


async def test_errors_say_what_the_server_said(target: Target) -> None:
    path = f"/api/v1/namespaces/{target.namespace}/configmaps"
    made = target.put_map("one", v="1")
    async with ApiClient.connect(str(target.kubeconfig)) as client:

        async def refusal(method: str, where: str, body: Any = None, **options: Any) -> tuple[int, str]:
            with pytest.raises(ApiError) as caught:
                await client.request(method, where, body=body, **options)
            return caught.value.status, caught.value.reason

        assert await refusal("GET", f"{path}/none") == (404, "NotFound")
        assert await refusal("POST", path, {"metadata": {"name": "one"}}) == (409, "AlreadyExists")
        stale = {"metadata": {"name": "one", "resourceVersion": "1"}}
        assert await refusal("PUT", f"{path}/one", stale) == (409, "Conflict")
        assert await refusal("PATCH", f"{path}/one", b"{}", content_type="text/plain") == (415, "UnsupportedMediaType")
        with pytest.raises(ApiError) as caught:
            await client.delete(f"{path}/one", uid="somebody-else")
        assert (caught.value.status, caught.value.reason) == (409, "Conflict")
        await client.patch(f"{path}/one", {"data": {"v": None, "w": "2"}}, content_type=MERGE)
        await client.patch(f"{path}/one", [{"op": "add", "path": "/data/x", "value": "3"}], content_type=JSON_PATCH)
        assert (await client.get_json(f"{path}/one"))["data"] == {"w": "2", "x": "3"}
        await client.delete(f"{path}/one", uid=made["metadata"]["uid"])
        assert await refusal("GET", f"{path}/one") == (404, "NotFound")


async def test_the_lease_has_one_holder_and_its_epoch_grows(target: Target) -> None:
    name = f"lease-{secrets.token_hex(3)}"
    async with ApiClient.connect(str(target.kubeconfig)) as client:

        def candidate(who: str) -> Elector:
            return Elector(client, target.namespace, name, who, 30.0, 20.0, 0.1)

        first, second = candidate("a"), candidate("b")
        one = asyncio.create_task(first.run())
        await asyncio.wait_for(first.leading.wait(), 60)
        two = asyncio.create_task(second.run())
        await until(lambda: second.holder == "a")
        assert await first.renew()
        assert not second.leading.is_set()
        one.cancel()
        await asyncio.wait([one])
        await asyncio.wait_for(second.leading.wait(), 60)
        assert (first.epoch, second.epoch) == (1, 2)
        assert not first.may_write()
        target.rest.delete(f"/apis/coordination.k8s.io/v1/namespaces/{target.namespace}/leases/{name}")
        with pytest.raises(LeadershipLost, match="deleted"):
            await asyncio.wait_for(two, 60)


@dataclass
class Heard:
    """The last word about each thing, from the cache's events."""

    pods: dict[str, str] = field(default_factory=dict)
    groups: dict[str, PodGroup] = field(default_factory=dict)
    dialects: dict[str, bool] = field(default_factory=dict)
    synced: bool = False
    shapes: set[str] = field(default_factory=set)

    def __call__(self, batch: list[feed.Event]) -> None:
        for event in batch:
            match event:
                case feed.PodSet(pod=pod):
                    assert pod.shape in self.shapes
                    self.pods[pod.uid] = pod.name
                case feed.PodGone(uid=uid):
                    self.pods.pop(uid, None)
                case feed.ShapeSet(shape=shape):
                    self.shapes.add(shape.key)
                case feed.GroupSet(group=group):
                    self.groups[group.key] = group
                case feed.GroupGone(key=key):
                    self.groups.pop(key, None)
                case feed.DialectSet(name=name, active=active):
                    self.dialects[name] = active
                case feed.Synced():
                    self.synced = True


@asynccontextmanager
async def watching(target: Target, *dialects: Any, period: float = 0.5) -> AsyncIterator[tuple[Watches, Cache, Heard]]:
    heard, cache = Heard(), Cache()
    cache.subscribe(heard)
    async with ApiClient.connect(str(target.kubeconfig)) as client:
        watches = Watches(
            client,
            cache,
            dialects,
            scheduler_names=["muster"],
            namespace=target.namespace,
            discovery_period=period,
            freeze=False,
        )
        task = asyncio.create_task(watches.run())
        try:
            await asyncio.wait(
                {task, asyncio.ensure_future(watches.all_synced.wait())}, timeout=30, return_when="FIRST_COMPLETED"
            )
            assert watches.all_synced.is_set(), watches.waiting_for()
            yield watches, cache, heard
        finally:
            task.cancel()
            await asyncio.wait([task])


async def test_everything_is_read_before_synced_is_said(target: Target) -> None:
    group = {"metadata": {"name": "g"}, "spec": {"minMember": 2}}
    target.rest.create(
        f"/apis/scheduling.muster.sh/v1alpha1/namespaces/{target.namespace}/podgroups",
        {"apiVersion": "scheduling.muster.sh/v1alpha1", "kind": "PodGroup", **group},
    )
    pod = target.pod("p0", **{"scheduling.muster.sh/pod-group": "g"})
    async with watching(target, *DIALECTS) as (watches, cache, heard):
        await until(lambda: heard.synced)
        assert heard.pods[pod["metadata"]["uid"]] == "p0"
        found = heard.groups[f"muster/{target.namespace}/g"]
        assert (found.min_member, found.problems) == (2, ())
        resource = watches.resource(found)
        assert resource is not None
        assert (resource.api_version, resource.has_status) == ("scheduling.muster.sh/v1alpha1", True)
        assert heard.dialects["muster"]
        assert cache.sizes()["namespaces"] >= 4
        assert watches.bad_objects == {}
        assert watches.waiting_for() == []
        late = target.pod("p1", **{"scheduling.muster.sh/pod-group": "g"})
        await until(lambda: late["metadata"]["uid"] in heard.pods)
        read = cache.pod(late["metadata"]["uid"])
        assert read is not None
        assert (read.group, read.ours) == (f"muster/{target.namespace}/g", True)
        target.rest.delete(f"/api/v1/namespaces/{target.namespace}/pods/p1", grace=0)
        await until(lambda: late["metadata"]["uid"] not in heard.pods)


async def test_an_annotated_job_is_a_group_and_others_are_not(target: Target) -> None:
    def job(name: str, **annotations: str) -> dict[str, Any]:
        template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "x"}]}}
        body = {
            "metadata": {"name": name, "annotations": annotations},
            "spec": {"suspend": True, "template": template},
        }
        return target.rest.create(f"/apis/batch/v1/namespaces/{target.namespace}/jobs", body)

    async with watching(target) as (_, _, heard):
        job("plain")
        made = job("gang", **{"scheduling.muster.sh/min-member": "3"})
        key = f"owner/{target.namespace}/{made['metadata']['uid']}"
        await until(lambda: key in heard.groups)
        assert heard.groups[key].min_member == 3
        assert [group.name for group in heard.groups.values() if group.namespace == target.namespace] == ["gang"]
        target.rest.delete(f"/apis/batch/v1/namespaces/{target.namespace}/jobs/gang", propagation="Background")
        await until(lambda: key not in heard.groups)


class FolkDialect:
    """A dialect whose definition the test installs and removes."""

    name: ClassVar[str] = "folk"

    def __init__(self, group: str) -> None:
        self.resources = (DialectResource(group, ("v1",), "bands", "Band", True, "group"),)

    def decode_group(self, raw: bytes | msgspec.Raw, api_version: str) -> PodGroup:
        meta = open_envelope("Band", raw).metadata
        return PodGroup(
            key=f"folk/{meta.namespace}/{meta.name}",
            uid=meta.uid,
            dialect="folk",
            namespace=meta.namespace,
            name=meta.name,
            api_version=api_version,
            kind="Band",
            resource_version=meta.resource_version,
        )

    def decode_queue(self, raw: bytes | msgspec.Raw, api_version: str) -> Queue:
        raise AssertionError("there are no queues")


def definition(group: str) -> dict[str, Any]:
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"bands.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": "bands", "singular": "band", "kind": "Band", "listKind": "BandList"},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}],
        },
    }


async def test_a_definition_that_comes_later_is_picked_up_and_one_that_goes_is_dropped(target: Target) -> None:
    group = f"folk-{secrets.token_hex(3)}.example.com"
    async with watching(target, FolkDialect(group), period=3600) as (_, _, heard):
        assert heard.dialects == {"folk": False}
        # The period is an hour: only the watch of the definitions can tell.
        target.rest.create(_CRDS, definition(group))
        await until(lambda: heard.dialects["folk"])
        band = {"apiVersion": f"{group}/v1", "kind": "Band", "metadata": {"name": "b"}}
        target.rest.create(f"/apis/{group}/v1/namespaces/{target.namespace}/bands", band)
        key = f"folk/{target.namespace}/b"
        await until(lambda: key in heard.groups)
        target.rest.delete(f"{_CRDS}/bands.{group}")
        await until(lambda: key not in heard.groups)
        await until(lambda: not heard.dialects["folk"])
