"""Very many candidates: what is looked at by parts, against the same looked at as a whole."""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest

from scheduler.actions import evicting, narrowing
from scheduler.placement import MadeRoom, cost_of
from tests.unit.actions.test_making_room import Story
from tests.unit.framework.world import shape

RACK = "example.com/rack"


@dataclass
class Seen:
    """What was decided first, if anything."""

    cost: tuple[int, int, int, int] | None = None
    optimal: bool = False


def full(w: Story, seed: int, *, racked: bool) -> None:
    """Four racks of two nodes with 4 GPUs each, full of gangs of all kinds.

    `mine` wants 2 x 3 GPUs, or with every third seed any two of three members, of which one asks for 4.
    """
    draw = random.Random(seed)
    for number in range(8):
        w.node(f"n{number}", gpu=4, labels={RACK: f"r{number // 2}"})
    slots = [f"n{number}" for number in range(8) for _ in range(4)]
    draw.shuffle(slots)
    if draw.random() < 0.5:
        slots.sort()
    number = 0
    while slots:
        size = min(len(slots), draw.choice([1, 1, 2, 2, 3, 4]))
        mine, slots = slots[:size], slots[size:]
        minimum = draw.choice([size, size, max(1, size - 1), 1])
        priority, since = draw.choice([1, 1, 5]), w.now - draw.choice([10.0, 100.0, 1000.0])
        w.runs(f"g{number}", mine, minimum=minimum, priority=priority, since=max(1.0, since))
        number += 1
    w.asks("mine", 2, gpu=3, priority=50, topology=RACK if racked else "")
    if seed % 3 == 0:
        w.member(w.groups["muster/ns/mine"], 2, shape(gpu=4), priority=50)


def first(monkeypatch: pytest.MonkeyPatch, seed: int, whole: int, *, racked: bool) -> Seen:
    """Return what the first decision of a session costs when more than `whole` pods are looked at by parts."""
    seen, carry_out = Seen(), evicting._carry_out

    def note(session, ask, why, room, answer):  # type: ignore[no-untyped-def]
        assert isinstance(answer, MadeRoom)
        if seen.cost is None:
            seen.cost, seen.optimal = cost_of(room.problem, answer.evicted), answer.optimal
        return carry_out(session, ask, why, room, answer)

    w = Story(check=True)
    w.now = 2000.0
    full(w, seed, racked=racked)
    with monkeypatch.context() as patch:
        patch.setattr(evicting, "_carry_out", note)
        patch.setattr(narrowing, "WHOLE", whole)
        patch.setattr(narrowing, "PART", 6)
        patch.setattr(narrowing, "SLACK", 1)
        w.session()
    assert (seen.cost is None) == (not w.victims)
    return seen


@pytest.mark.parametrize("seed", range(12))
def test_the_cheapest_set_of_all_domains_is_found_by_parts(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    exact = first(monkeypatch, seed, 4000, racked=True)
    parts = first(monkeypatch, seed, 1, racked=True)
    assert exact.optimal
    assert parts.optimal
    assert parts.cost == exact.cost


@pytest.mark.parametrize("seed", range(12))
def test_without_domains_what_is_said_to_be_the_cheapest_is(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    exact = first(monkeypatch, seed, 4000, racked=False)
    parts = first(monkeypatch, seed, 1, racked=False)
    assert exact.optimal
    assert exact.cost is not None
    assert parts.cost is not None
    assert parts.cost >= exact.cost
    assert parts.cost == exact.cost or not parts.optimal


def test_a_part_that_is_not_all_is_not_said_to_be_the_cheapest(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [first(monkeypatch, seed, 1, racked=False) for seed in range(12)]
    assert not all(one.optimal for one in found)
