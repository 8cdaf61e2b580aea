"""A fake kubelet for any number of nodes: registers them, runs what is bound to them, ends what is deleted.

Decided here: the life of a pod on a node, from rejection or start to its last status. It is a client over HTTP like any
other and can drive the embedded and the real API server. It must not know schedulers. Invariant: pods that run on a
node at one time never exceed its allocatable; a pod that was deleted goes away after its grace period, once.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import structlog

from scheduler.playground.client import Client, HttpError
from scheduler.playground.errors import Obj
from scheduler.playground.fit import is_active, rejection
from scheduler.playground.metadata import micro_now, now

log = structlog.get_logger("muster.playground.kubelet")
RUN_SECONDS = "playground.muster.sh/run-seconds"
EXIT_PHASE = "playground.muster.sh/exit-phase"


@dataclass(slots=True)
class NodeSpec:
    """A node to register."""

    name: str
    allocatable: dict[str, str] = field(default_factory=lambda: {"cpu": "16", "memory": "64Gi", "pods": "110"})
    labels: dict[str, str] = field(default_factory=dict)
    taints: list[Obj] = field(default_factory=list)

    def manifest(self) -> Obj:
        """Return the Node as a kubelet registers it."""
        capacity = {"pods": "110", **self.allocatable}
        node: Obj = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": self.name,
                "labels": {
                    "kubernetes.io/hostname": self.name,
                    "kubernetes.io/os": "linux",
                    "kubernetes.io/arch": "amd64",
                    **self.labels,
                },
            },
            "spec": {"taints": self.taints} if self.taints else {},
            "status": {**ready_status(), "capacity": capacity, "allocatable": capacity},
        }
        node["status"]["addresses"] = [{"type": "Hostname", "address": self.name}]
        node["status"]["nodeInfo"] = {
            "architecture": "amd64",
            "bootID": self.name,
            "containerRuntimeVersion": "fake://1",
            "kernelVersion": "fake",
            "kubeProxyVersion": "",
            "kubeletVersion": "v1.37.0-fake",
            "machineID": self.name,
            "operatingSystem": "linux",
            "osImage": "fake",
            "systemUUID": self.name,
        }
        return node


def ready_status() -> Obj:
    """Return the conditions of a healthy node."""
    stamp = now()
    rows = [
        ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
        ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
        ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
        ("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
    ]
    return {
        "conditions": [
            {
                "type": kind,
                "status": status,
                "reason": reason,
                "message": message,
                "lastHeartbeatTime": stamp,
                "lastTransitionTime": stamp,
            }
            for kind, status, reason, message in rows
        ]
    }


Work = Callable[[], Awaitable[None]]


class FakeKubelet:
    """Runs the pods of its nodes. `await start()`, then `await stop()`."""

    def __init__(
        self,
        url: str = "",
        *,
        kubeconfig: str | Path | None = None,
        nodes: Iterable[NodeSpec] = (),
        start_delay: float = 0.02,
        heartbeat: float = 10.0,
        grace_factor: float = 1.0,
        exit_on_term: float | None = 0.05,
        writers: int = 16,
        reject: bool = True,
    ) -> None:
        """`exit_on_term`: seconds after which a container ends when told to (None: only when its grace is over).

        `grace_factor` scales grace periods, so that a test need not wait 30 s.
        """
        self.client = Client(url, kubeconfig=kubeconfig)
        self.specs = {spec.name: spec for spec in nodes}
        self.start_delay = start_delay
        self.heartbeat = heartbeat
        self.grace_factor = grace_factor
        self.exit_on_term = exit_on_term
        self.writers = writers
        self.reject = reject
        self.nodes: dict[str, Obj] = {}
        self.pods: dict[str, Obj] = {}
        """Pods bound to our nodes, by uid."""
        self.by_node: dict[str, dict[str, None]] = {}
        self.held: set[tuple[str, str]] = set()
        self.hold_all = False
        self.rejected: list[tuple[str, str, str]] = []
        self._admitted: dict[str, None] = {}
        self._refused: set[str] = set()
        self._ending: set[str] = set()
        self._due: list[tuple[float, int, Work]] = []
        self._count = itertools.count()
        self._wake = asyncio.Event()
        self._queue: asyncio.Queue[Work] = asyncio.Queue()
        self._tasks: list[asyncio.Task[None]] = []

    # ---- life ----

    async def start(self) -> FakeKubelet:
        """Register the nodes and begin to run pods."""
        for name in sorted(self.specs):
            await self._register(self.specs[name])
        jobs = [self._follow_pods(), self._follow_nodes(), self._timer()]
        if self.heartbeat:
            jobs.append(self._heartbeats())
        jobs += [self._writer() for _ in range(self.writers)]
        self._tasks = [asyncio.create_task(job) for job in jobs]
        return self

    async def stop(self) -> None:
        """Stop; nodes and pods stay as they are in the API."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []
        await self.client.close()

    async def __aenter__(self) -> FakeKubelet:
        return await self.start()

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def add_node(self, spec: NodeSpec) -> None:
        """Register one more node."""
        self.specs[spec.name] = spec
        await self._register(spec)

    async def remove_node(self, name: str) -> None:
        """Delete a node and forget its pods, as when a machine is lost."""
        self.specs.pop(name, None)
        try:
            await self.client.request("DELETE", f"/api/v1/nodes/{name}")
        except HttpError as error:
            if error.status != 404:
                raise

    async def _register(self, spec: NodeSpec) -> None:
        manifest = spec.manifest()
        try:
            node = await self.client.request("POST", "/api/v1/nodes", manifest)
        except HttpError as error:
            if error.status != 409:
                raise
            node = await self.client.request("GET", f"/api/v1/nodes/{spec.name}")
        path = f"/api/v1/nodes/{spec.name}"
        node = await self.client.merge(f"{path}/status", {"status": manifest["status"]})
        wanted = spec.taints
        present = [t for t in node["spec"].get("taints") or () if t.get("key") != "node.kubernetes.io/not-ready"]
        merged = present + [t for t in wanted if t not in present]
        if merged != (node["spec"].get("taints") or []):
            await self.client.merge(path, {"spec": {"taints": merged or None}})
        self.nodes[spec.name] = node
        await self._lease(spec.name)

    async def _lease(self, name: str) -> None:
        path = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
        spec = {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": micro_now()}
        try:
            await self.client.merge(f"{path}/{name}", {"spec": spec})
        except HttpError as error:
            if error.status != 404:
                raise
            await self.client.request("POST", path, {"metadata": {"name": name}, "spec": spec})

    async def _heartbeats(self) -> None:
        while True:
            await asyncio.sleep(self.heartbeat)
            for name in sorted(self.specs):
                self._submit(lambda name=name: self._beat(name))  # type: ignore[misc]

    async def _beat(self, name: str) -> None:
        await self._lease(name)
        await self.client.merge(f"/api/v1/nodes/{name}/status", {"status": ready_status()})

    # ---- what tests pull ----

    async def finish(self, namespace: str, name: str, phase: str = "Succeeded", exit_code: int | None = None) -> None:
        """End a running pod."""
        path = f"/api/v1/namespaces/{namespace}/pods/{name}"
        pod = await self.client.request("GET", path)
        await self._end(pod, phase, exit_code if exit_code is not None else (0 if phase == "Succeeded" else 1))

    def hold(self, namespace: str, name: str) -> None:
        """Let a pod hang in termination until `release`."""
        self.held.add((namespace, name))

    def release(self, namespace: str = "", name: str = "") -> None:
        """Let one held pod end, or all of them."""
        if name:
            self.held.discard((namespace, name))
        else:
            self.held.clear()
            self.hold_all = False
        for uid in list(self.pods):
            self._consider(uid)

    # ---- events ----

    async def _follow_nodes(self) -> None:
        async for kind, data in self.client.follow("/api/v1/nodes"):
            if kind == "SYNC":
                self.nodes = {node["metadata"]["name"]: node for node in data}
            elif kind == "DELETED":
                self.nodes.pop(data["metadata"]["name"], None)
            else:
                self.nodes[data["metadata"]["name"]] = data

    async def _follow_pods(self) -> None:
        async for kind, data in self.client.follow("/api/v1/pods", fieldSelector="spec.nodeName!="):
            if kind == "SYNC":
                present = {pod["metadata"]["uid"] for pod in data}
                for uid in [uid for uid in self.pods if uid not in present]:
                    self._forget(uid)
                for pod in data:
                    self._observe(pod)
            elif kind == "DELETED":
                self._forget(data["metadata"]["uid"])
            else:
                self._observe(data)

    def _observe(self, pod: Obj) -> None:
        node = pod["spec"].get("nodeName")
        if node not in self.specs:
            return
        uid = pod["metadata"]["uid"]
        self.pods[uid] = pod
        self.by_node.setdefault(node, {})[uid] = None
        self._consider(uid)

    def _forget(self, uid: str) -> None:
        pod = self.pods.pop(uid, None)
        self._admitted.pop(uid, None)
        self._ending.discard(uid)
        self._refused.discard(uid)
        if pod is not None:
            self.by_node.get(pod["spec"]["nodeName"], {}).pop(uid, None)

    def _consider(self, uid: str) -> None:
        pod = self.pods[uid]
        found = pod["metadata"]
        if found.get("deletionTimestamp"):
            self._consider_end(uid, pod)
            return
        if uid in self._admitted or uid in self._refused or not is_active(pod):
            return
        if (pod.get("status") or {}).get("startTime"):
            self._admitted[uid] = None
            self._plan_exit(uid, pod)
            return
        node = self.nodes.get(pod["spec"]["nodeName"])
        if node is None:
            node = self.specs[pod["spec"]["nodeName"]].manifest()
        others = [
            self.pods[one] for one in self.by_node[pod["spec"]["nodeName"]] if one != uid and one in self._admitted
        ]
        refused = rejection(pod, node, [other for other in others if is_active(other)]) if self.reject else None
        if refused:
            self._refused.add(uid)
            self.rejected.append((found["namespace"], found["name"], refused[0]))
            self._submit(lambda: self._reject(pod, *refused))
            return
        self._admitted[uid] = None
        self._later(self.start_delay, lambda: self._run(uid))

    def _consider_end(self, uid: str, pod: Obj) -> None:
        found = pod["metadata"]
        key = (found["namespace"], found["name"])
        grace = (found.get("deletionGracePeriodSeconds") or 0) * self.grace_factor
        if uid in self._ending and grace > 0:
            return
        if self.hold_all or key in self.held:
            return
        self._ending.add(uid)
        wait = grace if self.exit_on_term is None else min(grace, self.exit_on_term)
        self._later(wait, lambda: self._finalize(uid))

    # ---- writes ----

    def _path(self, pod: Obj) -> str:
        return f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"

    async def _status(self, pod: Obj, status: Obj) -> None:
        body = {"metadata": {"uid": pod["metadata"]["uid"]}, "status": status}
        await self.client.merge(self._path(pod) + "/status", body)

    async def _reject(self, pod: Obj, reason: str, message: str) -> None:
        status = {"phase": "Failed", "reason": reason, "message": message, "startTime": now()}
        await self._status(pod, status)

    async def _run(self, uid: str) -> None:
        pod = self.pods.get(uid)
        if pod is None or pod["metadata"].get("deletionTimestamp"):
            return
        stamp = now()
        rows = [row for row in pod.get("status", {}).get("conditions") or () if row["type"] == "PodScheduled"]
        kinds = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady")
        conditions = [
            {"type": kind, "status": "True", "lastProbeTime": None, "lastTransitionTime": stamp} for kind in kinds
        ]
        status: Obj = {
            "phase": "Running",
            "startTime": stamp,
            "hostIP": "127.0.0.1",
            "podIP": _address(uid),
            "podIPs": [{"ip": _address(uid)}],
            "conditions": conditions + rows,
            "containerStatuses": [
                {
                    "name": container["name"],
                    "image": container.get("image", ""),
                    "imageID": container.get("image", ""),
                    "containerID": f"fake://{uid}/{container['name']}",
                    "ready": True,
                    "started": True,
                    "restartCount": 0,
                    "lastState": {},
                    "state": {"running": {"startedAt": stamp}},
                }
                for container in pod["spec"]["containers"]
            ],
        }
        await self._status(pod, status)
        self._plan_exit(uid, pod)

    def _plan_exit(self, uid: str, pod: Obj) -> None:
        annotations = pod["metadata"].get("annotations") or {}
        text = annotations.get(RUN_SECONDS)
        if text is None:
            return
        try:
            seconds = float(text)
        except ValueError:
            log.warning("annotation is not a number", pod=self._path(pod), annotation=RUN_SECONDS, value=text)
            return
        started = (pod.get("status") or {}).get("startTime")
        if started:
            seconds -= (datetime.now(UTC) - datetime.fromisoformat(started)).total_seconds()
        phase = annotations.get(EXIT_PHASE, "Succeeded")
        self._later(max(0.0, seconds), lambda: self._end_known(uid, phase))

    async def _end_known(self, uid: str, phase: str) -> None:
        pod = self.pods.get(uid)
        if pod is not None and is_active(pod):
            await self._end(pod, phase, 0 if phase == "Succeeded" else 1)

    async def _end(self, pod: Obj, phase: str, exit_code: int) -> None:
        await self._status(pod, ended_status(pod, phase, exit_code))

    async def _finalize(self, uid: str) -> None:
        pod = self.pods.get(uid)
        if pod is None:
            return
        key = (pod["metadata"]["namespace"], pod["metadata"]["name"])
        if self.hold_all or key in self.held:
            self._ending.discard(uid)
            return
        if is_active(pod):
            await self._end(pod, "Failed", 143)
        options = {"gracePeriodSeconds": 0, "preconditions": {"uid": uid}}
        await self.client.request("DELETE", self._path(pod), options)

    # ---- queues ----

    def _submit(self, work: Work) -> None:
        self._queue.put_nowait(work)

    def _later(self, seconds: float, work: Work) -> None:
        if seconds <= 0:
            self._submit(work)
            return
        when = asyncio.get_running_loop().time() + seconds
        heapq.heappush(self._due, (when, next(self._count), work))
        self._wake.set()

    async def _timer(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            while self._due and self._due[0][0] <= loop.time():
                self._submit(heapq.heappop(self._due)[2])
            self._wake.clear()
            wait = self._due[0][0] - loop.time() if self._due else None
            try:
                async with asyncio.timeout(wait):
                    await self._wake.wait()
            except TimeoutError:
                continue

    async def _writer(self) -> None:
        while True:
            work = await self._queue.get()
            for pause in (0.1, 0.5, 2.0, 5.0):
                try:
                    await work()
                    break
                except HttpError as error:
                    if error.status in (404, 409, 422):
                        # The object is gone or another one: the next event tells what to do, if anything.
                        log.debug("write refused", error=str(error))
                        break
                    log.info("write failed, trying again", error=str(error))
                except (OSError, TimeoutError) as error:
                    log.info("write failed, trying again", error=str(error))
                await asyncio.sleep(pause)


def _address(uid: str) -> str:
    seed = int(uid.replace("-", "")[:6], 16)
    return f"10.{seed >> 16 & 127}.{seed >> 8 & 255}.{seed & 255 or 1}"


def ended_status(pod: Obj, phase: str, exit_code: int) -> Obj:
    """Return the status of a pod whose containers have ended."""
    stamp = now()
    status: Obj = dict(pod.get("status") or {})
    reason = "Completed" if exit_code == 0 else "Error"
    rows: list[Any] = []
    present = {row["name"]: row for row in status.get("containerStatuses") or ()}
    for container in pod["spec"]["containers"]:
        row = dict(present.get(container["name"]) or {"name": container["name"], "restartCount": 0})
        row.setdefault("image", container.get("image", ""))
        row.setdefault("imageID", "")
        started = (row.get("state") or {}).get("running", {}).get("startedAt", stamp)
        ended = {"exitCode": exit_code, "reason": reason, "startedAt": started, "finishedAt": stamp}
        row.update({"ready": False, "started": False, "state": {"terminated": ended}})
        rows.append(row)
    conditions = []
    for row in status.get("conditions") or ():
        if row["type"] in ("Ready", "ContainersReady"):
            why = "PodCompleted" if phase == "Succeeded" else "PodFailed"
            row = {**row, "status": "False", "reason": why, "lastTransitionTime": stamp}
        conditions.append(row)
    return {"phase": phase, "containerStatuses": rows, "conditions": conditions}
