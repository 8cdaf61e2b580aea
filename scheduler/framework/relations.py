"""What plugins say about members that are placed in one decision, and how the answers of all plugins are put together.

Decided here: the form of an answer of `relates`. A number of a member kind is its position in the tuple that the plugin
was given; rules of `model.rules` use the same numbers, and name a level by its node label ("" = the node itself).

Answers are compared by content (`digest`): two questions with equal digests on equal amounts have the same answer, so
an answer may be remembered however the plugin came to it. A relation must depend on the pods of a kind only through
what `sorts` says about them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cached_property
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from scheduler.model.pods import Pod, Shape
from scheduler.model.rules import MemberRule


@dataclass(frozen=True, slots=True)
class Members:
    """Interchangeable members of one ask: equal shapes and equal answers of `sorts`."""

    shape: Shape
    pods: tuple[Pod, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Bar:
    """Nodes that take no member of a kind as things are, why (kube-scheduler's words), and whether that may pass.

    passing: the end of running pods can help (Unschedulable), else not (UnschedulableAndUnresolvable). early: a node
    says this reason before it says that it lacks room. until: pods (uid) of which each one keeps the bar up; none where
    others do, or it is not known.
    """

    kind: int
    nodes: NDArray[np.bool_]
    reason: str
    passing: bool = True
    early: bool = False
    until: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Extra:
    """One more resource of the nodes, for this question only (attachable volumes of a driver, say).

    name: like no resource of the cluster. free: on each node now. needs: for each kind, what one member takes. reason:
    what a node says that has too little of it. held: what single pods (uid) give back of it when they go, at least;
    asked for only by who looks for victims.
    """

    name: str
    free: NDArray[np.int64]
    needs: tuple[int, ...]
    reason: str
    held: Callable[[], Mapping[str, int]] = field(default=dict, compare=False)


@dataclass(frozen=True, slots=True, eq=False)
class Level:
    """Domains that no node label names, for the rules of this question only (nodes that share volumes, say).

    name: like no label of a node. ids: the number of each node's domain, -1 for none.
    """

    name: str
    ids: NDArray[np.int32]


@dataclass(frozen=True, slots=True, eq=False)
class Scored:
    """Scores of a kind over the nodes, 0 to 100, higher is better; multiplied by the plugin's weight."""

    kind: int
    scores: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Relations:
    """rules: must hold. wanted: rules that are kept together when that leaves no member without a place.

    levels: those that the rules name beside node labels.
    """

    bars: tuple[Bar, ...] = ()
    rules: tuple[MemberRule, ...] = ()
    wanted: tuple[MemberRule, ...] = ()
    extras: tuple[Extra, ...] = ()
    scores: tuple[Scored, ...] = ()
    levels: tuple[Level, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.bars or self.rules or self.wanted or self.extras or self.scores)

    @cached_property
    def digest(self) -> bytes:
        """Equal for relations that say the same."""
        if not self:
            return b""
        made = blake2b(digest_size=16)
        for part in _content((self.bars, self.rules, self.wanted, self.extras, self.scores, self.levels)):
            made.update(part)
        return made.digest()

    def barred(self, kind: int) -> NDArray[np.bool_] | None:
        """The nodes that take no member of the kind, or None where there are none."""
        found: NDArray[np.bool_] | None = None
        for bar in self.bars:
            if bar.kind == kind:
                found = bar.nodes if found is None else found | bar.nodes
        return found

    def scored(self, kind: int) -> NDArray[np.int64] | None:
        """The sum of the kind's scores, or None where there are none."""
        found: NDArray[np.int64] | None = None
        for one in self.scores:
            if one.kind == kind:
                found = one.scores if found is None else found + one.scores
        return found


NO_RELATIONS = Relations()


def combined(parts: Iterable[Relations]) -> Relations:
    """Return all that the parts say, in their order."""
    some = [part for part in parts if part]
    if len(some) < 2:
        return some[0] if some else NO_RELATIONS
    return Relations(
        bars=tuple(bar for part in some for bar in part.bars),
        rules=tuple(rule for part in some for rule in part.rules),
        wanted=tuple(rule for part in some for rule in part.wanted),
        extras=tuple(extra for part in some for extra in part.extras),
        scores=tuple(one for part in some for one in part.scores),
        levels=tuple(level for part in some for level in part.levels),
    )


def _content(value: object) -> Iterator[bytes]:
    """Spell a value of dataclasses, tuples, arrays and plain values as bytes, each part with its length."""
    if isinstance(value, np.ndarray):
        data = value.tobytes()
        yield f"a{value.dtype.str}{value.shape}".encode()
        yield data
    elif isinstance(value, tuple):
        yield f"t{len(value)}".encode()
        for item in value:
            yield from _content(item)
    elif is_dataclass(value):
        yield f"d{type(value).__name__}".encode()
        for one in (one for one in fields(value) if one.compare):
            yield from _content(getattr(value, one.name))
    else:
        text = repr(value).encode()
        yield f"v{len(text)}:".encode()
        yield text


Sort = Hashable
"""What `sorts` answers; None = nothing sets this pod apart."""
