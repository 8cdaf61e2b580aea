"""The rights of config/rbac: none is too many, and one that is missing is named while everything else goes on.

Each of them is used by a story that the real API server's audit log has followed. Each is taken away once: the log of
the scheduler then says which verb on which resource it lacks, nothing hangs, and a gang that does not need it runs.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.controlplane.cluster import ControlPlane
from tests.controlplane.fixtures import CRD_FOLDER
from tests.deploy.rights import AUDIT, Right, Story, account, granted, used
from tests.scenarios.planes import OPERATORS, Scheduler

pytestmark = [pytest.mark.real, pytest.mark.alone]
_GROUP = "scheduling.muster.sh"
SELDOM = {
    Right("get", "", "pods"): "after a bind without an answer: tests/e2e/test_faults_binding.py",
    Right("get", "", "persistentvolumeclaims"): "after a write without an answer: tests/unit/binder/test_volumes.py",
    Right("get", "", "persistentvolumes"): "after a write without an answer: tests/unit/binder/test_volumes.py",
    Right("get", _GROUP, "bindrequests"): "after a write without an answer: tests/unit/cluster/test_writer.py",
    Right("get", "batch", "jobs"): "on the way to an owner: tests/unit/controllers",
    Right("get", "apps", "statefulsets"): "likewise",
    Right("patch", _GROUP, "podgroups"): "where the owner of a group that was made for it changes: likewise",
    Right("delete", _GROUP, "podgroups"): "where nobody needs a group that was made any more: likewise",
    Right("patch", _GROUP, "bindrequests"): "a new leader adopts them: tests/e2e/test_faults_kill.py",
    Right(
        "create", "authentication.k8s.io", "tokenreviews"
    ): "for callers from elsewhere: tests/contract/test_access.py",
    Right("create", "authorization.k8s.io", "subjectaccessreviews"): "likewise",
    Right("patch", "scheduling.volcano.sh", "podgroups/status"): "where its definition has that subresource",
    Right("list", "apiextensions.k8s.io", "customresourcedefinitions"): "where the server has no streaming list",
    **{
        Right(verb, "kubeflow.org", plural): "a kind that the story does not install, read like tfjobs"
        for verb in ("list", "watch")
        for plural in ("xgboostjobs", "paddlejobs", "jaxjobs")
    },
}
"""What a story without accidents does not use, and where it is used."""
BY_MANY = {
    *(Right(verb, "", what) for verb in ("list", "watch") for what in ("pods", "nodes")),
    # Without a first list of these no session runs, lest it decide by half of the truth; /readyz names what is missing.
    *(Right("list", "", what) for what in ("namespaces", "persistentvolumes", "persistentvolumeclaims")),
    *(Right("list", "storage.k8s.io", what) for what in ("storageclasses", "csinodes", "csidrivers")),
    *(Right("list", "storage.k8s.io", what) for what in ("csistoragecapacities", "volumeattachments")),
    Right("list", "scheduling.k8s.io", "priorityclasses"),
    Right("list", "policy", "poddisruptionbudgets"),
    *(Right(verb, _GROUP, "bindrequests") for verb in ("list", "watch", "create")),
    *(Right(verb, "coordination.k8s.io", "leases") for verb in ("get", "create", "update")),
    Right("create", "", "pods/binding"),
    # The gang of this story is such a group and waits in such a queue; what cannot be listed does not exist.
    *(Right("list", _GROUP, what) for what in ("podgroups", "queues")),
}
"""Without these nobody can be bound; that must be said all the same."""
TELLING = {
    Right("patch", _GROUP, "podgroups/status"), Right("create", "", "pods/binding"),
    Right("list", "scheduling.volcano.sh", "queues"),
}  # fmt: skip
"""Those that are taken away before a change lands; the others at night."""


def until(condition: Callable[[], bool], within: float = 60.0) -> bool:
    deadline = time.monotonic() + within
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


def scheduler_with(
    cluster: ControlPlane, directory: Path, name: str, token: str, *options: str, **more: Any
) -> Scheduler:
    config = {"schedulerNames": [name], "namespace": name, "leaderElection": {"leaderElect": True}, **more}
    kubeconfig = cluster.write_kubeconfig(directory / "account", token)
    return Scheduler(kubeconfig, directory, *options, config=config)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_every_right_is_used_and_no_other_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text(json.dumps(AUDIT))
    log = tmp_path / "audit.log"
    flags = [f"--audit-policy-file={tmp_path / 'policy.yaml'}", f"--audit-log-path={log}"]
    with ControlPlane(api_flags=flags) as cluster:
        cluster.apply_crds(CRD_FOLDER)
        cluster.apply_crds(OPERATORS)
        story = Story(cluster, "rights")
        scheduler = scheduler_with(cluster, tmp_path, "rights", account(cluster, "rights"))
        story.set_up()
        scheduler.start()
        try:
            story.plain()
            story.everything()
            assert until(lambda: story.bound("guarded") == story.bound("open") == 1), scheduler.tail()
            story.urgent()
            assert until(lambda: story.bound("urgent") == 2), scheduler.tail()
            wanted = set(granted()) - SELDOM.keys()
            until(lambda: wanted <= used(log, "rights").keys(), 30)
        finally:
            scheduler.stop()
        found = used(log, "rights")
        assert sorted(map(str, wanted - found.keys())) == [], "granted, and not used"
        assert [str(right) for right, codes in found.items() if 403 in codes] == []


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "right",
    [
        pytest.param(right, id=str(right).replace("/", "-"), marks=() if right in TELLING else pytest.mark.slow)
        for right in granted()
        if right not in SELDOM
    ],
)
def test_a_right_that_is_missing_is_named_and_the_rest_goes_on(
    real_control_plane: ControlPlane, tmp_path: Path, right: Right
) -> None:
    real_control_plane.apply_crds(OPERATORS)
    name = f"rights-{granted().index(right)}"
    story = Story(real_control_plane, name)
    scheduler = scheduler_with(real_control_plane, tmp_path, name, account(real_control_plane, name, right))
    story.set_up()
    log = tmp_path / "scheduler.log"
    resource, _, sub = right.resource.partition("/")
    words = f'cannot {right.verb} resource \\"{resource}{"/" if sub else ""}{sub}\\" in API group \\"{right.group}\\"'

    def said() -> bool:
        return words in log.read_text(errors="replace")

    try:
        scheduler.launch()
        story.plain()
        story.everything()
        if right.resource in ("pods/eviction", "pods") and right.verb in ("create", "delete"):
            assert until(lambda: story.bound("guarded") == story.bound("open") == 1), scheduler.tail()
            story.urgent()
        if right not in BY_MANY:
            assert until(lambda: story.bound("plain") == 2), scheduler.tail()
        assert until(said), f"{words}\n{scheduler.tail()}"
        if right not in BY_MANY:
            story.plain("later")
            assert until(lambda: story.bound("later") == 2), scheduler.tail()
            assert scheduler.running()
    finally:
        scheduler.stop()
        story.tear_down()
