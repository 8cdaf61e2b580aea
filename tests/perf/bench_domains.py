"""How long the tree of domains of 5,000 nodes takes: at first, after one node changed, and while nothing changes.

Run: python -m tests.perf.bench --only topology

CPU time. Four levels of labels (zone, block, rack, host) on nodes with twenty labels more, and the same nodes in 220
HyperNodes that are found by patterns.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

from scheduler.framework.domains import DomainCache
from scheduler.model.nodes import HOSTNAME
from scheduler.model.topology import HyperNodeMember
from tests.perf import usage
from tests.perf.report import Row
from tests.unit.framework.world import World

NODES, RACK, BLOCK = 5000, 25, 500
CHANGES = 20


def _labels(number: int, rack: str = "") -> dict[str, str]:
    more = {f"example.com/label-{i}": str(number if i == 0 else i) for i in range(20)}
    return {**more, "zone": "z", "block": f"b{number // BLOCK}", "rack": rack or f"r{number // RACK:03}"}


def _labelled(world: World) -> None:
    world.topology("fabric", ("zone", "zone"), ("block", "block"), ("rack", "rack"), ("host", HOSTNAME))


def _grouped(world: World) -> None:
    for number in range(NODES // RACK):
        world.hypernode(f"rack-{number:03}", 1, HyperNodeMember("Node", pattern=f"^n{number:03}-"))
    for number in range(NODES // RACK // 10):
        world.hypernode(f"block-{number:02}", 2, HyperNodeMember("HyperNode", pattern=f"^rack-{number:02}"))


def _figures(name: str, wire: Callable[[World], None]) -> list[Row]:
    world, cache = World(), DomainCache()

    def put(number: int, rack: str = "") -> None:
        world.node(f"n{number // RACK:03}-{number % RACK:02}", gpu=8, labels=_labels(number, rack))

    for number in range(NODES):
        put(number)
    wire(world)
    snapshot = world.take()
    began = time.process_time()
    cache.of(snapshot)
    first = time.process_time() - began
    walls = []
    for number in range(CHANGES):
        put(number, f"moved-{number}")
        snapshot = world.take()
        began = time.process_time()
        cache.of(snapshot)
        walls.append(time.process_time() - began)
    began = time.process_time()
    cache.of(snapshot)
    same = time.process_time() - began
    middle = statistics.median(walls)
    text = f"{middle * 1e3:.1f} ms, worst {max(walls) * 1e3:.1f} ms"
    name = f"topology: domains after a change, {name} (first {first * 1e3:.0f} ms, none {same * 1e6:.0f} us)"
    return [Row(name, text, "< 10 ms", middle < 0.01, usage.machine())]


def rows(quick: bool) -> list[Row]:
    """All figures; quick makes no difference."""
    del quick
    return [*_figures("4 levels of labels", _labelled), *_figures("220 HyperNodes by pattern", _grouped)]
