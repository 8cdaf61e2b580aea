"""Which reference wins, and where role, rank and queue are read from."""

from __future__ import annotations

import json
from typing import Any

import pytest

from scheduler.dialects.core import decode_pod
from scheduler.model.pods import Pod

NATIVE = "native"
# In the order in which they win.
REFERENCES = [
    ("labels", "scheduling.muster.sh/pod-group", "muster"),
    ("annotations", "scheduling.muster.sh/pod-group", "muster"),
    ("spec", "schedulingGroup", "native"),
    ("annotations", "scheduling.k8s.io/group-name", "volcano"),
    ("annotations", "scheduling.volcano.sh/group-name", "volcano"),
    ("labels", "scheduling.x-k8s.io/pod-group", "coscheduling"),
    ("annotations", "pod-group-name", "kai"),
]


def decode(labels: dict[str, str] | None = None, annotations: dict[str, str] | None = None, **spec: Any) -> Pod:
    metadata = {"name": "p", "namespace": "a", "uid": "u", "labels": labels or {}, "annotations": annotations or {}}
    return decode_pod(json.dumps({"metadata": metadata, "spec": {"containers": []} | spec}).encode(), frozenset())[0]


@pytest.mark.parametrize("first", range(len(REFERENCES)))
def test_the_first_reference_in_the_order_wins(first: int) -> None:
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    spec: dict[str, Any] = {}
    for number, (place, name, _) in enumerate(REFERENCES):
        if number < first:
            continue
        if place == "spec":
            spec[name] = {"podGroupName": f"g{number}"}
        else:
            (labels if place == "labels" else annotations)[name] = f"g{number}"
    assert decode(labels, annotations, **spec).group == f"{REFERENCES[first][2]}/a/g{first}"


def test_a_pod_without_a_reference_names_no_group() -> None:
    assert decode().group == ""
    # A label of Volcano's annotation, and the annotation of the label, are not references.
    assert decode({"scheduling.k8s.io/group-name": "g"}, {"scheduling.x-k8s.io/pod-group": "g"}).group == ""


@pytest.mark.parametrize(
    ("labels", "annotations", "rank"),
    [
        ({}, {}, -1),
        ({"batch.kubernetes.io/job-completion-index": "3"}, {}, 3),
        ({}, {"batch.kubernetes.io/job-completion-index": "4"}, 4),
        ({"apps.kubernetes.io/pod-index": "5"}, {}, 5),
        ({"leaderworkerset.sigs.k8s.io/worker-index": "6"}, {}, 6),
        ({"training.kubeflow.org/replica-index": "7"}, {}, 7),
        ({}, {"volcano.sh/task-index": "8"}, 8),
        ({"jobset.sigs.k8s.io/job-global-index": "2", "batch.kubernetes.io/job-completion-index": "1"}, {}, 2_000_001),
        ({"batch.kubernetes.io/job-completion-index": "-1"}, {}, -1),
        ({"batch.kubernetes.io/job-completion-index": "x", "apps.kubernetes.io/pod-index": "9"}, {}, 9),
        ({"batch.kubernetes.io/job-completion-index": "99999999999999"}, {}, -1),
    ],
)
def test_ranks_are_found_where_controllers_write_them(
    labels: dict[str, str], annotations: dict[str, str], rank: int
) -> None:
    assert decode(labels, annotations).index == rank


def test_roles_and_queues_of_our_own_come_before_those_of_volcano() -> None:
    volcano = {"volcano.sh/task-spec": "worker", "scheduling.volcano.sh/queue-name": "q1"}
    pod = decode({}, volcano)
    assert (pod.role, pod.queue) == ("worker", "q1")
    pod = decode({"scheduling.muster.sh/subgroup": "decode", "scheduling.muster.sh/queue": "q2"}, volcano)
    assert (pod.role, pod.queue) == ("decode", "q2")
    assert decode({"volcano.sh/queue-name": "q3"}).queue == "q3"


@pytest.mark.parametrize(("text", "minimum"), [("1", 1), ("2147483647", 2147483647)])
def test_an_annotated_minimum_is_read(text: str, minimum: int) -> None:
    pod = decode({}, {"scheduling.muster.sh/min-member": text})
    assert (pod.min_member, pod.problems) == (minimum, ())


@pytest.mark.parametrize("text", ["", "0", "-1", "2147483648", "four", "1.5", "٣", " 3"])
def test_an_annotated_minimum_that_cannot_be_used_is_named(text: str) -> None:
    pod = decode({}, {"scheduling.muster.sh/min-member": text})
    assert pod.min_member == 0
    assert [problem.field for problem in pod.problems] == ["metadata.annotations[scheduling.muster.sh/min-member]"]


def test_the_controlling_owner_is_the_owner() -> None:
    owners = [
        {"kind": "Other", "name": "x", "uid": "1"},
        {"kind": "Job", "name": "j", "uid": "2", "controller": True},
    ]
    metadata = {"name": "p", "namespace": "a", "uid": "u", "ownerReferences": owners}
    pod, _ = decode_pod(json.dumps({"metadata": metadata, "spec": {}}).encode(), frozenset())
    assert (pod.owner_kind, pod.owner_name, pod.owner_uid) == ("Job", "j", "2")


OWN, VOLCANO, KAI = "scheduling.muster.sh/preemptible", "volcano.sh/preemptable", "kai.scheduler/preemptibility"


@pytest.mark.parametrize(
    ("labels", "annotations", "said"),
    [
        ({}, {}, None),
        ({OWN: "true"}, {}, True),
        ({OWN: "true"}, {OWN: "false"}, False),
        ({VOLCANO: "true"}, {}, True),
        ({VOLCANO: "true"}, {VOLCANO: "false"}, False),
        ({VOLCANO: "maybe"}, {}, False),
        ({KAI: "preemptible"}, {}, True),
        ({KAI: "non-preemptible"}, {}, False),
        ({OWN: "true", KAI: "non-preemptible"}, {VOLCANO: "false"}, True),
    ],
)
def test_a_pod_says_whether_it_may_be_a_victim(
    labels: dict[str, str], annotations: dict[str, str], said: bool | None
) -> None:
    pod = decode(labels, annotations)
    assert (pod.preemptible, pod.problems) == (said, ())


@pytest.mark.parametrize(("key", "text"), [(OWN, "no"), (KAI, "semi-preemptible")])
def test_a_word_about_victims_that_is_not_known_is_named(key: str, text: str) -> None:
    pod = decode(annotations={key: text})
    assert pod.preemptible is None
    assert [problem.field for problem in pod.problems] == [f"metadata.annotations[{key}]"]


def test_when_a_pod_was_bound_is_told_by_the_first_that_knows() -> None:
    def bound(status: dict[str, Any], **spec: Any) -> float:
        metadata = {"name": "p", "namespace": "a", "uid": "u", "creationTimestamp": "1970-01-01T00:00:01Z"}
        value = {"metadata": metadata, "spec": {"containers": []} | spec, "status": status}
        return decode_pod(json.dumps(value).encode(), frozenset())[0].since

    scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": "1970-01-01T00:00:02Z"}
    status: dict[str, Any] = {"startTime": "1970-01-01T00:00:03Z", "conditions": [scheduled]}
    assert bound(status, nodeName="n") == 2.0
    assert bound(status) == 0.0
    scheduled["status"] = "False"
    assert bound(status, nodeName="n") == 3.0
    assert bound({}, nodeName="n") == 1.0


@pytest.mark.parametrize(
    ("annotations", "field"),
    [
        ({"kai.scheduler/segment-size": "2"}, "kai.scheduler/segment-topology-required-placement"),
        ({"kai.scheduler/segment-topology-required-placement": "rack"}, "kai.scheduler/segment-size"),
        ({"kueue.x-k8s.io/podset-slice-size": "2"}, "kueue.x-k8s.io/podset-slice-required-topology"),
        ({"kueue.x-k8s.io/podset-slice-required-topology": "rack"}, "kueue.x-k8s.io/podset-slice-size"),
    ],
)
def test_of_segments_what_is_missing_beside_a_size_or_a_level_is_named(annotations: dict[str, str], field: str) -> None:
    assert [problem.field for problem in decode(annotations=annotations).problems] == [f"metadata.annotations[{field}]"]
