"""A fake Job controller: pods for Jobs, indexed or not, and the Job's status.

Decided here: which pods a Job is missing and when it is complete or failed, as far as schedulers notice. It is a client
over HTTP and must not know nodes. Invariant: an indexed Job never has two active pods of one index that it knows of.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import structlog

from scheduler.playground.client import Client, HttpError
from scheduler.playground.errors import Obj
from scheduler.playground.metadata import now, random_suffix
from scheduler.playground.reconcile import Reconciler

log = structlog.get_logger("muster.playground.jobs")
INDEX = "batch.kubernetes.io/job-completion-index"
_JOBS = "/apis/batch/v1/jobs"


def _finished(job: Obj) -> bool:
    rows = (job.get("status") or {}).get("conditions") or ()
    return any(row["type"] in ("Complete", "Failed") and row["status"] == "True" for row in rows)


def _index(pod: Obj) -> int | None:
    text = (pod["metadata"].get("annotations") or {}).get(INDEX)
    return int(text) if text is not None and text.isdigit() else None


def _phase(pod: Obj) -> str:
    return str((pod.get("status") or {}).get("phase") or "Pending")


def intervals(numbers: Iterable[int]) -> str:
    """Return "0-2,5" as Jobs write completed indexes."""
    rows: list[list[int]] = []
    for number in sorted(numbers):
        if rows and rows[-1][1] == number - 1:
            rows[-1][1] = number
        else:
            rows.append([number, number])
    return ",".join(f"{low}-{high}" if high > low else str(low) for low, high in rows)


class JobController(Reconciler):
    """Reconciles Jobs. `await start()`, then `await stop()`."""

    def __init__(self, url: str = "", *, kubeconfig: str | Path | None = None, client: Client | None = None) -> None:
        super().__init__(client or Client(url, kubeconfig=kubeconfig), _JOBS, {"Job": "/api/v1/pods"})
        self.created: dict[str, dict[str, None]] = {}
        """Job uid -> names of pods made that the watch has not shown yet."""

    async def reconcile(self, job: Obj, owned: list[Obj]) -> None:
        """Bring one Job one step closer to its spec."""
        found, spec = job["metadata"], job["spec"]
        if found.get("deletionTimestamp") or _finished(job):
            return
        pending = self.created.setdefault(found["uid"], {})
        for pod in owned:
            pending.pop(pod["metadata"]["name"], None)
        terminating = [pod for pod in owned if pod["metadata"].get("deletionTimestamp")]
        live = [pod for pod in owned if not pod["metadata"].get("deletionTimestamp")]
        active = [pod for pod in live if _phase(pod) not in ("Succeeded", "Failed")]
        failed = [pod for pod in owned if _phase(pod) == "Failed"]
        status = self._counts(job, owned, active, terminating, failed)
        done = status["succeeded"]
        wanted = spec.get("completions")
        if len(failed) > spec.get("backoffLimit", 6):
            await self._fail(job, status, active)
            return
        if (wanted is not None and done >= wanted) or (wanted is None and done > 0 and not active):
            if not terminating:
                self._complete(status)
            await self._write_status(job, status)
            return
        if spec.get("suspend"):
            await self._suspend(job, status, active)
            return
        if _is_suspended(job):
            status["conditions"] = [{**_condition("Suspended", "JobResumed", "Job resumed"), "status": "False"}]
        if not pending:
            # By default a pod that is only terminating is replaced at once; with `Failed` its end is awaited.
            busy = active + (terminating if spec.get("podReplacementPolicy") == "Failed" else [])
            await self._create_missing(job, busy, active, status, pending)
        await self._write_status(job, status)

    def _counts(self, job: Obj, owned: list[Obj], active: list[Obj], terminating: list[Obj], failed: list[Obj]) -> Obj:
        status: Obj = {
            "startTime": (job.get("status") or {}).get("startTime") or (None if job["spec"].get("suspend") else now()),
            "active": len(active),
            "ready": sum(1 for pod in active if _ready(pod)),
            "terminating": sum(1 for pod in terminating if _phase(pod) not in ("Succeeded", "Failed")),
            "failed": len(failed),
            "uncountedTerminatedPods": {},
        }
        succeeded = [pod for pod in owned if _phase(pod) == "Succeeded"]
        if job["spec"].get("completionMode") == "Indexed":
            indexes = {_index(pod) for pod in succeeded}
            limit = job["spec"]["completions"]
            done = sorted(one for one in indexes if one is not None and one < limit)
            status["completedIndexes"] = intervals(done)
            status["succeeded"] = len(done)
        else:
            status["succeeded"] = len(succeeded)
        return status

    async def _create_missing(
        self, job: Obj, busy: list[Obj], active: list[Obj], status: Obj, pending: dict[str, None]
    ) -> None:
        spec = job["spec"]
        parallel, wanted = spec.get("parallelism", 1), spec.get("completions")
        if len(active) > parallel:
            for pod in active[parallel:]:
                await self._delete_pod(pod)
            return
        room = parallel - len(busy)
        if spec.get("completionMode") == "Indexed":
            taken = {_index(pod) for pod in busy} | _parse_intervals(status["completedIndexes"])
            missing: list[int | None] = [index for index in range(wanted) if index not in taken]
        else:
            left = wanted - status["succeeded"] - len(busy) if wanted is not None else room
            missing = [None] * max(0, left)
        chosen = missing[: max(0, room)]
        pods = [self._pod(job, index) for index in chosen]
        for pod in pods:
            pending[pod["metadata"]["name"]] = None
        await asyncio.gather(*(self._create_pod(pod, pending) for pod in pods))

    def _pod(self, job: Obj, index: int | None) -> Obj:
        found, template = job["metadata"], job["spec"]["template"]
        labels = dict(template["metadata"].get("labels") or {})
        annotations = dict(template["metadata"].get("annotations") or {})
        spec: Obj = self.copy(template["spec"])
        name = f"{found['name']}-{random_suffix()}"
        if index is not None:
            name = f"{found['name']}-{index}-{random_suffix()}"
            labels[INDEX] = annotations[INDEX] = str(index)
            spec["hostname"] = f"{found['name']}-{index}"
            for container in (*spec.get("initContainers", ()), *spec["containers"]):
                source = {"fieldRef": {"fieldPath": f"metadata.labels['{INDEX}']"}}
                container.setdefault("env", []).append({"name": "JOB_COMPLETION_INDEX", "valueFrom": source})
        metadata: Obj = {
            "name": name,
            "generateName": name[:-5],
            "namespace": found["namespace"],
            "labels": labels,
            "ownerReferences": [self.owner(job, "batch/v1", "Job")],
        }
        if annotations:
            metadata["annotations"] = annotations
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}

    async def _create_pod(self, pod: Obj, pending: dict[str, None]) -> None:
        try:
            await self.client.request("POST", f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods", pod)
        except (HttpError, OSError, TimeoutError):
            pending.pop(pod["metadata"]["name"], None)
            raise

    async def _delete_pod(self, pod: Obj) -> None:
        found = pod["metadata"]
        try:
            await self.client.request("DELETE", f"/api/v1/namespaces/{found['namespace']}/pods/{found['name']}")
        except HttpError as error:
            if error.status != 404:
                raise

    async def _suspend(self, job: Obj, status: Obj, active: list[Obj]) -> None:
        for pod in active:
            await self._delete_pod(pod)
        status["active"] = 0
        status["startTime"] = None
        if not _is_suspended(job):
            status["conditions"] = [_condition("Suspended", "JobSuspended", "Job suspended")]
        await self._write_status(job, status)

    def _complete(self, status: Obj) -> None:
        status["completionTime"] = now()
        text = "Reached expected number of succeeded pods"
        status["conditions"] = [
            _condition("SuccessCriteriaMet", "CompletionsReached", text),
            _condition("Complete", "CompletionsReached", text),
        ]

    async def _fail(self, job: Obj, status: Obj, active: list[Obj]) -> None:
        for pod in active:
            await self._delete_pod(pod)
        text = "Job has reached the specified backoff limit"
        status["active"] = 0
        status["conditions"] = [
            _condition("FailureTarget", "BackoffLimitExceeded", text),
            _condition("Failed", "BackoffLimitExceeded", text),
        ]
        await self._write_status(job, status)

    async def _write_status(self, job: Obj, status: Obj) -> None:
        """Write what differs; counts of zero are absent, as in a real Job's status."""
        found, before = job["metadata"], job.get("status") or {}
        wanted = {key: None if key in _ABSENT_WHEN_EMPTY and not value else value for key, value in status.items()}
        changed = {key: value for key, value in wanted.items() if before.get(key) != value}
        if not changed:
            return
        path = f"/apis/batch/v1/namespaces/{found['namespace']}/jobs/{found['name']}/status"
        await self.client.merge(path, {"metadata": {"resourceVersion": found["resourceVersion"]}, "status": changed})


_ABSENT_WHEN_EMPTY = frozenset({"active", "succeeded", "failed", "completedIndexes"})


def _is_suspended(job: Obj) -> bool:
    rows = (job.get("status") or {}).get("conditions") or ()
    return any(row["type"] == "Suspended" and row["status"] == "True" for row in rows)


def _ready(pod: Obj) -> bool:
    rows = (pod.get("status") or {}).get("conditions") or ()
    return any(row["type"] == "Ready" and row["status"] == "True" for row in rows)


def _parse_intervals(text: str) -> set[int | None]:
    found: set[int | None] = set()
    for part in text.split(","):
        if part:
            low, _, high = part.partition("-")
            found.update(range(int(low), int(high or low) + 1))
    return found


def _condition(kind: str, reason: str, message: str) -> dict[str, Any]:
    stamp = now()
    return {
        "type": kind,
        "status": "True",
        "reason": reason,
        "message": message,
        "lastProbeTime": stamp,
        "lastTransitionTime": stamp,
    }
