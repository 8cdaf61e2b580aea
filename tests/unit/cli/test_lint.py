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


def test_files_that_cannot_be_read_are_told(runner: CliRunner, tmp_path: Path) -> None:
    broken = tmp_path / "broken.yaml"
    broken.write_text("a: [")
    assert str(broken) in muster(runner, "lint", "-f", str(broken), exits=2).stderr
    assert "No such file" in muster(runner, "lint", "-f", str(tmp_path / "none.yaml"), exits=1).stderr
