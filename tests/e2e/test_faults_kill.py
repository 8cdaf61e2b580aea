"""Kill -9 at every boundary of the binder's work, then start again: a gang is whole or not there at all."""

from __future__ import annotations

import os
import signal

import pytest

from tests.e2e.stage import Stage, binds_done, until

pytestmark = [pytest.mark.real, pytest.mark.alone]
POINTS = ("request-unsent", "request-sent", "after-first-bind", "after-last-bind", "before-status")
WHO = ("kill-io", "kill-brain", "kill-both")
IN_EVERY_RUN = {
    ("kill-io", "request-unsent"), ("kill-io", "after-first-bind"), ("kill-io", "before-status"),
    ("kill-brain", "after-first-bind"), ("kill-both", "after-first-bind"),
}  # fmt: skip
"""Nothing is written, half is, all is; the other points are between two of these."""


@pytest.mark.parametrize(
    ("who", "point"),
    [
        pytest.param(who, point, marks=() if (who, point) in IN_EVERY_RUN else pytest.mark.slow)
        for who in WHO
        for point in POINTS
    ],
)
def test_after_a_kill_and_a_restart_one_gang_is_whole_and_the_other_waits_whole(
    stage: Stage, who: str, point: str
) -> None:
    first = stage.scheduler(accident={"point": point, "kind": who}).wait_leads()
    stage.gang("one")
    stage.gang("two")
    first.accident()
    code = first.wait_end()
    assert code == (1 if who == "kill-brain" else -9)
    stage.free_lease()
    stage.scheduler().wait_leads()
    until(lambda: stage.bound() == 4, lambda: "\n".join(["one gang whole", *stage.picture()]))
    started, waits = ("one", "two") if stage.bound("one") else ("two", "one")
    stage.stays(started, 4)
    stage.stays(waits, 0, 0.5)
    until(lambda: stage.group(started).get("status", {}).get("phase") == "Running", lambda: str(stage.group(started)))
    stage.check()
    # What the dead process had assumed is free again, and what was bound is counted.
    stage.delete(started)
    stage.wait_bound(waits, 4)
    stage.check()
    for name in (f"{gang}-{number}" for gang in ("one", "two") for number in range(4)):
        assert binds_done(stage.replicas, name) <= 1
    for name in ("one-", "two-"):
        assert stage.recorder.ever_bound(name) == 4
    done = ("Bound", "Failed")
    until(lambda: all(r.get("status", {}).get("phase") in done for r in stage.requests()), "requests are finished")


def test_a_brain_that_dies_idle_ends_the_io_process_which_gives_its_lease_back(stage: Stage) -> None:
    replica = stage.scheduler().wait_leads()
    os.kill(replica.brain, signal.SIGKILL)
    assert replica.wait_end() == 1
    assert replica.said("brain_gone")
    assert replica.said("lease released")
    assert not replica.said("leadership lost")


def test_a_brain_that_hangs_is_ended_and_the_lease_is_given_back(stage: Stage) -> None:
    replica = stage.scheduler(patience=3.0).wait_leads()
    os.kill(replica.brain, signal.SIGSTOP)
    assert replica.wait_end() == 1
    assert replica.said("brain_hangs")
    assert replica.said("lease released")
    with pytest.raises(ProcessLookupError):
        os.kill(replica.brain, 0)
