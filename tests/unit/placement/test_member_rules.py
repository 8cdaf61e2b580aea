"""Rules between the pods of one decision: the named examples, and what means nothing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from scheduler.model.rules import Cap, Follow, Once, Repel, Spread
from scheduler.placement import NODE, BadProblem, Infeasible, Minimum, Placement, explain, place, verify
from tests.unit.placement.cases import nodes, pods, problem, where

VIEW = nodes((2, 10), (2, 10), rack=["a", "b"])
ZONES = nodes(*[(9, 100)] * 4, zone=["a", "a", "b", "c"])


def amounts(*values) -> np.ndarray:
    """Numbers over domains."""
    return np.array(values, dtype=np.int64)


def flags(*values) -> np.ndarray:
    """Yes or no over nodes or domains."""
    return np.array(values, dtype=np.bool_)


def spread(present, level="zone", carriers=(0,), counted=(0,), **more) -> Spread:
    """A spread over all nodes of `ZONES`."""
    return Spread(level, carriers, counted, amounts(*present), flags(*[True] * 4), **{"max_skew": 1, **more})


def follow(followers, targets, *, level="zone", present=(0, 0, 0), first=False) -> Follow:
    """A rule of one level."""
    return Follow((level,), followers, targets, (flags(*present),), first)


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (Repel("pod", (0,), (0,)), r"rule 0 \(Repel\).level: no domains are given for 'pod'"),
        (Repel(NODE, (0,), (1,)), r"rule 0 \(Repel\): there is no demand 1"),
        (Follow((), (0,), (0,), ()), r"rule 0 \(Follow\).levels: none is given"),
        (Follow(("rack",), (0,), (0,), ()), r"rule 0 \(Follow\).present: 0 arrays for 1 levels"),
        (
            Follow(("rack",), (0,), (0,), (flags(True),)),
            r"rule 0 \(Follow\).present: shape \(1,\) does not cover the 2",
        ),
        (Follow(("rack",), (0,), (0,), (flags(1, 0),), first=True), r"rule 0 \(Follow\).first: nobody is the first"),
        (Follow(("rack",), (7,), (0,), (flags(0, 0),)), r"rule 0 \(Follow\): there is no demand 7"),
        (Spread("rack", (0,), (0,), amounts(1, -1), flags(1, 1), 1), r"rule 0 \(Spread\).present: negative"),
        (Spread("rack", (0,), (0,), amounts(1), flags(1, 1), 1), r"rule 0 \(Spread\).present: shape"),
        (Spread("rack", (0,), (0,), amounts(1, 1), flags(1), 1), r"rule 0 \(Spread\).nodes: shape"),
        (Spread("rack", (0,), (0,), amounts(1, 1), flags(1, 1), 0), r"rule 0 \(Spread\).max_skew: 0 is less than 1"),
        (Spread("rack", (0,), (0,), amounts(1, 1), flags(1, 1), 1, 0), r"rule 0 \(Spread\).min_domains: 0"),
        (Spread("rack", (0,), (4,), amounts(1, 1), flags(1, 1), 1), r"rule 0 \(Spread\): there is no demand 4"),
        (Cap("rack", ((0, -1),), amounts(1, 1)), r"rule 0 \(Cap\).weights: negative"),
        (Cap("rack", ((0, 1), (0, 1)), amounts(1, 1)), r"rule 0 \(Cap\).weights: a demand is named twice"),
        (Cap("rack", ((0, 1),), amounts(1, -1)), r"rule 0 \(Cap\).limits: negative"),
        (Cap(NODE, ((0, 1),), amounts(1)), r"rule 0 \(Cap\).limits: shape \(1,\) does not cover the 2"),
        (Once("tape", 1, (0,), flags(0, 0)), r"rule 0 \(Once\).resource: there is no resource 'tape'"),
        (Once("gpu", -1, (0,), flags(0, 0)), r"rule 0 \(Once\).amount: -1 is negative"),
        (Once("gpu", 1, (0,), flags(0)), r"rule 0 \(Once\).already: shape"),
    ],
)
def test_a_rule_that_means_nothing_is_refused_by_field(rule, message):
    with pytest.raises(BadProblem, match=message):
        place(problem(VIEW, [pods("w", 1)], rule))


@pytest.mark.parametrize(
    ("counts", "rules", "message"),
    [
        ((((0, 2),), ()), [Repel(NODE, (0,), (0,))], "repelled in domain 0"),
        ((((0, 1),), ((1, 1),)), [Repel("zone", (0,), (1,))], "repelled in domain 0"),
        ((((0, 1),), ((3, 1),)), [follow((0,), (1,))], "no order"),
        ((((0, 2),), ()), [spread((0, 0, 0))], "2 in domain 0, the least is 0"),
        ((((0, 2),), ()), [Cap("zone", ((0, 3),), amounts(5, 9, 9))], "weight 6 in domain 0 of 'zone', at most 5"),
        ((((0, 2),), ((0, 1),)), [Once("gpu", 8, (0, 1), flags(0, 0, 0, 0))], "n0: 10 gpu asked, 9 free"),
    ],
)
def test_verify_says_which_rule_is_broken(counts, rules, message):
    roles = [pods("a", 2, gpu=1, at_least=0), pods("b", 2, at_least=0)]
    failures = verify(problem(ZONES, roles, *rules, maximize=True), Placement(counts, "greedy"))
    assert [failure for failure in failures if message in failure], failures


# -- anti-affinity ----------------------------------------------------------------------------------------------------


def test_four_members_that_repel_each_other_do_not_fit_on_three_nodes():
    view = nodes(*[(8, 100)] * 3)
    answer = place(problem(view, [pods("w", 4, gpu=1)], Repel(NODE, (0,), (0,))))
    assert isinstance(answer, Infeasible)
    assert (answer.proven, answer.lacks.placeable) == (True, 3)
    assert len(where(place(problem(view, [pods("w", 3, gpu=1)], Repel(NODE, (0,), (0,)))))) == 3


def test_one_of_those_that_repel_each_other_in_a_zone():
    answer = place(problem(ZONES, [pods("w", 3)], Repel("zone", (0,), (0,))))
    assert sorted(max(node, 1) for node in where(answer)) == [1, 2, 3]
    assert isinstance(place(problem(ZONES, [pods("w", 4)], Repel("zone", (0,), (0,)))), Infeasible)


def test_a_carrier_and_its_target_share_no_zone_but_the_carriers_do():
    answer = place(problem(ZONES, [pods("a", 9, gpu=3), pods("b", 3, gpu=3)], Repel("zone", (0,), (1,))))
    zones = ([0, 0, 1, 2][node] for node in where(answer, 0)), ([0, 0, 1, 2][node] for node in where(answer, 1))
    assert not set(zones[0]) & set(zones[1])


def test_nodes_without_the_label_do_not_repel():
    view = nodes((8, 100), (8, 100), zone=["a", None])
    assert where(place(problem(view, [pods("w", 5)], Repel("zone", (0,), (0,)))))[1] >= 4


# -- spread -----------------------------------------------------------------------------------------------------------


def test_only_the_emptiest_zone_takes_the_next_pod():
    for scores in ([9, 9, 5, 0], None):
        one = pods("w", 1, scores=scores)
        assert where(place(problem(ZONES, [one], spread((2, 1, 0)), objective="scores"))) == {3: 1}


def test_too_few_domains_take_nothing_beyond_the_skew():
    view = nodes((9, 100), (9, 100), zone=["a", "b"])
    few = Spread("zone", (0,), (0,), amounts(1, 1), flags(1, 1), 1, min_domains=3)
    answer = place(problem(view, [pods("w", 1)], few))
    assert isinstance(answer, Infeasible)
    assert answer.proven
    assert where(place(problem(view, [pods("w", 2)], replace(few, present=amounts(0, 0))))) == {0: 1, 1: 1}


def test_a_gang_spreads_over_the_zones():
    answer = place(problem(ZONES, [pods("w", 7, gpu=1)], spread((0, 0, 0))))
    assert sorted([where(answer).get(0, 0) + where(answer).get(1, 0), *(where(answer)[n] for n in (2, 3))]) == [2, 2, 3]


def test_a_full_zone_holds_the_others_back():
    view = nodes((9, 100), (9, 100), (2, 100), zone=["a", "b", "c"])
    even = Spread("zone", (0,), (0,), amounts(0, 0, 0), flags(1, 1, 1), 2)
    many = pods("w", 20, gpu=1, at_least=0)
    answer = place(problem(view, [many], even, maximize=True))
    assert (answer.total, answer.optimal) == (10, True)
    assert where(answer) == {0: 4, 1: 4, 2: 2}
    refused = place(problem(view, [pods("w", 11, gpu=1)], even))
    assert (refused.proven, refused.lacks.placeable) == (True, 10)


def test_a_zone_that_may_not_take_them_does_not_count_unless_its_nodes_are_eligible():
    one = pods("w", 3, on=[0, 1, 2], size=4)
    assert isinstance(place(problem(ZONES, [one], spread((0, 0, 0)))), Infeasible)
    honest = replace(spread((0, 0, 0)), nodes=flags(1, 1, 1, 0))
    assert place(problem(ZONES, [one], honest)).total == 3


def test_a_pod_that_counts_for_another_role_may_be_needed_to_raise_the_least():
    roles = [pods("a", 6, at_least=6), pods("filler", 1, at_least=0, on=[3], size=4)]
    barred = replace(roles[0], mask=flags(1, 1, 1, 0))
    both = spread((0, 0, 0), counted=(0, 1), max_skew=2)
    answer = place(problem(ZONES, [barred, roles[1]], both))
    assert (answer.placed(0), answer.placed(1)) == (6, 1)
    assert isinstance(place(problem(ZONES, [replace(barred, count=7, minimum=7), roles[1]], both)), Infeasible)


# -- affinity ---------------------------------------------------------------------------------------------------------


def test_the_first_pod_chooses_the_zone_and_the_others_follow_it():
    answer = place(problem(ZONES, [pods("w", 12, gpu=1)], follow((0,), (0,), first=True)))
    assert set(where(answer)) == {0, 1}
    assert isinstance(place(problem(ZONES, [pods("w", 19, gpu=1)], follow((0,), (0,), first=True))), Infeasible)


def test_without_the_first_pod_rule_somebody_must_be_there():
    refused = place(problem(ZONES, [pods("w", 1)], follow((0,), (0,))))
    assert refused.proven
    assert set(where(place(problem(ZONES, [pods("w", 5)], follow((0,), (0,), present=(0, 1, 0)))))) == {2}


def test_nobody_starts_a_zone_of_its_own_beside_pods_that_are_there():
    view = nodes((2, 100), (9, 100), zone=["a", "b"])
    refused = place(problem(view, [pods("w", 3, gpu=1)], follow((0,), (0,), present=(1, 0))))
    assert (refused.proven, refused.lacks.placeable) == (True, 2)


def test_nodes_without_the_label_host_no_follower():
    view = nodes((8, 100), (8, 100), zone=[None, "a"])
    assert where(place(problem(view, [pods("w", 2)], follow((0,), (0,), present=(0,), first=True)))) == {1: 2}


def test_workers_follow_their_launcher():
    view = nodes((1, 100), (9, 100), (4, 100), zone=["a", "b", "c"])
    roles = [pods("worker", 4, gpu=2), pods("launcher", 1, cpu=50)]
    answer = place(problem(view, roles, follow((0,), (1,))))
    assert where(answer, 0) == {1: 4}
    assert where(answer, 1) == {1: 1}


def test_roles_that_follow_each_other_cannot_start_unless_one_may_be_the_first():
    roles = [pods("launcher", 1), pods("worker", 3)]
    circle = (follow((0,), (1,)), follow((1,), (0,)))
    refused = place(problem(ZONES, roles, *circle))
    assert isinstance(refused, Infeasible)
    assert refused.proven
    started = (follow((0,), (0, 1), first=True), follow((1,), (0,)))
    answer = place(problem(ZONES, roles, *started))
    zone = [0, 0, 1, 2]
    assert len({zone[node] for demand in (0, 1) for node in where(answer, demand)}) == 1


def test_one_pod_must_be_there_for_all_labels_of_a_rule():
    view = nodes(*[(9, 100)] * 3, zone=["a", "a", "b"], rack=["x", "y", "y"])
    both = Follow(("zone", "rack"), (0,), (0,), (flags(1, 0), flags(0, 1)))
    assert where(place(problem(view, [pods("w", 2)], both))) == {1: 2}


def test_a_role_that_is_not_needed_runs_because_others_follow_it():
    roles = [pods("launcher", 1, at_least=0), pods("worker", 3)]
    answer = place(problem(ZONES, roles, follow((1,), (0,))))
    assert (answer.placed(0), answer.placed(1)) == (1, 3)
    gang = [replace(role, minimum=0) for role in roles]
    assert place(problem(ZONES, gang, follow((1,), (0,)), Minimum((0, 1), 3))).total == 3


# -- volumes ----------------------------------------------------------------------------------------------------------


def test_a_limit_of_volumes_for_each_node_counts_all_roles():
    view = nodes((9, 100), (9, 100))
    roles = [pods("a", 2), pods("b", 2)]
    limit = Cap(NODE, ((0, 2), (1, 1)), amounts(4, 2))
    answer = place(problem(view, roles, limit))
    assert (where(answer, 0), where(answer, 1)) in (({0: 2}, {1: 2}), ({0: 1, 1: 1}, {0: 2}))
    assert isinstance(place(problem(view, [pods("a", 4)], limit.__class__(NODE, ((0, 2),), amounts(4, 2)))), Infeasible)


def test_a_shared_volume_is_spent_once_on_each_node():
    view = nodes((4, 100), (4, 100))
    shared = Once("gpu", 3, (0, 1), flags(0, 0))
    roles = [pods("a", 1), pods("b", 1, gpu=1)]
    answer = place(problem(view, roles, shared))
    assert isinstance(answer, Placement)
    crowd = [pods("a", 1), pods("b", 4, gpu=1)]
    assert isinstance(place(problem(view, crowd, shared)), Infeasible)
    assert isinstance(place(problem(view, crowd, replace(shared, already=flags(1, 0)))), Placement)


# -- why --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("demands", "rule", "name"),
    [
        ([pods("w", 5)], Repel(NODE, (0,), (0,)), "ports/anti-affinity"),
        ([pods("w", 1)], follow((0,), (0,)), "affinity"),
        ([pods("w", 4, on=[0], size=4)], spread((0, 0, 0)), "spread"),
        ([pods("w", 5)], Cap(NODE, ((0, 1),), amounts(1, 1, 1, 1)), "volumes"),
        ([pods("w", 1)], Once("gpu", 10, (0,), flags(0, 0, 0, 0)), "volumes"),
    ],
)
def test_a_rule_is_named_as_what_would_have_to_change(demands, rule, name):
    asked = problem(ZONES, demands, rule)
    assert (name,) in explain(asked, place(asked)).relaxations
