"""Nodes for tests: fake ones that are only objects, and what it takes to call any node ready.

Decides what a registered node looks like. It knows the API only; processes belong to cluster.py.
Invariant: when register_node() returns, the node carries exactly the taints that were asked for.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from tests.controlplane.rest import ApiError, Json, Rest

NOT_READY_TAINT = "node.kubernetes.io/not-ready"
_LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"


def node_object(
    name: str,
    allocatable: Mapping[str, object],
    labels: Mapping[str, str] | None = None,
    taints: Sequence[Mapping[str, str]] = (),
    ready: bool = True,
) -> Json:
    """A node as its kubelet would report it; `pods` is 110 unless given."""
    resources = {"pods": "110", **{key: str(value) for key, value in allocatable.items()}}
    spec: Json = {"taints": [dict(taint) for taint in taints]} if taints else {}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **(labels or {})}},
        "spec": spec,
        "status": {"capacity": resources, "allocatable": resources, "conditions": _conditions(ready)},
    }


def register_node(rest: Rest, node: Json) -> Json:
    """Create the node with its status, then take back the taint that admission puts on every new node."""
    created = rest.create("/api/v1/nodes", node)
    if not _has_not_ready_taint(created) or not _is_ready(node):
        return created
    # The node lifecycle controller removes the taint too, some time later; whoever comes second finds it gone.
    return rest.patch(f"/api/v1/nodes/{node['metadata']['name']}", {"spec": {"taints": node["spec"].get("taints", [])}})


def renew_lease(rest: Rest, name: str, seconds: int = 40) -> None:
    """One heart-beat of a node, for clusters that are started with a short grace period."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    spec = {"holderIdentity": name, "leaseDurationSeconds": seconds, "renewTime": now}
    try:
        rest.patch(f"{_LEASES}/{name}", {"spec": spec})
    except ApiError as error:
        if error.status != 404:
            raise
        lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name}, "spec": spec}
        rest.create(_LEASES, lease)


def set_ready(rest: Rest, name: str, ready: bool) -> Json:
    """What the kubelet reports about itself; the taints follow when the controller manager runs."""
    status = {"status": {"conditions": _conditions(ready)}}
    return rest.patch(f"/api/v1/nodes/{name}/status", status, kind="strategic")


def wait_schedulable(rest: Rest, name: str, timeout: float, controllers_run: bool) -> Json:
    """Wait until the node says Ready and the not-ready taint is gone; without controllers it is taken away here."""
    deadline = time.monotonic() + timeout
    node: Json = {}
    while time.monotonic() < deadline:
        try:
            node = rest.get(f"/api/v1/nodes/{name}")
        except ApiError as error:
            if error.status != 404:
                raise
        if node and _is_ready(node):
            if not _has_not_ready_taint(node):
                return node
            if not controllers_run:
                kept = [taint for taint in node["spec"]["taints"] if taint["key"] != NOT_READY_TAINT]
                return rest.patch(f"/api/v1/nodes/{name}", {"spec": {"taints": kept}})
        time.sleep(0.1)
    conditions = node.get("status", {}).get("conditions", "the node does not exist")
    raise TimeoutError(
        f"node {name} was not ready within {timeout} s: {conditions} {node.get('spec', {}).get('taints', '')}"
    )


def _conditions(ready: bool) -> list[Json]:
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    times = {"lastHeartbeatTime": now, "lastTransitionTime": now}
    reason = {"reason": "KubeletReady" if ready else "KubeletNotReady", "message": "reported by a fake node"}
    pressures = ("MemoryPressure", "DiskPressure", "PIDPressure")
    return [
        {"type": "Ready", "status": "True" if ready else "False", **reason, **times},
        *({"type": kind, "status": "False", "reason": "NoPressure", **times} for kind in pressures),
    ]


def _is_ready(node: Json) -> bool:
    conditions = node["status"].get("conditions", [])
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def _has_not_ready_taint(node: Json) -> bool:
    return any(taint["key"] == NOT_READY_TAINT for taint in node["spec"].get("taints", []))
