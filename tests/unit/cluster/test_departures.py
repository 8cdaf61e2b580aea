"""How long room is kept for the pods that a controller makes in place of those that went."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from scheduler.cluster.departures import KEPT_FOR, Departures
from scheduler.model.bindrequest import BindRequest
from scheduler.model.decisions import Assignment, Place, Victim
from scheduler.model.pods import Pod

PLACE = Place(
    group="g", group_uid="u", namespace="ns", name="g", api_version="", kind="PodGroup", minimum=1,
    assignments=(Assignment("lost", "ns", "lost", "b0"),),
    victims=tuple(
        Victim(f"v{n}", "ns", f"v{n}", f"a{n}", "g", "ns/g", "consolidate", 0, f"b{n + 1}", "job", ()) for n in range(2)
    ),
)  # fmt: skip
REQUEST = BindRequest("r", "uid-r", "s", 1, 2000.0, (PLACE,), created=1000.7)


def pod(uid: str, created: float = 1000.0, node: str = "n") -> Pod:
    return Pod(uid=uid, namespace="ns", name=uid, shape="", created=created, node=node, owner_uid="job")


def homes(one: Departures, pods: Iterable[Pod], now: float = 1010.0) -> list[str]:
    placed = {pod.uid for pod in pods}
    return [hold.node for hold in one.holds(now, lambda _: pods, lambda pod: pod.uid in placed)]


def test_the_victims_of_a_group_are_awaited_until_the_last_is_gone_or_its_request_is_over() -> None:
    one = Departures()
    one.assume("s", PLACE, 1000.7, lambda _: [])
    assert one.awaited({"v0", "v1"}.__contains__) == {"g": ("ns/v0", "ns/v1")}
    one.see(REQUEST, PLACE, open_=True)
    assert one.awaited({"v1"}.__contains__) == {"g": ("ns/v0", "ns/v1")}, "told once, not as each of them goes"
    assert one.awaited(set[str]().__contains__) == {}
    one.see(replace(REQUEST, phase="Failed"), PLACE, open_=False)
    assert one.awaited({"v0", "v1"}.__contains__) == {}


def test_members_that_the_decision_places_have_not_come_in_place_of_those_that_go() -> None:
    one = Departures()
    one.see(REQUEST, PLACE, open_=True)
    assert homes(one, [pod("lost"), pod("v1")]) == ["b1", "b2"]


def test_pods_that_were_there_at_the_decision_do_not_count_in_the_process_that_made_it() -> None:
    one = Departures()
    one.assume("s", PLACE, 1000.7, lambda _: [pod("other")])
    one.see(REQUEST, PLACE, open_=True)
    assert homes(one, [pod("lost"), pod("other")]) == ["b1", "b2"]
    assert homes(one, [pod("lost"), pod("other"), pod("new")]) == ["b2"]


def test_kept_room_is_used_for_good_once_a_pod_is_on_its_node() -> None:
    one = Departures()
    one.see(REQUEST, PLACE, open_=True)
    assert homes(one, [pod("new", node="")]) == ["b2"]
    assert homes(one, []) == ["b1", "b2"], "it was not bound after all"
    assert homes(one, [pod("new")]) == ["b2"]
    one.see(replace(REQUEST, phase="Done"), PLACE, open_=False)
    assert homes(one, []) == ["b2"]
    assert homes(one, [pod("newer")]) == []
    assert homes(one, [], now=1000.7 + KEPT_FOR) == []
