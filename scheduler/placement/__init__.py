"""Where pods go: one question, one placer. The solver is imported when it is first needed, or by `warm_up`."""

from scheduler.placement.devices import assign
from scheduler.placement.engine import place
from scheduler.placement.moves import MoveBug, MoveProblem, Relocated, Together, verify_moves
from scheduler.placement.problem import (
    NODE,
    SLOTS,
    Apart,
    AtMost,
    AtMostDomains,
    AtMostGroups,
    BadProblem,
    Balanced,
    BestDomain,
    Budget,
    Demand,
    DeviceAsk,
    Devices,
    Explanation,
    Infeasible,
    Minimum,
    NodeView,
    Objective,
    Part,
    Parts,
    Placement,
    PlacementBug,
    PlacementProblem,
    Rule,
    Segments,
    Shortage,
    UnsupportedRule,
    Within,
    dump,
)
from scheduler.placement.relax import explain
from scheduler.placement.relocation import relocate
from scheduler.placement.room import make_room
from scheduler.placement.room_check import verify_room
from scheduler.placement.single_room import SinglePods
from scheduler.placement.verify import verify
from scheduler.placement.victims import (
    AtMostEvicted,
    AtMostTaken,
    Cost,
    MadeRoom,
    MustFree,
    Resident,
    RoomBug,
    RoomRow,
    RunningGang,
    VictimProblem,
    WhileOver,
    cost_of,
)

__all__ = [
    "NODE",
    "SLOTS",
    "Apart",
    "AtMost",
    "AtMostDomains",
    "AtMostEvicted",
    "AtMostGroups",
    "AtMostTaken",
    "BadProblem",
    "Balanced",
    "BestDomain",
    "Budget",
    "Cost",
    "Demand",
    "DeviceAsk",
    "Devices",
    "Explanation",
    "Infeasible",
    "MadeRoom",
    "Minimum",
    "MoveBug",
    "MoveProblem",
    "MustFree",
    "NodeView",
    "Objective",
    "Part",
    "Parts",
    "Placement",
    "PlacementBug",
    "PlacementProblem",
    "Relocated",
    "Resident",
    "RoomBug",
    "RoomRow",
    "Rule",
    "RunningGang",
    "Segments",
    "Shortage",
    "SinglePods",
    "Together",
    "UnsupportedRule",
    "VictimProblem",
    "WhileOver",
    "Within",
    "assign",
    "cost_of",
    "dump",
    "explain",
    "make_room",
    "place",
    "relocate",
    "verify",
    "verify_moves",
    "verify_room",
    "warm_up",
]


def warm_up() -> None:
    """Import the solver and let it solve once, so that the first gang does not wait for it."""
    from scheduler.placement.cpsat import warm_up as solve_once

    solve_once()
