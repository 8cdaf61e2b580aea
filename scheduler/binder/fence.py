"""Whose request it is: what a binder with one epoch does with a request of another.

A request of an older leader that was there when this binder began is taken over, because its gang may be half bound.
One that arrives later was written by a leader that has lost its lease without noticing: it is refused, since nobody
keeps the picture that it was decided on. One of a newer leader is left alone: this process is the old leader.
"""

from __future__ import annotations

from enum import Enum


class Fencing(Enum):
    """What to do with a request."""

    PROCEED = "proceed"
    ADOPT = "adopt"
    REFUSE = "refuse"
    LEAVE = "leave"


STALE_EPOCH = "StaleEpoch"


def fence(written: int, ours: int, *, found: bool) -> Fencing:
    """Compare the epoch a request was `written` with to `ours`; `found`: it was there when the binder began."""
    if written == ours:
        return Fencing.PROCEED
    if written > ours:
        return Fencing.LEAVE
    return Fencing.ADOPT if found else Fencing.REFUSE
