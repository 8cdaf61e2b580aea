"""The scheduler's replicas: started as a user starts them, killed and stopped as it happens, started again at once.

Decided here: what an accident does to which process, and what in a log is a defect whatever happened. Knows the product
only by its command line, its log and its metrics. Invariant: after `stop` no process is left.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections import Counter
from pathlib import Path
from typing import Any

from tests.chaos.plan import Trouble
from tests.perf import usage

Json = dict[str, Any]
LEASE = {"leaseDuration": "5s", "renewDeadline": "3500ms", "retryPeriod": "500ms"}
BINDER = {"deadline": "8s", "history": "5s", "victimTimeout": "20s"}
RESTART = 0.5
"""Seconds after which an ended replica is started again."""
DEFECTS = frozenset(
    {
        "action_failed", "invariant_violated", "metric_misfit", "port_failed", "session_failed", "words_not_sent",
        "group_failed", "binder.defect", "binder.impossible", "plugin_left_out", "decision_not_performed",
        "handover_raised", "write_not_built", "message_not_sent",
    }
)  # fmt: skip
"""Log entries that no accident excuses."""
_EXCUSED = ("LeadershipLost", "LeaseLost")


class Replica:
    """One of them. `directory` keeps its log, of all its lives. only: the component that it runs; "": all."""

    def __init__(self, name: str, server: str, token: str, directory: Path, config: Json, only: str = "") -> None:
        self.only = only
        self.name, self.log = name, directory / f"{name}.log"
        self.lives = 0
        self._kubeconfig, self._config = directory / f"{name}.kubeconfig", directory / f"{name}.yaml"
        cluster = {"name": "chaos", "cluster": {"server": server}}
        user = {"name": "chaos", "user": {"token": token}}
        context = {"name": "chaos", "context": {"cluster": "chaos", "user": "chaos"}}
        document = {
            "apiVersion": "v1", "kind": "Config", "clusters": [cluster], "users": [user], "contexts": [context],
            "current-context": "chaos",
        }  # fmt: skip
        self._kubeconfig.write_text(json.dumps(document))
        self._config.write_text(json.dumps(config))
        self._process: subprocess.Popen[bytes] | None = None
        self._mark = 0
        self._keeper: asyncio.Task[None] | None = None
        self.exits: Counter[str] = Counter()

    def trust(self, authority: Path) -> None:
        """Believe a server that speaks TLS with a certificate of this authority."""
        document = json.loads(self._kubeconfig.read_text())
        document["clusters"][0]["cluster"]["certificate-authority"] = str(authority)
        self._kubeconfig.write_text(json.dumps(document))

    def start(self) -> None:
        """Start it and keep it running."""
        self._keeper = asyncio.create_task(self._keep())

    async def _keep(self) -> None:
        while True:
            self._launch()
            assert self._process is not None
            while self._process.poll() is None:
                await asyncio.sleep(0.1)
            self.exits[str(self._process.returncode)] += 1
            self.kill()
            await asyncio.sleep(RESTART)

    def _launch(self) -> None:
        self.lives += 1
        self._mark = self.log.stat().st_size if self.log.exists() else 0
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [
                    sys.executable, "-m", "scheduler", "run", "--kubeconfig", str(self._kubeconfig),
                    "--config", str(self._config), *(("--only", self.only) if self.only else ()),
                ],
                stdout=log, stderr=log, start_new_session=True, env={**os.environ, "PYTHONUNBUFFERED": "1"},
            )  # fmt: skip

    async def stop(self) -> None:
        """End it for good."""
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
        self.kill()

    def kill(self) -> None:
        """Kill -9, both processes."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(15)

    # -- what happens to it ---------------------------------------------------------------------------------------

    async def trouble(self, one: Trouble) -> None:
        """Kill or stop what the plan says; what is stopped goes on later, if it still lives."""
        process = self._process
        if process is None or process.poll() is not None:
            return
        everybody = usage.descendants(process.pid)
        brains = everybody[1:]
        chosen = {"io": [process.pid], "brain": brains, "both": everybody, "": everybody}[one.what.partition("-")[2]]
        if one.what == "end":
            _signal([process.pid], signal.SIGTERM)
        elif one.what.startswith("kill"):
            _signal(chosen, signal.SIGKILL)
        else:
            _signal(chosen, signal.SIGSTOP)
            try:
                await asyncio.sleep(one.seconds)
            finally:
                _signal(chosen, signal.SIGCONT)

    # -- what it says ---------------------------------------------------------------------------------------------

    def holds(self, identity: str) -> bool:
        """Whether a lease with this holder is this one's, in its present life."""
        return self._process is not None and f"_{self._process.pid}_" in identity

    def pids(self) -> list[int]:
        """Return the io process and the brain."""
        return usage.descendants(self._process.pid)[:2] if self._process is not None else []

    def _said(self, since: int = 0) -> list[Json]:
        found = []
        text = self.log.read_bytes()[since:].decode(errors="replace") if self.log.exists() else ""
        for line in text.splitlines():
            with contextlib.suppress(ValueError):
                entry = json.loads(line)
                if isinstance(entry, dict):
                    found.append(entry)
        return found

    async def figures(self) -> dict[str, float]:
        """Return its metrics, name with labels -> value; {}: it does not answer."""
        serving = [entry["address"] for entry in self._said(self._mark) if entry.get("event") == "serving"]
        if not serving:
            return {}

        def ask() -> str:
            with urllib.request.urlopen(f"http://{serving[-1]}/metrics", timeout=10) as answer:
                return str(answer.read().decode())

        try:
            text = await asyncio.to_thread(ask)
        except OSError:
            return {}
        return {key: float(value) for key, value in re.findall(r"^([a-z]\S*) (\S+)$", text, re.MULTILINE)}

    def events(self) -> Counter[str]:
        """Count what it said, by event."""
        return Counter(str(entry.get("event")) for entry in self._said())

    def defects(self) -> list[str]:
        """Return what it said that no accident excuses."""
        found = []
        for entry in self._said():
            ended = entry.get("event") == "part_ended" and not any(one in str(entry["error"]) for one in _EXCUSED)
            if entry.get("event") in DEFECTS or ended:
                found.append(f"{self.name}: {json.dumps(entry)[:1500]}")
        return found


def _signal(pids: list[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
