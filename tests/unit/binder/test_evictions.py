"""The binder making room, in virtual time: who is evicted how often, what stops it, and what a restart changes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from scheduler.binder.ports import POINTS
from scheduler.binder.record import Timing
from scheduler.model.bindrequest import BindRequest
from scheduler.model.decisions import Place, Victim
from scheduler.model.nodes import Taint
from scheduler.model.pods import Pod
from tests.unit.binder.world import World, run


class Said:
    """What people read, and who was told."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def eviction(self, place: Place, victim: Victim) -> str:
        return f"{victim.pod} for {place.name}"

    def tell(self, _request: BindRequest, _place: Place, victim: Victim) -> None:
        self.told.append(victim.pod)


def stage(*guarded: str, victims: int = 2, takes: float = 1.0) -> tuple[World, Place, Said]:
    """Nodes of one pod each, a running victim on each, and a gang that wants all of them."""
    world = World()
    for number in range(victims):
        world.add_node(f"n{number}", 1)
        name = f"v{number}"
        world.add_pod(name, f"n{number}", phase="Running", takes=takes, guarded=name in guarded)
        world.add_pod(f"p{number}")
    spots = [(f"p{number}", f"n{number}") for number in range(victims)]
    return world, world.place("g", victims, *spots, victims=tuple(f"v{number}" for number in range(victims))), Said()


def covered(world: World) -> Callable[[Pod], bool]:
    guarded = {name for name, body in world.pods.items() if body.guarded}
    return lambda pod: pod.name in guarded


def begin(world: World, said: Said, **options: object) -> asyncio.Task[None]:
    return world.binder(words=said, covered=covered(world), told=said.tell, **options)


def evicted(world: World) -> list[tuple[str, str]]:
    return [(verb, name) for _, verb, name in world.evicted]


def sent(world: World) -> list[tuple[str, str]]:
    return [(verb, name) for _, verb, name in world.writes if verb in ("mark", "evict", "remove")]


def test_victims_are_told_why_deleted_once_and_the_gang_is_bound_when_the_last_is_gone() -> None:
    async def story() -> None:
        world, place, said = stage(takes=30.0)
        marks = {name: world.pods[name] for name in ("v0", "v1")}
        world.request("r", place, deadline=100.0)
        task = begin(world, said)
        await world.until_reported()
        await world.stop(task)
        assert world.ended["r"].phase == "Bound"
        assert sorted(evicted(world)) == [("remove", "v0"), ("remove", "v1")]
        assert {name: body.mark for name, body in marks.items()} == {"v0": "v0 for g", "v1": "v1 for g"}
        assert sorted(said.told) == ["v0", "v1"]
        assert min(at for at, _, _ in world.bound) >= max(at for at, _, _ in world.evicted) + 30.0
        assert world.overfull == []

    run(story())


def test_a_request_that_names_a_pod_of_another_scheduler_evicts_nobody_and_holds_up_no_other() -> None:
    async def story() -> None:
        world, place, said = stage()
        other = world.place("h", 1, ("p0", "n0"), victims=("v0",))
        world.pods["v1"].ours = False
        world.touch(world.pods["v1"], lag=0.0)
        world.request("forged", place, deadline=100.0)
        world.request("r", other, deadline=100.0)
        task = begin(world, said)
        await world.until_reported()
        await world.stop(task)
        assert world.ended["forged"].phase == "Failed"
        assert {one.cause for outcome in world.ended["forged"].outcomes for one in outcome.failures} == {"ForeignPod"}
        assert world.ended["r"].phase == "Bound"
        assert evicted(world) == [("remove", "v0")]

    run(story())


def test_a_budget_that_refuses_costs_nobody_else_anything_and_is_asked_until_it_agrees() -> None:
    async def story() -> None:
        world, place, said = stage("v0", "v1", victims=3)
        world.budget = 1
        bodies = dict(world.pods)
        world.request("r", place, deadline=100.0)
        task = begin(world, said)
        await asyncio.sleep(10)
        assert len(evicted(world)) == 1
        assert ("mark", "v2") not in sent(world)
        assert world.bound == []
        world.budget = 1
        await world.until_reported()
        await world.stop(task)
        assert world.ended["r"].phase == "Bound"
        assert sorted(evicted(world)) == [("evict", "v0"), ("evict", "v1"), ("remove", "v2")]
        assert [bodies[name].mark for name in ("v0", "v1", "v2")] == ["v0 for g", "v1 for g", "v2 for g"]

    run(story())


def test_a_budget_that_allows_nothing_fails_the_gang_at_its_deadline_and_slows_nobody_down() -> None:
    async def story() -> None:
        world, place, said = stage("v0")
        world.request("r", place, deadline=30.0)
        task = begin(world, said)
        await world.until_reported()
        limit = world.last._pool.limit
        await world.stop(task)
        failures = world.ended["r"].outcomes[0].failures
        assert {(failure.cause, failure.about) for failure in failures} == {
            ("VictimsRemain", "ns/v0: DisruptionBudget")
        }
        assert evicted(world) == []
        assert said.told == []
        assert limit == world.settings.in_flight

    run(story())


def test_a_victim_that_never_ends_fails_the_gang_and_its_room_is_free_for_others() -> None:
    async def story() -> None:
        world, place, said = stage(takes=-1.0)
        world.request("r", place, deadline=20.0)
        task = begin(world, said)
        await world.until_reported()
        assert world.ended["r"].outcomes[0].failures[0].cause == "VictimsRemain"
        assert world.bound == []
        assert len(evicted(world)) == 2
        other = world.add_pod("other")
        world._gone(world.pods["v0"])
        await asyncio.sleep(1)
        world.request("s", world.place("o", 1, (other.name, "n0")))
        await world.until_reported()
        assert world.ended["s"].phase == "Bound"
        await world.stop(task)

    run(story())


@pytest.mark.parametrize("how", ["going", "gone", "ended"])
def test_nothing_is_sent_to_who_goes_anyway(how: str) -> None:
    async def story() -> None:
        world, place, said = stage()
        if how == "ended":
            world.pods["v0"].phase = "Succeeded"
            world.touch(world.pods["v0"], lag=0.0)
        else:
            world.pods["v0"].takes = 5.0
            world.remove_pod("v0")
        await asyncio.sleep(10 if how == "gone" else 1)
        world.request("r", place)
        task = begin(world, said)
        await world.until_reported()
        await world.stop(task)
        assert world.ended["r"].phase == "Bound"
        assert {name for _, name in sent(world)} == {"v1"}
        assert said.told == ["v1"]

    run(story())


def test_a_pod_made_again_under_the_name_of_a_victim_is_left_alone() -> None:
    async def story() -> None:
        world, place, said = stage(victims=1)
        world._gone(world.pods["v0"])
        body = world.add_pod("v0", "elsewhere", lag=2.0)  # the cache still shows the old one
        task = begin(world, said)
        world.request("r", place)
        await world.until_reported()
        await world.stop(task)
        assert world.ended["r"].phase == "Bound"
        assert evicted(world) == []
        assert body.mark == ""

    run(story())


EVICTING = ("before-first-eviction", "after-first-eviction", "victims-gone", "before-first-bind")
STOPS: dict[str, Callable[[World], None]] = {
    "deleted": lambda world: world.remove_pod("p1"),
    "gated": lambda world: world.gate_pod("p1"),
    "bound elsewhere": lambda world: (setattr(world.pods["p1"], "node", "n9"), world.touch(world.pods["p1"]))[0],
    "node gone": lambda world: world.remove_node("n1"),
    "node cordoned": lambda world: world.cordon("n1"),
    "node away": lambda world: world.add_node("n1", 1, lag=0.05, taints=(Taint("node.kubernetes.io/unreachable"),)),
    "request withdrawn": lambda world: world.drop_request("r"),
}


@pytest.mark.parametrize("stop", STOPS)
def test_who_was_not_asked_yet_stays_once_the_gang_can_not_be_bound(stop: str) -> None:
    async def story() -> None:
        world, place, said = stage("v0")
        world.request("r", place, deadline=100.0)
        task = begin(world, said)
        await asyncio.sleep(3)  # the budget refuses, so nobody has gone
        STOPS[stop](world)
        await asyncio.sleep(1)
        world.budget = 5
        await asyncio.sleep(30)
        await world.stop(task)
        assert evicted(world) == []
        assert ("mark", "v1") not in sent(world)
        assert world.bound == []
        if stop != "request withdrawn":
            assert world.ended["r"].phase == "Failed"

    run(story())


def test_evictions_that_wait_for_their_turn_are_not_sent_after_the_gang_is_given_up() -> None:
    async def story() -> None:
        world, place, said = stage(victims=40)
        world.settings = replace(world.settings, in_flight=1)
        world.request("r", place, deadline=100.0)
        task = begin(world, said)
        await asyncio.sleep(0.2)
        asked = len(sent(world))
        world.remove_pod("p3")
        await asyncio.sleep(20)
        await world.stop(task)
        assert 0 < asked < 40
        assert len(sent(world)) < asked + 10
        assert world.ended["r"].phase == "Failed"

    run(story())


@pytest.mark.parametrize("in_flight", [1, 3])
def test_evictions_share_the_limit_of_requests_under_way(in_flight: int) -> None:
    async def story() -> None:
        world, place, said = stage(victims=10)
        world.settings = replace(world.settings, in_flight=in_flight)
        under_way, most = 0, 0
        call = world.call

        async def counted(*arguments: object) -> bytes:
            nonlocal under_way, most
            under_way += 1
            most = max(most, under_way)
            try:
                return await call(*arguments)  # type: ignore[arg-type]
            finally:
                under_way -= 1

        world.call = counted  # type: ignore[method-assign]
        world.request("r", place, deadline=100.0)
        task = begin(world, said)
        await world.until_reported()
        await world.stop(task)
        assert world.ended["r"].phase == "Bound"
        assert most == in_flight

    run(story())


@pytest.mark.parametrize("guarded", [(), ("v0",)])
@pytest.mark.parametrize("kind", ["429", "503", "500", "unreachable", "lost", "late", "half", "error-after"])
@pytest.mark.parametrize("verb", ["mark", "go"])
def test_whatever_an_eviction_is_answered_nobody_is_evicted_twice(
    verb: str, kind: str, guarded: tuple[str, ...]
) -> None:
    async def story() -> None:
        world, place, said = stage(*guarded, takes=8.0)
        world.budget = 1
        go = "evict" if guarded else "remove"
        world.faults[(go if verb == "go" else "mark", "v0")] = [kind] * 2
        world.request("r", place, deadline=100.0)
        task = begin(world, said)
        await world.until_reported()
        await world.stop(task)
        assert world.ended["r"].phase == "Bound"
        assert sorted(evicted(world)) == sorted([(go, "v0"), ("remove", "v1")])
        assert world.overfull == []

    run(story())


def test_a_right_that_is_missing_is_told_and_nobody_else_goes() -> None:
    async def story() -> None:
        world, place, said = stage("v0")
        world.budget = 1
        world.faults[("evict", "v0")] = ["403"]
        world.request("r", place)
        task = begin(world, said)
        await world.until_reported()
        await world.stop(task)
        assert {failure.cause for failure in world.ended["r"].outcomes[0].failures} == {"Forbidden"}
        assert evicted(world) == []

    run(story())


@pytest.mark.parametrize("epoch", [1, 2])
@pytest.mark.parametrize(
    "point", ["before-first-eviction", "after-first-eviction", "victims-gone", "before-first-bind"]
)
@pytest.mark.parametrize("guarded", [(), ("v0", "v1")])
def test_a_kill_at_every_point_is_resumed_and_nobody_is_evicted_twice(
    point: str, epoch: int, guarded: tuple[str, ...]
) -> None:
    async def story() -> None:
        world, place, said = stage(*guarded, victims=3, takes=5.0)
        world.budget = 2
        world.request("r", place, deadline=100.0)
        first = begin(world, said, crash_at=point)
        await asyncio.sleep(20)
        assert first.cancelled()
        assert world.bound == []
        second = begin(world, said, epoch=epoch)
        await world.until_reported()
        await world.stop(second)
        assert world.ended["r"].phase == "Bound"
        names = [name for _, name in evicted(world)]
        assert sorted(names) == ["v0", "v1", "v2"]

    run(story())


def test_without_the_lease_nobody_is_evicted() -> None:
    async def story() -> None:
        world, place, said = stage("v0")
        world.request("r", place, deadline=100.0)
        task = begin(world, said)
        await asyncio.sleep(2)
        before = len(world.writes)
        world.life.lease = False
        world.budget = 5
        await asyncio.wait({task}, timeout=60)
        assert task.done()
        assert len(world.writes) == before
        assert evicted(world) == []

    run(story())


def test_the_room_of_a_gang_that_waits_is_not_given_to_another() -> None:
    async def story() -> None:
        world, place, said = stage(victims=1, takes=10.0)
        world.request("r", place, deadline=100.0)
        task = begin(world, said)
        await asyncio.sleep(2)
        world.add_pod("thief")
        world.request("s", world.place("t", 1, ("thief", "n0")))
        await world.until_reported()
        await world.stop(task)
        assert world.ended["r"].phase == "Bound"
        assert world.ended["s"].phase == "Failed"

    run(story())


@pytest.mark.parametrize("first", [0, 1])
def test_a_gang_whose_victims_have_gone_is_bound_while_another_waits_for_its_own_on_the_same_node(first: int) -> None:
    async def story() -> None:
        world, said = World(), Said()
        world.add_node("n0", 2)
        for number in range(2):
            world.add_pod(f"v{number}", "n0", phase="Running", takes=1.0 if number == first else 30.0)
            world.add_pod(f"p{number}")
            world.request(
                f"r{number}",
                world.place(f"g{number}", 1, (f"p{number}", "n0"), victims=(f"v{number}",)),
                deadline=100.0,
            )
        task = begin(world, said)
        await asyncio.sleep(10)
        assert [uid for _, uid, _ in world.bound] == [world.pods[f"p{first}"].uid]
        world.add_pod("thief")
        world.request("s", world.place("t", 1, ("thief", "n0")))
        await world.until_reported()
        await world.stop(task)
        assert {name: one.phase for name, one in world.ended.items()} == {"r0": "Bound", "r1": "Bound", "s": "Failed"}
        assert world.overfull == []

    run(story())


@pytest.mark.parametrize("victim", [Victim("p", "ns", "../secrets", "n0", ""), Victim("p", "ns", "ok", "n 0", "")])
def test_a_victim_that_no_path_can_name_is_refused_before_anything_is_sent(victim: Victim) -> None:
    async def story() -> None:
        world, place, said = stage()
        drain = replace(place, assignments=(), minimum=0, victims=(victim,))
        world.request("r", replace(place, victims=(victim,)), drain)
        task = begin(world, said)
        await world.until_reported()
        await world.stop(task)
        assert [outcome.phase for outcome in world.ended["r"].outcomes] == ["Failed", "Failed"]
        assert world.ended["r"].outcomes[0].failures[0].cause == "Malformed"
        assert sent(world) == []

    run(story())


def test_a_member_of_the_gang_is_never_its_victim() -> None:
    async def story() -> None:
        world, place, said = stage()
        member = place.assignments[0]
        world.request("r", replace(place, victims=(Victim(member.uid, "ns", member.pod, member.node, ""),)))
        task = begin(world, said)
        await world.until_reported()
        await world.stop(task)
        assert world.ended["r"].outcomes[0].failures[0].cause == "Malformed"
        assert sent(world) == []

    run(story())


def test_a_request_that_only_evicts_is_done_when_they_are_gone() -> None:
    async def story() -> None:
        world, place, said = stage("v1", takes=3.0)
        world.budget = 1
        world.request("r", replace(place, assignments=(), minimum=0))
        task = begin(world, said)
        await world.until_reported()
        await world.stop(task)
        assert world.ended["r"].phase == "Bound"
        assert sorted(evicted(world)) == [("evict", "v1"), ("remove", "v0")]

    run(story())


def test_an_outage_while_victims_are_awaited_costs_the_gang_no_time() -> None:
    async def story() -> None:
        world, place, said = stage("v0")
        world.settings = replace(world.settings, timing=Timing(first_wait=0.1, last_wait=2.0))
        world.request("r", place, deadline=20.0)
        task = begin(world, said)
        await asyncio.sleep(5)
        world.down = True
        await asyncio.sleep(40)
        world.down, world.budget = False, 1
        await world.until_reported()
        await world.stop(task)
        assert world.ended["r"].phase == "Bound"

    run(story())


# -- any mixture ---------------------------------------------------------------------------------------------------

KINDS = ["429", "503", "500", "unreachable", "lost", "late", "half", "error-after"]


@st.composite
def stories(draw: st.DrawFn) -> dict[str, Any]:
    victims = draw(st.integers(1, 5))
    names = [f"v{number}" for number in range(victims)]
    verbs = st.sampled_from(["mark", "evict", "remove", "read", "bind"])
    return {
        "victims": victims,
        "guarded": draw(st.sets(st.sampled_from(names))),
        "takes": draw(st.sampled_from([0.0, 0.02, 1.0, 6.0])),
        "budget": draw(st.integers(0, 5)),
        "more": draw(st.sampled_from([None, 2.0, 20.0])),
        "faults": draw(st.lists(st.tuples(verbs, st.sampled_from(names), st.sampled_from(KINDS)), max_size=6)),
        "others": draw(st.lists(st.tuples(st.sampled_from([0.0, 0.03, 2.0]), st.sampled_from(names)), max_size=2)),
        "stop": draw(st.sampled_from([None, None, *STOPS])),
        "at": draw(st.sampled_from([0.0, 0.02, 0.05, 1.0])),
        "crashes": draw(st.lists(st.sampled_from(POINTS), max_size=3)),
        "outage": draw(st.sampled_from([None, None, (0.02, 10.0), (1.0, 30.0)])),
        "in_flight": draw(st.sampled_from([1, 2, 64])),
    }


async def tell(tale: dict[str, Any]) -> None:
    world, place, said = stage(*tale["guarded"], victims=max(2, tale["victims"]), takes=tale["takes"])
    world.settings = replace(world.settings, in_flight=tale["in_flight"])
    world.budget = tale["budget"]
    uids = {body.uid: body.name for body in world.pods.values()}
    for verb, name, kind in tale["faults"]:
        world.faults.setdefault((verb, name if verb != "bind" else name.replace("v", "p")), []).append(kind)
    for at, name in tale["others"]:
        world.loop.call_later(at, world.remove_pod, name)
    if tale["more"] is not None:
        world.loop.call_later(tale["more"], setattr, world, "budget", 5)
    if tale["stop"] is not None:
        world.loop.call_later(tale["at"], lambda: STOPS[tale["stop"]](world) if "p1" in world.pods else None)
    world.request("r", place, deadline=40.0)
    if tale["outage"] is not None:
        at, length = tale["outage"]
        world.loop.call_later(at, setattr, world, "down", True)
        world.loop.call_later(at + length, setattr, world, "down", False)
    for epoch, point in enumerate(tale["crashes"], start=1):
        task = begin(world, said, epoch=epoch, crash_at=point)
        done, _ = await asyncio.wait({task}, timeout=40)
        if not done:
            await world.stop(task)
        await asyncio.sleep(0.1)
    task = begin(world, said, epoch=9)
    await world.until_reported(300.0)
    await asyncio.sleep(10)
    await world.stop(task)
    names = [name for _, name in evicted(world)]
    assert len(names) == len(set(names)), "nobody goes twice"
    assert world.overfull == [], "nobody is bound before the room is there"
    if (tale["guarded"] & set(uids.values())) - {name for _, name in tale["others"]} - set(names):
        assert all(verb == "evict" for verb, _ in evicted(world)), "a budget that refuses costs nobody else anything"
    ended = world.ended.get("r")
    if ended is not None and ended.phase == "Bound":
        gone = {uid for uid, name in uids.items() if name.startswith("v")} - {b.uid for b in world.pods.values()}
        assert len(gone) == len(place.victims)
    if ended is not None:
        event(f"{ended.phase}, {len(names)} evicted")


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(stories())
def test_whatever_fails_nobody_goes_twice_and_nobody_is_bound_before_the_room_is_there(tale: dict[str, Any]) -> None:
    run(tell(tale))
