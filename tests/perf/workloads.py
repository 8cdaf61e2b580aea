"""Pods whose spec says more than amounts: what is created for each kind of rule, and whether the rule was kept.

Decided here: the kinds that are compared with kube-scheduler, how many pods each has, and that a run counts only when
its rule holds at the end, looked up in the nodes' zones and names and not in what a scheduler says about itself. The
same JSON goes to the API server and into sessions without one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from tests.perf import world
from tests.perf.world import NAMESPACE, Json

ZONE = "topology.kubernetes.io/zone"
HOSTNAME = "kubernetes.io/hostname"
ZONES = 10
TEAM = "team"
STORAGE_CLASS = "bench-local"
_CHOSEN = ("zone-1", "zone-2")
_PREFERRED_SHARE = 0.95
"""A preference is weighed against others; so many of the pods must get theirs."""

Seats: TypeAlias = Mapping[str, Sequence[str]]
"""Team -> the nodes of its pods."""


def zone(number: int) -> str:
    """Return the zone of a node."""
    return f"zone-{number % ZONES}"


@dataclass(frozen=True, slots=True)
class Kind:
    """One rule. `pods`: how many, at full size; they are divided into `teams`, each with a label of its own.

    spec: what a pod's spec says, from its team and name. broken: what is wrong with the seats on nodes of these zones
    ("" = nothing); `volumes`: each pod has a claim of its own.
    """

    name: str
    pods: int
    teams: int
    spec: Callable[[str, str], Json]
    broken: Callable[[Seats, Mapping[str, str]], str]
    volumes: bool = False

    def pod(self, number: int, team: str, scheduler: str, *, group: str = "", gpu: int = 0) -> Json:
        """Return a pod; its name follows from the number."""
        name = f"p{number:05}"
        made = world.pod(name, scheduler, group=group, gpu=gpu)
        made["metadata"]["labels"][TEAM] = team
        made["spec"].update(self.spec(team, name))
        return made

    def all_pods(self, count: int, scheduler: str) -> Iterator[Json]:
        """Yield so many pods that stand alone, the teams in turn."""
        for number in range(count):
            yield self.pod(number, f"t{number % self.teams}", scheduler)


# -- specs ------------------------------------------------------------------------------------------------------------


def _preferred_node(team: str, name: str) -> Json:
    term = {"weight": 1, "preference": {"matchExpressions": [_in_zones()]}}
    return {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term]}}}


def _required_node(team: str, name: str) -> Json:
    terms = {"nodeSelectorTerms": [{"matchExpressions": [_in_zones()]}]}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}}


def _in_zones() -> Json:
    return {"key": ZONE, "operator": "In", "values": list(_CHOSEN)}


def _of_team(team: str) -> Json:
    return {"matchLabels": {TEAM: team}}


def _apart(team: str, name: str) -> Json:
    term = {"labelSelector": _of_team(team), "topologyKey": HOSTNAME}
    return {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


def _together(team: str, name: str) -> Json:
    term = {"labelSelector": _of_team(team), "topologyKey": ZONE}
    return {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


def _evenly(team: str, name: str) -> Json:
    constraint = {
        "maxSkew": 1,
        "topologyKey": ZONE,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": _of_team(team),
    }
    return {"topologySpreadConstraints": [constraint]}


def _with_claim(team: str, name: str) -> Json:
    return {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": claim_name(name)}}]}


# -- checks -----------------------------------------------------------------------------------------------------------


def _outside(seats: Seats, zones: Mapping[str, str]) -> int:
    return sum(zones[node] not in _CHOSEN for nodes in seats.values() for node in nodes)


def _mostly_in_zones(seats: Seats, zones: Mapping[str, str]) -> str:
    total, outside = sum(map(len, seats.values())), _outside(seats, zones)
    return f"{outside} of {total} are not where they prefer" if outside > (1 - _PREFERRED_SHARE) * total else ""


def _all_in_zones(seats: Seats, zones: Mapping[str, str]) -> str:
    outside = _outside(seats, zones)
    return f"{outside} are outside of their zones" if outside else ""


def _all_apart(seats: Seats, zones: Mapping[str, str]) -> str:
    shared = sum(count - 1 for nodes in seats.values() for count in Counter(nodes).values())
    return f"{shared} share a node with one of their team" if shared else ""


def _each_in_one_zone(seats: Seats, zones: Mapping[str, str]) -> str:
    torn = sorted(team for team, nodes in seats.items() if len({zones[node] for node in nodes}) > 1)
    return f"{len(torn)} teams are in several zones ({torn[0]} among them)" if torn else ""


def _each_even(seats: Seats, zones: Mapping[str, str]) -> str:
    everywhere = dict.fromkeys(zones.values(), 0)
    for team, nodes in sorted(seats.items()):
        counts = {**everywhere, **Counter(zones[node] for node in nodes)}
        if max(counts.values()) - min(counts.values()) > 1:
            return f"{team} is uneven: {sorted(counts.items())}"
    return ""


def _nothing(seats: Seats, zones: Mapping[str, str]) -> str:
    return ""


KINDS = (
    Kind("preferred node affinity", 2000, 1, _preferred_node, _mostly_in_zones),
    Kind("required node affinity", 2000, 1, _required_node, _all_in_zones),
    Kind("pod anti-affinity by hostname", 2000, 2, _apart, _all_apart),
    Kind("pod affinity by zone", 2000, 2, _together, _each_in_one_zone),
    Kind("topology spread by zone", 2000, 1, _evenly, _each_even),
    Kind("WaitForFirstConsumer volumes", 500, 1, _with_claim, _nothing, volumes=True),
)


# -- volumes ----------------------------------------------------------------------------------------------------------


def claim_name(pod: str) -> str:
    """Return the name of a pod's claim."""
    return f"data-{pod}"


def storage_class() -> Json:
    """Return the class of volumes that are there already and are given away when a pod is placed."""
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": STORAGE_CLASS},
        "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": "WaitForFirstConsumer",
    }


def volume(number: int) -> Json:
    """Return a disk of a node, which can be used there only."""
    term = {"matchExpressions": [{"key": HOSTNAME, "operator": "In", "values": [world.node_name(number)]}]}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": volume_name(number)},
        "spec": {
            "capacity": {"storage": "10Gi"},
            "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": STORAGE_CLASS,
            "local": {"path": "/disk"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
        },
    }


def volume_name(number: int) -> str:
    """Return the name of a node's disk."""
    return f"disk-{number:05}"


def claim(pod: str) -> Json:
    """Return the claim of a pod."""
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": claim_name(pod), "namespace": NAMESPACE},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": STORAGE_CLASS,
            "resources": {"requests": {"storage": "5Gi"}},
        },
    }


def making_class() -> Json:
    """Return the class of volumes that are made for the node of a pod; `provisioner` makes them."""
    return {**storage_class(), "provisioner": "bench.muster.sh"}


def made_volume(claimed: str, uid: str, node: str) -> Json:
    """Return what is made for a claim of this name and uid: a disk that can be used on the node only."""
    made = volume(0)
    made["metadata"]["name"] = f"made-{uid}"
    (term,) = made["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
    term["matchExpressions"][0]["values"] = [node]
    made["spec"]["claimRef"] = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "namespace": NAMESPACE,
        "name": claimed,
        "uid": uid,
    }
    return made


def badly_made(volumes: Sequence[Json], node_of: Mapping[str, str]) -> str:
    """Return what is wrong with volumes that were made, `node_of` pod -> node ("" = nothing)."""
    found: dict[str, str] = {}
    for one in volumes:
        claimed = one["spec"]["claimRef"]["name"]
        if claimed in found:
            return f"two volumes were made for {claimed}"
        (term,) = one["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
        found[claimed] = term["matchExpressions"][0]["values"][0]
    for pod, node in sorted(node_of.items()):
        if found.get(claim_name(pod)) != node:
            return f"{pod} runs on {node} and its volume is on {found.get(claim_name(pod), 'no node')}"
    return ""


def badly_given(given: Mapping[str, str], node_of: Mapping[str, str]) -> str:
    """Return what is wrong with volumes: `given` volume -> claim, `node_of` pod -> node ("" = nothing)."""
    owner = {claimed: name for name, claimed in given.items()}
    if len(owner) < len(given):
        return f"{len(given) - len(owner)} volumes are given to a claim that has another"
    for pod, node in sorted(node_of.items()):
        disk = owner.get(claim_name(pod), "")
        if disk != volume_name(int(node.rsplit("-", 1)[1])):
            return f"{pod} runs on {node} and has {disk or 'no volume'}"
    return ""


def seats(pods: Sequence[Any], node_of: Mapping[str, str]) -> Seats:
    """Return where the teams are. `node_of`: pod name -> node."""
    found: dict[str, list[str]] = {}
    for pod in pods:
        found.setdefault(pod["metadata"]["labels"][TEAM], []).append(node_of[pod["metadata"]["name"]])
    return found
