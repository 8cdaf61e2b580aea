"""Who has to go, against trying every set."""

from __future__ import annotations

import os
from dataclasses import replace

import numpy as np
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from scheduler.placement import (
    AtMostTaken,
    Budget,
    Demand,
    Infeasible,
    MustFree,
    SinglePods,
    VictimProblem,
    Within,
    cost_of,
    make_room,
    verify_room,
)
from scheduler.placement.instance import build
from scheduler.placement.room_bounds import least_costs
from scheduler.placement.room_lots import pieces
from tests.properties.room_cases import UNIT, cheapest, fits, guarded, rooms, sets

EXAMPLES = int(os.environ.get("MUSTER_EXAMPLES", "100" if "EXPLORE" in os.environ else "50"))
thorough = settings(
    max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much]
)


def agrees(problem, *, proven=True):
    """Check an answer against every set of victims. proven: also a refusal has to be."""
    made, best = make_room(problem), cheapest(problem)
    if isinstance(made, Infeasible):
        event("refused")
        assert best is None
        assert made.proven or not proven
        return made
    event("nobody goes" if not made.evicted else f"{len(made.evicted)} go")
    assert best is not None
    assert made.optimal
    assert cost_of(problem, made.evicted) == best
    assert frozenset(made.evicted) in {gone for _, gone in sets(problem)}
    assert fits(problem, made.evicted)
    assert verify_room(problem, made, minimal=True) == []
    return made


@given(rooms())
@thorough
def test_the_cheapest_set_is_what_trying_everything_gives(problem):
    agrees(problem)


@given(rooms(member_rules=True))
@thorough
def test_the_cheapest_set_keeps_the_rules_between_pods(problem):
    agrees(problem)


@given(rooms(in_trees=True))
@thorough
def test_the_cheapest_set_keeps_the_rules_of_domains_and_parts(problem):
    agrees(problem)


@given(guarded())
@thorough
def test_the_cheapest_set_is_found_where_only_the_exact_question_knows_who_is_in_the_way(problem):
    """Only so many refused sets are learnt; then "no" is said without proof."""
    agrees(problem, proven=False)


@given(rooms())
@thorough
def test_the_same_question_gets_the_same_answer(problem):
    assert make_room(problem) == make_room(problem)


@given(rooms(), st.data())
@thorough
def test_single_pods_get_what_each_of_them_would_get_alone(problem, data):
    """`SinglePods` and `make_room` agree on the cost, pod after pod, over what is left of the cluster."""
    problem = replace(problem, gangs=tuple(replace(gang, spare=False) for gang in problem.gangs))
    size, width = len(problem.problem.nodes.names), len(problem.problem.nodes.resources)
    pods = SinglePods(problem)
    gone: set[int] = set()
    held = np.zeros((width + 1, size), dtype=np.int64)
    for turn in range(3):
        asked = data.draw(st.lists(st.integers(0, 2), min_size=width, max_size=width))
        requests = np.array(asked, dtype=np.int64) * np.array([1, UNIT][:width], dtype=np.int64)
        mask = np.array(data.draw(st.lists(st.sampled_from([True, True, False]), min_size=size, max_size=size)))
        demand = Demand(f"pod-{turn}", requests, 1, 1, mask=mask)
        allowed = np.array([data.draw(st.sampled_from([True, True, True, False])) for _ in problem.gangs], dtype=bool)
        alone = left_of(problem, gone, held, allowed, demand)
        answer, other = pods.ask(demand, allowed=allowed, rows=problem.rows), make_room(alone)
        assert type(answer) is type(other)
        if isinstance(answer, Infeasible):
            event("refused")
            assert answer.proven
            continue
        event(f"{len(answer.evicted)} go")
        assert answer.optimal
        assert cost_of(alone, [alone_number(alone, problem, r) for r in answer.evicted]) == cost_of(
            alone, other.evicted
        )
        pods.book(answer, demand)
        gone.update(answer.evicted)
        node = answer.placement.counts[0][0][0]
        held[:-1, node] += requests
        held[-1, node] += 1
        for resident in answer.evicted:
            held[:-1, problem.residents[resident].node] -= problem.residents[resident].holds
            held[-1, problem.residents[resident].node] -= 1
        assert (pods.free == problem.problem.nodes.free - held[:-1]).all()
        assert (pods.slots == problem.problem.nodes.slots - held[-1]).all()


def alone_number(alone, problem, resident):
    """The number of a resident in the smaller question, by its name."""
    return [one.name for one in alone.residents].index(problem.residents[resident].name)


def left_of(problem, gone, held, allowed, demand):
    """Return the question for one pod over what is left."""
    gangs = [gang for number, gang in enumerate(problem.gangs) if allowed[number] and set(gang.residents) - gone]
    stay = sorted(r for gang in gangs for r in gang.residents if r not in gone)
    new = {old: place for place, old in enumerate(stay)}

    def some(residents):
        return tuple(new[r] for r in residents if r in new)

    view = problem.problem.nodes
    nodes = replace(view, free=view.free - held[:-1], slots=view.slots - held[-1])
    rows = [
        replace(row, amounts=tuple((new[r], amount) for r, amount in row.amounts if r in new))
        if isinstance(row, AtMostTaken)
        else MustFree(
            tuple((new[r], amount) for r, amount in row.amounts if r in new),
            row.least,
            None if row.when is None else some(row.when),
        )
        if isinstance(row, MustFree)
        else replace(row, residents=some(row.residents))
        for row in problem.rows
    ]
    return VictimProblem(
        replace(problem.problem, nodes=nodes, demands=(demand,), rules=()),
        tuple(problem.residents[r] for r in stay),
        tuple(
            replace(gang, residents=some(gang.residents), roles=tuple((some(one), least) for one, least in gang.roles))
            for gang in gangs
        ),
        tuple(rows),
    )


@given(st.one_of(rooms(), guarded()), st.sampled_from([0.0, 0.0, 1e-4]))
@thorough
def test_without_time_an_answer_is_still_right_and_says_what_is_not_proven(problem, seconds):
    hasty = Budget(deterministic_time=seconds, wall_limit=60.0)
    refine = problem.refine
    problem = replace(
        problem,
        problem=replace(problem.problem, budget=hasty),
        refine=None if refine is None else lambda gone: replace(refine(gone), budget=hasty),
    )
    made, best = make_room(problem), cheapest(problem)
    if isinstance(made, Infeasible):
        event("proven" if made.proven else "refused")
        assert best is None or not made.proven
        return
    event("cheapest" if made.optimal else "minimal")
    assert best is not None
    assert cost_of(problem, made.evicted) >= best
    assert verify_room(problem, made, minimal=True) == []
    assert cost_of(problem, made.evicted) == best or not made.optimal


@given(rooms())
@thorough
def test_what_a_domain_costs_at_least_is_never_more_than_what_it_costs(problem):
    racks = problem.problem.nodes.domains["rack"]
    ruled = (*(rule for rule in problem.problem.rules if not isinstance(rule, Within)), Within("rack"))
    problem = replace(problem, problem=replace(problem.problem, rules=ruled))
    highest = max((gang.priority for gang in problem.gangs), default=0)
    found = pieces(problem, highest)
    instance = build(problem.freed(found.residents))
    floors = least_costs(problem, instance, found)
    for rack in range(int(racks.max()) + 1):
        segment = instance.segment_ids()[racks == rack]
        here = [
            replace(d, mask=(racks == rack) & (True if d.mask is None else d.mask)) for d in problem.problem.demands
        ]
        inside = replace(problem, problem=replace(problem.problem, demands=tuple(here)))
        costs = [cost[1:] for cost, gone in sets(problem) if cost[2] <= 3 and fits(inside, gone)]
        if costs and segment.size:
            event("a domain can be cleared")
            assert floors[int(segment[0])] <= min(costs)
