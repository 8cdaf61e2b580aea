"""Creating and changing pods: what is filled in, what is refused, and with which words."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.conftest import Server, pod


def test_a_new_pod_is_pending_and_has_every_default_that_a_scheduler_reads(server: Server) -> None:
    created = server.rest.create(
        server.path("pods"), {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "x"}]}}
    )
    spec = created["spec"]
    assert created["status"]["phase"] == "Pending"
    assert created["status"]["qosClass"] == "BestEffort"
    assert created["metadata"]["generation"] == 1
    assert spec["schedulerName"] == "default-scheduler"
    assert spec["restartPolicy"] == "Always"
    assert spec["terminationGracePeriodSeconds"] == 30
    assert spec["priority"] == 0
    assert spec["preemptionPolicy"] == "PreemptLowerPriority"
    assert spec["serviceAccountName"] == "default"
    assert {(row["key"], row["tolerationSeconds"]) for row in spec["tolerations"]} == {
        ("node.kubernetes.io/not-ready", 300),
        ("node.kubernetes.io/unreachable", 300),
    }


def test_limits_become_requests_and_quantities_are_canonical(server: Server) -> None:
    limits = {"cpu": "0.5", "memory": "1024Mi", "example.com/gpu": 1}
    created = server.pod("p", containers=[{"name": "c", "image": "x", "resources": {"limits": limits}}])
    wanted = {"cpu": "500m", "memory": "1Gi", "example.com/gpu": "1"}
    assert created["spec"]["containers"][0]["resources"] == {"limits": wanted, "requests": wanted}
    assert created["status"]["qosClass"] == "Guaranteed"


def test_generate_name_appends_five_characters(server: Server) -> None:
    body = pod("x")
    body["metadata"] = {"generateName": "job-"}
    created = server.rest.create(server.path("pods"), body)
    assert created["metadata"]["name"].startswith("job-")
    assert len(created["metadata"]["name"]) == len("job-") + 5
    assert created["metadata"]["generateName"] == "job-"


def _container(**resources: Any) -> dict[str, Any]:
    return {"containers": [{"name": "c", "image": "x", "resources": resources}]}


_HARD = "requiredDuringSchedulingIgnoredDuringExecution"


@pytest.mark.parametrize(
    ("spec", "field", "message"),
    [
        ({"containers": []}, "spec.containers", "Required value"),
        ({"containers": [{"name": "c"}]}, "spec.containers[0].image", "Required value"),
        (
            {"containers": [{"name": "c", "image": "x"}, {"name": "c", "image": "x"}]},
            "spec.containers[1].name",
            'Duplicate value: "c"',
        ),
        (
            _container(requests={"cpu": "2"}, limits={"cpu": "1"}),
            "spec.containers[0].resources.requests",
            'Invalid value: "2": must be less than or equal to cpu limit of 1',
        ),
        (
            _container(requests={"cpu": "-1"}),
            "spec.containers[0].resources.requests[cpu]",
            'Invalid value: "-1": must be greater than or equal to 0',
        ),
        (
            _container(requests={"example.com/gpu": "1"}),
            "spec.containers[0].resources.limits",
            "Required value: Limit must be set for non overcommitable resources",
        ),
        (
            _container(requests={"example.com/gpu": "1"}, limits={"example.com/gpu": "2"}),
            "spec.containers[0].resources.requests",
            'Invalid value: "1": must be equal to example.com/gpu limit of 2',
        ),
        (
            {"schedulingGates": [{"name": "a/b"}, {"name": "a/b"}]},
            "spec.schedulingGates[1]",
            'Duplicate value: "a/b"',
        ),
        (
            {"schedulingGates": [{"name": "a/b"}], "nodeName": "n"},
            "spec.nodeName",
            "Forbidden: cannot be set until all schedulingGates have been cleared",
        ),
        (
            {"tolerations": [{"key": "a", "effect": "Bad"}]},
            "spec.tolerations[0].effect",
            'Unsupported value: "Bad": supported values: "NoSchedule", "PreferNoSchedule", "NoExecute"',
        ),
        (
            {"tolerations": [{"key": "a", "operator": "Exists", "value": "x"}]},
            "spec.tolerations[0].operator",
            "Invalid value: \"x\": value must be empty when `operator` is 'Exists'",
        ),
        (
            {"affinity": {"nodeAffinity": {_HARD: {"nodeSelectorTerms": []}}}},
            f"spec.affinity.nodeAffinity.{_HARD}.nodeSelectorTerms",
            "Required value: must have at least one node selector term",
        ),
        (
            {
                "affinity": {
                    "podAffinity": {
                        "preferredDuringSchedulingIgnoredDuringExecution": [
                            {"weight": 200, "podAffinityTerm": {"topologyKey": "zone"}}
                        ]
                    }
                }
            },
            "spec.affinity.podAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].weight",
            "Invalid value: 200: must be in the range 1-100",
        ),
        (
            {
                "topologySpreadConstraints": [
                    {"maxSkew": 0, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
                ]
            },
            "spec.topologySpreadConstraints[0].maxSkew",
            "Invalid value: 0: must be greater than zero",
        ),
        (
            {"restartPolicy": "Sometimes"},
            "spec.restartPolicy",
            'Unsupported value: "Sometimes": supported values: "Always", "OnFailure", "Never"',
        ),
    ],
)
def test_a_pod_that_breaks_a_rule_is_refused_with_the_field(
    server: Server, spec: dict[str, Any], field: str, message: str
) -> None:
    error = server.refused("create", server.path("pods"), pod("bad", **spec))
    assert (error.status, error.reason) == (422, "Invalid")
    assert error.body["details"]["causes"] == [
        {"reason": error.body["details"]["causes"][0]["reason"], "message": message, "field": field}
    ]
    assert error.message == f'Pod "bad" is invalid: {field}: {message}'


def test_a_name_that_is_no_subdomain_is_refused(server: Server) -> None:
    error = server.refused("create", server.path("pods"), pod("Bad_Name"))
    assert error.status == 422
    assert error.body["details"]["causes"][0]["field"] == "metadata.name"
    assert "a lowercase RFC 1123 subdomain must consist of" in error.message


def test_a_quantity_that_does_not_parse_is_a_bad_request(server: Server) -> None:
    error = server.refused("create", server.path("pods"), pod("bad", **_container(requests={"cpu": "abc"})))
    assert error.status == 400
    assert error.message == (
        'Pod in version "v1" cannot be handled as a Pod: quantities must match the regular expression '
        "'^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
    )


def test_a_taken_name_is_already_exists(server: Server) -> None:
    server.pod("p")
    error = server.refused("create", server.path("pods"), pod("p"))
    assert (error.status, error.reason) == (409, "AlreadyExists")
    assert error.message == 'pods "p" already exists'
    assert error.body["details"] == {"name": "p", "kind": "pods"}


def test_a_missing_pod_is_not_found_for_every_verb(server: Server) -> None:
    path = server.path("pods", "nothere")
    for error in (
        server.refused("get", path),
        server.refused("delete", path),
        server.refused("patch", path, {}),
        server.refused("update", path, pod("nothere")),
    ):
        assert (error.status, error.reason, error.message) == (404, "NotFound", 'pods "nothere" not found')


def test_a_pod_in_a_missing_namespace_is_not_found(server: Server) -> None:
    error = server.refused("create", "/api/v1/namespaces/no-such-place/pods", pod("p"))
    assert (error.status, error.message) == (404, 'namespaces "no-such-place" not found')


def test_a_namespace_that_contradicts_the_path_is_a_bad_request(server: Server) -> None:
    body = pod("p")
    body["metadata"]["namespace"] = "other"
    error = server.refused("create", server.path("pods"), body)
    assert error.status == 400
    assert error.message == "the namespace of the provided object does not match the namespace sent on the request"


def test_creation_without_a_namespace_is_not_allowed(server: Server) -> None:
    assert server.refused("create", "/api/v1/pods", pod("p")).status == 405


def test_a_dry_run_answers_but_stores_nothing(server: Server) -> None:
    answer = server.rest.create(server.path("pods"), pod("p"), dryRun="All")
    assert answer["metadata"]["uid"]
    assert server.refused("get", server.path("pods", "p")).status == 404


def test_the_priority_class_decides_priority_and_preemption_policy(server: Server) -> None:
    name = f"class-{server.namespace}"
    classes = "/apis/scheduling.k8s.io/v1/priorityclasses"
    server.rest.create(classes, {"metadata": {"name": name}, "value": 77, "preemptionPolicy": "Never"})
    created = server.pod("p", priorityClassName=name)
    assert (created["spec"]["priority"], created["spec"]["preemptionPolicy"]) == (77, "Never")
    error = server.refused("create", server.path("pods"), pod("q", priorityClassName=name, priority=5))
    assert (error.status, error.reason) == (403, "Forbidden")
    error = server.refused("patch", f"{classes}/{name}", {"value": 78})
    assert (error.status, error.body["details"]["causes"][0]["field"]) == (422, "value")
    server.rest.delete(f"{classes}/{name}")
    error = server.refused("create", server.path("pods"), pod("r", priorityClassName=name))
    assert error.message == f'pods "r" is forbidden: no PriorityClass with name {name} was found'


def test_the_runtime_class_decides_the_overhead(server: Server) -> None:
    name = f"runtime-{server.namespace}"
    classes = "/apis/node.k8s.io/v1/runtimeclasses"
    server.rest.create(
        classes,
        {
            "metadata": {"name": name},
            "handler": "fake",
            "overhead": {"podFixed": {"cpu": "250m"}},
            "scheduling": {"nodeSelector": {"vm": "yes"}},
        },
    )
    created = server.pod("p", runtimeClassName=name)
    assert created["spec"]["overhead"] == {"cpu": "250m"}
    assert created["spec"]["nodeSelector"] == {"vm": "yes"}
    error = server.refused("create", server.path("pods"), pod("q", overhead={"cpu": "1"}))
    assert (error.status, error.reason) == (403, "Forbidden")
    server.rest.delete(f"{classes}/{name}")


def test_a_gated_pod_says_so_and_may_only_be_narrowed_until_its_gate_goes(server: Server) -> None:
    created = server.pod("p", schedulingGates=[{"name": "wait/for-it"}])
    condition = created["status"]["conditions"][0]
    assert (condition["type"], condition["status"], condition["reason"]) == ("PodScheduled", "False", "SchedulingGated")
    path = server.path("pods", "p")
    narrowed = server.rest.patch(path, {"spec": {"nodeSelector": {"a": "b"}}})
    assert narrowed["metadata"]["generation"] == 2
    error = server.refused("patch", path, {"spec": {"nodeSelector": {"a": "c"}}})
    assert error.body["details"]["causes"][0]["field"] == "spec.nodeSelector"
    error = server.refused("patch", path, {"spec": {"schedulingGates": [{"name": "wait/for-it"}, {"name": "new"}]}})
    assert error.body["details"]["causes"][0]["field"] == "spec.schedulingGates[1].name"
    opened = server.rest.patch(path, {"spec": {"schedulingGates": []}})
    assert "schedulingGates" not in opened["spec"]
    assert opened["status"]["conditions"][0]["reason"] == "SchedulingGated", "the scheduler, not the server, clears it"
    error = server.refused("patch", path, {"spec": {"nodeSelector": {"a": "b", "c": "d"}}})
    assert error.body["details"]["causes"][0]["field"] == "spec"


@pytest.mark.parametrize("change", [{"schedulerName": "other"}, {"nodeName": "n"}, {"priority": 5}])
def test_most_of_a_pods_spec_is_immutable(server: Server, change: dict[str, Any]) -> None:
    server.pod("p")
    error = server.refused("patch", server.path("pods", "p"), {"spec": change}, kind="strategic")
    assert error.status == 422
    assert "pod updates may not change fields other than" in error.message


def test_an_image_may_change_and_counts_as_a_generation(server: Server) -> None:
    server.pod("p")
    change = {"spec": {"containers": [{"name": "main", "image": "app:2"}]}}
    changed = server.rest.patch(server.path("pods", "p"), change, kind="strategic")
    assert changed["spec"]["containers"][0]["image"] == "app:2"
    assert changed["metadata"]["generation"] == 2


def test_a_pods_status_is_written_only_through_its_sub_resource(server: Server) -> None:
    server.pod("p")
    path = server.path("pods", "p")
    assert server.rest.patch(path, {"status": {"phase": "Failed"}})["status"]["phase"] == "Pending"
    changed = server.rest.patch(
        f"{path}/status",
        {"status": {"nominatedNodeName": "n"}, "spec": {"schedulerName": "zz"}, "metadata": {"labels": {"a": "b"}}},
    )
    assert changed["status"]["nominatedNodeName"] == "n"
    assert changed["spec"]["schedulerName"] == "none"
    assert changed["metadata"]["labels"] == {"a": "b"}
    assert changed["metadata"]["generation"] == 1


def test_a_misspelt_field_is_dropped_or_refused_as_the_client_wishes(server: Server) -> None:
    created = server.pod("loose", schedulrName="muster")
    assert "schedulrName" not in created["spec"]
    body = pod("strict", schedulrName="muster")
    error = server.refused("create", server.path("pods"), body, fieldValidation="Strict")
    assert error.status == 400
    assert error.message == (
        'Pod in version "v1" cannot be handled as a Pod: strict decoding error: unknown field "spec.schedulrName"'
    )
