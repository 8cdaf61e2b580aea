"""`muster lint`: what it finds in manifests, offline and beside a cluster, and that good ones have nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from scheduler.cli.main import app
from scheduler.playground.server import ThreadedServer
from tests.unit.cli.cluster import TESTDATA, agrees, filled, muster

SAMPLES = sorted((Path(__file__).parents[3] / "config" / "samples").glob("*.yaml"))
DIALECTS = sorted((Path(__file__).parents[2] / "dialects" / "testdata").glob("*/*.input.yaml"))
BAD = TESTDATA / "lint-bad.yaml"


@pytest.fixture
def runner() -> CliRunner:
    return CliRunner(env={"KUBECONFIG": "/nonexistent"})


@pytest.fixture(scope="module")
def server() -> Iterator[ThreadedServer]:
    with filled() as running:
        yield running


@pytest.fixture
def beside(server: ThreadedServer, tmp_path: Path) -> CliRunner:
    return CliRunner(env={"KUBECONFIG": str(server.write_kubeconfig(tmp_path / "kubeconfig"))})


def found(runner: CliRunner, text: str, *words: str, exits: int = 0) -> list[str]:
    (told,) = json.loads(muster(runner, "lint", "-f", "-", "-o", "json", *words, exits=exits, input=text).stdout)
    return [f"{one['level']}: {one['object']}: {one['field']}: {one['message']}" for one in told["findings"]]


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: path.name)
def test_the_samples_have_no_error(runner: CliRunner, sample: Path) -> None:
    result = muster(runner, "lint", "-f", str(sample))
    assert "error" not in result.stdout


@pytest.mark.parametrize("manifest", DIALECTS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_what_operators_write_can_be_looked_at(runner: CliRunner, manifest: Path) -> None:
    """Bare groups and broken ones alike: an answer, never an accident."""
    result = runner.invoke(app, ["lint", "-f", str(manifest)])
    assert result.exit_code in (0, 1), result.exception
    assert "Traceback" not in result.output


def test_everything_that_is_wrong_is_found_at_once(runner: CliRunner) -> None:
    result = muster(runner, "lint", "-f", str(BAD), exits=1)
    agrees("lint-bad.txt", result.stdout, ages=False)
    assert "not looked at: ConfigMap settings" in result.stderr


def test_warnings_alone_are_no_error_unless_that_is_asked_for(runner: CliRunner) -> None:
    text = yaml.safe_dump(
        {"apiVersion": "scheduling.muster.sh/v1alpha1", "kind": "PodGroup", "metadata": {"name": "a"}, "spec": {}}
    )
    assert found(runner, text) == ["warning: gang default/a: : no pod of these files names it; it starts with 1"]
    muster(runner, "lint", "-f", "-", "--strict", exits=1, input=text)


def test_the_cluster_is_asked_where_that_is_wanted(runner: CliRunner, beside: CliRunner) -> None:
    group = {
        "apiVersion": "scheduling.muster.sh/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": "a", "namespace": "ml"},
    }
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "a-0", "namespace": "ml", "labels": {"scheduling.muster.sh/pod-group": "a"}},
        "spec": {"schedulerName": "muster", "priorityClassName": "hihg", "containers": [{"name": "c", "image": "x"}]},
    }
    text = yaml.safe_dump_all([group | {"spec": {"minMember": 1, "queue": "reserch"}}, pod])
    assert found(runner, text) == []
    said = found(beside, text, "--cluster", exits=1)
    assert any("there is no PriorityClass hihg" in one for one in said)
    pod["spec"] |= {"priorityClassName": "high"}  # type: ignore[operator]
    text = yaml.safe_dump_all([group | {"spec": {"minMember": 1, "queue": "reserch"}}, pod])
    (said_of_queue,) = found(beside, text, "--cluster", exits=1)
    assert "QueueNotFound" in said_of_queue
    text = yaml.safe_dump_all([group | {"spec": {"minMember": 1, "topology": {"required": "rak"}}}, pod])
    (said_of_level,) = found(beside, text, "--cluster", exits=1)
    assert "rak" in said_of_level


@pytest.mark.parametrize("words", [("lint", "--cluster"), ("simulate",)])
def test_classes_that_may_not_be_read_are_not_said_to_be_missing(
    server: ThreadedServer, beside: CliRunner, words: tuple[str, ...]
) -> None:
    spec = template("muster") | {"spec": {**template("muster")["spec"], "priorityClassName": "high"}}  # type: ignore[dict-item]
    text = workload("batch/v1", "Job", template=spec)
    fault = server.call(lambda: server.server.faults.fail("/priorityclasses", 403, count=-1))
    try:
        said = muster(beside, *words, "-f", "-", input=text)
    finally:
        server.call(lambda: server.server.faults.remove(fault))
    assert "priorities of groups are not looked at: 403" in said.stderr
    assert "PriorityClass" not in said.stdout


def test_files_that_cannot_be_read_are_told(runner: CliRunner, tmp_path: Path) -> None:
    broken = tmp_path / "broken.yaml"
    broken.write_text("a: [")
    assert str(broken) in muster(runner, "lint", "-f", str(broken), exits=2).stderr
    assert "No such file" in muster(runner, "lint", "-f", str(tmp_path / "none.yaml"), exits=2).stderr


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "there is no object in these files"),
        ("---\n---\n", "there is no object in these files"),
        (
            "{apiVersion: v1, kind: List, items: [null]}",
            "-: items[0]: a document is not an object with a kind, it is None",
        ),
        (
            "{apiVersion: v1, kind: List, items: [{kind: List, items: 3}]}",
            "-: items[0]: items of a List must be a list",
        ),
    ],
)
def test_what_holds_no_object_is_no_success(runner: CliRunner, text: str, said: str) -> None:
    done = runner.invoke(app, ["lint", "-f", "-"], input=text)
    assert done.exit_code == 2
    assert said in done.stderr


def workload(version: str, kind: str, **spec: object) -> str:
    return yaml.safe_dump({"apiVersion": version, "kind": kind, "metadata": {"name": "x"}, "spec": spec})


def template(scheduler: str = "", **labels: str) -> dict[str, object]:
    named = {"schedulerName": scheduler} if scheduler else {}
    return {"metadata": {"labels": labels}, "spec": {**named, "containers": [{"name": "c", "image": "x"}]}}


def test_a_priority_class_that_is_no_name_is_told(runner: CliRunner) -> None:
    spec = {"template": {"spec": {"priorityClassName": ["high"], "containers": [{"name": "c", "image": "x"}]}}}
    assert found(runner, workload("batch/v1", "Job", **spec), exits=1) == [
        "error: Job x: : Pod x-0: spec.priorityClassName must be a string"
    ]


def told(runner: CliRunner, text: str, exits: int = 0) -> str:
    return muster(runner, "lint", "-f", "-", exits=exits, input=text).output


def test_pods_of_an_operator_are_the_gang_of_their_owner(runner: CliRunner) -> None:
    roles = {"Master": {"template": template("muster")}, "Worker": {"replicas": 3, "template": template("muster")}}
    text = workload("kubeflow.org/v1", "PyTorchJob", pytorchReplicaSpecs=roles)
    said = told(runner, text)
    assert "gang default/x (pytorchjob): 4 pods, 4 start together, queue default, schedulerName muster" in said
    assert "0 errors, 0 warnings" in said


def test_a_job_of_volcano_is_the_gang_that_its_controllers_make(runner: CliRunner) -> None:
    tasks = [
        {"name": "ps", "replicas": 1, "template": template()},
        {"replicas": 3, "minAvailable": 2, "template": template()},
        {"name": "late", "replicas": 5, "dependsOn": {"name": ["ps"]}, "template": template()},
    ]
    said = told(runner, workload("batch.volcano.sh/v1alpha1", "Job", queue="ml", tasks=tasks))
    assert "gang default/x (volcano): 4 pods, 3 start together, queue ml, schedulerName volcano" in said
    assert "not looked at: Job x: task late, which starts after others" in said
    assert "error: " not in said
    few = workload("batch.volcano.sh/v1alpha1", "Job", minAvailable=2, schedulerName="muster", tasks=tasks[:1])
    assert "error: gang default/x: NotEnoughMembers: 1 of 2 members exists" in told(runner, few, exits=1)
    theirs = workload("batch.volcano.sh/v1alpha1", "Job", tasks=[{"replicas": 1, "template": template("other")}])
    assert "queue default, schedulerName other" in told(runner, theirs)


def test_what_is_wrong_with_the_pods_of_an_operator_is_found(runner: CliRunner) -> None:
    sets = [{"name": "w", "replicas": 2, "template": {"spec": {"template": template()}}}]
    [said] = found(runner, workload("jobset.x-k8s.io/v1alpha2", "JobSet", replicatedJobs=sets), exits=1)
    assert said.startswith("error: gang default/x: : spec.schedulerName of its pods is default-scheduler, which starts")
    groups = [
        {"groupName": "g", "replicas": 1, "template": template("volcano", **{"scheduling.x-k8s.io/pod-group": "g"})}
    ]
    head = {"template": template("muster")}
    text = workload("ray.io/v1", "RayCluster", headGroupSpec=head, workerGroupSpecs=groups)
    said_of_ray = found(runner, text, exits=1)
    assert "error: gang default/x: : NotEnoughMembers: 1 of 2 members exists" in said_of_ray
    assert any(one.startswith("warning: gang default/g: : PodGroupNotFound") for one in said_of_ray)
    text = workload("ray.io/v1", "RayCluster", headGroupSpec=head, workerGroupSpecs=[{"replicas": "many"}])
    said_of_field = found(runner, text, exits=1)
    assert 'error: RayCluster x: spec.workerGroupSpecs[0].replicas: must be an integer, not "many"' in said_of_field
    text = workload("ray.io/v2", "RayCluster", headGroupSpec=head)
    assert found(runner, text, exits=1) == [
        'error: RayCluster x: apiVersion: ray.io has no version v2; did you mean "v1"?'
    ]


def test_a_minimum_on_an_owner_counts_and_one_that_is_none_is_named(runner: CliRunner) -> None:
    roles = {"Worker": {"replicas": 3, "template": template("muster")}}
    body = yaml.safe_load(workload("kubeflow.org/v1", "PyTorchJob", pytorchReplicaSpecs=roles))
    body["metadata"]["annotations"] = {"scheduling.muster.sh/min-member": "2"}
    assert "gang default/x (pytorchjob): 3 pods, 2 start together" in told(runner, yaml.safe_dump(body))
    body["metadata"]["annotations"] = {"scheduling.muster.sh/min-member": "most"}
    [said] = found(runner, yaml.safe_dump(body), exits=1)
    assert said.startswith(
        "error: PyTorchJob x: metadata.annotations[scheduling.muster.sh/min-member]: must be an integer"
    )


def test_a_job_that_is_no_gang_is_told_and_one_that_cannot_be_read_is_an_error(runner: CliRunner) -> None:
    [said] = found(runner, workload("batch/v1", "Job", parallelism=4, template=template("muster")))
    assert said.startswith("warning: Job x: : its 4 pods name no group and start one by one")
    assert found(runner, workload("batch/v1", "Job", template=template("muster"))) == []
    [wrong] = found(runner, workload("batch/v1", "Job", parallelism="four", template=template("muster")), exits=1)
    assert wrong == 'error: Job x: spec.parallelism: must be an integer, not "four"'


def test_of_a_kind_that_is_not_known_the_templates_are_looked_at(runner: CliRunner) -> None:
    own = template("muster", **{"scheduling.muster.sh/pod-group": "g"})
    said = told(runner, workload("example.com/v1", "Training", chief={"template": own}))
    assert "gang default/g (muster): pods of a template, queue default, schedulerName muster" in said
    assert "not looked at: TrainJob x: its pods are those of its runtime torch" in told(
        runner, workload("trainer.kubeflow.org/v1alpha1", "TrainJob", runtimeRef={"name": "torch"})
    )
    assert "not looked at: Service x (v1): neither a group" in told(runner, workload("v1", "Service", ports=[]))
