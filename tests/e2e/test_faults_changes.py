"""The cluster changes between a decision and its bind, or goes away in the middle of it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e.stage import DEADLINE, RENEW, SHORT_LEASE, SLACK, Stage, binds_done, until

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
    stage.wait_ended()
    stage.wait_bound("g-", 0)
    stage.refill("g", 4)
    assert stage.recorder.half("g-", 4) < DEADLINE + SLACK
    stage.check()


@pytest.mark.parametrize("point", POINTS)
def test_a_member_that_was_made_anew_under_its_name_is_not_bound_by_the_old_decision(stage: Stage, point: str) -> None:
    path = stage.pod_path("g-2")
    again = {"method": "POST", "path": path.rsplit("/", 1)[0], "body": stage.pod("g-2", "g")}
    _prepared(stage, point, [{"method": "DELETE", "path": path}, again])
    stage.wait_ended()
    stage.refill("g", 4)
    assert stage.recorder.half("g-", 4) < DEADLINE + SLACK
    stage.check()


@pytest.mark.parametrize("point", POINTS)
def test_a_member_that_was_made_anew_with_a_gate_holds_the_gang_until_the_gate_opens(stage: Stage, point: str) -> None:
    path = stage.pod_path("g-2")
    gated = stage.pod("g-2", "g", schedulingGates=[{"name": "example.com/hold"}])
    _prepared(
        stage,
        point,
        [{"method": "DELETE", "path": path}, {"method": "POST", "path": path.rsplit("/", 1)[0], "body": gated}],
    )
    stage.wait_ended()
    stage.wait_bound("g-", 0)
    stage.refill("g", 4, bound=False)
    until(
        lambda: "gate" in str(stage.group("g").get("status", {}).get("conditions")).lower(),
        lambda: "\n".join([f"the group names the gate: {stage.group('g')}", *stage.picture()]),
    )
    stage.stays("g-", 0)
    uids = {pod["metadata"]["uid"] for pod in stage.pods("g-")}
    stage.rest.patch(path, {"spec": {"schedulingGates": None}})
    stage.wait_bound("g-", 4)
    assert {pod["metadata"]["uid"] for pod in stage.pods("g-")} == uids
    assert stage.recorder.half("g-", 4) < DEADLINE + SLACK
    stage.check()


def test_a_member_that_somebody_else_bound_meanwhile_is_theirs_and_the_gang_gets_whole(stage: Stage) -> None:
    other = f"{stage.id}-other"
    stage.cluster.register_node(other, {"cpu": "4", "memory": "8Gi", "example.com/gpu": "1"})
    body = {"metadata": {"name": "g-1"}, "target": {"kind": "Node", "name": other}}
    try:
        _prepared(
            stage, "before-first-bind", [{"method": "POST", "path": stage.pod_path("g-1", "binding"), "body": body}]
        )
        stage.wait_ended()
        stage.refill("g", 4)
        where = {pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in stage.pods("g-")}
        assert where.pop("g-1") == other
        assert set(where.values()) <= set(stage.node_names)
        assert stage.recorder.made("g-1") == 1
        stage.check()
    finally:
        stage.rest.delete(f"/api/v1/nodes/{other}")


def test_after_a_compaction_and_a_restart_what_happened_meanwhile_is_listed_anew(stage: Stage) -> None:
    replica = stage.scheduler(config={"leaderElection": {"leaderElect": False}}).wait_ready()
    stage.gang("hog")
    stage.wait_bound("hog-", 4)
    until(lambda: stage.group("hog").get("status", {}).get("phase") == "Running", lambda: str(stage.group("hog")))
    replica.freeze()
    # All of this is history that the server has forgotten when the scheduler asks for it.
    first, second = stage.node_names
    stage.delete("hog-")
    stage.rest.delete(f"/api/v1/nodes/{first}")
    stage.register(f"{stage.id}-new", 2)
    stage.gang("g")
    stage.rest.delete(stage.group_path("hog"))
    stage.cluster.compact()
    stage.cluster.restart_api()
    stage.cluster.compact()
    replica.wake()
    stage.wait_bound("g-", 4, within=90)
    assert {pod["spec"]["nodeName"] for pod in stage.pods("g-")} == {second, f"{stage.id}-new"}
    assert any("expired" in entry["problem"] for entry in replica.said("cannot follow a resource; trying again"))
    replica.lives()
    assert all(binds_done(stage.replicas, f"g-{number}") <= 1 for number in range(4))
    stage.check()


@pytest.mark.parametrize("change", ["deleted", pytest.param("cordoned", marks=pytest.mark.slow), "shrunk"])
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
    shows = {"deleted": "", "cordoned": '"unschedulable": true', "shrunk": '"example.com/gpu": "0"'}[change]
    _prepared(stage, "request-unsent", [calls[change], {"method": "SETTLE", "path": path, "shows": shows}])
    stage.wait_ended()
    stage.wait_bound("g-", 0)
    stage.register(f"{stage.id}-new", 4)
    stage.refill("g", 4)
    assert all(pod["spec"]["nodeName"] != node for pod in stage.pods("g-"))
    assert stage.recorder.half("g-", 4) < DEADLINE + SLACK


@pytest.mark.parametrize("change", ["deleted", "cordoned", pytest.param("shrunk", marks=pytest.mark.slow)])
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
        binds={f"g-{number}": {"drop": "before", "wait": 1.5} for number in range(4)},
    ).wait_leads()
    stage.gang("g")
    until(lambda: replica.journal("called"), replica.tail)
    until(lambda: len(replica.journal("fault")) == 4, replica.tail)
    stage.wait_ended()
    stage.wait_bound("g-", 0)
    stage.register(f"{stage.id}-new", 4)
    stage.refill("g", 4)
    assert all(node not in nodes for nodes in stage.recorder.nodes_of().values())
    assert stage.recorder.half("g-", 4) < DEADLINE + SLACK


@pytest.mark.parametrize("seconds", [8, pytest.param(60, marks=pytest.mark.slow)])
def test_an_api_server_that_is_away_costs_no_gang_and_binds_nobody_twice(stage: Stage, seconds: float) -> None:
    replica = stage.scheduler(
        binds={"g-3": {"drop": "before", "wait": 1.5}},
        config={"leaderElection": {"leaderElect": False}},
    ).wait_ready()
    pid = replica.process.pid
    stage.gang("g")
    until(lambda: replica.journal("fault"), replica.tail)
    stage.cluster.restart_api(seconds)
    stage.wait_bound("g-", 4, within=90)
    replica.lives()
    assert replica.process.pid == pid
    assert stage.recorder.ever_bound("g-") == 4
    assert all(binds_done(stage.replicas, f"g-{number}") <= 1 for number in range(4))
    stage.gang("h")
    stage.delete("g-")
    stage.wait_bound("h-", 4, within=60)
    stage.check()


def test_with_an_election_an_outage_ends_the_leader_and_a_restart_goes_on(stage: Stage) -> None:
    config = {"leaderElection": SHORT_LEASE}
    replica = stage.scheduler(config=config, binds={"g-3": {"drop": "before", "wait": 1.5}}).wait_leads()
    stage.gang("g")
    until(lambda: replica.journal("fault"), replica.tail)
    stage.cluster.restart_api(RENEW + 2)
    assert replica.wait_end() == 1
    stage.scheduler().wait_leads()
    stage.wait_bound("g-", 4, within=90)
    assert stage.recorder.ever_bound("g-") == 4
    stage.check()
