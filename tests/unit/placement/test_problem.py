"""What a problem may say, and how it is told that it means nothing; what `verify` objects to."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

from scheduler.model.rules import Repel
from scheduler.placement import (
    NODE,
    Apart,
    AtMost,
    BadProblem,
    Minimum,
    Placement,
    UnsupportedRule,
    Within,
    place,
    verify,
)
from tests.unit.placement.cases import nodes, pods, problem

VIEW = nodes((2, 10), (2, 10), rack=["a", "b"])


@dataclass(frozen=True)
class Invented:
    """A rule of some later day."""


@pytest.mark.parametrize(
    ("demands", "rules", "message"),
    [
        ([replace(pods("w", 1), requests=np.zeros(2, dtype=np.int64))], [], "demand 'w'.requests: shape"),
        ([pods("w", 1, gpu=-1)], [], "demand 'w'.requests: negative"),
        ([pods("w", 1, at_least=2)], [], "demand 'w': minimum 2"),
        ([pods("w", 1), pods("w", 1)], [], "demand 'w': the name is used twice"),
        ([replace(pods("w", 1), mask=np.ones(3, dtype=np.bool_))], [], "demand 'w'.mask: shape"),
        ([replace(pods("w", 1), scores=np.ones(3, dtype=np.int64))], [], "demand 'w'.scores: shape"),
        ([pods("w", 1, max_per_node=-1)], [], "demand 'w'.max_per_node"),
        ([pods("w", 1)], [Within("pod")], r"rule 0 \(Within\).level: no domains are given for 'pod'"),
        ([pods("w", 1)], [Apart("rack", -1)], r"rule 0 \(Apart\).limit"),
        ([pods("w", 1)], [Minimum((1,), 1)], r"rule 0 \(Minimum\): there is no demand 1"),
        ([pods("w", 1)], [Minimum((0,), -1)], r"rule 0 \(Minimum\).count"),
        ([pods("w", 1)], [AtMost(((0, -1),), 1)], r"rule 0 \(AtMost\).weights: negative"),
        ([pods("w", 1)], [AtMost(((0, 1), (0, 2)), 1)], r"rule 0 \(AtMost\).weights: a demand is named twice"),
    ],
)
def test_nonsense_is_refused_by_name_and_field(demands, rules, message):
    with pytest.raises(BadProblem, match=message):
        place(problem(VIEW, demands, *rules))


def test_an_unknown_rule_is_refused_and_never_ignored():
    with pytest.raises(UnsupportedRule, match="Invented"):
        place(problem(VIEW, [pods("w", 1)], Invented()))
    with pytest.raises(UnsupportedRule, match="Invented"):
        verify(problem(VIEW, [pods("w", 1)], Invented()), Placement((((0, 1),),), "greedy"))


def test_an_unknown_objective_is_refused():
    with pytest.raises(BadProblem, match="objective: 'tight'"):
        place(problem(VIEW, [pods("w", 1)], objective="tight"))


@pytest.mark.parametrize(
    ("counts", "rules", "message"),
    [
        ((), [], "0 rows for 1 demands"),
        ((((5, 1),),), [], "does not exist"),
        ((((1, 1), (0, 1)),), [], "not in order"),
        ((((0, 0), (1, 2)),), [], "not a positive number"),
        ((((0, 1),),), [], "1 placed, at least 2"),
        ((((0, 2), (1, 1)),), [], "3 placed, at most 2"),
        ((((0, 2),),), [], r"n0: 4 gpu asked, 2 free"),
        ((((0, 1), (1, 1)),), [Within("rack")], r"in domains \[0, 1\]"),
        ((((0, 1), (1, 1)),), [AtMost(((0, 3),), 5)], "weight 6"),
        ((((0, 1), (1, 1)),), [Minimum((0,), 3)], "2 placed, Minimum"),
        ((((0, 1), (1, 1)),), [Apart("rack", 0)], "1 in domain 0"),
    ],
)
def test_verify_says_what_is_wrong(counts, rules, message):
    failures = verify(problem(VIEW, [pods("w", 2, gpu=2)], *rules), Placement(counts, "greedy"))
    assert any(__import__("re").search(message, failure) for failure in failures), failures


def test_verify_knows_slots_masks_crowds_and_repelled_pods():
    view = nodes((9, 9), (9, 9), slots=[1, 9])
    roles = [pods("a", 2, on=[1], size=2), pods("b", 1, max_per_node=0)]
    wrong = Placement((((0, 2),), ((0, 1),)), "greedy")
    failures = " | ".join(verify(problem(view, roles, Repel(NODE, (0,), (1,))), wrong))
    assert "n0: 3 pods, 1 slots" in failures
    assert "a: on n0, which may not host it" in failures
    assert "b: more than 0 on n0" in failures
    assert "repelled in domain 0" in failures


def test_verify_objects_to_pods_that_nothing_asks_for_unless_as_many_as_possible_are_wanted():
    asked = problem(VIEW, [pods("w", 2, gpu=1, at_least=1)])
    both = Placement((((0, 2),),), "greedy")
    assert verify(asked, both) == ["w: 2 placed, more than the minimums ask for"]
    assert verify(replace(asked, maximize=True), both) == []
    assert verify(replace(asked, rules=(Minimum((0,), 2),)), both) == []


def test_verify_counts_beyond_64_bits():
    view = nodes((1, 1, 2**62), slots=2**40)
    huge = replace(pods("w", 2**30), requests=np.array([0, 0, 2**62], dtype=np.int64))
    failures = verify(problem(view, [huge]), Placement((((0, 2**30),),), "greedy"))
    assert failures == [f"n0: {2**92} memory asked, {2**62} free"]
