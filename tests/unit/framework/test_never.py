"""What sums say can never start: always true, and all there is to say of gangs of one shape."""

from __future__ import annotations

import random

import pytest

from scheduler.actions.run import new_session
from scheduler.framework.never import never_fits, question_of
from tests.unit.framework.world import World, shape, with_plugins


def gangs(seed: int) -> World:
    """Gangs of one or two shapes, some with a rack, on an empty cluster of a few nodes, some of them without a rack."""
    dice = random.Random(seed)
    w = World(config=with_plugins(["gang", "predicates", "topology"]))
    for number in range(dice.randint(1, 5)):
        labels = {"rack": f"r{dice.randint(0, 1)}"} if number == 0 or dice.random() < 0.7 else {}
        w.node(f"n{number}", gpu=dice.randint(0, 4), cpu=dice.randint(2, 8), labels=labels)
    for number in range(6):
        one, other = (shape(gpu=dice.randint(0, 3), cpu=dice.randint(0, 3)) for _ in range(2))
        count = dice.randint(1, 7)
        minimum = dice.randint(1, count)
        made = w.gang(f"g{number}", minimum, count=count, of=one, topology=dice.choice(["", "rack"]))
        for more in range(dice.choice([0, 0, 2])):
            w.member(made, count + more, other)
    return w


@pytest.mark.parametrize("seed", range(25))
def test_what_never_fits_by_sums_is_refused_for_ever(seed: int) -> None:
    w = gangs(seed)
    session = new_session(w.take(), w.config, w.sessions.cache, "s-1")
    never = {}
    for state in session.waiting.values():
        question = question_of(state)
        assert question is not None
        never[state.group.name] = (never_fits(session, question), len(question[1]))
    for name, (said, shapes) in never.items():
        alone = gangs(seed)
        for key in [key for key in alone.groups if not key.endswith(f"/{name}")]:
            alone.drop_group(key)
            for pod in [pod.name for pod in alone.pods.values() if pod.group == key]:
                alone.drop_pod(pod)
        alone.session()
        found = alone.verdict(name)
        for_ever = found is not None and found.permanent
        assert for_ever or not said, (name, found)
        if shapes == 1:
            assert for_ever == said, (name, found)
