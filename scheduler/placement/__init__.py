"""Where pods go: one question, one placer. The solver is imported when it is first needed, or by `warm_up`."""

from scheduler.placement.engine import place
from scheduler.placement.problem import (
    NODE,
    SLOTS,
    Apart,
    AtMost,
    BadProblem,
    BestDomain,
    Budget,
    Demand,
    Explanation,
    Infeasible,
    Minimum,
    NodeView,
    Objective,
    Placement,
    PlacementBug,
    PlacementProblem,
    Rule,
    Shortage,
    UnsupportedRule,
    Within,
    dump,
)
from scheduler.placement.relax import explain
from scheduler.placement.verify import verify

__all__ = [
    "NODE",
    "SLOTS",
    "Apart",
    "AtMost",
    "BadProblem",
    "BestDomain",
    "Budget",
    "Demand",
    "Explanation",
    "Infeasible",
    "Minimum",
    "NodeView",
    "Objective",
    "Placement",
    "PlacementBug",
    "PlacementProblem",
    "Rule",
    "Shortage",
    "UnsupportedRule",
    "Within",
    "dump",
    "explain",
    "place",
    "verify",
    "warm_up",
]


def warm_up() -> None:
    """Import the solver and let it solve once, so that the first gang does not wait for it."""
    from scheduler.placement.cpsat import warm_up as solve_once

    solve_once()
