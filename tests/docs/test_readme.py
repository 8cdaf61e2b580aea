"""What the README says to do with a cluster, done with a real one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.controlplane.cluster import ControlPlane
from tests.docs.pages import ROOT, reader
from tests.e2e.stage import until

PODS = "/api/v1/namespaces/default/pods"


@pytest.mark.real
@pytest.mark.kubelet
def test_the_readme_brings_a_gang_to_a_cluster(kubelet_cluster: ControlPlane, tmp_path: Path):
    rest, sample = kubelet_cluster.rest, str(ROOT / "config" / "samples" / "volcano-gang.yaml")
    with reader(tmp_path, kubelet_cluster.kubeconfig) as somebody:
        try:
            assert somebody.read("README.md", "## Point it at a cluster", "The sample asks for") == 4
            until(
                lambda: [pod["status"].get("phase") for pod in rest.list(PODS)] == ["Running"] * 4,
                lambda: f"all four run: {[pod['status'] for pod in rest.list(PODS)]}",
            )
        finally:
            kubelet_cluster.kubectl("delete", "--ignore-not-found", "-f", sample)
            until(lambda: not rest.list(PODS), "the pods are gone")
