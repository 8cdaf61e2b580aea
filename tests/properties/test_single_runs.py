"""Single pods that are alike are placed together: no fewer than one by one, and by the same rules."""

from __future__ import annotations

import random

import pytest

from scheduler.actions.run import Sessions
from scheduler.model.affinity import (
    HostPort,
    LabelSelector,
    PodSelector,
    PodTerm,
    Requirement,
    SpreadTerm,
)
from scheduler.model.nodes import HOSTNAME
from scheduler.model.pods import Shape
from tests.unit.framework.world import World, shape

APPS = ("a", "b")
KEYS = (HOSTNAME, "zone", "rack")


def term(rng: random.Random) -> PodTerm:
    selector = PodSelector(("ns",), None, LabelSelector((Requirement("app", "In", (rng.choice(APPS),)),)))
    return PodTerm(selector, rng.choice(KEYS))


def asking(rng: random.Random) -> Shape:
    fields: dict[str, object] = {}
    if rng.random() < 0.4:
        fields["anti_affinity"] = (term(rng),)
    if rng.random() < 0.4:
        fields["affinity"] = (term(rng),)
    if rng.random() < 0.4:
        one = term(rng)
        selector = PodSelector(one.selector.namespaces, None, one.selector.labels, living=True)
        fields["spread"] = (SpreadTerm(selector, one.key, rng.randint(1, 2), rng.randint(1, 2)),)
    if rng.random() < 0.2:
        fields["host_ports"] = (HostPort(rng.randint(1, 2)),)
    return shape(cpu=rng.randint(1, 3), **fields)


def cluster(seed: int) -> tuple[World, random.Random]:
    rng = random.Random(seed)
    w = World()
    w.sessions = Sessions(w.config, w.registry, check=True)
    names = [f"n{number}" for number in range(rng.randint(2, 5))]
    for name in names:
        labels = {key: rng.choice("xy") for key in ("zone", "rack") if rng.random() < 0.8}
        w.node(name, cpu=rng.randint(2, 8), labels=labels, slots=rng.randint(2, 8))
    for number in range(rng.randint(0, 3)):
        w.running(f"old{number}", rng.choice(names), asking(rng), labels=(("app", rng.choice(APPS)),))
    return w, rng


def ask(w: World, rng: random.Random, count: int, *, one_by_one: bool) -> int:
    of, labels = asking(rng), (("app", rng.choice(APPS)),)
    placed = 0
    for number in range(count):
        w.pod(f"p{number}", of, labels=labels, created=1000.0 + number)
        if one_by_one:
            w.session()
            placed += len(w.placed)
            w.carry_out()
    if not one_by_one:
        w.session()
        placed = len(w.placed)
    return placed


@pytest.mark.parametrize("seed", range(120))
def test_a_run_places_no_fewer_than_one_by_one(seed: int) -> None:
    w, rng = cluster(seed)
    count = rng.randint(2, 7)
    state = rng.getstate()
    together = ask(w, rng, count, one_by_one=False)
    again, rng = cluster(seed)
    rng.setstate(state)
    assert together >= ask(again, rng, count, one_by_one=True)


def test_some_are_placed_and_some_are_not() -> None:
    found = set()
    for seed in range(40):
        w, rng = cluster(seed)
        count = rng.randint(2, 7)
        placed = ask(w, rng, count, one_by_one=False)
        found.add("none" if not placed else "all" if placed == count else "part")
    assert found == {"none", "all", "part"}
