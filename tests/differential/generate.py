"""Random small clusters and a pod that asks, as plain Kubernetes objects, from a seed.

Decided here: the vocabulary (few names, so that things collide) and how often each field is set. Each case uses one to
three families of fields, because with all of them at once no node is ever feasible. Most objects are valid; what the
API server would refuse is found out by the oracle and not compared.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Sequence
from typing import Any

from tests.differential.volumes import MOVED_ZONES, Volumes

Json = dict[str, Any]

FAMILIES = ("selectors", "taints", "resources", "resize", "ports", "interpod", "spread", "volumes", "features")
"""Families of fields; a name in `generate(families=...)` turns it on."""

ZONE, RACK, HOSTNAME = "topology.kubernetes.io/zone", "rack", "kubernetes.io/hostname"
NAMESPACES = {"ns-a": {"team": "ml", "env": "prod"}, "ns-b": {"team": "web"}, "ns-c": {}}
GPU, HUGE = "example.com/gpu", "hugepages-2Mi"
_NUMBERS = ("1", "2", "007", "10", "1.5", "abc", "", "9223372036854775807")
_TAINT_KEYS = ("a", "b", "node.kubernetes.io/not-ready", "node.kubernetes.io/unschedulable", "nvidia.com/gpu")
_LEVELS = ("0", "1", "2", "00", "007", "1.5", "abc", "", "9223372036854775807", "9223372036854775808")
"""Values of the taint `level`, which tolerations compare as numbers."""
_FEATURES = (
    "RestartAllContainersOnContainerExits", "UserNamespacesHostNetworkSupport", "VolumeBindMountOptions", "Other",
)  # fmt: skip
_EFFECTS = ("NoSchedule", "NoExecute", "PreferNoSchedule")
_NODE_VALUES: dict[str, Sequence[str]] = {
    ZONE: ("a", "b", "c"), RACK: ("r1", "r2"), "disk": ("ssd", "hdd"), "tier": ("spot", ""), "size": _NUMBERS,
}  # fmt: skip
_POD_VALUES: dict[str, Sequence[str]] = {"app": ("w", "db"), "rev": ("1", "2"), "x": ("", "y")}


def generate(seed: int, families: Sequence[str] = FAMILIES) -> Json:
    """Return one case: nodes, pods, namespaces (and what volumes need), and one pod in `incoming`."""
    return _Case(random.Random(seed), families).build()


def generate_gang(seed: int, families: Sequence[str] = FAMILIES) -> Json:
    """Return one case with a gang of two to four members, of one or two kinds, in `incoming` and `podGroups`.

    All of them are its minimum.
    """
    return _Case(random.Random(seed), families, gang=True).build_gang()


class _Case:
    def __init__(self, rng: random.Random, families: Sequence[str], *, gang: bool = False) -> None:
        self.rng = rng
        count = rng.choices((1, 2, 3), (5, 4, 2))[0]
        self.on = set(rng.sample(families, min(count, len(families))))
        self.node_names = [f"n{number}" for number in range(1, rng.randint(2, 6) + 1)]
        self.alike = rng.random() < 0.6 and bool(self.on & {"interpod", "spread"})
        """Most pods are in one namespace and have the same label, so that selectors mean many of them."""
        self.storage = Volumes(rng, self.node_names, list(NAMESPACES), gang=gang) if "volumes" in self.on else None

    # -- small decisions ----------------------------------------------------------------------------------------------

    def chance(self, share: float) -> bool:
        return self.rng.random() < share

    def pick(self, *options: Any) -> Any:
        return self.rng.choice(options)

    def some(self, options: Sequence[Any], least: int = 0, most: int = 2) -> list[Any]:
        return self.rng.sample(list(options), min(len(options), self.rng.randint(least, most)))

    def labels(self, values: dict[str, Sequence[str]], share: float) -> dict[str, str]:
        return {key: self.rng.choice(list(of)) for key, of in values.items() if self.chance(share)}

    # -- the whole ----------------------------------------------------------------------------------------------------

    def build_gang(self) -> Json:
        case = self.build()
        kinds = [self.pod(name, "incoming") for name in ("one", "two")]
        case["incoming"] = [self.member(number, self.pick(*kinds)) for number in range(self.pick(2, 3, 3, 4))]
        case["podGroups"] = [
            {
                "apiVersion": "scheduling.muster.sh/v1alpha1",
                "kind": "PodGroup",
                "metadata": {"name": "gang", "namespace": "ns-a", "uid": "uid-gang"},
            }
        ]
        return case

    def member(self, number: int, kind: Json) -> Json:
        pod = copy.deepcopy(kind)
        pod["metadata"].update(name=f"member-{number}", uid=f"uid-member-{number}", namespace="ns-a")
        pod["metadata"]["labels"]["scheduling.muster.sh/pod-group"] = "gang"
        pod["spec"]["schedulerName"] = "muster"
        if self.storage is not None:
            self.storage.own(pod)
        return pod

    def build(self) -> Json:
        nodes = [self.node(name) for name in self.node_names]
        pods = [
            self.existing(number) for number in range(self.pick(*((3, 5, 8, 12) if self.alike else (0, 1, 2, 3, 4, 6))))
        ]
        incoming = self.pod("asks", "incoming")
        incoming["spec"]["schedulerName"] = "muster"
        storage = self.storage.objects() if self.storage is not None else {}
        return {
            **storage,
            "nodes": nodes,
            "pods": pods,
            "incoming": [incoming],
            "namespaces": [
                {
                    "metadata": {
                        "name": name,
                        "uid": f"uid-{name}",
                        "labels": {"kubernetes.io/metadata.name": name, **of},
                    }
                }
                for name, of in NAMESPACES.items()
            ],
        }

    def node(self, name: str) -> Json:
        labels = self.labels(_NODE_VALUES, 0.92 if self.alike else 0.75)
        if self.chance(0.93):
            labels[HOSTNAME] = name if self.chance(0.93) else self.pick("host", *self.node_names)
        if self.storage is not None and ZONE in labels and self.chance(0.7):
            labels |= dict.fromkeys(MOVED_ZONES, labels[ZONE] if self.chance(0.8) else "c")
        node: Json = {
            "metadata": {"name": name, "uid": f"uid-{name}", "labels": labels},
            "spec": {},
            "status": {"allocatable": self.allocatable()},
        }
        if "taints" in self.on:
            if self.chance(0.15):
                node["spec"]["unschedulable"] = True
            taints = {(self.pick(*_TAINT_KEYS), self.pick(*_EFFECTS)) for _ in range(self.pick(0, 0, 1, 2))}
            if taints:
                node["spec"]["taints"] = [
                    {"key": key, "effect": effect, **({"value": self.pick("", "1", "2")} if self.chance(0.7) else {})}
                    for key, effect in sorted(taints)
                ]
            if self.chance(0.3):
                level = {"key": "level", "effect": self.pick(*_EFFECTS), "value": self.pick(*_LEVELS)}
                node["spec"].setdefault("taints", []).append(level)
        if "features" in self.on and self.chance(0.85):
            node["status"]["declaredFeatures"] = sorted(name for name in _FEATURES if self.chance(0.6))
        return node

    def allocatable(self) -> Json:
        if "resources" not in self.on and "resize" not in self.on:
            return {"cpu": "64", "memory": "256Gi", "pods": "110"}
        amounts = {
            "cpu": self.pick("1", "2", "3500m", "4"),
            "memory": self.pick("1Gi", "2G", "4Gi", "1e9"),
            "pods": self.pick("1", "2", "5", "110"),
            "ephemeral-storage": self.pick("1Gi", "10Gi"),
            HUGE: self.pick("0", "4Mi", "16Mi"),
            GPU: self.pick("0", "1", "2", "8"),
        }
        return {name: value for name, value in amounts.items() if self.chance(0.97 if name == "pods" else 0.85)}

    def existing(self, number: int) -> Json:
        pod = self.pod(f"runs-{number}", "existing")
        gone = () if self.storage is not None else ("gone",)
        pod["spec"]["nodeName"] = self.pick(*self.node_names, *self.node_names, *self.node_names, *gone)
        pod["spec"]["schedulerName"] = self.pick("muster", "default-scheduler", "other")
        pod["status"] = {"phase": self.rng.choices(("Running", "Pending", "Succeeded", "Failed"), (7, 2, 1, 1))[0]}
        if self.chance(0.12):
            pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
            pod["metadata"]["deletionGracePeriodSeconds"] = 30
        if "resize" in self.on:
            self.resized(pod)
        return pod

    def pod(self, name: str, kind: str) -> Json:
        spec: Json = {}
        metadata = {
            "name": name,
            "namespace": "ns-a" if self.alike and self.chance(0.8) else self.pick("ns-a", "ns-a", "ns-b", "ns-c"),
            "uid": f"uid-{name}",
            "labels": self.labels(_POD_VALUES, 0.7),
        }
        if self.alike and self.chance(0.8):
            metadata["labels"]["app"] = "w"
        pod = {"metadata": metadata, "spec": spec}
        self.containers(spec)
        if "selectors" in self.on and kind == "incoming":
            self.selectors(spec)
        if "taints" in self.on and kind == "incoming":
            spec["tolerations"] = [self.toleration() for _ in range(self.pick(0, 0, 1, 1, 2, 3))]
        if "ports" in self.on:
            self.ports(spec)
        if "features" in self.on:
            self.features(spec)
        if self.storage is not None:
            self.storage.attach(pod)
        if "interpod" in self.on and self.chance(0.9 if kind == "incoming" else 0.2 if self.alike else 0.5):
            self.interpod(pod)
        if "spread" in self.on and kind == "incoming":
            spec["topologySpreadConstraints"] = [
                self.spread(metadata["labels"]) for _ in range(self.pick(1, 1, 1, 2, 3))
            ]
            keys = [(one["topologyKey"], one["whenUnsatisfiable"]) for one in spec["topologySpreadConstraints"]]
            if len(set(keys)) < len(keys):
                spec["topologySpreadConstraints"] = spec["topologySpreadConstraints"][:1]
            if self.chance(0.2) and "selectors" not in self.on:
                self.selectors(spec)
        return pod

    # -- resources ----------------------------------------------------------------------------------------------------

    def containers(self, spec: Json) -> None:
        rich = "resources" in self.on or "resize" in self.on
        spec["containers"] = [self.container(f"c{number}") for number in range(self.pick(1, 1, 2) if rich else 1)]
        if "resources" not in self.on:
            return
        inits = [self.container(f"i{number}") for number in range(self.pick(0, 0, 1, 2, 3))]
        for container in inits:
            if self.chance(0.5):
                container["restartPolicy"] = "Always"
        if inits:
            spec["initContainers"] = inits
        if self.chance(0.15):
            spec["overhead"] = {"cpu": self.pick("250m", "0.1"), "memory": self.pick("64Mi", "100M")}
        if self.chance(0.2):
            requests = {"cpu": self.pick("1500m", "2", "4"), "memory": self.pick("1Gi", "3Gi")}
            spec["resources"] = {"requests": {name: value for name, value in requests.items() if self.chance(0.8)}}
            if self.chance(0.3):
                spec["resources"]["limits"] = {"cpu": "4", "memory": "4Gi"}

    def container(self, name: str) -> Json:
        container: Json = {"name": name, "image": "image"}
        if "resources" not in self.on and "resize" not in self.on:
            return container
        requests = {
            "cpu": self.pick("100m", "500m", "1", "1.0005", "0", "2"),
            "memory": self.pick("64Mi", "256M", "1Gi", "0", "0.5"),
            "ephemeral-storage": self.pick("100Mi", "1Gi"),
        }
        requests = {key: value for key, value in requests.items() if self.chance(0.5)}
        limits: Json = {}
        if self.chance(0.25):
            requests[GPU] = limits[GPU] = self.pick("0", "1", "2")
        if self.chance(0.08) and "cpu" in requests:
            requests[HUGE] = limits[HUGE] = self.pick("2Mi", "4Mi")
        if self.chance(0.1):
            limits[self.pick("cpu", "memory")] = self.pick("2", "4")
        container["resources"] = {"requests": requests, "limits": limits}
        return container

    def resized(self, pod: Json) -> None:
        if self.chance(0.3):
            return
        sidecars = [one for one in pod["spec"].get("initContainers", ()) if "restartPolicy" in one]
        pod["status"]["containerStatuses"] = [self.container_status(one) for one in pod["spec"]["containers"]]
        pod["status"]["initContainerStatuses"] = [self.container_status(one) for one in sidecars if self.chance(0.7)]
        if "resources" in pod["spec"] and self.chance(0.5):
            if self.chance(0.8):
                pod["status"]["allocatedResources"] = self.amounts()
            if self.chance(0.8):
                pod["status"]["resources"] = {"requests": self.amounts()}
        if self.chance(0.4):
            reason = self.pick("Infeasible", "Deferred")
            pod["status"]["conditions"] = [{"type": "PodResizePending", "status": "True", "reason": reason}]

    def container_status(self, container: Json) -> Json:
        status: Json = {"name": container["name"], "image": "image", "imageID": "i", "ready": True, "restartCount": 0}
        if self.chance(0.6):
            status["allocatedResources"] = self.amounts()
        if self.chance(0.6):
            status["resources"] = {"requests": self.amounts()}
        return status

    def amounts(self) -> Json:
        amounts = {"cpu": self.pick("100m", "1", "2"), "memory": self.pick("64Mi", "1Gi")}
        return {name: value for name, value in amounts.items() if self.chance(0.85)}

    # -- nodes --------------------------------------------------------------------------------------------------------

    def selectors(self, spec: Json) -> None:
        if self.chance(0.35):
            key = self.pick(*_NODE_VALUES, HOSTNAME)
            value = self.pick(*self.node_names) if key == HOSTNAME else self.pick(*_NODE_VALUES[key])
            spec["nodeSelector"] = {key: value}
        affinity: Json = {}
        if self.chance(0.75):
            terms = [self.node_term() for _ in range(self.pick(1, 1, 2, 3))]
            affinity["requiredDuringSchedulingIgnoredDuringExecution"] = {"nodeSelectorTerms": terms}
        if self.chance(0.2):
            preferred = [{"weight": self.rng.randint(1, 100), "preference": self.node_term()}]
            affinity["preferredDuringSchedulingIgnoredDuringExecution"] = preferred
        if affinity:
            spec.setdefault("affinity", {})["nodeAffinity"] = affinity

    def node_term(self) -> Json:
        term: Json = {}
        if self.chance(0.85):
            term["matchExpressions"] = [self.node_expression() for _ in range(self.pick(1, 1, 2))]
        if self.chance(0.25):
            operator = self.pick("In", "NotIn")
            term["matchFields"] = [
                {"key": "metadata.name", "operator": operator, "values": [self.pick(*self.node_names)]}
            ]
        return term

    def node_expression(self) -> Json:
        key = self.pick(*_NODE_VALUES, HOSTNAME, "missing")
        values = self.node_names if key == HOSTNAME else _NODE_VALUES.get(key, ("v",))
        operator = self.pick("In", "NotIn", "Exists", "DoesNotExist")
        if key == "size" and self.chance(0.7):
            return {
                "key": key,
                "operator": self.pick("Gt", "Lt"),
                "values": [self.pick("1", "3", "5", "007", "1.5")],
            }
        if operator in ("Exists", "DoesNotExist"):
            return {"key": key, "operator": operator}
        return {"key": key, "operator": operator, "values": self.some(values, 1, 2)}

    def features(self, spec: Json) -> None:
        """What needs a feature of the kubelet, and what almost does."""
        if self.chance(0.4):
            spec["hostNetwork"] = self.chance(0.7)
            spec["hostUsers"] = self.chance(0.3)
        containers = [*spec["containers"], *spec.get("initContainers", ())]
        if self.chance(0.4):
            container = self.pick(*containers)
            container.setdefault("restartPolicy", "Never")
            codes = {"operator": self.pick("In", "NotIn"), "values": [42]}
            action = self.pick("Restart", "RestartAllContainers", "RestartAllContainers")
            container["restartPolicyRules"] = [{"action": action, "exitCodes": codes}]
        if self.chance(0.4) and self.storage is None:
            spec["volumes"] = [{"name": "scratch", "emptyDir": {}}]
            mount: Json = {"name": "scratch", "mountPath": "/scratch"}
            if self.chance(0.7):
                mount["bindMountOptions"] = self.some(("noexec", "nodev", "nosuid"), 1, 2)
            self.pick(*containers)["volumeMounts"] = [mount]

    def toleration(self) -> Json:
        toleration: Json = {}
        if self.chance(0.25):
            toleration = {"key": "level", "operator": self.pick("Gt", "Lt"), "value": self.pick("-7", "0", "1", "5")}
            return {**toleration, "effect": self.pick(*_EFFECTS)} if self.chance(0.4) else toleration
        if self.chance(0.8):
            toleration["key"] = self.pick(*_TAINT_KEYS)
        toleration["operator"] = self.pick("", "Equal", "Exists") if "key" in toleration else "Exists"
        if toleration["operator"] != "Exists" and self.chance(0.8):
            toleration["value"] = self.pick("", "1", "2")
        if self.chance(0.6):
            toleration["effect"] = self.pick(*_EFFECTS, "")
        return toleration

    # -- other pods ---------------------------------------------------------------------------------------------------

    def ports(self, spec: Json) -> None:
        if self.chance(0.25):
            spec["initContainers"] = [*spec.get("initContainers", ()), {"name": "side", "image": "image"}]
            if self.chance(0.6):
                spec["initContainers"][-1]["restartPolicy"] = "Always"
        if self.chance(0.1):
            spec["hostNetwork"] = True
        for container in (*spec["containers"], *spec.get("initContainers", ())):
            ports = []
            for number in range(self.pick(0, 1, 1, 2)):
                host = self.pick(8080, 8081, 53)
                same = spec.get("hostNetwork") or self.chance(0.7)
                port: Json = {"name": f"p{number}", "containerPort": host if same else 80}
                if self.chance(0.85):
                    port["hostPort"] = host
                if self.chance(0.5):
                    port["protocol"] = self.pick("TCP", "UDP", "SCTP")
                if self.chance(0.5):
                    port["hostIP"] = self.pick("0.0.0.0", "10.0.0.1", "10.0.0.2", "127.0.0.1", "")
                ports.append(port)
            if ports:
                container["ports"] = ports

    def interpod(self, pod: Json) -> None:
        affinity = pod["spec"].setdefault("affinity", {})
        labels = pod["metadata"]["labels"]
        for field, share in (("podAffinity", 0.55), ("podAntiAffinity", 0.6)):
            if not self.chance(share):
                continue
            rules: Json = {}
            if self.chance(0.9):
                terms = [self.pod_term(labels) for _ in range(self.pick(1, 1, 1, 2))]
                rules["requiredDuringSchedulingIgnoredDuringExecution"] = terms
            if self.chance(0.2):
                terms = [{"weight": self.rng.randint(1, 100), "podAffinityTerm": self.pod_term(labels)}]
                rules["preferredDuringSchedulingIgnoredDuringExecution"] = terms
            affinity[field] = rules

    def pod_term(self, own: dict[str, str]) -> Json:
        term: Json = {"topologyKey": self.pick(ZONE, ZONE, HOSTNAME, RACK, "missing" if self.chance(0.1) else ZONE)}
        if self.chance(0.95):
            term["labelSelector"] = self.pod_selector()
        if self.chance(0.3):
            term["namespaces"] = self.some([*NAMESPACES, "ns-gone"], 1, 2)
        if self.chance(0.3):
            term["namespaceSelector"] = self.namespace_selector()
        if "labelSelector" in term and self.chance(0.2):
            self.label_keys(term, self.pick("matchLabelKeys", "mismatchLabelKeys"), own)
        return term

    def label_keys(self, term: Json, field: str, own: dict[str, str]) -> None:
        used = {*term["labelSelector"].get("matchLabels", ())}
        used |= {one["key"] for one in term["labelSelector"].get("matchExpressions", ())}
        free = [key for key in (*own, "absent") if key not in used]
        if free:
            term[field] = self.some(free, 1, 2)

    def pod_selector(self) -> Json:
        selector: Json = {}
        if self.alike and self.chance(0.6):
            return {"matchLabels": {"app": self.pick("w", "w", "db")}}
        if self.chance(0.65):
            key = self.pick(*_POD_VALUES)
            selector["matchLabels"] = {key: self.pick(*_POD_VALUES[key])}
        if self.chance(0.3):
            selector["matchExpressions"] = [self.pod_expression() for _ in range(self.pick(1, 1, 2))]
        return selector

    def pod_expression(self) -> Json:
        key, operator = self.pick(*_POD_VALUES), self.pick("In", "NotIn", "Exists", "DoesNotExist")
        if operator in ("Exists", "DoesNotExist"):
            return {"key": key, "operator": operator}
        return {"key": key, "operator": operator, "values": self.some(_POD_VALUES[key], 1, 2)}

    def namespace_selector(self) -> Json:
        return self.pick(
            {},
            {"matchLabels": {"team": "ml"}},
            {"matchLabels": {"kubernetes.io/metadata.name": "ns-b"}},
            {"matchExpressions": [{"key": "team", "operator": "DoesNotExist"}]},
            {"matchExpressions": [{"key": "team", "operator": "NotIn", "values": ["ml"]}]},
        )

    def spread(self, own: dict[str, str]) -> Json:
        constraint: Json = {
            "maxSkew": self.pick(1, 1, 2, 3),
            "topologyKey": self.pick(ZONE, ZONE, HOSTNAME, RACK),
            "whenUnsatisfiable": self.pick("DoNotSchedule", "DoNotSchedule", "DoNotSchedule", "ScheduleAnyway"),
        }
        if self.chance(0.95):
            constraint["labelSelector"] = self.pod_selector()
        if constraint["whenUnsatisfiable"] == "DoNotSchedule" and self.chance(0.3):
            constraint["minDomains"] = self.pick(1, 2, 3, 4)
        for field in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
            if self.chance(0.3):
                constraint[field] = self.pick("Honor", "Ignore")
        if "labelSelector" in constraint and self.chance(0.2):
            self.label_keys(constraint, "matchLabelKeys", own)
        return constraint
