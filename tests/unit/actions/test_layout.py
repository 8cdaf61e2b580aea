"""A balanced layout, from objects to placements: at the start, of sub-groups, and of members that come later."""

from __future__ import annotations

from collections import Counter

from scheduler.model.groups import SubGroup
from scheduler.model.wishes import TopologyWish
from tests.unit.framework.world import World, shape, with_plugins

EVEN = TopologyWish(balanced="rack")


def world(*sizes: int) -> World:
    w = World(config=with_plugins(["gang", "predicates", "topology"]))
    for number, gpu in enumerate(sizes):
        w.node(f"n{number}", gpu=gpu, labels={"rack": f"r{number}"})
    return w


def start(w: World, count: int, minimum: int, wish: TopologyWish = EVEN) -> None:
    group = w.group("g", minimum, topology=wish)
    for number in range(count):
        w.member(group, number)
    for _ in range(3):
        w.session(later=1)
        w.carry_out()


def held(w: World, prefix: str = "g") -> list[int]:
    nodes = (pod.node for pod in w.pods.values() if pod.node and pod.name.startswith(prefix))
    return sorted(Counter(nodes).values())


def test_the_minimum_is_even_and_what_comes_later_keeps_it_so() -> None:
    w = world(20, 15, 15)
    start(w, 22, 22)
    assert held(w) == [11, 11]
    group = w.groups["muster/ns/g"]
    for number in range(22, 26):
        w.member(group, number)
    w.session(later=1)
    w.carry_out()
    assert held(w) == [13, 13]


def test_few_domains_come_before_even_ones() -> None:
    w = world(8, 5, 4, 4)
    start(w, 12, 12)
    assert held(w) == [5, 7], "three would be even"
    w = world(8, 5, 5, 5)
    start(w, 13, 13)
    assert held(w) == [5, 8]


def test_each_sub_group_is_even_for_itself() -> None:
    w = world(6, 6, 4, 4)
    parts = (SubGroup("a", 7, topology=EVEN), SubGroup("b", 8, topology=EVEN))
    group = w.group("g", 15, subgroups=parts)
    for role, count in (("a", 7), ("b", 8)):
        for number in range(count):
            w.pod(f"{role}{number}", shape(gpu=1), group=group.key, role=role, index=number)
    w.session()
    w.carry_out()
    assert held(w, "a") == [3, 4]
    assert held(w, "b") == [4, 4]
    w.session(later=1)
    status = w.status("g")
    assert status is not None
    assert [(one.level, one.subgroup, sum(count for _, count in one.members)) for one in status.layout] == [
        ("rack", "a", 7),
        ("rack", "b", 8),
    ]


def test_a_lost_member_goes_where_its_domain_is_behind() -> None:
    w = world(10, 10)
    start(w, 12, 12)
    assert held(w) == [6, 6]
    lost = [pod for pod in w.pods.values() if pod.index in (0, 1)]
    for pod in lost:
        w.drop_pod(pod.name)
    w.session(later=1)
    group = w.groups["muster/ns/g"]
    for pod in lost:
        w.pod(f"g-again-{pod.index}", shape(gpu=1), group=group.key, index=pod.index)
    w.session(later=1)
    w.carry_out()
    assert held(w) == [6, 6]


def test_nobody_waits_for_it() -> None:
    w = world(3, 1)
    start(w, 4, 4)
    assert held(w) == [1, 3]


def preferring_world(wish: TopologyWish, stand: tuple[str, ...], lost: int, *, gone: str = "", **gpus: int) -> World:
    """A gang of which so many members, the first, are lost (their node too) and have been made again."""
    w = World(config=with_plugins(["gang", "predicates", "topology"]))
    w.topology("f", ("block", "block"), ("rack", "rack"))
    for name, gpu in gpus.items():
        w.node(name, gpu=gpu, labels={"rack": name[0], "block": "A" if name[0] in "pq" else "B"})
    group = w.group("g", len(stand), topology=wish)
    for number, node in enumerate(stand):
        w.member(group, number, node=node, phase="Running", started=True, since=10.0)
    w.session()
    for number in range(lost):
        w.drop_pod(f"g-{number}")
    if gone:
        w.drop_node(gone)
    w.session(later=1)
    for number in range(lost):
        w.pod(f"g-{number}n", shape(gpu=1), group=group.key, index=number)
    w.session(later=1)
    return w


def test_lost_members_come_home_where_a_rack_is_only_preferred() -> None:
    for wish in (
        TopologyWish(name="f", preferred="rack"),
        TopologyWish(name="f", preferred="rack", required="block"),
    ):
        for lost in (1, 2, 3):
            w = preferring_world(wish, ("p0", "p0", "p1", "p1"), lost, p0=2, p1=2, p2=3, q0=2, q1=1)
            assert [w.placed[f"g-{one}n"] for one in range(lost)] == ["p0", "p0", "p1"][:lost]


def test_where_the_preferred_rack_of_a_gang_is_full_another_of_its_block_is_sought_first() -> None:
    wish = TopologyWish(name="f", preferred="rack")
    w = preferring_world(wish, ("p0", "p0", "p1"), 2, gone="p0", p0=2, p1=1, q0=3, s0=2)
    assert set(w.placed.values()) == {"q0"}, "the rack s is fuller, but in the other block"
    w = preferring_world(wish, ("p0", "p0", "p1"), 2, gone="p0", p0=2, p1=1, q0=1, s0=2)
    assert set(w.placed.values()) == {"s0"}, "one rack, else"


def test_a_level_that_is_not_there_is_told_where_domains_are_filled_one_after_the_other_too() -> None:
    w = world(4)
    w.member(w.group("g", 1, topology=TopologyWish(packed="nope")), 0)
    w.session()
    assert not w.placed
    why = w.verdict("g")
    assert why is not None
    assert dict(why.facts)["field"] == "spec.topology.layout.level"
