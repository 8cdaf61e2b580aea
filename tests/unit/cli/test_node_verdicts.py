"""`muster why POD --nodes` tells what each node says, nodes that say the same in one row."""

from __future__ import annotations

import json
from typing import Any

from scheduler.cli.verdicts import verdicts
from scheduler.cluster import feed
from scheduler.dialects.core import decode_node, decode_pod
from scheduler.model.affinity import Requirement
from scheduler.model.nodes import Node
from scheduler.model.pods import Pod, SelectorTerm, Shape
from scheduler.model.volumes import Claim, NodeDrivers, StorageClass, Volume

Json = dict[str, Any]


def pod(name: str, cpu: str, *, node: str = "", **spec: Any) -> tuple[Pod, Shape]:
    body: Json = {"containers": [{"name": "main", "resources": {"requests": {"cpu": cpu}}}], **spec}
    if node:
        body["nodeName"] = node
    metadata = {"name": name, "namespace": "a", "uid": name, "labels": {"app": name}}
    return decode_pod(json.dumps({"metadata": metadata, "spec": body}).encode(), frozenset())


def node(name: str, cpu: str, **spec: Any) -> Node:
    labels = {"kubernetes.io/hostname": name}
    allocatable = {"cpu": cpu, "pods": "10"}
    raw = {"metadata": {"name": name, "labels": labels}, "spec": spec, "status": {"allocatable": allocatable}}
    return decode_node(json.dumps(raw).encode())


def test_every_node_has_a_verdict() -> None:
    away = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "db"}}}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [away]}}
    asked = pod("asked", "2", affinity=affinity)
    everyone = [asked, pod("db", "1", node="n1"), pod("other", "3", node="n2"), pod("third", "3", node="n5")]
    nodes = [
        node("n1", "8"), node("n2", "4"), node("n3", "8", unschedulable=True), node("n4", "8"), node("n5", "4")
    ]  # fmt: skip
    rows = verdicts(asked[0], nodes, everyone, [("a", "", ())])
    assert [(row["verdict"], row["nodes"]) for row in rows] == [
        ("Insufficient cpu", ["n2", "n5"]),
        ("fits", ["n4"]),
        ("node(s) didn't match pod anti-affinity rules", ["n1"]),
        ("node(s) were unschedulable", ["n3"]),
    ]


def test_a_pod_that_cannot_be_asked_about_says_why() -> None:
    asked = pod("asked", "2", affinity={"nodeAffinity": {}})
    (row,) = verdicts(asked[0], [node("n1", "1")], [asked], [])
    assert (row["verdict"], row["count"]) == ("Insufficient cpu", 1)


def claim(name: str) -> Json:
    return {"name": name, "persistentVolumeClaim": {"claimName": name}}


STORAGE = [
    feed.StorageClassSet(StorageClass("c", "fast", "csi.example.com", delayed=True)),
    feed.ClaimSet(Claim("u-new", "a", "new", "fast", size=1)),
    feed.ClaimSet(Claim("u-old", "a", "old", "fast", volume="v", bound=True)),
    feed.VolumeSet(Volume("v", "v", terms=(SelectorTerm((Requirement("kubernetes.io/hostname", "In", ("n1",)),)),))),
    feed.NodeDriversSet(NodeDrivers("d1", "n1", (("csi.example.com", 1),))),
    feed.NodeDriversSet(NodeDrivers("d2", "n2", (("csi.example.com", 0),))),
]


def test_volumes_are_looked_at() -> None:
    asked = pod("asked", "2", volumes=[claim("new"), claim("old")])
    nodes = [node("n1", "8"), node("n2", "8"), node("n3", "8"), node("n4", "1")]
    rows = verdicts(asked[0], nodes, [asked], [("a", "", ())], STORAGE)
    assert [(row["verdict"], row["nodes"]) for row in rows] == [
        ("Insufficient cpu", ["n4"]),
        ("fits", ["n1"]),
        ("node(s) didn't match PersistentVolume's node affinity", ["n3"]),
        ("node(s) exceed max volume count", ["n2"]),
    ]


def test_a_claim_that_is_missing_is_named() -> None:
    asked = pod("asked", "2", volumes=[claim("other")])
    (row,) = verdicts(asked[0], [node("n1", "8"), node("n2", "1")], [asked], [("a", "", ())], STORAGE)
    assert (row["verdict"], row["count"]) == ('persistentvolumeclaim "other" not found', 2)


def test_volumes_that_may_not_be_read_are_left_out() -> None:
    asked = pod("asked", "2", volumes=[claim("other")])
    (row,) = verdicts(asked[0], [node("n1", "8"), node("n2", "8")], [asked], [("a", "", ())], None)
    assert (row["verdict"], row["count"]) == ("fits", 2)
