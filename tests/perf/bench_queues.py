"""How long sessions take that make room for queues: real sessions over the real store, on a synthetic cluster.

    python -m tests.perf.bench --only queues

500 nodes with 8 GPUs, all of them held: by single pods of a queue that borrows, or by gangs of 8. Then 10,000 queues
with few pods, and 5,000 nodes with 50,000 pods on which 1,000 gangs of 200 queues want room while what is decided is
carried out. A figure is the time of the sessions themselves; binding and evicting cost nothing here.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from scheduler.model.resources import Amounts
from tests.perf import bench_quota, usage
from tests.perf.report import Row
from tests.unit.framework.world import GPU, World, shape

ONE = shape(gpu=1, cpu=8, memory=64)
SESSIONS = 40
MOST_SESSIONS = 400
"""A case in which not everything is decided after so many sessions has failed."""


@dataclass(frozen=True)
class Figure:
    """seconds: what is measured, None where what was expected did not happen. target: seconds, None: there is none."""

    name: str
    seconds: float | None
    target: float | None
    more: str = ""


def gpus(count: int) -> Amounts:
    """So many GPUs and nothing else."""
    return ((GPU, count),)


def cluster(nodes: int, *, owed: int) -> World:
    """Empty nodes with 8 GPUs in racks of 16; queue `poor` deserves so many GPUs and holds none, `rich` borrows."""
    world = World()
    for number in range(nodes):
        world.node(f"n{number:05}", gpu=8, cpu=96, memory=1024, labels={"rack": f"r{number // 16:03}"})
    world.queue("poor", deserved=gpus(owed)).queue("rich", deserved=gpus(nodes * 8 - owed))
    return world


def hold(world: World, nodes: int, *, size: int, held: int = 8, owner: str = "") -> World:
    """Let queue `rich` hold `held` GPUs of each node: in gangs of so many pods, or in single pods."""
    for number in range(nodes * held):
        key = ""
        if size > 1:
            if number % size == 0:
                world.group(f"run{number // size}", size, phase="Running", queue="rich")
            key = f"muster/ns/run{number // size}"
        since = 1.0 + (number * 7919) % 900
        fields = {"owner_uid": f"{owner}-{number}", "owner_name": owner} if owner else {}
        world.running(f"r{number:05}", f"n{number // held:05}", ONE, queue="rich", group=key, since=since, **fields)
    return world


def session(world: World) -> float:
    """Run one session; return its seconds."""
    snapshot = world.take()
    began = time.perf_counter()
    world.result = world.sessions.run(snapshot, "s-1")
    return time.perf_counter() - began


def until_decided(world: World, waiting: int) -> tuple[float | None, int]:
    """Run sessions, each decision carried out, until so many groups are placed: the seconds of all, and how many."""
    took, placed = 0.0, 0
    for number in range(1, MOST_SESSIONS):
        took += session(world)
        placed += len(world.places)
        if placed >= waiting:
            return took, number
        world.carry_out()
        world.now += 1.0
    return None, MOST_SESSIONS


def cannot_reclaim(nodes: int) -> Figure:
    """The gang of another queue is within what its queue is owed, and yet no set of victims makes room in one rack."""
    world = hold(cluster(nodes, owed=nodes * 2), nodes, size=8)
    world.gang("want", 33, of=shape(gpu=4, cpu=32, memory=256), topology="rack", queue="poor")
    took = session(world)
    return Figure(f'"cannot reclaim" on {nodes} full nodes', took if not world.places else None, 1.0)


def reclaim_gang(nodes: int, size: int) -> Figure:
    """One gang needs as many pods gone as there are nodes."""
    world = hold(cluster(nodes, owed=nodes * 2), nodes, size=size)
    world.gang("want", nodes, of=ONE, queue="poor")
    took = session(world)
    whom = "single pods" if size == 1 else f"gangs of {size}"
    good = len(world.places) == 1 and len(world.victims) >= nodes
    return Figure(f"reclaim of {nodes} pods for one gang, from {whom}", took if good else None, 2.0)


def reclaim_singles(nodes: int, count: int) -> Figure:
    """Single pods that each need one pod of another queue gone."""
    world = hold(cluster(nodes, owed=count), nodes, size=1)
    for number in range(count):
        world.pod(f"p{number:05}", ONE, queue="poor", created=float(number // 100))
    before = time.process_time()
    took, sessions = until_decided(world, count)
    cpu = time.process_time() - before
    return Figure(f"{count} single-GPU reclaims", took, 10.0, f"{sessions} sessions; cpu {cpu:.1f} s, feeding included")


def consolidate(nodes: int, moves: int) -> Figure:
    """Nodes have one to three GPUs free; the gang needs whole nodes, which 40 pods have to leave."""
    world = cluster(nodes, owed=nodes * 8)
    dice = np.random.default_rng(3)
    number = 0
    for node in range(nodes):
        for _ in range(8 - int(dice.integers(1, 4))):
            fields = {"owner_uid": f"o-{number}", "owner_name": f"o{number}", "queue": "rich"}
            world.running(f"r{number:05}", f"n{node:05}", ONE, since=1.0 + number, **fields)
            number += 1
    world.gang("want", moves // 5, of=shape(gpu=8, cpu=64, memory=512), queue="poor")
    took = session(world)
    gone = len(world.victims)
    moved = [victim for place in world.places for victim in place.victims if victim.move_to]
    good = bool(world.places) and gone == len(moved) and gone >= moves
    return Figure(f"consolidation of {nodes} nodes, {gone} moves", took if good else None, 5.0)


def many_queues(count: int, pods: int) -> Iterator[Figure]:
    """A session among very many queues: the first, one in which little differs, one after a queue changed."""
    world = World()
    world.nodes(50, gpu=8, cpu=96, memory=1024)
    made = bench_quota.queues(count)
    for queue in made.values():
        fields = {"parent": queue.parent, "weight": queue.weight, "priority": queue.priority, "uid": queue.name}
        world.queue(queue.name, **fields, deserved=queue.deserved, limit=queue.limit)
    leaves = sorted(name for name in made if name.startswith("d3-"))
    for number in range(pods):
        world.pod(f"p{number:04}", ONE, queue=leaves[(number * 37) % len(leaves)])
    yield Figure(f"{count} queues, {pods} pods: first session", session(world), None)
    world.carry_out()
    world.now += 1.0
    yield Figure(f"{count} queues, {pods} pods running: next session", session(world), 1.0)
    world.pod("late", ONE, queue=leaves[0])
    world.now += 1.0
    yield Figure(f"{count} queues, one more pod", session(world), 1.0)


def crowded(nodes: int, running: int, gangs: int, queues: int) -> World:
    """Every queue runs pods of low priority; half of them more than they are owed, the others less; all want more."""
    world = World()
    for number in range(nodes):
        world.node(f"n{number:05}", gpu=8, cpu=96, memory=1024, labels={"rack": f"r{number // 16:03}"})
    for number in range(queues):
        world.queue(f"q{number:03}", deserved=gpus(nodes * 8 // queues))
    cpu = shape(cpu=1)
    for number in range(running):
        # three quarters of the pods are of the first half of the queues
        group = number // 8
        turn = group % 4
        half = queues // 2
        owner = (group // 4 * 3 + turn) % half if turn < 3 else half + group // 4 % (queues - half)
        name = f"run{group}"
        if number % 8 == 0:
            world.group(name, 8 if group % 3 else 4, phase="Running", queue=f"q{owner:03}")
        of = ONE if number < nodes * 8 else cpu
        world.running(
            f"r{number:05}", f"n{number // 8 % nodes:05}", of, group=f"muster/ns/{name}", queue=f"q{owner:03}",
            since=1.0 + (number * 7919) % 900,
        )  # fmt: skip
    for number in range(gangs):
        queue = f"q{number % queues:03}"
        high = {"priority": 100} if number % 3 else {}
        world.gang(f"w{number:04}", 8 + number % 57, of=ONE, queue=queue, created=float(number), pod=high)
    return world


def under_pressure(nodes: int, running: int, gangs: int, queues: int, sessions: int) -> Iterator[Figure]:
    """Sessions while room is made for everybody, each decision carried out at once, a second apart."""
    world = crowded(nodes, running, gangs, queues)
    world.take()
    gc.collect()
    gc.freeze()
    took, cpu, placed, gone = [], [], 0, 0
    for _ in range(sessions):
        world.take()
        before = time.process_time()
        took.append(session(world))
        cpu.append(time.process_time() - before)
        placed += len(world.places)
        gone += len(world.victims)
        world.carry_out()
        world.now += 1.0
    what = f"{nodes} nodes, {running} pods, {gangs} gangs in {queues} queues"
    more = f"cpu {statistics.median(cpu):.2f} s; {sessions} sessions, {placed} gangs placed, {gone} pods evicted"
    yield Figure(f"{what}: session, p50", statistics.median(took), None, more)
    more = f"cpu {float(np.quantile(cpu, 0.99)):.2f} s; longest {max(took):.2f} s"
    yield Figure(f"{what}: session, p99", float(np.quantile(took, 0.99)), 2.0, more)
    gc.unfreeze()


def all_figures(quick: bool) -> Iterator[Figure]:
    """Yield every figure."""
    nodes = 50 if quick else 500
    cases: tuple[Callable[[], Figure], ...] = (
        lambda: cannot_reclaim(nodes),
        lambda: reclaim_gang(nodes, 1),
        lambda: reclaim_gang(nodes, 8),
        lambda: reclaim_singles(nodes, 8 * nodes),
        lambda: consolidate(nodes, 4 if quick else 40),
    )
    for case in cases:
        yield case()
    yield from many_queues(1000 if quick else 10_000, 200)
    yield from under_pressure(*((500, 5000, 100, 20) if quick else (5000, 50_000, 1000, 200)), SESSIONS)


def rows(quick: bool) -> list[Row]:
    """Return the rows of the table."""
    from scheduler.placement import warm_up

    warm_up()
    return [_row(figure) for figure in all_figures(quick)]


def _row(figure: Figure) -> Row:
    said = "not decided as expected" if figure.seconds is None else f"{figure.seconds * 1000:.0f} ms"
    target = f"< {figure.target * 1000:.0f} ms" if figure.target else ""
    met = figure.seconds is not None and (figure.target is None or figure.seconds < figure.target)
    return Row(
        f"queues: {figure.name}",
        f"{said} ({figure.more})" if figure.more else said,
        target,
        met if figure.target else None if met else False,
        usage.machine(),
    )
