"""A balanced layout against brute force: in as few domains as can be, and even if one of these layouts is."""

from __future__ import annotations

import os

import numpy as np
import pytest

from scheduler.placement import Balanced, Demand, NodeView, Placement, PlacementProblem, Segments, Within, place
from scheduler.placement.engine import ALL, _solve
from scheduler.placement.soft import preferring

SEEDS = int(os.environ.get("MUSTER_SEEDS", "300" if "EXPLORE" in os.environ else "120"))
SIZES = ((1, 0), (2, 1))
"""gpu and cpu of the two kinds."""


def cluster(random, racks):
    count = int(random.integers(racks, racks * 2 + 1))
    rack = np.sort(np.concatenate([np.arange(racks), random.integers(0, racks, count - racks)]))
    return NodeView(
        names=[f"n{number}" for number in range(count)],
        resources=("gpu", "cpu"),
        free=np.array([random.integers(0, 6, count), random.integers(0, 4, count)], dtype=np.int64),
        slots=np.full(count, 20, dtype=np.int64),
        domains={"rack": rack.astype(np.int32), "block": (rack // 2).astype(np.int32)},
    )


def pods(number, count):
    return Demand(f"d{number}", np.array(SIZES[number], dtype=np.int64), count, count)


def of_rack(view, rack, wanted):
    """Every (pods of the first kind, of the second) that a rack takes."""
    found = {(0, 0)}
    for node in np.flatnonzero(view.domains["rack"] == rack).tolist():
        gpu, cpu = view.free[:, node].tolist()
        here = {(a, b) for a in range(gpu + 1) for b in range(cpu + 1) if a + 2 * b <= gpu and b <= cpu}
        found = {(a + c, b + d) for a, b in found for c, d in here if a + c <= wanted[0] and b + d <= wanted[1]}
    return found


def layouts(view, racks, wanted):
    """Every (pods in each of these racks) of a placement of all pods."""
    found = {((0, 0), ())}
    for rack in racks:
        takes = of_rack(view, rack, wanted)
        found = {
            ((a + c, b + d), (*held, c + d))
            for (a, b), held in found
            for c, d in takes
            if a + c <= wanted[0] and b + d <= wanted[1]
        }
    return {held for sums, held in found if sums == wanted}


def spread(held):
    used = [count for count in held if count]
    return max(used) - min(used) if used else 0


def held_by(view, answer):
    held: dict[int, int] = {}
    for row in answer.counts:
        for node, count in row:
            rack = int(view.domains["rack"][node])
            held[rack] = held.get(rack, 0) + count
    return held


@pytest.mark.parametrize("rule", ["alone", "block", "segments", "present", "kinds"])
def test_as_few_domains_as_can_be_and_even_if_that_can_be(rule):
    even = 0
    for seed in range(SEEDS):
        random = np.random.default_rng([seed, len(rule)])
        racks = int(random.integers(2, 6))
        view = cluster(random, racks)
        wanted = (int(random.integers(1, 13)), int(random.integers(1, 5)) if rule == "kinds" else 0)
        there = dict.fromkeys(range(racks), 0)
        unit = 1
        rules = []
        if rule == "segments":
            wanted, unit = (2 * ((wanted[0] + 1) // 2), 0), 2
            rules.append(Segments("rack", 2))
        if rule == "present":
            there |= {int(random.integers(0, racks)): int(random.integers(1, 4)) for _ in range(2)}
        if rule == "block":
            rules.append(Within("block"))
        blocks = [range(b, min(b + 2, racks)) for b in range(0, racks, 2)] if rule == "block" else [range(racks)]
        present = tuple((rack, count) for rack, count in there.items() if count)
        demands = [pods(number, count) for number, count in enumerate(wanted) if count]
        answer = place(PlacementProblem(view, tuple(demands), (*rules, Balanced("rack", None, present))))
        every = [
            tuple(one + there[rack] for one, rack in zip(held, block, strict=True))
            for block in blocks
            for held in layouts(view, block, wanted)
            if all(one % unit == 0 for one in held)
        ]
        if not every:
            assert not isinstance(answer, Placement), seed
            continue
        assert isinstance(answer, Placement), seed
        got = held_by(view, answer)
        mine = [got.get(rack, 0) + there[rack] for rack in range(racks)]
        fewest = min(sum(map(bool, held)) for held in every)
        assert sum(map(bool, mine)) == fewest, seed
        best = min(spread(held) for held in every if sum(map(bool, held)) == fewest)
        if best <= unit:
            assert spread(mine) <= unit, (seed, mine, best)
            even += fewest > 1
        elif rule != "kinds":
            assert spread(mine) == best, (seed, mine, best)
        assert (len(rules) in answer.kept) == (spread(mine) <= unit), seed
    assert even > SEEDS // 20


def test_more_pods_than_fit_are_as_many_as_without_balance():
    for seed in range(SEEDS):
        random = np.random.default_rng([seed, 77])
        view = cluster(random, 3)
        demands = (Demand("d", np.array([1, 0], dtype=np.int64), 12),)
        plain = place(PlacementProblem(view, demands, maximize=True))
        answer = place(PlacementProblem(view, demands, (Balanced("rack"),), maximize=True))
        assert isinstance(plain, Placement)
        assert isinstance(answer, Placement)
        assert answer.total == plain.total, seed
        assert answer.optimal


def test_sub_groups_are_balanced_each_for_itself():
    view = NodeView(
        names=[f"n{number}" for number in range(4)],
        resources=("gpu",),
        free=np.array([[6, 6, 4, 4]], dtype=np.int64),
        slots=np.full(4, 20, dtype=np.int64),
        domains={"rack": np.arange(4, dtype=np.int32)},
    )
    demands = (Demand("a", np.array([1]), 7, 7), Demand("b", np.array([1]), 8, 8))
    rules = (Balanced("rack", (0,)), Balanced("rack", (1,)))
    answer = place(PlacementProblem(view, demands, rules))
    assert isinstance(answer, Placement)
    for row, wanted in zip(answer.counts, (7, 8), strict=True):
        held = [count for _, count in row]
        assert sum(held) == wanted
        assert max(held) - min(held) <= 1


def test_what_a_sub_group_was_given_is_not_undone_for_the_next_one():
    free = [1, 1, 1, 3, 3, 4]
    view = NodeView(
        names=[f"n{number}" for number in range(6)],
        resources=("gpu",),
        free=np.array([free], dtype=np.int64),
        slots=np.full(6, 20, dtype=np.int64),
        domains={"rack": np.array([0, 0, 0, 1, 2, 3], dtype=np.int32)},
    )
    for wanted in ((3, 5), (5, 3), (2, 4), (3, 3)):
        demands = tuple(Demand(name, np.array([1]), count, count) for name, count in zip("ab", wanted, strict=True))
        answer = place(PlacementProblem(view, demands, (Balanced("rack", (0,)), Balanced("rack", (1,)))))
        assert isinstance(answer, Placement)
        assert answer.kept == (0, 1), wanted
        racks = [{int(view.domains["rack"][node]) for node, _ in row} for row in answer.counts]
        assert [len(used) for used in racks] == [1 + (count > 4) for count in wanted], (wanted, racks)


def test_several_kinds_on_many_nodes_cost_counted_work_and_end_nearly_even():
    random = np.random.default_rng(5)
    racks, per = 100, 20
    view = NodeView(
        names=[f"n{number}" for number in range(racks * per)],
        resources=("gpu",),
        free=(8 - random.choice([0, 1, 2, 4, 8], (1, racks * per), p=[0.5, 0.125, 0.125, 0.125, 0.125])),
        slots=np.full(racks * per, 100, dtype=np.int64),
        domains={"rack": np.repeat(np.arange(racks, dtype=np.int32), per)},
    )
    demands = tuple(Demand(f"d{gpu}", np.array([gpu]), 85, 85) for gpu in (1, 2, 4))
    asked = []

    def counted(problem, methods):
        answer = _solve(problem, methods)
        in_vain = not isinstance(answer, Placement) and answer.cause not in ("rules", "bound")
        asked.append((in_vain, "integer" in methods))
        return answer

    answer = preferring(PlacementProblem(view, demands, (Balanced("rack"),)), ALL, counted)
    assert isinstance(answer, Placement)
    held = [count for count in held_by(view, answer).values() if count]
    plain = place(PlacementProblem(view, demands, (Within("rack", False),)))
    before = [count for count in held_by(view, plain).values() if count]
    assert len(held) <= len(before)
    assert max(held) - min(held) < max(before) - min(before)
    assert (True, True) not in asked  # the exact searches
    assert sum(in_vain for in_vain, _ in asked) <= 3 + 30_000 // (3 * 1000)
