"""Topology objects of every kind become one tree of domains each; what is wrong is named and confined."""

from __future__ import annotations

import pytest

from scheduler.framework.domains import DomainCache
from scheduler.framework.topology_tree import Domains, LevelFault
from scheduler.model.affinity import LabelSelector, Requirement
from scheduler.model.nodes import HOSTNAME
from scheduler.model.pods import Problem
from scheduler.model.topology import HyperNodeMember, Level, level_key, split_key
from tests.unit.framework.world import World

BLOCK, RACK = "t.example/block", "t.example/rack"
FABRIC = (("block", BLOCK), ("rack", RACK), ("host", HOSTNAME))


def fabric() -> World:
    """b1 {r1: n0 n1, r2: n2}, b2 {r1: n3}, and n4 without a rack, n5 without a block, n6 without anything."""
    world = World()
    places = [("b1", "r1"), ("b1", "r1"), ("b1", "r2"), ("b2", "r1"), ("b2", None), (None, "r1"), (None, None)]
    for number, (block, rack) in enumerate(places):
        labels = {key: value for key, value in ((BLOCK, block), (RACK, rack)) if value is not None}
        world.node(f"n{number}", labels=labels)
    return world.topology("fabric", *FABRIC)


def domains(world: World, cache: DomainCache | None = None) -> Domains:
    return (cache or DomainCache()).of(world.take())


def seen(found: Domains, key: str) -> list[str | None]:
    """The name of each node's domain."""
    level = found.level(key)
    assert level is not None
    return [None if one < 0 else level.names[one] for one in level.ids.tolist()]


def reasons(found: Domains, uid: str) -> list[tuple[str, str]]:
    return [(fault.reason, fault.field) for fault in found.faults.get(uid, ())]


def named(name: str) -> HyperNodeMember:
    return HyperNodeMember("HyperNode", exact=name)


# -- labels ---------------------------------------------------------------------------------------------------------


def test_a_level_key_is_never_a_label_key() -> None:
    assert split_key(level_key("fabric.example", "t.example/rack")) == ("fabric.example", "t.example/rack")
    assert split_key("t.example/rack") == ("", "t.example/rack")


def test_a_domain_is_a_path_and_a_node_without_a_label_is_in_none() -> None:
    found = domains(fabric())
    assert seen(found, "fabric:block") == ["b1", "b1", "b1", "b2", "b2", None, None]
    assert seen(found, "fabric:rack") == ["b1/r1", "b1/r1", "r2", "b2/r1", None, None, None]
    assert seen(found, "fabric:host") == ["n0", "n1", "n2", "n3", None, None, None]
    rack, host = found.level("fabric:rack"), found.level("fabric:host")
    assert rack is not None
    assert rack.parents.tolist() == [0, 0, 1]
    assert host is not None
    assert host.parents.tolist() == [0, 0, 1, 2]
    assert found.wider("fabric:host") == ("fabric:rack", "fabric:block")
    assert found.wider(RACK) == ()
    facts = found.facts["uid-muster-fabric"].facts
    assert facts.domains == (("block", 2), ("rack", 3), ("host", 4))
    assert facts.unlabelled == 3
    assert facts.faults == ()


def test_an_empty_value_is_no_domain() -> None:
    world = World().node("a", labels={RACK: ""}).node("b", labels={RACK: "r"}).topology("t", ("rack", RACK))
    assert seen(domains(world), "t:rack") == [None, "r"]


def test_a_level_that_no_node_carries_is_named_and_costs_nothing_else() -> None:
    world = fabric().topology("odd", ("region", "t.example/region"), ("rack", RACK))
    found = domains(world)
    assert reasons(found, "uid-muster-odd") == [("LevelNotFound", "spec.levels[0].label")]
    assert seen(found, "odd:rack") == ["r1", "r1", "r2", "r1", None, "r1", None]
    refused = found.resolve("odd", "region")
    assert isinstance(refused, LevelFault)
    assert refused.message == 'no node has the label t.example/region of level "region" of topology "odd"'


def test_nothing_is_wrong_with_a_topology_of_no_nodes() -> None:
    found = domains(World().topology("fabric", *FABRIC))
    assert found.faults == {}
    assert found.facts["uid-muster-fabric"].facts.unlabelled == 0


def test_levels_of_a_prefix_are_those_that_nodes_have() -> None:
    world = World()
    world.node("a", labels={"f/tier-0": "x", "f/tier-1": "s", "f/tier-2": "c", "f/tier-x": "no", "f/tier-01": "no"})
    world.node("b", labels={"f/tier-0": "y", "f/tier-1": "s", "f/tier-2": "c"})
    levels = (Level("tier", prefix="f/tier-"), Level("host", HOSTNAME))
    world.topology("t", levels=levels).topology("r", levels=(Level("tier", prefix="f/tier-", rising=True),))
    found = domains(world)
    assert [level.name for level in found.trees["t"].levels] == ["tier-2", "tier-1", "tier-0", "host"]
    assert [level.name for level in found.trees["r"].levels] == ["tier-0", "tier-1", "tier-2"]
    assert seen(found, "t:tier-1") == ["s", "s"]
    assert seen(found, "r:tier-1") == ["x/s", "y/s"]
    world.node("c", labels={"f/tier-3": "top"})
    assert domains(world).trees["t"].levels[0].name == "tier-3"


def test_a_prefix_without_any_label_is_a_level_that_no_node_carries() -> None:
    world = World().node("a").topology("t", levels=(Level("tier", prefix="f/tier-"),))
    found = domains(world)
    assert reasons(found, "uid-muster-t") == [("LevelNotFound", "spec.levels[0].labelPrefix")]
    assert found.facts["uid-muster-t"].facts.unlabelled == 1


def test_a_label_that_two_levels_have_counts_once() -> None:
    levels = (Level("x", "f/tier-1"), Level("tier", prefix="f/tier-"))
    world = World().node("a", labels={"f/tier-1": "s", "f/tier-0": "t"}).topology("t", levels=levels)
    found = domains(world)
    assert [level.name for level in found.trees["t"].levels] == ["x", "tier-0"]
    assert reasons(found, "uid-muster-t") == [("BadField", "spec.levels[1].labelPrefix")]


def test_the_first_of_several_topologies_of_a_name_holds() -> None:
    world = fabric().topology("fabric", ("row", RACK), dialect="kai")
    found = domains(world)
    assert [level.name for level in found.trees["fabric"].levels] == ["block", "rack", "host"]
    assert reasons(found, "uid-kai-fabric") == [("Shadowed", "metadata.name")]


def test_problems_of_the_object_are_told() -> None:
    world = fabric().topology("odd", ("rack", RACK), problems=(Problem("spec.levels[1]", "is odd"),))
    assert reasons(domains(world), "uid-muster-odd") == [("BadField", "spec.levels[1]")]


# -- asking for a level ---------------------------------------------------------------------------------------------


def test_a_level_is_found_by_name_and_by_label() -> None:
    found = domains(fabric())
    for topology, level in (("fabric", "rack"), ("fabric", RACK), ("", "rack"), ("", RACK)):
        assert found.resolve(topology, level) == "fabric:rack"
    assert found.resolve("", HOSTNAME) == HOSTNAME
    assert found.resolve("fabric", HOSTNAME) == "fabric:host"


def test_a_label_that_no_topology_has_is_a_level_by_itself() -> None:
    world = fabric().node("n9", labels={"zone": "a"})
    assert domains(world).resolve("", "zone") == "zone"


@pytest.mark.parametrize(
    ("topology", "level", "message"),
    [
        ("fabrik", "rack", 'there is no topology "fabrik"; did you mean "fabric"?'),
        ("fabric", "rak", 'topology "fabric" has no level "rak"; did you mean "rack"?'),
        ("", "rak", 'no node has the label rak; did you mean "rack"?'),
        ("", "nothing-like-it", "no node has the label nothing-like-it"),
        ("volcano", "tier 1", "there is no HyperNode, and no topology of that name"),
    ],
)
def test_what_is_not_there_is_said_with_what_is_near(topology: str, level: str, message: str) -> None:
    found = domains(fabric()).resolve(topology, level)
    assert isinstance(found, LevelFault)
    assert found.message == message
    assert found.topology == (topology in ("fabrik", "volcano"))


def test_a_name_that_two_topologies_use_must_be_told_apart() -> None:
    world = World().node("a", labels={BLOCK: "b", RACK: "r"})
    world.topology("one", ("rack", RACK), dialect="kai").topology("two", ("rack", BLOCK), dialect="kai")
    found = domains(world).resolve("", "rack")
    assert isinstance(found, LevelFault)
    assert found.message == 'level "rack" is in several topologies, name one of them: one, two'
    world.topology("own", ("rack", RACK))
    assert domains(world).resolve("", "rack") == "own:rack"


def test_a_label_that_two_topologies_use_is_meant_as_such() -> None:
    world = World().node("a", labels={RACK: "r"})
    world.topology("one", (RACK, RACK), dialect="kai").topology("two", (RACK, RACK), dialect="kueue")
    assert domains(world).resolve("", RACK) == RACK


# -- hyper-nodes ----------------------------------------------------------------------------------------------------


def wired() -> World:
    """s0 {n0 n1} s1 {n2 n3} in s4, s2 {n4 n5} s3 {n6 n7} in s5, both in s6; n8 in none."""
    world = World().nodes(9)
    for number in range(4):
        world.hypernode(f"s{number}", 1, f"n{2 * number:03}", f"n{2 * number + 1:03}")
    world.hypernode("s4", 2, named("s0"), named("s1")).hypernode("s5", 2, named("s2"), named("s3"))
    return world.hypernode("s6", 3, named("s4"), named("s5"), tier_name="core")


def test_hyper_nodes_are_one_topology_whose_levels_are_tiers() -> None:
    found = domains(wired())
    tree = found.trees["volcano"]
    assert [level.name for level in tree.levels] == ["tier 4", "tier 3", "tier 2", "tier 1"]
    assert seen(found, "volcano:tier 4") == ["all nodes"] * 9
    assert seen(found, "volcano:tier 2") == ["s4"] * 4 + ["s5"] * 4 + [None]
    assert seen(found, "volcano:tier 1") == ["s0", "s0", "s1", "s1", "s2", "s2", "s3", "s3", None]
    assert tree.levels[3].parents.tolist() == [0, 0, 1, 1]
    assert {said.name: said.facts.nodes for said in found.facts.values()} == {
        **{f"s{number}": 2 for number in range(4)},
        "s4": 4,
        "s5": 4,
        "s6": 8,
    }
    assert found.faults == {}
    for level, key in (("core", "tier 3"), ("tier 9", "tier 4"), ("tier 1", "tier 1")):
        assert found.resolve("volcano", level) == f"volcano:{key}"
    refused = found.resolve("volcano", "tier 0")
    assert isinstance(refused, LevelFault)
    assert "tier 0 or a lower one" in refused.message


def test_a_tier_that_is_skipped_is_that_of_the_widest_hyper_node_below() -> None:
    world = World().nodes(4).hypernode("a", 1, "n000", "n001").hypernode("top", 3, named("a"), "n002")
    found = domains(world)
    assert found.resolve("volcano", "tier 2") == "volcano:tier 1"
    assert seen(found, "volcano:tier 1") == ["a", "a", None, None]
    assert seen(found, "volcano:tier 3") == ["top", "top", "top", None]


def test_members_are_found_by_pattern_and_by_label() -> None:
    world = World().node("gpu-1", labels={"rack": "r1"}).node("gpu-2", labels={"rack": "r2"}).node("cpu-1")
    world.hypernode("p", 1, HyperNodeMember("Node", pattern="^cpu-"))
    labels = LabelSelector((Requirement("rack", "In", ("r1", "r2")),))
    world.hypernode("l", 1, HyperNodeMember("Node", labels=labels))
    world.hypernode("top", 2, HyperNodeMember("HyperNode", pattern="^[pl]$"))
    found = domains(world)
    assert seen(found, "volcano:tier 1") == ["p", "l", "l"]
    assert seen(found, "volcano:tier 2") == ["top"] * 3


def test_a_circle_is_named_on_both_and_the_rest_stands() -> None:
    world = wired().hypernode("x", 4, named("y")).hypernode("y", 5, named("x")).hypernode("z", 1, "n008")
    found = domains(world)
    for uid in ("uid-hn-x", "uid-hn-y"):
        assert [(fault.reason, fault.field) for fault in found.faults[uid]] == [("Cycle", "spec.members[0]")]
        assert "x, y" in found.faults[uid][0].message
    assert set(found.faults) == {"uid-hn-x", "uid-hn-y"}
    assert seen(found, "volcano:tier 1")[7:] == ["s3", "z"]


def test_a_hyper_node_with_two_parents_keeps_what_is_below_it() -> None:
    world = wired().hypernode("s5", 2, named("s2"), named("s3"), named("s1"))
    found = domains(world)
    assert {uid for uid, _ in found.faults.items()} == {"uid-hn-s1", "uid-hn-s4", "uid-hn-s5"}
    assert {fault.reason for faults in found.faults.values() for fault in faults} == {"TwoParents"}
    assert seen(found, "volcano:tier 1")[2:4] == ["s1", "s1"]
    assert seen(found, "volcano:tier 2") == ["s4", "s4", "s1", "s1", "s5", "s5", "s5", "s5", None]
    assert seen(found, "volcano:tier 3")[2:4] == ["s1", "s1"]


def test_a_node_in_two_domains_of_a_tier_is_in_neither() -> None:
    found = domains(wired().hypernode("s1", 1, "n001", "n002", "n003"))
    assert seen(found, "volcano:tier 1") == ["s0", None, "s1", "s1", "s2", "s2", "s3", "s3", None]
    assert reasons(found, "uid-hn-s0") == reasons(found, "uid-hn-s1") == [("Overlap", "spec.members")]
    assert found.faults["uid-hn-s0"][0].message == "node n001 is in s1 too, and count for none of them"


def test_being_in_a_hyper_node_around_the_own_one_says_nothing_new() -> None:
    found = domains(wired().hypernode("s6", 3, named("s4"), named("s5"), named("s0"), "n003"))
    assert found.faults == {}
    assert seen(found, "volcano:tier 1")[3] == "s1"


def test_a_member_that_is_not_lower_does_not_count() -> None:
    found = domains(World().nodes(2).hypernode("a", 2, "n000").hypernode("b", 2, named("a"), "n001"))
    assert reasons(found, "uid-hn-b") == [("TierOrder", "spec.members[0]")]
    assert seen(found, "volcano:tier 2") == ["a", "b"]


def test_a_pattern_that_does_not_compile_leaves_the_other_members() -> None:
    odd = HyperNodeMember("Node", pattern="(")
    found = domains(World().nodes(2).hypernode("a", 1, "n000", odd).hypernode("b", 1, "n001"))
    assert reasons(found, "uid-hn-a") == [("BadField", "spec.members[1].selector.regexMatch.pattern")]
    assert seen(found, "volcano:tier 1") == ["a", "b"]


def test_a_missing_member_is_named() -> None:
    found = domains(World().nodes(1).hypernode("a", 1, "n000", "nowhere").hypernode("b", 2, named("a"), named("c")))
    assert reasons(found, "uid-hn-a") == [("MemberNotFound", "spec.members[1].selector.exactMatch.name")]
    assert reasons(found, "uid-hn-b") == [("MemberNotFound", "spec.members[1].selector.exactMatch.name")]
    assert seen(found, "volcano:tier 2") == ["b"]


def test_a_name_of_two_tiers_stands_for_none() -> None:
    world = World().nodes(2).hypernode("a", 1, "n000", tier_name="x").hypernode("b", 2, "n001", tier_name="x")
    found = domains(world)
    assert isinstance(found.resolve("volcano", "x"), LevelFault)
    assert reasons(found, "uid-hn-a") == reasons(found, "uid-hn-b") == [("TierNameClash", "spec.tierName")]


def test_a_hyper_node_without_a_usable_tier_is_left_out() -> None:
    world = World().nodes(2).hypernode("a", 0, "n000", problems=(Problem("spec.tier", "must be there"),))
    found = domains(world.hypernode("b", 2, "n001", named("a")))
    assert reasons(found, "uid-hn-a") == [("BadField", "spec.tier")]
    assert reasons(found, "uid-hn-b") == [("MemberNotFound", "spec.members[1].selector.exactMatch.name")]
    assert seen(found, "volcano:tier 2") == [None, "b"]


def test_a_topology_named_as_the_hyper_nodes_are_wins() -> None:
    found = domains(wired().topology("volcano", ("tier 1", HOSTNAME)))
    assert [level.name for level in found.trees["volcano"].levels] == ["tier 1"]


# -- over sessions --------------------------------------------------------------------------------------------------


def test_nothing_is_built_twice_and_every_change_is_seen() -> None:
    cache, world = DomainCache(), wired().topology("fabric", ("rack", RACK))
    first = domains(world, cache)
    assert domains(world, cache) is first
    world.pod("p")
    assert domains(world, cache) is first
    world.node("n000", labels={RACK: "r1"})
    changed = domains(world, cache)
    assert seen(changed, "fabric:rack")[:2] == ["r1", None]
    world.hypernode("s0", 1, "n000", "n008")
    assert seen(domains(world, cache), "volcano:tier 1") == [*("s0", None, "s1", "s1"), *("s2", "s2", "s3", "s3"), "s0"]
    world.topology("fabric", ("row", RACK))
    assert [level.name for level in domains(world, cache).trees["fabric"].levels] == ["row"]
    again = domains(world, DomainCache())
    kept = domains(world, cache)
    assert again.faults == kept.faults
    assert again.facts == kept.facts
