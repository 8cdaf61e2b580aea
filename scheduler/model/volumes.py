"""Volumes as a scheduler sees them: claims, persistent volumes, classes, drivers and what nodes can attach.

Decided here: which nodes a volume can be reached from and which volume can serve a claim. Values and pure functions;
nothing here knows pods beyond the claims and disks that they name. Keys of claims are "namespace/name". Sizes are in
bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from scheduler.model.affinity import LabelSelector
from scheduler.model.pods import SelectorTerm
from scheduler.model.podvolumes import PodVolumes
from scheduler.model.selecting import holds, selects

NO_PROVISIONER = "kubernetes.io/no-provisioner"
ONE_POD = "ReadWriteOncePod"

MOVED = {
    "kubernetes.io/aws-ebs": "ebs.csi.aws.com",
    "kubernetes.io/azure-disk": "disk.csi.azure.com",
    "kubernetes.io/cinder": "cinder.csi.openstack.org",
    "kubernetes.io/gce-pd": "pd.csi.storage.gke.io",
    "kubernetes.io/portworx-volume": "pxd.portworx.com",
}
"""In-tree plugins that were moved to a CSI driver and whose volumes count against its limits."""

Labels: TypeAlias = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Claim:
    """A PersistentVolumeClaim. `bound`: its volume is set and the binding is complete. `owner`: uid of its controller.

    `selected`: the node for which it is being provisioned. `block`: a raw device. `attributes`: the name of its
    VolumeAttributesClass. `modes`: access modes, sorted.
    """

    uid: str
    namespace: str
    name: str
    storage_class: str = ""
    volume: str = ""
    bound: bool = False
    selected: str = ""
    deleting: bool = False
    lost: bool = False
    size: int = 0
    modes: tuple[str, ...] = ()
    block: bool = False
    selector: LabelSelector | None = None
    attributes: str = ""
    owner: str = ""
    resource_version: str = ""

    @property
    def key(self) -> str:
        """Namespace and name."""
        return f"{self.namespace}/{self.name}"

    @property
    def exclusive(self) -> bool:
        """Whether at most one pod in the cluster may use it."""
        return ONE_POD in self.modes


@dataclass(frozen=True, slots=True)
class Volume:
    """A PersistentVolume. `claim`: key of the claim that it is given to, `claim_uid` its uid ("" = by name only).

    `terms`: nodes from which it can be reached, ORed; None is all. `zones`: (label, allowed values) of nodes in zones.
    `available`: its phase says that it may be given away. `driver`, `handle`: of a CSI volume, or of what the volume of
    an in-tree `plugin` has become; `moved`: terms that hold for that on nodes whose kubelet has left the plugin to CSI.
    """

    uid: str
    name: str
    storage_class: str = ""
    size: int = 0
    modes: tuple[str, ...] = ()
    block: bool = False
    attributes: str = ""
    claim: str = ""
    claim_uid: str = ""
    available: bool = False
    deleting: bool = False
    terms: tuple[SelectorTerm, ...] | None = None
    zones: tuple[tuple[str, tuple[str, ...]], ...] = ()
    labels: tuple[tuple[str, str], ...] = ()
    driver: str = ""
    handle: str = ""
    plugin: str = ""
    moved: tuple[SelectorTerm, ...] | None = None
    resource_version: str = ""

    def given_to(self, claim: Claim) -> bool:
        """Whether it is reserved for this very claim, by a person or a controller."""
        return self.claim == claim.key and self.claim_uid in ("", claim.uid)


@dataclass(frozen=True, slots=True)
class StorageClass:
    """A StorageClass. `delayed`: WaitForFirstConsumer. `topologies`: allowedTopologies, ORed; empty is everywhere."""

    uid: str
    name: str
    provisioner: str = ""
    delayed: bool = False
    topologies: tuple[SelectorTerm, ...] = ()
    resource_version: str = ""

    @property
    def provisions(self) -> bool:
        """Whether volumes are made on demand."""
        return self.provisioner not in ("", NO_PROVISIONER)


@dataclass(frozen=True, slots=True)
class NodeDrivers:
    """A CSINode: the drivers on a node, each with the number of volumes that it can attach there (-1: no limit).

    topology: of the drivers that have any, the node labels by whose values they tell from where a volume is reached.
    moved: in-tree plugins that the kubelet has left to their CSI drivers.
    """

    uid: str
    node: str
    drivers: tuple[tuple[str, int], ...] = ()
    topology: tuple[tuple[str, tuple[str, ...]], ...] = ()
    moved: tuple[str, ...] = ()
    resource_version: str = ""

    def topology_of(self, driver: str) -> tuple[str, ...] | None:
        """Return the topology keys of a driver; None without the driver."""
        return None if self.limit(driver) is None else dict(self.topology).get(driver, ())

    def limit(self, driver: str) -> int | None:
        """Return how many volumes of a driver may be attached; -1 without limit, None without the driver."""
        for name, count in self.drivers:
            if name == driver:
                return count
        return None


@dataclass(frozen=True, slots=True)
class StorageDriver:
    """A CSIDriver. `tracks`: it publishes how much storage is left. `insists`: no pod goes where it is missing."""

    uid: str
    name: str
    tracks: bool = False
    insists: bool = False
    resource_version: str = ""


@dataclass(frozen=True, slots=True)
class StorageCapacity:
    """A CSIStorageCapacity. `largest`: the largest volume that can be made (-1: unknown, so none).

    `left`: what all new volumes together may take (-1: unknown). `nodes`: None is no node.
    """

    uid: str
    key: str
    storage_class: str
    largest: int = -1
    left: int = -1
    nodes: LabelSelector | None = None
    resource_version: str = ""


@dataclass(frozen=True, slots=True)
class Attachment:
    """A VolumeAttachment: a persistent volume that a driver has attached, or is attaching, to a node."""

    uid: str
    name: str
    node: str
    driver: str
    volume: str
    resource_version: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Storage:
    """All of it at one moment. A new object whenever something changed that can matter to a placement.

    offered: volumes that are given to no claim and may be, by class, sorted by (size, name). given: key of a claim ->
    names of the volumes that are reserved for it. capacities: by class. taken: volumes that a placement under way has
    taken -> uid of the claim. chosen: uid of a claim -> node for which a placement under way has it provisioned.
    hosted: node -> pods there with volumes, assumed ones included, as (namespace, pod's uid, volumes). users: claim key
    -> uids of the pods on nodes that use it. shared: claims that several pods name, waiting ones included.
    """

    generation: int = 0
    claims: Mapping[str, Claim] = field(default_factory=dict)
    volumes: Mapping[str, Volume] = field(default_factory=dict)
    offered: Mapping[str, tuple[Volume, ...]] = field(default_factory=dict)
    given: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    classes: Mapping[str, StorageClass] = field(default_factory=dict)
    drivers: Mapping[str, StorageDriver] = field(default_factory=dict)
    node_drivers: Mapping[str, NodeDrivers] = field(default_factory=dict)
    capacities: Mapping[str, tuple[StorageCapacity, ...]] = field(default_factory=dict)
    attachments: Mapping[str, tuple[Attachment, ...]] = field(default_factory=dict)
    taken: Mapping[str, str] = field(default_factory=dict)
    chosen: Mapping[str, str] = field(default_factory=dict)
    hosted: Mapping[str, tuple[tuple[str, str, PodVolumes], ...]] = field(default_factory=dict)
    users: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    shared: frozenset[str] = frozenset()

    def driver_of(self, claim: Claim) -> tuple[str, str]:
        """Return driver and unique handle of the volume that a claim has or will have; ("", "") when it is not CSI.

        A volume of an in-tree plugin that was moved is a volume of the CSI driver.
        """
        volume = self.volumes.get(claim.volume) if claim.volume else None
        if volume is not None:
            return (volume.driver, volume.handle) if volume.driver and volume.handle else ("", "")
        known = self.classes.get(claim.storage_class)
        if known is None or not known.provisioner:
            return "", ""
        return MOVED.get(known.provisioner, known.provisioner), f"claim {claim.key}"

    def is_moved(self, claim: Claim) -> bool:
        """Whether the volume of a claim is one of an in-tree plugin that was moved to a CSI driver."""
        volume = self.volumes.get(claim.volume) if claim.volume else None
        if volume is not None:
            return bool(volume.plugin)
        known = self.classes.get(claim.storage_class)
        return known is not None and known.provisioner in MOVED


NO_STORAGE = Storage()


# -- pure rules ------------------------------------------------------------------------------------------------------


def term_holds(term: SelectorTerm, labels: Labels) -> bool:
    """Whether a node's labels satisfy a term. Volumes know labels only: a term over fields matches no node."""
    return (
        bool(term.expressions)
        and not term.fields
        and all(holds(need, labels.get(need.key), exists=need.key in labels) for need in term.expressions)
    )


def reaches(volume: Volume, labels: Labels) -> bool:
    """Whether a volume can be used on a node with these labels, by its node affinity."""
    return volume.terms is None or any(term_holds(term, labels) for term in volume.terms)


ZONE_LABELS = (
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
)
_TODAY = dict(zip(ZONE_LABELS[:2], ZONE_LABELS[2:], strict=True))


def in_zone(volume: Volume, labels: Labels) -> bool:
    """Whether a node is in the zones that a volume's labels name; a node without any zone label is in all of them."""
    if not volume.zones or not any(label in labels for label in ZONE_LABELS):
        return True
    for label, values in volume.zones:
        value = labels.get(label, labels.get(_TODAY.get(label, label)))
        if value is None or value not in values:
            return False
    return True


def serves(volume: Volume, claim: Claim) -> bool:
    """Whether a volume that is nobody's may be given to a claim, wherever the pod runs."""
    return (
        volume.available
        and not volume.deleting
        and volume.size >= claim.size
        and volume.storage_class == claim.storage_class
        and volume.block == claim.block
        and volume.attributes == claim.attributes
        and set(claim.modes) <= set(volume.modes)
        and (claim.selector is None or selects(claim.selector, dict(volume.labels)))
    )


def fits_given(volume: Volume, claim: Claim) -> bool:
    """Whether a volume that is reserved for this claim can be bound to it."""
    return (
        not volume.deleting
        and volume.size >= claim.size
        and volume.block == claim.block
        and volume.attributes == claim.attributes
    )


def by_size(volumes: Iterable[Volume]) -> tuple[Volume, ...]:
    """Return volumes in the order in which they are given away: the smallest first."""
    return tuple(sorted(volumes, key=lambda volume: (volume.size, volume.name)))
