"""Whatever anybody writes into the API server, the scheduler goes on, and the gangs beside it run.

On the embedded API server every object is fed twice: as a user sends it, and, where that is refused, past all checks
(as an older definition, or none, would have let it in). On the real one what it takes.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import structlog

from scheduler.playground.server import PlaygroundServer, ThreadedServer
from tests.chaos import fuzz
from tests.chaos.replicas import DEFECTS
from tests.controlplane.cluster import ControlPlane
from tests.controlplane.crds import apply_crds
from tests.controlplane.fixtures import CRD_FOLDER
from tests.controlplane.nodes import node_object, register_node
from tests.controlplane.rest import ApiError, Json, Rest
from tests.scenarios.planes import Scheduler

GOOD = "example.com/good"
PODS = "/api/v1/namespaces/good/pods"
GROUPS = "/apis/{}/namespaces/good/podgroups"
MUSTER = "scheduling.muster.sh/v1alpha1"
CHUNK = 250
"""Odd objects that exist at one time."""
WITHIN = 60.0
"""Seconds in which a good gang beside them must start on a busy machine."""


class Plane:
    """An API server with two good nodes. `store` puts an object there whatever its checks say, if it can."""

    def __init__(self, rest: Rest, store: Callable[[fuzz.Odd], bool], clear: Callable[[], None]) -> None:
        self.rest, self.store, self.clear = rest, store, clear
        self.taken = self.forced = 0
        for number in range(2):
            amounts = {"cpu": "4000", "memory": "4Ti", "pods": "5000", GOOD: "8"}
            register_node(rest, node_object(f"good-{number}", amounts))
        rest.create(f"/apis/{MUSTER}/queues", {"apiVersion": MUSTER, "kind": "Queue", "metadata": {"name": "good"}})

    def feed(self, odd: fuzz.Odd) -> None:
        """Write an object as a user does, else past all checks."""
        try:
            self.rest.create(odd.path, odd.body)
            self.taken += 1
        except ApiError:  # a name that is taken, or a body that is refused
            self.forced += self.store(odd)

    def gang(self, name: str) -> None:
        """Create a good gang of two."""
        body = {
            "apiVersion": MUSTER, "kind": "PodGroup", "metadata": {"name": name},
            "spec": {"minMember": 2, "queue": "good"},
        }  # fmt: skip
        self.rest.create(GROUPS.format(MUSTER), body)
        for number in range(2):
            self.rest.create(PODS, _good_pod(f"{name}-{number}", name))

    def bound(self, name: str) -> int:
        """Return how many members of a good gang are on nodes."""
        found = self.rest.list(PODS, labelSelector=f"scheduling.muster.sh/pod-group={name}")
        return sum("nodeName" in one["spec"] for one in found)


def _good_pod(name: str, group: str) -> Json:
    amounts = {"cpu": "1", GOOD: "1"}
    container = {"name": "main", "image": "x", "resources": {"requests": amounts, "limits": {GOOD: "1"}}}
    spec = {
        "schedulerName": "muster", "restartPolicy": "Never", "containers": [container],
        "terminationGracePeriodSeconds": 0,
    }  # fmt: skip
    labels = {"scheduling.muster.sh/pod-group": group}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels}, "spec": spec}


@pytest.fixture
def embedded(tmp_path: Path) -> Iterator[tuple[Plane, Path]]:
    """The embedded API server, without the controllers that would read the odd objects too."""
    with ThreadedServer(PlaygroundServer()) as server:
        # It complains of many of them, at length.
        structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
        server.server.api.store.hooks.clear()  # its garbage collector reads owners, and is not what is tested
        rest = Rest(server.url, token="")
        apply_crds(rest, CRD_FOLDER)
        for name in ("good", fuzz.NAMESPACE):
            rest.create("/api/v1/namespaces", {"metadata": {"name": name}})

        def store(odd: fuzz.Odd) -> bool:
            return server.call(lambda: _stored(server, odd))

        yield (
            Plane(rest, store, lambda: server.call(lambda: _emptied(server))),
            server.write_kubeconfig(tmp_path / "config"),
        )


def _stored(server: ThreadedServer, odd: fuzz.Odd) -> bool:
    """Put an object into the store, past every check; what has its name is replaced."""
    api = server.server.api
    kept = api.collection(api.resource(odd.group, odd.plural))
    body: dict[str, Any] = odd.body
    if not isinstance(body.get("metadata"), dict) or odd.plural == "priorityclasses":
        return False  # its admission reads priority classes for every pod, good ones too
    before = kept.get(odd.namespace, odd.name)
    body["metadata"]["uid"] = before.uid if before is not None else f"uid-{odd.plural}-{odd.group}-{odd.name}"
    if before is not None:
        api.store.update(kept, before, body)
    else:
        api.store.create(kept, (odd.namespace, odd.name), body)
    return True


def _emptied(server: ThreadedServer) -> None:
    api = server.server.api
    for group, _, plural, *_ in fuzz.KINDS:
        kept = api.collection(api.resource(group, plural))
        for one in kept.ordered():
            if one.key[1].startswith("odd"):
                api.store.delete(kept, one)


def _deleted(rest: Rest) -> None:
    for group, version, plural, _, namespaced, *_ in fuzz.KINDS:
        base = f"/apis/{group}/{version}" if group else f"/api/{version}"
        path = f"{base}/namespaces/{fuzz.NAMESPACE}/{plural}" if namespaced else f"{base}/{plural}"
        for one in rest.list(path):
            if one["metadata"]["name"].startswith("odd"):
                rest.delete_if_present(f"{path}/{one['metadata']['name']}", grace=0 if plural == "pods" else None)


def _play(plane: Plane, scheduler: Scheduler, log: Path, seed: int, count: int) -> None:
    """Feed so many odd objects, a good gang beside each hundred, and look whether everything goes on."""
    plane.gang("before")
    _until(lambda: plane.bound("before") == 2, "the first good gang", scheduler)
    pid = scheduler.pid
    objects = fuzz.odd_objects(seed, count)
    number = 0
    while chunk := list(islice(objects, CHUNK)):
        for odd in chunk:
            plane.feed(odd)
        name = f"good-{number}"
        plane.gang(name)
        _until(lambda name=name: plane.bound(name) == 2, f"{name} beside odd objects up to {chunk[-1].name}", scheduler)
        assert scheduler.running() and scheduler.pid == pid, scheduler.tail()
        for one in plane.rest.list(PODS):
            plane.rest.delete_if_present(f"{PODS}/{one['metadata']['name']}", grace=0)
        plane.clear()
        number += 1
    plane.gang("after")
    _until(lambda: plane.bound("after") == 2, "a good gang after all of them", scheduler)
    text = log.read_text(errors="replace")
    said = [line for line in text.splitlines() if any(f'"event":"{one}"' in line.replace(": ", ":") for one in DEFECTS)]
    assert not said, f"{len(said)} defects, first: {said[0][:3000]}"
    assert "Traceback" not in text, text[text.index("Traceback") - 500 :][:4000]


def _until(condition: Callable[[], bool], what: str, scheduler: Scheduler) -> None:
    deadline = time.monotonic() + WITHIN
    while not condition():
        assert scheduler.running(), f"{what}: the scheduler ended\n{scheduler.tail()}"
        assert time.monotonic() < deadline, f"{what}: not within {WITHIN:g} s\n{scheduler.tail()}"
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("seed", "count"), [(7, 300), *(pytest.param(seed, 2000, marks=pytest.mark.slow) for seed in range(5))]
)
@pytest.mark.timeout(900)
def test_odd_objects_past_all_checks_stop_nobody(embedded, tmp_path: Path, seed: int, count: int) -> None:  # type: ignore[no-untyped-def]
    plane, kubeconfig = embedded
    scheduler = Scheduler(kubeconfig, tmp_path)
    scheduler.start()
    try:
        _play(plane, scheduler, tmp_path / "scheduler.log", seed, count)
        assert plane.taken > count / 20
        assert plane.forced > count / 4
    finally:
        scheduler.stop()


@pytest.mark.real
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_odd_objects_that_the_real_api_server_takes_stop_nobody(tmp_path: Path) -> None:
    with ControlPlane(controller_manager=False) as cluster:
        cluster.apply_crds(CRD_FOLDER)
        for name in ("good", fuzz.NAMESPACE):
            cluster.rest.create("/api/v1/namespaces", {"metadata": {"name": name}})
        plane = Plane(cluster.rest, lambda odd: False, lambda: _deleted(cluster.rest))
        scheduler = Scheduler(cluster.kubeconfig, tmp_path)
        scheduler.start()
        try:
            _play(plane, scheduler, tmp_path / "scheduler.log", 11, 2000)
            assert plane.taken > 200
        finally:
            scheduler.stop()


def test_odd_objects_depend_on_the_seed_alone() -> None:
    first, again = list(fuzz.odd_objects(3, 50)), list(fuzz.odd_objects(3, 50))
    assert first == again
    assert list(fuzz.odd_objects(4, 50)) != first
