"""How long placement takes at 5,000 nodes x 8 GPUs. Run: python -m tests.perf.bench_engine

Each case is decided several times on the same problem; the table shows the median and the worst, in wall time and CPU
time of this process (on a machine that does other things, the latter is the one to compare), against the target.
"""

from __future__ import annotations

import argparse
import os
import platform
import resource
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from scheduler.model.rules import Cap, Follow, Once, Repel, Spread
from scheduler.placement import (
    NODE,
    Apart,
    Demand,
    Infeasible,
    Minimum,
    NodeView,
    Placement,
    PlacementProblem,
    Within,
    place,
    warm_up,
)
from scheduler.placement.bounds import bound
from scheduler.placement.instance import build

NODES, GPUS, CPUS, MEMORY = 5000, 8, 96, 1024
GIB = 2**30
FAR = 100.0


@dataclass(frozen=True)
class Case:
    """One question, the answer that it must get, and how fast (milliseconds)."""

    name: str
    problem: PlacementProblem
    expect: str
    target: float


def cluster(seed: int = 7, size: int = NODES) -> NodeView:
    """A cluster about four fifths full, whose nodes nearly all differ: cores in thousandths, memory in bytes."""
    rng = np.random.default_rng(seed)
    kind = rng.choice(3, size=size, p=[0.5, 0.15, 0.35])
    used = np.where(kind == 0, GPUS, np.where(kind == 1, 0, rng.integers(1, GPUS, size)))
    cpu = np.minimum(CPUS * 1000, used * rng.integers(6_000, 12_000, size) + rng.integers(0, 2_000, size))
    memory = np.minimum(MEMORY * GIB, used * rng.integers(60, 120, size) * GIB + rng.integers(0, GIB, size))
    free = np.stack([GPUS - used, CPUS * 1000 - cpu, MEMORY * GIB - memory]).astype(np.int64)
    numbers = np.arange(size)
    return NodeView(
        names=[f"node-{number:05}" for number in range(size)],
        resources=("nvidia.com/gpu", "cpu", "memory"),
        free=free,
        slots=(110 - 2 * used).astype(np.int64),
        domains={
            "rack": (numbers // 16).astype(np.int32),
            "block": (numbers // 128).astype(np.int32),
            "zone": (numbers * 3 // size).astype(np.int32),
        },
        domain_names={
            "zone": ["a", "b", "c"],
            "rack": [f"rack-{number}" for number in range(size // 16 + 1)],
            "block": [f"block-{number}" for number in range(size // 128 + 1)],
        },
    )


def demand(name: str, gpus: int, cores: int, gib: int, count: int, scores: np.ndarray | None = None) -> Demand:
    """So many identical pods, all needed."""
    return Demand(name, np.array([gpus, cores * 1000, gib * GIB], dtype=np.int64), count, count, scores=scores)


def gang(scale: float = 1.0) -> tuple[Demand, ...]:
    """A gang of six roles with six different vectors."""
    roles = [
        ("launcher", 0, 24, 64, 1),
        ("trainer", 8, 64, 512, 8),
        ("rollout", 1, 6, 48, 48),
        ("actor", 0, 12, 32, 40),
        ("prefill", 4, 16, 128, 12),
        ("decode", 2, 20, 64, 24),
    ]
    return tuple(demand(name, g, c, m, max(1, round(n * scale))) for name, g, c, m, n in roles)


def awkward(scale: float) -> tuple[Demand, ...]:
    """A gang whose sizes leave pieces on every node: sums say yes long after it stopped fitting."""
    roles = [("wide", 5, 20, 128, 10), ("middle", 3, 30, 96, 20), ("narrow", 1, 40, 64, 8), ("feeder", 0, 50, 32, 8)]
    return tuple(demand(name, g, c, m, max(1, round(n * scale))) for name, g, c, m, n in roles)


def beyond(problem: PlacementProblem, make: Callable[[float], tuple[Demand, ...]]) -> PlacementProblem:
    """Grow a gang until sums still allow it and one step more would not: what remains is a question of packing."""
    low, high = 0.05, 2000.0
    for _ in range(24):
        middle = (low * high) ** 0.5
        if bound(build(replace(problem, demands=make(middle)))).alive.any():
            low = middle
        else:
            high = middle
    return replace(problem, demands=make(low))


def cases() -> Iterator[Case]:
    """Yield the questions."""
    nodes = cluster()
    many = PlacementProblem(nodes, (demand("worker", 1, 8, 64, 512),))
    scores = np.random.default_rng(3).integers(0, 100, NODES)
    rack, block = Within("rack"), Within("block")
    yield Case("512 identical pods, pack", many, "placed", 20)
    yield Case("512 identical pods, spread", replace(many, objective="spread"), "placed", 20)
    scored = (demand("worker", 1, 8, 64, 512, scores),)
    yield Case("512 identical pods, scores", replace(many, demands=scored, objective="scores"), "placed", 20)
    yield Case("512 identical pods, one block preferred", replace(many, rules=(Within("block", False),)), "placed", 20)
    yield Case("512 identical pods, 1 a node", replace(many, rules=(Apart("", 1),)), "placed", 20)
    yield Case(
        "32 identical pods, one rack", PlacementProblem(nodes, (demand("w", 1, 8, 64, 32),), (rack,)), "placed", 20
    )
    surplus = Demand("worker", many.demands[0].requests, 10_000)
    yield Case("as many as fit of 10,000 pods", PlacementProblem(nodes, (surplus,), maximize=True), "placed", 20)
    six = PlacementProblem(nodes, gang())
    yield Case("6 roles, 133 pods", six, "placed", FAR)
    yield Case("6 roles, 1,330 pods", replace(six, demands=gang(10)), "placed", FAR)
    yield Case("6 roles, one block", replace(six, demands=gang(0.25), rules=(block,)), "placed", FAR)
    loose = tuple(replace(role, minimum=0) for role in gang())
    yield Case(
        "6 roles, any 100 of 133", replace(six, demands=loose, rules=(Minimum(tuple(range(6)), 100),)), "placed", FAR
    )
    yield Case("no: 20,000 identical pods", replace(many, demands=(demand("w", 1, 8, 64, 20_000),)), "refused", FAR)
    yield Case(
        "no: 600 identical pods in one rack",
        replace(many, demands=(demand("w", 1, 8, 64, 600),), rules=(rack,)),
        "refused",
        FAR,
    )
    yield Case("no: 6 roles by sums", replace(six, demands=gang(200)), "refused", FAR)
    yield Case("6 roles, as large as sums allow", beyond(six, gang), "placed", FAR)
    yield Case("6 roles, as large as a block's sums allow", beyond(replace(six, rules=(block,)), gang), "placed", FAR)
    yield Case("no: 4 awkward roles by search", beyond(six, awkward), "refused", FAR)
    yield Case(
        "no: 4 awkward roles in one rack by search", beyond(replace(six, rules=(rack,)), awkward), "refused", FAR
    )


def among(nodes: NodeView) -> Iterator[Case]:
    """Yield the questions in which pods mind other pods: 2,000 alike, and gangs of three roles."""
    size, zones = len(nodes.names), len(nodes.domain_names["zone"])
    everywhere, none = np.ones(size, dtype=np.bool_), np.zeros(zones, dtype=np.bool_)
    uneven = np.arange(zones, dtype=np.int64) * 5

    def even(level: str, demands: tuple[int, ...], skew: int = 1) -> Spread:
        present = uneven if level == "zone" else np.zeros(size if level == NODE else 400, dtype=np.int64)
        return Spread(level, demands, demands, present, everywhere, skew)

    loose = Demand("pod", np.array([0, 100, GIB // 4], dtype=np.int64), 2000)
    many = PlacementProblem(nodes, (loose,), maximize=True)
    one = (0,)
    yield Case("2,000 pods repel each other on nodes", replace(many, rules=(Repel(NODE, one, one),)), "placed", 20)
    yield Case("2,000 pods, one of them in a rack", replace(many, rules=(Repel("rack", one, one),)), "placed", 20)
    yield Case("2,000 pods spread over zones", replace(many, rules=(even("zone", one),)), "placed", 20)
    yield Case("2,000 pods spread over racks", replace(many, rules=(even("rack", one),)), "placed", 20)
    yield Case("2,000 pods spread over nodes", replace(many, rules=(even(NODE, one),)), "placed", 20)
    both = (even("zone", one, 5), even(NODE, one, 3))
    yield Case("2,000 pods spread over zones and nodes", replace(many, rules=both), "placed", 100)
    follow = Follow(("zone",), one, one, (none,), first=True)
    yield Case("2,000 pods follow the first of them", replace(many, rules=(follow,)), "placed", 20)
    beside = Follow(("zone",), one, (), (none ^ np.array([True, False, False]),))
    yield Case("2,000 pods follow a pod that is there", replace(many, rules=(beside,)), "placed", 20)
    volumes = Cap(NODE, ((0, 1),), np.random.default_rng(5).integers(0, 3, size).astype(np.int64))
    yield Case("2,000 pods with a volume each", replace(many, rules=(volumes,)), "placed", 20)
    shared = Once("memory", 8 * GIB, one, np.zeros(size, dtype=np.bool_))
    yield Case("2,000 pods with a shared volume", replace(many, rules=(shared,)), "placed", 20)
    gpu = demand("worker", 1, 8, 64, 512)
    scores = np.random.default_rng(3).integers(0, 100, size)
    spread = PlacementProblem(nodes, (gpu,), (even("zone", one),))
    scored = replace(spread, demands=(replace(gpu, scores=scores),), objective="scores")
    yield Case("512 pods over zones, scores", scored, "placed", 20)
    narrow = (nodes.domains["zone"] < 2) | (np.arange(size) % 50 == 0)
    full = replace(spread, demands=(replace(demand("w", 1, 8, 64, 2000), mask=narrow),))
    yield Case("no: a full zone holds 2,000 pods back", full, "refused", 20)
    trio = (demand("launcher", 0, 24, 64, 3), demand("worker", 1, 6, 48, 240), demand("cache", 0, 12, 32, 60))
    gang = PlacementProblem(nodes, trio)
    chain = Follow(("zone",), (1,), (0,), (none,))
    mixed = (Repel(NODE, (0,), (0,)), even("zone", (1,)), chain)
    yield Case("3 roles: apart, spread, workers follow", replace(gang, rules=mixed), "placed", 200)
    pairs = (Repel(NODE, (0,), (0, 1)), Repel(NODE, (2,), (2,)), even("zone", (0, 1, 2), 2))
    yield Case("3 roles: repelled, spread together", replace(gang, rules=pairs), "placed", 200)
    racks = (Follow(("rack",), (1, 2), (0,), (np.zeros(400, dtype=np.bool_),)), Repel("rack", (0,), (0,)))
    small = (demand("launcher", 0, 24, 64, 4), demand("worker", 1, 6, 48, 64), demand("cache", 0, 12, 32, 8))
    yield Case("3 roles: follow launchers of other racks", replace(gang, demands=small, rules=racks), "placed", 200)
    one_zone = (Follow(("zone",), (0, 1, 2), (0, 1, 2), (none,), first=True), Repel(NODE, (1,), (2,)))
    yield Case("3 roles: all where the first is", replace(gang, rules=one_zone), "placed", 200)
    apart = (Repel("zone", (0,), (1,)), even("zone", (1,)))
    yield Case("no: 3 roles: spread where nobody may be", replace(gang, rules=apart), "refused", 1000)


def outcome(answer: Placement | Infeasible) -> tuple[str, str]:
    """Return placed or refused, and by what."""
    if isinstance(answer, Placement):
        return "placed", answer.method
    return "refused" if answer.proven else "unknown", answer.cause


def all_cases() -> Iterator[Case]:
    """Yield every question."""
    yield from cases()
    yield from among(cluster())


def measure(case: Case, rounds: int) -> tuple[bool, str]:
    """Return whether the case held, and its row."""
    walls, cpus = [], []
    answer = place(case.problem)
    for _ in range(rounds):
        wall, cpu = time.perf_counter(), time.process_time()
        answer = place(case.problem)
        walls.append((time.perf_counter() - wall) * 1e3)
        cpus.append((time.process_time() - cpu) * 1e3)
    got, how = outcome(answer)
    wall = statistics.median(walls)
    held = got == case.expect and wall < case.target
    pods = sum(d.count for d in case.problem.demands)
    row = (
        f"{case.name:<44} {pods:>6} {got:<8} {how:<9} {wall:>9.2f} {max(walls):>9.2f} {statistics.median(cpus):>9.2f}"
        f" {case.target:>7.0f}  {'ok' if held else 'MISS'}"
    )
    return held, row


def figure(case: Case, rounds: int) -> tuple[str, str, bool]:
    """Return a case's figure, its target and whether it was met, for the table of all benchmarks."""
    walls = []
    answer = place(case.problem)
    for _ in range(rounds):
        began = time.perf_counter()
        answer = place(case.problem)
        walls.append((time.perf_counter() - began) * 1e3)
    got, how = outcome(answer)
    wall = statistics.median(walls)
    text = f"{wall:.2f} ms, worst {max(walls):.2f} ms ({got} by {how})"
    return text, f"< {case.target:.0f} ms", got == case.expect and wall < case.target


def main() -> int:
    """Print the table; exit 1 when a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args().rounds
    warm_up()
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    print(f"python -m tests.perf.bench_engine --rounds {rounds}")
    machine = f"{os.cpu_count()} cores {platform.machine()}, load {load}, Python {platform.python_version()}"
    print(f"{NODES} nodes x {GPUS} GPUs; {machine}")
    print(
        f"{'case':<44} {'pods':>6} {'answer':<8} {'by':<9} {'median ms':>9} {'worst ms':>9} {'CPU ms':>9} {'target':>7}"
    )
    good = True
    for case in all_cases():
        held, row = measure(case, rounds)
        good &= held
        print(row, flush=True)
    print(f"largest memory of this process: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
