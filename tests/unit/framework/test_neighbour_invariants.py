"""The invariants see a placement that breaks a rule about other pods."""

from __future__ import annotations

import numpy as np
import pytest

from scheduler.actions.run import new_session
from scheduler.framework.invariants import validate
from scheduler.model.affinity import HostPort, LabelSelector, PodSelector, PodTerm, Requirement
from scheduler.model.pods import Shape
from tests.unit.framework.world import World, shape

TERM = PodTerm(PodSelector(("ns",), None, LabelSelector((Requirement("app", "In", ("w",)),))), "zone")
APART = shape(cpu=1, anti_affinity=(TERM,))


@pytest.mark.parametrize(
    ("there", "comes", "labels", "says"),
    [
        (shape(host_ports=(HostPort(80),)), shape(host_ports=(HostPort(80, ip="10.0.0.1"),)), "x", "shares port 80"),
        (shape(), APART, "w", "keeps away from"),
        (APART, shape(), "w", "keeps it away"),
        (APART, APART, "w", "keeps"),
    ],
)
def test_it_is_told(there: Shape, comes: Shape, labels: str, says: str) -> None:
    w = World().node("a", labels={"zone": "z"}).node("b", labels={"zone": "z"}).node("c", labels={"zone": "y"})
    same_node = bool(comes.host_ports)
    w.running("old", "a", there, labels=(("app", labels),))
    w.pod("new", comes, labels=(("app", labels),))
    for row, expected in ((0 if same_node else 1, True), (2, False)):
        session = new_session(w.take(), w.config, w.sessions.cache, "s-1")
        state = next(iter(session.waiting.values()))
        with session.statement() as statement:
            statement.charge(comes, np.array([row]), np.array([1]))
            statement.place(state, 1, [(state.waiting[0], row)])
            statement.commit()
        found = validate(session)
        assert any(says in text for text in found) is expected, found


def test_two_ports_of_one_pod_are_not_shared() -> None:
    w = World().node("a")
    both = shape(host_ports=(HostPort(80), HostPort(80, ip="10.0.0.1")))
    w.pod("new", both)
    session = new_session(w.take(), w.config, w.sessions.cache, "s-1")
    state = next(iter(session.waiting.values()))
    with session.statement() as statement:
        statement.charge(both, np.array([0]), np.array([1]))
        statement.place(state, 1, [(state.waiting[0], 0)])
        statement.commit()
    assert validate(session) == []
