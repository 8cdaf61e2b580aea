"""An account with the rights of config/rbac, or with one right less, and a story that makes use of every one of them.

Decided here: what a right is (verb, API group, resource), how an account of another name gets the same ones, and which
objects make a scheduler use them. The story has its own nodes, namespace and schedulerName, so that many can be told on
one API server. Must not know what the scheduler answers.
"""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.controlplane.cluster import ControlPlane
from tests.controlplane.fixtures import CRD_FOLDER
from tests.controlplane.rest import Json
from tests.deploy import helm

GPU = "example.com/gpu"
MUSTER = "scheduling.muster.sh/v1alpha1"
_FILE = CRD_FOLDER.with_name("rbac") / "muster.yaml"
AUDIT = {
    "apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"],
    "rules": [
        {"level": "Metadata", "userGroups": ["system:serviceaccounts"]},
        {"level": "None"},
    ],
}  # fmt: skip


@dataclass(frozen=True, slots=True, order=True)
class Right:
    """One verb on one resource."""

    verb: str
    group: str
    resource: str

    def __str__(self) -> str:
        return f"{self.verb} {self.resource}{'.' if self.group else ''}{self.group}"


def _documents() -> list[Json]:
    return [one for one in yaml.safe_load_all(_FILE.read_text()) if one]


@dataclass(frozen=True, slots=True, order=True)
class Grant:
    """A right where it holds: in a namespace, or everywhere (""); on the object of this name, or on all ("")."""

    right: Right
    namespace: str = ""
    name: str = ""


def held(documents: Iterable[Json]) -> dict[str, set[Grant]]:
    """Return what the accounts have by the roles that are bound to them, by account."""
    found: dict[str, set[Grant]] = {}
    written = list(documents)
    rules = {(one["kind"], one["metadata"]["name"]): one["rules"] for one in written if "rules" in one}
    for binding in written:
        if not binding["kind"].endswith("Binding"):
            continue
        role = binding["roleRef"]
        grants = {
            Grant(Right(verb, group, resource), binding["metadata"].get("namespace", ""), name)
            for rule in rules[role["kind"], role["name"]]
            for group in rule["apiGroups"]
            for resource in rule["resources"]
            for verb in rule["verbs"]
            for name in rule.get("resourceNames", [""])
        }
        for subject in binding["subjects"]:
            found.setdefault(subject["name"], set()).update(grants)
    return found


def granted() -> list[Right]:
    """Return every right that config/rbac gives the account of one process."""
    return sorted({one.right for one in held(_documents())["muster"]})


def _without(rules: list[Json], right: Right) -> list[Json]:
    """Return the rules one by one, without this right."""
    return [
        {**rule, "apiGroups": [group], "resources": [resource],
         "verbs": [verb for verb in rule["verbs"] if Right(verb, group, resource) != right] or ["none"]}
        for rule in rules for group in rule["apiGroups"] for resource in rule["resources"]
    ]  # fmt: skip


def account(cluster: ControlPlane, name: str, less: Right | None = None) -> str:
    """Make an account `muster` in a namespace of this name with the rights of config/rbac, and return its token."""
    documents = copy.deepcopy(_documents())
    for document in documents:
        meta = document["metadata"]
        cluster_wide = document["kind"].startswith("Cluster") or document["kind"] == "Namespace"
        if cluster_wide:
            meta["name"] = name + meta["name"].removeprefix("muster").removeprefix("-system")
        else:
            meta["namespace"] = name
        if document["kind"] == "ClusterRoleBinding":
            document["roleRef"]["name"] = meta["name"]
        for subject in document.get("subjects", ()):
            subject["namespace"] = name
        if less is not None and "rules" in document:
            document["rules"] = _without(document["rules"], less)
    cluster.kubectl("apply", "-f", "-", input=yaml.safe_dump_all(documents))
    token = cluster.service_account_token(name, "muster")
    _wait_allowed(cluster, token, Right("list", "", "pods") if less != Right("list", "", "pods") else granted()[0])
    return token


def _wait_allowed(cluster: ControlPlane, token: str, right: Right) -> None:
    attributes = {"verb": right.verb, "group": right.group, "resource": right.resource}
    review: Json = {
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }  # fmt: skip
    rest, deadline = cluster.rest_as(token), time.monotonic() + 30
    while not rest.create("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review)["status"]["allowed"]:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{right} is not granted")
        time.sleep(0.05)


def apart(cluster: ControlPlane, name: str) -> tuple[dict[str, set[Right]], dict[str, str]]:
    """Make the accounts of the chart's three processes in a namespace of this name; return their rights, their tokens.

    Both are by component.
    """
    kinds = ("ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")
    rendered = yaml.safe_load_all(helm.template("split.enabled=true", "rbac.aggregateRoles=false", namespace=name))
    documents = [one for one in rendered if one and one["kind"] in kinds]
    cluster.rest.create("/api/v1/namespaces", {"metadata": {"name": name}})
    cluster.kubectl("apply", "-f", "-", input=yaml.safe_dump_all(documents))
    rights = {
        account.removeprefix("muster-"): {grant.right for grant in grants}
        for account, grants in held(documents).items()
    }
    tokens = {component: cluster.service_account_token(name, f"muster-{component}") for component in rights}
    for token in tokens.values():
        _wait_allowed(cluster, token, Right("list", "", "pods"))
    return rights, tokens


def used(log: Path, name: str, account: str = "muster") -> dict[Right, set[int]]:
    """Return the rights that an account in this namespace made use of, with the answers, from an audit log."""
    found: dict[Right, set[int]] = {}
    for line in log.read_text().splitlines():
        entry = json.loads(line)
        about = entry.get("objectRef")
        if entry["user"]["username"] != f"system:serviceaccount:{name}:{account}" or not about:
            continue
        resource = about["resource"] + (f"/{about['subresource']}" if "subresource" in about else "")
        right = Right(entry["verb"], about.get("apiGroup", ""), resource)
        found.setdefault(right, set()).add(entry.get("responseStatus", {}).get("code", 0))
    return found


# -- the story --------------------------------------------------------------------------------------------------------


class Story:
    """Everything that a scheduler can be asked, for the schedulerName `name`."""

    def __init__(self, cluster: ControlPlane, name: str) -> None:
        self._cluster, self._rest, self.name = cluster, cluster.rest, name
        self.namespace = f"{name}-work"
        self._made: list[str] = []

    # -- objects --------------------------------------------------------------------------------------------------

    def _create(self, path: str, body: Json) -> None:
        self._rest.create(path, body)
        self._made.append(f"{path}/{body['metadata']['name']}")

    def _global(self, version: str, plural: str, kind: str, name: str, **fields: Any) -> None:
        base = f"/apis/{version}" if "/" in version else f"/api/{version}"
        self._create(f"{base}/{plural}", {"apiVersion": version, "kind": kind, "metadata": {"name": name}, **fields})

    def _local(self, version: str, plural: str, kind: str, name: str, **fields: Any) -> None:
        base = f"/apis/{version}" if "/" in version else f"/api/{version}"
        body = {"apiVersion": version, "kind": kind, "metadata": {"name": name}, **fields}
        self._create(f"{base}/namespaces/{self.namespace}/{plural}", body)

    def _pod(self, name: str, role: str, gpu: int = 1, **more: Any) -> Json:
        container = {
            "name": "main", "image": "x",
            "resources": {"requests": {"cpu": "100m", GPU: str(gpu)}, "limits": {GPU: str(gpu)}},
        }  # fmt: skip
        spec = {
            "schedulerName": self.name, "restartPolicy": "Never", "terminationGracePeriodSeconds": 0,
            "nodeSelector": {"rights": f"{self.name}-{role}"}, "containers": [container], **more.pop("spec", {}),
        }  # fmt: skip
        return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, **more}, "spec": spec}

    def _pods(self, name: str, count: int, role: str = "plain", **more: Any) -> None:
        for number in range(count):
            self._rest.create(
                f"/api/v1/namespaces/{self.namespace}/pods", self._pod(f"{name}-{number}", role, **copy.deepcopy(more))
            )

    def set_up(self) -> None:
        """Make namespace, nodes, and what is there before the first pod."""
        self._rest.create("/api/v1/namespaces", {"metadata": {"name": self.namespace}})
        deadline = time.monotonic() + 60
        while not self._cluster.has_account(self.namespace):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        for role, gpus in (("plain", 32), ("tight", 2)):
            node = f"{self.name}-{role}"
            labels = {"rights": node, "rack": f"{self.name}-r"}
            self._cluster.register_node(node, {"cpu": "64", "memory": "64Gi", GPU: str(gpus)}, labels=labels)
            self._made.append(f"/api/v1/nodes/{node}")
        for name, value in (("low", 1), ("high", 1000)):
            self._global("scheduling.k8s.io/v1", "priorityclasses", "PriorityClass", f"{self.name}-{name}", value=value)
        self._global(MUSTER, "queues", "Queue", f"{self.name}-q", spec={})
        self._global("scheduling.volcano.sh/v1beta1", "queues", "Queue", f"{self.name}-vq", spec={"weight": 1})
        resources = {name: {"quota": -1, "limit": -1} for name in ("cpu", "gpu", "memory")}
        self._global("scheduling.run.ai/v2", "queues", "Queue", f"{self.name}-kq", spec={"resources": resources})
        levels = {"levels": [{"name": "rack", "label": "rack"}]}
        self._global(MUSTER, "topologies", "Topology", f"{self.name}-t", spec=levels)
        member = {"type": "Node", "selector": {"exactMatch": {"name": f"{self.name}-plain"}}}
        hyper = {"tier": 1, "members": [member]}
        self._global("topology.volcano.sh/v1alpha1", "hypernodes", "HyperNode", f"{self.name}-h", spec=hyper)
        self._volumes()

    def _volumes(self) -> None:
        self._global(
            "storage.k8s.io/v1", "storageclasses", "StorageClass", f"{self.name}-s",
            provisioner="kubernetes.io/no-provisioner", volumeBindingMode="WaitForFirstConsumer",
        )  # fmt: skip
        self._global(
            "storage.k8s.io/v1", "storageclasses", "StorageClass", f"{self.name}-made",
            provisioner="example.com/nobody", volumeBindingMode="WaitForFirstConsumer",
        )  # fmt: skip
        terms = [{"matchExpressions": [{"key": "rack", "operator": "In", "values": [f"{self.name}-r"]}]}]
        spec = {
            "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": f"{self.name}-s",
            "hostPath": {"path": "/mnt/x"}, "nodeAffinity": {"required": {"nodeSelectorTerms": terms}},
        }  # fmt: skip
        self._global("v1", "persistentvolumes", "PersistentVolume", f"{self.name}-v", spec=spec)
        for claim, kind in (("data", "s"), ("made", "made")):
            wanted = {
                "storageClassName": f"{self.name}-{kind}", "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Gi"}},
            }  # fmt: skip
            self._local("v1", "persistentvolumeclaims", "PersistentVolumeClaim", claim, spec=wanted)
        guarded = {"minAvailable": 0, "selector": {"matchLabels": {"guarded": "yes"}}}
        self._local("policy/v1", "poddisruptionbudgets", "PodDisruptionBudget", "b", spec=guarded)

    def plain(self, name: str = "plain") -> None:
        """A gang of two without anything else."""
        self._local(MUSTER, "podgroups", "PodGroup", name, spec={"minMember": 2, "queue": f"{self.name}-q"})
        self._pods(name, 2, labels={"scheduling.muster.sh/pod-group": name})

    def everything(self) -> None:
        """A gang of each dialect, claims, somebody who waits, and victims with and without a budget."""
        volcano = {"minMember": 2, "queue": f"{self.name}-vq"}
        self._local("scheduling.volcano.sh/v1beta1", "podgroups", "PodGroup", "vol", spec=volcano)
        self._pods("vol", 2, annotations={"scheduling.k8s.io/group-name": "vol"})
        self._local("scheduling.x-k8s.io/v1alpha1", "podgroups", "PodGroup", "cos", spec={"minMember": 2})
        self._pods("cos", 2, labels={"scheduling.x-k8s.io/pod-group": "cos"})
        policy = {"schedulingPolicy": {"gang": {"minCount": 2}}}
        self._local("scheduling.k8s.io/v1beta1", "podgroups", "PodGroup", "nat", spec=policy)
        self._pods("nat", 2, spec={"schedulingGroup": {"podGroupName": "nat"}})
        kai = {"minMember": 2, "queue": f"{self.name}-kq"}
        self._local("scheduling.run.ai/v2alpha2", "podgroups", "PodGroup", "kai", spec=kai)
        self._pods("kai", 2, annotations={"pod-group-name": "kai"})
        template = self._pod("", "plain")
        job = {"parallelism": 2, "completions": 2, "template": {"spec": template["spec"]}}
        body = {
            "apiVersion": "batch/v1", "kind": "Job",
            "metadata": {"name": "job", "annotations": {"scheduling.muster.sh/min-member": "2"}}, "spec": job,
        }  # fmt: skip
        self._create(f"/apis/batch/v1/namespaces/{self.namespace}/jobs", body)
        owner: Json = {"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {"name": "ray"}}
        owner["spec"] = {"headGroupSpec": {"template": {}}, "workerGroupSpecs": [{"groupName": "w", "replicas": 1}]}
        made = self._rest.create(f"/apis/ray.io/v1/namespaces/{self.namespace}/rayclusters", owner)
        above = {key: owner[key] for key in ("apiVersion", "kind")} | {"name": "ray", "uid": made["metadata"]["uid"]}
        self._pods("ray", 2, ownerReferences=[{**above, "controller": True}])
        for claim in ("data", "made"):
            volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": claim}}]
            self._pods(claim, 1, spec={"volumes": volumes})
        self._pods("huge", 1, gpu=100)
        self._pods("guarded", 1, "tight", labels={"guarded": "yes"}, spec={"priorityClassName": f"{self.name}-low"})
        self._pods("open", 1, "tight", spec={"priorityClassName": f"{self.name}-low"})

    def urgent(self) -> None:
        """A gang that must evict both of those with a low priority; the budget allows it once its pod is ready."""
        conditions = [{"type": "Ready", "status": "True"}]
        path = f"/api/v1/namespaces/{self.namespace}/pods/guarded-0/status"
        self._rest.patch(path, {"status": {"phase": "Running", "conditions": conditions}}, kind="strategic")
        self._local(MUSTER, "podgroups", "PodGroup", "urgent", spec={"minMember": 2})
        labels = {"scheduling.muster.sh/pod-group": "urgent"}
        self._pods("urgent", 2, "tight", labels=labels, spec={"priorityClassName": f"{self.name}-high"})

    def bound(self, prefix: str) -> int:
        """Return how many pods of this prefix are on nodes."""
        found = self._rest.list(f"/api/v1/namespaces/{self.namespace}/pods")
        return sum(one["metadata"]["name"].startswith(f"{prefix}-") and "nodeName" in one["spec"] for one in found)

    def tear_down(self) -> None:
        """Delete all of it."""
        pods = f"/api/v1/namespaces/{self.namespace}/pods"
        for namespace in (self.namespace, self.name):
            self._rest.delete_if_present(f"/api/v1/namespaces/{namespace}")
        for path in reversed(self._made):
            if "/namespaces/" not in path:
                self._rest.delete_if_present(path)
        for _ in range(200):
            left = self._rest.list(pods)
            for one in left:
                self._rest.delete_if_present(f"{pods}/{one['metadata']['name']}", grace=0)
            if not left:
                return
            time.sleep(0.05)
