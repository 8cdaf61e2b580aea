"""`muster why POD --nodes` tells what each node says, nodes that say the same in one row."""

from __future__ import annotations

import json
from typing import Any

from scheduler.cli.verdicts import verdicts
from scheduler.dialects.core import decode_node, decode_pod
from scheduler.model.nodes import Node
from scheduler.model.pods import Pod, Shape

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
