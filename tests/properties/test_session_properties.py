"""What must hold for every cluster: drawn at random, small, with several shapes, roles, priorities and queues."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, replace

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scheduler.actions.run import Sessions
from scheduler.model.decisions import Decisions, Explain, Place
from scheduler.model.nodes import Taint
from scheduler.model.pods import Toleration
from tests.unit.framework.world import World, shape, with_plugins

CONFIG = with_plugins(["priority", "gang", "conformance"], ["queues", "predicates", "nodeorder", "binpack", "topology"])
quick = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@dataclass(frozen=True)
class NodeOf:
    gpu: int
    cpu: int
    slots: int
    rack: str
    tainted: bool
    cordoned: bool


@dataclass(frozen=True)
class Member:
    gpu: int
    cpu: int
    role: str
    tolerates: bool


@dataclass(frozen=True)
class Gang:
    minimum: int
    members: tuple[Member, ...]
    role_minimum: int
    priority: int
    queue: str
    created: int
    rack: bool
    single: bool


@dataclass(frozen=True)
class Cluster:
    nodes: tuple[NodeOf, ...]
    gangs: tuple[Gang, ...]
    running: tuple[int, ...]


nodes = st.builds(
    NodeOf, st.integers(0, 4), st.integers(1, 8), st.integers(1, 6), st.sampled_from("ab"), st.booleans(), st.booleans()
)
members = st.builds(Member, st.integers(0, 3), st.integers(0, 4), st.sampled_from(("", "ps")), st.booleans())
gangs = st.builds(
    Gang,
    st.integers(1, 4),
    st.lists(members, min_size=1, max_size=5).map(tuple),
    st.integers(0, 2),
    st.sampled_from((0, 10)),
    st.sampled_from(("", "q", "held", "nowhere")),
    st.integers(0, 3),
    st.booleans(),
    st.booleans(),
)
clusters = st.builds(
    Cluster,
    st.lists(nodes, min_size=1, max_size=5).map(tuple),
    st.lists(gangs, min_size=1, max_size=6).map(tuple),
    st.lists(st.integers(0, 4), max_size=3).map(tuple),
)


def build(cluster: Cluster, shuffle: int | None = None) -> World:
    world = World(CONFIG, shuffle=shuffle).queue("q").queue("held", state="Hold")
    world.sessions = Sessions(CONFIG, world.registry, check=True)
    for number, node in enumerate(cluster.nodes):
        taints = (Taint("k", "v"),) if node.tainted else ()
        world.node(
            f"n{number}", gpu=node.gpu, cpu=node.cpu, slots=node.slots, labels={"rack": node.rack}, taints=taints,
            unschedulable=node.cordoned,
        )  # fmt: skip
    for number, at in enumerate(cluster.running):
        world.running(f"hog{number}", f"n{at % len(cluster.nodes)}", shape(gpu=1, cpu=1), ours=False)
    for number, gang in enumerate(cluster.gangs):
        shapes = [
            shape(gpu=m.gpu, cpu=m.cpu, tolerations=(Toleration("k", "Exists"),) if m.tolerates else ())
            for m in gang.members
        ]
        if gang.single:
            for index, of in enumerate(shapes):
                world.pod(
                    f"s{number}-{index}", of, priority=gang.priority, queue=gang.queue, created=float(gang.created)
                )
            continue
        group = world.gang(
            f"g{number}", gang.minimum, count=0, queue=gang.queue, created=float(gang.created),
            topology="rack" if gang.rack else "", roles={"ps": gang.role_minimum} if gang.role_minimum else {},
        )  # fmt: skip
        for index, (member, of) in enumerate(zip(gang.members, shapes, strict=True)):
            world.member(group, index, of, role=member.role, priority=gang.priority)
    return world


def placements(decisions: Decisions) -> list[Place]:
    return [item for item in decisions.items if isinstance(item, Place)]


@quick
@given(clusters)
def test_no_invariant_is_violated_and_a_gang_starts_whole_or_not_at_all(cluster: Cluster) -> None:
    world = build(cluster)  # its sessions check the invariants after every action
    world.session()
    assert world.snapshot is not None
    new: dict[str, int] = {}
    for place in world.places:
        new[place.group] = new.get(place.group, 0) + len(place.assignments)
    for key, count in new.items():
        state = world.snapshot.groups[key]
        assert count >= state.group.min_member
        if state.group.topology is not None:
            used = {one.node for place in world.places if place.group == key for one in place.assignments}
            assert len({dict(world.snapshot.table.nodes[name].labels)["rack"] for name in used}) == 1


@quick
@given(clusters, st.integers(0, 1000))
def test_the_order_of_events_does_not_change_what_is_decided(cluster: Cluster, seed: int) -> None:
    one, other = build(cluster), build(cluster, shuffle=seed)
    assert one.session().decisions.items == other.session().decisions.items


@quick
@given(clusters)
def test_the_same_snapshot_gives_the_same_decisions_in_a_fresh_process(cluster: Cluster) -> None:
    world = build(cluster)
    first = world.session().decisions
    thawed = pickle.loads(pickle.dumps(world.snapshot))
    assert Sessions(CONFIG, world.registry).run(thawed, "s-000001").decisions.items == first.items


@quick
@given(clusters)
def test_once_minimums_and_then_surplus_were_carried_out_nothing_more_is_decided(cluster: Cluster) -> None:
    world = build(cluster)
    for _ in range(2):  # the minimums; then, since those are bound, what is above them
        world.session()
        world.carry_out()
    world.session()
    assert world.places == []
    world.carry_out()
    for _ in range(2):
        world.session()
        assert [item for item in world.result.decisions.items if not isinstance(item, Explain)] == []  # type: ignore[union-attr]
        world.carry_out()


@quick
@given(clusters, st.data())
def test_what_is_remembered_gives_the_same_as_what_is_computed_anew(cluster: Cluster, data: st.DataObject) -> None:
    """Random changes between sessions; after each, a session with memory and one without decide and reason alike."""
    world = build(cluster)
    for _ in range(3):
        world.session()
        world.carry_out()
        choice = data.draw(st.sampled_from(("nothing", "end a pod", "new node", "cordon", "new pod")))
        if choice == "end a pod":
            bound = sorted(pod.uid for pod in world.pods.values() if pod.node and not pod.finished)
            if bound:
                uid = data.draw(st.sampled_from(bound))
                world.set_pod(replace(world.pods[uid], phase="Succeeded"))
        elif choice == "new node":
            world.node(f"x{world.now}", gpu=2, cpu=4, labels={"rack": "a"})
        elif choice == "cordon":
            world.node("n0", gpu=1, cpu=1, labels={"rack": "a"}, unschedulable=True)
        elif choice == "new pod":
            world.pod(f"late{world.now}", shape(gpu=1))
        world.now += 10
        snapshot = world.take()
        remembering, fresh = world.sessions, Sessions(CONFIG, world.registry)
        world.result = remembering.run(snapshot, "s-9")
        anew = fresh.run(snapshot, "s-9")
        assert world.places == placements(anew.decisions)
        assert world.result.verdicts == anew.verdicts
