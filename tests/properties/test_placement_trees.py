"""Rules of domains and parts (few domains, multiples, K of N, one domain) against brute force, in both directions."""

from __future__ import annotations

import os
from dataclasses import replace

import numpy as np
import pytest

from scheduler.placement import Infeasible, Placement, Within, place, verify
from scheduler.placement.engine import ALL, place_by
from tests.properties.naive_model import feasible
from tests.properties.placement_cases import (
    TREE_RULES,
    allowed,
    as_table,
    forest,
    larger_tree,
    most,
    sharing,
    subgroups,
    tree,
)

SEEDS = int(os.environ.get("MUSTER_SEEDS", "80" if "EXPLORE" in os.environ else "40"))
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
    for seed in range(800_000, 800_000 + SEEDS // 4):
        assert place(tree(seed)) == place(tree(seed)), seed
        assert place(subgroups(seed)) == place(subgroups(seed)), seed


@pytest.mark.parametrize("begin", [0, 10_000])
def test_subgroups_get_what_trying_everything_gives(begin):
    for seed in range(begin, begin + SEEDS):
        problem = subgroups(seed)
        judge(seed, problem, place(problem), decides=True)


@pytest.mark.parametrize("methods", [["greedy"], ["master"], ["greedy", "master"], ["integer"]])
def test_no_step_for_subgroups_contradicts_the_truth(methods):
    for seed in range(20_000, 20_000 + SEEDS):
        problem = subgroups(seed)
        judge(seed, problem, place_by(problem, methods), decides="integer" in methods)


@pytest.mark.parametrize("methods", [ALL, ["master"]])
def test_subgroups_that_are_alike_share_domains_as_a_naive_model_says(methods):
    answers = set()
    for seed in range(70_000, 70_000 + 2 * SEEDS):
        problem = sharing(seed)
        answer = place_by(problem, methods)
        truth = feasible(problem)
        if isinstance(answer, Infeasible):
            assert not (answer.proven and truth), seed
            assert answer.proven or methods != ALL, seed
        else:
            assert truth and allowed(problem, as_table(problem, answer.counts)), seed
        answers.add(truth)
    assert answers == {True, False}


def test_the_steps_and_one_model_agree_on_trees_too_large_to_try_everything():
    answers = set()
    for seed in range(SEEDS // 4):
        problem = larger_tree(seed)
        answer, other = place(problem), place_by(problem, ["integer"])
        assert isinstance(answer, Placement) == isinstance(other, Placement), seed
        assert isinstance(answer, Placement) or answer.proven, seed
        answers.add(type(answer))
    assert len(answers) == 2


def test_what_is_preferred_costs_no_pod_and_is_kept_where_one_kind_of_pods_can_keep_it():
    held = 0
    for seed in range(900_000, 900_000 + 2 * SEEDS):
        problem = tree(seed, ("within", "within", "segments") if seed % 3 else ("within",))
        soft = [replace(rule, hard=False) if isinstance(rule, Within) else rule for rule in problem.rules]
        problem = replace(problem, rules=tuple(soft))
        answer = place(problem)
        judge(seed, problem, answer, decides=True)
        if isinstance(answer, Infeasible):
            continue
        hard = replace(problem, rules=tuple(replace(r, hard=True) if isinstance(r, Within) else r for r in soft))
        for number, rule in enumerate(problem.rules):
            if isinstance(rule, Within):
                only = replace(problem, rules=(replace(rule, hard=True),), maximize=True)
                assert (number in answer.kept) == (verify(only, answer) == [] or _empty(answer, rule)), seed
        wanted = {number for number, rule in enumerate(problem.rules) if isinstance(rule, Within)}
        if len(problem.demands) == 1 and not problem.maximize and most(hard) is not None:
            assert wanted <= set(answer.kept), seed
            held += bool(wanted)
    assert held > 0


def _empty(answer, rule):
    rows = answer.counts if rule.demands is None else [answer.counts[d] for d in rule.demands]
    return not any(rows)


@pytest.mark.parametrize(("make", "begin"), [(larger_tree, 50_000), (forest, 60_000)])
def test_no_gang_waits_that_a_naive_model_can_place(make, begin):
    answers, unknown = set(), 0
    for seed in range(begin, begin + SEEDS // 4):
        problem = make(seed)
        answer, truth = place(problem), feasible(problem)
        assert isinstance(answer, Placement) or answer.proven, seed
        assert truth is None or isinstance(answer, Placement) == truth, seed
        answers.add(type(answer))
        unknown += truth is None
    assert len(answers) == 2
    assert unknown <= max(1, SEEDS // 40)
