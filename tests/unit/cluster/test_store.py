"""The brain's store: charges, membership, assumptions; and that the order of events does not matter."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.cluster import feed
from scheduler.cluster.refusals import REJECTION_COOL_DOWN
from scheduler.cluster.store import SPARE_SHAPES, Store
from scheduler.model.bindrequest import BindFailure, BindRequest, GangOutcome
from scheduler.model.budgets import DisruptionBudget
from scheduler.model.decisions import Assignment, Place, Victim
from scheduler.model.groups import PodGroup
from scheduler.model.nodes import Node
from scheduler.model.pods import Pod, Shape
from scheduler.model.snapshot import Snapshot
from scheduler.model.verdict import Code

SHAPE = Shape(key="s1", requests=(("cpu", 1000), ("example.com/gpu", 1)))
BIG = Shape(key="s2", requests=(("cpu", 4000), ("memory", 2**30)))


def node(name: str, gpu: int = 2) -> Node:
    return Node(name=name, allocatable=(("cpu", 8000), ("example.com/gpu", gpu), ("memory", 2**34)))


def pod(name: str, **fields: object) -> Pod:
    base = {"uid": f"u-{name}", "namespace": "a", "name": name, "shape": "s1", "ours": True}
    return Pod(**{**base, **fields})  # type: ignore[arg-type]


def group(name: str, minimum: int, uid: str = "") -> PodGroup:
    return PodGroup(
        key=f"volcano/a/{name}", uid=uid or f"g-{name}", dialect="volcano", namespace="a", name=name, min_member=minimum
    )


def place(key: str, assignments: list[tuple[str, str]], minimum: int = 1) -> Place:
    return Place(
        group=key, group_uid="", namespace="a", name=key, api_version="", kind="PodGroup", minimum=minimum,
        assignments=tuple(Assignment(f"u-{name}", "a", name, where) for name, where in assignments),
    )  # fmt: skip


def store_with(*events: feed.Event) -> Store:
    store = Store()
    store.apply([feed.ShapeSet(SHAPE), feed.ShapeSet(BIG), *events], now=100.0)
    return store


def used(snapshot: Snapshot, name: str, resource: str) -> int:
    table = snapshot.table
    return int(table.used[table.resources.index(resource), table.names.index(name)])


def test_a_terminating_pod_is_charged_until_it_is_gone_and_a_finished_one_is_not() -> None:
    store = store_with(feed.NodeSet(node("n1")), feed.PodSet(pod("p", node="n1", deleting=True)))
    assert used(store.snapshot(100), "n1", "example.com/gpu") == 1
    store.apply([feed.PodSet(pod("p", node="n1", phase="Succeeded"))], 101)
    assert used(store.snapshot(101), "n1", "example.com/gpu") == 0
    store.apply([feed.PodSet(pod("q", node="n1")), feed.PodGone("u-q")], 102)
    assert used(store.snapshot(102), "n1", "example.com/gpu") == 0


def test_gangs_without_an_object_leave_nothing_behind() -> None:
    store = store_with(feed.NodeSet(node("n1", gpu=8)))
    for number in range(20):
        made = {"owner_kind": "Job", "owner_name": "j", "owner_uid": f"job-{number}", "min_member": 2}
        names = [f"p{number}-{index}" for index in range(3)]
        running = [feed.PodSet(pod(name, node="n1", phase="Running", **made)) for name in names[:2]]
        store.apply([*running, feed.PodSet(pod(names[2], **made))], 100.0 + number)
        (state,) = store.snapshot(100.0 + number).groups.values()
        assert state.ever_ran
        store.apply([feed.PodGone(f"u-{name}") for name in names], 100.5 + number)
        assert not store.snapshot(100.5 + number).groups
    assert not store._ran
    assert not store._queue_names


def test_a_pod_may_bring_more_resources_than_the_nodes_have() -> None:
    many = Shape(key="many", requests=tuple((f"example.com/r{number}", 1) for number in range(40)))
    store = store_with(feed.NodeSet(node("n1")), feed.ShapeSet(many), feed.PodSet(pod("p", shape="many", node="n1")))
    assert used(store.snapshot(100), "n1", "example.com/r39") == 1


def test_pods_bound_to_a_node_that_appears_later_are_charged_when_it_appears() -> None:
    store = store_with(feed.PodSet(pod("p", node="n1", ours=False)))
    store.apply([feed.NodeSet(node("n1"))], 100)
    assert used(store.snapshot(100), "n1", "cpu") == 1000
    store.apply([feed.NodeGone("n1"), feed.NodeSet(node("n1"))], 100)
    assert used(store.snapshot(100), "n1", "cpu") == 1000


def test_a_foreign_pod_that_is_nominated_is_charged_to_the_node_it_waits_for() -> None:
    store = store_with(feed.NodeSet(node("n1")), feed.PodSet(pod("p", ours=False, nominated="n1")))
    snapshot = store.snapshot(100)
    assert used(snapshot, "n1", "example.com/gpu") == 1
    assert [nominated.name for nominated in snapshot.foreign_nominated] == ["p"]
    store.apply([feed.PodSet(pod("p", ours=False))], 100)
    assert used(store.snapshot(100), "n1", "example.com/gpu") == 0


def test_an_assumption_is_charged_and_ends_when_the_hand_over_fails() -> None:
    store = store_with(
        feed.NodeSet(node("n1")), feed.GroupSet(group("g", 1)), feed.PodSet(pod("p", group="volcano/a/g"))
    )
    store.snapshot(100)
    store.assume(place("volcano/a/g", [("p", "n1")]), "s-1")
    snapshot = store.snapshot(100)
    assert used(snapshot, "n1", "example.com/gpu") == 1
    assert [member.name for member in snapshot.groups["volcano/a/g"].assumed] == ["p"]
    store.apply([feed.HandoverFailed("s-1", ("volcano/a/g",), "boom")], 101)
    snapshot = store.snapshot(101)
    assert used(snapshot, "n1", "example.com/gpu") == 0
    assert [member.name for member in snapshot.groups["volcano/a/g"].waiting] == ["p"]


def request(name: str, gang: Place, **fields: object) -> BindRequest:
    base = {"name": name, "uid": name, "session": "s-1", "epoch": 1, "deadline": 500.0, "gangs": (gang,)}
    return BindRequest(**{**base, **fields})  # type: ignore[arg-type]


def test_an_open_request_found_at_start_is_assumed_even_if_it_is_listed_before_its_pods() -> None:
    gang = place("volcano/a/g", [("p", "n1")])
    store = store_with(
        feed.RequestSet(request("r", gang)), feed.NodeSet(node("n1")), feed.PodSet(pod("p")), feed.Synced()
    )
    assert used(store.snapshot(100), "n1", "example.com/gpu") == 1


@pytest.mark.parametrize(
    "ending",
    [
        [feed.RequestGone("r")],
        [feed.RequestSet(request("r", place("x", [("p", "n1")]), phase="Failed"))],
        [
            feed.RequestSet(
                request("r", place("x", [("p", "n1")]), phase="Binding", outcomes=(GangOutcome(0, "Failed"),))
            )
        ],
        [feed.PodGone("u-p")],
        [feed.PodSet(pod("p", phase="Failed"))],
    ],
)
def test_every_way_in_which_a_request_can_end_frees_the_node(ending: list[feed.Event]) -> None:
    store = store_with(feed.NodeSet(node("n1")), feed.PodSet(pod("p")))
    store.apply([feed.RequestSet(request("r", place("x", [("p", "n1")])))], 100)
    assert used(store.snapshot(100), "n1", "example.com/gpu") == 1
    store.apply(ending, 101)
    assert used(store.snapshot(101), "n1", "example.com/gpu") == 0


def test_what_a_request_has_bound_is_charged_until_its_pods_are_seen_on_their_nodes() -> None:
    """A new leader may have listed pods before they were bound, and the request after that."""
    gang, failure = place("x", [("p", "n1"), ("q", "n1")]), BindFailure("u-q", "q", "n1", "PodGone")
    ended = request("r", gang, phase="Bound", outcomes=(GangOutcome(0, "Bound", bound=1, failures=(failure,)),))
    store = store_with(feed.RequestSet(ended), feed.NodeSet(node("n1")), feed.PodSet(pod("p")), feed.PodSet(pod("q")))
    store.apply([feed.Synced()], 100)
    assert used(store.snapshot(100), "n1", "example.com/gpu") == 1, "p is on its way, q is not"
    store.apply([feed.PodSet(pod("p", node="n1"))], 101)
    assert used(store.snapshot(101), "n1", "example.com/gpu") == 1
    store.apply([feed.PodGone("u-p")], 102)
    assert used(store.snapshot(102), "n1", "example.com/gpu") == 0


def test_what_runs_stays_charged_to_the_queue_that_let_it_in() -> None:
    named = replace(group("g", 1), queue="team/q")
    on = pod("on", group="volcano/a/g", node="n1", charged_to="q", created=1.0)
    store = store_with(
        feed.NodeSet(node("n1", gpu=8)),
        feed.GroupSet(named),
        feed.PodSet(on),
        feed.PodSet(pod("waits", group="volcano/a/g")),
    )

    def queues(now: float) -> tuple[dict[str, int], str]:
        snapshot = store.snapshot(now)
        charged = {name: dict(amounts).get("cpu", 0) for name, amounts in snapshot.queue_usage.items()}
        return {name: amount for name, amount in charged.items() if amount}, snapshot.groups["volcano/a/g"].queue

    assert queues(100) == ({"q": 1000}, "q")
    store.apply([feed.GroupGone("volcano/a/g")], 101)
    assert queues(101) == ({"q": 1000}, "q"), "its object is gone"
    store.apply([feed.PodSet(replace(on, deleting=True))], 102)
    assert queues(102)[0] == {"q": 1000}
    store.apply([feed.GroupSet(replace(named, uid="again", queue="other"))], 103)
    assert queues(103) == ({"q": 1000}, "q"), "another one names another queue"
    late = pod("late", group="volcano/a/g", node="n1", charged_to="other", created=2.0)
    store.apply([feed.PodSet(late)], 104)
    assert queues(104) == ({"q": 2000}, "q"), "one group is charged to one queue"
    store.apply([feed.PodGone("u-on")], 105)
    assert queues(105) == ({"other": 1000}, "other")
    store.apply([feed.PodGone("u-late"), feed.GroupGone("volcano/a/g")], 106)
    assert queues(106) == ({}, ""), "who only waits has no queue to be held to"


def test_a_pod_that_stands_alone_stays_charged_to_the_queue_that_let_it_in() -> None:
    one = pod("one", node="n1", queue="q", charged_to="q")
    store = store_with(feed.NodeSet(node("n1")), feed.PodSet(one))
    store.apply([feed.PodSet(replace(one, queue="other"))], 101)
    charged = {name: dict(amounts) for name, amounts in store.snapshot(101).queue_usage.items()}
    assert charged["q"]["cpu"] == 1000
    assert not charged.get("other", {}).get("cpu")
    copied = pod("copied", queue="q", charged_to="other", nominated="n1")
    store.apply([feed.PodSet(copied)], 102)
    assert store.snapshot(102).groups["pod/a/u-copied"].queue == "q", "it is on no node: who wrote that?"
    store.apply([feed.PodGone("u-copied"), feed.PodSet(replace(one, phase="Succeeded"))], 102)
    assert not any(dict(amounts).get("cpu") for amounts in store.snapshot(102).queue_usage.values())


def test_who_went_for_a_gang_is_leaving_until_that_is_seen_though_its_request_has_ended() -> None:
    """The binder may be another process, whose picture is ahead of this one's."""
    victim = Victim("u-low", "a", "low", "n1", "volcano/a/l", "l")
    wanted = replace(place("volcano/a/g", [("p", "n1")]), victims=(victim,))
    store = store_with(
        feed.NodeSet(node("n1")),
        feed.PodSet(pod("low", group="volcano/a/l", node="n1")),
        feed.PodSet(pod("p", group="volcano/a/g")),
        feed.RequestSet(request("r", wanted)),
    )
    assert store.snapshot(100).leaving == {"u-low"}
    store.apply([feed.RequestSet(request("r", wanted, phase="Bound", outcomes=(GangOutcome(0, "Bound", 1),)))], 101)
    after = store.snapshot(101)
    assert after.leaving == {"u-low"}
    assert [one.uid for one, _ in after.releasing] == ["u-low"]
    store.apply([feed.RequestGone("r")], 102)
    assert store.snapshot(102).leaving == {"u-low"}
    store.apply([feed.PodGone("u-low")], 103)
    assert store.snapshot(103).leaving == frozenset()
    store.apply([feed.RequestSet(request("late", wanted, phase="Bound", outcomes=(GangOutcome(0, "Bound", 1),)))], 104)
    assert store.snapshot(104).leaving == frozenset(), "that one is known to be gone"


def test_who_stays_although_the_gang_is_bound_is_not_leaving_for_ever() -> None:
    wanted = replace(
        place("volcano/a/g", [("p", "n1")]), victims=(Victim("u-low", "a", "low", "n1", "volcano/a/l", "l"),)
    )
    ended = request("r", wanted, phase="Bound", outcomes=(GangOutcome(0, "Bound", 1),))
    store = store_with(
        feed.NodeSet(node("n1")), feed.PodSet(pod("low", group="volcano/a/l", node="n1")), feed.RequestSet(ended)
    )
    assert store.snapshot(105).leaving == {"u-low"}
    assert store.snapshot(111).leaving == frozenset()


def test_a_refused_member_is_not_tried_on_that_node_for_a_growing_time() -> None:
    store = store_with(feed.NodeSet(node("n1")), feed.PodSet(pod("p")))
    failed = GangOutcome(0, "Failed", failures=(BindFailure("u-p", "p", "n1", "NodeGone"),))
    waits = []
    for number in range(3):
        now = 1000.0 * (number + 1)
        store.apply(
            [feed.RequestSet(request(f"r{number}", place("x", [("p", "n1")]), phase="Failed", outcomes=(failed,)))], now
        )
        waits.append(store.snapshot(now).no_goods[0].until - now)
        assert store.snapshot(now + 100).no_goods == ()
    assert waits == [1.0, 2.0, 4.0]


def test_a_gang_keeps_away_from_nodes_whose_victims_did_not_go_the_longer_the_more_often() -> None:
    store = store_with(
        feed.NodeSet(node("n1")), feed.NodeSet(node("n2")), feed.PodSet(pod("p")), feed.PodSet(pod("q")),
        feed.PodSet(pod("stuck", node="n1", deleting=True)),
    )  # fmt: skip
    victims = tuple(Victim(f"u-{name}", "a", name, where, "") for name, where in (("stuck", "n1"), ("went", "n2")))
    gang = replace(place("x", [("p", "n1"), ("q", "n2")]), victims=victims)
    failures = tuple(BindFailure(f"u-{name}", name, "n1", "VictimsRemain", about="a/stuck") for name in "pq")
    waits = []
    for number in range(8):
        now = 10_000.0 * (number + 1)
        ended = request(f"r{number}", gang, phase="Failed", outcomes=(GangOutcome(0, "Failed", failures=failures),))
        store.apply([feed.RequestSet(ended)], now)
        found = store.snapshot(now).no_goods
        # Neither of them, because they are alike; n2 is free for both.
        assert [(bad.uid, bad.node, bad.cause) for bad in found] == [
            ("u-p", "n1", "VictimsRemain"),
            ("u-q", "n1", "VictimsRemain"),
        ]
        waits.append(found[0].until - now)
        assert store.snapshot(now + 4000).no_goods == ()
    assert waits == [60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 3600.0, 3600.0]
    now = 200_000.0
    ended = request("last", gang, phase="Failed", outcomes=(GangOutcome(0, "Failed", failures=failures),))
    store.apply([feed.RequestSet(ended)], now)
    assert store.snapshot(now + 1).no_goods
    store.apply([feed.PodGone("u-stuck")], now + 2)
    assert store.snapshot(now + 2).no_goods == ()


@pytest.mark.parametrize("cause", ["Forbidden", "Rejected", "ForeignPod"])
def test_a_bind_refused_for_no_fault_of_the_node_lets_the_whole_group_rest_for_a_growing_time(cause: str) -> None:
    store = store_with(feed.NodeSet(node("n1")), feed.GroupSet(group("g", 1)))
    waits = []
    for number in range(8):  # each time another pod of the group: its uid is new, the group is the same
        now, name = 1000.0 * (number + 1), f"p{number}"
        gang = place("volcano/a/g", [(name, "n1")])
        failed = GangOutcome(0, "Failed", failures=(BindFailure(f"u-{name}", name, "n1", cause),))
        ended = request(f"r{number}", gang, phase="Failed", outcomes=(failed,))
        store.apply([feed.PodSet(pod(name, group="volcano/a/g")), feed.RequestSet(ended)], now)
        due = store.next_due()
        assert due is not None
        waits.append(due - now)
        held = store.snapshot(due - 0.1)
        why = held.groups["volcano/a/g"].held
        assert why is not None and (why.code, why.fact("cause"), why.fact("pod")) == (Code.BIND_FAILED, cause, name)
        assert held.no_goods == ()
        assert store.snapshot(due).groups["volcano/a/g"].held is None
        assert store.next_due() is None
        store.apply([feed.PodGone(f"u-{name}")], now + 100)
    assert waits == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]


def test_a_group_that_was_bound_has_no_setback_behind_it() -> None:
    store = store_with(
        feed.NodeSet(node("n1")), feed.GroupSet(group("g", 1)), feed.PodSet(pod("p", group="volcano/a/g"))
    )
    gang = place("volcano/a/g", [("p", "n1")])
    refused = GangOutcome(0, "Failed", failures=(BindFailure("u-p", "p", "n1", "Forbidden"),))
    for number, (outcome, wait) in enumerate(
        [(refused, 1.0), (refused, 2.0), (GangOutcome(0, "Bound", 1), None), (refused, 1.0)]
    ):
        now = 100.0 * (number + 1)
        store.apply([feed.RequestSet(request(f"r{number}", gang, phase=outcome.phase, outcomes=(outcome,)))], now)
        assert store.next_due() == (None if wait is None else now + wait)
        store.snapshot(now + 90)


def test_a_gang_that_was_told_to_be_given_up_is_not_held_against_its_node_again_when_its_request_ends() -> None:
    store = store_with(feed.NodeSet(node("n1")), feed.PodSet(pod("p")), feed.PodSet(pod("q")))
    two = (place("x", [("p", "n1")]), place("y", [("q", "n1")]))
    failed = GangOutcome(0, "Failed", failures=(BindFailure("u-p", "p", "n1", "NodeGone"),))
    store.apply([feed.RequestSet(request("r", two[0], gangs=two))], 100)
    assert used(store.snapshot(100), "n1", "example.com/gpu") == 2
    store.apply([feed.RequestSet(request("r", two[0], gangs=two, phase="Binding", outcomes=(failed,)))], 101)
    snapshot = store.snapshot(101)
    assert used(snapshot, "n1", "example.com/gpu") == 1
    assert [(bad.uid, bad.until) for bad in snapshot.no_goods] == [("u-p", 102.0)]
    both = (failed, GangOutcome(1, "Bound", 1))
    store.apply([feed.RequestSet(request("r", two[0], gangs=two, phase="Failed", outcomes=both))], 150)
    assert store.snapshot(150).no_goods == ()


def test_a_node_whose_kubelet_rejected_a_pod_is_left_alone_for_that_shape_for_a_while() -> None:
    store = store_with(feed.NodeSet(node("n1")), feed.PodSet(pod("p", node="n1")))
    store.apply([feed.PodSet(pod("p", node="n1", phase="Failed", status_reason="OutOfcpu"))], 200)
    (bad,) = store.snapshot(200).no_goods
    assert (bad.node, bad.shape, bad.uid, bad.until) == ("n1", "s1", "", 200 + REJECTION_COOL_DOWN)
    assert store.next_due() == 200 + REJECTION_COOL_DOWN


def test_a_job_annotated_after_its_pods_exist_turns_them_into_one_gang() -> None:
    owned = {"owner_kind": "Job", "owner_name": "j", "owner_uid": "o1"}
    store = store_with(feed.PodSet(pod("p0", **owned)), feed.PodSet(pod("p1", **owned)))
    assert sorted(store.snapshot(100).groups) == ["pod/a/u-p0", "pod/a/u-p1"]
    owner = PodGroup(key="owner/a/o1", uid="o1", dialect="owner", namespace="a", name="j", kind="Job", min_member=2)
    store.apply([feed.GroupSet(owner)], 101)
    groups = store.snapshot(101).groups
    assert {key: len(state.waiting) for key, state in groups.items()} == {"owner/a/o1": 2}
    store.apply([feed.GroupGone("owner/a/o1")], 102)
    assert sorted(store.snapshot(102).groups) == ["pod/a/u-p0", "pod/a/u-p1"]


def test_a_gang_counts_as_having_run_only_while_a_member_is_still_placed() -> None:
    members = [pod(f"p{i}", group="volcano/a/g", node="n1") for i in range(2)]
    store = store_with(
        feed.NodeSet(node("n1")), feed.GroupSet(group("g", 2)), *(feed.PodSet(member) for member in members)
    )
    assert store.snapshot(100).groups["volcano/a/g"].ever_ran
    store.apply([feed.PodGone("u-p0"), feed.PodSet(pod("p2", group="volcano/a/g"))], 101)
    assert store.snapshot(101).groups["volcano/a/g"].ever_ran
    store.apply([feed.PodGone("u-p1"), feed.PodSet(pod("p3", group="volcano/a/g"))], 102)
    assert not store.snapshot(102).groups["volcano/a/g"].ever_ran


def test_a_group_recreated_under_an_old_name_has_not_run() -> None:
    store = store_with(
        feed.NodeSet(node("n1")), feed.GroupSet(group("g", 1)), feed.PodSet(pod("p", group="volcano/a/g", node="n1"))
    )
    assert store.snapshot(100).groups["volcano/a/g"].ever_ran
    store.apply([feed.GroupGone("volcano/a/g"), feed.GroupSet(group("g", 3, uid="new"))], 101)
    state = store.snapshot(101).groups["volcano/a/g"]
    assert (state.group.uid, state.ever_ran) == ("new", False)


def test_members_that_name_an_object_that_does_not_exist_wait_for_it() -> None:
    store = store_with(feed.PodSet(pod("p", group="volcano/a/g")))
    assert store.snapshot(100).groups["volcano/a/g"].missing_object


def test_groups_that_did_not_change_are_the_same_objects_in_the_next_snapshot() -> None:
    store = store_with(feed.PodSet(pod("p", group="volcano/a/g")), feed.PodSet(pod("q")))
    before = store.snapshot(100).groups
    store.apply([feed.PodSet(pod("q", priority=5))], 101)
    after = store.snapshot(101).groups
    assert after["volcano/a/g"] is before["volcano/a/g"]
    assert after["pod/a/u-q"].priority == 5


def test_a_resync_of_unchanged_objects_is_not_a_change() -> None:
    store = store_with(feed.PodSet(pod("p")), feed.GroupSet(group("g", 1)))
    store.snapshot(100)
    store.apply(
        [feed.PodSet(pod("p", resource_version="9")), feed.GroupSet(replace(group("g", 1), resource_version="9"))], 101
    )
    assert not store.changed


def test_a_group_whose_pods_are_all_another_schedulers_is_left_to_it() -> None:
    store = store_with(feed.GroupSet(group("g", 1)))
    assert "volcano/a/g" in store.snapshot(100).groups
    store.apply([feed.PodSet(pod("p", group="volcano/a/g", ours=False))], 101)
    assert "volcano/a/g" not in store.snapshot(101).groups
    store.apply([feed.PodSet(pod("q", group="volcano/a/g"))], 102)
    assert [one.name for one in store.snapshot(102).groups["volcano/a/g"].waiting] == ["q"]
    store.apply([feed.PodGone("u-q"), feed.PodGone("u-p")], 103)
    assert store.snapshot(103).groups["volcano/a/g"].waiting == ()


def test_shapes_that_no_pod_uses_do_not_pile_up_and_come_back_when_sent_again() -> None:
    store = store_with(feed.NodeSet(node("n1")))
    for number in range(3 * SPARE_SHAPES):
        shape = Shape(key=f"x{number}", requests=(("cpu", number),))
        store.apply([feed.ShapeSet(shape), feed.PodSet(pod("p", shape=shape.key)), feed.PodGone("u-p")], 100)
        if number % 100 == 0:
            store.snapshot(100)
    assert len(store.snapshot(100).shapes) <= SPARE_SHAPES + 100
    store.apply([feed.ShapeSet(SHAPE), feed.PodSet(pod("q", node="n1"))], 100)
    assert used(store.snapshot(100), "n1", "cpu") == 1000


def _facts(store: Store) -> tuple[object, ...]:
    snapshot = store.snapshot(500)
    table = snapshot.table
    order = [table.resources.index(name) for name in sorted(table.resources)]
    return (
        table.names,
        table.used[order].tolist(),
        table.allocatable[order].tolist(),
        table.pods.tolist(),
        dict(snapshot.groups),
        dict(snapshot.usage),
    )


_pods = st.builds(
    pod,
    st.sampled_from([f"p{i}" for i in range(6)]),
    shape=st.sampled_from(["s1", "s2"]),
    node=st.sampled_from(["", "n1", "n2"]),
    phase=st.sampled_from(["Pending", "Running", "Succeeded"]),
    deleting=st.booleans(),
    group=st.sampled_from(["", "volcano/a/g"]),
    ours=st.booleans(),
)
_events = st.lists(
    st.one_of(
        st.builds(feed.PodSet, _pods),
        st.builds(feed.PodGone, st.sampled_from([f"u-p{i}" for i in range(6)])),
        st.builds(feed.NodeSet, st.builds(node, st.sampled_from(["n1", "n2"]), st.integers(0, 4))),
        st.builds(feed.NodeGone, st.sampled_from(["n1", "n2"])),
    ),
    max_size=30,
)


@settings(max_examples=200, deadline=None)
@given(_events, st.randoms(use_true_random=False))
def test_the_state_is_that_of_the_objects_that_are_left_in_whatever_order_they_came(events, random) -> None:  # type: ignore[no-untyped-def]
    store = store_with(*events)
    pods: dict[str, feed.Event] = {}
    nodes: dict[str, feed.Event] = {}
    for event in events:
        match event:
            case feed.PodSet(pod=one):
                pods[one.uid] = event
            case feed.PodGone(uid=uid):
                pods.pop(uid, None)
            case feed.NodeSet(node=one):
                nodes[one.name] = event
            case feed.NodeGone(name=name):
                nodes.pop(name, None)
    left = [*pods.values(), *nodes.values()]
    random.shuffle(left)
    fresh = store_with(*left)
    a, b = _facts(store), _facts(fresh)
    assert a[0] == b[0] and a[3] == b[3] and a[4] == b[4] and a[5] == b[5]
    rows_a, rows_b = (
        dict(zip(sorted(s.snapshot(500).table.resources), f[1], strict=True)) for s, f in ((store, a), (fresh, b))
    )
    for resource in rows_a.keys() | rows_b.keys():
        zeros = [0] * len(a[0])
        assert rows_a.get(resource, zeros) == rows_b.get(resource, zeros)
    assert np.all(store.snapshot(500).table.used >= 0)


@pytest.mark.parametrize(
    "ending",
    [
        [feed.RequestGone("r")],
        [feed.RequestSet(request("r", place("volcano/a/g", [("p", "n1")], minimum=2), phase="Bound"))],
        [
            feed.RequestSet(
                request("r", place("volcano/a/g", [("p", "n1")], minimum=2), outcomes=(GangOutcome(0, "Unwound"),))
            )
        ],
    ],
)
def test_a_gang_is_starting_from_the_decision_until_its_request_has_ended(ending: list[feed.Event]) -> None:
    members = [feed.PodSet(pod(name, group="volcano/a/g")) for name in ("p", "q")]
    store = store_with(feed.NodeSet(node("n1")), feed.GroupSet(group("g", 2)), *members)
    assert not store.snapshot(100).groups["volcano/a/g"].starting
    gang = place("volcano/a/g", [("p", "n1"), ("q", "n1")], minimum=2)
    store.assume(gang, "s-1")
    assert store.snapshot(100).groups["volcano/a/g"].starting
    store.apply([feed.RequestSet(request("r", gang)), feed.PodSet(pod("p", group="volcano/a/g", node="n1"))], 101)
    assert store.snapshot(101).groups["volcano/a/g"].starting
    store.apply(ending, 102)
    assert store.changed
    assert not store.snapshot(102).groups["volcano/a/g"].starting


def test_a_hand_over_that_fails_ends_the_start() -> None:
    store = store_with(feed.GroupSet(group("g", 2)), feed.PodSet(pod("p", group="volcano/a/g")))
    store.assume(place("volcano/a/g", [("p", "n1")], minimum=2), "s-1")
    store.apply([feed.HandoverFailed("s-1", ("volcano/a/g",), "boom")], 101)
    assert not store.snapshot(101).groups["volcano/a/g"].starting


def test_budgets_are_in_the_snapshot_until_they_are_gone() -> None:
    one = DisruptionBudget(namespace="a", name="b", uid="u", selector=None, allowed=1)
    store = store_with(feed.BudgetSet(one))
    assert store.changed
    assert store.snapshot(100.0).budgets == {"a/b": one}
    store.apply([feed.BudgetGone("a/b")], now=101.0)
    assert store.changed
    assert store.snapshot(101.0).budgets == {}
