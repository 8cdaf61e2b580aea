"""The seed story and a kubelet's refusal, on two real kubelets with two GPUs each."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.controlplane.cluster import ControlPlane
from tests.controlplane.fixtures import WORKERS
from tests.controlplane.rest import resource_path
from tests.e2e.stage import DEADLINE, GPU, GROUPS, SLACK, Stage, until

pytestmark = [pytest.mark.real, pytest.mark.kubelet]
VOLCANO = ("scheduling.volcano.sh/v1beta1", "podgroups")
COOL_DOWN = 30.0
"""Seconds that a node is left alone for a shape that its kubelet refused."""


@pytest.fixture
def stage(kubelet_cluster: ControlPlane) -> Iterator[Stage]:
    """Both workers, for this test alone."""
    with Stage(kubelet_cluster, register=False) as made:
        yield made


def _phases(stage: Stage, prefix: str) -> list[str]:
    return [pod["status"].get("phase", "") for pod in stage.pods(prefix)]


def _reasons(stage: Stage, prefix: str) -> list[str]:
    return [
        condition.get("message", "")
        for pod in stage.pods(prefix)
        for condition in pod["status"].get("conditions", [])
        if condition["type"] == "PodScheduled" and condition["status"] == "False"
    ]


def _foreign(stage: Stage, name: str, node: str, gpu: int, cpu: str = "100m") -> dict[str, Any]:
    """A pod that somebody put on a node without asking a scheduler."""
    pod = stage.pod(name, "", gpu, nodeName=node)
    pod["spec"]["schedulerName"] = "by-hand"
    pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = cpu
    return pod


def _gang(stage: Stage, name: str, size: int) -> None:
    group = {
        "apiVersion": GROUPS[0],
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": stage.namespace},
        "spec": {"minMember": size},
    }
    stage.rest.create(resource_path(*GROUPS, namespace=stage.namespace), group)


def _template(stage: Stage, group: str, **spec: Any) -> dict[str, Any]:
    """What a controller makes members from."""
    pod = stage.pod("unused", group, **spec)
    return {"metadata": {"labels": {**pod["metadata"]["labels"], "app": group}}, "spec": pod["spec"]}


def _wait_all_run(stage: Stage, prefix: str, count: int, within: float = 60.0) -> None:
    until(
        lambda: _phases(stage, prefix) == ["Running"] * count,
        lambda: "\n".join([f"{count} of {prefix} run: {_phases(stage, prefix)}", *stage.picture()]),
        within,
    )


def test_the_volcano_gang_waits_whole_for_the_hogs_and_then_all_four_run(stage: Stage) -> None:
    stage.scheduler().wait_leads()
    for number in range(3):
        stage.create_pod(stage.pod(f"gpu-hog-{number}", ""))
    _wait_all_run(stage, "gpu-hog-", 3)
    group = {
        "apiVersion": VOLCANO[0],
        "kind": "PodGroup",
        "metadata": {"name": "train", "namespace": stage.namespace},
        "spec": {"minMember": 4},
    }
    stage.rest.create(resource_path(*VOLCANO, namespace=stage.namespace), group)
    for number in range(4):
        pod = stage.pod(f"train-{number}", "")
        pod["metadata"]["annotations"] = {"scheduling.k8s.io/group-name": "train"}
        stage.create_pod(pod)
    # The first members may be told that the others are missing; the reason of the whole gang follows on all of them.
    until(lambda: sum(GPU in reason for reason in _reasons(stage, "train-")) == 4, lambda: "\n".join(stage.picture()))
    for reason in _reasons(stage, "train-"):
        assert re.search(r"\b3 short\b", reason), reason
        assert "gpu-hog" in reason, reason
    stage.stays("train-", 0)
    assert stage.recorder.ever_bound("train-") == 0
    stage.delete("gpu-hog-")
    _wait_all_run(stage, "train-", 4)
    assert stage.recorder.half("train-", 4) < DEADLINE + SLACK
    stage.check(limit=WORKERS)


def test_a_foreign_pod_that_a_full_node_refuses_disturbs_nobody(stage: Stage) -> None:
    stage.scheduler().wait_leads()
    stage.gang("g")
    _wait_all_run(stage, "g-", 4)
    # Of another shape than the gangs: what a node has refused, it is not given again for a while.
    stage.create_pod(_foreign(stage, "foreign", WORKERS[0], 1, cpu="50m"))
    until(lambda: _phases(stage, "foreign") == ["Failed"], lambda: "\n".join(stage.picture()), 60)
    assert stage.pods("foreign")[0]["status"]["reason"] == f"OutOf{GPU}"
    assert _phases(stage, "g-") == ["Running"] * 4
    stage.check(limit=WORKERS)
    # It holds nothing: as soon as the gang is gone, the next one has all four GPUs.
    stage.delete("g-")
    stage.gang("h")
    stage.wait_bound("h-", 4)
    _wait_all_run(stage, "h-", 4)


def test_a_node_that_refused_a_member_is_left_alone_for_its_shape_and_takes_the_next_one_later(stage: Stage) -> None:
    thief = _foreign(stage, "thief", WORKERS[0], 2)
    calls = [
        {"method": "POST", "path": resource_path("v1", "pods", namespace=stage.namespace), "body": thief},
        {"method": "RUNNING", "path": stage.pod_path("thief")},
    ]
    # The process stands still meanwhile, which must not cost it a lease.
    replica = stage.scheduler(
        calls={"point": "bind-unsent", "requests": calls},
        config={"leaderElection": {"leaderElect": False}, "binder": {"deadline": "60s", "history": "600s"}},
    ).wait_ready()
    stage.gang("g")
    until(lambda: len(replica.journal("called")) == 2, replica.tail, 60)
    until(lambda: _phases(stage, "g-").count("Failed") == 2, lambda: "\n".join(stage.picture()), 60)
    refused_at = time.monotonic()
    refused = [pod for pod in stage.pods("g-") if pod["status"]["phase"] == "Failed"]
    for pod in refused:
        assert pod["status"]["reason"] == f"OutOf{GPU}"
        assert pod["spec"]["nodeName"] == WORKERS[0]
    stage.delete("thief")
    for pod in refused:
        name = pod["metadata"]["name"]
        stage.rest.delete_if_present(stage.pod_path(name), grace=0)
        stage.create_pod(stage.pod(name, "g"))
    # worker-1 is free, but it has just refused this very shape; another shape may go there.
    stage.create_pod(stage.pod("other", "", gpu=0, nodeSelector={"kubernetes.io/hostname": WORKERS[0]}))
    _wait_all_run(stage, "other", 1)
    if time.monotonic() - refused_at < COOL_DOWN - SLACK:
        assert stage.bound("g-") == 2, stage.picture()
    _wait_all_run(stage, "g-", 4, within=COOL_DOWN + 60)
    assert time.monotonic() - refused_at > COOL_DOWN - SLACK
    replica.lives()
    stage.check(limit=WORKERS)


def test_members_that_a_kubelet_refused_and_their_job_made_anew_get_whole_on_another_node(stage: Stage) -> None:
    first, second = WORKERS
    thief = _foreign(stage, "thief", first, 2)
    calls = [
        {"method": "POST", "path": resource_path("v1", "pods", namespace=stage.namespace), "body": thief},
        {"method": "RUNNING", "path": stage.pod_path("thief")},
        {"method": "PATCH", "path": f"/api/v1/nodes/{second}", "body": {"spec": {"unschedulable": None}}},
    ]
    stage.rest.patch(f"/api/v1/nodes/{second}", {"spec": {"unschedulable": True}})
    try:
        replica = stage.scheduler(
            calls={"point": "bind-unsent", "requests": calls},
            config={"leaderElection": {"leaderElect": False}, "binder": {"deadline": "60s", "history": "600s"}},
        ).wait_ready()
        _gang(stage, "g", 2)
        spec = {
            "completionMode": "Indexed", "completions": 2, "parallelism": 2, "backoffLimit": 6,
            "template": _template(stage, "g", restartPolicy="Never"),
        }  # fmt: skip
        stage.rest.create(
            resource_path("batch/v1", "jobs", namespace=stage.namespace), {"metadata": {"name": "g"}, "spec": spec}
        )
        until(lambda: len(replica.journal("called")) == 3, replica.tail, 90)
        # Only the first worker was open when it was decided; its kubelet refuses both, and the Job makes two others.
        until(
            lambda: sorted(_phases(stage, "g-")) == ["Failed", "Failed", "Running", "Running"],
            lambda: "\n".join([str(_phases(stage, "g-")), *stage.picture()]),
            90,
        )
        where = {pod["spec"]["nodeName"] for pod in stage.pods("g-") if pod["status"]["phase"] == "Running"}
        assert where == {second}
        assert stage.recorder.made("g-") == 4
        until(lambda: stage.group("g").get("status", {}).get("phase") == "Running", lambda: str(stage.group("g")))
        replica.lives()
        stage.check(limit=WORKERS)
    finally:
        stage.rest.patch(f"/api/v1/nodes/{second}", {"spec": {"unschedulable": None}})


def test_what_every_kubelet_refuses_waits_whole_with_the_reason_and_is_not_made_again_and_again(stage: Stage) -> None:
    stage.scheduler().wait_leads()
    _gang(stage, "g", 2)
    # No scheduler looks at the operating system, every kubelet does; and a ReplicaSet replaces at once, without end.
    template = _template(stage, "g", os={"name": "windows"})
    spec = {"replicas": 2, "selector": {"matchLabels": {"app": "g"}}, "template": template}
    created = time.monotonic()
    stage.rest.create(
        resource_path("apps/v1", "replicasets", namespace=stage.namespace), {"metadata": {"name": "g"}, "spec": spec}
    )
    refused = "node(s) had just refused the pod"
    until(
        lambda: sum(refused in _message(pod) for pod in stage.pods("g-")) == 2,
        lambda: "\n".join([f"two wait with the reason {refused!r}", *stage.picture()]),
        90,
    )
    made = stage.recorder.made("g-")
    # Whatever has refused is tried again after its cool-down, which did not begin before the pods were created.
    quiet = min(time.monotonic() + 10, created + COOL_DOWN - SLACK)
    assert made <= 2 * (len(WORKERS) + 1)
    assert time.monotonic() < quiet, "the machine is too slow to see that nothing is made meanwhile"
    while time.monotonic() < quiet:
        waiting = [pod for pod in stage.pods("g-") if pod["status"]["phase"] == "Pending"]
        assert len(waiting) == 2, stage.picture()
        time.sleep(0.2)
    assert stage.recorder.made("g-") == made
    stage.check(limit=WORKERS)


def _message(pod: dict[str, Any]) -> str:
    return "".join(
        row.get("message", "") for row in pod["status"].get("conditions", []) if row["type"] == "PodScheduled"
    )
