"""One busy day as data: which gangs come when, what happens to nodes, queues and processes.

Decided here: everything that is left to chance, from the seed alone, so that a day that failed can be lived again.
Knows no API and no clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

GPUS = 8
NODES, RACK = 10, 5
"""Machines, and how many of them are in a rack."""
DIALECTS = ("muster", "volcano", "coscheduling", "native", "kai", "job", "single")
_OFTEN = (6, 4, 3, 3, 3, 1, 4)
QUEUES = {"chaos-a": (16, 32), "chaos-b": (32, 64), "chaos-c": (24, 80)}
"""Name -> what it deserves and its limit, in GPUs, at the beginning."""


@dataclass(frozen=True, slots=True)
class Gang:
    """A gang that arrives at `at`, runs for `seconds`, or is deleted at `until`."""

    name: str
    at: float
    dialect: str
    queue: str
    size: int
    minimum: int
    gpu: int
    seconds: float
    until: float = 0.0
    high: bool = False
    rack: bool = False


@dataclass(frozen=True, slots=True)
class Trouble:
    """Something that happens at `at` and is over after `seconds`.

    Of nodes: lost, cordoned, shrunk (its GPUs halved), silent (not ready). Of queues: limit, deserved (to `value`),
    hold. Of a replica: kill-io, kill-brain, kill-both, stop, stop-io, stop-brain, end (in order).
    """

    at: float
    what: str
    target: str
    seconds: float = 0.0
    value: int = 0


@dataclass(frozen=True, slots=True)
class Day:
    """The plan; times are seconds from the beginning."""

    seconds: float
    gangs: tuple[Gang, ...]
    troubles: tuple[Trouble, ...]


def nodes() -> list[str]:
    """Return the names of the nodes."""
    return [f"chaos-n{number}" for number in range(NODES)]


def plan(seed: int, seconds: float, *, rate: float = 0.8) -> Day:
    """Return the day of this seed. rate: gangs a second."""
    troubles = [
        *_of_nodes(Random(f"{seed}/nodes"), seconds),
        *_of_queues(Random(f"{seed}/queues"), seconds),
        *_of_replicas(Random(f"{seed}/replicas"), seconds),
    ]
    gangs = tuple(_gangs(Random(f"{seed}/gangs"), seconds, rate))
    return Day(seconds, gangs, tuple(sorted(troubles, key=lambda one: (one.at, one.what, one.target))))


def _gangs(dice: Random, seconds: float, rate: float) -> list[Gang]:
    found: list[Gang] = []
    at = 0.5
    while at < seconds:
        dialect = dice.choices(DIALECTS, _OFTEN)[0]
        size = 1 if dialect == "single" else dice.choice((2, 2, 3, 4, 4, 6, 8, 12))
        gpu = dice.choice((1, 1, 2, 4)) if size < 8 else dice.choice((1, 2))
        elastic = dialect not in ("single", "job") and size > 2 and dice.random() < 0.25
        found.append(
            Gang(
                name=f"g{len(found):04d}-{dialect}",
                at=at,
                dialect=dialect,
                queue=dice.choice(tuple(QUEUES)),
                size=size,
                minimum=size - dice.randint(1, size // 2) if elastic else size,
                gpu=gpu,
                seconds=dice.choice((2.0, 4.0, 6.0, 10.0, 15.0)),
                until=at + dice.uniform(0.2, 12.0) if dice.random() < 0.15 else 0.0,
                high=dice.random() < 0.15,
                rack=dialect == "muster" and size * gpu <= 24 and dice.random() < 0.3,
            )
        )
        at += dice.expovariate(rate)
    return found


def _times(dice: Random, first: float, seconds: float, mean: float) -> list[float]:
    found, at = [], first + dice.expovariate(1 / mean)
    while at < seconds:
        found.append(at)
        at += dice.expovariate(1 / mean)
    return found


def _of_nodes(dice: Random, seconds: float) -> list[Trouble]:
    found, busy = [], dict.fromkeys(nodes(), 0.0)
    for at in _times(dice, 5.0, seconds - 2, 6.0):
        node = dice.choice(nodes())
        what = dice.choice(("lost", "lost", "cordoned", "shrunk", "silent"))
        # The long ones outlast every decision that was under way.
        lasts = dice.uniform(30.0, 45.0) if dice.random() < 0.2 else dice.uniform(2.0, 12.0)
        if at > busy[node]:
            busy[node] = at + lasts + 3.0
            found.append(Trouble(at, what, node, lasts))
    return found


def _of_queues(dice: Random, seconds: float) -> list[Trouble]:
    found = []
    for at in _times(dice, 5.0, seconds - 2, 8.0):
        queue = dice.choice(tuple(QUEUES))
        what = dice.choice(("limit", "limit", "deserved", "hold"))
        value = dice.randint(1, 4) * (12 if what == "limit" else 6)
        found.append(Trouble(at, what, queue, dice.uniform(1.0, 6.0) if what == "hold" else 0.0, value))
    return found


def _of_replicas(dice: Random, seconds: float) -> list[Trouble]:
    accidents = ("kill-io", "kill-brain", "kill-both", "kill-both", "stop", "stop", "stop-io", "stop-brain", "end")
    return [
        Trouble(at, dice.choice(accidents), dice.choice(("leader", "leader", "standby")), dice.uniform(1.0, 9.0))
        for at in _times(dice, 8.0, seconds - 2, 10.0)
    ]
