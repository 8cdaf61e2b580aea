"""Who goes so that a domain is free for a gang that wants it for itself."""

from __future__ import annotations

import pytest

from scheduler.model.wishes import TopologyWish
from tests.unit.framework.world import GPU, World, shape

ALONE = TopologyWish(required="rack", exclusive="rack")


def racks(*sizes: int) -> World:
    w = World()
    for number, gpu in enumerate(sizes):
        w.node(f"r{number}", gpu=gpu, labels={"rack": f"r{number}"})
    return w


def runs(
    w: World, name: str, node: str, count: int = 1, *, minimum: int = 1, priority: int = 1, **fields: object
) -> None:
    group = w.group(name, minimum, topology=fields.pop("topology", ALONE), **fields)
    for number in range(count):
        values = {"node": node, "phase": "Running", "started": True, "priority": priority}
        w.member(group, number, shape(gpu=1), **values)


def asks(w: World, name: str, count: int = 1, *, priority: int = 10, **fields: object) -> None:
    group = w.group(name, count, topology=fields.pop("topology", ALONE), **fields)
    for number in range(count):
        w.member(group, number, shape(gpu=1), priority=priority)


def settle(w: World) -> tuple[list[str], dict[str, str]]:
    """Run until nothing happens; return who went and which pods were placed where."""
    gone: list[str] = []
    placed: dict[str, str] = {}
    for _ in range(12):
        w.session(later=1.0)
        gone += w.victims
        placed |= w.placed
        w.carry_out()
    assert not w.places
    return sorted(gone), placed


def test_the_gang_that_holds_the_only_rack_goes_though_there_is_room_beside_it() -> None:
    w = racks(4)
    runs(w, "low", "r0")
    asks(w, "high")
    assert settle(w) == (["low-0"], {"high-0": "r0"})


def test_all_of_it_goes_also_what_is_above_its_minimum() -> None:
    w = racks(8)
    runs(w, "low", "r0", 3, minimum=1)
    asks(w, "high", 2)
    assert settle(w)[0] == ["low-0", "low-1", "low-2"]


def test_of_several_racks_the_one_of_the_least_important_and_nobody_who_is_not_in_the_way() -> None:
    w = racks(4, 4, 4)
    runs(w, "dear", "r0", priority=5)
    runs(w, "cheap", "r1", 2, minimum=2)
    runs(w, "dearer", "r2", priority=6)
    for number in range(3):
        w.running(f"plain-{number}", f"r{number}", shape(gpu=1), priority=0)
    asks(w, "high")
    assert settle(w) == (["cheap-0", "cheap-1"], {"high-0": "r1"})


def test_where_amounts_lack_too_those_go_in_the_same_decision() -> None:
    w = racks(4)
    runs(w, "low", "r0")
    w.running("plain-a", "r0", shape(gpu=1), priority=0)
    w.running("plain-b", "r0", shape(gpu=1), priority=0)
    asks(w, "high", 3)
    gone, placed = settle(w)
    assert len(gone) == 2 and "low-0" in gone
    assert set(placed.values()) == {"r0"}


@pytest.mark.parametrize("priority", [10, 20])
def test_nobody_goes_for_a_gang_that_is_no_more_important(priority: int) -> None:
    w = racks(4)
    runs(w, "other", "r0", priority=priority)
    w.running("plain", "r0", shape(gpu=1), priority=0)
    asks(w, "high", priority=10)
    assert settle(w) == ([], {})


def test_one_holder_who_may_not_go_keeps_the_others() -> None:
    w = racks(4)
    runs(w, "low", "r0", topology=TopologyWish(exclusive="rack"))
    runs(w, "fixed", "r0", topology=TopologyWish(exclusive="rack"), preemptible=False)
    asks(w, "high")
    assert settle(w) == ([], {})


def test_the_rack_that_is_made_free_is_not_taken_by_another_meanwhile() -> None:
    w = racks(4)
    runs(w, "low", "r0")
    asks(w, "high")
    w.session(later=1.0)
    assert w.victims == ["low-0"]
    asks(w, "third", priority=9)
    placed = settle(w)[1]
    assert not any(name.startswith("third") for name in placed)


def test_reclaim_frees_a_rack_too() -> None:
    w = racks(4)
    for name in ("a", "b"):
        w.queue(name, deserved=((GPU, 2),))
    runs(w, "over", "r0", 3, minimum=3, queue="a")
    asks(w, "owed", 1, priority=1, queue="b")
    assert settle(w)[0] == ["over-0", "over-1", "over-2"]


def test_a_part_that_is_exclusive_in_a_wider_level_frees_all_of_it() -> None:
    w = World()
    w.topology("fabric", ("block", "block"), ("rack", "rack"))
    for number in range(2):
        w.node(f"r{number}", gpu=4, labels={"block": "b", "rack": f"r{number}"})
    wide = TopologyWish(name="fabric", required="rack", exclusive="block")
    runs(w, "low", "r0", topology=wide)
    runs(w, "low-too", "r1", topology=TopologyWish(name="fabric", exclusive="block"))
    asks(w, "high", topology=wide)
    assert settle(w)[0] == ["low-0", "low-too-0"]
