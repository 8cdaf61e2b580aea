"""A leader whose picture of the pods is seconds old: what was bound is charged, and who went counts as gone, before it
can see it."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.controlplane.cluster import ControlPlane
from tests.controlplane.rest import resource_path
from tests.e2e.stage import GPU, GROUPS, Stage, until

pytestmark = pytest.mark.real
LATE = 6.0
SIZE = 4


@pytest.fixture
def wide(real_control_plane: ControlPlane) -> Iterator[Stage]:
    """Four nodes of two GPUs."""
    with Stage(real_control_plane, nodes=4, gpus=2) as made:
        yield made


@pytest.fixture
def stage(real_control_plane: ControlPlane) -> Iterator[Stage]:
    """Room for two gangs."""
    with Stage(real_control_plane, nodes=2, gpus=SIZE) as made:
        yield made


def test_a_new_leader_that_has_not_seen_the_binds_of_the_old_one_keeps_the_quota(stage: Stage) -> None:
    queue = f"q-{stage.id}"
    path = resource_path("scheduling.muster.sh/v1alpha1", "queues")
    body = {
        "apiVersion": "scheduling.muster.sh/v1alpha1", "kind": "Queue", "metadata": {"name": queue},
        "spec": {"resources": {GPU: {"limit": SIZE}}},
    }  # fmt: skip
    stage.rest.create(path, body)
    try:
        _keeps_the_quota(stage, queue)
    finally:
        stage.rest.delete_if_present(f"{path}/{queue}")


def _keeps_the_quota(stage: Stage, queue: str) -> None:
    old = stage.scheduler().wait_leads()
    new = stage.scheduler(late={"pods": LATE}).wait_ready()
    for name in ("first", "second"):
        for number in range(SIZE):
            stage.create_pod(stage.pod(f"{name}-{number}", name))
    until(lambda: f'"pods": {2 * SIZE}' in new.get("/debug/state")[1].replace('":', '": '), "it sees all pods, waiting")
    _start(stage, "first", queue)
    stage.wait_bound("first-", SIZE)
    assert old.stop() == 0
    new.wait_leads()
    _start(stage, "second", queue)
    stage.stays("second-", 0, seconds=LATE + 2)
    until(lambda: _reason(stage, "second") == "WaitingForQuota", lambda: "\n".join(stage.picture()))
    stage.delete("first-")
    stage.wait_bound("second-", SIZE)
    stage.check()


def _start(stage: Stage, name: str, queue: str, minimum: int = SIZE) -> None:
    """Create the PodGroup for which its pods wait."""
    group = {
        "apiVersion": GROUPS[0], "kind": "PodGroup", "metadata": {"name": name, "namespace": stage.namespace},
        "spec": {"minMember": minimum, "queue": queue},
    }  # fmt: skip
    stage.rest.create(resource_path(*GROUPS, namespace=stage.namespace), group)


def _reason(stage: Stage, name: str) -> str:
    conditions = stage.group(name).get("status", {}).get("conditions", [])
    return next((one["reason"] for one in conditions if one["type"] == "Scheduled"), "")


def test_nobody_goes_twice_for_who_was_bound_by_a_binder_that_sees_more(wide: Stage) -> None:
    """The binder is a process of its own: a request ends before the scheduler can see whom it evicted."""
    path, version = resource_path("scheduling.muster.sh/v1alpha1", "queues"), "scheduling.muster.sh/v1alpha1"
    deserved = {f"a-{wide.id}": 1, f"b-{wide.id}": 1, f"c-{wide.id}": 6}
    for name, amount in deserved.items():
        spec = {"resources": {GPU: {"deserved": amount}}}
        wide.rest.create(path, {"apiVersion": version, "kind": "Queue", "metadata": {"name": name}, "spec": spec})
    try:
        _takes_what_is_owed(wide, *deserved)
    finally:
        for name in deserved:
            wide.rest.delete_if_present(f"{path}/{name}")


def _takes_what_is_owed(stage: Stage, one: str, other: str, owed: str) -> None:
    stage.scheduler(only=["binder"])
    deciding = stage.scheduler(only=["scheduler"], late={"pods": 1.5}).wait_leads()
    for name, queue in (("a", one), ("b", other)):
        _start(stage, name, queue, 1)
        for number in range(4):
            stage.create_pod(stage.pod(f"{name}-{number}", name))
        stage.wait_bound(f"{name}-", 4)
    sizes = {"c": 2, "d": 2, "e": 1, "f": 1}
    for name, gpu in sizes.items():
        stage.create_pod(stage.pod(f"{name}-0", name, gpu))
    until(lambda: f'"pods": {8 + len(sizes)}' in deciding.get("/debug/state")[1].replace('":', '": '), "it sees all")
    for name in sizes:
        _start(stage, name, owed, 1)
        time.sleep(0.3)
    for name in sizes:
        stage.wait_bound(f"{name}-", 1)
    for name in ("a", "b"):
        stage.stays(f"{name}-", 1, seconds=2)
    stage.check()
