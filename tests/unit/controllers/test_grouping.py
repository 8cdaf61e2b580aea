"""When pods are shown to the sessions, in which gang, and what is written for it."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest
from structlog.testing import capture_logs

from scheduler.cluster.cache import Cache
from scheduler.cluster.client import ApiError, Unreachable
from scheduler.controllers import grouping, kin
from scheduler.controllers.grouping import Grouping
from scheduler.controllers.kin import Following
from scheduler.dialects import owners
from scheduler.dialects.owners import group_name
from scheduler.model.groups import PodGroup
from scheduler.model.owners import Owner, Reference
from scheduler.model.pods import Pod, Problem, Shape

KINDS = {kind.kind: kind for kind in owners.KINDS}
RAY = Reference("ray.io/v1", "RayCluster", "rc", "ray-uid")
SET = Reference("jobset.x-k8s.io/v1alpha2", "JobSet", "js", "set-uid")
JOB = Reference("batch/v1", "Job", "js-w-0", "job-uid")
SHAPE = Shape(key="s")


class Server:
    """Answers requests: by path, an object, or an error to raise; writes are noted."""

    def __init__(self) -> None:
        self.answers: dict[str, dict[str, Any] | Exception] = {}
        self.refuse: dict[str, Exception] = {}
        self.wrote: list[tuple[str, str, Any]] = []
        self.read: list[str] = []

    async def request(self, method: str, path: str, *, body: Any = None, **_: Any) -> bytes:
        if method == "GET":
            self.read.append(path)
            answer = self.answers.get(path, ApiError(404, "NotFound"))
            if isinstance(answer, Exception):
                raise answer
            return json.dumps(answer).encode()
        self.wrote.append((method, path.rpartition("/")[2], body))
        if method in self.refuse:
            raise self.refuse[method]
        return b"{}"


class Meter:
    def __init__(self) -> None:
        self.counted: list[str] = []

    def count(self, name: str, amount: float = 1.0, **labels: str) -> None:
        self.counted.append(f"{name}:{labels['result']}")


class World:
    def __init__(
        self,
        *,
        leads: bool = True,
        states: dict[str, Following] | None = None,
        kinds: tuple[owners.OwnerKind, ...] = owners.KINDS,
        decides: bool | None = None,
    ) -> None:
        self.now, self.leads, self.states = 100.0, leads, states or {}
        self.decides = decides
        self.cache, self.server, self.meter = Cache(), Server(), Meter()
        self.told: list[tuple[str, str, str]] = []
        self.grouping = Grouping(
            self.cache,
            self.server,
            kinds,
            following=lambda kind: self.states.get(kind.kind, Following.FOLLOWED),
            may_write=lambda: self.leads,
            meter=self.meter,
            tell=lambda owner, scheduler, why: self.told.append((owner.title, scheduler, why)),
            clock=lambda: self.now,
            decides=None if decides is None else lambda: bool(self.decides),
        )
        self.cache.subscribe(self.grouping.watch)
        if leads:
            self.grouping.lead()

    def pod(self, name: str, above: Reference | None, **more: Any) -> None:
        owner = {} if above is None else {
            "owner_api": above.api, "owner_kind": above.kind, "owner_name": above.name, "owner_uid": above.uid
        }  # fmt: skip
        self.grouping.put(
            (Pod(uid=name, namespace="a", name=name, shape="s", **{"ours": True, **owner, **more}), SHAPE)
        )

    def owner(self, reference: Reference, minimum: int, **more: Any) -> Owner:
        owner = Owner(reference, "a", minimum, **more)
        self.grouping.saw_owner(owner)
        return owner

    def group(self, reference: Reference, minimum: int = 3, made_for: str | None = None) -> PodGroup:
        name = group_name(reference)
        made = reference.uid if made_for is None else made_for
        group = PodGroup(
            key=f"muster/a/{name}", uid=f"of {reference.uid}", dialect="muster", namespace="a", name=name,
            min_member=minimum, made_for=made,
        )  # fmt: skip
        self.cache.groups.put(group)
        return group

    async def turn(self, times: int = 1) -> None:
        """Let the controller do what is due."""
        for _ in range(times):
            await self.grouping.step()
            self.cache.flush()
            await asyncio.sleep(0)

    def shown(self) -> dict[str, str]:
        """Pod -> the key of the group that it names, or of the gang without object that it is in."""
        return {
            uid: pod.group or (f"owner/{pod.owner_uid}/{pod.min_member}" if pod.min_member else "")
            for uid, pod in sorted(self.cache.pods.pods.items())
        }


KEY = f"muster/a/{group_name(RAY)}"


def test_pods_wait_for_their_group_and_it_is_made_once() -> None:
    async def story() -> None:
        world = World()
        world.pod("p1", RAY)
        await world.turn()
        assert (world.shown(), world.server.wrote) == ({}, [])  # the owner is not seen yet
        world.owner(RAY, 3)
        world.pod("p2", RAY)
        await world.turn()
        assert world.shown() == {}
        [(method, plural, body)] = world.server.wrote
        assert (method, plural, body["spec"]) == ("POST", "podgroups", {"minMember": 3})
        assert body["metadata"]["ownerReferences"] == [
            {"apiVersion": "ray.io/v1", "kind": "RayCluster", "name": "rc", "uid": "ray-uid"}
        ]
        world.group(RAY)
        await world.turn()
        assert world.shown() == {"p1": KEY, "p2": KEY}
        world.pod("p3", RAY)
        assert world.shown()["p3"] == KEY
        assert len(world.server.wrote) == 1

    asyncio.run(story())


@pytest.mark.parametrize(
    ("above", "more"),
    [
        (None, {}),
        (RAY, {"group": "volcano/a/x"}),
        (RAY, {"min_member": 2}),
        (RAY, {"ours": False}),
        (Reference("apps/v1", "ReplicaSet", "r", "r-uid"), {}),
        (Reference("example.com/v1", "RayCluster", "r", "r-uid"), {}),
    ],
)
def test_pods_that_say_where_they_belong_or_have_no_such_owner_pass_at_once(
    above: Reference | None, more: dict[str, Any]
) -> None:
    async def story() -> None:
        world = World()
        world.owner(RAY, 3)
        world.pod("p", above, **more)
        await world.turn()
        assert list(world.shown()) == ["p"]
        assert (world.server.wrote, world.server.read) == ([], [])

    asyncio.run(story())


def test_a_bound_pod_is_shown_before_anything_is_known_of_it() -> None:
    async def story() -> None:
        world = World()
        world.pod("bound", RAY, node="n1")
        world.pod("waits", RAY)
        assert world.shown() == {"bound": ""}
        world.owner(RAY, 2)
        assert world.shown() == {"bound": KEY}
        await world.turn()
        assert [one[0] for one in world.server.wrote] == ["POST"]

    asyncio.run(story())


def test_a_standby_shows_all_and_writes_nothing_until_it_leads() -> None:
    async def story() -> None:
        world = World(leads=False)
        world.owner(RAY, 3)
        world.pod("p", RAY)
        await world.turn()
        assert (world.shown(), world.server.wrote) == ({"p": KEY}, [])
        world.leads = True
        world.grouping.lead()
        await world.turn()
        assert [one[0] for one in world.server.wrote] == ["POST"]

    asyncio.run(story())


def test_what_may_not_be_written_is_a_gang_without_an_object_and_told() -> None:
    async def story() -> None:
        world = World()
        world.server.refuse["POST"] = ApiError(403, "Forbidden", "podgroups is forbidden")
        world.owner(RAY, 3)
        world.pod("p", RAY, scheduler_name="muster")
        await world.turn(3)
        assert world.shown() == {"p": "owner/ray-uid/3"}
        assert "podgroups is forbidden" in world.grouping.problems["RayCluster a/rc"]
        assert world.meter.counted == ["owner_groups:failed"]
        [(owner, scheduler, why)] = world.told
        assert (owner, scheduler) == ("RayCluster a/rc", "muster")
        assert "podgroups is forbidden" in why
        del world.server.refuse["POST"]
        world.owner(RAY, 4)  # something changed: it is tried again
        await world.turn()
        assert world.grouping.problems == {}
        assert world.server.wrote[-1][2]["spec"] == {"minMember": 4}

    asyncio.run(story())


def test_the_replicas_of_a_sharded_owner_without_an_object_are_gangs_of_their_own() -> None:
    async def story() -> None:
        world = World()
        world.server.refuse["POST"] = ApiError(403, "Forbidden")
        world.owner(RAY, 2, shard="shard")
        for name, shard in (("p", "0"), ("q", "1")):
            world.pod(name, RAY, labels=(("shard", shard),))
        await world.turn(2)
        assert world.shown() == {"p": "owner/ray-uid.0/2", "q": "owner/ray-uid.1/2"}

    asyncio.run(story())


def test_a_group_of_that_name_that_somebody_else_made_is_left_alone() -> None:
    async def story() -> None:
        world = World()
        world.server.refuse["POST"] = ApiError(409, "AlreadyExists")
        world.group(RAY, made_for="")
        world.owner(RAY, 3)
        world.pod("p", RAY)
        await world.turn(2)
        assert [one[0] for one in world.server.wrote] in (["POST"], [])
        assert world.shown() == {"p": "owner/ray-uid/3"}
        assert "RayCluster a/rc" in world.grouping.problems

    asyncio.run(story())


@pytest.mark.parametrize("error", [ApiError(500, "InternalError"), ApiError(429, "TooMany"), Unreachable("gone")])
def test_a_fault_that_passes_is_tried_again(error: Exception) -> None:
    async def story() -> None:
        world = World()
        world.server.refuse["POST"] = error
        world.owner(RAY, 3)
        world.pod("p", RAY)
        await world.turn(3)
        assert (len(world.server.wrote), world.shown()) == (1, {})
        del world.server.refuse["POST"]
        world.now += 1
        await world.turn()
        assert len(world.server.wrote) == 2
        world.group(RAY)
        await world.turn()
        assert world.shown() == {"p": KEY}

    asyncio.run(story())


def test_a_group_follows_its_owner_and_goes_when_it_is_no_gang_any_more() -> None:
    async def story() -> None:
        world = World()
        world.owner(RAY, 3)
        world.pod("p", RAY)
        world.group(RAY, 3)
        await world.turn()
        assert (world.shown(), world.server.wrote) == ({"p": KEY}, [])
        world.owner(RAY, 5)
        await world.turn()
        assert world.server.wrote[-1] == ("PATCH", group_name(RAY), {"spec": {"minMember": 5}})
        world.group(RAY, 5)
        world.owner(RAY, 1)
        await world.turn()
        assert world.server.wrote[-1][0] == "DELETE"
        assert world.shown() == {"p": ""}

    asyncio.run(story())


def test_a_group_whose_owner_is_gone_is_taken_away_also_after_a_restart_and_one_of_a_user_is_not() -> None:
    async def story() -> None:
        world = World(leads=False)
        left = world.group(RAY)
        world.cache.groups.put(replace(left, key="muster/a/mine", name="mine", uid="mine", made_for=""))
        world.leads = True
        world.grouping.lead()
        await world.turn()
        assert [(method, name) for method, name, _ in world.server.wrote] == [("DELETE", group_name(RAY))]
        assert world.server.wrote[0][2] == {"preconditions": {"uid": left.uid}}

    asyncio.run(story())


def test_the_group_of_an_owner_that_is_gone_stays_as_long_as_its_pods_and_is_its_again_when_it_is_back() -> None:
    async def story() -> None:
        world = World()
        owner = world.owner(RAY, 3)
        world.pod("p", RAY)
        world.group(RAY)
        await world.turn()
        world.grouping.lost_owner(owner.uid)
        await world.turn()
        assert (world.shown(), world.server.wrote) == ({"p": KEY}, [])
        world.owner(RAY, 3)
        world.cache.groups.drop(f"of {RAY.uid}")
        await world.turn()
        assert [one[0] for one in world.server.wrote] == ["POST"]
        world.group(RAY)
        world.grouping.lost_owner(owner.uid)
        world.grouping.drop("p")
        await world.turn()
        assert [one[0] for one in world.server.wrote] == ["POST", "DELETE"]

    asyncio.run(story())


def test_a_kind_that_may_not_be_read_leaves_its_pods_alone_and_is_told() -> None:
    async def story() -> None:
        world = World(states={"RayCluster": Following.REFUSED})
        left = world.group(RAY)
        world.pod("p", RAY)
        await world.turn()
        assert world.shown() == {"p": ""}
        assert "refused" in world.grouping.problems["rayclusters.ray.io"]
        assert left.key in world.cache.groups.by_key
        assert world.server.wrote == []  # whose owner cannot be seen is not taken away

    asyncio.run(story())


def test_an_owner_that_never_appears_is_given_up_after_a_while() -> None:
    async def story() -> None:
        world = World()
        world.pod("p", RAY)
        await world.turn()
        assert world.shown() == {}
        world.now += grouping.HOLD + 1
        await world.turn(2)
        assert world.shown() == {"p": ""}

    asyncio.run(story())


def test_an_owner_is_given_up_whoever_else_names_it() -> None:
    async def story() -> None:
        world = World()
        world.pod("bound", RAY, node="n1")
        world.pod("p1", RAY)
        await world.turn()
        world.now += grouping.HOLD / 2
        world.pod("p2", RAY)
        await world.turn()
        assert world.shown() == {"bound": ""}
        world.now += grouping.HOLD / 2
        await world.turn()
        assert world.shown() == {"bound": "", "p1": "", "p2": ""}
        world.pod("p3", RAY)  # nobody waits for that owner again
        assert "p3" in world.shown()

    asyncio.run(story())


def test_an_owner_is_not_given_up_before_its_kind_is_listed() -> None:
    async def story() -> None:
        world = World(states={"RayCluster": Following.PENDING})
        world.pod("p", RAY)
        world.now += 3 * grouping.HOLD  # the API server is slow; no session has run yet
        await world.turn(2)
        world.states.clear()
        world.owner(RAY, 3)
        assert world.shown() == {"p": KEY}

    asyncio.run(story())


def test_a_group_that_is_left_is_taken_away_once_the_server_lets_us() -> None:
    async def story() -> None:
        world = World()
        world.server.refuse["DELETE"] = ApiError(500, "InternalError")
        world.group(RAY)
        await world.turn(5)
        assert [one[0] for one in world.server.wrote] == ["DELETE"]  # not again at once
        world.server.refuse.clear()
        world.now += 1
        await world.turn()
        assert [one[0] for one in world.server.wrote] == ["DELETE", "DELETE"]
        await world.turn(3)
        assert len(world.server.wrote) == 2

    asyncio.run(story())


def test_a_change_that_is_refused_is_told() -> None:
    async def story() -> None:
        world = World()
        world.server.refuse["PATCH"] = ApiError(403, "Forbidden", "podgroups may not be patched")
        world.owner(RAY, 3)
        world.pod("p", RAY)
        world.group(RAY, 2)
        with capture_logs() as told:
            await world.turn(3)
        [line] = [one for one in told if one["event"] == "group_failed"]
        assert (line["owner"], "may not be patched" in line["problem"]) == ("RayCluster a/rc", True)
        assert world.shown() == {"p": KEY}

    asyncio.run(story())


def test_a_group_that_is_there_and_not_seen_is_not_made_again_and_again() -> None:
    async def story() -> None:
        world = World()
        world.server.refuse["POST"] = ApiError(409, "AlreadyExists")
        world.owner(RAY, 3)
        world.pod("p", RAY)
        for _ in range(40):
            world.now += grouping.TICK
            await world.turn()
        assert 2 <= len(world.server.wrote) <= 6
        world.group(RAY)
        await world.turn()
        assert world.shown() == {"p": KEY}

    asyncio.run(story())


def test_a_kind_of_the_configuration_may_be_one_that_is_climbed() -> None:
    async def story() -> None:
        every = owners.by_paths("batch", "v1", "jobs", "Job", ["spec.parallelism"])
        world = World(kinds=owners.with_more([every]))
        world.grouping.saw_job("job-uid", None)
        world.owner(JOB, 2)
        world.pod("p", JOB)
        await world.turn()
        assert [one[:2] for one in world.server.wrote] == [("POST", "podgroups")]

    asyncio.run(story())


def meta(uid: str, above: Reference | None) -> dict[str, Any]:
    references = [] if above is None else [
        {"apiVersion": above.api, "kind": above.kind, "name": above.name, "uid": above.uid, "controller": True}
    ]  # fmt: skip
    return {"metadata": {"name": "x", "uid": uid, "ownerReferences": references}}


PATH = "/apis/batch/v1/namespaces/a/jobs/js-w-0"


@pytest.mark.parametrize(
    ("answer", "shown"),
    [
        (meta("job-uid", SET), "group"),
        (meta("job-uid", None), "alone"),
        (meta("another", SET), "alone"),
        (ApiError(404, "NotFound"), "alone"),
        (ApiError(403, "Forbidden"), "alone"),
        (ApiError(500, "InternalError"), "held"),
        (Unreachable("gone"), "held"),
    ],
)
def test_who_stands_above_a_job_that_no_watch_has_shown_is_read(answer: Any, shown: str) -> None:
    async def story() -> None:
        world = World()
        world.server.answers[PATH] = answer
        world.owner(SET, 2)
        world.group(SET, 2)
        world.pod("p", JOB)
        world.pod("q", JOB)
        await world.turn()
        want = {"group": f"muster/a/{group_name(SET)}", "alone": ""}
        assert world.shown() == ({} if shown == "held" else dict.fromkeys(("p", "q"), want[shown]))
        assert world.server.read == [PATH]
        assert ("jobs" in world.grouping.problems) == (isinstance(answer, ApiError) and answer.status == 403)

    asyncio.run(story())


def test_jobs_that_a_watch_shows_meanwhile_are_not_read_and_a_server_that_is_down_is_not_asked_for_each() -> None:
    async def story() -> None:
        world = World()
        for number in range(100):
            world.pod(f"p{number}", replace(JOB, name=f"j{number}", uid=f"u{number}"))
        await world.turn()
        asked = len(world.server.read)
        assert asked <= 64
        for number in range(100):
            world.grouping.saw_job(f"u{number}", None)
        await world.turn()
        assert (len(world.server.read), len(world.shown())) == (asked, 100)

    async def down() -> None:
        world = World()
        for number in range(100):
            name = f"j{number}"
            world.server.answers[f"/apis/batch/v1/namespaces/a/jobs/{name}"] = Unreachable("gone")
            world.pod(f"p{number}", replace(JOB, name=name, uid=f"u{number}"))
        await world.turn()
        assert (len(world.server.read), world.shown()) == (8, {})
        world.now += grouping.HOLD
        await world.turn()
        assert (len(world.server.read), len(world.shown())) == (16, 100)

    asyncio.run(story())
    asyncio.run(down())


def test_a_job_that_a_watch_has_shown_is_not_read() -> None:
    async def story() -> None:
        world = World()
        world.owner(SET, 2)
        world.group(SET, 2)
        world.grouping.saw_job("job-uid", SET)
        world.pod("p", JOB)
        world.grouping.saw_job("plain", None)
        world.pod("q", replace(JOB, uid="plain"))
        assert world.shown() == {"p": f"muster/a/{group_name(SET)}", "q": ""}
        assert world.server.read == []

    asyncio.run(story())


def test_the_topmost_known_owner_counts_and_a_circle_ends() -> None:
    upper = Reference("flux-framework.org/v1alpha2", "MiniCluster", "top", "top-uid")
    family = kin.Kin(Server(), owners.KINDS, lambda _: Following.FOLLOWED)
    family.saw(Owner(RAY, "a", 3, above=upper))
    assert family.climb(RAY) == (family.owners["ray-uid"], upper)
    family.saw(Owner(upper, "a", 5, above=RAY))
    found, missing = family.climb(RAY)
    assert (found, missing) == (family.owners["top-uid"], None)


def test_a_name_is_its_owners_and_tells_two_of_one_name_apart() -> None:
    again = replace(RAY, uid="another")
    assert group_name(RAY) != group_name(again)
    assert len(group_name(replace(RAY, name="x" * 250))) <= 63


def test_a_group_keeps_its_members_and_its_number_while_its_owner_cannot_be_read() -> None:
    async def story() -> None:
        world = World()
        world.owner(RAY, 3)
        world.pod("p1", RAY)
        world.group(RAY)
        await world.turn()
        wrong = Problem("RayCluster rc: metadata.annotations[scheduling.muster.sh/min-member]", "must be an integer")
        world.owner(RAY, 0, problems=(wrong,))
        world.pod("p2", RAY)
        await world.turn()
        assert world.shown() == {"p1": KEY, "p2": KEY}
        assert all(pod.problems == (wrong,) for pod in world.cache.pods.pods.values())
        assert world.server.wrote == []
        world.owner(RAY, 3)
        await world.turn()
        assert world.shown() == {"p1": KEY, "p2": KEY}
        assert not any(pod.problems for pod in world.cache.pods.pods.values())

    asyncio.run(story())


def test_where_another_process_writes_groups_pods_wait_for_theirs() -> None:
    async def story() -> None:
        world = World(leads=False, decides=True)
        world.owner(RAY, 3)
        world.pod("p1", RAY)
        await world.turn(3)
        assert (world.shown(), world.server.wrote) == ({}, [])
        world.group(RAY)
        await world.turn()
        assert world.shown() == {"p1": KEY}
        assert world.server.wrote == []

    asyncio.run(story())


@pytest.mark.parametrize("led_late", [False, True])
def test_a_gang_starts_whole_without_an_object_where_nobody_makes_one_in_time(led_late: bool) -> None:
    async def story() -> None:
        world = World(leads=False, decides=not led_late)
        world.owner(RAY, 2)
        world.pod("p1", RAY)
        world.pod("p2", RAY)
        await world.turn()
        assert world.shown() == ({"p1": KEY, "p2": KEY} if led_late else {})
        world.now += grouping.HOLD - 1
        world.decides = True
        await world.turn(2)
        world.now += 2
        await world.turn(2)
        assert world.shown() == {"p1": "owner/ray-uid/2", "p2": "owner/ray-uid/2"}
        assert "controllers" in world.grouping.problems["RayCluster a/rc"]
        world.group(RAY, 2)  # the other process is back
        await world.turn(2)
        assert world.shown() == {"p1": KEY, "p2": KEY}
        assert world.grouping.problems == {}
        assert world.server.wrote == []

    asyncio.run(story())


def test_gangs_that_are_gone_are_forgotten_also_where_another_process_writes() -> None:
    async def story() -> None:
        world = World(leads=False, decides=True)
        for number in range(3):
            reference = Reference("ray.io/v1", "RayCluster", f"rc{number}", f"u{number}")
            world.owner(reference, 2)
            world.pod(f"p{number}", reference)
            await world.turn()
            world.grouping.drop(f"p{number}")
            world.grouping.lost_owner(f"u{number}")
            await world.turn()
        assert not world.grouping._gangs
        world.now += grouping.HOLD + 1
        await world.turn()
        assert not world.grouping._missing

    asyncio.run(story())
