"""`muster nodes` and `muster top` on an API server where no scheduler runs, and what top makes of metrics."""

from __future__ import annotations

import json
import math
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from typer.testing import CliRunner

from scheduler.cli.top import between, quantile, read, sample
from scheduler.observe.metrics import Metrics
from scheduler.playground.server import ThreadedServer
from tests.unit.cli.cluster import agrees, filled, muster

Json = dict[str, Any]
NOWHERE = "127.0.0.1:1"


@pytest.fixture(scope="module")
def server() -> Iterator[ThreadedServer]:
    with filled() as running:
        yield running


@pytest.fixture(scope="module")
def runner(server: ThreadedServer, tmp_path_factory: pytest.TempPathFactory) -> CliRunner:
    kubeconfig = server.write_kubeconfig(tmp_path_factory.mktemp("cli") / "kubeconfig")
    return CliRunner(env={"KUBECONFIG": str(kubeconfig)})


def test_nodes_are_told_one_by_one(runner: CliRunner) -> None:
    result = muster(runner, "nodes")
    agrees("nodes.txt", result.stdout)
    assert result.stderr == "by example.com/gpu\n"


@pytest.mark.parametrize("by", ["rack", "example.com/rack"])
def test_nodes_are_summed_up_by_a_level_or_a_label(runner: CliRunner, by: str) -> None:
    agrees("nodes-by-rack.txt", muster(runner, "nodes", "--by", by).stdout)


def test_what_is_free_is_told_with_the_largest_piece(runner: CliRunner) -> None:
    (one, two) = json.loads(muster(runner, "nodes", "--by", "rack", "-o", "json").stdout)
    assert (one["domain"], one["total"], one["used"], one["free"], one["hole"], one["holeOn"]) == (
        "r1", "8", "5", "3", "2", "a2",
    )  # fmt: skip
    assert (two["free"], two["cordoned"], two["whole"], two["gangs"]) == ("2", 1, 0, ["ml/serve"])
    assert muster(runner, "nodes", "-o", "name").stdout.split() == ["a1", "a2", "b1", "b2"]


def test_what_nodes_have_not_is_told_with_the_nearest_name(runner: CliRunner) -> None:
    assert 'did you mean "rack"?' in muster(runner, "nodes", "--by", "rak", exits=3).stderr
    assert "no node has the resource gpus" in muster(runner, "nodes", "--resource", "gpus", exits=3).stderr
    (row, *_) = json.loads(muster(runner, "nodes", "--resource", "gpu", "-o", "json").stdout)
    assert row["resource"] == "example.com/gpu"


def test_top_shows_the_cluster_also_without_a_scheduler(runner: CliRunner) -> None:
    words = ("--once", "--interval", "0.2", "--address", NOWHERE)
    result = muster(runner, "top", *words, "--pool", "example.com/pool")
    agrees("top.txt", result.stdout)
    assert result.stderr.count("the scheduler's own figures are left out") == 1
    (facts,) = json.loads(muster(runner, "top", *words, "-o", "json").stdout)
    assert facts["scheduler"] is None
    assert [row["domain"] for row in facts["pools"]] == ["all nodes"], "no node has one of the well-known labels"


class Scheduler(BaseHTTPRequestHandler):
    """Serves the metrics of a scheduler that runs a session each time it is asked."""

    metrics = Metrics()

    def do_GET(self) -> None:
        self.metrics.seconds("session_duration_seconds", 0.004)
        body = self.metrics.render()
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def test_top_reads_the_figures_of_a_scheduler(runner: CliRunner) -> None:
    with HTTPServer(("127.0.0.1", 0), Scheduler) as served:
        threading.Thread(target=served.serve_forever, daemon=True).start()
        address = f"127.0.0.1:{served.server_port}"
        words = ("--once", "--interval", "0.2", "--address", address)
        (facts,) = json.loads(muster(runner, "top", *words, "-o", "json").stdout)
        text = muster(runner, "top", *words).stdout
        served.shutdown()
    figures = facts["scheduler"]
    assert figures["sessionsPerSecond"] > 0
    assert 0.0025 < figures["p99"] <= 0.005
    assert figures["over"].startswith("the last ")
    assert f"scheduler  {address}, on standby\n" in text


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (b"SSH-2.0-OpenSSH_9.6\r\n", "the scheduler's own figures are left out"),
        (b"HTTP/1.1 403 Forbidden\r\n\r\nthis user may not get this path\n", "403 this user may not get this path"),
        (b"HTTP/1.1 403 Forbidden\r\nContent-Length: 99\r\n\r\nhalf of it", "403"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nhalf of it", "IncompleteRead"),
        (b"HTTP/1.1 200 OK\r\n\r\n<html>{\n", "these are no metrics"),
        (b"HTTP/1.1 200 OK\r\n\r\n\xff\xfe", "these are no metrics"),
        (b"HTTP/1.1 200 OK\r\n\r\nmuster_session_duration_seconds_bucket 3\n", "these are no metrics"),
        (b'HTTP/1.1 200 OK\r\n\r\nmuster_leader{component="binder"} 1\n', "is no scheduler but binder"),
        (b"", "the scheduler's own figures are left out"),
    ],
)
def test_a_port_that_is_no_schedulers_is_told(said: bytes, told: str, capsys: pytest.CaptureFixture[str]) -> None:
    def answer(listener: socket.socket) -> None:
        with listener.accept()[0] as caller:
            caller.recv(4096)
            caller.sendall(said)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=answer, args=(listener,), daemon=True)
        thread.start()
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        assert sample(address) is None
        thread.join(10)
    error = capsys.readouterr().err
    assert address in error
    assert told in error


@pytest.mark.parametrize("address", ["127.0.0.1:port", "127.0.0.1:99999", "", "[::1", "a b:80"])
def test_an_address_that_is_none_is_told(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert sample(address) is None
    assert f"http://{address}/metrics" in capsys.readouterr().err


def _metrics(sessions: int, slow: int, binds: int = 0) -> str:
    return "\n".join(
        (
            "# TYPE muster_session_duration_seconds histogram",
            f'muster_session_duration_seconds_bucket{{le="0.1"}} {sessions - slow}',
            f'muster_session_duration_seconds_bucket{{le="1.0"}} {sessions}',
            f'muster_session_duration_seconds_bucket{{le="+Inf"}} {sessions}',
            f"muster_session_duration_seconds_count {sessions}",
            "# TYPE muster_binds counter",
            f"muster_binds_total {binds}",
            "# TYPE muster_pending_pod_groups gauge",
            'muster_pending_pod_groups{queue="a",reason="Resources"} 2',
            'muster_pending_pod_groups{queue="b",reason="Priority"} 3',
            "",
        )
    )


def test_figures_are_those_between_two_looks() -> None:
    told = between(read(_metrics(100, 50, 7), 1000.0), read(_metrics(120, 50, 27), 1010.0))
    assert told is not None
    assert (told["sessionsPerSecond"], told["bindsPerSecond"], told["pending"]) == (2.0, 2.0, 5)
    assert told["p99"] == pytest.approx(0.099), "the 20 sessions since were all fast"
    assert told["over"] == "the last 10 s"


def test_where_no_session_ran_quantiles_are_those_of_all() -> None:
    told = between(read(_metrics(100, 50), 1000.0), read(_metrics(100, 50), 1010.0))
    assert told is not None
    assert (told["p50"], told["over"]) == (pytest.approx(0.1), "since it started")


def test_after_a_restart_it_counts_from_nothing() -> None:
    told = between(read(_metrics(100, 50), 1000.0), read(_metrics(10, 0), 1010.0))
    assert told is not None
    assert (told["sessionsPerSecond"], told["over"]) == (None, "since it started")
    assert between(read(_metrics(1, 0), 1.0), None) is None


def test_a_quantile_lies_inside_its_bucket() -> None:
    assert quantile(0.5, {}) is None
    assert quantile(0.5, {1.0: 0, 2.0: 10, math.inf: 10}) == 1.5
    assert quantile(0.99, {1.0: 1, math.inf: 10}) == 1.0, "beyond the last bound nothing is known"
