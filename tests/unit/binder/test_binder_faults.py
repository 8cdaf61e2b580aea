"""The binder against a cluster in memory: every fault that must hold, one by one, and then in any mixture."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from scheduler.binder.pool import LeaseLost
from scheduler.binder.ports import POINTS
from scheduler.binder.record import Failure
from scheduler.binder.run import Settings
from scheduler.model.bindrequest import BindRequest
from scheduler.model.decisions import Place
from tests.unit.binder.world import LAG, World, run


def gang(world: World, size: int = 4, minimum: int | None = None, name: str = "g", cpu: int = 4) -> Place:
    for number in range(size):
        world.add_node(f"n{number}", cpu)
        world.add_pod(f"{name}{number}")
    spots = tuple((f"{name}{number}", f"n{number}") for number in range(size))
    return world.place(name, size if minimum is None else minimum, *spots)


def causes(request: BindRequest) -> set[str]:
    return {failure.cause for outcome in request.outcomes for failure in outcome.failures}


def check_whole(world: World, place: Place) -> str:
    """Every gang is whole or wholly unbound, and nothing was bound twice or into a full node."""
    alive = world.alive(place)
    ended = [a.uid for a in place.assignments if a.uid in world.deleted_by_others]
    bound = [uid for _, uid, _ in world.bound]
    assert len(bound) == len(set(bound))
    assert world.overfull == []
    assert not alive or len(alive) + len(ended) >= place.minimum, f"{alive} of {place.minimum}"
    return "whole" if alive else "unbound"


async def bind_one(world: World, place: Place, **options: object) -> BindRequest:
    world.request("r", place)
    task = world.binder(**options)
    await world.until_reported()
    await world.stop(task)
    check_whole(world, place)
    return world.ended["r"]


def test_a_gang_is_bound_whole_reported_once_and_forgotten_after_its_history() -> None:
    async def story() -> None:
        world = World()
        place = gang(world)
        world.request("r", place)
        task = world.binder()
        await world.until_reported()
        assert world.alive(place) == ["g0", "g1", "g2", "g3"]
        assert world.ended["r"].phase == "Bound"
        assert [(o.index, o.phase, o.bound, o.failures) for o in world.ended["r"].outcomes] == [(0, "Bound", 4, ())]
        await asyncio.sleep(40)
        assert world.reports == ["r"]
        assert world.requests == {}
        assert [verb for _, verb, _ in world.writes] == ["bind"] * 4 + ["report", "forget"]
        await world.stop(task)

    run(story())


@pytest.mark.parametrize("member", range(4))
@pytest.mark.parametrize("kind", ["403", "lost", "late", "503"])
def test_a_bind_that_fails_for_ever_for_one_member_leaves_the_gang_unbound(member: int, kind: str) -> None:
    async def story() -> None:
        world = World()
        place = gang(world)
        world.faults[("bind", f"g{member}")] = [kind] * 1000 if kind != "late" else ["lost"] * 8 + ["late"] * 50
        request = await bind_one(world, place)
        assert request.phase == "Failed"
        await asyncio.sleep(10)
        assert check_whole(world, place) == "unbound"

    run(story())


@pytest.mark.parametrize("member", range(4))
@pytest.mark.parametrize("kind", ["429", "503", "500", "unreachable", "lost", "late", "half", "error-after"])
def test_a_bind_that_fails_twice_and_then_works_is_bound_whole(member: int, kind: str) -> None:
    async def story() -> None:
        world = World()
        place = gang(world)
        world.faults[("bind", f"g{member}")] = [kind] * 2
        assert (await bind_one(world, place)).phase == "Bound"
        assert len(world.alive(place)) == 4

    run(story())


@pytest.mark.parametrize("kind", ["half", "late", "lost"])
def test_an_unknown_outcome_is_read_before_the_bind_is_sent_again(kind: str) -> None:
    async def story() -> None:
        world = World()
        place = gang(world, 1)
        world.faults[("bind", "g0")] = [kind]
        calls: list[str] = []
        call = world.call

        async def spy(life: object, method: str, path: str, body: bytes | None) -> bytes:
            calls.append(method)
            return await call(life, method, path, body)  # type: ignore[arg-type]

        world.call = spy  # type: ignore[method-assign]
        await bind_one(world, place)
        assert calls[:2] == ["POST", "GET"]

    run(story())


CHANGES: dict[str, tuple[Callable[[World], None], str]] = {
    "deleted": (lambda world: world.remove_pod("g1"), "PodGone"),
    "re-created": (lambda world: world.recreate_pod("g1"), "PodGone"),
    "gated": (lambda world: world.gate_pod("g1"), "PodGated"),
    "node-deleted": (lambda world: world.remove_node("n1"), "NodeGone"),
    "cordoned": (lambda world: world.cordon("n1"), "NodeCordoned"),
    "shrunk": (lambda world: world.shrink("n1", 0), "NodeFull"),
}


@pytest.mark.parametrize("change", list(CHANGES))
def test_a_change_that_the_cache_shows_before_the_bind_leaves_the_gang_unbound_without_a_write(change: str) -> None:
    async def story() -> None:
        world = World()
        place = gang(world)
        do, cause = CHANGES[change]
        do(world)
        await asyncio.sleep(2 * LAG)
        request = await bind_one(world, place)
        assert causes(request) == {cause}
        assert world.bound == []

    run(story())


@pytest.mark.parametrize("change", ["deleted", "re-created", "gated"])
def test_a_member_that_changes_unseen_makes_the_server_refuse_and_the_gang_unwind(change: str) -> None:
    async def story() -> None:
        world = World()
        place = gang(world)
        do, cause = CHANGES[change]
        do(world)
        request = await bind_one(world, place)
        assert causes(request) == {cause}
        assert [outcome.phase for outcome in request.outcomes] == ["Unwound"]
        assert check_whole(world, place) == "unbound"

    run(story())


@pytest.mark.parametrize("change", ["node-deleted", "cordoned", "shrunk"])
def test_a_node_that_changes_while_a_bind_waits_to_be_tried_again_is_noticed(change: str) -> None:
    async def story() -> None:
        world = World()
        place = gang(world)
        world.faults[("bind", "g1")] = ["429"]
        world.loop.call_later(0.2, lambda: CHANGES[change][0](world))
        request = await bind_one(world, place)
        assert causes(request) == {CHANGES[change][1]}
        assert check_whole(world, place) == "unbound"

    run(story())


@pytest.mark.parametrize(
    "point", [point for point in POINTS if not {"delete", "unwinding", "eviction", "victims"} & set(point.split("-"))]
)
@pytest.mark.parametrize("next_epoch", [1, 2])
def test_a_kill_at_every_point_of_a_good_gang_ends_with_the_gang_whole(point: str, next_epoch: int) -> None:
    async def story() -> None:
        world = World()
        place = gang(world)
        request = world.request("r", place, epoch=1 if point != "adopted" else 0)
        first = world.binder(crash_at=point)
        await asyncio.sleep(45 if point == "before-forget" else 5)
        assert first.cancelled()
        assert world.life.passed[-1] == point
        second = world.binder(epoch=next_epoch)
        await asyncio.sleep(5)
        assert len(world.alive(place)) == 4
        assert check_whole(world, place) == "whole"
        assert world.ended["r"].phase == "Bound"
        assert world.ended["r"].uid == request.uid
        await asyncio.sleep(60)
        assert world.requests == {}
        await world.stop(second)

    run(story())


@pytest.mark.parametrize("point", ["unwinding", "before-first-delete", "after-first-delete", "before-status"])
def test_a_kill_at_every_point_of_an_unwinding_ends_with_the_gang_unbound(point: str) -> None:
    async def story() -> None:
        world = World()
        place = gang(world)
        world.remove_pod("g2")  # the cache does not know yet
        world.request("r", place)
        first = world.binder(crash_at=point)
        await asyncio.sleep(3)
        assert first.cancelled()
        second = world.binder(epoch=2)
        await world.until_reported()
        assert check_whole(world, place) == "unbound"
        assert world.ended["r"].phase == "Failed"
        await world.stop(second)

    run(story())


def test_a_request_of_an_older_epoch_that_is_there_at_the_start_is_adopted_and_one_that_comes_later_is_refused() -> (
    None
):
    async def story() -> None:
        world = World()
        early = gang(world, name="e")
        late = gang(world, name="l")
        world.request("early", early, epoch=3)
        world.faults[("adopt", "early")] = ["409", "unreachable"]
        task = world.binder(epoch=4)
        await asyncio.sleep(1)
        world.request("late", late, epoch=3)
        await world.until_reported()
        assert world.requests["early"].epoch == 4
        assert world.ended["early"].phase == "Bound"
        assert world.ended["late"].phase == "Failed"
        assert causes(world.ended["late"]) == {"StaleEpoch"}
        assert world.alive(late) == []
        await world.stop(task)

    run(story())


def test_a_request_of_a_newer_epoch_is_left_alone() -> None:
    async def story() -> None:
        world = World()
        place = gang(world)
        world.request("r", place, epoch=9)
        task = world.binder(epoch=4)
        await asyncio.sleep(30)
        assert world.writes == []
        await world.stop(task)

    run(story())


@pytest.mark.parametrize("after", [0.0, 0.005, 0.2])
def test_a_binder_without_its_lease_writes_nothing_and_ends(after: float) -> None:
    async def story() -> None:
        world = World(Settings(in_flight=2))
        place = gang(world, 8)
        world.faults[("bind", "g0")] = ["503"] * 50
        world.request("r", place)
        task = world.binder()
        if after:
            await asyncio.sleep(after)
        world.life.lease = False
        lost_at = world.clock()
        with pytest.raises(LeaseLost):
            await task
        assert [write for write in world.writes if write[0] > lost_at] == []

    run(story())


def test_an_outage_stops_the_deadline_and_the_gang_is_whole_afterwards() -> None:
    async def story() -> None:
        world = World()
        place = gang(world)
        world.faults[("bind", "g1")] = ["503"]
        world.faults[("bind", "g2")] = ["half"]
        world.request("r", place, deadline=5.0)
        task = world.binder()
        await asyncio.sleep(0.012)
        world.down = True
        await asyncio.sleep(60)
        assert world.requests["r"].open
        world.down = False
        await world.until_reported()
        assert world.ended["r"].phase == "Bound"
        assert len(world.alive(place)) == 4
        await world.stop(task)

    run(story())


def test_two_gangs_for_the_same_room_do_not_both_get_it() -> None:
    async def story() -> None:
        world = World()
        world.add_node("n", 2)
        for name in ("a0", "a1", "b0", "b1"):
            world.add_pod(name)
        first = world.place("a", 2, ("a0", "n"), ("a1", "n"))
        second = world.place("b", 2, ("b0", "n"), ("b1", "n"))
        world.request("r", first, second)
        task = world.binder()
        await world.until_reported()
        assert [outcome.phase for outcome in world.ended["r"].outcomes] == ["Bound", "Failed"]
        assert causes(world.ended["r"]) == {"NodeFull"}
        check_whole(world, first)
        check_whole(world, second)
        await world.stop(task)

    run(story())


def test_a_pod_that_another_gang_is_binding_is_not_bound_for_a_second_one() -> None:
    async def story() -> None:
        world = World()
        place = gang(world)
        again = replace(place, group="muster/ns/h", assignments=tuple(reversed(place.assignments)))
        world.request("r", place, again)
        task = world.binder()
        await world.until_reported()
        assert [outcome.phase for outcome in world.ended["r"].outcomes] == ["Bound", "Failed"]
        assert causes(world.ended["r"]) == {"Conflict"}
        await world.stop(task)

    run(story())


def test_too_many_requests_halves_what_is_in_flight_and_it_grows_back() -> None:
    async def story() -> None:
        world = World(Settings(in_flight=16))
        place = gang(world, 100)
        world.faults[("bind", "g0")] = ["429"]
        world.request("r", place)
        task = world.binder()
        await asyncio.sleep(0.015)
        lowest = world.last._pool.limit
        assert 8 <= lowest < 16
        await world.until_reported()
        assert world.last._pool.limit > lowest
        assert world.ended["r"].phase == "Bound"
        await world.stop(task)

    run(story())


def test_at_most_so_many_finished_requests_are_kept() -> None:
    async def story() -> None:
        world = World(Settings(keep=2, history=1000.0))
        world.add_node("n", 100)
        for number in range(5):
            world.add_pod(f"p{number}")
            world.request(f"r{number}", world.place(f"g{number}", 1, (f"p{number}", "n")))
        task = world.binder()
        await asyncio.sleep(5)
        assert len(world.requests) == 2
        assert sorted(world.reports) == [f"r{number}" for number in range(5)]
        await world.stop(task)

    run(story())


def test_a_finished_request_that_a_new_binder_finds_is_history_and_not_done_again() -> None:
    async def story() -> None:
        world = World()
        place = gang(world)
        world.set_request(replace(world.request("r", place), phase="Bound"), 0.0)
        task = world.binder()
        await asyncio.sleep(40)
        assert world.bound == []
        assert world.requests == {}
        await world.stop(task)

    run(story())


def test_a_request_deleted_before_its_turn_binds_nothing_and_one_deleted_midway_ends_whole() -> None:
    async def story() -> None:
        world = World(Settings(in_flight=1))
        first, second = gang(world, name="a"), gang(world, name="b")
        world.request("first", first)
        world.request("second", second)
        task = world.binder()
        await asyncio.sleep(0.012)
        world.drop_request("first")
        world.drop_request("second")
        await asyncio.sleep(LAG + 5)
        assert check_whole(world, first) == "whole"
        assert world.reports == []
        assert check_whole(world, second) in ("whole", "unbound")
        await world.stop(task)

    run(story())


def test_a_status_that_cannot_be_written_at_first_is_written_later() -> None:
    async def story() -> None:
        world = World()
        place = gang(world)
        world.faults[("report", "r")] = ["503", "409", "unreachable"]
        assert (await bind_one(world, place)).phase == "Bound"

    run(story())


def test_a_pre_step_that_fails_is_undone_for_all_and_nothing_is_bound() -> None:
    class Volumes:
        name = "volumes"

        def __init__(self) -> None:
            self.held: set[int] = set()

        async def prepare(self, place: Place, members: tuple[int, ...], **_: object) -> tuple[Failure, ...]:
            await asyncio.sleep(0.1)
            self.held.update(members)
            return (Failure(2, "VolumeGone"),)

        async def undo(self, place: Place, members: tuple[int, ...]) -> None:
            self.held.difference_update(members)

    async def story() -> None:
        world = World()
        place = gang(world)
        volumes = Volumes()
        request = await bind_one(world, place, steps=(volumes,))
        assert causes(request) == {"VolumeGone"}
        assert world.bound == []
        assert volumes.held == set()

    run(story())


# -- any mixture ---------------------------------------------------------------------------------------------------

KINDS = ["429", "503", "500", "403", "unreachable", "lost", "late", "half", "error-after"]
ACTIONS = ["delete", "re-create", "gate", "node-delete", "cordon", "shrink"]


@st.composite
def stories(draw: st.DrawFn) -> dict[str, object]:
    sizes = draw(st.lists(st.integers(1, 5), min_size=1, max_size=3))
    pods = [f"p{g}-{m}" for g, size in enumerate(sizes) for m in range(size)]
    return {
        "gangs": [(size, draw(st.integers(0, size))) for size in sizes],
        "faults": draw(
            st.lists(
                st.tuples(st.sampled_from(["bind", "read", "delete"]), st.sampled_from(pods), st.sampled_from(KINDS)),
                max_size=6,
            )
        ),
        "changes": draw(
            st.lists(
                st.tuples(
                    st.sampled_from([0.0, 0.01, 0.015, 0.2, 1.0, 3.0]), st.sampled_from(ACTIONS), st.sampled_from(pods)
                ),
                max_size=3,
            )
        ),
        "crashes": draw(st.lists(st.tuples(st.sampled_from(POINTS), st.booleans()), max_size=3)),
        "outage": draw(st.sampled_from([None, None, (0.012, 10.0), (0.5, 30.0)])),
        "seen": draw(st.booleans()),
        "starts": draw(st.booleans()),
        "in_flight": draw(st.sampled_from([1, 2, 64])),
    }


def change(world: World, action: str, pod: str, nodes: dict[str, str]) -> None:
    match action:
        case "delete":
            world.remove_pod(pod)
        case "re-create":
            world.recreate_pod(pod)
        case "gate":
            world.gate_pod(pod)
        case "node-delete":
            world.remove_node(nodes[pod])
        case "cordon":
            world.cordon(nodes[pod])
        case "shrink":
            world.shrink(nodes[pod], 1)


async def play(tale: dict[str, object]) -> None:
    world = World()
    world.settings = replace(world.settings, in_flight=tale["in_flight"])
    world.starts = bool(tale["starts"])
    places: list[Place] = []
    nodes: dict[str, str] = {}
    for name in ("na", "nb", "nc"):
        world.add_node(name, 5)
    for g, (size, minimum) in enumerate(tale["gangs"]):  # type: ignore[misc, arg-type]
        spots = []
        for member in range(size):
            pod, node = f"p{g}-{member}", ("na", "nb", "nc")[(g + member) % 3]
            world.add_pod(pod)
            nodes[pod] = node
            spots.append((pod, node))
        places.append(world.place(f"g{g}", minimum, *spots))
    for verb, pod, kind in tale["faults"]:  # type: ignore[misc, attr-defined]
        if kind in ("half", "error-after", "late") and verb != "bind":
            kind = "lost" if verb == "delete" else "unreachable"
        if verb == "read" and kind in ("lost", "403"):
            kind = "unreachable"
        if verb == "delete" and kind == "403":
            kind = "503"
        world.faults.setdefault((verb, pod), []).append(kind)
    for at, action, pod in tale["changes"]:  # type: ignore[misc, attr-defined]
        world.loop.call_later(at, change, world, action, pod, nodes)
    if tale["seen"]:
        await asyncio.sleep(LAG * 2)
    world.request("r", *places, deadline=10.0)
    outage = tale["outage"]
    if outage is not None:
        at, length = outage  # type: ignore[misc]
        world.loop.call_later(at, setattr, world, "down", True)
        world.loop.call_later(at + length, setattr, world, "down", False)
    epoch = 1
    for point, takeover in tale["crashes"]:  # type: ignore[misc, attr-defined]
        epoch += bool(takeover)
        task = world.binder(epoch=epoch, crash_at=point)
        done, _ = await asyncio.wait({task}, timeout=40)
        if not done:
            await world.stop(task)
        await asyncio.sleep(LAG * 2)  # the next one lists everything before it begins
    task = world.binder(epoch=epoch + 1)
    await world.until_reported(300.0)
    await asyncio.sleep(6)
    await world.stop(task)
    for place, outcome in zip(places, world.ended["r"].outcomes, strict=True):
        left = set(world.alive(place))
        kept = {failure.pod for failure in outcome.failures if failure.cause == "Started"}
        if outcome.phase == "Bound" or not kept:
            event(f"{check_whole(world, place)} {outcome.phase}")
        else:
            assert left <= kept
    assert len(world.reports) == 1


@settings(
    max_examples=300,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(stories())
def test_whatever_fails_every_gang_ends_whole_or_wholly_unbound(tale: dict[str, object]) -> None:
    run(play(tale))


@pytest.mark.parametrize("crash", [False, True])
def test_a_gang_that_is_given_up_is_told_while_another_of_its_request_goes_on_and_is_not_taken_up_again(
    crash: bool,
) -> None:
    async def story() -> None:
        world = World()
        failing, slow = gang(world, 2, name="a", cpu=4), gang(world, 2, name="b", cpu=4)
        world.faults[("bind", "a1")] = ["403"] * 100
        world.faults[("bind", "b1")] = ["503"] * 6
        world.request("r", failing, slow)
        task = world.binder()
        while not world.requests["r"].outcomes:
            await asyncio.sleep(0.1)
        told = world.requests["r"]
        assert told.open
        assert (told.outcomes[0].index, told.outcomes[0].phase) == (0, "Unwound")
        assert not world.alive(failing)
        if crash:
            world.faults.pop(("bind", "a1"))  # what would now work is not tried: others may have placed it anew
            world.add_pod("a0", lag=0.1)
            world.life.dead = True
            await world.stop(task)
            task = world.binder()
        await world.until_reported()
        await world.stop(task)
        check_whole(world, slow)
        ended = world.ended["r"]
        assert [(outcome.index, outcome.phase) for outcome in ended.outcomes] == [(0, "Unwound"), (1, "Bound")]
        assert causes(told) <= causes(ended)
        assert not world.alive(failing)

    run(story())
