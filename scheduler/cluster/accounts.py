"""Who holds how much: sums over the pods on nodes, by the holder that people know and by queue.

Decided here: what is counted where. A pod of ours is charged to its queue from the moment that it is charged to a node
until it has ended or is gone, whoever bound it; pods of other schedulers are summed apart, because what they hold is
not there to be divided among queues. Must not know: nodes, and which queue a pod belongs to.
"""

from __future__ import annotations

from typing import NamedTuple

from scheduler.model.resources import Amounts, add, scale


class Charge(NamedTuple):
    """What one pod is charged with. unstated: what scores count besides. queue "": it is another scheduler's."""

    node: str
    amounts: Amounts
    unstated: Amounts
    holder: str
    queue: str


class Accounts:
    """The sums; one thread uses it."""

    def __init__(self) -> None:
        self.usage: dict[str, tuple[int, Amounts]] = {}
        """Holder -> (pods, amounts)."""
        self.queues: dict[str, Amounts] = {}
        """Leaf queue -> amounts; without an entry where nothing is held."""
        self.foreign: Amounts = ()

    def charge(self, charge: Charge, sign: int) -> None:
        """Add (sign 1) or take away (-1) one pod."""
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
