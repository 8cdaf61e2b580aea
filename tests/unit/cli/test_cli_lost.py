"""What the commands say of queues that take no part and in which something runs; no scheduler runs here."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from typer.testing import CliRunner

from scheduler.playground.server import PlaygroundServer, ThreadedServer
from tests.controlplane import nodes
from tests.controlplane.crds import apply_crds
from tests.controlplane.rest import Rest
from tests.unit.cli.test_cli_queues import CRDS, GPU, MUSTER, _gang, _queue, _run, _shares

DOMAIN = "scheduling.muster.sh"


@pytest.fixture(scope="module")
def muster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CliRunner]:
    with ThreadedServer(PlaygroundServer()) as server:
        rest = Rest(server.url, token="")
        apply_crds(rest, CRDS)
        nodes.register_node(rest, nodes.node_object("n1", {"cpu": 8, GPU: 8}))
        _queue(rest, "mine", deserved=6)
        _queue(rest, "sick", "nowhere", deserved=4, limit=4)
        _gang(rest, "orphan", "ghost", 3, on="n1")
        _gang(rest, "patient", "sick", 2, on="n1")
        _gang(rest, "next", "mine", 6)
        volcano = "/apis/scheduling.volcano.sh/v1beta1/queues"
        both = {"guarantee": {"resource": {GPU: "3"}}, "deserved": {GPU: "2"}, "weight": 1}
        rest.create(volcano, {"metadata": {"name": "confused"}, "spec": both})
        rest.create(volcano, {"metadata": {"name": "mine"}, "spec": {"weight": 1}})
        rest.patch("/api/v1/namespaces/default", {"metadata": {"annotations": {f"{DOMAIN}/queue": "sick"}}})
        _gang(rest, "guided", "", 1)
        condition = {
            "type": "Scheduled",
            "status": "True",
            "reason": "QueueNotFound",
            "message": "QueueNotFound: ghost",
        }
        status = {"status": {"phase": "Running", "conditions": [condition]}}
        rest.patch(f"{MUSTER}/namespaces/default/podgroups/orphan/status", status)
        kubeconfig = server.write_kubeconfig(tmp_path_factory.mktemp("cli") / "kubeconfig")
        yield CliRunner(env={"KUBECONFIG": str(kubeconfig)})


def test_share_tells_what_runs_in_queues_that_take_no_part(muster: CliRunner) -> None:
    rows = _shares(muster)
    ghost, sick, mine = (rows[name] for name in ("ghost", "sick", "mine"))
    assert (ghost["state"], ghost["fault"]) == ("Gone", "it does not exist, and is owed nothing")
    told = ("used", "entitled", "owed", "borrowed", "limit")
    assert [ghost["resources"][GPU][name] for name in told] == ["3", "0", "0", "3", "unlimited"]
    assert sick["fault"] == "its parent nowhere does not exist"
    assert [sick["resources"][GPU][name] for name in told] == ["2", "2", "unlimited", "0", "4"]
    assert [mine["resources"][GPU][name] for name in told] == ["0", "6", "6", "0", "unlimited"]
    text = _run(muster, "share").stdout
    assert "  ghost (Gone)" in text
    assert "sick (takes no part)" in text


def test_get_tells_queues_that_are_gone_and_groups_that_run_there(muster: CliRunner) -> None:
    found = json.loads(_run(muster, "get", "queues", "-o", "json").stdout)
    rows = {row["name"]: row for row in found if (row["name"], row["dialect"]) != ("mine", "volcano")}
    assert list(rows) == ["confused", "mine", "sick", "ghost"]
    assert (rows["ghost"]["state"], rows["ghost"]["allocated"][GPU]) == ("Gone", "3")
    assert rows["ghost"]["problem"] == "does not exist; what runs there is owed nothing"
    assert "ghost" in _run(muster, "get", "queues", "-o", "wide").stdout
    groups = {row["name"]: row for row in json.loads(_run(muster, "get", "groups", "-o", "json").stdout)}
    assert groups["orphan"]["reason"] == "QueueNotFound: ghost"


def test_get_tells_what_is_wrong_where_no_status_says_so(muster: CliRunner) -> None:
    found = json.loads(_run(muster, "get", "queues", "-o", "json").stdout)
    problems = {(row["name"], row["dialect"]): row["problem"] for row in found}
    assert problems["confused", "volcano"].startswith(f"Contradiction: its guarantee of {GPU} (3) is above its des")
    assert problems["sick", "muster"].startswith("ParentNotFound: its parent nowhere does not exist; nothing new")
    assert problems["mine", "volcano"] == "does not count beside the queue of its name of muster"
    assert problems["mine", "muster"] == ""


def test_the_queue_of_the_namespace_is_told(muster: CliRunner) -> None:
    groups = {row["name"]: row for row in json.loads(_run(muster, "get", "groups", "-o", "json").stdout)}
    assert (groups["guided"]["queue"], groups["next"]["queue"]) == ("sick", "mine")
    (told,) = json.loads(_run(muster, "why", "guided", "-o", "json").stdout)
    assert told["queue"] == "sick"


def test_why_tells_that_what_a_gone_queue_holds_is_taken_back(muster: CliRunner) -> None:
    (told,) = json.loads(_run(muster, "why", "next", "-o", "json").stdout)
    assert told["now"].startswith("the next session would place 6 pods of it, with 3 evicted before: default/orphan-0")
