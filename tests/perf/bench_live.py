"""A running scheduler on the real API server: how soon a gang is bound, what idling costs, what a full cluster needs.

Decided here: when the clock starts (the last member's creation is answered) and what counts as idle (nothing is created
or changed by anybody else).
"""

from __future__ import annotations

import contextlib
import json
import re
import statistics
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

from tests.controlplane.cluster import ControlPlane
from tests.perf import subjects, usage, world
from tests.perf.observer import Observer
from tests.perf.report import Row, say
from tests.perf.subjects import ROOT, Subject
from tests.perf.world import Server

GANG = 8
IDLE_SECONDS = 60.0


@contextmanager
def _plane(nodes: int, running: int = 0) -> Iterator[tuple[ControlPlane, Server]]:
    with ControlPlane(benchmark=True) as plane:
        plane.apply_crds(ROOT / "config" / "crd")
        server = Server.of(plane)
        world.make(server, [world.namespace()])
        say(f"creating {nodes} nodes")
        world.make(server, world.nodes(nodes))
        if running:
            say(f"creating {running} running pods")
            world.make(server, world.running(running, lambda number: f"node-{number % nodes:05}"))
        yield plane, server


def wait_ready(subject: Subject, timeout: float = 180.0) -> float:
    """Return the seconds until it says that it is ready."""
    began = time.monotonic()
    while time.monotonic() - began < timeout:
        subject.check()
        address = address_of(subject)
        if address:
            with (
                contextlib.suppress(OSError),
                urllib.request.urlopen(f"http://{address}/readyz", timeout=2) as answer,
            ):
                if answer.status == 200:
                    return time.monotonic() - began
        time.sleep(0.1)
    raise RuntimeError(f"not ready after {timeout} s:\n{subject.tail()}")


def address_of(subject: Subject) -> str:
    """Return HOST:PORT of its health port, "" before it has said it."""
    for line in subject.log.read_text().splitlines():
        if '"serving"' in line:
            return str(json.loads(line)["address"])
    return ""


def latency(quick: bool) -> list[Row]:
    """One gang of 8 after the other on an idle cluster: last member created to last member bound."""
    nodes, rounds = (100, 5) if quick else (1000, 20)
    with _plane(nodes) as (plane, server):
        subject = subjects.muster(server, plane.directory)
        observer = Observer(server)
        try:
            wait_ready(subject)
            observer.start(GANG)
            time.sleep(3)
            took = []
            for number in range(rounds):
                observer.again(GANG)
                name = f"l{number:05}"
                world.make(server, [world.group(name, GANG)])
                pods = [world.pod(f"{name}-{i}", "muster", group=name) for i in range(GANG)]
                world.make(server, [(world.PODS, json.dumps(pod).encode()) for pod in pods])
                created = time.monotonic()
                if not observer.wait(30):
                    raise RuntimeError(f"a gang was not bound in 30 s:\n{subject.tail()}")
                took.append((observer.last - created) * 1000)
                time.sleep(0.3)
        finally:
            subject.stop()
            observer.stop()
    median = statistics.median(took)
    figure = f"median {median:.0f} ms, worst {max(took):.0f} ms of {rounds}"
    return [Row(f"a gang of {GANG} arrives, {nodes} nodes", figure, "median < 100 ms", median < 100, usage.machine())]


def _writes(plane: ControlPlane) -> dict[str, int]:
    """Requests that write, by resource, as the API server counts them."""
    found: dict[str, int] = {}
    for line in plane.rest.text("/metrics").splitlines():
        if line.startswith("apiserver_request_total{") and re.search(r'verb="(POST|PUT|PATCH|DELETE|APPLY)"', line):
            resource = re.search(r'resource="([^"]*)"', line)
            name = resource.group(1) if resource else ""
            found[name] = found.get(name, 0) + int(float(line.rsplit(" ", 1)[1]))
    return found


def idle(quick: bool) -> list[Row]:
    """An idle cluster of 1,000 nodes and 5,000 running pods: CPU of both processes, and what is written."""
    nodes, running, seconds = (100, 500, 15.0) if quick else (1000, 5000, IDLE_SECONDS)
    with _plane(nodes, running) as (plane, server):
        subject = subjects.muster(server, plane.directory)
        try:
            wait_ready(subject)
            time.sleep(8)
            say(f"idle for {seconds:.0f} s")
            before, cpu = _writes(plane), usage.of([subject.pid]).cpu
            time.sleep(seconds)
            after = _writes(plane)
            share = (usage.of([subject.pid]).cpu - cpu) / seconds
        finally:
            subject.stop()
    # The API server renews leases of its own; ours and those are all that may be written.
    others = {name: after[name] - before.get(name, 0) for name in after if after[name] > before.get(name, 0)}
    leases = others.pop("leases", 0)
    figure = f"{share:.1%} of a core; {leases} lease writes, others {others or 'none'}"
    met = share < 0.02 and not others
    return [Row(f"idle, {nodes} nodes, {running} pods", figure, "< 2 % of a core, lease only", met, usage.machine())]


def memory(quick: bool) -> list[Row]:
    """5,000 nodes and 50,000 running pods: start to the first bind, and memory of both processes."""
    nodes, running = (500, 5000) if quick else (5000, 50_000)
    with _plane(nodes, running) as (plane, server):
        world.make(server, world.gangs(1, GANG, "muster"))
        observer = Observer(server)
        observer.start(GANG)
        began = time.monotonic()
        subject = subjects.muster(server, plane.directory)
        try:
            if not observer.wait(300):
                raise RuntimeError(f"nothing bound in 300 s:\n{subject.tail()}")
            first = observer.first - began
            time.sleep(5)
            used = usage.of([subject.pid])
        finally:
            subject.stop()
            observer.stop()
    machine, mib = usage.machine(), used.peak / usage.MIB
    what = f"{nodes} nodes, {running} running pods"
    return [
        Row(f"start to first bind, {what}", f"{first:.1f} s", "< 30 s", first < 30, machine),
        Row(f"memory of both processes, {what}", f"peak {mib:.0f} MiB", "< 1536 MiB", mib < 1536, machine),
    ]
