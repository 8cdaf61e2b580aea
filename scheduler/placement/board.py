"""What is left of the nodes while kinds are placed on them one after the other, under all rules.

Decided here: where a kind may go beside the pods that are on the board already. Rules that later kinds could still
break (a spread that counts them) are looked at again when the draft is complete.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from scheduler.placement.between import Crowd, Following, Spreading
from scheduler.placement.counting import segment_sums
from scheduler.placement.devices import alone, left_of
from scheduler.placement.instance import Instance, Ints
from scheduler.placement.standing import held

Flags = NDArray[np.bool_]


class Board:
    """See the module."""

    def __init__(self, instance: Instance, caps: Sequence[Ints]) -> None:
        """`caps`: for each kind how many pods each node takes at most; 0 keeps the node out."""
        self.instance = instance
        self.free = instance.free.copy()
        self.x = np.zeros((len(instance.kinds), instance.size), dtype=np.int64)
        self.before: Ints | None = None
        self._caps = caps
        self._unpaid = [part.pays.copy() for part in instance.shared]
        self._bins = {name: pool.free.copy() for name, pool in instance.pools.items()}
        self._inside = [crowd.present.copy() for crowd in instance.crowds]

    def copy(self, instance: Instance | None = None) -> Board:
        """Return a board with the same pods, which are there `before`. instance: the same, seen in other segments."""
        other = Board(self.instance if instance is None else instance, self._caps)
        other.free, other.x, other.before = self.free.copy(), self.x.copy(), self.x
        other._unpaid = [unpaid.copy() for unpaid in self._unpaid]
        other._bins = {name: bins.copy() for name, bins in self._bins.items()}
        other._inside = [inside.copy() for inside in self._inside]
        return other

    def part(self, instance: Instance, nodes: NDArray[np.intp]) -> Board:
        """Return a board of some nodes with the pods that are there; `instance` has these nodes only."""
        other = Board(instance, [cap[nodes] for cap in self._caps])
        other.free, other.x = self.free[:, nodes].copy(), self.x[:, nodes].copy()
        other._unpaid = [unpaid[nodes] for unpaid in self._unpaid]
        other._bins = {name: bins[:, nodes] for name, bins in self._bins.items()}
        other._inside = [inside.copy() for inside in self._inside]
        return other

    def take_over(self, other: Board, nodes: NDArray[np.intp]) -> None:
        """Add the pods that another board holds on these nodes more than this one."""
        more = other.x if other.x.shape[1] == nodes.size else other.x[:, nodes]
        more = more - self.x[:, nodes]
        for number in np.flatnonzero(more.any(axis=1)).tolist():
            used = more[number] > 0
            self.put(number, nodes[used], more[number, used])

    def cap(self, number: int) -> Ints:
        """Return the pods of a kind that each node still takes, limits and shares of domains aside."""
        cap = self.room(number)
        for follow in self.instance.follows:
            if number in follow.followers:
                cap[~self._followed(follow, number, cap)] = 0
        return cap

    def room(self, number: int) -> Ints:
        """As `cap`, as if what the kind follows were everywhere."""
        instance = self.instance
        kind = instance.kinds[number]
        cap: Ints = self._caps[number] - self.x[number]
        less: dict[int, Ints] = {}
        for part, unpaid in zip(instance.shared, self._unpaid, strict=True):
            if number in part.kinds:
                less[part.row] = less.get(part.row, self.free[part.row]) - part.amount * unpaid
        for row in kind.rows:
            np.minimum(cap, less.get(row, self.free[row]) // kind.need[row], out=cap)
        for left in less.values():
            cap[left < 0] = 0
        if kind.ask is not None:
            np.minimum(cap, alone(self._bins[kind.ask.pool], kind.ask), out=cap)
        for kinds, limit in instance.node_limits:
            if number in kinds:
                np.minimum(cap, limit - self.x[list(kinds)].sum(axis=0), out=cap)
        for exclusion in instance.exclusions:
            for mine, other in ((exclusion.ours, exclusion.theirs), (exclusion.theirs, exclusion.ours)):
                if number in mine:
                    cap[self._hosting(other, exclusion.ids)] = 0
        for crowd, inside in zip(instance.crowds, self._inside, strict=True):
            cap[self._full(crowd, inside, number)] = 0
        for spread in instance.spreads:
            if number in spread.counted and number not in spread.carriers:
                np.minimum(cap, self._beside(spread), out=cap)
        np.maximum(cap, 0, out=cap)
        return cap

    def put(self, number: int, nodes: NDArray[np.intp], pods: Ints) -> None:
        """Place pods."""
        kind = self.instance.kinds[number]
        self.x[number, nodes] += pods
        for row in kind.rows:
            self.free[row, nodes] -= kind.need[row] * pods
        for part, unpaid in zip(self.instance.shared, self._unpaid, strict=True):
            if number in part.kinds:
                paying = nodes[unpaid[nodes]]
                self.free[part.row, paying] -= part.amount
                unpaid[paying] = False
        if kind.ask is not None:
            self._take_devices(kind.ask.pool, nodes)
        for crowd, inside in zip(self.instance.crowds, self._inside, strict=True):
            if (group := crowd.of(number)) >= 0:
                domains = crowd.ids[nodes]
                inside[group, domains[domains >= 0]] = True

    def _take_devices(self, pool: str, nodes: NDArray[np.intp]) -> None:
        """Lay out anew all that is on these nodes: whoever is placed later may need another layout."""
        untouched, kinds = self.instance.pools[pool].free, self.instance.kinds
        asking = [(number, kind.ask) for number, kind in enumerate(kinds) if kind.ask and kind.ask.pool == pool]
        for node in nodes.tolist():
            taken = [(ask, int(self.x[number, node])) for number, ask in asking if self.x[number, node]]
            left = left_of(untouched[:, node].tolist(), taken)
            assert left is not None  # `room` and a draft hold only what fits
            self._bins[pool][:, node] = left

    def _hosting(self, kinds: Sequence[int], ids: Ints | None) -> Flags:
        """Return the nodes in whose domain any of the kinds is."""
        here: Flags = self.x[list(kinds)].sum(axis=0) > 0
        if ids is None:
            return here
        return _among(ids, here)

    def _full(self, part: Crowd, inside: Flags, number: int) -> Flags:
        """Return the nodes in whose domain so many groups are that the one of a kind may not come. inside: groups by
        domains, who is there."""
        group = part.of(number)
        if group < 0:
            return np.zeros(self.instance.size, dtype=np.bool_)
        full = (inside.sum(axis=0) >= part.limit) & ~inside[group]
        return np.append(full, False)[part.ids]  # the last: nodes without the label

    def _followed(self, rule: Following, number: int, cap: Ints) -> Flags:
        """Return the nodes on which a follower finds what it follows; for the first pod the roomiest domain."""
        here: Flags = self.x[list(rule.targets)].sum(axis=0) > 0
        if rule.first and number in rule.targets and not here.any():
            return self._roomiest(rule, cap)
        found = np.ones(self.instance.size, dtype=np.bool_)
        for ids, present in zip(rule.ids, rule.present, strict=True):
            there = present.copy()
            there[ids[here & (ids >= 0)]] = True
            found &= (ids >= 0) & (there[np.maximum(ids, 0)] if there.size else False)
        return found

    def _roomiest(self, rule: Following, cap: Ints) -> Flags:
        joint = np.zeros(self.instance.size, dtype=np.int64)
        for ids in rule.ids:
            joint = np.where((joint >= 0) & (ids >= 0), joint * (int(ids.max(initial=0)) + 1) + ids, -1)
        numbers, place = np.unique(joint, return_inverse=True)
        sums = segment_sums(np.where(joint >= 0, cap, 0), place, numbers.size)
        result: Flags = (place == int(np.argmax(sums))) & (joint >= 0)
        return result

    def _beside(self, part: Spreading) -> Ints:
        """Return how many pods that only count may come to each node, beside the carriers that are there."""
        count = held(part, self.x)
        if not count.size:  # no node has the label, so no carrier is anywhere
            return np.full(self.instance.size, np.iinfo(np.int64).max)
        least = 0 if part.floor else int(count[part.domains].min())
        carried = self._hosting(part.carriers, part.ids) & part.nodes
        room: Ints = np.where(carried, least + part.skew - count[np.maximum(part.ids, 0)], np.iinfo(np.int64).max)
        return room


def _among(ids: Ints, here: Flags) -> Flags:
    """Return the nodes in the domains of some nodes."""
    there = np.zeros(int(ids.max(initial=0)) + 2, dtype=np.bool_)
    there[ids[here & (ids >= 0)]] = True
    return there[ids]
