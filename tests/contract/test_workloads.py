"""Nodes, pods and Jobs in motion: the fake kubelet on both servers, Jobs by whichever controller the server has."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from scheduler.playground import FakeKubelet, NodeSpec
from tests.contract.conftest import Server, pod
from tests.controlplane.rest import Json

GPU = "example.com/gpu"


@pytest.fixture
async def kubelet(server: Server) -> AsyncIterator[FakeKubelet]:
    """Two nodes of this test's own, with two GPUs each."""
    allocatable = {"cpu": "4", "memory": "8Gi", "pods": "5", GPU: "2"}
    nodes = [
        NodeSpec(f"{server.namespace}-n{index}", dict(allocatable), {"team": server.namespace}) for index in (1, 2)
    ]
    made = FakeKubelet(kubeconfig=server.kubeconfig, nodes=nodes, start_delay=0.01, heartbeat=0, exit_on_term=0.05)
    await made.start()
    yield made
    for node in nodes:
        await made.remove_node(node.name)
    await made.stop()


def _gpu(name: str, count: int = 1, **spec: Any) -> Json:
    container = {"name": "main", "image": "app:1", "resources": {"limits": {GPU: count, "cpu": "1"}}}
    return pod(name, containers=[container], **spec)


async def _until(check: Any, timeout: float = 60.0) -> Any:
    import asyncio

    async with asyncio.timeout(timeout):
        while True:
            found = check()
            if found:
                return found
            await asyncio.sleep(0.03)


def _phase(server: Server, name: str) -> str:
    return str(server.rest.get(server.path("pods", name))["status"]["phase"])


async def test_registered_nodes_are_ready_and_free_of_taints(server: Server, kubelet: FakeKubelet) -> None:
    def ready() -> bool:
        nodes = server.rest.list("/api/v1/nodes", labelSelector=f"team={server.namespace}")
        return len(nodes) == 2 and not any(node["spec"].get("taints") for node in nodes)

    await _until(ready)
    node = server.rest.get(f"/api/v1/nodes/{server.namespace}-n1")
    assert node["status"]["allocatable"][GPU] == "2"
    assert ("Ready", "True") in [(row["type"], row["status"]) for row in node["status"]["conditions"]]


async def test_a_cordoned_node_gets_the_taint(server: Server, kubelet: FakeKubelet) -> None:
    path = f"/api/v1/nodes/{server.namespace}-n1"
    server.rest.patch(path, {"spec": {"unschedulable": True}})

    def keys() -> list[str]:
        return [row["key"] for row in server.rest.get(path)["spec"].get("taints") or ()]

    await _until(lambda: keys() == ["node.kubernetes.io/unschedulable"])
    server.rest.patch(path, {"spec": {"unschedulable": False}})
    await _until(lambda: keys() == [])


async def test_a_bound_pod_runs_ends_and_is_deleted_in_its_own_time(server: Server, kubelet: FakeKubelet) -> None:
    server.rest.create(server.path("pods"), _gpu("p"))
    server.bind("p", f"{server.namespace}-n1")
    await _until(lambda: _phase(server, "p") == "Running")
    running = server.rest.get(server.path("pods", "p"))["status"]
    assert running["containerStatuses"][0]["ready"] is True
    assert {row["type"]: row["status"] for row in running["conditions"]}["Ready"] == "True"
    kubelet.hold(server.namespace, "p")
    server.rest.delete(server.path("pods", "p"))
    held = server.rest.get(server.path("pods", "p"))
    assert held["metadata"]["deletionTimestamp"]
    kubelet.release(server.namespace, "p")
    await _until(lambda: server.rest.list(server.path("pods")) == [])


async def test_a_pod_ends_after_the_seconds_it_asks_for_or_when_told(server: Server, kubelet: FakeKubelet) -> None:
    annotations = {"playground.muster.sh/run-seconds": "0.1"}
    server.rest.create(server.path("pods"), _gpu("timed", annotations=annotations, restartPolicy="Never"))
    server.rest.create(server.path("pods"), _gpu("told", restartPolicy="Never"))
    for name in ("timed", "told"):
        server.bind(name, f"{server.namespace}-n1")
    await _until(lambda: _phase(server, "timed") == "Succeeded")
    await _until(lambda: _phase(server, "told") == "Running")
    await kubelet.finish(server.namespace, "told", "Failed", 3)
    ended = server.rest.get(server.path("pods", "told"))["status"]
    assert ended["phase"] == "Failed"
    assert ended["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 3


async def test_what_does_not_fit_is_rejected_by_the_kubelet(server: Server, kubelet: FakeKubelet) -> None:
    node = f"{server.namespace}-n1"
    for index in range(2):
        server.rest.create(server.path("pods"), _gpu(f"p{index}"))
        server.bind(f"p{index}", node)
        await _until(lambda index=index: _phase(server, f"p{index}") == "Running")
    kubelet.hold(server.namespace, "p0")
    server.rest.delete(server.path("pods", "p0"))
    server.rest.create(server.path("pods"), _gpu("late"))
    server.bind("late", node)
    await _until(lambda: _phase(server, "late") == "Failed")
    status = server.rest.get(server.path("pods", "late"))["status"]
    assert status["reason"] == f"OutOf{GPU}"
    assert f"Node didn't have enough resource: {GPU}, requested: 1, used: 2, capacity: 2" in status["message"]
    big = pod("big", containers=[{"name": "c", "image": "x", "resources": {"requests": {"cpu": "3"}}}])
    server.rest.create(server.path("pods"), big)
    server.bind("big", node)
    await _until(lambda: _phase(server, "big") == "Failed")
    assert server.rest.get(server.path("pods", "big"))["status"]["reason"] == "OutOfcpu"
    kubelet.release()


def _job(name: str, **spec: Any) -> Json:
    container = {"name": "main", "image": "app:1", "resources": {"limits": {GPU: 1}}}
    template = {"spec": {"schedulerName": "none", "restartPolicy": "Never", "containers": [container]}}
    return {"metadata": {"name": name}, "spec": {"template": template, **spec}}


async def test_an_indexed_job_makes_replaces_and_counts_its_pods(server: Server, kubelet: FakeKubelet) -> None:
    jobs = server.path("jobs", api="/apis/batch/v1")
    server.rest.create(jobs, _job("j", completionMode="Indexed", completions=3, parallelism=3))

    def pods() -> list[Json]:
        return server.rest.list(server.path("pods"), labelSelector="batch.kubernetes.io/job-name=j")

    await _until(lambda: len(pods()) == 3)
    by_index = {one["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"]: one for one in pods()}
    assert sorted(by_index) == ["0", "1", "2"]
    for index, one in by_index.items():
        assert one["spec"]["hostname"] == f"j-{index}"
        assert one["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"] == index
        assert one["metadata"]["ownerReferences"][0]["kind"] == "Job"
    for index, node in (("0", "n1"), ("1", "n1"), ("2", "n2")):
        server.bind(by_index[index]["metadata"]["name"], f"{server.namespace}-{node}")
    names = [one["metadata"]["name"] for one in by_index.values()]
    await _until(lambda: all(_phase(server, name) == "Running" for name in names))
    await kubelet.finish(server.namespace, by_index["1"]["metadata"]["name"], "Failed")

    def replaced() -> list[Json]:
        return [one for one in pods() if one["status"]["phase"] == "Pending"]

    (fresh,) = await _until(replaced, timeout=90)
    assert fresh["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"] == "1"
    server.bind(fresh["metadata"]["name"], f"{server.namespace}-n2")
    await _until(lambda: _phase(server, fresh["metadata"]["name"]) == "Running")
    for name in (by_index["0"]["metadata"]["name"], by_index["2"]["metadata"]["name"], fresh["metadata"]["name"]):
        await kubelet.finish(server.namespace, name)

    def complete() -> bool:
        rows = server.rest.get(f"{jobs}/j")["status"].get("conditions") or ()
        return any(row["type"] == "Complete" and row["status"] == "True" for row in rows)

    await _until(complete)
    status = server.rest.get(f"{jobs}/j")["status"]
    assert (status["succeeded"], status["failed"], status["completedIndexes"]) == (3, 1, "0-2")


async def test_a_suspended_job_has_no_pods_until_it_is_resumed(server: Server, kubelet: FakeKubelet) -> None:
    jobs = server.path("jobs", api="/apis/batch/v1")
    server.rest.create(jobs, _job("j", suspend=True, parallelism=2))

    def suspended() -> bool:
        rows = server.rest.get(f"{jobs}/j").get("status", {}).get("conditions") or ()
        return any(row["type"] == "Suspended" and row["status"] == "True" for row in rows)

    await _until(suspended)
    assert server.rest.list(server.path("pods")) == []
    server.rest.patch(f"{jobs}/j", {"spec": {"suspend": False}})
    await _until(lambda: len(server.rest.list(server.path("pods"))) == 2)
    await _until(lambda: not suspended())


async def test_a_deployment_makes_pods_and_rolls_to_a_new_template(server: Server, kubelet: FakeKubelet) -> None:
    path = server.path("deployments", api="/apis/apps/v1")
    labels = {"app": "d"}
    spec = {"schedulerName": "none", "containers": [{"name": "c", "image": "x:1"}]}
    template = {"metadata": {"labels": labels}, "spec": spec}
    body = {
        "metadata": {"name": "d"},
        "spec": {"replicas": 2, "selector": {"matchLabels": labels}, "template": template},
    }
    server.rest.create(path, body)

    def images() -> list[str]:
        return sorted(
            one["spec"]["containers"][0]["image"]
            for one in server.rest.list(server.path("pods"))
            if not one["metadata"].get("deletionTimestamp")
        )

    await _until(lambda: images() == ["x:1", "x:1"])
    for one in server.rest.list(server.path("pods")):
        server.bind(one["metadata"]["name"], f"{server.namespace}-n1")
    await _until(lambda: server.rest.get(f"{path}/d")["status"].get("availableReplicas") == 2)
    server.rest.patch(f"{path}/d", {"spec": {"strategy": {"type": "Recreate", "rollingUpdate": None}}})
    change = {"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "x:2"}]}}}}
    server.rest.patch(f"{path}/d", change, kind="strategic")
    await _until(lambda: images() == ["x:2", "x:2"])
    server.rest.patch(f"{path}/d", {"spec": {"replicas": 0}})
    await _until(lambda: images() == [])
