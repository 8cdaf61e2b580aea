"""Objects that nobody should write: well-formed ones of every kind that is read, with parts replaced by junk.

Decided here: which kinds, and what junk. From a seed; every object keeps a name of its own, so that it can be stored,
and nothing of it points at the nodes and queues of the good ones. Knows neither servers nor the scheduler.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

Json = dict[str, Any]
NAMESPACE = "fuzz"
SCHEDULER = "muster"
GPU = "example.com/gpu"


@dataclass(frozen=True, slots=True)
class Odd:
    """One object, and where it is kept. namespace: "" for what belongs to no namespace."""

    group: str
    version: str
    plural: str
    namespace: str
    name: str
    body: Json

    @property
    def path(self) -> str:
        """Return the path of its collection."""
        base = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        return f"{base}/namespaces/{self.namespace}/{self.plural}" if self.namespace else f"{base}/{self.plural}"


# -- junk -------------------------------------------------------------------------------------------------------------

WORDS: tuple[Any, ...] = (
    "", " ", "x", "a/b/c", "../..", "\u0000", "\U0001f680 rocket",
    "ünïcödé", "\u202egnp.exe", "名前", "-", "_", ".", "%s%n", "${HOME}", "{{ x }}", "'; --", "\n\nline", "\t",
    "null", "true",
    "NaN", "Infinity", "-1", "0", "1e400", "1e-400", "0x10", "9" * 40, "9" * 30 + "Ei", "1.0000000001", "-5Gi",
    "5gi", "1 Gi",
    "0.0000000001m", "10m", "1h30m", "P1D", "99999999h", "2026-13-45T99:99:99Z", "(a+)+$", "[", "*", "k" * 5000, "root",
    "default", "Always", "required", "muster", "kubernetes.io/hostname", "host", "rack",
)  # fmt: skip
NUMBERS: tuple[Any, ...] = (
    0, 1, -1, 2, 3, 7, 2**31 - 1, 2**31, -(2**31), 2**32, 2**53 + 1, 2**63 - 1, -(2**63), 2.0**64, 1e30, 0.5, -0.0,
    1.5, 1e300, -1e300, 5e-324, 1e19,
)  # fmt: skip


def junk(dice: Random, depth: int = 0) -> Any:
    """Return any JSON value, rather an odd one."""
    kind = dice.random()
    if kind < 0.35 or depth > 3:
        return dice.choice(WORDS)
    if kind < 0.65:
        return dice.choice(NUMBERS)
    if kind < 0.75:
        return dice.choice((None, True, False))
    if kind < 0.87:
        return [junk(dice, depth + 1) for _ in range(dice.choice((0, 1, 2, 5)))]
    return {str(dice.choice(WORDS)): junk(dice, depth + 1) for _ in range(dice.choice((0, 1, 2, 5)))}


def nested(dice: Random) -> Any:
    """Return something deep: a tree of sub-groups in itself, or lists in lists."""
    value: Any = junk(dice)
    for number in range(dice.choice((5, 30, 90))):
        deeper = {"name": f"s{number}", "subGroups": [value], "minMember": dice.choice(NUMBERS)}
        value = dice.choice(([value], deeper, {"spec": value}))
    return value


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if isinstance(value, dict):
        for key, one in value.items():
            yield (*path, key)
            yield from _places(one, (*path, key))
    elif isinstance(value, list):
        for index, one in enumerate(value):
            yield (*path, index)
            yield from _places(one, (*path, index))


def _parent(body: Json, path: tuple[Any, ...]) -> Any:
    at: Any = body
    for step in path[:-1]:
        at = at[step]
    return at


_SACRED = {("metadata", "name"), ("metadata", "namespace"), ("apiVersion",), ("kind",), ("metadata",)}


def spoil(dice: Random, body: Json) -> None:
    """Replace, remove, add or multiply a few parts of an object, in place. Its name stays."""
    for _ in range(dice.choice((1, 1, 1, 2, 3, 5))):
        places = [path for path in _places(body) if path not in _SACRED]
        if not places:
            return
        path = dice.choice(places)
        holder, key = _parent(body, path), path[-1]
        act = dice.random()
        if act < 0.6:
            holder[key] = junk(dice)
        elif act < 0.7:
            holder[key] = nested(dice)
        elif act < 0.8:
            del holder[key]
        elif act < 0.9 and isinstance(holder, dict):
            holder[str(dice.choice(WORDS))] = junk(dice)
        elif isinstance(holder[key], list) and holder[key]:
            holder[key] = [copy.deepcopy(holder[key][0]) for _ in range(dice.choice((2, 50)))]
        else:
            holder[key] = junk(dice)


# -- kinds ------------------------------------------------------------------------------------------------------------


def _pod(dice: Random, name: str) -> Json:
    other = f"odd-{dice.randint(0, 40)}"
    container = {
        "name": "main", "image": "x", "ports": [{"containerPort": 80, "hostPort": 80, "protocol": "TCP"}],
        "resources": {"requests": {"cpu": "100m", "memory": "1Gi", GPU: "1"}, "limits": {GPU: "1"}},
    }  # fmt: skip
    terms = [{"matchExpressions": [{"key": "rack", "operator": "In", "values": ["r0"]}]}]
    near = {"topologyKey": "rack", "labelSelector": {"matchLabels": {"a": "b"}}}
    labels = {
        "a": "b", "scheduling.muster.sh/pod-group": other, "scheduling.x-k8s.io/pod-group": other,
        "scheduling.muster.sh/subgroup": "workers", "scheduling.muster.sh/queue": other, "kai.scheduler/queue": other,
    }  # fmt: skip
    notes = {
        "scheduling.k8s.io/group-name": other, "pod-group-name": other, "scheduling.muster.sh/min-member": "2",
        "scheduling.muster.sh/topology-required": "rack", "scheduling.muster.sh/preemptible": "false",
        "scheduling.muster.sh/runtime-limit": "1h", "volcano.sh/task-spec": "worker",
        "batch.kubernetes.io/job-completion-index": "1",
    }  # fmt: skip
    spec: Json = {
        "schedulerName": SCHEDULER, "restartPolicy": "Never", "containers": [container], "initContainers": [],
        "nodeSelector": {"rack": "r0"}, "priority": 5, "preemptionPolicy": "PreemptLowerPriority",
        "overhead": {"cpu": "10m"}, "schedulingGates": [], "tolerations": [{"key": "k", "operator": "Exists"}],
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms},
                "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 5, "preference": terms[0]}],
            },
            "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [near]},
            "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 7, "podAffinityTerm": near}
            ]},
        },
        "topologySpreadConstraints": [
            {"maxSkew": 1, "topologyKey": "rack", "whenUnsatisfiable": "DoNotSchedule",
             "labelSelector": {"matchLabels": {"a": "b"}}},
        ],
        "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": other}}],
        "schedulingGroup": {"podGroupName": other}, "resourceClaims": [],
    }  # fmt: skip
    if dice.random() < 0.7:  # most of it is for few pods, or hardly one would be worth placing
        for key in ("affinity", "topologySpreadConstraints", "volumes", "schedulingGroup", "nodeSelector"):
            spec.pop(key)
    if dice.random() < 0.8:
        kept = dice.choice(tuple(notes))
        notes = {kept: notes[kept]}
        labels = {key: labels[key] for key in ("a", dice.choice(tuple(labels)))}
    status: Json = {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False"}]}
    if dice.random() < 0.2:
        spec["nodeName"], status["phase"] = f"odd-n{dice.randint(0, 20)}", "Running"
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": other, "uid": "u", "controller": True}
    metadata = {"name": name, "labels": labels, "annotations": notes, "ownerReferences": [owner]}
    return {"metadata": metadata, "spec": spec, "status": status}


def _node(dice: Random, name: str) -> Json:
    amounts = {"cpu": "8", "memory": "32Gi", "pods": "110", GPU: "4", "hugepages-2Mi": "0"}
    return {
        "metadata": {"name": name, "labels": {"rack": "r0", "kubernetes.io/hostname": name}},
        "spec": {"taints": [{"key": "a", "value": "b", "effect": "NoSchedule"}], "unschedulable": False},
        "status": {
            "allocatable": amounts, "capacity": amounts,
            "conditions": [{"type": "Ready", "status": "True"}],
            "images": [{"names": ["x"], "sizeBytes": 5}], "volumesAttached": [{"name": "v", "devicePath": "d"}],
        },
    }  # fmt: skip


def _muster_group(dice: Random, name: str) -> Json:
    spec: Json = {
        "minMember": dice.randint(1, 4), "queue": f"odd-{dice.randint(0, 9)}", "priorityClassName": "high",
        "preemptible": True, "minRuntime": "10m", "runtimeLimit": "24h", "expectedRuntime": "1h",
        "topology": {"name": "odd", "required": "rack", "preferred": "host", "segments": [{"size": 8, "level": "r"}]},
        "subGroups": [
            {"name": "workers", "minMember": 1, "selector": {"matchLabels": {"a": "b"}},
             "topology": {"required": "rack"}},
            {"name": "rest", "subGroups": [{"name": "deep", "minMember": 1}], "minSubGroups": 1},
        ],
    }  # fmt: skip
    for key in ("topology", "subGroups", "queue"):
        if dice.random() < 0.6:
            spec.pop(key)
    status = {"phase": "Pending", "conditions": [{"type": "Scheduled", "status": "False"}], "members": {"desired": 1}}
    return {"metadata": {"name": name}, "spec": spec, "status": status}


def _volcano_group(dice: Random, name: str) -> Json:
    spec = {
        "minMember": 2, "minTaskMember": {"worker": 2}, "queue": f"odd-{dice.randint(0, 9)}",
        "minResources": {"cpu": "1", GPU: "2"}, "networkTopology": {"mode": "hard", "highestTierAllowed": 2},
        "subGroupPolicy": [{"name": "a", "subGroupSize": 2, "labelSelector": {"matchLabels": {"a": "b"}},
                            "matchLabelKeys": ["k"], "minSubGroups": 1}],
    }  # fmt: skip
    return {"metadata": {"name": name}, "spec": spec, "status": {"phase": "Pending", "conditions": []}}


def _coscheduling_group(dice: Random, name: str) -> Json:
    spec = {"minMember": 2, "minResources": {"cpu": "1"}, "scheduleTimeoutSeconds": 10}
    return {"metadata": {"name": name}, "spec": spec, "status": {"phase": "Pending", "scheduled": 0}}


def _native_group(dice: Random, name: str) -> Json:
    topology = [{"key": "rack"}]
    spec = {"schedulingPolicy": {"gang": {"minCount": 2}}, "schedulingConstraints": {"topology": topology}}
    return {"metadata": {"name": name}, "spec": spec, "status": {"conditions": []}}


def _kai_group(dice: Random, name: str) -> Json:
    spec = {
        "minMember": 2, "queue": f"odd-{dice.randint(0, 9)}", "preemptibility": "preemptible", "minSubGroup": 1,
        "topologyConstraint": {"topology": "odd", "requiredTopologyLevel": "rack"},
        "subGroups": [{"name": "a", "minMember": 1}, {"name": "b", "parent": "a", "minMember": 1}],
    }  # fmt: skip
    return {"metadata": {"name": name}, "spec": spec, "status": {"conditions": [], "schedulingConditions": []}}


def _muster_queue(dice: Random, name: str) -> Json:
    spec = {
        "parent": f"odd-{dice.randint(0, 9)}", "weight": 1, "priority": 0, "order": "BestEffort", "state": "Open",
        "resources": {GPU: {"guarantee": 0, "deserved": 4, "limit": "unlimited"}, "cpu": {"limit": "2k"}},
        "preemption": {"withinQueue": "LowerPriority", "reclaim": "Any", "minRuntime": "5m", "reclaimable": True},
        "namespaceSelector": {"matchLabels": {"a": "b"}}, "runtime": {"default": "4h"}, "fairShare": {"halfLife": "1h"},
    }  # fmt: skip
    usage = {"decayed": {"cpu": "1"}, "at": "2026-01-01T00:00:00Z"}
    return {"metadata": {"name": name}, "spec": spec, "status": {"state": "Open", "usage": usage}}


def _volcano_queue(dice: Random, name: str) -> Json:
    amounts = {"cpu": "4", GPU: "2"}
    spec = {
        "weight": 1, "priority": 0, "parent": f"odd-{dice.randint(0, 9)}", "reclaimable": True, "deserved": amounts,
        "capability": amounts, "guarantee": {"resource": amounts},
    }  # fmt: skip
    return {"metadata": {"name": name}, "spec": spec, "status": {"state": "Open", "allocated": amounts}}


def _kai_queue(dice: Random, name: str) -> Json:
    part = {"quota": 4, "limit": -1, "overQuotaWeight": 1}
    spec = {
        "parentQueue": f"odd-{dice.randint(0, 9)}", "priority": 100, "preemptMinRuntime": "5m",
        "resources": {"gpu": part, "cpu": dict(part), "memory": dict(part)},
    }  # fmt: skip
    return {"metadata": {"name": name}, "spec": spec, "status": {"childQueues": []}}


def _muster_topology(dice: Random, name: str) -> Json:
    levels = [{"name": "block", "label": "block"}, {"name": "rack", "label": "rack"}]
    return {"metadata": {"name": name}, "spec": {"levels": levels}, "status": {"domains": {"rack": 1}}}


def _plain_topology(dice: Random, name: str) -> Json:
    levels = [{"nodeLabel": "block"}, {"nodeLabel": "rack"}, {"nodeLabel": "kubernetes.io/hostname"}]
    return {"metadata": {"name": name}, "spec": {"levels": levels}}


def _hypernode(dice: Random, name: str) -> Json:
    selectors = (
        {"exactMatch": {"name": f"odd-n{dice.randint(0, 20)}"}}, {"regexMatch": {"pattern": "odd-n.*"}},
        {"labelMatch": {"matchLabels": {"rack": "r0"}}}, {"exactMatch": {"name": f"odd-{dice.randint(0, 40)}"}},
    )  # fmt: skip
    members = [{"type": dice.choice(("Node", "HyperNode")), "selector": dice.choice(selectors)} for _ in range(2)]
    return {"metadata": {"name": name}, "spec": {"tier": dice.randint(1, 3), "tierName": "rack", "members": members}}


def _priority_class(dice: Random, name: str) -> Json:
    return {"metadata": {"name": name}, "value": dice.randint(0, 1000), "globalDefault": False}


def _budget(dice: Random, name: str) -> Json:
    spec = {"minAvailable": "50%", "selector": {"matchLabels": {"a": "b"}}}
    status = {"disruptionsAllowed": 1, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 2}
    return {"metadata": {"name": name}, "spec": spec, "status": status}


def _claim(dice: Random, name: str) -> Json:
    spec = {
        "accessModes": ["ReadWriteOnce"], "storageClassName": "odd", "volumeName": "odd",
        "resources": {"requests": {"storage": "1Gi"}},
    }  # fmt: skip
    return {"metadata": {"name": name}, "spec": spec, "status": {"phase": "Pending"}}


def _volume(dice: Random, name: str) -> Json:
    terms = [{"matchExpressions": [{"key": "rack", "operator": "In", "values": ["r0"]}]}]
    spec = {
        "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "odd",
        "csi": {"driver": "d", "volumeHandle": "h"}, "nodeAffinity": {"required": {"nodeSelectorTerms": terms}},
    }  # fmt: skip
    return {"metadata": {"name": name}, "spec": spec, "status": {"phase": "Available"}}


def _job(dice: Random, name: str) -> Json:
    notes = {"scheduling.muster.sh/min-member": "2", "scheduling.muster.sh/topology-required": "rack"}
    template = {"metadata": {}, "spec": {"schedulerName": SCHEDULER, "restartPolicy": "Never", "containers": []}}
    spec = {"suspend": True, "parallelism": 2, "completions": 2, "template": template}
    return {"metadata": {"name": name, "annotations": notes}, "spec": spec}


Make = Callable[[Random, str], Json]
KINDS: tuple[tuple[str, str, str, str, bool, Make, int], ...] = (
    ("", "v1", "pods", "Pod", True, _pod, 30),
    ("", "v1", "nodes", "Node", False, _node, 8),
    ("scheduling.muster.sh", "v1alpha1", "podgroups", "PodGroup", True, _muster_group, 14),
    ("scheduling.volcano.sh", "v1beta1", "podgroups", "PodGroup", True, _volcano_group, 8),
    ("scheduling.x-k8s.io", "v1alpha1", "podgroups", "PodGroup", True, _coscheduling_group, 4),
    ("scheduling.k8s.io", "v1beta1", "podgroups", "PodGroup", True, _native_group, 4),
    ("scheduling.run.ai", "v2alpha2", "podgroups", "PodGroup", True, _kai_group, 6),
    ("scheduling.muster.sh", "v1alpha1", "queues", "Queue", False, _muster_queue, 6),
    ("scheduling.volcano.sh", "v1beta1", "queues", "Queue", False, _volcano_queue, 3),
    ("scheduling.run.ai", "v2", "queues", "Queue", False, _kai_queue, 3),
    ("scheduling.muster.sh", "v1alpha1", "topologies", "Topology", False, _muster_topology, 2),
    ("kai.scheduler", "v1alpha1", "topologies", "Topology", False, _plain_topology, 2),
    ("kueue.x-k8s.io", "v1beta1", "topologies", "Topology", False, _plain_topology, 2),
    ("topology.volcano.sh", "v1alpha1", "hypernodes", "HyperNode", False, _hypernode, 4),
    ("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", False, _priority_class, 1),
    ("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", True, _budget, 2),
    ("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", True, _claim, 2),
    ("", "v1", "persistentvolumes", "PersistentVolume", False, _volume, 2),
    ("batch", "v1", "jobs", "Job", True, _job, 2),
)
"""Group, version, plural, kind, whether in a namespace, how one is made, how often."""


def odd_objects(seed: int, count: int) -> Iterator[Odd]:
    """Make so many objects; each depends on the seed and its number only. One in ten is as it should be."""
    weights = [kind[-1] for kind in KINDS]
    for number in range(count):
        dice = Random(f"{seed}/{number}")
        group, version, plural, kind, namespaced, make, _ = dice.choices(KINDS, weights)[0]
        # Some of them are what others name.
        few = {"nodes": "odd-n", "topologies": "odd", "persistentvolumeclaims": "odd-", "persistentvolumes": "odd"}
        name = f"odd-{plural[:3]}-{number}"
        if dice.random() < 0.3:
            name = few.get(plural, "odd-") + (str(dice.randint(0, 40)) if plural != "topologies" else "")
        body = make(dice, name)
        body |= {"apiVersion": f"{group}/{version}" if group else version, "kind": kind}
        if dice.random() < 0.9:
            spoil(dice, body)
        body["metadata"]["name"] = name
        if namespaced:
            body["metadata"]["namespace"] = NAMESPACE
        yield Odd(group, version, plural, NAMESPACE if namespaced else "", name, body)
