"""The values of which the tree of domains consists, and the one place that says how a level is asked for.

Decided here: which level of which topology a wish means (`Domains.resolve`). A topology that is named is the only one
that is looked at. Without a name the level is looked for by its name in all topologies, Muster's own first, then by its
label, and is in the end a plain label of nodes. What two of them call by one name is refused, not guessed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from scheduler.model.decisions import SetTopologyStatus
from scheduler.model.hints import near
from scheduler.model.nodes import HOSTNAME
from scheduler.model.topology import HYPERNODES, TopologyFault, split_key

Ids = NDArray[np.int32]
_REMEMBERED = 1000
_TIER = re.compile(r"tier ([0-9]{1,9})")

NO_NODE = "LevelNotFound"
SHADOWED = "Shadowed"
BAD_FIELD = "BadField"
CYCLE = "Cycle"
TIER_ORDER = "TierOrder"
TWO_PARENTS = "TwoParents"
OVERLAP = "Overlap"
MISSING = "MemberNotFound"
TIER_NAME = "TierNameClash"


@dataclass(frozen=True, slots=True)
class LevelFault:
    """Why a level that was asked for is not there, as a sentence with what is near; `topology`: it is not there at all
    (no object of that name)."""

    message: str
    topology: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class TreeLevel:
    """A level over N nodes, with D domains.

    key: its level key; name: its name for people; label: the node label ("": hyper-nodes). names: (D,) a domain's own
    value where no other domain of the level has it, else its path joined by "/". ids: (N,) the number of each node's
    domain, -1 where it has none. parents: (D,) the domain of the next wider level in which each is, -1 at the widest.
    Domains are numbered so that those in one wider domain follow each other; those of single nodes as the nodes are.
    """

    key: str
    name: str
    label: str
    names: tuple[str, ...]
    ids: Ids
    parents: Ids
    words: tuple[str, ...] = ()
    """Other names by which it may be asked for."""


@dataclass(frozen=True, slots=True, eq=False)
class TopologyTree:
    """A topology that holds: its levels, widest first. Without those that no node carries: they are in its faults.

    tiers: of hyper-nodes, the tier of each level.
    """

    name: str
    dialect: str
    levels: tuple[TreeLevel, ...]
    tiers: tuple[int, ...] = ()
    missing: Mapping[str, str] = field(default_factory=dict)
    """Name or label of a level that no node carries -> the sentence that says so."""

    def find(self, level: str) -> TreeLevel | LevelFault:
        """Return the level of this name or label."""
        for one in self.levels:
            if level == one.name:
                return one
        for one in self.levels:
            if level == one.label or level in one.words:
                return one
        if level in self.missing:
            return LevelFault(self.missing[level])
        tier = _TIER.fullmatch(level) if self.tiers else None
        if tier is not None:
            return self._at(int(tier[1]))
        what = "no HyperNode has the tier" if self.tiers else f'topology "{self.name}" has no level'
        return LevelFault(f'{what} "{level}"{near(level, self._names())}')

    def _at(self, tier: int) -> TreeLevel | LevelFault:
        """The level that stands for hyper-nodes of at most this tier; beyond the highest, that of all nodes."""
        for one, its in zip(self.levels[1:], self.tiers[1:], strict=True):
            if its <= tier:
                return self.levels[0] if tier > self.tiers[1] else one
        return LevelFault(f"no HyperNode has the tier {tier} or a lower one{near(f'tier {tier}', self._names())}")

    def _names(self) -> list[str]:
        return [word for one in self.levels for word in (one.name, *one.words)]

    @property
    def unlabelled(self) -> NDArray[np.bool_]:
        """(N,) nodes that have no domain of the narrowest level."""
        return self.levels[-1].ids < 0 if self.levels else np.zeros(0, dtype=np.bool_)


@dataclass(frozen=True, eq=False)
class Domains:
    """All groupings of the nodes of one snapshot that objects name, served as arrays.

    trees: by name. faults: of all objects, by uid. facts: uid -> what the status of the object should say.
    labels: keys of the labels that nodes carry.
    """

    trees: Mapping[str, TopologyTree]
    faults: Mapping[str, tuple[TopologyFault, ...]]
    facts: Mapping[str, SetTopologyStatus]
    labels: frozenset[str]

    @cached_property
    def levels(self) -> dict[str, TreeLevel]:
        """By level key."""
        return {level.key: level for tree in self.trees.values() for level in tree.levels}

    def level(self, key: str) -> TreeLevel | None:
        """Return a level of a topology, None where the key is that of a node label."""
        return self.levels.get(key)

    def wider(self, key: str) -> tuple[str, ...]:
        """Return the keys of the levels of the same topology that are wider, the nearest first; none for a label."""
        for tree in self.trees.values():
            for number, level in enumerate(tree.levels):
                if level.key == key:
                    return tuple(one.key for one in reversed(tree.levels[:number]))
        return ()

    @cached_property
    def _resolved(self) -> dict[tuple[str, str], str | LevelFault]:
        return {}

    def resolve(self, topology: str, level: str) -> str | LevelFault:
        """Return the level key (or node label key) that a wish means. topology: "" = whichever knows the level."""
        found = self._resolved.get((topology, level))
        if found is None:
            if len(self._resolved) >= _REMEMBERED:
                self._resolved.clear()
            found = self._resolved[topology, level] = self._resolve(topology, level)
        return found

    def _resolve(self, topology: str, level: str) -> str | LevelFault:
        if topology:
            tree = self.trees.get(topology)
            if tree is None:
                return LevelFault(self._unknown(topology), topology=True)
            found = tree.find(level)
            return found if isinstance(found, LevelFault) else found.key
        named = self._known_as(lambda one: level in one.words or level == one.name != one.label)
        if len(named) > 1:
            names = ", ".join(sorted(split_key(key)[0] for key in named))
            return LevelFault(f'level "{level}" is in several topologies, name one of them: {names}')
        keys = named or self._known_as(lambda one: level == one.label != HOSTNAME)
        if len(keys) == 1:
            return keys[0]
        if level in self.labels:
            return level
        for tree in self.trees.values():
            if level in tree.missing:
                return LevelFault(tree.missing[level])
        return LevelFault(f"no node has the label {level}{self._near(level)}")

    def _known_as(self, test: Callable[[TreeLevel], bool]) -> list[str]:
        """Keys of levels that pass a test; those of Muster's own topologies where there are any."""
        found = [(tree.dialect, one.key) for tree in self.trees.values() for one in tree.levels if test(one)]
        return [key for dialect, key in found if dialect == "muster"] or [key for _, key in found]

    def _near(self, level: str) -> str:
        known = {word for tree in self.trees.values() for one in tree.levels for word in (one.name, *one.words)}
        hint = near(level, known | self.labels)
        return hint if "did you mean" in hint else ""

    def _unknown(self, topology: str) -> str:
        if topology == HYPERNODES:
            return "there is no HyperNode, and no topology of that name"
        known = sorted(self.trees)
        return f'there is no topology "{topology}"' + (near(topology, known) if known else "")


def shown(paths: list[tuple[str, ...]]) -> tuple[str, ...]:
    """Return what each domain is called: its own value, or its path where another domain has that value too."""
    times: dict[str, int] = {}
    for path in paths:
        times[path[-1]] = times.get(path[-1], 0) + 1
    return tuple(path[-1] if times[path[-1]] == 1 else "/".join(path) for path in paths)


def parents_of(ids: Ids, count: int, wider: Ids | None) -> Ids:
    """Return for each of `count` domains the wider domain in which its nodes are."""
    found = np.full(count, -1, dtype=np.int32)
    if wider is not None:
        inside = ids >= 0
        found[ids[inside]] = wider[inside]
    return found


def frozen(ids: Ids) -> Ids:
    """Make an array read only."""
    ids.flags.writeable = False
    return ids
