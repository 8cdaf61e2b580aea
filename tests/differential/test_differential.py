"""Muster and kube-scheduler's own filter plugins agree: on random cases, and on those that once showed a difference."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.controlplane.oracle import Oracle
from tests.differential.compare import compare
from tests.differential.generate import FAMILIES, generate, generate_gang
from tests.differential.muster import Muster
from tests.differential.run import CASES, differences, gang_differences, smallest
from tests.differential.shrink import shrink


@pytest.fixture(scope="module")
def oracle() -> Iterator[Oracle]:
    with Oracle() as running:
        yield running


@pytest.mark.parametrize("first", [0, *(pytest.param(first, marks=pytest.mark.slow) for first in (250, 500, 750))])
def test_the_feasible_nodes_are_the_same(first: int, oracle: Oracle) -> None:
    valid = 0
    for seed, case, text in differences(range(first, first + 250), FAMILIES, oracle):
        valid += text is not None
        assert not text, f"seed {seed}: {smallest(case, oracle)}"
    assert valid > 200


@pytest.mark.parametrize("first", [0, 75])
def test_gangs_start_where_their_pods_could_one_by_one(first: int, oracle: Oracle) -> None:
    valid = 0
    for seed, case, text in gang_differences(range(first, first + 75), FAMILIES, oracle):
        valid += text is not None
        assert not text, f"seed {seed}: {smallest(case, oracle)}"
    assert valid > 50


@pytest.mark.parametrize("name", sorted(path.stem for path in CASES.glob("*.json")))
def test_a_kept_case(name: str, oracle: Oracle) -> None:
    """`differs` in the file: the difference is deliberate and listed in docs/deviations.md."""
    kept = json.loads((CASES / f"{name}.json").read_text())
    assert compare(kept["case"], oracle, Muster()) == kept.get("differs", "")


def test_the_generator_gives_both_answers_and_every_field() -> None:
    """A comparison of cases in which nothing is set, or everything is refused, would say nothing."""
    texts = [json.dumps(make(seed, FAMILIES)) for make in (generate, generate_gang) for seed in range(400)]
    for field in (
        "nodeSelector", "matchFields", "NotIn", "Gt", "NoExecute", "unschedulable", "PreferNoSchedule",
        "initContainers", "overhead", "hugepages-2Mi", "allocatedResources", "hostPort", "hostIP", "SCTP",
        "podAffinity", "podAntiAffinity", "namespaceSelector", "matchLabelKeys", "mismatchLabelKeys", "minDomains",
        "nodeTaintsPolicy", "deletionTimestamp", "Succeeded", "gone", "persistentVolumeClaim", "ephemeral",
        "selected-node", "allowedTopologies", "preventPodSchedulingIfMissing", "rbd", "declaredFeatures", "hostUsers",
        "RestartAllContainers", "bindMountOptions", "azureDisk", "cinder", "migrated-plugins",
    ):  # fmt: skip
        assert sum(field in text for text in texts) > 5, field


def test_a_case_is_shrunk_to_what_matters() -> None:
    case = generate(7, ("selectors",))
    small = shrink(case, lambda one: any(node["metadata"].get("labels", {}).get("rack") for node in one["nodes"]))
    assert [list(node["metadata"]["labels"]) for node in small["nodes"]] == [["rack"]]
    assert small["pods"] == [] and len(small["incoming"]) == 1
