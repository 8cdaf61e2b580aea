"""How many pods of an application may be away at once (PodDisruptionBudget), as a scheduler sees it."""

from __future__ import annotations

from dataclasses import dataclass

from scheduler.model.affinity import LabelSelector


@dataclass(frozen=True, slots=True)
class DisruptionBudget:
    """One budget. `selector` None means that it selects no pod. `allowed`: evictions that its status allows now.

    disrupted: names of pods that were evicted already and whose going it still waits for; they cost it nothing more.
    """

    namespace: str
    name: str
    uid: str
    selector: LabelSelector | None
    allowed: int = 0
    disrupted: tuple[str, ...] = ()
    resource_version: str = ""

    @property
    def key(self) -> str:
        """Return namespace/name."""
        return f"{self.namespace}/{self.name}"
