"""Twelve hours of a cluster in less than half an hour: `make soak`. Does anything grow that should not?

    python -m tests.chaos.soak [--hours 12] [--seed N]

Decided here: what an hour is (240 gangs of all dialects that arrive, run, are deleted or end), when memory is read (at
rest, after each hour), and what counts as a leak. Time is compressed by short runs, because memory grows with what
happened, not with the clock; the real API server, one replica, no faults.

Checked after each hour: no BindRequest, no assumed pod, no pod, group or write of the process is left. At the end: the
line through the memory of each process after the first third rises by less than `MOST` an hour.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import shutil
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from random import Random
from statistics import linear_regression

import structlog

from scheduler.playground.client import Client
from scheduler.playground.kubelet import FakeKubelet
from tests.chaos import day as days
from tests.chaos import plan
from tests.chaos.audit import Audit
from tests.chaos.replicas import Replica
from tests.chaos.run import CONFIG, create_namespace_named
from tests.controlplane.cluster import ControlPlane
from tests.controlplane.fixtures import CRD_FOLDER
from tests.perf import usage

GANGS = 240
"""An hour's gangs: one in fifteen seconds."""
RATE = 2.0
"""Gangs a second of real time."""
MOST = 1.0
"""MiB an hour that the memory of a process may rise by, once its caches are warm."""
REST = 120.0
"""Seconds in which everything has ended and was forgotten."""


def gangs(seed: int, hour: int) -> list[plan.Gang]:
    """Return the gangs of an hour; they run for moments."""
    dice = Random(f"{seed}/{hour}")
    found = []
    for number, gang in enumerate(plan.plan(dice.randrange(10**9), GANGS * 2 / RATE, rate=RATE).gangs[:GANGS]):
        until = gang.until and gang.at + dice.uniform(0.0, 1.0)
        name = f"g{hour:02d}{number:03d}-{gang.dialect}"
        dialect = "single" if gang.dialect == "job" else gang.dialect  # a Job's own controller has other clocks
        found.append(replace(gang, name=name, dialect=dialect, seconds=dice.choice((0.0, 0.2, 0.5)), until=until))
    return found


class Soak:
    """See the module."""

    def __init__(self, cluster: ControlPlane, seed: int, hours: int, directory: Path) -> None:
        self._cluster, self._seed, self._hours = cluster, seed, hours
        self._directory = directory
        self._api = Client(kubeconfig=cluster.kubeconfig)
        nodes = [days.node_spec(name) for name in plan.nodes()]
        self._kubelet = FakeKubelet(kubeconfig=cluster.kubeconfig, nodes=nodes, start_delay=0.0)
        self._audit = Audit(cluster.rest, days.NAMESPACE)
        self._day = days.Day(self._api, self._kubelet, self._audit)
        self.problems: list[str] = []
        self.memory: dict[str, list[float]] = {"io": [], "brain": []}

    async def run(self) -> None:
        """Live the hours."""
        async with contextlib.AsyncExitStack() as stack:
            stack.push_async_callback(self._api.close)
            await stack.enter_async_context(self._kubelet)
            self._audit.start()
            stack.callback(self._audit.stop)
            await self._day.prepare()
            stack.push_async_callback(self._day.stop)
            # With a lease that a busy machine cannot lose: a process that starts anew has forgotten what it leaked.
            config = {**CONFIG, "leaderElection": {"leaderElect": False}}
            replica = Replica("soak", self._cluster.server, self._cluster.token, self._directory, config)
            replica.trust(self._cluster.ca_file)
            stack.push_async_callback(replica.stop)
            replica.start()
            for hour in range(self._hours):
                await self._hour(hour, replica)
            self.problems += [*self._audit.violations, *replica.defects()]
            if replica.lives != 1:
                self.problems.append(f"the scheduler ended and was started again: {dict(replica.exits)}")
        self._judge()

    async def _hour(self, hour: int, replica: Replica) -> None:
        began = time.monotonic()
        for gang in gangs(self._seed, hour):
            await asyncio.sleep(max(0.0, began + gang.at - time.monotonic()))
            self._day.submit(gang)
        left: list[str] = ["not looked yet"]
        deadline = time.monotonic() + REST
        while left and time.monotonic() < deadline:
            await asyncio.sleep(1.0)
            left = await self._left(replica)
        self.problems += [f"after hour {hour + 1}: {one}" for one in left]
        for name, pid in zip(("io", "brain"), replica.pids(), strict=False):
            self.memory[name].append(usage.of([pid]).resident / 2**20 - self._below(name, replica))
        last = ", ".join(f"{name} {values[-1]:.1f} MiB" for name, values in self.memory.items())
        print(
            f"hour {hour + 1}: {time.monotonic() - began:.0f} s, {len(self._day.done)} gangs ended, {last}", flush=True
        )

    def _below(self, name: str, replica: Replica) -> float:
        """Return what of the first process's figure is its child's."""
        return usage.of([replica.pids()[1]]).resident / 2**20 if name == "io" else 0.0

    async def _left(self, replica: Replica) -> list[str]:
        found = await self._api.request("GET", "/apis/scheduling.muster.sh/v1alpha1/bindrequests")
        left = [f"BindRequest {one['metadata']['name']}" for one in found["items"]]
        left += [f"gang {name} has not ended" for name in sorted(self._day.living)]
        figures = await replica.figures()
        names = ("assumed_pods", "bind_requests_open", "bind_queue_depth", "write_queue_depth", "pending_pod_groups")
        shelves = ("pods", "groups", "bindrequests", "shapes")
        for metric, value in figures.items():
            plain, _, label = metric.removeprefix("muster_").partition("{")
            kept = plain == "cache_objects" and any(f'"{shelf}"' in label for shelf in shelves)
            if (plain in names or kept) and value:
                left.append(f"{metric} is {value:g}")
        return left or ([] if figures else ["the scheduler does not answer"])

    def _judge(self) -> None:
        for name, values in self.memory.items():
            later = values[len(values) // 3 :]
            if len(later) > 2:
                slope = linear_regression(range(len(later)), later).slope
                print(f"{name}: {values[0]:.1f} MiB after the first hour, {values[-1]:.1f} after the last, "
                      f"{slope:+.3f} MiB an hour")  # fmt: skip
                if slope > MOST:
                    self.problems.append(f"the memory of {name} rises by {slope:.2f} MiB an hour: {values}")


def main() -> int:
    """Run from the command line; the exit code says whether nothing grows."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--hours", type=int, default=12)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))  # of the fake kubelet
    directory = Path(tempfile.mkdtemp(prefix="muster-soak-"))
    with ControlPlane() as cluster:
        cluster.apply_crds(CRD_FOLDER)
        create_namespace_named(cluster, days.NAMESPACE)
        soak = Soak(cluster, arguments.seed, arguments.hours, directory)
        asyncio.run(soak.run())
    for problem in soak.problems:
        print(f"PROBLEM {problem}")
    if soak.problems:
        print(f"logs: {directory}")
        return 1
    shutil.rmtree(directory, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
