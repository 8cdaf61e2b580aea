"""Who has to go, against trying every set."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, event, given, settings

from scheduler.placement import Infeasible, cost_of, make_room, verify_room
from tests.properties.room_cases import cheapest, fits, rooms, sets

EXAMPLES = int(os.environ.get("MUSTER_EXAMPLES", "100"))
thorough = settings(
    max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much]
)


def agrees(problem):
    """Check an answer against every set of victims."""
    made, best = make_room(problem), cheapest(problem)
    if isinstance(made, Infeasible):
        event("refused")
        assert best is None
        assert made.proven
        return made
    event("nobody goes" if not made.evicted else f"{len(made.evicted)} go")
    assert best is not None
    assert made.optimal
    assert cost_of(problem, made.evicted) == best
    assert frozenset(made.evicted) in {gone for _, gone in sets(problem)}
    assert fits(problem, made.evicted)
    assert verify_room(problem, made, minimal=True) == []
    return made


@given(rooms())
@thorough
def test_the_cheapest_set_is_what_trying_everything_gives(problem):
    agrees(problem)


@given(rooms(member_rules=True))
@thorough
def test_the_cheapest_set_keeps_the_rules_between_pods(problem):
    agrees(problem)


@given(rooms())
@thorough
def test_the_same_question_gets_the_same_answer(problem):
    assert make_room(problem) == make_room(problem)
