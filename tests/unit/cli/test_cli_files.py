"""Commands that need no API server: snapshot, replay, config check, version, help."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
import yaml
from click.testing import Result
from typer.testing import CliRunner

from scheduler import __version__
from scheduler.cli.main import app
from scheduler.model.decisions import Decisions
from scheduler.sim import replay
from tests.unit.framework.world import World

CONFIG = Path(__file__).parents[3] / "config"


def _run(*words: str, exits: int = 0) -> Result:
    result = CliRunner().invoke(app, list(words))
    assert result.exit_code == exits, (result.output, result.exception)
    return result


def _session() -> bytes:
    """One session that placed a gang of 2."""
    world = World().nodes(2, gpu=1)
    world.gang("bert", 2)
    result = world.session()
    assert world.snapshot is not None
    assert len(world.placed) == 2
    return replay.dump(result.decisions.session, world.config, world.snapshot, result.decisions)


class _Answer(BaseHTTPRequestHandler):
    data = b""

    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/debug/snapshot" else 404)
        self.end_headers()
        self.wfile.write(self.data)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def address() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), _Answer)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_snapshot_that_is_saved_can_be_replayed(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_Answer, "data", _session())
    file = tmp_path / "s.zip"
    _run("snapshot", "--address", address, "-o", str(file))
    told = json.loads(_run("replay", str(file), "-o", "json").stdout)
    assert told["session"] == "s-000001"
    (place,) = [one for one in told["decisions"] if one["decision"] == "Place"]
    assert sorted(one["pod"] for one in place["assignments"]) == ["bert-0", "bert-1"]
    assert yaml.safe_load(_run("replay", str(file)).stdout) == told


def test_no_session_yet_is_an_error_and_writes_no_file(address: str, tmp_path: Path) -> None:
    file = tmp_path / "s.zip"
    assert "no session has run yet" in _run("snapshot", "--address", address, "-o", str(file), exits=1).stderr
    assert not file.exists()


def test_a_proxy_is_not_asked_for_a_port_of_this_host(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.delenv("no_proxy", raising=False)
    said = _run("snapshot", "--address", address, "-o", str(tmp_path / "s.zip"), exits=1).stderr
    assert "no session has run yet" in said


def test_a_scheduler_that_does_not_answer_exits_4(tmp_path: Path) -> None:
    result = _run("snapshot", "--address", "127.0.0.1:1", "-o", str(tmp_path / "s.zip"), exits=4)
    assert "127.0.0.1:1" in result.stderr


def test_a_replay_that_decides_otherwise_exits_1(tmp_path: Path) -> None:
    saved = replay.load(_session())
    file = tmp_path / "s.zip"
    file.write_bytes(replay.dump(saved.session, saved.config, saved.snapshot, Decisions(saved.session, 0, ())))
    assert "not the placements" in _run("replay", str(file), exits=1).stderr


def test_what_is_no_snapshot_is_wrong_usage(tmp_path: Path) -> None:
    file = tmp_path / "s.zip"
    file.write_bytes(b"something else")
    assert "not a snapshot file" in _run("replay", str(file), exits=2).stderr
    _run("replay", str(tmp_path / "none"), exits=2)


def test_the_default_configuration_is_good() -> None:
    text = _run("config", "check", str(CONFIG / "default.yaml")).stdout
    assert "actions: enqueue, allocate, reclaim, preempt, backfill, consolidate\n" in text
    assert text.endswith("default.yaml: ok\n")


@pytest.mark.parametrize("name", sorted(path.name for path in (CONFIG / "presets").glob("*.yaml")))
def test_the_presets_are_good(name: str) -> None:
    assert _run("config", "check", str(CONFIG / "presets" / name)).stdout.endswith(f"{name}: ok\n")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"sesionPeriod": "1s"}, 'sesionPeriod: unknown key "sesionPeriod"; did you mean "sessionPeriod"?'),
        ({"binder": {"deadline": "soon"}}, "binder.deadline: 'soon' is not a duration"),
        ({"actions": "enqueue, alocate"}, 'actions[1]: unknown action "alocate"; did you mean "allocate"?'),
    ],
)
def test_a_wrong_key_is_named_with_the_nearest_right_one(tmp_path: Path, change: object, told: str) -> None:
    document = {"apiVersion": "config.muster.sh/v1alpha1", "kind": "SchedulerConfiguration"}
    file = tmp_path / "c.yaml"
    file.write_text(yaml.safe_dump({**document, **change}))  # type: ignore[dict-item]
    result = _run("config", "check", str(file), exits=2)
    assert told in result.stderr
    assert result.stdout == ""


def test_a_configuration_that_is_missing_is_wrong_usage(tmp_path: Path) -> None:
    assert "none.yaml" in _run("config", "check", str(tmp_path / "none.yaml"), exits=2).stderr


def test_the_version_is_printed() -> None:
    assert _run("version").stdout == f"muster {__version__}\n"


def test_help_imports_nothing_heavy() -> None:
    code = "import sys, scheduler.cli.main; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = {"numpy", "ortools", "aiohttp", "kubernetes", "structlog", "msgspec", "yaml", "prometheus_client"}
    assert heavy & set(done.stdout.split()) == set()
