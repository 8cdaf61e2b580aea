"""Ranks: who goes to which of the chosen nodes, and what is written on the pods."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from scheduler.model.decisions import Assignment
from scheduler.model.groups import SubGroup
from scheduler.model.wishes import TopologyWish
from tests.unit.actions.test_subgroups import tree
from tests.unit.framework.world import World, shape, with_plugins


def world() -> World:
    made = World(config=with_plugins(["gang", "predicates", "topology"]))
    made.topology("fabric", ("block", "block"), ("rack", "rack"))
    return made


def by_index(w: World) -> list[str]:
    order = {pod.name: pod.index for pod in w.pods.values()}
    return [node for _, node in sorted((order[pod], node) for pod, node in w.placed.items())]


def assigned(w: World) -> dict[str, Assignment]:
    return {one.pod: one for place in w.places for one in place.assignments}


def runs(values: list[str]) -> int:
    """How often a value differs from the one before it, and one."""
    return 1 + sum(one != other for one, other in pairwise(values))


def test_consecutive_ranks_share_nodes_then_racks_then_blocks() -> None:
    w = world()
    for number in (3, 0, 2, 1, 5, 4, 7, 6):  # names that do not follow the racks
        w.node(f"n{number}", gpu=2, labels={"block": f"b{number % 2}", "rack": f"r{number % 4}"})
    group = w.group("g", 16)
    for number in range(16):
        w.member(group, number)
    w.session()
    nodes = by_index(w)
    assert runs(nodes) == 8
    assert runs([str(int(node[1:]) % 4) for node in nodes]) == 4
    assert runs([str(int(node[1:]) % 2) for node in nodes]) == 2


def test_members_without_an_index_get_ranks_in_the_order_of_their_nodes() -> None:
    w = world()
    for number in range(2):
        w.node(f"n{number}", gpu=2, labels={"block": "b", "rack": f"r{number}"})
    group = w.group("g", 4, topology=TopologyWish("fabric", required="block"))
    for number in range(4):
        w.pod(f"p{number}", group=group.key)
    w.session()
    found = assigned(w)
    marks = [one.mark for one in found.values()]
    assert sorted(mark.rank for mark in marks if mark is not None) == [0, 1, 2, 3]
    ranked = sorted((one.mark.rank, one.node) for one in found.values() if one.mark is not None)
    assert runs([node for _, node in ranked]) == 2
    assert {mark.domains for mark in marks if mark is not None} == {(("block", "b"),)}


def test_ranks_that_run_are_kept_and_one_that_was_lost_is_given_again() -> None:
    w = world()
    w.node("n0", gpu=8, labels={"block": "b", "rack": "r"})
    group = w.group("g", 3)
    for number in range(3):
        w.pod(f"p{number}", group=group.key)
    w.session()
    ranks = {pod: one.mark.rank for pod, one in assigned(w).items() if one.mark is not None}
    w.carry_out()
    for pod in list(w.pods.values()):
        w.set_pod(replace(pod, index=ranks[pod.name]))
    w.session(later=1)
    lost = next(pod for pod, rank in ranks.items() if rank == 1)
    w.drop_pod(lost)
    w.pod("again", group=group.key)
    w.session(later=1)
    (one,) = assigned(w).values()
    assert one.mark is not None
    assert one.mark.rank == 1


def test_members_with_an_index_of_their_own_and_single_pods_get_none() -> None:
    w = world()
    w.node("n0", gpu=8)
    group = w.group("g", 2)
    for number in range(2):
        w.member(group, number)
    w.pod("single")
    w.session()
    assert [one.mark for one in assigned(w).values()] == [None, None, None]


def test_every_sub_group_has_its_ranks_together() -> None:
    w = world()
    for number in range(4):
        w.node(f"n{number}", gpu=2, labels={"block": "b", "rack": f"r{number % 2}"})
    rack = TopologyWish("fabric", required="rack")
    group = w.group("g", 8, **tree(SubGroup("a", 4, topology=rack), SubGroup("b", 4, topology=rack)))
    for role in ("a", "b"):
        for number in range(4):
            w.pod(f"{role}{number}", shape(gpu=1), group=group.key, role=role)
    w.session()
    ranked = sorted((one.mark.rank, pod[0]) for pod, one in assigned(w).items() if one.mark is not None)
    assert runs([role for _, role in ranked]) == 2
