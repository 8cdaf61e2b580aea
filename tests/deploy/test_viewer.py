"""Every command that only looks works with the rights of `view` and of the chart's queue viewer, and with no others."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.controlplane.cluster import ControlPlane
from tests.controlplane.fixtures import create_namespace, delete_namespace
from tests.controlplane.rest import Json
from tests.deploy import helm

pytestmark = [pytest.mark.real, pytest.mark.slow]
ROOT = Path(__file__).parents[2]
ROLE = "muster-queue-viewer"
RBAC = "rbac.authorization.k8s.io"
LOOKS = (
    "get groups", "get queues", "get nodes", "get requests", "get topology", "why g", "why g --nodes", "prio g",
    "queue", "share", "nodes", "top --once --interval 0.2 --address 127.0.0.1:1",
    "simulate -f config/samples/muster-gang.yaml", "lint --cluster -f config/samples/muster-gang.yaml", "adopt default",
)  # fmt: skip


@pytest.fixture(scope="module")
def viewer(real_control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    """A kubeconfig of an account that may look, and a namespace with a gang."""
    cluster = real_control_plane
    namespace = create_namespace(cluster, "viewer")
    role = next(
        one
        for one in yaml.safe_load_all(helm.RENDERED.read_text())
        if one and (one["kind"], one["metadata"]["name"]) == ("ClusterRole", ROLE)
    )
    cluster.kubectl("apply", "-f", "-", input=yaml.safe_dump(role))
    cluster.rest.create(f"/api/v1/namespaces/{namespace}/serviceaccounts", {"metadata": {"name": "ana"}})
    for name in ("view", ROLE):
        binding: Json = {
            "apiVersion": f"{RBAC}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": f"{namespace}-{name}"},
            "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": "ana", "namespace": namespace}],
        }
        cluster.rest.create(f"/apis/{RBAC}/v1/clusterrolebindings", binding)
    groups = f"/apis/scheduling.muster.sh/v1alpha1/namespaces/{namespace}/podgroups"
    kind = {"apiVersion": "scheduling.muster.sh/v1alpha1", "kind": "PodGroup"}
    cluster.rest.create(groups, {**kind, "metadata": {"name": "g"}, "spec": {"minMember": 1}})
    pod: Json = {
        "metadata": {"name": "g-0", "labels": {"scheduling.muster.sh/pod-group": "g"}},
        "spec": {"schedulerName": "muster", "containers": [{"name": "c", "image": "x"}]},
    }
    cluster.rest.create(f"/api/v1/namespaces/{namespace}/pods", pod)
    token = cluster.service_account_token(namespace, "ana")
    node = {"metadata": {"name": f"{namespace}-n"}, "status": {"allocatable": {"cpu": "4", "pods": "10"}}}
    cluster.rest.create("/api/v1/nodes", node)
    yield cluster.write_kubeconfig(tmp_path_factory.mktemp("viewer") / "kubeconfig", token), namespace
    cluster.rest.delete(f"/api/v1/nodes/{namespace}-n")
    for name in ("view", ROLE):
        cluster.rest.delete(f"/apis/{RBAC}/v1/clusterrolebindings/{namespace}-{name}")
    cluster.rest.delete(f"/apis/{RBAC}/v1/clusterroles/{ROLE}")
    delete_namespace(cluster, namespace)


def run(viewer: tuple[Path, str], words: str) -> subprocess.CompletedProcess[str]:
    kubeconfig, namespace = viewer
    spaced = words.startswith(("get groups", "why", "prio", "simulate", "lint", "suspend", "resume"))
    command = [*words.split(), *(("-n", namespace) if spaced else ()), "--kubeconfig", str(kubeconfig)]
    return subprocess.run(
        [sys.executable, "-m", "scheduler", *command],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=120,
    )  # fmt: skip


def test_every_command_that_looks_may_do_so(viewer: tuple[Path, str]) -> None:
    for words in LOOKS:
        done = run(viewer, words)
        assert done.returncode == 0, (words, done.stdout, done.stderr)
        assert "forbidden" not in (done.stdout + done.stderr).lower(), words
        assert "not looked at" not in done.stderr, words


def test_what_writes_is_refused_with_the_word_of_the_api_server(viewer: tuple[Path, str]) -> None:
    for words in ("suspend g", "suspend queue/default", "adopt default --yes"):
        done = run(viewer, words)
        assert done.returncode in (1, 3), words
        assert done.returncode == 3 or "403" in done.stderr or "forbidden" in done.stderr.lower(), (words, done.stderr)
    assert run(viewer, "suspend g").returncode == 1


def test_an_administrator_suspends_and_resumes(viewer: tuple[Path, str], real_control_plane: ControlPlane) -> None:
    namespace = viewer[1]
    admin = (real_control_plane.kubeconfig, namespace)
    path = f"/apis/scheduling.muster.sh/v1alpha1/namespaces/{namespace}/podgroups/g"
    assert run(admin, "suspend g").stdout == f"muster group {namespace}/g suspended\n"
    assert real_control_plane.rest.get(path)["spec"]["suspend"] is True
    assert "Suspended: the group is suspended by spec.suspend" in run(viewer, "queue -o wide").stdout
    assert run(admin, "resume g").stdout == f"muster group {namespace}/g resumed\n"
    assert "suspend" not in real_control_plane.rest.get(path)["spec"]
