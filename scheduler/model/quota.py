"""How much each queue is entitled to, and what is kept for it. Pure arithmetic: arrays in, arrays out.

Decided here, for each resource by itself, from the root down, in exact integers:

- `entitlements`: each queue first gets its guarantee, then what it wants up to `deserved`, then a part of the surplus
  up to its limit. Each of the three is given by priority, highest first; queues of one priority divide what does not
  suffice: guarantees and deserved in proportion, the surplus by weight. What a queue wants is what it and everything
  below it use and ask for, and never less than its guarantee, which is held while idle.
- `held`, `idle_guarantees`: what is guaranteed of what there is, and what of that stays free for those who do not use
  it. How much more a queue may use then, beside its limit and those above it, is told by `framework.book`.

Fields that are not set: an inner queue guarantees and deserves what those below it do, a leaf 0; the limit is that of
the queue above. A weight of 0 gives no part of the surplus.

Rows are queues, columns resources, values int64 (cpu in millicores, everything else in base units).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scheduler.model.filling import CEILING, Index, Ints, Reweigh, fill, sums, sums_before
from scheduler.model.queues import UNLIMITED, Queue

UNSET = -2
"""A field that a queue does not have; UNLIMITED (-1) is one that it has."""

_FINE = 1 << 24
"""Weights that usage history scales are rounded to this part of the largest of their round."""


@dataclass(frozen=True, slots=True, eq=False)
class Structure:
    """A tree of queues. parent: the row of the queue above, -1 for the root. rank: place by name, which decides ties.

    levels: rows by depth, the root first; those below one queue stand together. lines: for each row, the row itself and
    those above it, the root last.
    """

    parent: Index
    rank: Index
    levels: tuple[Index, ...]
    lines: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, parent: Sequence[int], names: Sequence[str]) -> Structure:
        """Make it from the row above each row. ValueError: not one tree with one root."""
        above = np.asarray(parent, dtype=np.intp)
        rank = np.empty(above.size, dtype=np.intp)
        rank[sorted(range(above.size), key=lambda row: names[row])] = np.arange(above.size)
        levels = [np.flatnonzero(above == -1)]
        below: list[list[int]] = [[] for _ in range(above.size)]
        for row, up in enumerate(above.tolist()):
            if up >= 0:
                below[up].append(row)
        while levels[-1].size:
            levels.append(np.asarray([row for up in levels[-1].tolist() for row in below[up]], dtype=np.intp))
        levels.pop()
        if len(levels) == 0 or levels[0].size != 1 or sum(level.size for level in levels) != above.size:
            raise ValueError("queues are not one tree with one root")
        lines: list[tuple[int, ...]] = [()] * above.size
        for row in (row for level in levels for row in level.tolist()):
            lines[row] = (row, *(lines[above[row]] if above[row] >= 0 else ()))
        return cls(above, rank, tuple(levels), tuple(lines))

    @property
    def root(self) -> int:
        """The row of the root."""
        return int(self.levels[0][0])


@dataclass(frozen=True, slots=True, eq=False)
class Fields:
    """What the queues say, (queues, resources) each; UNSET and UNLIMITED are told apart. weight: thousandths.

    priority: (queues,).
    """

    guarantee: Ints
    deserved: Ints
    limit: Ints
    weight: Ints
    priority: Ints

    @classmethod
    def of(cls, queues: Sequence[Queue], resources: Sequence[str]) -> Fields:
        """Read them from queues, in the order given."""
        column = {name: number for number, name in enumerate(resources)}
        size = (len(queues), len(resources))
        guarantee, deserved, limit = (np.full(size, UNSET, dtype=np.int64) for _ in range(3))
        weight = np.empty(size, dtype=np.int64)
        weight[:] = np.asarray([queue.weight for queue in queues], dtype=np.int64)[:, None]
        for row, queue in enumerate(queues):
            for table, values in (
                (guarantee, queue.guarantee),
                (deserved, queue.deserved),
                (limit, queue.limit),
                (weight, queue.weights),
            ):
                for name, value in values:
                    if name in column:
                        table[row, column[name]] = min(value, CEILING)
        return cls(guarantee, deserved, limit, weight, np.asarray([queue.priority for queue in queues], dtype=np.int64))

    @property
    def given(self) -> NDArray[np.bool_]:
        """Where a queue is given a share of a resource: a guarantee or a deserved amount, be it 0."""
        found: NDArray[np.bool_] = (self.guarantee != UNSET) | (self.deserved != UNSET)
        return found

    def named(self, structure: Structure) -> NDArray[np.bool_]:
        """Return where a resource counts for being over or within what a queue is owed.

        It counts where a share of it (a guarantee or a deserved amount) is given to the queue, to one beside it, to one
        above it or beside those, or to one below it or below those beside it; and for a queue to which nothing is given
        of any resource, nor to those above and below it, everything counts: it divides by weight. Limits give nothing;
        a queue counts what it limits itself.
        """
        says = self.given
        below = subtree(structure, says.astype(np.int64)) > 0
        beside = sums_below(structure, says.astype(np.int64)) > 0
        reach = sums_below(structure, below.astype(np.int64)) > 0
        above: NDArray[np.bool_] = says.copy()
        given = np.asarray(says.any(axis=1))
        for level in structure.levels[1:]:
            up = structure.parent[level]
            above[level] = beside[up] | above[up]
            given[level] |= given[up]
        counts: NDArray[np.bool_] = above | (self.limit >= 0)
        for level in structure.levels[1:]:
            counts[level] |= reach[structure.parent[level]]
        plain = ~(given | below.any(axis=1))
        everything: NDArray[np.bool_] = counts | plain[:, None]
        return everything


@dataclass(frozen=True, slots=True, eq=False)
class History:
    """How past usage shifts the surplus. used: (queues, resources), the part of the capacity, 0 to 1. factor: k, >= 0.

    on "surplus": the weight of a queue in a round is max(0, w + k (w - u)), w being its part of the weights of those
    that still want something in that round; where that leaves nobody a weight, plain weights count.
    on "weights": the weight of a queue is w / (1 + k u / w), w being its part of the weights of its priority.
    """

    used: NDArray[np.float64]
    factor: float = 1.0
    on: str = "surplus"


@dataclass(frozen=True, slots=True, eq=False)
class _Level:
    """The queues of one depth, sorted by parent, priority (highest first), name.

    rows: those queues. classes: where runs of one parent and priority start. class_of: for each row. first: for each
    class, the first class of its parent. group_of: the number of the parent of each class. groups: the row where the
    queues of each parent start. parents: their rows.
    """

    rows: Index
    classes: Index
    class_of: Index
    first: Index
    group_of: Index
    groups: Index
    parents: Index


def _level(structure: Structure, rows: Index, priority: Ints) -> _Level:
    order = np.lexsort((structure.rank[rows], -priority[rows], structure.parent[rows]))
    rows = rows[order]
    parent, mine = structure.parent[rows], priority[rows]
    new_group = np.ones(rows.size, dtype=bool)
    new_group[1:] = parent[1:] != parent[:-1]
    new_class = new_group.copy()
    new_class[1:] |= mine[1:] != mine[:-1]
    classes, groups = np.flatnonzero(new_class), np.flatnonzero(new_group)
    class_of, group_of = np.cumsum(new_class) - 1, (np.cumsum(new_group) - 1)[classes]
    return _Level(rows, classes, class_of, class_of[groups][group_of], group_of, groups, parent[groups])


@dataclass(frozen=True, slots=True, eq=False)
class Claims:
    """What each queue may claim, with everything below it; (resources, queues), each at least the one before.

    guarantee: held while idle. deserved: what of it is wanted. want: in all. own: what is used in the queue itself.
    limit: of the queue.
    """

    guarantee: Ints
    deserved: Ints
    want: Ints
    own: Ints
    limit: Ints


def claims(structure: Structure, fields: Fields, demand: Ints) -> Claims:
    """Sum up what is claimed. demand: (queues, resources), what is used and asked for in each queue itself."""
    own = np.clip(demand.T, 0, CEILING)
    limit = np.where(fields.limit >= 0, fields.limit, CEILING).T
    guarantee = _total_guarantee(structure, fields, limit)
    deserved, want = np.zeros_like(own), own.copy()
    most = owed(structure, fields).T
    for level in reversed(structure.levels):
        want[:, level] = np.maximum(guarantee[:, level], np.minimum(limit[:, level], want[:, level]))
        deserved[:, level] = np.maximum(guarantee[:, level], np.minimum(most[:, level], want[:, level]))
        _add_to_parents(structure, level, want)
    return Claims(guarantee, deserved, want, own, limit)


def _total_guarantee(structure: Structure, fields: Fields, limit: Ints) -> Ints:
    """Return (resources, queues): at least the sum of those below, at most the limit."""
    given = fields.guarantee.T
    total = np.zeros_like(given)
    for level in reversed(structure.levels):
        mine = np.where(given[:, level] == UNLIMITED, CEILING, np.maximum(given[:, level], 0))
        total[:, level] = np.minimum(limit[:, level], np.maximum(mine, total[:, level]))
        _add_to_parents(structure, level, total)
    return total


def _add_to_parents(structure: Structure, level: Index, values: Ints, to: Ints | None = None) -> None:
    """Add the values of one depth to those of the queues above (in `to`, if given), at most CEILING."""
    parent = structure.parent[level]
    if parent[0] < 0:
        return
    to = values if to is None else to
    starts = np.flatnonzero(np.concatenate(([True], parent[1:] != parent[:-1])))
    above = parent[starts]
    to[:, above] = np.minimum(to[:, above] + sums(values[:, level], starts), CEILING)


def entitlements(
    structure: Structure, fields: Fields, demand: Ints, total: Ints, history: History | None = None
) -> Ints:
    """Return (queues, resources) what each queue is entitled to.

    demand: (queues, resources), what is used and asked for in each queue itself, not counting those below it. What an
    inner queue uses itself comes before those below it. total: (resources,), the capacity that the root divides.
    """
    claim = claims(structure, fields, demand)
    mine = np.zeros_like(claim.want)
    root = structure.root
    mine[:, root] = np.minimum(np.clip(total, 0, CEILING), claim.limit[:, root])
    for rows in structure.levels[1:]:
        level = _level(structure, rows, fields.priority)
        rows = level.rows
        held, owed, want = claim.guarantee[:, rows], claim.deserved[:, rows], claim.want[:, rows]
        left = np.maximum(mine[:, level.parents] - claim.own[:, level.parents], 0)
        got = np.zeros_like(held)
        for part in (held, owed - held):
            given = _divide(level, left, part, part)
            left = left - sums(given, level.groups)
            got += given
        weight = np.maximum(fields.weight.T[:, rows], 0)
        given = _divide(level, left, np.where(weight > 0, want - owed, 0), weight, _shift(level, weight, history))
        mine[:, rows] = got + given
    return np.ascontiguousarray(mine.T)


def _divide(level: _Level, left: Ints, want: Ints, weight: Ints, shift: _Shift | None = None) -> Ints:
    """Give what is left at each parent, (resources, parents), to those who want it, (resources, queues)."""
    wanted = sums(want, level.classes)
    budget = np.clip(left[:, level.group_of] - sums_before(wanted, level.first), 0, wanted)
    given = np.where((budget == wanted)[:, level.class_of], want, 0)
    short = (budget > 0) & (budget < wanted)
    if short.any():
        resource, queue = np.nonzero(short[:, level.class_of] & (want > 0))
        segment = resource * level.classes.size + level.class_of[queue]
        reweigh = None if shift is None else shift.rounds(resource, queue)
        given[resource, queue] = fill(
            want[resource, queue], weight[resource, queue], segment, budget.reshape(-1), reweigh
        )
    return given


@dataclass(frozen=True, slots=True, eq=False)
class _Shift:
    """Usage history for the queues of one level: weights and used parts, (resources, queues) each."""

    weight: Ints
    used: NDArray[np.float64]
    factor: float
    whole: Ints | None

    def rounds(self, resource: Index, queue: Index) -> Reweigh:
        """Return the weights of a round for claimants that are given as pairs."""

        def reweigh(live: Index, local: Index, starts: Index) -> Ints:
            at = resource[live], queue[live]
            plain = self.weight[at]
            whole = sums(plain, starts)[local] if self.whole is None else self.whole[at]
            part = plain / whole
            if self.whole is None:
                scaled = np.maximum(0.0, part + self.factor * (part - self.used[at]))
            else:
                scaled = part / (1.0 + self.factor * self.used[at] / part)
            most = np.maximum.reduceat(scaled, starts)[local]
            scaled = np.where(most > 0, scaled, part)
            most = np.maximum.reduceat(scaled, starts)[local]
            return np.where(scaled > 0, np.maximum(np.rint(scaled / most * _FINE), 1), 0).astype(np.int64)

        return reweigh


def _shift(level: _Level, weight: Ints, history: History | None) -> _Shift | None:
    if history is None or history.factor <= 0:
        return None
    if history.on not in ("surplus", "weights"):
        raise ValueError(f"usage history works on surplus or weights, not on {history.on!r}")
    used = np.clip(history.used.T[:, level.rows], 0.0, 1.0)
    whole = sums(weight, level.classes)[:, level.class_of] if history.on == "weights" else None
    return _Shift(weight, used, history.factor, whole)


def shifts(structure: Structure, fields: Fields, demand: Ints, history: History | None) -> NDArray[np.float64]:
    """Return (queues, resources) by what history multiplies the weight of each queue, among those that compete with it.

    On the surplus that is what it does in the first round; 1 for a queue that wants none.
    """
    found = np.ones(fields.weight.shape, dtype=np.float64)
    if history is None or history.factor <= 0:
        return found
    claim = claims(structure, fields, demand)
    for rows in structure.levels[1:]:
        level = _level(structure, rows, fields.priority)
        plain = np.maximum(fields.weight.T[:, level.rows], 0)
        if history.on == "surplus":
            plain = np.where((claim.want > claim.deserved)[:, level.rows], plain, 0)
        whole = sums(plain, level.classes)[:, level.class_of]
        used = np.clip(history.used.T[:, level.rows], 0.0, 1.0)
        part = np.divide(plain, whole, out=np.zeros(plain.shape), where=whole > 0)
        relative = np.divide(used, part, out=np.zeros(plain.shape), where=part > 0)
        if history.on == "surplus":
            factor = np.maximum(0.0, 1.0 + history.factor * (1.0 - relative))
            nobody = np.add.reduceat(np.where(part > 0, factor, 0.0), level.classes, axis=1)[:, level.class_of] <= 0
            factor = np.where(nobody, 1.0, factor)
        else:
            factor = 1.0 / (1.0 + history.factor * relative)
        found[level.rows] = np.where(part > 0, factor, 1.0).T
    return found


def subtree(structure: Structure, values: Ints) -> Ints:
    """Return (queues, resources) the sums over each queue and everything below it."""
    total = np.clip(values.T, 0, CEILING)
    for level in reversed(structure.levels):
        _add_to_parents(structure, level, total)
    return np.ascontiguousarray(total.T)


def sums_below(structure: Structure, values: Ints) -> Ints:
    """Return (queues, resources) the sums over the queues directly below each; none of `values` is below 0."""
    total: Ints = np.zeros(values.T.shape, dtype=np.int64)
    for level in structure.levels[1:]:
        _add_to_parents(structure, level, values.T, total)
    return np.ascontiguousarray(total.T)


def held(structure: Structure, fields: Fields, total: Ints) -> Ints:
    """Return (queues, resources) the guarantees with those below; divided as entitlements where above there is less."""
    limit = np.where(fields.limit >= 0, fields.limit, CEILING).T
    guarantee = _total_guarantee(structure, fields, limit)
    root = structure.root
    guarantee[:, root] = np.minimum(guarantee[:, root], np.clip(total, 0, CEILING))
    if (sums_below(structure, guarantee.T) > guarantee.T).any():
        for rows in structure.levels[1:]:
            level = _level(structure, rows, fields.priority)
            part = guarantee[:, level.rows]
            guarantee[:, level.rows] = _divide(level, guarantee[:, level.parents], part, part)
    return np.ascontiguousarray(guarantee.T)


def idle_guarantees(structure: Structure, fields: Fields, used: Ints, kept: Ints) -> Ints:
    """Return (queues, resources) what must stay free for each queue and those below it, of guarantees not used.

    used: with everything below. kept: as `held` says. What one queue uses does not use up the guarantee of another
    below the same one; nothing is kept that the queue's own limit would not let it use.
    """
    limit = np.where(fields.limit >= 0, fields.limit, CEILING).T
    below: Ints = np.zeros(used.T.shape, dtype=np.int64)
    for level in reversed(structure.levels):
        mine = np.maximum(kept.T[:, level] - used.T[:, level], below[:, level])
        below[:, level] = np.minimum(mine, np.maximum(limit[:, level] - used.T[:, level], 0))
        _add_to_parents(structure, level, below)
    return np.ascontiguousarray(below.T)


def owed(structure: Structure, fields: Fields) -> Ints:
    """Return (queues, resources) what each queue deserves, wanted or not: never less than its guarantee.

    CEILING: unlimited. Where the field is not set: what those below deserve, 0 for a leaf.
    """
    limit = np.where(fields.limit >= 0, fields.limit, CEILING).T
    least, deserved = _total_guarantee(structure, fields, limit), fields.deserved.T
    total = np.zeros_like(least)
    for level in reversed(structure.levels):
        has = deserved[:, level]
        mine = np.where(has == UNLIMITED, CEILING, np.where(has == UNSET, total[:, level], has))
        total[:, level] = np.maximum(least[:, level], np.minimum(mine, limit[:, level]))
        _add_to_parents(structure, level, total)
    return np.ascontiguousarray(total.T)


def borrowed(usage: Ints, owed: Ints) -> Ints:
    """Return what is used beyond what is owed, never below 0. Both with everything below each queue."""
    more: Ints = np.maximum(usage - owed, 0)
    return more


def dominant_share(usage: Sequence[int], of: Sequence[int]) -> float:
    """Return the largest part used/of over resources; inf where something is used of nothing.

    Correctly rounded, so that equal parts are equal and a smaller part is never the larger number.
    """
    share = 0.0
    for used, whole in zip(usage, of, strict=True):
        if used > 0:
            share = max(share, used / whole if whole > 0 else float("inf"))
    return share
