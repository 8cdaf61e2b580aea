"""Which running pods move, and where to, so that something fits: the question is put in order, decided, and checked.

Invariant: every answer passed `verify_moves`. Pods are looked at in the order of their names, so that the order in
which they are given changes nothing. How it is decided, and what is exact: `move_search`.
"""

from __future__ import annotations

from dataclasses import replace

from scheduler.placement.move_order import arranged
from scheduler.placement.moves import MoveBug, MoveProblem, Relocated, check_moves, verify_moves
from scheduler.placement.problem import Infeasible


def relocate(problem: MoveProblem) -> Relocated | Infeasible:
    """Return where pods move and where what is asked for is then, or why there is no way.

    Raises `BadProblem` for what means nothing, `MoveBug` when the search is wrong.
    """
    from scheduler.placement.move_search import MoveSearch

    check_moves(problem)
    ordered, numbers = arranged(problem)
    answer = MoveSearch(ordered).run()
    if isinstance(answer, Infeasible):
        return answer
    moves = tuple(sorted((numbers[resident], node) for resident, node in answer.moves))
    answer = replace(answer, moves=moves)
    failures = verify_moves(problem, answer)
    if failures:
        raise MoveBug(problem, answer, failures)
    return answer
