"""A gang that lost its domain: it waits, or, where it opted in and there is a place for all of it, moves as a whole."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scheduler.actions import making_room
from scheduler.cluster import feed
from scheduler.model.affinity import LabelSelector, Requirement
from scheduler.model.budgets import DisruptionBudget
from scheduler.model.groups import SubGroup
from scheduler.model.verdict import Code
from scheduler.model.wishes import TopologyWish
from tests.unit.framework.world import World, shape

RACK = TopologyWish(required="rack")


def world(spare: int = 4, **fields: object) -> World:
    """Rack a has four nodes of one GPU, all used by a gang of four; rack b has so many. The gang lost node a0."""
    w = World(check=True)
    for number in range(4):
        w.node(f"a{number}", gpu=1, labels={"rack": "a"})
    for number in range(spare):
        w.node(f"b{number}", gpu=1, labels={"rack": "b"})
    group = w.group("g", 4, topology=RACK, **{"moves_whole": True, **fields})
    for number in range(4):
        w.member(
            group, number, shape(gpu=1), node=f"a{number}", phase="Running", started=True, since=10.0, owner_uid="job",
            owner_name="job", labels=(("app", "g"),),
        )  # fmt: skip
    w.session()
    w.drop_pod("g-0")
    w.drop_node("a0")
    w.session(later=1)
    again(w, 0)
    return w


def again(w: World, *numbers: int) -> None:
    for number in numbers:
        w.pod(f"g-{number}-new", shape(gpu=1), group="muster/ns/g", index=number, owner_uid="job", owner_name="job")


def quiet(w: World) -> None:
    for _ in range(3):
        w.session(later=1)
        assert not w.places
        assert not w.victims


def test_it_moves_to_the_rack_that_holds_all_of_it() -> None:
    w = world()
    w.session(later=1)
    assert w.victims == ["g-1", "g-2", "g-3"]
    assert set(w.placed) == {"g-0-new"}
    assert w.placed["g-0-new"].startswith("b")
    homes = [victim.move_to for place in w.places for victim in place.victims]
    assert len({*homes, w.placed["g-0-new"]}) == 4
    assert all(home.startswith("b") for home in homes)
    w.carry_out()
    w.pod("thief", shape(gpu=1), priority=0)
    w.session(later=1)
    assert w.placed.get("thief", "a").startswith("a"), "the room in b is kept"
    w.carry_out()
    again(w, 1, 2, 3)
    for _ in range(3):
        w.session(later=1)
        assert not w.victims
        w.carry_out()
    assert sorted(pod.node for pod in w.pods.values() if pod.group) == ["b0", "b1", "b2", "b3"]


def test_without_opting_in_it_waits_with_the_reason() -> None:
    w = world(moves_whole=False)
    w.session(later=1)
    assert not w.victims
    why = w.verdict("g")
    assert why is not None
    assert why.code is Code.TOPOLOGY


def test_nothing_is_evicted_where_no_rack_holds_all_of_it() -> None:
    w = world(spare=3)
    w.session(later=1)
    assert not w.victims
    quiet(w)
    w.node("b3", gpu=1, labels={"rack": "b"})
    w.session(later=1)
    assert w.victims == ["g-1", "g-2", "g-3"]


def test_a_place_where_it_is_comes_first() -> None:
    w = world()
    w.node("a9", gpu=1, labels={"rack": "a"})
    w.session(later=1)
    assert w.placed == {"g-0-new": "a9"}
    assert not w.victims


@pytest.mark.parametrize("what", ["budget", "owner"])
def test_it_is_not_moved_against_a_budget_or_where_a_member_would_be_lost(what: str) -> None:
    w = world()
    if what == "budget":
        selector = LabelSelector((Requirement("app", "In", ("g",)),))
        w.store.apply([feed.BudgetSet(DisruptionBudget("ns", "pdb", "uid-pdb", selector, 2))], w.now)
    else:
        w.set_pod(replace(w.pods["uid-g-2"], owner_uid=""))
    quiet(w)


def test_a_gang_above_its_minimum_is_not_moved() -> None:
    w = World(check=True)
    for name, rack in (("a0", "a"), ("a1", "a"), ("b0", "b"), ("b1", "b"), ("b2", "b")):
        w.node(name, gpu=1, labels={"rack": rack})
    group = w.group("g", 2, topology=RACK, moves_whole=True)
    for number in range(2):
        w.member(group, number, shape(gpu=1), node=f"a{number}", phase="Running", started=True, owner_uid="job")
    w.member(group, 2, shape(gpu=1), owner_uid="job")
    quiet(w)


def test_room_is_kept_for_all_that_go_though_the_lost_pod_was_made_in_the_second_of_the_decision() -> None:
    w = world()
    w.now = 2000.5
    again(w, 0)
    w.session()
    w.carry_out()
    for number in range(5):
        w.pod(f"thief{number}", shape(gpu=1), priority=0)
    w.session(later=0.1)
    assert set(w.placed.values()) == {"a1", "a2", "a3"}
    w.carry_out()
    again(w, 1, 2, 3)
    w.session(later=0.1)
    assert sorted(w.placed_of("g")) == ["g-1-new", "g-2-new", "g-3-new"]


def test_kept_room_that_was_used_is_not_kept_again_when_they_go() -> None:
    w = world()
    w.session(later=1)
    w.carry_out()
    again(w, 1, 2, 3)
    w.session(later=1)
    w.carry_out()
    assert not w.take().holds
    for number in range(4):
        w.drop_pod(f"g-{number}-new")
    assert not w.take().holds


def test_it_is_not_moved_before_so_many_members_exist_that_it_can_be_whole() -> None:
    w = world(spare=3)
    w.drop_pod("g-1")
    w.drop_node("a1")
    quiet(w)
    again(w, 1)
    w.node("b3", gpu=1, labels={"rack": "b"})
    w.session(later=1)
    assert w.victims == ["g-2", "g-3"]


def test_of_two_places_the_one_that_has_room_for_all_members_that_exist_is_taken() -> None:
    w = World(check=True)
    for rack, size in (("a", 5), ("b", 5), ("c", 3)):
        for number in range(size):
            w.node(f"{rack}{number}", gpu=1, labels={"rack": rack})
    group = w.group("g", 3, topology=RACK, moves_whole=True)
    for number in range(5):
        w.member(group, number, shape(gpu=1), node=f"a{number}", phase="Running", started=True, owner_uid="job")
    w.session()
    for number in range(3):
        w.drop_pod(f"g-{number}")
        w.drop_node(f"a{number}")
    w.session(later=1)
    again(w, 0, 1, 2)
    w.session(later=1)
    assert w.victims == ["g-3", "g-4"]
    assert all(node.startswith("b") for node in w.placed.values())


def parted(least: int | None, block: str = "", **more: str) -> World:
    """Sub-groups a and b of two in a rack each, which run in the racks a and b of block x; b-0 lost its node."""
    w = World(check=True)
    for rack, where in {"a": "x", "b": "x", **more}.items():
        for number in range(2):
            w.node(f"{rack}{number}", gpu=1, labels={"rack": rack, "block": where})
    wish = TopologyWish(required=block) if block else None
    parts = tuple(SubGroup(name, 2, topology=RACK) for name in "ab")
    group = w.group("g", 1, topology=wish, moves_whole=True, subgroups=parts, min_subgroups=least)
    for part in "ab":
        for number in range(2):
            w.pod(
                f"{part}-{number}", shape(gpu=1), group=group.key, role=part, index=number, node=f"{part}{number}",
                phase="Running", started=True, since=10.0, owner_uid="job",
            )  # fmt: skip
    w.session()
    w.drop_pod("b-0")
    w.drop_node("b0")
    w.session(later=1)
    w.pod("b-0-new", shape(gpu=1), group=group.key, role="b", index=0, owner_uid="job")
    w.session(later=1)
    return w


@pytest.mark.parametrize(("least", "block"), [(1, ""), (None, ""), (None, "block")])
def test_only_the_part_goes_that_a_broken_rule_ties_to_the_lost_member(least: int | None, block: str) -> None:
    w = parted(least, block, c="x")
    assert w.victims == ["b-1"]
    assert w.placed["b-0-new"].startswith("c")


def test_the_gang_goes_where_no_place_for_the_part_keeps_the_rule_around_it() -> None:
    w = parted(None, "block", c="y", d="y")
    assert w.victims == ["a-0", "a-1", "b-1"]
    quiet(parted(1, "block", c="y", d="y"))  # a suffices: it does not go for the sake of b


def test_who_has_its_place_where_it_runs_stays_there() -> None:
    w = World(check=True)
    for name, size in (("a0", 2), ("a1", 1), ("a2", 2), ("a3", 1)):
        w.node(name, gpu=size, labels={"rack": "a"})
    group = w.group("g", 3, topology=RACK, moves_whole=True)
    for number, (size, node) in enumerate(((2, "a2"), (1, "a0"), (1, "a1"))):
        w.member(group, number, shape(gpu=size), node=node, phase="Running", started=True, owner_uid="job")
    w.session()
    w.drop_pod("g-0")
    w.drop_node("a2")
    w.session(later=1)
    w.pod("g-0-new", shape(gpu=2), group=group.key, index=0, owner_uid="job")
    w.session(later=1)
    assert w.victims == ["g-1"]
    assert w.placed == {"g-0-new": "a0"}


def test_it_is_moved_in_its_own_turn_also_where_the_search_for_moves_of_others_took_all_the_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(making_room, "BASE_WORK", 10 * making_room.WORK)
    w = world()
    w.node("c0", gpu=1, labels={"rack": "c"})
    w.running("other", "c0", owner_uid="other", owner_name="other")
    w.session(later=1)
    assert w.victims == ["g-1", "g-2", "g-3"]
