"""Members that come back: to the node of their rank, else beside the ranks next to it, else into their domain."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scheduler.model.groups import SubGroup
from scheduler.model.wishes import TopologyWish
from tests.unit.framework.world import World, shape, with_plugins


def world() -> World:
    made = World(config=with_plugins(["gang", "predicates", "topology"]))
    made.topology("fabric", ("block", "block"), ("rack", "rack"))
    return made


def carry_out(w: World) -> None:
    """Bind what was placed, with the ranks that are written."""
    marks = {one.uid: one.mark for place in w.places for one in place.assignments}
    w.carry_out()
    for uid, mark in marks.items():
        if mark is not None and mark.rank >= 0:
            w.set_pod(replace(w.pods[uid], index=mark.rank))


def start(w: World, count: int, minimum: int, **fields: object) -> dict[int, str]:
    """Run a gang of one-GPU members; return the node of each index."""
    group = w.group("g", minimum, **fields)
    for number in range(count):
        w.member(group, number)
    for _ in range(2):
        w.session(later=1)
        carry_out(w)
    return {pod.index: pod.node for pod in w.pods.values()}


def lose(w: World, *indices: int) -> None:
    for pod in [pod for pod in w.pods.values() if pod.index in indices]:
        w.drop_pod(pod.name)


def back(w: World, *indices: int) -> dict[int, str]:
    """Make members of these indices again; return where the session puts them."""
    for number in indices:
        w.pod(f"again-{number}", shape(gpu=1), group="muster/ns/g", index=number)
    w.session(later=1)
    return {int(pod.rpartition("-")[2]): node for pod, node in w.placed.items()}


@pytest.mark.parametrize("order", [(0, 3), (3, 0)])
def test_the_node_of_a_rank_comes_before_a_fuller_one(order: tuple[int, ...]) -> None:
    w = world().nodes(2, gpu=4)
    before = start(w, 7, 6)
    assert before[0] == before[3]
    lose(w, 0, 3)
    w.session(later=1)
    assert back(w, *order) == {0: before[0], 3: before[0]}


def test_the_only_member_of_a_node_goes_back_to_it() -> None:
    w = world().nodes(4, gpu=1)
    before = start(w, 3, 3)
    w.running("other", ({f"n{n:03}" for n in range(4)} - set(before.values())).pop(), shape())
    lose(w, 1)
    w.session(later=1)
    w.drop_pod("other")
    assert back(w, 1) == {1: before[1]}


def test_each_goes_to_its_own_node_where_one_could_take_both() -> None:
    w = world().nodes(2, gpu=2)
    before = start(w, 4, 4)
    assert before[1] != before[2]
    lose(w, 0, 1, 2)
    w.session(later=1)
    assert back(w, 2, 1) == {1: before[1], 2: before[2]}


def test_where_its_node_is_gone_it_goes_beside_its_neighbours_then_into_their_rack() -> None:
    w = world()
    for name, gpu, rack in (("a0", 2, "r0"), ("a1", 2, "r0"), ("a2", 1, "r0"), ("b0", 1, "r1")):
        w.node(name, gpu=gpu, labels={"block": "b", "rack": rack})
    before = start(w, 4, 4, topology=TopologyWish("fabric", required="block"))
    assert before == {0: "a0", 1: "a0", 2: "a1", 3: "a1"}
    lose(w, 2, 3)
    w.drop_node("a1")
    w.session(later=1)
    assert back(w, 2) == {2: "a2"}, "b0 has as much room, in another rack"
    carry_out(w)
    lose(w, 1, 2)
    w.session(later=1)
    assert back(w, 1) == {1: "a0"}


def test_members_without_an_index_take_over_rank_and_node() -> None:
    w = world().nodes(2, gpu=4)
    group = w.group("g", 6)
    for number in range(7):
        w.pod(f"p{number}", shape(gpu=1), group=group.key)
    for _ in range(2):
        w.session(later=1)
        carry_out(w)
    before = {pod.index: pod.node for pod in w.pods.values()}
    assert sorted(before) == list(range(7))
    assert before[0] == before[3]
    lose(w, 0, 3)
    w.session(later=1)
    for name in ("x", "y"):
        w.pod(name, shape(gpu=1), group=group.key)
    w.session(later=1)
    marks = {one.mark.rank: one.node for place in w.places for one in place.assignments if one.mark is not None}
    assert marks == {0: before[0], 3: before[0]}


def test_a_member_without_an_index_takes_over_a_rank_of_its_own_role() -> None:
    w = world().nodes(3, gpu=2)
    group = w.group("g", 4, roles={"master": 1, "worker": 3})
    for number, role in enumerate(("master", "worker", "worker", "worker")):
        w.pod(f"p{number}", shape(gpu=1), group=group.key, role=role)
    w.session()
    carry_out(w)
    w.session(later=1)
    before = {pod.index: (pod.role, pod.node) for pod in w.pods.values()}
    lost = [rank for rank, (role, _) in before.items() if role == "master"] + [3]
    lose(w, *lost)
    w.session(later=1)
    for role in ("worker", "master"):
        w.pod(f"new-{role}", shape(gpu=1), group=group.key, role=role)
    w.session(later=1)
    found = {one.mark.rank: one.pod for place in w.places for one in place.assignments if one.mark is not None}
    assert {rank: pod.removeprefix("new-") for rank, pod in found.items()} == {rank: before[rank][0] for rank in lost}


def test_the_index_of_another_sub_group_is_another_rank() -> None:
    w = world()
    for name in ("a0", "a1"):
        w.node(name, gpu=2, labels={"block": "b", "rack": name})
    rack = TopologyWish("fabric", required="rack")
    parts = (SubGroup("x", 2, topology=rack), SubGroup("y", 1, topology=rack))
    group = w.group("g", 3, subgroups=parts, min_subgroups=2)
    for role, count in (("x", 2), ("y", 1)):
        for number in range(count):
            w.pod(f"{role}-{number}", shape(gpu=1), group=group.key, role=role, index=number)
    w.session()
    carry_out(w)
    w.session(later=1)
    before = {pod.name: pod.node for pod in w.pods.values()}
    assert before["x-0"] != before["y-0"]
    w.drop_pod("x-0")
    w.drop_pod("x-1")
    w.session(later=1)
    for number in range(2):
        w.pod(f"again-{number}", shape(gpu=1), group=group.key, role="x", index=number)
    w.session(later=1)
    assert set(w.placed.values()) == {before["x-0"]}


def test_a_gang_that_starts_anew_has_no_seats() -> None:
    w = world().nodes(2, gpu=4)
    start(w, 2, 2)
    lose(w, 0, 1)
    w.session(later=1)
    assert w.store.snapshot(w.now).groups["muster/ns/g"].left == ()


def test_a_rank_that_is_taken_is_no_longer_remembered() -> None:
    w = world().nodes(2, gpu=4)
    start(w, 4, 3)
    lose(w, 1)
    w.session(later=1)
    assert [pod.index for pod in w.snapshot.groups["muster/ns/g"].left] == [1]  # type: ignore[union-attr]
    back(w, 1)
    carry_out(w)
    w.session(later=1)
    assert w.snapshot.groups["muster/ns/g"].left == ()  # type: ignore[union-attr]


def test_members_come_home_also_where_the_gang_lies_in_several_domains_of_the_level_that_it_prefers() -> None:
    w = World(check=True).topology("f", ("rack", "rack"))
    sizes = {"p0": ("p", 3), "q0": ("q", 3), "q1": ("q", 1)}
    for name, (rack, gpus) in sizes.items():
        w.node(name, gpu=gpus, labels={"rack": rack})
    group = w.group("g", 5, topology=TopologyWish(preferred="rack"), was_running=True)
    for number, node in enumerate(("q0", "q0", "q0", "q1", "p0")):
        w.member(group, number, shape(gpu=1), node=node, phase="Running", started=True, since=10.0)
    w.session()
    for number in (1, 2):
        w.drop_pod(f"g-{number}")
    w.session(later=1)
    for number in (1, 2):
        w.pod(f"again-{number}", shape(gpu=1), group=group.key, index=number)
    w.session(later=1)
    assert w.placed == {"again-1": "q0", "again-2": "q0"}
