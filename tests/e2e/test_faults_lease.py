"""Two replicas: one leads, the other is ready; whoever has lost the lease writes nothing more."""

from __future__ import annotations

import time

import pytest

from tests.e2e.stage import DEADLINE, LEASE, SHORT_LEASE, SLACK, Replica, Stage, until

pytestmark = [pytest.mark.real, pytest.mark.alone]
SHORT = {"leaderElection": SHORT_LEASE}


def _writes_after(replica: Replica, what: str) -> list[str]:
    """The requests that a process sent after a line of its journal; those that its own fence held back are not sent."""
    lines = replica.journal()
    unsent = {line["number"] for line in lines if line["what"] == "unsent"}
    mark = max(number for number, line in enumerate(lines) if line["what"] == what)
    return [
        f"{line['method']} {line['path']}"
        for line in lines[mark:]
        if line["what"] == "write" and line["number"] not in unsent
    ]


@pytest.mark.parametrize(
    "point",
    [
        "request-unsent",
        "bind-unsent",
        pytest.param("after-first-bind", marks=pytest.mark.slow),
        pytest.param("before-status", marks=pytest.mark.slow),
    ],
)
def test_a_leader_that_stood_still_past_its_lease_writes_nothing_when_it_wakes_and_ends(
    stage: Stage, point: str
) -> None:
    first = stage.scheduler(config=SHORT, accident={"point": point, "kind": "freeze"}).wait_leads()
    second = stage.scheduler(config=SHORT).wait_ready()
    assert not second.leads()
    stage.gang("g")
    first.accident()
    until(first.frozen, "both processes stand still")
    second.wait_leads()
    stage.wait_bound("g-", 4)
    first.wake()
    assert first.wait_end() == 1
    assert _writes_after(first, "woke") == []
    stage.stays("g-", 4)
    stage.check()
    assert {request["spec"]["epoch"] for request in stage.requests()} == {2}
    assert stage.recorder.half("g-", 4) < LEASE + DEADLINE + SLACK


def test_of_two_schedulers_one_leads_the_other_is_ready_and_takes_over_when_the_first_dies(stage: Stage) -> None:
    first, second = stage.scheduler(config=SHORT), stage.scheduler(config=SHORT)
    for replica in (first, second):
        replica.wait_ready()
    until(lambda: first.leads() or second.leads(), "somebody leads")
    time.sleep(2 * LEASE / 3)
    leader, standby = (first, second) if first.leads() else (second, first)
    assert not standby.leads()
    assert standby.ready()
    stage.gang("g")
    stage.wait_bound("g-", 4)
    # Both may have asked for the namespace and for a lease that nobody had made yet; one of them was refused.
    bids = ("/namespaces", "/leases")
    assert [line for line in standby.journal("write") if not line["path"].endswith(bids)] == []
    leader.kill()
    standby.wait_leads()
    stage.delete("g-")
    stage.gang("h")
    stage.wait_bound("h-", 4)
    stage.check()


def test_a_scheduler_that_is_stopped_in_order_gives_its_lease_back_at_once(stage: Stage) -> None:
    first = stage.scheduler().wait_leads()
    second = stage.scheduler().wait_ready()
    assert first.stop() == 0
    assert first.said("lease released")
    began = time.monotonic()
    second.wait_leads()  # its lease would have lasted another 15 s
    assert time.monotonic() - began < 10
