"""`muster config show` and `diff`: what is shown loads as what it shows, and differences are those of what holds."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from scheduler.app import load_configuration
from scheduler.cli.settings import duration
from scheduler.config import API_VERSION, KIND, SchedulerConfiguration, parse_duration
from tests.unit.cli.cluster import agrees, muster

CONFIG = Path(__file__).parents[3] / "config"
FILES = sorted([CONFIG / "default.yaml", *(CONFIG / "presets").glob("*.yaml")])
VOLCANO = """
actions: "enqueue, allocate, backfill"
tiers:
- plugins: [{name: priority}, {name: gang}]
- plugins: [{name: predicates}, {name: proportion}, {name: binpack, arguments: {binpack.weight: 3, binpack.cpu: 2}}]
"""


@pytest.fixture
def runner() -> CliRunner:
    return CliRunner()


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_what_is_shown_loads_as_what_it_shows(runner: CliRunner, tmp_path: Path, file: Path) -> None:
    shown = tmp_path / "shown.yaml"
    shown.write_text(muster(runner, "config", "show", str(file)).stdout)
    assert load_configuration(shown) == load_configuration(file)


def test_each_value_is_told_with_where_it_is_from(runner: CliRunner, tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(f"apiVersion: {API_VERSION}\nkind: {KIND}\nsessionPeriod: 2s\nsolver: {{workers: 2}}\nseed: 0\n")
    lines = muster(runner, "config", "show", str(file)).stdout.splitlines()
    assert {f"sessionPeriod: 2s  # {file}", "resyncPeriod: 5m  # default", f"  workers: 2  # {file}"} <= set(lines)
    assert lines.index("tiers:  # default") + 1 == lines.index("- plugins:")
    told = json.loads(muster(runner, "config", "show", str(file), "-o", "json").stdout)
    mine = {path for path, one in told.items() if one["from"] == str(file)}
    assert mine == {"sessionPeriod", "solver.workers", "seed"}, "seed is stated, though it is the default"
    assert told["sessionPeriod"]["value"] == "2s"


def test_owners_are_written_back(runner: CliRunner, tmp_path: Path) -> None:
    file, shown = tmp_path / "mine.yaml", tmp_path / "shown.yaml"
    owner = "{apiVersion: example.com/v1, kind: Crew, resource: crews, minimum: [spec.size]}"
    file.write_text(f"apiVersion: {API_VERSION}\nkind: {KIND}\ngrouping: {{owners: [{owner}]}}\n")
    shown.write_text(muster(runner, "config", "show", str(file)).stdout)
    assert load_configuration(shown) == load_configuration(file)
    assert load_configuration(shown).grouping.owners


def test_a_file_of_volcano_is_shown_in_our_words(runner: CliRunner, tmp_path: Path) -> None:
    file = tmp_path / "volcano-scheduler.conf"
    file.write_text(VOLCANO)
    result = muster(runner, "config", "show", str(file))
    shown = tmp_path / "shown.yaml"
    shown.write_text(result.stdout)
    assert load_configuration(shown) == replace(load_configuration(file), warnings=())
    assert f"schedulerNames: [volcano, muster]  # {file}" in result.stdout


def test_diff_tells_what_holds_differently(runner: CliRunner) -> None:
    presets = CONFIG / "presets"
    result = muster(
        runner, "config", "diff", str(presets / "capacity.yaml"), str(presets / "gpu-training.yaml"), exits=1
    )
    agrees("config-diff.txt", result.stdout, ages=False)
    assert muster(runner, "config", "diff", str(CONFIG / "default.yaml")).stdout == ""
    assert (
        "enqueue, allocate, backfill"
        in muster(runner, "config", "diff", str(presets / "batch-fifo.yaml"), exits=1).stdout
    )


def test_a_file_that_is_wrong_is_refused_by_its_name(runner: CliRunner, tmp_path: Path) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text(f"apiVersion: {API_VERSION}\nkind: {KIND}\nsessionPerod: 2s\n")
    for words in (("show", str(file)), ("diff", str(file)), ("diff", str(CONFIG / "default.yaml"), str(file))):
        said = muster(runner, "config", *words, exits=2).stderr
        assert f'{file}: sessionPerod: unknown key "sessionPerod"; did you mean "sessionPeriod"?' in said


@pytest.mark.parametrize("seconds", [0.0, 0.001, 0.5, 1.5, 1.0, 59.0, 60.0, 90.0, 3600.0, 86400.0, 93784.0])
def test_durations_are_written_as_they_are_read(seconds: float) -> None:
    assert parse_duration("x", duration(seconds)) == pytest.approx(seconds)


def test_the_defaults_need_no_file(runner: CliRunner, tmp_path: Path) -> None:
    shown = tmp_path / "shown.yaml"
    shown.write_text(muster(runner, "config", "show").stdout)
    assert load_configuration(shown) == SchedulerConfiguration()
