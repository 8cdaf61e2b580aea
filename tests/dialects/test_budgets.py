"""A disruption budget as a scheduler sees it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from scheduler.dialects.budgets import decode_budget
from scheduler.dialects.meta import Undecodable
from scheduler.model.affinity import LabelSelector, Requirement
from scheduler.model.budgets import DisruptionBudget


def budget(spec: Any, status: Any = None, generation: int = 1) -> DisruptionBudget:
    metadata = {"name": "b", "namespace": "a", "uid": "u", "resourceVersion": "1", "generation": generation}
    return decode_budget(json.dumps({"metadata": metadata, "spec": spec, "status": status}).encode())


def status(allowed: int, **more: Any) -> dict[str, Any]:
    return {"disruptionsAllowed": allowed, "expectedPods": 4, "observedGeneration": 1} | more


@pytest.mark.parametrize(
    ("spec", "selector"),
    [
        ({}, None),
        ({"selector": {}}, LabelSelector()),
        ({"selector": {"matchLabels": {"app": "a"}}}, LabelSelector((Requirement("app", "In", ("a",)),))),
        (
            {"selector": {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["b", "a"]}]}},
            LabelSelector((Requirement("app", "NotIn", ("a", "b")),)),
        ),
    ],
)
def test_whom_a_budget_means(spec: Any, selector: LabelSelector | None) -> None:
    assert budget(spec, status(2)).selector == selector


@pytest.mark.parametrize(
    ("said", "generation", "allowed"),
    [
        (status(2), 1, 2),
        (status(2), 2, 0),
        (status(2, expectedPods=None), 1, 0),
        (status(-1), 1, 0),
        (None, 1, 0),
    ],
    ids=["known", "changed since", "not counted yet", "overdrawn", "new"],
)
def test_a_budget_allows_nothing_until_its_controller_has_looked_at_it(
    said: Any, generation: int, allowed: int
) -> None:
    assert budget({"selector": {}}, said, generation).allowed == allowed


def test_pods_that_were_evicted_already_are_known_by_name() -> None:
    said = status(1, disruptedPods={"p-1": "2026-11-01T08:00:00Z", "p-0": "2026-11-01T08:00:00Z"})
    assert budget({"selector": {}}, said).disrupted == ("p-0", "p-1")


@pytest.mark.parametrize(
    "spec",
    [
        {"selector": []},
        {"selector": {"matchExpressions": [{"key": "a", "operator": "Near", "values": ["x"]}]}},
        {"selector": {"matchExpressions": [{"key": "a", "operator": "In"}]}},
    ],
)
def test_a_selector_that_cannot_be_read_names_the_budget(spec: Any) -> None:
    with pytest.raises(Undecodable, match="PodDisruptionBudget a/b"):
        budget(spec)
