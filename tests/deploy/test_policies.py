"""The policies of config/policies on a real API server: who may name a queue or a priority class, and who gets whom."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import fields

from scheduler.dialects import membership
from scheduler.dialects.membership import NO_KEYS, Keys
from tests.controlplane.cluster import ControlPlane
from tests.controlplane.rest import ApiError, Rest

Json = dict[str, Any]
ROOT = Path(__file__).parents[2]
POLICIES = ROOT / "config" / "policies"
TEAM = "policy-team"
pytestmark = [pytest.mark.real, pytest.mark.xdist_group("policies")]
SETUP = f"""
apiVersion: v1
kind: Namespace
metadata: {{name: {TEAM}, labels: {{scheduling.muster.sh/schedule: muster}}}}
---
apiVersion: v1
kind: Namespace
metadata: {{name: {TEAM}-plain}}
---
apiVersion: v1
kind: ServiceAccount
metadata: {{name: ana, namespace: {TEAM}}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {{name: policy-team}}
rules:
- apiGroups: ["", batch, apps, scheduling.muster.sh, scheduling.volcano.sh, scheduling.run.ai, scheduling.x-k8s.io]
  resources: [pods, replicationcontrollers, namespaces, jobs, cronjobs, deployments, replicasets, statefulsets,
    daemonsets, podgroups]
  verbs: ["*"]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {{name: policy-team}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: policy-team}}
subjects: [{{kind: ServiceAccount, name: ana, namespace: {TEAM}}}]
"""


def as_documented() -> str:
    """What docs/security.md gives a team, given to this one."""
    text = (ROOT / "docs" / "security.md").read_text()
    (block,) = [block for block in re.findall(r"```yaml\n(.*?)```", text, re.S) if "verbs: [use]" in block]
    team = f"{{kind: ServiceAccount, name: ana, namespace: {TEAM}}}"
    block = block.replace("[research]", "[ours]").replace("[high]", "[plain]")
    return re.sub(r"subjects: \[.*\]", f"subjects: [{team}]", block)


def group(name: str, **spec: Any) -> Json:
    return {
        "apiVersion": "scheduling.muster.sh/v1alpha1", "kind": "PodGroup", "metadata": {"name": name},
        "spec": {"minMember": 1, **spec},
    }  # fmt: skip


def pod(name: str, labels: Json | None = None, **spec: Any) -> Json:
    return {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels or {}},
        "spec": {"containers": [{"name": "main", "image": "app:1"}], **spec},
    }  # fmt: skip


def job(name: str, queue: str) -> Json:
    template = {
        "metadata": {"labels": {"scheduling.muster.sh/queue": queue}},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "app:1"}]},
    }
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": {"template": template}}


GROUPS = "/apis/scheduling.muster.sh/v1alpha1/namespaces/policy-team/podgroups"
PODS = "/api/v1/namespaces/policy-team/pods"
JOBS = "/apis/batch/v1/namespaces/policy-team/jobs"
KEYS = [one for one in fields(Keys) if membership.queue(Keys(**{one.name: "q"}), Keys(**{one.name: "q"}))]
"""What the scheduler reads a queue from: these fields, as a label or as an annotation."""
READ = [
    (key.encode_name, where)
    for key in KEYS
    for where, said in (
        ("labels", membership.queue(Keys(**{key.name: "q"}), NO_KEYS)),
        ("annotations", membership.queue(NO_KEYS, Keys(**{key.name: "q"}))),
    )
    if said
]


def foreign_group(api: str, name: str, spec: Json, **metadata: Any) -> tuple[str, Json]:
    """Return a PodGroup of another API and the path to make it at."""
    body = {"apiVersion": api, "kind": "PodGroup", "metadata": {"name": name, **metadata}, "spec": spec}
    return f"/apis/{api}/namespaces/{TEAM}/podgroups", body


def marked(where: str, key: str, queue: str) -> dict[str, tuple[str, Json]]:
    """Return everything that pods are made from with the mark, by kind: what is marked, the path, the object."""
    plain: Json = {"labels": {"app": "x"}}
    marks: Json = {"labels": {"app": "x"}}
    marks.setdefault(where, {})[key] = queue
    spec = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "app:1"}]}
    forever = {**spec, "restartPolicy": "Always"}
    made: dict[str, tuple[str, Json]] = {}

    def add(title: str, path: str, kind: str, body: Json, own: Json) -> None:
        version = path.removeprefix("/apis/").removeprefix("/api/").split("/namespaces/")[0]
        made[title] = (path, {"apiVersion": version, "kind": kind, "metadata": {"name": "x", **own}, "spec": body})

    apps = f"/apis/apps/v1/namespaces/{TEAM}"
    selector = {"matchLabels": {"app": "x"}}
    add("pod", PODS, "Pod", spec, marks)
    add("job", JOBS, "Job", {"template": {"metadata": plain, "spec": spec}}, marks)
    add("template of a job", JOBS, "Job", {"template": {"metadata": marks, "spec": spec}}, plain)
    for title, own, inner in (("job of a cron job", marks, plain), ("template of a cron job", plain, marks)):
        job_template = {"metadata": own, "spec": {"template": {"metadata": inner, "spec": spec}}}
        body = {"schedule": "0 * * * *", "jobTemplate": job_template}
        add(title, JOBS.replace("jobs", "cronjobs"), "CronJob", body, plain)
    template = {"metadata": marks, "spec": forever}
    add("replication controller", PODS.replace("pods", "replicationcontrollers"), "ReplicationController",
        {"selector": {"app": "x"}, "template": template}, plain)  # fmt: skip
    for kind in ("Deployment", "ReplicaSet", "StatefulSet", "DaemonSet"):
        add(kind, f"{apps}/{kind.lower()}s", kind, {"selector": selector, "template": template}, plain)
    return made


@pytest.fixture(scope="module")
def ana(real_control_plane: ControlPlane) -> Iterator[Rest]:
    """A member of a team that may use queue `ours` and class `plain`; the policies hold."""
    cluster = real_control_plane
    cluster.kubectl("apply", "-f", "-", input=f"{SETUP}---\n{as_documented()}")
    cluster.kubectl("apply", "-f", str(POLICIES))
    rest = cluster.rest_as(cluster.service_account_token(TEAM, "ana"))
    until(lambda: refused(rest, GROUPS, group("probe", queue="theirs"), dryRun="All"))
    until(lambda: refused(rest, PODS, pod("probe", {"scheduling.muster.sh/queue": "theirs"}), dryRun="All"))
    until(lambda: refused(rest, JOBS, job("probe", "theirs"), dryRun="All"))
    until(lambda: rest.create(PODS, pod("probe"), dryRun="All")["spec"]["schedulerName"] == "muster")
    yield rest
    cluster.kubectl("delete", "-f", str(POLICIES))
    for name in (TEAM, f"{TEAM}-plain"):
        cluster.rest.delete(f"/api/v1/namespaces/{name}")


def until(what: Callable[[], Any]) -> None:
    """A policy holds a moment after it was made; so does the default service account."""
    deadline = time.monotonic() + 60
    while True:
        try:
            if what():
                return
        except ApiError as error:
            if time.monotonic() > deadline:
                raise
            assert error.status in (403, 404)
        assert time.monotonic() < deadline
        time.sleep(0.1)


def refused(rest: Rest, path: str, body: Json, **query: Any) -> str:
    """Return what the refusal says, "" where it is let in."""
    try:
        rest.create(path, body, **query)
    except ApiError as error:
        if "denied" not in str(error):
            raise
        return str(error)
    return ""


def test_a_group_names_only_queues_and_classes_that_its_author_may_use(ana: Rest):
    assert not refused(ana, GROUPS, group("a", queue="ours", priorityClassName="plain"))
    assert not refused(ana, GROUPS, group("b", queue="root/ours"))
    assert not refused(ana, GROUPS, group("c"))
    said = refused(ana, GROUPS, group("d", queue="root/theirs"))
    assert "spec.queue" in said
    assert "may not use queue theirs" in said
    assert "spec.priorityClassName" in refused(ana, GROUPS, group("e", priorityClassName="high"))
    with pytest.raises(ApiError, match="may not use queue theirs"):
        ana.patch(f"{GROUPS}/a", {"spec": {"queue": "theirs"}})
    with pytest.raises(ApiError, match="may not use priority class high"):
        ana.patch(f"{GROUPS}/c", {"spec": {"priorityClassName": "high"}})
    ana.patch(f"{GROUPS}/a", {"spec": {"minMember": 2}})


def test_what_an_administrator_wrote_stays_editable(ana: Rest, real_control_plane: ControlPlane):
    real_control_plane.rest.create(GROUPS, group("given", queue="theirs", priorityClassName="high"))
    ana.patch(f"{GROUPS}/given", {"spec": {"minMember": 3}})


def test_pods_and_templates_name_only_queues_that_their_author_may_use(ana: Rest):
    assert not refused(ana, PODS, pod("a", {"scheduling.muster.sh/queue": "ours"}))
    assert "may not use queue theirs" in refused(ana, PODS, pod("b", {"scheduling.muster.sh/queue": "theirs"}))
    with pytest.raises(ApiError, match="may not use queue theirs"):
        ana.patch(f"{PODS}/a", {"metadata": {"labels": {"scheduling.muster.sh/queue": "theirs"}}})
    assert not refused(ana, JOBS, job("a", "ours"))
    assert "may not use queue theirs" in refused(ana, JOBS, job("b", "theirs"))


def test_nobody_changes_the_queue_that_a_bound_pod_is_charged_to(ana: Rest, real_control_plane: ControlPlane):
    key = "scheduling.muster.sh/charged-to"
    assert not refused(ana, PODS, pod("runs"))
    binding = {
        "apiVersion": "v1", "kind": "Binding", "metadata": {"name": "runs", "annotations": {key: "ours"}},
        "target": {"apiVersion": "v1", "kind": "Node", "name": "n1"},
    }  # fmt: skip
    real_control_plane.rest.create(f"{PODS}/runs/binding", binding)
    for value in ("other", None):
        with pytest.raises(ApiError, match="charged-to"):
            ana.patch(f"{PODS}/runs", {"metadata": {"annotations": {key: value}}})
    ana.patch(f"{PODS}/runs", {"metadata": {"annotations": {"note": "mine"}}})
    assert ana.get(f"{PODS}/runs")["metadata"]["annotations"] == {key: "ours", "note": "mine"}


@pytest.mark.parametrize(("key", "where"), READ)
def test_no_name_takes_another_team_s_queue(ana: Rest, key: str, where: str):
    let_in = []
    for title, (path, body) in marked(where, key, "theirs").items():
        if "may not use queue theirs" not in refused(ana, path, body, dryRun="All"):
            let_in.append(title)
    assert not let_in
    for path, body in marked(where, key, "ours").values():
        assert not refused(ana, path, body, dryRun="All")
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "x", where: {key: "theirs"}}}
    assert "may not use queue theirs" in refused(ana, "/api/v1/namespaces", namespace, dryRun="All")


def test_a_slash_behind_a_queue_changes_nothing(ana: Rest):
    for queue in ("theirs/", "/theirs//", "ours/theirs/"):
        assert "may not use queue theirs" in refused(ana, GROUPS, group("slash", queue=queue), dryRun="All")
    assert not refused(ana, GROUPS, group("slash", queue="root/ours/"), dryRun="All")


def test_groups_of_other_dialects_name_only_what_their_author_may_use(ana: Rest):
    for api in ("scheduling.volcano.sh/v1beta1", "scheduling.run.ai/v2alpha2"):
        path, body = foreign_group(api, "a", {"minMember": 1, "queue": "theirs"})
        assert "may not use queue theirs" in refused(ana, path, body)
        path, body = foreign_group(api, "a", {"minMember": 1, "priorityClassName": "system-cluster-critical"})
        assert "may not use priority class system-cluster-critical" in refused(ana, path, body)
        path, body = foreign_group(api, "a", {"minMember": 1, "queue": "ours", "priorityClassName": "plain"})
        assert not refused(ana, path, body)
        with pytest.raises(ApiError, match="may not use queue theirs"):
            ana.patch(f"{path}/a", {"spec": {"queue": "theirs"}})
        assert not refused(ana, *foreign_group(api, "b", {"minMember": 1}))
    marks = {"scheduling.muster.sh/queue": "theirs"}
    for api in ("scheduling.run.ai/v2alpha2", "scheduling.x-k8s.io/v1alpha1"):
        for where in ("labels", "annotations"):
            path, body = foreign_group(api, "c", {"minMember": 1}, **{where: marks})
            assert "may not use queue theirs" in refused(ana, path, body)
    path, body = foreign_group("scheduling.run.ai/v2alpha2", "d", {}, labels={"kai.scheduler/queue": "theirs"})
    assert "may not use queue theirs" in refused(ana, path, body)


def test_the_job_controller_makes_the_pods_of_a_job_that_was_let_in(ana: Rest):
    assert not refused(ana, JOBS, job("made", "ours"))
    until(lambda: [one for one in ana.list(PODS) if one["metadata"]["name"].startswith("made-")])


def test_pods_of_a_labelled_namespace_are_muster_s_unless_they_say_otherwise(ana: Rest):
    def name_of(body: Json, namespace: str = TEAM) -> str:
        made = ana.create(f"/api/v1/namespaces/{namespace}/pods", body, dryRun="All")
        return str(made["spec"]["schedulerName"])

    assert name_of(pod("x")) == "muster"
    assert name_of(pod("x", schedulerName="default-scheduler")) == "muster"
    assert name_of(pod("x", schedulerName="volcano")) == "volcano"
    assert name_of(pod("x", nodeName="n1")) == "default-scheduler"
    until(lambda: name_of(pod("x"), f"{TEAM}-plain") == "default-scheduler")
