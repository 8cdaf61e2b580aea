"""What the binder relies on, held against the playground and against the real API server alike."""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from scheduler.binder import answers
from scheduler.binder.loop import Binder
from scheduler.binder.objects import RequestObjects
from scheduler.binder.pool import binding, deletion, pod_path
from scheduler.binder.record import Answer, Kind, Timing, Verb
from scheduler.binder.run import Settings
from scheduler.cluster.bindrequests import MANY_GANGS, all_bound, bundle
from scheduler.cluster.cache import Cache
from scheduler.cluster.client import ApiClient, ApiError, RequestFailed
from scheduler.cluster.watches import Watches
from scheduler.model.decisions import Assignment, Place
from scheduler.model.pods import Pod
from scheduler.playground.server import PlaygroundServer, ThreadedServer
from tests.controlplane.crds import read_crds
from tests.controlplane.fixtures import CRD_FOLDER
from tests.controlplane.nodes import node_object, register_node
from tests.controlplane.rest import Rest

SETTINGS = Settings(history=2.0, timing=Timing(first_wait=0.05, last_wait=0.5, settle=0.5, straggle=0.5, confirm=2.0))


@dataclass
class Target:
    """An API server with two nodes of its own and a namespace. `rest` shares no code with the client under test."""

    rest: Rest
    kubeconfig: Path
    namespace: str
    nodes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        for number in (1, 2):
            name = f"{self.namespace}-n{number}"
            register_node(self.rest, node_object(name, {"cpu": "4", "memory": "8Gi"}))
            self.nodes.append(name)

    @property
    def pods(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/pods"

    @property
    def requests(self) -> str:
        return f"/apis/scheduling.muster.sh/v1alpha1/namespaces/{self.namespace}/bindrequests"

    def pod(self, name: str, node: int = 0, *, gated: bool = False) -> Assignment:
        container = {"name": "main", "image": "x", "resources": {"requests": {"cpu": "100m"}}}
        spec: dict[str, Any] = {"schedulerName": "muster", "containers": [container]}
        if gated:
            spec["schedulingGates"] = [{"name": "example.com/wait"}]
        made = self.rest.create(self.pods, {"metadata": {"name": name}, "spec": spec})
        return Assignment(made["metadata"]["uid"], self.namespace, name, self.nodes[node])

    def gang(self, *members: Assignment, minimum: int | None = None) -> Place:
        count = len(members) if minimum is None else minimum
        key = f"muster/{self.namespace}/g"
        return Place(key, "gu", self.namespace, "g", "scheduling.muster.sh/v1alpha1", "PodGroup", count, members)

    def write(self, *places: Place, epoch: int = 1, deadline: float = 30.0, size: int = 900_000) -> str:
        name = f"s-{secrets.token_hex(3)}"
        bound_by = time.time() + deadline
        whole = bundle(name, "s-1", epoch, bound_by, self.namespace, places, size=size)
        for document in (*whole.parts, whole.header):
            self.rest.create(self.requests, json.loads(document.body))
        return name

    def node_of(self, name: str) -> str:
        return str(self.rest.get(f"{self.pods}/{name}")["spec"].get("nodeName", ""))

    def status(self, name: str) -> dict[str, Any]:
        return dict(self.rest.get(f"{self.requests}/{name}").get("status", {}))


@pytest.fixture(params=["playground", pytest.param("real", marks=pytest.mark.real)])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Target]:
    if request.param == "real":
        cluster = request.getfixturevalue("real_control_plane")
        found = Target(cluster.rest, cluster.kubeconfig, request.getfixturevalue("real_namespace"))
        yield found
        for name in found.nodes:
            cluster.rest.delete_if_present(f"/api/v1/nodes/{name}")
        return
    with ThreadedServer(PlaygroundServer()) as server:
        rest = Rest(server.url, "")
        for crd in read_crds(CRD_FOLDER):
            rest.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd)
        rest.create("/api/v1/namespaces", {"metadata": {"name": "test"}})
        yield Target(rest, server.write_kubeconfig(tmp_path / "kubeconfig"), "test")


class _Lease:
    def __init__(self, epoch: int) -> None:
        self.epoch = epoch

    def may_write(self) -> bool:
        return True


class _Trusting(Cache):
    """A cache that has not heard of gates yet."""

    def pod(self, uid: str) -> Pod | None:
        found = super().pod(uid)
        return None if found is None else replace(found, gated=False)


async def until(condition: Callable[[], object], seconds: float = 60.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.05)


@asynccontextmanager
async def binding_on(
    target: Target, *, epoch: int = 1, cache: Cache | None = None, **options: Any
) -> AsyncIterator[Binder]:
    cache = cache or Cache()
    async with ApiClient.connect(str(target.kubeconfig)) as client:
        watches = Watches(client, cache, [], scheduler_names=["muster"], namespace=target.namespace, freeze=False)
        reading = asyncio.create_task(watches.run())
        await asyncio.wait_for(watches.all_synced.wait(), 60)
        objects = RequestObjects(client, watches.assembler, target.namespace)
        binder = Binder(cache, client, objects, _Lease(epoch), settings=SETTINGS, covered=cache.guarded, **options)
        task = asyncio.create_task(binder.run())
        try:
            yield binder
            if task.done():
                task.result()
        finally:
            for one in (task, reading):
                one.cancel()
            await asyncio.gather(task, reading, return_exceptions=True)


async def seen(cache: Cache, place: Place) -> None:
    await until(lambda: all(cache.pod(item.uid) for item in place.assignments))


async def ended(target: Target, name: str) -> dict[str, Any]:
    found: dict[str, Any] = {}

    def closed() -> bool:
        found.update(target.status(name))
        return found.get("phase") in ("Bound", "Failed")

    await until(closed)
    return found


async def test_a_gang_is_bound_reported_and_its_request_forgotten(target: Target) -> None:
    cache = Cache()
    async with binding_on(target, cache=cache):
        place = target.gang(*(target.pod(f"p{i}", i % 2) for i in range(5)))
        await seen(cache, place)  # as whoever decides has seen them: watches of two kinds overtake each other
        name = target.write(place)
        status = await ended(target, name)
        assert status["phase"] == "Bound"
        assert [(gang["phase"], gang["bound"]) for gang in status["gangs"]] == [("Bound", 5)]
        assert [target.node_of(a.pod) for a in place.assignments] == [a.node for a in place.assignments]
        await until(lambda: target.rest.list(target.requests) == [])


async def test_of_many_gangs_that_were_all_bound_none_is_listed_and_every_one_is_known(target: Target) -> None:
    cache = Cache()
    async with binding_on(target, cache=cache):
        places = [target.gang(target.pod(f"p{i}", i % 2)) for i in range(MANY_GANGS + 1)]
        for place in places:
            await seen(cache, place)
        name = target.write(*places)
        assert await ended(target, name) == {"phase": "Bound"}
        assert all(target.node_of(place.assignments[0].pod) for place in places)

        def known() -> bool:
            read = [one for one in cache.requests() if one.name == name and one.phase == "Bound"]
            return [one.outcomes for one in read] == [all_bound(places)]

        await until(known, 5)


async def test_a_request_in_parts_of_an_older_epoch_is_adopted_continued_and_deleted_with_its_parts(
    target: Target,
) -> None:
    members = [target.pod(f"{'p' * 40}{i}", i % 2) for i in range(60)]
    client_bound = binding(members[3])
    target.rest.create(f"{target.pods}/{members[3].pod}/binding", json.loads(client_bound))
    name = target.write(target.gang(*members), epoch=1, size=4_600)
    assert len(target.rest.list(target.requests)) > 2
    async with binding_on(target, epoch=5):
        status = await ended(target, name)
        assert status["phase"] == "Bound"
        assert status["gangs"][0]["bound"] == 60
        assert target.rest.get(f"{target.requests}/{name}")["spec"]["epoch"] == 5
        await until(lambda: target.rest.list(target.requests) == [])


async def test_a_gate_that_the_cache_does_not_know_unwinds_the_gang_and_deletes_what_was_bound(target: Target) -> None:
    cache = _Trusting()
    async with binding_on(target, cache=cache):
        place = target.gang(target.pod("a"), target.pod("b", gated=True), target.pod("c", 1))
        await seen(cache, place)
        status = await ended(target, target.write(place))
        assert status["phase"] == "Failed"
        assert [(f["pod"], f["cause"]) for f in status["gangs"][0]["failures"]] == [("b", "PodGated")]
        assert target.node_of("b") == ""
        left = {pod["metadata"]["name"]: pod for pod in target.rest.list(target.pods)}
        assert all("deletionTimestamp" in left[name]["metadata"] for name in ("a", "c") if name in left)


async def test_a_request_that_arrives_with_an_older_epoch_is_refused(target: Target) -> None:
    async with binding_on(target, epoch=5):
        status = await ended(target, target.write(target.gang(target.pod("a"), target.pod("b")), epoch=4))
        assert status["phase"] == "Failed"
        assert status["gangs"][0]["failures"][0]["cause"] == "StaleEpoch"
        assert target.node_of("a") == ""


async def test_the_server_answers_every_bind_as_the_binder_understands_it(target: Target) -> None:
    async with ApiClient.connect(str(target.kubeconfig)) as client:

        async def bind(what: Assignment) -> Answer:
            try:
                await client.request("POST", f"{pod_path(what)}/binding", body=binding(what))
            except RequestFailed as error:
                return answers.failed(Verb.BIND, error)
            return answers.BOUND

        async def read(what: Assignment) -> Answer:
            try:
                return answers.read_pod(await client.request("GET", pod_path(what)), what.uid)
            except RequestFailed as error:
                return answers.failed(Verb.READ, error)

        good, gated = target.pod("good"), target.pod("gated", gated=True)
        assert (await bind(gated)).kind is Kind.DOUBT
        gate = (await read(gated)).reading
        assert gate is not None
        assert (gate.gated, gate.node) == (True, "")
        assert (await bind(replace(good, uid="another"))).kind is Kind.DOUBT
        assert await bind(good) == answers.BOUND
        assert (await bind(good)).kind is Kind.DOUBT
        there = (await read(good)).reading
        assert there is not None
        assert (there.node, there.started) == (good.node, False)
        assert (await bind(replace(good, pod="missing"))).cause == "PodGone"
        gone = (await read(replace(good, uid="another"))).reading
        assert gone is not None
        assert gone.gone


async def test_a_deletion_holds_only_for_the_version_that_was_read(target: Target) -> None:
    async with ApiClient.connect(str(target.kubeconfig)) as client:
        what = target.pod("p")
        await client.request("POST", f"{pod_path(what)}/binding", body=binding(what))
        version = str(target.rest.get(f"{target.pods}/p")["metadata"]["resourceVersion"])
        target.rest.patch(f"{target.pods}/p", {"metadata": {"labels": {"touched": "yes"}}})
        with pytest.raises(ApiError) as refused:
            await client.request("DELETE", pod_path(what), body=deletion(what, version))
        assert refused.value.status == 409
        version = str(target.rest.get(f"{target.pods}/p")["metadata"]["resourceVersion"])
        await client.request("DELETE", pod_path(what), body=deletion(what, version))
