"""What a pod says about other pods is read as Kubernetes means it; what cannot be used is a problem of its field."""

from __future__ import annotations

import json
from typing import Any

import pytest

from scheduler.dialects.core import decode_namespace, decode_pod
from scheduler.model.affinity import (
    HostPort,
    LabelSelector,
    PodSelector,
    PodTerm,
    Requirement,
    SpreadTerm,
    WeightedPodTerm,
)
from scheduler.model.pods import Pod, Shape

Json = dict[str, Any]
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def decode(spec: Json, *, namespace: str = "a", labels: Json | None = None) -> tuple[Pod, Shape]:
    body = {"containers": [{"name": "main"}]} | spec
    metadata = {"name": "p", "namespace": namespace, "uid": "u", "labels": labels}
    return decode_pod(json.dumps({"metadata": metadata, "spec": body}).encode(), frozenset())


def near(*terms: Json, kind: str = "podAffinity") -> Json:
    return {"affinity": {kind: {REQUIRED: list(terms)}}}


def term(**fields: Any) -> Json:
    return {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "db"}}} | fields


def expression(**fields: Any) -> Json:
    return {"matchExpressions": [fields]}


DB = LabelSelector((Requirement("app", "In", ("db",)),))


def test_without_namespaces_a_term_means_those_of_the_pod() -> None:
    _, shape = decode(near(term()))
    assert shape.affinity == (PodTerm(PodSelector(("a",), None, DB), "zone"),)
    assert decode(near(term()), namespace="b")[1].affinity[0].selector.namespaces == ("b",)
    assert decode(near(term()), namespace="b")[1].key != shape.key


def test_a_namespace_selector_and_a_list_add_up_and_an_empty_selector_means_all() -> None:
    _, shape = decode(near(term(namespaces=["z", "y"], namespaceSelector={"matchLabels": {"team": "ml"}})))
    team = LabelSelector((Requirement("team", "In", ("ml",)),))
    assert shape.affinity[0].selector == PodSelector(("y", "z"), team, DB)
    assert decode(near(term(namespaceSelector={})))[1].affinity[0].selector == PodSelector((), LabelSelector(), DB)


def test_no_label_selector_means_no_pod_and_an_empty_one_all() -> None:
    assert decode(near({"topologyKey": "zone"}))[1].affinity[0].selector.labels is None
    assert decode(near(term(labelSelector={})))[1].affinity[0].selector.labels == LabelSelector()


@pytest.mark.parametrize("merged", [False, True], ids=["by us", "by the API server"])
def test_label_keys_are_merged_from_the_pods_labels_once(merged: bool) -> None:
    more = [{"key": "hash", "operator": "In", "values": ["x"]}, {"key": "job", "operator": "NotIn", "values": ["7"]}]
    selector = {"matchLabels": {"app": "db"}, "matchExpressions": more if merged else []}
    spec = near(term(labelSelector=selector, matchLabelKeys=["hash", "absent"], mismatchLabelKeys=["job"]))
    _, shape = decode(spec, labels={"hash": "x", "job": "7", "app": "other"})
    assert shape.affinity[0].selector.labels == LabelSelector(
        (Requirement("app", "In", ("db",)), Requirement("hash", "In", ("x",)), Requirement("job", "NotIn", ("7",)))
    )


def test_preferences_keep_their_weights_and_those_against_are_negative() -> None:
    wish = {"weight": 7, "podAffinityTerm": term()}
    _, shape = decode({"affinity": {"podAffinity": {PREFERRED: [wish]}, "podAntiAffinity": {PREFERRED: [wish, wish]}}})
    one = PodTerm(PodSelector(("a",), None, DB), "zone")
    assert shape.preferred_pods == (WeightedPodTerm(-7, one), WeightedPodTerm(-7, one), WeightedPodTerm(7, one))


def test_a_spread_constraint_means_living_pods_of_its_namespace() -> None:
    constraint = {
        "topologyKey": "zone", "maxSkew": 2, "minDomains": 3, "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "db"}}, "matchLabelKeys": ["hash"],
        "nodeAffinityPolicy": "Ignore", "nodeTaintsPolicy": "Honor",
    }  # fmt: skip
    _, shape = decode({"topologySpreadConstraints": [constraint]}, labels={"hash": "x"})
    selector = LabelSelector((*DB.requirements, Requirement("hash", "In", ("x",))))
    assert shape.spread == (
        SpreadTerm(PodSelector(("a",), None, selector, living=True), "zone", 2, 3, True, False, True),
    )
    soft = {"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway"}
    made = decode({"topologySpreadConstraints": [soft]})[1].spread[0]
    assert (made.hard, made.honor_affinity, made.honor_taints, made.min_domains) == (False, True, False, 1)


def test_host_ports_are_those_of_containers_and_sidecars() -> None:
    spec = {
        "containers": [{"name": "c", "ports": [{"containerPort": 1}, {"containerPort": 80, "hostPort": 8080}]}],
        "initContainers": [
            {"name": "i", "ports": [{"containerPort": 1, "hostPort": 1}]},
            {
                "name": "s",
                "restartPolicy": "Always",
                "ports": [{"hostPort": 53, "protocol": "UDP", "hostIP": "10.0.0.1"}],
            },
        ],
    }
    _, shape = decode(spec)
    assert set(shape.host_ports) == {HostPort(8080), HostPort(53, "UDP", "10.0.0.1")}
    assert set(decode(spec | {"hostNetwork": True})[1].host_ports) == {*shape.host_ports, HostPort(1)}


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        (near({"labelSelector": {}}), f"spec.affinity.podAffinity.{REQUIRED}[0].topologyKey"),
        (
            near(term(), term(labelSelector=expression(key="a", operator="Near")), kind="podAntiAffinity"),
            f"spec.affinity.podAntiAffinity.{REQUIRED}[1].labelSelector.matchExpressions[0].operator",
        ),
        (
            near(term(namespaceSelector=expression(key="a", operator="In", values=[]))),
            f"spec.affinity.podAffinity.{REQUIRED}[0].namespaceSelector.matchExpressions[0].values",
        ),
        (
            {"topologySpreadConstraints": [{"topologyKey": "z", "maxSkew": 0, "whenUnsatisfiable": "DoNotSchedule"}]},
            "spec.topologySpreadConstraints[0].maxSkew",
        ),
        (
            {"topologySpreadConstraints": [{"topologyKey": "z", "maxSkew": 1, "whenUnsatisfiable": "Never"}]},
            "spec.topologySpreadConstraints[0].whenUnsatisfiable",
        ),
        (
            {"affinity": {"podAffinity": {PREFERRED: [{"weight": 101, "podAffinityTerm": term()}]}}},
            f"spec.affinity.podAffinity.{PREFERRED}[0].weight",
        ),
        (
            {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [
                {"matchExpressions": [{"key": "a", "operator": "Is", "values": ["b"]}]}]}}}},
            f"spec.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms[0].matchExpressions[0].operator",
        ),
    ],
    ids=["no topology key", "operator", "no values", "skew", "when", "weight", "node operator"],
)  # fmt: skip
def test_what_cannot_be_used_is_a_problem_of_its_field(spec: Json, field: str) -> None:
    pod, _ = decode(spec)
    assert [problem.field for problem in pod.problems] == [field]


def test_labels_are_shared_by_pods_that_are_written_alike() -> None:
    first, second = decode({}, labels={"b": "2", "a": "1"})[0], decode({}, labels={"b": "2", "a": "1"})[0]
    assert first.labels == (("a", "1"), ("b", "2"))
    assert first.labels is second.labels


def test_a_namespace_has_labels() -> None:
    raw = json.dumps({"metadata": {"name": "n", "labels": {"team": "ml"}}}).encode()
    assert decode_namespace(raw) == ("n", "", (("team", "ml"),))
