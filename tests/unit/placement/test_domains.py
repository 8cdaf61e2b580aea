"""Which domains pods are given where there is a choice."""

from __future__ import annotations

import numpy as np

from scheduler.placement import (
    AtMostDomains,
    Balanced,
    Demand,
    NodeView,
    Part,
    Parts,
    PlacementProblem,
    Segments,
    Within,
    place,
)


def racks(free, size=3):
    return NodeView(
        names=[f"n{number}" for number in range(len(free))],
        resources=("gpu",),
        free=np.array([free], dtype=np.int64),
        slots=np.full(len(free), 10, dtype=np.int64),
        domains={
            "rack": (np.arange(len(free)) // size).astype(np.int32),
            "block": (np.arange(len(free)) // (2 * size)).astype(np.int32),
        },
    )


def pods(name, count, gpus=1, minimum=None):
    return Demand(name, np.array([gpus], dtype=np.int64), count, count if minimum is None else minimum)


def per_rack(answer, size=3):
    held: dict[int, int] = {}
    for row in answer.counts:
        for node, count in row:
            held[node // size] = held.get(node // size, 0) + count
    return held


THREE = racks([4, 4, 4, 4, 2, 4, 1, 0, 2])


def test_balanced_pods_are_even_over_as_few_racks_as_hold_them():
    packed = place(PlacementProblem(THREE, (pods("w", 16),), (Within("rack", False),)))
    assert per_rack(packed) == {0: 12, 1: 4}
    balanced = place(PlacementProblem(THREE, (pods("w", 16),), (Balanced("rack"),)))
    assert per_rack(balanced) == {0: 8, 1: 8}


def test_the_fullest_rack_that_holds_all_is_taken():
    answer = place(PlacementProblem(THREE, (pods("w", 3),), (Within("rack"),)))
    assert per_rack(answer) == {2: 3}


def test_few_racks_are_the_roomiest_and_the_last_is_the_smallest_that_takes_the_rest():
    answer = place(PlacementProblem(THREE, (pods("w", 15),), (AtMostDomains("rack", 2),)))
    assert per_rack(answer) == {0: 12, 2: 3}


def test_a_rack_where_members_are_counts_as_one_of_the_few():
    answer = place(PlacementProblem(THREE, (pods("w", 12),), (AtMostDomains("rack", 2, present=(2,)),)))
    assert per_rack(answer) == {1: 9, 2: 3}


def test_multiples_are_nested():
    view = racks([3, 3, 2, 2, 3, 3])
    answer = place(
        PlacementProblem(view, (pods("w", 12),), (Segments("block", 6), Segments("", 2), Segments("rack", 2)))
    )
    assert answer.method == "counting"
    assert sum(per_rack(answer).values()) == 12
    assert all(count % 2 == 0 for row in answer.counts for _, count in row)


def test_subgroups_share_a_rack_when_it_holds_them_and_empty_racks_stay_whole():
    view = racks([2, 2, 2, 4, 4, 4, 4, 4, 4])
    groups = tuple(pods(f"g{number}", 3) for number in range(2))
    rules = tuple(Within("rack", True, (number,)) for number in range(2))
    assert per_rack(place(PlacementProblem(view, groups, rules))) == {0: 6}


def test_the_subgroups_that_fit_are_the_k_of_n():
    view = racks([1, 1, 1, 4, 4, 4])
    groups = tuple(pods(f"g{number}", count, minimum=0) for number, count in enumerate((20, 3, 8, 12)))
    rules = tuple(Within("rack", True, (number,)) for number in range(4))
    parts = Parts(tuple(Part((number,), group.count) for number, group in enumerate(groups)), 2)
    answer = place(PlacementProblem(view, groups, (*rules, parts)))
    placed = [answer.placed(number) for number in range(4)]
    assert placed[0] == 0
    assert sum(count > 0 for count in placed) == 2
    assert all(count in (0, group.count) for count, group in zip(placed, groups, strict=True))


def test_a_subgroup_that_prefers_a_rack_loses_it_alone():
    view = racks([4, 4, 4, 1, 1, 1])
    groups = (pods("large", 13), pods("small", 2))
    rules = (Within("rack", False, (0,)), Within("rack", False, (1,)))
    assert place(PlacementProblem(view, groups, rules)).kept == (1,)
