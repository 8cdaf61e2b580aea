"""`muster share`, `muster prio` and what `muster why` says of queues, on an API server where no scheduler runs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from scheduler.cli.main import app
from scheduler.model.decisions import Decisions
from scheduler.playground.server import PlaygroundServer, ThreadedServer
from scheduler.sim import replay
from tests.controlplane import nodes
from tests.controlplane.crds import apply_crds
from tests.controlplane.rest import Json, Rest
from tests.unit.actions.test_making_room import Story, gpus

CRDS = Path(__file__).parents[3] / "config" / "crd"
GPU = "example.com/gpu"
MUSTER = "/apis/scheduling.muster.sh/v1alpha1"
RUNNING = "2020-01-01T00:00:00Z"


def _queue(rest: Rest, name: str, parent: str = "", half_life: str = "", **gpus: int) -> None:
    spec: Json = {"resources": {GPU: {key: str(value) for key, value in gpus.items()}}} if gpus else {}
    spec |= {"parent": parent} if parent else {}
    spec |= {"fairShare": {"halfLife": half_life}} if half_life else {}
    rest.create(f"{MUSTER}/queues", {"metadata": {"name": name}, "spec": spec})


def _gang(rest: Rest, name: str, queue: str, size: int, *, on: str = "", priority: str = "", **spec: object) -> None:
    body = {"metadata": {"name": name}, "spec": {"minMember": size, "queue": queue, **spec}}
    rest.create(f"{MUSTER}/namespaces/default/podgroups", body)
    for number in range(size):
        pod: Json = {
            "schedulerName": "muster",
            "containers": [{"name": "c", "image": "x", "resources": {"limits": {GPU: "1"}}}],
        }
        pod |= {"nodeName": on} if on else {}
        pod |= {"priorityClassName": priority} if priority else {}
        meta = {"name": f"{name}-{number}", "labels": {"scheduling.muster.sh/pod-group": name}}
        rest.create("/api/v1/namespaces/default/pods", {"metadata": meta, "spec": pod})
        if on:
            ready = {"type": "PodScheduled", "status": "True", "lastTransitionTime": RUNNING}
            status = {"status": {"phase": "Running", "startTime": RUNNING, "conditions": [ready]}}
            rest.patch(f"/api/v1/namespaces/default/pods/{name}-{number}/status", status)


def _fill(rest: Rest) -> None:
    nodes.register_node(rest, nodes.node_object("n1", {"cpu": 8, GPU: 8}))
    classes = "/apis/scheduling.k8s.io/v1/priorityclasses"
    rest.create(classes, {"metadata": {"name": "high"}, "value": 10})
    _queue(rest, "org")
    _queue(rest, "research", "org", "1h", deserved=4, limit=6)
    _queue(rest, "inference", "org", deserved=4, guarantee=1)
    _queue(rest, "lost", "nowhere")
    _gang(rest, "train", "research", 5, on="n1")
    _gang(rest, "serve", "inference", 2, on="n1")
    _gang(rest, "next", "research", 2, priority="high")
    _gang(rest, "later", "research", 1)
    _gang(rest, "more", "inference", 2)


@pytest.fixture(scope="module")
def server() -> Iterator[ThreadedServer]:
    with ThreadedServer(PlaygroundServer()) as running:
        rest = Rest(running.url, token="")
        apply_crds(rest, CRDS)
        _fill(rest)
        yield running


@pytest.fixture
def muster(server: ThreadedServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[CliRunner]:
    kubeconfig = server.write_kubeconfig(tmp_path_factory.mktemp("cli") / "kubeconfig")
    yield CliRunner(env={"KUBECONFIG": str(kubeconfig)})


def _run(muster: CliRunner, *words: str, exits: int = 0) -> Result:
    result = muster.invoke(app, list(words))
    assert result.exit_code == exits, (result.output, result.exception)
    return result


def _shares(muster: CliRunner, *words: str) -> dict[str, Json]:
    return {row["name"]: row for row in json.loads(_run(muster, "share", *words, "-o", "json").stdout)}


def test_share_tells_the_tree_with_what_each_queue_has(muster: CliRunner) -> None:
    rows = _shares(muster)
    assert list(rows) == ["root", "default", "org", "inference", "research", "lost"]
    research, inference = rows["research"]["resources"][GPU], rows["inference"]["resources"][GPU]
    kept = ("guarantee", "deserved", "limit", "used", "waiting", "entitled", "borrowed")
    assert [research[name] for name in kept] == ["0", "4", "6", "5", "3", "4", "1"]
    assert [inference[name] for name in kept] == ["1", "4", "unlimited", "2", "2", "4", "0"]
    assert rows["org"]["resources"][GPU]["deserved"] == "8"
    assert (research["decayed"], research["usedShare"]) == (0, 0.0)
    assert "factor" not in inference, "only research keeps an account"
    assert rows["lost"]["fault"] == "its parent nowhere does not exist"


def test_share_reads_as_a_tree(muster: CliRunner) -> None:
    result = _run(muster, "share")
    lines = result.stdout.splitlines()
    assert lines[0].split()[:4] == ["QUEUE", "RESOURCE", "GUARANTEE", "DESERVED"]
    assert [line.split()[0] for line in lines[1:]] == ["root", "default", "org", "inference", "research", "lost"]
    assert [len(line) - len(line.lstrip()) for line in lines[1:]] == [0, 2, 2, 4, 4, 0]
    assert "queue lost takes no part: its parent nowhere does not exist" in result.stderr


def test_share_of_one_queue_tells_what_is_below_it(muster: CliRunner) -> None:
    assert list(_shares(muster, "org")) == ["org", "inference", "research"]
    assert "there is no queue none" in _run(muster, "share", "none", exits=3).stderr


def test_prio_tells_place_and_factors(muster: CliRunner) -> None:
    (told,) = json.loads(_run(muster, "prio", "later", "-o", "json").stdout)
    assert (told["position"], told["inQueue"], told["positionInAll"], told["inAll"]) == (2, 2, 3, 3)
    assert told["ahead"] == ["default/next"]
    assert [one["group"] for one in told["before"]] == ["default/more", "default/next"]
    assert [(one["queue"], one["withinOwed"]) for one in told["levels"]] == [("org", True), ("research", False)]
    assert told["levels"][1]["over"] == {GPU: "2"}
    assert told["keys"][0]["means"] == "priority 0"


def test_prio_reads_well(muster: CliRunner) -> None:
    text = _run(muster, "prio", "later").stdout
    assert "position  2 of 2 in queue research, 3 of 3 in all\n" in text
    assert "ahead     default/more, default/next\n" in text
    assert "over by 2 example.com/gpu" in text


def test_prio_of_a_group_that_runs_says_that_it_takes_no_part(muster: CliRunner) -> None:
    assert "it takes no part: it has no members that wait" in _run(muster, "prio", "train").stdout
    _run(muster, "prio", "nobody", exits=3)


def _why(muster: CliRunner, name: str) -> Json:
    (told,) = json.loads(_run(muster, "why", name, "-o", "json").stdout)
    return dict(told)


def test_why_tells_what_the_next_session_would_do(muster: CliRunner) -> None:
    told = _why(muster, "more")
    assert told["order"] == "1 of 1 in queue inference, 1 of 3 in all"
    assert told["now"].startswith("the next session would place 2 pods of it, with 5 evicted before: default/train-0")
    assert "eviction" not in told


def test_why_tells_quota_turn_and_why_nobody_goes(muster: CliRunner) -> None:
    told = _why(muster, "next")
    assert told["now"] == f"WaitingForQuota: needs 2 {GPU}; queue research uses 5 of limit 6 (deserved 4)"
    assert told["order"] == "1 of 2 in queue research, 2 of 3 in all, behind default/more"
    assert told["eviction"] == [
        "preempt: goes already in queue research, for others before it: default/train",
        "reclaim: queue inference holds no more than it is owed: default/serve",
    ]
    text = _run(muster, "why", "next").stdout
    assert "Nobody is evicted for it:\n  preempt: goes already" in text


def test_why_of_a_group_that_runs_says_nothing_of_turns(muster: CliRunner) -> None:
    assert not {"now", "order", "eviction"} & set(_why(muster, "train"))


def test_a_saved_session_is_looked_at_without_a_cluster(tmp_path: Path) -> None:
    w = Story()
    w.node("n", gpu=4).queue("a", **gpus(deserved=3)).queue("b", **gpus(deserved=1))
    w.runs("train", ["n", "n"], queue="b")
    w.asks("next", 3, queue="a")
    snapshot = w.take()
    file = tmp_path / "saved.zip"
    file.write_bytes(replay.dump("s", w.config, snapshot, Decisions("s", 1)))
    nowhere = CliRunner(env={"KUBECONFIG": str(tmp_path / "none")})
    rows = {
        row["name"]: row for row in json.loads(_run(nowhere, "share", "--snapshot", str(file), "-o", "json").stdout)
    }
    assert (rows["b"]["resources"][GPU]["borrowed"], rows["a"]["resources"][GPU]["waiting"]) == ("1", "3")
    words = ("prio", "next", "-n", "ns", "--snapshot", str(file), "-o", "json")
    assert json.loads(_run(nowhere, *words).stdout)[0]["position"] == 1
    broken = tmp_path / "broken.zip"
    broken.write_bytes(b"no zip")
    assert "not a snapshot file" in _run(nowhere, "share", "--snapshot", str(broken), exits=2).stderr
