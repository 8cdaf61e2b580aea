"""`muster queue`, `suspend` and `resume` on an API server where no scheduler runs."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from typer.testing import CliRunner

from scheduler.cli.live import again
from scheduler.cli.queue import short
from scheduler.playground.server import ThreadedServer
from tests.controlplane.rest import Json, Rest
from tests.unit.cli.cluster import MUSTER, VOLCANO, agrees, filled, muster


@pytest.fixture(scope="module")
def server() -> Iterator[ThreadedServer]:
    with filled() as running:
        yield running


@pytest.fixture(scope="module")
def runner(server: ThreadedServer, tmp_path_factory: pytest.TempPathFactory) -> CliRunner:
    kubeconfig = server.write_kubeconfig(tmp_path_factory.mktemp("cli") / "kubeconfig")
    return CliRunner(env={"KUBECONFIG": str(kubeconfig)})


def rows(runner: CliRunner, *words: str) -> dict[str, Json]:
    return {row["name"]: row for row in json.loads(muster(runner, "queue", *words, "-o", "json").stdout)}


def test_queue_shows_who_waits_in_order(runner: CliRunner) -> None:
    agrees("queue.txt", muster(runner, "queue").stdout)
    agrees("queue-wide.txt", muster(runner, "queue", "research", "-o", "wide").stdout)


def test_queue_counts_places_and_names_who_is_directly_ahead(runner: CliRunner) -> None:
    found = rows(runner)
    assert [(name, row["position"], row["behind"]) for name, row in found.items() if row["queue"] == "research"] == [
        ("next", 1, ""),
        ("sweep", 2, "ml/next"),
        ("held", None, ""),
    ]
    assert found["few"]["reason"].startswith("NotEnoughMembers: 1 of 4")
    assert (found["sweep"]["wants"], found["sweep"]["priority"]) == ({"example.com/gpu": "6"}, 0)
    assert muster(runner, "queue", "inference", "-o", "name").stdout.splitlines() == ["ml/more", "ml/few"]


def test_a_queue_that_does_not_exist_is_told_with_the_nearest_name(runner: CliRunner) -> None:
    said = muster(runner, "queue", "reserch", exits=3).stderr
    assert said == 'error: there is no queue reserch; did you mean "research"?\n'
    assert "nobody waits in queue org" in muster(runner, "queue", "org").stderr


def test_a_reason_is_cut_to_its_first_clause() -> None:
    long = "0/9 nodes are available: 9 Insufficient cpu. Resources: needs 3 cpu; held by 3 pods of a/b"
    assert short(long) == "Resources: needs 3 cpu"
    assert short("Topology: " + "x" * 100) == "Topology: " + "x" * 51 + "..."


def test_watching_shows_it_again(runner: CliRunner, capsys: pytest.CaptureFixture[str]) -> None:
    looks = iter((0, 1, 0))
    assert again(lambda: next(looks), 0.0, rounds=3) == 0, "a look that fails in between is followed by another"
    assert capsys.readouterr().out.count("-- ") == 3
    assert again(lambda: 4, 0.0) == 4, "a first look that fails ends it"


def test_a_look_that_takes_long_is_followed_by_a_longer_rest(capsys: pytest.CaptureFixture[str]) -> None:
    now, slept, takes = 0.0, list[float](), iter((0.1, 3.0, 0.1))

    def look() -> int:
        nonlocal now
        now += next(takes)
        return 0

    assert again(look, 2.0, rounds=3, timer=lambda: now, sleep=slept.append) == 0
    assert slept == [2.0, 12.0]
    assert [line.rpartition(", ")[2] for line in capsys.readouterr().out.splitlines()] == [
        "each 2 s", "each 2 s", "each 12 s"
    ]  # fmt: skip


def test_suspend_and_resume_a_group(runner: CliRunner, server: ThreadedServer) -> None:
    rest = Rest(server.url, token="")
    path = f"{MUSTER}/namespaces/ml/podgroups/more"
    assert muster(runner, "suspend", "more", "-n", "ml").stdout == "muster group ml/more suspended\n"
    assert rest.get(path)["spec"]["suspend"] is True
    assert rows(runner)["more"]["reason"] == "Suspended: the group is suspended by spec.suspend"
    assert muster(runner, "suspend", "group/more", "-n", "ml").stdout == "muster group ml/more is already suspended\n"
    assert muster(runner, "resume", "more", "-n", "ml").stdout == "muster group ml/more resumed\n"
    assert "suspend" not in rest.get(path)["spec"]
    assert muster(runner, "resume", "more", "-n", "ml").stdout == "muster group ml/more is not suspended\n"


def test_what_runs_of_a_suspended_group_is_told(runner: CliRunner) -> None:
    result = muster(runner, "suspend", "train", "-n", "ml")
    assert "5 of its pods run and go on" in result.stderr
    muster(runner, "resume", "train", "-n", "ml")


def test_groups_of_other_apis_and_jobs_are_suspended_by_annotation(runner: CliRunner, server: ThreadedServer) -> None:
    rest = Rest(server.url, token="")
    path = f"{VOLCANO}/namespaces/ml/podgroups/legacy"
    assert muster(runner, "suspend", "legacy", "-n", "ml").stdout == "volcano group ml/legacy suspended\n"
    assert rest.get(path)["metadata"]["annotations"] == {"scheduling.muster.sh/suspend": "true"}
    muster(runner, "resume", "legacy", "-n", "ml")
    assert not rest.get(path)["metadata"].get("annotations")
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "x"}]}}
    meta = {"name": "tune", "annotations": {"scheduling.muster.sh/min-member": "2"}}
    rest.create("/apis/batch/v1/namespaces/ml/jobs", {"metadata": meta, "spec": {"template": template}})
    assert muster(runner, "suspend", "tune", "-n", "ml").stdout == "job group ml/tune suspended\n"
    job = rest.get("/apis/batch/v1/namespaces/ml/jobs/tune")
    assert job["metadata"]["annotations"]["scheduling.muster.sh/suspend"] == "true"


def test_a_queue_is_held_and_drained(runner: CliRunner, server: ThreadedServer) -> None:
    rest = Rest(server.url, token="")
    assert "on hold" in muster(runner, "suspend", "queue/inference").stdout
    assert rest.get(f"{MUSTER}/queues/inference")["spec"]["state"] == "Hold"
    assert "draining" in muster(runner, "suspend", "queue/inference", "--drain").stdout
    assert rest.get(f"{MUSTER}/queues/inference")["spec"]["state"] == "Drain"
    assert "is open" in muster(runner, "resume", "queue/inference").stdout
    assert "on hold" in muster(runner, "suspend", "queue/old").stdout
    assert rest.get(f"{VOLCANO}/queues/old")["status"]["state"] == "Closed"
    assert "cannot be drained" in muster(runner, "suspend", "queue/old", "--drain", exits=1).stderr
    muster(runner, "resume", "queue/old")


def test_what_cannot_be_suspended_is_told(runner: CliRunner) -> None:
    said = muster(runner, "suspend", "trian", "-n", "ml", exits=3).stderr
    assert 'namespace ml has no group trian; did you mean "train"?' in said
    assert (
        'there is no queue reserch; did you mean "research"?'
        in muster(runner, "resume", "queue/reserch", exits=3).stderr
    )
    assert "write NAME" in muster(runner, "suspend", "pod/x", exits=2).stderr
    assert "--drain is for queues" in muster(runner, "suspend", "train", "--drain", exits=2).stderr
