"""At most so many sub-groups in one rack: a gang starts, and gets back what it lost, exactly where trying every way to
share its members out finds one."""

from __future__ import annotations

from itertools import combinations_with_replacement, product

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scheduler.model.groups import SubGroup
from scheduler.model.wishes import TopologyWish
from tests.unit.framework.world import World, shape, with_plugins

quick = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
Story = tuple[list[tuple[int, bool]], list[int], int, list[int]]


@st.composite
def stories(draw: st.DrawFn) -> Story:
    """Sub-groups (members, whether all in one rack), GPUs of the racks, how many share one, which pods are lost."""
    parts = draw(st.lists(st.tuples(st.integers(1, 3), st.booleans()), min_size=2, max_size=4))
    racks = draw(st.lists(st.integers(1, 6), min_size=1, max_size=3))
    return parts, racks, draw(st.integers(1, 3)), draw(st.lists(st.integers(0, 11), max_size=3))


def most(wanted: list[int], whole: list[bool], there: list[list[int]], racks: list[int], limit: int) -> int:
    """How many members more fit at most, by trying everything. there: of each part, members in each rack."""
    free = [size - sum(held[rack] for held in there) for rack, size in enumerate(racks)]
    best = 0
    ways = []
    for part, many in enumerate(wanted):
        own = {rack for rack, held in enumerate(there[part]) if held}
        ways.append([
            way
            for count in range(many + 1)
            for way in combinations_with_replacement(range(len(racks)), count)
            if not whole[part] or len(own | set(way)) <= 1
        ])  # fmt: skip
    for chosen in product(*ways):
        if any(sum(way.count(rack) for way in chosen) > room for rack, room in enumerate(free)):
            continue
        crowded = False
        for rack in range(len(racks)):
            before = {part for part, held in enumerate(there) if held[rack]}
            come = {part for part, way in enumerate(chosen) if rack in way}
            crowded = crowded or (bool(come - before) and len(come | before) > limit)
        if not crowded:
            best = max(best, sum(map(len, chosen)))
    return best


@quick
@given(stories())
def test_parts_share_racks_as_far_as_they_may_at_the_start_and_after_losses(story: Story) -> None:
    parts, racks, limit, losses = story
    w = World(config=with_plugins(["gang", "predicates", "topology"]), check=True)
    for number, gpus in enumerate(racks):
        w.node(f"r{number}", gpu=gpus, labels={"rack": f"r{number}"})
    rack = TopologyWish(required="rack")
    made = tuple(SubGroup(f"s{n}", many, topology=rack if whole else None) for n, (many, whole) in enumerate(parts))
    total = sum(many for many, _ in parts)
    group = w.group("g", total, subgroups=made, topology=TopologyWish(apart=(("rack", limit),)))
    for number, (many, _) in enumerate(parts):
        for index in range(many):
            w.pod(f"s{number}-{index}", shape(gpu=1), group=group.key, role=f"s{number}", index=index)
    w.session(later=1)
    whole = [one for _, one in parts]
    nowhere = [[0] * len(racks) for _ in parts]
    fits = most([many for many, _ in parts], whole, nowhere, racks, limit) == total
    assert len(w.placed) == (total if fits else 0)
    if not fits:
        return
    w.carry_out()
    w.session(later=1)
    lost = [0] * len(parts)
    for number in losses:
        names = sorted(pod.name for pod in w.pods.values() if pod.node)
        part, index = names[number % len(names)].split("-")[:2]
        if lost[int(part[1:])] + 1 < parts[int(part[1:])][0]:  # a part that lost all starts anew, in a step of its own
            lost[int(part[1:])] += 1
            w.drop_pod(names[number % len(names)])
            w.pod(f"{part}-{index}-again", shape(gpu=1), group=group.key, role=part, index=int(index))
    there = [[0] * len(racks) for _ in parts]
    for pod in w.pods.values():
        if pod.node:
            there[int(pod.role[1:])][int(pod.node[1:])] += 1
    w.session(later=1)
    assert len(w.placed) == most(lost, whole, there, racks, limit)
