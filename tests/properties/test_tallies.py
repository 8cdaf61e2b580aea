"""Counts that are kept event by event equal counts made from nothing, whatever the events and their order."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from scheduler.cluster import feed
from scheduler.cluster.store import Store
from scheduler.model.affinity import (
    HostPort,
    LabelSelector,
    PodSelector,
    PodTerm,
    Requirement,
    SpreadTerm,
    WeightedPodTerm,
)
from scheduler.model.decisions import Assignment, Place
from scheduler.model.nodes import Node
from scheduler.model.pods import Pod, Shape
from scheduler.model.presence import Carried, Presence, Selectors, carried, selections
from scheduler.model.selecting import means

APPS = ("a", "b", "c")
NAMESPACES = ("x", "y")
Wanted = dict[object, dict[str, int]]


def selector(rng: random.Random, *, living: bool = False) -> PodSelector:
    labels = rng.choice(
        (
            None,
            LabelSelector(),
            LabelSelector((Requirement("app", "In", tuple(sorted(rng.sample(APPS, 2)))),)),
            LabelSelector((Requirement("app", "NotIn", ("a",)), Requirement("hot", "Exists"))),
            LabelSelector((Requirement("hot", "DoesNotExist"),)),
        )
    )
    team = LabelSelector((Requirement("team", "In", ("ml",)),))
    wide = rng.choice((None, None, team, LabelSelector()))
    return PodSelector(tuple(rng.sample(NAMESPACES, rng.randint(1, 2))), wide, labels, living)


def shape(rng: random.Random, number: int) -> Shape:
    def terms(most: int) -> tuple[PodTerm, ...]:
        return tuple(PodTerm(selector(rng), rng.choice(("zone", "rack"))) for _ in range(rng.randint(0, most)))

    if rng.random() < 0.4:
        return Shape(key=f"plain-{number}")
    return Shape(
        key=f"s{number}",
        host_ports=tuple(HostPort(rng.randint(1, 2)) for _ in range(rng.randint(0, 1))),
        affinity=terms(2),
        anti_affinity=terms(1),
        preferred_pods=tuple(WeightedPodTerm(rng.choice((-5, 5)), one) for one in terms(1)),
        spread=tuple(SpreadTerm(selector(rng, living=True), "zone") for _ in range(rng.randint(0, 1))),
    )


class Cluster:
    """Random events for a store, and the same facts in the simplest form."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.store = Store()
        self.shapes = {one.key: one for one in (shape(self.rng, number) for number in range(6))}
        self.pods: dict[str, Pod] = {}
        self.assumed: dict[str, str] = {}
        self.namespaces: dict[str, tuple[tuple[str, str], ...]] = {}
        self.nodes: dict[str, None] = {}
        self.store.apply([feed.ShapeSet(one) for one in self.shapes.values()], 0.0)
        for name in ("n1", "n2", "n3"):
            self.set_node(name)

    def set_node(self, name: str) -> None:
        self.nodes[name] = None
        self.store.apply([feed.NodeSet(Node(name))], 0.0)

    def set_pod(self, pod: Pod) -> None:
        self.pods[pod.uid] = pod
        if pod.node or pod.finished:
            self.assumed.pop(pod.uid, None)
        self.store.apply([feed.PodSet(pod)], 0.0)

    def step(self) -> None:
        rng, uid = self.rng, f"u{self.rng.randint(0, 11)}"
        pod = self.pods.get(uid)
        if pod is None:
            labels = tuple((key, rng.choice(APPS)) for key in ("app", "hot") if rng.random() < 0.6)
            made = Pod(
                uid, rng.choice(NAMESPACES), uid, rng.choice(list(self.shapes)), ours=rng.random() < 0.7, labels=labels
            )
            self.set_pod(
                replace(made, node=rng.choice(list(self.nodes))) if self.nodes and rng.random() < 0.5 else made
            )
            return
        match rng.randint(0, 7):
            case 0:
                del self.pods[uid]
                self.assumed.pop(uid, None)
                self.store.apply([feed.PodGone(uid)], 0.0)
            case 1:
                self.set_pod(replace(pod, deleting=True))
            case 2:
                self.set_pod(replace(pod, labels=(("app", rng.choice(APPS)),)))
            case 3 if pod.node:
                self.set_pod(replace(pod, phase="Succeeded"))
            case 4 if pod.waiting and pod.ours and self.nodes:
                node = rng.choice(list(self.nodes))
                self.assumed[uid] = node
                place = Place("g", "", pod.namespace, "g", "", "", 1, (Assignment(uid, pod.namespace, uid, node),))
                self.store.assume(place, "s")
            case 5 if uid in self.assumed:
                self.set_pod(replace(pod, node=self.assumed[uid]))
            case 6:
                name = rng.choice(NAMESPACES)
                self.namespaces[name] = rng.choice(((), (("team", "ml"),), (("team", "web"),)))
                self.store.apply([feed.NamespaceSet(name, labels=self.namespaces[name])], 0.0)
            case 7:
                name = f"n{rng.randint(1, 4)}"
                if name in self.nodes and rng.random() < 0.5:
                    del self.nodes[name]
                    self.store.apply([feed.NodeGone(name)], 0.0)
                else:
                    self.set_node(name)

    def expected(self) -> tuple[Wanted, Wanted, Wanted]:
        tallies: Wanted = {}
        carriers: Wanted = {}
        ports: Wanted = {}
        for pod in self.pods.values():
            if pod.ours and pod.waiting and pod.uid not in self.assumed:
                tallies.update((one, {}) for one in selections(self.shapes[pod.shape]))
        for pod in self.pods.values():
            node = pod.node or self.assumed.get(pod.uid, "")
            if pod.finished or node not in self.nodes:
                continue
            for selectors, on in tallies.items():
                assert isinstance(selectors, tuple)
                dying = pod.deleting and any(one.living for one in selectors)
                if not dying and means(selectors, pod.namespace, dict(pod.labels), self.namespaces):
                    on[node] = on.get(node, 0) + 1
            of = self.shapes[pod.shape]
            for key, found in (*((one, carriers) for one in carried(of)), *((one, ports) for one in of.host_ports)):
                on = found.setdefault(key, {})
                on[node] = on.get(node, 0) + 1
        return tallies, carriers, ports


def told(presence: Presence, names: tuple[str, ...]) -> tuple[Wanted, Wanted, Wanted]:
    def plain(found: object) -> Wanted:
        assert isinstance(found, dict)
        return {
            key: {names[row]: int(count) for row, count in zip(spots.rows, spots.counts, strict=True)}
            for key, spots in found.items()
        }

    carriers = {key: on for key, on in plain(presence.carriers).items() if on}
    return plain(presence.tallies), carriers, {key: on for key, on in plain(presence.ports).items() if on}


@pytest.mark.parametrize("seed", range(150))
def test_counts_are_those_of_a_fresh_count(seed: int) -> None:
    cluster = Cluster(seed)
    for _ in range(60):
        cluster.step()
        if cluster.rng.random() < 0.3:
            snapshot = cluster.store.snapshot(0.0)
            assert told(snapshot.presence, snapshot.table.names) == cluster.expected()
            again = cluster.store.snapshot(0.0).presence
            assert again is snapshot.presence


def test_every_kind_of_count_occurs() -> None:
    tallies: set[Selectors] = set()
    carriers: set[Carried] = set()
    ports: set[HostPort] = set()
    for seed in range(30):
        cluster = Cluster(seed)
        for _ in range(40):
            cluster.step()
        found = cluster.store.snapshot(0.0).presence
        tallies |= {key for key, spots in found.tallies.items() if spots.counts.any()}
        carriers |= set(found.carriers)
        ports |= set(found.ports)
    assert len(tallies) > 20
    assert {one.kind for one in carriers} == {"anti", "affinity", "preferred"}
    assert ports == {HostPort(1), HostPort(2)}
