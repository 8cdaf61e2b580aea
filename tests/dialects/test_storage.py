"""Storage objects and the volumes of a pod, from JSON to values."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from scheduler.dialects import storage
from scheduler.dialects.meta import Undecodable
from scheduler.model.affinity import LabelSelector, Requirement
from scheduler.model.pods import SelectorTerm
from scheduler.model.podvolumes import Disk, PodClaim, PodVolumes
from scheduler.model.volumes import Attachment, NodeDrivers, StorageClass, StorageDriver

GI = 2**30


def raw(**parts: Any) -> bytes:
    return msgspec.json.encode(parts)


def meta(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "uid": f"uid-{name}", "resourceVersion": "7", **more}


def test_a_claim_is_bound_only_when_the_controller_says_that_it_is_complete() -> None:
    spec = {"volumeName": "v", "storageClassName": "fast", "resources": {"requests": {"storage": "1500Mi"}}}
    half = storage.decode_claim(raw(metadata=meta("c", namespace="n"), spec=spec))
    assert (half.key, half.volume, half.bound, half.size, half.storage_class) == (
        "n/c",
        "v",
        False,
        1500 * 2**20,
        "fast",
    )
    notes = {"pv.kubernetes.io/bind-completed": "", "irrelevant": "x"}
    assert storage.decode_claim(raw(metadata=meta("c", namespace="n", annotations=notes), spec=spec)).bound


def test_a_claim_keeps_what_matching_needs() -> None:
    claim = storage.decode_claim(
        raw(
            metadata=meta(
                "c",
                namespace="n",
                deletionTimestamp="2026-01-01T00:00:00Z",
                annotations={
                    "volume.kubernetes.io/selected-node": "n1",
                    "volume.beta.kubernetes.io/storage-class": "old",
                },
                ownerReferences=[{"uid": "x", "controller": False}, {"uid": "pod", "controller": True}],
            ),
            spec={
                "storageClassName": "new",
                "accessModes": ["ReadWriteOncePod", "ReadWriteOncePod"],
                "volumeMode": "Block",
                "volumeAttributesClassName": "gold",
                "selector": {
                    "matchLabels": {"tier": "ssd"},
                    "matchExpressions": [{"key": "a", "operator": "In", "values": ["z", "b"]}],
                },
            },
            status={"phase": "Lost"},
        )
    )
    assert claim.storage_class == "old"  # the annotation is older than the field and wins, as in Kubernetes
    assert (claim.selected, claim.owner, claim.deleting, claim.lost) == ("n1", "pod", True, True)
    assert (claim.modes, claim.exclusive, claim.block, claim.attributes) == (("ReadWriteOncePod",), True, True, "gold")
    assert claim.selector == LabelSelector((Requirement("a", "In", ("b", "z")), Requirement("tier", "In", ("ssd",))))


def test_a_volume_says_where_it_can_be_reached() -> None:
    volume = storage.decode_volume(
        raw(
            metadata=meta("v", labels={"topology.kubernetes.io/zone": "a__b", "x": "y"}),
            spec={
                "capacity": {"storage": "2Gi"},
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": "local",
                "claimRef": {"namespace": "n", "name": "c", "uid": "u"},
                "csi": {"driver": "d", "volumeHandle": "h"},
                "nodeAffinity": {
                    "required": {
                        "nodeSelectorTerms": [
                            {"matchExpressions": [{"key": "host", "operator": "In", "values": ["n1"]}]},
                        ]
                    }
                },
            },
            status={"phase": "Available"},
        )
    )
    assert volume.terms == (SelectorTerm((Requirement("host", "In", ("n1",)),)),)
    assert volume.zones == (("topology.kubernetes.io/zone", ("a", "b")),)
    assert (volume.claim, volume.claim_uid, volume.driver, volume.handle) == ("n/c", "u", "d", "h")
    assert (volume.available, volume.size) == (True, 2 * GI)


def test_a_volume_without_affinity_is_reached_from_everywhere_and_a_bad_zone_label_restricts_nothing() -> None:
    volume = storage.decode_volume(
        raw(metadata=meta("v", labels={"topology.kubernetes.io/zone": "a__"}), spec={"capacity": {"storage": "1"}})
    )
    assert (volume.terms, volume.zones, volume.available) == (None, (), False)


def test_classes_drivers_and_capacities() -> None:
    topologies = [{"matchLabelExpressions": [{"key": "zone", "values": ["b"]}]}]
    assert storage.decode_storage_class(
        raw(metadata=meta("s"), provisioner="p", volumeBindingMode="WaitForFirstConsumer", allowedTopologies=topologies)
    ) == StorageClass("uid-s", "s", "p", True, (SelectorTerm((Requirement("zone", "In", ("b",)),)),), "7")
    drivers = [
        {"name": "b", "nodeID": "x", "allocatable": {"count": 3}, "topologyKeys": ["zone", "region"]},
        {"name": "a", "nodeID": "y", "topologyKeys": []},
    ]
    assert storage.decode_node_drivers(raw(metadata=meta("n1"), spec={"drivers": drivers})) == NodeDrivers(
        "uid-n1", "n1", (("a", -1), ("b", 3)), (("b", ("region", "zone")),), (), "7"
    )
    assert storage.decode_driver(
        raw(metadata=meta("d"), spec={"storageCapacity": True, "preventPodSchedulingIfMissing": True})
    ) == StorageDriver("uid-d", "d", True, True, "7")
    capacity = storage.decode_capacity(
        raw(metadata=meta("k", namespace="n"), storageClassName="s", capacity="5Gi", nodeTopology={})
    )
    assert (capacity.largest, capacity.left, capacity.nodes) == (5 * GI, 5 * GI, LabelSelector())
    unknown = storage.decode_capacity(raw(metadata=meta("k", namespace="n"), storageClassName="s"))
    assert (unknown.largest, unknown.left, unknown.nodes) == (-1, -1, None)
    assert storage.decode_attachment(
        raw(metadata=meta("x"), spec={"attacher": "d", "nodeName": "n1", "source": {"persistentVolumeName": "v"}})
    ) == Attachment("uid-x", "x", "n1", "d", "v", "7")


@pytest.mark.parametrize(
    "body",
    [
        raw(metadata=meta("c", namespace="n"), spec={"resources": {"requests": {"storage": "much"}}}),
        raw(metadata=meta("c", namespace="n"), spec={"accessModes": "all"}),
        b"{",
    ],
)
def test_what_cannot_be_read_is_named(body: bytes) -> None:
    with pytest.raises(Undecodable, match="PersistentVolumeClaim"):
        storage.decode_claim(body)


def volumes(*items: dict[str, Any]) -> PodVolumes | None:
    structs = msgspec.convert(list(items), list[storage.VolumeStruct])
    return storage.pod_volumes("p", structs)


def test_the_volumes_of_a_pod_that_can_constrain_it() -> None:
    assert volumes() is None
    assert volumes({"name": "e", "emptyDir": {}}, {"name": "s", "secret": {"secretName": "x"}}) is None
    found = volumes(
        {"name": "b", "persistentVolumeClaim": {"claimName": "data"}},
        {"name": "again", "persistentVolumeClaim": {"claimName": "data", "readOnly": True}},
        {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}},
        {"name": "g", "gcePersistentDisk": {"pdName": "d", "readOnly": True}},
        {"name": "a", "awsElasticBlockStore": {"volumeID": "v", "readOnly": True}},
        {"name": "i", "iscsi": {"iqn": "q", "targetPortal": "t", "lun": 0}},
        {"name": "r", "rbd": {"monitors": ["m2", "m1"], "image": "x"}},
    )
    assert found == PodVolumes(
        claims=(PodClaim("data"), PodClaim("p-scratch", ephemeral=True)),
        disks=(Disk("aws", "v"), Disk("gce", "d", reads=True), Disk("iscsi", "q"), Disk("rbd", "rbd/x", ("m1", "m2"))),
        attached=(("ebs.csi.aws.com", "v"), (PD, "projects/UNSPECIFIED/zones/UNSPECIFIED/disks/d")),
    )


def test_disks_conflict_unless_all_only_read_or_no_monitor_is_common() -> None:
    assert Disk("gce", "d").conflicts(Disk("gce", "d", reads=True))
    assert not Disk("gce", "d", reads=True).conflicts(Disk("gce", "d", reads=True))
    assert not Disk("gce", "d").conflicts(Disk("aws", "d"))
    assert Disk("rbd", "p/i", ("a", "b")).conflicts(Disk("rbd", "p/i", ("b", "c")))
    assert not Disk("rbd", "p/i", ("a",)).conflicts(Disk("rbd", "p/i", ("c",)))


ZONE, OLD_ZONE = "topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"
REGION, OLD_REGION = "topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/region"
PD, PD_ZONE, DISK = "pd.csi.storage.gke.io", "topology.gke.io/zone", {"gcePersistentDisk": {"pdName": "d"}}


@pytest.mark.parametrize(
    ("source", "labels", "driver", "handle"),
    [
        (DISK, {}, PD, "projects/UNSPECIFIED/zones/UNSPECIFIED/disks/d"),
        (DISK, {ZONE: "a", OLD_ZONE: "b"}, PD, "projects/UNSPECIFIED/zones/b/disks/d"),
        (DISK, {ZONE: "eu-west-a__eu-west-b"}, PD, "projects/UNSPECIFIED/regions/eu-west/disks/d"),
        (DISK, {ZONE: "eu-west-a__us-west-b"}, "", ""),
        ({"awsElasticBlockStore": {"volumeID": "vol-1"}}, {}, "ebs.csi.aws.com", "vol-1"),
        ({"awsElasticBlockStore": {"volumeID": "aws://zone/vol-1"}}, {}, "ebs.csi.aws.com", "vol-1"),
        ({"awsElasticBlockStore": {"volumeID": "aws:///disk-1"}}, {}, "", ""),
        ({"azureDisk": {"diskName": "d", "diskURI": "/x/d", "kind": "Managed"}}, {}, "disk.csi.azure.com", "/x/d"),
        ({"azureDisk": {"diskName": "d", "diskURI": "/x/d", "kind": "Shared"}}, {}, "", ""),
        ({"cinder": {"volumeID": "c"}}, {}, "cinder.csi.openstack.org", "c"),
        ({"portworxVolume": {"volumeID": "p"}}, {}, "pxd.portworx.com", "p"),
        ({"vsphereVolume": {"volumePath": "p"}}, {}, "", ""),
    ],
)  # fmt: skip
def test_a_volume_of_an_in_tree_plugin_is_one_of_the_csi_driver(
    source: dict[str, Any], labels: dict[str, str], driver: str, handle: str
) -> None:
    volume = storage.decode_volume(raw(metadata=meta("v", labels=labels), spec=source))
    assert (volume.driver, volume.handle) == (driver, handle)
    inline = storage.pod_volumes("p", [msgspec.json.decode(raw(name="v", **source), type=storage.VolumeStruct)])
    if not labels:
        assert (inline.attached if inline else ()) == (((driver, handle),) if driver else ())


@pytest.mark.parametrize(
    ("keys", "labels", "then"),
    [
        ((ZONE, "other"), {}, [("other", "In", ("x",)), (PD_ZONE, "In", ("x",))]),
        ((OLD_ZONE, OLD_REGION), {ZONE: "no"}, [(REGION, "In", ("x",)), (PD_ZONE, "In", ("x",))]),
        (("other",), {ZONE: "a"}, [("other", "In", ("x",)), (PD_ZONE, "In", ("a",))]),
        ((), {OLD_ZONE: "e-w-b__e-w-a"}, [(PD_ZONE, "In", ("e-w-a", "e-w-b"))]),
        ((), {OLD_ZONE: ""}, None),
    ],
)  # fmt: skip
def test_where_the_volume_of_an_in_tree_plugin_is_reached_once_the_kubelet_has_left_it(
    keys: tuple[str, ...], labels: dict[str, str], then: list[tuple[str, str, tuple[str, ...]]] | None
) -> None:
    needs = [{"key": key, "operator": "In", "values": ["x"]} for key in keys]
    affinity = {"required": {"nodeSelectorTerms": [{"matchExpressions": needs}]}} if keys else None
    volume = storage.decode_volume(raw(metadata=meta("v", labels=labels), spec={**DISK, "nodeAffinity": affinity}))
    moved = [(need.key, need.operator, need.values) for term in volume.moved or () for need in term.expressions]
    assert (sorted(moved) if volume.moved is not None else None) == (sorted(then) if then is not None else None)


def test_a_node_tells_which_plugins_its_kubelet_has_left() -> None:
    notes = {"storage.alpha.kubernetes.io/migrated-plugins": "kubernetes.io/gce-pd,kubernetes.io/cinder"}
    node = storage.decode_node_drivers(raw(metadata=meta("n1", annotations=notes), spec={"drivers": []}))
    assert node.moved == ("kubernetes.io/cinder", "kubernetes.io/gce-pd")
