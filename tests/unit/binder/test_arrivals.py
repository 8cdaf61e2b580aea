"""A binder whose scheduler is another process: it begins what the leader of now has written, and nothing else."""

from __future__ import annotations

import asyncio

import pytest
from structlog.testing import capture_logs

from scheduler.binder.adopting import adopt_all
from scheduler.binder.arrivals import PATIENCE
from scheduler.binder.pool import LeaseLost
from scheduler.cluster.client import Unreachable
from scheduler.model.bindrequest import BindRequest
from scheduler.model.decisions import Place
from tests.unit.binder.world import World, _Requests, run


class Lease:
    """The lease of the scheduler."""

    def __init__(self, epoch: int = 1) -> None:
        self.epoch = epoch
        self.looks = 0
        self.faults: list[Exception] = []

    async def __call__(self) -> int:
        self.looks += 1
        await asyncio.sleep(0.01)
        if self.faults:
            raise self.faults.pop(0)
        return self.epoch


def pair(world: World, name: str = "g") -> Place:
    spots = []
    for number in range(2):
        world.add_node(f"{name}-n{number}", 4)
        world.add_pod(f"{name}{number}")
        spots.append((f"{name}{number}", f"{name}-n{number}"))
    return world.place(name, 2, *spots)


def causes(request: BindRequest) -> set[str]:
    return {failure.cause for outcome in request.outcomes for failure in outcome.failures}


def test_what_the_leader_of_now_wrote_is_bound_whatever_the_epoch_of_the_binders_own_lease() -> None:
    async def story() -> None:
        world, lease = World(), Lease(epoch=7)
        found, later = pair(world, "a"), pair(world, "b")
        world.request("found", found, epoch=7)
        task = world.binder(epoch=40, deciding=lease)
        await world.until_reported()
        world.request("later", later, epoch=7)
        await world.until_reported()
        await world.stop(task)
        assert len(world.alive(found)) == len(world.alive(later)) == 2
        assert lease.looks == 2, "once for what arrives together"
        assert not [verb for _, verb, _ in world.writes if verb == "adopt"]

    run(story())


def test_the_lease_is_read_after_a_request_was_seen_and_before_anything_of_it_is_written() -> None:
    async def story() -> None:
        world, lease = World(), Lease()
        task = world.binder(deciding=lease)
        await asyncio.sleep(1.0)
        assert lease.looks == 0, "a quiet binder asks nothing"
        lease.epoch = 2  # somebody else leads, and has not seen what the old leader is about to write
        place = pair(world)
        world.request("late", place, epoch=1)
        await asyncio.sleep(PATIENCE - 1)
        assert world.bound == []
        await world.until_reported()
        await world.stop(task)
        assert causes(world.ended["late"]) == {"StaleEpoch"}
        assert world.bound == []

    run(story())


def test_a_request_of_an_older_leader_waits_to_be_taken_over_and_is_bound_then() -> None:
    async def story() -> None:
        world, lease = World(), Lease(epoch=2)
        place = pair(world)
        world.request("r", place, epoch=1)
        task = world.binder(deciding=lease)
        await asyncio.sleep(5.0)
        assert world.bound == []
        found = tuple(world.cache.requests())
        assert await adopt_all(_Requests(world, world.life), world.cache, found, 2, lambda: None) == 1
        await world.until_reported()
        await world.stop(task)
        assert len(world.alive(place)) == 2
        assert world.ended["r"].epoch == 2

    run(story())


@pytest.mark.parametrize("point", ["after-first-bind", "before-first-bind", "before-status"])
def test_what_a_binder_left_half_done_the_next_one_ends_also_under_a_new_leader(point: str) -> None:
    async def story() -> None:
        world, lease = World(), Lease()
        place = pair(world)
        world.request("r", place, epoch=1, deadline=90.0)
        world.binder(deciding=lease, crash_at=point)
        await asyncio.sleep(3.0)
        lease.epoch = 2
        task = world.binder(deciding=lease)
        await asyncio.sleep(2.0)
        assert world.requests["r"].open
        await adopt_all(_Requests(world, world.life), world.cache, tuple(world.cache.requests()), 2, lambda: None)
        await world.until_reported()
        await world.stop(task)
        assert len(world.alive(place)) == 2
        assert len(world.bound) == 2, "nobody is bound twice"

    run(story())


def test_a_request_under_way_goes_on_while_the_leader_changes() -> None:
    async def story() -> None:
        world, lease = World(), Lease()
        place = pair(world)
        world.faults[("bind", "g1")] = ["503", "503", "503"]
        world.request("r", place, epoch=1)
        task = world.binder(deciding=lease)
        await asyncio.sleep(0.15)
        lease.epoch = 2
        await adopt_all(_Requests(world, world.life), world.cache, tuple(world.cache.requests()), 2, lambda: None)
        await world.until_reported()
        await world.stop(task)
        assert len(world.alive(place)) == 2
        assert world.reports == ["r"]

    run(story())


def test_a_lease_that_cannot_be_read_holds_up_what_comes_and_nothing_else() -> None:
    async def story() -> None:
        world, lease = World(), Lease()
        lease.faults = [Unreachable("refused"), ValueError("no lease")]
        place = pair(world)
        world.request("r", place, epoch=1)
        task = world.binder(deciding=lease)
        await world.until_reported()
        await world.stop(task)
        assert len(world.alive(place)) == 2
        assert lease.looks == 3

    run(story())


def test_a_request_newer_than_the_lease_is_left_alone_and_told_once() -> None:
    async def story() -> None:
        world, lease = World(), Lease(epoch=1)
        place = pair(world)
        world.request("r", place, epoch=9)
        with capture_logs() as logs:
            task = world.binder(deciding=lease)
            await asyncio.sleep(2 * PATIENCE)
        await world.stop(task)
        assert world.bound == []
        assert world.requests["r"].open
        assert [entry["event"] for entry in logs].count("binder.newer-epoch") == 1

    run(story())


def test_what_is_deleted_or_ended_while_it_waits_is_not_begun() -> None:
    async def story() -> None:
        world, lease = World(), Lease(epoch=2)
        gone, ended = pair(world, "a"), pair(world, "b")
        world.request("gone", gone, epoch=1)
        request = world.request("ended", ended, epoch=1)
        task = world.binder(deciding=lease)
        await asyncio.sleep(1.0)
        world.drop_request("gone")
        await _Requests(world, world.life).report(request, "Failed", ())
        await asyncio.sleep(0.2)  # the watch has told of it
        lease.epoch = 1
        await asyncio.sleep(PATIENCE + 5)
        await world.stop(task)
        assert world.bound == []
        assert world.reports == ["ended"], "only once, by whoever ended it"

    run(story())


def test_nothing_is_adopted_without_the_lease_nor_what_has_ended_or_is_newer() -> None:
    async def story() -> None:
        world = World()
        requests = _Requests(world, world.life)
        world.request("old", pair(world, "a"), epoch=1)
        world.request("newer", pair(world, "b"), epoch=3)
        found = tuple(world.cache.requests())

        def lost() -> None:
            raise LeaseLost("no lease")

        with pytest.raises(LeaseLost):
            await adopt_all(requests, world.cache, found, 2, lost)
        world.faults[("adopt", "old")] = ["503", "409"]
        assert await adopt_all(requests, world.cache, found, 2, lambda: None) == 1
        assert world.requests["newer"].epoch == 3
        assert world.requests["old"].epoch == 2

    run(story())
