"""How long it takes to place a gang by moving running pods, on fragmented clusters: python -m tests.perf.bench_moves

Each node has 8 GPUs, one to three of them free; its pods are of gangs of one. The gang needs whole nodes, anywhere or
in one rack of 16. The table shows how many pods move, whether that is proven to be the fewest, and the time.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from scheduler.placement import (
    Budget,
    Infeasible,
    MoveProblem,
    NodeView,
    PlacementProblem,
    Relocated,
    Resident,
    RunningGang,
    VictimProblem,
    Within,
    relocate,
    warm_up,
)
from tests.perf import usage
from tests.perf.bench_engine import GIB, demand
from tests.perf.report import Row

GPUS, CPUS, MEMORY = 8, 96, 1024
TARGET = 5.0


@dataclass(frozen=True)
class Case:
    """One question and the time it may take, in seconds; None: only told."""

    name: str
    problem: MoveProblem
    target: float | None
    placed: bool = True


def fragmented(size: int, seed: int, large: float) -> tuple[NodeView, tuple[Resident, ...]]:
    """Nodes whose pods hold one, two or four GPUs each, with cores and memory in proportion, roughly.

    large: the part that holds four, for which no node has room before somebody else has moved.
    """
    rng = np.random.default_rng(seed)
    free = np.tile(np.array([[GPUS], [CPUS * 1000], [MEMORY * GIB]], dtype=np.int64), (1, size))
    slots = np.full(size, 110, dtype=np.int64)
    residents: list[Resident] = []
    for node in range(size):
        left = GPUS - int(rng.integers(1, 4))
        while left:
            gpus = min(left, int(rng.choice([1, 2, 4], p=[0.5, 0.5 - large, large])))
            cores = gpus * int(rng.choice([4, 8, 10])) * 1000
            holds = np.array([gpus, cores, gpus * 64 * GIB], dtype=np.int64)
            free[:, node] -= holds
            slots[node] -= 1
            left -= gpus
            name = f"pod-{len(residents):05}"
            residents.append(Resident(node, holds, int(rng.integers(60, 86_400)), name))
    ids = {"rack": (np.arange(size) // 16).astype(np.int32)}
    names = [f"node-{number:04}" for number in range(size)]
    return NodeView(names, ("nvidia.com/gpu", "cpu", "memory"), free, slots, ids), tuple(residents)


def question(size: int, pods: int, rack: bool, levels: int = 1, large: float = 0.15) -> MoveProblem:
    """A gang of `pods` whole nodes on a fragmented cluster."""
    view, residents = fragmented(size, 3, large)
    rules = (Within("rack"),) if rack else ()
    asked = PlacementProblem(view, (demand("worker", 8, 64, 512, pods),), rules, budget=Budget(4.0, 10.0))
    gangs = tuple(RunningGang((number,), 1, priority=number % levels) for number in range(len(residents)))
    return MoveProblem(VictimProblem(asked, residents, gangs))


def cases(sizes: tuple[int, ...]) -> Iterator[Case]:
    """Yield the questions."""
    for size in sizes:
        for pods in (5, 12):
            for rack in (False, True):
                where = "one rack" if rack else "anywhere"
                yield Case(
                    f"{size} nodes, {pods} x 8 GPUs, {where}",
                    question(size, pods, rack),
                    TARGET if size <= 512 else None,
                )
    size = sizes[min(1, len(sizes) - 1)]
    for rack in (False, True):
        name = f"{size} nodes, 12 x 8 GPUs, {'one rack' if rack else 'anywhere'}, small pods"
        yield Case(name, question(size, 12, rack, large=0.0), TARGET)
    yield Case(f"{size} nodes, 8 x 8 GPUs, 3 priorities", question(size, 8, False, 3), TARGET)
    yield Case(f"no: {size} nodes, {size // 2} x 8 GPUs", question(size, size // 2, False), TARGET, False)


def measure(case: Case, rounds: int) -> tuple[float, Relocated | Infeasible]:
    """Return the median of the seconds, and the answer."""
    walls = []
    answer = None
    for _ in range(rounds):
        began = time.perf_counter()
        answer = relocate(case.problem)
        walls.append(time.perf_counter() - began)
    assert answer is not None
    return statistics.median(walls), answer


def row(case: Case, rounds: int) -> Row:
    """Return one line of the table."""
    wall, answer = measure(case, rounds)
    if isinstance(answer, Relocated):
        said = f"{len(answer.moves)} moves, {'proven' if answer.optimal else 'not proven'}"
    else:
        said = f"no by {answer.cause}, {'proven' if answer.proven else 'not proven'}"
    met, target = None, ""
    if case.target is not None:
        target = f"< {case.target:.0f} s"
        met = wall < case.target and isinstance(answer, Relocated) == case.placed
    return Row(f"moves: {case.name}", f"{wall:.2f} s ({said})", target, met, usage.machine())


def rows(quick: bool) -> list[Row]:
    """Return all lines."""
    warm_up()
    return [row(case, 1 if quick else 3) for case in cases((128,) if quick else (128, 512, 1024))]


if __name__ == "__main__":
    from tests.perf import report

    print(report.table(rows(False)))
