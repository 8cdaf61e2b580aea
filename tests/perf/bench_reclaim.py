"""Reclaim on the real API server: one gang takes a GPU on every node of a full cluster from a queue that borrows.

    python -m tests.perf.bench --only reclaim-endtoend

500 nodes with 8 GPUs, all held by single pods of queue `rich`; a gang of 500 comes to queue `poor`, which is owed them.
Decided here: the clock starts when the last member's creation is answered; what was decided is seen when its
`BindRequest` is there; it is carried out when the last member is bound, and counts only when as many pods are gone as
the request names and nobody else. Nodes are only objects: pods have no time to end in, and go when they are evicted.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass

from tests.controlplane.cluster import ControlPlane
from tests.perf import subjects, usage, world
from tests.perf.bench_live import wait_ready
from tests.perf.observer import Observer
from tests.perf.report import Row, say
from tests.perf.subjects import ROOT, Subject
from tests.perf.world import GPU, Server

NODES = 500
HELD = 8
DECIDED, CARRIED_OUT = 2.0, 30.0
_PATIENCE = 120.0
_QUEUE = "scheduling.muster.sh/queue"
_QUEUES = "/apis/scheduling.muster.sh/v1alpha1/queues"
_REQUESTS = "/apis/scheduling.muster.sh/v1alpha1/bindrequests"
_HOG = "hog"


@dataclass(frozen=True, slots=True)
class Run:
    """Seconds from the last member's creation until it was decided and until all were bound; pods that are gone.

    thought, cpu: processor seconds since the group's creation until it was decided, and of all.
    """

    decided: float
    bound: float
    gone: int
    thought: float
    cpu: float
    broken: str = ""

    def text(self) -> str:
        """Return the figures."""
        figures = f"decided {self.decided:.2f} s, carried out {self.bound:.1f} s; {self.gone} pods evicted"
        return f"{self.broken + ': ' if self.broken else ''}{figures}; cpu {self.cpu:.1f} s"


def rows(quick: bool) -> list[Row]:
    """Run it once. Quick: a tenth of the nodes."""
    nodes = NODES // 10 if quick else NODES
    with ControlPlane(benchmark=True) as plane:
        plane.apply_crds(ROOT / "config" / "crd")
        server = Server.of(plane)
        world.make(server, [world.namespace(), *_queues(nodes)])
        say(f"reclaim end to end: creating {nodes} nodes and {nodes * HELD} running pods")
        world.make(server, _nodes(nodes))
        world.make(server, _hogs(nodes))
        subject = subjects.muster(server, plane.directory)
        observer = Observer(server)
        try:
            wait_ready(subject)
            observer.start(nodes)
            time.sleep(3)
            run = _measure(plane, server, subject, observer, nodes)
        finally:
            subject.stop()
            observer.stop()
    say(f"reclaim end to end: {run.text()}")
    what, machine = f"reclaim of {nodes} pods for one gang, end to end", usage.machine()
    good = not run.broken
    return [
        Row(
            f"{what}: decided",
            f"{run.decided:.2f} s (cpu since the group came {run.thought:.1f} s)",
            f"< {DECIDED:g} s",
            good and run.decided < DECIDED,
            machine,
        ),
        Row(f"{what}: carried out", run.text(), f"< {CARRIED_OUT:g} s", good and run.bound < CARRIED_OUT, machine),
    ]


def _measure(plane: ControlPlane, server: Server, subject: Subject, observer: Observer, size: int) -> Run:
    cpu = usage.of([subject.pid]).cpu
    body = json.loads(world.group("want", size)[1])
    body["spec"]["queue"] = "poor"
    world.make(server, [(world.POD_GROUPS, json.dumps(body).encode())])
    members = (world.pod(f"want-{number:05}", "muster", group="want") for number in range(size))
    world.make(server, ((world.PODS, json.dumps(one).encode()) for one in members))
    created = time.monotonic()
    decided = thought = 0.0
    while not observer.wait(0.02) and time.monotonic() - created < _PATIENCE:
        subject.check()
        if not decided and plane.rest.list(_REQUESTS, limit=1):
            decided = time.monotonic() - created
            thought = usage.of([subject.pid]).cpu - cpu
    spent = usage.of([subject.pid]).cpu - cpu
    pods = plane.rest.list(world.PODS)
    left = sum(one["metadata"]["name"].startswith(_HOG) for one in pods)
    gone = size * HELD - left
    broken = ""
    if observer.bound < size:
        broken = f"only {observer.bound} of {size} bound after {_PATIENCE:.0f} s:\n{subject.tail()}"
    elif gone != size:
        broken = f"{gone} pods are gone for {size}"
    return Run(decided or _PATIENCE, max(0.0, observer.last - created), gone, thought, spent, broken)


def _queues(nodes: int) -> Iterator[tuple[str, bytes]]:
    """Yield the queues: what the gang wants is owed to `poor`, the rest to `rich`."""
    for name, deserved in (("poor", nodes), ("rich", nodes * (HELD - 1))):
        body = {
            "apiVersion": "scheduling.muster.sh/v1alpha1",
            "kind": "Queue",
            "metadata": {"name": name},
            "spec": {"resources": {GPU: {"deserved": deserved}}},
        }
        yield _QUEUES, json.dumps(body).encode()


def _nodes(count: int) -> Iterator[tuple[str, bytes]]:
    for number in range(count):
        yield world.NODES, json.dumps(world.node(number, gpu=HELD)).encode()


def _hogs(nodes: int) -> Iterator[tuple[str, bytes]]:
    """Yield running pods with a GPU each that hold all of them."""
    for number in range(nodes * HELD):
        one = world.pod(f"{_HOG}-{number:05}", "muster", node=world.node_name(number // HELD))
        one["metadata"]["labels"][_QUEUE] = "rich"
        yield world.PODS, json.dumps(one).encode()
