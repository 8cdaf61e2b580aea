"""How a queue stands: what it is owed, holds and wants of each resource. Values only; they are made in
`framework.shares`, and told by the command line and the page."""

from __future__ import annotations

from dataclasses import dataclass

GONE = "Gone"
"""The state of a queue that others name and that has no object."""


@dataclass(frozen=True, slots=True)
class Share:
    """One resource of one queue, over the queue and all below it, in the units of the model; None: unlimited.

    guarantee, deserved, limit: as they count, so that an inner queue that says nothing has what those below it have.
    used: also by pods that are about to go. waiting: asked for by ungated members that wait. entitled: to how much.
    owed: how much it may hold without giving back. weight: thousandths. used_share: the part of the capacity that it
    used lately, 0 to 1, and factor what that does to the weight; None where no account is kept. decayed: in
    resource seconds.
    """

    resource: str
    guarantee: int
    deserved: int | None
    limit: int | None
    used: int
    waiting: int
    entitled: int
    owed: int | None
    borrowed: int
    weight: int
    decayed: int | None = None
    used_share: float | None = None
    factor: float | None = None


@dataclass(frozen=True, slots=True)
class Standing:
    """One queue of the tree. fault: why it does not take part ("" = it does). state: `GONE` where it has no object."""

    name: str
    parent: str
    depth: int
    state: str
    priority: int
    shares: tuple[Share, ...] = ()
    fault: str = ""
