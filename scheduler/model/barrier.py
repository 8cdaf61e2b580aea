"""What keeps a group from making room by eviction, as a value; its words are made in `observe.explain`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Barrier:
    """One obstacle. action: preempt (own queue) or reclaim (other queues). who: names of groups, or of a budget.

    kind, about the group: `off` (the action is not configured), `never` (its pods never preempt), `delayed` (until
    then nobody goes for it), `queue_never` (its queue does not),
    `beyond_owed` (with it `queue` would hold `amounts` more than it is owed). About those who run:
    `priority` (theirs is not lower), `within_owed` (`queue` holds no more than it is owed), `not_reclaimable` (`queue`
    gives nothing back), `not_preemptible`, `min_runtime` (until then), `partly_fixed` (members that cannot go keep the
    rest at its minimum), `plugin` (one protects them), `budget` (it allows nothing, and covers `count` pods of theirs),
    `going` (they go already, for somebody before it), `not_enough` (they may go, and no set of them makes room).
    until: seconds since the epoch, 0 where it does not apply.
    """

    kind: str
    action: str = ""
    queue: str = ""
    who: tuple[str, ...] = ()
    amounts: tuple[tuple[str, int], ...] = ()
    until: float = 0.0
    count: int = 0
