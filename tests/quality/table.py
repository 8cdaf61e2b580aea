"""The table of the experiment: means over seeds for each method and workload, and how far the best could go."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np

from plugins.cutting import fewest
from tests.quality.batches import WAYS, run_batches
from tests.quality.experiment import Run, run
from tests.quality.gangs import Tally, run_gangs
from tests.quality.methods import METHODS
from tests.quality.trace import MILLI, Nodes, Workload, read_nodes, read_pods

POINTS = (100, 130)
_Job = TypeVar("_Job")
_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class Line:
    """One workload: allocated in percent, method -> mean at each of POINTS. fits_until: see `fits_until`."""

    name: str
    means: dict[str, tuple[float, ...]]
    fits_until: float


def fits_until(workload: Workload) -> float:
    """Return up to how many percent all that arrives could be placed, were devices all that counts.

    Shares of sizes that do not complete a device leave something over in the best mixture of layouts; who places all
    that fits has allocated at most so much when the first pod is refused, and then only fills what is left over.
    """
    often = np.bincount(workload.pods, minlength=workload.amount.size).astype(np.float64)
    shares: dict[int, float] = {}
    for amount, seen in zip(workload.amount.tolist(), often.tolist(), strict=True):
        if 0 < amount < MILLI:
            shares[amount] = shares.get(amount, 0.0) + seen
    asked = float(often @ workload.asked)
    lost = fewest(shares, MILLI) * MILLI - sum(amount * seen for amount, seen in shares.items())
    return 100 * asked / (asked + lost)


def _one(job: tuple[Nodes, Workload, str, int]) -> Run:
    nodes, workload, method, seed = job
    return run(nodes, workload, METHODS[method], seed)


def measure(
    nodes: Path, pods: Sequence[Path], methods: Sequence[str], seeds: Sequence[int], workers: int = 1
) -> list[Line]:
    """Run the experiment for each workload, method and seed. Raises `BadTrace` before anything runs."""
    cluster = read_nodes(nodes)
    workloads = [read_pods(path, cluster) for path in pods]
    jobs = [(cluster, workload, method, seed) for workload in workloads for method in methods for seed in seeds]
    runs = _all(_one, jobs, workers)
    lines, place = [], 0
    for name, workload in zip(names(pods), workloads, strict=True):
        means: dict[str, tuple[float, ...]] = {}
        for method in methods:
            mine, place = runs[place : place + len(seeds)], place + len(seeds)
            means[method] = tuple(float(np.mean([one.allocated[point] for one in mine])) for point in POINTS)
        lines.append(Line(name, means, fits_until(workload)))
    return lines


def names(pods: Sequence[Path]) -> list[str]:
    """Return what each workload is called: its file, with the folder where several files have one name."""
    found = []
    for path in pods:
        name = path.stem.removeprefix("openb_pod_list_")
        alone = sum(other.name == path.name for other in pods) == 1
        found.append(name if alone else f"{path.parent.name}/{name}")
    return found


def _batch(job: tuple[Nodes, Workload, int, str, int]) -> Run:
    nodes, workload, size, way, seed = job
    return run_batches(nodes, workload, seed, size, way)


def measure_batches(
    nodes: Path, pods: Sequence[Path], sizes: Sequence[int], seeds: Sequence[int], workers: int = 1
) -> list[Line]:
    """As `measure`, for batches of each size, decided in each way."""
    cluster = read_nodes(nodes)
    workloads = [read_pods(path, cluster) for path in pods]
    columns = [(1, "in order"), *((size, way) for size in sizes for way in WAYS)]
    jobs = [(cluster, workload, *column, seed) for workload in workloads for column in columns for seed in seeds]
    runs = iter(_all(_batch, jobs, workers))
    lines = []
    for name, workload in zip(names(pods), workloads, strict=True):
        means: dict[str, tuple[float, ...]] = {}
        for size, way in columns:
            mine = [next(runs) for _ in seeds]
            title = "one by one" if size == 1 else f"{size} {way}"
            means[title] = tuple(float(np.mean([one.allocated[point] for one in mine])) for point in POINTS)
        lines.append(Line(name, means, fits_until(workload)))
    return lines


def _gang(job: tuple[Nodes, Workload, int]) -> Tally:
    return run_gangs(*job)


def measure_gangs(nodes: Path, pods: Sequence[Path], count: int, seeds: Sequence[int], workers: int = 1) -> str:
    """Return the table of the gang variant, on so many nodes picked at random for each seed."""
    cluster = read_nodes(nodes)
    workloads = [read_pods(path, cluster) for path in pods]
    jobs = [(cluster.some(count, seed), workload, seed) for workload in workloads for seed in seeds]
    tallies = iter(_all(_gang, jobs, workers))
    rows = [["workload", "gangs", "placed", "refused", "without proof", "refused although feasible"], ["---"] * 6]
    for name in names(pods):
        mine = [next(tallies) for _ in seeds]
        counts = [[t.gangs, t.placed, t.refused, t.unproven, t.missed] for t in mine]
        rows.append([name, *(str(sum(column)) for column in zip(*counts, strict=True))])
    head = f"Gangs on {count} nodes, sums of seeds {seeds[0]}-{seeds[-1]}"
    return "\n".join([head, "", *("| " + " | ".join(row) + " |" for row in rows)])


def _all(work: Callable[[_Job], _Result], jobs: Sequence[_Job], workers: int) -> list[_Result]:
    if workers == 1:
        return [work(job) for job in jobs]
    with ProcessPoolExecutor(workers) as pool:
        return list(pool.map(work, jobs))


def text(lines: Sequence[Line], seeds: Sequence[int]) -> str:
    """Return the table in Markdown."""
    methods = list(lines[0].means)
    head = ["workload", *methods, "all fits until"]
    rows = [
        [line.name, *("/".join(f"{mean:.2f}" for mean in line.means[m]) for m in methods), f"{line.fits_until:.2f}"]
        for line in lines
    ]
    return "\n".join(
        [
            f"GPU allocated in percent when {' / '.join(map(str, POINTS))} % are asked for, means of seeds "
            f"{seeds[0]}-{seeds[-1]}",
            "",
            *("| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *rows)),
        ]
    )
