"""Classes of nodes by what they can host of one gang, and the maximal combinations ("patterns") that a node takes.

A node's signature says, for each combination of pods of all kinds but one, how many pods of that last kind still fit.
Nodes with equal signatures are one class, so that thousands of different nodes become a few dozen. Limits for one node
(most per node, apart, exclusive) are filters on combinations. Invariant: a set of combinations fits on the nodes of a
class if and only if each is below one of the class's patterns.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scheduler.placement.instance import Instance, Ints

GRID_LIMIT = 4000
"""Most combinations of the head kinds; beyond it the integer model is smaller."""
_CELLS = 12_000_000


@dataclass(slots=True, eq=False)
class Classes:
    """class_of: the class of each node, -1 where nothing fits; patterns: for each class (patterns, kinds).

    group_of: the group of each node where classes are split by it; a class is then in one group.
    """

    class_of: Ints
    patterns: list[Ints]
    group_of: Ints | None = None
    groups: tuple[int, ...] = ()

    def split(self, group: Ints) -> Classes:
        """Return classes that are also alike in their group."""
        joint = np.where(self.class_of >= 0, self.class_of * (int(group.max(initial=0)) + 1) + group, -1)
        numbers, first, place = np.unique(joint, return_index=True, return_inverse=True)
        skip = int(numbers.size > 0 and int(numbers[0]) < 0)
        patterns = [self.patterns[self.class_of[node]] for node in first[skip:]]
        return Classes(place.astype(np.int64) - skip, patterns, group, tuple(group[first[skip:]].tolist()))

    def group(self, number: int) -> int:
        """Return the group of a class."""
        return self.groups[number] if self.groups else 0


@dataclass(slots=True, eq=False)
class _Grid:
    """Combinations of the head kinds, in lexicographic order, with what they use of each row."""

    head: list[int]
    last: int
    tops: list[int]
    combos: Ints
    use: Ints


def classify(instance: Instance, nodes: NDArray[np.bool_], limit: int = GRID_LIMIT) -> Classes | None:
    """Return the classes of these nodes, or None when there are too many combinations."""
    highs = [sum(instance.composition.highs[d] for d in kind.members) for kind in instance.kinds]
    tops = [min(int(k.cap.max(initial=0, where=nodes)), high) for k, high in zip(instance.kinds, highs, strict=True)]
    useful = [number for number in range(len(tops)) if tops[number] > 0]
    hosts = np.zeros(instance.size, dtype=np.bool_)
    for number in useful:
        hosts |= nodes & (instance.kinds[number].cap > 0)
    rows = np.flatnonzero(hosts)
    class_of = np.full(instance.size, -1, dtype=np.int64)
    if not useful:
        return Classes(class_of, [])
    useful.sort(key=lambda number: (tops[number], number))
    grid = _grid(instance, useful[:-1], useful[-1], tops, instance.free[:, rows].max(axis=1), limit)
    if grid is None:
        return None
    keys, parts = _keys(instance, grid, rows, useful)
    if keys.shape[1] * len(grid.combos) > _CELLS:
        return None
    signature = _signatures(instance, grid, keys, useful)
    numbers: dict[bytes, int] = {}
    of_key = np.array([numbers.setdefault(row.tobytes(), len(numbers)) for row in signature], dtype=np.int64)
    first = np.unique(of_key, return_index=True)[1]
    class_of[rows] = of_key[parts]
    return Classes(class_of, _maximal(instance, grid, signature[first]))


def _grid(instance: Instance, head: list[int], last: int, tops: list[int], largest: Ints, limit: int) -> _Grid | None:
    """Return the combinations that fit on a node with the largest amount of everything."""
    combos = np.zeros((1, 0), dtype=np.int64)
    use = np.zeros((1, len(instance.rows)), dtype=np.int64)
    for place, number in enumerate(head):
        pods = np.arange(tops[number] + 1, dtype=np.int64)
        if len(combos) * pods.size > 40 * limit:
            return None
        use = (use[:, None, :] + pods[None, :, None] * instance.kinds[number].need[None, None, :]).reshape(
            -1, len(instance.rows)
        )
        combos = np.hstack([np.repeat(combos, pods.size, axis=0), np.tile(pods, len(combos))[:, None]])
        keep = (use <= largest).all(axis=1) & _allowed(instance, head[: place + 1], combos)
        combos, use = combos[keep], use[keep]
        if len(combos) > limit:
            return None
    return _Grid(head, last, tops, combos, use)


def _allowed(instance: Instance, head: list[int], combos: Ints) -> NDArray[np.bool_]:
    """Keep the limits that hold on one node."""
    keep = np.ones(len(combos), dtype=np.bool_)
    for kinds, limit in instance.node_limits:
        keep &= combos[:, [place for place, number in enumerate(head) if number in kinds]].sum(axis=1) <= limit
    for part in instance.exclusions:
        if part.ids is None:
            mine = combos[:, [place for place, number in enumerate(head) if number in part.ours]].any(axis=1)
            other = combos[:, [place for place, number in enumerate(head) if number in part.theirs]].any(axis=1)
            keep &= ~(mine & other)
    return keep


def _keys(instance: Instance, grid: _Grid, rows: NDArray[np.intp], useful: list[int]) -> tuple[Ints, Ints]:
    """Return the different nodes as columns (amount of each row in units, then who may host what), and which is which.

    Amounts are cut to multiples of what can be asked, and to the most that can be used, so that noise disappears.
    """
    columns: list[Ints] = []
    for row in range(len(instance.rows)):
        unit = _unit(instance, useful, row)
        most = int(grid.use[:, row].max()) + grid.tops[grid.last] * int(instance.kinds[grid.last].need[row])
        columns.append(np.minimum(instance.free[row, rows], most) // unit * unit)
    columns.extend((instance.kinds[number].cap[rows] > 0).astype(np.int64) for number in useful)
    part = np.zeros(rows.size, dtype=np.int64)
    for column in columns:
        values, place = np.unique(column, return_inverse=True)
        part = np.unique(part * values.size + place, return_inverse=True)[1].astype(np.int64)
    first = np.unique(part, return_index=True)[1]
    return np.array([column[first] for column in columns]), part


def _unit(instance: Instance, useful: list[int], row: int) -> int:
    return math.gcd(*(int(instance.kinds[number].need[row]) for number in useful)) or 1


def _signatures(instance: Instance, grid: _Grid, keys: Ints, useful: list[int]) -> Ints:
    """Return, for each different node and each combination, how many of the last kind still fit; -1: not even it."""
    last = instance.kinds[grid.last]
    width = len(instance.rows)
    top = np.full(len(grid.combos), grid.tops[grid.last], dtype=np.int64)
    for kinds, limit in instance.node_limits:
        if grid.last in kinds:
            picked = [place for place, number in enumerate(grid.head) if number in kinds]
            np.minimum(top, limit - grid.combos[:, picked].sum(axis=1), out=top)
    for part in instance.exclusions:
        for mine, other in ((part.ours, part.theirs), (part.theirs, part.ours)) if part.ids is None else ():
            if grid.last in mine:
                picked = [place for place, number in enumerate(grid.head) if number in other]
                top[grid.combos[:, picked].any(axis=1)] = 0
    kind = np.int16 if grid.tops[grid.last] < 2**15 else np.int64
    result = np.repeat(top[None, :].astype(kind), keys.shape[1], axis=0)
    for row in range(width):
        values, place = np.unique(keys[row], return_inverse=True)
        rest = values[:, None] - grid.use[None, :, row]
        need = int(last.need[row])
        most = np.minimum(rest // need, grid.tops[grid.last]) if need else np.int64(grid.tops[grid.last])
        fits = np.where(rest >= 0, most, -1)
        np.minimum(result, fits.astype(kind)[place], out=result)
    for offset, number in enumerate(useful):
        barred = keys[width + offset] == 0
        if not barred.any():
            continue
        if number == grid.last:
            result[barred] = np.minimum(result[barred], 0)
        else:
            result[np.ix_(barred, grid.combos[:, grid.head.index(number)] > 0)] = -1
    return result


def _maximal(instance: Instance, grid: _Grid, signature: Ints) -> list[Ints]:
    """Return the combinations of each class that are not below another one."""
    strides = np.ones(len(grid.head), dtype=np.int64)
    for place in range(len(grid.head) - 2, -1, -1):
        strides[place] = strides[place + 1] * (grid.tops[grid.head[place + 1]] + 1)
    codes = grid.combos @ strides if grid.head else np.zeros(1, dtype=np.int64)
    below = signature < 0
    for place, number in enumerate(grid.head):
        target = codes + strides[place]
        found = np.minimum(np.searchsorted(codes, target), codes.size - 1)
        valid = (codes[found] == target) & (grid.combos[:, place] < grid.tops[number])
        below |= valid[None, :] & (signature[:, found] >= signature)
    patterns = []
    for row, hidden in zip(signature, below, strict=True):
        picked = np.flatnonzero(~hidden)
        table = np.zeros((picked.size, len(instance.kinds)), dtype=np.int64)
        table[:, grid.head] = grid.combos[picked]
        table[:, grid.last] = row[picked]
        patterns.append(table[table.any(axis=1)])
    return patterns
