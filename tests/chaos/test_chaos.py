"""A short day of faults in every run, a longer one at night; and that what judges a day can fail it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import structlog

from tests.chaos import plan
from tests.chaos.audit import GPU, Audit, labels
from tests.chaos.faults import LATEST, Asked, Sky, asked
from tests.chaos.run import live
from tests.controlplane.cluster import ControlPlane
from tests.controlplane.fixtures import CRD_FOLDER
from tests.controlplane.rest import Rest

Json = dict[str, Any]


@pytest.mark.real
@pytest.mark.alone
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("seed", "seconds"), [(5, 22.0), pytest.param(6, 150.0, marks=pytest.mark.slow)])
def test_a_day_of_faults_breaks_no_promise(tmp_path: Path, seed: int, seconds: float) -> None:
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())  # of the fake kubelet
    with ControlPlane() as cluster:
        cluster.apply_crds(CRD_FOLDER)
        outcome = live(cluster, seed, seconds, tmp_path, rate=1.0)
    print(outcome.text())
    assert not outcome.problems, outcome.text()
    assert outcome.facts["pods bound"] > 20


# -- the plan and the faults ------------------------------------------------------------------------------------------


def test_a_day_depends_on_its_seed_alone() -> None:
    assert plan.plan(3, 60) == plan.plan(3, 60)
    assert plan.plan(4, 60) != plan.plan(3, 60)
    whole = plan.plan(3, 600)
    assert {gang.dialect for gang in whole.gangs} == set(plan.DIALECTS)
    assert {one.what for one in whole.troubles} >= {
        "lost", "cordoned", "shrunk", "silent", "limit", "deserved", "hold", "kill-io", "kill-brain", "kill-both",
        "stop", "stop-io", "stop-brain", "end",
    }  # fmt: skip


def test_every_fault_comes_and_no_write_arrives_late() -> None:
    requests = (
        Asked("POST", "pods/binding"), Asked("PATCH", "podgroups/status"), Asked("GET", "pods", list=True),
        Asked("GET", "pods", watch=True),
    )  # fmt: skip
    sky, again = Sky(1, "way"), Sky(1, "way")
    seen: set[str] = set()
    for number in range(4000):
        request = requests[number % len(requests)]
        fault = sky.fault(request, number / 5)
        assert fault == again.fault(request, number / 5)
        if fault is None:
            continue
        seen.add(f"{fault.name} {fault.status}" if fault.status else fault.name)
        if request.method != "GET":
            assert fault.name in ("refuse", "reset", "lost", "held") or fault.seconds <= LATEST
    refusals = {f"refuse {status}" for status in (409, 410, 429, 500, 502, 503, 504)}
    names = {"reset", "lost", "held", "slow", "torn", "lag", "stall", "cut", "tear", "gone", "noise"}
    assert seen == refusals | names


@pytest.mark.parametrize(
    ("method", "path", "kind"),
    [
        ("POST", "/api/v1/namespaces/a/pods/p/binding", "POST pods/binding"),
        ("GET", "/api/v1/pods", "GET pods"),
        ("PATCH", "/apis/scheduling.muster.sh/v1alpha1/namespaces/a/podgroups/g/status", "PATCH podgroups/status"),
        ("PUT", "/apis/coordination.k8s.io/v1/namespaces/a/leases/muster", "PUT leases"),
        ("DELETE", "/api/v1/namespaces/a", "DELETE namespaces"),
    ],
)
def test_a_request_is_known_by_its_path(method: str, path: str, kind: str) -> None:
    assert asked(method, path, {}).kind == kind


# -- the audit --------------------------------------------------------------------------------------------------------


def _audit() -> Audit:
    return Audit(Rest("http://127.0.0.1:1", token=""), "chaos")


def _gang(**fields: Any) -> plan.Gang:
    known = {"name": "g", "at": 0.0, "dialect": "muster", "queue": "chaos-a", "size": 2, "minimum": 2, "gpu": 4}
    return plan.Gang(**{**known, "seconds": 1.0, **fields})


def _pod(gang: plan.Gang, index: int, node: str = "", phase: str = "Pending", **metadata: Any) -> Json:
    named = {"name": f"{gang.name}-{index}", "uid": f"{gang.name}-{index}", "resourceVersion": "1"}
    container = {"resources": {"requests": {GPU: str(gang.gpu)}}}
    spec = {"containers": [container], **({"nodeName": node} if node else {})}
    return {"metadata": {**named, "labels": labels(gang), **metadata}, "spec": spec, "status": {"phase": phase}}


def test_a_good_day_has_no_violation() -> None:
    audit, gang = _audit(), _gang()
    for index in range(2):
        audit.see("ADDED", _pod(gang, index))
    assert audit.idle() == ["g"]
    audit.see("MODIFIED", _pod(gang, 0, "chaos-n0"))
    assert audit.half() == ["g"]
    audit.see("MODIFIED", _pod(gang, 1, "chaos-n0"))
    assert (audit.half(), audit.idle(), audit.violations) == ([], [], [])


def test_a_pod_on_a_second_node_is_seen() -> None:
    audit, gang = _audit(), _gang()
    audit.see("ADDED", _pod(gang, 0, "chaos-n0"))
    audit.see("MODIFIED", _pod(gang, 0, "chaos-n1"))
    assert "is on chaos-n1" in audit.violations[0]


@pytest.mark.parametrize("ended", [False, True])
def test_a_node_that_holds_too_much_is_seen(ended: bool) -> None:
    audit, gang = _audit(), _gang(size=3)
    audit.see("ADDED", _pod(gang, 0, "chaos-n0"))
    audit.see("ADDED", _pod(gang, 1, "chaos-n0", "Succeeded" if ended else "Running"))
    audit.see("ADDED", _pod(gang, 2, "chaos-n0"))
    assert [text.split(" ", 1)[1] for text in audit.violations] == (
        [] if ended else ["g-2 makes 12 GPUs on chaos-n0, which has 8"]
    )


def test_a_queue_over_its_limit_is_seen_and_one_that_was_lowered_a_moment_ago_is_not() -> None:
    audit, gang = _audit(), _gang(gpu=8, size=5)
    audit.limits["chaos-a"].set(8)
    for index in range(4):
        audit.see("ADDED", _pod(gang, index, f"chaos-n{index}"))
    assert audit.violations == []
    audit.see("ADDED", _pod(gang, 4, "chaos-n4"))
    assert "makes 40 GPUs in chaos-a: limit 32" in audit.violations[0]


def test_a_gang_in_two_racks_is_seen() -> None:
    audit, gang = _audit(), _gang(rack=True)
    audit.see("ADDED", _pod(gang, 0, "chaos-n0"))
    audit.see("ADDED", _pod(gang, 1, f"chaos-n{plan.RACK}"))
    assert "wants one rack" in audit.violations[0]


def test_a_machine_that_is_long_gone_is_seen() -> None:
    audit, gang = _audit(), _gang()
    audit.usable["chaos-n0"].values = [(0.0, 1), (1.0, 0)]
    audit.see("ADDED", _pod(gang, 0, "chaos-n0"))
    assert "long been unusable" in audit.violations[0]


def test_who_waits_for_quota_or_for_members_is_not_idle() -> None:
    audit = _audit()
    audit.limits["chaos-a"].set(4)
    for index in range(2):
        audit.see("ADDED", _pod(_gang(), index))
    audit.see("ADDED", _pod(_gang(name="other", queue="chaos-b"), 0))
    assert audit.idle() == []
