"""A fake disruption controller: keeps the numbers of PodDisruptionBudgets.

Decided here: how many disruptions a budget allows, from its pods and the size their owners want. A client over HTTP.
Invariant: `observedGeneration` is written only together with numbers of that generation.
"""

from __future__ import annotations

import asyncio
from math import ceil
from pathlib import Path
from typing import Any

import structlog

from scheduler.playground.client import Client, HttpError
from scheduler.playground.errors import Obj
from scheduler.playground.metadata import now
from scheduler.playground.selectors import match_label_selector

log = structlog.get_logger("muster.playground.disruption")


def _scaled(value: Any, total: int) -> int:
    if isinstance(value, str):
        return ceil(total * int(value.rstrip("%")) / 100) if value.endswith("%") else int(value)
    return int(value)


def _healthy(pod: Obj) -> bool:
    if pod["metadata"].get("deletionTimestamp"):
        return False
    rows = (pod.get("status") or {}).get("conditions") or ()
    return any(row["type"] == "Ready" and row["status"] == "True" for row in rows)


def _condition(before: Obj, allowed: bool, generation: int) -> Obj:
    status = "True" if allowed else "False"
    rows = before.get("conditions") or ()
    present: Obj = next((row for row in rows if row["type"] == "DisruptionAllowed"), {})
    stamp = present.get("lastTransitionTime") if present.get("status") == status else now()
    return {
        "type": "DisruptionAllowed",
        "status": status,
        "reason": "SufficientPods" if allowed else "InsufficientPods",
        "message": "",
        "lastTransitionTime": stamp,
        "observedGeneration": generation,
    }


class DisruptionController:
    """Follows budgets and pods and writes budget status."""

    def __init__(self, url: str = "", *, kubeconfig: str | Path | None = None) -> None:
        self.client = Client(url, kubeconfig=kubeconfig)
        self.pods: dict[str, Obj] = {}
        self.budgets: dict[str, Obj] = {}
        self._dirty = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> DisruptionController:
        """Begin."""
        jobs = [
            self._follow("/apis/policy/v1/poddisruptionbudgets", self.budgets),
            self._follow("/api/v1/pods", self.pods),
            self._write(),
        ]
        self._tasks = [asyncio.create_task(job) for job in jobs]
        return self

    async def stop(self) -> None:
        """Stop."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.client.close()

    async def _follow(self, path: str, into: dict[str, Obj]) -> None:
        async for kind, data in self.client.follow(path):
            if kind == "SYNC":
                into.clear()
                into.update({one["metadata"]["uid"]: one for one in data})
            elif kind == "DELETED":
                into.pop(data["metadata"]["uid"], None)
            else:
                into[data["metadata"]["uid"]] = data
            if self.budgets:
                self._dirty.set()

    async def _write(self) -> None:
        while True:
            await self._dirty.wait()
            self._dirty.clear()
            for uid in sorted(self.budgets):
                budget = self.budgets.get(uid)
                if budget is None:
                    continue
                try:
                    await self._one(budget)
                except (HttpError, OSError, TimeoutError) as error:
                    log.info("budget status not written", budget=budget["metadata"]["name"], error=str(error))
                    asyncio.get_running_loop().call_later(0.2, self._dirty.set)
            await asyncio.sleep(0.02)

    async def _one(self, budget: Obj) -> None:
        found, spec = budget["metadata"], budget["spec"]
        pods = [
            pod
            for pod in self.pods.values()
            if pod["metadata"]["namespace"] == found["namespace"]
            and match_label_selector(spec.get("selector"), pod["metadata"].get("labels") or {})
            and (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed")
        ]
        healthy = sum(1 for pod in pods if _healthy(pod))
        if spec.get("maxUnavailable") is not None:
            expected = await self._expected(pods)
            desired = max(0, expected - _scaled(spec["maxUnavailable"], expected))
        else:
            least = spec.get("minAvailable", 1)
            expected = await self._expected(pods) if isinstance(least, str) else len(pods)
            desired = _scaled(least, expected)
        allowed = max(0, healthy - desired) if expected > 0 else 0
        before = budget.get("status") or {}
        known = {pod["metadata"]["name"]: pod for pod in pods}
        disrupted = {
            name: stamp
            for name, stamp in (before.get("disruptedPods") or {}).items()
            if name in known and not known[name]["metadata"].get("deletionTimestamp")
        }
        allowed = max(0, allowed - sum(1 for name in disrupted if _healthy(known[name])))
        status: Obj = {
            "currentHealthy": healthy,
            "desiredHealthy": desired,
            "disruptionsAllowed": allowed,
            "expectedPods": expected,
            "observedGeneration": found.get("generation", 1),
        }
        status["conditions"] = [_condition(before, allowed > 0, found.get("generation", 1))]
        same = all(before.get(key) == value for key, value in status.items())
        if same and (before.get("disruptedPods") or {}) == disrupted:
            return
        path = f"/apis/policy/v1/namespaces/{found['namespace']}/poddisruptionbudgets/{found['name']}/status"
        written = {**before, **status}
        written.pop("disruptedPods", None)
        if disrupted:
            written["disruptedPods"] = disrupted
        body = {**budget, "status": written}
        await self.client.request("PUT", path, body)

    async def _expected(self, pods: list[Obj]) -> int:
        """Return the size that the pods' controllers want; a pod without one counts itself."""
        total, seen = 0, set()
        for pod in pods:
            rows = pod["metadata"].get("ownerReferences") or ()
            owner = next((row for row in rows if row.get("controller")), None)
            if owner is None:
                total += 1
            elif owner["uid"] not in seen:
                seen.add(owner["uid"])
                total += await self._size(pod["metadata"]["namespace"], owner)
        return total

    async def _size(self, namespace: str, owner: Obj) -> int:
        paths = {
            "ReplicaSet": "/apis/apps/v1/namespaces/{}/replicasets/{}",
            "StatefulSet": "/apis/apps/v1/namespaces/{}/statefulsets/{}",
            "Job": "/apis/batch/v1/namespaces/{}/jobs/{}",
        }
        path = paths.get(owner["kind"])
        if path is None:
            return 0
        try:
            found = await self.client.request("GET", path.format(namespace, owner["name"]))
        except HttpError as error:
            if error.status == 404:
                return 0
            raise
        spec = found["spec"]
        return int(spec.get("parallelism", 1) if owner["kind"] == "Job" else spec.get("replicas", 1))
