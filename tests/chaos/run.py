"""A busy day full of accidents, lived in a few minutes on the real API server: `make chaos`.

    python -m tests.chaos.run [--minutes 10] [--seed N] [--rate GANGS_A_SECOND] [--split] [--linger SECONDS]

Decided here: the order of a day (calm, faults, catching up, the end) and what makes it a failure. A seed decides all
that is left to chance, so a day that failed is lived again with its seed; only the clock differs. With --split each of
scheduler, binder and controllers has its own replicas, and an accident strikes one of these.

Checked by `audit`, straight at the API server: no pod is bound twice, no node holds more than it has, no queue more
than its limit, nobody is bound to a machine that is long gone, a gang that wants one rack is in one. At the end: no
gang is half, nobody waits who fits, within a minute; every gang ended whole; no BindRequest and no assumed pod is left;
and no log says that a promise of the design was broken.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random, SystemRandom
from typing import Any

import structlog

from scheduler.playground.client import Client
from scheduler.playground.kubelet import FakeKubelet
from tests.chaos import day as days
from tests.chaos import plan
from tests.chaos.audit import Audit
from tests.chaos.faults import Sky
from tests.chaos.proxy import Proxy
from tests.chaos.replicas import BINDER, LEASE, Replica
from tests.controlplane.cluster import ControlPlane
from tests.controlplane.fixtures import CRD_FOLDER

CATCH_UP = 60.0
"""Seconds after the faults in which everybody who fits is placed, and every gang is whole."""
MOMENT = 8.0
"""Seconds for which a gang may be half, or wait although it fits: it is being bound, evicted or made again."""
DRAIN = 240.0
"""Seconds after that in which every gang must have run to its end."""
REPLICAS = 2
COMPONENTS = {"scheduler": "muster", "binder": "muster-binder", "controllers": "muster-controllers"}
"""What runs apart, and the lease by which it leads."""
RATE = 0.6
"""Gangs a second: about two thirds of what the machines can take, if none of them is away."""
_REQUESTS = "/apis/scheduling.muster.sh/v1alpha1/bindrequests"
CONFIG = {
    "apiVersion": "config.muster.sh/v1alpha1", "kind": "SchedulerConfiguration", "schedulerNames": [days.SCHEDULER],
    "sessionPeriod": "200ms", "leaderElection": LEASE, "binder": BINDER, "healthAddress": "127.0.0.1:0",
    "logFormat": "json",
}  # fmt: skip


@dataclass
class Outcome:
    """What came of a day. It passed if `problems` is empty."""

    seed: int
    problems: list[str] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)

    def text(self) -> str:
        """Say it in lines."""
        lines = [f"seed {self.seed}: {'FAILED' if self.problems else 'passed'}"]
        lines += [f"  {name}: {value}" for name, value in self.facts.items()]
        return "\n".join([*lines, *(f"  PROBLEM {problem}" for problem in self.problems)])


class Chaos:
    """One day on a cluster that nobody else uses."""

    def __init__(
        self, cluster: ControlPlane, seed: int, seconds: float, directory: Path, rate: float, linger: float = 0.0,
        *, split: bool = False,
    ) -> None:  # fmt: skip
        self._components = COMPONENTS if split else {"": "muster"}
        self._dice = Random(f"{seed}/components")
        self.plan = plan.plan(seed, seconds, rate=rate)
        self.outcome = Outcome(seed)
        self._cluster, self._directory, self._linger = cluster, directory, linger
        self._api = Client(kubeconfig=cluster.kubeconfig)
        self._kubelet = FakeKubelet(
            kubeconfig=cluster.kubeconfig, nodes=[days.node_spec(name) for name in plan.nodes()], start_delay=0.2
        )
        self._audit = Audit(cluster.rest, days.NAMESPACE)
        self._day = days.Day(self._api, self._kubelet, self._audit)
        self._proxies = [Proxy(cluster, Sky(seed, f"way-{number}")) for number in range(REPLICAS)]
        self._replicas: list[Replica] = []
        self._tasks: list[asyncio.Task[None]] = []

    async def run(self) -> Outcome:
        """Live it."""
        async with contextlib.AsyncExitStack() as stack:
            for proxy in self._proxies:
                await stack.enter_async_context(proxy)
            stack.push_async_callback(self._api.close)
            await stack.enter_async_context(self._kubelet)
            self._audit.start()
            stack.callback(self._audit.stop)
            await self._day.prepare()
            self._cluster.kubectl("apply", "-f", str(CRD_FOLDER.with_name("rbac")))
            token = self._cluster.service_account_token("muster-system", "muster")
            if len(self._components) > 1:  # that account may hold one lease only; the chart makes others
                token = self._cluster.token
            stack.push_async_callback(self._day.stop)
            for number, proxy in enumerate(self._proxies):
                for only in self._components:
                    name = f"{only or 'replica'}-{number}"
                    replica = Replica(name, proxy.url, token, self._directory, CONFIG, only)
                    self._replicas.append(replica)
                    stack.push_async_callback(replica.stop)
                    replica.start()
            await self._live()
            await self._catch_up()
            await self._drain()
            await self._judge()
            if self.outcome.problems and self._linger:
                print(f"{self.outcome.text()}\nlook at it: KUBECONFIG={self._cluster.kubeconfig}", flush=True)
                await asyncio.sleep(self._linger)
        return self.outcome

    async def _live(self) -> None:
        began = time.monotonic()
        for proxy in self._proxies:
            proxy.begin()
        arriving = asyncio.create_task(self._day.arrive(self.plan, began))
        for one in self.plan.troubles:
            await asyncio.sleep(max(0.0, began + one.at - time.monotonic()))
            self._tasks.append(asyncio.create_task(self._trouble(one)))
        await arriving
        await asyncio.sleep(max(0.0, began + self.plan.seconds - time.monotonic()))
        for proxy in self._proxies:
            proxy.end()
        self._day.over.set()

    async def _trouble(self, one: plan.Trouble) -> None:
        if one.target not in ("leader", "standby"):
            await self._day.trouble(one)
            return
        only = self._dice.choice([*self._components])
        alike = [replica for replica in self._replicas if replica.only == only]
        holder = await self._holder(self._components[only])
        leader = next((replica for replica in alike if replica.holds(holder)), alike[0])
        other = next(replica for replica in alike if replica is not leader)
        await (leader if one.target == "leader" else other).trouble(one)

    async def _holder(self, lease: str) -> str:
        path = "/apis/coordination.k8s.io/v1/namespaces/muster-system/leases"
        found = await self._api.request("GET", path)
        held = {one["metadata"]["name"]: str(one["spec"].get("holderIdentity", "")) for one in found["items"]}
        return held.get(lease, "")

    async def _until(self, met: Callable[[], bool], within: float) -> float | None:
        """Return the seconds until it is so, or None."""
        began = time.monotonic()
        while time.monotonic() < began + within:
            if met():
                return time.monotonic() - began
            await asyncio.sleep(0.2)
        return None

    # -- after the faults -----------------------------------------------------------------------------------------

    async def _catch_up(self) -> None:
        facts, problems = self.outcome.facts, self.outcome.problems
        await self._day.mend()
        facts["gangs waiting or running at the end of the faults"] = len(self._day.living)
        since: dict[str, float] = {}
        began = time.monotonic()

        def met() -> bool:
            now = time.monotonic()
            late = [
                *(f"{gang} is half" for gang in self._audit.half()),
                *(f"{gang} fits" for gang in self._audit.idle()),
            ]
            for one in [one for one in since if one not in late]:
                del since[one]
            for one in late:
                since.setdefault(one, now)
            return now - began >= MOMENT and all(now - at < MOMENT for at in since.values())

        took = await self._until(met, CATCH_UP + MOMENT)
        facts["caught up after"] = "never" if took is None else f"{max(0.0, took - MOMENT):.1f} s"
        if took is None:
            problems.append(f"after {CATCH_UP:g} s still: {sorted(since)}")
            problems += [f"{gang}: {self._audit.story(gang)}" for gang in sorted(self._audit.half())]
        for error in await asyncio.gather(*self._tasks, return_exceptions=True):
            if isinstance(error, BaseException):
                problems.append(f"the day itself failed: {error!r}")

    async def _drain(self) -> None:
        took = await self._until(lambda: not self._day.living, DRAIN)
        if took is None:
            stuck = sorted(self._day.living)
            self.outcome.problems.append(f"these did not end whole within {DRAIN:g} s: {stuck[:20]}")
        self.outcome.facts["all gangs ended after another"] = "never" if took is None else f"{took:.1f} s"

    async def _judge(self) -> None:
        facts, problems = self.outcome.facts, self.outcome.problems
        problems += self._audit.violations
        left: list[str] = []
        for _ in range(100):  # their history is 5 s
            found = await self._api.request("GET", _REQUESTS)
            left = [one["metadata"]["name"] for one in found["items"]]
            if not left:
                break
            await asyncio.sleep(0.2)
        if left:
            problems.append(f"left over: BindRequests {left[:10]}")
        for replica in self._replicas:
            problems += replica.defects()
            problems += _left(replica.name, await replica.figures())
        facts |= {
            "gangs": len(self.plan.gangs),
            "gangs that ran to their end": len(self._day.done),
            "gangs that were deleted before": len(self._day.deleted),
            "pods bound": self._audit.counts["bound"],
            "pods made again": self._day.remade,
            "longest time that a gang which had not started was half": "{:.1f} s {}".format(*self._audit.longest_half),
            "requests through the faults": sum(proxy.requests for proxy in self._proxies),
            "faults": _told(sum((proxy.faults for proxy in self._proxies), Counter())),
            "accidents": _told(Counter(one.what for one in self.plan.troubles)),
            "lives of replicas": ", ".join(f"{one.lives} (exits {_told(one.exits)})" for one in self._replicas),
            "refused by a kubelet": len(self._kubelet.rejected),
        }


def _left(name: str, figures: dict[str, float]) -> list[str]:
    """Return what a process at rest still holds, or has counted as a bug."""
    found = []
    for metric, value in figures.items():
        plain = metric.partition("{")[0]
        if plain in ("muster_assumed_pods", "muster_bind_requests_open", "muster_bind_queue_depth") and value:
            found.append(f"{name}: {metric} is {value:g}")
        if plain.endswith(("_invariant_violations_total", "_misfits_total", "_perform_failures_total")) and value:
            found.append(f"{name}: {metric} is {value:g}")
    return found


def _told(counts: Counter[str]) -> str:
    return ", ".join(f"{number} {name}" for name, number in sorted(counts.items())) or "none"


def live(
    cluster: ControlPlane, seed: int, seconds: float, directory: Path, rate: float = RATE, linger: float = 0.0,
    *, split: bool = False,
) -> Outcome:  # fmt: skip
    """Live a day on a control plane that has the definitions and is used by nobody else."""
    create_namespace_named(cluster, days.NAMESPACE)

    async def lived() -> Outcome:
        task = asyncio.current_task()
        assert task is not None
        if threading.current_thread() is threading.main_thread():
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)  # no replica is left behind
        return await Chaos(cluster, seed, seconds, directory, rate, linger, split=split).run()

    return asyncio.run(lived())


def create_namespace_named(cluster: ControlPlane, name: str) -> None:
    """Make a namespace of this name, ready for pods."""
    cluster.rest.create("/api/v1/namespaces", {"metadata": {"name": name}})
    deadline = time.monotonic() + 60
    while not cluster.has_account(name):
        if time.monotonic() > deadline:
            raise TimeoutError(f"no default service account in namespace {name}")
        time.sleep(0.05)


def main() -> int:
    """Run from the command line; the exit code says whether the day passed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=SystemRandom().randrange(1_000_000))
    parser.add_argument("--rate", type=float, default=RATE, help="gangs a second")
    parser.add_argument(
        "--linger", type=float, default=0.0, help="seconds for which a day that failed can be looked at"
    )
    parser.add_argument(
        "--split", action="store_true", help="scheduler, binder and controllers as processes of their own"
    )
    arguments = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))  # of the fake kubelet
    print(f"seed {arguments.seed}, {arguments.minutes:g} minutes of faults ...", flush=True)
    directory = Path(tempfile.mkdtemp(prefix=f"muster-chaos-{arguments.seed}-"))
    with ControlPlane() as cluster:
        cluster.apply_crds(CRD_FOLDER)
        outcome = live(
            cluster, arguments.seed, arguments.minutes * 60, directory, arguments.rate, arguments.linger,
            split=arguments.split,
        )  # fmt: skip
    print(outcome.text())
    if outcome.problems:
        print(f"logs of the replicas: {directory}")
        split = " SPLIT=1" if arguments.split else ""
        print(f"live it again: make chaos MINUTES={arguments.minutes:g} SEED={arguments.seed}{split}")
        return 1
    shutil.rmtree(directory, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
