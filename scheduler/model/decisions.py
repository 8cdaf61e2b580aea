"""The whole output of the brain: a tuple of values that the edge performs.

`Place` holds a gang's minimum or one smaller decision above it (elastic surplus, repair), never part of a minimum.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from scheduler.model.podvolumes import VolumeStep
from scheduler.model.verdict import Verdict


@dataclass(frozen=True, slots=True)
class Assignment:
    """One pod on one node."""

    uid: str
    namespace: str
    pod: str
    node: str


@dataclass(frozen=True, slots=True)
class Place:
    """Bind these members together. `minimum` of them must be bound or all are unwound (0: each stands alone).

    steps: what must be done, for all members, before the first of them is bound.
    """

    group: str
    group_uid: str
    namespace: str
    name: str
    api_version: str
    kind: str
    minimum: int
    assignments: tuple[Assignment, ...]
    steps: tuple[VolumeStep, ...] = ()


@dataclass(frozen=True, slots=True)
class SetStatus:
    """What the status of a group's object should say; the dialect turns it into its own words.

    phase: Pending, Inqueue, Scheduling, Running, Degraded, Completed, Failed or Unknown (neutral words).
    counts: (name, number) for desired, existing, gated, bound, running, succeeded, failed.
    verdict: why it waits; None when it does not. `uid` guards against an object re-created under the name.
    """

    group: str
    uid: str
    phase: str
    counts: tuple[tuple[str, int], ...] = ()
    verdict: Verdict | None = None


@dataclass(frozen=True, slots=True)
class Explain:
    """Why members wait: the PodScheduled condition of each pod in `pods` (uids), and one event for the group."""

    group: str
    verdict: Verdict
    pods: tuple[str, ...] = ()


Decision: TypeAlias = Place | SetStatus | Explain


@dataclass(frozen=True, slots=True)
class Decisions:
    """What one session decided, in the order in which it was decided."""

    session: str
    generation: int
    items: tuple[Decision, ...] = ()
