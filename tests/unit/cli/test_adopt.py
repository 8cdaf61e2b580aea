"""`muster adopt`: told first, done on demand, done once, taken back; nothing that exists is touched."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from scheduler.cli.main import app
from scheduler.playground.server import ThreadedServer
from tests.controlplane.rest import Json, Rest
from tests.unit.cli.cluster import agrees, filled, muster

NAMESPACE = "/api/v1/namespaces/team"


def _job(name: str, **annotations: str) -> Json:
    spec = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "x"}]}
    return {
        "metadata": {"name": name, "annotations": annotations},
        "spec": {"parallelism": 2, "template": {"spec": spec}},
    }


def _versions(rest: Rest) -> list[tuple[str, str]]:
    pods = rest.list(f"{NAMESPACE}/pods")
    return [(one["metadata"]["uid"], one["metadata"]["resourceVersion"]) for one in pods]


@pytest.fixture(scope="module")
def server() -> Iterator[ThreadedServer]:
    with filled() as running:
        rest = Rest(running.url, token="")
        rest.create("/api/v1/namespaces", {"metadata": {"name": "team"}})
        jobs, deployments = f"/apis/batch/v1{NAMESPACE[7:]}/jobs", f"/apis/apps/v1{NAMESPACE[7:]}/deployments"
        rest.create(jobs, _job("sweep"))
        rest.create(jobs, _job("gang", **{"scheduling.muster.sh/min-member": "2"}))
        template: Json = {
            "metadata": {"labels": {"app": "web"}},
            "spec": {
                "containers": [{"name": "c", "image": "x", "resources": {"claims": [{"name": "d"}]}}],
                "resourceClaims": [{"name": "d", "resourceClaimName": "d"}],
            },
        }
        spec = {"replicas": 3, "selector": {"matchLabels": {"app": "web"}}, "template": template}
        rest.create(deployments, {"metadata": {"name": "web"}, "spec": spec})
        for name, node in (("runs", "a1"), ("waits", "")):
            body: Json = {"containers": [{"name": "c", "image": "x"}], **({"nodeName": node} if node else {})}
            rest.create(f"{NAMESPACE}/pods", {"metadata": {"name": name}, "spec": body})
        yield running


@pytest.fixture
def runner(server: ThreadedServer, tmp_path_factory: pytest.TempPathFactory) -> CliRunner:
    kubeconfig = server.write_kubeconfig(tmp_path_factory.mktemp("cli") / "kubeconfig")
    return CliRunner(env={"KUBECONFIG": str(kubeconfig)})


def test_adopting_is_told_done_once_and_taken_back(runner: CliRunner, server: ThreadedServer) -> None:
    rest = Rest(server.url, token="")
    before = rest.get(NAMESPACE)["metadata"]
    pods = _versions(rest)
    result = muster(runner, "adopt", "team")
    agrees("adopt.txt", result.stdout, ages=False)
    assert result.stderr == "nothing was changed; --yes does it\n"
    assert rest.get(NAMESPACE)["metadata"] == before

    (told,) = json.loads(muster(runner, "adopt", "team", "--yes", "-o", "json").stdout)
    assert told["applied"] is True
    assert rest.get(NAMESPACE)["metadata"]["labels"]["scheduling.muster.sh/schedule"] == "muster"
    (again,) = json.loads(muster(runner, "adopt", "team", "--yes", "-o", "json").stdout)
    assert (again["steps"], again["applied"]) == ([], False)

    muster(runner, "adopt", "team", "--undo")
    assert rest.get(NAMESPACE)["metadata"]["labels"]["scheduling.muster.sh/schedule"] == "muster", "only told"
    muster(runner, "adopt", "team", "--undo", "--yes")
    assert "scheduling.muster.sh/schedule" not in rest.get(NAMESPACE)["metadata"]["labels"]
    assert pods == [
        (one["metadata"]["uid"], one["metadata"]["resourceVersion"]) for one in rest.list(f"{NAMESPACE}/pods")
    ]


def test_workloads_that_make_their_pods_later_or_through_others_are_told(
    runner: CliRunner, server: ThreadedServer
) -> None:
    rest = Rest(server.url, token="")
    rest.create("/api/v1/namespaces", {"metadata": {"name": "later"}})
    where = "namespaces/later"
    claims = {"resourceClaims": [{"name": "d", "resourceClaimName": "d"}]}
    night = _job("", **{"scheduling.muster.sh/min-member": "2"})
    night["spec"]["template"]["spec"] |= claims
    cron = {"schedule": "0 0 1 1 *", "jobTemplate": night}
    rest.create(f"/apis/batch/v1/{where}/cronjobs", {"metadata": {"name": "night"}, "spec": cron})
    day = {"schedule": "0 0 1 1 *", "jobTemplate": _job("")}
    rest.create(f"/apis/batch/v1/{where}/cronjobs", {"metadata": {"name": "day"}, "spec": day})
    wrong = {"schedule": "0 0 1 1 *", "jobTemplate": _job("", **{"scheduling.muster.sh/min-member": "some"})}
    rest.create(f"/apis/batch/v1/{where}/cronjobs", {"metadata": {"name": "wrong"}, "spec": wrong})
    named = _job("")
    named["spec"]["template"]["metadata"] = {"labels": {"scheduling.muster.sh/pod-group": "bert"}}
    rest.create(f"/apis/batch/v1/{where}/jobs", {**named, "metadata": {"name": "named"}})
    template: Json = {"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [{"name": "c", "image": "x"}]}}
    bare = {"replicas": 2, "selector": {"matchLabels": {"app": "x"}}, "template": template}
    rest.create(f"/apis/apps/v1/{where}/replicasets", {"metadata": {"name": "set"}, "spec": bare})
    old = bare | {"selector": {"app": "x"}}
    rest.create(f"/api/v1/{where}/replicationcontrollers", {"metadata": {"name": "old"}, "spec": old})
    told = json.loads(muster(runner, "adopt", "later", "-o", "json").stdout)[0]
    rows = {(one["kind"], one["name"]): (one["size"], one["becomes"]) for one in told["workloads"]}
    assert rows == {
        ("CronJob", "night"): ("2 each time", "gang of 2"),
        ("CronJob", "day"): (
            "2 each time",
            "pods one by one; a gang with annotation scheduling.muster.sh/min-member",
        ),
        ("CronJob", "wrong"): ("2 each time", "pods that wait: its minimum cannot be read"),
        ("Job", "named"): ("2", "members of gang bert"),
        ("ReplicaSet", "set"): ("2", "pods one by one"),
        ("ReplicationController", "old"): ("2", "pods one by one"),
    }
    assert [(one["object"], one["field"]) for one in told["unsupported"]] == [
        ("CronJob night", "spec.jobTemplate.spec.template.spec.resourceClaims"),
        ("CronJob wrong", "spec.jobTemplate.metadata.annotations[scheduling.muster.sh/min-member]"),
    ]


def test_a_label_that_somebody_else_wrote_is_left(runner: CliRunner, server: ThreadedServer) -> None:
    rest = Rest(server.url, token="")
    rest.create("/api/v1/namespaces", {"metadata": {"name": "held", "labels": {"scheduling.muster.sh/schedule": "no"}}})
    assert "which this command did not write" in muster(runner, "adopt", "held", "--undo", "--yes", exits=1).stderr
    assert rest.get("/api/v1/namespaces/held")["metadata"]["labels"]["scheduling.muster.sh/schedule"] == "no"


def test_a_namespace_that_does_not_exist_is_not_found(runner: CliRunner) -> None:
    assert "nowhere" in muster(runner, "adopt", "nowhere", exits=3).stderr


def test_namespaces_that_schedulers_need_are_not_adopted(runner: CliRunner, server: ThreadedServer) -> None:
    rest = Rest(server.url, token="")
    rest.create("/api/v1/namespaces", {"metadata": {"name": "gangs"}})
    labels = {"app.kubernetes.io/name": "muster"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "x"}]}}
    spec = {"replicas": 0, "selector": {"matchLabels": labels}, "template": template}
    rest.create(
        "/apis/apps/v1/namespaces/gangs/deployments", {"metadata": {"name": "m", "labels": labels}, "spec": spec}
    )
    for name, why in (("kube-system", "the cluster's own pods"), ("gangs", "Muster runs there")):
        result = runner.invoke(app, ["adopt", name, "--yes"])
        assert result.exit_code == 1
        assert f"namespace {name} is not adopted: {why}" in result.stderr
        assert "scheduling.muster.sh/schedule" not in (
            rest.get(f"/api/v1/namespaces/{name}")["metadata"].get("labels") or {}
        )


def test_a_label_that_was_there_comes_back(runner: CliRunner, server: ThreadedServer) -> None:
    rest, label = Rest(server.url, token=""), "scheduling.muster.sh/schedule"
    rest.create("/api/v1/namespaces", {"metadata": {"name": "other", "labels": {label: "foo"}}})
    (told,) = json.loads(muster(runner, "adopt", "other", "--yes", "-o", "json").stdout)
    assert any("instead of foo" in step for step in told["steps"])
    assert rest.get("/api/v1/namespaces/other")["metadata"]["labels"][label] == "muster"
    muster(runner, "adopt", "other", "--undo", "--yes")
    meta = rest.get("/api/v1/namespaces/other")["metadata"]
    assert meta["labels"][label] == "foo"
    assert not meta.get("annotations")


def test_a_configuration_that_does_not_serve_the_name_is_told(
    runner: CliRunner, server: ThreadedServer, tmp_path: Path
) -> None:
    file = tmp_path / "config.yaml"
    head = {"apiVersion": "config.muster.sh/v1alpha1", "kind": "SchedulerConfiguration"}
    file.write_text(json.dumps(head | {"schedulerNames": ["volcano"], "namespace": "gangs-2"}))
    (told,) = json.loads(muster(runner, "adopt", "team", "--config", str(file), "-o", "json").stdout)
    assert any("is not served (schedulerNames: volcano)" in one for one in told["notes"])
    file.write_text(json.dumps(head | {"namespace": "gangs-2", "leaderElection": {"name": "mine"}}))
    (told,) = json.loads(muster(runner, "adopt", "team", "--config", str(file), "-o", "json").stdout)
    assert any("there is no Lease gangs-2/mine" in one for one in told["notes"])
