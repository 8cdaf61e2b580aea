"""What pods on nodes are charged with, and who holds how much: sums by node, by holder and by queue.

Decided here: what is counted where. A pod of ours is charged to its queue from the moment that it is charged to a node
until it has ended or is gone, whoever bound it; pods of other schedulers are summed apart, because what they hold is
not there to be divided among queues. Must not know: which queue a pod belongs to, nor why it is on its node.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from scheduler.cluster.node_table import GrowingTable
from scheduler.model.pods import Pod
from scheduler.model.resources import Amounts, add, scale


class Charge(NamedTuple):
    """What one pod is charged with. unstated: what scores count besides. queue "": it is another scheduler's."""

    node: str
    amounts: Amounts
    unstated: Amounts
    holder: str
    queue: str


class Accounts:
    """The charges and their sums; one thread uses it."""

    def __init__(self, table: GrowingTable) -> None:
        self._table = table
        self._charged: dict[str, Charge] = {}
        self._on_node: dict[str, dict[str, None]] = {}
        self.usage: dict[str, tuple[int, Amounts]] = {}
        """Holder -> (pods, amounts)."""
        self.queues: dict[str, Amounts] = {}
        """Leaf queue -> amounts; without an entry where nothing is held."""
        self.foreign: Amounts = ()

    def __contains__(self, uid: str) -> bool:
        return uid in self._charged

    def __getitem__(self, uid: str) -> Charge:
        return self._charged[uid]

    def placed(self) -> Iterator[tuple[str, str]]:
        """Yield the uid and the node of every pod that is charged."""
        return ((uid, charge.node) for uid, charge in self._charged.items())

    def set(self, uid: str, want: Charge | None) -> None:
        """Charge a pod with this from now on; None: with nothing."""
        if want == self._charged.get(uid):
            return
        before = self._charged.pop(uid, None)
        if before is not None:
            there = self._on_node[before.node]
            del there[uid]
            if not there:
                del self._on_node[before.node]
            self._table.charge(before.node, before.amounts, -1, before.unstated)
            self._sum(before, -1)
        if want is not None:
            self._charged[uid] = want
            self._on_node.setdefault(want.node, {})[uid] = None
            self._table.charge(want.node, want.amounts, 1, want.unstated)
            self._sum(want, 1)

    def node_came(self, node: str) -> None:
        """Charge a node that is new in the table with the pods that are on it already."""
        for uid in self._on_node.get(node, {}):
            charge = self._charged[uid]
            self._table.charge(node, charge.amounts, 1, charge.unstated)

    def _sum(self, charge: Charge, sign: int) -> None:
        change = charge.amounts if sign > 0 else scale(charge.amounts, -1)
        count, total = self.usage.get(charge.holder, (0, ()))
        if count + sign:
            self.usage[charge.holder] = (count + sign, add(total, change))
        else:
            del self.usage[charge.holder]
        if not charge.queue:
            self.foreign = add(self.foreign, change)
            return
        held = add(self.queues.get(charge.queue, ()), change)
        if held:
            self.queues[charge.queue] = held
        else:
            self.queues.pop(charge.queue, None)


class Singles:
    """Bound pods that are groups of one, with their queues: they are in no group's state."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[Pod, str]] = {}
        self._seen: dict[str, tuple[Pod, str]] | None = None

    def __bool__(self) -> bool:
        return bool(self._known)

    def keep(self, pod: Pod, queue: str) -> None:
        """Keep a pod."""
        known = self._known.get(pod.uid)
        if known is None or known[0] is not pod or known[1] != queue:
            self._known[pod.uid] = (pod, queue)
            self._seen = None

    def drop(self, uid: str) -> None:
        """Forget a pod."""
        if self._known.pop(uid, None) is not None:
            self._seen = None

    def view(self) -> dict[str, tuple[Pod, str]]:
        """Return a copy; the same object as long as nothing changed."""
        if self._seen is None:
            self._seen = dict(self._known)
        return self._seen
