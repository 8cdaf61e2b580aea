"""What becomes of groups that were made for owners, and of their pods, once grouping is switched off."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from scheduler.cluster.cache import Cache
from scheduler.cluster.client import ApiError, Unreachable
from scheduler.controllers.grouping import HOLD
from scheduler.controllers.leaving import Leaving
from scheduler.dialects.owners import group_name
from scheduler.model.groups import PodGroup
from scheduler.model.owners import Reference
from scheduler.model.pods import Pod
from tests.unit.controllers.test_grouping import JOB, KEY, PATH, RAY, SET, SHAPE, Meter, Server, meta

NAME = group_name(RAY)


class World:
    def __init__(self, *, leads: bool = True, settled: bool = True) -> None:
        self.now, self.leads, self.settled = 100.0, leads, settled
        self.cache, self.server, self.meter = Cache(), Server(), Meter()
        self.leaving = Leaving(
            self.cache,
            self.server,
            settled=lambda: self.settled,
            may_write=lambda: self.leads,
            meter=self.meter,
            clock=lambda: self.now,
        )
        self.cache.subscribe(self.leaving.watch)

    def pod(self, name: str, above: Reference, **more: Any) -> None:
        owner = {
            "owner_api": above.api, "owner_kind": above.kind, "owner_name": above.name, "owner_uid": above.uid
        }  # fmt: skip
        pod = Pod(uid=name, namespace="a", name=name, shape="s", **{"ours": True, **owner, **more})
        self.leaving.put((pod, SHAPE))

    def group(self, reference: Reference) -> None:
        name = group_name(reference)
        self.cache.groups.put(
            PodGroup(
                key=f"muster/a/{name}", uid=f"of {reference.uid}", dialect="muster", namespace="a", name=name,
                min_member=2, made_for=reference.uid,
            )
        )  # fmt: skip

    async def turn(self, times: int = 2) -> None:
        for _ in range(times):
            self.cache.flush()
            await asyncio.sleep(0)
            await self.leaving.step()

    def shown(self) -> dict[str, str]:
        return {uid: pod.group for uid, pod in sorted(self.cache.pods.pods.items())}

    @property
    def deleted(self) -> list[str]:
        assert all(method == "DELETE" for method, _, _ in self.server.wrote)
        return [name for _, name, _ in self.server.wrote]


def test_a_gang_that_waits_keeps_its_group_until_all_of_it_has_started() -> None:
    async def story() -> None:
        world = World()
        world.group(RAY)
        world.pod("p1", RAY)
        world.pod("p2", RAY)
        await world.turn()
        assert (world.shown(), world.deleted) == ({"p1": KEY, "p2": KEY}, [])
        assert list(world.leaving.problems) == [f"PodGroup a/{NAME}"]
        world.pod("p1", RAY, node="n")
        await world.turn()
        assert (world.shown(), world.deleted) == ({"p1": KEY, "p2": KEY}, []), "the other half waits still"
        world.pod("p2", RAY, node="n")
        await world.turn(1)
        assert world.deleted == [NAME]
        assert world.server.wrote[0][2] == {"preconditions": {"uid": "of ray-uid"}}
        world.cache.groups.drop("of ray-uid")
        await world.turn()
        assert (world.shown(), world.leaving.problems) == ({"p1": "", "p2": ""}, {})
        world.pod("p3", RAY)
        assert world.shown()["p3"] == "", "from now on one by one"
        assert world.meter.counted == ["owner_groups:deleted"]

    asyncio.run(story())


def test_what_is_gated_or_gone_counts_as_it_should() -> None:
    async def story() -> None:
        world = World()
        world.group(RAY)
        world.pod("held-back", RAY, gated=True)
        world.pod("ended", RAY, phase="Succeeded", node="n")
        await world.turn()
        assert world.deleted == [], "a gated pod will want to start"
        world.leaving.drop("held-back")
        await world.turn(1)
        assert world.deleted == [NAME]

    asyncio.run(story())


def test_nothing_is_deleted_before_all_is_listed_and_by_nobody_but_the_leader() -> None:
    async def story() -> None:
        world = World(leads=False, settled=False)
        world.group(RAY)
        await world.turn()
        world.settled = True
        await world.turn()
        assert world.deleted == []
        world.leads = True
        world.leaving.lead()
        await world.turn(1)
        assert world.deleted == [NAME]

    asyncio.run(story())


def test_a_pod_that_came_before_its_group_is_a_member_before_anybody_decides() -> None:
    async def story() -> None:
        world = World(settled=False)
        world.pod("p", RAY)
        world.pod("q", JOB)
        world.leaving.saw_job(JOB.uid, SET)
        world.group(RAY)
        world.group(SET)
        world.settled = True
        await world.turn()
        assert world.shown() == {"p": KEY, "q": f"muster/a/{group_name(SET)}"}
        assert world.server.read == []

    asyncio.run(story())


@pytest.mark.parametrize(
    ("answer", "shown"),
    [
        (meta("job-uid", SET), {"p": f"muster/a/{group_name(SET)}"}),
        (meta("job-uid", None), {"p": ""}),
        (ApiError(403, "Forbidden"), {"p": ""}),
        (Unreachable("gone"), {}),
    ],
)
def test_who_stands_above_is_read_where_no_watch_has_shown_it(answer: Any, shown: dict[str, str]) -> None:
    async def story() -> None:
        world = World(settled=False)
        world.server.answers[PATH] = answer
        world.group(SET)
        world.pod("p", JOB)
        await world.turn()
        assert (world.shown(), world.server.read) == ({}, []), "held; the Jobs are being listed"
        world.settled = True
        await world.turn(1)
        assert (world.shown(), world.server.read) == (shown, [PATH])
        if not shown:
            assert world.deleted == [], "it may be a member"
            world.now += HOLD
            await world.turn()
            assert world.shown() == {"p": ""}

    asyncio.run(story())


def test_replicas_below_stateful_sets_and_leaders_are_found() -> None:
    """As LeaderWorkerSet has them: worker - StatefulSet - leader - StatefulSet - the set; each is read once."""
    lws = Reference("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", "vllm", "lws-uid")
    leaders = Reference("apps/v1", "StatefulSet", "vllm", "leaders-uid")
    leader = Reference("v1", "Pod", "vllm-0", "leader")
    workers = Reference("apps/v1", "StatefulSet", "vllm-0", "workers-uid")

    async def story() -> None:
        world = World(settled=False)
        sets = "/apis/apps/v1/namespaces/a/statefulsets/"
        world.server.answers |= {
            f"{sets}vllm": meta("leaders-uid", lws),
            f"{sets}vllm-0": meta("workers-uid", leader),
            "/api/v1/namespaces/a/pods/vllm-0": meta("leader", leaders),
        }
        world.group(lws)
        world.pod("leader", leaders)
        world.pod("w1", workers)
        world.pod("w2", workers)
        world.settled = True
        await world.turn(4)
        assert world.shown() == dict.fromkeys(("leader", "w1", "w2"), f"muster/a/{group_name(lws)}")
        assert sorted(world.server.read) == sorted(world.server.answers)
        assert world.deleted == []

    asyncio.run(story())


def test_where_no_group_was_made_nobody_is_looked_for() -> None:
    async def story() -> None:
        world = World(settled=False)
        world.pod("p", JOB)
        world.pod("bound", JOB, node="n")
        await world.turn()
        assert world.shown() == {"bound": ""}
        world.settled = True
        await world.turn()
        world.pod("q", JOB)
        assert world.shown() == {"p": "", "bound": "", "q": ""}
        assert world.server.read == []

    asyncio.run(story())


def test_a_group_that_the_leader_before_made_late_has_its_members() -> None:
    async def story() -> None:
        world = World(leads=False)
        world.pod("p", RAY)
        await world.turn()
        assert world.shown() == {"p": ""}
        world.group(RAY)
        await world.turn()
        assert world.shown() == {"p": KEY}
        world.leads = True
        world.leaving.lead()
        await world.turn()
        assert world.deleted == []

    asyncio.run(story())


def test_a_group_that_a_pod_names_by_itself_stays() -> None:
    async def story() -> None:
        world = World()
        world.group(RAY)
        world.pod("own", Reference("apps/v1", "ReplicaSet", "r", "r"), group=KEY)
        await world.turn()
        assert world.deleted == []

    asyncio.run(story())


def test_a_group_that_cannot_be_deleted_is_told_and_tried_again() -> None:
    async def story() -> None:
        world = World()
        world.server.refuse["DELETE"] = ApiError(403, "Forbidden", "podgroups is forbidden")
        world.group(RAY)
        await world.turn()
        assert (world.deleted, world.meter.counted) == ([NAME], ["owner_groups:failed"])
        assert "podgroups is forbidden" in world.leaving.problems[f"PodGroup a/{NAME}"]
        del world.server.refuse["DELETE"]
        world.now += 10
        await world.turn(1)
        assert world.deleted == [NAME, NAME]

    asyncio.run(story())


def test_where_none_can_be_deleted_the_server_is_not_asked_for_each_again_and_again() -> None:
    async def story() -> None:
        world = World()
        world.server.refuse["DELETE"] = ApiError(403, "Forbidden", "podgroups is forbidden")
        owners = [Reference("ray.io/v1", "RayCluster", f"rc{number}", f"uid{number}") for number in range(50)]
        for owner in owners:
            world.group(owner)
        for _ in range(240):  # four minutes
            world.now += 1.0
            await world.turn(1)
        assert len(set(world.deleted)) == len(world.deleted)  # each had its turn before any has another
        assert 4 <= len(world.deleted) <= 8
        world.server.refuse.clear()
        world.now += 300.0
        await world.turn(1)
        assert {group_name(owner) for owner in owners} == set(world.deleted)

    asyncio.run(story())


def test_a_server_that_is_down_is_not_asked_who_stands_above_each_job() -> None:
    async def story() -> None:
        world = World()
        world.group(SET)
        await world.turn(1)
        for number in range(100):
            world.server.answers[f"/apis/batch/v1/namespaces/a/jobs/j{number}"] = Unreachable("gone")
            world.pod(f"p{number}", Reference("batch/v1", "Job", f"j{number}", f"u{number}"))
        await world.turn(1)
        assert (len(world.server.read), world.shown()) == (8, {})

    asyncio.run(story())
