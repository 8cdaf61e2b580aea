"""What groups say about their layout, and about a domain that is lost."""

from __future__ import annotations

import json
from typing import Any

import pytest

from scheduler.dialects.registry import DIALECTS
from scheduler.model.groups import PodGroup

BY_NAME = {dialect.name: dialect for dialect in DIALECTS}
MOVE = "scheduling.muster.sh/on-domain-lost"


def group(dialect: str, spec: dict[str, Any], annotations: dict[str, str] | None = None) -> PodGroup:
    metadata = {"name": "g", "namespace": "a", "uid": "u", "annotations": annotations or {}}
    raw = json.dumps({"metadata": metadata, "spec": spec}).encode()
    return BY_NAME[dialect].decode_group(raw, "x/v1")


@pytest.mark.parametrize("dialect", ["muster", "volcano", "coscheduling", "kai"])
def test_groups_of_any_kind_say_by_an_annotation_that_they_may_be_moved(dialect: str) -> None:
    assert group(dialect, {"minMember": 1}, {MOVE: "MoveWhole"}).moves_whole
    assert not group(dialect, {"minMember": 1}, {MOVE: "Wait"}).moves_whole
    assert not group(dialect, {"minMember": 1}).moves_whole
    wrong = group(dialect, {"minMember": 1}, {MOVE: "Move"})
    assert [problem.field for problem in wrong.problems] == [f"metadata.annotations[{MOVE}]"]


def test_a_muster_group_has_fields_for_both() -> None:
    found = group(
        "muster", {"onDomainLost": "MoveWhole", "topology": {"layout": {"mode": "Balanced", "level": "rack"}}}
    )
    assert found.moves_whole
    assert found.topology is not None
    assert found.topology.balanced == "rack"
    packed = group("muster", {"topology": {"required": "rack", "layout": {"level": "rack"}}})
    assert packed.topology is not None
    assert (packed.topology.balanced, packed.topology.packed) == ("", "rack")


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"onDomainLost": "Move"}, "spec.onDomainLost"),
        ({"topology": {"layout": {"mode": "Even", "level": "rack"}}}, "spec.topology.layout.mode"),
        ({"topology": {"layout": {"mode": "Balanced"}}}, "spec.topology.layout.level"),
    ],
)
def test_what_cannot_be_meant_names_its_field(spec: dict[str, Any], field: str) -> None:
    assert [problem.field for problem in group("muster", spec).problems] == [field]
