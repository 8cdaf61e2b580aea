"""Pods with the same needs share a shape, and nothing else does."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from scheduler.dialects.core import Undecodable, decode_node, decode_pod
from scheduler.dialects.shapes import keyed
from scheduler.model.pods import Pod, Shape

Json = dict[str, Any]
NAMES = frozenset({"muster"})


def decode(spec: Json, metadata: Json | None = None, status: Json | None = None) -> tuple[Pod, Shape]:
    obj = {
        "metadata": {"name": "p", "namespace": "a", "uid": "u"} | (metadata or {}),
        "spec": spec,
        "status": status or {},
    }
    return decode_pod(json.dumps(obj).encode(), NAMES)


def spec(**fields: Any) -> Json:
    return {"containers": [{"name": "main", "resources": {"requests": {"cpu": "1"}}}]} | fields


def key(**fields: Any) -> str:
    return decode(spec(**fields))[1].key


def terms(*expressions: Json) -> Json:
    required = {"nodeSelectorTerms": [{"matchExpressions": list(expressions)}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}


A: Json = {"key": "disk", "operator": "In", "values": ["ssd", "nvme"]}
B: Json = {"key": "gpu", "operator": "Exists"}


def test_what_names_a_single_pod_is_not_part_of_its_shape() -> None:
    volumes = [{"name": "kube-api-access-abc", "projected": {"sources": []}}]
    others = [{"name": "kube-api-access-xyz", "projected": {"sources": []}}]
    first = decode(spec(hostname="w-0", volumes=volumes), {"name": "w-0", "uid": "1"})
    second = decode(spec(hostname="w-1", volumes=others, nodeName="n1"), {"name": "w-1", "uid": "2"})
    assert first[1] == second[1]
    assert first[0].shape == second[0].shape == first[1].key


def test_the_order_of_lists_without_a_meaning_does_not_matter() -> None:
    assert key(affinity=terms(A, B)) == key(affinity=terms(B, A | {"values": ["nvme", "ssd"]}))
    one, two = {"key": "a", "operator": "Exists"}, {"key": "b", "value": "c", "effect": "NoSchedule"}
    assert key(tolerations=[one, two]) == key(tolerations=[two, one])
    assert key(nodeSelector={"a": "1", "b": "2"}) == key(nodeSelector={"b": "2", "a": "1"})


def test_quantities_in_other_words_give_the_same_shape() -> None:
    other = decode({"containers": [{"name": "x", "resources": {"requests": {"cpu": "1000m"}}}]})[1]
    assert other.key == key()


@pytest.mark.parametrize(
    "fields",
    [
        {"nodeSelector": {"a": "1"}},
        {"tolerations": [{"operator": "Exists"}]},
        {"affinity": terms(A)},
        {"affinity": terms()},
        {"overhead": {"cpu": "1m"}},
        {"resourceClaims": [{"name": "c"}]},
        {"hostNetwork": True, "hostUsers": False},
        {"topologySpreadConstraints": [{"topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}]},
        {"initContainers": [{"name": "i", "resources": {"requests": {"cpu": "2"}}}]},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_what_changes_where_a_pod_may_run_changes_its_shape(fields: Json) -> None:
    assert key(**fields) != key()


RULE: Json = {"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [42]}}
MOUNTS: list[Json] = [
    {"name": "a", "mountPath": "/a"},
    {"name": "b", "mountPath": "/b", "bindMountOptions": ["noexec"]},
]


@pytest.mark.parametrize(
    ("fields", "features"),
    [
        ({"hostNetwork": True, "hostUsers": False}, ("UserNamespacesHostNetworkSupport",)),
        ({"hostNetwork": True, "hostUsers": True}, ()),
        ({"hostNetwork": True}, ()),
        ({"hostUsers": False}, ()),
        ({"containers": [{"restartPolicyRules": [RULE]}]}, ("RestartAllContainersOnContainerExits",)),
        ({"containers": [{"restartPolicyRules": [{**RULE, "action": "Restart"}]}]}, ()),
        ({"initContainers": [{"restartPolicyRules": [RULE]}]}, ("RestartAllContainersOnContainerExits",)),
        ({"containers": [{"volumeMounts": MOUNTS}]}, ("VolumeBindMountOptions",)),
        ({"containers": [{"volumeMounts": MOUNTS[:1]}]}, ()),
        ({"containers": [{"volumeMounts": [{"name": "b", "bindMountOptions": []}], "restartPolicyRules": None}]}, ()),
        ({"initContainers": [{"volumeMounts": MOUNTS}]}, ("VolumeBindMountOptions",)),
        ({"ephemeralContainers": [{"volumeMounts": MOUNTS}]}, ("VolumeBindMountOptions",)),
        (
            {"hostNetwork": True, "hostUsers": False, "containers": [{"restartPolicyRules": [RULE]}]},
            ("RestartAllContainersOnContainerExits", "UserNamespacesHostNetworkSupport"),
        ),
    ],
)
def test_what_a_spec_needs_of_the_kubelet(fields: Json, features: tuple[str, ...]) -> None:
    assert decode(spec(**fields))[1].features == features


def test_of_what_a_node_declares_only_what_pods_may_need_is_kept() -> None:
    declared = [
        "VolumeBindMountOptions",
        "InPlacePodLevelResourcesVerticalScaling",
        "RestartAllContainersOnContainerExits",
    ]
    raw = {"metadata": {"name": "n"}, "status": {"declaredFeatures": declared}}
    assert decode_node(json.dumps(raw).encode()).features == (
        "RestartAllContainersOnContainerExits",
        "VolumeBindMountOptions",
    )
    assert decode_node(b'{"metadata": {"name": "n"}, "status": {"declaredFeatures": null}}').features == ()


def test_claims_belong_to_the_pod_and_not_to_its_shape() -> None:
    pod, shape = decode(spec(volumes=[{"name": "d", "persistentVolumeClaim": {"claimName": "data-1"}}]))
    assert shape.key == key()
    assert pod.volumes is not None
    assert [claim.name for claim in pod.volumes.claims] == ["data-1"]


def test_no_required_affinity_matches_everything_and_an_empty_list_of_terms_matches_nothing() -> None:
    assert decode(spec())[1].required_terms is None
    assert decode(spec(affinity={"nodeAffinity": {}}))[1].required_terms is None
    empty = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}}
    assert decode(spec(affinity=empty))[1].required_terms == ()


def test_the_key_follows_from_the_other_fields() -> None:
    shape = decode(spec(affinity=terms(A, B), nodeSelector={"a": "b"}))[1]
    assert keyed(shape) == shape


def test_decoding_does_not_depend_on_what_was_decoded_before() -> None:
    specs = [spec(nodeSelector={"zone": str(i % 5)}, hostname=f"w-{i}") for i in range(40)]
    before = [decode(each) for each in specs]
    order = list(range(40))
    random.Random(3).shuffle(order)
    after = {i: decode(specs[i]) for i in order}
    assert [after[i] for i in range(40)] == before


def test_a_pod_that_is_not_one_is_named_in_the_error() -> None:
    raw = b'{"kind": "Pod", "metadata": {"name": "p", "namespace": "a"}, "spec": {"containers": 7}}'
    with pytest.raises(Undecodable, match=r"Pod a/p: .*containers"):
        decode_pod(raw, NAMES)
    with pytest.raises(Undecodable, match="unknown name"):
        decode_pod(b"not json", NAMES)


def test_a_node_with_a_quantity_that_does_not_parse_is_refused_by_name() -> None:
    raw = b'{"metadata": {"name": "n1"}, "status": {"allocatable": {"cpu": "lots"}}}'
    with pytest.raises(Undecodable, match=r"Node n1: status.allocatable\[cpu\]: 'lots'"):
        decode_node(raw)


def test_a_pod_has_started_only_when_a_container_has() -> None:
    def started(status: Json) -> bool:
        return decode(spec(nodeName="n1"), status=status)[0].started

    waiting = {"name": "main", "restartCount": 0, "state": {"waiting": {"reason": "ContainerCreating"}}}
    running = {"name": "main", "restartCount": 0, "state": {"running": {"startedAt": "2026-11-01T08:00:00Z"}}}
    assert not started({"phase": "Pending", "startTime": "2026-11-01T08:00:00Z", "containerStatuses": [waiting]})
    assert started({"phase": "Pending", "initContainerStatuses": [running], "containerStatuses": [waiting]})
    assert started({"phase": "Pending", "containerStatuses": [waiting | {"restartCount": 1}]})
    assert started({"phase": "Running"})


def test_only_names_that_we_serve_are_ours() -> None:
    assert decode(spec(schedulerName="muster"))[0].ours
    assert not decode(spec())[0].ours
    assert decode(spec())[0].scheduler_name == "default-scheduler"
