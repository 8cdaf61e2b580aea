"""A gang that lacks members waits, and says which: in total, or of which role; gated ones are told apart.

That a gang is placed whole or not at all is not decided here (nor can it be switched off): placement keeps the minimum.
This plugin says early, and in words, that it cannot be kept yet.
"""

from __future__ import annotations

from scheduler.framework.gangs import membership
from scheduler.framework.protocols import View
from scheduler.framework.registry import Arguments
from scheduler.model.groups import GroupState
from scheduler.model.verdict import Verdict


class Gang:
    """See the module."""

    name = "gang"

    def __init__(self, arguments: Arguments) -> None:
        pass

    def ready(self, state: GroupState, view: View) -> Verdict | None:
        """Return NotEnoughMembers or Gated until the waiting members can complete the minimum."""
        return membership(state)
