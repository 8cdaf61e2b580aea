"""Scheduler, binder and controllers as processes of their own: each does its part, and one binder binds.

Decided here: what must hold while one of them dies, stands still, or makes way for a process that does all.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from scheduler.cli import why
from tests.controlplane.cluster import ControlPlane
from tests.controlplane.rest import resource_path
from tests.e2e.stage import DEADLINE, LEASE, SHORT_LEASE, SLACK, Replica, Stage, binds_done, until

pytestmark = [pytest.mark.real, pytest.mark.alone]
CONFIG = {"leaderElection": SHORT_LEASE}
SIZE = 3


@pytest.fixture
def stage(real_control_plane: ControlPlane) -> Iterator[Stage]:
    """Room for twenty gangs."""
    with Stage(real_control_plane, nodes=8, gpus=8) as made:
        yield made


def _start(stage: Stage, *only: str, **plan: object) -> Replica:
    return stage.scheduler(config=CONFIG, only=only, **plan)


def _sends(replica: Replica, what: str) -> int:
    return sum(what in line["path"] for line in replica.journal("write"))


def _whole(stage: Stage, *names: str) -> None:
    for name in names:
        stage.wait_bound(f"{name}-", SIZE)
        assert stage.recorder.made(f"{name}-") == SIZE, "nobody was deleted and made again"
    stage.check()


def _once(stage: Stage, *names: str, unknown: int = 0) -> None:
    """Fail unless each pod was bound by one request. unknown: requests of which nobody lived to hear the answer."""
    done = [binds_done(stage.replicas, f"{name}-{number}") for name in names for number in range(SIZE)]
    assert max(done) == 1
    assert done.count(0) <= unknown


def _bound(stage: Stage) -> None:
    stage.wait_ended()
    assert [one["status"]["phase"] for one in stage.requests()] == ["Bound"]


def test_each_component_does_its_part_and_no_other(stage: Stage) -> None:
    deciding, binding = _start(stage, "scheduler").wait_leads(), _start(stage, "binder").wait_leads()
    grouping = _start(stage, "controllers").wait_leads()
    for replica in stage.replicas:
        replica.wait_ready()
    stage.gang("g", SIZE)
    _whole(stage, "g")
    _once(stage, "g")
    _bound(stage)
    assert _sends(deciding, "/binding") == 0
    assert _sends(deciding, "/bindrequests") == 1
    assert _sends(binding, "/binding") == SIZE
    assert [line["path"] for line in grouping.journal("write") if "/leases" not in line["path"]
            and not line["path"].endswith("/namespaces")] == []  # fmt: skip
    holders = {}
    for name in ("muster", "muster-binder", "muster-controllers"):
        lease = stage.rest.get(resource_path("coordination.k8s.io/v1", "leases", name, namespace=stage.scheduler_name))
        holders[name] = lease["spec"]["holderIdentity"]
    assert len(set(holders.values())) == 3
    assert deciding.get("/page/")[0] == 200
    for replica in (binding, grouping):
        assert [replica.get(path)[0] for path in ("/page/", "/debug/snapshot", "/metrics")] == [404, 404, 200]
    assert "Bound 3 members" in "\n".join(stage.events("PodGroup", "g"))
    assert [replica.stop() for replica in stage.replicas] == [0, 0, 0]


def test_a_new_scheduler_takes_over_what_the_old_one_wrote_and_the_binder_goes_on(stage: Stage) -> None:
    binding = _start(stage, "binder").wait_leads()
    first = _start(stage, "scheduler", accident={"point": "request-sent", "kind": "kill-both"}).wait_leads()
    second = _start(stage, "scheduler").wait_ready()
    binding.freeze()
    stage.gang("g", SIZE)
    first.accident()
    second.wait_leads()
    until(lambda: {one["spec"]["epoch"] for one in stage.requests()} == {2}, "the request is taken over")
    assert stage.bound("g-") == 0
    binding.kill()  # its lease may be over; another one takes its place
    _start(stage, "binder").wait_leads()
    _whole(stage, "g")
    _once(stage, "g")
    stage.gang("h", SIZE)
    _whole(stage, "h")


@pytest.mark.parametrize("point", ["after-first-bind", pytest.param("before-status", marks=pytest.mark.slow)])
def test_a_binder_that_dies_half_way_is_followed_by_one_that_ends_it(stage: Stage, point: str) -> None:
    _start(stage, "scheduler").wait_leads()
    first = _start(stage, "binder", accident={"point": point, "kind": "kill-io"}).wait_leads()
    _start(stage, "binder").wait_ready()
    stage.gang("g", SIZE)
    first.accident()
    _whole(stage, "g")
    _once(stage, "g", unknown=SIZE if point == "after-first-bind" else 0)
    assert stage.recorder.half("g-", SIZE) < LEASE + DEADLINE + SLACK
    _bound(stage)


def test_a_gang_that_is_placed_while_no_binder_is_there_says_so(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    deciding = _start(stage, "scheduler").wait_leads()
    stage.gang("g", SIZE)
    until(lambda: deciding.said("no_binder"), "it is missed")
    assert "1 bind requests wait, and nobody renews lease" in deciding.said("no_binder")[0]["problem"]
    kubeconfig = str(stage.cluster.kubeconfig)
    config = stage.directory / "scheduler-0.yaml"
    assert why.explain(
        "g", kubeconfig=kubeconfig, context=None, namespace=stage.namespace, output="table", config=config
    ) == 0  # fmt: skip
    assert "placed: 3 members have their nodes and are to be bound" in capsys.readouterr().out
    _start(stage, "binder").wait_leads()
    _whole(stage, "g")


def test_there_is_one_binder_while_the_split_is_switched_on_and_off(stage: Stage) -> None:
    """All in one -> apart -> all in one, each begun before the other is ended, as an upgrade does it."""
    whole = _start(stage).wait_leads()
    binding, deciding = _start(stage, "binder"), _start(stage, "scheduler").wait_ready()
    until(lambda: binding.said("not_binding_yet"), "the binder waits")
    stage.gang("a", SIZE)
    _whole(stage, "a")
    assert not binding.leads()
    assert whole.stop() == 0
    deciding.wait_leads()
    binding.wait_leads()
    stage.gang("b", SIZE)
    _whole(stage, "b")
    again = _start(stage).wait_ready()
    assert deciding.stop() == 0
    again.wait_leads()
    stage.gang("c", SIZE)
    assert binding.wait_end() == 1, "it makes way, and gives its lease back"
    assert binding.said("binder_makes_way")
    assert not binding.said("binder.defect") + binding.said("part_ended")
    _whole(stage, "c")
    late = _start(stage, "binder").wait_ready()
    time.sleep(1.5)
    assert not late.leads()
    assert [_sends(one, "/binding") for one in (whole, binding, again, late)] == [SIZE, SIZE, SIZE, 0]
    _once(stage, "a", "b", "c")
