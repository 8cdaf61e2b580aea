"""`muster simulate` against an API server where no scheduler runs: what it prints, word for word."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from click.testing import Result
from typer.testing import CliRunner

from scheduler.cli.main import app
from scheduler.cli.simulate import clones
from scheduler.model.nodes import Node, Taint
from scheduler.playground.server import PlaygroundServer, ThreadedServer
from tests.controlplane import nodes
from tests.controlplane.crds import apply_crds
from tests.controlplane.rest import Rest

CRDS = Path(__file__).parents[3] / "config" / "crd"
GPU = "example.com/gpu"
POD = """
---
apiVersion: v1
kind: Pod
metadata: {{name: {name}, labels: {{scheduling.muster.sh/pod-group: {gang}}}}}
spec:
  schedulerName: muster
  priority: {priority}
  containers: [{{name: c, image: x, resources: {{limits: {{example.com/gpu: {gpu}}}}}}}]
"""


def gang(name: str, members: int, *, topology: str = "{}", gpu: int = 1, priority: int = 0) -> str:
    head = f"""
apiVersion: scheduling.muster.sh/v1alpha1
kind: PodGroup
metadata: {{name: {name}}}
spec: {{minMember: {members}, topology: {topology}}}
"""
    pods = (POD.format(name=f"{name}-{i}", gang=name, gpu=gpu, priority=priority) for i in range(members))
    return head + "".join(pods)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Two racks of two nodes with two GPUs each in one block; one pod of low priority runs in each rack."""
    directory = tmp_path_factory.mktemp("simulate")
    with ThreadedServer(PlaygroundServer()) as server:
        kubeconfig = server.write_kubeconfig(directory / "kubeconfig")
        rest = Rest(server.url, token="")
        apply_crds(rest, CRDS)
        spec = {"levels": [{"name": "block", "label": "block"}, {"name": "rack", "label": "rack"}]}
        rest.create("/apis/scheduling.muster.sh/v1alpha1/topologies", {"metadata": {"name": "fabric"}, "spec": spec})
        for rack in range(2):
            for number in range(2):
                made = nodes.node_object(f"r{rack}-{number}", {"cpu": 8, GPU: 2})
                made["metadata"]["labels"] |= {"rack": f"r{rack}", "block": "b0"}
                nodes.register_node(rest, made)
            pod = {
                "nodeName": f"r{rack}-0",
                "schedulerName": "muster",
                "containers": [{"name": "c", "image": "x", "resources": {"limits": {GPU: "1"}}}],
            }
            rest.create("/api/v1/namespaces/default/pods", {"metadata": {"name": f"low-{rack}"}, "spec": pod})
            status = {"status": {"phase": "Running", "startTime": "2020-01-01T00:00:00Z"}}
            rest.patch(f"/api/v1/namespaces/default/pods/low-{rack}/status", status)
        yield kubeconfig


def run(kubeconfig: Path, tmp_path: Path, text: str, *arguments: str) -> Result:
    file = tmp_path / "gang.yaml"
    file.write_text(text)
    return CliRunner().invoke(app, ["simulate", "-f", str(file), "--kubeconfig", str(kubeconfig), *arguments])


def test_a_gang_that_runs_is_told_where(cluster: Path, tmp_path: Path) -> None:
    told = run(cluster, tmp_path, gang("g", 3, topology="{name: fabric, required: rack}"))
    assert told.exit_code == 0, told.output
    assert (
        told.stdout
        == """\
group default/g (queue default) would run: 3 pods on 2 nodes in rack r0
  r0-0: 1
  r0-1: 2
"""
    )


def test_what_is_there_already_is_told(cluster: Path, tmp_path: Path) -> None:
    told = run(cluster, tmp_path, gang("low", 1))
    said = "Pod default/low-0 is there already; what is in the files is simulated beside it\n"
    assert (told.exit_code, told.stderr) == (0, said)
    assert run(cluster, tmp_path, gang("high", 1)).stderr == ""


def test_a_gang_that_waits_is_told_what_would_help(cluster: Path, tmp_path: Path) -> None:
    told = run(cluster, tmp_path, gang("g", 4, topology="{name: fabric, required: rack}"))
    assert told.exit_code == 0, told.output
    assert (
        told.stdout
        == """\
group default/g (queue default) would wait
  Topology: needs 4 example.com/gpu for 4 members in one rack; best rack r0 has 3, 1 short; 3 of 4 members would fit \
in r0, 3 in r1
  would fit if rack were block
  would fit with 3 instead of 4 members
  would fit without its rule about domains
  would fit without example.com/gpu
"""
    )


def test_the_rule_that_keeps_sub_groups_apart_is_named(cluster: Path, tmp_path: Path) -> None:
    parts = "".join(f"{{name: p{number}, minMember: 1}}, " for number in range(3))
    head = f"""
apiVersion: scheduling.muster.sh/v1alpha1
kind: PodGroup
metadata: {{name: g}}
spec: {{topology: {{apart: [{{level: rack}}]}}, subGroups: [{parts}]}}
"""
    pods = (
        POD.format(name=f"g-{one}", gang=f"g, scheduling.muster.sh/subgroup: p{one}", gpu=1, priority=0)
        for one in range(3)
    )
    told = run(cluster, tmp_path, head + "".join(pods))
    assert told.exit_code == 0, told.output
    helps = [line for line in told.stdout.splitlines() if line.startswith("  would fit without")]
    assert helps == ["  would fit without apart"]


def test_who_would_be_evicted_is_named(cluster: Path, tmp_path: Path) -> None:
    told = run(cluster, tmp_path, gang("g", 4, topology="{name: fabric, required: rack}", priority=100), "-o", "json")
    assert told.exit_code == 0, told.output
    (facts,) = json.loads(told.stdout)
    assert (facts["runs"], facts["pods"]) == (True, 4)
    assert facts["evicts"] in (["default/low-0"], ["default/low-1"])


def test_nodes_like_one_that_is_not_to_be_used_can_be_used() -> None:
    down = tuple(Taint(f"node.kubernetes.io/{why}") for why in ("not-ready", "unreachable", "unschedulable"))
    like = Node("n", taints=(Taint("nvidia.com/gpu"), *down), unschedulable=True, deleting=True)
    (made,) = clones(like, 1)
    assert (made.taints, made.unschedulable, made.deleting) == ((Taint("nvidia.com/gpu"),), False, False)


def test_nodes_that_are_not_there_yet_are_counted(cluster: Path, tmp_path: Path) -> None:
    asked = gang("g", 5, topology="{name: fabric, required: rack}")
    told = run(cluster, tmp_path, asked, "--nodes", "1", "--template", "r1-1")
    assert told.exit_code == 0, told.output
    assert told.stdout.startswith("group default/g (queue default) would run: 5 pods on 3 nodes in rack r1")
    assert "  r1-1-simulated-0: 2" in told.stdout.splitlines()


def test_a_job_is_simulated_with_the_pods_that_it_would_make(cluster: Path, tmp_path: Path) -> None:
    job = """
apiVersion: batch/v1
kind: Job
metadata:
  name: train
  annotations: {scheduling.muster.sh/min-member: "2", scheduling.muster.sh/topology-required: rack}
spec:
  parallelism: 2
  template:
    spec: {schedulerName: muster, containers: [{name: c, image: x, resources: {limits: {example.com/gpu: 1}}}]}
"""
    told = run(cluster, tmp_path, job)
    assert told.exit_code == 0, told.output
    assert "would run: 2 pods on" in told.stdout


POD_SPEC = "spec: {schedulerName: muster, containers: [{name: c, image: x, resources: {limits: {example.com/gpu: 1}}}]}"
JOBSET = f"""
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {{name: js, annotations: {{alpha.jobset.sigs.k8s.io/exclusive-topology: rack}}}}
spec:
  replicatedJobs:
  - {{name: w, replicas: 2, template: {{spec: {{parallelism: 2, template: {{{POD_SPEC}}}}}}}}}
  - {{name: report, dependsOn: [{{name: w, status: Complete}}], template: {{spec: {{template: {{{POD_SPEC}}}}}}}}}
"""
RAY = f"""
apiVersion: ray.io/v1
kind: RayJob
metadata: {{name: tune}}
spec:
  rayClusterSpec:
    headGroupSpec: {{template: {{spec: {{containers: [{{name: h, image: x}}]}}}}}}
    workerGroupSpecs: [{{groupName: gpu, replicas: 7, template: {{{POD_SPEC}}}}}]
"""


def test_a_job_set_is_simulated_with_the_pods_that_its_operator_would_make(cluster: Path, tmp_path: Path) -> None:
    told = run(cluster, tmp_path, JOBSET)
    assert (told.exit_code, told.stderr) == (0, "not looked at: JobSet js: set report, which starts after others\n")
    assert told.stdout.startswith("group default/js (queue default) would run: 4 pods on ")
    assert "rack r0, r1" in told.stdout, "each Job has a rack of its own"


def test_the_cluster_of_a_ray_job_waits_whole(cluster: Path, tmp_path: Path) -> None:
    told = run(cluster, tmp_path, RAY)
    assert told.exit_code == 0, told.output
    assert told.stdout.startswith(
        "group default/tune (queue default) would wait\n  Resources: needs 7 example.com/gpu for "
    )
    assert told.stderr.splitlines() == [
        "not looked at: RayCluster tune: its submitter, a pod by itself that comes when the cluster is up",
        "1 pod with schedulerName default-scheduler: simulated as if it were muster",
    ]


def test_where_grouping_by_owner_is_off_the_pods_are_no_gang(cluster: Path, tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(
        "{apiVersion: config.muster.sh/v1alpha1, kind: SchedulerConfiguration, grouping: {enabled: false}}"
    )
    told = run(cluster, tmp_path, RAY, "--config", str(config))
    assert told.exit_code == 0, told.output
    assert sum(line.startswith("pod default/tune-") for line in told.stdout.splitlines()) == 8
    assert "would run" in told.stdout
    assert "would wait" in told.stdout


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "{kind: TrainJob, apiVersion: trainer.kubeflow.org/v1, metadata: {name: t}, spec: {runtimeRef: {name: r}}}",
            "TrainJob t: its pods are those of its runtime r; look at the JobSet that it makes instead",
        ),
        (
            RAY.replace("replicas: 7", "replicas: x"),
            "RayCluster tune: spec.rayClusterSpec.workerGroupSpecs[0].replicas: ",
        ),
        ("kind: Secret\napiVersion: v1\nmetadata: {name: s}\nspec: {}", "Secret s (v1): neither a group"),
        ("just words", "a document is not an object with a kind"),
        ("apiVersion: v1\nkind: Pod\nmetadata: {name: p}", "Pod p: has no spec"),
        (gang("g", 1).partition("---")[0], "no gang with pods and no pod"),
    ],
)
def test_what_cannot_be_simulated_is_said(cluster: Path, tmp_path: Path, text: str, says: str) -> None:
    told = run(cluster, tmp_path, text)
    assert (told.exit_code, told.stdout) == (2, "")
    assert says in told.stderr


def test_a_template_that_is_not_there_is_said(cluster: Path, tmp_path: Path) -> None:
    told = run(cluster, tmp_path, gang("g", 1), "--nodes", "1", "--template", "nowhere")
    assert told.exit_code == 3
    assert "there is no node 'nowhere'" in told.stderr
    assert run(cluster, tmp_path, gang("g", 1), "--nodes", "1").exit_code == 2


def test_nothing_is_created(cluster: Path, tmp_path: Path) -> None:
    run(cluster, tmp_path, gang("g", 3))
    rest = Rest(yaml.safe_load(cluster.read_text())["clusters"][0]["cluster"]["server"], token="")
    assert sorted(pod["metadata"]["name"] for pod in rest.list("/api/v1/namespaces/default/pods")) == ["low-0", "low-1"]


def test_the_sample_with_sub_groups_would_run_each_part_on_one_node(cluster: Path, tmp_path: Path) -> None:
    sample = (CRDS.parent / "samples" / "muster-sub-groups.yaml").read_text()
    told = run(cluster, tmp_path, sample, "-o", "json")
    assert told.exit_code == 0, told.output
    (facts,) = json.loads(told.stdout)
    assert (facts["group"], facts["runs"], facts["pods"]) == ("default/serving", True, 4)
    assert [row["pods"] for row in facts["nodes"]] == [2, 2]
