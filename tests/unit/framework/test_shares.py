"""What is told of a queue's shares."""

from __future__ import annotations

from scheduler.framework.shares import standings
from tests.unit.framework.world import GPU, World, shape


def test_the_root_borrows_nothing_of_the_cluster_that_it_deserves():
    world = World()
    world.node("n0", gpu=4).queue("a").queue("b", deserved=((GPU, 1),))
    for number in range(3):
        world.running(f"a-{number}", "n0", shape(gpu=1), queue="a")
    found = {
        one.name: (share.deserved, share.used, share.borrowed)
        for one in standings(world.session().session)
        for share in one.shares
        if share.resource == GPU
    }
    assert found == {"root": (4, 3, 0), "a": (0, 3, 3), "b": (1, 0, 0), "default": (0, 0, 0)}
