"""The kept cases on a real control plane: the real kube-scheduler and Muster, each in turn, bind pods or do not.

What kube-scheduler's plugins said in the oracle is so settled on the real thing. Compared is what is bound at the end,
so a difference that changes no binding does not show: `two-spread-constraints` (which reason is given). Cases that
cannot be played (`NOT_PLAYED`): a volume would have to be made, and a controller would make it for both in its own way.
Not compared is the node, where more than one will do. What kube-scheduler keeps of a node that is gone it forgets when
another node comes or goes; so one does in each case, as the oracle knows nothing of what was before.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.controlplane import nodes
from tests.controlplane.cluster import ControlPlane
from tests.controlplane.rest import ApiError, Rest
from tests.differential.run import CASES
from tests.scenarios.planes import CRDS, Scheduler, scratch

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.xdist_group("settled")]

Json = dict[str, Any]

KUBE, MUSTER = "default-scheduler", "muster"
NOT_PLAYED = {"gang-shares-a-claim-that-is-not-provisioned", "gang-space-for-one"}
NAMES = sorted({path.stem for path in CASES.glob("*.json")} - NOT_PLAYED)
PATIENCE = 60.0
SETTLED = 1.0
"""Seconds for which nothing else may be bound."""

ONLY_MUSTER = {
    "claim-named-twice-by-one-pod": "didn't find available persistent volumes to bind",
    "disk-that-no-driver-takes-over": "is not supported in csi migration",
    "volume-attached-before-its-pod": "exceed max volume count",
    "volumes-of-a-running-pod-that-are-not-its-own": "pod is not owner",
}
"""Cases in which only Muster binds the pod, and what kube-scheduler says."""
ONLY_KUBE = {
    "claim-for-one-pod-used-on-a-node-that-is-gone": "ReadWriteOncePod access mode already in-use",
    "node-that-is-being-deleted": "",
    "two-volumes-of-one-handle": "exceed max volume count",
}
"""Cases in which only kube-scheduler binds the pod, and what Muster says."""
FOR_KUBE_EACH = {
    "gang-spread-broken-by-a-later-member": {"m0", "m1"},
    "gang-spread-over-a-label-that-no-node-has": {"m1"},
}
"""Of a gang kube-scheduler binds the members that fit; Muster none of it."""

_CORE, _STORAGE = "/api/v1", "/apis/storage.k8s.io/v1"
_PATHS = {
    "storageClasses": f"{_STORAGE}/storageclasses",
    "csiDrivers": f"{_STORAGE}/csidrivers",
    "csiNodes": f"{_STORAGE}/csinodes",
    "csiStorageCapacities": f"{_STORAGE}/namespaces/{{}}/csistoragecapacities",
    "pods": f"{_CORE}/namespaces/{{}}/pods",
    "persistentVolumeClaims": f"{_CORE}/namespaces/{{}}/persistentvolumeclaims",
    "persistentVolumes": f"{_CORE}/persistentvolumes",
    "volumeAttachments": f"{_STORAGE}/volumeattachments",
    "podGroups": "/apis/scheduling.muster.sh/v1alpha1/namespaces/{}/podgroups",
}
"""In this order things are made, so that what names the uid of another comes after it."""
# What would change the cases while they are looked at.
_OFF = (
    "pod-garbage-collector-controller",
    "persistentvolume-attach-detach-controller",
    "node-lifecycle-controller",
    "ephemeral-volume-controller",
)


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    flags = [f"--controllers=*,{','.join(f'-{name}' for name in _OFF)}"]
    with ControlPlane(scheduler=True, controller_flags=flags) as cluster:
        cluster.apply_crds(CRDS)
        scheduler = Scheduler(cluster.kubeconfig, scratch())
        scheduler.start()
        yield cluster
        scheduler.stop()


@pytest.mark.parametrize("name", NAMES)
def test_what_is_bound_is_what_the_page_says(name: str, plane: ControlPlane) -> None:
    kept = json.loads((CASES / f"{name}.json").read_text())
    assert bool(kept.get("differs")) == (name in {**ONLY_MUSTER, **ONLY_KUBE})
    told = {scheduler: _play(plane, kept["case"], scheduler) for scheduler in (KUBE, MUSTER)}
    bound = {scheduler: {pod for pod, why in pods.items() if not why} for scheduler, pods in told.items()}
    everyone = {pod["metadata"]["name"] for pod in kept["case"]["incoming"]}
    if name in ONLY_MUSTER:
        assert bound == {KUBE: set(), MUSTER: everyone}, told
        assert ONLY_MUSTER[name] in told[KUBE]["asks"]
    elif name in ONLY_KUBE:
        assert bound == {KUBE: everyone, MUSTER: set()}, told
        assert ONLY_KUBE[name] in told[MUSTER]["asks"]
    elif name in FOR_KUBE_EACH:
        assert bound == {KUBE: FOR_KUBE_EACH[name], MUSTER: set()}, told
    else:
        assert bound[KUBE] == bound[MUSTER], told


def _play(plane: ControlPlane, case: Json, scheduler: str) -> dict[str, str]:
    """Put a case on the control plane; return what its pods are told, "" when they are bound. Leaves nothing behind."""
    rest, uids = plane.rest, dict[str, str]()
    try:
        _namespaces(plane, case)
        for node in case["nodes"]:
            _node(rest, node)
        for field in _PATHS:
            for one in case.get(field, ()):
                _create(rest, field, one, uids)
        _wait_for_claims(rest, case)
        late = {"metadata": {"name": f"late-{secrets.token_hex(3)}"}, "spec": {"unschedulable": True}}
        _node(rest, {**late, "status": {"allocatable": {"pods": "110"}}})
        for group in case.get("podGroups", ()):
            path = f"{_PATHS['podGroups'].format(group['metadata']['namespace'])}/{group['metadata']['name']}"
            rest.patch(path, {"spec": {"minMember": len(case["incoming"])}})
        for pod in case["incoming"]:
            asks = {**pod, "spec": {**pod["spec"], "schedulerName": scheduler}}
            _create(rest, "pods", asks, uids)
            if scheduler == KUBE:
                _decided(rest, [asks])
        return _decided(rest, case["incoming"])
    finally:
        _clear(rest)


def _namespaces(plane: ControlPlane, case: Json) -> None:
    listed = [one for field in _PATHS for one in case.get(field, ())] + case["incoming"]
    wanted = {one["metadata"].get("namespace", "") for one in listed} - {""}
    labels = {one["metadata"]["name"]: one["metadata"].get("labels", {}) for one in case.get("namespaces", ())}
    for name in sorted(wanted | set(labels)):
        body = {"metadata": {"name": name, "labels": labels.get(name, {})}}
        try:
            plane.rest.create(f"{_CORE}/namespaces", body)
        except ApiError as error:
            if error.status != 409:
                raise
            plane.rest.patch(f"{_CORE}/namespaces/{name}", body)
        _until(lambda name=name: plane.has_account(name), f"namespace {name} has its account")  # type: ignore[misc]


def _node(rest: Rest, node: Json) -> None:
    meta = {key: value for key, value in node["metadata"].items() if not key.startswith("deletion")}
    ready = nodes.node_object(meta["name"], {})["status"]["conditions"]
    status = {"conditions": ready, "capacity": node["status"]["allocatable"], **node["status"]}
    nodes.register_node(rest, {"metadata": meta, "spec": node.get("spec", {}), "status": status})
    if "deletionTimestamp" in node["metadata"]:
        rest.delete(f"{_CORE}/nodes/{meta['name']}")


def _create(rest: Rest, field: str, one: Json, uids: dict[str, str]) -> None:
    """Create an object, naming others by the uids that they have got; what a claim is bound to follows from that."""
    text = json.dumps(one)
    for given, real in uids.items():
        text = text.replace(json.dumps(given), json.dumps(real))
    body = json.loads(text)
    if field == "persistentVolumeClaims":
        body["spec"].pop("volumeName", None)
        body["metadata"].get("annotations", {}).pop("pv.kubernetes.io/bind-completed", None)
    path = _PATHS[field].format(one["metadata"].get("namespace", ""))
    made = rest.create(path, body)
    uids[one["metadata"].get("uid", "")] = made["metadata"]["uid"]
    if field == "pods" and "status" in body:
        rest.patch(f"{path}/{one['metadata']['name']}/status", {"status": body["status"]})


def _wait_for_claims(rest: Rest, case: Json) -> None:
    """Wait until the controller has bound what is bound in the case, and offers the other volumes."""
    for claim in case.get("persistentVolumeClaims", ()):
        if "volumeName" in claim["spec"]:
            path = (
                f"{_PATHS['persistentVolumeClaims'].format(claim['metadata']['namespace'])}/{claim['metadata']['name']}"
            )
            _until(lambda path=path: rest.get(path)["status"].get("phase") == "Bound", f"{path} is bound")  # type: ignore[misc]
    for volume in case.get("persistentVolumes", ()):
        path = f"{_PATHS['persistentVolumes']}/{volume['metadata']['name']}"
        _until(lambda path=path: rest.get(path)["status"].get("phase") in ("Bound", "Available"), f"{path} is known")  # type: ignore[misc]


def _decided(rest: Rest, asked: list[Json]) -> dict[str, str]:
    """Wait until each pod is bound or was told why not, and nothing changes any more; return why not ("" = bound)."""

    def look() -> dict[str, str | None]:
        found: dict[str, str | None] = {}
        for pod in asked:
            meta = pod["metadata"]
            now = rest.get(f"{_CORE}/namespaces/{meta['namespace']}/pods/{meta['name']}")
            said = [one for one in now.get("status", {}).get("conditions", ()) if one["type"] == "PodScheduled"]
            why = f"{said[0].get('reason')}: {said[0].get('message')}" if said else None
            found[meta["name"]] = "" if now["spec"].get("nodeName") else why
        return found

    before = look()
    deadline = time.monotonic() + PATIENCE
    while None in before.values() or (after := look()) != before:
        assert time.monotonic() < deadline, f"waited in vain for a word: {before}"
        time.sleep(SETTLED)
        before = after if None not in before.values() else look()
    return {name: why or "" for name, why in before.items()}


def _clear(rest: Rest) -> None:
    everywhere = [path.replace("/namespaces/{}", "") for path in _PATHS.values()]
    everywhere += [f"{_CORE}/nodes", "/apis/scheduling.muster.sh/v1alpha1/bindrequests"]
    for path in everywhere:
        for one in rest.list(path):
            meta = one["metadata"]
            prefix, _, plural = path.rpartition("/")
            at = f"{prefix}/namespaces/{meta['namespace']}/{plural}" if meta.get("namespace") else path
            if meta.get("finalizers"):
                rest.patch(f"{at}/{meta['name']}", {"metadata": {"finalizers": None}})
            rest.delete_if_present(f"{at}/{meta['name']}", grace=0)
    for path in everywhere:
        _until(lambda path=path: not rest.list(path), f"{path} are gone")  # type: ignore[misc]


def _until(condition: Any, what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain: {what}"
        time.sleep(0.1)
