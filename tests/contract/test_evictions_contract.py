"""Room that the binder makes, against the playground and against the real API server alike. The kubelet is the test."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import Any

import pytest

from scheduler.binder import answers
from scheduler.binder.evictions import eviction_body
from scheduler.binder.pool import pod_path
from scheduler.binder.record import Answer, Kind, Verb
from scheduler.cluster.cache import Cache
from scheduler.cluster.client import JSON, STRATEGIC, ApiClient, RequestFailed
from scheduler.model.bindrequest import BindRequest
from scheduler.model.decisions import Assignment, Place, Victim
from scheduler.observe import explain
from tests.contract.test_binder_contract import Target, binding_on, ended, seen, target, until

__all__ = ["target"]  # a fixture
TIME = "2026-01-01T00:00:00Z"


class Room:
    """Running pods on the nodes of a target, what covers them, and a gang that wants their room."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.budgets = f"/apis/policy/v1/namespaces/{target.namespace}/poddisruptionbudgets"
        self.told: list[str] = []

    def victim(self, name: str, node: int = 0, *, labels: dict[str, str] | None = None, **meta: Any) -> Victim:
        container = {"name": "main", "image": "x", "resources": {"requests": {"cpu": "2"}}}
        spec: dict[str, Any] = {
            "schedulerName": "muster", "nodeName": self.target.nodes[node], "containers": [container],
        }  # fmt: skip
        spec["terminationGracePeriodSeconds"] = 3600
        made = self.target.rest.create(
            self.target.pods, {"metadata": {"name": name, "labels": labels or {}, **meta}, "spec": spec}
        )
        ready = {"type": "Ready", "status": "True", "lastTransitionTime": TIME}
        self.target.rest.patch(
            f"{self.target.pods}/{name}/status", {"status": {"phase": "Running", "conditions": [ready]}}
        )
        uid = made["metadata"]["uid"]
        return Victim(uid, self.target.namespace, name, self.target.nodes[node], "muster/low/g", grace=3600)

    def gang(self, *victims: Victim, members: int = 2) -> Place:
        place = self.target.gang(*(self.target.pod(f"p{i}", i % 2) for i in range(members)))
        return Place(
            place.group, place.group_uid, place.namespace, place.name, place.api_version, place.kind, place.minimum,
            place.assignments, (), victims,
        )  # fmt: skip

    def budget(self, allowed: int, pods: int) -> None:
        """A budget for the pods labelled app=db, as its controller would have written it."""
        selector = {"matchLabels": {"app": "db"}}
        self.target.rest.create(
            self.budgets, {"metadata": {"name": "db"}, "spec": {"minAvailable": pods - allowed, "selector": selector}}
        )
        self.allow(allowed, pods)

    def allow(self, allowed: int, pods: int) -> None:
        """Say how many evictions a budget over so many healthy pods allows; where it has a controller, that agrees."""
        found = self.target.rest.patch(f"{self.budgets}/db", {"spec": {"minAvailable": pods - allowed}})
        generation = found["metadata"]["generation"]
        status = {
            "observedGeneration": generation,
            "disruptionsAllowed": allowed,
            "currentHealthy": pods,
            "desiredHealthy": pods - allowed,
            "expectedPods": pods,
        }
        self.target.rest.patch(f"{self.budgets}/db/status", {"status": status})

    def going(self, name: str) -> bool:
        return "deletionTimestamp" in self.target.rest.get(f"{self.target.pods}/{name}")["metadata"]

    def mark(self, name: str) -> dict[str, Any]:
        rows = self.target.rest.get(f"{self.target.pods}/{name}")["status"].get("conditions", [])
        return next((row for row in rows if row["type"] == "DisruptionTarget"), {})

    async def marked(self, name: str) -> None:
        """It goes, and says for whom."""
        await until(lambda: self.going(name) and self.mark(name).get("reason") == "PreemptionByScheduler")
        mark = self.mark(name)
        assert mark["status"] == "True"
        assert mark["message"] == f"Evicted for PodGroup {self.target.namespace}/g, which has a higher priority"

    def end(self, name: str) -> None:
        """What a kubelet does when the containers have ended."""
        self.target.rest.delete(f"{self.target.pods}/{name}", grace=0)

    def tell(self, _request: BindRequest, _place: Place, victim: Victim) -> None:
        self.told.append(victim.pod)

    def bound(self) -> list[str]:
        pods = self.target.rest.list(self.target.pods)
        named = [(pod["metadata"]["name"], pod["spec"].get("nodeName")) for pod in pods]
        return sorted(name for name, node in named if node and name.startswith("p"))

    @property
    def options(self) -> dict[str, Any]:
        return {"words": explain, "told": self.tell}


@pytest.fixture
def room(target: Target) -> Room:
    return Room(target)


async def ready(room: Room, cache: Cache, place: Place) -> None:
    """The binder has seen everything, as whoever decides has."""
    await seen(cache, place)
    await until(lambda: all(cache.pod(victim.uid) for victim in place.victims))


async def test_victims_have_their_grace_and_nothing_is_bound_before_the_last_is_gone(room: Room) -> None:
    cache = Cache()
    place = room.gang(room.victim("v0"), room.victim("v1", 1))
    async with binding_on(room.target, cache=cache, **room.options):
        await ready(room, cache, place)
        name = room.target.write(place)
        for victim in ("v0", "v1"):
            await room.marked(victim)
        await until(lambda: sorted(room.told) == ["v0", "v1"])
        found = room.target.rest.get(f"{room.target.pods}/v0")["metadata"]
        assert found["deletionGracePeriodSeconds"] == 3600
        room.end("v0")
        await asyncio.sleep(1)
        assert room.bound() == []
        room.end("v1")
        assert (await ended(room.target, name))["phase"] == "Bound"
        assert room.bound() == ["p0", "p1"]


async def test_a_victim_that_has_ended_is_gone_even_while_its_object_stays(room: Room) -> None:
    cache = Cache()
    place = room.gang(room.victim("v0", finalizers=["example.com/keep"]))
    async with binding_on(room.target, cache=cache, **room.options):
        await ready(room, cache, place)
        name = room.target.write(place)
        await room.marked("v0")
        room.target.rest.patch(f"{room.target.pods}/v0/status", {"status": {"phase": "Failed"}})
        assert (await ended(room.target, name))["phase"] == "Bound"
    room.target.rest.patch(f"{room.target.pods}/v0", {"metadata": {"finalizers": None}})


async def test_a_victim_that_a_finalizer_keeps_running_fails_the_gang_at_its_deadline(room: Room) -> None:
    cache = Cache()
    place = room.gang(room.victim("v0", finalizers=["example.com/keep"]))
    async with binding_on(room.target, cache=cache, **room.options):
        await ready(room, cache, place)
        status = await ended(room.target, room.target.write(place, deadline=4.0))
        assert status["phase"] == "Failed"
        failures = status["gangs"][0]["failures"]
        assert {(one["cause"], one["about"]) for one in failures} == {
            ("VictimsRemain", f"{room.target.namespace}/v0"),
        }
        assert room.bound() == []
    room.target.rest.patch(f"{room.target.pods}/v0", {"metadata": {"finalizers": None}})


async def test_a_budget_that_allows_it_is_asked_and_charged(room: Room) -> None:
    cache = Cache()
    place = room.gang(room.victim("v0", labels={"app": "db"}), room.victim("v1", 1))
    room.budget(1, 1)
    async with binding_on(room.target, cache=cache, **room.options):
        await ready(room, cache, place)
        await until(lambda: cache.budgets.by_key)
        name = room.target.write(place)
        for victim in ("v0", "v1"):
            await room.marked(victim)
        assert room.target.rest.get(f"{room.budgets}/db")["status"]["disruptionsAllowed"] == 0
        for victim in ("v0", "v1"):
            room.end(victim)
        assert (await ended(room.target, name))["phase"] == "Bound"


async def test_a_budget_that_allows_nothing_costs_nobody_anything(room: Room) -> None:
    cache = Cache()
    place = room.gang(room.victim("v0", labels={"app": "db"}), room.victim("v1", 1))
    room.budget(0, 1)
    async with binding_on(room.target, cache=cache, **room.options):
        await ready(room, cache, place)
        await until(lambda: cache.budgets.by_key)
        status = await ended(room.target, room.target.write(place, deadline=4.0))
        assert status["phase"] == "Failed"
        about = {one["about"] for one in status["gangs"][0]["failures"]}
        assert about == {f"{room.target.namespace}/v0: DisruptionBudget"}
    assert not room.going("v0")
    assert not room.going("v1")
    assert room.mark("v0") == room.mark("v1") == {}
    assert room.told == []


async def test_a_budget_that_allows_one_of_two_is_asked_again_until_it_allows_the_other(room: Room) -> None:
    cache = Cache()
    covered = [room.victim(f"v{i}", i, labels={"app": "db"}) for i in range(2)]
    place = room.gang(*covered, room.victim("v2"))
    room.budget(1, 2)
    async with binding_on(room.target, cache=cache, **room.options):
        await ready(room, cache, place)
        await until(lambda: cache.budgets.by_key)
        name = room.target.write(place, deadline=60.0)
        await until(lambda: sum(map(room.going, ("v0", "v1"))) == 1)
        await asyncio.sleep(1.5)
        assert sum(map(room.going, ("v0", "v1"))) == 1
        assert not room.going("v2")
        assert room.mark("v2") == {}
        room.allow(1, 1)
        for victim in ("v0", "v1", "v2"):
            await room.marked(victim)
            room.end(victim)
        assert (await ended(room.target, name))["phase"] == "Bound"
        assert sorted(room.told) == ["v0", "v1", "v2"]


async def test_a_victim_that_is_terminating_already_is_only_awaited(room: Room) -> None:
    cache = Cache()
    place = room.gang(room.victim("v0"))
    room.target.rest.delete(f"{room.target.pods}/v0")
    async with binding_on(room.target, cache=cache, **room.options):
        await ready(room, cache, place)
        name = room.target.write(place)
        await asyncio.sleep(1)
        assert room.mark("v0") == {}
        room.end("v0")
        assert (await ended(room.target, name))["phase"] == "Bound"
        assert room.told == []


async def test_a_pod_made_again_under_the_name_of_a_victim_is_left_alone(room: Room) -> None:
    cache = Cache()
    place = room.gang(room.victim("v0"))
    room.end("v0")
    room.victim("v0", 1)
    async with binding_on(room.target, cache=cache, **room.options):
        await seen(cache, place)
        assert (await ended(room.target, room.target.write(place)))["phase"] == "Bound"
    assert not room.going("v0")
    assert room.mark("v0") == {}


@pytest.mark.parametrize("how", ["pod deleted", "request deleted"])
async def test_who_was_not_asked_yet_stays_when_the_gang_disappears(room: Room, how: str) -> None:
    cache = Cache()
    place = room.gang(room.victim("v0", labels={"app": "db"}), room.victim("v1", 1))
    room.budget(0, 1)
    async with binding_on(room.target, cache=cache, **room.options):
        await ready(room, cache, place)
        await until(lambda: cache.budgets.by_key)
        name = room.target.write(place)
        await asyncio.sleep(1)
        if how == "pod deleted":
            room.target.rest.delete(f"{room.target.pods}/p1", grace=0)
            assert (await ended(room.target, name))["phase"] == "Failed"
        else:
            room.target.rest.delete(f"{room.target.requests}/{name}")
            await until(lambda: not room.target.rest.list(room.target.requests))
            await asyncio.sleep(0.5)
        room.allow(1, 1)
        await asyncio.sleep(2)
        assert not room.going("v0")
        assert not room.going("v1")
        assert room.bound() == []


@pytest.mark.parametrize("point", ["before-first-eviction", "after-first-eviction", "victims-gone"])
async def test_a_new_leader_resumes_where_the_old_one_died_and_evicts_nobody_twice(room: Room, point: str) -> None:
    cache = Cache()
    place = room.gang(room.victim("v0"), room.victim("v1", 1))

    died = asyncio.Event()

    def die(at: str, _request: BindRequest) -> None:
        if at == point:
            died.set()
            raise RuntimeError("killed")

    with pytest.raises(RuntimeError, match="killed"):
        async with binding_on(room.target, cache=cache, **room.options, observer=die):
            await ready(room, cache, place)
            name = room.target.write(place, epoch=1, deadline=60.0)
            if point == "victims-gone":
                for victim in ("v0", "v1"):
                    await room.marked(victim)
                    room.end(victim)
            await asyncio.wait_for(died.wait(), 60)
            await asyncio.sleep(0.2)
    assert room.bound() == []
    stamps = {victim: _stamp(room, victim) for victim in ("v0", "v1")} if point != "victims-gone" else {}
    async with binding_on(room.target, epoch=2, **room.options):
        for victim in stamps:
            await room.marked(victim)
            assert stamps[victim] in ("", _stamp(room, victim)), "it was not deleted a second time"
            room.end(victim)
        assert (await ended(room.target, name))["phase"] == "Bound"
        assert room.bound() == ["p0", "p1"]


def _stamp(room: Room, name: str) -> str:
    return str(room.target.rest.get(f"{room.target.pods}/{name}")["metadata"].get("deletionTimestamp", ""))


async def test_pods_of_a_queue_that_is_drained_go_and_nothing_is_bound(room: Room) -> None:
    cache = Cache()
    victim = room.victim("v0")
    drain = Place("queue/q", "", "", "q", "", "Queue", 0, (), victims=(victim,))
    async with binding_on(room.target, cache=cache, **room.options):
        await until(lambda: cache.pod(victim.uid))
        name = room.target.write(drain)
        await until(lambda: room.going("v0"))
        room.end("v0")
        assert (await ended(room.target, name))["phase"] == "Bound"


async def test_the_server_answers_every_request_about_a_victim_as_the_binder_understands_it(room: Room) -> None:
    victim = room.victim("v0", labels={"app": "db"})
    room.budget(0, 1)
    here = Assignment(victim.uid, victim.namespace, victim.pod, victim.node)
    room.victim("v1")
    free = replace(here, uid="", pod="v1")
    missing = replace(here, pod="missing")
    ways = {
        Verb.MARK: ("PATCH", "/status", STRATEGIC),
        Verb.EVICT: ("POST", "/eviction", JSON),
        Verb.REMOVE: ("DELETE", "", JSON),
    }
    async with ApiClient.connect(str(room.target.kubeconfig)) as client:

        async def ask(verb: Verb, what: Assignment) -> Answer:
            method, sub, kind = ways[verb]
            body = eviction_body(verb, what, "why", time.time())
            try:
                await client.request(method, pod_path(what) + sub, body=body, content_type=kind)
            except RequestFailed as error:
                return answers.failed(verb, error)
            return Answer(verb, Kind.DONE)

        refused = await ask(Verb.EVICT, here)
        assert (refused.kind, refused.cause) == (Kind.RETRY, answers.BUDGET)
        room.allow(1, 1)
        for verb in ways:
            gone = await ask(verb, missing)
            assert gone.reading is not None, verb
            assert gone.reading.gone, verb
        for verb in (Verb.MARK, Verb.REMOVE):
            assert (await ask(verb, replace(here, uid="another"))).kind is Kind.DOUBT, verb
        assert room.mark("v0") == {}
        # Both servers ask the budget before they look at the uid: this one has none.
        assert (await ask(Verb.EVICT, replace(free, uid="another"))).kind is Kind.DOUBT
        assert not room.going("v0")
        assert not room.going("v1")
        for verb in (Verb.MARK, Verb.EVICT, Verb.EVICT, Verb.REMOVE):
            assert (await ask(verb, here)).kind is Kind.DONE, verb
        assert room.going("v0")
        assert room.mark("v0")["reason"] == "EvictionByEvictionAPI", "which is why a mark is set after an eviction"
        assert (await ask(Verb.MARK, here)).kind is Kind.DONE
        assert room.mark("v0")["reason"] == "PreemptionByScheduler"
