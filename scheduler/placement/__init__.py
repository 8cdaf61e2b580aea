"""Where pods go: `place(problem)` is the only placement algorithm of the house, and `verify` its specification.

OR-Tools is imported when it is first needed; `warm_up` does it ahead of time.
"""

from __future__ import annotations

from scheduler.placement.problem import (
    NODE,
    Apart,
    AtMost,
    BadProblem,
    Budget,
    Demand,
    Exclusive,
    Infeasible,
    Minimum,
    NodeView,
    Placement,
    PlacementBug,
    PlacementProblem,
    Within,
)
from scheduler.placement.search import place
from scheduler.placement.verify import verify

__all__ = [
    "NODE",
    "Apart",
    "AtMost",
    "BadProblem",
    "Budget",
    "Demand",
    "Exclusive",
    "Infeasible",
    "Minimum",
    "NodeView",
    "Placement",
    "PlacementBug",
    "PlacementProblem",
    "Within",
    "place",
    "verify",
    "warm_up",
]


def warm_up() -> None:
    """Import the solver now rather than at the first search that needs it."""
    from ortools.sat.python import cp_model

    cp_model.CpModel()
