"""`place`: the one entry, and the order in which its steps are tried.

Decided here: counting, then bounds, then greedy on every domain that survives, then CP-SAT on each; each returns as
soon as it is provably right. Domain rules are searched, the fullest domain first. The search budget is shared by all
domains; when it ends first, the answer says so and never "does not fit". Every placement passes `verify`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from scheduler.placement import bounds, counting, cpsat, greedy
from scheduler.placement.arrays import Ints
from scheduler.placement.compiled import Compiled, compile_problem
from scheduler.placement.problem import (
    BadProblem,
    Infeasible,
    Method,
    Placement,
    PlacementBug,
    PlacementProblem,
    Within,
    check_problem,
)
from scheduler.placement.verify import verify


@dataclass(slots=True)
class _Spending:
    """What is left of the budget, and whether some domain was left undecided because of it."""

    seconds: float
    wall: float
    domains: int
    undecided: bool = False
    cause: Literal["rules", "bound", "search"] = "bound"
    open: list[Compiled] = field(default_factory=list)


def place(problem: PlacementProblem) -> Placement | Infeasible:
    """Return a placement, or that there is none (proven or not). Raises `BadProblem`, `PlacementBug`."""
    check_problem(problem)
    compiled = compile_problem(problem)
    soft = [rule for rule in compiled.within if not rule.hard]
    answer: Placement | Infeasible | None = None
    for kept in range(len(soft), -1, -1):
        within = tuple(rule for rule in compiled.within if rule.hard or rule in soft[:kept])
        answer = _place(replace(compiled, within=within))
        if isinstance(answer, Placement):
            break
    if isinstance(answer, Placement):
        wrong = verify(problem, answer)
        if wrong:
            raise PlacementBug(problem, answer, wrong)
    assert answer is not None  # the loop runs at least once
    return answer


def _place(compiled: Compiled) -> Placement | Infeasible:
    budget = compiled.problem.budget
    spending = _Spending(budget.deterministic_time, budget.wall_limit, budget.max_domains)
    found = _search(compiled, compiled.within, spending)
    if found is None and spending.open:
        found = _solve_open(spending)
    if found is not None:
        table, part, method = found
        return Placement(_final(part, table), method)
    alone = tuple(int(value) for value in compiled.fit.sum(axis=1))
    cause: Literal["rules", "bound", "search", "budget"] = "budget" if spending.undecided else spending.cause
    return Infeasible(not spending.undecided, cause, compiled.lower, alone)


Found = tuple[Ints, Compiled, Method]


def _search(compiled: Compiled, within: tuple[Within, ...], spending: _Spending) -> Found | None:
    """Counting and greedy in every domain; what they leave open is queued for the solver, fullest first."""
    reason = bounds.hopeless(compiled)
    if reason:
        return None
    if within:
        for part in _domains(compiled, within[0]):
            found = _search(part, within[1:], spending)
            if found is not None:
                return found
        return None
    if counting.applies(compiled):
        table = counting.count(compiled)
        if table is not None:
            return table, compiled, "counting"
        return None
    table = greedy.search(compiled)
    if table is not None:
        return table, compiled, "greedy"
    spending.open.append(compiled)
    return None


def _domains(compiled: Compiled, rule: Within) -> Iterator[Compiled]:
    """The problem confined to each domain of a rule that may hold it."""
    problem = compiled.problem
    everyone = tuple(range(len(compiled.lower)))
    demands = everyone if rule.demands is None else rule.demands
    if rule.level not in problem.nodes.domains:
        raise BadProblem(f"level {rule.level!r} is not known; known: {sorted(problem.nodes.domains)}")
    ids = problem.nodes.domains[rule.level][compiled.rows]
    for domain in bounds.surviving(compiled, ids, demands):
        inside = ids == domain
        if set(demands) == set(everyone):
            yield compiled.only(np.flatnonzero(inside))
        else:
            yield compiled.confined(demands, inside)
    if not any(compiled.lower[d] for d in demands):
        yield compiled.confined(demands, np.zeros(len(ids), dtype=np.bool_))  # none of them at all


def _solve_open(spending: _Spending) -> Found | None:
    """Run the solver on the parts that are open, within the shared budget."""
    for part in spending.open:
        if spending.domains <= 0 or spending.seconds <= 0:
            spending.undecided = True
            break
        spending.domains -= 1
        solved = cpsat.solve(part, spending.seconds, spending.wall)
        spending.seconds -= solved.spent
        spending.cause = "search"
        if solved.table is not None:
            return solved.table, part, solved.method
        spending.undecided |= not solved.proven
    return None


def _final(compiled: Compiled, table: Ints) -> tuple[tuple[tuple[int, int], ...], ...]:
    """Take away what is not needed, or fill up when as many as possible are wanted."""
    if compiled.problem.maximize:
        if len(compiled.lower) > 1:
            table = greedy.fill(compiled, table)
    else:
        table = _trim(compiled, table)
    return compiled.counts(table)


def _trim(compiled: Compiled, table: Ints) -> Ints:
    """Drop pods, last demands first, that neither their own minimum nor a `Minimum` needs."""
    placed = [int(value) for value in table.sum(axis=1)]
    table = table.copy()
    own = [max(0, demand.minimum) for demand in compiled.problem.demands]
    for d in reversed(range(len(placed))):
        spare = placed[d] - own[d]
        for rule in compiled.minimums:
            if d in rule.demands:
                spare = min(spare, sum(placed[e] for e in rule.demands) - rule.count)
        if spare <= 0:
            continue
        placed[d] -= spare
        for n in reversed(np.flatnonzero(table[d])):
            step = min(spare, int(table[d, n]))
            table[d, n] -= step
            spare -= step
            if spare == 0:
                break
    return table
