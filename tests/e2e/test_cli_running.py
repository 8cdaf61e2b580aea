"""The user's commands beside a running scheduler, as processes, on an embedded control plane with fake nodes."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.controlplane.rest import Rest
from tests.scenarios.planes import Scheduler

SAMPLES = Path(__file__).parents[2] / "config" / "samples"
PODS = "/api/v1/namespaces/default/pods"


def muster(*words: str, exits: int = 0) -> str:
    done = subprocess.run([sys.executable, "-m", "scheduler", *words], capture_output=True, text=True, timeout=60)
    assert done.returncode == exits, done.stdout + done.stderr
    return done.stdout


def until(what: str, test: Callable[[], bool], within: float = 60.0) -> None:
    deadline = time.monotonic() + within
    while not test():
        assert time.monotonic() < deadline, f"not within {within:g} s: {what}"
        time.sleep(0.05)


class House:
    """A playground started as a user starts it, and a scheduler."""

    def __init__(self, directory: Path) -> None:
        self.kubeconfig = directory / "kubeconfig"
        self.playground = subprocess.Popen(
            [sys.executable, "-m", "scheduler", "playground", "--nodes", "2", "--write-kubeconfig", self.kubeconfig],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        assert self.playground.stdout is not None
        self.told = []
        for line in self.playground.stdout:
            self.told.append(line.strip())
            if "Ctrl-C" in line:
                break
        config = yaml.safe_load(self.kubeconfig.read_text())
        self.rest = Rest(config["clusters"][0]["cluster"]["server"], token="")
        history = {"binder": {"history": "5m"}}
        self.scheduler = Scheduler(self.kubeconfig, directory, "--single-process", config=history)
        self.scheduler.start()

    def apply(self, sample: str) -> None:
        paths = {"Job": "/apis/batch/v1/namespaces/default/jobs"}
        for document in yaml.safe_load_all((SAMPLES / sample).read_text()):
            group = f"/apis/{document['apiVersion']}/namespaces/default/podgroups"
            self.rest.create(paths.get(document["kind"], group), document)

    def count(self, job: str, key: str) -> int:
        """How many pods of a Job are bound (key "bound"), or have this text in their conditions."""
        pods = self.rest.list(PODS, labelSelector=f"job-name={job}")
        if key == "bound":
            return sum(bool(pod["spec"].get("nodeName")) for pod in pods)
        return sum(key in str(pod.get("status", {}).get("conditions")) for pod in pods)


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    made = House(tmp_path_factory.mktemp("house"))
    yield made
    made.scheduler.stop()
    made.playground.send_signal(signal.SIGINT)
    assert made.playground.wait(60) == 0


def test_the_commands_tell_what_happens_to_a_gang(house: House, tmp_path: Path) -> None:
    assert any(line.startswith("muster run --kubeconfig $KUBECONFIG") for line in house.told)
    at = ("--kubeconfig", str(house.kubeconfig))
    house.apply("gpu-hog.yaml")
    until("the hog is bound", lambda: house.count("gpu-hog", "bound") == 3)
    house.apply("volcano-gang.yaml")
    # The first members may be told that the others are missing; the reason of the whole gang follows.
    until("the gang has its reason", lambda: house.count("train", "3 short") == 4)

    def why() -> dict[str, Any]:
        (told,) = json.loads(muster("why", "train", "-o", "json", *at))
        assert isinstance(told, dict)
        return told

    until("the group has it too", lambda: "3 short; held by 3 pods of default/gpu-hog" in why()["reason"])
    told = why()
    assert told["resources"][0]["holders"][0]["holder"] == "default/gpu-hog"
    assert {one["reason"] for one in told["members"]} == {"Unschedulable"}
    (row,) = json.loads(muster("get", "groups", "-o", "json", *at))
    assert (row["name"], row["phase"], row["bound"], row["minimum"]) == ("train", "Inqueue", 0, 4)
    used = {row["name"]: row["used"] for row in json.loads(muster("get", "nodes", "-o", "json", *at))}
    assert sorted(one["example.com/gpu"] for one in used.values()) == ["1", "2"]

    (waits,) = json.loads(muster("queue", "-o", "json", *at))
    assert (waits["name"], waits["position"], waits["minimum"]) == ("train", 1, 4)
    assert "3 short" in waits["reason"]
    seen = json.loads(muster("top", "--once", "--address", house.scheduler.address(), "-o", "json", *at))[0]
    assert (seen["scheduler"]["pending"], seen["scheduler"]["bindFailures"]) == (1, 0)
    assert seen["scheduler"]["p99"] > 0
    assert (seen["pools"][0]["total"], seen["pools"][0]["used"]) == ("4", "3")
    muster("suspend", "train", *at)
    until("it is suspended", lambda: house.count("train", "the group is suspended by metadata.annotations") == 4)

    house.rest.delete("/apis/batch/v1/namespaces/default/jobs/gpu-hog", propagation="Background")
    until("the hog is gone", lambda: not house.rest.list(PODS, labelSelector="job-name=gpu-hog"))
    assert house.count("train", "bound") == 0
    muster("resume", "train", *at)
    until("the gang is bound", lambda: house.count("train", "bound") == 4)
    file = tmp_path / "session.zip"
    muster("snapshot", "--address", house.scheduler.address(), "-o", str(file))
    assert yaml.safe_load(muster("replay", str(file)))["session"].startswith("s-")
    requests = json.loads(muster("get", "requests", "-o", "json", *at))
    assert {row["pods"] for row in requests if row["gangs"] == 1} >= {4}

    def runs() -> bool:
        (group,) = json.loads(muster("get", "groups", "train", "-o", "json", *at))
        return (group["phase"], group["bound"], group["reason"]) == ("Running", 4, "")

    until("the group says Running", runs)
