"""A running scheduler takes over the configuration of a mounted ConfigMap when the kubelet swaps its folder."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import yaml

from tests.scenarios.form import NodeSpec
from tests.scenarios.planes import EmbeddedPlane, Scheduler
from tests.unit.test_config_file import swap

NOTHING = "enqueue"
EVERYTHING = "enqueue, allocate, backfill"


def text(actions: str) -> str:
    return yaml.safe_dump(
        {
            "apiVersion": "config.muster.sh/v1alpha1", "kind": "SchedulerConfiguration", "sessionPeriod": "100ms",
            "leaderElection": {"leaderElect": False}, "healthAddress": "127.0.0.1:0", "logFormat": "json",
            "actions": actions,
        }
    )  # fmt: skip


def until(what: str, test: Callable[[], bool], within: float = 60.0) -> None:
    deadline = time.monotonic() + within
    while not test():
        assert time.monotonic() < deadline, f"not within {within:g} s: {what}"
        time.sleep(0.05)


def test_a_config_map_that_is_swapped_is_taken_over_and_a_wrong_one_refused(tmp_path: Path) -> None:
    mount = tmp_path / "etc"
    mount.mkdir()
    swap(mount, 1, text(NOTHING))
    (mount / "config.yaml").symlink_to("..data/config.yaml")
    plane = EmbeddedPlane(tmp_path)
    scheduler = Scheduler(plane.kubeconfig, tmp_path, "--single-process", "--config", str(mount / "config.yaml"))
    try:
        plane.register_node(NodeSpec("n1", {"cpu": "4", "memory": "8Gi", "pods": "110"}, {}, [], False))
        scheduler.start()
        pods = "/api/v1/namespaces/default/pods"
        container = {"name": "c", "image": "x", "resources": {"requests": {"cpu": "1"}}}
        spec = {"schedulerName": "muster", "containers": [container]}
        plane.rest.create(pods, {"metadata": {"name": "p"}, "spec": spec})

        def bound() -> bool:
            return bool(plane.rest.get(f"{pods}/p")["spec"].get("nodeName"))

        swap(mount, 2, "actions: [")
        until("it is refused", lambda: scheduler.figure("muster_config_valid") == 0)
        assert not bound(), "no action places anything"
        swap(mount, 3, text(EVERYTHING))
        until("it is taken over", lambda: scheduler.figure("muster_config_valid") == 1)
        until("the pod is placed", bound)
    finally:
        scheduler.stop()
        plane.stop()
