"""Definitions that a cluster gets while the scheduler runs: ours before it is ready, a dialect's when it comes."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.controlplane.cluster import ControlPlane
from tests.controlplane.fixtures import CRD_FOLDER
from tests.controlplane.rest import resource_path
from tests.e2e.stage import Stage, until

pytestmark = [pytest.mark.real, pytest.mark.alone]
BIND_REQUESTS = "bindrequests.scheduling.muster.sh"
VOLCANO = ("scheduling.volcano.sh/v1beta1", "podgroups")


@pytest.fixture
def bare_cluster() -> Iterator[ControlPlane]:
    """A control plane that has none of the definitions."""
    with ControlPlane() as cluster:
        yield cluster


def _apply(cluster: ControlPlane, folder: Path, *files: str) -> None:
    folder.mkdir()
    for file in files:
        shutil.copy(CRD_FOLDER / file, folder)
    cluster.apply_crds(folder)


def test_definitions_that_come_late_are_named_until_then_and_taken_up_without_a_restart(
    bare_cluster: ControlPlane, tmp_path: Path
) -> None:
    with Stage(bare_cluster) as stage:
        replica = stage.scheduler()
        until(lambda: replica.get("/readyz")[0] == 503, replica.tail)
        _apply(bare_cluster, tmp_path / "without", "podgroups.yaml", "queues.yaml", "topologies.yaml")

        def names_one() -> bool:
            said = replica.get("/readyz")[1]
            return "bindrequests" in said and "podgroups" not in said

        until(
            names_one,
            lambda: f"{BIND_REQUESTS} alone is named: {replica.get('/readyz')}\n{replica.tail()}",
            within=90,
        )
        assert replica.get("/readyz")[0] == 503
        assert not replica.leads()
        _apply(bare_cluster, tmp_path / "requests", "bindrequests.yaml")
        replica.wait_leads()
        until(replica.ready, lambda: f"{replica.get('/readyz')}", within=60)
        stage.gang("own")
        stage.wait_bound("own-", 4)
        stage.delete("own-")

        _apply(bare_cluster, tmp_path / "volcano", "dialects/volcano-podgroups.yaml", "dialects/volcano-queues.yaml")
        group = {
            "apiVersion": VOLCANO[0],
            "kind": "PodGroup",
            "metadata": {"name": "late", "namespace": stage.namespace},
            "spec": {"minMember": 4},
        }
        stage.rest.create(resource_path(*VOLCANO, namespace=stage.namespace), group)
        for number in range(4):
            pod = stage.pod(f"late-{number}", "")
            pod["metadata"]["annotations"] = {"scheduling.k8s.io/group-name": "late"}
            stage.create_pod(pod)
        stage.wait_bound("late-", 4, within=90)
        status_path = resource_path(*VOLCANO, "late", namespace=stage.namespace)
        until(
            lambda: stage.rest.get(status_path).get("status", {}).get("phase") == "Running",
            lambda: str(stage.rest.get(status_path)),
        )
        assert replica.process.poll() is None
        assert len(replica.journal("started")) == 1
        stage.check()
