"""The form of a scenario file: what keys there are, and how a gang, a queue or a node becomes Kubernetes objects.

Decided here: names, labels and defaults of rendered objects, in each dialect. An owner is written as
KIND.GROUP/NAME and is looked up when the object is put. Unknown keys are errors, so that a
misspelt expectation cannot pass. Knows no API server.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

Json = dict[str, Any]
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The stories are long; each worker reads all of them, and the one in C is ten times as fast."""
SCENARIO_KEYS = {
    "id", "title", "source", "scheds", "skip", "dialects", "nodes", "queues", "objects", "steps", "planes", "config",
    "lag", "slow",
}  # fmt: skip
STEP_KEYS = {
    "gang", "gangs", "apply", "queue", "queues", "nodes", "patch_node", "delete_nodes", "delete", "delete_objects",
    "finish", "patch", "patch_type", "hold_terminating", "release_terminating", "kill_scheduler", "start_scheduler",
    "sleep", "seen", "expect", "forget_evictions", "refused", "remember", "repeat",
    "autoscaler",
}  # fmt: skip
EXPECT_KEYS = {
    "within", "quiet", "bound", "pending", "gone", "placed", "same", "distinct", "spread", "evicted", "object",
    "condition", "events", "unwritten", "autoscaler", "metrics",
    "count", "added", "steady",
}  # fmt: skip
GANG_KEYS = {
    "name", "min", "queue", "priority", "preemptible", "count", "gpu", "cpu", "memory", "resources", "pods", "single",
    "node", "schedulerName", "topology", "subGroups", "muster", "volcano", "labels", "annotations", "spec", "gates",
    "index", "owner",
}  # fmt: skip
ROLE_KEYS = {
    "role", "count", "gpu", "cpu", "memory", "resources", "names", "labels", "annotations", "spec", "subgroup", "node",
    "gates", "priority", "index", "owner",
}  # fmt: skip
NODE_KEYS = {"name", "count", "cpu", "memory", "gpu", "pods", "labels", "taints", "unschedulable", "resources"}
QUEUE_KEYS = {
    "name", "weight", "parent", "priority", "guarantee", "deserved", "limit", "reclaimable", "muster", "volcano",
}  # fmt: skip
GPU = "nvidia.com/gpu"
PRESETS = Path(__file__).parents[2] / "config" / "presets"
PRIORITIES = {"low": 10, "medium": 50, "high": 100}
PRIORITY_CLASSES = {**PRIORITIES, **{f"p{n}": n for n in (0, *range(10, 101, 10), 125, 1000)}}
POD_GROUP_LABEL = "scheduling.muster.sh/pod-group"


class BadScenario(ValueError):
    """A scenario that cannot be read: file, id, and the key that is wrong."""


@dataclass(frozen=True)
class Scenario:
    """One story; the values are those of the file.

    config: keys of the scheduler's configuration, those of a preset filled in. lag: resource -> seconds by which its
    watch is late. With either the story has a scheduler of its own.
    """

    id: str
    title: str
    file: str
    steps: list[Json]
    nodes: list[Json] = field(default_factory=list)
    queues: list[Json] = field(default_factory=list)
    objects: str = ""
    scheds: tuple[str, ...] | None = None
    skip: tuple[str, ...] = ()
    dialects: tuple[str, ...] = ("muster", "volcano")
    planes: tuple[str, ...] = ("embedded", "real")
    config: Json = field(default_factory=dict)
    lag: dict[str, float] = field(default_factory=dict)
    slow: bool = False


def _check(where: str, value: Json, keys: set[str]) -> None:
    unknown = set(value) - keys
    if unknown:
        raise BadScenario(f"{where}: unknown keys {sorted(unknown)}; known: {sorted(keys)}")


def _check_steps(where: str, steps: list[Json]) -> None:
    for number, step in enumerate(steps):
        _check(f"{where}.steps[{number}]", step, STEP_KEYS)
        for expect in step["expect"] if isinstance(step.get("expect"), list) else [step.get("expect") or {}]:
            _check(f"{where}.steps[{number}].expect", expect, EXPECT_KEYS)
        if "repeat" in step:
            _check(f"{where}.steps[{number}].repeat", step["repeat"], {"times", "steps"})
            _check_steps(f"{where}.steps[{number}].repeat", step["repeat"]["steps"])


def load(path: Path) -> list[Scenario]:
    """Read one file. Raises `BadScenario`."""
    scenarios = []
    for raw in yaml.load(path.read_text(), LOADER) or []:
        where = f"{path.name}:{raw.get('id')}"
        _check(where, raw, SCENARIO_KEYS)
        _check_steps(where, raw["steps"])
        scenarios.append(
            Scenario(
                id=str(raw["id"]),
                title=raw["title"],
                file=path.name,
                steps=raw["steps"],
                nodes=raw.get("nodes", []),
                queues=raw.get("queues", []),
                objects=raw.get("objects", ""),
                scheds=tuple(raw["scheds"]) if "scheds" in raw else None,
                skip=tuple(raw.get("skip", ())),
                dialects=tuple(raw.get("dialects", ("muster", "volcano"))),
                planes=tuple(raw.get("planes", ("embedded", "real"))),
                config=_configured(raw.get("config", {})),
                lag=raw.get("lag", {}),
                slow=raw.get("slow", False),
            )
        )
    return scenarios


def _configured(config: Json) -> Json:
    """Fill in the keys of a preset (`preset: NAME`, of config/presets); the names that are served stay the story's."""
    if "preset" not in config:
        return config
    preset = yaml.load((PRESETS / f"{config['preset']}.yaml").read_text(), LOADER)
    kept = {key: value for key, value in preset.items() if key not in ("apiVersion", "kind", "schedulerNames")}
    return kept | {key: value for key, value in config.items() if key != "preset"}


# -- nodes and queues -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class NodeSpec:
    """A node as a fake kubelet registers it."""

    name: str
    allocatable: dict[str, str]
    labels: dict[str, str]
    taints: list[Json]
    unschedulable: bool


def nodes_of(listed: list[Json]) -> list[NodeSpec]:
    """Expand `count` and fill in the defaults."""
    result = []
    for raw in listed:
        _check("nodes", raw, NODE_KEYS)
        for i in range(raw.get("count", 1)):
            name = raw["name"].replace("{i}", str(i))
            allocatable = {
                "cpu": str(raw.get("cpu", 64)),
                "memory": str(raw.get("memory", "512Gi")),
                "pods": str(raw.get("pods", 110)),
            }
            if "gpu" in raw:
                allocatable[GPU] = str(raw["gpu"])
            allocatable |= {key: str(value) for key, value in raw.get("resources", {}).items()}
            labels = {"kubernetes.io/hostname": name, **{k: str(v) for k, v in raw.get("labels", {}).items()}}
            result.append(NodeSpec(name, allocatable, labels, raw.get("taints", []), raw.get("unschedulable", False)))
    return result


def _amounts(values: Json) -> Json:
    return {GPU if key == "gpu" else key: value for key, value in values.items()}


def queue_object(raw: Json, dialect: str) -> Json:
    """Render a queue as a Muster Queue or a Volcano Queue."""
    _check("queue", raw, QUEUE_KEYS)
    parent = {} if raw.get("parent", "root") == "root" else {"parent": raw["parent"]}
    if dialect == "muster":
        resources: dict[str, Json] = {}
        for name in ("guarantee", "deserved", "limit"):
            for resource, value in _amounts(raw.get(name, {})).items():
                resources.setdefault(resource, {})[name] = value
        spec: Json = {**parent, **({"resources": resources} if resources else {})}
        spec |= {key: raw[key] for key in ("weight", "priority") if key in raw}
        if "reclaimable" in raw:
            spec["preemption"] = {"reclaimable": raw["reclaimable"]}
        return {
            "apiVersion": "scheduling.muster.sh/v1alpha1",
            "kind": "Queue",
            "metadata": {"name": raw["name"]},
            "spec": {**spec, **raw.get("muster", {})},
        }
    spec = {"weight": raw.get("weight", 1), **parent}
    spec |= {key: raw[key] for key in ("priority", "reclaimable") if key in raw}
    for ours, theirs in (("deserved", "deserved"), ("limit", "capability")):
        if ours in raw:
            spec[theirs] = {key: str(value) for key, value in _amounts(raw[ours]).items()}
    if "guarantee" in raw:
        spec["guarantee"] = {"resource": {key: str(value) for key, value in _amounts(raw["guarantee"]).items()}}
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "Queue",
        "metadata": {"name": raw["name"]},
        "spec": {**spec, **raw.get("volcano", {})},
    }


# -- gangs ------------------------------------------------------------------------------------------------------------


def priority_class(value: int | str) -> str:
    """Return the PriorityClass for a number or for low, medium, high."""
    return value if isinstance(value, str) else f"p{value}"


def _requests(raw: Json) -> Json:
    wanted = {key: raw[key] for key in ("cpu", "memory") if key in raw}
    if raw.get("gpu"):
        wanted[GPU] = raw["gpu"]
    wanted |= raw.get("resources", {})
    return {key: str(value) for key, value in wanted.items()}


def _container(raw: Json) -> Json:
    requests = _requests(raw)
    extended = {key: value for key, value in requests.items() if "/" in key or key.startswith("hugepages-")}
    resources: Json = {}
    if requests:
        resources["requests"] = requests
    if extended:
        resources["limits"] = extended
    return {"name": "main", "image": "registry.k8s.io/pause:3.10", "resources": resources}


def _merge(base: Json, extra: Json) -> Json:
    result = copy.deepcopy(base)
    for key, value in extra.items():
        if isinstance(value, dict) and isinstance(result.get(key), dict):
            result[key] = _merge(result[key], value)
        elif key == "containers" and len(value) == 1 and len(result.get(key, [])) == 1:
            result[key] = [_merge(result[key][0], value[0])]
        else:
            result[key] = copy.deepcopy(value)
    return result


def _pod(name: str, gang: Json, role: Json, dialect: str, namespace: str, sched: str, index: int) -> Json:
    labels: Json = {**gang.get("labels", {}), **role.get("labels", {})}
    annotations: Json = {**gang.get("annotations", {}), **role.get("annotations", {})}
    if not gang.get("single"):
        if dialect == "volcano":
            annotations["scheduling.k8s.io/group-name"] = gang["name"]
            if "role" in role:
                annotations["volcano.sh/task-spec"] = role["role"]
        else:
            labels[POD_GROUP_LABEL] = gang["name"]
            if "subgroup" in role or "role" in role:
                labels["scheduling.muster.sh/subgroup"] = role.get("subgroup", role.get("role"))
    if gang.get("index") or role.get("index"):
        labels["batch.kubernetes.io/job-completion-index"] = str(index)
    spec: Json = {
        "schedulerName": gang.get("schedulerName", sched),
        "containers": [_container(role if "role" in role else gang)],
        "terminationGracePeriodSeconds": 0,
    }
    priority = role.get("priority", gang.get("priority"))
    if priority is not None:
        spec["priorityClassName"] = priority_class(priority)
    if "preemptible" in gang and dialect == "muster" and gang.get("single"):
        annotations["scheduling.muster.sh/preemptible"] = str(gang["preemptible"]).lower()
    for source in (gang, role):
        if source.get("gates"):
            spec["schedulingGates"] = [{"name": gate} for gate in source["gates"]]
        if source.get("node"):
            spec["nodeName"] = source["node"]
    spec = _merge(_merge(spec, gang.get("spec", {})), role.get("spec", {}))
    metadata: Json = {"name": name, "namespace": namespace, "labels": labels, "annotations": annotations}
    owner = role.get("owner", gang.get("owner"))
    if owner:
        metadata["ownerReferences"] = [owner]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def pod_names(gang: Json) -> list[tuple[str, Json, int]]:
    """Return (name, role, index) of every pod of a gang."""
    result = []
    if "pods" not in gang:
        return [(f"{gang['name']}-{i}", {}, i) for i in range(gang.get("count", gang.get("min", 1)))]
    for role in gang["pods"]:
        _check(f"gang {gang['name']}.pods", role, ROLE_KEYS)
        names = role.get("names") or [f"{gang['name']}-{role['role']}-{i}" for i in range(role.get("count", 1))]
        result += [(name, role, i) for i, name in enumerate(names)]
    return result


def gang_objects(gang: Json, dialect: str, namespace: str, sched: str) -> list[Json]:
    """Render a gang: its PodGroup (unless `single`), then its pods."""
    _check(f"gang {gang.get('name')}", gang, GANG_KEYS)
    pods = [_pod(name, gang, role, dialect, namespace, sched, index) for name, role, index in pod_names(gang)]
    if gang.get("single"):
        return pods
    spec: Json = {"minMember": gang.get("min", len(pods))}
    if "queue" in gang:
        spec["queue"] = gang["queue"]
    if "priority" in gang:
        spec["priorityClassName"] = priority_class(gang["priority"])
    if dialect == "muster":
        if "preemptible" in gang:
            spec["preemptible"] = gang["preemptible"]
        spec |= {key: gang[key] for key in ("topology", "subGroups") if key in gang}
        version = "scheduling.muster.sh/v1alpha1"
        annotations: Json = {}
    else:
        version = "scheduling.volcano.sh/v1beta1"
        annotations = {"volcano.sh/preemptable": str(gang["preemptible"]).lower()} if "preemptible" in gang else {}
    group = {
        "apiVersion": version,
        "kind": "PodGroup",
        "metadata": {"name": gang["name"], "namespace": namespace, "annotations": annotations},
        "spec": _merge(spec, gang.get(dialect, {})),
    }
    return [group, *pods]
