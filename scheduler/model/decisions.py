"""The whole output of the brain: a tuple of values that the edge performs.

`Place` holds a gang's minimum or one smaller decision above it (elastic surplus, repair), never part of a minimum.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

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
    """Bind these members together. `minimum` of them must be bound or all are unwound (0: each stands alone)."""

    group: str
    group_uid: str
    namespace: str
    name: str
    api_version: str
    kind: str
    minimum: int
    assignments: tuple[Assignment, ...]


@dataclass(frozen=True, slots=True)
class SetPhase:
    """The group's life has reached a phase: Pending, Inqueue, Scheduling, Running, Completed, Unknown (neutral words)."""

    group: str
    phase: str


@dataclass(frozen=True, slots=True)
class Explain:
    """Why a group waits; `pods` are the uids of the waiting members that it holds for."""

    group: str
    verdict: Verdict
    pods: tuple[str, ...] = ()


Decision: TypeAlias = Place | SetPhase | Explain


@dataclass(frozen=True, slots=True)
class Decisions:
    """What one session decided, in the order in which it was decided."""

    session: str
    generation: int
    items: tuple[Decision, ...] = ()
