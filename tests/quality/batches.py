"""What it gains to decide the arrivals of one session together.

Arrivals come in batches. Those of a batch are decided in one question to the engine: as many as possible, each kind
where the cost grows least, at most one pod of a kind on a node, since the scores are those of the beginning; what it
leaves out is then placed one by one, what asks for most first. In the second way all of a batch are placed one by one
in that order, as a session does that looks at nodes anew after every placement.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from scheduler.placement import Placement, assign, place
from tests.quality.asking import demand, problem
from tests.quality.experiment import Cluster, Run, arrivals, begin
from tests.quality.methods import Muster
from tests.quality.trace import Nodes, Workload

WAYS = ("together", "in order")


def run_batches(nodes: Nodes, workload: Workload, seed: int, size: int, way: str) -> Run:
    """Run the experiment once with batches of so many arrivals."""
    cluster, random = begin(nodes, seed)
    method = Muster(cluster, workload, random)
    result, requested, used = Run(), 0, 0
    for batch in _batches(arrivals(workload, nodes.capacity, seed).tolist(), workload, nodes.capacity, size):
        for kind in batch:
            method.arrive(kind)
        waiting = Counter(batch)
        if way == "together":
            used += _together(cluster, workload, method, waiting)
        used += _in_order(cluster, workload, method, waiting)
        requested += sum(int(workload.asked[kind]) for kind in batch)
        result.refused += waiting.total()
        if 100 not in result.allocated and requested >= nodes.capacity:
            result.allocated[100] = 100 * used / nodes.capacity
    result.allocated[130] = 100 * used / nodes.capacity
    return result


def _batches(kinds: Sequence[int], workload: Workload, capacity: int, size: int) -> Iterator[list[int]]:
    """Yield the batches; one ends where 100 % are asked for, so that it is measured there."""
    batch: list[int] = []
    requested = 0
    for kind in kinds:
        batch.append(kind)
        before, requested = requested, requested + int(workload.asked[kind])
        if len(batch) == size or before < capacity <= requested:
            yield batch
            batch = []
    if batch:
        yield batch


def _together(cluster: Cluster, workload: Workload, method: Muster, waiting: Counter[int]) -> int:
    """Place what one answer of the engine holds; return what it takes of devices."""
    kinds = [kind for kind in sorted(waiting) if cluster.fits(workload, kind).any()]
    if not kinds:
        return 0
    demands = [
        replace(demand(cluster, workload, kind, waiting[kind], method.growth(kind)), max_per_node=1) for kind in kinds
    ]
    question = problem(cluster, demands, maximize=True)
    answer = place(question)
    if not isinstance(answer, Placement):
        raise AssertionError(f"nothing has to be placed, and yet: {answer}")
    used = 0
    seats = assign(question, answer)
    taken: dict[int, list[tuple[int, tuple[int, ...]]]] = {}
    for kind, row, mine in zip(kinds, answer.counts, seats, strict=True):
        for node, pods in row:
            for number in range(pods):
                taken.setdefault(node, []).append((kind, mine[node][number] if node in mine else ()))
                waiting[kind] -= 1
                used += int(workload.asked[kind])
    for node, pods_here in taken.items():
        cluster.seat(workload, node, pods_here)
    return used


def _in_order(cluster: Cluster, workload: Workload, method: Muster, waiting: Counter[int]) -> int:
    used = 0
    for kind in sorted(waiting, key=lambda kind: (-int(workload.asked[kind]), -int(workload.other[0, kind]), kind)):
        while waiting[kind]:
            found = method.find(kind)
            if found is None:
                break
            cluster.put(workload, kind, *found)
            waiting[kind] -= 1
            used += int(workload.asked[kind])
    return used
