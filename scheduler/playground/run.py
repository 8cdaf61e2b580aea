"""The whole playground at once: server, fake nodes, fake controllers.

Decided here: what `muster playground` starts and prints. Invariant: leaving `Playground` stops everything it started.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import yaml

from scheduler.playground.client import Client
from scheduler.playground.disruption import DisruptionController
from scheduler.playground.errors import Obj
from scheduler.playground.jobs import JobController
from scheduler.playground.kubelet import FakeKubelet, NodeSpec
from scheduler.playground.replicas import DeploymentController, ReplicaSetController
from scheduler.playground.server import PlaygroundServer
from scheduler.playground.volumes import Provisioner, VolumeController


class Part(Protocol):
    """Something that is stopped."""

    async def stop(self) -> None:
        """Stop."""


def node_specs(
    count: int, resources: dict[str, str] | None = None, *, prefix: str = "worker", labels: dict[str, str] | None = None
) -> list[NodeSpec]:
    """Return `count` equal nodes; `resources` adds to or replaces 16 cpu, 64Gi memory, 110 pods."""
    allocatable = {"cpu": "16", "memory": "64Gi", "pods": "110", **(resources or {})}
    return [NodeSpec(f"{prefix}-{index}", dict(allocatable), dict(labels or {})) for index in range(1, count + 1)]


async def start_controllers(url: str = "", *, kubeconfig: str | Path | None = None) -> list[Part]:
    """Start the fake controllers against an API server that has none."""
    return [
        await JobController(url, kubeconfig=kubeconfig).start(),
        await ReplicaSetController(url, kubeconfig=kubeconfig).start(),
        await DeploymentController(url, kubeconfig=kubeconfig).start(),
        await DisruptionController(url, kubeconfig=kubeconfig).start(),
        await VolumeController(url, kubeconfig=kubeconfig).start(),
        await Provisioner(url, kubeconfig=kubeconfig).start(),
    ]


async def apply_manifests(client: Client, documents: list[Obj]) -> None:
    """Apply objects with server-side apply, CRDs first."""
    order = sorted(documents, key=lambda one: one.get("kind") != "CustomResourceDefinition")
    for one in order:
        path = await resource_path(client, one)
        await client.request(
            "PATCH",
            path,
            one,
            content_type="application/apply-patch+yaml",
            fieldManager="muster-playground",
            force="true",
        )


async def resource_path(client: Client, obj: Obj) -> str:
    """Return the URL path of an object, by discovery."""
    version, kind, found = obj["apiVersion"], obj["kind"], obj["metadata"]
    base = f"/apis/{version}" if "/" in version else f"/api/{version}"
    listed = await client.request("GET", base)
    row = next((one for one in listed["resources"] if one["kind"] == kind and "/" not in one["name"]), None)
    if row is None:
        raise LookupError(f"{version} serves no kind {kind}")
    place = f"/namespaces/{found.get('namespace', 'default')}" if row["namespaced"] else ""
    return f"{base}{place}/{row['name']}/{found['name']}"


class Playground:
    """Server, kubelet and controllers of one playground. `async with Playground(...) as p: p.url`"""

    def __init__(
        self,
        *,
        nodes: list[NodeSpec] | None = None,
        crds: list[Path] | None = None,
        port: int = 0,
        heartbeat: float = 10.0,
        start_delay: float = 0.02,
        grace_factor: float = 1.0,
    ) -> None:
        self.server = PlaygroundServer(port=port)
        self.crds = crds or []
        self._nodes = nodes or []
        self._kubelet_options = {"heartbeat": heartbeat, "start_delay": start_delay, "grace_factor": grace_factor}
        self.kubelet: FakeKubelet | None = None
        self._parts: list[Part] = []

    @property
    def url(self) -> str:
        """Base URL of the server."""
        return self.server.url

    async def start(self) -> Playground:
        """Start everything."""
        await self.server.start()
        self._parts.append(self.server)
        try:
            client = Client(self.url)
            try:
                await apply_manifests(client, load_manifests(self.crds))
            finally:
                await client.close()
            self.kubelet = FakeKubelet(
                self.url,
                nodes=self._nodes,
                heartbeat=self._kubelet_options["heartbeat"],
                start_delay=self._kubelet_options["start_delay"],
                grace_factor=self._kubelet_options["grace_factor"],
            )
            self._parts.append(await self.kubelet.start())
            self._parts += await start_controllers(self.url)
        except BaseException:
            await self.stop()
            raise
        return self

    async def stop(self) -> None:
        """Stop everything, last started first."""
        while self._parts:
            await self._parts.pop().stop()

    async def __aenter__(self) -> Playground:
        return await self.start()

    async def __aexit__(self, *_: object) -> None:
        await self.stop()


def load_manifests(paths: list[Path]) -> list[Obj]:
    """Return the documents of YAML files; of directories, every *.yaml below them."""
    documents: list[Obj] = []
    for path in paths:
        files = sorted(path.rglob("*.yaml")) if path.is_dir() else [path]
        for file in files:
            documents += [one for one in yaml.safe_load_all(file.read_text()) if one]
    return documents


def run_playground(
    *,
    nodes: int = 2,
    resources: dict[str, str] | None = None,
    port: int = 0,
    kubeconfig: str | Path | None = None,
    crds: list[Path] | None = None,
    commands: Sequence[str] = ("kubectl get nodes", "muster run --kubeconfig $KUBECONFIG"),
    echo: Callable[[str], None] = print,
) -> int:
    """Start a playground, say how to use it, and run until interrupted. Return the exit status.

    commands: examples that are shown after the kubeconfig.
    """
    with contextlib.ExitStack() as stack:
        if kubeconfig is None:
            scratch = stack.enter_context(tempfile.TemporaryDirectory(prefix="muster-playground-"))
            kubeconfig = Path(scratch) / "kubeconfig"
        with contextlib.suppress(KeyboardInterrupt):
            import uvloop

            uvloop.run(_serve(node_specs(nodes, resources), port, Path(kubeconfig), crds or [], commands, echo))
    return 0


async def _serve(
    nodes: list[NodeSpec],
    port: int,
    kubeconfig: Path,
    crds: list[Path],
    commands: Sequence[str],
    echo: Callable[[str], None],
) -> None:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for sign in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(sign, stopped.set)
    async with Playground(nodes=nodes, crds=crds, port=port) as playground:
        path = playground.server.write_kubeconfig(kubeconfig)
        resources = (
            ", ".join(f"{name} {value}" for name, value in sorted(nodes[0].allocatable.items())) if nodes else ""
        )
        echo(f"Playground API server: {playground.url}  (in memory: everything is gone when it stops)")
        echo(f"{len(nodes)} fake nodes{': each ' + resources if resources else ''}")
        echo("")
        echo(f"  export KUBECONFIG={path}")
        for command in commands:
            echo(f"  {command}")
        echo("")
        echo("A pod ends after the seconds in its annotation playground.muster.sh/run-seconds. Ctrl-C stops.")
        await stopped.wait()
