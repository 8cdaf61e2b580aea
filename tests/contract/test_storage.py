"""Claims, persistent volumes and storage classes: what both servers refuse, and how a pair is bound on each."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.contract.conftest import Server, eventually
from tests.controlplane.rest import ApiError, Json

VOLUMES = "/api/v1/persistentvolumes"
CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
NODES = {"required": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}]}}


@pytest.fixture
def made(server: Server) -> Iterator[list[str]]:
    """Paths of objects without a namespace, deleted in the end."""
    paths: list[str] = []
    yield paths
    for path in paths:
        try:
            server.rest.delete(path)
        except ApiError as error:
            assert error.status == 404, error


def claim(name: str, **spec: object) -> Json:
    base: Json = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, **spec}
    return {"metadata": {"name": name}, "spec": {key: value for key, value in base.items() if value is not None}}


def volume(name: str, **spec: object) -> Json:
    base: Json = {
        "accessModes": ["ReadWriteOnce"],
        "capacity": {"storage": "2Gi"},
        "hostPath": {"path": "/mnt"},
        "storageClassName": name,
        **spec,
    }
    return {"metadata": {"name": name}, "spec": {key: value for key, value in base.items() if value is not None}}


@pytest.mark.parametrize(
    "spec",
    [
        {"accessModes": []},
        {"accessModes": ["Sometimes"]},
        {"accessModes": ["ReadWriteOncePod", "ReadWriteOnce"]},
        {"resources": None},
    ],
    ids=["no mode", "unknown mode", "one pod and more", "no size"],
)
def test_a_claim_that_asks_for_nothing_or_for_a_contradiction_is_refused(server: Server, spec: Json) -> None:
    refused = server.refused("create", server.path("persistentvolumeclaims"), claim("c", **spec))
    assert (refused.status, refused.reason) == (422, "Invalid")


@pytest.mark.parametrize(
    "spec",
    [
        {"capacity": None},
        {"accessModes": []},
        {"hostPath": None},
        {"csi": {"driver": "d", "volumeHandle": "h"}},
        {"hostPath": None, "local": {"path": "/mnt"}},
        {"hostPath": None, "csi": {"driver": "with/slash", "volumeHandle": "h"}},
    ],
    ids=["no size", "no mode", "no source", "two sources", "local without nodes", "driver"],
)
def test_a_volume_that_is_nothing_or_two_things_is_refused(server: Server, spec: Json) -> None:
    refused = server.refused("create", VOLUMES, volume(f"{server.namespace}-v", **spec))
    assert (refused.status, refused.reason) == (422, "Invalid")


def test_the_volume_of_a_claim_is_set_once_and_the_rest_of_its_spec_never(server: Server) -> None:
    path = server.path("persistentvolumeclaims", "c")
    server.rest.create(server.path("persistentvolumeclaims"), claim("c", storageClassName="nobody"))
    assert server.refused("patch", path, {"spec": {"storageClassName": "other"}}).status == 422
    server.rest.patch(path, {"spec": {"volumeName": "v"}})
    assert server.refused("patch", path, {"spec": {"volumeName": "w"}}).status == 422
    server.rest.patch(path, {"metadata": {"annotations": {"volume.kubernetes.io/selected-node": "n"}}})
    server.rest.patch(path, {"metadata": {"annotations": {"volume.kubernetes.io/selected-node": None}}})


def test_a_volume_is_given_to_a_claim_only_on_the_version_that_was_read(server: Server, made: list[str]) -> None:
    name = f"{server.namespace}-v"
    made.append(f"{VOLUMES}/{name}")
    created = server.rest.create(VOLUMES, volume(name, nodeAffinity=NODES))
    found = eventually(lambda: (now := server.rest.get(made[0]))["status"].get("phase") == "Available" and now)
    assert created["metadata"]["uid"] == found["metadata"]["uid"]
    reference = {"kind": "PersistentVolumeClaim", "apiVersion": "v1", "namespace": server.namespace, "name": "c"}
    guard = {"uid": found["metadata"]["uid"], "resourceVersion": found["metadata"]["resourceVersion"]}
    server.rest.patch(made[0], {"metadata": guard, "spec": {"claimRef": reference}})
    stale = server.refused("patch", made[0], {"metadata": guard, "spec": {"claimRef": None}})
    assert (stale.status, stale.reason) == (409, "Conflict")
    affinity = {"required": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "x", "operator": "Exists"}]}]}}
    assert server.refused("patch", made[0], {"spec": {"nodeAffinity": affinity}}).status == 422
    assert "claimRef" not in server.rest.patch(made[0], {"spec": {"claimRef": None}})["spec"]


def test_what_a_class_makes_volumes_with_does_not_change(server: Server, made: list[str]) -> None:
    name = f"{server.namespace}-s"
    made.append(f"{CLASSES}/{name}")
    body = {"metadata": {"name": name}, "provisioner": "example.com/x", "parameters": {"a": "b"}}
    created = server.rest.create(CLASSES, body)
    assert (created["volumeBindingMode"], created["reclaimPolicy"]) == ("Immediate", "Delete")
    for patch in (
        {"provisioner": "example.com/y"},
        {"parameters": {"a": "c"}},
        {"volumeBindingMode": "WaitForFirstConsumer"},
    ):
        assert server.refused("patch", made[0], patch).status == 422


def test_a_pair_that_a_scheduler_began_is_completed(server: Server, made: list[str]) -> None:
    name = f"{server.namespace}-v"
    made += [f"{CLASSES}/{name}", f"{VOLUMES}/{name}"]
    mode = {"volumeBindingMode": "WaitForFirstConsumer", "provisioner": "kubernetes.io/no-provisioner"}
    server.rest.create(CLASSES, {"metadata": {"name": name}, **mode})
    server.rest.create(VOLUMES, volume(name))
    path = server.path("persistentvolumeclaims", "c")
    created = server.rest.create(server.path("persistentvolumeclaims"), claim("c", storageClassName=name))
    eventually(lambda: server.rest.get(made[1])["status"].get("phase") == "Available")
    assert "volumeName" not in server.rest.get(path)["spec"]
    reference = {"kind": "PersistentVolumeClaim", "apiVersion": "v1", "namespace": server.namespace, "name": "c"}
    notes = {"annotations": {"pv.kubernetes.io/bound-by-controller": "yes"}}
    body = {"metadata": notes, "spec": {"claimRef": {**reference, "uid": created["metadata"]["uid"]}}}
    server.rest.patch(made[1], body)
    bound = eventually(lambda: (now := server.rest.get(path))["status"].get("phase") == "Bound" and now)
    assert bound["spec"]["volumeName"] == name
    assert bound["metadata"]["annotations"]["pv.kubernetes.io/bind-completed"] == "yes"
