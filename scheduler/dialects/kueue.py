"""Kueue's API: kueue.x-k8s.io Topology.

Decided here: a level has no name but its label. The object has no status. Its queues and workloads are not read.
"""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec

from scheduler.dialects.base import DialectResource, PodGroupDialect, open_envelope, open_spec
from scheduler.dialects.meta import Undecodable, seconds
from scheduler.dialects.topologies import usable
from scheduler.model.decisions import SetStatus
from scheduler.model.groups import PodGroup
from scheduler.model.pods import Problem
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
        envelope = open_envelope("Topology.kueue.x-k8s.io", raw)
        meta, problems = envelope.metadata, list[Problem]()
        levels = []
        for item in open_spec(envelope, problems).objects("levels"):
            label = item.text("nodeLabel")
            levels.append((Level(label, label), item.at("nodeLabel")))
        return Topology(
            name=meta.name,
            uid=meta.uid,
            dialect=self.name,
            levels=usable(levels, problems),
            api_version=api_version,
            created=seconds(meta.creation_timestamp),
            problems=tuple(dict.fromkeys(problems)),
            generation=meta.generation,
            resource_version=meta.resource_version,
        )
