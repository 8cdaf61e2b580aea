from __future__ import annotations

import numpy as np
import pytest

from plugins import built_in
from plugins.cutting import fewest, worth
from plugins.fragmentation import Fragmentation
from plugins.stranding import Kinds, Outlook, States, after, common
from scheduler.actions.run import new_session
from scheduler.config import PluginConfig
from scheduler.framework.registry import Arguments, BadPlugin
from scheduler.model.nodes import Taint
from tests.unit.framework.world import GPU, World, shape, with_plugins


def best(world: World, of: object, **arguments: object) -> list[str]:
    """Names of the nodes with the best score."""
    world.config = with_plugins([PluginConfig("fragmentation", arguments=arguments)])
    session = new_session(world.take(), world.config, type(world.sessions)(world.config, built_in()).cache, "s-1")
    scores = session.hooks.scores_nodes(of, session)  # type: ignore[arg-type]
    assert scores is not None
    names = np.array(session.snapshot.table.names)
    return names[scores == scores.max()].tolist()


def test_pods_without_gpus_go_where_no_gpu_waits_for_cpu() -> None:
    world = World().node("gpus", gpu=8, cpu=96).node("spare", gpu=2, cpu=96).node("plain", cpu=96)
    for number in range(4):
        world.pod(f"p{number}", shape(gpu=1, cpu=11))
    assert best(world, shape(cpu=16)) == ["plain", "spare"]
    assert best(world, shape(cpu=90)) == ["plain"]


def test_a_pod_with_much_cpu_goes_where_cpu_is_left_over() -> None:
    world = World().node("even", gpu=8, cpu=96).node("spare", gpu=8, cpu=200)
    for number in range(4):
        world.pod(f"p{number}", shape(gpu=1, cpu=13))
    assert best(world, shape(gpu=1, cpu=24)) == ["spare"]
    assert best(world, shape(gpu=1, cpu=2)) == ["even"]


def test_whole_nodes_are_kept_for_those_that_need_them_whole() -> None:
    world = World().node("begun", gpu=8, cpu=96).node("whole", gpu=8, cpu=96)
    world.running("x", "begun", shape(gpu=1, cpu=8))
    world.pod("y", shape(gpu=8, cpu=64))
    assert best(world, shape(gpu=1, cpu=8)) == ["begun"]


def test_a_model_that_some_ask_for_is_kept_for_them() -> None:
    world = World()
    for number in range(3):
        world.node(f"common-{number}", gpu=4, labels={"model": "a"})
    world.node("asked-for", gpu=4, labels={"model": "b"})
    choosy = shape(gpu=1, cpu=4, node_selector=(("model", "b"),))
    for number in range(3):
        world.pod(f"any-{number}", shape(gpu=1, cpu=4))
        world.pod(f"b-{number}", choosy)
    assert best(world, shape(gpu=1, cpu=4)) == ["common-0", "common-1", "common-2"]


def test_taints_count_as_what_a_pod_cannot_use() -> None:
    world = World().node("open", gpu=4).node("tainted", gpu=4, taints=(Taint("x", "y", "NoSchedule"),))
    for number in range(3):
        world.pod(f"any-{number}", shape(gpu=1, cpu=4))
    assert best(world, shape(gpu=2, cpu=4)) == ["tainted"]


def test_what_a_session_placed_counts_for_what_it_places_next() -> None:
    world = World(with_plugins(["gang"], ["predicates", PluginConfig("fragmentation")]))
    world.node("a", gpu=2).node("b", gpu=2)
    pods = [world.pod(name, shape(gpu=1)) for name in ("first", "second")]
    world.pod("both", shape(gpu=2), priority=-1)
    world.session()
    world.carry_out()
    assert {world.pods[pod.uid].node for pod in pods} in ({"a"}, {"b"})


def test_without_devices_nothing_is_preferred() -> None:
    world = World().node("a").node("b", cpu=2)
    assert best(world, shape(cpu=1)) == ["a", "b"]


def test_devices_can_be_named() -> None:
    world = World().node("gpus", gpu=8, cpu=96).node("plain", cpu=96)
    world.pod("p", shape(gpu=1, cpu=11))
    assert best(world, shape(cpu=90), devices=["other.com/npu"]) == ["gpus", "plain"]
    assert best(world, shape(cpu=90), devices=[GPU]) == ["plain"]
    with pytest.raises(BadPlugin, match=r"arguments\.devices: must be a list"):
        Fragmentation(Arguments({"devices": "gpu"}))


def test_the_order_of_events_changes_no_score() -> None:
    def made(seed: int) -> list[str]:
        world = World(shuffle=seed).node("a", gpu=8, cpu=96).node("b", gpu=2, cpu=96).node("c", gpu=4, cpu=32)
        world.running("x", "a", shape(gpu=1, cpu=8))
        for number in range(5):
            world.pod(f"p{number}", shape(gpu=1 + number % 2, cpu=4 + number))
        return best(world, shape(gpu=1, cpu=8))

    assert made(1) == made(2) == made(3)


def test_a_remainder_is_worth_what_still_comes_for_it() -> None:
    halves = worth({500: 1.0}, 1000)
    assert [halves[left] for left in (0, 499, 500, 999, 1000)] == [0, 0, 500, 500, 1000]
    few_small = worth({810: 10.0, 190: 1.0}, 1000)
    assert few_small[190] == 0
    assert few_small[810] == pytest.approx(810, abs=1e-6)
    many_small = worth({810: 1.0, 190: 10.0}, 1000)
    assert many_small[190] == pytest.approx(190)
    assert worth({}, 1000)[[0, 999, 1000]].tolist() == [0, 0, 1000]


def test_no_layout_does_with_fewer_devices_than_the_bound() -> None:
    assert fewest({500: 4.0}, 1000) == pytest.approx(2.0)
    assert fewest({810: 3.0, 160: 1.0}, 1000) == pytest.approx(3.0)
    assert fewest({470: 2.0, 320: 3.0, 210: 2.0}, 1000) == pytest.approx(2 + 1 / 3)


def outlook(**fields: object) -> Outlook:
    values: dict[str, object] = {
        "amount": np.array([1000]),
        "count": np.array([1]),
        "other": np.array([[10]]),
        "suits": np.array([[True]]),
        "often": np.array([1.0]),
    }
    return Outlook(Kinds(**{**values, **fields}))  # type: ignore[arg-type]


def states(left: list[list[int]], cpu: list[int]) -> States:
    return States(np.array(left), np.array([cpu]), np.zeros(len(left), dtype=np.int64))


def test_the_cost_of_a_node_is_what_is_lost_on_it() -> None:
    seen = outlook()
    nothing = np.zeros(1)
    enough, short, parts = seen.cost(states([[1000, 1000], [1000, 1000], [400, 0]], [100, 10, 100]), nothing)
    assert enough == pytest.approx(0, abs=1)
    assert short == pytest.approx(1000, abs=1)
    assert parts == pytest.approx(400 + 0.1 * 400)


def test_a_share_goes_where_the_least_is_left_of_a_device() -> None:
    then, fits = after(states([[300, 500, 1000], [100, 200, 300]], [10, 10]), 400, 1, np.array([1]))
    assert fits.tolist() == [True, False]
    assert then.left.tolist() == [[300, 100, 1000], [100, 200, 300]]
    assert then.other.tolist() == [[9, 10]]


def test_rare_kinds_count_when_they_ask_for_much() -> None:
    often = np.array([97.0, 2.0, 1.0])
    assert common(often, often * np.array([0, 1, 8]), 0.9, 8).tolist() == [True, True, True]
    assert common(often, np.zeros(3), 0.9, 8).tolist() == [True, False, False]
