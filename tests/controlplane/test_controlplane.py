"""What all other tests rely on: this is a real Kubernetes control plane, and it leaves nothing behind."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.controlplane.cluster import ControlPlane, StartError
from tests.controlplane.crds import apply_crds, read_crds, wait_served
from tests.controlplane.fixtures import CRD_FOLDER, GPU, create_namespace, delete_namespace
from tests.controlplane.nodes import NOT_READY_TAINT, renew_lease, set_ready
from tests.controlplane.rest import ApiError, Json, Rest, resource_path

pytestmark = pytest.mark.real


def pod(name: str, gpus: int = 0) -> Json:
    limits = {GPU: str(gpus)} if gpus else {}
    container = {"name": "main", "image": "example.com/train:1", "resources": {"limits": limits}}
    return {"metadata": {"name": name}, "spec": {"schedulerName": "muster", "containers": [container]}}


def bind(cluster: ControlPlane, namespace: str, name: str, node: str) -> None:
    path = resource_path("v1", "pods", name, namespace=namespace, subresource="binding")
    cluster.rest.create(path, {"metadata": {"name": name}, "target": {"kind": "Node", "name": node}})


def wait_for(condition: Callable[[], bool], seconds: float, what: str) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.05)


def process_gone(pid: int) -> bool:
    """Also true for a zombie: it runs nothing and waits only for its parent."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


# --- the API ------------------------------------------------------------------------------------------------------


def test_the_api_server_is_ready_and_speaks_as_kubernetes(real_control_plane: ControlPlane) -> None:
    assert real_control_plane.rest.text("/readyz") == "ok"
    version = real_control_plane.rest.get("/version")
    assert (version["major"], version["gitVersion"][:3]) == ("1", "v1.")
    assert set(real_control_plane.pids()) == {"etcd", "kube-apiserver", "kube-controller-manager"}


def test_kubectl_works_on_the_written_kubeconfig(real_control_plane: ControlPlane, real_namespace: str) -> None:
    manifest = '{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"key": "value"}}'
    real_control_plane.kubectl("apply", "-n", real_namespace, "-f", "-", input=manifest)
    shown = real_control_plane.kubectl("get", "configmap", "a", "-n", real_namespace, "-o", "jsonpath={.data.key}")
    assert shown == "value"
    with pytest.raises(RuntimeError, match="not found"):
        real_control_plane.kubectl("get", "configmap", "absent", "-n", real_namespace)


def test_native_pod_groups_and_workloads_are_served(real_control_plane: ControlPlane, real_namespace: str) -> None:
    groups = resource_path("scheduling.k8s.io/v1beta1", "podgroups", namespace=real_namespace)
    created = real_control_plane.rest.create(
        groups,
        {
            "apiVersion": "scheduling.k8s.io/v1beta1",
            "kind": "PodGroup",
            "metadata": {"name": "gang"},
            "spec": {"schedulingPolicy": {"gang": {"minCount": 4}}},
        },
    )
    assert created["spec"]["schedulingPolicy"]["gang"]["minCount"] == 4
    listed = real_control_plane.rest.get("/apis/scheduling.k8s.io/v1beta1")["resources"]
    assert {"podgroups", "podgroups/status", "workloads"} <= {each["name"] for each in listed}
    member = pod("member")
    member["spec"]["schedulingGroup"] = {"podGroupName": "gang"}
    stored = real_control_plane.rest.create(f"/api/v1/namespaces/{real_namespace}/pods", member)
    assert stored["spec"]["schedulingGroup"] == {"podGroupName": "gang"}


def test_permissions_are_enforced_for_service_accounts(real_control_plane: ControlPlane, real_namespace: str) -> None:
    token = real_control_plane.service_account_token(real_namespace, "default")
    somebody = real_control_plane.rest_as(token)
    with pytest.raises(ApiError) as refused:
        somebody.list(f"/api/v1/namespaces/{real_namespace}/pods")
    assert refused.value.status == 403
    assert f"system:serviceaccount:{real_namespace}:default" in refused.value.message


def test_a_wrong_token_is_refused(real_control_plane: ControlPlane) -> None:
    with pytest.raises(ApiError) as refused:
        real_control_plane.rest_as("not-a-token").get("/api/v1/nodes")
    assert refused.value.status == 401


def test_the_server_proves_its_identity(real_control_plane: ControlPlane) -> None:
    stranger = Rest(real_control_plane.server, real_control_plane.token)  # trusts the system's authorities only
    with pytest.raises(OSError, match="certificate verify failed"):
        stranger.get("/version")


def test_a_watch_reports_what_happens_after_it_began(real_control_plane: ControlPlane, real_namespace: str) -> None:
    path = f"/api/v1/namespaces/{real_namespace}/pods"
    version = real_control_plane.rest.get(path)["metadata"]["resourceVersion"]
    later = threading.Timer(0.3, real_control_plane.rest.create, (path, pod("late")))
    later.start()
    event = real_control_plane.rest.watch_once(path, lambda each: each["type"] == "ADDED", 20, resourceVersion=version)
    later.join()
    assert event["object"]["metadata"]["name"] == "late"
    with pytest.raises(TimeoutError, match="ADDED late"):
        real_control_plane.rest.watch_once(path, lambda each: each["type"] == "BOOKMARK", 4.0)


def test_every_definition_of_the_project_is_served(real_control_plane: ControlPlane) -> None:
    for definition in read_crds(CRD_FOLDER):
        wait_served(real_control_plane.rest, definition, time.monotonic() + 30)
        spec = definition["spec"]
        for version in (each["name"] for each in spec["versions"] if each["served"]):
            # There may be some: what other tests made is deleted with its namespace, when the controllers come to it.
            listed = real_control_plane.rest.get(f"/apis/{spec['group']}/{version}/{spec['names']['plural']}")
            assert listed["kind"] == spec["names"].get("listKind", f"{spec['names']['kind']}List")


def test_a_definition_is_usable_as_soon_as_it_is_applied(real_control_plane: ControlPlane, tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "crd.yaml").write_text(
        """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: kites.tests.example.com}
spec:
  group: tests.example.com
  scope: Cluster
  names: {plural: kites, singular: kite, kind: Kite}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}
"""
    )
    assert apply_crds(real_control_plane.rest, tmp_path) == ["kites.tests.example.com"]
    kite = {"apiVersion": "tests.example.com/v1", "kind": "Kite", "metadata": {"name": "red"}}
    real_control_plane.rest.create("/apis/tests.example.com/v1/kites", kite)
    assert real_control_plane.rest.list("/apis/tests.example.com/v1/kites")[0]["metadata"]["name"] == "red"
    real_control_plane.rest.delete("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/kites.tests.example.com")


# --- nodes --------------------------------------------------------------------------------------------------------


def test_a_registered_node_has_its_resources_and_only_the_given_taints(real_control_plane: ControlPlane) -> None:
    taint = {"key": "dedicated", "value": "train", "effect": "NoSchedule"}
    real_control_plane.register_node("fake-a", {"cpu": "64", GPU: 8}, {"rack": "r1"}, [taint])
    try:
        time.sleep(1.0)  # the controller manager has had its chance to disagree
        node = real_control_plane.rest.get("/api/v1/nodes/fake-a")
        assert node["spec"]["taints"] == [taint]
        assert node["metadata"]["labels"]["rack"] == "r1"
        assert node["status"]["allocatable"] == {"cpu": "64", GPU: "8", "pods": "110"}
        ready = [each["status"] for each in node["status"]["conditions"] if each["type"] == "Ready"]
        assert ready == ["True"]
    finally:
        real_control_plane.rest.delete("/api/v1/nodes/fake-a")


def test_a_node_registered_as_not_ready_keeps_the_taint(real_control_plane: ControlPlane) -> None:
    node = real_control_plane.register_node("fake-b", {"cpu": "1"}, ready=False)
    real_control_plane.rest.delete("/api/v1/nodes/fake-b")
    assert NOT_READY_TAINT in [each["key"] for each in node["spec"]["taints"]]


def test_the_controllers_taint_a_fake_node_that_reports_trouble(real_control_plane: ControlPlane) -> None:
    rest = real_control_plane.rest

    def taints() -> set[str]:
        return {each["key"] for each in rest.get("/api/v1/nodes/fake-d")["spec"].get("taints", [])}

    real_control_plane.register_node("fake-d", {"cpu": "1"})
    try:
        set_ready(rest, "fake-d", False)
        wait_for(lambda: NOT_READY_TAINT in taints(), 90, "the node is tainted")
        set_ready(rest, "fake-d", True)
        wait_for(lambda: taints() == set(), 90, "the taint is taken back")
    finally:
        rest.delete("/api/v1/nodes/fake-d")


def test_a_lease_is_made_and_then_renewed(real_control_plane: ControlPlane) -> None:
    path = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/fake-e"
    times = []
    for _ in range(2):
        renew_lease(real_control_plane.rest, "fake-e")
        times.append(real_control_plane.rest.get(path)["spec"]["renewTime"])
    real_control_plane.rest.delete(path)
    assert times[0] < times[1]


def test_benchmark_mode_has_no_controllers_and_no_taint_on_new_nodes() -> None:
    with ControlPlane(benchmark=True) as cluster:
        assert set(cluster.pids()) == {"etcd", "kube-apiserver"}
        node = cluster.register_node("fake-c", {"cpu": "8", "memory": "32Gi"})
        assert "taints" not in node["spec"]
        cluster.rest.create("/api/v1/namespaces/default/pods", pod("needs-no-account"))


# --- kubelets -----------------------------------------------------------------------------------------------------


@pytest.mark.kubelet
def test_a_kubelet_runs_what_fits_and_refuses_the_third_gpu_pod(
    kubelet_cluster: ControlPlane, kubelet_namespace: str
) -> None:
    pods = f"/api/v1/namespaces/{kubelet_namespace}/pods"

    def phase(name: str) -> str:
        return str(kubelet_cluster.rest.get(f"{pods}/{name}")["status"].get("phase"))

    for name in ("one", "two"):
        kubelet_cluster.rest.create(pods, pod(name, gpus=1))
        bind(kubelet_cluster, kubelet_namespace, name, "worker-1")
    wait_for(lambda: phase("one") == phase("two") == "Running", 90, "both pods run")
    kubelet_cluster.rest.create(pods, pod("three", gpus=1))
    bind(kubelet_cluster, kubelet_namespace, "three", "worker-1")
    wait_for(lambda: phase("three") == "Failed", 90, "the third pod is refused")
    refused = kubelet_cluster.rest.get(f"{pods}/three")["status"]
    assert refused["reason"] == f"OutOf{GPU}"
    assert phase("one") == phase("two") == "Running"


@pytest.mark.kubelet
def test_kubelets_are_ready_with_two_gpus_each(kubelet_cluster: ControlPlane) -> None:
    nodes = {each["metadata"]["name"]: each for each in kubelet_cluster.rest.list("/api/v1/nodes")}
    for name in ("worker-1", "worker-2"):
        allocatable = nodes[name]["status"]["allocatable"]
        assert (allocatable["cpu"], allocatable["memory"], allocatable[GPU]) == ("1", "3840Mi", "2")
        assert not nodes[name]["spec"].get("taints")


@pytest.mark.kubelet
def test_devices_are_free_again_when_a_namespace_was_deleted(
    kubelet_cluster: ControlPlane,
) -> None:
    for attempt in range(2):
        namespace = create_namespace(kubelet_cluster)
        pods = f"/api/v1/namespaces/{namespace}/pods"
        kubelet_cluster.rest.create(pods, pod("both", gpus=2))
        bind(kubelet_cluster, namespace, "both", "worker-2")
        phases: list[str] = []

        def settled(pods: str = pods, phases: list[str] = phases) -> bool:
            phases.append(str(kubelet_cluster.rest.get(f"{pods}/both")["status"].get("phase")))
            return phases[-1] != "Pending"

        wait_for(settled, 90, "the pod runs or is refused")
        assert phases[-1] == "Running", f"attempt {attempt}"
        delete_namespace(kubelet_cluster, namespace)


@pytest.mark.slow
@pytest.mark.kubelet
def test_a_killed_kubelet_turns_its_node_not_ready_when_the_grace_is_short() -> None:
    with ControlPlane(node_grace=12) as cluster:
        cluster.start_kubelet("lonely", {GPU: 1})
        cluster.stop_kubelet("lonely")

        def lost() -> bool:
            conditions = cluster.rest.get("/api/v1/nodes/lonely")["status"]["conditions"]
            return [each["status"] for each in conditions if each["type"] == "Ready"] == ["Unknown"]

        wait_for(lost, 90, "the node is reported lost")


# --- trouble ------------------------------------------------------------------------------------------------------


def test_a_paused_api_server_answers_nothing_until_it_is_resumed(real_control_plane: ControlPlane) -> None:
    cluster = real_control_plane
    impatient = Rest(cluster.server, cluster.token, str(cluster.ca_file), timeout=1.0)
    cluster.pause_api()
    try:
        with pytest.raises(TimeoutError):
            impatient.get("/version")
    finally:
        cluster.resume_api()
    assert cluster.rest.get("/version")["major"] == "1"


def test_a_restarted_api_server_keeps_its_address_and_its_data(
    real_control_plane: ControlPlane, real_namespace: str
) -> None:
    cluster, path = real_control_plane, f"/api/v1/namespaces/{real_namespace}"
    server, uid = cluster.server, cluster.rest.get(path)["metadata"]["uid"]
    cluster.stop_api()
    try:
        with pytest.raises(ConnectionRefusedError):
            cluster.rest.get(path)
    finally:
        cluster.start_api()
    assert cluster.server == server
    assert cluster.rest.get(path)["metadata"]["uid"] == uid


def test_a_failed_start_shows_the_log_and_leaves_no_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    cluster = ControlPlane(controller_manager=False, api_flags=["--no-such-flag"])
    with pytest.raises(StartError, match=r"(?s)kube-apiserver ended with status 1.*unknown flag: --no-such-flag"):
        cluster.start()
    assert cluster.pids() == {}
    assert [each.name for each in tmp_path.glob("muster-cp-*/*.log")] != []


def test_stop_leaves_no_process_and_no_directory() -> None:
    cluster = ControlPlane().start()
    cluster.start_kubelet("short-lived", wait=False)
    pids, directory = cluster.pids(), cluster.directory
    assert set(pids) == {"etcd", "kube-apiserver", "kube-controller-manager", "kubelet/short-lived"}
    cluster.stop()
    assert [name for name, pid in pids.items() if not process_gone(pid)] == []
    assert not directory.exists()


@pytest.mark.parametrize("ending", [pytest.param("exit", marks=pytest.mark.slow), "kill"])
def test_no_process_survives_the_interpreter_that_started_it(ending: str) -> None:
    script = (
        "import sys\n"
        "from tests.controlplane.cluster import ControlPlane\n"
        "cluster = ControlPlane(controller_manager=False).start()\n"
        "print(cluster.directory, *cluster.pids().values(), flush=True)\n"
        "sys.stdin.readline()\n"
    )
    root = Path(__file__).parents[2]
    with subprocess.Popen(
        [sys.executable, "-c", script], cwd=root, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as parent:
        assert parent.stdout is not None
        assert parent.stdin is not None
        directory, *shown = parent.stdout.readline().split()
        pids = [int(each) for each in shown]
        assert len(pids) == 2
        assert not any(process_gone(pid) for pid in pids)
        if ending == "kill":
            os.kill(parent.pid, signal.SIGKILL)
        else:
            parent.stdin.write("\n")
            parent.stdin.close()
        parent.wait(60)
        wait_for(lambda: all(process_gone(pid) for pid in pids), 90, "etcd and kube-apiserver are gone")
        if ending == "exit":
            assert not Path(directory).exists()
        shutil.rmtree(directory, ignore_errors=True)  # killed, nobody was left to do it
