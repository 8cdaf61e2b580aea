"""Pods with rules, on the real API server: Muster and kube-scheduler one after the other on one control plane.

Decided here: start of the scheduler to the last pod bound is what counts; both place fresh pods of the same spec on the
same empty nodes, who goes first changes with each kind; a run whose rule does not hold at the end has failed, whatever
its time. Volumes are made on demand: of a thousand local ones kube-scheduler bound 119 in seven minutes, which says
nothing about anybody else.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from tests.controlplane.cluster import ControlPlane
from tests.perf import subjects, usage, workloads, world
from tests.perf.observer import Observer
from tests.perf.report import Row, say
from tests.perf.subjects import ROOT, Subject
from tests.perf.workloads import KINDS, Kind
from tests.perf.world import Json, Server

NODES = 1000
_PATIENCE = 30.0
"""A scheduler that binds nothing for so many seconds has stopped."""
_LIMIT = 240.0
"""So many seconds a scheduler has."""
_CLAIMS = f"/api/v1/namespaces/{world.NAMESPACE}/persistentvolumeclaims"
_VOLUMES = "/api/v1/persistentvolumes"
_CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
# Without the admission plugin that has a controller of its own agree to every deletion of a claim or volume.
_FLAGS = ("--disable-admission-plugins=StorageObjectInUseProtection",)


@dataclass(frozen=True, slots=True)
class Run:
    """What one scheduler needed for one kind; seconds and bytes.

    left: pods that were not bound when its time was up. broken: what rule does not hold ("" = none).
    """

    first: float
    last: float
    cpu: float
    peak: int
    api_cpu: float
    left: str
    broken: str

    @property
    def whole(self) -> bool:
        """Whether all is bound as it should be."""
        return not self.left and not self.broken

    def text(self) -> str:
        """Return the figures."""
        return (
            "".join(f"{text}: " for text in (self.broken, self.left) if text)
            + f"first {self.first:.1f} s, last {self.last:.1f} s; cpu {self.cpu:.1f} s, "
            f"peak {self.peak / usage.MIB:.0f} MiB; API server {self.api_cpu:.1f} s"
        )


@dataclass(frozen=True, slots=True)
class Contender:
    """A scheduler: the name that its pods carry, and how it is started."""

    name: str
    scheduler: str
    start: Callable[[ControlPlane, Server], Subject]


KUBE = Contender(
    "kube-scheduler", "default-scheduler", lambda plane, server: subjects.kube_scheduler(server, plane.directory)
)
MUSTER = Contender("Muster", "muster", lambda plane, server: subjects.muster(server, plane.directory))


def rows(quick: bool, kinds: Iterable[Kind] = KINDS) -> list[Row]:
    """Run all kinds. Quick: a tenth of nodes and pods, where processes start longer than they work: no target."""
    nodes = NODES // 10 if quick else NODES
    found: list[Row] = []
    with ControlPlane(benchmark=True, api_flags=_FLAGS) as plane:
        plane.apply_crds(ROOT / "config" / "crd")
        server = Server.of(plane)
        world.make(server, [world.namespace()])
        say(f"parity: creating {nodes} nodes in {workloads.ZONES} zones")
        zones = {world.node_name(number): workloads.zone(number) for number in range(nodes)}
        world.make(
            server,
            _posts(world.NODES, (world.node(n, labels={workloads.ZONE: workloads.zone(n)}) for n in range(nodes))),
        )
        for turn, kind in enumerate(kinds):
            count = kind.pods // 10 if quick else kind.pods
            order = (KUBE, MUSTER) if turn % 2 == 0 else (MUSTER, KUBE)
            runs = {one.name: _run(plane, server, kind, one, count, zones) for one in order}
            found += _compare(f"parity, {nodes} nodes, {count} pods, {kind.name}", runs, quick)
    return found


def _compare(what: str, runs: Mapping[str, Run], quick: bool) -> list[Row]:
    kube, ours = runs[KUBE.name], runs[MUSTER.name]
    ratio = f"{ours.last / kube.last:.2f} x kube-scheduler: " if ours.whole and kube.whole else ""
    target = "rule holds" if quick else f"<= {kube.last:.1f} s"
    met = ours.whole and (quick or ours.last <= kube.last)
    machine = usage.machine()
    return [
        Row(f"{what}: kube-scheduler", kube.text(), met=False if kube.broken else None, machine=machine),
        Row(f"{what}: Muster", ratio + ours.text(), target, met, machine),
    ]


def _posts(path: str, objects: Iterable[Json]) -> Iterable[tuple[str, bytes]]:
    return ((path, json.dumps(one).encode()) for one in objects)


def _run(
    plane: ControlPlane, server: Server, kind: Kind, contender: Contender, count: int, zones: Mapping[str, str]
) -> Run:
    say(f"parity, {kind.name}: {contender.name}, creating {count} pods")
    helper = _make_claims(plane, server, count) if kind.volumes else None
    try:
        world.make(server, _posts(world.PODS, kind.all_pods(count, contender.scheduler)))
        run = _measure(plane, server, kind, contender, count, zones)
        say(f"parity, {kind.name}: {contender.name}: {run.text()}")
        world.delete_all(server, world.PODS)
        _wait_for(lambda: not plane.rest.list(world.PODS, limit=1), "pods are gone")
        if helper is not None:
            helper.check()
    finally:
        if helper is not None:
            helper.stop()
    if kind.volumes:
        for path in (_CLAIMS, _VOLUMES, _CLASSES):
            world.delete_all(server, path)
            _wait_for(lambda path=path: not plane.rest.list(path, limit=1), "volumes are gone")  # type: ignore[misc]
    return run


def _measure(
    plane: ControlPlane, server: Server, kind: Kind, contender: Contender, count: int, zones: Mapping[str, str]
) -> Run:
    observer = Observer(server)
    observer.start(count)
    api = [plane.pids()["kube-apiserver"]]
    before = usage.of(api)
    began = said = time.monotonic()
    subject = contender.start(plane, server)
    try:
        while not observer.wait(0.2):
            subject.check()
            now = time.monotonic()
            if now - max(began, observer.last) > _PATIENCE or now - began > _LIMIT:
                break
            if time.monotonic() - said > 5:
                said = time.monotonic()
                say(f"parity, {kind.name}: {contender.name}: {observer.bound} of {count} bound")
        used = usage.of([subject.pid])
        api_cpu = usage.of(api).since(before)
    finally:
        subject.stop()
        observer.stop()
    pods = plane.rest.list(world.PODS)
    return Run(
        first=max(0.0, observer.first - began),
        last=max(0.0, observer.last - began),
        cpu=used.cpu,
        peak=used.peak,
        api_cpu=api_cpu,
        left=_left(pods, count),
        broken=_broken(plane, kind, pods, zones),
    )


def _left(pods: Sequence[Json], count: int) -> str:
    """Return how many are bound when not all are, and why one of them waits."""
    waiting = [pod for pod in pods if not pod["spec"].get("nodeName")]
    if not waiting and len(pods) == count:
        return ""
    why = [one.get("message") for pod in waiting[:1] for one in pod["status"].get("conditions", ()) if "message" in one]
    return f"only {len(pods) - len(waiting)} of {count} bound{f' ({why[0]})' if why else ''}"


def _broken(plane: ControlPlane, kind: Kind, pods: Sequence[Json], zones: Mapping[str, str]) -> str:
    """Return what is wrong with what is bound, as the API server says ("" = nothing)."""
    node_of = {pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in pods if pod["spec"].get("nodeName")}
    bound = [pod for pod in pods if pod["metadata"]["name"] in node_of]
    wrong = kind.broken(workloads.seats(bound, node_of), zones)
    if not wrong and kind.volumes:
        wrong = workloads.badly_made(plane.rest.list(_VOLUMES), node_of)
    return f"rule broken: {wrong}" if wrong else ""


def _make_claims(plane: ControlPlane, server: Server, claims: int) -> Subject:
    """Make the claims, and start who makes a volume for each that is told its node."""
    world.make(server, _posts(_CLASSES, [workloads.making_class()]))
    world.make(server, _posts(_CLAIMS, (workloads.claim(f"p{number:05}") for number in range(claims))))
    return subjects.provisioner(server, plane.directory, world.NAMESPACE)


def _wait_for(condition: Callable[[], bool], what: str, timeout: float = 120.0) -> None:
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            raise RuntimeError(f"waited {timeout:.0f} s in vain until {what}")
        time.sleep(0.5)
