"""Which nodes are chosen, and what is refused: the behaviour that users see."""

from __future__ import annotations

import itertools
import subprocess
import sys

import numpy as np
import pytest

from scheduler.model.rules import Repel
from scheduler.placement import (
    NODE,
    Apart,
    AtMost,
    Budget,
    Infeasible,
    Minimum,
    Placement,
    PlacementBug,
    Shortage,
    Within,
    engine,
    place,
)
from scheduler.placement.engine import place_by
from tests.unit.placement.cases import nodes, pods, problem, where

# -- which nodes ------------------------------------------------------------------------------------------------------


def test_pack_uses_the_fewest_nodes():
    view = nodes((4, 100), (2, 100), (2, 100), (2, 100), (2, 100))
    assert where(place(problem(view, [pods("w", 4, gpu=1)]))) == {0: 4}


def test_pack_puts_the_rest_on_the_smallest_node_that_takes_it():
    view = nodes((8, 100), (8, 100), (5, 100), (4, 100))
    assert where(place(problem(view, [pods("w", 12, gpu=1)]))) == {0: 8, 3: 4}


def test_pack_prefers_among_equals_the_node_that_ends_fullest():
    view = nodes((4, 100), (4, 20), (4, 60))
    assert where(place(problem(view, [pods("w", 4, gpu=1, cpu=5)]))) == {1: 4}


def test_equal_nodes_are_taken_in_their_order():
    view = nodes(*[(2, 10)] * 4)
    assert where(place(problem(view, [pods("w", 4, gpu=1)]))) == {0: 2, 1: 2}


def test_pods_that_do_not_belong_together_leave_empty_nodes_whole():
    view = nodes((8, 100), (3, 100), (2, 100))
    surplus = pods("w", 4, gpu=1, at_least=0)
    answer = place(problem(view, [surplus], AtMost(((0, 1),), 4), maximize=True))
    assert where(answer) == {1: 2, 2: 2}
    assert answer.optimal


def test_spread_levels_what_is_left():
    view = nodes((8, 100), (5, 100), (2, 100))
    assert where(place(problem(view, [pods("w", 5, gpu=1)], objective="spread"))) == {0: 4, 1: 1}


def test_spread_gives_each_equal_node_the_same():
    view = nodes(*[(8, 100)] * 4)
    assert where(place(problem(view, [pods("w", 4, gpu=1)], objective="spread"))) == {0: 1, 1: 1, 2: 1, 3: 1}


def test_scores_go_before_packing_and_packing_decides_between_equal_scores():
    view = nodes((8, 100), (1, 100), (4, 100), (3, 100))
    wanted = pods("w", 4, gpu=1, scores=[0, 5, 2, 2])
    assert where(place(problem(view, [wanted], objective="scores"))) == {1: 1, 3: 3}


def test_scores_choose_the_domain():
    view = nodes((4, 100), (4, 100), (4, 100), rack=["a", "b", "b"])
    wanted = pods("w", 4, gpu=1, scores=[1, 0, 7])
    assert where(place(problem(view, [wanted], Within("rack"), objective="scores"))) == {2: 4}


def test_the_fullest_domain_that_takes_the_gang_is_used():
    view = nodes((8, 100), (8, 100), (4, 100), (3, 100), rack=["a", "a", "b", "c"])
    assert where(place(problem(view, [pods("w", 4, gpu=1)], Within("rack")))) == {2: 4}


def test_a_preferred_domain_is_kept_when_it_costs_nothing():
    view = nodes((2, 100), (2, 100), (4, 100), rack=["a", "b", "b"])
    assert where(place(problem(view, [pods("w", 6, gpu=1)], Within("rack", hard=False)))) == {1: 2, 2: 4}


def test_a_preferred_domain_that_is_too_small_gives_way_to_few_domains():
    view = nodes(*[(2, 100)] * 6, rack=["a", "b", "b", "c", "c", "c"])
    answer = place(problem(view, [pods("w", 8, gpu=1)], Within("rack", hard=False)))
    assert where(answer) == {0: 2, 3: 2, 4: 2, 5: 2}


def test_a_preference_that_gains_nothing_costs_no_node():
    view = nodes((4, 100), (1, 100), rack=[None, "a"])
    assert where(place(problem(view, [pods("w", 2, gpu=1)], Within("rack", hard=False)))) == {0: 2}
    assert where(place(problem(view, [pods("w", 5, gpu=1)], Within("rack", hard=False)))) == {0: 4, 1: 1}


def test_a_preferred_rack_is_sought_inside_the_required_block():
    view = nodes(
        *[(2, 100)] * 4, (4, 100), (4, 100),
        rack=["a", "b", "c", "d", "e", "e"], block=["x", "x", "x", "x", "y", "y"],
    )  # fmt: skip
    answer = place(problem(view, [pods("w", 8, gpu=1)], Within("block"), Within("rack", hard=False)))
    assert where(answer) == {4: 4, 5: 4}


def test_earlier_demands_start_first_where_there_is_a_choice():
    view = nodes((3, 100))
    roles = [pods("a", 3, gpu=1, at_least=1), pods("b", 3, gpu=1, at_least=1)]
    answer = place(problem(view, roles, Minimum((0, 1), 3)))
    assert (answer.placed(0), answer.placed(1)) == (2, 1)


def test_the_other_choice_is_made_when_the_first_does_not_fit():
    view = nodes((1, 100), (0, 100))
    roles = [pods("a", 3, gpu=1, at_least=0), pods("b", 3, cpu=10, at_least=0)]
    answer = place(problem(view, roles, Minimum((0, 1), 4)))
    assert (answer.placed(0), answer.placed(1)) == (1, 3)


# -- gangs that pod by pod placement loses ----------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["greedy", "pattern", "integer"])
@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_launcher_and_workers_with_different_vectors_fit_in_every_order(order, method):
    view = nodes((4, 8), (4, 16), (0, 20))
    roles = [pods("launcher", 1, cpu=16), pods("worker", 8, gpu=1, cpu=2), pods("feeder", 2, cpu=4)]
    answer = place_by(problem(view, [roles[place] for place in order]), [method])
    assert isinstance(answer, Placement)
    assert where(answer, order.index(0)) == {2: 1}


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_a_gang_that_the_portfolio_may_miss_is_found_by_the_solver(order):
    view = nodes((7, 100), (7, 100), (6, 100), slots=4)
    roles = [pods("wide", 2, gpu=4), pods("middle", 3, gpu=3), pods("narrow", 1, gpu=2)]
    gang = problem(view, [roles[place] for place in order])
    assert isinstance(place(gang), Placement)
    assert isinstance(place_by(gang, ["pattern"]), Placement)
    assert isinstance(place_by(gang, ["integer"]), Placement)


@pytest.mark.parametrize("method", ["pattern", "integer"])
def test_pieces_that_are_too_small_are_a_proof(method):
    view = nodes(*[(7, 100)] * 4)
    answer = place_by(problem(view, [pods("wide", 2, gpu=5), pods("narrow", 5, gpu=3)]), [method])
    assert isinstance(answer, Infeasible)
    assert answer.proven
    assert answer.cause == "search"


# -- rules ------------------------------------------------------------------------------------------------------------


def test_apart_on_nodes_counts_all_named_demands_together():
    view = nodes((8, 100), (8, 100), (8, 100))
    roles = [pods("a", 2, gpu=1), pods("b", 1, gpu=1)]
    answer = place(problem(view, roles, Apart("", 1)))
    assert sorted([*where(answer, 0), *where(answer, 1)]) == [0, 1, 2]
    assert isinstance(place(problem(view, [pods("a", 4, gpu=1)], Apart("", 1))), Infeasible)


def test_apart_over_several_demands_is_refused_by_sums():
    view = nodes(*[(8, 100)] * 4, rack=["a", "a", "b", "b"])
    roles = [pods("a", 3, gpu=1), pods("b", 2, gpu=2)]
    answer = place(problem(view, roles, Apart("rack", 2)))
    assert (answer.proven, answer.cause) == (True, "bound")


def test_apart_does_not_count_nodes_without_the_label():
    view = nodes((8, 100), (8, 100), zone=["a", None])
    assert where(place(problem(view, [pods("a", 5, gpu=1)], Apart("zone", 1)))) in ({0: 1, 1: 4}, {1: 5})


def test_within_keeps_off_nodes_without_the_label():
    view = nodes((8, 100), (8, 100), rack=[None, "a"])
    assert where(place(problem(view, [pods("a", 5, gpu=1)], Within("rack")))) == {1: 5}


def test_roles_may_have_a_domain_of_their_own():
    view = nodes((4, 100), (4, 100), (4, 100), (4, 100), rack=["a", "a", "b", "b"])
    roles = [pods("prefill", 8, gpu=1), pods("decode", 8, gpu=1)]
    answer = place(problem(view, roles, Within("rack", demands=(0,)), Within("rack", demands=(1,))))
    assert {*where(answer, 0), *where(answer, 1)} == {0, 1, 2, 3}
    assert set(where(answer, 0)) in ({0, 1}, {2, 3})


def test_repelled_pods_share_no_node():
    view = nodes((8, 100), (8, 100))
    roles = [pods("a", 2, gpu=1), pods("b", 2, gpu=1)]
    answer = place(problem(view, roles, Repel(NODE, (0,), (1,))))
    assert not set(where(answer, 0)) & set(where(answer, 1))
    assert isinstance(place(problem(nodes((8, 100)), roles, Repel(NODE, (0,), (1,)))), Infeasible)


def test_a_queue_row_in_bytes_holds_exactly():
    byte = 2**40 + 1
    view = nodes(*[(8, 100, 8 * byte)] * 4)
    surplus = pods("a", 30, memory=byte, at_least=0)
    answer = place(problem(view, [surplus], AtMost(((0, byte),), 7 * byte - 1), maximize=True))
    assert answer.placed(0) == 6
    assert place(problem(view, [surplus], AtMost(((0, byte),), 7 * byte), maximize=True)).placed(0) == 7


@pytest.mark.parametrize("method", ["greedy", "pattern", "integer"])
def test_amounts_in_bytes_of_thousands_of_pods_do_not_overflow(method):
    tera = 2**40
    view = nodes(*[(8, 1000, 16 * tera + 3)] * 300)
    roles = [pods("a", 2000, memory=tera + 1, cpu=1), pods("b", 1000, memory=2 * tera + 1, cpu=1)]
    answer = place_by(problem(view, roles), [method])
    assert answer.total == 3000


def test_an_overcommitted_node_takes_nothing_that_asks_for_what_it_lacks():
    view = nodes((-1, 100), (2, 100))
    assert where(place(problem(view, [pods("w", 2, gpu=1)]))) == {1: 2}
    assert isinstance(place(problem(view, [pods("w", 3, gpu=1)])), Infeasible)
    only = pods("c", 1, cpu=1, on=[0], size=2)
    assert where(place(problem(view, [only]))) == {0: 1}


def test_nodes_without_slots_take_nothing():
    view = nodes((8, 100), (8, 100), slots=[0, 3])
    assert where(place(problem(view, [pods("w", 3)]))) == {1: 3}


def test_nothing_asked_is_placed_as_nothing():
    assert place(problem(nodes((1, 1)), [])).total == 0
    assert place(problem(nodes(), [pods("w", 0)])).total == 0
    assert isinstance(place(problem(nodes(), [pods("w", 1)])), Infeasible)


def test_as_many_as_possible_of_several_roles_is_proven():
    view = nodes((7, 100), (7, 100), slots=10)
    roles = [pods("wide", 2, gpu=5, at_least=0), pods("narrow", 9, gpu=2, at_least=0)]
    answer = place(problem(view, roles, maximize=True))
    assert answer.optimal
    assert answer.total == 6


# -- refusals ---------------------------------------------------------------------------------------------------------


def test_a_refusal_has_numbers():
    view = nodes((2, 100), (1, 100), (0, 100), rack=["a", "b", "b"])
    answer = place(problem(view, [pods("w", 4, gpu=1)]))
    assert isinstance(answer, Infeasible)
    assert answer.proven
    assert answer.lacks.binding == Shortage("gpu", needed=4, free=3, largest=2)
    assert (answer.lacks.needed, answer.lacks.alone, answer.lacks.placeable) == ((4,), (3,), 3)
    assert answer.short == (0,)


def test_a_refusal_names_the_best_domain():
    view = nodes((2, 100), (1, 100), (2, 100), rack=["a", "b", "b"])
    answer = place(problem(view, [pods("w", 4, gpu=1)], Within("rack")))
    assert (answer.lacks.best.level, answer.lacks.best.name, answer.lacks.best.alone) == ("rack", "b", (3,))


def test_minimums_against_limits_are_refused_as_rules():
    answer = place(problem(nodes((8, 100)), [pods("w", 4, gpu=1)], AtMost(((0, 1),), 3)))
    assert (answer.proven, answer.cause) == (True, "rules")


def test_a_search_that_runs_out_of_budget_proves_nothing():
    view = nodes(*[(7, 100)] * 4)
    roles = [pods("wide", 2, gpu=5), pods("narrow", 5, gpu=3)]
    answer = place(problem(view, roles, budget=Budget(deterministic_time=0.0)))
    assert isinstance(answer, Infeasible)
    assert (answer.proven, answer.cause) == (False, "budget")


def test_domains_that_were_not_searched_leave_the_answer_open():
    view = nodes(*[(7, 100)] * 6, rack=list("aabbcc"))
    roles = [pods("wide", 1, gpu=5), pods("narrow", 3, gpu=3)]
    answer = place(problem(view, roles, Within("rack"), budget=Budget(max_domains=0)))
    assert (answer.proven, answer.cause) == (False, "budget")
    answer = place(problem(view, roles, Within("rack"), budget=Budget(max_domains=1)))
    assert (answer.proven, answer.cause) == (True, "search"), "racks that are alike are searched once"


def test_a_wrong_answer_never_leaves(monkeypatch):
    monkeypatch.setattr(engine, "fill", lambda instance, kind, cap, total: np.full(cap.size, total))
    with pytest.raises(PlacementBug, match="node 1 n1") as caught:
        place(problem(nodes((2, 100), (2, 100)), [pods("w", 3, gpu=1)]))
    assert caught.value.failures


def test_the_solver_is_not_imported_before_it_is_needed():
    code = (
        "import sys, numpy as np, scheduler.placement as p;"
        "assert not any(m.startswith('ortools') for m in sys.modules);"
        "p.warm_up(); assert any(m.startswith('ortools') for m in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
