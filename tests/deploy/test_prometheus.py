"""A real Prometheus: it takes the rules, each alert fires when it should, and every panel shows the queues' story."""

from __future__ import annotations

import asyncio
import io
import json
import socket
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import yaml

from scheduler.cli.demo import STORIES, tell_story, worker_nodes
from scheduler.cli.screen import PlainScreen
from scheduler.cli.stage import Stage
from scheduler.playground.run import Playground
from tests.deploy.prometheus import ensure

Json = dict[str, Any]
ROOT = Path(__file__).parents[2]
RULES = ROOT / "config" / "prometheus" / "rules.yaml"
FIRING = Path(__file__).parent / "alerts.yaml"
BOARDS = sorted((ROOT / "deploy" / "grafana").glob("*.json"))
ONLY_AFTER_A_FAULT = {
    "muster_bind_failures_total",
    "muster_eviction_failures_total",
    "muster_invariant_violations_total",
    "muster_plugin_failures_total",
    "muster_solver_results_total",
}
"""Series of these begin with the first fault (of the solver: with the first question that counting cannot answer)."""

HELD: Json = {
    "apiVersion": "scheduling.muster.sh/v1alpha1",
    "kind": "Queue",
    "metadata": {"name": "held"},
    "spec": {"resources": {"cpu": {"guarantee": "1"}}},
}
"""What the story of queues has not: something that is held for an idle queue."""


def promtool(*words: str) -> None:
    done = subprocess.run([ensure("promtool"), *words], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def test_promtool_takes_the_rules():
    promtool("check", "rules", str(RULES))


def test_each_alert_fires_when_it_should(tmp_path: Path):
    tests = yaml.safe_load(FIRING.read_text())
    tests["rule_files"] = [str(RULES)]
    file = tmp_path / "alerts.yaml"
    file.write_text(yaml.safe_dump(tests))
    promtool("test", "rules", str(file))
    fired = {one["alertname"] for test in tests["tests"] for one in test["alert_rule_test"] if one.get("exp_alerts")}
    assert fired == {rule["alert"] for rule in yaml.safe_load(RULES.read_text())["groups"][0]["rules"]}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Prometheus:
    """A server that scrapes one target five times a second, since the story is fast; an answer has as long as that."""

    def __init__(self, scratch: Path, target: str) -> None:
        self.url = f"http://127.0.0.1:{free_port()}"
        config = {
            "global": {"scrape_interval": "200ms", "evaluation_interval": "1s"},
            "rule_files": [str(RULES)],
            "scrape_configs": [{"job_name": "muster", "static_configs": [{"targets": [target]}]}],
        }
        (scratch / "prometheus.yaml").write_text(yaml.safe_dump(config))
        self.process = subprocess.Popen(
            [
                ensure("prometheus"), f"--config.file={scratch / 'prometheus.yaml'}",
                f"--storage.tsdb.path={scratch / 'data'}", f"--web.listen-address={self.url.removeprefix('http://')}",
            ],
            stdout=subprocess.DEVNULL, stderr=(scratch / "prometheus.log").open("wb"),
        )  # fmt: skip

    def get(self, path: str, **query: str) -> Any:
        with urllib.request.urlopen(f"{self.url}{path}?{urllib.parse.urlencode(query)}", timeout=10) as answer:
            return json.load(answer)["data"]

    def ask(self, query: str) -> list[Json]:
        found: list[Json] = self.get("/api/v1/query", query=query)["result"]
        return found

    def shows(self, query: str, since: float) -> list[Json]:
        """Return what a panel of the time since then draws."""
        times = {"start": f"{since:.3f}", "end": f"{time.time():.3f}", "step": "0.05"}
        found: list[Json] = self.get("/api/v1/query_range", query=query, **times)["result"]
        return found

    async def until(self, query: str) -> None:
        for _ in range(300):
            try:
                if await asyncio.to_thread(self.ask, query):
                    return
            except OSError:
                assert self.process.poll() is None, "prometheus ended"
            await asyncio.sleep(0.1)
        raise AssertionError(f"nothing for {query}")

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(30)


def scheduler(kubeconfig: Path, scratch: Path, port: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "scheduler", "run", "--no-leader-elect", "--kubeconfig", str(kubeconfig)]
    command += ["--health-address", f"127.0.0.1:{port}", "--scheduler-name", "muster", "--scheduler-name", "volcano"]
    return subprocess.Popen(command, stdout=(scratch / "log").open("wb"), stderr=subprocess.STDOUT)


async def play(scratch: Path) -> tuple[dict[str, list[Json]], list[Json]]:
    """Play the story of queues; return what each query of a dashboard shows of it, and the rules."""
    story, port, began = STORIES["queues"], free_port(), time.time()
    async with Playground(nodes=worker_nodes(1, story.nodes), crds=[ROOT / "config" / "crd"]) as playground:
        muster = scheduler(playground.server.write_kubeconfig(scratch / "kubeconfig"), scratch, port)
        prometheus = Prometheus(scratch, f"127.0.0.1:{port}")
        try:
            await prometheus.until("muster_leader == 1")
            async with Stage(playground.url, PlainScreen(io.StringIO()), resource="cpu") as stage:
                await stage.apply([HELD])
            with (scratch / "story").open("w") as out:
                await tell_story(playground, PlainScreen(out), story, within=60)
            await prometheus.until(f"timestamp(muster_leader) > {time.time() + 0.5}")
            return await asyncio.to_thread(look, prometheus, began)
        finally:
            prometheus.stop()
            muster.terminate()
            muster.wait(30)


def look(prometheus: Prometheus, since: float) -> tuple[dict[str, list[Json]], list[Json]]:
    found = {}
    for board in BOARDS:
        for panel in json.loads(board.read_text())["panels"]:
            for target in panel["targets"]:
                query = target["expr"].replace("$__rate_interval", "5m")
                for variable in ("$queue", "$resource"):
                    query = query.replace(variable, ".*")
                found[query] = prometheus.shows(query, since)
    return found, prometheus.get("/api/v1/rules")["groups"][0]["rules"]


@pytest.mark.alone
def test_every_panel_shows_the_story_of_queues(tmp_path: Path):
    found, rules = asyncio.run(play(tmp_path))
    empty = [query for query, result in found.items() if not result]
    unexplained = [query for query in empty if not any(name in query for name in ONLY_AFTER_A_FAULT)]
    assert not unexplained, "\n".join(["queries without data:", *unexplained])
    assert len(found) > 40
    assert {rule["health"] for rule in rules} == {"ok"}
    assert [rule["name"] for rule in rules if rule["state"] == "firing"] == []
