"""Devices as bins, against trying every device for every pod: whole devices, shares of one, several pools."""

from __future__ import annotations

import os
from dataclasses import replace
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from scheduler.placement import (
    BadProblem,
    Budget,
    Demand,
    DeviceAsk,
    Devices,
    Minimum,
    NodeView,
    Placement,
    PlacementProblem,
    UnsupportedRule,
    VictimProblem,
    Within,
    assign,
    explain,
    make_room,
    place,
    verify,
)
from scheduler.placement.engine import place_by

EXAMPLES = int(os.environ.get("MUSTER_EXAMPLES", "60"))
thorough = settings(
    max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much]
)
SIZE = 10


@st.composite
def problems(draw, *, rules=True):
    """Up to 3 nodes of up to 3 devices in one or two pools, up to 3 demands of up to 3 pods."""
    size = draw(st.integers(1, 3))
    pools = {}
    for name in ("gpu", "mig")[: draw(st.integers(1, 2))]:
        bins = draw(st.integers(1, 3))
        left = st.sampled_from([0, 3, 5, 7, 10, 10, 10])
        pools[name] = Devices(np.array([[draw(left) for _ in range(size)] for _ in range(bins)], dtype=np.int64), SIZE)
    nodes = NodeView(
        names=[f"n{node}" for node in range(size)],
        resources=("cpu",),
        free=np.array([[draw(st.integers(0, 6)) for _ in range(size)]], dtype=np.int64),
        slots=np.full(size, 4, dtype=np.int64),
        domains={"rack": np.array([draw(st.integers(-1, 1)) for _ in range(size)], dtype=np.int32)},
        devices=pools,
    )
    number = draw(st.integers(1, 3))
    demands = []
    for index in range(number):
        count = draw(st.integers(0, 3 if number < 3 else 2))
        ask = None
        if draw(st.sampled_from([True, True, True, False])):
            many = draw(st.sampled_from([1, 1, 1, 2, 3]))
            amount = SIZE if many > 1 else draw(st.sampled_from([2, 3, 4, 5, 6, 8, 10]))
            ask = DeviceAsk(draw(st.sampled_from(sorted(pools))), amount, many)
        scores = np.array(draw(st.lists(st.integers(0, 3), min_size=size, max_size=size)), dtype=np.int64)
        demands.append(
            Demand(
                f"d{index}",
                np.array([draw(st.integers(0, 2))], dtype=np.int64),
                count,
                draw(st.sampled_from([0, count])),
                scores=draw(st.sampled_from([None, scores])),
                devices=ask,
            )
        )
    chosen = []
    if rules and draw(st.booleans()):
        chosen.append(Minimum(tuple(range(number)), draw(st.integers(0, 4))))
    if rules and draw(st.booleans()):
        chosen.append(Within("rack"))
    return PlacementProblem(
        nodes,
        tuple(demands),
        tuple(chosen),
        budget=Budget(5.0, 60.0, 1000),
        objective=draw(st.sampled_from(["pack", "spread", "scores"])),
        maximize=draw(st.booleans()),
    )


def seated(left, pods):
    """Whether each pod (amount, devices) finds its devices: every choice is tried."""
    if not pods:
        return True
    (amount, count), *others = pods
    for chosen in combinations([d for d, rest in enumerate(left) if rest >= amount], count):
        if seated([rest - amount * (d in chosen) for d, rest in enumerate(left)], others):
            return True
    return False


def holds(problem, table):
    """Whether pods (demands by nodes) break no rule but "no more than needed"."""
    nodes = problem.nodes
    for demand, row in zip(problem.demands, table, strict=True):
        if not demand.minimum <= sum(row) <= demand.count:
            return False
    for rule in problem.rules:
        if isinstance(rule, Minimum) and sum(sum(table[d]) for d in rule.demands) < rule.count:
            return False
        if isinstance(rule, Within):
            racks = {int(nodes.domains["rack"][n]) for row in table for n, pods in enumerate(row) if pods}
            if len(racks) > 1 or -1 in racks:
                return False
    for node in range(len(nodes.names)):
        pods = [row[node] for row in table]
        cpu = sum(int(demand.requests[0]) * n for demand, n in zip(problem.demands, pods, strict=True))
        if sum(pods) > nodes.slots[node] or cpu > nodes.free[0, node]:
            return False
        for name, pool in nodes.devices.items():
            asked = []
            for demand, n in zip(problem.demands, pods, strict=True):
                if demand.devices is not None and demand.devices.pool == name:
                    asked += [(demand.devices.amount, demand.devices.count)] * n
            if not seated(pool.free[:, node].tolist(), asked):
                return False
    return True


def every_table(problem):
    size = len(problem.nodes.names)
    rows = [
        [row for row in product(range(demand.count + 1), repeat=size) if sum(row) <= demand.count]
        for demand in problem.demands
    ]
    return product(*rows)


def most(problem):
    """The most pods of any placement, None where there is none."""
    return max((sum(map(sum, table)) for table in every_table(problem) if holds(problem, table)), default=None)


def as_table(problem, counts):
    return [[dict(row).get(node, 0) for node in range(len(problem.nodes.names))] for row in counts]


@given(problems())
@thorough
def test_an_answer_is_what_trying_every_device_gives(problem):
    answer, truth = place(problem), most(problem)
    if isinstance(answer, Placement):
        event(f"placed by {answer.method}")
        assert holds(problem, as_table(problem, answer.counts))
        assert truth is not None
        assert answer.optimal
        assert answer.total == truth or not problem.maximize
    else:
        event(f"refused: {answer.cause}")
        assert answer.proven
        assert truth is None


@pytest.mark.parametrize("method", ["counting", "greedy", "pattern", "integer"])
@given(problems())
@thorough
def test_no_step_alone_contradicts_the_truth(method, problem):
    answer, truth = place_by(problem, [method]), most(problem)
    if isinstance(answer, Placement):
        assert holds(problem, as_table(problem, answer.counts))
        assert answer.total == truth or not (problem.maximize and answer.optimal)
    else:
        assert truth is None or not answer.proven
        assert answer.proven or method != "integer"


@given(problems(rules=False), st.data())
@thorough
def test_verify_says_what_trying_every_device_says(problem, data):
    problem = replace(problem, maximize=True)
    row = st.lists(st.integers(0, 2), min_size=len(problem.nodes.names), max_size=len(problem.nodes.names))
    counts = tuple(tuple((n, pods) for n, pods in enumerate(data.draw(row)) if pods) for _ in problem.demands)
    assert (verify(problem, Placement(counts, "greedy")) == []) == holds(problem, as_table(problem, counts))


@given(problems())
@thorough
def test_every_pod_gets_devices_of_its_own(problem):
    answer = place(problem)
    if not isinstance(answer, Placement):
        return
    left = {name: pool.free.copy() for name, pool in problem.nodes.devices.items()}
    for demand, row, seats in zip(problem.demands, answer.counts, assign(problem, answer), strict=True):
        if demand.devices is None:
            assert seats == {}
            continue
        assert {node: len(pods) for node, pods in seats.items()} == dict(row)
        for node, pods in seats.items():
            for devices in pods:
                assert len(set(devices)) == len(devices) == demand.devices.count
                for device in devices:
                    left[demand.devices.pool][device, node] -= demand.devices.amount
    assert all((rest >= 0).all() for rest in left.values())


def one(ask, *, left=((1000, 400),), count=1, pools=("gpu",)):
    """Nodes whose devices have so much left, and one demand."""
    free = np.array(left, dtype=np.int64).T
    nodes = NodeView(
        names=[f"n{n}" for n in range(len(left))],
        resources=("cpu",),
        free=np.full((1, len(left)), 100, dtype=np.int64),
        slots=np.full(len(left), 100, dtype=np.int64),
        devices={name: Devices(free) for name in pools},
    )
    return PlacementProblem(nodes, (Demand("d", np.zeros(1, dtype=np.int64), count, count, devices=ask),))


def test_shares_do_not_add_up_over_devices():
    answer = place(one(DeviceAsk("gpu", 600), left=((400, 400), (500, 500))))
    assert not isinstance(answer, Placement)
    assert answer.proven
    assert answer.lacks.binding is not None
    assert (answer.lacks.binding.resource, answer.lacks.binding.needed, answer.lacks.binding.free) == ("gpu", 600, 1800)
    assert ("devices",) in explain(one(DeviceAsk("gpu", 600), left=((400, 400), (500, 500))), answer).relaxations


def test_a_share_goes_to_the_device_where_it_leaves_the_least():
    problem = one(DeviceAsk("gpu", 400), left=((1000, 450, 700),))
    assert assign(problem, place(problem)) == ({0: ((1,),)},)


def test_a_device_of_which_a_share_is_taken_is_not_whole():
    assert isinstance(place(one(DeviceAsk("gpu", 1000, 2), left=((1000, 1000, 900),))), Placement)
    assert not isinstance(place(one(DeviceAsk("gpu", 1000, 2), left=((1000, 900, 900),))), Placement)


@pytest.mark.parametrize(
    ("ask", "field"),
    [
        (DeviceAsk("tpu", 1), "demand 'd'.devices.pool: there is no pool 'tpu'"),
        (DeviceAsk("gpu", 0), "demand 'd'.devices.amount: 0 is not between 1 and the size 1000"),
        (DeviceAsk("gpu", 1001), "demand 'd'.devices.amount: 1001"),
        (DeviceAsk("gpu", 500, 2), "demand 'd'.devices.amount: 2 devices are taken whole"),
        (DeviceAsk("gpu", 1000, 0), "demand 'd'.devices.count: 0 is less than 1"),
    ],
)
def test_an_ask_that_means_nothing_names_its_field(ask, field):
    with pytest.raises(BadProblem, match=field):
        place(one(ask))


def test_more_left_than_a_device_has_names_the_pool():
    with pytest.raises(BadProblem, match=r"nodes.devices\['gpu'\].free: not between 0 and the size 1000"):
        place(one(DeviceAsk("gpu", 1), left=((1001,),)))


def test_a_pool_named_as_a_resource_is_refused():
    with pytest.raises(BadProblem, match="'cpu' is the name of a resource too"):
        place(one(DeviceAsk("cpu", 1), pools=("cpu",)))


def test_room_is_not_made_among_devices_that_nobody_says_he_holds():
    with pytest.raises(UnsupportedRule, match=r"demand 'd'\.devices"):
        make_room(VictimProblem(one(DeviceAsk("gpu", 1000)), (), ()))
