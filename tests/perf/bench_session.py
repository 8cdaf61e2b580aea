"""How long a whole session takes, on a synthetic cluster fed through the real store. Prints a table.

    python -m tests.perf.bench_session [--nodes 5000] [--running 50000] [--gangs 1000]

Rows: a session over many running pods and waiting gangs, first (nothing remembered), again with nothing changed, and
after everything changed; 500 gangs of 20 and 10,000 single pods placed in one session. Figures are medians.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time
from collections.abc import Callable

from tests.unit.framework.world import GPU, World, shape

REPEAT = 5


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


def timed(work: Callable[[], object], before: Callable[[], object] = lambda: None) -> float:
    took = []
    for _ in range(REPEAT):
        before()
        began = time.perf_counter()
        work()
        took.append(time.perf_counter() - began)
    return statistics.median(took)


def rows(nodes: int, running: int, gangs: int) -> list[tuple[str, float, str]]:
    out: list[tuple[str, float, str]] = []
    world = World()
    fill(world, nodes, running)
    wait(world, gangs)
    snapshot = world.take()
    gc.collect()
    gc.freeze()
    gc.disable()
    began = time.perf_counter()
    world.sessions.run(snapshot, "s-1")
    out.append((f"{running} running pods, {gangs} waiting gangs: first session", time.perf_counter() - began, ""))
    out.append(
        (
            "the same, nothing changed",
            timed(lambda: world.sessions.run(world.store.snapshot(world.now), "s-2")),
            "0.050",
        )
    )

    flip = iter(range(1_000_000))

    def change() -> None:
        number = next(flip)
        world.node(
            f"n{number % nodes:05}", gpu=8, cpu=97 + number, memory=1024, labels={"rack": "r000", "turn": str(number)}
        )
        world.flush()

    changed = timed(lambda: world.sessions.run(world.store.snapshot(world.now), "s-3"), change)
    out.append(("the same, a node changed: all looked at again", changed, "1.000"))

    def shake() -> None:
        change()
        for key in list(world.groups):
            if "/w" in key:
                world.store._dirty[key] = None
        world.now += 10

    shaken = timed(lambda: world.sessions.run(world.store.snapshot(world.now), "s-4"), shake)
    out.append(("the same, every waiting group changed too", shaken, "1.000"))

    for count, size in ((500, 20), (20, 500), (1, 10_000)):
        world = World()
        fill(world, 1250, 0)
        for number in range(count):
            world.gang(f"g{number:04}", size, created=float(number))
        snapshot = world.take()
        began = time.perf_counter()
        result = world.sessions.run(snapshot, "s-1")
        took = time.perf_counter() - began
        placed = result.counters.get("pods_placed", 0.0)
        out.append((f"{count} gangs x {size} placed in one session ({placed:.0f} pods)", took, "1.000"))
    world = World()
    fill(world, 1250, 0)
    for number in range(10_000):
        world.pod(f"p{number:05}", created=float(number // 100))
    snapshot = world.take()
    began = time.perf_counter()
    result = world.sessions.run(snapshot, "s-1")
    took = time.perf_counter() - began
    out.append((f"10,000 single pods placed in one session ({result.counters['pods_placed']:.0f} pods)", took, "1.000"))
    gc.enable()
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--running", type=int, default=50_000)
    parser.add_argument("--gangs", type=int, default=1000)
    given = parser.parse_args()
    print(f"{given.nodes} nodes with 8 {GPU}; seconds, median of {REPEAT} where repeated")
    for name, seconds, target in rows(given.nodes, given.running, given.gangs):
        verdict = "" if not target else "met" if seconds <= float(target) else "MISSED"
        print(f"{name:72} {seconds:8.4f}  target {target or '-':6} {verdict}")


if __name__ == "__main__":
    main()
