"""Kill -9 between evictions and binds, then a new leader: nobody is evicted twice, and the gang is whole."""

from __future__ import annotations

import json
import time

import pytest

from scheduler.cli import why
from scheduler.cluster.bindrequests import bundle
from scheduler.model.decisions import Assignment, Place, Victim
from tests.controlplane.rest import resource_path
from tests.e2e.stage import Replica, Stage, binds_done, until

pytestmark = [pytest.mark.real, pytest.mark.alone]
POINTS = ("before-first-eviction", "after-first-eviction", "victims-gone")


def request(stage: Stage, seconds: float = 300.0) -> None:
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
    made = bundle("s-000001-e0-1", "s-000001", 0, time.time() + seconds, stage.scheduler_name, (place,))
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


def test_members_of_a_gang_whose_victims_do_not_end_have_no_node_any_more_and_say_why(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    request(stage, 30.0)
    stage.scheduler().wait_leads()
    until(lambda: stage.rest.get(stage.pod_path("high-3"))["status"].get("nominatedNodeName"), "it has a node")
    until(lambda: all(going(stage, f"low-{number}") for number in range(4)), "all go")
    kubeconfig, namespace = str(stage.cluster.kubeconfig), stage.namespace
    config = stage.directory / "scheduler-0.yaml"
    why.explain("high", kubeconfig=kubeconfig, context=None, namespace=namespace, output="table", config=config)
    said = capsys.readouterr().out
    assert "waits for 4 pods to end" in said
    assert "are to be bound" not in said
    told = f"Preempted: Evicted for PodGroup {stage.namespace}/high, which has a higher priority"
    until(lambda: told in stage.events("Pod", "low-0"), lambda: str(stage.events("Pod", "low-0")))
    stage.wait_ended(within=90)
    (ended,) = stage.requests()
    assert ended["status"]["phase"] == "Failed"
    failures = ended["status"]["gangs"][0]["failures"]
    assert {(one["cause"], one["about"]) for one in failures} == {("VictimsRemain", f"{stage.namespace}/low-0")}
    for number in range(4):
        path = stage.pod_path(f"high-{number}")
        until(lambda path=path: not stage.rest.get(path)["status"].get("nominatedNodeName"), "it has no node")
        until(lambda path=path: _reason(stage, path) not in ("", "WaitingForVictims"), lambda: str(stage.picture()))
    failed = [text for text in stage.events("PodGroup", "high") if text.startswith("FailedScheduling")]
    assert failed
    assert stage.bound("high") == 0


def _reason(stage: Stage, path: str) -> str:
    rows = stage.rest.get(path)["status"]["conditions"]
    return next((row["reason"] for row in rows if row["type"] == "PodScheduled"), "")
