"""What the page costs: the session process for each answer, the io process for each page, and how large pages are.

    python -m tests.perf.bench --only page

5,000 nodes with 8 GPUs in blocks and racks, all held but on some; 50,000 running pods; 1,000 gangs that wait, in 200
queues. Nothing is made for the page unless somebody looks, so a session costs the same.
Seconds are those of the processor: only this process works, and what runs beside it does not matter.
"""

from __future__ import annotations

import asyncio
import gc
import statistics
import time
from collections.abc import Callable

from scheduler.web.asking import Desk
from tests.perf import usage
from tests.perf.report import Row
from tests.unit.framework.world import GPU, World, shape
from tests.unit.web.house import House

REPEAT = 5
PAGES = (
    ("overview", "/page/", ""),
    ("gangs that wait, 50 of them", "/page/gangs", ""),
    ("a gang", "/page/gangs/ns/w0050", ""),
    ("a queue", "/page/queues/q003", ""),
    ("nodes, 100 of them", "/page/nodes", ""),
    ("heat map", "/page/topology", ""),
)
VIEWS: tuple[tuple[str, dict[str, str]], ...] = (
    ("overview", {}),
    ("gangs", {}),
    ("gang", {"namespace": "ns", "name": "w0050"}),
    ("queue", {"name": "q003"}),
    ("nodes", {}),
    ("topology", {}),
)


def large(nodes: int, running: int, gangs: int, queues: int) -> World:
    """See the module; racks of 16 nodes, blocks of 16 racks."""
    world = World()
    world.now = time.time()
    world.topology("fabric", ("block", "block"), ("rack", "rack"))
    for number in range(nodes):
        labels = {"rack": f"r{number // 16:03}", "block": f"b{number // 256:02}", "pool": f"pool-{number % 3}"}
        world.node(f"n{number:05}", gpu=8, cpu=96, memory=1024, labels=labels, unschedulable=number % 97 == 0)
    for number in range(queues):
        top = number % 10
        parent = "" if number < 10 else f"q{top:03}"
        share = ((GPU, nodes * 8 // 10 if number < 10 else nodes * 8 // queues),)
        limit = ((GPU, nodes * 8 // 5),) if number % 3 == 0 else ()
        kept = ((GPU, nodes // 5 if number < 10 else nodes // 250),) if number < 10 or number % 4 == 0 else ()
        world.queue(f"q{number:03}", parent=parent, deserved=share, limit=limit, guarantee=kept, created=float(number))
    leaf = range(10, queues) if queues > 10 else range(queues)
    held = max(1, nodes - nodes // 20)
    for number in range(running):
        key = f"muster/ns/run{number // 20:04}"
        if number % 20 == 0:
            queue = f"q{leaf[number // 20 % len(leaf)]:03}"
            world.group(f"run{number // 20:04}", 20, phase="Running", queue=queue, created=world.now - 9000 - number)
        of = shape(gpu=1, cpu=4) if number // held < 8 else shape(cpu=1)
        world.running(f"r{number}", f"n{number % held:05}", of, group=key, since=world.now - 9000, index=number % 20)
    for number in range(gangs):
        of = shape(gpu=4 + number % 5, cpu=8, memory=8)
        world.gang(
            f"w{number:04}", 40 + number % 57, of=of, topology="rack" if number % 3 == 0 else "",
            queue=f"q{leaf[number % len(leaf)]:03}", created=world.now - 60 * (gangs - number),
        )  # fmt: skip
    world.flush()
    return world


def _median(work: Callable[[], object], before: Callable[[], object] = lambda: None) -> float:
    took = []
    for _ in range(REPEAT):
        before()
        began = time.process_time()
        work()
        took.append(time.process_time() - began)
    return statistics.median(took)


def _answers(house: House) -> list[Row]:
    result = house.world.result
    assert result is not None
    session = result.session
    assert session is not None
    actions, machine = house.world.config.actions, usage.machine()

    def told(view: str, asked: dict[str, str]) -> Callable[[], bytes]:
        return lambda: house.desk.answer(session, actions, view, asked)

    def forget() -> None:
        house.desk = Desk()

    rows = []
    for view, asked in VIEWS:
        first, again = _median(told(view, asked), forget), _median(told(view, asked))
        size = len(told(view, asked)())
        text = f"{first * 1000:.1f} ms, asked again {again * 1000:.1f} ms; {size / 1024:.0f} KiB"
        rows.append(Row(f"page: session process answers {view}", text, "< 100 ms", first < 0.1, machine))
    return rows


async def _longest_turn(house: House, path: str, query: str) -> tuple[float, float, int]:
    """Return seconds for a page that is asked for the second time, the longest time that the loop was held, bytes."""
    await house.get(path, query)
    longest, last, done = 0.0, time.process_time(), False

    async def tick() -> None:
        nonlocal longest, last
        while not done:
            await asyncio.sleep(0)
            now = time.process_time()
            longest, last = max(longest, now - last), now

    ticking = asyncio.create_task(tick())
    await asyncio.sleep(0)
    longest, began = 0.0, time.process_time()
    reply = await house.get(path, query)
    took, done = time.process_time() - began, True
    await ticking
    return took, longest, len(reply.body)


def rows(quick: bool) -> list[Row]:
    size = (500, 5000, 100, 20) if quick else (5000, 50_000, 1000, 200)
    house = House(large(*size))
    house.session()
    house.world.carry_out()
    gc.collect()
    gc.freeze()
    machine = usage.machine()
    bare = _median(lambda: house.session(later=1.0))
    found = [Row("page: a session that nobody looks at", f"{bare * 1000:.1f} ms", "", None, machine)]
    found += _answers(house)
    for name, path, query in PAGES:
        took, longest, weight = asyncio.run(_longest_turn(house, path, query))
        text = f"{took * 1000:.0f} ms, the loop held {longest * 1000:.0f} ms at most; {weight / 1024:.0f} KiB"
        found.append(Row(f"page: io process makes {name}", text, "held < 40 ms", longest < 0.04, machine))
    return found
