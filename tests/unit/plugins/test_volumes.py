"""Where pods with volumes go, what keeps them waiting, and the steps that their placements carry."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from scheduler.cluster import feed
from scheduler.model.affinity import LabelSelector, Requirement
from scheduler.model.nodes import HOSTNAME
from scheduler.model.pods import SelectorTerm
from scheduler.model.podvolumes import Disk, PodClaim, PodVolumes, VolumeStep
from scheduler.model.verdict import Code
from scheduler.model.volumes import (
    Attachment,
    Claim,
    NodeDrivers,
    StorageCapacity,
    StorageClass,
    StorageDriver,
    Volume,
    reaches,
)
from scheduler.observe import explain
from tests.unit.framework.world import World, shape

ZONE = "topology.kubernetes.io/zone"
CPU = shape(cpu=1)
LOCAL = StorageClass("sc-local", "local", "kubernetes.io/no-provisioner", delayed=True)
FAST = StorageClass("sc-fast", "fast", "csi.example.com", delayed=True)


def on(key: str, *values: str) -> tuple[SelectorTerm, ...]:
    return (SelectorTerm((Requirement(key, "In", values),)),)


def at(*nodes: str) -> tuple[SelectorTerm, ...]:
    return on(HOSTNAME, *nodes)


def on_node(node: str) -> LabelSelector:
    return LabelSelector((Requirement(HOSTNAME, "In", (node,)),))


class Storeroom(World):
    """A cluster of three nodes in zones a, b, b, with storage."""

    def __init__(self, nodes: int = 3) -> None:
        super().__init__()
        for number in range(nodes):
            self.node(f"n{number}", labels={ZONE: "a" if number == 0 else "b"})
        self.tell(feed.StorageClassSet(LOCAL), feed.StorageClassSet(FAST))

    def tell(self, *events: feed.Event) -> None:
        self._queue.extend(events)

    def claim(self, name: str, storage_class: str = "local", size: int = 10, **fields: object) -> Claim:
        made = Claim(f"c-{name}", "ns", name, storage_class, size=size, modes=("ReadWriteOnce",))
        made = replace(made, **fields)  # type: ignore[arg-type]
        self.tell(feed.ClaimSet(made))
        return made

    def volume(self, name: str, size: int = 10, **fields: object) -> Volume:
        made = Volume(f"v-{name}", name, "local", size, ("ReadWriteMany", "ReadWriteOnce"), available=True)
        made = replace(made, **fields)  # type: ignore[arg-type]
        self.tell(feed.VolumeSet(made))
        return made

    def with_claims(self, name: str, *claims: str, **fields: object) -> None:
        self.pod(name, CPU, volumes=PodVolumes(tuple(map(PodClaim, claims))), **fields)

    def gang_with(self, name: str, claims: Mapping[int, tuple[str, ...]], minimum: int | None = None) -> None:
        group = self.group(name, len(claims) if minimum is None else minimum)
        for number, names in claims.items():
            self.member(group, number, CPU, volumes=PodVolumes(tuple(map(PodClaim, names))))

    def text(self, name: str) -> str:
        verdict = self.verdict(name)
        assert verdict is not None, f"{name} was told nothing; placed: {self.placed}"
        return explain.pod_message(verdict)

    @property
    def steps(self) -> dict[str, str]:
        """Claim -> volume, or "" where one is made."""
        return {step.claim: step.volume for place in self.places for step in place.steps}


# -- single pods -----------------------------------------------------------------------------------------------------


def test_a_pod_waits_for_a_claim_that_does_not_exist_and_starts_when_it_does() -> None:
    world = Storeroom()
    world.with_claims("p", "data")
    world.session()
    assert world.placed == {}
    verdict = world.verdict("p")
    assert verdict is not None
    assert verdict.code is Code.WAITING_FOR_VOLUMES
    assert '0/3 nodes are available: persistentvolumeclaim "data" not found' in world.text("p")
    world.claim("data", volume="v", bound=True)
    world.volume("v", available=False, claim="ns/data", claim_uid="c-data", terms=on(ZONE, "a"))
    world.session()
    assert world.placed == {"p": "n0"}
    assert world.steps == {}


def test_what_is_wrong_with_a_claim_is_said_in_the_words_of_kubernetes() -> None:
    world = Storeroom()
    world.claim("deleting", deleting=True)
    world.claim("lost", lost=True, volume="gone", bound=True)
    world.claim("now", storage_class="immediate")
    world.claim("noclass", storage_class="")
    world.claim("half", volume="v", bound=False)
    world.claim("novolume", volume="missing", bound=True)
    for name in ("deleting", "lost", "now", "noclass", "half", "novolume"):
        world.with_claims(f"p-{name}", name)
    owned = PodVolumes((PodClaim("e-scratch", ephemeral=True),))
    world.pod("e", CPU, volumes=owned)
    world.session()
    assert world.placed == {}
    unbound = "pod has unbound immediate PersistentVolumeClaims"
    wanted = {
        "p-deleting": 'persistentvolumeclaim "deleting" is being deleted',
        "p-lost": 'persistentvolumeclaim "lost" bound to non-existent persistentvolume "gone"',
        "p-now": unbound,
        "p-noclass": unbound,
        "p-half": unbound,
        "p-novolume": 'persistentvolume "missing" not found',
        "e": 'waiting for ephemeral volume controller to create the persistentvolumeclaim "e-scratch"',
    }
    assert {name: text in world.text(name) for name, text in wanted.items()} == dict.fromkeys(wanted, True)
    world.claim("e-scratch", "fast", owner="somebody else")
    world.session()
    assert "PVC ns/e-scratch was not created for pod ns/e (pod is not owner)" in world.text("e")
    world.claim("e-scratch", "fast", owner="uid-e")
    world.session()
    assert list(world.placed) == ["e"]
    assert world.steps == {"e-scratch": ""}


def test_bound_volumes_keep_pods_where_they_can_be_reached() -> None:
    world = Storeroom()
    world.claim("data", volume="v", bound=True)
    world.volume("v", available=False, claim="ns/data", terms=at("n9"))
    world.claim("zonal", volume="z", bound=True)
    world.volume("z", available=False, claim="ns/zonal", zones=((ZONE, ("c",)),))
    world.claim("old", volume="o", bound=True)
    world.volume("o", available=False, claim="ns/old", zones=(("failure-domain.beta.kubernetes.io/zone", ("a", "x")),))
    for name in ("data", "zonal", "old"):
        world.with_claims(f"p-{name}", name)
    world.session()
    assert world.placed == {"p-old": "n0"}
    assert "3 node(s) didn't match PersistentVolume's node affinity" in world.text("p-data")
    assert "3 node(s) had no available volume zone" in world.text("p-zonal")


@pytest.mark.parametrize("generation", ["1_000", " 1000", "\u0661\u0660\u0660\u0660", str(10**30), "new"])
def test_what_is_no_number_to_kubernetes_is_none_to_a_volume_either(generation: str) -> None:
    volume = Volume("v", "v", "local", terms=(SelectorTerm((Requirement("generation", "Gt", ("5",)),)),))
    assert reaches(volume, {"generation": "1000"})
    assert not reaches(volume, {"generation": generation})


def test_the_smallest_volume_that_fits_is_given_to_a_delayed_claim() -> None:
    world = Storeroom()
    world.claim("data", size=10)
    for name, size, node in (("small", 5, "n1"), ("big", 30, "n1"), ("mid", 20, "n1"), ("far", 10, "n7")):
        world.volume(name, size, terms=at(node))
    world.with_claims("p", "data")
    world.session()
    assert world.placed == {"p": "n1"}
    assert world.places[0].steps == (VolumeStep("uid-p", "ns", "data", "c-data", "mid"),)


def test_without_a_volume_that_fits_and_without_a_provisioner_a_pod_waits() -> None:
    world = Storeroom()
    world.claim("data", size=10)
    world.volume("small", 5)
    world.volume("deleting", 50, deleting=True)
    world.volume("taken", 50, claim="ns/other")
    world.volume("block", 50, block=True)
    world.volume("once", 50, modes=("ReadOnlyMany",))
    world.volume("other", 50, storage_class="fast")
    world.with_claims("p", "data")
    world.session()
    assert "3 node(s) didn't find available persistent volumes to bind" in world.text("p")
    world.volume("new", 10, terms=at("n2"))
    world.session()
    assert world.placed == {"p": "n2"}


def test_a_volume_that_is_reserved_for_the_claim_is_the_one() -> None:
    world = Storeroom()
    world.claim("data", size=10, selector=LabelSelector((Requirement("tier", "In", ("gold",)),)))
    world.volume("cheap", 10, terms=at("n0"))
    world.volume("mine", 50, claim="ns/data", available=False, terms=at("n2"))
    world.with_claims("p", "data")
    world.session()
    assert world.placed == {"p": "n2"}
    assert world.places[0].steps[0].volume == "mine"
    assert world.places[0].steps[0].kept


def test_a_selector_of_a_claim_chooses_among_volumes() -> None:
    world = Storeroom()
    world.claim("data", size=10, selector=LabelSelector((Requirement("tier", "In", ("gold",)),)))
    world.volume("cheap", 10, terms=at("n0"))
    world.volume("gold", 50, labels=(("tier", "gold"),), terms=at("n1"))
    world.with_claims("p", "data")
    world.session()
    assert (world.placed, world.steps) == ({"p": "n1"}, {"data": "gold"})


def test_a_volume_is_made_where_the_class_allows_it() -> None:
    world = Storeroom()
    world.tell(feed.StorageClassSet(replace(FAST, topologies=on(ZONE, "b"))))
    world.claim("data", "fast")
    world.with_claims(
        "p",
        "data",
    )
    world.session()
    assert world.placed["p"] in ("n1", "n2")
    assert world.steps == {"data": ""}
    assert not world.places[0].steps[0].kept


def test_a_claim_that_was_told_its_node_keeps_it() -> None:
    world = Storeroom()
    world.claim("data", "fast", selected="n2")
    world.claim("lost", "fast", selected="n9")
    world.with_claims("p", "data")
    world.with_claims("q", "lost")
    world.session()
    assert world.placed == {"p": "n2"}
    assert world.places[0].steps == (VolumeStep("uid-p", "ns", "data", "c-data", "", kept=True),)
    assert "3 node(s) didn't find available persistent volumes to bind" in world.text("q")


def test_a_volume_is_made_only_where_there_is_room_for_it() -> None:
    world = Storeroom()
    world.tell(
        feed.StorageDriverSet(StorageDriver("d", "csi.example.com", tracks=True)),
        feed.CapacitySet(StorageCapacity("1", "k/0", "fast", 5, 5, on_node("n0"))),
        feed.CapacitySet(StorageCapacity("2", "k/1", "fast", 20, 20, on_node("n1"))),
        feed.CapacitySet(StorageCapacity("3", "k/2", "fast", 20, 20, None)),
    )
    world.claim("data", "fast", 10)
    world.claim("huge", "fast", 100)
    world.with_claims("p", "data")
    world.with_claims("q", "huge")
    world.session()
    assert world.placed == {"p": "n1"}
    assert "3 node(s) did not have enough free storage" in world.text("q")


def test_the_node_with_the_most_room_is_preferred() -> None:
    world = Storeroom()
    world.tell(feed.StorageDriverSet(StorageDriver("d", "csi.example.com", tracks=True)))
    for node, left in (("n0", 20), ("n1", 80), ("n2", 40)):
        world.tell(feed.CapacitySet(StorageCapacity(f"u{node}", f"k/{node}", "fast", left, left, on_node(node))))
    world.claim("data", "fast", 10)
    world.with_claims("p", "data")
    world.session()
    assert world.placed == {"p": "n1"}


# -- claims and disks that others use --------------------------------------------------------------------------------


def test_a_claim_for_one_pod_that_is_in_use_keeps_others_waiting() -> None:
    world = Storeroom()
    world.claim("data", volume="v", bound=True, modes=("ReadWriteOncePod",))
    world.volume("v", available=False, claim="ns/data")
    world.with_claims("first", "data", node="n0", phase="Running")
    world.with_claims("second", "data")
    world.session()
    assert world.placed == {}
    assert "ReadWriteOncePod access mode already in-use by another pod" in world.text("second")
    world.drop_pod("first")
    world.session()
    assert list(world.placed) == ["second"]


def test_a_gang_of_which_two_members_share_a_claim_for_one_pod_never_starts_and_says_so() -> None:
    world = Storeroom()
    world.claim("data", volume="v", bound=True, modes=("ReadWriteOncePod",))
    world.volume("v", available=False, claim="ns/data")
    world.gang_with("g", {0: ("data",), 1: ("data",)})
    world.session()
    assert world.placed == {}
    verdict = world.verdict("g")
    assert verdict is not None
    assert (verdict.code, verdict.permanent) == (Code.BAD_CONSTRAINTS, True)
    assert "data" in world.text("g")
    assert "ReadWriteOncePod" in world.text("g")


def test_of_single_pods_that_share_a_claim_for_one_pod_one_runs() -> None:
    world = Storeroom()
    world.claim("data", "fast", modes=("ReadWriteOncePod",))
    for name in ("p", "q", "r"):
        world.with_claims(name, "data")
    world.session()
    assert len(world.placed) == 1


def test_disks_without_a_claim_are_on_a_node_once_unless_they_are_only_read() -> None:
    world = Storeroom()
    world.pod("there", CPU, node="n0", phase="Running", volumes=PodVolumes(disks=(Disk("aws", "d"),)))
    group = world.group("g", 2)
    for number in range(2):
        world.member(group, number, CPU, volumes=PodVolumes(disks=(Disk("aws", "d"),)))
    reads = world.group("readers", 4)
    for number in range(4):
        world.member(reads, number, CPU, volumes=PodVolumes(disks=(Disk("gce", "d", reads=True),)))
    world.session()
    assert sorted(node for pod, node in world.placed.items() if pod.startswith("g-")) == ["n1", "n2"]
    assert len([pod for pod in world.placed if pod.startswith("readers")]) == 4
    world.carry_out()
    world.pod("late", CPU, volumes=PodVolumes(disks=(Disk("aws", "d"),)))
    world.session()
    assert "3 node(s) had no available disk" in world.text("late")


# -- gangs -----------------------------------------------------------------------------------------------------------


def test_members_get_distinct_local_volumes_each_on_its_node() -> None:
    world = Storeroom()
    for number in range(3):
        world.claim(f"d{number}")
        world.volume(f"v{number}", terms=at(f"n{number}"))
    world.gang_with("g", {number: (f"d{number}",) for number in range(3)})
    world.session()
    assert sorted(world.placed.values()) == ["n0", "n1", "n2"]
    (place,) = world.places
    assert len(place.steps) == 3
    node_of = {one.uid: one.node for one in place.assignments}
    assert {step.volume: node_of[step.uid] for step in place.steps} == {"v0": "n0", "v1": "n1", "v2": "n2"}


def test_three_local_volumes_are_not_enough_for_four_members() -> None:
    world = Storeroom()
    for number in range(3):
        world.volume(f"v{number}", terms=at(f"n{number}"))
    for number in range(4):
        world.claim(f"d{number}")
    world.gang_with("g", {number: (f"d{number}",) for number in range(4)})
    world.session()
    assert world.placed == {}
    assert "node(s) didn't find available persistent volumes to bind" in world.text("g")
    assert "there is room, but not with the persistent volumes that are available; 3 of 4 " in world.text("g")
    world.volume("v3", terms=at("n1"))
    world.session()
    assert len(world.placed) == 4
    assert sorted(world.steps.values()) == ["v0", "v1", "v2", "v3"]


def test_volumes_of_a_zone_and_of_everywhere_are_counted_once() -> None:
    for terms in (on(ZONE, "b"), None):
        world = Storeroom()
        for number in range(2):
            world.volume(f"v{number}", terms=terms)
        for number in range(3):
            world.claim(f"d{number}")
        world.gang_with("g", {number: (f"d{number}",) for number in range(3)})
        world.session()
        assert world.placed == {}, terms
        world.volume("v2", terms=terms)
        world.session()
        assert len(set(world.steps.values())) == 3, terms


def test_large_claims_are_not_starved_by_small_ones() -> None:
    world = Storeroom(1)
    for name, size in (("small", 10), ("big", 30)):
        world.volume(name, size)
    world.claim("little", size=5)
    world.claim("large", size=25)
    world.gang_with("g", {0: ("little",), 1: ("large",)})
    world.session()
    assert world.steps == {"little": "small", "large": "big"}


def test_two_large_claims_do_not_fit_one_large_and_one_small_volume() -> None:
    world = Storeroom(1)
    world.volume("small", 10)
    world.volume("big", 30)
    world.claim("one", size=25)
    world.claim("two", size=25)
    world.gang_with("g", {0: ("one",), 1: ("two",)})
    world.session()
    assert world.placed == {}


def test_single_pods_of_one_session_do_not_take_the_same_volume() -> None:
    world = Storeroom()
    for number in range(2):
        world.volume(f"v{number}")
    for number in range(3):
        world.claim(f"d{number}")
        world.with_claims(f"p{number}", f"d{number}")
    world.session()
    assert len(world.placed) == 2
    assert sorted(world.steps.values()) == ["v0", "v1"]


def test_what_a_request_under_way_has_taken_is_not_given_again() -> None:
    world = Storeroom()
    world.volume("v0")
    world.claim("d0")
    world.with_claims("p0", "d0")
    world.session()
    (place,) = world.places
    world.store.assume(place, "s-x")
    world.claim("d1")
    world.with_claims("p1", "d1")
    world.session()
    assert world.placed == {}


def small(zones: str) -> Storeroom:
    """A cluster of nodes for one pod each, in the zones "aab", say."""
    world = Storeroom(0)
    for number, zone in enumerate(zones):
        world.node(f"n{number}", cpu=1, labels={ZONE: zone})
    return world


def driver_of_zones(world: Storeroom, nodes: int) -> None:
    for number in range(nodes):
        node = NodeDrivers(f"d-{number}", f"n{number}", (("csi.example.com", -1),), (("csi.example.com", (ZONE,)),))
        world.tell(feed.NodeDriversSet(node))


def test_members_that_share_an_unbound_claim_get_one_volume_that_all_reach() -> None:
    world = small("abb")
    world.volume("narrow", 10, terms=at("n0"))
    world.volume("wide", 20, terms=on(ZONE, "b"))
    world.claim("data", modes=("ReadWriteMany",))
    world.gang_with("g", {0: ("data",), 1: ("data",)})
    world.session()
    assert set(world.placed.values()) == {"n1", "n2"}
    assert world.steps == {"data": "wide"}
    assert len(world.places[0].steps) == 1


def test_of_volumes_that_all_members_reach_the_smallest_is_taken() -> None:
    world = Storeroom()
    world.volume("narrow", 10, terms=at("n0"))
    world.volume("wide", 20, terms=on(ZONE, "b"))
    world.claim("data", modes=("ReadWriteMany",))
    world.gang_with("g", {0: ("data",), 1: ("data",)})
    world.session()
    assert set(world.placed.values()) == {"n0"}
    assert world.steps == {"data": "narrow"}


def test_members_that_share_a_claim_go_to_one_zone_of_the_driver() -> None:
    world = small("abb")
    driver_of_zones(world, 3)
    world.claim("data", "fast")
    world.gang_with("g", {0: ("data",), 1: ("data",)})
    world.session()
    assert set(world.placed.values()) == {"n1", "n2"}
    assert world.steps == {"data": ""}


def test_members_that_share_a_claim_wait_when_no_zone_has_room_for_all_and_say_so() -> None:
    world = small("abc")
    driver_of_zones(world, 3)
    world.claim("data", "fast")
    world.gang_with("g", {0: ("data",), 1: ("data",)})
    world.session()
    assert world.placed == {}
    assert "volumes that members share" in world.text("g")


def test_a_volume_for_many_is_first_sought_in_one_zone_and_keeps_nobody_waiting() -> None:
    world = small("abb")
    driver_of_zones(world, 3)
    world.claim("data", "fast", modes=("ReadWriteMany",))
    world.claim("more", "fast", modes=("ReadWriteMany",))
    world.gang_with("g", {0: ("data",), 1: ("data",)})
    world.session()
    assert set(world.placed.values()) == {"n1", "n2"}
    world = small("abb")
    driver_of_zones(world, 3)
    world.claim("data", "fast", modes=("ReadWriteMany",))
    world.gang_with("g", dict.fromkeys(range(3), ("data",)))
    world.session()
    assert set(world.placed.values()) == {"n0", "n1", "n2"}


def test_of_an_unknown_provisioner_a_volume_for_one_writer_is_first_sought_on_one_node() -> None:
    world = Storeroom(0)
    for number, cpus in enumerate((1, 2, 1)):
        world.node(f"n{number}", cpu=cpus)
    world.claim("data", "fast")
    world.gang_with("g", {0: ("data",), 1: ("data",)})
    world.session()
    assert set(world.placed.values()) == {"n1"}
    world = small("abb")
    world.claim("data", "fast")
    world.gang_with("g", {0: ("data",), 1: ("data",)})
    world.session()
    assert len(set(world.placed.values())) == 2


def test_an_existing_volume_is_given_to_a_shared_claim_only_where_all_members_reach_it() -> None:
    world = small("abb")
    driver_of_zones(world, 3)
    world.volume("far", 10, storage_class="fast", terms=at("n1"))
    world.claim("data", "fast")
    world.gang_with("g", {0: ("data",), 1: ("data",)})
    world.session()
    assert set(world.placed.values()) == {"n1", "n2"}
    assert world.steps == {"data": ""}


def test_two_gangs_of_one_session_that_share_a_claim_get_one_volume() -> None:
    world = small("aabb")
    world.volume("v-a", 10, terms=on(ZONE, "a"))
    world.volume("v-b", 10, terms=on(ZONE, "b"))
    world.claim("data", modes=("ReadWriteMany",))
    world.gang_with("g", {0: ("data",)})
    world.gang_with("h", {0: ("data",)})
    world.session()
    assert set(world.placed.values()) in ({"n0", "n1"}, {"n2", "n3"})
    assert len({step.volume for place in world.places for step in place.steps}) == 1


def test_a_gang_makes_no_more_than_there_is_space_for() -> None:
    world = Storeroom()
    world.tell(feed.StorageDriverSet(StorageDriver("d", "csi.example.com", tracks=True)))
    for node in ("n0", "n1", "n2"):
        world.tell(feed.CapacitySet(StorageCapacity(f"u{node}", f"k/{node}", "fast", 10, 10, on_node(node))))
    for number in range(4):
        world.claim(f"d{number}", "fast", 10)
    world.gang_with("g", {number: (f"d{number}",) for number in range(3)})
    world.gang_with("more", {3: ("d3",)})
    world.session()
    assert sorted(world.placed[f"g-{number}"] for number in range(3)) == ["n0", "n1", "n2"]


# -- limits ----------------------------------------------------------------------------------------------------------


def attached(world: Storeroom, name: str, node: str = "") -> None:
    """A claim with a volume of the driver, used by a pod on a node."""
    world.claim(name, "fast", volume=f"v-{name}", bound=True)
    world.volume(f"v-{name}", available=False, claim=f"ns/{name}", driver="csi.example.com", handle=f"h-{name}")
    if node:
        world.with_claims(f"on-{name}", name, node=node, phase="Running")


def limit(world: Storeroom, count: int, *nodes: str) -> None:
    for node in nodes:
        world.tell(feed.NodeDriversSet(NodeDrivers(f"d-{node}", node, (("csi.example.com", count),))))


def test_a_node_attaches_no_more_volumes_than_it_says() -> None:
    world = Storeroom(2)
    limit(world, 2, "n0", "n1")
    for number in range(3):
        attached(world, f"a{number}", "n0" if number < 2 else "n1")
    for number in range(2):
        world.claim(f"d{number}", "fast")
        world.with_claims(f"p{number}", f"d{number}")
    world.session()
    assert list(world.placed.values()) == ["n1"]
    waiting = "p0" if "p1" in world.placed else "p1"
    assert "node(s) exceed max volume count" in world.text(waiting)


def test_a_volume_that_is_attached_counts_even_without_a_pod() -> None:
    world = Storeroom(1)
    limit(world, 1, "n0")
    attached(world, "a")
    world.tell(feed.AttachmentSet(Attachment("x", "x", "n0", "csi.example.com", "v-a")))
    world.claim("d", "fast")
    world.with_claims("p", "d")
    world.with_claims("q", "a")
    world.session()
    assert world.placed == {"q": "n0"}


def test_a_shared_claim_counts_once_a_node() -> None:
    world = Storeroom(2)
    limit(world, 1, "n0", "n1")
    attached(world, "shared")
    world.gang_with("g", dict.fromkeys(range(4), ("shared",)))
    world.session()
    assert len(world.placed) == 4
    world.carry_out()
    world.claim("d", "fast")
    world.with_claims("p", "d")
    world.session()
    assert ("p" in world.placed) == (len({pod.node for pod in world.pods.values() if pod.node}) == 1)


def test_a_driver_may_insist_on_being_installed() -> None:
    world = Storeroom()
    limit(world, 5, "n1")
    world.tell(feed.StorageDriverSet(StorageDriver("d", "csi.example.com", insists=True)))
    world.claim("d", "fast")
    world.with_claims(
        "p",
        "d",
    )
    world.session()
    assert world.placed == {"p": "n1"}


# -- nobody else waits -----------------------------------------------------------------------------------------------


def test_volumes_of_an_in_tree_plugin_count_against_the_limit_of_the_driver() -> None:
    world = Storeroom()
    for node, count in (("n0", 1), ("n1", 1), ("n2", 0)):
        world.tell(feed.NodeDriversSet(NodeDrivers(f"d-{node}", node, (("ebs.csi.aws.com", count),))))
    for number in range(4):
        world.pod(f"p{number}", CPU, volumes=PodVolumes(attached=(("ebs.csi.aws.com", f"vol-{number // 2}"),)))
    world.session()
    on_node = {name: world.placed.get(name) for name in ("p0", "p1", "p2", "p3")}
    assert on_node["p0"] == on_node["p1"] != on_node["p2"] == on_node["p3"]
    world.pod("p4", CPU, volumes=PodVolumes(attached=(("ebs.csi.aws.com", "vol-4"),)))
    world.session()
    assert "3 node(s) exceed max volume count" in world.text("p4")


def test_a_class_of_an_in_tree_plugin_makes_volumes_of_the_driver() -> None:
    world = Storeroom(1)
    world.tell(feed.StorageClassSet(StorageClass("sc-old", "old", "kubernetes.io/aws-ebs", delayed=True)))
    world.tell(feed.NodeDriversSet(NodeDrivers("d", "n0", (("ebs.csi.aws.com", 1),))))
    for name in ("a", "b"):
        world.claim(name, "old")
        world.with_claims(f"p-{name}", name)
    world.session()
    assert len(world.placed) == 1


def test_a_moved_volume_is_reached_by_the_labels_of_the_driver_where_the_kubelet_has_left_it() -> None:
    world = Storeroom(0)
    for name, labels in (("n0", {ZONE: "a"}), ("n1", {ZONE: "b"}), ("n2", {"topology.ebs.csi.aws.com/zone": "b"})):
        world.node(name, labels=labels)
        moved = ("kubernetes.io/aws-ebs",) if name != "n1" else ()
        world.tell(feed.NodeDriversSet(NodeDrivers(f"d-{name}", name, moved=moved)))
    world.volume(
        "v", available=False, claim="ns/data", terms=on(ZONE, "b"), driver="ebs.csi.aws.com", handle="vol-1",
        plugin="kubernetes.io/aws-ebs", moved=on("topology.ebs.csi.aws.com/zone", "b"),
    )  # fmt: skip
    world.claim("data", volume="v", bound=True)
    world.gang_with("g", dict.fromkeys(range(8), ("data",)))
    world.session()
    assert set(world.placed.values()) <= {"n1", "n2"}
    assert world.placed


def test_members_above_the_minimum_start_when_only_others_have_no_claim() -> None:
    world = Storeroom()
    world.claim("d0", "fast")
    world.claim("d1", "fast")
    world.gang_with("g", {0: ("d0",), 1: ("d1",), 2: ("nowhere",)}, minimum=2)
    world.session()
    assert sorted(world.placed) == ["g-0", "g-1"]


def test_a_gang_whose_claims_are_missing_delays_nobody() -> None:
    world = Storeroom()
    world.gang_with("bad", {0: ("x",), 1: ("y",)})
    world.gang("good", 2, of=CPU)
    world.session()
    assert sorted(world.placed) == ["good-0", "good-1"]
    assert "1 of 2 members" in world.text("bad")


def test_pods_are_alike_whatever_their_claims_are_called() -> None:
    world = Storeroom()
    for number in range(40):
        world.claim(f"d{number}", "fast")
    world.gang_with("g", {number: (f"d{number}",) for number in range(40)})
    result = world.session()
    assert len(world.placed) == 40
    assert world.places[0].steps[0].volume == ""
    assert any(name.startswith("solver_results_total") and "counting" in name for name in result.counters)


# -- what victims give back ------------------------------------------------------------------------------------------


def test_who_uses_a_claim_for_one_pod_goes_for_who_matters_more_and_nobody_else() -> None:
    """Forty others would be cheaper victims, and do not help."""
    world = Storeroom()
    world.claim("data", volume="v", bound=True, modes=("ReadWriteOncePod",))
    world.volume("v", available=False, claim="ns/data")
    for number in range(40):
        world.running(f"other-{number}", f"n{number % 3}", CPU, priority=1, since=900.0)
    world.with_claims("user", "data", node="n0", phase="Running", started=True, priority=5, since=10.0)
    world.with_claims("high", "data", priority=10)
    world.session()
    assert world.victims == ["user"]
    assert list(world.placed) == ["high"]
    assert world.result is not None
    assert any("optimal" in name for name in world.result.counters if name.startswith("room_searches_total"))


def test_a_claim_for_one_pod_is_not_taken_from_who_matters_as_much() -> None:
    world = Storeroom()
    world.claim("data", volume="v", bound=True, modes=("ReadWriteOncePod",))
    world.volume("v", available=False, claim="ns/data")
    world.running("other", "n0", CPU, priority=1)
    world.with_claims("user", "data", node="n0", phase="Running", started=True, priority=10)
    world.with_claims("high", "data", priority=10)
    world.session()
    assert not world.victims
    assert not world.placed


def test_who_uses_a_claim_stays_when_the_minimum_can_do_without_it() -> None:
    world = Storeroom(1)
    world.claim("data", volume="v", bound=True, modes=("ReadWriteOncePod",))
    world.volume("v", available=False, claim="ns/data")
    world.with_claims("user", "data", node="n0", phase="Running", started=True, priority=5)
    world.running("other", "n0", shape(cpu=63), priority=1)
    group = world.group("g", 1)
    world.member(group, 0, CPU, priority=10, volumes=PodVolumes((PodClaim("data"),)))
    world.member(group, 1, CPU, priority=10)
    world.session()
    first = world.places[0]
    assert [one.pod for one in first.assignments] == ["g-1"]
    assert [victim.pod for victim in first.victims] == ["other"]


@pytest.mark.parametrize("seen", [False, True], ids=["used", "attached"])
def test_who_uses_the_last_volume_of_a_node_goes_and_not_who_is_cheaper(seen: bool) -> None:
    world = Storeroom(2)
    limit(world, 1, "n0", "n1")
    for number in range(40):
        world.running(f"other-{number}", f"n{number % 2}", CPU, priority=1, since=900.0)
    for number, priority in enumerate((5, 7)):
        name = f"a{number}"
        world.claim(name, "fast", volume=f"v-{name}", bound=True)
        world.volume(f"v-{name}", available=False, claim=f"ns/{name}", driver="csi.example.com", handle=f"h-{name}")
        node = f"n{number}"
        world.with_claims(f"on-{name}", name, node=node, phase="Running", started=True, priority=priority)
        if seen:
            world.tell(feed.AttachmentSet(Attachment(name, name, node, "csi.example.com", f"v-{name}")))
    world.claim("d", "fast")
    world.with_claims("high", "d", priority=10)
    world.session()
    assert world.victims == ["on-a0"]
    assert world.placed == {"high": "n0"}
    assert world.result is not None
    assert any("optimal" in name for name in world.result.counters if name.startswith("room_searches_total"))


def test_a_volume_that_two_pods_use_is_free_when_both_are_gone() -> None:
    world = Storeroom(1)
    limit(world, 1, "n0")
    attached(world, "a")
    for number in range(2):
        world.with_claims(f"user-{number}", "a", node="n0", phase="Running", started=True, priority=5)
    world.running("other", "n0", CPU, priority=1)
    world.claim("d", "fast")
    world.with_claims("high", "d", priority=10)
    world.session()
    assert world.victims == ["user-0", "user-1"]
    assert world.placed == {"high": "n0"}


def test_a_disk_that_is_attached_directly_is_free_when_its_pod_goes() -> None:
    world = Storeroom(1)
    disk = PodVolumes(disks=(Disk("aws", "d"),))
    world.pod("there", CPU, node="n0", phase="Running", started=True, volumes=disk, priority=5)
    world.running("other", "n0", CPU, priority=1)
    world.pod("high", CPU, volumes=disk, priority=10)
    world.session()
    assert world.victims == ["there"]
    assert world.placed == {"high": "n0"}
