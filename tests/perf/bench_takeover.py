"""Two replicas on the real API server, and the leader goes: how long until the standby binds.

Decided here: when the clock starts (before the signal is sent), and what is bound: a gang that waits beside other pods
until a node gets the label that it asks for, which happens once the leader can no longer bind it: as soon as it has
given its lease back, or is killed. The lease is that of the defaults. Killed is all of the leader at once, so that
nobody gives the lease back: it then lasts for its duration from when its last renewal was seen, up to a retry period
before the kill, so that a single round may take a little longer than the lease.
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import time
import urllib.request

from scheduler.config import ElectionConfig
from tests.controlplane.cluster import ControlPlane
from tests.perf import subjects, usage, world
from tests.perf.bench_live import address_of, wait_ready
from tests.perf.observer import Observer
from tests.perf.report import Row, say
from tests.perf.subjects import ROOT, Subject
from tests.perf.world import Server

GANG, PENDING = 8, 500
"""Members of the gang that is bound first, and single pods that wait beside it for what no node has."""
CLEAN = 5.0
LEASE = "/apis/coordination.k8s.io/v1/namespaces/muster-system/leases/muster"
LABEL = "takeover"
_PATIENCE, _SETTLED = 60.0, 3.0
"""Seconds: before it is given up, and between the gang and the signal, so that it waits and is known to both."""


def rows(quick: bool) -> list[Row]:
    """Measure both ways to go."""
    nodes, pending, rounds = (100, 50, 2) if quick else (1000, PENDING, 5)
    took: dict[str, list[float]] = {}
    with ControlPlane(benchmark=True) as plane:
        plane.apply_crds(ROOT / "config" / "crd")
        server = Server.of(plane)
        world.make(server, [world.namespace()])
        say(f"creating {nodes} nodes and {pending} pods that wait")
        world.make(server, world.nodes(nodes))
        waiting = (world.pod(f"w{number:05}", "muster", cpu="1000") for number in range(pending))
        world.make(server, [(world.PODS, json.dumps(pod).encode()) for pod in waiting])
        observer = Observer(server)
        observer.start(GANG)
        pair = _Pair(server, plane)
        try:
            for way in ("SIGTERM", "SIGKILL"):
                for number in range(rounds):
                    took.setdefault(way, []).append(_round(pair, observer, way, f"{way.lower()}-{number}"))
                    say(f"{way}: {took[way][-1]:.2f} s")
        finally:
            pair.stop()
            observer.stop()
    return [_row(way, figures, f"{nodes} nodes, {pending} pods wait") for way, figures in took.items()]


def _row(way: str, took: list[float], where: str) -> Row:
    middle, worst = statistics.median(took), max(took)
    lease = ElectionConfig().lease_duration
    clean = way == "SIGTERM"
    return Row(
        f"takeover after {way}, {where}",
        f"median {middle:.2f} s, worst {worst:.2f} s of {len(took)}",
        f"every one < {CLEAN:g} s" if clean else f"median < {lease:g} s, the lease",
        worst < CLEAN if clean else middle < lease,
        usage.machine(),
    )


def _round(pair: _Pair, observer: Observer, way: str, name: str) -> float:
    """Return the seconds from the signal to the first bind of a gang by the other replica."""
    leader = pair.leader()
    world.make(pair.server, [world.group(name, GANG)])
    pods = [world.pod(f"{name}-{i}", "muster", group=name, selector={LABEL: name}) for i in range(GANG)]
    world.make(pair.server, [(world.PODS, json.dumps(pod).encode()) for pod in pods])
    time.sleep(_SETTLED)
    observer.again(GANG)
    began = time.monotonic()
    if way == "SIGKILL":
        os.killpg(leader.pid, signal.SIGKILL)
    else:
        holder = pair.holder()
        leader.process.send_signal(signal.SIGTERM)
        while pair.holder() == holder and leader.process.poll() is None:
            if time.monotonic() - began > _PATIENCE:
                raise RuntimeError(f"the leader does not end:\n{leader.tail()}")
    node = f"{world.NODES}/{world.node_name(pair.replaced)}"
    pair.plane.rest.patch(node, {"metadata": {"labels": {LABEL: name}}})
    if not observer.wait(_PATIENCE):
        raise RuntimeError(f"{observer.bound} of {GANG} pods were bound in {_PATIENCE:g} s")
    pair.replace(leader)
    return observer.first - began


class _Pair:
    """Two replicas; `leader` is the one that holds the lease."""

    def __init__(self, server: Server, plane: ControlPlane) -> None:
        self.server, self.plane = server, plane
        self._started = self.replaced = 0
        self._running: list[Subject] = [self._start(), self._start()]

    def _start(self) -> Subject:
        directory = self.plane.directory / f"replica-{self._started}"
        directory.mkdir()
        self._started += 1
        return subjects.muster(self.server, directory)

    def leader(self) -> Subject:
        """Wait until both are ready and one leads; return that one."""
        for one in self._running:
            wait_ready(one)
        began = time.monotonic()
        while time.monotonic() - began < _PATIENCE:
            found = [one for one in self._running if _leads(one)]
            if len(found) == 1:
                return found[0]
            time.sleep(0.1)
        raise RuntimeError(f"nobody leads after {_PATIENCE:g} s:\n{self._running[0].tail()}")

    def holder(self) -> str:
        """Return who holds the lease, "" = nobody."""
        return str(self.plane.rest.get(LEASE)["spec"].get("holderIdentity") or "")

    def replace(self, gone: Subject) -> None:
        """Reap one and start another in its place, as a standby."""
        gone.stop()
        self.replaced += 1
        self._running = [one for one in self._running if one is not gone] + [self._start()]

    def stop(self) -> None:
        """End both."""
        for one in self._running:
            one.stop()


def _leads(one: Subject) -> bool:
    with urllib.request.urlopen(f"http://{address_of(one)}/debug/state", timeout=10) as answer:
        return bool(json.loads(answer.read())["leading"])
