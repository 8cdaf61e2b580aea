"""What is told of a gang that its rules about domains keep from being placed."""

from __future__ import annotations

import numpy as np

from scheduler.placement import (
    AtMostDomains,
    Demand,
    Infeasible,
    NodeView,
    Part,
    Parts,
    PlacementProblem,
    Segments,
    Within,
    explain,
    place,
    shortfall,
)


def nodes(free, rack, block):
    size = len(free)
    return NodeView(
        names=[f"n{number}" for number in range(size)],
        resources=("gpu",),
        free=np.array([free], dtype=np.int64),
        slots=np.full(size, 10, dtype=np.int64),
        domains={"rack": np.array(rack, dtype=np.int32), "block": np.array(block, dtype=np.int32)},
        domain_names={"rack": ["r0", "r1", "r2", "r3"], "block": ["b0", "b1"]},
    )


CLUSTER = nodes([2, 2, 1, 3, 2, 4], [0, 0, 1, 1, 2, -1], [0, 0, 0, 0, 1, -1])


def gang(*rules, count=5, gpus=1):
    demand = Demand("w", np.array([gpus], dtype=np.int64), count, count)
    return PlacementProblem(CLUSTER, (demand,), rules)


def refused(problem):
    answer = place(problem)
    assert isinstance(answer, Infeasible)
    assert answer.proven
    return answer


def test_the_best_domain_is_told_with_what_fits_there():
    problem = gang(Within("rack"))
    told = shortfall(problem, refused(problem))
    assert (told.level, told.domain, told.needed, told.fits, told.missing) == ("rack", "r0", (5,), (4,), 1)
    assert (told.looked, told.unlabelled, told.exact) == (3, 1, True)


def test_a_rule_that_holds_alone_is_not_told():
    problem = gang(Within("block"), Within("rack"), count=6)
    told = shortfall(problem, refused(problem))
    assert (told.rule, told.level) == (1, "rack")


def test_what_topology_does_not_cause_is_not_put_down_to_it():
    problem = gang(Within("rack"), count=20)
    assert shortfall(problem, refused(problem)) is None


def test_few_domains_tell_how_many_would_do():
    problem = gang(AtMostDomains("rack", 2), count=10)
    answer = refused(problem)
    told = shortfall(problem, answer)
    assert (told.fits, told.looked) == ((8,), 3)
    assert explain(problem, answer).more == (("rack", 2, 3),)
    assert ("atMostDomains",) in explain(problem, answer).relaxations


def test_multiples_are_a_relaxation_of_their_own():
    problem = gang(Segments("rack", 3), count=9)
    answer = refused(problem)
    assert ("segments",) in explain(problem, answer).relaxations
    assert shortfall(problem, answer).fits == (6,)


def test_fewer_parts_are_told():
    demands = tuple(Demand(f"part-{number}", np.array([1], dtype=np.int64), 4) for number in range(4))
    parts = Parts(tuple(Part((number,), 4) for number in range(4)), 4)
    rules = tuple(Within("rack", True, (number,)) for number in range(4))
    problem = PlacementProblem(CLUSTER, demands, (*rules, parts))
    told = explain(problem, refused(problem))
    assert told.fewer == ((4, 2),)
    assert ("minimum parts",) in told.relaxations


def test_several_levels_are_several_restrictions():
    problem = gang(Within("block"), Within("rack"), count=7)
    names = {name for chosen in explain(problem, refused(problem)).relaxations for name in chosen}
    assert "topology rack" in names
