"""`muster convert`: what other APIs' queues become, and what is said of the rest."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from scheduler.cli.convert import convert
from scheduler.dialects.muster import MusterDialect

KUEUE = """
apiVersion: kueue.x-k8s.io/v1beta1
kind: Cohort
metadata: {name: all}
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: ClusterQueue
metadata: {name: research}
spec:
  cohort: all
  queueingStrategy: StrictFIFO
  stopPolicy: Hold
  namespaceSelector: {matchLabels: {team: research}}
  preemption: {withinClusterQueue: LowerPriority, reclaimWithinCohort: Any}
  fairSharing: {weight: 3}
  resourceGroups:
  - coveredResources: [cpu, nvidia.com/gpu]
    flavors:
    - name: a100
      resources:
      - {name: cpu, nominalQuota: 10, borrowingLimit: 500m}
      - {name: nvidia.com/gpu, nominalQuota: 8, borrowingLimit: 4, lendingLimit: 6}
    - name: h100
      resources:
      - {name: cpu, nominalQuota: 20, borrowingLimit: 0}
      - {name: nvidia.com/gpu, nominalQuota: 4, borrowingLimit: 0}
  - coveredResources: [memory]
    flavors:
    - name: any
      resources: [{name: memory, nominalQuota: "1500"}]
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: LocalQueue
metadata: {name: mine, namespace: nlp}
spec: {clusterQueue: research}
"""


def converted(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str) -> tuple[list[Any], str, int]:
    file = tmp_path / "queues.yaml"
    file.write_text(text)
    code = convert([file])
    said = capsys.readouterr()
    return [one for one in yaml.safe_load_all(said.out) if one], said.err, code


def test_a_cohort_tree_of_kueue(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    made, told, code = converted(tmp_path, capsys, KUEUE)
    assert code == 0
    assert made[0]["metadata"]["name"] == "all"
    assert made[0]["spec"] == {}
    assert made[1] == {
        "apiVersion": "scheduling.muster.sh/v1alpha1",
        "kind": "Queue",
        "metadata": {"name": "research"},
        "spec": {
            "parent": "all",
            "weight": 3,
            "resources": {
                "cpu": {"deserved": "30", "limit": "30500m"},
                "memory": {"deserved": "1500"},
                "nvidia.com/gpu": {"guarantee": "2", "deserved": "12", "limit": "16"},
            },
            "order": "StrictFIFO",
            "namespaceSelector": {"matchExpressions": [{"key": "team", "operator": "In", "values": ["research"]}]},
            "state": "Hold",
        },
    }
    assert "flavours of spec.resourceGroups[0] are added up" in told
    assert "scheduling.muster.sh/queue=research" in told


def test_a_cohort_that_needs_no_object_becomes_a_queue(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    text = """
apiVersion: kueue.x-k8s.io/v1beta1
kind: ClusterQueue
metadata: {name: a}
spec: {cohort: team}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: b}
spec: {cohortName: team}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: Cohort
metadata: {name: team}
spec: {parentName: top}
"""
    made, told, code = converted(tmp_path, capsys, text)
    assert code == 0
    assert {one["metadata"]["name"]: one["spec"].get("parent") for one in made} == {
        "a": "team",
        "b": "team",
        "team": "top",
        "top": None,
    }
    assert "Cohort top: has no object in these files; a queue is made for it" in told
    assert "Cohort team" not in told


VOLCANO = """
apiVersion: scheduling.volcano.sh/v1beta1
kind: Queue
metadata: {name: q, annotations: {volcano.sh/hierarchy: root/q}}
spec: {weight: 1, dequeueStrategy: fifo, affinity: {nodeGroupAffinity: {}}, extendClusters: [{name: c}]}
"""
HALF_A_GPU = """
apiVersion: scheduling.run.ai/v2
kind: Queue
metadata: {name: q}
spec: {resources: {gpu: {quota: 0.5, limit: 2.0}}}
"""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (VOLCANO, "Queue q: spec.dequeueStrategy has no counterpart"),
        (VOLCANO, "Queue q: spec.affinity has no counterpart"),
        (VOLCANO, "Queue q: spec.extendClusters has no counterpart"),
        (VOLCANO, "Queue q: annotation volcano.sh/hierarchy is not read; spec.parent says where a queue stands"),
        (HALF_A_GPU, "Queue q: spec.resources.gpu.quota 0.5 is rounded down to whole GPUs"),
    ],
)
def test_what_is_lost_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, said: str):
    made, told, code = converted(tmp_path, capsys, text)
    assert (len(made), code) == (1, 0)
    assert said in told
    assert "gpu.limit" not in told


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{apiVersion: kueue.x-k8s.io/v1beta1, kind: ClusterQueue, spec: {}}", "ClusterQueue: metadata.name must be"),
        ("{apiVersion: v1, kind: List, items: [null]}", "a document is not an object with a kind"),
        ("{apiVersion: v1, kind: List, items: 3}", "items of a List must be a list"),
        (
            "{apiVersion: kueue.x-k8s.io/v1beta1, kind: Cohort, metadata: {name: c}, "
            "spec: {resourceGroups: [{flavors: 3}]}}",
            "Cohort c: spec: Expected `array | null`, got `int` - at `$.resourceGroups[0].flavors`",
        ),
        (
            "{apiVersion: kueue.x-k8s.io/v1beta1, kind: ClusterQueue, metadata: {name: c}, "
            "spec: {preemption: {reclaimWithinCohort: Some}}}",
            "ClusterQueue c: spec: Invalid enum value 'Some' - at `$.preemption.reclaimWithinCohort`",
        ),
        (
            "{apiVersion: kueue.x-k8s.io/v1beta1, kind: ClusterQueue, metadata: {name: c}, "
            "spec: {fairSharing: {weight: much}}}",
            "ClusterQueue c: spec.fairSharing.weight: 'much' is not a quantity",
        ),
        *(
            (f"{{apiVersion: kueue.x-k8s.io/v1beta1, kind: {kind}, metadata: {{name: c}}, spec: {spec}}}", said)
            for kind, spec, said in (
                ("ClusterQueue", "{fairSharing: {weight: .nan}}", "ClusterQueue cannot be written as JSON"),
                (
                    "ClusterQueue",
                    "{fairSharing: {weight: -2}}",
                    "ClusterQueue c: spec.fairSharing.weight -2 is negative",
                ),
                (
                    "ClusterQueue",
                    "{stopPolicy: Now}",
                    "ClusterQueue c: spec: Invalid enum value 'Now' - at `$.stopPolicy`",
                ),
                ("ClusterQueue", "{stopPolicy: [x]}", "ClusterQueue c: spec: Expected `str | null`, got `array`"),
                ("LocalQueue", "{clusterQueue: 3}", "LocalQueue c: spec: Expected `str`, got `int`"),
                ("LocalQueue", "text", "LocalQueue c: spec: Expected `object`, got `str`"),
                (
                    "ClusterQueue",
                    "{resourceGroups: [{flavors: [{resources: [{name: cpu, nominalQuota: 3, lendingLimit: 4}]}]}]}",
                    "ClusterQueue c: lendingLimit of cpu is more than its nominalQuota",
                ),
                (
                    "ClusterQueue",
                    "{resourceGroups: [{flavors: [{resources: [{name: cpu, nominalQuota: -3}]}]}]}",
                    "ClusterQueue c: nominalQuota of cpu: -3 is negative",
                ),
            )
        ),
    ],
)
def test_what_is_no_queue_is_refused_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, said: str):
    made, told, code = converted(tmp_path, capsys, text)
    assert (made, code) == ([], 2)
    assert said in told


def test_what_kueue_does_by_default_is_written_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    plain = "{apiVersion: kueue.x-k8s.io/v1beta1, kind: ClusterQueue, metadata: {name: q}, spec: {}}"
    made, told, _ = converted(tmp_path, capsys, plain)
    assert made[0]["spec"] == {"preemption": {"withinQueue": "Never", "reclaim": "Never"}}
    assert "no namespace may use it there" in told


def test_a_cohort_of_the_name_of_a_queue_becomes_a_queue_of_its_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    kueue = "{apiVersion: kueue.x-k8s.io/v1beta1, kind: %s, metadata: {name: %s}, spec: {%s}}\n---\n"
    queue = kueue % ("ClusterQueue", "a", "cohort: a") + kueue % ("ClusterQueue", "b", "cohortName: a")
    made, told, code = converted(tmp_path, capsys, queue)
    assert code == 0
    assert "Cohort a: a ClusterQueue has this name; its queue is a-cohort" in told
    assert [(one["metadata"]["name"], one["spec"].get("parent")) for one in made] == [
        ("a", "a-cohort"), ("b", "a-cohort"), ("a-cohort", None)
    ]  # fmt: skip
    made, _, code = converted(tmp_path, capsys, queue + kueue % ("Cohort", "a", "parentName: top"))
    assert code == 0
    assert [(one["metadata"]["name"], one["spec"].get("parent")) for one in made] == [
        ("a", "a-cohort"), ("b", "a-cohort"), ("a-cohort", "top"), ("top", None)
    ]  # fmt: skip


def test_two_objects_of_one_queue_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    text = (
        "{apiVersion: kueue.x-k8s.io/v1beta1, kind: ClusterQueue, metadata: {name: a}, spec: {}}\n---\n"
        "{apiVersion: scheduling.volcano.sh/v1beta1, kind: Queue, metadata: {name: a}, spec: {weight: 1}}"
    )
    made, told, code = converted(tmp_path, capsys, text)
    assert (made, code) == ([], 2)
    assert "Queue a: another object makes a queue of this name" in told


def test_a_weight_of_kueue_is_a_quantity(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    queue = (
        "{apiVersion: kueue.x-k8s.io/v1beta1, kind: ClusterQueue, metadata: {name: q}, "
        "spec: {fairSharing: {weight: %s}}}"
    )
    made, told, _ = converted(tmp_path, capsys, queue % "3000m")
    assert made[0]["spec"]["weight"] == 3
    assert "look at spec.weight" not in told
    made, told, code = converted(tmp_path, capsys, queue % "500m")
    assert (code, "Queue q: weights are whole numbers" in told) == (0, True)


@pytest.mark.parametrize("sample", ["volcano-queues.yaml"])
def test_the_sample_of_another_api_becomes_the_same_queues(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], sample: str
):
    made, _, code = converted(tmp_path, capsys, (Path("config/samples") / sample).read_text())
    assert code == 0
    assert [one["metadata"]["name"] for one in made] == ["research", "inference", "default"]
    inference = MusterDialect().decode_queue(yaml_bytes(made[1]), "scheduling.muster.sh/v1alpha1")
    assert not inference.problems
    assert inference.priority == 10
    assert dict(inference.guarantee) == {"example.com/gpu": 1}
    assert dict(inference.deserved) == {"example.com/gpu": 4}
    assert dict(inference.limit) == {"example.com/gpu": 8}


def test_queues_of_kai_keep_their_units(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    kai = """
apiVersion: scheduling.run.ai/v2
kind: Queue
metadata: {name: nlp}
spec:
  parentQueue: top
  resources:
    cpu: {quota: 4000, limit: -1, overQuotaWeight: 2}
    gpu: {quota: 8, limit: 12, overQuotaWeight: 2}
    memory: {quota: 1000, limit: -1, overQuotaWeight: 2}
"""
    made, _, code = converted(tmp_path, capsys, kai)
    assert code == 0
    assert made[0]["spec"]["parent"] == "top"
    resources = made[0]["spec"]["resources"]
    assert resources["cpu"]["deserved"] == "4"
    assert resources["nvidia.com/gpu"] == {"deserved": "8", "limit": "12"}
    assert resources["memory"]["deserved"] == "1000000000"


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("{apiVersion: scheduling.volcano.sh/v1beta1, kind: Queue, metadata: {name: bad}, "
         "spec: {capability: {cpu: lots}}}", "Queue bad"),
        ("{apiVersion: kueue.x-k8s.io/v1beta1, kind: ClusterQueue, metadata: {name: bad}, spec: {resourceGroups: "
         "[{flavors: [{resources: [{name: cpu, nominalQuota: many}]}]}]}}", "nominalQuota of cpu"),
        ("{apiVersion: v1, kind: ConfigMap, metadata: {name: x}}", "there is no queue"),
        ("just text", "a document is not an object with a kind"),
        ("a: [", "line"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, named: str):
    made, told, code = converted(tmp_path, capsys, text)
    assert (made, code) == ([], 2)
    assert named in told


def yaml_bytes(obj: Any) -> bytes:
    return json.dumps({**obj, "metadata": {"uid": "u", **obj["metadata"]}}).encode()
