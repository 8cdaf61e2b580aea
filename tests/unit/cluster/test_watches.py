"""Which reflectors run, when everything counts as read, and what one broken resource may stop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, ClassVar

import msgspec
import pytest

from scheduler.cluster import feed
from scheduler.cluster.assembler import Assembler, Piece, read
from scheduler.cluster.bindrequests import bundle
from scheduler.cluster.cache import Cache
from scheduler.cluster.client import ApiClient
from scheduler.cluster.watches import RequestSink, Watches
from scheduler.dialects.base import DialectResource, open_envelope
from scheduler.model.decisions import Assignment, Place
from scheduler.model.groups import PodGroup
from scheduler.model.queues import Queue
from scheduler.playground.server import PlaygroundServer
from tests.unit.cluster.scripted import client_of

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
BOUND_BY = "bindrequests.v1alpha1.scheduling.muster.sh"


async def until(condition: Callable[[], object], seconds: float = 20.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.01)


class Bands:
    """A dialect with groups in two versions, and queues."""

    name: ClassVar[str] = "bands"
    resources: ClassVar[tuple[DialectResource, ...]] = (
        DialectResource("folk.io", ("v2", "v1"), "bands", "Band", True, "group"),
        DialectResource("folk.io", ("v1",), "halls", "Hall", False, "queue"),
    )

    def decode_group(self, raw: bytes | msgspec.Raw, api_version: str) -> PodGroup:
        meta = open_envelope("Band", raw).metadata
        if meta.name.startswith("bad"):
            raise ValueError("spec.singer: must not be a cat")
        return PodGroup(
            key=f"bands/{meta.namespace}/{meta.name}",
            uid=meta.uid,
            dialect="bands",
            namespace=meta.namespace,
            name=meta.name,
            api_version=api_version,
            kind="Band",
            resource_version=meta.resource_version,
        )

    def decode_queue(self, raw: bytes | msgspec.Raw, api_version: str) -> Queue:
        meta = open_envelope("Hall", raw).metadata
        return Queue(name=meta.name, uid=meta.uid, dialect="bands", resource_version=meta.resource_version)


def definition(plural: str, kind: str, scope: str, *versions: str) -> dict[str, Any]:
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    group = "scheduling.muster.sh" if plural == "bindrequests" else "folk.io"
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": scope,
            "names": {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List"},
            "versions": [
                {"name": name, "served": True, "storage": number == 0, "schema": schema}
                for number, name in enumerate(versions)
            ],
        },
    }


BINDREQUESTS = definition("bindrequests", "BindRequest", "Namespaced", "v1alpha1")
BANDS = definition("bands", "Band", "Namespaced", "v1")
HALLS = definition("halls", "Hall", "Cluster", "v1")


@asynccontextmanager
async def playground(*definitions: dict[str, Any]) -> AsyncIterator[tuple[PlaygroundServer, ApiClient]]:
    async with PlaygroundServer() as server, client_of(server.url) as client:
        for item in definitions:
            await client.post_json(CRDS, item)
        yield server, client


@asynccontextmanager
async def running(client: ApiClient, cache: Cache, *, wait: bool = True) -> AsyncIterator[tuple[Watches, Any]]:
    watches = Watches(
        client,
        cache,
        [Bands()],
        scheduler_names=["muster"],
        namespace="default",
        discovery_period=0.1,
        freeze=False,
    )
    task = asyncio.create_task(watches.run())
    try:
        if wait:
            await asyncio.wait_for(watches.all_synced.wait(), 20)
        yield watches, task
    finally:
        task.cancel()
        await asyncio.wait([task])


async def band(client: ApiClient, name: str) -> None:
    body = {"apiVersion": "folk.io/v1", "kind": "Band", "metadata": {"name": name}}
    await client.post_json("/apis/folk.io/v1/namespaces/default/bands", body)


async def test_nothing_is_synced_while_a_required_resource_cannot_be_listed() -> None:
    cache = Cache()
    async with playground() as (_, client), running(client, cache, wait=False) as (watches, _):
        missing = BOUND_BY
        await until(lambda: [line.split(":")[0] for line in watches.waiting_for()] == [missing])
        await until(lambda: any("404" in line for line in watches.waiting_for()))
        assert not watches.all_synced.is_set()
        assert not cache.synced
        await client.post_json(CRDS, BINDREQUESTS)
        await asyncio.wait_for(watches.all_synced.wait(), 30)
        assert cache.synced
        assert watches.waiting_for() == []


async def test_a_required_resource_whose_definition_goes_away_is_lost_until_it_comes_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("scheduler.cluster.watches.LOST_AFTER", 0.2)
    async with playground(BINDREQUESTS) as (_, client), running(client, Cache()) as (watches, _):
        assert watches.lost() == []
        await client.delete(f"{CRDS}/{BINDREQUESTS['metadata']['name']}")
        await until(lambda: [line.partition(":")[0] for line in watches.lost()] == [BOUND_BY])
        await client.post_json(CRDS, BINDREQUESTS)
        await until(lambda: watches.lost() == [])


async def test_a_dialect_that_we_may_not_read_delays_nobody_and_is_not_active() -> None:
    cache = Cache()
    async with playground(BINDREQUESTS, BANDS) as (server, client):
        await band(client, "b")
        rule = server.faults.fail("/apis/folk.io/v1/bands", 403, count=-1)
        async with running(client, cache) as (watches, _):
            assert cache.dialects.get("bands") is not True
            assert cache.group("bands/default/b") is None
            problems = {status.resource: status.problem for status in watches.status()}
            assert "403" in problems["bands.v1.folk.io"]
            rule.count = 0
            await until(lambda: cache.dialects.get("bands"), 30)
            assert cache.group("bands/default/b") is not None


async def test_a_dialect_is_active_only_after_its_objects_have_been_read() -> None:
    cache = Cache()
    said: list[str] = []

    def listen(batch: list[feed.Event]) -> None:
        kinds = feed.GroupSet | feed.QueueSet | feed.DialectSet | feed.Synced
        said.extend(type(event).__name__ for event in batch if isinstance(event, kinds))

    cache.subscribe(listen)
    async with playground(BINDREQUESTS, BANDS, HALLS) as (_, client):
        await band(client, "b")
        await client.post_json(
            "/apis/folk.io/v1/halls", {"apiVersion": "folk.io/v1", "kind": "Hall", "metadata": {"name": "h"}}
        )
        async with running(client, cache) as (watches, _):
            await until(lambda: "Synced" in said)
            group = cache.group("bands/default/b")
            assert group is not None
            assert watches.resource(group) is not None
            assert watches.resource(replace(group, kind="Choir")) is None
            assert cache.queue("bands", "h") is not None
    assert sorted(said[:2]) == ["GroupSet", "QueueSet"]
    assert said[2:] == ["DialectSet", "Synced"]


async def test_a_better_version_takes_over_without_a_gap() -> None:
    cache = Cache()
    gone: list[feed.Event] = []
    cache.subscribe(lambda batch: gone.extend(event for event in batch if isinstance(event, feed.GroupGone)))
    async with playground(BINDREQUESTS, BANDS) as (_, client):
        await band(client, "b")
        async with running(client, cache) as (_, _):
            two = definition("bands", "Band", "Namespaced", "v1", "v2")
            await client.patch(f"{CRDS}/bands.folk.io", {"spec": {"versions": two["spec"]["versions"]}})

            def version() -> str:
                group = cache.group("bands/default/b")
                return "" if group is None else group.api_version

            await until(lambda: version() == "folk.io/v2")
            await client.delete("/apis/folk.io/v2/namespaces/default/bands/b")
            await until(lambda: version() == "")
    assert gone == [feed.GroupGone("bands/default/b")]


async def test_bad_objects_of_all_resources_are_shown_and_stop_nobody() -> None:
    cache = Cache()
    async with playground(BINDREQUESTS, BANDS) as (_, client):
        await band(client, "bad-one")
        await band(client, "good")
        async with running(client, cache) as (watches, _):
            assert watches.bad_objects == {("Band", "default/bad-one"): "spec.singer: must not be a cat"}
            assert cache.group("bands/default/good") is not None
            bad = {status.resource: status.bad for status in watches.status() if status.bad}
            assert bad == {"bands.v1.folk.io": 1}


async def test_a_subscriber_that_fails_ends_the_run() -> None:
    cache = Cache()

    def broken(_: list[feed.Event]) -> None:
        raise KeyError("mine")

    cache.subscribe(broken, replay=False)
    async with playground(BINDREQUESTS) as (_, client), running(client, cache, wait=False) as (_, task):
        with pytest.raises(ExceptionGroup) as caught:
            await asyncio.wait_for(task, 20)
    assert "a subscriber of the cache failed" in repr(caught.value.exceptions)


def test_two_dialects_may_not_claim_one_resource() -> None:
    client: Any = None
    with pytest.raises(ValueError, match=r"bands\.folk\.io"):
        Watches(client, Cache(), [Bands(), Bands()], scheduler_names=["muster"], namespace="default")


def test_a_request_in_parts_is_one_request_in_the_cache_once_it_is_whole() -> None:
    cache = Cache()
    assembler = Assembler()
    sink = RequestSink(assembler, cache.bind_requests)
    members = tuple(Assignment(f"u{n}", "ns", f"pod-{n}", f"node-{n}") for n in range(600))
    place = Place("k", "g", "ns", "gang", "v1", "PodGroup", 200, members)
    written = bundle("s-1", "s-000001", 3, 1000.0, "muster-system", (place,), size=8000)
    assert len(written.parts) > 1
    pieces = [_with_uid(document.body, f"uid-{n}") for n, document in enumerate((*written.parts, written.header))]
    for piece in (pieces[-1], *pieces[1:-1]):
        sink.put(piece)
    assert cache.requests() == ()
    sink.put(pieces[0])
    (request,) = cache.requests()
    assert (request.name, request.gangs[0].assignments) == ("s-1", members)
    sink.drop("uid-1")  # a part that somebody deleted takes nothing away
    assert len(cache.requests()) == 1
    sink.drop(request.uid)
    assert cache.requests() == ()


def _with_uid(body: bytes, uid: str) -> Piece:
    document = msgspec.json.decode(body)
    document["metadata"] |= {"uid": uid, "resourceVersion": "1"}
    return read(msgspec.json.encode(document))
