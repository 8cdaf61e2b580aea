"""Gangs with minimums of roles and of sub-groups across them: they start, are repaired and give way exactly where
trying every choice of members says that both can hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import product
from types import MappingProxyType

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scheduler.model.affinity import LabelSelector, Requirement
from scheduler.model.groups import PodGroup, SubGroup
from tests.unit.actions.test_making_room import Story
from tests.unit.framework.world import World, shape, with_plugins

quick = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
SIZE = {"a": 1, "b": 2}
"""GPUs of the members of each role."""
NONE = "-"


@dataclass(frozen=True)
class Gang:
    """parts: minimum of each, and the role of each of its members. loose: roles of those in none. least: so many parts
    start, None = all. roles, minimum: as in a PodGroup."""

    parts: tuple[tuple[int, str], ...]
    loose: str
    least: int | None
    roles: tuple[tuple[str, int], ...]
    minimum: int

    def members(self) -> list[tuple[str, str]]:
        """Part and role of every member."""
        found = [(f"p{number}", role) for number, (_, roles) in enumerate(self.parts) for role in roles]
        return found + [(NONE, role) for role in self.loose]

    def is_whole(self, there: Collection[tuple[str, str]]) -> bool:
        """Whether these members (part, role) make the minimum."""
        parts, roles = Counter(part for part, _ in there), Counter(role for _, role in there)
        met = sum(parts[f"p{number}"] >= least for number, (least, _) in enumerate(self.parts))
        wanted = len(self.parts) if self.least is None else self.least
        return met >= wanted and len(there) >= self.minimum and all(roles[role] >= n for role, n in self.roles)

    def unbroken(self, there: Collection[tuple[str, str]]) -> bool:
        """Whether each part is whole or absent."""
        parts = Counter(part for part, _ in there)
        return all(parts[f"p{n}"] == 0 or parts[f"p{n}"] >= least for n, (least, _) in enumerate(self.parts))


@st.composite
def gangs(draw: st.DrawFn) -> Gang:
    some = st.text("ab", min_size=1, max_size=3)
    drawn = draw(st.lists(some, min_size=1, max_size=3))
    parts = [(draw(st.integers(1, len(members))), members) for members in drawn]
    loose = draw(st.text("ab", max_size=2))
    roles = tuple((role, draw(st.integers(0, 2))) for role in "ab") if draw(st.booleans()) else ()
    least = draw(st.none() | st.integers(0, len(parts)))
    return Gang(tuple(parts), loose, least, tuple((role, n) for role, n in roles if n), draw(st.integers(1, 4)))


def apply(
    w: World, gang: Gang, *, first: str = "a", pod: Mapping[str, object] = MappingProxyType({}), **fields: object
) -> PodGroup:
    """first: the role whose members come first in order."""
    made = tuple(
        SubGroup(f"p{number}", least, selector=LabelSelector((Requirement("part", "In", (f"p{number}",)),)))
        for number, (least, _) in enumerate(gang.parts)
    )
    group = w.group("g", gang.minimum, subgroups=made, min_subgroups=gang.least, roles=dict(gang.roles), **fields)
    for number, (part, role) in enumerate(gang.members()):
        join(w, group, f"{part}/{role}/{number}", part, role, index=number + 100 * (role != first), **pod)
    return group


def join(w: World, group: PodGroup, name: str, part: str, role: str, **fields: object) -> None:
    w.pod(name, shape(gpu=SIZE[role]), group=group.key, role=role, labels=(("part", part),), **fields)


def told(names: Collection[str]) -> list[tuple[str, str]]:
    """Part and role of members, by their names."""
    return [(part, role) for part, role, *_ in (name.split("/") for name in names)]


def subsets(members: list[tuple[str, str]]) -> list[list[tuple[str, str]]]:
    """Every choice of how many of each part and role there are."""
    kinds = sorted(Counter(members).items())
    return [
        [kind for (kind, _), n in zip(kinds, counts, strict=True) for _ in range(n)]
        for counts in product(*(range(n + 1) for _, n in kinds))
    ]


def gpus(members: Collection[tuple[str, str]]) -> int:
    return sum(SIZE[role] for _, role in members)


@quick
@given(gangs(), st.integers(0, 10))
def test_a_gang_starts_exactly_when_some_choice_of_members_fits(gang: Gang, room: int) -> None:
    w = World(config=with_plugins(["gang", "predicates", "topology"]), check=True)
    w.node("n", gpu=room)
    apply(w, gang)
    w.session()
    fits = any(
        gang.is_whole(one) and gang.unbroken(one) and gpus(one) <= room for one in subsets(gang.members()) if one
    )
    first = [one for place in w.places[:1] for one in place.assignments]
    assert bool(first) == fits
    if fits:
        there = told([one.pod for one in first])
        assert gang.is_whole(there)
        assert gang.unbroken(there)


@quick
@given(gangs(), st.lists(st.integers(0, 11), min_size=1, max_size=4), st.integers(0, 2), st.data())
def test_what_is_lost_comes_back_exactly_when_both_minimums_can_hold(
    gang: Gang, losses: list[int], spare: int, data: st.DataObject
) -> None:
    """There is room for the smallest repair, or a little more or less; members that come later are of any sort. Parts
    that are begun and can be whole come first; where that is too much, less may do."""
    w = World(config=with_plugins(["gang", "predicates", "topology"]), check=True)
    w.node("n", gpu=30)
    first = data.draw(st.sampled_from("ab"))
    group = apply(w, gang, first=first)
    for _ in range(3):
        w.session(later=1)
        w.carry_out()
    running = sorted(pod.name for pod in w.pods.values() if pod.node)
    for number in losses if running else ():
        if running:
            w.drop_pod(running.pop(number % len(running)))
    for number, more in enumerate(data.draw(st.lists(st.sampled_from(gang.members()), max_size=5))):
        join(w, group, "/".join((*more, f"more-{number}")), *more, index=20 + number + 100 * (more[1] != first))
    there, waiting = told(running), told([pod.name for pod in w.pods.values() if not pod.node])
    if not there or gang.is_whole(there):
        return
    ways = [one for one in subsets(waiting) if gang.is_whole([*there, *one]) and _starts_whole(gang, there, one)]
    mends = [gpus(one) for one in ways if _completes(gang, there, waiting, one)]
    room = max(0, min(mends, default=0) + spare - 1)
    w.node("n", gpu=gpus(there) + room)
    w.session(later=1)
    told_of = (there, waiting, room, w.placed)
    whole = gang.is_whole([*there, *told(w.placed)])
    assert whole or not any(size <= room for size in mends), told_of
    assert not whole or any(gpus(one) <= room for one in ways), told_of


def _by_part(members: list[tuple[str, str]]) -> Counter[str]:
    return Counter(part for part, _ in members)


def _starts_whole(gang: Gang, there: list[tuple[str, str]], more: list[tuple[str, str]]) -> bool:
    """Whether of a part of which nothing is there nothing comes, or its minimum."""
    begun, come = _by_part(there), _by_part(more)
    return all(begun[f"p{n}"] or not come[f"p{n}"] or come[f"p{n}"] >= m for n, (m, _) in enumerate(gang.parts))


def _completes(
    gang: Gang, there: list[tuple[str, str]], waiting: list[tuple[str, str]], more: list[tuple[str, str]]
) -> bool:
    """Whether each part of which something is there is whole then, where those that wait suffice: it comes first."""
    begun, could, come = _by_part(there), _by_part(waiting), _by_part(more)
    return all(
        not begun[f"p{n}"] or begun[f"p{n}"] + could[f"p{n}"] < m or begun[f"p{n}"] + come[f"p{n}"] >= m
        for n, (m, _) in enumerate(gang.parts)
    )


@quick
@given(gangs(), st.integers(1, 8))
def test_the_gang_lives_on_exactly_when_enough_can_go_that_neither_minimum_needs(gang: Gang, wanted: int) -> None:
    everyone = gang.members()
    wanted = min(wanted, gpus(everyone))
    if not gang.is_whole(everyone):
        return
    w = Story(check=True)
    made = {"node": "n", "phase": "Running", "started": True, "since": 10.0, "priority": 50}
    w.node("n", gpu=gpus(everyone))
    apply(w, gang, pod=made, queue="default")
    w.asks("high", wanted, priority=100)
    w.session(later=1.0)
    assert w.places
    assert w.places[0].group.endswith("high")
    stay = [pod.name for pod in w.pods.values() if pod.node and pod.name not in w.victims]
    lives = any(
        gang.is_whole(left) and gang.unbroken(left) and gpus(everyone) - gpus(left) >= wanted
        for left in subsets(everyone)
        if left
    )
    assert bool(stay) == lives, (everyone, w.victims)
    assert not stay or (gang.is_whole(told(stay)) and gang.unbroken(told(stay)))
