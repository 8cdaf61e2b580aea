"""How nodes are wired, as the objects of any API say it: levels of node labels, or nodes grouped by name.

Values only; the tree that is made of them, and what is wrong with it, is `framework`'s. Identity is the uid; topologies
of different dialects may share a name, Muster's own wins.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from scheduler.model.affinity import LabelSelector
from scheduler.model.pods import Condition, Problem

HYPERNODES = "volcano"
"""Name of the topology that all hyper-nodes together are."""
_BETWEEN = ":"


def level_key(topology: str, level: str) -> str:
    """Return the one string that names a level of a topology wherever a grouping of nodes is named by a string.

    Node label keys name groupings of nodes too. A label key never holds the sign between the two parts.
    """
    return f"{topology}{_BETWEEN}{level}"


def split_key(key: str) -> tuple[str, str]:
    """Return topology and level of a level key; ("", key) for a node label key."""
    topology, between, level = key.partition(_BETWEEN)
    return (topology, level) if between else ("", key)


@dataclass(frozen=True, slots=True)
class Level:
    """A level and the node label whose values are its domains; `name` is the label where its author gave none.

    With a `prefix` instead of a label it stands for as many levels as nodes have labels that are this prefix and a
    number, each named NAME-NUMBER: the highest number is the widest of them, with `rising` the lowest is.
    """

    name: str
    label: str = ""
    prefix: str = ""
    rising: bool = False


@dataclass(frozen=True, slots=True)
class Topology:
    """Levels of node labels, widest first. A domain is known by its value and those of all wider levels.

    `created` is in seconds since the epoch. What is written back (`raw_status`: only its dialect looks into it), and
    the version, make no difference when topologies are compared.
    """

    name: str
    uid: str
    dialect: str
    levels: tuple[Level, ...] = ()
    api_version: str = ""
    created: float = 0.0
    problems: tuple[Problem, ...] = ()
    generation: int = 0
    conditions: tuple[Condition, ...] = field(default=(), compare=False)
    resource_version: str = field(default="", compare=False)
    raw_status: bytes = field(default=b"", compare=False)


@dataclass(frozen=True, slots=True)
class HyperNodeMember:
    """Who belongs to a hyper-node: exactly one of `exact` (a name), `pattern` (a regular expression that must match
    somewhere in the name) and `labels` (of nodes) is given. `field` is its path in the object."""

    kind: Literal["Node", "HyperNode"]
    exact: str = ""
    pattern: str = ""
    labels: LabelSelector | None = None
    field: str = ""


@dataclass(frozen=True, slots=True)
class HyperNode:
    """A domain that names its members; the lower its tier, the closer they are. Together they are one topology.

    Compared without what is written back and without the version.
    """

    name: str
    uid: str
    dialect: str
    tier: int
    tier_name: str = ""
    members: tuple[HyperNodeMember, ...] = ()
    api_version: str = ""
    created: float = 0.0
    problems: tuple[Problem, ...] = ()
    generation: int = 0
    conditions: tuple[Condition, ...] = field(default=(), compare=False)
    resource_version: str = field(default="", compare=False)
    raw_status: bytes = field(default=b"", compare=False)


@dataclass(frozen=True, slots=True)
class TopologyFacts:
    """What the status of a topology or a hyper-node should say.

    domains: how many there are of each level, widest first. unlabelled: nodes that have no domain of the narrowest
    level. nodes: of a hyper-node. faults: what is wrong, as reason and sentence, in order of weight.
    """

    domains: tuple[tuple[str, int], ...] = ()
    unlabelled: int = 0
    nodes: int = 0
    faults: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class TopologyFault:
    """What is wrong with an object: a reason of `framework.topology_tree`, the field to change, and a sentence."""

    kind: str
    name: str
    reason: str
    field: str
    message: str
