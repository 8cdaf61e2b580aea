"""What would have to change for a gang to fit."""

from __future__ import annotations

from scheduler.placement import Apart, AtMost, Minimum, Within, explain, place
from tests.unit.placement.cases import nodes, pods, problem


def explained(asked):
    """Refuse, then explain."""
    return explain(asked, place(asked))


def test_a_resource_that_is_short_is_the_only_relaxation():
    told = explained(problem(nodes((2, 100), (1, 100)), [pods("w", 4, gpu=1, cpu=1)]))
    assert told.relaxations == (("gpu",),)
    assert (told.placeable, told.needed, told.complete) == (3, 4, True)


def test_a_rack_that_is_too_small_would_do_if_it_were_a_block():
    view = nodes((2, 9), (2, 9), (1, 9), rack=["a", "b", "c"], block=["x", "x", "y"])
    told = explained(problem(view, [pods("w", 4, gpu=1, cpu=1)], Within("rack")))
    assert told.relaxations == (("topology",), ("gpu",))
    assert told.wider == (("rack", "block"),)
    assert told.placeable == 2


def test_two_resources_that_are_both_short_are_named_together():
    told = explained(problem(nodes((2, 2)), [pods("w", 4, gpu=1, cpu=1)]))
    assert told.relaxations == (("gpu", "cpu"),)


def test_rules_limits_masks_and_slots_are_restrictions_too():
    two = nodes((9, 9), (9, 9))
    assert explained(problem(two, [pods("w", 3, gpu=1)], Apart("", 1))).relaxations == (("apart",),)
    assert explained(problem(two, [pods("w", 3, gpu=1, max_per_node=1)])).relaxations == (("apart",),)
    limited = problem(two, [pods("w", 3, gpu=1, at_least=0)], Minimum((0,), 3), AtMost(((0, 1),), 2))
    assert explained(limited).relaxations == (("limits",),)
    assert explained(problem(two, [pods("w", 12, gpu=1, on=[0], size=2)])).relaxations == (("masks",), ("gpu",))
    assert explained(problem(nodes((9, 9), slots=2), [pods("w", 3, gpu=1)])).relaxations == (("pods",),)


def test_how_many_of_several_roles_fit_together_is_counted():
    roles = [pods("wide", 2, gpu=5), pods("narrow", 3, gpu=2)]
    told = explained(problem(nodes((7, 100), (7, 100)), roles))
    assert (told.placeable, told.needed) == (4, 5)


def test_nothing_helps_a_gang_that_no_node_may_host():
    told = explained(problem(nodes((1, 1)), [pods("w", 9, gpu=1, cpu=1, memory=500), pods("x", 9, memory=500)]))
    assert all(len(chosen) <= 3 for chosen in told.relaxations)
    assert told.relaxations == (("gpu", "cpu", "memory"),)
