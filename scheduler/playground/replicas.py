"""Fake ReplicaSet and Deployment controllers.

Decided here: how many pods a ReplicaSet lacks or has too many of, and which ReplicaSet a Deployment wants (rolled over
at once: the new one up, the old ones down to zero). Clients over HTTP. Invariant: a controller touches only what it
owns.
"""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path

from scheduler.playground.client import Client, HttpError
from scheduler.playground.errors import Obj
from scheduler.playground.metadata import random_suffix
from scheduler.playground.reconcile import Reconciler
from scheduler.playground.storage import encode

_APPS = "/apis/apps/v1"


def _ready(pod: Obj) -> bool:
    rows = (pod.get("status") or {}).get("conditions") or ()
    return any(row["type"] == "Ready" and row["status"] == "True" for row in rows)


def _phase(pod: Obj) -> str:
    return str((pod.get("status") or {}).get("phase") or "Pending")


class ReplicaSetController(Reconciler):
    """Reconciles ReplicaSets."""

    def __init__(self, url: str = "", *, kubeconfig: str | Path | None = None, client: Client | None = None) -> None:
        super().__init__(
            client or Client(url, kubeconfig=kubeconfig), f"{_APPS}/replicasets", {"ReplicaSet": "/api/v1/pods"}
        )
        self.created: dict[str, dict[str, None]] = {}

    def forget(self, uid: str) -> None:
        """A ReplicaSet is gone."""
        self.created.pop(uid, None)

    async def reconcile(self, owner: Obj, owned: list[Obj]) -> None:
        """Create what is missing, delete what is too much, write the counts."""
        found, spec = owner["metadata"], owner["spec"]
        pending = self.created.setdefault(found["uid"], {})
        for pod in owned:
            pending.pop(pod["metadata"]["name"], None)
        active = [
            pod
            for pod in owned
            if not pod["metadata"].get("deletionTimestamp") and _phase(pod) not in ("Succeeded", "Failed")
        ]
        if not found.get("deletionTimestamp") and not pending:
            surplus = len(active) - spec.get("replicas", 1)
            if surplus < 0:
                pods = [self._pod(owner) for _ in range(-surplus)]
                for pod in pods:
                    pending[pod["metadata"]["name"]] = None
                await asyncio.gather(*(self._create(pod, pending) for pod in pods))
            elif surplus > 0:
                # Pods without a node first, then those that are not ready.
                order = sorted(active, key=lambda pod: (bool(pod["spec"].get("nodeName")), _ready(pod)))
                await asyncio.gather(*(self._delete(pod) for pod in order[:surplus]))
        ready = sum(1 for pod in active if _ready(pod))
        status = {
            "replicas": len(active),
            "fullyLabeledReplicas": len(active),
            "readyReplicas": ready,
            "availableReplicas": ready,
            "observedGeneration": found.get("generation", 1),
        }
        if any((owner.get("status") or {}).get(key, 0) != value for key, value in status.items()):
            path = f"{_APPS}/namespaces/{found['namespace']}/replicasets/{found['name']}/status"
            await self.client.merge(path, {"metadata": {"uid": found["uid"]}, "status": status})

    def _pod(self, owner: Obj) -> Obj:
        found, template = owner["metadata"], owner["spec"]["template"]
        metadata = self.copy(template.get("metadata") or {})
        metadata.update(
            {
                "name": f"{found['name']}-{random_suffix()}",
                "generateName": f"{found['name']}-",
                "namespace": found["namespace"],
                "ownerReferences": [self.owner(owner, "apps/v1", "ReplicaSet")],
            }
        )
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}

    async def _create(self, pod: Obj, pending: dict[str, None]) -> None:
        try:
            await self.client.request("POST", f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods", pod)
        except (HttpError, OSError, TimeoutError):
            pending.pop(pod["metadata"]["name"], None)
            raise

    async def _delete(self, pod: Obj) -> None:
        found = pod["metadata"]
        try:
            await self.client.request("DELETE", f"/api/v1/namespaces/{found['namespace']}/pods/{found['name']}")
        except HttpError as error:
            if error.status != 404:
                raise


class DeploymentController(Reconciler):
    """Reconciles Deployments."""

    def __init__(self, url: str = "", *, kubeconfig: str | Path | None = None, client: Client | None = None) -> None:
        super().__init__(
            client or Client(url, kubeconfig=kubeconfig), f"{_APPS}/deployments", {"Deployment": f"{_APPS}/replicasets"}
        )

    async def reconcile(self, owner: Obj, owned: list[Obj]) -> None:
        """Have one ReplicaSet of the present template at full size, all others at zero."""
        found, spec = owner["metadata"], owner["spec"]
        if found.get("deletionTimestamp"):
            return
        digest = hashlib.sha256(encode(spec["template"])).hexdigest()[:10]
        name = f"{found['name']}-{digest}"
        replicas = spec.get("replicas", 1)
        sets = f"{_APPS}/namespaces/{found['namespace']}/replicasets"
        current = next((one for one in owned if one["metadata"]["name"] == name), None)
        if current is None:
            try:
                current = await self.client.request("POST", sets, self._set(owner, name, digest, replicas))
            except HttpError as error:
                if error.status != 409:
                    raise
                return
        for one in owned:
            wanted = replicas if one["metadata"]["name"] == name else 0
            if one["spec"].get("replicas", 1) != wanted:
                await self.client.merge(f"{sets}/{one['metadata']['name']}", {"spec": {"replicas": wanted}})
        live = (current.get("status") or {}) if current else {}
        total = sum((one.get("status") or {}).get("replicas", 0) for one in owned)
        available = live.get("availableReplicas", 0)
        status = {
            "observedGeneration": found.get("generation", 1),
            "replicas": total,
            "updatedReplicas": live.get("replicas", 0),
            "readyReplicas": live.get("readyReplicas", 0),
            "availableReplicas": available,
            "unavailableReplicas": max(0, replicas - available),
        }
        before = owner.get("status") or {}
        if any(before.get(key, 0) != value for key, value in status.items()):
            path = f"{_APPS}/namespaces/{found['namespace']}/deployments/{found['name']}/status"
            full = {**status, "conditions": [_available(available >= replicas)]}
            await self.client.merge(path, {"metadata": {"uid": found["uid"]}, "status": full})

    def _set(self, owner: Obj, name: str, digest: str, replicas: int) -> Obj:
        spec = owner["spec"]
        template, selector = self.copy(spec["template"]), self.copy(spec["selector"])
        for labels in (template["metadata"].setdefault("labels", {}), selector.setdefault("matchLabels", {})):
            labels["pod-template-hash"] = digest
        return {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "metadata": {
                "name": name,
                "namespace": owner["metadata"]["namespace"],
                "labels": template["metadata"]["labels"],
                "ownerReferences": [self.owner(owner, "apps/v1", "Deployment")],
            },
            "spec": {"replicas": replicas, "selector": selector, "template": template},
        }


def _available(yes: bool) -> Obj:
    reason = "MinimumReplicasAvailable" if yes else "MinimumReplicasUnavailable"
    return {"type": "Available", "status": "True" if yes else "False", "reason": reason, "message": reason}
