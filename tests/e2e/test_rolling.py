"""A rolling upgrade while gangs arrive: one replica after another is replaced, and no gang is lost or half."""

from __future__ import annotations

import threading

import pytest

from tests.e2e.stage import DEADLINE, LEASE, SHORT_LEASE, SLACK, Replica, Stage, until

pytestmark = [pytest.mark.real, pytest.mark.alone]
CONFIG = {"leaderElection": SHORT_LEASE}
SIZE = 3


class Arrivals(threading.Thread):
    """Gangs a0, a1, ... that come until it is told to stop."""

    def __init__(self, stage: Stage, most: int) -> None:
        super().__init__(daemon=True)
        self._stage, self._most = stage, most
        self._enough = threading.Event()
        self.names: list[str] = []
        self.error: BaseException | None = None

    def run(self) -> None:
        """Create a gang, wait a little, and again."""
        try:
            while len(self.names) < self._most and not self._enough.wait(0.3):
                name = f"a{len(self.names):02d}"
                self._stage.gang(name, SIZE)
                self.names.append(name)
        except Exception as error:  # noqa: BLE001 - raised where the thread is waited for
            self.error = error

    def end(self) -> list[str]:
        """Let no more come; return those that came."""
        self._enough.set()
        self.join(30)
        if self.error is not None:
            raise self.error
        return self.names


def _leader(replicas: list[Replica]) -> Replica:
    return until(lambda: next((one for one in replicas if one.leads()), None), "somebody leads", within=90)


def test_replicas_are_replaced_one_after_another_and_no_gang_is_lost_or_half(wide: Stage) -> None:
    old = [wide.scheduler(config=CONFIG).wait_ready() for _ in range(2)]
    _leader(old)
    arrivals = Arrivals(wide, 20)
    arrivals.start()
    until(lambda: wide.bound("a00-") == SIZE, lambda: "\n".join(wide.picture()))
    new = []
    for replica in old:
        new.append(wide.scheduler(config=CONFIG).wait_ready())
        assert replica.stop() == 0
    assert _leader(new).ready()
    names = arrivals.end()
    assert len(names) >= 3
    for name in names:
        wide.wait_bound(f"{name}-", SIZE)
        assert wide.recorder.made(f"{name}-") == SIZE, "nobody was deleted and made again"
        assert wide.recorder.half(f"{name}-", SIZE) < DEADLINE + SLACK
    wide.check()
    done = ("Bound", "Failed")
    until(lambda: all(one.get("status", {}).get("phase") in done for one in wide.requests()), "requests are finished")


def test_a_leader_that_is_killed_under_load_costs_no_gang(wide: Stage) -> None:
    both = [wide.scheduler(config=CONFIG).wait_ready() for _ in range(2)]
    leader = _leader(both)
    other = next(one for one in both if one is not leader)
    arrivals = Arrivals(wide, 20)
    arrivals.start()
    until(lambda: wide.bound("a01-") == SIZE, lambda: "\n".join(wide.picture()))
    leader.kill()
    until(other.leads, lambda: f"the other leads\n{other.tail()}", within=LEASE + SLACK + 2)
    names = arrivals.end()
    for name in names:
        wide.wait_bound(f"{name}-", SIZE)
        assert wide.recorder.half(f"{name}-", SIZE) < LEASE + DEADLINE + SLACK
    wide.check()
