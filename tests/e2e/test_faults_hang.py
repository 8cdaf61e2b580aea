"""The API server hangs: it takes connections and requests and answers nothing, until it goes on as if nothing was."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.controlplane.cluster import ControlPlane
from tests.e2e.stage import DEADLINE, PATIENCE, RENEW, SHORT_LEASE, SLACK, Replica, Stage, binds_done, until

pytestmark = [pytest.mark.real, pytest.mark.alone]
NO_ELECTION = {"leaderElection": {"leaderElect": False}}
TIMES = (6, pytest.param(20, marks=pytest.mark.slow))
"""Seconds: shorter and longer than the time in which a bind is answered or given up."""
POINTS = ("request-unsent", "bind-unsent", "after-first-bind")


@pytest.fixture
def stage(real_control_plane: ControlPlane) -> Iterator[Stage]:
    """Two nodes with two GPUs each; the API server answers again when the test is over, whatever happened."""
    with Stage(real_control_plane) as made:
        try:
            yield made
        finally:
            real_control_plane.resume_api()


def _hang(stage: Stage, point: str) -> dict[str, Any]:
    """What makes a scheduler stop the API server when it comes to this point for the first time."""
    pid = stage.cluster.pids()["kube-apiserver"]
    return {"point": point, "requests": [{"method": "HANG", "pid": pid}]}


def _hung_at(replica: Replica) -> float:
    """Wait until the API server hangs; return since when."""
    until(lambda: replica.journal("called"), replica.tail)
    return float(replica.journal("called")[0]["at"])


def _nothing_was_lost(stage: Stage, gang: str) -> None:
    """All four are bound, and are the very pods that were created."""
    stage.wait_bound(f"{gang}-", 4)
    assert stage.recorder.made(f"{gang}-") == 4
    assert all(binds_done(stage.replicas, f"{gang}-{number}") <= 1 for number in range(4))
    stage.check()


@pytest.mark.parametrize("seconds", TIMES)
@pytest.mark.parametrize("point", POINTS)
def test_a_hang_while_a_gang_is_bound_costs_nothing(stage: Stage, point: str, seconds: float) -> None:
    config = {**NO_ELECTION, "binder": {"deadline": "90s", "history": "600s"}}
    replica = stage.scheduler(config=config, calls=_hang(stage, point)).wait_ready()
    stage.gang("g")
    _hung_at(replica)
    time.sleep(seconds)
    replica.lives()
    stage.cluster.resume_api()
    _nothing_was_lost(stage, "g")
    replica.lives()
    # It goes on: what it knew is right, and what happens now is seen.
    stage.delete("g-")
    stage.gang("h")
    _nothing_was_lost(stage, "h")


def test_a_short_hang_does_not_cost_the_lease(stage: Stage) -> None:
    config = {"leaderElection": PATIENCE, "binder": {"deadline": "90s", "history": "600s"}}
    replica = stage.scheduler(config=config, calls=_hang(stage, "bind-unsent")).wait_leads()
    stage.gang("g")
    _hung_at(replica)
    time.sleep(4)
    stage.cluster.resume_api()
    _nothing_was_lost(stage, "g")
    replica.lives()
    assert {request["spec"]["epoch"] for request in stage.requests()} == {1}


@pytest.mark.parametrize("point", ["bind-unsent", pytest.param("request-unsent", marks=pytest.mark.slow)])
def test_a_leader_whose_lease_ends_in_a_hang_writes_nothing_after_that_and_the_next_one_finishes(
    stage: Stage, point: str
) -> None:
    config = {"leaderElection": SHORT_LEASE, "binder": {"deadline": "60s", "history": "600s"}}
    first = stage.scheduler(config=config, calls=_hang(stage, point)).wait_leads()
    second = stage.scheduler(config=config).wait_ready()
    stage.gang("g")
    hung = _hung_at(first)
    assert first.wait_end() == 1
    unsent = {line["number"] for line in first.journal("unsent")}
    late = [
        line
        for line in first.journal("write")
        if line["at"] > hung + RENEW + 0.2 and line["number"] not in unsent
    ]  # fmt: skip
    assert late == []
    time.sleep(1)
    second.lives()
    assert not second.leads()
    stage.cluster.resume_api()
    second.wait_leads()
    # What the dead leader had sent may have landed since: the next one takes that over and binds the others.
    stage.refill("g", 4)
    assert stage.recorder.half("g-", 4) < DEADLINE + SLACK + RENEW
    stage.check()


@pytest.mark.parametrize("seconds", TIMES)
def test_a_hang_while_nothing_happens_is_survived(stage: Stage, seconds: float) -> None:
    replica = stage.scheduler(config=NO_ELECTION).wait_ready()
    stage.gang("g")
    stage.wait_bound("g-", 4)
    stage.cluster.pause_api()
    time.sleep(seconds)
    assert replica.get("/readyz")[0] == 200
    stage.cluster.resume_api()
    stage.delete("g-")
    stage.gang("h")
    _nothing_was_lost(stage, "h")
    replica.lives()


@pytest.mark.parametrize("drop", [pytest.param("before", marks=pytest.mark.slow), "unsure", "after"])
def test_a_first_write_without_an_answer_is_made_again(stage: Stage, drop: str) -> None:
    replica = stage.scheduler(binds={"namespaces": {"drop": drop}})
    stage.gang("g")
    replica.wait_leads()
    assert replica.journal("fault")
    _nothing_was_lost(stage, "g")


def test_a_scheduler_that_starts_in_a_hang_waits_for_its_end(stage: Stage) -> None:
    stage.gang("g")
    stage.cluster.pause_api()
    replica = stage.scheduler()
    until(lambda: replica.lives() or replica.get("/readyz")[0] == 503, replica.tail)
    time.sleep(5)
    replica.lives()
    assert replica.get("/readyz")[0] == 503
    stage.cluster.resume_api()
    _nothing_was_lost(stage, "g")
