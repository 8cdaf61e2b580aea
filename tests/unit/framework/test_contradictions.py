"""Rules about domains that contradict each other are told as that, and only then."""

from __future__ import annotations

import pytest

from scheduler.model.groups import SubGroup
from scheduler.model.verdict import Code
from scheduler.model.wishes import TopologyWish
from scheduler.observe.explain import sentence
from tests.unit.framework.world import World, shape, with_plugins


def said(
    topology: TopologyWish | None, least: int, *parts: SubGroup, needed: int | None = None, later: bool = False
) -> str:
    """What is said of a gang in four racks of two blocks, with 8 GPUs each; "" when it is placed. later: what is said
    of the rest of it, once its minimum is placed, does not count."""
    w = World(config=with_plugins(["gang", "predicates", "topology"]))
    w.topology("fabric", ("block", "block"), ("rack", "rack"), ("host", "kubernetes.io/hostname"))
    for number in range(4):
        labels = {"block": f"b{number // 2}", "rack": f"r{number}"}
        for at in range(2):
            w.node(f"n{number}-{at}", gpu=4, labels=labels | {"kubernetes.io/hostname": f"n{number}-{at}"})
    group = w.group("g", least, topology=topology, subgroups=parts, min_subgroups=needed)
    for part in (one.path for one in parts) if parts else ("",):
        for number in range(2 if parts else least):
            w.pod(f"{part}-{number}", shape(gpu=1), namespace="ns", group=group.key, role=part)
    w.session()
    found = w.verdict("g")
    if found is None or (later and w.placed):
        assert len(w.placed) >= least
        return ""
    assert found.code is Code.BAD_CONSTRAINTS, sentence(found)
    assert not w.placed
    return sentence(found).removeprefix("BadConstraints: ")


def fabric(**rules: object) -> TopologyWish:
    return TopologyWish(name="fabric", **rules)  # type: ignore[arg-type]


RACK, WIDE, HOST = (("rack", 1),), (("block", 1),), (("host", 1),)


@pytest.mark.parametrize(
    ("wish", "least", "says"),
    [
        (fabric(required="rack", apart=RACK), 1, ""),
        (fabric(required="rack", apart=RACK), 2, "at most 1 in each rack leaves room for 1 of 2, by required rack"),
        (fabric(required="rack", apart=(("rack", 2),)), 2, ""),
        (fabric(required="rack", apart=HOST), 2, ""),
        (fabric(required="rack", apart=WIDE), 2, "at most 1 in each block leaves room for 1 of 2, by required rack"),
        (fabric(preferred="rack", apart=RACK), 2, ""),
        (fabric(at_most=(("rack", 2),), apart=RACK), 2, ""),
        (
            fabric(at_most=(("rack", 2),), apart=RACK),
            3,
            "at most 1 in each rack leaves room for 2 of 3, by atMostDomains 2 of rack",
        ),
        (fabric(segments=((2, "rack"),), apart=(("rack", 2),)), 4, ""),
        (fabric(segments=((2, "rack"),), apart=RACK), 2, "at most 1 in each rack, but 2 in one rack, by segments"),
    ],
)
def test_members_that_have_to_be_apart(wish: TopologyWish, least: int, says: str) -> None:
    assert said(wish, least) == (f"spec.topology.apart[0]: {says}" if says else "")


def test_the_part_that_is_meant_is_named_by_its_field() -> None:
    field = "spec.subGroups[1].topology.required"
    b = SubGroup("b", 2, topology=TopologyWish(apart=(("rack", 1),), field=field))
    says = "spec.subGroups[1].topology.apart[0]: at most 1 in each rack leaves room for 1 of 2, by required rack"
    assert said(fabric(required="rack"), 4, SubGroup("a", 2), b) == says
    assert said(fabric(required="block"), 4, SubGroup("a", 2), b) == ""


def test_a_part_that_cannot_start_does_not_stop_those_that_can_instead() -> None:
    b = SubGroup("b", 2, topology=TopologyWish(required="rack", apart=(("rack", 1),)))
    assert said(None, 2, SubGroup("a", 2), b).endswith("leaves room for 1 of 2, by required rack")
    assert said(None, 2, SubGroup("a", 2), b, needed=1, later=True) == ""


@pytest.mark.parametrize(("needed", "bad"), [(None, True), (2, True), (1, False)])
def test_parts_that_have_to_be_apart_and_start_together(needed: int | None, bad: bool) -> None:
    parts = (SubGroup("a", 2), SubGroup("b", 2))
    says = (
        "spec.topology.apart[0]: 2 sub-groups start together, each in a rack of its own, which leaves room for 1, "
        "by required rack"
    )
    assert said(fabric(required="rack", apart=RACK), 2, *parts, needed=needed) == (says if bad else "")


def test_parts_that_need_nothing_are_not_in_the_way() -> None:
    assert said(fabric(required="rack", apart=RACK), 2, SubGroup("a", 2), SubGroup("b", 0)) == ""


def test_parts_that_are_exclusive_in_the_one_rack_of_their_group() -> None:
    own = [TopologyWish(exclusive="rack", field=f"spec.subGroups[{number}].topology.required") for number in range(2)]
    found = said(fabric(required="rack"), 4, SubGroup("a", 2, topology=own[0]), SubGroup("b", 2, topology=own[1]))
    assert found.startswith("spec.subGroups[0].topology.exclusive: 2 sub-groups start together")


@pytest.mark.parametrize("many", [4, 5])
def test_parts_of_which_some_may_be_in_one_domain(many: int) -> None:
    parts = [SubGroup(f"p{number}", 1) for number in range(many)]
    says = (
        "spec.topology.apart[0]: 5 sub-groups start together, at most 2 in each rack, which leaves room for 4, "
        "by required block"
    )
    found = said(fabric(at_most=(("rack", 2),), apart=(("rack", 2),)), many, *parts)
    assert found == (says.replace("required block", "atMostDomains 2 of rack") if many == 5 else "")
