"""The brain's picture of storage: what is on offer, who uses what, and what placements under way have taken."""

from __future__ import annotations

from dataclasses import replace

from scheduler.cluster import feed
from scheduler.cluster.store import Store
from scheduler.model.bindrequest import BindRequest
from scheduler.model.decisions import Assignment, Place
from scheduler.model.nodes import Node
from scheduler.model.pods import Pod, Shape
from scheduler.model.podvolumes import PodClaim, PodVolumes, VolumeStep
from scheduler.model.volumes import Attachment, Claim, Storage, StorageCapacity, StorageClass, Volume

SHAPE = Shape(key="s")


def claim(name: str, **fields: object) -> Claim:
    return replace(Claim(uid=f"c-{name}", namespace="a", name=name, storage_class="local"), **fields)  # type: ignore[arg-type]


def volume(name: str, size: int = 10, **fields: object) -> Volume:
    base = Volume(uid=f"v-{name}", name=name, storage_class="local", size=size, available=True)
    return replace(base, **fields)  # type: ignore[arg-type]


def pod(name: str, *claims: str, node: str = "", phase: str = "Pending") -> Pod:
    volumes = PodVolumes(tuple(map(PodClaim, claims))) if claims else None
    return Pod(f"u-{name}", "a", name, "s", ours=True, node=node, phase=phase, volumes=volumes)


def store(*events: feed.Event) -> Store:
    made = Store()
    made.apply([feed.NodeSet(Node("n1")), feed.NodeSet(Node("n2")), feed.ShapeSet(SHAPE), *events], 0.0)
    made.snapshot(0.0)
    return made


def storage(of: Store) -> Storage:
    return of.snapshot(0.0).storage


def test_offered_volumes_are_sorted_by_size_and_leave_when_they_are_given_away() -> None:
    made = store(feed.VolumeSet(volume("big", 20)), feed.VolumeSet(volume("b")), feed.VolumeSet(volume("a")))
    assert [one.name for one in storage(made).offered["local"]] == ["a", "b", "big"]
    made.apply([feed.VolumeSet(volume("a", claim="a/x", claim_uid="c-x"))], 0.0)
    made.apply([feed.VolumeSet(volume("b", deleting=True)), feed.StorageGone("volume", "big")], 0.0)
    view = storage(made)
    assert view.offered == {}
    assert view.given == {"a/x": ("a",)}
    assert set(view.volumes) == {"a", "b"}
    made.apply([feed.VolumeSet(volume("a"))], 0.0)
    assert [one.name for one in storage(made).offered["local"]] == ["a"]
    assert storage(made).given == {}


def test_a_claim_that_no_pod_names_wakes_nobody_and_is_there_when_one_does() -> None:
    made = store()
    before = storage(made)
    made.apply([feed.ClaimSet(claim("x")), feed.VolumeSet(volume("v", claim="a/x"))], 0.0)
    assert not made.changed
    assert storage(made) is before
    made.apply([feed.PodSet(pod("p", "x"))], 0.0)
    view = storage(made)
    assert (set(view.claims), set(view.volumes), view.given) == ({"a/x"}, {"v"}, {"a/x": ("v",)})
    assert view.generation > before.generation
    made.apply([feed.ClaimSet(claim("x", volume="v", bound=True))], 0.0)
    assert made.changed
    assert storage(made).claims["a/x"].bound
    made.apply([feed.StorageGone("claim", "a/x")], 0.0)
    assert made.changed
    assert storage(made).claims == {}


def test_pods_count_where_they_are_until_they_end() -> None:
    made = store(feed.PodSet(pod("p", "x", node="n1")), feed.PodSet(pod("q", "x")), feed.PodSet(pod("r", "y")))
    view = storage(made)
    assert view.users == {"a/x": ("u-p",)}
    assert view.shared == {"a/x"}
    assert view.hosted == {"n1": (("a", "u-p", PodVolumes((PodClaim("x"),))),)}
    made.apply([feed.PodSet(pod("p", "x", node="n1", phase="Succeeded"))], 0.0)
    assert storage(made).users == {}
    made.apply([feed.PodGone("u-p")], 0.0)
    assert storage(made).shared == frozenset()


def test_a_placement_takes_its_volumes_until_its_request_has_ended() -> None:
    made = store(feed.PodSet(pod("p", "x", "y")), feed.PodSet(pod("q", "z")))
    place = Place(
        "pod/a/u-p", "u-p", "a", "p", "v1", "Pod", 1,
        (Assignment("u-p", "a", "p", "n1"),),
        (VolumeStep("u-p", "a", "x", "c-x", "v"), VolumeStep("u-p", "a", "y", "c-y")),
    )  # fmt: skip
    made.assume(place, "s-1")
    view = storage(made)
    assert (view.taken, view.chosen) == ({"v": "c-x"}, {"c-y": "n1"})
    assert view.users == {"a/x": ("u-p",), "a/y": ("u-p",)}
    request = BindRequest("r", "r", "s-1", 1, 9.0, (place,))
    made.apply([feed.RequestSet(request)], 0.0)
    assert storage(made).taken == {"v": "c-x"}
    made.apply([feed.HandoverFailed("s-1", ("pod/a/u-p",), "late news about nothing")], 0.0)
    assert storage(made).taken == {"v": "c-x"}
    made.apply([feed.RequestSet(replace(request, phase="Failed"))], 0.0)
    assert made.changed
    view = storage(made)
    assert (view.taken, view.chosen, view.users) == ({}, {}, {})


def test_a_placement_that_could_not_be_handed_over_or_whose_request_is_gone_gives_back_what_it_took() -> None:
    made = store(feed.PodSet(pod("p", "x")))
    place = Place(
        "pod/a/u-p", "u-p", "a", "p", "v1", "Pod", 1,
        (Assignment("u-p", "a", "p", "n1"),),
        (VolumeStep("u-p", "a", "x", "c-x", "v"),),
    )  # fmt: skip
    made.assume(place, "s-1")
    made.apply([feed.HandoverFailed("s-1", ("pod/a/u-p",), "no")], 0.0)
    assert storage(made).taken == {}
    made.assume(place, "s-2")
    made.apply([feed.RequestSet(BindRequest("r", "r", "s-2", 1, 9.0, (place,)))], 0.0)
    made.apply([feed.RequestGone("r")], 0.0)
    assert storage(made).taken == {}


def test_classes_capacities_and_attachments_are_kept_by_what_they_are_looked_up_by() -> None:
    made = store(
        feed.StorageClassSet(StorageClass("1", "local")),
        feed.CapacitySet(StorageCapacity("2", "k/b", "local", 5)),
        feed.CapacitySet(StorageCapacity("3", "k/a", "local", 7)),
        feed.AttachmentSet(Attachment("4", "x", "n1", "d", "v")),
    )
    view = storage(made)
    assert [one.largest for one in view.capacities["local"]] == [7, 5]
    assert view.attachments["n1"][0].volume == "v"
    made.apply([feed.StorageGone("capacity", "k/a"), feed.StorageGone("attachment", "x")], 0.0)
    view = storage(made)
    assert [one.largest for one in view.capacities["local"]] == [5]
    assert view.attachments == {}


def test_pods_that_come_move_and_go_leave_nothing_behind() -> None:
    made = store(feed.PodSet(pod("p", "x", "y", node="n1")), feed.PodSet(pod("q", "x", node="n1")))
    twice = PodVolumes((PodClaim("x"), PodClaim("x", ephemeral=True)))
    made.apply([feed.PodSet(replace(pod("r", "x", node="n2"), volumes=twice))], 0.0)
    view = storage(made)
    assert {node: [uid for _, uid, _ in pods] for node, pods in view.hosted.items()} == {
        "n1": ["u-p", "u-q"],
        "n2": ["u-r"],
    }
    assert (view.users["a/x"], view.shared) == (("u-p", "u-q", "u-r"), {"a/x"})
    made.apply([feed.PodGone("u-q"), feed.PodGone("u-r")], 0.0)
    view = storage(made)
    assert (set(view.hosted), view.users, view.shared) == ({"n1"}, {"a/x": ("u-p",), "a/y": ("u-p",)}, frozenset())
    made.apply([feed.PodGone("u-p")], 0.0)
    view = storage(made)
    assert (view.hosted, view.users) == ({}, {})
