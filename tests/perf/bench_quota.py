"""What dividing the cluster among very many queues costs.

    python -m tests.perf.bench --only quota

10,000 queues in a 5-level tree, 3 resources, more demand than there is; figures are medians.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

from scheduler.framework.book import Book, Ground
from scheduler.framework.queue_tree import QueueTree, Trees, build
from scheduler.model import quota
from scheduler.model.queues import Queue
from scheduler.model.resources import Amounts
from tests.perf import usage
from tests.perf.report import Row

RESOURCES = ("cpu", "memory", "nvidia.com/gpu")
TARGET = 0.1


def queues(count: int) -> dict[str, Queue]:
    """Four levels below the root, each with about ten times as many queues as the one above."""
    dice = random.Random(5)
    sizes = [max(1, count // 1000), max(1, count // 100), max(1, count // 10)]
    sizes.append(count - sum(sizes))
    made: dict[str, Queue] = {}
    above = [""]
    for depth, size in enumerate(sizes):
        level = [f"d{depth}-{number:05}" for number in range(size)]
        for number, name in enumerate(level):
            deserved: Amounts = ()
            if depth == 3 and number % 2:
                deserved = amounts(dice.randint(1, 16))
            made[name] = Queue(
                name=name,
                parent=above[number % len(above)],
                weight=dice.choice((500, 1000, 2000, 3300)),
                priority=dice.choice((0, 0, 0, 10)),
                deserved=deserved,
                limit=amounts(dice.randint(20, 60)) if depth == 3 and number % 3 == 0 else (),
            )
        above = level
    return made


def amounts(gpus: int) -> Amounts:
    """So many GPUs, and 12 cores and 100 GiB for each."""
    return (("cpu", gpus * 12_000), ("memory", gpus * 100 * 2**30), ("nvidia.com/gpu", gpus))


def timed(work: Callable[[], object], repeat: int) -> float:
    took = []
    for _ in range(repeat):
        began = time.perf_counter()
        work()
        took.append(time.perf_counter() - began)
    return statistics.median(took)


def charge_all(book: Book, names: list[str]) -> None:
    """What deciding about one group of each queue asks of the account."""
    ask = book.vector(amounts(1))
    for name in names:
        row = book.tree.index[name]
        if book.limited(row, ask) is None and book.reserved(row, ask) is None:
            book.charge(row, ask)


def rows(quick: bool) -> list[Row]:
    count = 1000 if quick else 10_000
    given = queues(count)
    tree = build(given)
    dice = np.random.default_rng(5)
    fields = tree.fields(RESOURCES)
    gpus = dice.integers(0, 40, len(tree.names))
    demand = gpus[:, None] * np.asarray([value for _, value in amounts(1)])
    demand[[not tree.is_leaf(name) for name in tree.names]] = 0
    total = np.asarray([value for _, value in amounts(4 * count)])
    history = quota.History(dice.random(demand.shape) / 100, 1.0)
    leaves = [name for name in tree.names if tree.is_leaf(name)]
    repeat = 3 if quick else 9
    trees = Trees()
    trees.of(given)
    changed = iter([{**given, leaves[1]: replace(given[leaves[1]], decayed_at=float(n))} for n in range(repeat)])
    found = [
        ("entitlements", TARGET, timed(lambda: quota.entitlements(tree.structure, fields, demand, total), repeat)),
        (
            "entitlements with usage history",
            TARGET,
            timed(lambda: quota.entitlements(tree.structure, fields, demand, total, history), repeat),
        ),
        ("build the tree", None, timed(lambda: build(given).fields(RESOURCES), repeat)),
        ("the same tree again", None, timed(lambda: trees.of(given), repeat)),
        ("the same tree, another object", None, timed(lambda: trees.of(next(changed)), repeat)),
        ("ask and charge once in each leaf", None, timed_account(tree, leaves, repeat)),
    ]
    return [
        Row(
            f"quota, {count} queues in 5 levels: {name}",
            f"{took * 1000:.1f} ms",
            f"< {target * 1000:.0f} ms" if target else "",
            took < target if target else None,
            usage.machine(),
        )
        for name, target, took in found
    ]


def timed_account(tree: QueueTree, leaves: list[str], repeat: int) -> float:
    """The time of asking and charging, in an account that is made outside it."""
    total = np.asarray([value for _, value in amounts(4 * len(tree.names))])
    ground = Ground.of(tree, RESOURCES, total, {})
    took = []
    for _ in range(repeat):
        book = Book(ground, np.zeros((len(tree.names), len(RESOURCES)), dtype=np.int64), {})
        took.append(timed(partial(charge_all, book, leaves), 1))
    return statistics.median(took)
