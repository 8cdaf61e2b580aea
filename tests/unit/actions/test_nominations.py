"""What a pod of another scheduler is nominated for is there for groups of a higher priority only."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scheduler.actions.run import Sessions
from scheduler.cluster import feed
from scheduler.model.affinity import HostPort, LabelSelector, PodSelector, PodTerm, Requirement, SpreadTerm
from scheduler.model.nodes import HOSTNAME
from scheduler.model.pods import Pod, Shape
from scheduler.model.podvolumes import Disk, PodClaim, PodVolumes
from scheduler.model.volumes import Claim, NodeDrivers, StorageClass, StorageDriver, Volume
from tests.unit.framework.world import World, shape


def world() -> World:
    made = World().node("n1", gpu=4)
    made.sessions = Sessions(made.config, made.registry, check=True)
    made.priority("high", 100).priority("mid", 50).priority("low", 10)
    return made


def nominated(w: World, name: str, gpu: int, priority: int, node: str = "n1") -> Pod:
    return w.pod(name, shape(gpu=gpu), ours=False, nominated=node, priority=priority)


@pytest.mark.parametrize(("name", "placed"), [("high", 3), ("mid", 0), ("low", 0)])
def test_only_a_higher_priority_takes_the_space(name: str, placed: int) -> None:
    w = world()
    nominated(w, "theirs", 3, 50)
    w.gang("g", 3, priority_class=name)
    result = w.session()
    assert len(w.placed_of("g")) == placed
    if not placed:
        facts = dict(result.verdicts["muster/ns/g"].facts)
        assert (facts["free"], facts["short"]) == (1, 2)


def test_what_is_told_to_a_higher_group_counts_the_space_as_free() -> None:
    w = world()
    nominated(w, "theirs", 3, 50)
    nominated(w, "above", 1, 200)
    w.gang("g", 4, priority_class="high")
    facts = dict(w.session().verdicts["muster/ns/g"].facts)
    assert (facts["free"], facts["short"]) == (3, 1)


def test_what_a_higher_group_took_is_gone_for_all_others_in_the_same_session() -> None:
    w = world()
    nominated(w, "theirs", 3, 50)
    w.gang("first", 2, priority_class="high")
    w.gang("second", 2, priority_class="high")
    w.gang("third", 1, priority_class="low")
    w.session()
    assert len(w.placed_of("first")) == 2 and len(w.placed_of("second")) == 2
    assert w.placed_of("third") == []
    w.carry_out()
    w.session(later=1.0)
    assert w.placed == {}


def test_pod_slots_are_left_to_it_too() -> None:
    w = world()
    w.node("n1", gpu=4, slots=1)
    nominated(w, "theirs", 0, 50)
    w.pod("low", shape(gpu=1), priority=10)
    w.session()
    assert w.placed == {}
    w.pod("high", shape(gpu=1), priority=100)
    w.session(later=1.0)
    assert w.placed == {"high": "n1"}


def test_a_nomination_of_lower_priority_in_place_of_another_is_a_reason_to_search() -> None:
    w = world()
    nominated(w, "theirs", 3, 200)
    w.gang("g", 3, priority_class="high")
    w.session()
    assert w.placed_of("g") == []
    w.drop_pod("theirs")
    nominated(w, "others", 3, 50)
    w.session(later=1.0)
    assert len(w.placed_of("g")) == 3


def test_a_nomination_to_a_node_that_does_not_exist_holds_nothing() -> None:
    w = world()
    nominated(w, "theirs", 3, 50, node="gone")
    w.gang("g", 4, priority_class="low")
    w.session()
    assert len(w.placed_of("g")) == 4


def test_a_node_is_overcommitted_by_what_is_there_and_not_by_what_is_only_nominated() -> None:
    w = world()
    w.running("a", "n1", shape(gpu=4))
    nominated(w, "theirs", 3, 50)
    assert w.session().overcommitted == ()
    w.running("b", "n1", shape(gpu=1))
    assert w.session(later=1.0).overcommitted == ("n1",)
    w.drop_pod("b")
    w.node("n1", gpu=4, slots=0)
    assert w.session(later=1.0).overcommitted == ("n1",)


THEIRS = PodSelector(("ns",), None, LabelSelector((Requirement("app", "In", ("theirs",)),)))
OURS = PodSelector(("ns",), None, LabelSelector((Requirement("app", "In", ("ours",)),)))
PORT = shape(host_ports=(HostPort("TCP", "0.0.0.0", 80),))
AWAY = shape(anti_affinity=(PodTerm(THEIRS, HOSTNAME),))
KEEPS_AWAY = shape(anti_affinity=(PodTerm(OURS, HOSTNAME),))
BOTH = PodSelector(("ns",), None, LabelSelector((Requirement("app", "In", ("ours", "theirs")),)))
EVENLY = shape(spread=(SpreadTerm(BOTH, HOSTNAME, honor_affinity=False),))
DISK = PodVolumes(disks=(Disk("gcePersistentDisk", "disk"),))
CLAIM = PodVolumes((PodClaim("data"),))

RULES = [
    pytest.param(PORT, PORT, None, None, id="host port"),
    pytest.param(shape(), AWAY, None, None, id="anti-affinity against it"),
    pytest.param(KEEPS_AWAY, shape(gpu=1), None, None, id="its anti-affinity"),
    pytest.param(shape(), EVENLY, None, None, id="spread"),
    pytest.param(shape(), shape(gpu=1), DISK, DISK, id="disk"),
    pytest.param(shape(), shape(gpu=1), CLAIM, CLAIM, id="claim for one pod"),
    pytest.param(shape(), shape(gpu=1), CLAIM, PodVolumes((PodClaim("other"),)), id="volume limit"),
]


@pytest.mark.parametrize(("its", "ours", "its_volumes", "volumes"), RULES)
def test_what_it_brings_besides_amounts_counts_for_a_lower_priority_and_not_for_a_higher_one(
    its: Shape, ours: Shape, its_volumes: PodVolumes | None, volumes: PodVolumes | None
) -> None:
    w = world()
    w.node("n2", unschedulable=True)
    stock(w)
    w.pod("theirs", its, ours=False, nominated="n1", priority=50, labels=(("app", "theirs"),), volumes=its_volumes)
    for name, priority in (("low", 10), ("same", 50)):
        w.pod(name, ours, priority=priority, labels=(("app", "ours"),), volumes=volumes)
    w.session()
    assert w.placed == {}
    w.pod("high", ours, priority=51, labels=(("app", "ours"),), volumes=volumes)
    w.session(later=1.0)
    assert w.placed == {"high": "n1"}
    w.drop_pod("high")
    w.session(later=1.0)
    assert w.placed == {}


def stock(w: World) -> None:
    """Two claims for one pod each with their volumes, on nodes that attach one."""
    w.take()
    events: list[feed.Event] = [
        feed.StorageClassSet(StorageClass("sc", "fast", "csi.example.com")),
        feed.StorageDriverSet(StorageDriver("sd", "csi.example.com")),
        feed.NodeDriversSet(NodeDrivers("nd", "n1", (("csi.example.com", 1),))),
    ]
    for name in ("data", "other"):
        modes = ("ReadWriteOncePod",)
        volume = Volume(f"v-{name}", name, "fast", 1, modes, driver="csi.example.com", handle=name)
        claim = Claim(f"c-{name}", "ns", name, "fast", size=1, modes=modes, volume=name, bound=True)
        events += [feed.VolumeSet(volume), feed.ClaimSet(claim)]
    w.store.apply(events, w.now)


def test_affinity_is_not_kept_by_a_pod_that_is_only_nominated() -> None:
    near = shape(affinity=(PodTerm(THEIRS, HOSTNAME),))
    w = world()
    theirs = w.pod("theirs", shape(), ours=False, nominated="n1", priority=50, labels=(("app", "theirs"),))
    for name, priority in (("low", 10), ("high", 100)):
        w.pod(name, near, priority=priority)
    w.session()
    assert w.placed == {}
    w.set_pod(replace(theirs, node="n1"))
    w.session(later=1.0)
    assert w.placed == {"low": "n1", "high": "n1"}
