"""What plugins say about the members of an ask reaches placement and reasons, and counts what was placed before."""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np

from plugins import built_in
from scheduler.actions.run import Sessions
from scheduler.framework.protocols import View
from scheduler.framework.registry import Registry
from scheduler.framework.relations import Bar, Extra, Members, Relations, Scored
from scheduler.model.pods import Pod, Shape
from scheduler.model.verdict import Code, Verdict, verdict
from tests.unit.framework.world import World, shape, with_plugins


class Disks:
    """Each node takes two disks; a pod whose name ends with d needs one, one that ends with x never has its disk."""

    name = "disks"

    def __init__(self) -> None:
        self.taken: dict[int, int] = {}
        self.asked = 0

    def on_session(self, view: View) -> None:
        self.taken = {}

    def sorts(self, pod: Pod, of: Shape, view: View) -> Hashable:
        return pod.name[-1] if pod.name[-1] in "dx" else None

    def relates(self, members: tuple[Members, ...], view: View, *, empty: bool) -> Relations | Verdict:
        self.asked += 1
        if any(one.pods[0].name.endswith("x") for one in members):
            return verdict(Code.WAITING_FOR_VOLUMES, message="no disk")
        size = len(view.snapshot.table.names)
        free = np.array([2 - (0 if empty else self.taken.get(row, 0)) for row in range(size)], dtype=np.int64)
        needs = tuple(int(one.pods[0].name.endswith("d")) for one in members)
        first = np.arange(size) == 0
        return Relations(
            bars=tuple(Bar(kind, first, "node(s) had no disks") for kind, need in enumerate(needs) if need),
            extras=(Extra("disks", free, needs, "node(s) exceed max disk count"),) if any(needs) else (),
            scores=tuple(Scored(kind, np.arange(size, dtype=np.int64)) for kind in range(len(members))),
        )

    def on_place(self, members: tuple[tuple[Pod, int], ...], view: View, *, undone: bool) -> None:
        for pod, row in members:
            if pod.name.endswith("d"):
                self.taken[row] = self.taken.get(row, 0) + (-1 if undone else 1)


def world(plugin: Disks) -> World:
    registry = Registry(
        {**{name: built_in()._factories[name] for name in built_in().names()}, "disks": lambda _: plugin}
    )
    made = World(with_plugins(["gang", "predicates", "disks"]), registry=registry)
    made.sessions = Sessions(made.config, registry, check=True)
    return made


def test_bars_extras_and_scores_reach_the_placement() -> None:
    w = world(Disks()).nodes(3, gpu=8)
    group = w.group("g", 4)
    for name in ("a-d", "b-d", "c-d", "e"):
        w.pod(name, group=group.key, min_member=0)
    w.session()
    nodes = {one.pod: one.node for place in w.places for one in place.assignments}
    assert sorted(nodes[name] for name in ("a-d", "b-d", "c-d")) == ["n001", "n002", "n002"]
    assert nodes["e"] == "n002"


def test_single_pods_count_what_the_session_placed_before_and_the_rest_says_why() -> None:
    w = world(Disks()).nodes(3, gpu=8)
    for number in range(6):
        w.pod(f"p{number}-d")
    w.session()
    assert len(w.places) == 4
    waiting = list(w.result.verdicts.values()) if w.result else []
    assert [dict(one.nodes) for one in waiting] == [
        {"node(s) had no disks": 1, "node(s) exceed max disk count": 2},
    ] * 2


def test_a_verdict_of_a_plugin_is_what_the_group_waits_for() -> None:
    w = world(Disks()).nodes(2, gpu=2)
    w.pod("p-x")
    w.pod("q-d")
    w.session()
    assert [one.pod for place in w.places for one in place.assignments] == ["q-d"]
    assert w.result is not None
    assert [one.code for one in w.result.verdicts.values()] == [Code.WAITING_FOR_VOLUMES]


def test_relations_with_equal_content_have_equal_digests() -> None:
    def made(number: int) -> Relations:
        return Relations(bars=(Bar(0, np.arange(4) == number, "r"),))

    assert made(1).digest == made(1).digest != made(2).digest
    assert made(1) and not Relations()
    assert Relations().digest == b""
    assert shape().key
