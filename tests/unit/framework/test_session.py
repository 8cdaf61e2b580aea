"""How a session begins: nothing that one group does to it stops the others."""

from __future__ import annotations

import pytest

from scheduler.framework import bookkeeping
from scheduler.model.decisions import Place
from scheduler.model.groups import GroupState
from scheduler.model.verdict import Verdict
from tests.unit.framework.world import World


def test_a_group_on_which_the_account_fails_is_counted_and_the_others_are_served(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()
    world.node("n1", gpu=4)
    world.gang("bad", 2)
    world.gang("good", 2)
    whole = bookkeeping.membership

    def breaks(state: GroupState) -> Verdict | None:
        if state.group.name == "bad":
            raise StopIteration("nobody is next")
        return whole(state)

    monkeypatch.setattr(bookkeeping, "membership", breaks)
    result = world.session()
    assert "good" in [item.name for item in result.decisions.items if isinstance(item, Place)]
    assert result.counters["group_failures"] == 1
