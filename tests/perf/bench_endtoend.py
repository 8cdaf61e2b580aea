"""Start of the scheduler to the last pod bound, on the real API server, beside the bare loop of the same run.

Every subject gets a control plane of its own, so that none inherits another's history in etcd. All objects exist before
the scheduler starts.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from tests.controlplane.cluster import ControlPlane
from tests.perf import subjects, usage, world
from tests.perf.observer import Observer
from tests.perf.report import Row, say
from tests.perf.subjects import ROOT, Subject
from tests.perf.world import Server

SHAPES = ((10_000, 1), (500, 20), (20, 500), (1, 10_000))
TIMES_BARE = 2.0
_PATIENCE = 240.0


@dataclass(frozen=True, slots=True)
class Run:
    """What one subject needed; seconds and bytes."""

    first: float
    last: float
    bound: int
    wanted: int
    cpu: float
    peak: int
    api_cpu: float
    etcd_cpu: float

    @property
    def whole(self) -> bool:
        """Whether everything was bound."""
        return self.bound >= self.wanted

    def text(self) -> str:
        """Return the figures."""
        if not self.whole:
            return f"only {self.bound} of {self.wanted} bound after {_PATIENCE:.0f} s"
        return (
            f"first {self.first:.1f} s, last {self.last:.1f} s ({self.wanted / self.last:.0f}/s); "
            f"cpu {self.cpu:.1f} s, peak {self.peak / usage.MIB:.0f} MiB; "
            f"API server {self.api_cpu:.1f} s, etcd {self.etcd_cpu:.1f} s"
        )


Start = Callable[[Server, ControlPlane], Subject]
Check = Callable[[ControlPlane], None]
PER_RACK = 20
"""Nodes of a rack, for gangs that ask for one."""


def measure(
    start: Start,
    scheduler: str,
    count: int,
    size: int,
    nodes: int,
    *,
    one_rack: bool = False,
    check: Check | None = None,
) -> Run:
    """Measure one subject on a control plane of its own.

    one_rack: each gang asks for one. check: raises when what was bound is wrong.
    """
    with ControlPlane(benchmark=True) as plane:
        plane.apply_crds(ROOT / "config" / "crd")
        server = Server.of(plane)
        world.make(server, [world.namespace()])
        world.make(server, world.nodes(nodes, PER_RACK))
        world.make(server, world.gangs(count, size, scheduler, one_rack=one_rack))
        observer = Observer(server)
        wanted = count * size
        observer.start(wanted)
        pids = plane.pids()
        api, etcd = [pids["kube-apiserver"]], [pids["etcd"]]
        api_before, etcd_before = usage.of(api), usage.of(etcd)
        began = time.monotonic()
        subject = start(server, plane)
        try:
            while not observer.wait(0.2) and time.monotonic() - began < _PATIENCE:
                subject.check()
            used = usage.of([subject.pid])
            if check is not None:
                check(plane)
            return Run(
                first=observer.first - began,
                last=observer.last - began,
                bound=observer.bound,
                wanted=wanted,
                cpu=used.cpu,
                peak=used.peak,
                api_cpu=usage.of(api).since(api_before),
                etcd_cpu=usage.of(etcd).since(etcd_before),
            )
        finally:
            subject.stop()
            observer.stop()


def rows(quick: bool, shapes: tuple[tuple[int, int], ...] = SHAPES, only_muster: bool = False) -> list[Row]:
    """Run all shapes."""
    nodes = 100 if quick else 1000
    found: list[Row] = []
    machine = usage.machine()
    for full_count, full_size in shapes:
        count, size = scaled(full_count, full_size) if quick else (full_count, full_size)
        shape = f"{count}x{size}"
        floor = None
        if not only_muster:
            say(f"end to end {shape}: bare loop")
            floor = measure(lambda s, p: subjects.bare(s, p.directory, nodes), "bare", count, size, nodes)
            say(floor.text())
            found.append(Row(f"end to end {shape}: bare loop, 64 POSTs in flight", floor.text(), machine=machine))
        if size == 1 and not only_muster:
            say(f"end to end {shape}: kube-scheduler")
            kube = measure(
                lambda s, p: subjects.kube_scheduler(s, p.directory), "default-scheduler", count, size, nodes
            )
            say(kube.text())
            found.append(Row(f"end to end {shape}: kube-scheduler", kube.text(), machine=machine))
        say(f"end to end {shape}: Muster")
        ours = measure(lambda s, p: subjects.muster(s, p.directory), "muster", count, size, nodes)
        say(ours.text())
        target, met, figure = "", None, ours.text()
        if floor is not None:
            target = f"<= {TIMES_BARE:g} x {floor.last:.1f} s"
            met = ours.whole and ours.last <= TIMES_BARE * floor.last
            figure = f"{ours.last / floor.last:.2f} x bare: {figure}"
        found.append(Row(f"end to end {shape}: Muster", figure, target, met, machine))
    return found


def scaled(count: int, size: int) -> tuple[int, int]:
    """Return a tenth of the pods."""
    return (count // 10, size) if count >= 10 else (count, size // 10)


def racks(quick: bool) -> list[Row]:
    """Gangs of four, each in one rack of twenty nodes, beside as many pods without gangs by kube-scheduler."""
    nodes, gangs = (100, 250) if quick else (1000, 2500)
    machine, case = usage.machine(), f"end to end {gangs}x4, each in one rack of {nodes // PER_RACK}"
    say(f"{case}: kube-scheduler, {gangs * 4} single pods")
    kube = measure(lambda s, p: subjects.kube_scheduler(s, p.directory), "default-scheduler", gangs * 4, 1, nodes)
    say(kube.text())
    say(f"{case}: Muster")
    ours = measure(
        lambda s, p: subjects.muster(s, p.directory), "muster", gangs, 4, nodes, one_rack=True, check=_each_in_one_rack
    )
    say(ours.text())
    met = ours.whole and kube.whole and ours.last <= kube.last
    figure = f"{ours.last / kube.last:.2f} x kube-scheduler: {ours.text()}"
    return [
        Row(f"{case}: kube-scheduler, the same pods without gangs", kube.text(), machine=machine),
        Row(f"{case}: Muster", figure, f"<= {kube.last:.1f} s", met, machine),
    ]


def _each_in_one_rack(plane: ControlPlane) -> None:
    """Raise RuntimeError when a gang is in several racks."""
    rack = {one["metadata"]["name"]: one["metadata"]["labels"]["rack"] for one in plane.rest.list(world.NODES)}
    found: dict[str, set[str]] = {}
    for pod in plane.rest.list(world.PODS):
        name = pod["spec"].get("nodeName")
        if name:
            found.setdefault(pod["metadata"]["labels"][world.RACKED], set()).add(rack[name])
    torn = [name for name, at in found.items() if len(at) > 1]
    if torn or not found:
        raise RuntimeError(f"{len(torn)} of {len(found)} gangs are in several racks")
