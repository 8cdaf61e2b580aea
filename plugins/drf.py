"""Dominant-resource fairness among the groups of a queue: who holds the smallest part of what it holds most of is next.

The part is that of the capacity which queues divide, in whatever resource it is largest, counting what the group holds
and what it asks for at its next turn. Between queues the same is done by `queues`, with their weights.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from scheduler.framework.protocols import SortKey, View
from scheduler.framework.registry import Arguments
from scheduler.model.groups import GroupState
from scheduler.model.pods import held_by
from scheduler.model.quota import dominant_share
from scheduler.model.resources import Amounts, add


class DominantResourceFairness:
    """See the module."""

    name = "drf"

    def __init__(self, arguments: Arguments) -> None:
        self._given: dict[str, Amounts] = {}

    def on_session(self, view: View) -> None:
        """Forget what the previous session gave."""
        self._given.clear()

    def on_allocate(self, state: GroupState, amounts: Amounts, *, undone: bool) -> None:
        """Count what this session gives."""
        change = tuple((name, -value) for name, value in amounts) if undone else amounts
        self._given[state.key] = add(self._given.get(state.key, ()), change)

    def order_groups(self, state: GroupState, view: View) -> SortKey:
        """Sort by dominant share, smallest first."""
        shapes = view.snapshot.shapes
        held = add(
            self._given.get(state.key, ()),
            view.least_of(state),
            *(held_by(pod, shapes) for pod in (*state.bound, *state.assumed)),
        )
        used: NDArray[np.int64] = view.book.vector(held)
        return (dominant_share(used.tolist(), view.book.ground.total.tolist()),)
