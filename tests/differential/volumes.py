"""What volumes add to a random case: classes, drivers, volumes, claims, attachments, and pods that use them.

Claims `c0` to `c3` exist (or not) in every namespace, volumes are `v0` to `v5`; pods use any of them. Left out is where
Muster differs deliberately (docs/deviations.md): a claim named twice by one pod, attached volumes of pods that wait,
volumes with one handle, disks that no CSI driver can take over, and in a gang claims that members share before they are
provisioned, and space for only some.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Sequence
from typing import Any

Json = dict[str, Any]

ZONE, REGION, HOSTNAME = "topology.kubernetes.io/zone", "topology.kubernetes.io/region", "kubernetes.io/hostname"
OLD_ZONE = "failure-domain.beta.kubernetes.io/zone"
DRIVER, COUNTED = "ex.csi", "cap.csi"
MOVED = {
    "kubernetes.io/gce-pd": "pd.csi.storage.gke.io", "kubernetes.io/aws-ebs": "ebs.csi.aws.com",
    "kubernetes.io/azure-disk": "disk.csi.azure.com", "kubernetes.io/cinder": "cinder.csi.openstack.org",
    "kubernetes.io/portworx-volume": "pxd.portworx.com",
}  # fmt: skip
MOVED_ZONES = ("topology.gke.io/zone", "topology.ebs.csi.aws.com/zone", "topology.cinder.csi.openstack.org/zone")
_CLASSES = {
    "dynamic": (DRIVER, "WaitForFirstConsumer"), "counted": (COUNTED, "WaitForFirstConsumer"),
    "local": ("kubernetes.io/no-provisioner", "WaitForFirstConsumer"), "at-once": (DRIVER, "Immediate"),
    "old": ("kubernetes.io/gce-pd", "WaitForFirstConsumer"),
}  # fmt: skip
_CLAIMS = ("c0", "c1", "c2", "c3")
_SIZES = ("1Gi", "5Gi", "10Gi")


class Volumes:
    """See the module."""

    def __init__(self, rng: random.Random, nodes: Sequence[str], namespaces: Sequence[str], *, gang: bool) -> None:
        self.rng, self.nodes, self.namespaces = rng, nodes, namespaces
        self._spaces = ("500Mi", "500Gi") if gang else ("1Gi", "5Gi", "100Gi")
        self._claims: list[Json] = []
        self._volumes = [self.volume(f"v{number}") for number in range(6) if self.chance(0.8)]
        self._free = [one["metadata"]["name"] for one in self._volumes]

    def chance(self, share: float) -> bool:
        return self.rng.random() < share

    def pick(self, *options: Any) -> Any:
        return self.rng.choice(options)

    def attach(self, pod: Json) -> None:
        """Give a pod some volumes (and the claims that its ephemeral ones are)."""
        volumes: list[Json] = []
        claims = self.rng.sample(_CLAIMS, 2)
        for number in range(self.pick(0, 1, 1, 2)):
            name = f"vol{number}"
            if self.chance(0.75):
                source: Json = {"persistentVolumeClaim": {"claimName": claims.pop()}}
            elif self.chance(0.5):
                template = {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}
                source = {"ephemeral": {"volumeClaimTemplate": template}}
                self.ephemeral(pod, name)
            else:
                source = self.disk()
            volumes.append({"name": name, **source})
        if volumes:
            pod["spec"]["volumes"] = volumes

    def objects(self) -> Json:
        """Return everything that is not a pod, by the field of a case."""
        for namespace in self.namespaces:
            for name in _CLAIMS:
                if self.chance(0.85):
                    self._claims.append(self.claim(name, namespace))
        return {
            "storageClasses": [self.storage_class(name) for name in _CLASSES],
            "csiDrivers": [self.driver(name) for name in (DRIVER, COUNTED, *MOVED.values()) if self.chance(0.85)],
            "csiNodes": [self.csi_node(name) for name in self.nodes if self.chance(0.85)],
            "csiStorageCapacities": [self.capacity(number) for number in range(self.pick(0, 1, 2, 3))],
            "volumeAttachments": [self.attachment(number) for number in range(self.pick(0, 0, 0, 1, 2))],
            "persistentVolumes": self._volumes,
            "persistentVolumeClaims": self._claims,
        }

    def own(self, member: Json) -> None:
        """Give a member of a gang claims of its own, as a StatefulSet does: copies of those that wait for a node."""
        meta = member["metadata"]
        for volume in member["spec"].get("volumes", ()):
            source = volume.get("persistentVolumeClaim")
            name = source["claimName"] if source else f"{meta['name']}-{volume['name']}"
            if "ephemeral" in volume:
                self.ephemeral(member, volume["name"])
            for claim in [one for one in self._claims if one["metadata"]["name"] == name]:
                if source and claim["metadata"]["namespace"] == meta["namespace"] and "volumeName" not in claim["spec"]:
                    copied = copy.deepcopy(claim)
                    source["claimName"] = f"{meta['name']}-{name}"
                    copied["metadata"].update(name=source["claimName"], uid=f"uid-{source['claimName']}")
                    self._claims.append(copied)

    def disk(self) -> Json:
        readonly = {"readOnly": True} if self.chance(0.4) else {}
        if self.chance(0.5):
            return self.moved(self.pick("d1", "d2"), readonly)
        return self.pick(
            {"iscsi": {"targetPortal": "p", "iqn": self.pick("iqn.2001-04.com.example:a", "iqn.2001-04.com.example:b"),
                       "lun": self.pick(0, 1), **readonly}},
            {"rbd": {"monitors": [self.pick("a", "b"), "c"], "image": self.pick("i", "j"), **readonly}},
        )  # fmt: skip

    def moved(self, name: str, readonly: Json) -> Json:
        """A volume of an in-tree plugin that was moved to CSI."""
        return self.pick(
            {"gcePersistentDisk": {"pdName": name, **readonly}},
            {"awsElasticBlockStore": {"volumeID": self.pick(name, f"aws://z/vol-{name}"), **readonly}},
            {"azureDisk": {"diskName": name, "diskURI": f"/subscriptions/{name}", "kind": "Managed"}},
            {"cinder": {"volumeID": name}},
            {"portworxVolume": {"volumeID": name}},
        )

    def ephemeral(self, pod: Json, volume: str) -> None:
        if self.chance(0.15):
            return
        meta = pod["metadata"]
        claim = self.claim(f"{meta['name']}-{volume}", meta["namespace"])
        if self.chance(0.85) or meta["name"].startswith("runs"):
            owner = {"apiVersion": "v1", "kind": "Pod", "name": meta["name"], "uid": meta["uid"], "controller": True}
            claim["metadata"]["ownerReferences"] = [owner]
        self._claims.append(claim)

    def claim(self, name: str, namespace: str) -> Json:
        metadata: Json = {"name": name, "namespace": namespace, "uid": f"uid-{namespace}-{name}", "annotations": {}}
        spec: Json = {
            "accessModes": [self.pick("ReadWriteOnce", "ReadWriteOnce", "ReadOnlyMany", "ReadWriteOncePod")],
            "resources": {"requests": {"storage": self.pick(*_SIZES)}},
        }
        if self.chance(0.95):
            spec["storageClassName"] = self.pick(*_CLASSES, "local", "gone" if self.chance(0.1) else "dynamic")
        claim: Json = {"metadata": metadata, "spec": spec, "status": {"phase": "Pending"}}
        if self.chance(0.45):
            if self._free:
                self.bind(claim)
        elif self.chance(0.2):
            metadata["annotations"]["volume.kubernetes.io/selected-node"] = self.pick(*self.nodes)
        if self.chance(0.2) and "volumeName" not in spec:
            spec["selector"] = {"matchLabels": {"tier": self.pick("fast", "slow")}}
        if self.chance(0.05):
            metadata.update(deletionTimestamp="2026-01-01T00:00:00Z", deletionGracePeriodSeconds=0, finalizers=["a/b"])
        if self.chance(0.05):
            claim["status"]["phase"] = "Lost"
        if self.chance(0.05):
            spec["volumeMode"] = "Block"
        return claim

    def bind(self, claim: Json) -> None:
        name = "v-gone" if self.chance(0.05) else self.pick(*self._free)
        claim["spec"]["volumeName"] = name
        if self.chance(0.9):
            claim["metadata"]["annotations"]["pv.kubernetes.io/bind-completed"] = "yes"
            claim["status"]["phase"] = "Bound"
        for volume in self._volumes:
            if volume["metadata"]["name"] == name:
                self._free.remove(name)
                volume["spec"]["claimRef"] = {
                    "kind": "PersistentVolumeClaim", "namespace": claim["metadata"]["namespace"],
                    "name": claim["metadata"]["name"], "uid": claim["metadata"]["uid"],
                }  # fmt: skip
                volume["status"]["phase"] = "Bound"
                if self.chance(0.9):
                    volume["spec"]["storageClassName"] = claim["spec"].get("storageClassName", "")

    def volume(self, name: str) -> Json:
        labels: Json = {"tier": self.pick("fast", "slow")}
        if self.chance(0.25):
            labels[self.pick(ZONE, OLD_ZONE)] = self.pick("a", "b", "a__b", "")
        if self.chance(0.1):
            labels[REGION] = self.pick("r1", "r2")
        spec: Json = {
            "capacity": {"storage": self.pick(*_SIZES)},
            "accessModes": self.pick(["ReadWriteOnce"], ["ReadWriteOnce", "ReadOnlyMany"], ["ReadWriteOncePod"]),
            "storageClassName": self.pick("local", "local", "dynamic", "counted", "at-once"),
            "persistentVolumeReclaimPolicy": "Retain",
        }
        spec |= self.pick(
            {"csi": {"driver": self.pick(DRIVER, COUNTED), "volumeHandle": f"h-{name}"}},
            {"hostPath": {"path": "/d"}},
            self.moved(f"h-{name}", {}),
        )
        if "gcePersistentDisk" in spec:
            labels.update({label: "a" for label in (ZONE, OLD_ZONE) if labels.get(label) == "a__b"})
        if self.chance(0.55):
            key = self.pick(ZONE, HOSTNAME, OLD_ZONE if self.chance(0.3) else ZONE)
            values = [self.pick("a", "b", "c")] if key != HOSTNAME else self.rng.sample(list(self.nodes), 1)
            term = {"matchExpressions": [{"key": key, "operator": self.pick("In", "In", "NotIn"), "values": values}]}
            spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [term]}}
        if self.chance(0.05):
            spec["volumeMode"] = "Block"
        metadata = {"name": name, "uid": f"uid-{name}", "labels": labels}
        return {
            "metadata": metadata,
            "spec": spec,
            "status": {"phase": self.pick("Available", "Available", "Released")},
        }

    def storage_class(self, name: str) -> Json:
        provisioner, mode = _CLASSES[name]
        made: Json = {
            "metadata": {"name": name, "uid": f"uid-class-{name}"},
            "provisioner": provisioner,
            "volumeBindingMode": mode,
        }
        if self.chance(0.35) and provisioner != "kubernetes.io/no-provisioner":
            values = self.rng.sample(["a", "b", "c"], self.pick(1, 2))
            made["allowedTopologies"] = [{"matchLabelExpressions": [{"key": ZONE, "values": values}]}]
        return made

    def driver(self, name: str) -> Json:
        spec: Json = {"storageCapacity": name == COUNTED, "attachRequired": self.chance(0.8)}
        if self.chance(0.15):
            spec["preventPodSchedulingIfMissing"] = True
        return {"metadata": {"name": name, "uid": f"uid-driver-{name}"}, "spec": spec}

    def csi_node(self, name: str) -> Json:
        drivers = []
        for driver in (DRIVER, COUNTED, *MOVED.values()):
            if self.chance(0.8):
                made: Json = {"name": driver, "nodeID": name, "topologyKeys": []}
                if self.chance(0.6):
                    made["allocatable"] = {"count": self.pick(0, 1, 1, 2)}
                drivers.append(made)
        metadata: Json = {"name": name, "uid": f"uid-csinode-{name}"}
        if self.chance(0.6):
            left = [plugin for plugin in MOVED if self.chance(0.7)]
            metadata["annotations"] = {"storage.alpha.kubernetes.io/migrated-plugins": ",".join(left)}
        return {"metadata": metadata, "spec": {"drivers": drivers}}

    def capacity(self, number: int) -> Json:
        made: Json = {
            "metadata": {"name": f"cap-{number}", "namespace": "ns-a", "uid": f"uid-cap-{number}"},
            "storageClassName": self.pick("counted", "counted", "dynamic"),
        }
        if self.chance(0.85):
            key = self.pick(ZONE, HOSTNAME)
            made["nodeTopology"] = self.pick(
                {"matchLabels": {key: self.pick("a", "b") if key == ZONE else self.pick(*self.nodes)}}, {}
            )
        if self.chance(0.85):
            made["capacity"] = self.pick(*self._spaces)
        if self.chance(0.2):
            made["maximumVolumeSize"] = self.pick("1Gi", "5Gi")
        return made

    def attachment(self, number: int) -> Json:
        spec = {
            "attacher": self.pick(DRIVER, COUNTED),
            "nodeName": self.pick(*self.nodes),
            "source": {"persistentVolumeName": self.pick(*self._free, "v-gone")},
        }
        metadata = {"name": f"att-{number}", "uid": f"uid-att-{number}"}
        return {"metadata": metadata, "spec": spec, "status": {"attached": True}}
