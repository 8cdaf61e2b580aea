"""Definitions and objects of another release than the scheduler's: what is not there is done without, and said."""

from __future__ import annotations

import copy
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from scheduler.playground.server import PlaygroundServer, ThreadedServer
from tests.controlplane.crds import read_crds
from tests.controlplane.fixtures import CRD_FOLDER
from tests.controlplane.nodes import node_object, register_node
from tests.controlplane.rest import Json, Rest
from tests.e2e.stage import until
from tests.scenarios.planes import Scheduler

MUSTER = "scheduling.muster.sh/v1alpha1"
PODS = "/api/v1/namespaces/default/pods"
GROUPS = f"/apis/{MUSTER}/namespaces/default/podgroups"
REQUESTS = f"/apis/{MUSTER}/namespaces/muster-system/bindrequests"
_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
YOUNG = {
    "podgroups.scheduling.muster.sh": ("subGroups", "members", "decision", "queuePosition", "observedGeneration"),
    "queues.scheduling.muster.sh": ("usage", "borrowed", "fairShare", "observedGeneration"),
    "topologies.scheduling.muster.sh": ("domains", "unlabelledNodes", "observedGeneration"),
    "bindrequests.scheduling.muster.sh": ("volumes", "about", "moreFailures"),
}  # fmt: skip
"""Fields that a release before this one did not have, wherever they are in a definition."""


def _without(schema: Any, names: tuple[str, ...]) -> Any:
    """Return a schema without these properties, at any depth."""
    if isinstance(schema, list):
        return [_without(one, names) for one in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: _without(value, names) for key, value in schema.items() if key != "x-kubernetes-validations"}
    if isinstance(found.get("properties"), dict):
        found.pop("x-kubernetes-preserve-unknown-fields", None)
        found["properties"] = {key: value for key, value in found["properties"].items() if key not in names}
    if isinstance(found.get("required"), list):
        found["required"] = [name for name in found["required"] if name not in names]
    return found


def _old(definition: Json) -> Json:
    names = YOUNG.get(definition["metadata"]["name"])
    if names is None:
        return definition
    made = copy.deepcopy(definition)
    for version in made["spec"]["versions"]:
        version["schema"] = _without(version["schema"], names)
        for column in list(version.get("additionalPrinterColumns", ())):
            if any(name in column["jsonPath"] for name in names):
                version["additionalPrinterColumns"].remove(column)
    return made


@pytest.fixture
def server() -> Iterator[ThreadedServer]:
    """An API server without definitions, with one node."""
    with ThreadedServer(PlaygroundServer()) as made:
        rest = Rest(made.url, token="")
        register_node(rest, node_object("n1", {"cpu": "8", "memory": "8Gi", "example.com/gpu": "4"}))
        yield made


@pytest.fixture
def scheduler(server: ThreadedServer, tmp_path: Path) -> Iterator[Scheduler]:
    """A scheduler of today, not started."""
    made = Scheduler(server.write_kubeconfig(tmp_path / "kubeconfig"), tmp_path, config={"sessionPeriod": "50ms"})
    yield made
    made.stop()


def _gang(rest: Rest, name: str, size: int, gpu: int = 1, **spec: Any) -> None:
    group = {"apiVersion": MUSTER, "kind": "PodGroup", "metadata": {"name": name}, "spec": {"minMember": size, **spec}}
    rest.create(GROUPS, group)
    amounts = {"cpu": "1", "example.com/gpu": str(gpu)}
    container = {"name": "main", "image": "x", "resources": {"requests": amounts, "limits": amounts}}
    for number in range(size):
        labels = {"scheduling.muster.sh/pod-group": name}
        pod = {
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"{name}-{number}", "labels": labels},
            "spec": {"schedulerName": "muster", "containers": [container]},
        }  # fmt: skip
        rest.create(PODS, pod)


def _bound(rest: Rest, name: str) -> int:
    found = rest.list(PODS)
    return sum(one["metadata"]["name"].startswith(f"{name}-") and "nodeName" in one["spec"] for one in found)


def test_with_definitions_of_an_older_release_gangs_run_and_nothing_is_written_again_and_again(
    server: ThreadedServer, scheduler: Scheduler
) -> None:
    rest = Rest(server.url, token="")
    for definition in read_crds(CRD_FOLDER):
        rest.create(_CRDS, _old(definition))
    queue = {"apiVersion": MUSTER, "kind": "Queue", "metadata": {"name": "q"}, "spec": {"weight": 2}}
    rest.create(f"/apis/{MUSTER}/queues", queue)
    scheduler.start()
    _gang(rest, "runs", 2, queue="q")
    until(lambda: _bound(rest, "runs") == 2, scheduler.tail)
    _gang(rest, "waits", 2, gpu=3, queue="q")
    until(
        lambda: "Resources" in str(rest.get(f"{GROUPS}/waits").get("status")), lambda: str(rest.get(f"{GROUPS}/waits"))
    )
    path = f"{GROUPS}/waits"
    assert "members" not in rest.get(path)["status"]

    def writes() -> int:
        return sum(
            max(0, scheduler.figure(f'muster_writes_total{{kind="{kind}",result="done"}}'))
            for kind in ("status", "condition", "event", "request")
        )

    settled = 0
    for _ in range(40):  # a queue's status is written at most once in five seconds
        before = writes()
        time.sleep(0.5)
        settled = settled + 1 if writes() == before else 0
        if settled == 14:
            return
    raise AssertionError(f"it writes on and on: {writes()} writes, {rest.get(path)['status']}\n{scheduler.tail()}")


def test_a_saved_request_that_cannot_be_read_is_named_and_stops_nobody(
    server: ThreadedServer, scheduler: Scheduler
) -> None:
    rest = Rest(server.url, token="")
    for definition in read_crds(CRD_FOLDER):
        rest.create(_CRDS, definition)
    rest.create("/api/v1/namespaces", {"metadata": {"name": "muster-system"}})
    placement = {"pod": "runs-0", "uid": "u", "node": "n1"}
    spec = {
        "session": "s-000001", "epoch": 1, "deadline": "2026-01-01T00:00:00Z",
        "gangs": [{"group": {"name": "runs"}, "minimum": 1, "placements": [placement]}],
    }  # fmt: skip
    old = {
        "apiVersion": MUSTER, "kind": "BindRequest", "spec": spec,
        "metadata": {"name": "s-000001-e1-1", "namespace": "muster-system", "uid": "u-old"},
    }  # fmt: skip

    def store() -> None:
        api = server.server.api
        kept = api.collection(api.resource("scheduling.muster.sh", "bindrequests"))
        api.store.create(kept, ("muster-system", "s-000001-e1-1"), old)

    server.call(store)
    scheduler.start()
    _gang(rest, "runs", 2)
    until(lambda: _bound(rest, "runs") == 2, scheduler.tail)
    assert "muster-system/s-000001-e1-1" in scheduler.tail(200_000)
    assert "placements" in scheduler.tail(200_000)


def test_objects_with_fields_of_a_newer_release_are_read_without_them(
    server: ThreadedServer, scheduler: Scheduler
) -> None:
    """What its own definition would have dropped is there when a newer definition is installed."""
    rest = Rest(server.url, token="")
    for definition in read_crds(CRD_FOLDER):
        made = copy.deepcopy(definition)
        if made["metadata"]["name"] == "podgroups.scheduling.muster.sh":
            for version in made["spec"]["versions"]:
                spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
                spec["properties"]["fromTheFuture"] = {"type": "string"}
        rest.create(_CRDS, made)
    scheduler.start()
    _gang(rest, "runs", 2, fromTheFuture="yes")
    until(lambda: _bound(rest, "runs") == 2, scheduler.tail)
    assert rest.get(f"{GROUPS}/runs")["spec"]["fromTheFuture"] == "yes"
