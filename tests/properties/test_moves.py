"""Moving running pods, against trying every move on small clusters, in both directions."""

from __future__ import annotations

import os
from dataclasses import replace
from itertools import product

import numpy as np
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from scheduler.placement import (
    Apart,
    AtMostDomains,
    AtMostEvicted,
    Demand,
    Infeasible,
    MoveProblem,
    NodeView,
    Part,
    Parts,
    Placement,
    PlacementProblem,
    Relocated,
    Resident,
    RunningGang,
    Segments,
    Together,
    VictimProblem,
    Within,
    place,
    relocate,
    verify_moves,
)
from scheduler.placement.moves import price

EXAMPLES = int(os.environ.get("MUSTER_EXAMPLES", "40"))
thorough = settings(
    max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much]
)
RACKS = np.array([0, 0, 1, -1], dtype=np.int32)


@st.composite
def questions(draw):
    """Up to four nodes, up to five residents in gangs, pods that want room: mostly nearly whole nodes."""
    tight = draw(st.sampled_from([True, True, True, False]))
    size = draw(st.integers(2 if tight else 1, 4))
    whole = draw(st.integers(2, 4))
    free = np.array([[whole] * size, [whole * 2] * size], dtype=np.int64)
    slots = np.full(size, draw(st.integers(1, 4)), dtype=np.int64)
    residents = []
    for number in range(draw(st.integers(2 if tight else 0, 5))):
        holds = np.array([draw(st.integers(int(tight), 2)), draw(st.integers(0, 3))], dtype=np.int64)
        node = draw(st.integers(0, size - 1))
        able = [n for n in range(size) if slots[n] >= 1 and (free[:, n] >= holds).all()]
        if node not in able and able and draw(st.sampled_from([True, True, True, False])):
            node = draw(st.sampled_from(able))
        free[:, node] -= holds
        slots[node] -= 1
        residents.append(Resident(node, holds, draw(st.integers(0, 3)), f"pod-{number}"))
    gangs = []
    rest = list(range(len(residents)))
    while rest:
        count = min(len(rest), draw(st.sampled_from([1, 1, 1, 2, 3])))
        mine, rest = tuple(rest[:count]), rest[count:]
        fixed = draw(st.sampled_from([0, 0, 0, 0, 1]))
        least = 1 if count == 1 else draw(st.integers(0, count + fixed))
        roles = ((mine[:1], draw(st.integers(0, 1))),) if count > 1 and draw(st.booleans()) else ()
        gangs.append(RunningGang(mine, least, roles, fixed, draw(st.integers(0, 2))))
    rows = []
    if residents and draw(st.booleans()):
        some = draw(st.lists(st.integers(0, len(residents) - 1), min_size=1, unique=True))
        rows.append(AtMostEvicted(tuple(some), draw(st.integers(0, 2))))
    flags = st.lists(st.sampled_from([True, True, False]), min_size=size, max_size=size)
    masks = (None, np.array(draw(flags)))
    kinds = tuple(draw(st.sampled_from([0, 0, 1])) for _ in residents)
    together = tuple(Together(n, "rack") for n in range(len(gangs)) if draw(st.sampled_from([True, False, False])))
    view = NodeView(
        [f"node-{n}" for n in range(size)], ("gpu", "cpu"), free, slots, {"rack": RACKS[:size]}, {"rack": ["a", "b"]}
    )
    demands = []
    for number in range(1 if tight else draw(st.integers(1, 2))):
        gpus = draw(st.integers(whole - 1, whole) if tight else st.integers(0, whole))
        needs = np.array([gpus, draw(st.integers(0, 3))], dtype=np.int64)
        count = draw(st.integers(1, max(1, size - 1)))
        mask = draw(st.sampled_from([None, None, np.array(draw(flags))]))
        demands.append(
            Demand(f"role-{number}", needs, count, draw(st.integers(0, count) if not tight else st.just(count)), mask)
        )
    plain = [(), (), (Within("rack"),), (Apart("", 1),), (Apart("rack", 2),)]
    trees = [(Within("rack", True, (0,)),), (AtMostDomains("rack", 1),), (Segments("rack", 2),)]
    rules = draw(st.sampled_from([*plain, *trees, (Parts((Part((0,), 2),), 1),)]))
    problem = PlacementProblem(view, tuple(demands), rules, seed=draw(st.integers(0, 3)))
    return MoveProblem(VictimProblem(problem, tuple(residents), tuple(gangs), tuple(rows)), masks, kinds, together)


def cheapest(problem):
    """Try everybody on every node or where they are; return the lowest price, None when there is no way."""
    best = None
    size = len(problem.room.problem.nodes.names)
    stay = size
    for targets in product(range(size + 1), repeat=len(problem.room.residents)):
        moves = tuple((resident, node) for resident, node in enumerate(targets) if node != stay)
        cost = price(problem, moves)
        if best is not None and cost >= best:
            continue
        if any(problem.mask(r) is not None and not problem.mask(r)[node] for r, node in moves):
            continue
        placed = place(problem.after(moves))
        if isinstance(placed, Placement) and not verify_moves(problem, Relocated(placed, moves, True)):
            best = cost
    return best


def few(problem):
    """Whether trying everything is cheap enough, and it does not fit as things are (of those, few are enough)."""
    if isinstance(place(problem.room.problem), Placement) and problem.room.problem.seed % 4:
        return False
    return (len(problem.room.problem.nodes.names) + 1) ** len(problem.room.residents) <= 700


@given(questions().filter(few))
@thorough
def test_an_answer_is_the_cheapest_of_all_and_no_means_no(problem):
    answer, truth = relocate(problem), cheapest(problem)
    if isinstance(answer, Infeasible):
        event("refused")
        assert answer.proven
        assert truth is None
        return
    event(f"{len(answer.moves)} moves")
    assert verify_moves(problem, answer) == []
    assert answer.optimal
    assert price(problem, answer.moves) == truth


@given(questions(), st.randoms(use_true_random=False))
@thorough
def test_the_order_of_residents_changes_nothing(problem, random):
    room = problem.room
    order = list(range(len(room.residents)))
    random.shuffle(order)
    new = {old: place for place, old in enumerate(order)}

    def of(residents):
        return tuple(new[resident] for resident in residents)

    gangs = [
        replace(gang, residents=of(gang.residents), roles=tuple((of(r), least) for r, least in gang.roles))
        for gang in room.gangs
    ]
    turned = MoveProblem(
        VictimProblem(
            room.problem,
            tuple(room.residents[old] for old in order),
            tuple(gangs[::-1]),
            tuple(AtMostEvicted(of(row.residents), row.most) for row in room.rows),
        ),
        problem.masks,
        tuple(problem.kinds[old] for old in order),
        tuple(Together(len(gangs) - 1 - rule.gang, rule.level) for rule in problem.together),
    )
    one, other = relocate(problem), relocate(turned)
    assert type(one) is type(other)
    if isinstance(one, Relocated):
        assert one.placement == other.placement
        assert one.moves == tuple(sorted((order[resident], node) for resident, node in other.moves))
