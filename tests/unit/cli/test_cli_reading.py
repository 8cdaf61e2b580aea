"""`muster get` and `muster why` on an API server where no scheduler runs: what they tell stands in objects."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from click.testing import Result
from typer.testing import CliRunner

from scheduler.cli.main import app
from scheduler.playground.server import PlaygroundServer, ThreadedServer
from tests.controlplane import nodes
from tests.controlplane.crds import apply_crds
from tests.controlplane.rest import Json, Rest

CRDS = Path(__file__).parents[3] / "config" / "crd"
GPU = "example.com/gpu"
POD_GROUPS = "/apis/scheduling.volcano.sh/v1beta1/namespaces/default/podgroups"
WORDS = "0/2 nodes are available: 2 Insufficient example.com/gpu. Resources: needs 2 example.com/gpu for 2 members"


def _pod(
    rest: Rest, name: str, *, node: str = "", gang: str = "", owner: str = "", message: str = "", gated: bool = False
) -> None:
    meta: Json = {"name": name}
    if gang:
        meta["annotations"] = {"scheduling.k8s.io/group-name": gang}
    if owner:
        job = rest.get(f"/apis/batch/v1/namespaces/default/jobs/{owner}")
        reference = {"apiVersion": "batch/v1", "kind": "Job", "name": owner, "uid": job["metadata"]["uid"]}
        meta["ownerReferences"] = [{**reference, "controller": True}]
    spec: Json = {
        "schedulerName": "volcano",
        "containers": [{"name": "c", "image": "x", "resources": {"limits": {GPU: "1"}}}],
    }
    if node:
        spec["nodeName"] = node
    if gated:
        spec["schedulingGates"] = [{"name": "example.com/wait"}]
    rest.create("/api/v1/namespaces/default/pods", {"metadata": meta, "spec": spec})
    if message:
        reason = message.partition(":")[0] if not message.startswith("0/") else "Unschedulable"
        condition = {"type": "PodScheduled", "status": "False", "reason": reason, "message": message}
        rest.patch(f"/api/v1/namespaces/default/pods/{name}/status", {"status": {"conditions": [condition]}})


def _job(rest: Rest, name: str, **annotations: str) -> None:
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "x"}]}}
    meta = {"name": name, "annotations": annotations}
    rest.create("/apis/batch/v1/namespaces/default/jobs", {"metadata": meta, "spec": {"template": template}})


def _fill(rest: Rest) -> None:
    for name in ("n1", "n2"):
        nodes.register_node(rest, nodes.node_object(name, {"cpu": 8, GPU: 2}))
    _job(rest, "hog")
    _job(rest, "sweep", **{"scheduling.muster.sh/min-member": "2"})
    for number, node in enumerate(("n1", "n1", "n2")):
        _pod(rest, f"hog-{number}", node=node, owner="hog")
    rest.create(POD_GROUPS, {"metadata": {"name": "train"}, "spec": {"minMember": 2, "queue": "research"}})
    rest.create(POD_GROUPS, {"metadata": {"name": "wrong"}, "spec": {"minMember": -1}})
    for number in range(2):
        _pod(rest, f"train-{number}", gang="train", message=WORDS)
        _pod(rest, f"sweep-{number}", owner="sweep", message=WORDS)
    _pod(rest, "lost", gang="nowhere", message="PodGroupNotFound: PodGroup default/nowhere does not exist")
    _pod(rest, "held", gang="train", gated=True)
    _pod(rest, "unheard")
    queue = {"metadata": {"name": "research"}, "spec": {"weight": 3, "capability": {"cpu": "10"}}}
    rest.create("/apis/scheduling.volcano.sh/v1beta1/queues", queue)
    shares = {"resources": {"gpu": {"quota": 1, "limit": -1, "overQuotaWeight": 0.5}}}
    rest.create("/apis/scheduling.run.ai/v2/queues", {"metadata": {"name": "shared"}, "spec": shares})
    rest.create("/apis/scheduling.muster.sh/v1alpha1/queues", {"metadata": {"name": "nlp"}, "spec": {"parent": "up"}})
    status = {"entitlement": {GPU: "4"}, "allocated": {GPU: "6", "memory": "3Gi"}, "borrowed": {GPU: "2"}}
    ready = {"type": "Ready", "status": "False", "reason": "Misconfigured", "message": "there is no queue up"}
    body = {"status": {**status, "conditions": [ready]}}
    rest.patch("/apis/scheduling.muster.sh/v1alpha1/queues/nlp/status", body)
    rest.create("/api/v1/namespaces", {"metadata": {"name": "muster-system"}})


@pytest.fixture(scope="module")
def server() -> Iterator[ThreadedServer]:
    with ThreadedServer(PlaygroundServer()) as running:
        rest = Rest(running.url, token="")
        apply_crds(rest, CRDS)
        _fill(rest)
        yield running


@pytest.fixture(scope="module")
def kubeconfig(server: ThreadedServer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return server.write_kubeconfig(tmp_path_factory.mktemp("cli") / "kubeconfig")


@pytest.fixture
def muster(kubeconfig: Path) -> Iterator[CliRunner]:
    yield CliRunner(env={"KUBECONFIG": str(kubeconfig)})


def _run(muster: CliRunner, *words: str, exits: int = 0) -> Result:
    result = muster.invoke(app, list(words))
    assert result.exit_code == exits, (result.output, result.exception)
    return result


def _rows(muster: CliRunner, *words: str) -> dict[str, Json]:
    return {row["name"]: row for row in json.loads(_run(muster, *words, "-o", "json").stdout)}


def test_groups_are_listed_whatever_makes_them(muster: CliRunner) -> None:
    rows = _rows(muster, "get", "groups")
    assert sorted(rows) == ["nowhere", "sweep", "train", "wrong"]
    assert {name: row["dialect"] for name, row in rows.items()} == {
        "nowhere": "volcano", "sweep": "job", "train": "volcano", "wrong": "volcano",
    }  # fmt: skip
    train = rows["train"]
    assert (train["queue"], train["phase"], train["bound"], train["minimum"]) == ("research", "Pending", 0, 2)
    assert (train["members"], train["gated"], train["reason"]) == (3, 1, WORDS)


def test_a_gang_by_annotation_is_told_like_one_with_an_object(muster: CliRunner) -> None:
    row = _rows(muster, "get", "groups")["sweep"]
    assert (row["phase"], row["minimum"], row["members"], row["reason"]) == ("Pending", 2, 2, WORDS)


def test_a_group_whose_object_is_missing_says_so(muster: CliRunner) -> None:
    row = _rows(muster, "get", "groups")["nowhere"]
    assert (row["phase"], row["minimum"]) == ("Missing", None)
    assert row["reason"] == (
        "PodGroupNotFound: PodGroup.scheduling.volcano.sh default/nowhere does not exist; 1 member waits for it"
    )


def test_the_table_has_a_header_and_one_line_an_object(muster: CliRunner) -> None:
    lines = _run(muster, "get", "groups").stdout.splitlines()
    assert lines[0].split() == ["NAMESPACE", "NAME", "DIALECT", "QUEUE", "PHASE", "BOUND", "MINIMUM", "AGE", "REASON"]
    assert [line.split()[1] for line in lines[1:]] == ["nowhere", "sweep", "train", "wrong"]


def test_wide_shows_more_than_the_table(muster: CliRunner) -> None:
    assert "GATED" in _run(muster, "get", "groups", "-o", "wide").stdout.splitlines()[0].split()


def test_names_can_be_piped(muster: CliRunner) -> None:
    names = _run(muster, "get", "groups", "-o", "name").stdout.splitlines()
    assert names == ["default/nowhere", "default/sweep", "default/train", "default/wrong"]
    assert _run(muster, "get", "nodes", "-o", "name").stdout.split() == ["n1", "n2"]


def test_yaml_holds_what_json_holds(muster: CliRunner) -> None:
    rows = json.loads(_run(muster, "get", "nodes", "-o", "json").stdout)
    assert yaml.safe_load(_run(muster, "get", "nodes", "-o", "yaml").stdout) == rows


def test_one_object_can_be_asked_for(muster: CliRunner) -> None:
    assert list(_rows(muster, "get", "groups", "train")) == ["train"]
    missing = _run(muster, "get", "groups", "other", exits=3)
    assert missing.stdout == ""
    assert missing.stderr == "error: no group other in namespace default\n"


def test_nothing_found_is_said_on_stderr_and_is_no_error(muster: CliRunner) -> None:
    result = _run(muster, "get", "groups", "-n", "muster-system")
    assert (result.stdout, result.stderr) == ("", "no groups found in namespace muster-system\n")
    assert _run(muster, "get", "groups", "-n", "muster-system", "-o", "json").stdout == "[]\n"


def test_all_namespaces_hold_more_than_one(muster: CliRunner) -> None:
    assert len(_rows(muster, "get", "groups", "-A", "-n", "muster-system")) == 4


def test_nodes_tell_what_is_used_of_what(muster: CliRunner) -> None:
    rows = _rows(muster, "get", "nodes")
    assert rows["n1"]["used"] == {GPU: "2"}
    assert rows["n2"]["used"] == {GPU: "1"}
    assert rows["n2"]["allocatable"] == {"cpu": "8", GPU: "2"}
    assert (rows["n1"]["pods"], rows["n1"]["schedulable"]) == ("2/110", "yes")


def test_a_configuration_counts_where_it_says_something(muster: CliRunner, tmp_path: Path) -> None:
    assert "--config is for groups" in _run(muster, "get", "nodes", "--config", "x", exits=2).stderr
    assert "No such file" in _run(muster, "get", "groups", "--config", str(tmp_path / "none.yaml"), exits=2).stderr


def test_a_node_that_is_not_ready_is_not_schedulable(tmp_path: Path) -> None:
    with ThreadedServer(PlaygroundServer()) as server:
        rest = Rest(server.url, token="")
        for name in ("n1", "n2"):
            nodes.register_node(rest, nodes.node_object(name, {"cpu": 8}))
        rest.patch("/api/v1/nodes/n2/status", {"status": {"conditions": [{"type": "Ready", "status": "False"}]}})
        beside = CliRunner(env={"KUBECONFIG": str(server.write_kubeconfig(tmp_path / "kubeconfig"))})
        rows = _rows(beside, "get", "nodes")
    assert {name: row["schedulable"] for name, row in rows.items()} == {"n1": "yes", "n2": "no"}


def test_queues_tell_weight_and_limit(muster: CliRunner) -> None:
    row = _rows(muster, "get", "queues")["research"]
    assert (row["dialect"], row["weight"], row["limit"]) == ("volcano", 3, {"cpu": "10"})


def test_queues_tell_their_shares_and_what_is_wrong_with_them(muster: CliRunner) -> None:
    rows = _rows(muster, "get", "queues")
    shares = {name: rows["nlp"][name] for name in ("entitlement", "allocated", "borrowed")}
    assert shares == {"entitlement": {GPU: "4"}, "allocated": {GPU: "6", "memory": "3Gi"}, "borrowed": {GPU: "2"}}
    assert rows["nlp"]["problem"] == "Misconfigured: there is no queue up"
    assert rows["shared"]["weights"] == {"cpu": 0, "memory": 0, "nvidia.com/gpu": 0.5}
    assert rows["shared"]["limit"] == {"cpu": "0", "memory": "0", "nvidia.com/gpu": "unlimited"}
    assert (rows["shared"]["allocated"], rows["shared"]["problem"]) == ({}, "")


def test_why_of_a_gang_tells_reason_members_and_who_holds_what(muster: CliRunner) -> None:
    (told,) = json.loads(_run(muster, "why", "train", "-o", "json").stdout)
    assert told["reason"] == WORDS
    assert (told["bound"], told["minimum"], told["existing"], told["gated"]) == (0, 2, 3, 1)
    assert {one["pod"]: one["state"] for one in told["members"]} == {
        "held": "Gated", "train-0": "Pending", "train-1": "Pending",
    }  # fmt: skip
    (resource,) = told["resources"]
    assert (resource["resource"], resource["wanted"], resource["free"]) == (GPU, "2", "1")
    assert (resource["allocatable"], resource["nodes"], resource["excluded"]) == ("4", 2, {})
    assert resource["holders"] == [{"holder": "default/hog", "pods": 3, "amount": "3", "nodes": ["n1", "n2"]}]


def test_why_reads_well(muster: CliRunner) -> None:
    text = _run(muster, "why", "group/train").stdout
    assert "members  0 bound, 2 needed, 3 exist, 1 gated\n" in text
    assert f"reason   {WORDS}\n" in text
    assert f"{GPU}: 2 wanted, 1 of 4 free on the 2 nodes that may run it; held by\n" in text
    assert ["default/hog", "3", "3", "n1,", "n2"] in [line.split() for line in text.splitlines()]


def test_a_gang_without_an_owner_holds_as_one(muster: CliRunner, server: ThreadedServer) -> None:
    rest = Rest(server.url, token="")
    rest.create("/api/v1/namespaces", {"metadata": {"name": "cpus"}})
    groups = "/apis/scheduling.muster.sh/v1alpha1/namespaces/cpus/podgroups"
    pods = {"seg-0": "n1", "seg-1": "n1", "seg-2": "n2", "next-0": ""}
    for name in ("seg", "next"):
        rest.create(groups, {"metadata": {"name": name}, "spec": {"minMember": 1}})
    for name, node in pods.items():
        meta = {"name": name, "annotations": {"scheduling.muster.sh/pod-group": name.partition("-")[0]}}
        cpu = {"limits": {"cpu": "4" if node else "8"}}
        spec: Json = {"schedulerName": "muster", "containers": [{"name": "c", "image": "x", "resources": cpu}]}
        if node:
            spec["nodeName"] = node
        rest.create("/api/v1/namespaces/cpus/pods", {"metadata": meta, "spec": spec})
    try:
        (told,) = json.loads(_run(muster, "why", "group/next", "-o", "json", "--namespace", "cpus").stdout)
    finally:
        for name in pods:
            rest.delete(f"/api/v1/namespaces/cpus/pods/{name}", grace=0)
        for name in ("seg", "next"):
            rest.delete(f"{groups}/{name}")
    (resource,) = told["resources"]
    assert resource["holders"] == [{"holder": "cpus/seg", "pods": 3, "amount": "12", "nodes": ["n1", "n2"]}]


def test_why_of_a_pod_tells_its_gang(muster: CliRunner) -> None:
    (told,) = json.loads(_run(muster, "why", "pod/train-1", "-o", "json").stdout)
    assert (told["pod"], told["group"], told["reason"]) == ("default/train-1", "default/train", WORDS)


def test_why_tells_what_each_node_says_when_asked(muster: CliRunner) -> None:
    (told,) = json.loads(_run(muster, "why", "pod/train-1", "--nodes", "-o", "json").stdout)
    assert told["verdicts"] == [
        {"verdict": "Insufficient example.com/gpu", "count": 1, "nodes": ["n1"]},
        {"verdict": "fits", "count": 1, "nodes": ["n2"]},
    ]
    text = _run(muster, "why", "train", "--nodes").stdout
    assert "Insufficient example.com/gpu" in text.partition("VERDICT")[2]
    (told,) = json.loads(_run(muster, "why", "train", "-o", "json").stdout)
    assert "verdicts" not in told


def test_what_volumes_mean_for_each_node_is_told_where_they_may_be_read(
    muster: CliRunner, server: ThreadedServer
) -> None:
    rest = Rest(server.url, token="")
    rest.create("/api/v1/namespaces", {"metadata": {"name": "stored"}})
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, "volumeName": "v"}
    meta = {"name": "data", "annotations": {"pv.kubernetes.io/bind-completed": "yes"}}
    rest.create("/api/v1/namespaces/stored/persistentvolumeclaims", {"metadata": meta, "spec": claim})
    term = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["n2"]}]}
    volume = {
        "accessModes": ["ReadWriteOnce"],
        "capacity": {"storage": "1Gi"},
        "hostPath": {"path": "/v"},
        "claimRef": {"namespace": "stored", "name": "data"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
    }
    rest.create("/api/v1/persistentvolumes", {"metadata": {"name": "v"}, "spec": volume})
    spec = {
        "schedulerName": "volcano",
        "containers": [{"name": "c", "image": "x"}],
        "volumes": [{"name": "v0", "persistentVolumeClaim": {"claimName": "data"}}],
    }
    rest.create("/api/v1/namespaces/stored/pods", {"metadata": {"name": "p"}, "spec": spec})
    words = ("why", "pod/p", "--nodes", "-o", "json", "--namespace", "stored")
    affinity = "node(s) didn't match PersistentVolume's node affinity"
    (told,) = json.loads(_run(muster, *words).stdout)
    assert told["verdicts"] == [
        {"verdict": "fits", "count": 1, "nodes": ["n2"]},
        {"verdict": affinity, "count": 1, "nodes": ["n1"]},
    ]
    server.call(lambda: server.server.faults.fail("^/api/v1/persistentvolumes", 403, count=-1))
    try:
        result = _run(muster, *words)
    finally:
        server.call(server.server.faults.clear)
    assert "volumes are not looked at: " in result.stderr
    (told,) = json.loads(result.stdout)
    assert [row["verdict"] for row in told["verdicts"]] == ["fits"]


def test_why_of_a_pod_that_nobody_spoke_about_asks_for_its_scheduler(muster: CliRunner) -> None:
    assert "its scheduler is 'volcano': does one of that name run?" in _run(muster, "why", "unheard").stdout


def test_why_of_a_pod_that_runs_has_no_reason(muster: CliRunner) -> None:
    (told,) = json.loads(_run(muster, "why", "hog-0", "-o", "json").stdout)
    assert (told["node"], told["reason"]) == ("n1", "")


def test_why_of_a_group_that_is_wrong_names_the_field(muster: CliRunner) -> None:
    assert "problem  spec.minMember: " in _run(muster, "why", "wrong").stdout


@pytest.mark.parametrize("target", ["nothing", "pod/train", "group/train-0", "default/nothing", "pod/default/train"])
def test_why_of_what_does_not_exist_exits_3(muster: CliRunner, target: str) -> None:
    assert "namespace default has no " in _run(muster, "why", target, exits=3).stderr


def test_what_other_commands_print_of_a_gang_can_be_asked_about(muster: CliRunner) -> None:
    asked = _run(muster, "why", "train").stdout
    assert _run(muster, "why", "default/train").stdout == asked
    assert _run(muster, "why", "group/default/train", "-n", "default").stdout == asked
    for command in ("why", "prio", "suspend"):
        assert "namespace elsewhere has no " in _run(muster, command, "elsewhere/train", exits=3).stderr
        assert "--namespace says b" in _run(muster, command, "a/train", "-n", "b", exits=2).stderr


@pytest.mark.parametrize("target", ["node/n1", "a/b/c", "pod/", "", "/x"])
def test_why_of_something_else_is_wrong_usage(muster: CliRunner, target: str) -> None:
    assert "write NAME, NAMESPACE/NAME, pod/NAME or group/NAME" in _run(muster, "why", target, exits=2).stderr


@pytest.mark.parametrize(
    "words", [("get", "pods"), ("get", "groups", "-o", "xml"), ("why", "x", "-o", "name"), ("no",)]
)
def test_words_that_are_not_known_are_wrong_usage(muster: CliRunner, words: tuple[str, ...]) -> None:
    _run(muster, *words, exits=2)


def test_a_kubeconfig_that_is_missing_is_wrong_usage(muster: CliRunner, tmp_path: Path) -> None:
    missing = tmp_path / "none"
    result = _run(muster, "get", "nodes", "--kubeconfig", str(missing), exits=2)
    assert result.stderr.startswith("error: ")
    assert str(missing) in result.stderr


def test_a_context_that_is_missing_is_wrong_usage(muster: CliRunner) -> None:
    assert "elsewhere" in _run(muster, "get", "nodes", "--context", "elsewhere", exits=2).stderr


def test_a_server_that_does_not_answer_exits_4(muster: CliRunner, tmp_path: Path, kubeconfig: Path) -> None:
    config = yaml.safe_load(kubeconfig.read_text())
    config["clusters"][0]["cluster"]["server"] = "http://127.0.0.1:1"
    dead = tmp_path / "kubeconfig"
    dead.write_text(yaml.safe_dump(config))
    for words in (("get", "groups"), ("why", "train")):
        result = _run(muster, *words, "--kubeconfig", str(dead), exits=4)
        assert "127.0.0.1:1" in result.stderr
        assert result.stdout == ""


def test_a_refusal_is_an_error_and_not_an_empty_list(muster: CliRunner, server: ThreadedServer) -> None:
    server.call(lambda: server.server.faults.fail("^/api/v1/nodes", 403, count=-1))
    try:
        assert "403" in _run(muster, "get", "nodes", exits=1).stderr
        result = _run(muster, "why", "train")
        assert "who holds what is not shown: 403" in result.stderr
        assert "held by" not in result.stdout
    finally:
        server.call(server.server.faults.clear)


def test_pods_are_shown_in_the_group_that_was_made_for_an_owner_above_them(tmp_path: Path) -> None:
    kinds = Path(__file__).parents[2] / "scenarios" / "operators"
    with ThreadedServer(PlaygroundServer()) as server:
        rest = Rest(server.url, token="")
        apply_crds(rest, CRDS)
        apply_crds(rest, kinds)
        nodes.register_node(rest, nodes.node_object("n1", {"cpu": 8, GPU: 2}))
        sets = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/default/jobsets"
        above = rest.create(sets, {"metadata": {"name": "js"}, "spec": {}, "kind": "JobSet"})["metadata"]["uid"]
        _job(rest, "js-w-0")
        reference = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "js", "uid": above}
        owners = {"metadata": {"ownerReferences": [{**reference, "controller": True}]}}
        rest.patch("/apis/batch/v1/namespaces/default/jobs/js-w-0", owners)
        _job(rest, "plain")
        _pod(rest, "js-w-0-a", owner="js-w-0", message=WORDS)
        _pod(rest, "js-w-0-b", owner="js-w-0", message=WORDS)
        _pod(rest, "plain-a", owner="plain", node="n1")
        made = {"name": "js-1", "labels": {"scheduling.muster.sh/made-for": above}}
        groups = "/apis/scheduling.muster.sh/v1alpha1/namespaces/default/podgroups"
        rest.create(groups, {"metadata": made, "spec": {"minMember": 2}})
        kubeconfig = str(server.write_kubeconfig(tmp_path / "kubeconfig"))
        done = CliRunner().invoke(app, ["get", "groups", "--kubeconfig", kubeconfig, "-o", "json"])
        why = CliRunner().invoke(app, ["why", "pod/js-w-0-b", "--kubeconfig", kubeconfig])
    [group] = [one for one in json.loads(done.stdout) if one["name"] == "js-1"]
    assert group["members"] == 2
    assert "js-1" in why.stdout


def _above(rest: Rest, kind: str, api: str, plural: str, name: str, above: str = "", **spec: object) -> str:
    """Make an owner below another one; return what its own children name as their controller."""
    meta = {"name": name, **({"ownerReferences": [json.loads(above)]} if above else {})}
    prefix = "/apis" if "/" in api else "/api"
    made = rest.create(f"{prefix}/{api}/namespaces/default/{plural}", {"kind": kind, "metadata": meta, "spec": spec})
    reference = {"apiVersion": api, "kind": kind, "name": name, "uid": made["metadata"]["uid"], "controller": True}
    return json.dumps(reference)


def _below(rest: Rest, name: str, above: str, scheduler: str = "muster") -> None:
    container = {"name": "c", "image": "x", "resources": {"limits": {GPU: "1"}}}
    meta = {"name": name, "ownerReferences": [json.loads(above)]}
    spec = {"schedulerName": scheduler, "containers": [container]}
    rest.create("/api/v1/namespaces/default/pods", {"metadata": meta, "spec": spec})


JOBSET = ("JobSet", "jobset.x-k8s.io/v1alpha2", "jobsets")
RAY = ("RayCluster", "ray.io/v1", "rayclusters")


def test_gangs_of_owners_without_an_object_are_shown_through_what_stands_between(tmp_path: Path) -> None:
    """As the scheduler has them where it may make no PodGroup; pods of another scheduler are nobody's gang."""
    template = {"spec": {"containers": [{"name": "c", "image": "x"}], "restartPolicy": "Never"}}
    job = ("Job", "batch/v1", "jobs")
    with ThreadedServer(PlaygroundServer()) as server:
        rest = Rest(server.url, token="")
        apply_crds(rest, CRDS)
        apply_crds(rest, Path(__file__).parents[2] / "scenarios" / "operators")
        nodes.register_node(rest, nodes.node_object("n1", {"cpu": 8, GPU: 2}))
        replicas = {"replicas": 2, "template": {"spec": {"parallelism": 1}}}
        js = _above(rest, *JOBSET, "js", replicatedJobs=[{"name": "w", **replicas}])
        for number in range(2):
            _below(rest, f"js-w-{number}-x", _above(rest, *job, f"js-w-{number}", js, template=template))
        ray_job = _above(rest, "RayJob", "ray.io/v1", "rayjobs", "tune")
        tune = _above(rest, *RAY, "tune", ray_job, workerGroupSpecs=[{"groupName": "g", "replicas": 2}])
        _below(rest, "tune-head", tune)
        _below(rest, "other", _above(rest, *RAY, "other", workerGroupSpecs=[{"replicas": 1}]), "default-scheduler")
        _below(rest, "plain-x", _above(rest, *job, "plain", template=template))
        absent = {"apiVersion": "leaderworkerset.x-k8s.io/v9", "kind": "LeaderWorkerSet", "name": "l", "uid": "l"}
        _below(rest, "of-a-kind-that-is-not-served", json.dumps({**absent, "controller": True}))
        kubeconfig = str(server.write_kubeconfig(tmp_path / "kubeconfig"))
        runner = CliRunner(env={"KUBECONFIG": kubeconfig})
        shown = runner.invoke(app, ["get", "groups", "-o", "json"])
        groups = json.loads(shown.stdout)
        waiting = json.loads(runner.invoke(app, ["queue", "-o", "json"]).stdout)
        why = runner.invoke(app, ["why", "js"]).stdout
        off = tmp_path / "off.yaml"
        head = "apiVersion: config.muster.sh/v1alpha1\nkind: SchedulerConfiguration\n"
        off.write_text(head + "grouping: {enabled: false}\n")
        loose = json.loads(runner.invoke(app, ["queue", "-o", "json", "--config", str(off)]).stdout)
        none = json.loads(runner.invoke(app, ["get", "groups", "-o", "json", "--config", str(off)]).stdout)
        server.call(lambda: server.server.faults.fail("/rayclusters", 403, count=-1))
        refused = runner.invoke(app, ["get", "groups", "-o", "json"])
    assert [(one["name"], one["dialect"], one["minimum"], one["members"]) for one in groups] == [
        ("js", "jobset", 2, 2),
        ("tune", "raycluster", 3, 1),
    ]
    assert shown.stderr == ""
    assert "1 of 3 members exists" in groups[1]["reason"] or groups[1]["reason"] == ""
    assert {one["name"] for one in waiting} >= {"js", "tune"}
    assert "js (jobset)" in why
    assert {one["name"] for one in loose} >= {"js-w-0-x", "js-w-1-x", "tune-head"}
    assert none == []
    assert [one["name"] for one in json.loads(refused.stdout)] == ["js"]
    assert "gangs of rayclusters.ray.io for which no PodGroup was made are not shown: 403" in refused.stderr
