"""A set of victims by growing and putting back: minimal, not always the cheapest; the answer when time ends.

Pieces are taken in order of cost as far as the rows allow, until the placement is possible; then whoever need not go
is put back, the dearest first, half of them at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from scheduler.placement.room_check import may_return
from scheduler.placement.room_lots import pieces
from scheduler.placement.victims import MustFree, VictimProblem, chunks_of, cost_of, keeps_alive, row_holds

Fits: TypeAlias = Callable[[frozenset[int]], bool]
"""Whether what must go goes with a set, and what is asked for can be placed then."""


def grow(problem: VictimProblem, level: int, fits: Fits) -> frozenset[int] | None:
    """Return a minimal set of victims up to a level, or None when growing finds none."""
    steps = _steps(problem, level)
    low, high = 0, len(steps)
    if not steps or not fits(steps[-1]):
        return None
    while low < high:
        middle = (low + high) // 2
        if fits(steps[middle]):
            high = middle
        else:
            low = middle + 1
    return put_back(problem, steps[low], fits)


def _steps(problem: VictimProblem, level: int) -> list[frozenset[int]]:
    """Return growing sets: surplus and gangs, cheapest first, without those that a row forbids."""
    found = pieces(problem, level)
    offers: list[tuple[tuple[int, int, int, int], tuple[int, ...]]] = []
    for lot in found.lots:
        for resident in lot.members:
            gang = problem.gangs[problem.gang_of[resident]]
            offers.append(((gang.priority, int(lot.single), 1, problem.residents[resident].runtime), (resident,)))
    for whole in found.wholes:
        gang = problem.gangs[whole.gang]
        runtime = sum(problem.residents[resident].runtime for resident in whole.residents)
        offers.append(((gang.priority, int(whole.breaks), len(whole.residents), runtime), whole.residents))
    offers.sort()
    limits = [row for row in problem.rows if not isinstance(row, MustFree)]
    steps: list[frozenset[int]] = []
    gone: frozenset[int] = frozenset()
    for _, residents in offers:
        more = gone.union(residents)
        gang = problem.gangs[problem.gang_of[residents[0]]]
        if len(residents) < len(gang.residents) and not keeps_alive(gang, more):
            continue
        if all(row_holds(problem, row, more) for row in limits):
            gone = more
            steps.append(gone)
    return steps


def put_back(problem: VictimProblem, gone: frozenset[int], fits: Fits) -> frozenset[int]:
    """Return a minimal part of a set that suffices."""
    for chunk in [chunk for chunk in chunks_of(problem, gone) if len(chunk) > 1]:
        gang = problem.gangs[problem.gang_of[chunk[0]]]
        surplus: frozenset[int] = frozenset()
        for resident in sorted(chunk, key=lambda r: problem.residents[r].runtime):
            if keeps_alive(gang, surplus | {resident}):
                surplus |= {resident}
        for stay in (frozenset(chunk), frozenset(chunk) - surplus):
            left = gone - stay
            if _rows_hold(problem, left) and fits(left):
                gone = left
                break
    chunks = chunks_of(problem, gone)
    chunks.sort(key=lambda chunk: (cost_of(problem, chunk), chunk), reverse=True)
    return _halves(problem, gone, chunks, fits)


def _rows_hold(problem: VictimProblem, gone: frozenset[int]) -> bool:
    return all(row_holds(problem, row, gone) for row in problem.rows)


def _halves(
    problem: VictimProblem, gone: frozenset[int], chunks: Sequence[tuple[int, ...]], fits: Fits
) -> frozenset[int]:
    if not chunks:
        return gone
    together = tuple(resident for chunk in chunks for resident in chunk)
    if may_return(problem, gone, together) and fits(gone.difference(together)):
        return gone.difference(together)
    if len(chunks) == 1:
        return gone
    middle = len(chunks) // 2
    return _halves(problem, _halves(problem, gone, chunks[:middle], fits), chunks[middle:], fits)
