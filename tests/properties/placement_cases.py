"""Small placement problems, and answers found by trying everything: written for these tests, sharing no code with the
engine or with `verify`."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from hypothesis import strategies as st

from scheduler.placement import (
    Apart,
    AtMost,
    Budget,
    Demand,
    Exclusive,
    Minimum,
    NodeView,
    PlacementProblem,
    Within,
)

UNIT = 2**38 + 1
"""Memory comes in odd amounts of bytes, so that nothing is exact by luck."""


@st.composite
def problems(draw, *, rules=True, roomy=False):
    """Problems of up to 5 nodes, 4 demands and 3 resources that brute force can decide."""
    size = draw(st.integers(1, 5))
    width = draw(st.integers(1, 3))
    scale = [1, 1000, UNIT][:width]
    amount = st.integers(-1, 6 if roomy else 4)
    free = np.array([[draw(amount) * unit for _ in range(size)] for unit in scale], dtype=np.int64)
    slots = np.array([draw(st.integers(0, 4)) for _ in range(size)], dtype=np.int64)
    domains = {
        level: np.array([draw(st.integers(-1, 2)) for _ in range(size)], dtype=np.int32) for level in ("rack", "zone")
    }
    nodes = NodeView(
        names=[f"n{node}" for node in range(size)],
        resources=("gpu", "cpu", "memory")[:width],
        free=free,
        slots=slots,
        domains=domains,
        domain_names={level: ["a", "b", "c"] for level in domains},
    )
    number = draw(st.integers(1, 4))
    shapes = [draw(st.lists(st.integers(0, 3), min_size=width, max_size=width)) for _ in range(draw(st.integers(1, 3)))]
    demands = tuple(_demand(draw, index, size, number, scale, draw(st.sampled_from(shapes))) for index in range(number))
    chosen = tuple(_rules(draw, number)) if rules else ()
    return PlacementProblem(
        nodes=nodes,
        demands=demands,
        rules=chosen,
        seed=draw(st.integers(0, 3)),
        budget=Budget(deterministic_time=5.0, wall_limit=60.0, max_domains=1000),
        objective=draw(st.sampled_from(["pack", "spread", "scores"])),
        maximize=draw(st.booleans()),
    )


def _demand(draw, index, size, number, scale, shape):
    count = draw(st.integers(0, 4 if number <= 2 else 2))
    minimum = draw(st.sampled_from([0, count, count // 2]))
    mask = np.array(draw(st.lists(st.booleans(), min_size=size, max_size=size))) if draw(st.booleans()) else None
    scores = None
    if draw(st.booleans()):
        scores = np.array(draw(st.lists(st.integers(-2, 2), min_size=size, max_size=size)), dtype=np.int64)
    return Demand(
        name=f"d{index}",
        requests=np.array([amount * unit for amount, unit in zip(shape, scale, strict=True)], dtype=np.int64),
        count=count,
        minimum=minimum,
        mask=mask,
        scores=scores,
        max_per_node=draw(st.sampled_from([None, None, 1, 2])),
    )


def _rules(draw, number) -> Iterator[object]:
    some = st.lists(st.integers(0, number - 1), min_size=1, max_size=number, unique=True).map(tuple)
    some_or_all = st.one_of(st.none(), some)
    level = st.sampled_from(["rack", "zone", ""])
    for _ in range(draw(st.integers(0, 3))):
        which = draw(st.sampled_from(["minimum", "at_most", "within", "apart", "exclusive"]))
        if which == "minimum":
            yield Minimum(draw(some), draw(st.integers(0, 6)))
        elif which == "at_most":
            weights = tuple((demand, draw(st.integers(0, 3)) * UNIT) for demand in draw(some))
            yield AtMost(weights, draw(st.integers(0, 8)) * UNIT + draw(st.sampled_from([0, 5])))
        elif which == "within":
            yield Within(draw(level), draw(st.sampled_from([True, True, False])), draw(some_or_all))
        elif which == "apart":
            yield Apart(draw(level), draw(st.integers(0, 2)), draw(some_or_all))
        elif number > 1:
            cut = draw(st.integers(1, number - 1))
            order = draw(st.permutations(range(number)))
            yield Exclusive(tuple(order[:cut]), tuple(order[cut:][: draw(st.integers(1, 2))]))


def allowed(problem: PlacementProblem, table: list[list[int]]) -> bool:
    """Whether pods (demands by nodes) break no rule but "no more than needed"; naive on purpose."""
    return (
        all(problem.demands[d].minimum <= sum(table[d]) for d in range(len(problem.demands)))
        and _upper(problem, table)
        and all(
            sum(sum(table[d]) for d in rule.demands) >= rule.count
            for rule in problem.rules
            if isinstance(rule, Minimum)
        )
    )


def _upper(problem: PlacementProblem, table: list[list[int]]) -> bool:
    """Whether pods break none of the rules that more pods can only break further."""
    nodes = problem.nodes
    size = len(nodes.names)
    for demand, row in zip(problem.demands, table, strict=True):
        if sum(row) > demand.count:
            return False
        for node in range(size):
            if row[node] and demand.mask is not None and not demand.mask[node]:
                return False
            if demand.max_per_node is not None and row[node] > demand.max_per_node:
                return False
    for node in range(size):
        pods = [row[node] for row in table]
        if sum(pods) > max(0, int(nodes.slots[node])):
            return False
        for resource in range(len(nodes.resources)):
            asked = sum(int(d.requests[resource]) * n for d, n in zip(problem.demands, pods, strict=True))
            if asked > 0 and asked > int(nodes.free[resource, node]):
                return False
    return all(_keeps(problem, rule, table) for rule in problem.rules)


def _keeps(problem: PlacementProblem, rule: object, table: list[list[int]]) -> bool:
    size = len(problem.nodes.names)

    def domain(level: str, node: int) -> int:
        return node if level == "" else int(problem.nodes.domains[level][node])

    if isinstance(rule, AtMost):
        return sum(weight * sum(table[d]) for d, weight in rule.weights) <= rule.limit
    if isinstance(rule, Exclusive):
        return not any(
            any(table[d][node] for d in rule.demands_a) and any(table[d][node] for d in rule.demands_b)
            for node in range(size)
        )
    if isinstance(rule, Within | Apart):
        demands = range(len(table)) if rule.demands is None else rule.demands
        pods: dict[int, int] = {}
        for node in range(size):
            here = sum(table[d][node] for d in demands)
            if here:
                pods[domain(rule.level, node)] = pods.get(domain(rule.level, node), 0) + here
        if isinstance(rule, Within):
            return not rule.hard or (len(pods) <= 1 and -1 not in pods)
        return all(n <= rule.limit for number, n in pods.items() if number != -1)
    return True


def most(problem: PlacementProblem) -> int | None:
    """Return the largest number of pods that any valid placement holds; None when there is no valid placement."""
    size, number = len(problem.nodes.names), len(problem.demands)
    table = [[0] * size for _ in range(number)]
    best: list[int] = []

    def put(cell: int, total: int) -> bool:
        """Fill one (demand, node) after the other; True = enough has been seen."""
        if cell == size * number:
            if allowed(problem, table) and (not best or total > best[0]):
                best[:] = [total]
            return bool(best) and (not problem.maximize or best[0] == ceiling)
        demand, node = divmod(cell, size)
        reachable = total + sum(d.count for d in problem.demands[demand:]) - sum(table[demand][:node])
        if best and reachable <= best[0]:
            return False
        if node == 0 and demand and sum(table[demand - 1]) < problem.demands[demand - 1].minimum:
            return False
        for pods in range(problem.demands[demand].count - sum(table[demand][:node]), -1, -1):
            table[demand][node] = pods
            if (pods == 0 or _upper(problem, table)) and put(cell + 1, total + pods):
                return True
        table[demand][node] = 0
        return False

    ceiling = sum(demand.count for demand in problem.demands)
    put(0, 0)
    return best[0] if best else None


def as_table(problem: PlacementProblem, counts) -> list[list[int]]:
    """Return pods as demands by nodes."""
    table = [[0] * len(problem.nodes.names) for _ in problem.demands]
    for demand, row in enumerate(counts):
        for node, pods in row:
            table[demand][node] += pods
    return table


def larger(seed: int) -> PlacementProblem:
    """A problem of up to 40 nodes in racks of four, with several nodes of each class: too large to try everything."""
    random = np.random.default_rng(seed)

    def some() -> tuple[int, ...]:
        return tuple(random.permutation(number)[: random.integers(1, number + 1)].tolist())

    size, number = int(random.integers(6, 41)), int(random.integers(2, 6))
    free = np.stack(
        [
            random.choice([0, 0, 1, 2, 3, 4, 5, 8], size),
            random.integers(0, 13, size) * 1000 + random.integers(0, 1000, size),
            random.integers(0, 13, size) * UNIT + random.integers(0, 10**6, size),
        ]
    ).astype(np.int64)
    nodes = NodeView(
        names=[f"n{node}" for node in range(size)],
        resources=("gpu", "cpu", "memory"),
        free=free,
        slots=random.integers(0, 10, size),
        domains={"rack": (np.arange(size) // 4).astype(np.int32)},
    )
    demands = []
    for index in range(number):
        count = int(random.integers(1, 13))
        amounts = random.integers(0, [6, 7, 7]) * np.array([1, 1000, UNIT])
        mask = random.random(size) < 0.7 if random.random() < 0.3 else None
        crowd = int(random.integers(1, 3)) if random.random() < 0.3 else None
        minimum = int(random.choice([0, count, count, count // 2]))
        demands.append(Demand(f"d{index}", amounts, count, minimum, mask=mask, max_per_node=crowd))
    possible = [
        Minimum(some(), int(random.integers(0, 13))),
        AtMost(tuple((d, int(random.integers(0, 4)) * UNIT) for d in some()), int(random.integers(0, 41)) * UNIT),
        Within("rack"),
        Apart("", int(random.integers(1, 4)), some()),
        Exclusive((0,), tuple(range(1, number))),
    ]
    rules = tuple(rule for rule in possible if random.random() < 0.2)
    budget = Budget(deterministic_time=5.0, wall_limit=60.0, max_domains=1000)
    return PlacementProblem(nodes, tuple(demands), rules, budget=budget, maximize=bool(random.random() < 0.3))
