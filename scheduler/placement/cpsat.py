"""The only place that speaks to the solver: building models directly, running them, reading the answers.

Decided here: the solver's parameters. One worker and a fixed seed make answers repeatable; the deterministic time is
the limit, the wall clock only a fuse. A run that ends without an answer is "unknown", never "impossible".
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from ortools.sat.python import cp_model
from ortools.sat.python import cp_model_helper as proto

from scheduler.placement.problem import BadProblem, Budget

LARGEST_MODEL = 100_000
"""Most variables; larger models spend their time before they begin to search."""
_UNBOUNDED = 2**60


class Status(Enum):
    """FOUND: a solution (with an objective: the best one); BETTER: one that is not proven best."""

    FOUND = "found"
    BETTER = "better"
    IMPOSSIBLE = "impossible"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Result:
    """values: of all variables, in the order in which they were made."""

    status: Status
    values: list[int]


class Model:
    """Integer variables and linear rows, written straight into the solver's own form, without names."""

    def __init__(self) -> None:
        self._proto: Any = proto.CpModelProto()
        self._highs: list[int] = []
        self.has_objective = False

    @property
    def size(self) -> int:
        """Number of variables."""
        return len(self._highs)

    def variable(self, low: int, high: int) -> int:
        """Add a variable; return its number."""
        self._proto.variables.add().domain.extend([low, high])
        self._highs.append(high)
        return len(self._highs) - 1

    def row(
        self,
        variables: Sequence[int],
        weights: Sequence[int],
        low: int | None,
        high: int | None,
        *,
        when: int | None = None,
    ) -> None:
        """Add low <= sum of weight x variable <= high; weights are scaled by their common divisor, so nothing is lost.

        Variables are not negative. when: a variable (0 or 1); the row holds only where it is 1.
        """
        unit = math.gcd(*weights) or 1
        weights = [weight // unit for weight in weights]
        top = sum(w * self._highs[v] for v, w in zip(variables, weights, strict=True) if w > 0)
        bottom = sum(w * self._highs[v] for v, w in zip(variables, weights, strict=True) if w < 0)
        low = None if low is None else -(-low // unit)
        high = None if high is None else high // unit
        if (low is None or low <= bottom) and (high is None or high >= top):
            return
        if top - bottom >= _UNBOUNDED:
            raise BadProblem("the amounts of a limit are too large to add up")
        constraint = self._proto.constraints.add()
        if when is not None:
            constraint.enforcement_literal.append(when)
        linear = constraint.linear
        linear.vars.extend(variables)
        linear.coeffs.extend(weights)
        least = max(low, bottom - 1) if low is not None else bottom if high is None else min(bottom, high)
        linear.domain.extend([least, max(least, top) if high is None else min(high, top + 1)])

    def most(self, variables: Sequence[int], weights: Sequence[int]) -> int:
        """Return the largest sum of weight x variable that their ranges allow; weights are not negative."""
        return sum(weight * self._highs[variable] for variable, weight in zip(variables, weights, strict=True))

    def minimize(self, variables: Sequence[int], weights: Sequence[int] | None = None) -> None:
        """Ask for the smallest sum of these variables (each times its weight), whatever was asked for before."""
        self._proto.clear_objective()
        objective = self._proto.objective
        objective.vars.extend(variables)
        objective.coeffs.extend([1] * len(variables) if weights is None else weights)
        self.has_objective = True

    def hint(self, values: Sequence[int]) -> None:
        """Give values of all variables made so far as a place to begin."""
        self._proto.clear_solution_hint()
        self._proto.solution_hint.vars.extend(range(len(values)))
        self._proto.solution_hint.values.extend(values)

    def maximize(self, variables: Sequence[int]) -> None:
        """Ask for the largest sum of these variables."""
        objective = self._proto.objective
        objective.vars.extend(variables)
        objective.coeffs.extend([-1] * len(variables))
        objective.scaling_factor = -1.0
        self.has_objective = True

    def solve(self, clock: Clock, *, whole: bool = False) -> Result:
        """Run the solver for what is left of the budget.

        whole: give its relaxation all rows at once, and simplify them once: for models whose bounds need most of them.
        """
        if self.size > LARGEST_MODEL or clock.left <= 0:
            return Result(Status.UNKNOWN, [])
        solver = cp_model.CpSolver()
        parameters = solver.parameters
        parameters.num_workers = 1
        parameters.random_seed = clock.seed
        parameters.cp_model_probing_level = 0
        parameters.symmetry_level = 0
        parameters.linearization_level = 2 if self.has_objective else 1
        if whole:
            parameters.add_lp_constraints_lazily = False
            parameters.max_presolve_iterations = 1
        parameters.max_deterministic_time = clock.left
        parameters.max_time_in_seconds = clock.wall_left
        status = solver.solve(cp_model.CpModel(self._proto))
        response = solver.response_proto
        clock.left -= float(response.deterministic_time)
        if status == cp_model.OPTIMAL:
            return Result(Status.FOUND, list(response.solution))
        if status == cp_model.FEASIBLE:
            return Result(Status.BETTER if self.has_objective else Status.FOUND, list(response.solution))
        if status == cp_model.INFEASIBLE:
            return Result(Status.IMPOSSIBLE, [])
        if status == cp_model.UNKNOWN:
            return Result(Status.UNKNOWN, [])
        raise RuntimeError(f"the solver refused a model of {self.size} variables: {solver.status_name(status)}")


class Clock:
    """What is left of a budget, in the solver's deterministic seconds."""

    def __init__(self, budget: Budget, seed: int) -> None:
        self.left = budget.deterministic_time
        self._fuse = time.monotonic() + budget.wall_limit
        self.seed = seed % 2**31

    @property
    def wall_left(self) -> float:
        """Seconds until the fuse blows; a run is never refused for it, only cut short."""
        return max(0.001, self._fuse - time.monotonic())


def warm_up() -> None:
    """Solve something small: the first run loads what later ones share."""
    model = Model()
    model.row([model.variable(0, 2), model.variable(0, 2)], [1, 1], 3, None)
    if model.solve(Clock(Budget(), 0)).status is not Status.FOUND:
        raise RuntimeError("the solver does not work")
