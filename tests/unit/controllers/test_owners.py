"""How many pods of an owner start together, as read from its spec."""

from __future__ import annotations

import json
from typing import Any

import pytest

from scheduler.dialects import owners
from scheduler.dialects.meta import Undecodable
from scheduler.model.owners import Owner

KINDS = {kind.kind: kind for kind in owners.KINDS}
Json = dict[str, Any]


def read(kind: str, spec: object, annotations: Json | None = None) -> Owner:
    meta = {"name": "x", "namespace": "a", "uid": "u", "annotations": annotations or {}}
    raw = json.dumps({"metadata": meta, "spec": spec}).encode()
    return owners.decode(raw, KINDS[kind], f"{KINDS[kind].group}/{KINDS[kind].versions[0]}")


def jobs(*rows: Json) -> list[Json]:
    return [{"template": {"spec": {"parallelism": row.pop("p", 1), **row.pop("spec", {})}}, **row} for row in rows]


@pytest.mark.parametrize(
    ("kind", "spec", "minimum"),
    [
        ("JobSet", {"replicatedJobs": jobs({"replicas": 2, "p": 3}, {"p": 1})}, 7),
        ("JobSet", {"replicatedJobs": jobs({"p": 4, "spec": {"completions": 2}})}, 2),
        ("JobSet", {"replicatedJobs": jobs({"p": 2}, {"p": 5, "dependsOn": [{"name": "a"}]})}, 2),
        ("JobSet", {"startupPolicy": {"startupPolicyOrder": "InOrder"}, "replicatedJobs": jobs({"p": 2}, {"p": 5})}, 2),
        ("RayCluster", {"workerGroupSpecs": [{"replicas": 2, "numOfHosts": 4}, {"minReplicas": 1}]}, 10),
        ("RayCluster", {"enableInTreeAutoscaling": True, "workerGroupSpecs": [{"replicas": 9, "minReplicas": 2}]}, 3),
        ("RayCluster", {"workerGroupSpecs": [{"replicas": 2, "suspend": True}]}, 1),
        ("RayCluster", {"workerGroupSpecs": [{"replicas": 0, "minReplicas": 2}, {"replicas": 5, "maxReplicas": 1}]}, 4),
        ("RayCluster", {}, 1),
        ("LeaderWorkerSet", {"replicas": 9, "leaderWorkerTemplate": {"size": 4}}, 4),
        ("LeaderWorkerSet", {"startupPolicy": "LeaderReady", "leaderWorkerTemplate": {"size": 4}}, 1),
        ("MPIJob", {"mpiReplicaSpecs": {"Launcher": {"replicas": 1}, "Worker": {"replicas": 4}}}, 5),
        (
            "MPIJob",
            {
                "launcherCreationPolicy": "WaitForWorkersReady",
                "mpiReplicaSpecs": {"Launcher": {}, "Worker": {"replicas": 2}},
            },
            2,
        ),
        ("MPIJob", {"mpiReplicaSpecs": {"Launcher": {}, "Worker": {}}}, 1),
        ("PyTorchJob", {"pytorchReplicaSpecs": {"Master": {}, "Worker": {"replicas": 3}}}, 4),
        (
            "PyTorchJob",
            {"elasticPolicy": {"minReplicas": 2}, "pytorchReplicaSpecs": {"Master": {}, "Worker": {"replicas": 8}}},
            3,
        ),
        ("TFJob", {"tfReplicaSpecs": {"PS": {}}, "runPolicy": {"schedulingPolicy": {"minAvailable": 6}}}, 6),
        ("MiniCluster", {"size": 4}, 4),
        ("MiniCluster", {"size": 4, "minSize": 2}, 2),
    ],
)
def test_what_has_to_start_together(kind: str, spec: Json, minimum: int) -> None:
    owner = read(kind, spec)
    assert (owner.minimum, owner.problems) == (minimum, ())


def test_the_annotation_goes_before_the_spec() -> None:
    spec = {"size": 4}
    assert read("MiniCluster", spec, {"scheduling.muster.sh/min-member": "2"}).minimum == 2
    odd = read("MiniCluster", spec, {"scheduling.muster.sh/min-member": "all"})
    assert [(one.field, odd.minimum) for one in odd.problems] == [
        ("MiniCluster x: metadata.annotations[scheduling.muster.sh/min-member]", 0)
    ]


@pytest.mark.parametrize(
    ("kind", "spec", "field"),
    [
        ("RayCluster", {"workerGroupSpecs": [{"replicas": "two"}]}, "RayCluster x: spec.workerGroupSpecs[0].replicas"),
        ("RayCluster", {"workerGroupSpecs": 3}, "RayCluster x: spec.workerGroupSpecs"),
        ("JobSet", {"replicatedJobs": [{"replicas": -1}]}, "JobSet x: spec.replicatedJobs[0].replicas"),
        ("PyTorchJob", {"pytorchReplicaSpecs": {"Worker": []}}, "PyTorchJob x: spec.pytorchReplicaSpecs.Worker"),
    ],
)
def test_a_field_that_is_none_is_named_and_no_minimum_is_guessed(kind: str, spec: Json, field: str) -> None:
    owner = read(kind, spec)
    assert ([one.field for one in owner.problems], owner.minimum) == ([field], 0)


def test_an_object_without_identity_is_an_error_that_names_the_kind() -> None:
    with pytest.raises(Undecodable, match="RayCluster"):
        owners.decode(b'{"metadata": 3}', KINDS["RayCluster"], "ray.io/v1")


def test_a_kind_by_paths_adds_up_and_replaces_a_known_one() -> None:
    kind = owners.by_paths("ray.io", "v2", "rayclusters", "RayCluster", ["spec.chief", "spec.roles[*].replicas"])
    spec = b'{"chief": 1, "roles": [{"replicas": 2}, {"replicas": 3}, {}]}'
    raw = b'{"metadata": {"name": "x", "uid": "u"}, "spec": ' + spec + b"}"
    assert owners.decode(raw, kind, "ray.io/v2").minimum == 6
    known = [one for one in owners.with_more([kind]) if one.plural == "rayclusters"]
    assert known == [kind]


@pytest.mark.parametrize("path", ["replicas", "spec", "status.replicas", "spec.roles[*]", "spec.a b", "spec..a"])
def test_what_is_no_path_is_refused(path: str) -> None:
    with pytest.raises(ValueError, match="path"):
        owners.by_paths("g", "v1", "xs", "X", [path])
