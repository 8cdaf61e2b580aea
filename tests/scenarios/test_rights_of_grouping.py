"""Without the right to make PodGroups, the pods of an owner are a gang all the same, and it is said why."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path

import pytest

from tests.scenarios.form import load
from tests.scenarios.test_scenarios import _tell

STORY = """
- id: RIGHTS
  title: a RayCluster whose group may not be made starts whole
  dialects: [muster]
  nodes: [{name: rights1, gpu: 1}]
  steps:
  - apply: |
      apiVersion: ray.io/v1
      kind: RayCluster
      metadata: {name: rc}
      spec: {workerGroupSpecs: [{groupName: gpu, replicas: 2}]}
  - gang: {name: rc, single: true, owner: rayclusters.ray.io/rc, count: 3, gpu: 1}
  - expect:
      pending: [gang:rc]
      condition: {gang:rc: "^False Unschedulable .*for 3 members"}
      count: {podgroups.scheduling.muster.sh: 0}
      events: {"RayCluster:rc": {"GroupNotMade no PodGroup can be written for it": 1}}
  - nodes: [{name: rights2, gpu: 2}]
  - expect: {bound: {gang:rc: 3}, count: {podgroups.scheduling.muster.sh: 0}}
"""
ROLE = "/apis/rbac.authorization.k8s.io/v1/clusterroles/muster-groups"


@pytest.mark.real
def test_a_gang_whose_group_may_not_be_made_starts_whole_and_it_is_said(real_plane, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    plane, scheduler = real_plane
    file = tmp_path / "rights.yaml"
    file.write_text(STORY)
    [scenario] = load(file)
    rules = plane.rest.get(ROLE)["rules"]
    fewer = [rule for rule in rules if not ("podgroups" in rule["resources"] and "create" in rule["verbs"])]
    assert len(fewer) == len(rules) - 1
    plane.rest.patch(ROLE, {"rules": fewer})
    try:
        _tell(plane, scheduler, scenario, "muster")
        with urllib.request.urlopen(f"http://{scheduler.address()}/debug/state", timeout=10) as answer:
            state = json.loads(answer.read())
    finally:
        plane.rest.patch(ROLE, {"rules": rules})
    assert '"group_failed"' in scheduler.tail()
    assert isinstance(state["grouping"], dict)
