"""Why something is not so: a code, a reason and facts. Text is made from it once, at the edge (observe.explain).

The codes are the stable, user-visible reasons. Facts are plain values with fixed names, so that the condition, the
event, the metric label and `muster why` all tell the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias


class Code(StrEnum):
    """Stable CamelCase reasons, in the order in which they are shown when several hold."""

    MISCONFIGURED = "Misconfigured"
    BAD_CONSTRAINTS = "BadConstraints"
    NEVER_FITS = "NeverFits"
    SUSPENDED = "Suspended"
    GATED = "Gated"
    POD_GROUP_NOT_FOUND = "PodGroupNotFound"
    NOT_ENOUGH_MEMBERS = "NotEnoughMembers"
    QUEUE_NOT_FOUND = "QueueNotFound"
    QUEUE_CLOSED = "QueueClosed"
    QUEUE_NOT_LEAF = "QueueNotLeaf"
    WAITING_FOR_QUOTA = "WaitingForQuota"
    EXCEEDS_LIMIT = "ExceedsLimit"
    PRIORITY = "Priority"
    WAITING_FOR_VICTIMS = "WaitingForVictims"
    WAITING_FOR_VOLUMES = "WaitingForVolumes"
    WAITING_FOR_BINDER = "WaitingForBinder"
    BIND_FAILED = "BindFailed"
    SEARCH_BUDGET_EXHAUSTED = "SearchBudgetExhausted"
    TOPOLOGY = "Topology"
    FRAGMENTED = "Fragmented"
    RESOURCES = "Resources"


CAPACITY_CODES = frozenset(
    {Code.RESOURCES, Code.FRAGMENTED, Code.TOPOLOGY, Code.NEVER_FITS, Code.SEARCH_BUDGET_EXHAUSTED}
)
"""Verdicts that a new node could change: written as reason Unschedulable on pods, so that autoscalers act."""

Fact: TypeAlias = str | int | float | bool | tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Verdict:
    """A rejection (or, with `permanent`, one that no waiting will change).

    facts: sorted (name, value) pairs; the names in use are listed in observe.explain beside their sentences.
    nodes: (reason in the upstream words, number of nodes) over all nodes, sorted by text; `total` nodes in all.
    """

    code: Code
    facts: tuple[tuple[str, Fact], ...] = ()
    nodes: tuple[tuple[str, int], ...] = ()
    total: int = 0
    permanent: bool = False

    def fact(self, name: str) -> Fact | None:
        """Return one fact, or None."""
        for key, value in self.facts:
            if key == name:
                return value
        return None


def verdict(code: Code, *, permanent: bool = False, **facts: Fact) -> Verdict:
    """Return a verdict with its facts in canonical order."""
    return Verdict(code=code, facts=tuple(sorted(facts.items())), permanent=permanent)
