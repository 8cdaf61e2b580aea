"""A day is lived at the real API server: gangs and their controllers, machines and queues that change.

Decided here: what users, controllers and administrators do, as the plan says. Everything here speaks to the API server
directly, never through the faults. Must not know the scheduler. Invariant: what happens to a machine or a queue is told
to the audit: a gain before it happens, a loss after.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Any

from scheduler.playground.client import Client, HttpError
from scheduler.playground.kubelet import RUN_SECONDS, FakeKubelet, NodeSpec
from tests.chaos import plan
from tests.chaos.audit import GPU, Audit, labels
from tests.chaos.plan import Gang, Trouble

Json = dict[str, Any]
NAMESPACE = "chaos"
SCHEDULER = "muster"
TOPOLOGY = "chaos"
RACK_LABEL = "chaos.example.com/rack"
_QUEUES = "/apis/scheduling.muster.sh/v1alpha1/queues"
_PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
_GROUPS = {
    "muster": "scheduling.muster.sh/v1alpha1",
    "volcano": "scheduling.volcano.sh/v1beta1",
    "coscheduling": "scheduling.x-k8s.io/v1alpha1",
    "native": "scheduling.k8s.io/v1beta1",
    "kai": "scheduling.run.ai/v2alpha2",
}
LOOK = 0.5
"""Seconds between two looks of a controller at its gang."""


def node_spec(name: str) -> NodeSpec:
    """Return a machine of the day."""
    rack = f"r{plan.nodes().index(name) // plan.RACK}"
    amounts = {"cpu": "64", "memory": "256Gi", "pods": "110", GPU: str(plan.GPUS)}
    return NodeSpec(name, amounts, labels={RACK_LABEL: rack})


def pod_of(gang: Gang, index: int) -> Json:
    """Return member INDEX of a gang, in the words of its dialect."""
    marks, notes = labels(gang), {RUN_SECONDS: f"{gang.seconds:g}"}
    spec: Json = {
        "schedulerName": SCHEDULER,
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 1,
        "priorityClassName": "chaos-high" if gang.high else "chaos-low",
        "containers": [
            {
                "name": "main", "image": "registry.k8s.io/pause:3.10",
                "resources": {"requests": {"cpu": "100m", GPU: str(gang.gpu)}, "limits": {GPU: str(gang.gpu)}},
            }
        ],
    }  # fmt: skip
    if gang.dialect == "muster":
        marks["scheduling.muster.sh/pod-group"] = gang.name
    elif gang.dialect == "volcano":
        notes["scheduling.k8s.io/group-name"] = gang.name
    elif gang.dialect == "coscheduling":
        marks["scheduling.x-k8s.io/pod-group"] = gang.name
    elif gang.dialect == "kai":
        notes["pod-group-name"] = gang.name
    elif gang.dialect == "native":
        spec["schedulingGroup"] = {"podGroupName": gang.name}
    if gang.dialect not in ("muster", "volcano", "kai"):
        marks["scheduling.muster.sh/queue"] = gang.queue
    metadata = {"name": f"{gang.name}-{index}", "labels": marks, "annotations": notes}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def group_of(gang: Gang) -> Json | None:
    """Return the object of a gang, if its dialect has one."""
    if gang.dialect not in _GROUPS:
        return None
    spec: Json = {"minMember": gang.minimum}
    if gang.dialect == "native":
        spec = {"schedulingPolicy": {"gang": {"minCount": gang.minimum}}}
    if gang.dialect in ("muster", "volcano", "kai"):
        spec["queue"] = gang.queue
    if gang.rack:
        spec["topology"] = {"name": TOPOLOGY, "required": "rack"}
    return {"apiVersion": _GROUPS[gang.dialect], "kind": "PodGroup", "metadata": {"name": gang.name}, "spec": spec}


def job_of(gang: Gang) -> Json:
    """Return a plain Job that one annotation makes a gang."""
    template = pod_of(gang, 0)
    template["metadata"].pop("name")
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": gang.name, "annotations": {"scheduling.muster.sh/min-member": str(gang.minimum)}},
        "spec": {
            "parallelism": gang.size, "completions": gang.size, "backoffLimit": 1000,
            "template": {"metadata": template["metadata"], "spec": template["spec"]},
        },
    }  # fmt: skip


class Day:
    """Lives the plan. `done`: gangs all of whose members ran to their end; `deleted`: those that a user took away."""

    def __init__(self, api: Client, kubelet: FakeKubelet, audit: Audit) -> None:
        self.api, self.kubelet, self.audit = api, kubelet, audit
        self.done: list[str] = []
        self.deleted: list[str] = []
        self.remade = 0
        self.over = asyncio.Event()
        """Set when nothing new may happen; what ends in order ends."""
        self._pods: dict[str, Json] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self.living: set[str] = set()

    # -- the beginning and the end --------------------------------------------------------------------------------

    async def prepare(self) -> None:
        """Make what the day begins with."""
        base = "/apis/scheduling.k8s.io/v1/priorityclasses"
        for name, value in (("chaos-low", 10), ("chaos-high", 90)):
            await self.api.request("POST", base, {"metadata": {"name": name}, "value": value})
        for name, (deserved, limit) in plan.QUEUES.items():
            spec = {"resources": {GPU: {"deserved": deserved, "limit": limit}}}
            body = {
                "apiVersion": "scheduling.muster.sh/v1alpha1", "kind": "Queue", "metadata": {"name": name},
                "spec": spec,
            }  # fmt: skip
            await self.api.request("POST", _QUEUES, body)
        levels = [{"name": "rack", "label": RACK_LABEL}]
        topology = {
            "apiVersion": "scheduling.muster.sh/v1alpha1", "kind": "Topology", "metadata": {"name": TOPOLOGY},
            "spec": {"levels": levels},
        }  # fmt: skip
        await self.api.request("POST", "/apis/scheduling.muster.sh/v1alpha1/topologies", topology)
        self._start(self._follow())

    def _start(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self.audit.violations.append(f"the day itself failed: {task.exception()!r}")

    async def stop(self) -> None:
        """Stop every controller."""
        for task in [*self._tasks]:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _follow(self) -> None:
        async for kind, data in self.api.follow(_PODS):
            if kind == "SYNC":
                self._pods = {pod["metadata"]["name"]: pod for pod in data}
            elif kind == "DELETED":
                name = data["metadata"]["name"]
                if self._pods.get(name, data)["metadata"]["uid"] == data["metadata"]["uid"]:
                    self._pods.pop(name, None)
            else:
                self._pods[data["metadata"]["name"]] = data

    # -- gangs ----------------------------------------------------------------------------------------------------

    async def arrive(self, day: plan.Day, began: float) -> None:
        """Let the gangs of the day come."""
        for gang in day.gangs:
            await asyncio.sleep(max(0.0, began + gang.at - time.monotonic()))
            self.living.add(gang.name)
            self._start(self._live(gang, began))

    def submit(self, gang: Gang) -> None:
        """Let a gang come now."""
        self.living.add(gang.name)
        self._start(self._live(gang, time.monotonic() - gang.at))

    async def _live(self, gang: Gang, began: float) -> None:
        group = group_of(gang)
        if group is not None:
            await self._create(self._group_path(gang).rpartition("/")[0], group)
        if gang.dialect == "job":
            await self._create(f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs", job_of(gang))
        else:
            await asyncio.gather(*(self._create(_PODS, pod_of(gang, index)) for index in range(gang.size)))
        while True:
            await asyncio.sleep(LOOK)
            # Jobs make what they lost again ever later: their user does not wait for that.
            given_up = gang.dialect == "job" and self.over.is_set()
            if given_up or (gang.until and time.monotonic() > began + gang.until and not self.over.is_set()):
                self.deleted.append(gang.name)
                break
            if await self._look_after(gang):
                self.done.append(gang.name)
                break
        await self._clean(gang)
        self.living.discard(gang.name)

    async def _look_after(self, gang: Gang) -> bool:
        """Make members that are missing or failed again; whether all have succeeded."""
        if gang.dialect == "job":
            mine = [pod for name, pod in self._pods.items() if name.startswith(f"{gang.name}-")]
            return sum(pod["status"].get("phase") == "Succeeded" for pod in mine) >= gang.size
        succeeded = 0
        for index in range(gang.size):
            pod = self._pods.get(f"{gang.name}-{index}")
            phase = pod["status"].get("phase") if pod is not None else ""
            succeeded += phase == "Succeeded"
            if pod is not None and phase == "Failed":
                await self._remove(f"{_PODS}/{gang.name}-{index}", grace=0, uid=pod["metadata"]["uid"])
            elif pod is None:
                self.remade += await self._create(_PODS, pod_of(gang, index))
        return succeeded == gang.size

    async def _clean(self, gang: Gang) -> None:
        """Remove what belongs to a gang, its object first or its pods first, as it happens."""
        group_first = len(gang.name) % 2 == int(gang.name[4]) % 2
        if group_first:
            await self._remove_owner(gang)
        if gang.dialect != "job" and gang.name in self.deleted:  # what was just made may not have been seen yet
            for index in range(gang.size):
                await self._remove(f"{_PODS}/{gang.name}-{index}")
        while mine := [pod for name, pod in self._pods.items() if name.startswith(f"{gang.name}-")]:
            for pod in mine:
                path = f"{_PODS}/{pod['metadata']['name']}"
                running = pod["spec"].get("nodeName") and pod["status"].get("phase") == "Running"
                await self._remove(path, grace=1 if running else 0, uid=pod["metadata"]["uid"])
            if gang.dialect == "job":
                await self._remove_owner(gang)
            await asyncio.sleep(LOOK)
        if not group_first:
            await self._remove_owner(gang)

    def _group_path(self, gang: Gang) -> str:
        return f"/apis/{_GROUPS[gang.dialect]}/namespaces/{NAMESPACE}/podgroups/{gang.name}"

    async def _remove_owner(self, gang: Gang) -> None:
        if gang.dialect == "job":
            path = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs/{gang.name}"
            await self._remove(path, propagationPolicy="Background")
        elif gang.dialect in _GROUPS:
            await self._remove(self._group_path(gang))

    async def _create(self, path: str, body: Json) -> bool:
        try:
            await self.api.request("POST", path, body)
        except HttpError as error:
            if error.status != 409:  # it is there already, or its predecessor still is
                raise
            return False
        return True

    async def _remove(self, path: str, *, grace: int | None = None, uid: str = "", **options: Any) -> None:
        if grace is not None:
            options["gracePeriodSeconds"] = grace
        if uid:
            options["preconditions"] = {"uid": uid}
        try:
            await self.api.request("DELETE", path, options)
        except HttpError as error:
            if error.status not in (404, 409):
                raise

    # -- machines and queues --------------------------------------------------------------------------------------

    async def trouble(self, one: Trouble) -> None:
        """Let it happen, and be over."""
        if one.target in plan.QUEUES:
            await self._queue(one)
        elif one.what == "lost":
            await self._lose(one)
        else:
            await self._change(one)

    async def _queue(self, one: Trouble) -> None:
        path = f"{_QUEUES}/{one.target}"
        if one.what == "hold":
            await self.api.merge(path, {"spec": {"state": "Hold"}})
            await self._lasts(one)
            await self.api.merge(path, {"spec": {"state": "Open"}})
            return
        if one.what == "limit":
            # What a queue deserves may not be above its limit.
            value = max(one.value, 8)
            if value > self.audit.limits[one.target].now:
                self.audit.limits[one.target].set(value)
            amounts = {"limit": value, "deserved": min(plan.QUEUES[one.target][0], value)}
            await self.api.merge(path, {"spec": {"resources": {GPU: amounts}}})
            self.audit.limits[one.target].set(value)
        else:
            value = min(one.value, int(self.audit.limits[one.target].now))
            await self.api.merge(path, {"spec": {"resources": {GPU: {"deserved": value}}}})

    async def _lose(self, one: Trouble) -> None:
        node = one.target
        await self.kubelet.remove_node(node)
        self.audit.usable[node].set(0)
        await asyncio.sleep(min(1.0, one.seconds))
        await self._bury(node)
        await self._lasts(one)
        await self._bury(node)
        self.audit.usable[node].set(1)
        await self.kubelet.add_node(node_spec(node))

    async def _bury(self, node: str) -> None:
        """Remove the pods of a machine that is gone, as its cloud's controller does."""
        listed = await self.api.request("GET", _PODS, fieldSelector=f"spec.nodeName={node}")
        for pod in listed["items"]:
            await self._remove(f"{_PODS}/{pod['metadata']['name']}", grace=0, uid=pod["metadata"]["uid"])

    async def _change(self, one: Trouble) -> None:
        path = f"/api/v1/nodes/{one.target}"
        taint = [{"key": "chaos.example.com/silent", "effect": "NoSchedule"}]
        bad: dict[str, tuple[str, Json]] = {
            "cordoned": (path, {"spec": {"unschedulable": True}}),
            "silent": (path, {"spec": {"taints": taint}}),
            "shrunk": (f"{path}/status", {"status": {"allocatable": {GPU: str(plan.GPUS // 2)}}}),
        }
        good: dict[str, tuple[str, Json]] = {
            "cordoned": (path, {"spec": {"unschedulable": None}}),
            "silent": (path, {"spec": {"taints": None}}),
            "shrunk": (f"{path}/status", {"status": {"allocatable": {GPU: str(plan.GPUS)}}}),
        }
        await self.api.merge(*bad[one.what])
        history = self.audit.room if one.what == "shrunk" else self.audit.usable
        history[one.target].set(plan.GPUS // 2 if one.what == "shrunk" else 0)
        await self._lasts(one)
        history[one.target].set(plan.GPUS if one.what == "shrunk" else 1)
        await self.api.merge(*good[one.what])

    async def _lasts(self, one: Trouble) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.over.wait(), one.seconds)

    async def mend(self) -> None:
        """Give every queue what it had at the beginning, and every gang that runs the time to end."""
        for name, (deserved, limit) in plan.QUEUES.items():
            self.audit.limits[name].set(max(limit, self.audit.limits[name].now))
            amounts = {"deserved": deserved, "limit": limit}
            spec = {"state": "Open", "resources": {GPU: amounts}, "preemption": {"minRuntime": "60s"}}
            await self.api.merge(f"{_QUEUES}/{name}", {"spec": spec})
            self.audit.limits[name].set(limit)
