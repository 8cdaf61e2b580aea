"""deploy/kind without Docker: its story and its GPUs on real kubelets, and what up.sh calls in which order."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.controlplane import build
from tests.controlplane.cluster import ControlPlane
from tests.controlplane.rest import Rest
from tests.e2e.stage import until

ROOT = Path(__file__).parents[2]
KIND = ROOT / "deploy" / "kind"


def program(folder: Path, name: str, text: str) -> None:
    file = folder / name
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(file.stat().st_mode | stat.S_IXUSR)


def run(script: str, *words: str, path: Path, **more: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PATH": f"{path}:/usr/bin:/bin", **more}
    return subprocess.run(
        [str(KIND / script), *words],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        stdin=subprocess.DEVNULL,
    )


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """A folder for PATH with the real kubectl."""
    folder = tmp_path / "bin"
    folder.mkdir()
    program(folder, "kubectl", f'exec {" ".join(build.program("kubectl"))} "$@"')
    return folder


@pytest.mark.real
@pytest.mark.kubelet
def test_the_story_is_told_on_real_kubelets(kubelet_cluster: ControlPlane, tools: Path, tmp_path: Path):
    config = yaml.safe_load((KIND / "values.yaml").read_text())["config"]
    config |= {"apiVersion": "config.muster.sh/v1alpha1", "kind": "SchedulerConfiguration", "sessionPeriod": "200ms"}
    config |= {"leaderElection": {"leaderElect": False}, "healthAddress": "127.0.0.1:0"}
    file = tmp_path / "config.yaml"
    file.write_text(yaml.safe_dump(config))
    command = [sys.executable, "-m", "scheduler", "run", "--config", str(file)]
    command += ["--kubeconfig", str(kubelet_cluster.kubeconfig)]
    log = tmp_path / "log"
    muster = subprocess.Popen(command, stdout=log.open("wb"), stderr=subprocess.STDOUT, cwd=ROOT)
    try:
        told = run("story.sh", path=tools, KUBECONFIG=str(kubelet_cluster.kubeconfig), PATIENCE="40")
    finally:
        muster.terminate()
        muster.wait(30)
    assert told.returncode == 0, told.stdout + told.stderr + log.read_text()[-3000:]
    assert "needs 4 example.com/gpu" in told.stdout
    rest: Rest = kubelet_cluster.rest
    pods = "/api/v1/namespaces/muster-story/pods"
    until(lambda: not rest.list(pods), "the story's pods are gone")


@pytest.mark.real
def test_the_story_says_what_did_not_come_true(real_control_plane: ControlPlane, tools: Path):
    kubeconfig = str(real_control_plane.kubeconfig)
    told = run("story.sh", path=tools, KUBECONFIG=kubeconfig, PATIENCE="1", NAMESPACE="muster-story-lost")
    assert told.returncode == 1
    assert "not within 1 s: 3 pods of gpu-hog running; there are 0" in told.stderr


@pytest.mark.real
def test_a_node_gets_gpus(real_control_plane: ControlPlane, tools: Path):
    real_control_plane.register_node("kind-gpus", {"cpu": "1"}, labels={})
    path = "/api/v1/nodes/kind-gpus"
    try:
        done = run("gpus.sh", "kind-gpus", path=tools, KUBECONFIG=str(real_control_plane.kubeconfig), GPUS="3")
        assert done.returncode == 0, done.stderr
        status = real_control_plane.rest.get(path)["status"]
        assert status["capacity"]["example.com/gpu"] == status["allocatable"]["example.com/gpu"] == "3"
    finally:
        real_control_plane.rest.delete(path)


@pytest.fixture
def stand_ins(tmp_path: Path) -> Path:
    """A folder for PATH whose docker, kind, kubectl and helm write down how they are called."""
    folder = tmp_path / "stand-ins"
    folder.mkdir()
    for name in ("docker", "kind", "kubectl", "helm"):
        program(folder, name, f'printf "%s" {name} >> "$CALLS"; printf " %s" "$@" >> "$CALLS"; echo >> "$CALLS"')
    return folder


def test_up_builds_loads_installs_and_only_then_tells(stand_ins: Path, tmp_path: Path):
    calls = tmp_path / "calls"
    done = run("up.sh", path=stand_ins, CALLS=str(calls), PATIENCE="0")
    assert done.returncode == 1, "no pod ever runs here"
    assert "not within 0 s: 3 pods of gpu-hog running" in done.stderr
    lines = calls.read_text().splitlines()
    begun = [
        "kind create cluster", "docker build", "kind load docker-image muster-scheduler:dev", "kind get kubeconfig",
        "kubectl patch node muster-worker ", "kubectl patch node muster-worker2 ", "kubectl apply -f",
        "helm upgrade --install muster", "kubectl --namespace muster-system rollout status",
        "kubectl create namespace muster-story", "kubectl delete namespace muster-story",
    ]  # fmt: skip
    found = [next(number for number, line in enumerate(lines) if line.startswith(text)) for text in begun]
    assert found == sorted(found)
    for word in " ".join(lines).split():
        if word.startswith(str(ROOT)):
            assert Path(word).exists(), word


@pytest.mark.parametrize("missing", ["docker", "kind", "kubectl", "helm"])
def test_up_names_the_tool_that_is_missing(stand_ins: Path, missing: str):
    (stand_ins / missing).unlink()
    for name in ("sh", "dirname", "grep"):
        (stand_ins / name).symlink_to(shutil.which(name) or "")
    environment = {"PATH": str(stand_ins), "CALLS": "/dev/null"}
    done = subprocess.run([str(KIND / "up.sh")], env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert f"error: {missing} is needed" in done.stderr


def test_the_values_are_those_of_the_chart_and_the_nodes_those_of_the_cluster():
    cluster = yaml.safe_load((KIND / "cluster.yaml").read_text())
    assert [node["role"] for node in cluster["nodes"]] == ["control-plane", "worker", "worker"]
    values = yaml.safe_load((KIND / "values.yaml").read_text())
    assert f"{values['image']['repository']}:{values['image']['tag']}" in (KIND / "up.sh").read_text()
