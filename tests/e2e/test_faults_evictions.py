"""Kill -9 between evictions and binds, then a new leader: nobody is evicted twice, and the gang is whole."""

from __future__ import annotations

import json
import time

import pytest

from scheduler.cluster.bindrequests import bundle
from scheduler.model.decisions import Assignment, Place, Victim
from tests.controlplane.rest import resource_path
from tests.e2e.stage import Replica, Stage, binds_done, until

pytestmark = [pytest.mark.real, pytest.mark.alone]
POINTS = ("before-first-eviction", "after-first-eviction", "victims-gone")


def request(stage: Stage) -> None:
    """What a session would have decided and an earlier leader written: a gang, and who has to go for it."""
    victims = []
    for number in range(4):
        pod = stage.pod(f"low-{number}", "", nodeName=stage.node_names[number % 2], terminationGracePeriodSeconds=600)
        stage.create_pod(pod)
        uid = stage.rest.get(stage.pod_path(f"low-{number}"))["metadata"]["uid"]
        victims.append(Victim(uid, stage.namespace, f"low-{number}", stage.node_names[number % 2], "", grace=600))
    stage.gang("high")
    group = stage.group("high")["metadata"]
    spots = []
    for number in range(4):
        uid = stage.rest.get(stage.pod_path(f"high-{number}"))["metadata"]["uid"]
        spots.append(Assignment(uid, stage.namespace, f"high-{number}", stage.node_names[number % 2]))
    key, kind = f"muster/{stage.namespace}/high", "PodGroup"
    api = "scheduling.muster.sh/v1alpha1"
    place = Place(key, group["uid"], stage.namespace, "high", api, kind, 4, tuple(spots), victims=tuple(victims))
    stage.rest.create("/api/v1/namespaces", {"metadata": {"name": stage.scheduler_name}})
    made = bundle("s-000001-e0-1", "s-000001", 0, time.time() + 300, stage.scheduler_name, (place,))
    path = resource_path(api, "bindrequests", namespace=stage.scheduler_name)
    stage.rest.create(path, json.loads(made.header.body))


def going(stage: Stage, name: str) -> bool:
    """Whether a victim is being deleted and says for whom."""
    found = stage.rest.get(stage.pod_path(name))
    marks = [row for row in found["status"].get("conditions", []) if row["type"] == "DisruptionTarget"]
    named = f"PodGroup {stage.namespace}/high"
    return "deletionTimestamp" in found["metadata"] and any(named in row.get("message", "") for row in marks)


def end(stage: Stage, name: str) -> None:
    """What the kubelet does when the containers have ended."""
    stage.rest.delete(stage.pod_path(name), grace=0)


def deleted(replica: Replica, what: str) -> set[str]:
    """Victims whose deletion a scheduler sent ("write"), or was told to be done ("done")."""
    lines = [line for line in replica.journal(what) if line.get("method") == "DELETE" and "/pods/low-" in line["path"]]
    return {line["path"].rsplit("/", 1)[1] for line in lines}


@pytest.mark.parametrize("point", POINTS)
def test_after_a_kill_a_new_leader_evicts_only_who_was_not_evicted_and_binds_the_gang(stage: Stage, point: str) -> None:
    names = [f"low-{number}" for number in range(4)]
    request(stage)
    first = stage.scheduler(accident={"point": point, "kind": "kill-io"}).wait_leads()
    if point == "victims-gone":
        until(lambda: all(going(stage, name) for name in names), "all go")
        for name in names:
            end(stage, name)
    first.accident()
    assert first.wait_end() == -9
    assert stage.bound("high") == 0
    stage.free_lease()
    second = stage.scheduler().wait_leads()
    if point != "victims-gone":
        until(lambda: all(going(stage, name) for name in names), lambda: "\n".join(["all go", *stage.picture()]))
        stage.stays("high", 0, 0.5)
        waiting = stage.rest.get(stage.pod_path("high-0"))["status"]
        assert waiting["nominatedNodeName"] == stage.node_names[0]
        condition = next(row for row in waiting["conditions"] if row["type"] == "PodScheduled")
        assert condition["reason"] == "WaitingForVictims"
        for name in names:
            end(stage, name)
    stage.wait_bound("high", 4)
    stage.check()
    assert not deleted(first, "done") & deleted(second, "write"), "who was evicted is only awaited"
    assert deleted(first, "write") | deleted(second, "write") == set(names)
    for number in range(4):
        assert binds_done(stage.replicas, f"high-{number}") <= 1
    until(lambda: [r["status"].get("phase") for r in stage.requests()] == ["Bound"], lambda: str(stage.requests()))
