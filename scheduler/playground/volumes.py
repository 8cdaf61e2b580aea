"""Fake controllers of storage: one that binds claims and volumes, and a provisioner that makes volumes.

Decided here: `VolumeController` does what kube-controller-manager does (binds immediate claims to the smallest volume
that fits, completes a pair that a scheduler or a person began, makes the claims of ephemeral volumes, says what is lost
or released) and runs beside the embedded API server only. `Provisioner` is an external provisioner for the provisioner
name `PROVISIONER` and runs beside either API server. Both are clients over HTTP and keep nothing that matters.

What the provisioner does can be told with the annotation `TELL` of a claim: "fail" takes the selected node off again,
"wait" does nothing, "elsewhere" makes a volume that no node reaches. A class may say parameters.reach: node (default),
zone or anywhere.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import structlog

from scheduler.playground.client import Client, HttpError
from scheduler.playground.errors import Obj
from scheduler.playground.quantities import exact
from scheduler.playground.selectors import match_label_selector

log = structlog.get_logger("muster.playground.volumes")

PROVISIONER = "playground.muster.sh"
TELL = "playground.muster.sh/provision"
SELECTED = "volume.kubernetes.io/selected-node"
COMPLETED = "pv.kubernetes.io/bind-completed"
BOUND_BY = "pv.kubernetes.io/bound-by-controller"
ZONE = "topology.kubernetes.io/zone"
HOSTNAME = "kubernetes.io/hostname"

_CLAIMS = "/api/v1/persistentvolumeclaims"
_VOLUMES = "/api/v1/persistentvolumes"
_CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
_AGAIN = 0.2


class _Follower:
    """Follows some lists and looks at everything again when something has changed."""

    paths: tuple[str, ...] = ()

    def __init__(self, url: str = "", *, kubeconfig: str | Path | None = None) -> None:
        self.client = Client(url, kubeconfig=kubeconfig)
        self.seen: dict[str, dict[str, Obj]] = {path: {} for path in self.paths}
        self._synced: set[str] = set()
        self._dirty = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> _Follower:
        """Begin."""
        jobs = [self._follow(path) for path in self.paths]
        self._tasks = [asyncio.create_task(job) for job in [*jobs, self._work()]]
        return self

    async def stop(self) -> None:
        """Stop."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.client.close()

    async def _follow(self, path: str) -> None:
        into = self.seen[path]
        async for kind, data in self.client.follow(path):
            if kind == "SYNC":
                into.clear()
                into.update({_key(one): one for one in data})
                self._synced.add(path)
            elif kind == "DELETED":
                into.pop(_key(data), None)
            else:
                into[_key(data)] = data
            self._dirty.set()

    async def _work(self) -> None:
        while True:
            await self._dirty.wait()
            self._dirty.clear()
            if len(self._synced) == len(self.paths):
                await self.look()
            await asyncio.sleep(0.01)

    async def look(self) -> None:
        """Bring everything closer to what it should be."""
        raise NotImplementedError

    async def attempt(self, what: Any) -> None:
        """Await one change; when it fails, look again soon."""
        try:
            await what
        except (HttpError, OSError, TimeoutError) as error:
            if not (isinstance(error, HttpError) and error.status in (404, 409)):
                log.info("storage not written, trying again", error=str(error))
            asyncio.get_running_loop().call_later(_AGAIN, self._dirty.set)


def _key(one: Obj) -> str:
    found = one["metadata"]
    return f"{found['namespace']}/{found['name']}" if found.get("namespace") else str(found["name"])


def _path(one: Obj, sub: str = "") -> str:
    found, kind = one["metadata"], "persistentvolumeclaims" if one["metadata"].get("namespace") else "persistentvolumes"
    place = f"/namespaces/{found['namespace']}" if found.get("namespace") else ""
    return f"/api/v1{place}/{kind}/{found['name']}{sub}"


def _guard(one: Obj, **more: Any) -> Obj:
    return {"uid": one["metadata"]["uid"], "resourceVersion": one["metadata"]["resourceVersion"], **more}


def _note(one: Obj, name: str) -> str | None:
    return (one["metadata"].get("annotations") or {}).get(name)


def _size(amounts: Obj | None) -> Any:
    return exact((amounts or {}).get("storage", "0"))


def _asked(claim: Obj) -> Any:
    return _size((claim["spec"].get("resources") or {}).get("requests"))


class VolumeController(_Follower):
    """See the module."""

    paths = (_CLAIMS, _VOLUMES, _CLASSES, "/api/v1/pods")

    async def look(self) -> None:
        """Bind what can be bound, one thing at a time."""
        for pod in list(self.seen["/api/v1/pods"].values()):
            await self._ephemeral(pod)
        for volume in list(self.seen[_VOLUMES].values()):
            await self.attempt(self._volume(volume))
        for claim in sorted(self.seen[_CLAIMS].values(), key=_asked):
            await self.attempt(self._claim(claim))

    async def _ephemeral(self, pod: Obj) -> None:
        found = pod["metadata"]
        for one in pod["spec"].get("volumes") or () if not found.get("deletionTimestamp") else ():
            name = f"{found['name']}-{one['name']}"
            if one.get("ephemeral") and f"{found['namespace']}/{name}" not in self.seen[_CLAIMS]:
                template = one["ephemeral"].get("volumeClaimTemplate") or {}
                owner = {"apiVersion": "v1", "kind": "Pod", "name": found["name"], "uid": found["uid"]}
                meta = {**(template.get("metadata") or {}), "name": name, "namespace": found["namespace"]}
                meta["ownerReferences"] = [{**owner, "controller": True, "blockOwnerDeletion": True}]
                body = {
                    "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta, "spec": template["spec"],
                }  # fmt: skip
                path = f"/api/v1/namespaces/{found['namespace']}/persistentvolumeclaims"
                await self.attempt(self.client.request("POST", path, body))

    async def _volume(self, volume: Obj) -> None:
        reference, phase = volume["spec"].get("claimRef"), volume["status"].get("phase")
        if reference is None:
            await self._say(volume, "Available")
            return
        claim = self.seen[_CLAIMS].get(f"{reference['namespace']}/{reference['name']}")
        gone = claim is None or (reference.get("uid") and claim["metadata"]["uid"] != reference["uid"])
        if gone and phase == "Bound":
            await self._say(volume, "Released")

    async def _say(self, one: Obj, phase: str) -> None:
        if one["status"].get("phase") != phase:
            body = {"metadata": _guard(one), "status": {"phase": phase}}
            written = await self.client.merge(_path(one, "/status"), body)
            self.seen[_CLAIMS if one["metadata"].get("namespace") else _VOLUMES][_key(one)] = written

    async def _claim(self, claim: Obj) -> None:
        name = claim["spec"].get("volumeName")
        if claim["metadata"].get("deletionTimestamp"):
            return
        if name and _note(claim, COMPLETED) is not None:
            volume = self.seen[_VOLUMES].get(name)
            if volume is None:
                await self._say(claim, "Lost")
            elif claim["status"].get("phase") != "Bound":
                await self._complete(claim, volume)
            return
        volume = self.seen[_VOLUMES].get(name) if name else self._volume_for(claim)
        if volume is not None and self._is_free(volume, claim):
            await self._complete(claim, volume)

    def _is_free(self, volume: Obj, claim: Obj) -> bool:
        reference = volume["spec"].get("claimRef")
        if reference is None:
            return True
        mine = f"{reference['namespace']}/{reference['name']}" == _key(claim)
        return mine and reference.get("uid") in (None, "", claim["metadata"]["uid"])

    def _volume_for(self, claim: Obj) -> Obj | None:
        """Return the volume that is reserved for the claim, else, where it need not wait, the smallest that fits."""
        fitting = [one for one in self.seen[_VOLUMES].values() if self._fits(one, claim)]
        mine = [one for one in fitting if one["spec"].get("claimRef")]
        if mine:
            return mine[0]
        known = self.seen[_CLASSES].get(claim["spec"].get("storageClassName") or "")
        if known is not None and known.get("volumeBindingMode") == "WaitForFirstConsumer":
            return None
        return min(fitting, key=lambda one: (_size(one["spec"].get("capacity")), _key(one)), default=None)

    def _fits(self, volume: Obj, claim: Obj) -> bool:
        spec, wants = volume["spec"], claim["spec"]
        if volume["metadata"].get("deletionTimestamp") or not self._is_free(volume, claim):
            return False
        if not spec.get("claimRef") and volume["status"].get("phase") != "Available":
            return False
        return (
            _size(spec.get("capacity")) >= _asked(claim)
            and (spec.get("storageClassName") or "") == (wants.get("storageClassName") or "")
            and spec.get("volumeMode") == wants.get("volumeMode")
            and set(wants["accessModes"]) <= set(spec["accessModes"])
            and (
                not wants.get("selector")
                or match_label_selector(wants["selector"], volume["metadata"].get("labels") or {})
            )
        )

    async def _complete(self, claim: Obj, volume: Obj) -> None:
        """Make both point at each other, then say that they are bound."""
        found, reference = claim["metadata"], volume["spec"].get("claimRef") or {}
        if reference.get("uid") != found["uid"]:
            whole = {
                "apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": found["namespace"],
                "name": found["name"], "uid": found["uid"],
            }  # fmt: skip
            more: Obj = {} if reference else {"annotations": {BOUND_BY: "yes"}}
            body: Obj = {"metadata": _guard(volume, **more), "spec": {"claimRef": whole}}
            volume = await self.client.merge(_path(volume), body)
            self.seen[_VOLUMES][_key(volume)] = volume
        await self._say(volume, "Bound")
        notes = {COMPLETED: "yes"} | ({} if claim["spec"].get("volumeName") else {BOUND_BY: "yes"})
        body = {"metadata": _guard(claim, annotations=notes), "spec": {"volumeName": volume["metadata"]["name"]}}
        claim = await self.client.merge(_path(claim), body)
        status = {
            "phase": "Bound",
            "accessModes": volume["spec"]["accessModes"],
            "capacity": volume["spec"]["capacity"],
        }
        claim = await self.client.merge(_path(claim, "/status"), {"metadata": _guard(claim), "status": status})
        self.seen[_CLAIMS][_key(claim)] = claim


class Provisioner(_Follower):
    """See the module."""

    paths = (_CLAIMS, _VOLUMES, _CLASSES, "/api/v1/nodes")

    async def look(self) -> None:
        """Make what is asked for; delete what was made for claims that are gone."""
        claims = list(self.seen[_CLAIMS].values())
        for claim in claims:
            await self.attempt(self._provision(claim))
        alive = {claim["metadata"]["uid"] for claim in claims}
        for volume in list(self.seen[_VOLUMES].values()):
            mine = _note(volume, "pv.kubernetes.io/provisioned-by") == PROVISIONER
            if mine and (volume["spec"].get("claimRef") or {}).get("uid") not in alive:
                await self.attempt(self.client.request("DELETE", _path(volume)))

    async def _provision(self, claim: Obj) -> None:
        found, spec = claim["metadata"], claim["spec"]
        known = self.seen[_CLASSES].get(spec.get("storageClassName") or "")
        if known is None or known["provisioner"] != PROVISIONER or spec.get("volumeName"):
            return
        selected, told = _note(claim, SELECTED), _note(claim, TELL)
        waits = known.get("volumeBindingMode") == "WaitForFirstConsumer" and not selected
        if found.get("deletionTimestamp") or waits or told == "wait":
            return
        if told == "fail":
            if selected:
                freed = {"metadata": _guard(claim, annotations={SELECTED: None})}
                self.seen[_CLAIMS][_key(claim)] = await self.client.merge(_path(claim), freed)
            return
        name = f"pvc-{found['uid']}"
        if name in self.seen[_VOLUMES]:
            return
        made: Obj = {
            "accessModes": spec["accessModes"],
            "capacity": {"storage": spec["resources"]["requests"]["storage"]},
            "storageClassName": known["metadata"]["name"],
            "volumeMode": spec.get("volumeMode", "Filesystem"),
            "persistentVolumeReclaimPolicy": "Delete",
            "csi": {"driver": PROVISIONER, "volumeHandle": name},
            "claimRef": {
                "apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": found["namespace"],
                "name": found["name"], "uid": found["uid"],
            },
        }  # fmt: skip
        where = self._reach(known, selected, told)
        if where is not None:
            need = {"key": where[0], "operator": "In", "values": [where[1]]}
            made["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": [need]}]}}
        meta = {"name": name, "annotations": {"pv.kubernetes.io/provisioned-by": PROVISIONER}}
        body = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": meta, "spec": made}
        self.seen[_VOLUMES][name] = await self.client.request("POST", _VOLUMES, body)

    def _reach(self, known: Obj, selected: str | None, told: str | None) -> tuple[str, str] | None:
        """Return the label and value of the nodes that reach a new volume; None is all."""
        if told == "elsewhere":
            return HOSTNAME, "no-such-node"
        reach = (known.get("parameters") or {}).get("reach", "node")
        if selected is None or reach == "anywhere":
            return None
        labels = (self.seen["/api/v1/nodes"].get(selected) or {"metadata": {}})["metadata"].get("labels") or {}
        label = ZONE if reach == "zone" else HOSTNAME
        return label, labels.get(label, selected)
