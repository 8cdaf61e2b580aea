"""The table of the experiment: means over seeds for each method and workload, and how far the best could go."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from plugins.cutting import fewest
from tests.quality.experiment import Run, run
from tests.quality.methods import METHODS
from tests.quality.trace import MILLI, Nodes, Workload, read_nodes, read_pods

POINTS = (100, 130)


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
    if workers > 1:
        with ProcessPoolExecutor(workers) as pool:
            runs = list(pool.map(_one, jobs))
    else:
        runs = [_one(job) for job in jobs]
    lines, place = [], 0
    for path, workload in zip(pods, workloads, strict=True):
        means: dict[str, tuple[float, ...]] = {}
        for method in methods:
            mine, place = runs[place : place + len(seeds)], place + len(seeds)
            means[method] = tuple(float(np.mean([one.allocated[point] for one in mine])) for point in POINTS)
        name = path.stem.removeprefix("openb_pod_list_")
        if sum(other.name == path.name for other in pods) > 1:
            name = f"{path.parent.name}/{name}"
        lines.append(Line(name, means, fits_until(workload)))
    return lines


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
