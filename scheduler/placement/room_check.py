"""What a right answer to "who has to go" is, checked from the answer alone.

Minimal: whichever gang or surplus pod is put back, a row breaks or nothing can be placed any more. This is asked of
the placement engine, so it is checked where that is cheap, or on request.
"""

from __future__ import annotations

from scheduler.placement.engine import place
from scheduler.placement.problem import Placement
from scheduler.placement.verify import verify
from scheduler.placement.victims import (
    MadeRoom,
    MustFree,
    VictimProblem,
    chunks_of,
    may_lose,
    row_holds,
)

_CHEAP = 24
"""So many pieces are put back without being asked to."""


def verify_room(problem: VictimProblem, made: MadeRoom, *, minimal: bool | None = None) -> list[str]:
    """Return what the answer violates; [] = valid. minimal: check that too (None: when few pieces go)."""
    gone = frozenset(made.evicted)
    if made.evicted != tuple(sorted(gone)):
        return ["the evicted are not in order, or one is named twice"]
    if any(not 0 <= resident < len(problem.residents) for resident in gone):
        return ["a resident that does not exist is evicted"]
    failures = [
        f"gang {number} loses a part that is not surplus"
        for number in sorted({problem.gang_of[resident] for resident in gone})
        if not may_lose(problem.gangs[number], gone)
    ]
    failures.extend(f"broken: {row}" for row in problem.rows if not row_holds(problem, row, gone))
    failures.extend(verify(problem.without(gone), made.placement))
    if failures or minimal is False:
        return failures
    chunks = chunks_of(problem, gone)
    if minimal is None and len(chunks) > _CHEAP:
        return failures
    failures.extend(
        f"residents {chunk} need not go"
        for chunk in chunks
        if may_return(problem, gone, chunk) and isinstance(place(problem.without(gone.difference(chunk))), Placement)
    )
    return failures


def may_return(problem: VictimProblem, gone: frozenset[int], chunk: tuple[int, ...]) -> bool:
    """Whether the rows and the gangs allow that these residents stay after all."""
    left = gone.difference(chunk)
    gangs = sorted({problem.gang_of[resident] for resident in chunk})
    return all(may_lose(problem.gangs[number], left) for number in gangs) and all(
        row_holds(problem, row, left) for row in problem.rows if isinstance(row, MustFree)
    )
