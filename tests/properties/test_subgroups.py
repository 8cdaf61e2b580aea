"""Sub-groups: the cheapest choice against trying every choice, and the life of a gang in racks under random losses."""

from __future__ import annotations

from itertools import combinations, product

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scheduler.framework.subgroups import first_missing, lacking_of
from scheduler.model.groups import PodGroup, SubGroup
from scheduler.model.parts import Part, Tree, choose, tree_of
from scheduler.model.wishes import TopologyWish
from tests.unit.framework.world import World, shape, with_plugins

quick = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def _part(path: str, minimum: int, placed: int, waiting: int) -> Part:
    pods = tuple(range(waiting))
    return Part(path, minimum=minimum, placed=placed, waiting=pods)  # type: ignore[arg-type]


parts = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=5)


@quick
@given(parts, st.integers(0, 6))
def test_the_choice_of_parts_is_the_cheapest_there_is(drawn: list[tuple[int, int, int]], least: int) -> None:
    made = [_part(str(number), *one) for number, one in enumerate(drawn)]
    chosen = choose(made, least)
    open_ = [part for part in made if not part.met and part.lack is not None]
    begun = {part.path for part in open_ if part.started}
    met = sum(part.met for part in made)
    costs = [
        sum(part.lack or 0 for part in some)
        for size in range(len(open_) + 1)
        for some in combinations(open_, size)
        if met + size >= least and begun <= {part.path for part in some}
    ]
    if not costs:
        assert chosen is None
    else:
        assert chosen is not None
        assert sum(part.lack or 0 for part in chosen) == min(costs)
        assert begun <= {part.path for part in chosen}


def trees(depth: int) -> st.SearchStrategy[Part]:
    """Parts of which some need more than there are."""
    leaf = st.builds(_part, st.sampled_from("abc"), st.integers(0, 3), st.integers(0, 3), st.integers(0, 3))
    if not depth:
        return leaf
    below = st.lists(trees(depth - 1), max_size=3).map(tuple)
    inner = st.builds(lambda least, parts: Part("x", least=least, parts=parts), st.integers(0, 4), below)
    return leaf | inner


@quick
@given(st.lists(trees(2), max_size=4).map(tuple), st.integers(0, 5))
def test_what_is_missing_is_told_exactly_where_the_minimum_cannot_be_complete(
    parts: tuple[Part, ...], least: int
) -> None:
    tree = Tree(parts, least)
    missing = first_missing(tree)
    assert (missing is None) == (tree.chosen() is not None)
    if missing is not None:
        _, there, needed, _ = missing
        assert there < needed
    asked = lacking_of(tree)
    chosen = tree.chosen()
    if chosen is not None:
        assert asked.size == sum(part.lack or 0 for part in chosen)


@st.composite
def stories(draw: st.DrawFn) -> tuple[list[tuple[int, int]], int, list[int], list[list[int]]]:
    """Parts (minimum, members), how many start, GPUs of racks, and which pods are lost before each session."""
    shards = draw(st.lists(st.tuples(st.integers(1, 3), st.integers(0, 4)), min_size=1, max_size=4))
    racks = draw(st.lists(st.integers(1, 5), min_size=1, max_size=4))
    losses = draw(st.lists(st.lists(st.integers(0, 15), max_size=3), min_size=1, max_size=4))
    return shards, draw(st.integers(0, len(shards))), racks, losses


@quick
@given(stories())
def test_parts_are_whole_in_their_rack_whatever_is_lost(
    story: tuple[list[tuple[int, int]], int, list[int], list[list[int]]],
) -> None:
    shards, least, racks, losses = story
    w = World(config=with_plugins(["gang", "predicates", "topology"]), check=True)
    for number, gpus in enumerate(racks):
        w.node(f"r{number}", gpu=gpus, labels={"rack": f"r{number}"})
    rack = TopologyWish(required="rack")
    made = tuple(SubGroup(f"s{number}", minimum, topology=rack) for number, (minimum, _) in enumerate(shards))
    group = w.group("g", 1, subgroups=made, min_subgroups=least)
    for number, (_, count) in enumerate(shards):
        for index in range(count):
            w.pod(f"s{number}-{index}-0", shape(gpu=1), group=group.key, role=f"s{number}", index=index)
    for lost in ([], *losses):
        _lose(w, group, lost)
        w.session(later=1)
        _check(w, group, least)
        w.carry_out()
    w.session(later=1)
    _check(w, group, least)


def _lose(w: World, group: PodGroup, numbers: list[int]) -> None:
    """The pods of these numbers are lost, and made again under another name."""
    for number in numbers:
        names = sorted(pod.name for pod in w.pods.values() if pod.node)
        if not names:
            return
        pod = w.pods[f"uid-{names[number % len(names)]}"]
        w.drop_pod(pod.name)
        part, index, life = pod.name.split("-")
        w.pod(f"{part}-{index}-{int(life) + 1}", shape(gpu=1), group=group.key, role=part, index=pod.index)


def _check(w: World, group: PodGroup, least: int) -> None:
    assert w.snapshot is not None
    state = w.snapshot.groups.get(group.key)
    if state is None:
        return
    homes: dict[str, set[str]] = {}
    for pod in state.bound:
        homes.setdefault(pod.part, set()).add(pod.node)
    roles = {pod.name: pod.role for pod in w.pods.values()}
    for name, node in w.placed.items():
        homes.setdefault(roles[name], set()).add(node)
    assert all(len(nodes) == 1 for nodes in homes.values()), homes
    before, after = tree_of(state), tree_of(state, {f"uid-{name}": "" for name in w.placed})
    starts = w.placed and not state.bound
    assert not starts or sum(part.met for part in after.parts) >= least
    for old, new in zip(before.parts, after.parts, strict=True):
        assert old.started or not new.started or new.met, "a part that starts is whole"


Leaf = tuple[int, int]
Branch = tuple[int | None, list[Leaf]]


@st.composite
def forests(draw: st.DrawFn) -> tuple[list[Branch], int | None, int, list[int]]:
    """Branches (how many of their parts start, None: all; parts: minimum, members), how many of these start, the
    minimum of members, GPUs that are there in each session."""
    leaf = st.tuples(st.integers(1, 3), st.integers(1, 3))
    leaves = st.lists(leaf, min_size=1, max_size=2)
    branches = draw(st.lists(st.tuples(st.sampled_from((None, 0, 1)), leaves), min_size=1, max_size=3))
    least = draw(st.none() | st.integers(0, len(branches)))
    return branches, least, draw(st.integers(1, 4)), draw(st.lists(st.integers(0, 4), min_size=1, max_size=3))


@settings(quick, max_examples=150)
@given(forests())
def test_parts_of_parts_start_whole_as_soon_as_there_is_room(
    forest: tuple[list[Branch], int | None, int, list[int]],
) -> None:
    branches, least, minimum, gpus = forest
    w = World(config=with_plugins(["gang", "predicates", "topology"]), check=True)
    made: list[SubGroup] = []
    for number, (few, leaves) in enumerate(branches):
        made.append(SubGroup(f"b{number}", 0, few))
        made.extend(SubGroup(f"b{number}/s{at}", one) for at, (one, _) in enumerate(leaves))
    group = w.group("g", minimum, subgroups=tuple(made), min_subgroups=least)
    for number, (_, leaves) in enumerate(branches):
        for at, (_, count) in enumerate(leaves):
            for index in range(count):
                w.pod(f"b{number}-{at}-{index}", shape(gpu=1), group=group.key, role=f"b{number}/s{at}", index=index)
    for number, more in enumerate(gpus):
        w.node(f"n{number}", gpu=more)
        w.session(later=1)
        assert w.snapshot is not None
        state = w.snapshot.groups[group.key]
        after = tree_of(state, {f"uid-{name}": "" for name in w.placed})
        assert all(part.met or not part.started for top in after.parts for part in (top, *top.parts))
        if not state.bound:
            assert bool(w.placed) == _could_start(branches, least, minimum, sum(gpus[: number + 1]))
        w.carry_out()


def _could_start(branches: list[Branch], least: int | None, minimum: int, gpus: int) -> bool:
    """By trying every number of members of each part."""
    ranges = [[0, *range(one, count + 1)] for _, leaves in branches for one, count in leaves]
    for counts in product(*ranges):
        if not minimum <= sum(counts) <= gpus:
            continue
        left = iter(counts)
        met: list[bool] = []
        whole = True
        for few, leaves in branches:
            there = [next(left) > 0 for _ in leaves]
            met.append(sum(there) >= (len(leaves) if few is None else few))
            whole = whole and (met[-1] or not any(there))
        if whole and sum(met) >= (len(branches) if least is None else least):
            return True
    return False
