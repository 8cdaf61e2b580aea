"""A sub-group that a running gang does not need goes as a whole for others, never part of it, never what is needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from scheduler.model.groups import SubGroup
from tests.unit.actions.test_making_room import Story
from tests.unit.framework.world import shape


@pytest.fixture
def w() -> Story:
    return Story(check=True)


def runs(w: Story, nodes: Mapping[str, Sequence[str]], least: int | None, *, minimum: int = 1, each: int = 2) -> None:
    """A gang with a member on each of these nodes, by sub-group; `each` of them have to run together."""
    group = w.group(
        "low", minimum, subgroups=tuple(SubGroup(part, each) for part in nodes), min_subgroups=least, queue="default"
    )
    for part, where in nodes.items():
        for number, node in enumerate(where):
            w.pod(
                f"{part}-{number}", shape(gpu=1), group=group.key, role=part, index=number, node=node, phase="Running",
                started=True, since=10.0, priority=50,
            )  # fmt: skip


def racks(w: Story, count: int, size: int = 2) -> None:
    for number in range(count):
        for place in range(size):
            w.node(f"r{number}-{place}", gpu=1, labels={"rack": f"r{number}"})


def test_one_that_is_not_needed_goes_whole_and_the_gang_lives(w: Story) -> None:
    racks(w, 2)
    runs(w, {"a": ["r0-0", "r0-1"], "b": ["r1-0", "r1-1"]}, 1)
    w.asks("high", 1, priority=100)
    w.expect(["b-0", "b-1"], ["high"])


def test_the_one_goes_that_makes_room_where_it_is_wanted(w: Story) -> None:
    racks(w, 3)
    runs(w, {"a": ["r0-0", "r0-1"], "b": ["r1-0", "r1-1"], "c": ["r2-0", "r2-1"]}, 2)
    w.node("r0-9", gpu=1, labels={"rack": "r0"})
    w.asks("high", 3, priority=100, topology="rack")
    w.expect(["a-0", "a-1"], ["high"])


def test_where_all_are_needed_the_gang_goes_whole(w: Story) -> None:
    racks(w, 2)
    runs(w, {"a": ["r0-0", "r0-1"], "b": ["r1-0", "r1-1"]}, None)
    w.asks("high", 1, priority=100)
    w.expect(["a-0", "a-1", "b-0", "b-1"], ["high"])


def test_members_above_the_minimum_go_before_the_whole_of_a_part(w: Story) -> None:
    racks(w, 2)
    runs(w, {"a": ["r0-0", "r0-1"], "b": ["r1-0", "r1-1"]}, 1, each=1)
    w.asks("high", 1, priority=100)
    w.session(later=1)
    assert len(w.victims) == 1


def test_the_minimum_of_the_gang_holds_too(w: Story) -> None:
    racks(w, 2)
    runs(w, {"a": ["r0-0", "r0-1"], "b": ["r1-0", "r1-1"]}, 1, minimum=3)
    w.asks("high", 1, priority=100)
    w.expect(["a-0", "a-1", "b-0", "b-1"], ["high"])


def test_where_one_does_not_suffice_the_gang_goes_whole(w: Story) -> None:
    racks(w, 2)
    runs(w, {"a": ["r0-0", "r0-1"], "b": ["r1-0", "r1-1"]}, 1)
    w.asks("high", 3, priority=100)
    w.expect(["a-0", "a-1", "b-0", "b-1"], ["high"])


def test_an_inner_one_goes_for_a_queue_that_takes_back(w: Story) -> None:
    racks(w, 2)
    gpus = (("example.com/gpu", 2),)
    w.queue("default", deserved=gpus)
    w.queue("other", deserved=gpus)
    group = w.group(
        "low", 1, queue="default",
        subgroups=(SubGroup("s", min_subgroups=1), SubGroup("s/a", 2), SubGroup("s/b", 2)),
    )  # fmt: skip
    for part, rack in (("a", "r0"), ("b", "r1")):
        for number in range(2):
            w.pod(
                f"{part}-{number}", shape(gpu=1), group=group.key, role=part, index=number, node=f"{rack}-{number}",
                phase="Running", started=True, since=10.0,
            )  # fmt: skip
    w.asks("mine", 2, queue="other", topology="rack")
    w.expect(["b-0", "b-1"], ["mine"])


def test_what_is_left_of_one_that_is_not_whole_goes_first_and_no_more_of_it_than_it_takes(w: Story) -> None:
    racks(w, 2, 3)
    runs(w, {"a": ["r0-0", "r0-1", "r0-2"], "b": ["r1-0", "r1-1", "r1-2"]}, 1, each=3)
    w.session()
    w.drop_pod("b-0")
    w.drop_node("r1-0")
    w.asks("high", 1, priority=100)
    w.session(later=1)
    assert w.victims in (["b-1"], ["b-2"])


def test_as_many_go_as_it_takes_while_enough_of_them_stay(w: Story) -> None:
    racks(w, 3)
    runs(w, {"a": ["r0-0", "r0-1"], "b": ["r1-0", "r1-1"], "c": ["r2-0", "r2-1"]}, 1)
    w.asks("high", 4, priority=100)
    w.session(later=1)
    assert len(w.victims) == 4
    assert len({name[0] for name in w.victims}) == 2


def test_no_gang_is_broken_where_a_spare_part_of_each_of_two_suffices(w: Story) -> None:
    racks(w, 4)
    for name, first in (("one", 0), ("two", 2)):
        parts = (SubGroup("a", 2), SubGroup("b", 2))
        group = w.group(name, 1, subgroups=parts, min_subgroups=1, queue="default")
        for place, part in enumerate("ab"):
            for number in range(2):
                w.pod(
                    f"{name}-{part}-{number}", shape(gpu=1), group=group.key, role=part, index=number,
                    node=f"r{first + place}-{number}", phase="Running", started=True, since=10.0, priority=50,
                )  # fmt: skip
    w.asks("high", 4, priority=100)
    w.session(later=1)
    assert len(w.victims) == 4
    assert sorted({name.rpartition("-")[0] for name in w.victims})[0].startswith("one")
    assert len({name.rpartition("-")[0] for name in w.victims}) == 2
    assert len({name.partition("-")[0] for name in w.victims}) == 2
