"""Kueue's API: kueue.x-k8s.io Topology.

Decided here: a level has no name but its label. The object has no status. Its queues and workloads are not read.
"""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec

from scheduler.dialects import topologies
from scheduler.dialects.base import DialectResource, PodGroupDialect, Reader
from scheduler.dialects.meta import Undecodable
from scheduler.model.decisions import SetStatus
from scheduler.model.groups import PodGroup
from scheduler.model.topology import Level, Topology


class KueueDialect(PodGroupDialect):
    """See the module."""

    name: ClassVar[str] = "kueue"
    resources: ClassVar[tuple[DialectResource, ...]] = (
        DialectResource(
            "kueue.x-k8s.io",
            ("v1beta2", "v1beta1", "v1alpha1"),
            "topologies",
            "Topology",
            False,
            "topology",
            read_only=True,
        ),
    )

    def decode_group(self, raw: bytes | msgspec.Raw, api_version: str) -> PodGroup:
        """Refuse: there are no groups."""
        raise Undecodable(f"{self.name} has no groups")

    def status_patch(self, group: PodGroup, status: SetStatus, text: str, now: str) -> dict[str, Any] | None:
        """Say nothing: there are no groups."""
        return None

    def decode_topology(self, raw: bytes | msgspec.Raw, api_version: str) -> Topology:
        """Return the topology."""
        return topologies.read(self.name, "Topology.kueue.x-k8s.io", raw, api_version, _level)[0]


def _level(item: Reader) -> tuple[Level, str]:
    label = item.text("nodeLabel")
    return Level(label, label), item.at("nodeLabel")
