"""Sub-groups and domains, from objects to placements."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from scheduler.actions.run import Sessions
from scheduler.model.affinity import LabelSelector, Requirement
from scheduler.model.groups import PodGroup, SubGroup
from scheduler.model.verdict import Code, Verdict
from scheduler.model.wishes import PodWish, TopologyWish
from scheduler.observe.explain import sentence
from scheduler.sim import replay
from tests.unit.framework.world import World, shape, with_plugins

PLUGINS = ["gang", "predicates", "topology"]


def world() -> World:
    made = World(config=with_plugins(PLUGINS))
    made.sessions = type(made.sessions)(made.config, made.registry, check=True)
    return made


def racks(w: World, *sizes: tuple[int, ...], block: str = "") -> World:
    """Rack number i has nodes of so many GPUs each; their names are rI-J."""
    for number, nodes in enumerate(sizes):
        for at, gpu in enumerate(nodes):
            labels = {"rack": f"r{number}"} | ({"block": block} if block else {})
            w.node(f"r{number}-{at}", gpu=gpu, labels=labels)
    return w


def rack_of(node: str) -> str:
    return node.partition("-")[0]


def tree(*subgroups: SubGroup, least: int | None = None, topology: TopologyWish | None = None) -> dict[str, object]:
    return {"subgroups": subgroups, "min_subgroups": least, "topology": topology}


def members(w: World, group: PodGroup, role: str, count: int, *, gpu: int = 1, **fields: object) -> None:
    for number in range(count):
        w.pod(f"{role}-{number}", shape(gpu=gpu), namespace="ns", group=group.key, role=role, index=number, **fields)


def by_part(w: World) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for pod, node in sorted(w.placed.items()):
        found.setdefault(pod.rpartition("-")[0], []).append(rack_of(node))
    return found


def told(w: World, name: str) -> Verdict:
    found = w.verdict(name)
    assert found is not None
    return found


RACK = TopologyWish(required="rack")


def test_each_part_is_in_a_rack_of_its_own_choice_and_both_start_together() -> None:
    w = racks(world(), (2, 2), (2, 2))
    group = w.group("g", 6, **tree(SubGroup("a", 3, topology=RACK), SubGroup("b", 3, topology=RACK)))
    members(w, group, "a", 3)
    members(w, group, "b", 3)
    w.session()
    found = by_part(w)
    assert len(set(found["a"])) == len(set(found["b"])) == 1
    assert set(found["a"]) != set(found["b"])


def test_the_part_that_only_one_rack_can_hold_gets_it_whoever_is_named_first() -> None:
    w = world()
    for number in range(2):
        for at in range(2):
            labels = {"rack": f"r{number}"} | ({"fast": "yes"} if number == 0 else {})
            w.node(f"r{number}-{at}", gpu=2, labels=labels)
    group = w.group("g", 8, **tree(SubGroup("x", 4, topology=RACK), SubGroup("y", 4, topology=RACK)))
    members(w, group, "x", 4)
    for number in range(4):
        fast = shape(gpu=1, node_selector=(("fast", "yes"),))
        w.pod(f"y-{number}", fast, namespace="ns", group=group.key, role="y", index=number)
    w.session()
    assert by_part(w) == {"x": ["r1"] * 4, "y": ["r0"] * 4}


def test_of_several_parts_that_suffice_the_one_that_fits_is_chosen() -> None:
    w = racks(world(), (2,))
    group = w.group("g", 1, **tree(SubGroup("a", 1), SubGroup("b", 1), least=1))
    members(w, group, "a", 1, gpu=4)
    members(w, group, "b", 1, gpu=2)
    w.session()
    assert list(w.placed) == ["b-0"]


def test_a_part_that_cannot_be_complete_does_not_stand_in_the_way_of_another() -> None:
    w = racks(world(), (2,))
    group = w.group("g", 1, **tree(SubGroup("a", 2), SubGroup("b", 1), least=1))
    members(w, group, "a", 1)
    members(w, group, "b", 1)
    w.session()
    assert list(w.placed) == ["b-0"]


def test_shards_by_label_value_start_two_of_three_and_the_third_later_as_a_whole() -> None:
    w = racks(world(), (4,), (4,), (3,))
    shard = SubGroup("shard", 4, 2, None, ("id",), RACK)
    group = w.group("g", 8, **tree(shard))
    for one in "abc":
        members(w, group, one, 4, labels=(("id", one),))
    w.session()
    found = by_part(w)
    assert len(found) == 2
    assert all(len(racks_) == 4 and len(set(racks_)) == 1 for racks_ in found.values())
    w.carry_out()
    w.session(later=1)
    assert w.placed == {}
    w.node("r2-1", gpu=1, labels={"rack": "r2"})
    w.session(later=1)
    assert sorted(by_part(w).values()) == [["r2"] * 4]
    assert [(place.minimum, len(place.assignments)) for place in w.places] == [(4, 4)]


def test_a_lost_member_comes_back_to_the_rack_of_its_part_or_waits_with_that_reason() -> None:
    w = racks(world(), (2,), (2,))
    group = w.group("g", 4, **tree(SubGroup("a", 2, topology=RACK), SubGroup("b", 2, topology=RACK)))
    members(w, group, "a", 2)
    members(w, group, "b", 2)
    w.session()
    w.carry_out()
    w.session(later=1)
    home = rack_of(next(pod.node for pod in w.pods.values() if pod.name == "a-0"))
    w.drop_pod("a-1")
    w.running("hog", f"{home}-0", shape(gpu=1))
    w.node("r9-0", gpu=8, labels={"rack": "r9"})
    w.pod("a-1b", shape(gpu=1), group=group.key, role="a", index=1)
    w.session(later=1)
    assert w.placed == {}
    assert told(w, "g").code is Code.TOPOLOGY
    w.drop_pod("hog")
    w.session(later=1)
    assert w.placed == {"a-1b": f"{home}-0"}


def test_a_part_that_lost_all_its_members_starts_again_as_a_whole() -> None:
    w = racks(world(), (2,), (2,))
    group = w.group("g", 4, **tree(SubGroup("a", 2, topology=RACK), SubGroup("b", 2, topology=RACK)))
    members(w, group, "a", 2)
    members(w, group, "b", 2)
    w.session()
    w.carry_out()
    w.session(later=1)
    for number in range(2):
        w.drop_pod(f"b-{number}")
    members(w, group, "b", 1)
    w.session(later=1)
    assert w.placed == {}
    w.pod("b-1", shape(gpu=1), group=group.key, role="b", index=1)
    w.session(later=1)
    assert sorted(w.placed) == ["b-0", "b-1"]
    assert [place.minimum for place in w.places] == [2]


def test_surplus_members_of_a_part_come_after_parts_that_could_start() -> None:
    w = racks(world(), (4,))
    group = w.group("g", 2, **tree(SubGroup("a", 2), SubGroup("b", 2), least=1))
    members(w, group, "a", 3)
    members(w, group, "b", 2)
    w.session()
    assert len(w.placed) == 2
    w.carry_out()
    w.session(later=1)
    first = {pod.name.partition("-")[0] for pod in w.pods.values() if pod.node}
    second = {name.partition("-")[0] for name in w.placed}
    assert sorted((first, second), key=min) == [{"a"}, {"b"}]
    assert len(w.placed) == 2


def test_a_surplus_member_without_room_does_not_hold_up_those_of_other_parts() -> None:
    w = racks(world(), (1,), (3,))
    group = w.group("g", 1, **tree(SubGroup("a", 1), SubGroup("b", 1)))
    members(w, group, "a", 2, gpu=2)
    members(w, group, "b", 2)
    w.session()
    assert sorted(w.placed) == ["a-0", "b-0"]
    w.carry_out()
    w.session(later=1)
    assert list(w.placed) == ["b-1"]
    assert sentence(told(w, "g")).startswith("Resources: needs 2 example.com/gpu for 1 member")


@pytest.mark.parametrize("lost", [False, True])
def test_a_part_whose_members_straddle_racks_does_not_hold_up_the_others(lost: bool) -> None:
    w = racks(world(), (4,), (4,), (4,))
    group = w.group("g", 3, **tree(SubGroup("a", 3 if lost else 2, topology=RACK), SubGroup("b", 2, topology=RACK)))
    members(w, group, "a", 3 if lost else 2, gpu=1 if lost else 2)
    members(w, group, "b", 2)
    w.session()
    w.carry_out()
    w.session(later=1)
    home = {pod.name: pod.node for pod in w.pods.values()}
    other = next(node for node in ("r0-0", "r1-0", "r2-0") if node not in home.values())
    w.running("stray", other, group=group.key, role="a")
    for name in ("a-1", "a-2", "b-1") if lost else ():
        w.drop_pod(name)
    for part in "ab":
        w.pod(f"{part}-7", shape(gpu=1), namespace="ns", group=group.key, role=part, index=7)
    w.session(later=1)
    assert w.placed == {"b-7": home["b-0"]}
    assert "its running members are in several" in sentence(told(w, "g"))


def test_a_tree_of_parts_needs_so_many_of_each_branch() -> None:
    w = racks(world(), (8,))
    parts = (
        SubGroup("ab", min_subgroups=1), SubGroup("ab/a", 2), SubGroup("ab/b", 2), SubGroup("c", 1),
    )  # fmt: skip
    group = w.group("g", 1, **tree(*parts))
    members(w, group, "a", 1)
    members(w, group, "b", 2)
    members(w, group, "c", 1, gpu=4)
    w.session()
    assert {name.partition("-")[0] for name in w.placed} == {"b", "c"}


@pytest.mark.parametrize(
    ("parts", "least"),
    [
        ((SubGroup("in", min_subgroups=0), SubGroup("in/s0", 3)), None),
        ((SubGroup("in", min_subgroups=0), SubGroup("in/s0", 3), SubGroup("s1", 1)), 1),
        ((SubGroup("x"), SubGroup("x/in", min_subgroups=0), SubGroup("x/in/s0", 3)), None),
        ((SubGroup("s0", 3),), 0),
    ],
)
def test_a_part_that_nobody_needs_starts_whole_or_not_at_all(parts: tuple[SubGroup, ...], least: int | None) -> None:
    w = racks(world(), (2,))
    group = w.group("g", 1, **tree(*parts, least=least))
    members(w, group, "s0", 4)
    members(w, group, "s1", 1, gpu=8)
    for _ in range(2):
        w.session(later=1)
        assert w.placed == {}
        w.carry_out()
    w.node("r1-0", gpu=1, labels={"rack": "r1"})
    w.session(later=1)
    assert sorted(w.placed) == ["s0-0", "s0-1", "s0-2"]
    assert [place.minimum for place in w.places] == [3]


def test_beside_a_part_that_starts_another_below_it_that_it_does_not_need_is_whole_or_absent() -> None:
    w = racks(world(), (3,))
    parts = (
        SubGroup("p"), SubGroup("p/in", min_subgroups=0), SubGroup("p/in/s0", 3), SubGroup("p/s1", 1),
    )  # fmt: skip
    group = w.group("g", 3, **tree(*parts))
    members(w, group, "s0", 3)
    members(w, group, "s1", 1)
    w.session()
    assert w.placed == {}, "a minimum of three needs s1 and the three of s0"
    w.node("r1-0", gpu=1, labels={"rack": "r1"})
    w.session(later=1)
    assert len(w.placed) == 4


def test_parts_that_may_start_below_a_part_that_starts_later_are_whole_too() -> None:
    w = racks(world(), (4,))
    parts = (
        SubGroup("a", 1), SubGroup("p"), SubGroup("p/in", min_subgroups=0), SubGroup("p/in/s0", 3), SubGroup("p/s1", 1),
    )  # fmt: skip
    group = w.group("g", 1, **tree(*parts, least=1))
    members(w, group, "a", 1)
    members(w, group, "s0", 3)
    members(w, group, "s1", 1)
    found: list[list[str]] = []
    for _ in range(4):
        w.session(later=1)
        found.append(sorted(w.placed))
        w.carry_out()
    assert sorted(found[0] + found[1]) == ["a-0", "s1-0"]
    assert found[2:] == [[], []]
    w.node("r1-0", gpu=1, labels={"rack": "r1"})
    w.session(later=1)
    assert sorted(w.placed) == ["s0-0", "s0-1", "s0-2"]


def test_what_a_part_needs_that_may_start_is_told_as_a_whole() -> None:
    w = racks(world(), (2,))
    group = w.group("g", 1, **tree(SubGroup("s0", 3), least=0))
    members(w, group, "s0", 3)
    w.session()
    assert sentence(told(w, "g")) == (
        "Resources: needs 3 example.com/gpu for 3 members, never fits: "
        "all eligible nodes together have 2 example.com/gpu"
    )


def test_members_that_would_not_help_are_not_said_to_fit() -> None:
    w = racks(world(), (1, 1))
    parts = (SubGroup("in", min_subgroups=0), SubGroup("in/s0", 1), SubGroup("in/s1", 1), SubGroup("s2", 1))
    group = w.group("g", 1, **tree(*parts))
    members(w, group, "s0", 1)
    members(w, group, "s1", 1)
    members(w, group, "s2", 1, gpu=2)
    w.node("r1-0", gpu=2, labels={"rack": "r1"})
    w.running("hog", "r1-0", shape(gpu=2))
    w.session()
    assert sentence(told(w, "g")).startswith("Fragmented: needs 2 example.com/gpu for 1 member, ")
    assert sentence(told(w, "g")).endswith("0 of 1 member would fit now")


@pytest.mark.parametrize(
    ("subgroups", "least", "counts", "says"),
    [
        ((SubGroup("a", 2), SubGroup("b", 2)), None, {"a": 2, "b": 1}, "1 of 2 members of sub-group b exist"),
        ((SubGroup("a", 2), SubGroup("b", 2), SubGroup("c", 2)), 2, {"a": 2, "b": 1}, "1 of 2 sub-groups"),
        (
            (SubGroup("x", min_subgroups=2), SubGroup("x/a", 1), SubGroup("x/b", 1)),
            None,
            {"a": 1},
            "0 of 1 member of sub-group x/b exists",
        ),
    ],
)
def test_what_is_missing_names_the_part(
    subgroups: tuple[SubGroup, ...], least: int | None, counts: dict[str, int], says: str
) -> None:
    w = racks(world(), (8,))
    group = w.group("g", 1, **tree(*subgroups, least=least))
    for role, count in counts.items():
        members(w, group, role, count)
    w.session()
    assert w.placed == {}
    assert says in sentence(told(w, "g"))


@pytest.mark.parametrize("dialect", ["muster", "volcano"])
def test_a_pod_in_two_parts_stops_its_group_and_nobody_else(dialect: str) -> None:
    w = racks(world(), (8,))
    every = LabelSelector((Requirement("app", "Exists"),))
    parts = (SubGroup("a", 1, selector=every, field="spec.subGroups[0]"), SubGroup("b", 1, selector=every, field="f"))
    group = w.group("g", 1, dialect=dialect, **tree(*parts))
    members(w, group, "x", 1, labels=(("app", "y"),))
    w.gang("other", 2)
    w.session()
    assert w.placed_of("other") == ["other-0", "other-1"]
    verdict = told(w, "g")
    assert (verdict.code, verdict.fact("field")) == (Code.MISCONFIGURED, "f")
    assert "pod x-0 is in two sub-groups: spec.subGroups[0] (a) and f (b)" in str(verdict.fact("message"))


@pytest.mark.parametrize("minimum", [0, 1])
def test_a_selector_that_matches_no_pod_is_named_whether_the_group_runs_or_waits(minimum: int) -> None:
    w = racks(world(), (8,))
    typo = LabelSelector((Requirement("app", "In", ("w",)),))
    parts = (SubGroup("a", 1), SubGroup("b", minimum, selector=typo, field="spec.subGroups[1]"))
    group = w.group("g", 1, **tree(*parts))
    members(w, group, "a", 1, labels=(("app", "x"),))
    w.session()
    if minimum:
        assert sentence(told(w, "g")).endswith(
            "0 of 1 member of sub-group b exists; spec.subGroups[1].selector matches no pod"
        )
        return
    w.carry_out()
    w.session(later=10)
    said = w.status("g")
    assert said is not None
    assert said.verdict is not None
    assert (said.phase, said.verdict.fact("field")) == ("Running", "spec.subGroups[1].selector")
    assert sentence(said.verdict) == "Misconfigured: spec.subGroups[1].selector: matches no pod"
    members(w, group, "late", 1, labels=(("app", "w"),))
    w.session(later=10)
    w.carry_out()
    w.session(later=10)
    said = w.status("g")
    assert said is not None
    assert (said.phase, said.verdict) == ("Running", None)


def test_members_that_straddle_racks_are_left_alone_and_nobody_joins_them() -> None:
    w = racks(world(), (4,), (4,))
    group = w.gang("g", 2, topology="rack")
    w.session()
    w.carry_out()
    home = {pod.node for pod in w.pods.values()}.pop()
    w.running("stray", "r1-0" if home == "r0-0" else "r0-0", group=group.key)
    w.member(group, 7)
    w.session(later=1)
    assert w.placed == {}
    assert "its running members are in several (r0, r1)" in sentence(told(w, "g"))


def test_nodes_without_the_label_are_told_as_such_where_members_run() -> None:
    w = racks(world(), (1,), (1,))
    w.node("u", gpu=4)
    members(w, w.group("g", 6, topology=TopologyWish(preferred="rack")), "", 6)
    w.session()
    w.carry_out()
    w.session(later=1)
    said = w.status("g")
    assert said is not None
    assert (said.nodes, said.domains) == (3, (("rack", ("r0", "r1", "unlabelled")),))


def test_a_node_without_the_label_takes_nobody_who_wants_a_rack_for_itself() -> None:
    w = racks(world(), (2,))
    w.node("u", gpu=8)
    alone = TopologyWish(exclusive="rack")
    members(w, w.group("a", 2, topology=alone), "a", 2)
    group = w.group("b", 1, **tree(SubGroup("x", 1, topology=alone), SubGroup("y", 1, topology=alone)))
    members(w, group, "x", 1)
    members(w, group, "y", 1)
    w.session()
    assert w.placed == {"a-0": "r0-0", "a-1": "r0-0"}
    assert told(w, "b").code is Code.TOPOLOGY


@pytest.mark.parametrize("least", [1, 2])
def test_a_level_that_no_node_has_keeps_only_those_waiting_who_need_it(least: int) -> None:
    w = racks(world(), (8,))
    typo = TopologyWish(required="rak", field="spec.subGroups[0].topology.required")
    parts = (SubGroup("a", 1, topology=typo), SubGroup("b", 3), SubGroup("c", 3))
    group = w.group("g", 1, **tree(*parts, least=least))
    members(w, group, "a", 1)
    members(w, group, "b", 3)
    w.session()
    assert sorted(w.placed) == (["b-0", "b-1", "b-2"] if least == 1 else [])
    if least == 1:
        w.carry_out()
        w.session(later=1)
        assert w.placed == {}
    assert sentence(told(w, "g")).startswith("BadConstraints: spec.subGroups[0].topology.required: no node has the")
    members(w, group, "c", 3)
    w.session(later=10)
    assert sorted(w.placed) == (["c-0", "c-1", "c-2"] if least == 1 else ["b-0", "b-1", "b-2", "c-0", "c-1", "c-2"])
    w.carry_out()
    w.node("late", gpu=1, labels={"rak": "x"})
    w.session(later=10)
    assert w.placed == {"a-0": "late"}


def test_a_lost_member_that_has_no_room_does_not_keep_other_parts_from_starting() -> None:
    w = racks(world(), (2,), (2,))
    group = w.group("g", 1, **tree(SubGroup("a", 2, topology=RACK), SubGroup("b", 2, topology=RACK), least=1))
    members(w, group, "a", 2)
    w.session()
    w.carry_out()
    w.session(later=1)
    home = next(pod.node for pod in w.pods.values() if pod.name == "a-1")
    w.drop_pod("a-1")
    w.running("hog", home)
    w.pod("late", namespace="ns", group=group.key, role="a", index=1)
    members(w, group, "b", 2)
    w.session(later=10)
    other = {"r0-0": "r1-0", "r1-0": "r0-0"}[home]
    assert w.placed == {"b-0": other, "b-1": other}
    assert told(w, "g").code is Code.RESOURCES


@pytest.mark.parametrize(("ran", "minimum"), [(True, 1), (False, 1), (True, 3), (True, 5)])
def test_a_part_starts_in_place_of_one_that_lost_its_room(ran: bool, minimum: int) -> None:
    w = racks(world(), (2, 1), (4,))
    parts = (SubGroup("a", 3, topology=RACK), SubGroup("b", 2, topology=RACK))
    group = replace(w.group("g", minimum, **tree(*parts, least=1)), was_running=ran)
    w.set_group(group)
    for number, node in enumerate(("r0-0", "r0-0", "r0-1")):
        if ran or number == 2:
            w.pod(f"a-{number}", shape(gpu=1), namespace="ns", group=group.key, role="a", index=number, node=node)
    w.session()
    for number in range(2):
        if ran:
            w.drop_pod(f"a-{number}")
    w.drop_node("r0-0")
    w.session(later=1)
    for number in range(2):
        w.pod(f"a-{number}n", shape(gpu=1), namespace="ns", group=group.key, role="a", index=number)
    members(w, group, "b", 2)
    w.session(later=1)
    assert w.placed == {"b-0": "r1-0", "b-1": "r1-0"}


def test_at_most_so_many_racks_counts_those_where_members_run() -> None:
    w = racks(world(), (2,), (2,), (2,))
    group = w.group("g", 4, topology=TopologyWish(at_most=(("rack", 2),)))
    for number in range(4):
        w.member(group, number)
    w.session()
    assert len({rack_of(node) for node in w.placed.values()}) == 2
    w.carry_out()
    w.member(group, 9)
    w.session(later=1)
    assert w.placed == {}


def test_segments_fill_racks_in_multiples() -> None:
    w = racks(world(), (3,), (3,), (2,))
    group = w.group("g", 4, topology=TopologyWish(segments=((2, "rack"),)))
    for number in range(4):
        w.member(group, number)
    w.session()
    counts = [rack_of(node) for node in w.placed.values()]
    assert sorted(counts.count(rack) for rack in set(counts)) == [2, 2]


def test_replicas_of_a_service_spread_over_racks() -> None:
    w = racks(world(), (8,), (8,), (8,))
    replicas = tuple(SubGroup(f"replica-{number}", 2, topology=RACK) for number in range(3))
    group = w.group("g", 6, **tree(*replicas, topology=TopologyWish(apart=(("rack", 1),))))
    for one in replicas:
        members(w, group, one.name, 2)
    w.session()
    found = by_part(w)
    assert sorted(racks_[0] for racks_ in found.values()) == ["r0", "r1", "r2"]


def test_two_replicas_share_a_rack_and_a_third_does_not() -> None:
    w = racks(world(), (8,), (2,), (2,))
    replicas = tuple(SubGroup(f"replica-{number}", 2, topology=RACK) for number in range(4))
    group = w.group("g", 8, **tree(*replicas, topology=TopologyWish(apart=(("rack", 2),))))
    for one in replicas:
        members(w, group, one.name, 2)
    w.session()
    homes = Counter(home for found in by_part(w).values() for home in set(found))
    assert homes == {"r0": 2, "r1": 1, "r2": 1}
    w.carry_out()
    w.session(later=1)
    lost = [pod.name for pod in w.pods.values() if rack_of(pod.node) == "r1"]
    for name in lost:
        w.drop_pod(name)
    w.node("r1-0", gpu=1, labels={"rack": "r1"})
    for number, name in enumerate(lost):
        role = name.rpartition("-")[0]
        w.pod(f"{role}-{number + 2}", shape(gpu=1), namespace="ns", group=group.key, role=role, index=number)
    w.session(later=1)
    assert not w.placed, "r0 has room, but two others are there"
    w.node("r1-0", gpu=2, labels={"rack": "r1"})
    w.session(later=1)
    assert {rack_of(node) for node in w.placed.values()} == {"r1"}


def test_an_exclusive_rack_is_shared_with_nobody_who_is_exclusive_too() -> None:
    w = racks(world(), (8,), (8,))
    alone = TopologyWish(required="rack", exclusive="rack")
    for name in ("one", "two", "three"):
        group = w.group(name, 2, topology=alone)
        for number in range(2):
            w.member(group, number)
    w.gang("plain", 4)
    w.session()
    homes = {name: {rack_of(w.placed[pod]) for pod in w.placed_of(name)} for name in ("one", "two", "three")}
    assert sorted(map(sorted, homes.values())) == [[], ["r0"], ["r1"]]
    assert len(w.placed_of("plain")) == 4
    assert told(w, next(name for name, found in homes.items() if not found)).code is Code.TOPOLOGY


def test_what_pods_say_about_domains_holds_for_their_owners_gang() -> None:
    w = racks(world(), (2, 1), (2, 2))
    owner = {"owner_uid": "job", "owner_name": "job", "owner_kind": "Job", "min_member": 4}
    wish = PodWish(TopologyWish(required="rack", field="metadata.annotations[x]"))
    for number in range(4):
        w.pod(f"p-{number}", index=number, wish=wish, **owner)
    w.session()
    assert {rack_of(node) for node in w.placed.values()} == {"r1"}


def test_pod_sets_of_one_gang_each_get_their_own_domain() -> None:
    w = racks(world(), (2,), (3,))
    owner = {"owner_uid": "job", "owner_name": "job", "owner_kind": "JobSet", "min_member": 5}
    for podset, count in (("driver", 2), ("worker", 3)):
        for number in range(count):
            wish = PodWish(TopologyWish(required="rack"), podset)
            w.pod(f"{podset}-{number}", index=number, wish=wish, **owner)
    w.session()
    assert by_part(w) == {"driver": ["r0"] * 2, "worker": ["r1"] * 3}


def test_a_running_gang_is_not_broken_below_what_its_parts_need() -> None:
    config = with_plugins(["priority", "gang"], ["queues", "predicates", "topology"])
    w = World(config=config)
    w.sessions = type(w.sessions)(w.config, w.registry, check=True)
    racks(w, (4,))
    group = w.group("g", 1, **tree(SubGroup("a", 2), SubGroup("b", 1)))
    members(w, group, "a", 2)
    members(w, group, "b", 2)
    w.session()
    w.carry_out()
    w.session(later=1)
    w.carry_out()
    assert sum(bool(pod.node) for pod in w.pods.values()) == 4
    w.pod("vip", shape(gpu=1), priority=100)
    w.session(later=100)
    assert [name.partition("-")[0] for name in w.victims] == ["b"]


def test_single_pods_that_ask_for_a_domain_do_so_each_for_itself() -> None:
    w = racks(world(), (1,), (1,))
    for number in range(2):
        w.pod(f"p-{number}", wish=PodWish(TopologyWish(required="rack")))
    w.session()
    assert sorted(w.placed.values()) == ["r0-0", "r1-0"]


def test_a_gang_moves_within_what_it_says_about_domains() -> None:
    """Consolidate: a gang that is in one rack is moved to another as a whole; one with parts in racks is left alone."""
    config = with_plugins(
        ["priority", "gang"], ["queues", "predicates", "topology"], actions=("allocate", "consolidate")
    )
    w = World(config=config)
    w.sessions = type(w.sessions)(w.config, w.registry, check=True)
    racks(w, (2, 2), (2, 2))
    near = w.gang("near", 2, topology="rack", pod={"owner_uid": "o", "owner_kind": "Job", "owner_name": "o"})
    w.session()
    w.carry_out()
    w.session(later=1)
    home = {rack_of(pod.node) for pod in w.pods.values()}.pop()
    other = "r1" if home == "r0" else "r0"
    w.running("x", f"{other}-0", shape(gpu=1))
    w.gang("wide", 4, topology="rack")
    w.session(later=1)
    assert w.victims == ["near-0", "near-1"]
    homes = {victim.move_to for place in w.places for victim in place.victims}
    assert {rack_of(node) for node in homes} == {other}
    assert {rack_of(node) for node in w.placed.values()} == {home}
    assert near.name == "near"


def test_pods_of_one_job_in_no_gang_share_a_rack_that_is_closed_to_other_jobs() -> None:
    w = racks(world(), (4,), (4,))
    for job, count in (("a", 2), ("b", 1)):
        for number in range(count):
            w.pod(f"{job}-{number}", wish=PodWish(TopologyWish(required="rack", exclusive="rack"), job))
            w.session(later=1)
            w.carry_out()
    homes = {pod.name: rack_of(pod.node) for pod in w.pods.values()}
    assert homes["b-0"] not in (homes["a-0"], homes["a-1"])
    w.pod("c-0", wish=PodWish(TopologyWish(required="rack", exclusive="rack"), "c"))
    w.session(later=1)
    assert w.placed == {}


def test_a_saved_session_with_sub_groups_and_domains_decides_the_same_again() -> None:
    w = racks(world(), (2, 2), (2, 2), block="b0")
    w.topology("fabric", ("block", "block"), ("rack", "rack"))
    near = TopologyWish("fabric", required="rack", segments=((1, "rack"),))
    group = w.group("g", 4, **tree(SubGroup("a", 2, topology=near), SubGroup("b", 2), least=1))
    members(w, group, "a", 2)
    members(w, group, "b", 3)
    result = w.session()
    assert w.snapshot is not None
    assert w.placed
    saved = replay.load(replay.dump("s-1", w.config, w.snapshot, result.decisions))
    again = Sessions(w.config, w.registry).run(saved.snapshot, result.decisions.session)
    assert again.decisions == result.decisions


def test_nobody_joins_a_part_that_is_still_being_bound() -> None:
    w = racks(world(), (8,))
    group = w.group("g", 2, **tree(SubGroup("a", 2), SubGroup("b", 2), least=1))
    members(w, group, "a", 2)
    w.session()
    w.carry_out()
    members(w, group, "b", 4)
    result = w.session(later=1)
    assert sorted(w.placed) == ["b-0", "b-1"]
    for place in w.places:
        w.store.assume(place, result.decisions.session)
    w.session(later=1)
    assert w.placed == {}


def test_a_gang_has_ended_when_as_many_as_its_parts_need_have_succeeded() -> None:
    w = racks(world(), (8,))
    group = w.group("g", 1, **tree(SubGroup("a", 2), SubGroup("b", 3), SubGroup("c", 1), least=2))
    for role, count in (("a", 2), ("c", 1)):
        for number in range(count):
            w.pod(f"{role}-{number}", group=group.key, role=role, phase="Succeeded", node="r0-0")
    w.pod("b-0", group=group.key, role="b", phase="Failed", node="r0-0")
    w.session()
    status = w.status("g")
    assert status is not None
    assert status.phase == "Completed"


def test_room_is_made_where_each_part_needs_it_and_nowhere_else() -> None:
    config = with_plugins(["priority", "gang"], ["queues", "predicates", "topology"])
    w = World(config=config)
    w.sessions = type(w.sessions)(w.config, w.registry, check=True)
    racks(w, (2,), (2,), (2,))
    for number, node in enumerate(("r0-0", "r1-0", "r1-0", "r2-0")):
        w.running(f"low-{number}", node, shape(gpu=1))
    parts = (SubGroup("a", 2, topology=RACK), SubGroup("b", 2, topology=RACK))
    group = w.group("g", 4, priority_class="high", **tree(*parts))
    w.priority("high", 100)
    members(w, group, "a", 2, priority=100)
    members(w, group, "b", 2, priority=100)
    w.session()
    assert w.victims == ["low-0", "low-3"], "two go for two racks, not two of one rack that help nobody"
    assert {tuple(racks_) for racks_ in by_part(w).values()} == {("r0", "r0"), ("r2", "r2")}


def test_of_parts_that_suffice_room_is_made_for_the_one_that_costs_least() -> None:
    config = with_plugins(["priority", "gang"], ["queues", "predicates", "topology"])
    w = World(config=config)
    w.sessions = type(w.sessions)(w.config, w.registry, check=True)
    racks(w, (4,))
    for number in range(4):
        w.running(f"low-{number}", "r0-0", shape(gpu=1))
    group = w.group("g", 1, priority_class="high", **tree(SubGroup("a", 1), SubGroup("b", 1), least=1))
    w.priority("high", 100)
    members(w, group, "a", 1, gpu=3, priority=100)
    members(w, group, "b", 1, gpu=2, priority=100)
    w.session()
    assert (len(w.victims), list(w.placed)) == (2, ["b-0"])


def test_the_jobs_of_a_jobset_in_one_gang_each_have_a_rack_to_themselves() -> None:
    w = racks(world(), (8,), (8,), (8,))
    group = w.group("g", 6)
    for job in ("a", "b", "c"):
        wish = PodWish(TopologyWish(required="rack", exclusive="rack"), job)
        members(w, group, job, 2, wish=wish)
    w.session()
    found = by_part(w)
    assert all(len(set(racks_)) == 1 for racks_ in found.values())
    assert sorted(racks_[0] for racks_ in found.values()) == ["r0", "r1", "r2"]


def test_what_pods_say_holds_where_an_object_says_of_sub_groups_only_how_many() -> None:
    w = racks(world(), (2, 1), (2, 2))
    group = w.group("g", 1, **tree(SubGroup("a", 2), SubGroup("b", 2), least=2))
    wish = PodWish(TopologyWish(required="rack"))
    for role in ("a", "b"):
        members(w, group, role, 2, wish=wish)
    w.session()
    assert {rack_of(node) for node in w.placed.values()} == {"r1"}


@pytest.mark.parametrize("parted", [False, True])
@pytest.mark.parametrize(
    ("runs", "waiting", "free", "comes"),
    [
        (1, (2, 1), 1, {"g-2"}),  # the first has no room
        (1, (2, 1, 1), 2, {"g-2", "g-3"}),  # it has, but then the others have none
        (1, (1, 2, 1), 2, {"g-1", "g-3"}),
        (1, (1, 1, 2), 2, {"g-1", "g-2"}),
    ],
)
def test_a_minimum_is_made_whole_again_by_whichever_members_have_room(
    runs: int, waiting: tuple[int, ...], free: int, comes: set[str], parted: bool
) -> None:
    """waiting: GPUs of each, one more than the minimum lacks."""
    least = runs + len(waiting) - 1
    w = World(check=True).node("n", gpu=runs + free)
    parts = (SubGroup("a", least),) if parted else ()
    group = w.group("g", least, subgroups=parts, was_running=True)
    of = {"group": group.key, "role": "a" if parted else ""}
    for number in range(runs):
        w.running(f"g-{number}", "n", shape(gpu=1), index=number, **of)
    for number, gpus in enumerate(waiting, runs):
        w.pod(f"g-{number}", shape(gpu=gpus), index=number, **of)
    w.session()
    assert set(w.placed) == comes
