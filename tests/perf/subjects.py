"""Who is measured: the bare loop, kube-scheduler and Muster, each as processes that can be started and ended.

Decided here: how each is configured to be as fast as it can be: no client-side rate limit, no election of a leader for
kube-scheduler. Muster keeps its lease, as its users would.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.controlplane import build
from tests.controlplane.cluster import NATIVE_GANG_GATES
from tests.perf.world import Server

BARE_IN_FLIGHT = 64
ROOT = Path(__file__).parents[2]


@dataclass(slots=True)
class Subject:
    """A process group that schedules."""

    process: subprocess.Popen[bytes]
    log: Path

    @property
    def pid(self) -> int:
        """The process that was started."""
        return self.process.pid

    def check(self) -> None:
        """Raise if it has ended."""
        if self.process.poll() is not None:
            raise RuntimeError(f"ended with {self.process.returncode}:\n{self.tail()}")

    def tail(self, size: int = 4000) -> str:
        """Return the end of its log."""
        return self.log.read_bytes()[-size:].decode(errors="replace")

    def stop(self) -> None:
        """End it in order, then for certain."""
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(10)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(10)


def _start(command: list[str], log: Path, environment: dict[str, str] | None = None) -> Subject:
    with log.open("ab") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=output, stdin=subprocess.DEVNULL, start_new_session=True, cwd=ROOT,
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "", **(environment or {})},
        )  # fmt: skip
    return Subject(process, log)


def bare(server: Server, directory: Path, nodes: int) -> Subject:
    """Only POSTs bindings."""
    command = [
        sys.executable,
        "-m",
        "tests.perf.bare",
        server.url,
        server.ca_file or "",
        str(BARE_IN_FLIGHT),
        str(nodes),
    ]
    return _start(command, directory / "bare.log", {"TOKEN": server.token})


def kube_scheduler(server: Server, directory: Path) -> Subject:
    """The default scheduler of Kubernetes."""
    document = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": server.kubeconfig, "qps": 10_000, "burst": 10_000},
        "leaderElection": {"leaderElect": False},
    }
    config = directory / "kube-scheduler.json"
    config.write_text(json.dumps(document))
    gates = ",".join(f"{name}={str(on).lower()}" for name, on in sorted(NATIVE_GANG_GATES.items()))
    command = [
        *build.program("kube-scheduler"), f"--config={config}", "--secure-port=0", f"--feature-gates={gates}", "--v=0",
    ]  # fmt: skip
    return _start(command, directory / "kube-scheduler.log", {"TMPDIR": str(directory)})


def provisioner(server: Server, directory: Path, namespace: str) -> Subject:
    """Makes volumes for claims of a namespace that were told their node; it is measured with nobody."""
    command = [sys.executable, "-m", "tests.perf.provisioner", server.kubeconfig, namespace]
    return _start(command, directory / "provisioner.log")


def muster(server: Server, directory: Path, **changes: Any) -> Subject:
    """`muster run`, both processes."""
    document = {
        "apiVersion": "config.muster.sh/v1alpha1",
        "kind": "SchedulerConfiguration",
        "schedulerNames": ["muster"],
        "clientConnection": {"qps": 0, "burst": 0},
        "healthAddress": "127.0.0.1:0",
        "logFormat": "json",
        **changes,
    }
    config = directory / "muster.json"
    config.write_text(json.dumps(document))
    command = [
        sys.executable, "-m", "scheduler", "run", "--kubeconfig", server.kubeconfig, "--config", str(config),
    ]  # fmt: skip
    return _start(command, directory / "muster.log")
