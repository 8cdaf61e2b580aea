"""A Kubernetes control plane as plain processes on loopback.

Decides which components run and with which flags. It must not know what is tested with them.
Invariant: after stop() no process of the cluster is left, and two clusters share nothing: not a port, a token, a key or
a directory.
"""

from __future__ import annotations

import atexit
import base64
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType

from tests.controlplane import build, nodes
from tests.controlplane.crds import apply_crds
from tests.controlplane.process import Process
from tests.controlplane.rest import ApiError, Json, Rest

# What makes scheduling.k8s.io serve PodGroup, Workload and CompositePodGroup with all their fields in 1.37. Not here:
# WorkloadWithJob, which makes the job controller create groups by itself.
NATIVE_GANG_GATES: Mapping[str, bool] = {
    "GenericWorkload": True,
    "TopologyAwareWorkloadScheduling": True,
    "CompositePodGroup": True,
    "PodGroupPreemptionPolicy": True,
    "DRAWorkloadResourceClaims": True,
}
_HOST = "127.0.0.1"
_DIRECTORY_PREFIX = "muster-cp-"
_SWEEP_AFTER = 86_400.0  # a failed start may still be of interest for a day
_ATTEMPTS = 3  # of a start, when another program took a port meanwhile


class StartError(RuntimeError):
    """A component did not come up; the text has the last lines of its log."""


class ControlPlane:
    """etcd and kube-apiserver, by choice with kube-controller-manager and kube-scheduler, and kubelets on demand.

    benchmark=True measures the client, not the server's manners: no controllers, no priority and fairness, high
    in-flight limits, and no taint on new nodes. node_grace is how long a silent node stays Ready: a day, so that nodes
    that are only objects need no heart-beat; give less to test the loss of a node.
    """

    def __init__(
        self,
        *,
        controller_manager: bool = True,
        scheduler: bool = False,
        feature_gates: Mapping[str, bool] | None = None,
        api_flags: Sequence[str] = (),
        controller_flags: Sequence[str] = (),
        scheduler_flags: Sequence[str] = (),
        benchmark: bool = False,
        node_grace: float = 86_400.0,
        start_timeout: float = 120.0,
    ):
        self._with_controllers = controller_manager and not benchmark
        self._with_scheduler = scheduler
        self._gates = dict(NATIVE_GANG_GATES if feature_gates is None else feature_gates)
        self._api_flags = list(api_flags)
        self._controller_flags = list(controller_flags)
        self._scheduler_flags = list(scheduler_flags)
        self._benchmark = benchmark
        self._node_grace = node_grace
        self._start_timeout = start_timeout
        self._processes: dict[str, Process] = {}
        self._kubelets: dict[str, Process] = {}
        self._kubelets_lock = threading.Lock()
        self._directory: Path | None = None
        self._rest: Rest | None = None
        self._token = ""
        self._server = ""
        self._etcd_url = ""

    # --- life -------------------------------------------------------------------------------------------------------

    def __enter__(self) -> ControlPlane:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> ControlPlane:
        """Start every component on free ports and wait until the API server is ready."""
        if self._directory is not None:
            raise RuntimeError("this control plane is started already")
        build.ensure(*self._components())
        _sweep()
        for attempt in range(_ATTEMPTS):
            # Short: sockets below it must fit into 108 characters.
            self._directory = Path(tempfile.mkdtemp(prefix=f"{_DIRECTORY_PREFIX}{os.getpid()}-"))
            try:
                self._start_components()
                atexit.register(self.stop)
                return self
            except BaseException as error:
                port_taken = self._port_was_taken()
                self._kill_everything()
                shutil.rmtree(self._directory / "etcd", ignore_errors=True)  # the logs stay: they say why
                self._directory = self._rest = None
                if attempt == _ATTEMPTS - 1 or not isinstance(error, StartError) or not port_taken:
                    raise
        raise AssertionError("unreachable")

    def _components(self) -> list[str]:
        chosen = {"kube-controller-manager": self._with_controllers, "kube-scheduler": self._with_scheduler}
        return ["etcd", "kube-apiserver", *(name for name, wanted in chosen.items() if wanted)]

    def _port_was_taken(self) -> bool:
        """Somebody else may take a port between the moment it was found free and the moment it is listened on."""
        return any("address already in use" in process.tail() for process in self._processes.values())

    def stop(self) -> None:
        """Kill every process and forget every file; harmless when nothing runs."""
        atexit.unregister(self.stop)
        self._kill_everything()
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)
        self._directory = None
        self._rest = None

    def _kill_everything(self) -> None:
        # Readers first, so that their logs do not end with complaints about a server that is gone.
        for process in [*self._kubelets.values(), *reversed(self._processes.values())]:
            process.stop()
        self._kubelets.clear()
        self._processes.clear()

    def _start_components(self) -> None:
        deadline = time.monotonic() + self._start_timeout
        self._token = secrets.token_hex(16)
        (self.directory / "tokens.csv").write_text(f"{self._token},admin,admin,system:masters\n")
        (self.directory / "sa.key").write_text(_signing_key())
        etcd_port, peer_port, api_port = free_ports(3)
        self._server = f"https://{_HOST}:{api_port}"
        self._etcd_url = f"http://{_HOST}:{etcd_port}"
        self._run("etcd", self._etcd_flags(etcd_port, peer_port))
        self._run("kube-apiserver", self._apiserver_flags(etcd_port, api_port))
        certificate = self.directory / "certs" / "apiserver.crt"
        self._wait_for("kube-apiserver", certificate.exists, deadline)
        self._rest = Rest(self._server, self._token, str(certificate))
        self.write_kubeconfig(self.kubeconfig, self._token)
        self._wait_for("kube-apiserver", self._api_ready, deadline)
        if self._with_controllers:
            self._run("kube-controller-manager", self._controller_manager_flags())
        if self._with_scheduler:
            self._run("kube-scheduler", self._kube_scheduler_flags())
        if self._with_controllers:
            # Its first visible deed; pods are refused until the account of their namespace exists.
            self._wait_for("kube-controller-manager", lambda: self.has_account("default"), deadline)

    def _run(self, name: str, flags: Sequence[str]) -> None:
        command = [*build.program(name), *flags]
        process = Process(name, command, self.directory / f"{name}.log", {"TMPDIR": str(self.directory)})
        self._processes[name] = process
        process.start()

    def _wait_for(self, name: str, condition: Callable[[], bool], deadline: float) -> None:
        while not condition():
            for process in self._processes.values():
                if not process.running():
                    raise StartError(f"{process.name} ended with status {process.exit_status()}\n{process.tail()}")
            if time.monotonic() > deadline:
                raise StartError(f"{name} was not ready in time\n{self._processes[name].tail()}")
            time.sleep(0.05)

    def _api_ready(self) -> bool:
        try:
            return self.rest.text("/readyz") == "ok"
        except (OSError, ApiError):  # not listening yet, or listening and not ready
            return False

    # --- flags ------------------------------------------------------------------------------------------------------

    def _etcd_flags(self, port: int, peer_port: int) -> list[str]:
        client, peer = f"http://{_HOST}:{port}", f"http://{_HOST}:{peer_port}"
        return [
            f"--data-dir={self.directory / 'etcd'}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            "--unsafe-no-fsync",  # the data need not survive the machine
            "--log-level=warn",
        ]

    def _apiserver_flags(self, etcd_port: int, port: int) -> list[str]:
        key = self.directory / "sa.key"
        disabled = []
        if not self._with_controllers:
            disabled.append("ServiceAccount")  # nobody creates the accounts that it insists on
        flags = [
            f"--etcd-servers=http://{_HOST}:{etcd_port}",
            f"--bind-address={_HOST}",
            f"--advertise-address={_HOST}",  # otherwise it looks for a default route, which a sandbox may lack
            "--endpoint-reconciler-type=none",
            f"--secure-port={port}",
            f"--cert-dir={self.directory / 'certs'}",
            f"--token-auth-file={self.directory / 'tokens.csv'}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}",
            "--authorization-mode=RBAC",
            "--service-cluster-ip-range=10.0.0.0/24",
            "--allow-privileged=true",
            "--runtime-config=api/all=true",
            "--profiling=false",
        ]
        if self._benchmark:
            disabled.append("TaintNodesByCondition")
            flags += [
                "--enable-priority-and-fairness=false",
                "--max-requests-inflight=4000",
                "--max-mutating-requests-inflight=2000",
            ]
        if disabled:
            flags.append(f"--disable-admission-plugins={','.join(disabled)}")
        return [*flags, *self._gate_flags(), *self._api_flags]

    def _controller_manager_flags(self) -> list[str]:
        return [
            f"--kubeconfig={self.kubeconfig}",
            "--leader-elect=false",
            "--secure-port=0",
            "--controllers=*",
            f"--service-account-private-key-file={self.directory / 'sa.key'}",
            f"--root-ca-file={self.directory / 'certs' / 'apiserver.crt'}",
            f"--node-monitor-grace-period={self._node_grace:g}s",
            "--kube-api-qps=500",
            "--kube-api-burst=1000",
            *self._gate_flags(),
            *self._controller_flags,
        ]

    def _kube_scheduler_flags(self) -> list[str]:
        return [
            f"--kubeconfig={self.kubeconfig}",
            "--leader-elect=false",
            "--secure-port=0",
            *self._gate_flags(),
            *self._scheduler_flags,
        ]

    def _gate_flags(self) -> list[str]:
        gates = ",".join(f"{name}={str(on).lower()}" for name, on in sorted(self._gates.items()))
        return [f"--feature-gates={gates}"] if gates else []

    # --- access -----------------------------------------------------------------------------------------------------

    @property
    def directory(self) -> Path:
        """Where data, logs and the kubeconfig of this start are."""
        if self._directory is None:
            raise RuntimeError("this control plane is not started")
        return self._directory

    @property
    def kubeconfig(self) -> Path:
        return self.directory / "kubeconfig"

    @property
    def server(self) -> str:
        return self._server

    @property
    def token(self) -> str:
        """The token of a member of system:masters."""
        return self._token

    @property
    def ca_file(self) -> Path:
        return self.directory / "certs" / "apiserver.crt"

    @property
    def rest(self) -> Rest:
        """The API as system:masters."""
        if self._rest is None:
            raise RuntimeError("this control plane is not started")
        return self._rest

    def rest_as(self, token: str) -> Rest:
        """The API as somebody else, for tests of permissions."""
        return Rest(self._server, token, str(self.ca_file))

    def service_account_token(self, namespace: str, name: str) -> str:
        request: Json = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        answer = self.rest.create(f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token", request)
        token: str = answer["status"]["token"]
        return token

    def has_account(self, namespace: str) -> bool:
        """Whether the default service account exists, without which admission refuses pods."""
        try:
            self.rest.get(f"/api/v1/namespaces/{namespace}/serviceaccounts/default")
        except ApiError as error:
            if error.status != 404:
                raise
            return False
        return True

    @property
    def runs_controllers(self) -> bool:
        return self._with_controllers

    def write_kubeconfig(self, path: Path, token: str) -> Path:
        """A self-contained kubeconfig for this server and any of its identities."""
        authority = base64.b64encode(self.ca_file.read_bytes()).decode()
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {"name": "test", "cluster": {"server": self._server, "certificate-authority-data": authority}}
            ],
            "users": [{"name": "test", "user": {"token": token}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
            "current-context": "test",
        }
        path.write_text(json.dumps(document, indent=1))  # JSON is YAML
        path.chmod(0o600)
        return path

    def kubectl(self, *arguments: str, input: str | None = None, timeout: float = 60.0) -> str:
        """What kubectl prints; its complaint as an error when it fails."""
        cache = f"--cache-dir={self.directory / 'kubectl-cache'}"
        command = [*build.program("kubectl"), f"--kubeconfig={self.kubeconfig}", cache, *arguments]
        done = subprocess.run(command, input=input, capture_output=True, text=True, timeout=timeout)
        if done.returncode:
            raise RuntimeError(f"kubectl {' '.join(arguments)}: status {done.returncode}: {done.stderr.strip()}")
        return done.stdout

    def apply_crds(self, folder: Path) -> list[str]:
        return apply_crds(self.rest, folder)

    def pids(self) -> dict[str, int]:
        """The running processes by name, for measurements of CPU and memory."""
        everything = {**self._processes, **{f"kubelet/{name}": each for name, each in self._kubelets.items()}}
        return {name: process.pid for name, process in everything.items() if process.running()}

    def log(self, component: str) -> Path:
        return self.directory / f"{component}.log"

    # --- trouble ----------------------------------------------------------------------------------------------------

    def pause_api(self) -> None:
        """The API server accepts connections and answers nothing, as on a machine that hangs."""
        self._processes["kube-apiserver"].pause()

    def resume_api(self) -> None:
        self._processes["kube-apiserver"].send(signal.SIGCONT)

    def stop_api(self) -> None:
        """The API server dies at once; connections are refused until start_api()."""
        self._processes["kube-apiserver"].stop()

    def start_api(self) -> None:
        """Start it again on the same port with the same certificate, and wait until it is ready.

        The controllers start anew too: after an outage they would look again only half a minute later.
        """
        deadline = time.monotonic() + self._start_timeout
        self._processes["kube-apiserver"].start()
        self._wait_for("kube-apiserver", self._api_ready, deadline)
        controllers = self._processes.get("kube-controller-manager")
        if controllers is not None:
            controllers.stop()
            controllers.start()

    def restart_api(self, down_seconds: float = 0.0) -> None:
        """Kill the API server, stay away for a while, and come back on the same port with the same data."""
        self.stop_api()
        time.sleep(down_seconds)
        self.start_api()

    def compact(self) -> None:
        """Let etcd forget its history: who asks for what happened before now, is told that it has expired."""
        status = self._etcd("/v3/maintenance/status", {})
        self._etcd("/v3/kv/compaction", {"revision": status["header"]["revision"], "physical": True})

    def _etcd(self, path: str, body: Json) -> Json:
        request = urllib.request.Request(self._etcd_url + path, json.dumps(body).encode())
        with urllib.request.urlopen(request, timeout=30) as answer:
            found: Json = json.load(answer)
        return found

    # --- nodes ------------------------------------------------------------------------------------------------------

    def register_node(
        self,
        name: str,
        allocatable: Mapping[str, object],
        labels: Mapping[str, str] | None = None,
        taints: Sequence[Mapping[str, str]] = (),
        ready: bool = True,
    ) -> Json:
        """A node that is only an object: pods can be bound to it, nothing runs them."""
        return nodes.register_node(self.rest, nodes.node_object(name, allocatable, labels, taints, ready))

    def start_kubelet(
        self,
        name: str,
        resources: Mapping[str, object] | None = None,
        *,
        labels: Mapping[str, str] | None = None,
        max_pods: int = 110,
        wait: bool = True,
        timeout: float = 120.0,
    ) -> None:
        """A real kubelet over a pretended container runtime: cpu 1, memory 3840Mi and these extended resources."""
        kubelet_port, read_only_port = free_ports(2)
        home = self.directory / f"k-{name}"
        home.mkdir(exist_ok=True)
        flags = [
            "--morph=kubelet",
            f"--kubeconfig={self.kubeconfig}",
            f"--name={name}",
            f"--kubelet-port={kubelet_port}",
            f"--kubelet-read-only-port={read_only_port}",
            f"--max-pods={max_pods}",
            f"--cert-dir={home}",
            "--use-host-image-service=false",
            "--kube-api-qps=100",
            "--kube-api-burst=200",
        ]
        if resources:
            flags.append("--extended-resources=" + ",".join(f"{key}={value}" for key, value in resources.items()))
        if labels:
            flags.append("--node-labels=" + ",".join(f"{key}={value}" for key, value in labels.items()))
        command = [*build.program("hollow-node"), *flags]
        process = Process(f"kubelet {name}", command, self.log(f"kubelet-{name}"), {"TMPDIR": str(home)})
        with self._kubelets_lock:
            if name in self._kubelets:
                raise RuntimeError(f"kubelet {name} runs already")
            self._kubelets[name] = process
        process.start()
        if wait:
            self.wait_node(name, timeout)

    def wait_node(self, name: str, timeout: float = 120.0) -> Json:
        """The node once it is Ready and free of the taint of new nodes."""
        try:
            return nodes.wait_schedulable(self.rest, name, timeout, self._with_controllers)
        except TimeoutError as error:
            kubelet = self._kubelets.get(name)
            raise StartError(f"{error}\n{kubelet.tail() if kubelet else ''}") from error

    def stop_kubelet(self, name: str) -> None:
        """The kubelet dies without a word, as with its machine; its node object stays."""
        with self._kubelets_lock:
            process = self._kubelets.pop(name, None)
        if process is None:
            raise KeyError(f"no kubelet {name} runs")
        process.stop()

    def kubelets(self) -> list[str]:
        return sorted(self._kubelets)


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on now; asked for together, so that they differ."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind((_HOST, 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


def _sweep() -> None:
    """Remove what was left by test runs that were killed or failed to start, once it is old."""
    for directory in Path(tempfile.gettempdir()).glob(f"{_DIRECTORY_PREFIX}*-*"):
        owner = directory.name.removeprefix(_DIRECTORY_PREFIX).split("-")[0]
        try:
            age = time.time() - directory.stat().st_mtime
        except FileNotFoundError:
            continue  # another worker swept it
        if age > _SWEEP_AFTER and not Path("/proc", owner).exists():
            shutil.rmtree(directory, ignore_errors=True)


def _signing_key() -> str:
    """A P-256 key in PEM for service account tokens.

    SEC1 lets a key file leave out the public point, so a random number below the order of the curve is all it takes.
    """
    order = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
    scalar = (secrets.randbelow(order - 1) + 1).to_bytes(32, "big")
    curve = bytes.fromhex("a00a06082a8648ce3d030107")  # [0] OID prime256v1
    content = b"\x02\x01\x01\x04\x20" + scalar + curve
    der = b"\x30" + bytes([len(content)]) + content
    return f"-----BEGIN EC PRIVATE KEY-----\n{base64.encodebytes(der).decode()}-----END EC PRIVATE KEY-----\n"
