"""Scheduler, binder and controllers as processes of their own: each does its part, and one binder binds.

Decided here: what must hold while one of them dies, stands still, or makes way for a process that does all.
"""

from __future__ import annotations

import time

import pytest

from scheduler.cli import why
from tests.controlplane.rest import resource_path
from tests.e2e.stage import DEADLINE, LEASE, SHORT_LEASE, SLACK, Replica, Stage, binds_done, until

pytestmark = [pytest.mark.real, pytest.mark.alone]
CONFIG = {"leaderElection": SHORT_LEASE}
SIZE = 3


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


def _scheduled(stage: Stage, name: str) -> dict[str, str]:
    conditions = stage.group(name).get("status", {}).get("conditions", [])
    return next((one for one in conditions if one["type"] == "Scheduled"), {})


def _reasons(stage: Stage) -> list[str]:
    """Why each pod is not scheduled; "" where nothing says so."""
    found = ({one["type"]: one for one in pod.get("status", {}).get("conditions", [])} for pod in stage.pods())
    return [one.get("PodScheduled", {}).get("reason", "") for one in found]


def _bound(stage: Stage) -> None:
    stage.wait_ended()
    assert [one["status"]["phase"] for one in stage.requests()] == ["Bound"]


def test_each_component_does_its_part_and_no_other(wide: Stage) -> None:
    deciding, binding = _start(wide, "scheduler").wait_leads(), _start(wide, "binder").wait_leads()
    grouping = _start(wide, "controllers").wait_leads()
    for replica in wide.replicas:
        replica.wait_ready()
    wide.gang("g", SIZE)
    _whole(wide, "g")
    _once(wide, "g")
    _bound(wide)
    assert _sends(deciding, "/binding") == 0
    assert _sends(deciding, "/bindrequests") == 1
    assert _sends(binding, "/binding") == SIZE
    assert [line["path"] for line in grouping.journal("write") if "/leases" not in line["path"]
            and not line["path"].endswith("/namespaces")] == []  # fmt: skip
    holders = {}
    for name in ("muster", "muster-binder", "muster-controllers"):
        lease = wide.rest.get(resource_path("coordination.k8s.io/v1", "leases", name, namespace=wide.scheduler_name))
        holders[name] = lease["spec"]["holderIdentity"]
    assert len(set(holders.values())) == 3
    assert deciding.get("/page/")[0] == 200
    for replica in (binding, grouping):
        assert [replica.get(path)[0] for path in ("/page/", "/debug/snapshot", "/metrics")] == [404, 404, 200]
    assert "Bound 3 members" in "\n".join(wide.events("PodGroup", "g"))
    assert [replica.stop() for replica in wide.replicas] == [0, 0, 0]


def test_a_new_scheduler_takes_over_what_the_old_one_wrote_and_the_binder_goes_on(wide: Stage) -> None:
    binding = _start(wide, "binder").wait_leads()
    first = _start(wide, "scheduler", accident={"point": "request-sent", "kind": "kill-both"}).wait_leads()
    second = _start(wide, "scheduler").wait_ready()
    binding.freeze()
    wide.gang("g", SIZE)
    first.accident()
    second.wait_leads()
    until(lambda: {one["spec"]["epoch"] for one in wide.requests()} == {2}, "the request is taken over")
    assert wide.bound("g-") == 0
    binding.kill()  # its lease may be over; another one takes its place
    _start(wide, "binder").wait_leads()
    _whole(wide, "g")
    _once(wide, "g")
    wide.gang("h", SIZE)
    _whole(wide, "h")


@pytest.mark.parametrize("point", ["after-first-bind", pytest.param("before-status", marks=pytest.mark.slow)])
def test_a_binder_that_dies_half_way_is_followed_by_one_that_ends_it(wide: Stage, point: str) -> None:
    _start(wide, "scheduler").wait_leads()
    first = _start(wide, "binder", accident={"point": point, "kind": "kill-io"}).wait_leads()
    _start(wide, "binder").wait_ready()
    wide.gang("g", SIZE)
    first.accident()
    _whole(wide, "g")
    _once(wide, "g", unknown=SIZE if point == "after-first-bind" else 0)
    assert wide.recorder.half("g-", SIZE) < LEASE + DEADLINE + SLACK
    _bound(wide)


def test_a_gang_that_is_placed_while_no_binder_is_there_says_so(
    wide: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    deciding = _start(wide, "scheduler").wait_leads()
    wide.gang("g", SIZE)
    until(lambda: deciding.said("no_binder"), "it is missed")
    assert "1 bind requests wait, and nobody renews lease" in deciding.said("no_binder")[0]["problem"]
    wide.create_pod(wide.pod("single", ""))
    kubeconfig = str(wide.cluster.kubeconfig)
    config = wide.directory / "scheduler-0.yaml"
    assert why.explain(
        "g", kubeconfig=kubeconfig, context=None, namespace=wide.namespace, output="table", config=config
    ) == 0  # fmt: skip
    assert "placed: 3 members have their nodes and are to be bound" in capsys.readouterr().out
    until(lambda: _scheduled(wide, "g").get("reason") == "WaitingForBinder", lambda: str(wide.group("g")), 40)
    assert "3 members have their nodes and are to be bound" in _scheduled(wide, "g")["message"]
    until(lambda: _reasons(wide) == ["WaitingForBinder"] * (SIZE + 1), lambda: str(_reasons(wide)))
    _start(wide, "binder").wait_leads()
    _whole(wide, "g")
    wide.wait_bound("single", 1)


def test_a_binder_that_serves_other_names_is_told_as_that_and_not_as_a_shortage(wide: Stage) -> None:
    _start(wide, "scheduler").wait_leads()
    config = {**CONFIG, "schedulerNames": ["somebody-else"]}
    wrong = wide.scheduler(config=config, only=("binder",)).wait_leads()
    wide.gang("g", SIZE)
    until(lambda: _scheduled(wide, "g").get("reason") == "BindFailed", lambda: str(wide.group("g")), 20)
    assert "the binder does not serve its schedulerName" in _scheduled(wide, "g")["message"]
    assert wrong.said("binder.given-up")[0]["causes"] == ["ForeignPod"]
    assert wide.bound("g-") == 0
    assert wrong.stop() == 0
    _start(wide, "binder").wait_leads()
    _whole(wide, "g")


def test_there_is_one_binder_while_the_split_is_switched_on_and_off(wide: Stage) -> None:
    """All in one -> apart -> all in one, each begun before the other is ended, as an upgrade does it."""
    whole = _start(wide).wait_leads()
    binding, deciding = _start(wide, "binder"), _start(wide, "scheduler").wait_ready()
    until(lambda: binding.said("not_binding_yet"), "the binder waits")
    wide.gang("a", SIZE)
    _whole(wide, "a")
    assert not binding.leads()
    assert whole.stop() == 0
    deciding.wait_leads()
    binding.wait_leads()
    wide.gang("b", SIZE)
    _whole(wide, "b")
    again = _start(wide).wait_ready()
    assert deciding.stop() == 0
    again.wait_leads()
    wide.gang("c", SIZE)
    assert binding.wait_end() == 1, "it makes way, and gives its lease back"
    assert binding.said("binder_makes_way")
    assert not binding.said("binder.defect") + binding.said("part_ended")
    _whole(wide, "c")
    late = _start(wide, "binder").wait_ready()
    time.sleep(1.5)
    assert not late.leads()
    assert [_sends(one, "/binding") for one in (whole, binding, again, late)] == [SIZE, SIZE, SIZE, 0]
    _once(wide, "a", "b", "c")
