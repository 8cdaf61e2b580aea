"""When the status of a topology or a hyper-node is written, and what is not written at all."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from scheduler.cluster import feed
from scheduler.cluster.topologystatus import TopologyStatuses
from scheduler.cluster.writer import Request, Write
from scheduler.model.decisions import Decisions, SetTopologyStatus
from scheduler.model.topology import HyperNode, Topology, TopologyFacts
from tests.unit.framework.world import World as Sessions

FACTS = TopologyFacts((("rack", 2),), 1)
RACK = "t.example/rack"


class World:
    """A cache with a topology and a hyper-node of one name, a dialect, and a writer that writes at once."""

    def __init__(self) -> None:
        self.wired: Topology | None = Topology("fabric", "u1", "muster", resource_version="1")
        self.grouped = HyperNode("fabric", "u2", "muster", 1, resource_version="1")
        self.sent: list[Request] = []
        self.forgotten: list[Any] = []
        self.time = 0.0
        self.statuses = TopologyStatuses(self, self, {"muster": self}, lambda: "now", timer=lambda: self.time)

    def topology(self, dialect: str, name: str) -> Topology | None:
        return self.wired

    def hypernode(self, dialect: str, name: str) -> HyperNode | None:
        return self.grouped

    def topology_path(self, one: Topology | HyperNode) -> str:
        return "/hn" if isinstance(one, HyperNode) else "/topo"

    def topology_status_patch(self, one: Topology | HyperNode, facts: TopologyFacts, now: str) -> dict[str, Any] | None:
        return {"status": {"unlabelledNodes": facts.unlabelled}}

    def offer(self, write: Write) -> None:
        request = write.build()
        if request is not None:
            self.sent.append(request)

    def forget(self, key: Any) -> None:
        self.forgotten.append(key)

    def say(self, uid: str = "u1", *, hypernode: bool = False, **facts: Any) -> None:
        self.statuses.say(SetTopologyStatus("fabric", uid, "muster", hypernode, replace(FACTS, **facts)))


async def test_a_status_goes_to_the_object_of_its_kind() -> None:
    world = World()
    world.say()
    world.say("u2", hypernode=True, unlabelled=5)
    assert [(request.path, request.body) for request in world.sent] == [
        ("/topo/status", {"metadata": {"uid": "u1"}, "status": {"unlabelledNodes": 1}}),
        ("/hn/status", {"metadata": {"uid": "u2"}, "status": {"unlabelledNodes": 5}}),
    ]


async def test_what_is_said_is_not_said_again_and_numbers_wait_but_faults_do_not() -> None:
    world = World()
    world.say()
    world.say()
    world.say(unlabelled=2)
    assert len(world.sent) == 1
    world.say(unlabelled=2, faults=(("Cycle", "odd"),))
    assert len(world.sent) == 2
    assert world.statuses.faults() == {"Cycle": 1}
    world.statuses.close()


async def test_an_object_that_is_gone_or_another_is_left_alone() -> None:
    world = World()
    world.say("u9")
    assert world.sent == []
    world.say()
    world.statuses.gone("muster", "fabric", hypernode=True)
    assert world.forgotten == []
    world.statuses.gone("muster", "fabric", hypernode=False)
    assert world.forgotten == [("topology", "u1")]
    world.wired = None
    world.say()
    assert len(world.sent) == 1


def wired(world: Sessions) -> list[SetTopologyStatus]:
    assert world.result is not None
    return [item for item in world.result.decisions.items if isinstance(item, SetTopologyStatus)]


def test_a_session_speaks_of_topologies_when_something_about_them_changed() -> None:
    world = Sessions().node("a", labels={RACK: "r1"}).node("b").topology("fabric", ("rack", RACK))
    world.hypernode("s0", 1, "a")
    world.session()
    assert wired(world) == [
        SetTopologyStatus("fabric", "uid-muster-fabric", "muster", False, TopologyFacts((("rack", 1),), 1)),
        SetTopologyStatus("s0", "uid-hn-s0", "volcano", True, TopologyFacts(nodes=1)),
    ]
    world.session()
    assert wired(world) == []
    world.node("b", labels={RACK: "r1"})
    world.session()
    assert [said.facts.unlabelled for said in wired(world)] == [0]
    world.topology("fabric", ("rack", RACK), generation=2)
    world.session()
    assert [(said.name, said.generation) for said in wired(world)] == [("fabric", 2)]


def test_statuses_cross_the_border_between_the_processes() -> None:
    said = SetTopologyStatus("fabric", "u1", "muster", False, FACTS)
    sent = feed.from_brain.decode(feed.encode([feed.Handover.of(Decisions("s-1", 1, (said,)))]))[0]
    assert isinstance(sent, feed.Handover)
    assert sent.topology_statuses == (said,)
