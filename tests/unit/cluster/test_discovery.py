"""Discovery: which version, what counts as gone, and that a failed answer changes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web

from scheduler.cluster.client import ApiClient
from scheduler.cluster.discovery import Discovery, Resource, Served, Wanted
from tests.unit.cluster.scripted import client_of, line, scripted, status

GROUPS = Wanted("scheduling.volcano.sh", "podgroups", ("v1", "v1beta1"))
QUEUES = Wanted("scheduling.volcano.sh", "queues", ("v1beta1",))


@dataclass
class Apis:
    """group -> version -> plurals; a group in `broken` answers 503."""

    served: dict[str, dict[str, list[str]]] = field(default_factory=dict)
    broken: set[str] = field(default_factory=set)
    verbs: list[str] = field(default_factory=lambda: ["get", "list", "watch"])
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    crd_status: int = 200

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        path = request.path
        if path.endswith("customresourcedefinitions"):
            return await self._definitions(request)
        if path == "/apis":
            if "/apis" in self.broken:
                return status(500, "InternalError")
            groups = [
                {"name": name, "versions": [{"version": version} for version in versions]}
                for name, versions in self.served.items()
            ]
            return web.json_response({"kind": "APIGroupList", "groups": groups})
        _, _, group, version = path.split("/")
        if group in self.broken:
            return status(503, "ServiceUnavailable")
        if version not in self.served.get(group, {}):
            return status(404, "NotFound")
        resources = [
            {"name": plural, "kind": plural.title(), "namespaced": plural == "podgroups", "verbs": self.verbs}
            for plural in self.served[group][version]
        ]
        return web.json_response({"kind": "APIResourceList", "resources": resources})

    async def _definitions(self, request: web.Request) -> web.StreamResponse:
        if self.crd_status != 200:
            return status(self.crd_status, "Forbidden")
        response = web.StreamResponse()
        await response.prepare(request)
        await self.changed.wait()
        await response.write(line("ADDED", {"metadata": {"name": "x"}}))
        await asyncio.sleep(60)
        return response


@asynccontextmanager
async def apis(**options: object) -> AsyncIterator[tuple[Apis, ApiClient]]:
    state = Apis(**options)  # type: ignore[arg-type]
    async with scripted(state) as server, client_of(server) as client:
        yield state, client


async def test_the_first_version_that_is_served_is_used() -> None:
    seen: list[Served] = []
    async with apis() as (state, client):
        state.served = {"scheduling.volcano.sh": {"v1beta1": ["podgroups", "podgroups/status", "queues"]}}
        discovery = Discovery(client, [GROUPS, QUEUES], seen.append)
        await discovery.look()
        assert discovery.complete.is_set()
        group = Resource("scheduling.volcano.sh", "v1beta1", "podgroups", "Podgroups", True, has_status=True)
        queue = Resource("scheduling.volcano.sh", "v1beta1", "queues", "Queues", False, has_status=False)
        assert seen == [{GROUPS: group, QUEUES: queue}]
        assert group.path("ns", "g", "status") == "/apis/scheduling.volcano.sh/v1beta1/namespaces/ns/podgroups/g/status"
        state.served["scheduling.volcano.sh"]["v1"] = ["podgroups"]
        await discovery.look()
        assert seen[1][GROUPS] == Resource("scheduling.volcano.sh", "v1", "podgroups", "Podgroups", has_status=False)
        await discovery.look()
        assert len(seen) == 2


async def test_nothing_served_is_an_answer_too() -> None:
    seen: list[Served] = []
    async with apis() as (_, client):
        discovery = Discovery(client, [GROUPS], seen.append)
        await discovery.look()
        assert discovery.complete.is_set()
    assert seen == [{GROUPS: None}]


async def test_a_resource_that_cannot_be_watched_is_not_served() -> None:
    seen: list[Served] = []
    async with apis() as (state, client):
        state.served = {"scheduling.volcano.sh": {"v1": ["podgroups", "podgroups/status"]}}
        state.verbs = ["get"]
        await Discovery(client, [GROUPS], seen.append).look()
    assert seen == [{GROUPS: None}]


async def test_a_removed_definition_is_reported_and_a_failed_answer_is_not_a_removal() -> None:
    seen: list[Served] = []
    async with apis() as (state, client):
        state.served = {"scheduling.volcano.sh": {"v1": ["podgroups"]}}
        discovery = Discovery(client, [GROUPS], seen.append)
        await discovery.look()
        for broken in ("scheduling.volcano.sh", "/apis"):
            state.broken = {broken}
            await discovery.look()
            assert discovery.problem
            assert discovery.served[GROUPS] is not None
        state.broken = set()
        state.served = {}
        await discovery.look()
        assert discovery.problem == ""
    assert [answer[GROUPS] is None for answer in seen] == [False, True]


async def test_one_group_that_does_not_answer_delays_only_completeness() -> None:
    other = Wanted("b.io", "things", ("v1",))
    seen: list[Served] = []
    async with apis() as (state, client):
        state.served = {"scheduling.volcano.sh": {"v1": ["podgroups"]}, "b.io": {"v1": ["things"]}}
        state.broken = {"scheduling.volcano.sh"}
        discovery = Discovery(client, [GROUPS, other], seen.append)
        await discovery.look()
        assert not discovery.complete.is_set()
        assert list(seen[0]) == [other]
        state.broken = set()
        await discovery.look()
        assert discovery.complete.is_set()
        assert set(seen[1]) == {GROUPS, other}


async def test_a_changed_definition_makes_a_look_before_the_period_is_over() -> None:
    found = asyncio.Event()

    def on_change(served: Served) -> None:
        if served[GROUPS] is not None:
            found.set()

    async with apis() as (state, client):
        discovery = Discovery(client, [GROUPS], on_change, period=3600)
        running = asyncio.create_task(discovery.run())
        await asyncio.wait_for(discovery.complete.wait(), 10)
        state.served = {"scheduling.volcano.sh": {"v1": ["podgroups"]}}
        state.changed.set()
        await asyncio.wait_for(found.wait(), 10)
        running.cancel()
        await asyncio.wait([running])


async def test_without_permission_to_watch_definitions_polling_finds_them() -> None:
    found = asyncio.Event()

    def on_change(served: Served) -> None:
        if served[GROUPS] is not None:
            found.set()

    async with apis(crd_status=403) as (state, client):
        discovery = Discovery(client, [GROUPS], on_change, period=0.05)
        running = asyncio.create_task(discovery.run())
        await asyncio.wait_for(discovery.complete.wait(), 10)
        state.served = {"scheduling.volcano.sh": {"v1": ["podgroups"]}}
        await asyncio.wait_for(found.wait(), 10)
        running.cancel()
        await asyncio.wait([running])
