"""How long gangs with a topology take at 5,000 nodes x 8 GPUs in zones, blocks and racks.

Run: python -m tests.perf.bench --only topology

The gangs of sub-groups differ in everything that their seed decides: how many kinds of sub-groups, which of six roles
each has, and how much of a block they take, from a fifth to more than there is. Each is asked once, as it would be. The
cluster is four fifths full, so that most blocks and racks cannot take them.
"""

from __future__ import annotations

import gc
import time
from collections import Counter
from dataclasses import replace

import numpy as np

from scheduler.placement import (
    Demand,
    Infeasible,
    NodeView,
    Part,
    Parts,
    Placement,
    PlacementProblem,
    Rule,
    Segments,
    Within,
    place,
)
from tests.perf import usage
from tests.perf.bench_engine import cluster, demand
from tests.perf.report import Row, say
from tests.unit.framework.world import World, shape

ROLES = (
    *(("launcher", 0, 4, 16), ("trainer", 8, 64, 512), ("worker", 4, 24, 192)),
    *(("rollout", 2, 12, 96), ("actor", 1, 6, 48), ("loader", 0, 12, 64)),
)
SUBGROUPS = 12
BLOCK = 128
GANGS = 200


def tree(seed: int) -> NodeView:
    """Nodes in racks of 16, blocks of 8 racks, zones of 14 blocks."""
    nodes = cluster(seed)
    block = nodes.domains["block"]
    return replace(nodes, domains={**nodes.domains, "zone": (block // 14).astype(np.int32)})


def subgrouped(nodes: NodeView, seed: int, least: float = 0.2, most: float = 1.1) -> PlacementProblem:
    """A gang of 12 sub-groups of up to six roles, each in one rack, all in one block, of which it takes a share."""
    random = np.random.default_rng(seed)
    share = random.uniform(least, most) * float(nodes.free[0].sum()) / len(nodes.names) * BLOCK / SUBGROUPS
    kinds = []
    for _ in range(int(random.integers(1, 7))):
        counts = random.integers(0, 4, len(ROLES))
        counts[1] = counts[1] > 2
        counts[int(random.integers(2, len(ROLES)))] += 1
        gpus = sum(int(count) * role[1] for count, role in zip(counts, ROLES, strict=True))
        kinds.append(np.maximum(np.round(counts * min(3.0, share / max(1, gpus))).astype(int), counts > 0))
    demands: list[Demand] = []
    rules: list[Within] = [Within("block")]
    for group in range(SUBGROUPS):
        mine = []
        for count, (name, gpus, cores, gib) in zip(kinds[group % len(kinds)].tolist(), ROLES, strict=True):
            if count:
                mine.append(len(demands))
                demands.append(demand(f"{group:02}-{name}", gpus, cores, gib, count))
        rules.append(Within("rack", True, tuple(mine)))
    return PlacementProblem(nodes, tuple(demands), tuple(rules))


def some_of(problem: PlacementProblem, least: int) -> PlacementProblem:
    """The same gang, of which so many sub-groups are enough."""
    groups = [rule.demands for rule in problem.rules if isinstance(rule, Within) and rule.demands is not None]
    parts = []
    for group in groups:
        inner = tuple(Part((d,), problem.demands[d].count) for d in group)
        parts.append(Part(group, sum(problem.demands[d].count for d in group), inner, len(inner)))
    demands = tuple(replace(one, minimum=0) for one in problem.demands)
    return replace(problem, demands=demands, rules=(*problem.rules, Parts(tuple(parts), least)))


class _Watch:
    """Wall clock and CPU milliseconds of several questions: on a busy machine, the latter are those to compare."""

    def __init__(self) -> None:
        self.walls: list[float] = []
        self.cpus: list[float] = []

    def ask(self, problem: PlacementProblem) -> Placement | Infeasible:
        began, began_cpu = time.perf_counter(), time.process_time()
        answer = place(problem)
        self.walls.append((time.perf_counter() - began) * 1e3)
        self.cpus.append((time.process_time() - began_cpu) * 1e3)
        return answer

    def at(self, percent: float) -> float:
        return float(np.percentile(self.walls, percent))

    def cpu(self, percent: float) -> str:
        return f"CPU {np.percentile(self.cpus, percent):.1f}"


def _identical(views: list[NodeView]) -> Row:
    watch = _Watch()
    for seed in range(60):
        random = np.random.default_rng(seed)
        gpus, cores = int(random.integers(0, 3)), int(random.integers(1, 5))
        asked = demand("w", gpus, cores, 8 * cores, 64)
        watch.ask(PlacementProblem(views[seed % len(views)], (asked,), (Within("rack"),)))
    text = f"{watch.at(50):.2f} ms, worst {watch.at(100):.2f} ms ({watch.cpu(50)})"
    return Row("topology: 64 identical pods in one rack", text, "< 5 ms", watch.at(50) < 5, usage.machine())


def _subgroups(views: list[NodeView], gangs: int, least: int | None) -> Row:
    watch, answers = _Watch(), Counter[str]()
    for seed in range(gangs):
        problem = subgrouped(views[seed % len(views)], seed)
        if least is not None:
            problem = some_of(problem, least)
        answer = watch.ask(problem)
        if isinstance(answer, Placement):
            answers[answer.method] += 1
            continue
        answers["no, proven" if answer.proven else "not known"] += 1
    name = "12 sub-groups" if least is None else f"{least} of 12 sub-groups"
    told = ", ".join(f"{count} {how}" for how, count in sorted(answers.items()))
    met = watch.at(50) < 100 and watch.at(99) < 500 and not answers["not known"]
    text = f"median {watch.at(50):.0f} ms, p99 {watch.at(99):.0f} ms ({watch.cpu(50)}, {watch.cpu(99)})"
    target = "median < 100 ms, p99 < 500 ms, all certain"
    return Row(f"topology: {name} of 6 roles, each in a rack, one block ({told})", text, target, met, usage.machine())


def _proofs(views: list[NodeView], gangs: int) -> Row:
    """Gangs a little larger than any block."""
    proofs = 0
    watch = _Watch()
    for seed in range(gangs):
        answer = watch.ask(subgrouped(views[seed % len(views)], seed, 1.0, 1.6))
        if isinstance(answer, Infeasible) and answer.proven:
            proofs += 1
        else:
            watch.walls.pop()
            watch.cpus.pop()
    text = f"median {watch.at(50):.0f} ms, worst {watch.at(100):.0f} ms ({watch.cpu(50)}, {watch.cpu(100)})"
    name = f"topology: proof that no block holds them ({proofs} of {gangs} gangs)"
    return Row(name, text, "< 200 ms", watch.at(50) < 200, usage.machine())


def _pending(nodes: NodeView, gangs: int) -> Row:
    """Many gangs, nearly all different, one after the other; what is placed is taken off what is free."""
    random = np.random.default_rng(3)
    free, slots = nodes.free.copy(), nodes.slots.copy()
    watch, placed = _Watch(), 0
    for number in range(gangs):
        gpus, count = int(random.choice([1, 2, 4, 8])), int(random.integers(2, 65))
        asked = demand(f"gang-{number}", gpus, 6 * gpus, 48 * gpus, count)
        level = str(random.choice(["rack", "rack", "block", "zone"]))
        rules: list[list[Rule]] = [
            [Within(level)],
            [Within("rack", False), Within("block", False)],
            [Within("block"), Within("rack", False)],
        ]
        rules.append([Within(level), Segments("", 2)])
        chosen = tuple(rules[int(random.choice([0, 0, 0, 1, 2, 3]))])
        view = replace(nodes, free=free, slots=slots)
        answer = watch.ask(PlacementProblem(view, (asked,), chosen))
        if isinstance(answer, Placement):
            placed += 1
            free, slots = free.copy(), slots.copy()
            for node, pods in answer.counts[0]:
                free[:, node] -= asked.requests * pods
                slots[node] -= pods
    name = f"topology: {gangs} pending gangs decided one after the other ({placed} placed)"
    each, cpu = float(np.mean(watch.walls)), float(np.mean(watch.cpus))
    text = f"{each * gangs / 1e3:.2f} s, {each:.2f} ms each (CPU {cpu:.2f})"
    return Row(name, text, "< 2 ms each", each < 2, usage.machine())


def _session(nodes: int, gangs: int) -> Row:
    """The same through a whole session of the default configuration: gangs that ask for a rack or a block."""
    random = np.random.default_rng(3)
    world = World()
    for number in range(nodes):
        labels = {"rack": f"r{number // 16:03}", "block": f"b{number // BLOCK:02}"}
        world.node(f"n{number:05}", gpu=8, cpu=96, memory=1024, labels=labels)
        for turn in range(2 if random.random() < 0.6 else 0):
            world.running(f"r{number}-{turn}", f"n{number:05}", shape(gpu=int(random.choice([1, 2, 4])), cpu=8))
    for number in range(gangs):
        level, size = str(random.choice(["rack", "rack", "block"])), int(random.choice([4, 8, 16, 32, 64]))
        of = shape(gpu=int(random.choice([1, 2, 4, 8])), cpu=8)
        world.gang(f"g{number:04}", size, of=of, topology=level, created=float(number))
    world.flush()
    snapshot = world.take()
    gc.collect()
    before = gc.get_threshold()
    gc.set_threshold(50_000, 20, 50)  # as in the process that decides
    began, began_cpu = time.perf_counter(), time.process_time()
    result = world.sessions.run(snapshot, "s-1")
    wall, cpu = time.perf_counter() - began, time.process_time() - began_cpu
    gc.set_threshold(*before)
    name = f"topology: a session with {gangs} pending gangs ({len(result.decisions.places)} placed)"
    return Row(name, f"{wall:.2f} s ({cpu:.2f} s CPU)", "< 2 s", wall < 2, usage.machine())


def _soft(views: list[NodeView]) -> Row:
    hard, soft = _Watch(), _Watch()
    for seed in range(60):
        random = np.random.default_rng(seed)
        asked = demand("w", int(random.integers(0, 9)), 4, 32, int(random.integers(4, 129)))
        for watch, strict in ((hard, True), (soft, False)):
            levels = ("zone", "block", "rack")
            watch.ask(
                PlacementProblem(views[seed % len(views)], (asked,), tuple(Within(one, strict) for one in levels))
            )
    text = f"preferred {np.mean(soft.walls):.2f} ms (CPU {np.mean(soft.cpus):.2f}), "
    text += f"required {np.mean(hard.walls):.2f} ms (CPU {np.mean(hard.cpus):.2f})"
    met = bool(np.mean(soft.walls) < max(5.0, 3 * float(np.mean(hard.walls))))
    return Row("topology: three levels preferred against required", text, "< 5 ms or 3 times", met, usage.machine())


def rows(quick: bool) -> list[Row]:
    """Return the figures. quick: fewer gangs."""
    views = [tree(seed) for seed in (7, 8, 9)]
    gangs = GANGS // 10 if quick else GANGS
    place(subgrouped(views[0], 0))
    say("topology")
    return [
        _identical(views),
        _subgroups(views, gangs, None),
        _subgroups(views, gangs // 4, 9),
        _proofs(views, gangs // 2),
        _pending(views[0], 100 if quick else 1000),
        _session(500 if quick else 5000, 100 if quick else 1000),
        _soft(views),
    ]
