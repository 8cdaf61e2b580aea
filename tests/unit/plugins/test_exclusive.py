"""Who holds which domain for itself, as placements are made and taken back."""

from __future__ import annotations

from plugins.exclusive import Claims
from scheduler.actions.run import new_session
from scheduler.model.wishes import TopologyWish
from tests.unit.framework.world import World

RACK = TopologyWish(required="rack", exclusive="rack")


def test_a_domain_is_held_by_members_that_run_and_by_placements_until_they_are_taken_back() -> None:
    world = World()
    for number in range(2):
        world.node(f"n{number}", gpu=4, labels={"rack": f"r{number}"})
    world.node("none", gpu=4)
    for name in ("a", "b"):
        world.member(world.group(name, 1, topology=RACK), 0)
    world.flush()
    snapshot = world.take()
    view = new_session(snapshot, world.config, world.sessions.cache, "s")
    states = {state.group.name: state for state in snapshot.groups.values()}
    claims = Claims(snapshot.groups, (), view)
    pod, rows = states["a"].waiting[0], {name: row for row, name in enumerate(snapshot.table.names)}
    assert claims.beside("rack", states["b"]) == ((), ())
    claims.placed(pod, rows["n1"], view, undone=False)
    held = int(view.domains("rack")[0][rows["n1"]])
    assert claims.beside("rack", states["b"]) == ((held,), (frozenset({pod.uid}),))
    assert claims.beside("rack", states["a"]) == ((), ())
    claims.placed(pod, rows["n1"], view, undone=True)
    assert claims.beside("rack", states["b"]) == ((), ())
    for undone in (False, True):  # a node without the label is in no domain
        claims.placed(pod, rows["none"], view, undone=undone)
        assert claims.beside("rack", states["b"]) == ((), ())
