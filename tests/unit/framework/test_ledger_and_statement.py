from __future__ import annotations

import numpy as np
import pytest

from scheduler.framework.cache import SessionCache
from scheduler.framework.hooks import Hooks
from scheduler.framework.ledger import Ledger, Overcommitted
from scheduler.framework.registry import Configured
from scheduler.framework.session import Session
from scheduler.framework.statement import NotYours
from tests.unit.framework.world import GPU, World, shape


def rows(*numbers: int) -> np.ndarray:
    return np.array(numbers, dtype=np.intp)


def counts(*numbers: int) -> np.ndarray:
    return np.array(numbers, dtype=np.int64)


def session_of(world: World, *plugins: object) -> Session:
    hooks = Hooks([[Configured(plugin) for plugin in plugins]])  # type: ignore[arg-type]
    return Session(world.take(), SessionCache(hooks), session_id="s-1")


def free_gpus(session: Session) -> list[int]:
    return session.free[session.table.resources.index(GPU)].tolist()


def test_a_charge_takes_resources_and_slots_and_its_undo_gives_them_back() -> None:
    table = World().nodes(2, gpu=4, slots=3).take().table
    ledger = Ledger(table, token=7)
    request = np.array([1 if name == GPU else 0 for name in table.resources], dtype=np.int64)
    undo = ledger.charge(request, rows(0, 1), counts(2, 1))
    gpus = table.resources.index(GPU)
    assert ledger.free[gpus].tolist() == [2, 3]
    assert ledger.open_slots.tolist() == [1, 2]
    assert ledger.token != 7
    undo()
    assert ledger.free[gpus].tolist() == [4, 4]
    assert ledger.open_slots.tolist() == [3, 3]
    assert ledger.token == 7


def test_equal_charges_give_equal_tokens_and_different_ones_do_not() -> None:
    table = World().nodes(2, gpu=4).take().table
    request = np.ones(len(table.resources), dtype=np.int64)
    one, two, other = Ledger(table, 1), Ledger(table, 1), Ledger(table, 1)
    one.charge(request, rows(0), counts(1))
    two.charge(request, rows(0), counts(1))
    other.charge(request, rows(1), counts(1))
    assert one.token == two.token != other.token


def test_what_is_charged_while_more_is_shown_is_not_forgotten() -> None:
    table = World().nodes(2, gpu=4).take().table
    ledger = Ledger(table, token=7)
    request = np.array([1 if name == GPU else 0 for name in table.resources], dtype=np.int64)
    undo = ledger.adjust(rows(0), np.ones((len(table.resources), 1), dtype=np.int64), counts(1))
    undo()
    assert ledger.token == 7
    undo = ledger.adjust(rows(0), np.ones((len(table.resources), 1), dtype=np.int64), counts(1))
    ledger.charge(request, rows(0), counts(5))
    undo()
    assert ledger.free[table.resources.index(GPU)].tolist() == [-1, 4]
    assert ledger.token != 7


@pytest.mark.parametrize(("gpu", "slots"), [(1, 110), (4, 1)], ids=["too few gpus", "too few slots"])
def test_a_charge_that_a_node_cannot_carry_is_refused_and_changes_nothing(gpu: int, slots: int) -> None:
    table = World().node("a", gpu=gpu, slots=slots).take().table
    ledger = Ledger(table)
    request = np.array([1 if name == GPU else 0 for name in table.resources], dtype=np.int64)
    with pytest.raises(Overcommitted, match="node a "):
        ledger.charge(request, rows(0), counts(2))
    assert np.array_equal(ledger.free, table.allocatable)
    assert ledger.open_slots.tolist() == [slots]


def test_a_pod_that_asks_for_nothing_fits_a_node_that_is_over_its_allocatable() -> None:
    world = World().node("a", cpu=1)
    world.running("big", "a", shape(cpu=2))
    ledger = Ledger(world.take().table)
    assert (ledger.free < 0).any()
    ledger.charge(np.zeros(ledger.free.shape[0], dtype=np.int64), rows(0), counts(1))
    assert ledger.open_slots.tolist() == [108]


def test_amounts_cannot_be_written_past_the_ledger() -> None:
    ledger = Ledger(World().nodes(1, gpu=1).take().table)
    with pytest.raises(ValueError, match="read-only"):
        ledger.free[0, 0] = 9


class Sums:
    name = "sums"

    def __init__(self) -> None:
        self.gpus = 0

    def on_allocate(self, state: object, amounts: tuple[tuple[str, int], ...], *, undone: bool) -> None:
        self.gpus += dict(amounts)[GPU] * (-1 if undone else 1)


def test_leaving_a_statement_without_commit_leaves_no_trace() -> None:
    world = World().nodes(2, gpu=2)
    world.gang("g", 2)
    sums = Sums()
    session = session_of(world, sums)
    state = session.snapshot.groups["muster/ns/g"]
    token = session.ledger.token
    with session.statement() as statement:
        statement.charge(shape(gpu=1), rows(0), counts(2))
        statement.place(state, 2, [(pod, 0) for pod in state.waiting])
        assert free_gpus(session) == [0, 2]
        assert sums.gpus == 2
    assert free_gpus(session) == [2, 2]
    assert session.ledger.token == token
    assert (session.placed, session.places, sums.gpus) == ({}, [], 0)


def test_an_exception_inside_a_statement_undoes_it() -> None:
    world = World().nodes(1, gpu=2)
    world.gang("g", 1)
    session = session_of(world)
    with pytest.raises(Overcommitted), session.statement() as statement:
        statement.charge(shape(gpu=1), rows(0), counts(2))
        statement.charge(shape(gpu=1), rows(0), counts(1))
    assert free_gpus(session) == [2]


def test_a_committed_statement_becomes_one_decision_and_cannot_be_closed_twice() -> None:
    world = World().nodes(1, gpu=2)
    world.gang("g", 2)
    session = session_of(world)
    state = session.snapshot.groups["muster/ns/g"]
    with session.statement() as statement:
        statement.charge(shape(gpu=1), rows(0), counts(2))
        statement.place(state, 2, [(pod, 0) for pod in state.waiting])
        statement.commit()
        with pytest.raises(RuntimeError, match="already closed"):
            statement.discard()
    assert [(place.name, place.minimum, len(place.assignments)) for place in session.places] == [("g", 2, 2)]
    assert session.remaining(state) == ()


def test_a_pod_is_placed_once_and_only_while_it_waits() -> None:
    world = World().nodes(1, gpu=4)
    world.gang("g", 1)
    world.gang("other", 1)
    session = session_of(world)
    state, other = (session.snapshot.groups[f"muster/ns/{name}"] for name in ("g", "other"))
    with session.statement() as statement:
        statement.place(state, 1, [(state.waiting[0], 0)])
        with pytest.raises(NotYours, match="g-0"):
            statement.place(state, 1, [(state.waiting[0], 0)])
        with pytest.raises(NotYours, match="other-0"):
            statement.place(state, 1, [(other.waiting[0], 0)])
