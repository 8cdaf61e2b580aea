"""The placement engine against brute force, in both directions and each step alone."""

from __future__ import annotations

import os
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, event, given, settings
from hypothesis import strategies as st

from scheduler.model.rules import Follow, Repel, Spread
from scheduler.placement import Infeasible, Placement, explain, place, verify
from scheduler.placement.engine import ALL, place_by
from scheduler.placement.relax import without
from tests.properties.placement_cases import allowed, as_table, larger, most, problems

EXAMPLES = int(os.environ.get("MUSTER_EXAMPLES", "40"))
thorough = settings(
    max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much]
)


def agrees(problem, answer, *, decides):
    """Check an answer against everything that there is."""
    truth = most(problem)
    if isinstance(answer, Placement):
        event(f"placed by {answer.method}")
        table = as_table(problem, answer.counts)
        assert allowed(problem, table)
        assert verify(problem, answer) == []
        assert truth is not None
        if problem.maximize:
            assert answer.total <= truth
            if answer.optimal:
                assert answer.total == truth
            assert answer.optimal or not decides
        return
    event(f"refused: {answer.cause}")
    if answer.proven:
        assert truth is None
    assert answer.proven or not decides
    assert len(answer.lacks.needed) == len(answer.lacks.alone) == len(problem.demands)


@given(problems())
@thorough
def test_an_answer_is_what_trying_everything_gives(problem):
    agrees(problem, place(problem), decides=True)


@given(problems(rules=False, roomy=True))
@thorough
def test_without_rules_an_answer_is_what_trying_everything_gives(problem):
    agrees(problem, place(problem), decides=True)


@pytest.mark.parametrize("method", ["counting", "greedy", "pattern", "integer"])
@given(problems())
@thorough
def test_each_step_alone_never_contradicts_the_truth(method, problem):
    answer = place_by(problem, [method])
    agrees(problem, answer, decides=method == "integer")


@given(problems(), st.randoms(use_true_random=False))
@thorough
def test_the_order_of_demands_and_nodes_does_not_change_feasibility(problem, random):
    order = list(range(len(problem.demands)))
    random.shuffle(order)
    place_of = {demand: position for position, demand in enumerate(order)}
    answer, other = place(problem), place(_permuted(problem, order, place_of))
    assert type(answer) is type(other)
    if isinstance(answer, Placement):
        assert answer.total == other.total or not problem.maximize
    fixed = all(demand.minimum == demand.count for demand in problem.demands)
    if fixed and isinstance(answer, Placement) and not problem.maximize:
        assert [answer.counts[d] for d in order] == list(other.counts)


def _permuted(problem, order, place_of):
    def moved(demands):
        return None if demands is None else tuple(place_of[d] for d in demands)

    rules = []
    for rule in problem.rules:
        if hasattr(rule, "weights"):
            rules.append(replace(rule, weights=tuple((place_of[d], w) for d, w in rule.weights)))
        elif isinstance(rule, Repel | Spread | Follow):
            sides = [name for name in ("carriers", "targets", "counted", "followers") if hasattr(rule, name)]
            rules.append(replace(rule, **{side: moved(getattr(rule, side)) for side in sides}))
        else:
            rules.append(replace(rule, demands=moved(rule.demands)))
    return replace(problem, demands=tuple(problem.demands[d] for d in order), rules=tuple(rules))


@given(problems())
@thorough
def test_the_same_problem_gets_the_same_answer(problem):
    assert place(problem) == place(problem)


@given(problems())
@thorough
def test_the_problem_is_left_as_it_was(problem):
    before = problem.nodes.free.copy(), problem.nodes.slots.copy(), [d.requests.copy() for d in problem.demands]
    place(problem)
    assert np.array_equal(problem.nodes.free, before[0])
    assert np.array_equal(problem.nodes.slots, before[1])
    assert all(np.array_equal(d.requests, old) for d, old in zip(problem.demands, before[2], strict=True))


@given(problems(), st.data())
@thorough
def test_verify_says_what_a_naive_check_says(problem, data):
    problem = replace(problem, maximize=True)
    size = len(problem.nodes.names)
    row = st.lists(st.integers(0, 2), min_size=size, max_size=size)
    counts = tuple(tuple((node, pods) for node, pods in enumerate(data.draw(row)) if pods) for _ in problem.demands)
    placement = Placement(counts, "greedy")
    assert (verify(problem, placement) == []) == allowed(problem, as_table(problem, counts))


@given(problems(), st.data())
@thorough
def test_verify_finds_a_placement_that_was_tampered_with(problem, data):
    answer = place(replace(problem, maximize=False))
    assume(isinstance(answer, Placement) and answer.total > 0)
    demand = data.draw(st.sampled_from([d for d, row in enumerate(answer.counts) if row]))
    node, pods = answer.counts[demand][0]
    more = ((node, pods + 1), *answer.counts[demand][1:])
    counts = (*answer.counts[:demand], more, *answer.counts[demand + 1 :])
    assert verify(replace(problem, maximize=False), replace(answer, counts=counts)) != []


@given(problems())
@thorough
def test_without_maximize_no_pod_is_placed_that_nothing_asks_for(problem):
    problem = replace(problem, maximize=False)
    answer = place(problem)
    assume(isinstance(answer, Placement))
    table = as_table(problem, answer.counts)
    for demand, row in enumerate(table):
        for node, pods in enumerate(row):
            if pods:
                row[node] -= 1
                assert not allowed(problem, table), f"a pod of demand {demand} is not needed"
                row[node] += 1


@given(problems())
@thorough
def test_no_step_is_needed_to_agree_with_another(problem):
    answers = [place_by(problem, [*ALL[:skip], *ALL[skip + 1 :]]) for skip in range(3)]
    assert len({isinstance(answer, Infeasible) for answer in answers}) == 1


@given(st.integers(0, 2**32))
@thorough
def test_patterns_and_integers_agree_on_problems_too_large_to_try_everything(seed):
    problem = larger(seed)
    answers = [place_by(problem, methods) for methods in (ALL, ["pattern"], ["integer"])]
    assert all(a.optimal if isinstance(a, Placement) else a.proven for a in answers)
    assert len({isinstance(a, Placement) for a in answers}) == 1
    if problem.maximize and isinstance(answers[0], Placement):
        assert len({a.total for a in answers}) == 1


@given(problems())
@thorough
def test_what_an_explanation_names_fits_and_no_part_of_it_does(problem):
    answer = place(problem)
    assume(isinstance(answer, Infeasible))
    told = explain(problem, answer)
    assert told.complete
    asked = replace(problem, maximize=False)
    for chosen in told.relaxations:
        assert most(without(asked, chosen)) is not None
        for left_out in chosen:
            assert most(without(asked, [name for name in chosen if name != left_out])) is None
