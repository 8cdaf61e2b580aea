from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import pytest

from plugins import built_in
from plugins.binpack import UsedShare
from plugins.conformance import SYSTEM_CRITICAL, Conformance
from scheduler.actions.run import new_session
from scheduler.config import PluginConfig
from scheduler.framework.protocols import NoOpinion, Only
from scheduler.framework.registry import Arguments, BadPlugin
from scheduler.model.affinity import Requirement
from scheduler.model.nodes import NodeClass, Taint
from scheduler.model.pods import Pod, PreferredTerm, SelectorTerm
from tests.unit.framework.world import GPU, World, shape, with_plugins


def scores(world: World, plugin: str, of: object, arguments: Mapping[str, int] | None = None) -> list[int]:
    config = with_plugins([PluginConfig(plugin, arguments=arguments or {})])
    world = world if world.config == config else _again(world, config)
    session = new_session(world.take(), world.config, world.sessions.cache, "s-1")
    found = session.hooks.scores_nodes(of, session)  # type: ignore[arg-type]
    assert found is not None
    return [int(score) for score in found]


def _again(world: World, config: object) -> World:
    world.config = config  # type: ignore[assignment]
    world.sessions = type(world.sessions)(config, built_in())  # type: ignore[arg-type]
    return world


def half_full() -> World:
    world = World().node("empty", gpu=4, cpu=10).node("full", gpu=4, cpu=10).node("half", gpu=4, cpu=10)
    world.running("a", "half", shape(gpu=2))
    world.running("b", "full", shape(gpu=3))
    return world


def test_binpack_prefers_the_fullest_node_and_spread_the_emptiest() -> None:
    assert scores(half_full(), "binpack", shape(gpu=1)) == [25, 100, 75]
    assert scores(half_full(), "spread", shape(gpu=1)) == [75, 0, 25]


def test_binpack_counts_only_what_the_pod_asks_for_with_its_weights() -> None:
    world = World().node("a", gpu=4, cpu=10).node("b", gpu=4, cpu=10)
    world.running("x", "a", shape(gpu=3))
    world.running("y", "b", shape(cpu=9))
    both = shape(gpu=1, cpu=1)
    gpu_first = scores(world, "binpack", both, {GPU: 10, "cpu": 1})
    cpu_first = scores(world, "binpack", both, {GPU: 1, "cpu": 10})
    assert gpu_first[0] > gpu_first[1]
    assert cpu_first[0] < cpu_first[1]
    assert scores(world, "binpack", shape(cpu=1), {GPU: 10}) == [10, 100]


def test_nodes_that_are_over_their_allocatable_or_have_none_still_get_a_score() -> None:
    world = World().node("none", cpu=10).node("over", gpu=1, cpu=10)
    world.running("x", "over", shape(gpu=2))
    for plugin in ("binpack", "spread"):
        assert all(0 <= score <= 100 for score in scores(world, plugin, shape(gpu=1)))


def test_kept_scores_follow_what_is_charged_and_undone_and_another_set_of_nodes() -> None:
    random = np.random.default_rng(5)
    kept = UsedShare({GPU: 3})
    asked = [shape(gpu=1), shape(gpu=2, cpu=1), shape(cpu=3), shape()]
    for nodes in (12, 7):
        world = World()
        for number in range(nodes):
            world.node(f"n{number}", gpu=int(random.integers(0, 9)), cpu=int(random.integers(1, 20)))
        session = new_session(world.take(), world.config, world.sessions.cache, "s-1")
        undos: list[Callable[[], None]] = []
        seen: set[bytes] = set()
        for _ in range(60):
            of = asked[int(random.integers(0, len(asked)))]
            shares = kept(of, session)
            assert shares.tolist() == UsedShare({GPU: 3})(of, session).tolist()
            seen.add(shares.tobytes())
            if undos and random.random() < 0.4:
                undos.pop()()
                continue
            rows = np.flatnonzero((session.free >= session.request(of)[:, None]).all(axis=0))[:2]
            undos.append(session.ledger.charge(session.request(of), rows, np.ones(rows.size, dtype=np.int64)))
        assert len(seen) > 5


@pytest.mark.parametrize(("argument", "better"), [("leastAllocated", "empty"), ("mostAllocated", "busy")])
def test_nodeorder_can_look_at_free_amounts(argument: str, better: str) -> None:
    world = World().node("busy", cpu=10).node("empty", cpu=10)
    world.running("x", "busy", shape(cpu=8))
    found = scores(world, "nodeorder", shape(cpu=1), {argument: 1, "taints": 0, "nodeAffinity": 0})
    assert ["busy", "empty"][int(np.argmax(found))] == better


def test_nodeorder_can_keep_cpu_and_memory_in_balance_or_follow_points() -> None:
    world = World().node("cpu", cpu=10, memory=10).node("even", cpu=10, memory=10)
    world.running("x", "cpu", shape(cpu=8))
    world.running("y", "even", shape(cpu=4, memory=4))
    only = {"taints": 0, "nodeAffinity": 0}
    assert scores(world, "nodeorder", shape(cpu=1, memory=4), {"balancedAllocation": 1, **only}) == [82, 67]
    assert scores(world, "nodeorder", shape(), {"balancedAllocation": 1, **only}) == [0, 0]
    points = {"requestedToCapacityRatio": 1, "ratio": ["0=0", "50=10", "100=0"], **only}
    assert scores(world, "nodeorder", shape(cpu=1, memory=1), points) == [20, 100]  # type: ignore[arg-type]


LITTLE = (("cpu", 100), ("memory", 200 * 2**20))
LEAST = {"leastAllocated": 1, "taints": 0, "nodeAffinity": 0}


def test_nodeorder_counts_a_little_for_containers_that_ask_for_nothing() -> None:
    world = World().node("crowd", cpu=10, memory=10).node("empty", cpu=10, memory=10).node("none", cpu=10, memory=0)
    idle = shape(unstated=LITTLE)
    for number in range(10):
        world.running(f"x{number}", "crowd", idle)
    assert scores(world, "nodeorder", idle, LEAST) == [(89 + 78) // 2, (99 + 98) // 2, 99]
    assert scores(world, "nodeorder", shape(), LEAST) == [(90 + 80) // 2, 100, 100]
    most = {"mostAllocated": 1, "taints": 0, "nodeAffinity": 0}
    assert scores(world, "nodeorder", idle, most) == [(11 + 21) // 2, (1 + 1) // 2, 1]
    ratio = {"requestedToCapacityRatio": 1, "taints": 0, "nodeAffinity": 0}
    assert scores(world, "nodeorder", idle, ratio) == [16, 1, 1]
    balanced = {"balancedAllocation": 1, "taints": 0, "nodeAffinity": 0}
    assert scores(world, "nodeorder", idle, balanced) == [0, 0, 0]
    world.drop_pod("x0")
    world.node("crowd", cpu=100, memory=10)
    assert scores(world, "nodeorder", idle, LEAST)[0] == (99 + 80) // 2


def test_pods_that_were_seen_before_their_node_count_once_it_is_there() -> None:
    world = World()
    world.running("x", "late", shape(unstated=LITTLE))
    assert world.take().table.unstated.shape == (2, 0)
    world.node("late", cpu=10, memory=10)
    assert world.take().table.unstated.tolist() == [[100], [200 * 2**20]]
    world.set_pod(replace(world.pods["uid-x"], phase="Succeeded"))
    assert world.take().table.unstated.tolist() == [[0], [0]]


def test_nodeorder_counts_what_the_session_placed_and_forgets_what_it_took_back() -> None:
    config = with_plugins(["gang", "predicates", PluginConfig("nodeorder", arguments=LEAST)])
    world = World(config).nodes(3, cpu=10, memory=10)
    idle = shape(unstated=LITTLE)
    for number in range(3):
        world.pod(f"p{number}", idle)
    session = new_session(world.take(), config, world.sessions.cache, "s-1")
    before = session.hooks.scores_nodes(idle, session)
    state = next(iter(session.snapshot.groups.values()))
    with session.statement() as statement:
        statement.place(state, 1, [(state.waiting[0], 1)])
        during = session.hooks.scores_nodes(idle, session)
    after = session.hooks.scores_nodes(idle, session)
    assert before is not None and during is not None and after is not None
    assert (during - before).tolist() == [0, -1, 0] and (after == before).all()


@pytest.mark.parametrize("ratio", [["50=11"], ["101=1"], ["x"], ["50=1", "50=2"]])
def test_nodeorder_refuses_points_that_mean_nothing(ratio: list[str]) -> None:
    with pytest.raises(BadPlugin, match=r"arguments\.ratio"):
        built_in().build(((PluginConfig("nodeorder", arguments={"ratio": ratio}),),))


def test_nodeorder_prefers_matching_terms_and_fewer_soft_taints() -> None:
    (made,), *_ = built_in().build(((PluginConfig("nodeorder"),),))
    terms = (
        PreferredTerm(80, SelectorTerm((Requirement("disk", "In", ("ssd",)),))),
        PreferredTerm(20, SelectorTerm((Requirement("zone", "In", ("a",)),))),
        PreferredTerm(100, SelectorTerm()),
    )
    score = made.plugin.scores  # type: ignore[attr-defined]
    of = shape(preferred_terms=terms)
    soft = Taint("old", "", "PreferNoSchedule")
    ssd, zone, none = (NodeClass(labels=labels) for labels in ((("disk", "ssd"),), (("zone", "a"),), ()))
    both = NodeClass(labels=(("disk", "ssd"), ("zone", "a")))
    assert score(of, both) == 100
    assert score(of, both) > score(of, ssd) > score(of, zone) > score(of, none)
    assert score(of, none) > score(of, NodeClass(taints=(soft,)))
    assert score(shape(), ssd) == score(shape(), none)


def test_a_preference_decides_between_nodes_that_would_both_do() -> None:
    world = World().node("a", gpu=1, labels={"disk": "hdd"}).node("b", gpu=1, labels={"disk": "ssd"})
    prefers = (PreferredTerm(10, SelectorTerm((Requirement("disk", "In", ("ssd",)),))),)
    world.pod("p", shape(gpu=1, preferred_terms=prefers))
    world.session()
    assert world.placed == {"p": "b"}


@pytest.mark.parametrize(("plugin", "nodes"), [("binpack", 1), ("spread", 4)])
def test_a_gang_is_packed_or_spread_as_configured(plugin: str, nodes: int) -> None:
    world = World(with_plugins(["gang", "predicates", plugin])).nodes(4, gpu=4)
    world.gang("g", 4)
    world.session()
    assert len(set(world.placed.values())) == nodes


def test_binpack_keeps_the_empty_node_free() -> None:
    world = World().node("a", gpu=4).node("b", gpu=4)
    world.running("x", "b", shape(gpu=2))
    world.pod("p", shape(gpu=1))
    world.session()
    assert world.placed == {"p": "b"}


def victim(name: str, namespace: str = "ns", priority: int = 0) -> Pod:
    return Pod(uid=name, namespace=namespace, name=name, shape="x", priority=priority)


def test_conformance_never_gives_up_what_keeps_the_cluster_alive() -> None:
    plugin = Conformance(Arguments({}))
    state = World().nodes(1)
    state.gang("g", 1)
    preemptor = state.take().groups["muster/ns/g"]
    plain, system = victim("plain"), victim("dns", "kube-system")
    critical = victim("critical", priority=SYSTEM_CRITICAL)
    assert plugin.may_evict(preemptor, (plain,)) == NoOpinion()
    assert plugin.may_evict(preemptor, (plain, system, critical)) == Only(frozenset({"plain"}))
    assert plugin.may_evict(preemptor, (system,)) == Only()
    other = Conformance(Arguments({"namespaces": ["ns"]}))
    assert other.may_evict(preemptor, (plain, system)) == Only(frozenset({"dns"}))
