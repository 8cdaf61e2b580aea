"""Moving running pods so that something fits: small stories."""

from __future__ import annotations

import numpy as np
import pytest

from scheduler.placement import (
    AtMostEvicted,
    BadProblem,
    Infeasible,
    MoveProblem,
    MustFree,
    Relocated,
    Resident,
    RunningGang,
    Together,
    VictimProblem,
    relocate,
    verify_moves,
)
from tests.unit.placement.cases import nodes, pods, problem


def running(*given):
    """Residents as (node, gpu) or (node, gpu, cpu), each a gang of its own where no gangs are given."""
    return [
        Resident(node, np.array([gpu, *rest, *[0] * (2 - len(rest))], dtype=np.int64), 10, f"pod-{number:02}")
        for number, (node, gpu, *rest) in enumerate(given)
    ]


def ask(view, demands, residents, gangs=None, rows=(), **more):
    gangs = gangs or [RunningGang((number,), 1) for number in range(len(residents))]
    return MoveProblem(VictimProblem(problem(view, demands), tuple(residents), tuple(gangs), tuple(rows)), **more)


def moved(question):
    """Return the moves of an answer that must be the cheapest."""
    answer = relocate(question)
    assert isinstance(answer, Relocated)
    assert verify_moves(question, answer) == []
    assert answer.optimal
    return dict(answer.moves)


def test_half_full_nodes_make_one_whole():
    assert len(moved(ask(nodes([2], [2]), [pods("w", 1, gpu=3)], running((0, 2), (1, 2))))) == 1


def test_what_is_free_in_sum_is_not_enough():
    answer = relocate(ask(nodes([2], [2]), [pods("w", 1, gpu=5)], running((0, 2), (1, 2))))
    assert isinstance(answer, Infeasible)
    assert answer.proven


def test_nobody_who_may_move_means_no():
    answer = relocate(ask(nodes([1], [1]), [pods("w", 1, gpu=2)], []))
    assert isinstance(answer, Infeasible)
    assert answer.proven


def test_the_lower_priority_moves():
    gangs = [RunningGang((0,), 1, priority=100), RunningGang((1,), 1, priority=50)]
    assert set(moved(ask(nodes([2], [2]), [pods("w", 1, gpu=3)], running((0, 2), (1, 2)), gangs))) == {1}


def test_full_nodes_are_not_touched():
    residents = running((0, 4), (1, 2), (2, 2), (3, 4))
    moves = moved(ask(nodes([0], [2], [2], [0]), [pods("w", 1, gpu=3)], residents))
    assert moves in ({1: 2}, {2: 1})


def test_a_queue_at_its_quota_loses_nothing():
    residents = running((0, 2), (1, 1))
    assert moved(ask(nodes([1], [1]), [pods("w", 1, gpu=2)], residents)) == {1: 0}


def test_surplus_moves_alone():
    residents = running((0, 1), (0, 1))
    question = ask(nodes([0], [1]), [pods("w", 1, gpu=1, on=[0], size=2)], residents, [RunningGang((0, 1), 1)])
    assert list(moved(question).values()) == [1]


def test_a_gang_without_surplus_moves_whole_or_not():
    residents = running((0, 1), (0, 1))
    gang = [RunningGang((0, 1), 2)]
    assert moved(ask(nodes([0], [2]), [pods("w", 1, gpu=2, on=[0], size=2)], residents, gang)) == {0: 1, 1: 1}
    fixed = [RunningGang((0, 1), 3, fixed=1)]
    answer = relocate(ask(nodes([0], [2]), [pods("w", 1, gpu=2, on=[0], size=2)], residents, fixed))
    assert isinstance(answer, Infeasible)
    assert answer.proven


def test_seventeen_move_for_one():
    residents = running(*[(0, 1)] * 17)
    moves = moved(ask(nodes([0], [17]), [pods("w", 1, gpu=17, on=[0], size=2)], residents))
    assert moves == dict.fromkeys(range(17), 1)


def test_cores_are_made_free_too():
    residents = running((0, 0, 500), (1, 0, 500))
    view = nodes([0, 500], [0, 500])
    assert len(moved(ask(view, [pods("w", 1, cpu=1000)], residents))) == 1


def test_who_comes_takes_what_another_leaves():
    residents = running((0, 3), (1, 1), (1, 1))
    moves = moved(ask(nodes([1], [2], [1]), [pods("w", 1, gpu=4, on=[0], size=3)], residents))
    assert moves[0] == 1
    assert len(moves) == 2


def test_a_budget_holds():
    rows = [AtMostEvicted((0, 1), 0)]
    answer = relocate(ask(nodes([2], [2]), [pods("w", 1, gpu=3)], running((0, 2), (1, 2)), rows=rows))
    assert isinstance(answer, Infeasible)
    assert answer.proven


def test_a_gang_stays_in_one_rack():
    residents = running((0, 1), (0, 1))
    view = nodes([0], [1], [1], [2], rack=["a", "a", "b", "b"])
    demand = [pods("w", 1, gpu=2, on=[0], size=4)]
    together = (Together(0, "rack"),)
    moves = moved(ask(view, demand, residents, [RunningGang((0, 1), 2)], together=together))
    assert set(moves.values()) <= {2, 3}
    narrow = np.array([False, True, True, False])
    answer = relocate(ask(view, demand, residents, [RunningGang((0, 1), 2)], masks=(narrow,), together=together))
    assert isinstance(answer, Infeasible)


def test_a_mask_holds():
    view, demand, residents = nodes([0], [1], [1]), [pods("w", 1, gpu=1, on=[0], size=3)], running((0, 1))
    assert moved(ask(view, demand, residents, masks=(np.array([True, False, True]),))) == {0: 2}


def test_what_means_nothing_is_refused():
    view, demand, residents = nodes([2], [2]), [pods("w", 1, gpu=3)], running((0, 2), (1, 2))
    with pytest.raises(BadProblem, match="row 0"):
        relocate(ask(view, demand, residents, rows=[MustFree(((0, 1),), 1)]))
    with pytest.raises(BadProblem, match="kinds"):
        relocate(ask(view, demand, residents, kinds=(0,)))
    with pytest.raises(BadProblem, match=r"together 0\.level"):
        relocate(ask(view, demand, residents, together=(Together(0, "rack"),)))


def test_a_wrong_answer_is_seen():
    view, demand, residents = nodes([2], [2]), [pods("w", 1, gpu=3)], running((0, 2), (1, 2))
    question = ask(view, demand, residents)
    answer = relocate(question)
    assert isinstance(answer, Relocated)
    ((resident, node),) = answer.moves
    assert verify_moves(question, Relocated(answer.placement, (), True))
    assert verify_moves(question, Relocated(answer.placement, ((resident, 1 - node),), True))
