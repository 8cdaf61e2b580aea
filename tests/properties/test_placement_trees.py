"""Rules of domains and parts (few domains, multiples, K of N, one domain) against brute force, in both directions."""

from __future__ import annotations

import os

import numpy as np
import pytest

from scheduler.placement import Infeasible, Placement, place, verify
from scheduler.placement.engine import ALL, place_by
from tests.properties.placement_cases import TREE_RULES, allowed, as_table, most, tree

SEEDS = int(os.environ.get("MUSTER_SEEDS", "200"))
BLOCKS = [((kind,), 10_000 * block) for block, kind in enumerate(TREE_RULES)]
BLOCKS += [(TREE_RULES, 100_000 + 10_000 * block) for block in range(4)]


def judge(seed, problem, answer, *, decides):
    """Check an answer against everything that there is."""
    truth = most(problem)
    if isinstance(answer, Infeasible):
        assert truth is None or not answer.proven, seed
        assert answer.proven or not decides, seed
        return
    assert allowed(problem, as_table(problem, answer.counts)), seed
    assert answer.optimal or not decides, seed
    if problem.maximize:
        assert answer.total <= truth, seed
        assert answer.total == truth or not answer.optimal, seed


@pytest.mark.parametrize(("kinds", "begin"), BLOCKS)
def test_an_answer_is_what_trying_everything_gives(kinds, begin):
    for seed in range(begin, begin + SEEDS):
        problem = tree(seed, kinds)
        judge(seed, problem, place(problem), decides=True)


@pytest.mark.parametrize("method", ALL)
def test_each_step_alone_never_contradicts_the_truth(method):
    for seed in range(500_000, 500_000 + SEEDS):
        problem = tree(seed)
        judge(seed, problem, place_by(problem, [method]), decides=method == "integer")


def test_verify_says_what_a_naive_check_says():
    random = np.random.default_rng(5)
    kept = 0
    for seed in range(600_000, 600_000 + 5 * SEEDS):
        problem = tree(seed, maximize=True)
        size = len(problem.nodes.names)
        table = random.choice([0, 0, 0, 1, 2], (len(problem.demands), size)).tolist()
        counts = tuple(tuple((node, pods) for node, pods in enumerate(row) if pods) for row in table)
        valid = verify(problem, Placement(counts, "greedy")) == []
        assert valid == allowed(problem, table), seed
        kept += valid
    assert kept > 0


def test_no_pod_and_no_part_is_placed_that_nothing_asks_for():
    for seed in range(700_000, 700_000 + SEEDS):
        problem = tree(seed, maximize=False)
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
        assert place(tree(seed)) == place(tree(seed)), seed
