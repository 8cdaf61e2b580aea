from __future__ import annotations

import random
from dataclasses import replace

import numpy as np

from scheduler.framework.claims import Reach
from scheduler.framework.shelves import Shelf, Shelves
from scheduler.model.affinity import Requirement
from scheduler.model.pods import SelectorTerm
from scheduler.model.snapshot import NodeTable
from scheduler.model.volumes import Claim, Storage, Volume, by_size, reaches, serves
from tests.unit.framework.world import World

ZONE = "zone"


def table(zones: str) -> NodeTable:
    world = World()
    for number, zone in enumerate(zones):
        world.node(f"n{number}", labels={ZONE: zone, "name": f"n{number}"})
    return world.take().table


def on(key: str, *values: str) -> tuple[SelectorTerm, ...]:
    return (SelectorTerm((Requirement(key, "In", values),)),)


def volume(name: str, size: int, terms: tuple[SelectorTerm, ...] | None) -> Volume:
    return Volume(f"uid-{name}", name, "local", size, ("ReadWriteOnce",), available=True, terms=terms)


def claim(size: int) -> Claim:
    return Claim("uid-c", "ns", "c", "local", size=size, modes=("ReadWriteOnce",))


def reach_of(nodes: NodeTable) -> Reach:
    reach = Reach()
    reach.refresh(nodes)
    return reach


def random_volumes(rng: random.Random) -> tuple[Volume, ...]:
    places = (None, on(ZONE, "a"), on(ZONE, "b"), on(ZONE, "a", "b"), on("name", "n1"), on("name", "gone"), ())
    return by_size(volume(f"v{number}", rng.randrange(4), rng.choice(places)) for number in range(rng.randrange(8)))


def test_what_serves_and_what_is_reached_is_what_asking_each_volume_gives() -> None:
    rng = random.Random(7)
    nodes = table("aab")
    labels = [dict(nodes.nodes[name].labels) for name in nodes.names]
    for _ in range(200):
        volumes = random_volumes(rng)
        shelf = Shelf.of(volumes, reach_of(nodes))
        wanted = claim(rng.randrange(4))
        taken = {one.name for one in volumes if rng.random() < 0.3} | {"no such volume"}
        mask = shelf.serving(wanted) & shelf.without(taken)
        expected = [one for one in volumes if serves(one, wanted) and one.name not in taken]
        assert shelf.named(mask) == expected
        rows, cells = shelf.reaching(mask)
        assert set(rows.tolist()) == {
            row for row, marks in enumerate(labels) if any(reaches(one, marks) for one in expected)
        }
        for number, one in enumerate(volumes):
            mine = [row for row, marks in enumerate(labels) if reaches(one, marks)]
            assert shelf.only[number] == (mine[0] if len(mine) == 1 else -1)
            if mask[number] and mine:
                assert rows[cells == shelf.cell[number]].tolist() == mine
            assert (shelf.cell[number] >= 0) == bool(mine)


def test_a_shelf_is_kept_until_its_volumes_or_the_nodes_change() -> None:
    reach = reach_of(table("ab"))
    shelves = Shelves(reach)
    storage = Storage(offered={"local": (volume("v", 1, on(ZONE, "a")),)})
    first = shelves.of(storage, "local")
    assert shelves.of(storage, "local") is first
    assert shelves.of(replace(storage, generation=1), "local") is first
    assert first.rows.tolist() == [0]
    reach.refresh(table("ba"))
    assert shelves.of(storage, "local").rows.tolist() == [1]
    more = Storage(offered={"local": (*storage.offered["local"], volume("w", 2, None))})
    assert len(shelves.of(more, "local").volumes) == 2
    assert shelves.of(more, "none of this class").volumes == ()


def test_a_shelf_without_volumes_answers_with_nothing() -> None:
    shelf = Shelf.of((), reach_of(table("a")))
    mask = shelf.serving(claim(1)) & shelf.without(["x"])
    assert not mask.size
    assert not shelf.reaching(mask)[0].size
    assert np.array_equal(shelf.named(mask), [])
