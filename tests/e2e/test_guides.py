"""The guides from other schedulers: every command of their `sh` blocks, in order, on a real API server.

Decided here: what is in the cluster before (what the reader has), and that `muster run`, which goes on, is left running
while the rest is done.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.controlplane import build, nodes
from tests.controlplane.cluster import ControlPlane
from tests.controlplane.fixtures import GPU
from tests.controlplane.rest import ApiError

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.xdist_group("policies")]
BEFORE = {
    "from-volcano": """
apiVersion: v1
kind: Namespace
metadata: {name: volcano-system}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: volcano-scheduler-configmap, namespace: volcano-system}
data:
  volcano-scheduler.conf: |
    actions: "enqueue, allocate, backfill"
    tiers:
    - plugins:
      - name: priority
      - name: gang
        enablePreemptable: false
      - name: conformance
    - plugins:
      - name: overcommit
      - name: drf
        enablePreemptable: false
      - name: predicates
      - name: proportion
      - name: nodeorder
      - name: binpack
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: volcano-scheduler, namespace: volcano-system}
spec:
  replicas: 0
  selector: {matchLabels: {app: volcano-scheduler}}
  template:
    metadata: {labels: {app: volcano-scheduler}}
    spec: {containers: [{name: main, image: "volcanosh/vc-scheduler:v1.13.0"}]}
---
apiVersion: scheduling.volcano.sh/v1beta1
kind: Queue
metadata: {name: research}
spec: {weight: 2, capability: {cpu: "16"}}
""",
    "from-kai": """
apiVersion: scheduling.run.ai/v2
kind: Queue
metadata: {name: team-a}
spec:
  resources:
    gpu: {quota: 2, limit: -1, overQuotaWeight: 1}
    cpu: {quota: -1, limit: -1}
    memory: {quota: -1, limit: -1}
""",
    "from-kube-scheduler": "",
}
NODES = ("guide-a", "guide-b")


class Reader:
    """Somebody who follows a guide: a shell, and a terminal of its own for what goes on."""

    def __init__(self, cluster: ControlPlane, folder: Path) -> None:
        bin_ = folder / "bin"
        bin_.mkdir()
        kubectl = shlex.join(str(word) for word in build.program("kubectl"))
        for name, command in (("muster", f"{sys.executable} -m scheduler"), ("kubectl", kubectl)):
            (bin_ / name).write_text(f'#!/bin/sh\nexec {command} "$@"\n')
            (bin_ / name).chmod(0o755)
        (folder / "config").symlink_to(ROOT / "config")
        self._folder = folder
        self._environment = {
            **os.environ, "KUBECONFIG": str(cluster.kubeconfig), "PYTHONPATH": str(ROOT),
            "PATH": f"{bin_}:{os.environ['PATH']}", "HOME": str(folder),
        }  # fmt: skip
        self._running: list[subprocess.Popen[bytes]] = []

    def follow(self, block: str) -> str:
        """Run a block; what it prints. `muster run` is started and left."""
        if block.startswith("muster run"):
            words = [*shlex.split(block), "--health-address", "127.0.0.1:0", "--session-period", "100ms"]
            words = [os.path.expandvars(word.replace("$KUBECONFIG", self._environment["KUBECONFIG"])) for word in words]
            log = (self._folder / "scheduler.log").open("wb")
            self._running.append(
                subprocess.Popen(words, env=self._environment, cwd=self._folder, stdout=log, stderr=log,
                                 start_new_session=True)
            )  # fmt: skip
            return ""
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", block],
            env=self._environment, cwd=self._folder, capture_output=True, text=True, timeout=240,
        )  # fmt: skip
        log_file = self._folder / "scheduler.log"
        told = log_file.read_text()[-3000:] if log_file.exists() else ""
        assert done.returncode == 0, f"{block}\n{done.stdout}{done.stderr}\n{told}"
        return done.stdout

    def leave(self) -> None:
        """End what goes on."""
        for process in self._running:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(60)


@pytest.fixture
def reader(real_control_plane: ControlPlane, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Reader]:
    cluster, rest, before = real_control_plane, real_control_plane.rest, BEFORE[request.node.callspec.params["guide"]]
    for name in ("ml", "muster-system"):
        try:
            rest.create("/api/v1/namespaces", {"metadata": {"name": name}})
        except ApiError as error:
            assert error.status == 409
    deadline = time.monotonic() + 60
    while not cluster.has_account("ml"):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    for name in NODES:
        nodes.register_node(rest, nodes.node_object(name, {"cpu": 8, "memory": "16Gi", GPU: 4}))
    if before:
        cluster.kubectl("apply", "-f", "-", input=before)
    made = Reader(cluster, tmp_path)
    yield made
    made.leave()
    for pod in rest.list("/api/v1/namespaces/ml/pods"):
        rest.delete_if_present(f"/api/v1/namespaces/ml/pods/{pod['metadata']['name']}", grace=0)
    for name in ("ml", "volcano-system"):
        rest.delete_if_present(f"/api/v1/namespaces/{name}")
    for name in NODES:
        rest.delete_if_present(f"/api/v1/nodes/{name}")
    for kind in ("mutatingadmissionpolicybindings", "mutatingadmissionpolicies"):
        rest.delete_if_present(f"/apis/admissionregistration.k8s.io/v1/{kind}/muster-scheduler-name")
    for path in ("scheduling.volcano.sh/v1beta1/queues/research", "scheduling.run.ai/v2/queues/team-a"):
        rest.delete_if_present(f"/apis/{path}")
    deadline = time.monotonic() + 60
    while any(one["metadata"]["name"] == "ml" for one in rest.list("/api/v1/namespaces")):
        assert time.monotonic() < deadline
        for pod in rest.list("/api/v1/namespaces/ml/pods"):
            rest.delete_if_present(f"/api/v1/namespaces/ml/pods/{pod['metadata']['name']}", grace=0)
        time.sleep(0.2)


@pytest.mark.parametrize("guide", sorted(BEFORE))
def test_every_command_of_the_guide_does_what_it_says(
    reader: Reader, guide: str, real_control_plane: ControlPlane
) -> None:
    blocks = BLOCK.findall((ROOT / "docs" / f"{guide}.md").read_text())
    assert len(blocks) >= 5
    told = "".join(reader.follow(block) for block in blocks)
    pods = real_control_plane.rest.list("/api/v1/namespaces/ml/pods")
    assert pods
    assert all(pod["spec"].get("nodeName") in NODES for pod in pods), "also after going back"
    assert told
    if guide == "from-kube-scheduler":
        assert {pod["spec"]["schedulerName"] for pod in pods} == {"muster"}
        labels = real_control_plane.rest.get("/api/v1/namespaces/ml")["metadata"]["labels"]
        assert "scheduling.muster.sh/schedule" not in labels
