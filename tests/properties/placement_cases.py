"""Small placement problems, and answers found by trying everything: written for these tests, sharing no code with the
engine or with `verify`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from hypothesis import strategies as st

from scheduler.model.rules import Cap, Follow, Once, Repel, Spread
from scheduler.placement import (
    Apart,
    AtMost,
    AtMostDomains,
    AtMostGroups,
    Budget,
    Demand,
    Minimum,
    NodeView,
    Part,
    Parts,
    PlacementProblem,
    Segments,
    Within,
)

UNIT = 2**38 + 1
"""Memory comes in odd amounts of bytes, so that nothing is exact by luck."""
MEMBER_RULES = ("repel", "follow", "spread", "cap", "once")


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
    chosen = tuple(_rules(draw, number, size, nodes.resources)) if rules else ()
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


def _rules(draw, number, size, resources) -> Iterator[object]:
    some = st.lists(st.integers(0, number - 1), min_size=1, max_size=number, unique=True).map(tuple)
    some_or_all = st.one_of(st.none(), some)
    level = st.sampled_from(["rack", "zone", ""])
    for _ in range(draw(st.integers(0, 3))):
        which = draw(st.sampled_from(["minimum", "at_most", "within", "apart", *MEMBER_RULES]))
        if which == "minimum":
            yield Minimum(draw(some), draw(st.integers(0, 6)))
        elif which == "at_most":
            weights = tuple((demand, draw(st.integers(0, 3)) * UNIT) for demand in draw(some))
            yield AtMost(weights, draw(st.integers(0, 8)) * UNIT + draw(st.sampled_from([0, 5])))
        elif which == "within":
            yield Within(draw(level), draw(st.sampled_from([True, True, False])), draw(some_or_all))
        elif which == "apart":
            yield Apart(draw(level), draw(st.integers(0, 2)), draw(some_or_all))
        else:
            yield member_rule(draw, which, number, size, resources)


def member_rule(draw, which, number, size, resources=("gpu",)):
    """A rule between pods; domains are numbered 0 to 2, nodes 0 to size - 1."""
    some = st.lists(st.integers(0, number - 1), min_size=1, max_size=number, unique=True).map(tuple)
    level = draw(st.sampled_from(["zone", "rack", ""]))
    flags = st.booleans()

    def over(level, values):
        count = size if level == "" else 3
        return draw(st.lists(values, min_size=count, max_size=count))

    if which == "repel":
        return Repel(level, draw(some), draw(some))
    if which == "follow":
        levels = tuple(draw(st.lists(st.sampled_from(["zone", "rack", ""]), min_size=1, max_size=2, unique=True)))
        first = draw(flags)
        rare = st.sampled_from([False, False, True])
        present = tuple(np.array(over(one, st.just(False) if first else rare)) for one in levels)
        return Follow(levels, draw(some), draw(some), present, first)
    if which == "spread":
        present = np.array(over(level, st.integers(0, 2)), dtype=np.int64)
        nodes = np.array(draw(st.lists(st.sampled_from([True, True, True, False]), min_size=size, max_size=size)))
        carriers = draw(some)
        counted = draw(st.one_of(st.just(carriers), some))
        return Spread(
            level, carriers, counted, present, nodes, draw(st.integers(1, 2)), draw(st.sampled_from([1, 1, 2, 3]))
        )
    if which == "cap":
        weights = tuple((demand, draw(st.integers(0, 2))) for demand in draw(some))
        return Cap(level, weights, np.array(over(level, st.integers(0, 4)), dtype=np.int64))
    place = draw(st.integers(0, len(resources) - 1))
    amount = draw(st.integers(0, 2)) * [1, 1000, UNIT][place]
    already = np.array(draw(st.lists(st.sampled_from([False, False, True]), min_size=size, max_size=size)))
    return Once(resources[place], amount, draw(some), already)


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
        and all(_in_multiples(problem, rule, table) for rule in problem.rules if isinstance(rule, Segments))
        and all(_in_parts(rule.parts, rule.least, table) for rule in problem.rules if isinstance(rule, Parts))
        and all(_spread_holds(problem, rule, table) for rule in problem.rules if isinstance(rule, Spread))
        and _some_order(problem, table)
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
            asked += sum(
                rule.amount
                for rule in problem.rules
                if isinstance(rule, Once)
                and rule.resource == nodes.resources[resource]
                and not rule.already[node]
                and any(pods[d] for d in rule.demands)
            )
            if asked > 0 and asked > int(nodes.free[resource, node]):
                return False
    return all(_keeps(problem, rule, table) for rule in problem.rules)


def _keeps(problem: PlacementProblem, rule: object, table: list[list[int]]) -> bool:
    size = len(problem.nodes.names)

    def domain(level: str, node: int) -> int:
        return node if level == "" else int(problem.nodes.domains[level][node])

    if isinstance(rule, AtMost):
        return sum(weight * sum(table[d]) for d, weight in rule.weights) <= rule.limit
    if isinstance(rule, Repel):
        where = [(d, domain(rule.level, n)) for d, row in enumerate(table) for n in range(size) for _ in range(row[n])]
        return not any(
            one in rule.carriers and other in rule.targets and here == there >= 0 and first != second
            for first, (one, here) in enumerate(where)
            for second, (other, there) in enumerate(where)
        )
    if isinstance(rule, Cap):
        spent: dict[int, int] = {}
        for demand, weight in rule.weights:
            for node in range(size):
                spent[domain(rule.level, node)] = spent.get(domain(rule.level, node), 0) + weight * table[demand][node]
        return all(amount <= rule.limits[number] for number, amount in spent.items() if number >= 0)
    if isinstance(rule, AtMostGroups):
        for here in {domain(rule.level, node) for node in range(size)} - {-1}:
            nodes = [node for node in range(size) if domain(rule.level, node) == here]
            before = {group for number, group in rule.present if number == here}
            come = {g for g, group in enumerate(rule.groups) if any(table[d][node] for d in group for node in nodes)}
            if come - before and len(come | before) > rule.limit:
                return False
    if isinstance(rule, Within | Apart | AtMostDomains):
        demands = range(len(table)) if rule.demands is None else rule.demands
        pods: dict[int, int] = {}
        for node in range(size):
            here = sum(table[d][node] for d in demands)
            if here:
                pods[domain(rule.level, node)] = pods.get(domain(rule.level, node), 0) + here
        if isinstance(rule, Within):
            return not rule.hard or (len(pods) <= 1 and -1 not in pods)
        if isinstance(rule, AtMostDomains):
            return not pods or (-1 not in pods and len({*pods, *rule.present}) <= rule.limit)
        return all(n <= rule.limit for number, n in pods.items() if number != -1)
    return True


def _in_multiples(problem: PlacementProblem, rule: Segments, table: list[list[int]]) -> bool:
    size = len(problem.nodes.names)
    ids = list(range(size)) if rule.level == "" else problem.nodes.domains[rule.level].tolist()
    demands = range(len(table)) if rule.demands is None else rule.demands
    for domain in set(ids):
        here = sum(table[d][node] for d in demands for node in range(size) if ids[node] == domain)
        before = sum(pods for number, pods in rule.present if number == domain)
        if here and (domain == -1 or (here + before) % rule.size):
            return False
    return True


def _in_parts(parts: tuple[Part, ...], least: int, table: list[list[int]]) -> bool:
    placed = 0
    for part in parts:
        pods = sum(sum(table[d]) for d in set(part.demands))
        placed += pods > 0
        if pods and (pods < part.minimum or not _in_parts(part.parts, part.least, table)):
            return False
    return placed >= least


def _spread_holds(problem: PlacementProblem, rule: Spread, table: list[list[int]]) -> bool:
    size = len(problem.nodes.names)
    ids = list(range(size)) if rule.level == "" else problem.nodes.domains[rule.level].tolist()
    held = rule.present.tolist()
    for demand in rule.counted:
        for node in range(size):
            if rule.nodes[node] and ids[node] >= 0:
                held[ids[node]] += table[demand][node]
    domains = {ids[node] for node in range(size) if rule.nodes[node] and ids[node] >= 0}
    least = min(held[d] for d in domains) if len(domains) >= rule.min_domains else 0
    receiving = {ids[node] for demand in rule.carriers for node in range(size) if table[demand][node]}
    return all(d >= 0 and held[d] - least <= rule.max_skew for d in receiving)


def _some_order(problem: PlacementProblem, table: list[list[int]]) -> bool:
    """Try every order of placing the pods one by one."""
    rules = [rule for rule in problem.rules if isinstance(rule, Follow)]
    if not rules:
        return True
    size = len(problem.nodes.names)

    def domain(level: str, node: int) -> int:
        return node if level == "" else int(problem.nodes.domains[level][node])

    def may(demand: int, node: int, placed: tuple[tuple[int, int], ...]) -> bool:
        for rule in rules:
            if demand not in rule.followers:
                continue
            around = [domain(level, node) for level in rule.levels]
            if -1 in around:
                return False
            before = [n for d, n in placed if d in rule.targets]
            if rule.first and demand in rule.targets and not before:
                continue
            for level, here, present in zip(rule.levels, around, rule.present, strict=True):
                if not present[here] and here not in [domain(level, n) for n in before]:
                    return False
        return True

    tried: set[tuple[tuple[int, int], ...]] = set()

    def order(placed: tuple[tuple[int, int], ...]) -> bool:
        if placed in tried:
            return False
        tried.add(placed)
        cells = [(d, n) for d in range(len(table)) for n in range(size) if placed.count((d, n)) < table[d][n]]
        return not cells or any(may(d, n, placed) and order(tuple(sorted((*placed, (d, n))))) for d, n in cells)

    return order(())


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
        Repel("", (0,), tuple(range(1, number))),
    ]
    rules = tuple(rule for rule in possible if random.random() < 0.2)
    budget = Budget(deterministic_time=5.0, wall_limit=60.0, max_domains=1000)
    return PlacementProblem(nodes, tuple(demands), rules, budget=budget, maximize=bool(random.random() < 0.3))


def crossing(seed: int, kinds: tuple[str, ...] = MEMBER_RULES) -> PlacementProblem:
    """A problem of up to 5 nodes and 6 pods in which rules between pods decide, of the named kinds and others."""
    random = np.random.default_rng(seed)

    def chance(share: float) -> bool:
        return bool(random.random() < share)

    def some() -> tuple[int, ...]:
        return tuple(sorted(random.permutation(number)[: random.integers(1, number + 1)].tolist()))

    size, number = int(random.integers(2, 6)), int(random.integers(1, 4))
    labels = [-1, 0, 0, 0, 1, 1, 1, 2, 2]
    nodes = NodeView(
        names=[f"n{node}" for node in range(size)],
        resources=("gpu", "disk"),
        free=random.integers(1, 7, (2, size)).astype(np.int64),
        slots=random.integers(1, 7, size).astype(np.int64),
        domains={level: random.choice(labels, size).astype(np.int32) for level in ("zone", "rack")},
    )
    demands, left = [], 6
    for index in range(number):
        count = int(random.integers(1, min(4, left - (number - 1 - index)) + 1))
        left -= count
        requests = np.array([random.choice([0, 0, 1, 2]), random.choice([0, 0, 0, 1])], dtype=np.int64)
        mask = random.random(size) < 0.7 if chance(0.2) else None
        scores = random.integers(-2, 3, size).astype(np.int64) if chance(0.2) else None
        minimum = int(random.choice([0, count // 2, count, count]))
        demands.append(Demand(f"d{index}", requests, count, minimum, mask, scores, 1 if chance(0.1) else None))
    rules: list[object] = [_crossing_rule(random, kinds, number, size) for _ in range(random.integers(1, 4))]
    if chance(0.2):
        rules.append(Minimum(some(), int(random.integers(0, 5))))
    if chance(0.2):
        rules.append(Within(str(random.choice(["zone", "rack"])), chance(0.8), None if chance(0.5) else some()))
    if chance(0.1):
        rules.append(Apart(str(random.choice(["zone", "rack", ""])), int(random.integers(1, 3)), some()))
    if chance(0.1):
        rules.append(AtMost(tuple((demand, 1) for demand in some()), int(random.integers(1, 6))))
    return PlacementProblem(
        nodes,
        tuple(demands),
        tuple(rules),
        budget=Budget(deterministic_time=5.0, wall_limit=60.0, max_domains=1000),
        objective=random.choice(["pack", "spread", "scores"]),
        maximize=chance(0.4),
    )


def _crossing_rule(random, kinds, number, size) -> object:
    """As `member_rule`, by a random generator: thousands of problems a minute."""

    def some() -> tuple[int, ...]:
        return tuple(sorted(random.permutation(number)[: random.integers(1, number + 1)].tolist()))

    def over(level, values):
        return random.choice(values, size if level == "" else 3)

    which, level = random.choice(kinds), str(random.choice(["zone", "rack", ""]))
    if which == "repel":
        carriers = some()
        return Repel(level, carriers, carriers if random.random() < 0.5 else some())
    if which == "follow":
        levels = [["zone"], ["rack"], [""], ["zone", "rack"], ["zone", ""]][random.integers(5)]
        first = bool(random.random() < 0.6)
        present = tuple(over(one, [False] if first else [False, False, True]).astype(np.bool_) for one in levels)
        followers = some()
        return Follow(tuple(levels), followers, followers if random.random() < 0.3 else some(), present, first)
    if which == "spread":
        carriers = some()
        counted = carriers if random.random() < 0.6 else some()
        present = over(level, [0, 0, 0, 1, 2]).astype(np.int64)
        eligible = random.random(size) < 0.85
        return Spread(
            level, carriers, counted, present, eligible, int(random.integers(1, 3)), int(random.choice([1, 1, 1, 2, 3]))
        )
    if which == "cap":
        return Cap(level, tuple((d, int(random.integers(0, 3))) for d in some()), over(level, [0, 1, 2, 3, 4, 6]))
    return Once(str(random.choice(["gpu", "disk"])), int(random.integers(0, 3)), some(), random.random(size) < 0.3)


def larger_crossing(seed: int) -> PlacementProblem:
    """A problem of up to 30 nodes in three zones, with rules between pods: too large to try everything."""
    random = np.random.default_rng(seed)
    size, number = int(random.integers(6, 31)), int(random.integers(1, 5))
    nodes = NodeView(
        names=[f"n{node}" for node in range(size)],
        resources=("gpu", "disk"),
        free=np.stack([random.choice([0, 1, 2, 4, 8], size), random.integers(0, 6, size)]).astype(np.int64),
        slots=random.integers(2, 12, size).astype(np.int64),
        domains={
            "zone": np.sort(random.integers(0, 3, size)).astype(np.int32),
            "rack": np.where(random.random(size) < 0.9, random.integers(0, 3, size), -1).astype(np.int32),
        },
    )
    demands = []
    for index in range(number):
        count = int(random.integers(1, 13))
        requests = np.array([random.choice([0, 1, 1, 2, 3]), random.choice([0, 0, 1])], dtype=np.int64)
        mask = random.random(size) < 0.8 if random.random() < 0.3 else None
        demands.append(Demand(f"d{index}", requests, count, int(random.choice([0, count, count // 2])), mask))
    rules = tuple(_crossing_rule(random, MEMBER_RULES, number, size) for _ in range(random.integers(1, 5)))
    budget = Budget(deterministic_time=20.0, wall_limit=120.0, max_domains=1000)
    return PlacementProblem(nodes, tuple(demands), rules, budget=budget, maximize=bool(random.random() < 0.4))


TREE_RULES = ("few", "segments", "parts", "within", "groups")


def tree(seed: int, kinds: tuple[str, ...] = TREE_RULES, *, maximize: bool | None = None) -> PlacementProblem:
    """A problem of up to 5 nodes in blocks and racks and up to 7 pods, with rules of the named kinds."""
    random = np.random.default_rng(seed)

    def chance(share: float) -> bool:
        return bool(random.random() < share)

    size, number = int(random.integers(2, 6)), int(random.integers(1, 5))
    rack = np.sort(random.integers(0, 4, size))
    block = np.where(chance(0.8), rack // 2, random.integers(0, 3, size))
    racks = np.where(random.random(size) < 0.1, -1, rack)
    nodes = NodeView(
        names=[f"n{node}" for node in range(size)],
        resources=("gpu", "cpu"),
        free=np.stack([random.choice([0, 1, 2, 3, 4], size), random.integers(0, 9, size)]).astype(np.int64),
        slots=random.integers(1, 7, size).astype(np.int64),
        domains={"rack": racks.astype(np.int32), "block": np.where(racks < 0, -1, block).astype(np.int32)},
    )
    demands, left = [], 7
    same = chance(0.4)
    shape = [int(random.choice([0, 1, 1, 2])), int(random.choice([0, 1]))]
    for index in range(number):
        count = int(random.integers(1, min(5, left - (number - 1 - index)) + 1))
        left -= count
        requests = shape if same else [int(random.choice([0, 1, 1, 2])), int(random.choice([0, 0, 1, 2]))]
        mask = random.random(size) < 0.7 if chance(0.1) else None
        scores = random.integers(-2, 3, size).astype(np.int64) if chance(0.2) else None
        minimum = int(random.choice([0, count // 2, count, count])) if "parts" not in kinds or chance(0.3) else 0
        demands.append(
            Demand(
                f"d{index}",
                np.array(requests, dtype=np.int64),
                count,
                minimum,
                mask,
                scores,
                1 if chance(0.1) else None,
            )
        )
    rules: list[object] = [
        rule for _ in range(random.integers(1, 4)) for rule in tree_rules(random, str(random.choice(kinds)), demands)
    ]
    if chance(0.2):
        rules.append(Minimum(tuple(range(number)), int(random.integers(0, 6))))
    if chance(0.1):
        rules.append(Apart("", int(random.integers(1, 3)), None))
    if chance(0.1):
        rules.append(AtMost(tuple((demand, 1) for demand in range(number)), int(random.integers(1, 6))))
    return PlacementProblem(
        nodes,
        tuple(demands),
        tuple(rules),
        budget=Budget(deterministic_time=20.0, wall_limit=120.0, max_domains=1000),
        objective=random.choice(["pack", "spread", "scores"]),
        maximize=chance(0.3) if maximize is None else maximize,
    )


def tree_rules(random, which: str, demands: list[Demand], wide: str = "block") -> Iterator[object]:
    """Rules of a kind over nodes, racks and wider domains."""
    number = len(demands)
    some = None
    if random.random() < 0.6:
        some = tuple(sorted(random.permutation(number)[: random.integers(1, number + 1)].tolist()))
    level = str(random.choice(["rack", "rack", wide, ""]))
    domains = random.permutation(3)
    if which == "within":
        yield Within(level or "rack", bool(random.random() < 0.85), some)
    elif which == "groups":
        places = random.integers(-1, number, number)
        groups = tuple(tuple(int(d) for d in np.flatnonzero(places == place)) for place in range(number))
        present = [(int(d), int(group)) for d in domains for group in range(number) if random.random() < 0.1]
        yield AtMostGroups(level, int(random.choice([0, 1, 1, 2, 2, 3])), groups, tuple(present))
    elif which == "few":
        present = tuple(int(d) for d in domains[: random.choice([0, 0, 0, 1, 2])])
        yield AtMostDomains(level, int(random.integers(0, 4)), some, present)
    elif which == "segments":
        present = tuple((int(d), int(random.integers(0, 4))) for d in domains[: random.choice([0, 0, 0, 1, 2])])
        size = int(random.integers(1, 4))
        yield Segments(level, size, some, present)
        if random.random() < 0.3:
            yield Segments(wide if level != wide else "rack", size * int(random.choice([1, 2])), some)
    else:
        places = random.integers(0, int(random.integers(1, number + 1)), number)
        grouped = [tuple(int(d) for d in np.flatnonzero(places == place)) for place in np.unique(places)]
        parts = tuple(_part(random, group, demands) for group in grouped if random.random() < 0.9)
        yield Parts(parts, int(random.integers(0, len(parts) + 1)))


def _part(random, group: tuple[int, ...], demands: list[Demand]) -> Part:
    most = sum(demands[d].count for d in group)
    inner: tuple[Part, ...] = ()
    if len(group) > 1 and random.random() < 0.5:
        inner = tuple(Part((d,), int(random.integers(0, demands[d].count + 1))) for d in group)
    return Part(group, int(random.integers(0, most + 1)), inner, int(random.integers(0, len(inner) + 1)))


def subgroups(seed: int) -> PlacementProblem:
    """Up to 6 nodes and 8 pods in sub-groups with domains of their own, some of them nested or left out at will."""
    random = np.random.default_rng(seed)

    def chance(share: float) -> bool:
        return bool(random.random() < share)

    size = int(random.integers(3, 7))
    rack = np.sort(random.integers(0, 4, size))
    rack = np.where(random.random(size) < 0.08, -1, rack)
    nodes = NodeView(
        names=[f"n{node}" for node in range(size)],
        resources=("gpu", "cpu"),
        free=np.stack([random.choice([0, 1, 2, 2, 3, 4], size), random.integers(1, 7, size)]).astype(np.int64),
        slots=random.integers(2, 7, size).astype(np.int64),
        domains={"rack": rack.astype(np.int32), "block": np.where(rack < 0, -1, rack // 2).astype(np.int32)},
    )
    shapes = [[int(random.choice([1, 1, 2])), int(random.integers(0, 3))] for _ in range(2)]
    demands: list[Demand] = []
    rules: list[object] = []
    parts: list[Part] = []
    optional = chance(0.35)
    for group in range(int(random.integers(1, 4))):
        mine = []
        for role in range(int(random.integers(1, 3))):
            if sum(demand.count for demand in demands) >= 6:
                break
            count = int(random.integers(1, 3))
            mine.append(len(demands))
            request = np.array(shapes[int(random.integers(0, 2))], dtype=np.int64)
            minimum = 0 if optional else count
            mask = random.random(size) < 0.8 if chance(0.1) else None
            demands.append(Demand(f"g{group}r{role}", request, count, minimum, mask))
        if not mine:
            continue
        rules.append(Within(str(random.choice(["rack", "rack", "rack", "block", ""])), not chance(0.05), tuple(mine)))
        if len(mine) > 1 and chance(0.3):
            rules.append(Within("", True, (mine[0],)))
        parts.append(_subgroup(random, tuple(mine), demands))
        if not optional and chance(0.3):
            for d in mine:
                demands[d] = replace(demands[d], minimum=0)
            rules.append(Minimum(tuple(mine), parts[-1].minimum))
    if optional:
        rules.append(Parts(tuple(parts), int(random.integers(1, len(parts) + 1))))
    if chance(0.2):
        some = tuple(d for part in parts for d in part.demands if chance(0.8))
        rules.append(Minimum(some or (0,), int(random.integers(1, 7))))
    if len(parts) > 1 and chance(0.25):
        rules.extend(_exclusive(parts, str(random.choice(["rack", "rack", "", "block"]))))
    if len(parts) > 1 and chance(0.25):
        present = tuple((int(random.integers(0, 4)), group) for group in range(len(parts)) if chance(0.2))
        groups, level = tuple(part.demands for part in parts), str(random.choice(["rack", "rack", "", "block"]))
        rules.append(AtMostGroups(level, int(random.integers(1, len(parts))), groups, present))
    if chance(0.1):
        rules.append(Segments(str(random.choice(["", "rack"])), 2, parts[0].demands))
    rules.extend(_beside(random, demands))
    return PlacementProblem(
        nodes,
        tuple(demands),
        tuple(rules),
        budget=Budget(deterministic_time=20.0, wall_limit=120.0, max_domains=1000),
        objective=random.choice(["pack", "pack", "spread", "scores"]),
        maximize=chance(0.1),
    )


def sharing(seed: int) -> PlacementProblem:
    """Three to five sub-groups, most of them alike, each in one rack, which takes so many of them; sometimes K of N."""
    random = np.random.default_rng(seed)
    racks, wide = int(random.integers(2, 5)), int(random.integers(1, 3))
    size = racks * wide
    nodes = NodeView(
        names=[f"n{node}" for node in range(size)],
        resources=("gpu",),
        free=random.integers(0, 5, (1, size)).astype(np.int64),
        slots=np.full(size, 9, dtype=np.int64),
        domains={"rack": (np.arange(size) // wide).astype(np.int32)},
    )
    kinds = [[(int(gpu), int(random.integers(1, 3))) for gpu in random.choice([1, 2], 2)[:roles]] for roles in (1, 2)]
    optional = bool(random.random() < 0.4)
    demands: list[Demand] = []
    groups = []
    for group in range(int(random.integers(3, 6))):
        mine = []
        for role, (gpu, count) in enumerate(kinds[int(random.random() < 0.3)]):
            mine.append(len(demands))
            request = np.array([gpu], dtype=np.int64)
            demands.append(Demand(f"g{group}r{role}", request, count, 0 if optional else count))
        groups.append(tuple(mine))
    rules: list[object] = [Within("rack", True, group) for group in groups]
    if optional:
        parts = tuple(Part(group, sum(demands[d].count for d in group)) for group in groups)
        rules.append(Parts(parts, int(random.integers(1, len(groups) + 1))))
    crowd = groups if random.random() < 0.7 else [groups[0] + groups[1], *groups[2:]]
    rows = [[d for d in range(racks) if random.random() < 0.15] for _ in range(2)]
    present = tuple((d, at) for at in range(len(crowd)) for d in rows[int(random.random() < 0.3)])
    rules.append(
        AtMostGroups("rack", int(random.integers(1, 4)), tuple(crowd), present if random.random() < 0.5 else ())
    )
    return PlacementProblem(
        nodes,
        tuple(demands),
        tuple(rules),
        budget=Budget(deterministic_time=20.0, wall_limit=120.0, max_domains=1000),
        objective=random.choice(["pack", "spread"]),
    )


def _beside(random, demands: list[Demand]) -> Iterator[object]:
    """What is in no sub-group, and rules for all."""
    if random.random() < 0.4:
        demands.append(Demand("launcher", np.array([0, 1], dtype=np.int64), 1, 1))
    if random.random() < 0.5:
        yield Within("block")
    if random.random() < 0.1:
        yield Apart(str(random.choice(["", "rack"])), int(random.integers(1, 3)), None)
    if random.random() < 0.1 and len(demands) > 1:
        yield Repel(str(random.choice(["", "rack"])), (0,), (1,))


def _subgroup(random, mine: tuple[int, ...], demands: list[Demand]) -> Part:
    """A part of which all pods are needed, or as many of each role, or as many of all."""
    least = sum(demands[d].count for d in mine)
    if random.random() < 0.3:
        return Part(mine, int(random.integers(1, least + 1)))
    spare = int(random.random() < 0.3)
    inner = tuple(Part((d,), max(1, demands[d].count - spare)) for d in mine)
    return Part(mine, least if not spare else int(random.integers(0, least + 1)), inner, len(inner))


def _exclusive(parts: list[Part], level: str) -> Iterator[Repel]:
    """No two parts are in one domain."""
    for part in parts:
        yield Repel(level, part.demands, tuple(d for other in parts if other is not part for d in other.demands))


def larger_tree(seed: int) -> PlacementProblem:
    """Up to 12 sub-groups with racks of their own in one block of 48 nodes, nearly as large as the block."""
    random = np.random.default_rng(seed)
    size = int(random.integers(12, 49))
    rack = np.arange(size) // int(random.integers(2, 7))
    free = np.stack([random.choice([0, 1, 2, 4, 8], size), random.integers(0, 33, size)]).astype(np.int64)
    nodes = NodeView(
        names=[f"n{node}" for node in range(size)],
        resources=("gpu", "cpu"),
        free=free,
        slots=random.integers(4, 20, size).astype(np.int64),
        domains={"rack": rack.astype(np.int32), "block": (rack // 4).astype(np.int32)},
    )
    types = [
        [([int(random.integers(1, 5)), int(random.integers(0, 7))], int(random.integers(1, 4))) for _ in range(roles)]
        for roles in random.integers(1, 4, int(random.integers(1, 4)))
    ]
    demands: list[Demand] = []
    rules: list[object] = [Within("block")] if random.random() < 0.7 else []
    parts: list[Part] = []
    optional = bool(random.random() < 0.25)
    for group in range(int(random.integers(2, 9))):
        mine = []
        for role, (request, count) in enumerate(types[int(random.integers(0, len(types)))]):
            mine.append(len(demands))
            demands.append(
                Demand(f"g{group}r{role}", np.array(request, dtype=np.int64), count, 0 if optional else count)
            )
        rules.append(Within("rack", True, tuple(mine)))
        inner = tuple(Part((d,), demands[d].count) for d in mine)
        parts.append(Part(tuple(mine), sum(demands[d].count for d in mine), inner, len(inner)))
    if optional:
        rules.append(Parts(tuple(parts), max(1, len(parts) - 2)))
    if len(parts) > 1 and random.random() < 0.3:
        groups = tuple(part.demands for part in parts)
        present = tuple((int(random.integers(0, 6)), group) for group in range(len(parts)) if random.random() < 0.1)
        level = str(random.choice(["rack", "block"])) if not isinstance(rules[0], Within) else "rack"
        rules.append(AtMostGroups(level, int(random.integers(1, 4)), groups, present))
    if random.random() < 0.4:
        demands.append(Demand("launcher", np.array([0, 8], dtype=np.int64), 2, 2))
    budget = Budget(deterministic_time=60.0, wall_limit=300.0, max_domains=1000)
    return PlacementProblem(nodes, tuple(demands), tuple(rules), budget=budget)


def forest(seed: int) -> PlacementProblem:
    """A gang on up to 40 nodes in a tree of three levels, under several rules of domains, parts and numbers at once."""
    random = np.random.default_rng(seed)
    size = int(random.integers(8, 41))
    rack = np.arange(size) // int(random.integers(2, 6))
    block = rack // 3
    unlabelled = random.random(size) < 0.05
    nodes = NodeView(
        names=[f"n{node}" for node in range(size)],
        resources=("gpu", "cpu"),
        free=np.stack([random.choice([0, 1, 2, 4, 8], size), random.integers(0, 33, size)]).astype(np.int64),
        slots=random.integers(3, 20, size).astype(np.int64),
        domains={
            "rack": np.where(unlabelled, -1, rack).astype(np.int32),
            "block": np.where(unlabelled, -1, block).astype(np.int32),
            "zone": (block // 2).astype(np.int32),
        },
    )
    demands = []
    for index in range(int(random.integers(1, 7))):
        count = int(random.integers(1, 13))
        requests = np.array([random.choice([0, 1, 1, 2, 4]), random.integers(0, 7)], dtype=np.int64)
        mask = random.random(size) < 0.7 if random.random() < 0.15 else None
        crowd = int(random.integers(1, 4)) if random.random() < 0.15 else None
        demands.append(Demand(f"d{index}", requests, count, int(random.choice([0, count, count])), mask, None, crowd))
    rules: list[object] = []
    for _ in range(int(random.integers(1, 4))):
        which = str(random.choice(TREE_RULES))
        rules.extend(tree_rules(random, which, demands, str(random.choice(["block", "zone"]))))
    if random.random() < 0.3:
        rules.append(Minimum(tuple(range(len(demands))), int(random.integers(1, 20))))
    budget = Budget(deterministic_time=60.0, wall_limit=300.0, max_domains=1000)
    return PlacementProblem(nodes, tuple(demands), tuple(rules), budget=budget)
