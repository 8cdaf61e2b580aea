"""The cluster changes between a decision and its bind, or goes away in the middle of it."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.e2e.stage import DEADLINE, SLACK, Stage, binds_done, until

pytestmark = [pytest.mark.real, pytest.mark.alone]
POINTS = ("before-first-bind", pytest.param("request-unsent", marks=pytest.mark.slow))


def _prepared(stage: Stage, point: str, calls: list[dict[str, Any]]) -> None:
    """A scheduler that meets a changed cluster at this point, and a gang of four."""
    replica = stage.scheduler(calls={"point": point, "requests": calls}).wait_leads()
    stage.gang("g")
    until(lambda: len(replica.journal("called")) == len(calls), replica.tail)


@pytest.mark.parametrize("point", POINTS)
def test_a_member_that_was_deleted_meanwhile_leaves_no_half_gang(stage: Stage, point: str) -> None:
    _prepared(stage, point, [{"method": "DELETE", "path": stage.pod_path("g-2")}])
    time.sleep(2)
    until(lambda: stage.bound("g-") == 0, lambda: str(stage.picture()))
    present = {pod["metadata"]["name"] for pod in stage.pods("g-")}
    for number in range(4):
        if f"g-{number}" not in present:
            stage.create_pod(stage.pod(f"g-{number}", "g"))
    stage.wait_bound("g-", 4)
    assert stage.recorder.half("g-", 4) < DEADLINE + SLACK
    stage.check()


@pytest.mark.parametrize("point", POINTS)
def test_a_member_that_was_made_anew_under_its_name_is_not_bound_by_the_old_decision(stage: Stage, point: str) -> None:
    path = stage.pod_path("g-2")
    again = {"method": "POST", "path": path.rsplit("/", 1)[0], "body": stage.pod("g-2", "g")}
    _prepared(stage, point, [{"method": "DELETE", "path": path}, again])
    time.sleep(2)
    until(lambda: stage.bound("g-") in (0, 4), lambda: str(stage.picture()))
    present = {pod["metadata"]["name"] for pod in stage.pods("g-")}
    for number in range(4):
        if f"g-{number}" not in present:
            stage.create_pod(stage.pod(f"g-{number}", "g"))
    stage.wait_bound("g-", 4)
    assert stage.recorder.half("g-", 4) < DEADLINE + SLACK
    stage.check()


@pytest.mark.parametrize("change", ["deleted", "cordoned", "shrunk"])
def test_a_node_that_changed_before_the_request_was_written_takes_nobody(stage: Stage, change: str) -> None:
    node = stage.node_names[0]
    path = f"/api/v1/nodes/{node}"
    calls = {
        "deleted": {"method": "DELETE", "path": path},
        "cordoned": {"method": "PATCH", "path": path, "body": {"spec": {"unschedulable": True}}},
        "shrunk": {
            "method": "PATCH", "path": f"{path}/status", "body": {"status": {"allocatable": {"example.com/gpu": "0"}}},
        },
    }  # fmt: skip
    _prepared(stage, "request-unsent", [calls[change]])
    time.sleep(2)
    until(lambda: stage.bound("g-") == 0, lambda: str(stage.picture()))
    stage.register(f"{stage.id}-new", 4)
    present = {pod["metadata"]["name"] for pod in stage.pods("g-")}
    for number in range(4):
        if f"g-{number}" not in present:
            stage.create_pod(stage.pod(f"g-{number}", "g"))
    stage.wait_bound("g-", 4)
    assert all(pod["spec"]["nodeName"] != node for pod in stage.pods("g-"))
    assert stage.recorder.half("g-", 4) < DEADLINE + SLACK


@pytest.mark.parametrize("change", ["deleted", "cordoned", "shrunk"])
def test_a_node_that_changed_after_the_request_was_written_is_bound_to_no_more(stage: Stage, change: str) -> None:
    node = stage.node_names[0]
    path = f"/api/v1/nodes/{node}"
    calls = {
        "deleted": {"method": "DELETE", "path": path},
        "cordoned": {"method": "PATCH", "path": path, "body": {"spec": {"unschedulable": True}}},
        "shrunk": {
            "method": "PATCH", "path": f"{path}/status", "body": {"status": {"allocatable": {"example.com/gpu": "0"}}},
        },
    }  # fmt: skip
    # No bind of the first try arrives, and each is tried again only when the change has been seen.
    replica = stage.scheduler(
        calls={"point": "bind-unsent", "requests": [calls[change]]},
        binds={f"g-{number}": {"drop": "before", "wait": 1.0} for number in range(4)},
    ).wait_leads()
    stage.gang("g")
    until(lambda: replica.journal("called"), replica.tail)
    until(lambda: len(replica.journal("fault")) == 4, replica.tail)
    time.sleep(2)
    until(lambda: stage.bound("g-") == 0, lambda: str(stage.picture()))
    stage.register(f"{stage.id}-new", 4)
    present = {pod["metadata"]["name"] for pod in stage.pods("g-")}
    for number in range(4):
        if f"g-{number}" not in present:
            stage.create_pod(stage.pod(f"g-{number}", "g"))
    stage.wait_bound("g-", 4)
    assert all(node not in nodes for nodes in stage.recorder.nodes_of().values())
    assert stage.recorder.half("g-", 4) < DEADLINE + SLACK


def test_an_api_server_that_is_away_for_ten_seconds_costs_no_gang_and_binds_nobody_twice(stage: Stage) -> None:
    replica = stage.scheduler(
        binds={"g-3": {"drop": "before", "wait": 1.5}},
        config={"leaderElection": {"leaderElect": False}},
    ).wait_ready()
    pid = replica.process.pid
    stage.gang("g")
    until(lambda: replica.journal("fault"), replica.tail)
    stage.cluster.restart_api(10.0)
    stage.wait_bound("g-", 4, within=90)
    assert replica.process.poll() is None
    assert replica.process.pid == pid
    assert stage.recorder.ever_bound("g-") == 4
    assert all(binds_done(stage.replicas, f"g-{number}") <= 1 for number in range(4))
    stage.gang("h")
    stage.delete("g-")
    stage.wait_bound("h-", 4, within=60)
    stage.check()


def test_with_an_election_an_outage_ends_the_leader_and_a_restart_goes_on(stage: Stage) -> None:
    replica = stage.scheduler(binds={"g-3": {"drop": "before", "wait": 1.5}}).wait_leads()
    stage.gang("g")
    until(lambda: replica.journal("fault"), replica.tail)
    stage.cluster.restart_api(10.0)
    assert replica.wait_end() == 1
    stage.scheduler().wait_leads()
    stage.wait_bound("g-", 4, within=90)
    assert stage.recorder.ever_bound("g-") == 4
    stage.check()
