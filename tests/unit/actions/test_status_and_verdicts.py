from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from plugins import built_in
from scheduler.actions.status import BOUND_WITHIN
from scheduler.cluster import feed
from scheduler.dialects.shapes import keyed
from scheduler.framework.registry import Registry
from scheduler.model.bindrequest import BindFailure, BindRequest, GangOutcome, awaits
from scheduler.model.decisions import Explain, Place, SetQueueStatus
from scheduler.model.pods import Condition, Problem
from scheduler.model.quantity import MAX_AMOUNT
from scheduler.model.verdict import Code, Verdict
from tests.unit.framework.world import GPU, World, need, shape, with_plugins


def world(**fields: Any) -> World:
    made = World(**fields)
    made.sessions = type(made.sessions)(made.config, made.registry, check=True)
    return made


def why(w: World, name: str) -> Verdict:
    verdict = w.verdict(name)
    assert verdict is not None
    return verdict


def said(w: World, name: str) -> tuple[Code, dict[str, object]] | None:
    """What the group's object is told in this session: code and facts."""
    status = w.status(name)
    if status is None or status.verdict is None:
        return None
    return status.verdict.code, dict(status.verdict.facts)


def phase(w: World, name: str) -> str:
    status = w.status(name)
    return status.phase if status is not None else ""


def test_groups_are_counted_by_the_queue_in_which_they_were_placed() -> None:
    w = world().nodes(1, gpu=4).queue("q")
    w.gang("a", 2, queue="q")
    w.gang("b", 1)
    w.gang("c", 1)
    counters = w.session().counters
    assert (counters['groups_placed{queue="q"}'], counters['groups_placed{queue="default"}']) == (1.0, 2.0)
    assert counters["pods_placed"] == 4.0


# -- phases -----------------------------------------------------------------------------------------------------------


def test_a_group_without_pods_is_let_in_so_that_its_operator_creates_them() -> None:
    w = world().nodes(1, gpu=1)
    w.group("g", 2, dialect="volcano", phase="Pending")
    w.session()
    status = w.status("g")
    assert status is not None
    assert (status.phase, status.uid) == ("Inqueue", "uid-group-g")
    assert status.verdict is not None
    assert (status.verdict.code, status.verdict.fact("existing")) == (Code.NOT_ENOUGH_MEMBERS, 0)


def test_a_group_of_one_member_that_does_not_exist_says_so() -> None:
    w = world().nodes(1, gpu=1)
    w.group("g", 1)
    w.session()
    none = {"existing": 0, "minimum": 1, "gated": 0, "failed": 0, "foreign": 0}
    assert said(w, "g") == (Code.NOT_ENOUGH_MEMBERS, none)


def test_a_running_group_below_its_minimum_says_what_its_replacement_lacks() -> None:
    w = world().nodes(1, gpu=2)
    group = w.gang("g", 2)
    w.session()
    w.carry_out()
    w.session()
    w.carry_out()
    w.drop_pod("g-1")
    w.running("other", "n000")
    w.member(group, 2)
    w.session(later=10)
    assert phase(w, "g") == "Degraded"
    found = said(w, "g")
    assert found is not None
    assert found[0] is Code.RESOURCES
    assert (found[1]["needed"], found[1]["free"], found[1]["short"]) == (1, 0, 1)


def test_a_group_that_is_placed_at_once_gets_no_word_until_it_runs() -> None:
    w = world().nodes(1, gpu=2)
    w.gang("g", 2)
    w.session()
    assert w.statuses() == {}
    w.carry_out()
    w.session()
    status = w.status("g")
    assert status is not None
    assert status.phase == "Running"
    assert dict(status.counts) == {
        "desired": 2, "existing": 2, "gated": 0, "bound": 2, "running": 2, "succeeded": 0, "failed": 0,
    }  # fmt: skip
    assert status.verdict is None


def _assume(w: World) -> Place:
    """The request is written; nobody binds yet."""
    [place] = w.places
    w.store.assume(place, "r")
    return place


def test_a_group_that_is_placed_and_not_bound_for_long_says_that_instead_of_what_it_said_before() -> None:
    w = world().nodes(1, gpu=2)
    group = w.gang("g", 2, count=1)
    w.session()
    w.carry_out()
    assert said(w, "g") is not None
    w.member(group, 1)
    w.session(later=6)
    place = _assume(w)
    result = w.session(later=1)
    assert (w.statuses(), result.wake_at) == ({}, w.now - 1 + BOUND_WITHIN)
    w.session(later=BOUND_WITHIN - 1)
    assert (phase(w, "g"), said(w, "g")) == ("Scheduling", (Code.WAITING_FOR_BINDER, {"members": 2, "bound": 0}))
    w.session(later=30)
    assert w.statuses() == {}
    failed = GangOutcome(0, "Failed", failures=(BindFailure("uid-g-0", "g-0", "n000", "NodeGone"),))
    ended = BindRequest("r", "uid-r", "s-000003", 1, w.now, (place,), phase="Failed", outcomes=(failed,))
    w.store.apply([feed.RequestSet(ended)], w.now)
    w.session(later=1)
    _assume(w)  # placed anew: its time begins anew
    result = w.session(later=1)
    assert result.wake_at == w.now - 1 + BOUND_WITHIN


def told(w: World) -> list[tuple[str, Code, tuple[str, ...]]]:
    """What members are told in this session: group, code and uids."""
    assert w.result is not None
    explains = [one for one in w.result.decisions.items if isinstance(one, Explain)]
    return [(one.group.rpartition("/")[2], one.verdict.code, one.pods) for one in explains]


def test_members_are_told_too_that_they_are_not_bound_yet_also_one_without_a_group() -> None:
    w = world().nodes(1, gpu=3)
    w.gang("g", 2)
    w.pod("single")
    w.session()
    for place in w.places:
        w.store.assume(place, "r")
    w.session(later=1)
    assert told(w) == []
    w.session(later=BOUND_WITHIN)
    code = Code.WAITING_FOR_BINDER
    assert sorted(told(w)) == [("g", code, ("uid-g-0", "uid-g-1")), ("uid-single", code, ("uid-single",))]
    w.session(later=30)
    assert told(w) == []
    for pod in list(w.pods.values()):
        w.set_pod(replace(pod, node="n000", phase="Running", started=True))
    w.session(later=1)
    assert (told(w), phase(w, "g")) == ([], "Running")


def test_a_group_whose_victims_take_their_time_goes_on_saying_that_it_waits_for_them() -> None:
    w = world().nodes(1, gpu=2)
    for number in range(2):
        w.running(f"low-{number}", "n000", priority=1)
    w.gang("high", 2, pod={"priority": 9})
    w.session()
    [place] = w.places
    assert len(place.victims) == 2
    assert said(w, "high") == (Code.WAITING_FOR_VICTIMS, dict(awaits(place).facts))
    w.store.assume(place, "r")
    w.write()
    for _ in range(4):
        w.session(later=BOUND_WITHIN)
        assert (said(w, "high"), told(w)) == (None, []), "it has been said, and is still true"
    w.drop_pod(place.victims[0].pod)
    w.session(later=BOUND_WITHIN)
    assert (said(w, "high"), told(w)) == (None, [])
    w.drop_pod(place.victims[1].pod)
    w.session(later=BOUND_WITHIN - 1)
    assert said(w, "high") is None, "its time has only begun"
    w.session(later=BOUND_WITHIN)
    assert said(w, "high") == (Code.WAITING_FOR_BINDER, {"members": 2, "bound": 0})


def test_a_group_that_is_bound_in_time_is_not_looked_at_again() -> None:
    w = world().nodes(1, gpu=2)
    w.gang("g", 2)
    assert w.session().wake_at == w.now + BOUND_WITHIN
    w.carry_out()
    w.session()
    assert phase(w, "g") == "Running"
    assert w.session().wake_at is None


def test_a_group_in_a_closed_queue_is_not_let_in() -> None:
    w = world().nodes(1, gpu=1).queue("q", state="Hold")
    w.group("g", 1, queue="q")
    w.session()
    status = w.status("g")
    assert status is not None
    assert status.phase == "Pending"
    assert status.verdict is not None
    assert status.verdict.code is Code.NOT_ENOUGH_MEMBERS


def test_a_group_once_let_in_stays_in() -> None:
    w = world().nodes(1, gpu=1)
    w.gang("g", 2)
    w.session()
    w.carry_out()
    w.queue("default", state="Hold")
    w.session(later=10)
    assert phase(w, "g") == "Inqueue"


def test_phases_follow_the_members_to_the_end() -> None:
    w = world().nodes(1, gpu=3)
    group = w.gang("g", 2)
    w.session()
    w.carry_out()
    w.session()
    assert phase(w, "g") == "Running"
    w.carry_out()
    w.set_pod(replace(w.pods["uid-g-0"], phase="Failed"))
    w.session(later=10)
    assert phase(w, "g") == "Degraded"
    assert said(w, "g") == (
        Code.NOT_ENOUGH_MEMBERS,
        {"existing": 1, "minimum": 2, "gated": 0, "failed": 1, "foreign": 0},
    )
    w.carry_out()
    w.member(group, 5)
    w.session(later=10)
    assert w.placed_of("g") == ["g-5"]
    w.carry_out()
    w.session(later=10)
    assert phase(w, "g") == "Running"
    w.carry_out()
    for name in ("g-1", "g-5"):
        w.set_pod(replace(w.pods[f"uid-{name}"], phase="Succeeded"))
    w.session(later=10)
    assert phase(w, "g") == "Completed"


def test_a_group_of_which_all_members_failed_has_failed() -> None:
    w = world().nodes(1, gpu=3)
    w.gang("g", 2, phase="Running", was_running=True, pod={"phase": "Failed"})
    w.session()
    assert phase(w, "g") == "Failed"


def test_nothing_is_written_to_an_object_that_is_being_deleted_or_missing() -> None:
    w = world().nodes(1, gpu=1)
    w.gang("going", 2, deleting=True)
    w.pod("lost-0", group="volcano/ns/lost")
    w.session()
    assert w.statuses() == {}
    assert why(w, "lost").code is Code.POD_GROUP_NOT_FOUND
    named = {"group": "ns/lost", "kind": "PodGroup.scheduling.volcano.sh", "members": 1}
    assert dict(why(w, "lost").facts) == named
    assert why(w, "going").code is Code.POD_GROUP_NOT_FOUND
    assert w.places == []


# -- on change only ---------------------------------------------------------------------------------------------------


def test_a_second_session_with_nothing_new_says_nothing() -> None:
    w = world().nodes(2, gpu=2)
    w.gang("waits", 6)
    w.gang("runs", 2)
    w.group("empty", 2)
    w.session()
    w.carry_out()
    w.session()
    w.carry_out()
    for _ in range(5):
        assert w.session(later=1).decisions.items == ()


def test_a_status_that_somebody_overwrote_is_written_again() -> None:
    w = world().nodes(1, gpu=2)
    w.gang("g", 2)
    w.session()
    w.carry_out()
    w.session()
    w.carry_out()
    assert w.session().decisions.items == ()
    w.set_group(replace(w.groups["muster/ns/g"], phase="Pending"))
    w.session()
    assert phase(w, "g") == "Running"


def test_a_dialect_that_cannot_show_a_phase_is_not_written_to_for_ever() -> None:
    w = world().nodes(1, gpu=2)
    w.gang("g", 3)
    w.session()
    assert phase(w, "g") == "Inqueue"
    w.set_group(replace(w.groups["muster/ns/g"], phase="Pending", conditions=(Condition("Scheduled", "False"),)))
    w.session()
    w.session()
    assert w.session().decisions.items == ()


def test_counts_wait_while_members_start_and_are_then_written_once() -> None:
    w = world().nodes(1, gpu=2)
    w.gang("g", 2)
    w.session()
    w.carry_out()
    for name in ("g-0", "g-1"):
        w.set_pod(replace(w.pods[f"uid-{name}"], phase="Pending"))
    w.session()
    assert phase(w, "g") == "Running"
    w.carry_out()
    w.set_pod(replace(w.pods["uid-g-0"], phase="Running"))
    result = w.session(later=0.1)
    assert result.decisions.items == ()
    assert result.wake_at is not None
    w.set_pod(replace(w.pods["uid-g-1"], phase="Running"))
    assert w.session(later=0.1).decisions.items == ()
    w.session(later=2)
    status = w.status("g")
    assert status is not None
    assert dict(status.counts)["running"] == 2
    w.carry_out()
    assert w.session(later=10).decisions.items == ()


def test_other_numbers_in_the_same_words_wait_and_are_not_lost() -> None:
    w = world().nodes(1, gpu=4)
    w.running("hog", "n000", shape(gpu=3))
    w.gang("g", 4)
    w.session()
    assert why(w, "g").fact("free") == 1
    w.carry_out()
    w.drop_pod("hog")
    w.running("hog2", "n000", shape(gpu=2))
    result = w.session(later=1)
    assert result.decisions.items == ()
    assert result.wake_at == w.now - 1 + 5
    w.session(later=5)
    assert why(w, "g").fact("free") == 2


def test_another_reason_is_said_at_once() -> None:
    w = world().nodes(1, gpu=1)
    group = w.gang("g", 2, count=1)
    w.session()
    assert why(w, "g").code is Code.NOT_ENOUGH_MEMBERS
    w.member(group, 1)
    w.session()
    assert why(w, "g").code is Code.RESOURCES
    status = w.status("g")
    assert status is not None
    assert status.verdict == why(w, "g")


def test_a_new_member_is_told_the_reason_and_the_others_are_not_told_again() -> None:
    w = world().nodes(1, gpu=1)
    group = w.gang("g", 1, of=shape(gpu=2), count=2)
    w.session()
    w.member(group, 2, shape(gpu=2))
    w.session()
    explained = [item.pods for item in w.result.decisions.items if isinstance(item, Explain)]  # type: ignore[union-attr]
    assert explained == [("uid-g-2",)]


def test_what_was_never_seen_on_the_pods_is_said_again_after_a_while() -> None:
    w = world().nodes(1, gpu=1)
    w.gang("g", 2)
    w.session()
    w.carry_out()
    assert w.session(later=30).decisions.items == ()
    w.session(later=40)
    assert why(w, "g").code is Code.RESOURCES
    for number in range(2):
        w.set_pod(replace(w.pods[f"uid-g-{number}"], condition=Condition("PodScheduled", "False")))
    w.session(later=1)
    assert w.session(later=100).decisions.items == ()


# -- reasons ----------------------------------------------------------------------------------------------------------


def test_a_malformed_group_names_the_field_and_nobody_else_waits() -> None:
    w = world().nodes(1, gpu=2)
    w.gang("bad", 1, problems=(Problem("spec.minMember", "must be at least 1, is 0"),))
    w.gang("good", 2)
    w.session()
    assert (why(w, "bad").code, why(w, "bad").fact("field")) == (Code.MISCONFIGURED, "spec.minMember")
    assert len(w.placed_of("good")) == 2
    assert phase(w, "bad") == "Pending"


def test_a_spec_that_is_not_supported_names_the_paths() -> None:
    w = world().nodes(1, gpu=2)
    w.gang("g", 2, of=shape(gpu=1, unsupported=("spec.resourceClaims", "spec.a")))
    w.session()
    assert (why(w, "g").code, why(w, "g").fact("field")) == (Code.BAD_CONSTRAINTS, "spec.a, spec.resourceClaims")


@pytest.mark.parametrize(
    ("waiting", "gated", "code"),
    [(2, 0, Code.NOT_ENOUGH_MEMBERS), (2, 1, Code.NOT_ENOUGH_MEMBERS), (2, 2, Code.GATED), (0, 4, None)],
)
def test_missing_and_gated_members_are_told_apart(waiting: int, gated: int, code: Code | None) -> None:
    w = world().nodes(1, gpu=8)
    group = w.group("g", 4)
    for number in range(waiting + gated):
        w.member(group, number, gated=number >= waiting)
    w.session()
    assert w.places == []
    if code is None:
        status = w.status("g")
        assert status is not None
        assert status.verdict is not None
        assert status.verdict.code is Code.GATED
    else:
        verdict = why(w, "g")
        assert (verdict.code, verdict.fact("gated"), verdict.fact("minimum")) == (code, gated, 4)


def test_a_missing_role_is_named() -> None:
    w = world().nodes(1, gpu=8)
    group = w.group("g", 3, roles={"ps": 2})
    for number in range(4):
        w.member(group, number, role="worker" if number else "ps")
    w.session()
    verdict = why(w, "g")
    assert (verdict.code, verdict.fact("role"), verdict.fact("existing"), verdict.fact("minimum")) == (
        Code.NOT_ENOUGH_MEMBERS, "ps", 1, 2,
    )  # fmt: skip


def test_a_gang_larger_than_the_cluster_never_fits_and_says_what_there_is() -> None:
    w = world().nodes(2, gpu=2)
    w.gang("big", 5)
    w.gang("wide", 1, of=shape(gpu=3))
    w.running("x", "n000", shape(gpu=2))
    w.session()
    big, wide = why(w, "big"), why(w, "wide")
    assert (big.code, big.permanent, big.fact("capacity"), big.fact("needed")) == (Code.RESOURCES, True, 4, 5)
    assert (wide.code, wide.permanent, wide.fact("largest"), wide.fact("each")) == (Code.RESOURCES, True, 2, 3)


def test_a_gang_that_no_node_may_run_is_not_told_of_a_largest_node() -> None:
    w = world().nodes(2, gpu=2)
    w.gang("g", 2, of=keyed(replace(shape(gpu=1), node_selector=(("pool", "x"),))))
    w.session()
    verdict = why(w, "g")
    assert (verdict.permanent, verdict.fact("largest"), verdict.fact("message")) == (True, None, "no node may run it")


def test_a_gang_some_of_whose_pods_are_another_schedulers_says_so() -> None:
    w = world().nodes(2, gpu=2)
    w.gang("g", 2, count=1)
    w.pod("stray", shape(gpu=1), ours=False, group="muster/ns/g")
    w.session()
    verdict = why(w, "g")
    assert (verdict.code, verdict.fact("existing"), verdict.fact("foreign")) == (Code.NOT_ENOUGH_MEMBERS, 1, 1)


def test_numbers_of_absurd_requests_stay_small_enough_to_be_sent() -> None:
    w = world().nodes(2, cpu=8, memory=512)
    w.gang("big", 300, of=replace(shape(cpu=1), requests=(("cpu", 1000), ("memory", MAX_AMOUNT)), key="absurd"))
    w.gang("ok", 2, of=shape(cpu=1, memory=1))
    w.session()
    verdict = why(w, "big")
    assert (verdict.code, verdict.permanent, verdict.fact("needed")) == (Code.RESOURCES, True, 2**63 - 1)
    assert msgspec.msgpack.encode(verdict.facts)
    assert w.verdict("ok") is None


def test_a_gang_that_only_a_cordon_keeps_out_is_not_told_that_it_never_fits() -> None:
    w = world().node("a", gpu=4, unschedulable=True).node("b", gpu=1)
    w.gang("g", 4)
    w.session()
    verdict = why(w, "g")
    assert (verdict.code, verdict.permanent) == (Code.RESOURCES, False)
    assert dict(verdict.nodes) == {"node(s) were unschedulable": 1, f"Insufficient {GPU}": 1}


def test_room_in_pieces_that_are_too_small_is_fragmentation() -> None:
    w = world().nodes(2, gpu=4)
    w.running("x", "n000", shape(gpu=2))
    w.running("y", "n001", shape(gpu=2))
    w.gang("g", 1, of=shape(gpu=4))
    w.session()
    verdict = why(w, "g")
    assert (verdict.code, verdict.fact("needed"), verdict.fact("free"), verdict.fact("largest")) == (
        Code.FRAGMENTED, 4, 4, 2,
    )  # fmt: skip


def test_a_resource_that_no_node_has_is_named() -> None:
    w = world().nodes(2, cpu=8)
    w.gang("g", 1)
    w.session()
    verdict = why(w, "g")
    assert (verdict.code, verdict.permanent, verdict.fact("resource"), verdict.fact("free")) == (
        Code.RESOURCES, True, GPU, 0,
    )  # fmt: skip
    assert verdict.nodes == ((f"Insufficient {GPU}", 2),)


def test_full_pod_slots_are_told_in_upstream_words() -> None:
    w = world().node("a", gpu=4, slots=1)
    w.running("x", "a", shape())
    w.gang("g", 1)
    w.session()
    verdict = why(w, "g")
    assert (verdict.fact("resource"), verdict.nodes) == ("pods", (("Too many pods", 1),))


def test_without_nodes_the_verdict_counts_none() -> None:
    w = world()
    w.gang("g", 1)
    w.session()
    assert (why(w, "g").code, why(w, "g").total, why(w, "g").nodes) == (Code.RESOURCES, 0, ())


@pytest.mark.parametrize(
    ("queue", "code"),
    [
        ("nowhere", Code.QUEUE_NOT_FOUND), ("parent", Code.QUEUE_NOT_LEAF), ("held", Code.QUEUE_CLOSED),
        ("root", Code.QUEUE_NOT_LEAF), ("child", None), ("parent/child", None), ("root/parent/child", None),
        ("other/child", Code.QUEUE_NOT_FOUND), ("", None), ("under-held", Code.QUEUE_CLOSED),
        ("orphan", Code.QUEUE_NOT_FOUND), ("default", None), ("broken", Code.MISCONFIGURED),
    ],
)  # fmt: skip
def test_queues_that_cannot_hold_a_group_are_told_and_others_are_served(queue: str, code: Code | None) -> None:
    w = world().nodes(1, gpu=2)
    w.queue("parent", parent="root").queue("child", parent="parent").queue("held", state="Hold")
    w.queue("under-held", parent="held-parent").queue("held-parent", state="Drain").queue("orphan", parent="gone")
    w.queue("broken", problems=(Problem("spec.weight", "must not be negative"),))
    w.gang("g", 1, queue=queue)
    w.gang("other", 1)
    w.session()
    assert w.placed_of("other") == ["other-0"]
    if code is None:
        assert w.placed_of("g") == ["g-0"]
    else:
        assert why(w, "g").code is code


# -- plugins that fail ------------------------------------------------------------------------------------------------


class Moody:
    """Raises in one hook, for one group, queue or shape."""

    name = "moody"

    def order_queues(self, queue: Any, head: Any, view: Any) -> tuple[int, ...]:
        if queue.name == "cursed":
            raise RuntimeError("no order")
        return ()

    def order_groups(self, state: Any, view: Any) -> tuple[int, ...]:
        if state.group.name == "unsortable":
            raise RuntimeError("no key")
        return ()

    def admits(self, state: Any, view: Any) -> None:
        if state.group.name == "unwelcome":
            raise RuntimeError("no entry")

    def fits(self, shape: Any, node_class: Any) -> None:
        if dict(shape.requests).get("cpu") == 7000:
            raise RuntimeError("no fit")


def test_a_plugin_that_raises_harms_only_what_it_was_asked_about() -> None:
    registry = Registry({**built_in()._factories, "moody": lambda arguments: Moody()})
    w = world(config=with_plugins(["gang", "queues", "predicates", "moody"]), registry=registry)
    w.nodes(1, gpu=20).queue("cursed")
    for name in ("good", "unsortable", "unwelcome"):
        w.gang(name, 2)
    w.gang("in-cursed", 2, queue="cursed")
    w.gang("seven", 2, of=shape(cpu=7))
    w.gang("last", 2, created=5000.0)
    result = w.session()
    assert {place.name for place in w.places} == {"good", "last"}
    for name in ("unsortable", "unwelcome", "in-cursed", "seven"):
        verdict = why(w, name)
        assert (verdict.code, verdict.fact("field")) == (Code.MISCONFIGURED, "plugin moody")
    assert result.counters['plugin_failures{hook="order_groups",plugin="moody"}'] == 1.0
    assert need(gpu=1) == {GPU: 1}


def test_an_inner_queue_deserves_what_those_below_it_do() -> None:
    w = World()
    w.node("n", gpu=8).queue("team", uid="u", limit=((GPU, 8),))
    w.queue("a", uid="a", parent="team", deserved=((GPU, 3),))
    w.gang("g", 4, of=shape(gpu=1), queue="a")
    w.session()
    w.carry_out()
    result = w.session(later=1.0)
    facts = {one.queue: one.facts for one in result.decisions.items if isinstance(one, SetQueueStatus)}
    assert facts["team"].borrowed == facts["a"].borrowed == ((GPU, 1),)


def test_an_object_named_root_borrows_nothing_of_the_cluster() -> None:
    w = World()
    w.node("n", gpu=8).queue("root", uid="r").queue("a", uid="a")
    w.gang("g", 4, of=shape(gpu=1), queue="a")
    w.session()
    w.carry_out()
    result = w.session(later=1.0)
    facts = {one.queue: one.facts for one in result.decisions.items if isinstance(one, SetQueueStatus)}
    assert (facts["root"].borrowed, facts["a"].borrowed) == ((), ((GPU, 4),))


def test_a_kai_queue_tells_what_its_groups_hold_or_ask_for_and_what_of_it_stays() -> None:
    w = world().nodes(1, gpu=4)
    w.queue("top", uid="1", dialect="kai").queue("k", uid="2", dialect="kai", parent="top", deserved=((GPU, 8),))
    w.queue("m", uid="3", dialect="muster")
    w.gang("firm", 1, queue="k", preemptible=False)
    w.gang("soft", 2, queue="k")
    w.gang("waits", 4, queue="k")
    w.session()
    w.carry_out()
    result = w.session(later=1.0)
    facts = {one.queue: one.facts for one in result.decisions.items if isinstance(one, SetQueueStatus)}
    for name in ("k", "top"):
        assert facts[name].allocated == ((GPU, 3),)
        assert facts[name].requested == ((GPU, 7),)
        assert facts[name].fixed == ((GPU, 1),)
    known = [one.facts for one in result.decisions.items if isinstance(one, SetQueueStatus) and one.queue == "m"]
    assert all(one.requested is None and one.fixed is None for one in known)
