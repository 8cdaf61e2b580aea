"""A corner of a real cluster for one fault test: nodes and a namespace of its own, and schedulers that serve only it.

Decided here: how schedulers with accidents are started and ended, what is recorded of the pods, and the invariants that
every fault test ends with. All schedulers of a stage share a schedulerName and a lease that nobody else uses, so stages
do not meet although they are on one API server.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import psutil

from tests.controlplane.cluster import ControlPlane
from tests.controlplane.fixtures import create_namespace, delete_namespace
from tests.controlplane.rest import ApiError, Json, Rest, resource_path
from tests.e2e.recorder import Recorder

GPU = "example.com/gpu"
LABEL = "e2e.muster.sh/stage"
DEADLINE = 4.0
"""binder.deadline of every scheduler here that has no other."""
SLACK = 4.0
"""Seconds that a busy machine may take on top of what is promised."""
PATIENCE = {"leaseDuration": "15s", "renewDeadline": "10s", "retryPeriod": "500ms"}
"""A lease that a busy machine does not lose. `Stage.free_lease` saves the test from waiting it out."""
LEASE, RENEW = 5.0, 3.5
SHORT_LEASE = {"leaseDuration": f"{LEASE:g}s", "renewDeadline": f"{RENEW * 1000:g}ms", "retryPeriod": "500ms"}
"""For tests of the lease itself, which do wait it out."""
GROUPS = ("scheduling.muster.sh/v1alpha1", "podgroups")


def until(condition: Callable[[], Any], what: str | Callable[[], str], within: float = 60.0, poll: float = 0.05) -> Any:
    """Return the first true value of the condition; fail with `what` when there is none in time."""
    deadline = time.monotonic() + within
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {within:g} s: {what() if callable(what) else what}")
        time.sleep(poll)


class Replica:
    """One scheduler: both of its processes, its journal and its log."""

    def __init__(self, stage: Stage, name: str, plan: Json | None, config: Json | None) -> None:
        self.name = name
        self._directory = stage.directory
        self.log = stage.directory / f"{name}.log"
        self._journal = stage.directory / f"{name}.journal"
        document = {
            "apiVersion": "config.muster.sh/v1alpha1",
            "kind": "SchedulerConfiguration",
            "schedulerNames": [stage.scheduler_name],
            "namespace": stage.scheduler_name,
            "sessionPeriod": "100ms",
            "leaderElection": PATIENCE,
            "binder": {"deadline": f"{DEADLINE:g}s", "history": "600s"},
            "healthAddress": "127.0.0.1:0",
            "logFormat": "json",
            **(config or {}),
        }
        config_file, plan_file = stage.directory / f"{name}.yaml", stage.directory / f"{name}.plan"
        config_file.write_text(json.dumps(document))
        plan_file.write_text(json.dumps({"journal": str(self._journal), **(plan or {})}))
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [
                    sys.executable, "-m", "tests.e2e.launcher", str(plan_file),
                    "--kubeconfig", str(stage.cluster.kubeconfig), "--config", str(config_file),
                ],
                stdout=log, stderr=log, start_new_session=True, env={**os.environ, "PYTHONUNBUFFERED": "1"},
                cwd=Path(__file__).parents[2],
            )  # fmt: skip

    # -- what it says ---------------------------------------------------------------------------------------------

    def journal(self, what: str = "") -> list[Json]:
        """Return the lines of the journal."""
        if not self._journal.exists():
            return []
        lines = [json.loads(line) for line in self._journal.read_text().splitlines() if line.endswith("}")]
        return [line for line in lines if not what or line["what"] == what]

    def said(self, event: str) -> list[Json]:
        """Return log entries with this event."""
        found = []
        for line in self.log.read_text(errors="replace").splitlines():
            with contextlib.suppress(ValueError):
                entry = json.loads(line)
                if isinstance(entry, dict) and entry.get("event") == event:
                    found.append(entry)
        return found

    def get(self, path: str) -> tuple[int, str]:
        """GET from its port: status (0: none) and text."""
        serving = self.said("serving")
        if not serving:
            return 0, ""
        try:
            with urllib.request.urlopen(f"http://{serving[-1]['address']}{path}", timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except (OSError, http.client.HTTPException):
            return 0, ""

    def lives(self) -> None:
        """Fail when the process has ended."""
        assert self.process.poll() is None, f"{self.name} ended with {self.process.returncode}:\n{self.tail()}"

    def ready(self) -> bool:
        """Whether /readyz is true; fails when the process has ended."""
        self.lives()
        return self.get("/readyz")[0] == 200

    def wait_ready(self) -> Replica:
        """Wait for /readyz."""
        until(self.ready, lambda: f"{self.name} ready: {self.get('/readyz')}\n{self.tail()}", within=90)
        return self

    def leads(self) -> bool:
        """Whether it says that it has become leader."""
        return bool(self.said("leading"))

    def wait_leads(self) -> Replica:
        """Wait until it leads; fails when the process has ended."""
        until(lambda: self.leads() or self.lives(), lambda: f"{self.name} leads\n{self.tail()}", within=90)
        return self

    def accident(self, within: float = 90.0) -> Json:
        """Wait for the planned accident and return its line of the journal."""
        found: list[Json] = until(lambda: self.journal("accident"), lambda: f"no accident\n{self.tail()}", within)
        return found[0]

    @property
    def brain(self) -> int:
        """The pid of the deciding process; 0 where there is none."""
        return int(self.journal("started")[-1]["brain"])

    def wait_end(self, within: float = 60.0) -> int:
        """Wait until both processes are gone; the exit code of the first."""
        try:
            code = self.process.wait(within)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.name} does not end:\n{self.tail()}") from None
        until(
            lambda: not self.brain or not _alive(self.brain),
            f"the brain {self.brain} of {self.name} outlives it",
            within=30,
        )
        return code

    def tail(self, size: int = 5000) -> str:
        """Return the end of its log."""
        return self.log.read_text(errors="replace")[-size:] if self.log.exists() else ""

    # -- what is done to it ---------------------------------------------------------------------------------------

    def wake(self) -> None:
        """Continue both processes."""
        os.killpg(self.process.pid, signal.SIGCONT)

    def freeze(self) -> None:
        """Let both processes stand still."""
        os.killpg(self.process.pid, signal.SIGSTOP)
        until(self.frozen, "both processes stand still")

    def frozen(self) -> bool:
        """Whether both processes stand still."""
        pids = (self.process.pid, self.brain) if self.brain else (self.process.pid,)
        return all(psutil.Process(pid).status() == psutil.STATUS_STOPPED for pid in pids)

    def kill(self) -> None:
        """Kill -9, both."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(15)

    def stop(self) -> int:
        """End it in order."""
        self.process.terminate()
        return self.wait_end()


def _alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    except psutil.NoSuchProcess:
        return False


class Stage:
    """See the module. Use as a context manager."""

    def __init__(self, cluster: ControlPlane, *, nodes: int = 2, gpus: int = 2, register: bool = True) -> None:
        self.cluster, self.rest = cluster, cluster.rest
        self.id = f"st{secrets.token_hex(4)}"
        self.scheduler_name = f"muster-{self.id}"
        self.directory = Path(tempfile.mkdtemp(prefix=f"muster-e2e-{self.id}-"))
        self.namespace = create_namespace(cluster, self.id)
        self.node_names = [f"{self.id}-n{i}" for i in range(nodes)] if register else []
        self._select = register
        self.replicas: list[Replica] = []
        impatient = Rest(cluster.server, cluster.token, str(cluster.ca_file), timeout=10.0)
        self.recorder = Recorder(impatient, self.namespace)
        for name in self.node_names:
            self.register(name, gpus)

    def register(self, name: str, gpus: int) -> None:
        """Create a node of this stage."""
        amounts = {"cpu": "16", "memory": "64Gi", GPU: str(gpus)}
        self.cluster.register_node(name, amounts, labels={LABEL: self.id})
        if name not in self.node_names:
            self.node_names.append(name)

    def __enter__(self) -> Stage:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if error is not None:
            for replica in self.replicas:
                sys.stdout.write(f"--- {replica.name}: log\n{replica.tail()}\n")
            sys.stdout.write("\n".join(["--- pods", *self.picture(), ""]))
        for replica in self.replicas:
            replica.kill()
        self.recorder.stop()
        for path in (f"/api/v1/nodes/{name}" for name in self.node_names):
            self.rest.delete_if_present(path)
        self.rest.delete_if_present(f"/api/v1/namespaces/{self.scheduler_name}")
        delete_namespace(self.cluster, self.namespace)
        if error is None:
            shutil.rmtree(self.directory, ignore_errors=True)  # after a failure the logs stay: they say why

    def scheduler(self, *, config: Json | None = None, **plan: Any) -> Replica:
        """Start a scheduler with what shall go wrong in it."""
        replica = Replica(self, f"scheduler-{len(self.replicas)}", plan, config)
        self.replicas.append(replica)
        return replica

    def free_lease(self) -> None:
        """Let the next scheduler lead at once, as if the lease of one that is dead for certain had run out."""
        assert all(replica.process.poll() is not None for replica in self.replicas), "somebody may still hold it"
        path = resource_path("coordination.k8s.io/v1", "leases", "muster", namespace=self.scheduler_name)
        self.rest.patch(path, {"spec": {"holderIdentity": ""}})

    # -- objects --------------------------------------------------------------------------------------------------

    def pod(self, name: str, group: str, gpu: int = 1, **spec: Any) -> Json:
        """A member, as an object."""
        amounts = {"cpu": "100m", GPU: str(gpu)}
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name, "namespace": self.namespace,
                "labels": {"scheduling.muster.sh/pod-group": group} if group else {},
            },
            "spec": {
                "schedulerName": self.scheduler_name,
                "terminationGracePeriodSeconds": 0,
                "nodeSelector": {LABEL: self.id} if self._select else {},
                "containers": [
                    {
                        "name": "main", "image": "registry.k8s.io/pause:3.10",
                        "resources": {"requests": amounts, "limits": {GPU: str(gpu)}},
                    }
                ],
                **spec,
            },
        }  # fmt: skip

    def gang(self, name: str, size: int = 4, gpu: int = 1) -> None:
        """Create a PodGroup and its members NAME-0, NAME-1, ..."""
        group = {
            "apiVersion": GROUPS[0],
            "kind": "PodGroup",
            "metadata": {"name": name, "namespace": self.namespace},
            "spec": {"minMember": size},
        }
        self.rest.create(resource_path(*GROUPS, namespace=self.namespace), group)
        for number in range(size):
            self.create_pod(self.pod(f"{name}-{number}", name, gpu))

    def create_pod(self, pod: Json) -> None:
        """Create a pod."""
        self.rest.create(resource_path("v1", "pods", namespace=self.namespace), pod)

    def pod_path(self, name: str, sub: str = "") -> str:
        """Return the path of a pod."""
        return resource_path("v1", "pods", name, namespace=self.namespace, subresource=sub)

    def pods(self, prefix: str = "") -> list[Json]:
        """Return the pods that are not being deleted."""
        found = self.rest.list(resource_path("v1", "pods", namespace=self.namespace))
        return [
            pod for pod in found
            if pod["metadata"]["name"].startswith(prefix) and "deletionTimestamp" not in pod["metadata"]
        ]  # fmt: skip

    def bound(self, prefix: str = "") -> int:
        """Return how many live pods are on a node."""
        return sum(bool(pod["spec"].get("nodeName")) for pod in self.pods(prefix))

    def delete(self, prefix: str) -> None:
        """Delete pods, at once."""
        for pod in self.pods(prefix):
            self.rest.delete_if_present(self.pod_path(pod["metadata"]["name"]), grace=0)

    def refill(self, group: str, size: int, within: float = 60.0, *, bound: bool = True) -> None:
        """Make anew what a gang lacks, as its controller would, until it is whole (and bound)."""

        def whole() -> bool:
            present = {pod["metadata"]["name"]: pod for pod in self.pods(f"{group}-")}
            for name in (f"{group}-{number}" for number in range(size)):
                if name not in present:
                    try:
                        self.create_pod(self.pod(name, group))
                    except ApiError as error:
                        if error.status != 409:  # its predecessor is still being deleted
                            raise
            return len(present) == size and (not bound or all(p["spec"].get("nodeName") for p in present.values()))

        until(whole, lambda: "\n".join([f"{group} is whole", *self.picture()]), within)

    def group_path(self, name: str) -> str:
        """Return the path of a PodGroup."""
        return resource_path(*GROUPS, name, namespace=self.namespace)

    def group(self, name: str) -> Json:
        """Return a PodGroup."""
        return self.rest.get(self.group_path(name))

    def requests(self) -> list[Json]:
        """Return the BindRequests."""
        return self.rest.list(
            resource_path("scheduling.muster.sh/v1alpha1", "bindrequests", namespace=self.scheduler_name)
        )

    def events(self, kind: str, name: str) -> list[str]:
        """Return what events say about an object: "reason: note"."""
        path = resource_path("events.k8s.io/v1", "events", namespace=self.namespace)
        return [
            f"{event['reason']}: {event.get('note', '')}" for event in self.rest.list(path)
            if (event["regarding"].get("kind"), event["regarding"].get("name")) == (kind, name)
        ]  # fmt: skip

    def wait_ended(self, count: int = 1, within: float = 60.0) -> None:
        """Wait until so many BindRequests have ended, whichever way."""

        def ended() -> bool:
            phases = [request.get("status", {}).get("phase") for request in self.requests()]
            return sum(phase in ("Bound", "Failed") for phase in phases) >= count

        until(ended, lambda: f"{count} ended: {self.requests()}", within)

    # -- what must hold -------------------------------------------------------------------------------------------

    def wait_bound(self, prefix: str, count: int, within: float = 60.0) -> None:
        """Wait until so many pods are bound."""
        until(lambda: self.bound(prefix) == count, lambda: "\n".join([f"{count} of {prefix}", *self.picture()]), within)

    def stays(self, prefix: str, count: int, seconds: float = 1.0) -> None:
        """Fail when the number of bound pods changes in the next seconds."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            assert self.bound(prefix) == count, self.picture()
            time.sleep(0.1)

    def picture(self) -> list[str]:
        """Say where every pod is."""
        return [
            f"{pod['metadata']['name']}: {pod['spec'].get('nodeName', '-')} {_why(pod)}" for pod in self.pods()
        ]  # fmt: skip

    def check(self, *, limit: Iterable[str] | None = None) -> None:
        """No node over its allocatable; no pod ever on two nodes, nor bound twice."""
        used: dict[str, int] = {}
        for pod in self.rest.list("/api/v1/pods"):
            node = pod["spec"].get("nodeName")
            if node in (limit or self.node_names) and pod.get("status", {}).get("phase") not in ("Succeeded", "Failed"):
                for container in pod["spec"]["containers"]:
                    amount = container.get("resources", {}).get("requests", {}).get(GPU, "0")
                    used[node] = used.get(node, 0) + int(amount)
        for name, amount in used.items():
            node = self.rest.get(f"/api/v1/nodes/{name}")
            assert amount <= int(node["status"]["allocatable"].get(GPU, "0")), f"{name} holds {amount}"
        assert all(len(nodes) == 1 for nodes in self.recorder.nodes_of().values()), self.recorder.nodes_of()


def binds_done(replicas: Iterable[Replica], pod: str) -> int:
    """Return how many bind requests for a pod name were answered with success."""
    return sum(
        line["path"].endswith(f"/pods/{pod}/binding") for replica in replicas for line in replica.journal("done")
    )  # fmt: skip


def _why(pod: Json) -> str:
    for condition in pod.get("status", {}).get("conditions", []):
        if condition["type"] == "PodScheduled":
            return f"{condition['status']} {condition.get('reason', '')} {condition.get('message', '')}"
    return ""
