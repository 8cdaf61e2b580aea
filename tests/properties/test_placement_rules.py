"""Rules between pods against brute force: each alone and all together, in both directions."""

from __future__ import annotations

import os
from dataclasses import replace

import numpy as np
import pytest

from scheduler.placement import Infeasible, Placement, explain, place, verify
from scheduler.placement.engine import place_by
from scheduler.placement.relax import without
from tests.properties.placement_cases import MEMBER_RULES, allowed, as_table, crossing, larger_crossing, most

SEEDS = int(os.environ.get("MUSTER_SEEDS", "300" if "EXPLORE" in os.environ else "120"))
MIXTURES = [*((kind,) for kind in MEMBER_RULES), ("follow", "spread"), ("repel", "spread", "follow")]
BLOCKS = [(kinds, 10_000 * block) for block, kinds in enumerate([*MIXTURES, *[MEMBER_RULES] * 5])]


def judge(problem, answer, *, decides):
    """Check an answer against everything that there is."""
    truth = most(problem)
    if isinstance(answer, Infeasible):
        assert truth is None or not answer.proven
        assert answer.proven or not decides
        return
    assert allowed(problem, as_table(problem, answer.counts))
    assert truth is not None
    assert answer.optimal or not decides
    if problem.maximize:
        assert answer.total <= truth
        assert answer.total == truth or not answer.optimal


@pytest.mark.parametrize(("kinds", "begin"), BLOCKS)
def test_an_answer_is_what_trying_everything_gives(kinds, begin):
    for seed in range(begin, begin + SEEDS):
        problem = crossing(seed, kinds)
        judge(problem, place(problem), decides=True)


@pytest.mark.parametrize("method", ["counting", "greedy", "pattern", "integer"])
def test_each_step_alone_never_contradicts_the_truth(method):
    for seed in range(500_000, 500_000 + SEEDS):
        problem = crossing(seed)
        judge(problem, place_by(problem, [method]), decides=method == "integer")


def test_verify_says_what_a_naive_check_says():
    random = np.random.default_rng(5)
    kept = 0
    for seed in range(600_000, 600_000 + 3 * SEEDS):
        problem = replace(crossing(seed), maximize=True)
        size = len(problem.nodes.names)
        table = random.choice([0, 0, 0, 1, 2], (len(problem.demands), size)).tolist()
        counts = tuple(tuple((node, pods) for node, pods in enumerate(row) if pods) for row in table)
        valid = verify(problem, Placement(counts, "greedy")) == []
        assert valid == allowed(problem, table), seed
        kept += valid
    assert kept > 0


def test_no_pod_is_placed_that_nothing_asks_for():
    for seed in range(700_000, 700_000 + SEEDS):
        problem = replace(crossing(seed), maximize=False)
        answer = place(problem)
        if isinstance(answer, Infeasible):
            continue
        table = as_table(problem, answer.counts)
        for row in table:
            for node, pods in enumerate(row):
                if pods:
                    row[node] -= 1
                    assert not allowed(problem, table), seed
                    row[node] += 1


def test_the_same_problem_gets_the_same_answer():
    for seed in range(800_000, 800_000 + SEEDS):
        problem = crossing(seed)
        assert place(problem) == place(crossing(seed)), seed


def test_what_an_explanation_names_fits_and_no_part_of_it_does():
    for seed in range(900_000, 900_000 + SEEDS // 4):
        problem = crossing(seed)
        answer = place(problem)
        if isinstance(answer, Placement):
            continue
        told = explain(problem, answer)
        assert told.complete
        asked = replace(problem, maximize=False)
        for chosen in told.relaxations:
            assert most(without(asked, chosen)) is not None
            for left_out in chosen:
                assert most(without(asked, [name for name in chosen if name != left_out])) is None


@pytest.mark.parametrize("begin", [0, 1000])
def test_the_steps_and_one_model_agree_on_problems_too_large_to_try_everything(begin):
    for seed in range(begin, begin + SEEDS // 4):
        problem = larger_crossing(seed)
        answers = [place(problem), place_by(problem, ["integer"])]
        assert all(a.optimal if isinstance(a, Placement) else a.proven for a in answers), seed
        assert len({isinstance(a, Placement) for a in answers}) == 1, seed
        if problem.maximize and isinstance(answers[0], Placement):
            assert answers[0].total == answers[1].total, seed
