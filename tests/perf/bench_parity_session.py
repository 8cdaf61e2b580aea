"""How long the brain needs to place 2,000 pods with rules on 5,000 nodes, without an API server. Prints a table.

    python -m tests.perf.bench_parity_session [--nodes 5000] [--only WORDS] [--profile]

The JSON of the pods goes through the dialects into the store; what is timed is the snapshot and the first session after
they have come (nothing about them is remembered). Each kind is placed as pods that stand alone and as gangs of 20, each
gang a team of its own. A session whose placements break the rule has failed.
"""

from __future__ import annotations

import argparse
import cProfile
import gc
import json
import os
import pstats
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from plugins import built_in
from scheduler.actions.run import Sessions
from scheduler.cluster import feed
from scheduler.cluster.store import Store
from scheduler.config import SchedulerConfiguration
from scheduler.dialects import core, storage
from scheduler.dialects.volcano import VolcanoDialect
from scheduler.model.decisions import Decisions, Place
from scheduler.placement import warm_up
from tests.perf import usage, workloads, world
from tests.perf.report import Row, say
from tests.perf.workloads import KINDS, Kind
from tests.perf.world import Json

NODES = 5000
PODS = 2000
GANG = 20
TARGET = 1.0
REPEAT = 3
_OURS = frozenset({"muster"})
_NOW = 1000.0


@dataclass(frozen=True, slots=True)
class Took:
    """Seconds: `snapshot` and `session` by the wall clock, `cpu` of both; broken: why it does not count."""

    snapshot: float
    session: float
    cpu: float
    broken: str = ""

    @property
    def total(self) -> float:
        """Seconds of the brain."""
        return self.snapshot + self.session


class Brain:
    """A store and sessions, fed with JSON as the API server would send it."""

    def __init__(self, nodes: int) -> None:
        self.store = Store()
        self.sessions = Sessions(SchedulerConfiguration(), built_in())
        self.zones = {world.node_name(number): workloads.zone(number) for number in range(nodes)}
        self.pods: list[Json] = []
        self._shapes: set[str] = set()
        self._feed(
            feed.NodeSet(core.decode_node(_read(world.node(n, gpu=8, labels={workloads.ZONE: workloads.zone(n)}))))
            for n in range(nodes)
        )
        self._feed([feed.NamespaceSet(world.NAMESPACE), feed.Synced(), feed.Leading(1)])
        self.sessions.run(self.store.snapshot(_NOW), "s-0")  # as a scheduler that has been up for a while

    def _feed(self, events: Any) -> None:
        self.store.apply(events, _NOW)

    def ask(self, pods: list[Json], *, volumes: bool) -> None:
        """Let these pods come, and for each of them a claim if there are to be any."""
        self.pods = pods
        if volumes:
            self._feed(self._volumes())
        groups = sorted(
            {pod["metadata"].get("annotations", {}).get("scheduling.k8s.io/group-name", "") for pod in pods}
        )
        for name in filter(None, groups):
            body = json.loads(world.group(name, GANG)[1])
            self._feed([feed.GroupSet(VolcanoDialect().decode_group(_read(body), body["apiVersion"]))])
        self._feed(self._decoded())

    def _decoded(self) -> Iterator[feed.Event]:
        for body in self.pods:
            pod, shape = core.decode_pod(_read(body), _OURS)
            if shape.key not in self._shapes:
                self._shapes.add(shape.key)
                yield feed.ShapeSet(shape)
            yield feed.PodSet(pod)

    def _volumes(self) -> Iterator[feed.Event]:
        yield feed.StorageClassSet(storage.decode_storage_class(_read(workloads.storage_class())))
        for number in range(len(self.zones)):
            body = {**workloads.volume(number), "status": {"phase": "Available"}}
            yield feed.VolumeSet(storage.decode_volume(_read(body)))
        for pod in self.pods:
            body = {**workloads.claim(pod["metadata"]["name"]), "status": {"phase": "Pending"}}
            yield feed.ClaimSet(storage.decode_claim(_read(body)))

    def decide(self, kind: Kind, profile: cProfile.Profile | None = None) -> Took:
        """Run one session and look at what it decided."""
        gc.collect()
        if profile is not None:
            profile.enable()
        began_cpu, began = time.process_time(), time.perf_counter()
        snapshot = self.store.snapshot(_NOW)
        middle = time.perf_counter()
        result = self.sessions.run(snapshot, "s-1")
        ended, cpu = time.perf_counter(), time.process_time() - began_cpu
        if profile is not None:
            profile.disable()
        broken = self._broken(kind, result.decisions)
        why = next((verdict.code.value for verdict in result.verdicts.values()), "")
        return Took(middle - began, ended - middle, cpu, f"{broken}: {why}" if broken and why else broken)

    def _broken(self, kind: Kind, decisions: Decisions) -> str:
        places = [item for item in decisions.items if isinstance(item, Place)]
        node_of = {one.pod: one.node for place in places for one in place.assignments}
        if len(node_of) < len(self.pods):
            return f"only {len(node_of)} of {len(self.pods)} placed"
        wrong = kind.broken(workloads.seats(self.pods, node_of), self.zones)
        if not wrong and kind.volumes:
            given = {step.volume: step.claim for place in places for step in place.steps}
            wrong = workloads.badly_given(given, node_of)
        return f"rule broken: {wrong}" if wrong else ""


def _read(body: Json) -> bytes:
    """Return an object as the API server would send it."""
    metadata = body["metadata"]
    known = {
        "uid": f"uid-{body['kind']}-{metadata['name']}",
        "resourceVersion": "1",
        "creationTimestamp": "1970-01-01T00:15:00Z",
    }
    return json.dumps({**body, "metadata": {**metadata, **known}}).encode()


def alone(kind: Kind, count: int) -> list[Json]:
    """Return pods that stand alone, each with a GPU."""
    return [kind.pod(number, f"t{number % kind.teams}", "muster", gpu=1) for number in range(count)]


def in_gangs(kind: Kind, count: int) -> list[Json]:
    """Return gangs, each a team of its own."""
    names = [f"g{number // GANG:03}" for number in range(count)]
    return [kind.pod(number, name, "muster", group=name, gpu=1) for number, name in enumerate(names)]


FORMS: dict[str, Callable[[Kind, int], list[Json]]] = {"single pods": alone, f"gangs of {GANG}": in_gangs}


def rows(nodes: int, pods: int, repeat: int, only: str = "", profile: cProfile.Profile | None = None) -> list[Row]:
    """Run all kinds in both forms; figures are medians of fresh brains."""
    found = []
    for kind in KINDS:
        for form, make in FORMS.items():
            name = (
                f"session, {nodes} nodes, {pods} {form}, {kind.name}"
                if form == "single pods"
                else (f"session, {nodes} nodes, {pods // GANG} {form}, {kind.name}")
            )
            if only in name:
                found.append(_row(name, kind, nodes, make(kind, pods), repeat, profile))
    return found


def _row(name: str, kind: Kind, nodes: int, pods: list[Json], repeat: int, profile: cProfile.Profile | None) -> Row:
    all_took: list[Took] = []
    for _ in range(repeat):
        brain = Brain(nodes)
        brain.ask(pods, volumes=kind.volumes)
        all_took.append(brain.decide(kind, profile))
    took = sorted(all_took, key=lambda one: one.total)[len(all_took) // 2]
    broken = next((one.broken for one in all_took if one.broken), "")
    cpu = statistics.median(one.cpu for one in all_took)
    figure = f"{took.total * 1000:.0f} ms (snapshot {took.snapshot * 1000:.0f} ms, cpu {cpu * 1000:.0f} ms)"
    figure = f"{broken} ({figure})" if broken else figure
    say(f"{name}: {figure}")
    return Row(name, figure, f"< {TARGET * 1000:.0f} ms", not broken and took.total < TARGET, usage.machine())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=NODES)
    parser.add_argument("--pods", type=int, default=PODS)
    parser.add_argument("--repeat", type=int, default=REPEAT)
    parser.add_argument("--only", default="", help="only cases whose name contains this")
    parser.add_argument("--profile", action="store_true", help="print where the time goes")
    given = parser.parse_args()
    warm_up()
    print(f"load {os.getloadavg()[0]:.1f}")
    profile = cProfile.Profile() if given.profile else None
    for row in rows(given.nodes, given.pods, given.repeat, given.only, profile):
        print(f"{row.case:80} {row.figure:50} {row.target} {row.verdict}")
    if profile is not None:
        pstats.Stats(profile).sort_stats("cumulative").print_stats(50)


if __name__ == "__main__":
    main()
