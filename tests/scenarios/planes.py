"""The two control planes on which scenarios are played, and the scheduler process that is tested there.

Decided here: how a node comes into being on each, and how `muster run` is started: as a user starts it, in its two
processes, with a short session period. One scheduler serves all scenarios of a plane unless a story kills it. With
APART=1 in the environment scheduler, binder and controllers are processes of their own.
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
import tempfile
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from scheduler.playground.run import Part, start_controllers
from scheduler.playground.server import PlaygroundServer, ThreadedServer
from scheduler.playground.volumes import Provisioner
from tests.controlplane import nodes
from tests.controlplane.cluster import ControlPlane
from tests.controlplane.crds import apply_crds
from tests.controlplane.rest import Rest
from tests.scenarios.form import NodeSpec

CRDS = Path(__file__).parents[2] / "config" / "crd"
RBAC = CRDS.with_name("rbac")
OPERATORS = Path(__file__).with_name("operators")
"""Kinds of operators whose stories are told; nothing of Muster needs them."""
START_TIMEOUT = 90.0
APART = ("scheduler", "binder", "controllers") if os.environ.get("APART") else ()
LEASE = {"leaseDuration": "6s", "renewDeadline": "4500ms", "retryPeriod": "500ms"}
"""Of components that run apart: what a story kills is waited for no longer than this."""
SCHEDULER_NAMES = ("muster", "volcano", "scheduler-plugins-scheduler", "kai-scheduler", "yunikorn")


class _Aside:
    """A client with an event loop of its own, in a thread."""

    def __init__(self, part: Provisioner) -> None:
        self._loop, self._part = asyncio.new_event_loop(), part
        self._thread = threading.Thread(target=self._loop.run_forever, name="beside the plane", daemon=True)
        self._thread.start()
        asyncio.run_coroutine_threadsafe(part.start(), self._loop).result(30)

    def stop(self) -> None:
        """End it."""
        asyncio.run_coroutine_threadsafe(self._part.stop(), self._loop).result(30)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()


class RealPlane:
    """The real kube-apiserver, etcd and kube-controller-manager.

    kubeconfig: of the account that `config/rbac` makes, with the rights that it gives and no others.
    """

    name = "real"

    def __init__(self, cluster: ControlPlane) -> None:
        self.rest, self._cluster = cluster.rest, cluster
        cluster.apply_crds(OPERATORS)
        cluster.kubectl("apply", "-f", str(RBAC))
        token = cluster.service_account_token("muster-system", "muster")
        self.kubeconfig = cluster.write_kubeconfig(cluster.kubeconfig.with_name("account"), token)
        if APART:  # that account holds one lease; those of the chart are proven in tests/deploy
            self.kubeconfig = cluster.kubeconfig
        self._provisioner = _Aside(Provisioner(kubeconfig=cluster.kubeconfig))

    def stop(self) -> None:
        """Stop what runs beside the control plane."""
        self._provisioner.stop()

    def register_node(self, spec: NodeSpec) -> None:
        """Create a Ready node that no kubelet stands behind."""
        self._cluster.register_node(spec.name, spec.allocatable, labels=spec.labels, taints=spec.taints)
        if spec.unschedulable:
            self.rest.patch(f"/api/v1/nodes/{spec.name}", {"spec": {"unschedulable": True}})


class _ControlledServer(PlaygroundServer):
    """The embedded API server with the controllers that make pods of Jobs and Deployments."""

    def __init__(self) -> None:
        super().__init__()
        self._controllers: list[Part] = []

    async def start(self) -> PlaygroundServer:
        """Listen, then start the controllers as clients of this server."""
        await super().start()
        self._controllers = await start_controllers(self.url)
        return self

    async def stop(self) -> None:
        """Stop the controllers, then the server."""
        while self._controllers:
            await self._controllers.pop().stop()
        await super().stop()


class EmbeddedPlane:
    """The embedded API server with its fake controllers."""

    name = "embedded"

    def __init__(self, directory: Path) -> None:
        self._server = ThreadedServer(_ControlledServer()).start()
        self.kubeconfig = self._server.write_kubeconfig(directory / "kubeconfig")
        self.rest = Rest(self._server.url, token="")
        apply_crds(self.rest, CRDS)
        apply_crds(self.rest, OPERATORS)

    def register_node(self, spec: NodeSpec) -> None:
        """Create a Ready node."""
        nodes.register_node(self.rest, nodes.node_object(spec.name, spec.allocatable, spec.labels, spec.taints))
        if spec.unschedulable:
            self.rest.patch(f"/api/v1/nodes/{spec.name}", {"spec": {"unschedulable": True}})

    def stop(self) -> None:
        """Stop the server."""
        self._server.stop()


class Scheduler:
    """`muster run` as a process group of its own."""

    def __init__(self, kubeconfig: Path, directory: Path, *extra: str, config: dict[str, Any] | None = None) -> None:
        self._kubeconfig, self._directory, self._extra = kubeconfig, directory, extra
        self._log = directory / "scheduler.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._beside: list[subprocess.Popen[bytes]] = []
        self._config = directory / "config.yaml"
        document = {
            "apiVersion": "config.muster.sh/v1alpha1",
            "kind": "SchedulerConfiguration",
            "schedulerNames": list(SCHEDULER_NAMES),
            "sessionPeriod": "100ms",
            "leaderElection": LEASE if APART else {"leaderElect": False},
            "binder": {"deadline": "10s", "history": "5s"},
            "healthAddress": "127.0.0.1:0",
            "logFormat": "json",
            **(config or {}),
        }
        self._config.write_text(json.dumps(document))  # JSON is YAML

    def configure(self, changes: dict[str, Any]) -> None:
        """Set keys of its configuration, for the next start."""
        self._config.write_text(json.dumps(json.loads(self._config.read_text()) | changes))

    def start(self) -> None:
        """Start and wait until it is ready. Raises with its log if it is not in time."""
        mark = self.launch()
        assert self._process is not None
        deadline = time.monotonic() + START_TIMEOUT
        while not self._is_ready(mark):
            if self._process.poll() is not None or time.monotonic() > deadline:
                text = self.tail()
                self.kill()
                raise RuntimeError(f"the scheduler did not become ready:\n{text}")
            time.sleep(0.05)

    def launch(self) -> int:
        """Start without waiting; return how long its log was before."""
        mark = self._log.stat().st_size if self._log.exists() else 0
        self._process = self._popen(self._log, *(("--only", APART[0]) if APART else ()))
        self._beside = [self._popen(self._log.with_name(f"{only}.log"), "--only", only) for only in APART[1:]]
        return mark

    def _popen(self, file: Path, *only: str) -> subprocess.Popen[bytes]:
        with file.open("ab") as log:
            return subprocess.Popen(
                [
                    sys.executable, "-m", "scheduler", "run", "--kubeconfig", str(self._kubeconfig),
                    "--config", str(self._config), *only, *self._extra,
                ],
                stdout=log, stderr=log, start_new_session=True,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
            )  # fmt: skip

    def address(self, mark: int = 0) -> str:
        """Return HOST:PORT of its health port, or ""."""
        text = self._log.read_bytes()[mark:].decode(errors="replace") if self._log.exists() else ""
        found = ""
        for line in text.splitlines():
            if '"serving"' in line:
                found = json.loads(line).get("address", "")
        return found

    def _is_ready(self, mark: int) -> bool:
        address = self.address(mark)
        if not address:
            return False
        try:
            with urllib.request.urlopen(f"http://{address}/readyz", timeout=2) as answer:
                return answer.status == 200
        except (urllib.error.URLError, OSError):
            return False

    def known(self, what: str) -> int:
        """Return how many nodes, queues, priorityclasses, ... it has in its picture; -1: it does not say."""
        return self.figure(f'muster_cache_objects{{resource="{what}"}}')

    def figure(self, name: str) -> int:
        """Return one of its metrics, with its labels; -1: it does not say."""
        try:
            with urllib.request.urlopen(f"http://{self.address()}/metrics", timeout=10) as answer:
                text = answer.read().decode()
        except (urllib.error.URLError, OSError):
            return -1
        found = re.search(rf"^{re.escape(name)} (\S+)$", text, re.MULTILINE)
        return int(float(found[1])) if found else -1

    @property
    def pid(self) -> int:
        """The io process."""
        assert self._process is not None
        return self._process.pid

    def running(self) -> bool:
        """Whether the io process lives."""
        return self._process is not None and self._process.poll() is None

    @property
    def configuration(self) -> Path:
        """The file with which it is started."""
        return self._config

    def kill(self) -> None:
        """Kill -9, all of it."""
        self._signal(signal.SIGKILL)

    def stop(self) -> int:
        """End it in order; exit code."""
        if not self.running() or self._process is None:
            return 0
        for process in (self._process, *self._beside):
            process.send_signal(signal.SIGTERM)
        try:
            code = self._process.wait(30)
        except subprocess.TimeoutExpired:
            self.kill()
            return -9
        self._signal(signal.SIGKILL)
        return code

    def _signal(self, number: int) -> None:
        for process in (self._process, *self._beside) if self._process is not None else ():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, number)
            process.wait(30)

    def tail(self, size: int = 6000) -> str:
        """Return the end of its log."""
        return self._log.read_bytes()[-size:].decode(errors="replace") if self._log.exists() else ""


def scratch() -> Path:
    """Return a directory of its own."""
    return Path(tempfile.mkdtemp(prefix="muster-scenarios-"))
