"""Scheduler, binder and controllers as three processes, each with the account that the chart gives it.

Together they do all that one process does, each uses every right that it has, and none is ever refused.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from scheduler.model.components import Component
from tests.controlplane.cluster import ControlPlane
from tests.controlplane.fixtures import CRD_FOLDER
from tests.deploy import helm
from tests.deploy.rights import AUDIT, MUSTER, Right, Story, apart, used
from tests.deploy.test_rights import SELDOM, scheduler_with, until
from tests.e2e.stage import SHORT_LEASE
from tests.scenarios.planes import OPERATORS, Scheduler

pytestmark = [pytest.mark.real, pytest.mark.alone, pytest.mark.timeout(600)]
GANGS = ("plain", "vol", "cos", "nat", "kai", "job", "ray")
REQUESTS = "/apis/scheduling.muster.sh/v1alpha1/namespaces/{}/bindrequests"
UNTOLD = {
    "controllers": {Right("create", "events.k8s.io", "events")},  # where a group can not be made
}
"""What moreover one of the processes does not use, and one process with all rights does."""


class Apart:
    """The three processes, and the story that they are told."""

    def __init__(self, cluster: ControlPlane, directory: Path, name: str) -> None:
        self.cluster, self.name, self.story = cluster, name, Story(cluster, name)
        self.rights, tokens = apart(cluster, name)
        self.processes: dict[str, Scheduler] = {}
        for component, token in tokens.items():
            own = directory / component
            own.mkdir()
            self.processes[component] = scheduler_with(cluster, own, name, token, "--only", component)

    def said(self, size: int = 3000) -> str:
        """Return the ends of their logs."""
        return "\n".join(one.tail(size) for one in self.processes.values())

    def tell(self) -> None:
        """Tell everything, until somebody was evicted for somebody else and all who can run do."""
        self.story.plain()
        self.story.everything()
        assert until(lambda: self.story.bound("guarded") == self.story.bound("open") == 1), self.said()
        self.story.urgent()
        assert until(lambda: self.story.bound("urgent") == 2), self.said()
        for name in GANGS:
            assert until(lambda name=name: self.story.bound(name) == 2), f"{name}\n{self.said()}"
        assert until(lambda: self.story.bound("data") == 1), self.said()


@contextmanager
def started(cluster: ControlPlane, directory: Path, name: str) -> Iterator[Apart]:
    """Start the three processes."""
    cluster.apply_crds(OPERATORS)
    one = Apart(cluster, directory, name)
    with ExitStack() as stack:
        one.story.set_up()
        for process in one.processes.values():
            stack.callback(process.stop)
            process.launch()
        yield one


def test_three_processes_with_an_account_each_do_what_one_does(
    real_control_plane: ControlPlane, tmp_path: Path
) -> None:
    with started(real_control_plane, tmp_path, "apart") as one:
        try:
            one.tell()
            groups = real_control_plane.rest.list(
                f"/apis/scheduling.muster.sh/v1alpha1/namespaces/{one.story.namespace}/podgroups"
            )
            assert [group["metadata"]["name"] for group in groups if group["metadata"]["name"].startswith("ray-")]
            assert "right_missing" not in one.said(10_000_000)
        finally:
            one.story.tear_down()


@pytest.mark.slow
def test_each_account_uses_all_of_its_rights_and_none_asks_for_more(tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text(json.dumps(AUDIT))
    log = tmp_path / "audit.log"
    flags = [f"--audit-policy-file={tmp_path / 'policy.yaml'}", f"--audit-log-path={log}"]
    with ControlPlane(api_flags=flags) as cluster:
        cluster.apply_crds(CRD_FOLDER)
        with started(cluster, tmp_path, "apart") as one:
            one.tell()
            # The binder is away, and the scheduler is another one when it comes back: a request is taken over and done.
            one.processes["binder"].stop()
            one.story.plain("later")
            assert until(lambda: any("status" not in each for each in cluster.rest.list(REQUESTS.format("apart"))))
            one.processes["scheduler"].kill()
            one.processes["scheduler"].start()
            one.processes["binder"].start()
            assert until(lambda: one.story.bound("later") == 2), one.said()
            wanted = {of: own - SELDOM.keys() - UNTOLD.get(of, set()) for of, own in one.rights.items()}
            wanted["scheduler"].add(Right("patch", "scheduling.muster.sh", "bindrequests"))

            def missing() -> dict[str, list[str]]:
                return {of: [str(each) for each in sorted(own - found(of).keys())] for of, own in wanted.items()}

            def found(of: str) -> dict[Right, set[int]]:
                return used(log, "apart", f"muster-{of}")

            until(lambda: not any(missing().values()), 30)
        assert missing() == {of: [] for of in wanted}, "granted, and not used"
        refused = {of: [str(right) for right, codes in found(of).items() if 403 in codes] for of in wanted}
        assert refused == {of: [] for of in wanted}


@pytest.mark.slow
@pytest.mark.parametrize("apart_first", [False, True], ids=["on", "off"])
def test_a_gang_that_is_half_bound_when_the_chart_switches_becomes_whole(tmp_path: Path, apart_first: bool) -> None:
    """The upgrade takes the rights of those away who bind, in the middle of it; those who come later go on."""
    more = {"leaderElection": SHORT_LEASE, "clientConnection": {"qps": 15, "burst": 5}}
    size, work = 200, "/api/v1/namespaces/default/pods"

    def upgrade(verb: str, split: bool) -> None:
        sets = f"crds.install=false,rbac.aggregateRoles=false,split.enabled={str(split).lower()}"
        chart = ("muster", str(helm.CHART), "--namespace", "switch", "--create-namespace", "--set", sets)
        helm.run(verb, *chart, kubeconfig=cluster.kubeconfig)

    def processes(split: bool) -> list[Scheduler]:
        found = []
        for component in [one.value for one in Component] if split else [""]:
            own = tmp_path / (component or "whole")
            own.mkdir()
            token = cluster.service_account_token("switch", "-".join(filter(None, ("muster", component))))
            only = ("--only", component) if component else ()
            found.append(scheduler_with(cluster, own, "switch", token, *only, **more))
            stack.callback(found[-1].stop)
        return found

    def bound() -> int:
        return sum("nodeName" in pod["spec"] for pod in cluster.rest.list(work))

    with ControlPlane() as cluster, ExitStack() as stack:
        cluster.apply_crds(CRD_FOLDER)
        cluster.register_node("n", {"cpu": "64", "memory": "64Gi", "pods": "500"})
        upgrade("install", apart_first)
        before = processes(apart_first)
        for one in before:
            one.start()
        group = {"apiVersion": MUSTER, "kind": "PodGroup", "metadata": {"name": "g"}, "spec": {"minMember": size}}
        cluster.rest.create(f"/apis/{MUSTER}/namespaces/default/podgroups", group)
        meta = {"labels": {"scheduling.muster.sh/pod-group": "g"}}
        container = {"name": "c", "image": "x", "resources": {"requests": {"cpu": "10m"}}}
        spec = {"schedulerName": "switch", "containers": [container]}
        for number in range(size):
            cluster.rest.create(work, {"metadata": {"name": f"g-{number}", **meta}, "spec": spec})
        assert until(lambda: bound() > 10)
        upgrade("upgrade", not apart_first)
        for one in before:
            one.stop()
        half = bound()
        assert 10 < half < size, "the upgrade came in the middle of it"
        pods = {pod["metadata"]["uid"] for pod in cluster.rest.list(work)}
        after = processes(not apart_first)
        for one in after:
            one.launch()
        assert until(lambda: bound() == size), "\n".join(one.tail(3000) for one in [*before, *after])
        assert {pod["metadata"]["uid"] for pod in cluster.rest.list(work)} == pods, "nobody was deleted for it"
