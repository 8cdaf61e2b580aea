"""The status of topologies and hyper-nodes, written (`statuses`): at once when something is wrong that was not, or is
not wrong any more, else with the newest numbers every few seconds. Must not know how a status is worded (dialects are
given); an API whose objects have no status is never written to.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from typing import Any, ClassVar, Protocol

from scheduler.cluster.statuses import Statuses, Writer
from scheduler.model.decisions import SetTopologyStatus
from scheduler.model.topology import HyperNode, Topology, TopologyFacts


class Dialect(Protocol):
    """What is needed of a dialect to say something of a topology in its words."""

    def topology_status_patch(self, one: Topology | HyperNode, facts: TopologyFacts, now: str) -> dict[str, Any] | None:
        """Return a merge patch, or None when the object says so already or has no status."""

    def topology_path(self, one: Topology | HyperNode) -> str:
        """Return the path of the object."""


class Cache(Protocol):
    """The picture of the cluster."""

    def topology(self, dialect: str, name: str) -> Topology | None:
        """Return the topology of this name."""

    def hypernode(self, dialect: str, name: str) -> HyperNode | None:
        """Return the hyper-node of this name."""


class TopologyStatuses(Statuses[SetTopologyStatus, Topology | HyperNode]):
    """See the module. Used from the event loop only. `words` gives the time as RFC 3339."""

    kind: ClassVar[str] = "topology"

    def __init__(
        self,
        writer: Writer,
        cache: Cache,
        dialects: Mapping[str, Dialect],
        words: Callable[[], str],
        *,
        timer: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(writer, timer)
        self._cache = cache
        self._dialects = dialects
        self._words = words

    def faults(self) -> dict[str, int]:
        """Return how often each reason was last told, over all objects that there are."""
        return dict(Counter(reason for _, status in self.newest() for reason, _ in status.facts.faults))

    def gone(self, dialect: str, name: str, *, hypernode: bool) -> None:
        """Note that an object is gone."""
        self.drop(lambda status: (status.dialect, status.name, status.hypernode) == (dialect, name, hypernode))

    def _object(self, status: SetTopologyStatus) -> Topology | HyperNode | None:
        find = self._cache.hypernode if status.hypernode else self._cache.topology
        one = find(status.dialect, status.name)
        return one if one is not None and one.uid == status.uid and status.dialect in self._dialects else None

    def _same(self, before: SetTopologyStatus, after: SetTopologyStatus) -> bool:
        return before == after

    def _news(self, status: SetTopologyStatus) -> Hashable:
        return tuple(reason for reason, _ in status.facts.faults)

    def _patch(self, one: Topology | HyperNode, status: SetTopologyStatus) -> tuple[str, dict[str, Any]] | None:
        dialect = self._dialects[status.dialect]
        patch = dialect.topology_status_patch(one, status.facts, self._words())
        return (dialect.topology_path(one), patch) if patch is not None else None
