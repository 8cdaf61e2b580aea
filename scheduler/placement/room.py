"""Who has to go so that something fits: the question is put in order, decided, and the answer checked.

Invariant: every answer passed `verify_room`. Pods are looked at in the order of their names, so that the order in which
they are given changes nothing. How it is decided, and what is exact: `room_search`.
"""

from __future__ import annotations

from scheduler.placement.problem import Infeasible
from scheduler.placement.room_check import verify_room
from scheduler.placement.room_order import in_order, moved_back
from scheduler.placement.victims import MadeRoom, RoomBug, VictimProblem, check_room


def make_room(problem: VictimProblem) -> MadeRoom | Infeasible:
    """Return who goes and where the pods are then, or why there is no way.

    Raises `BadProblem` for what means nothing, `RoomBug` when the search is wrong.
    """
    from scheduler.placement.room_search import Search

    check_room(problem)
    ordered, order = in_order(problem)
    answer = Search.of(ordered).run()
    if isinstance(answer, Infeasible):
        return answer
    made = moved_back(answer, order)
    failures = verify_room(problem, made)
    if failures:
        raise RoomBug(problem, made, failures)
    return made
