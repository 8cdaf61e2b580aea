"""Our definitions, objects and status patches on the real API server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from scheduler.dialects.registry import BY_NAME
from scheduler.model.decisions import SetStatus
from scheduler.model.groups import PodGroup
from scheduler.model.queues import WEIGHT_UNIT
from scheduler.model.verdict import verdict
from tests.controlplane.cluster import ControlPlane
from tests.controlplane.rest import ApiError
from tests.dialects.golden import LIFE

pytestmark = pytest.mark.real
Json = dict[str, Any]
CONFIG = Path(__file__).parents[2] / "config"
GROUPS = {
    "muster": ("scheduling.muster.sh/v1alpha1", {"minMember": 4, "queue": "research"}),
    "volcano": (
        "scheduling.volcano.sh/v1beta1",
        {"minMember": 4, "minTaskMember": {"worker": 4}, "unheardOf": {"a": 1}},
    ),
    "coscheduling": ("scheduling.x-k8s.io/v1alpha1", {"minMember": 4, "scheduleTimeoutSeconds": 10}),
    "kai": ("scheduling.run.ai/v2alpha2", {"minMember": 4, "markUnschedulable": True, "subGroups": []}),
    "native": ("scheduling.k8s.io/v1beta1", {"schedulingPolicy": {"gang": {"minCount": 4}}}),
    "native v1alpha3": ("scheduling.k8s.io/v1alpha3", {"schedulingPolicy": {"gang": {"minCount": 4}}}),
}


def create(cluster: ControlPlane, namespace: str, api: str, spec: Json, name: str = "g") -> Json:
    path = f"/apis/{api}/namespaces/{namespace}/podgroups"
    return cluster.rest.create(path, {"apiVersion": api, "kind": "PodGroup", "metadata": {"name": name}, "spec": spec})


def decode(dialect: str, obj: Json) -> PodGroup:
    return BY_NAME[dialect].decode_group(json.dumps(obj).encode(), obj["apiVersion"])


@pytest.mark.parametrize("which", sorted(GROUPS))
def test_one_life_of_a_group_is_written_and_read_back(
    real_control_plane: ControlPlane, real_namespace: str, which: str
) -> None:
    api, spec = GROUPS[which]
    name = which.split()[0]
    dialect = BY_NAME[name]
    obj = create(real_control_plane, real_namespace, api, spec)
    assert decode(name, obj).min_member == 4
    assert decode(name, obj).problems == ()
    suffix = "/status" if dialect.resources[0].status_subresource else ""
    for number, (phase, counts, code, text) in enumerate(LIFE):
        group = decode(name, obj)
        status = SetStatus(group.key, group.uid, phase, tuple(counts.items()), verdict(code) if code else None)
        patch = dialect.status_patch(group, status, text, f"2026-11-02T00:00:0{number}Z")
        if patch is not None:
            obj = real_control_plane.rest.patch(dialect.api_path(group) + suffix, patch)
        kept = decode(name, real_control_plane.rest.get(dialect.api_path(group)))
        assert dialect.status_patch(kept, status, text, "2026-11-03T00:00:00Z") is None, phase
        assert kept.was_running == (number >= 2), phase
    assert decode(name, obj).phase in ("Completed", "Running")


def test_malformed_groups_of_volcano_reach_us_with_their_problems(
    real_control_plane: ControlPlane, real_namespace: str
) -> None:
    wrong: dict[str, Json] = {
        "spec.minMember": {"minMember": -1},
        "spec.minResources[cpu]": {"minMember": 1, "minResources": {"cpu": "lots"}},
        "spec.subGroupPolicy[0].labelSelector": {
            "minMember": 1,
            "subGroupPolicy": [{"name": "s", "labelSelector": {"matchLabels": 1}}],
        },
    }
    for number, (field, spec) in enumerate(sorted(wrong.items())):
        obj = create(real_control_plane, real_namespace, "scheduling.volcano.sh/v1beta1", spec, f"g{number}")
        assert [problem.field for problem in decode("volcano", obj).problems] == [field]
    huge = create(real_control_plane, real_namespace, "scheduling.volcano.sh/v1beta1", {"minMember": 2**31}, "huge")
    assert decode("volcano", huge).problems


def test_defaults_of_our_own_group_come_from_its_definition(
    real_control_plane: ControlPlane, real_namespace: str
) -> None:
    obj = create(real_control_plane, real_namespace, "scheduling.muster.sh/v1alpha1", {})
    assert obj["spec"] == {"minMember": 1, "preemptible": True, "onDomainLost": "Wait"}


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"minMember": 0}, "spec.minMember"),
        ({"minMember": 2**31}, "spec.minMember"),
        ({"minRuntime": "2h", "runtimeLimit": "1h"}, "minRuntime must not be longer than runtimeLimit"),
        ({"minRuntime": "soon"}, "spec.minRuntime"),
        ({"subGroups": [{"name": "a"}, {"name": "a"}]}, "Duplicate value"),
        ({"subGroups": [{"name": "a", "minMember": 1, "subGroups": []}]}, "either minMember or subGroups"),
    ],
)
def test_our_own_group_is_checked_at_the_door(
    real_control_plane: ControlPlane, real_namespace: str, spec: Json, said: str
) -> None:
    with pytest.raises(ApiError, match=said) as refused:
        create(real_control_plane, real_namespace, "scheduling.muster.sh/v1alpha1", spec)
    assert refused.value.status == 422


@pytest.mark.parametrize(
    ("resources", "said"),
    [
        ({"cpu": {"guarantee": "5", "deserved": 4}}, "guarantee must not be greater than deserved"),
        ({"cpu": {"deserved": "2k", "limit": "1500"}}, "deserved must not be greater than limit"),
        ({"cpu": {"guarantee": "unlimited", "limit": "1500"}}, "guarantee must not be greater than limit"),
        ({"cpu": {"limit": "many"}}, "should match"),
        ({"cpu": {"limit": -1}}, "greater than or equal to 0"),
    ],
)
def test_a_queue_that_contradicts_itself_is_refused(
    real_control_plane: ControlPlane, resources: Json, said: str
) -> None:
    with pytest.raises(ApiError, match=said):
        real_control_plane.rest.create(
            "/apis/scheduling.muster.sh/v1alpha1/queues", queue("wrong", resources=resources)
        )


def test_a_queue_is_read_as_it_was_written(real_control_plane: ControlPlane, real_namespace: str) -> None:
    resources = {"nvidia.com/gpu": {"guarantee": 0, "deserved": "48", "limit": "unlimited"}, "cpu": {"limit": "2k"}}
    path = "/apis/scheduling.muster.sh/v1alpha1/queues"
    obj = real_control_plane.rest.create(path, queue(real_namespace, resources=resources))
    read = BY_NAME["muster"].decode_queue(json.dumps(obj).encode(), obj["apiVersion"])
    assert read.problems == ()
    assert (read.weight, read.parent, read.state, read.reclaimable) == (WEIGHT_UNIT, "root", "Open", True)
    assert (read.guarantee, read.deserved) == ((("nvidia.com/gpu", 0),), (("nvidia.com/gpu", 48),))
    assert read.limit == (("cpu", 2_000_000), ("nvidia.com/gpu", -1))
    real_control_plane.rest.delete(f"{path}/{real_namespace}")


def queue(name: str, **spec: Any) -> Json:
    return {"apiVersion": "scheduling.muster.sh/v1alpha1", "kind": "Queue", "metadata": {"name": name}, "spec": spec}


def test_nobody_can_define_the_root_of_the_queues(real_control_plane: ControlPlane) -> None:
    with pytest.raises(ApiError, match="the root of the queues is implicit"):
        real_control_plane.rest.create("/apis/scheduling.muster.sh/v1alpha1/queues", queue("root", parent="other"))


def test_the_hostname_is_the_last_level_of_a_topology(real_control_plane: ControlPlane, real_namespace: str) -> None:
    path = "/apis/scheduling.muster.sh/v1alpha1/topologies"
    host, rack = {"name": "host", "label": "kubernetes.io/hostname"}, {"name": "rack", "label": "example.com/rack"}

    def topology(*levels: Json) -> Json:
        body = {"metadata": {"name": real_namespace}, "spec": {"levels": list(levels)}}
        return {"apiVersion": "scheduling.muster.sh/v1alpha1", "kind": "Topology"} | body

    with pytest.raises(ApiError, match="may only be the last level"):
        real_control_plane.rest.create(path, topology(host, rack))
    assert real_control_plane.rest.create(path, topology(rack, host))["spec"]["levels"] == [rack, host]
    real_control_plane.rest.delete(f"{path}/{real_namespace}")


def test_a_bind_request_changes_only_its_leader(real_control_plane: ControlPlane, real_namespace: str) -> None:
    path = f"/apis/scheduling.muster.sh/v1alpha1/namespaces/{real_namespace}/bindrequests"
    gang = {
        "group": {"key": "muster/a/g", "namespace": "a", "name": "g", "uid": "u", "apiVersion": "", "kind": ""},
        "minimum": 1,
        "placements": "p u n1 b\n",
    }
    spec = {"session": "s-000042", "epoch": 7, "deadline": "2026-11-29T17:15:00.250Z", "gangs": [gang]}
    kind = {"apiVersion": "scheduling.muster.sh/v1alpha1", "kind": "BindRequest"}
    obj = real_control_plane.rest.create(path, kind | {"metadata": {"name": "s-000042-e7-1"}, "spec": spec})
    assert obj["spec"] == spec
    for change in ({"session": "s-000043"}, {"gangs": [gang, gang]}, {"deadline": "2027-11-29T17:15:00.250Z"}):
        with pytest.raises(ApiError, match="a request never changes"):
            real_control_plane.rest.patch(f"{path}/s-000042-e7-1", {"spec": change})
    assert real_control_plane.rest.patch(f"{path}/s-000042-e7-1", {"spec": {"epoch": 8}})["spec"]["epoch"] == 8
    with pytest.raises(ApiError, match="adopted by later leaders only"):
        real_control_plane.rest.patch(f"{path}/s-000042-e7-1", {"spec": {"epoch": 7}})
    done = {
        "phase": "Bound",
        "gangs": [{"index": 0, "uid": "u", "phase": "Bound", "bound": 1, "failures": [], "moreFailures": 2}],
    }
    assert real_control_plane.rest.patch(f"{path}/s-000042-e7-1/status", {"status": done})["status"] == done


def test_the_account_of_the_scheduler_may_do_its_work_and_no_more(real_control_plane: ControlPlane) -> None:
    real_control_plane.kubectl("apply", "-f", str(CONFIG / "rbac" / "muster.yaml"))
    allowed = [
        ("watch", "pods", "", "x"),
        ("create", "pods/binding", "", "x"),
        ("patch", "pods/status", "", "x"),
        ("create", "pods/eviction", "", "x"),
        ("patch", "podgroups.scheduling.volcano.sh", "", "x"),
        ("patch", "podgroups.scheduling.muster.sh/status", "", "x"),
        ("patch", "podgroups.scheduling.k8s.io/status", "", "x"),
        ("patch", "queues.scheduling.run.ai/status", "", ""),
        ("watch", "poddisruptionbudgets.policy", "", "x"),
        ("create", "bindrequests.scheduling.muster.sh", "", "muster-system"),
        ("update", "leases.coordination.k8s.io/muster", "", "muster-system"),
        ("list", "customresourcedefinitions.apiextensions.k8s.io", "", ""),
    ]
    denied = [
        ("patch", "pods", "", "x"),
        ("get", "secrets", "", "muster-system"),
        ("create", "bindrequests.scheduling.muster.sh", "", "x"),
        ("update", "leases.coordination.k8s.io/other", "", "muster-system"),
        ("patch", "queues.scheduling.run.ai", "", ""),
        ("patch", "poddisruptionbudgets.policy/status", "", "x"),
        ("delete", "nodes", "", ""),
    ]
    for wanted, answer in ((allowed, True), (denied, False)):
        for verb, resource, _, namespace in wanted:
            assert may(real_control_plane, verb, resource, namespace) is answer, (verb, resource, namespace)


def may(cluster: ControlPlane, verb: str, what: str, namespace: str) -> bool:
    resource, _, tail = what.partition("/")
    plural, _, group = resource.partition(".")
    attributes = {"verb": verb, "resource": plural, "group": group, "namespace": namespace}
    attributes["name" if plural == "leases" else "subresource"] = tail
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": "system:serviceaccount:muster-system:muster", "resourceAttributes": attributes},
    }
    answer = cluster.rest.create("/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
    return bool(answer["status"]["allowed"])


def test_every_dialects_kinds_are_granted() -> None:
    rules = [
        rule
        for document in yaml.safe_load_all((CONFIG / "rbac" / "muster.yaml").read_text())
        if document["kind"] == "ClusterRole"
        for rule in document["rules"]
    ]
    for dialect in BY_NAME.values():
        for resource in dialect.resources:
            status = f"{resource.plural}/status" if resource.status_subresource else resource.plural
            needed = [(resource.plural, "watch")] + ([] if resource.read_only else [(status, "patch")])
            for plural, verb in needed:
                granted = any(
                    resource.group in rule["apiGroups"] and plural in rule["resources"] and verb in rule["verbs"]
                    for rule in rules
                )
                assert granted, (resource.group, plural, verb)
