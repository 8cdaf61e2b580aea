"""Space that a pod of another scheduler is nominated for is there for groups of a higher priority only."""

from __future__ import annotations

import pytest

from scheduler.actions.run import Sessions
from scheduler.model.pods import Pod
from tests.unit.framework.world import World, shape


def world() -> World:
    made = World().node("n1", gpu=4)
    made.sessions = Sessions(made.config, made.registry, check=True)
    made.priority("high", 100).priority("mid", 50).priority("low", 10)
    return made


def nominated(w: World, name: str, gpu: int, priority: int, node: str = "n1") -> Pod:
    return w.pod(name, shape(gpu=gpu), ours=False, nominated=node, priority=priority)


@pytest.mark.parametrize(("name", "placed"), [("high", 3), ("mid", 0), ("low", 0)])
def test_only_a_higher_priority_takes_the_space(name: str, placed: int) -> None:
    w = world()
    nominated(w, "theirs", 3, 50)
    w.gang("g", 3, priority_class=name)
    result = w.session()
    assert len(w.placed_of("g")) == placed
    if not placed:
        facts = dict(result.verdicts["muster/ns/g"].facts)
        assert (facts["free"], facts["short"]) == (1, 2)


def test_what_is_told_to_a_higher_group_counts_the_space_as_free() -> None:
    w = world()
    nominated(w, "theirs", 3, 50)
    nominated(w, "above", 1, 200)
    w.gang("g", 4, priority_class="high")
    facts = dict(w.session().verdicts["muster/ns/g"].facts)
    assert (facts["free"], facts["short"]) == (3, 1)


def test_what_a_higher_group_took_is_gone_for_all_others_in_the_same_session() -> None:
    w = world()
    nominated(w, "theirs", 3, 50)
    w.gang("first", 2, priority_class="high")
    w.gang("second", 2, priority_class="high")
    w.gang("third", 1, priority_class="low")
    w.session()
    assert len(w.placed_of("first")) == 2 and len(w.placed_of("second")) == 2
    assert w.placed_of("third") == []
    w.carry_out()
    w.session(later=1.0)
    assert w.placed == {}


def test_pod_slots_are_left_to_it_too() -> None:
    w = world()
    w.node("n1", gpu=4, slots=1)
    nominated(w, "theirs", 0, 50)
    w.pod("low", shape(gpu=1), priority=10)
    w.session()
    assert w.placed == {}
    w.pod("high", shape(gpu=1), priority=100)
    w.session(later=1.0)
    assert w.placed == {"high": "n1"}


def test_a_nomination_of_lower_priority_in_place_of_another_is_a_reason_to_search() -> None:
    w = world()
    nominated(w, "theirs", 3, 200)
    w.gang("g", 3, priority_class="high")
    w.session()
    assert w.placed_of("g") == []
    w.drop_pod("theirs")
    nominated(w, "others", 3, 50)
    w.session(later=1.0)
    assert len(w.placed_of("g")) == 3


def test_a_nomination_to_a_node_that_does_not_exist_holds_nothing() -> None:
    w = world()
    nominated(w, "theirs", 3, 50, node="gone")
    w.gang("g", 4, priority_class="low")
    w.session()
    assert len(w.placed_of("g")) == 4
