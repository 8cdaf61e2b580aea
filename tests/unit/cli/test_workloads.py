"""Which pods are said to become of an object, and that they are as many as must start together."""

from __future__ import annotations

import json
from typing import Any

import pytest

from scheduler.cli.workloads import MOST_PODS, NotUnderstood, Unusable, Workload, workload_of
from scheduler.dialects import owners

Json = dict[str, Any]
KINDS = {kind.kind: kind for kind in owners.KINDS}
TEMPLATE: Json = {
    "metadata": {"labels": {"team": "a"}},
    "spec": {"schedulerName": "muster", "containers": [{"name": "c", "image": "x"}]},
}


def body(kind: str, spec: Json, version: str = "", **annotations: str) -> Json:
    known = KINDS.get(kind)
    version = version or (f"{known.group}/{known.versions[0]}" if known else "")
    meta = {"name": "x", "namespace": "a", "uid": "u", "creationTimestamp": "", "annotations": annotations}
    return {"apiVersion": version, "kind": kind, "metadata": meta, "spec": spec}


def made(kind: str, spec: Json, version: str = "", **annotations: str) -> Workload:
    found = workload_of(body(kind, spec, version, **annotations))
    assert found is not None
    return found


def names(work: Workload) -> list[str]:
    return [pod["metadata"]["name"] for _, pod in work.pods]


def job(count: int, **spec: object) -> Json:
    return {"template": {"spec": {"parallelism": count, "template": TEMPLATE, **spec}}}


ROLE = {"template": TEMPLATE}


@pytest.mark.parametrize(
    ("kind", "spec", "pods"),
    [
        ("JobSet", {"replicatedJobs": [{"name": "d", **job(1)}, {"name": "w", "replicas": 2, **job(2)}]},
         ["x-d-0-0", "x-w-0-0", "x-w-0-1", "x-w-1-0", "x-w-1-1"]),
        ("JobSet", {"replicatedJobs": [{"name": "w", **job(4, completions=2)}]}, ["x-w-0-0", "x-w-0-1"]),
        ("JobSet", {"startupPolicy": {"startupPolicyOrder": "InOrder"},
                    "replicatedJobs": [{"name": "w", **job(2)}, {"name": "e", **job(3)}]}, ["x-w-0-0", "x-w-0-1"]),
        ("RayCluster", {"headGroupSpec": ROLE, "workerGroupSpecs": [
            {"groupName": "g", "replicas": 1, "numOfHosts": 2, **ROLE},
            {"groupName": "s", "replicas": 0, "minReplicas": 1, **ROLE},
            {"groupName": "m", "replicas": 3, "maxReplicas": 1, **ROLE},
            {"groupName": "off", "replicas": 3, "suspend": True, **ROLE}]},
         ["x-head", "x-g-worker-0", "x-g-worker-1", "x-s-worker-0", "x-m-worker-0"]),
        ("LeaderWorkerSet", {"leaderWorkerTemplate": {"size": 3, "workerTemplate": TEMPLATE}},
         ["x-0", "x-0-1", "x-0-2"]),
        ("MPIJob", {"mpiReplicaSpecs": {"Launcher": ROLE, "Worker": {**ROLE, "replicas": 2}}},
         ["x-launcher-0", "x-worker-0", "x-worker-1"]),
        ("MPIJob", {"mpiReplicaSpecs": {"Launcher": ROLE, "Worker": ROLE}}, ["x-launcher-0"]),
        ("MPIJob", {"launcherCreationPolicy": "WaitForWorkersReady",
                    "mpiReplicaSpecs": {"Launcher": ROLE, "Worker": {**ROLE, "replicas": 2}}},
         ["x-worker-0", "x-worker-1"]),
        ("PyTorchJob", {"pytorchReplicaSpecs": {"Master": ROLE, "Worker": {**ROLE, "replicas": 2}}},
         ["x-master-0", "x-worker-0", "x-worker-1"]),
        ("TFJob", {"tfReplicaSpecs": {"PS": ROLE, "Chief": ROLE}}, ["x-ps-0", "x-chief-0"]),
    ],
)  # fmt: skip
def test_pods_are_as_many_as_start_together(kind: str, spec: Json, pods: list[str]) -> None:
    work = made(kind, spec)
    assert names(work) == pods
    owner = owners.decode(json.dumps(body(kind, spec)).encode(), KINDS[kind], "v")
    assert (owner.minimum, owner.problems) == (len(pods), ())
    above = {"apiVersion": work.owner["apiVersion"], "kind": kind, "name": "x", "uid": "u", "controller": True}
    for _, pod in work.pods:
        assert pod["metadata"]["ownerReferences"] == [above]
        assert pod["metadata"]["labels"]["team"] == "a"
        assert pod["spec"] == TEMPLATE["spec"]


def test_a_job_without_parallelism_makes_nothing_however_often_it_is_there() -> None:
    assert made("JobSet", {"replicatedJobs": [{"replicas": 10**9, **job(0)}]}).pods == ()


def test_replicas_are_gangs_of_their_own_and_told_apart() -> None:
    leader = {"spec": {"containers": [{"name": "lead", "image": "x"}]}}
    parts = {"size": 2, "leaderTemplate": leader, "workerTemplate": TEMPLATE}
    work = made("LeaderWorkerSet", {"replicas": 2, "leaderWorkerTemplate": parts})
    marks = [
        (pod["metadata"]["labels"][owners.GROUP_INDEX], pod["metadata"]["labels"][f"{LWS}worker-index"])
        for _, pod in work.pods
    ]
    assert marks == [("0", "0"), ("0", "1"), ("1", "0"), ("1", "1")]
    assert [pod["spec"]["containers"][0]["name"] for _, pod in work.pods] == ["lead", "c", "lead", "c"]
    waiting = made("LeaderWorkerSet", {"startupPolicy": "LeaderReady", "replicas": 2, "leaderWorkerTemplate": parts})
    assert (names(waiting), len(waiting.unseen)) == (["x-0", "x-1"], 1)


LWS = "leaderworkerset.sigs.k8s.io/"


def test_ranks_and_domains_of_a_job_set_are_written_on_its_pods() -> None:
    spec = {"replicatedJobs": [{"name": "w", "replicas": 2, **job(2)}]}
    work = made("JobSet", spec, **{"alpha.jobset.sigs.k8s.io/exclusive-topology": "rack"})
    ranks = []
    for _, pod in work.pods:
        own = pod["metadata"]["annotations"]
        assert own["alpha.jobset.sigs.k8s.io/exclusive-topology"] == "rack"
        ranks.append((own["jobset.sigs.k8s.io/job-global-index"], own["batch.kubernetes.io/job-completion-index"]))
    assert ranks == [("0", "0"), ("0", "1"), ("1", "0"), ("1", "1")]
    assert len({pod["metadata"]["labels"]["jobset.sigs.k8s.io/job-key"] for _, pod in work.pods}) == 2


def test_a_ray_cluster_that_scales_itself_has_a_container_more_in_its_head() -> None:
    spec = {"enableInTreeAutoscaling": True, "headGroupSpec": ROLE, "workerGroupSpecs": [{"replicas": 2, **ROLE}]}
    work = made("RayCluster", spec)
    assert len(work.pods) == 3
    assert [one["name"] for one in work.pods[0][1]["spec"]["containers"]] == ["c", "autoscaler"]
    assert TEMPLATE["spec"]["containers"] == [{"name": "c", "image": "x"}]


@pytest.mark.parametrize("kind", ["RayJob", "RayService"])
def test_the_cluster_below_a_ray_object_is_made_of_its_part(kind: str) -> None:
    field = {"RayJob": "rayClusterSpec", "RayService": "rayClusterConfig"}[kind]
    work = made(kind, {field: {"headGroupSpec": ROLE}}, "ray.io/v1")
    assert [(path, pod["metadata"]["name"]) for path, pod in work.pods] == [
        (f"spec.{field}.headGroupSpec.template", "x-head")
    ]
    assert work.owner["kind"] == "RayCluster"
    with pytest.raises(Unusable, match=f"{kind} x: spec.{field}: must be an object"):
        made(kind, {}, "ray.io/v1")


def test_a_ray_job_on_a_cluster_that_is_there_makes_no_gang() -> None:
    with pytest.raises(Unusable, match=r"RayJob x: spec.clusterSelector: it runs"):
        made("RayJob", {"clusterSelector": {"a": "b"}}, "ray.io/v1")


def test_a_job_makes_as_many_pods_as_run_at_once() -> None:
    work = made(
        "Job", {"parallelism": 5, "completions": 3, "completionMode": "Indexed", "template": TEMPLATE}, "batch/v1"
    )
    assert names(work) == ["x-0", "x-1", "x-2"]
    indexes = [pod["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"] for _, pod in work.pods]
    assert indexes == ["0", "1", "2"]
    suspended = made("Job", {"suspend": True, "template": TEMPLATE}, "batch/v1")
    assert suspended.unseen == ("Job x: spec.suspend (as if it were false)",)


@pytest.mark.parametrize(
    ("kind", "spec", "version", "says"),
    [
        (
            "Job",
            {"parallelism": "two", "template": TEMPLATE},
            "batch/v1",
            "Job x: spec.parallelism: must be an integer",
        ),
        ("Job", {}, "batch/v1", "Job x: spec.template: has no pod spec"),
        ("Job", {"template": TEMPLATE}, "batch/v1beta1", "Job x: apiVersion: batch has no version v1beta1"),
        ("Deployment", {"replicas": MOST_PODS + 1, "template": TEMPLATE}, "apps/v1", "more than 100000 pods"),
        ("RayCluster", {}, "", "RayCluster x: spec.headGroupSpec.template: has no pod spec"),
        (
            "RayCluster",
            {"enableInTreeAutoscaling": True, "headGroupSpec": {"template": {"spec": {"containers": 3}}}},
            "",
            "RayCluster x: spec.headGroupSpec.template.spec.containers: must be a list",
        ),
        ("JobSet", {"replicatedJobs": [{"replicas": 10**9, **job(1)}]}, "", "more than 100000 pods"),
        ("LeaderWorkerSet", {"replicas": 10**9, "leaderWorkerTemplate": {"workerTemplate": TEMPLATE}}, "", "more than"),
        (
            "PyTorchJob",
            {"pytorchReplicaSpecs": {"Worker": 3}},
            "",
            "spec.pytorchReplicaSpecs.Worker: must be an object",
        ),
        ("PyTorchJob", {"pytorchReplicaSpecs": {"W": {"template": {"metadata": 3}}}}, "", "template.metadata: must be"),
    ],
)
def test_what_cannot_be_read_is_named(kind: str, spec: Json, version: str, says: str) -> None:
    with pytest.raises(Unusable) as raised:
        made(kind, spec, version)
    assert says in str(raised.value)


def test_annotations_of_another_type_are_named() -> None:
    wrong = body("LeaderWorkerSet", {"leaderWorkerTemplate": {"workerTemplate": TEMPLATE}})
    wrong["metadata"]["annotations"] = 3
    with pytest.raises(Unusable, match=r"LeaderWorkerSet x: metadata.annotations: must be an object"):
        workload_of(wrong)


def test_the_runtime_of_a_train_job_decides_and_other_kinds_are_not_of_this_module() -> None:
    with pytest.raises(NotUnderstood, match="TrainJob x: its pods are those of its runtime torch"):
        made("TrainJob", {"runtimeRef": {"name": "torch"}}, "trainer.kubeflow.org/v1alpha1")
    assert workload_of(body("Queue", {}, "scheduling.muster.sh/v1alpha1")) is None
    assert workload_of(body("JobFlow", {}, "flow.volcano.sh/v1alpha1")) is None
