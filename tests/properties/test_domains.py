"""The tree of domains that is kept from session to session is the one that would be built anew, and means what its
definition says, whatever happens to nodes, labels and objects."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.framework.domains import DomainCache
from scheduler.framework.topology_tree import Domains
from scheduler.model.affinity import LabelSelector, Requirement
from scheduler.model.nodes import HOSTNAME
from scheduler.model.topology import HyperNode, HyperNodeMember, Level
from tests.unit.framework.world import World

NODES = [f"n{number}" for number in range(6)]
GROUPS = [f"h{number}" for number in range(5)]
VALUES = st.sampled_from(["x", "y", "z", ""])
LABELS = st.dictionaries(st.sampled_from(["block", "rack", "t-0", "t-1", "t-7"]), VALUES)
LEVELS = st.lists(
    st.sampled_from(
        [
            Level("block", "block"),
            Level("rack", "rack"),
            Level("tier", prefix="t-"),
            Level("layer", prefix="t-", rising=True),
            Level("host", HOSTNAME),
        ]
    ),
    max_size=4,
    unique_by=lambda level: level.name,
).map(lambda levels: tuple(sorted(levels, key=lambda level: level.label == HOSTNAME)))
MEMBERS = st.one_of(
    st.sampled_from([*NODES, "nowhere"]).map(lambda name: HyperNodeMember("Node", exact=name)),
    st.sampled_from(["^n[0-2]$", "3", "(", "n"]).map(lambda pattern: HyperNodeMember("Node", pattern=pattern)),
    st.sampled_from(["x", "y"]).map(
        lambda value: HyperNodeMember("Node", labels=LabelSelector((Requirement("rack", "In", (value,)),)))
    ),
    st.sampled_from([*GROUPS, "nowhere"]).map(lambda name: HyperNodeMember("HyperNode", exact=name)),
    st.sampled_from(["^h[12]$", "4"]).map(lambda pattern: HyperNodeMember("HyperNode", pattern=pattern)),
)
CHANGES = st.one_of(
    st.tuples(st.just("node"), st.sampled_from(NODES), LABELS),
    st.tuples(st.just("drop"), st.sampled_from(NODES), st.none()),
    st.tuples(st.just("topology"), st.sampled_from(["a", "b", "volcano"]), LEVELS),
    st.tuples(st.just("group"), st.sampled_from(GROUPS), st.tuples(st.integers(0, 3), st.lists(MEMBERS, max_size=3))),
    st.tuples(st.just("ungroup"), st.sampled_from(GROUPS), st.none()),
)


def content(found: Domains) -> Any:
    levels = {
        key: (level.name, level.names, level.ids.tolist(), level.parents.tolist())
        for key, level in found.levels.items()
    }
    return levels, found.faults, found.facts, found.labels, sorted(found.trees)


def apply(world: World, change: tuple[str, str, Any]) -> None:
    what, name, value = change
    if what == "node":
        world.node(name, labels=value)
    elif what == "drop":
        world.drop_node(name)
    elif what == "topology":
        world.topology(name, levels=value)
    elif what == "group":
        world.hypernode(name, value[0], *value[1])
    else:
        world.drop_hypernode(name)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.lists(CHANGES, min_size=1, max_size=4), min_size=1, max_size=6))
def test_what_is_kept_is_what_would_be_built(sessions: list[list[tuple[str, str, Any]]]) -> None:
    world, cache = World(), DomainCache()
    for changes in sessions:
        for change in changes:
            apply(world, change)
        snapshot = world.take()
        kept = cache.of(snapshot)
        assert content(kept) == content(DomainCache().of(snapshot))
        _nested(kept)


def _nested(found: Domains) -> None:
    """Nobody is in a domain without being in the wider one, and a domain lies in one wider domain only."""
    for tree in found.trees.values():
        for wider, level in zip(tree.levels, tree.levels[1:], strict=False):
            for outer, inner in zip(wider.ids.tolist(), level.ids.tolist(), strict=True):
                assert inner < 0 or outer == level.parents[inner] >= 0
        for level in tree.levels:
            assert set(level.ids[level.ids >= 0].tolist()) == set(range(len(level.names)))
            assert len(set(level.names)) == len(level.names)


@settings(max_examples=150, deadline=None)
@given(st.lists(LABELS, min_size=1, max_size=6), st.permutations(["block", "rack"]))
def test_two_nodes_share_a_domain_when_they_agree_down_to_its_level(
    nodes: list[dict[str, str]], order: list[str]
) -> None:
    world = World()
    for number, labels in enumerate(nodes):
        world.node(f"n{number}", labels=labels)
    world.topology("t", *((label, label) for label in order))
    found = DomainCache().of(world.take())
    carried = [label for label in order if any(label in labels for labels in nodes)]
    for depth, label in enumerate(carried):
        level = found.level(f"t:{label}")
        assert level is not None
        paths = [tuple(labels.get(one) or None for one in carried[: depth + 1]) for labels in nodes]
        for one, first in enumerate(paths):
            assert (level.ids[one] < 0) == (None in first)
            for other, second in enumerate(paths):
                if None not in first and None not in second:
                    assert (level.ids[one] == level.ids[other]) == (first == second)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4)), min_size=1, max_size=5),
    st.lists(st.integers(0, 5), max_size=6),
)
def test_a_domain_of_a_tier_is_the_widest_hyper_node_up_to_it(groups: list[tuple[int, int]], homes: list[int]) -> None:
    """groups: tier and parent of each; only parents of a higher tier count. homes: the hyper-node of each node."""
    tiers = [tier for tier, _ in groups]
    parent = {
        number: above for number, (tier, above) in enumerate(groups) if above < len(groups) and tiers[above] > tier
    }
    world, members = World(), {number: list[HyperNodeMember]() for number in range(len(groups))}
    for number, above in parent.items():
        members[above].append(HyperNodeMember("HyperNode", exact=f"h{number}"))
    for node, home in enumerate(homes):
        world.node(f"n{node}")
        if home < len(groups):
            members[home].append(HyperNodeMember("Node", exact=f"n{node}"))
    for number, mine in members.items():
        world.hypernode(f"h{number}", tiers[number], *mine)
    found = DomainCache().of(world.take())
    assert isinstance(world.snapshot and world.snapshot.hypernodes[0], HyperNode)
    assert found.faults == {}
    for tier in set(tiers):
        level = found.level(f"volcano:tier {tier}")
        assert level is not None
        for node, home in enumerate(homes):
            chain = [home] if home < len(groups) else []
            while chain and chain[-1] in parent:
                chain.append(parent[chain[-1]])
            within = [one for one in chain if tiers[one] <= tier]
            number = int(level.ids[node])
            assert (level.names[number] if number >= 0 else None) == (f"h{within[-1]}" if within else None)
