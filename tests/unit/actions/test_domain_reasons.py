"""What is said of a gang that rules about domains keep waiting."""

from __future__ import annotations

from scheduler.model.groups import SubGroup
from scheduler.model.verdict import Verdict
from scheduler.model.wishes import TopologyWish
from scheduler.observe.explain import pod_message, sentence
from tests.unit.framework.world import GPU, World, shape, with_plugins

RACK = TopologyWish(required="rack")


def racks(**sizes: tuple[int, ...]) -> World:
    """Nodes of so many GPUs in each rack; those of `none` are in no rack."""
    w = World(config=with_plugins(["gang", "predicates", "topology"]))
    for name, nodes in sizes.items():
        for at, gpu in enumerate(nodes):
            w.node(f"{name}-{at}", gpu=gpu, labels={"rack": name} if name != "none" else {})
    return w


def gang(w: World, name: str, topology: TopologyWish, *kinds: tuple[int, int], **fields: object) -> None:
    """A gang of (members, GPUs of each)."""
    group = w.group(name, sum(count for count, _ in kinds), topology=topology)
    for number, (count, gpu) in enumerate(kinds):
        for one in range(count):
            w.pod(f"{name}-{number}-{one}", shape(gpu=gpu), namespace="ns", group=group.key, **fields)


def told(w: World, name: str) -> Verdict:
    w.session()
    found = w.verdict(name)
    assert found is not None
    return found


def test_what_no_domain_could_ever_hold_is_told_with_what_the_largest_lacks_and_the_room_outside() -> None:
    w = racks(r1=(4, 4), r2=(4,), r3=(4, 2), none=(4, 2))
    gang(w, "g", RACK, (10, 1))
    found = told(w, "g")
    assert found.permanent
    assert sentence(found) == (
        "Topology: needs 10 example.com/gpu for 10 members in one rack, never fits: not even an empty rack has room "
        "for them; the largest, r1, has 8, 2 short; 8 of 10 members would fit in r1 when empty, 6 in r3, 4 in r2; "
        "2 nodes with room are in no rack"
    )


def test_what_runs_makes_no_difference_to_what_an_empty_domain_has() -> None:
    w = racks(r1=(4,), none=(4,))
    w.running("x", "r1-0", shape(gpu=4))
    w.running("y", "none-0", shape(gpu=4))
    gang(w, "g", RACK, (6, 1))
    assert "r1, has 4, 2 short; 4 of 6 members would fit in r1 when empty; 1 node with room" in sentence(told(w, "g"))


def test_pieces_that_are_too_small_in_an_empty_domain_are_not_told_as_short() -> None:
    w = racks(r1=(3, 3), none=(2,))
    gang(w, "g", RACK, (3, 2))
    assert "; the largest, r1, has 6; 2 of 3 members would fit in r1 when empty; 1 node" in sentence(told(w, "g"))


def test_of_members_of_several_kinds_those_are_told_that_fit_together() -> None:
    w = racks(r1=(3, 3), none=(2,))
    gang(w, "g", RACK, (2, 3), (2, 1))
    assert "; the largest, r1, has 6, 2 short; 3 of 4 members would fit in r1 when empty; 1 node" in sentence(
        told(w, "g")
    )


def test_where_no_sum_is_short_it_is_told_how_many_fit() -> None:
    w = World(config=with_plugins(["gang", "predicates", "topology"]))
    for number in range(4):
        w.node(f"n{number}", gpu=2, cpu=8, labels={"rack": f"r{number // 2}"})
    group = w.group("g", 5, topology=RACK, roles={"m": 1, "w": 4})
    w.pod("m", shape(cpu=8), namespace="ns", group=group.key, role="m")
    for number in range(4):
        w.pod(f"w{number}", shape(gpu=1, cpu=1), namespace="ns", group=group.key, role="w")
    assert sentence(told(w, "g")).endswith("; 4 of 5 members would fit in r0 when empty, 4 in r1")


def test_of_a_gang_with_parts_only_members_are_told_that_it_needs() -> None:
    w = racks(r0=(3, 1), r1=(3, 3))
    parts = (SubGroup("a", 1), SubGroup("b", 1), SubGroup("c", 1))
    group = w.group("g", 4, topology=RACK, subgroups=parts)
    for name, gpu, count in (("a", 1, 4), ("b", 3, 1), ("c", 3, 1)):
        for number in range(count):
            role = {"group": group.key, "role": name, "index": number}
            w.pod(f"{name}-{number}", shape(gpu=gpu), namespace="ns", **role)
    said = sentence(told(w, "g"))
    assert "for 4 members in one rack, never fits" in said
    assert "; 3 of 4 members would fit in r1 when empty, 2 in r0" in said


def test_of_domains_that_hold_as_many_the_roomiest_is_the_best() -> None:
    w = racks(r0=(4, 4), r1=(3,))
    w.running("x", "r0-0", shape(gpu=2))
    w.running("y", "r0-1", shape(gpu=2))
    gang(w, "g", RACK, (1, 3), (2, 1))
    assert "; best rack r0 has 4, 1 short; 2 of 3 members would fit in r0, 2 in r1" in sentence(told(w, "g"))


def test_members_of_several_roles_are_not_called_members_of_one() -> None:
    for size in (4, 6):  # the second could ever be held
        w = racks(r1=(size,), none=(4,))
        w.running("x", "r1-0", shape(gpu=2))
        group = w.group("g", 5, topology=RACK, roles={"a": 1, "b": 4})
        for number in range(5):
            role = "a" if number == 0 else "b"
            w.pod(f"g-{number}", shape(gpu=1), namespace="ns", group=group.key, role=role)
        assert "needs 5 example.com/gpu for 5 members in one rack" in sentence(told(w, "g"))


def test_the_resource_that_the_largest_domain_lacks_is_named_not_the_one_that_is_scarce_now() -> None:
    w = World(config=with_plugins(["gang", "predicates", "topology"]))
    w.node("a", gpu=4, cpu=9000, labels={"rack": "r1"})
    w.node("b", gpu=4, cpu=9000, labels={"rack": "r2"})
    w.running("hog", "a", shape(cpu=8500))
    w.running("other", "b", shape(cpu=8500))
    group = w.group("g", 6, topology=RACK)
    for one in range(6):
        w.pod(f"g-{one}", shape(gpu=1, cpu=1000), namespace="ns", group=group.key)
    assert "needs 6 example.com/gpu for 6 members in one rack, never fits" in sentence(told(w, "g"))


def test_a_rule_that_the_empty_cluster_cannot_keep_is_told_of_the_empty_cluster() -> None:
    w = racks(r1=(4,), r2=(4,))
    gang(w, "g", TopologyWish(apart=(("rack", 1),)), (3, 1))
    assert sentence(told(w, "g")).endswith("an empty cluster has room, but not with at most 1 in each rack")


def test_a_node_that_has_room_is_not_counted_as_one_that_lacks_it() -> None:
    w = racks(r1=(4,), r2=(4,), r3=(1,))
    w.running("x", "r3-0", shape(gpu=1))
    gang(w, "g", RACK, (6, 1))
    assert pod_message(told(w, "g")).startswith(
        "0/3 nodes are available: 1 Insufficient example.com/gpu, "
        "2 node(s) didn't satisfy the topology rules of the group. Topology: "
    )


def test_parts_of_which_too_many_would_share_a_rack() -> None:
    w = racks(r1=(4,), r2=(4,))
    parts = tuple(SubGroup(f"p{number}", 1) for number in range(5))
    group = w.group("g", 5, topology=TopologyWish(apart=(("rack", 2),)), subgroups=parts)
    for one in parts:
        w.pod(f"{one.path}-0", shape(gpu=1), namespace="ns", group=group.key, role=one.path)
    assert sentence(told(w, "g")).endswith("room, but not with at most 2 sub-groups in each rack")


def test_parts_of_which_each_alone_has_a_rack_are_told_without_numbers_of_one() -> None:
    """No rack is too small for any of them; there are too few racks for all."""
    w = racks(x=(1,), y=(3,))
    parts = tuple(SubGroup(f"p{number}", 2, topology=RACK) for number in range(2))
    group = w.group("g", 4, subgroups=parts)
    for part in parts:
        for number in range(2):
            w.pod(f"{part.path}-{number}", shape(gpu=1), namespace="ns", group=group.key, role=part.path)
    assert sentence(told(w, "g")).endswith(
        "room, but not with all of sub-group p1 in one rack and what else is asked about domains"
    )


def test_a_part_that_is_not_needed_is_not_the_reason_with_numbers() -> None:
    w = racks(x=(1,), y=(3,))
    parts = tuple(SubGroup(f"p{number}", 2, topology=RACK) for number in range(3))
    apart = TopologyWish(apart=(("rack", 1),))
    group = w.group("g", 1, subgroups=parts, topology=apart, min_subgroups=2)
    for part in parts:
        for number in range(2):
            w.pod(f"{part.path}-{number}", shape(gpu=1), namespace="ns", group=group.key, role=part.path)
    said = sentence(told(w, "g"))
    assert said.startswith("Topology: needs 4 example.com/gpu for 4 members")
    assert "needs 0" not in said


def test_how_many_fit_in_each_rack_is_not_told_where_there_is_no_time_to_count_it() -> None:
    """Many gangs with members of two sizes, all different; the first of them are told how many fit."""
    w = racks(r1=(6,), r2=(6,))
    for rack in ("r1", "r2"):
        w.running(rack, f"{rack}-0", shape(gpu=3))
    for number in range(40):
        group = w.group(f"g{number}", 4, topology=RACK)
        for member in range(4):
            w.member(group, member, shape(gpu=1 + member % 2, memory=1 + number))
    w.session()
    assert w.result is not None
    said = {sentence(one) for one in w.result.verdicts.values()}
    start = f"Topology: needs 6 {GPU} for 4 members in one rack; best rack r1 has 3, 3 short"
    assert said == {f"{start}; 2 of 4 members would fit now", f"{start}; 2 of 4 members would fit in r1, 2 in r2"}
