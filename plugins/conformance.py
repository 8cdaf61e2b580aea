"""Nobody's gang evicts what keeps the cluster alive: kube-system and the system-critical priorities."""

from __future__ import annotations

from scheduler.framework.protocols import NoOpinion, Only, Opinion
from scheduler.framework.registry import Arguments
from scheduler.model.groups import GroupState
from scheduler.model.pods import Pod

SYSTEM_CRITICAL = 2_000_000_000
"""Priority of system-cluster-critical; system-node-critical is above it; users' classes end at half of it."""


class Conformance:
    """See the module. Argument `namespaces`: whose pods are never victims (default kube-system)."""

    name = "conformance"

    def __init__(self, arguments: Arguments) -> None:
        self._namespaces = frozenset(arguments.texts("namespaces", ("kube-system",)))

    def may_evict(self, preemptor: GroupState, victims: tuple[Pod, ...]) -> Opinion:
        """Return all victims but the protected; no opinion when none is protected."""
        left = frozenset(
            pod.uid for pod in victims if pod.namespace not in self._namespaces and pod.priority < SYSTEM_CRITICAL
        )
        return NoOpinion() if len(left) == len(victims) else Only(left)
