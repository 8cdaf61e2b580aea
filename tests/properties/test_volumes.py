"""Gangs with local volumes against brute force: nothing that cannot be, and nothing missed."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.cluster import feed
from scheduler.framework.claims import pair
from scheduler.model.volumes import NodeDrivers, reaches
from tests.unit.plugins.test_volumes import FAST, ZONE, Storeroom, at, on

SIZES = st.sampled_from((5, 15, 25))


def can_pair(choices: list[list[int]], must: list[bool]) -> bool:
    needy = [listed for listed, needed in zip(choices, must, strict=True) if needed]
    return any(len(set(some)) == len(some) for some in product(*needy))


@given(
    st.lists(st.tuples(st.lists(st.integers(0, 4), unique=True, max_size=4), st.booleans()), max_size=5),
)
@settings(max_examples=300, deadline=None)
def test_claims_are_paired_with_volumes_exactly_when_they_can_be(claims: list[tuple[list[int], bool]]) -> None:
    choices, must = [listed for listed, _ in claims], [needed for _, needed in claims]
    found = pair(choices, must)
    assert (found is not None) == can_pair(choices, must)
    if found is not None:
        given_away = [volume for volume in found if volume >= 0]
        assert len(set(given_away)) == len(given_away)
        for listed, needed, volume in zip(choices, must, found, strict=True):
            assert volume in listed or (volume == -1 and not needed)


def can_start(members: list[list[int]], volumes: list[tuple[int, tuple[str, ...]]]) -> bool:
    """Whether members (sizes of their claims) find distinct volumes (size, nodes) on nodes of their choice."""
    for nodes in product(("n0", "n1"), repeat=len(members)):
        choices = [
            [number for number, (size, reach) in enumerate(volumes) if size >= claim and node in reach]
            for node, claims in zip(nodes, members, strict=True)
            for claim in claims
        ]
        if can_pair(choices, [True] * len(choices)):
            return True
    return False


REACH = {
    "of one node": st.sampled_from((("n0",), ("n1",))),
    "of both nodes": st.just(("n0", "n1")),
}


@given(
    st.sampled_from(sorted(REACH)).flatmap(
        lambda kind: st.lists(st.tuples(SIZES, REACH[kind]), max_size=5),
    ),
    st.lists(st.lists(SIZES, min_size=1, max_size=2), min_size=1, max_size=3),
)
@settings(max_examples=120, deadline=None)
def test_a_gang_starts_exactly_when_its_members_find_distinct_volumes(
    volumes: list[tuple[int, tuple[str, ...]]], members: list[list[int]]
) -> None:
    world = _play(volumes, members)
    assert bool(world.placed) == can_start(members, volumes)


@given(
    st.lists(st.tuples(SIZES, st.sampled_from((("n0",), ("n1",), ("n0", "n1")))), max_size=5),
    st.lists(st.lists(SIZES, min_size=1, max_size=2), min_size=1, max_size=3),
)
@settings(max_examples=80, deadline=None)
def test_where_reaches_overlap_nothing_starts_that_cannot(
    volumes: list[tuple[int, tuple[str, ...]]], members: list[list[int]]
) -> None:
    world = _play(volumes, members)
    if world.placed:
        assert can_start(members, volumes)
    elif len(members) == 1 and len(members[0]) == 1:
        assert not can_start(members, volumes)


def _play(volumes: list[tuple[int, tuple[str, ...]]], members: list[list[int]]) -> Storeroom:
    """Run a session; what it gives away must be distinct, large enough and reached."""
    world = Storeroom(2)
    made = {
        f"v{number}": world.volume(f"v{number}", size, terms=at(*reach)) for number, (size, reach) in enumerate(volumes)
    }
    sizes: dict[str, int] = {}
    names: dict[int, tuple[str, ...]] = {}
    for member, claims in enumerate(members):
        names[member] = tuple(f"c{member}-{number}" for number in range(len(claims)))
        for name, size in zip(names[member], claims, strict=True):
            sizes[name] = size
            world.claim(name, size=size)
    world.gang_with("g", names)
    world.session()
    for place in world.places:
        node_of = {one.uid: one.node for one in place.assignments}
        assert len(place.steps) == len(sizes)
        assert len({step.volume for step in place.steps}) == len(sizes)
        for step in place.steps:
            assert made[step.volume].size >= sizes[step.claim]
            assert reaches(made[step.volume], {"kubernetes.io/hostname": node_of[step.uid]})
    return world


# -- a claim that members share --------------------------------------------------------------------------------------


def fit(groups: list[tuple[str, ...]], room: dict[str, int], members: int) -> bool:
    """Whether so many members of one cpu fit on the nodes of one of the groups."""
    return any(sum(room[node] for node in nodes) >= members for nodes in groups)


def _shared(world: Storeroom, room: dict[str, int], members: int) -> None:
    for node, cpus in room.items():
        world.node(node, cpu=cpus, labels={ZONE: node[0]})
    world.gang_with("g", dict.fromkeys(range(members), ("data",)))
    world.session()


ROOM = st.fixed_dictionaries({name: st.integers(1, 3) for name in ("a0", "a1", "b0", "b1", "c0")})


@given(ROOM, st.integers(2, 6), st.sets(st.sampled_from("abc"), min_size=1), st.booleans())
@settings(max_examples=80, deadline=None)
def test_members_that_share_a_claim_start_exactly_when_the_zone_of_a_new_volume_takes_them(
    room: dict[str, int], members: int, allowed: set[str], only: bool
) -> None:
    world = Storeroom(0)
    if only:
        world.tell(feed.StorageClassSet(replace(FAST, topologies=on(ZONE, *sorted(allowed)))))
    for node in room:
        keys = (("csi.example.com", (ZONE,)),)
        world.tell(feed.NodeDriversSet(NodeDrivers(f"d-{node}", node, (("csi.example.com", -1),), keys)))
    world.claim("data", "fast")
    _shared(world, room, members)
    zones = [tuple(node for node in room if node[0] == zone) for zone in ("abc" if not only else sorted(allowed))]
    assert bool(world.placed) == fit(zones, room, members)
    assert len({node[0] for node in world.placed.values()}) <= 1


@given(ROOM, st.integers(2, 6), st.lists(st.sampled_from((("a0",), ("a1",), ("b0", "b1"), ("c0",))), max_size=3))
@settings(max_examples=80, deadline=None)
def test_members_that_share_a_claim_start_exactly_when_one_volume_reaches_room_for_all(
    room: dict[str, int], members: int, volumes: list[tuple[str, ...]]
) -> None:
    world = Storeroom(0)
    for number, reach in enumerate(volumes):
        world.volume(f"v{number}", 10 + number, terms=at(*reach))
    world.claim("data")
    _shared(world, room, members)
    assert bool(world.placed) == fit(volumes, room, members)
    if world.placed:
        assert set(world.placed.values()) <= set(volumes[int(world.steps["data"][1:])])


@given(
    ROOM, st.integers(2, 4), st.lists(st.sets(st.sampled_from(("a0", "a1", "b0", "b1", "c0")), min_size=1), max_size=3),
    st.integers(0, 2),
)  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_members_that_share_a_claim_never_start_where_its_volume_cannot_be_reached(
    room: dict[str, int], members: int, reaches_of: list[set[str]], others: int
) -> None:
    world = Storeroom(0)
    for number, reach in enumerate(reaches_of):
        world.volume(f"v{number}", 10 + number, terms=at(*sorted(reach)))
    for node, cpus in room.items():
        world.node(node, cpu=cpus)
    names = dict.fromkeys(range(members), ("data",)) | {
        members + number: (f"own-{number}",) for number in range(others)
    }
    for name in ("data", *(f"own-{number}" for number in range(others))):
        world.claim(name)
    world.gang_with("g", names)
    world.session()
    given_away = world.steps
    assert len(set(given_away.values())) == len(given_away)
    for number, listed in names.items():
        if world.placed:
            assert world.placed[f"g-{number}"] in reaches_of[int(given_away[listed[0]][1:])]
    if len(reaches_of) == 1 and not others:
        assert bool(world.placed) == fit([tuple(reaches_of[0])], room, members)


@given(ROOM, st.lists(st.sets(st.sampled_from(("x", "y", "z")), max_size=2), min_size=2, max_size=4))
@settings(max_examples=60, deadline=None)
def test_members_of_several_shared_claims_start_exactly_when_zones_can_be_chosen_for_all(
    room: dict[str, int], members: list[set[str]]
) -> None:
    world = Storeroom(0)
    for node, cpus in room.items():
        keys = (("csi.example.com", (ZONE,)),)
        world.node(node, cpu=cpus, labels={ZONE: node[0]})
        world.tell(feed.NodeDriversSet(NodeDrivers(f"d-{node}", node, (("csi.example.com", -1),), keys)))
    for name in ("x", "y", "z"):
        world.claim(name, "fast")
    world.gang_with("g", {number: tuple(sorted(names)) for number, names in enumerate(members)})
    world.session()
    space = {zone: sum(cpus for node, cpus in room.items() if node[0] == zone) for zone in "abc"}

    def agree(zones: tuple[str, ...]) -> bool:
        together = [{zones[i] for i, names in enumerate(members) if name in names} for name in ("x", "y", "z")]
        return all(len(some) <= 1 for some in together) and all(zones.count(zone) <= space[zone] for zone in "abc")

    assert bool(world.placed) == any(map(agree, product("abc", repeat=len(members))))
    if world.placed:
        assert agree(tuple(world.placed[f"g-{number}"][0] for number in range(len(members))))
