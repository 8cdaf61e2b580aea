"""How nodes are wired, as the objects of any API say it: levels of node labels, or nodes grouped by name.

Values only; the tree that is made of them, and what is wrong with it, is `framework`'s. Identity is the uid; topologies
of different dialects may share a name, Muster's own wins.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from scheduler.model.affinity import LabelSelector
from scheduler.model.pods import Condition, Problem


@dataclass(frozen=True, slots=True)
class Level:
    """A level and the node label whose values are its domains; `name` is the label where its author gave none."""

    name: str
    label: str


@dataclass(frozen=True, slots=True)
class Topology:
    """Levels of node labels, widest first. A domain is known by its value and those of all wider levels.

    `created` is in seconds since the epoch. `raw_status` is the status as read: only its dialect looks into it.
    """

    name: str
    uid: str
    dialect: str
    levels: tuple[Level, ...] = ()
    created: float = 0.0
    generation: int = 0
    conditions: tuple[Condition, ...] = ()
    problems: tuple[Problem, ...] = ()
    resource_version: str = ""
    raw_status: bytes = b""


@dataclass(frozen=True, slots=True)
class HyperNodeMember:
    """Who belongs to a hyper-node: exactly one of `exact` (a name), `pattern` (a regular expression that must match
    somewhere in the name) and `labels` (of nodes) is given."""

    kind: Literal["Node", "HyperNode"]
    exact: str = ""
    pattern: str = ""
    labels: LabelSelector | None = None


@dataclass(frozen=True, slots=True)
class HyperNode:
    """A domain that names its members; the lower its tier, the closer they are. Together they are one topology."""

    name: str
    uid: str
    dialect: str
    tier: int
    tier_name: str = ""
    members: tuple[HyperNodeMember, ...] = ()
    created: float = 0.0
    generation: int = 0
    conditions: tuple[Condition, ...] = ()
    problems: tuple[Problem, ...] = ()
    resource_version: str = ""
    raw_status: bytes = b""
