"""How long a whole session takes, on a synthetic cluster fed through the real store. Prints a table.

    python -m tests.perf.bench_session [--nodes 5000] [--running 50000] [--gangs 1000]

Rows: a session over many running pods and waiting gangs, first (nothing remembered), again with nothing changed, and
after everything changed; 500 gangs of 20 and 10,000 single pods placed in one session. Figures are medians.
"""

from __future__ import annotations

import argparse
import gc
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

from scheduler.placement import warm_up
from tests.unit.framework.world import GPU, World, shape

REPEAT = 5
Took: TypeAlias = tuple[float, float]


def fill(world: World, nodes: int, running: int, *, free_nodes: int = 0) -> None:
    """Nodes with 8 GPUs and 10 running pods each, in gangs of 20; all GPUs are held but on `free_nodes` of them."""
    for number in range(nodes):
        world.node(f"n{number:05}", gpu=8, cpu=96, memory=1024, labels={"rack": f"r{number // 16:03}"})
    for number in range(running):
        node = number % max(1, nodes - free_nodes)
        group = world.group(f"run{number // 20}", 20, phase="Running") if number % 20 == 0 else None
        key = group.key if group is not None else f"muster/ns/run{number // 20}"
        of = shape(gpu=1, cpu=4) if number // max(1, nodes - free_nodes) < 8 else shape(cpu=1)
        world.running(f"r{number}", f"n{node:05}", of, group=key)
    world.flush()


def wait(world: World, gangs: int) -> None:
    """Gangs of 8 to 64 members that do not fit; every eighth has a launcher of another shape."""
    for number in range(gangs):
        size = 8 + number % 57
        group = world.gang(f"w{number:04}", size, of=shape(gpu=1, cpu=4, memory=1 + number % 3), created=float(number))
        if number % 8 == 0:
            world.member(group, 99, shape(cpu=2 + number % 4))
    world.flush()


def timed(work: Callable[[], object], before: Callable[[], object] = lambda: None, repeat: int = REPEAT) -> Took:
    """Return the medians of wall clock and CPU seconds."""
    wall, cpu = [], []
    for _ in range(repeat):
        before()
        began, began_cpu = time.perf_counter(), time.process_time()
        work()
        wall.append(time.perf_counter() - began)
        cpu.append(time.process_time() - began_cpu)
    return statistics.median(wall), statistics.median(cpu)


def over_a_full_cluster(nodes: int, running: int, gangs: int) -> list[tuple[str, Took, str]]:
    """Nothing can be placed: what waiting costs."""
    world = World()
    fill(world, nodes, running)
    wait(world, gangs)
    flip = iter(range(1_000_000))
    gc.collect()
    gc.freeze()

    def session() -> None:
        world.sessions.run(world.take(), "s-1")

    def change_amounts() -> None:
        uid = f"uid-r{next(flip)}"
        world.set_pod(replace(world.pods[uid], phase="Succeeded"))
        world.flush()

    def change_nodes() -> None:
        number = next(flip)
        labels = {"rack": "r000", "turn": str(number)}
        world.node(f"n{number % nodes:05}", gpu=8, cpu=97 + number, memory=1024, labels=labels)
        world.flush()

    def change_everything() -> None:
        change_nodes()
        for group in list(world.groups.values()):
            if group.name.startswith("w"):
                world.set_group(replace(group, generation=group.generation + 1))
        world.now += 10
        world.flush()

    return [
        (f"{running} running pods, {gangs} waiting gangs: first session", timed(session, repeat=1), ""),
        ("the same, nothing changed", timed(session), "0.050"),
        ("the same, a pod ended", timed(session, change_amounts), "1.000"),
        ("the same, a node changed", timed(session, change_nodes), "1.000"),
        ("the same, a node and every waiting group changed", timed(session, change_everything), "1.000"),
    ]


def into_an_empty_cluster() -> list[tuple[str, Took, str]]:
    """Everything can be placed: 10,000 pods of one GPU on 1,250 nodes with 8, in one session."""
    out: list[tuple[str, Took, str]] = []
    for count, size in ((500, 20), (20, 500), (1, 10_000), (10_000, 1)):
        world = World()
        fill(world, 1250, 0)
        for number in range(count):
            if size == 1:
                world.pod(f"p{number:05}", created=float(number // 100))
            else:
                world.gang(f"g{number:04}", size, created=float(number))
        snapshot = world.take()
        took = timed(lambda world=world, snapshot=snapshot: world.sessions.run(snapshot, "s-1"), repeat=1)  # type: ignore[misc]
        assert world.sessions.cache.seen
        out.append((f"{count} x {size} pods placed in one session", took, "1.000"))
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--running", type=int, default=50_000)
    parser.add_argument("--gangs", type=int, default=1000)
    given = parser.parse_args()
    warm_up()
    print(
        f"{given.nodes} nodes with 8 {GPU}; seconds, median of {REPEAT} where repeated; load {os.getloadavg()[0]:.1f}"
    )
    print(f"{'':64} {'wall':>8} {'cpu':>8}   target")
    found = [*into_an_empty_cluster(), *over_a_full_cluster(given.nodes, given.running, given.gangs)]
    for name, (wall, cpu), target in found:
        verdict = "" if not target else "met" if wall <= float(target) else "MISSED"
        print(f"{name:64} {wall:8.4f} {cpu:8.4f}   {target or '-':6} {verdict}")


if __name__ == "__main__":
    main()
