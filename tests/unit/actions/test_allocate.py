from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from scheduler.cluster import feed
from scheduler.model.bindrequest import BindFailure, BindRequest, GangOutcome
from scheduler.model.decisions import Place
from scheduler.model.resources import amounts
from scheduler.model.snapshot import NoGood
from scheduler.model.verdict import Code
from tests.unit.framework.world import GPU, World, need, shape, with_plugins


def world(**fields: object) -> World:
    made = World(**fields)  # type: ignore[arg-type]
    made.sessions = type(made.sessions)(made.config, made.registry, check=True)
    return made


def test_a_gang_that_fits_is_placed_whole_in_one_decision() -> None:
    w = world().nodes(2, gpu=2)
    w.gang("g", 4)
    w.session()
    assert [(place.minimum, len(place.assignments)) for place in w.places] == [(4, 4)]


def test_a_gang_that_does_not_fit_gets_nothing_and_the_reason_in_numbers() -> None:
    w = world().nodes(2, gpu=2)
    for number, node in enumerate(("n000", "n000", "n001")):
        w.running(f"hog-{number}", node, owner_name="gpu-hog", owner_uid="u", owner_kind="Job")
    w.gang("g", 4)
    w.session()
    assert w.places == []
    verdict = w.verdict("g")
    assert verdict is not None
    assert (verdict.code, verdict.permanent, verdict.total) == (Code.RESOURCES, False, 2)
    facts = {name: verdict.fact(name) for name in ("resource", "needed", "free", "short", "placeable", "members")}
    assert facts == {"resource": GPU, "needed": 4, "free": 1, "short": 3, "placeable": 1, "members": 4}
    assert verdict.fact("holders") == (("3 pods of ns/gpu-hog", 3),)
    assert verdict.nodes == (("Insufficient example.com/gpu", 2),)


def test_who_leaves_is_not_named_as_a_holder() -> None:
    w = world().nodes(1, gpu=4)
    w.running("goes", "n000", owner_name="hog", owner_uid="u", deleting=True, ends=w.now + 30)
    w.running("stays", "n000", owner_name="hog", owner_uid="u")
    w.running("alone", "n000", deleting=True, ends=w.now + 30)
    w.gang("g", 4)
    w.session()
    verdict = w.verdict("g")
    assert verdict is not None
    assert verdict.fact("holders") == (("1 pod of ns/hog", 1),)


def test_it_starts_when_the_holder_is_gone() -> None:
    w = world().nodes(2, gpu=2)
    w.running("hog", "n000", shape(gpu=2))
    w.gang("g", 4)
    assert w.session().decisions.items
    w.drop_pod("hog")
    w.session()
    assert len(w.placed_of("g")) == 4


def test_two_gangs_that_fit_only_one_at_a_time_do_not_share() -> None:
    w = world().nodes(4, gpu=2)
    six, four = w.group("six", 6, created=1.0), w.group("four", 4, created=1.0)
    for number in range(6):
        w.member(six, number)
        if number < 4:
            w.member(four, number)
    w.session()
    assert sorted(len(place.assignments) for place in w.places) in ([4], [6])
    first = w.places[0].name
    w.carry_out()
    w.session()
    assert w.places == []
    for pod in [pod for pod in w.pods.values() if pod.name.startswith(first)]:
        w.set_pod(replace(pod, phase="Succeeded"))
    w.session()
    assert {place.name for place in w.places} == {"six", "four"} - {first}


def test_two_kinds_of_members_start_together_or_not_at_all() -> None:
    w = world().node("a", gpu=4, cpu=8).node("b", cpu=4)
    group = w.group("g", 3, roles={"launcher": 1, "worker": 2})
    w.member(group, 0, shape(cpu=8), role="launcher")
    w.member(group, 1, shape(gpu=2, cpu=2), role="worker")
    w.member(group, 2, shape(gpu=2, cpu=2), role="worker")
    w.session()
    assert w.places == []
    w.node("c", cpu=8)
    w.session()
    assert w.placed == {"g-0": "c", "g-1": "a", "g-2": "a"}


def test_role_minimums_decide_which_members_start() -> None:
    w = world().node("a", gpu=3)
    group = w.group("g", 3, roles={"ps": 1})
    for number in range(4):
        w.member(group, number, role="worker" if number < 3 else "ps")
    w.session()
    assert len(w.places) == 1
    assert "g-3" in w.placed_of("g")
    assert len(w.placed) == 3


def test_consecutive_ranks_share_nodes() -> None:
    w = world().nodes(3, gpu=2)
    group = w.group("g", 6)
    for number in (4, 0, 5, 2, 1, 3):
        w.member(group, number)
    w.session()
    nodes = [w.placed[f"g-{number}"] for number in range(6)]
    assert len(list(itertools.groupby(nodes))) == 3


def test_members_above_the_minimum_are_a_decision_of_their_own() -> None:
    w = world().nodes(1, gpu=5)
    w.gang("g", 2, count=4)
    w.session()
    assert [place.minimum for place in w.places] == [2]
    w.carry_out()
    w.session()
    assert [place.minimum for place in w.places] == [0] * len(w.places)
    assert w.placed_of("g") == ["g-2", "g-3"]


def test_nothing_of_a_gang_is_placed_while_its_minimum_is_being_bound_and_can_still_be_unwound() -> None:
    w = world().nodes(1, gpu=8)
    group = w.gang("g", 3, count=3)
    result = w.session()
    for place in w.places:
        w.store.assume(place, result.decisions.session)
    w.running("g-0", "n0", shape(gpu=1), group=group.key)
    w.drop_pod("g-2")
    w.member(group, 2)
    w.member(group, 3)
    w.session()
    assert w.places == []
    w.store.apply([feed.HandoverFailed(result.decisions.session, (group.key,), "boom")], 1000.0)
    w.drop_pod("g-0")
    w.member(group, 0)
    w.session()
    assert [(place.minimum, len(place.assignments)) for place in w.places] == [(3, 3)]


def test_no_surplus_is_placed_before_another_gang_has_its_minimum() -> None:
    w = world().nodes(1, gpu=6)
    w.gang("first", 2, count=6, created=1.0)
    w.gang("second", 2, created=2.0)
    w.session()
    assert (len(w.placed_of("first")), len(w.placed_of("second"))) == (2, 2)
    w.carry_out()
    w.session()
    assert (len(w.placed_of("first")), len(w.placed_of("second"))) == (2, 0)


def test_a_large_surplus_member_does_not_hold_up_small_ones_of_its_group() -> None:
    w = World()
    w.node("n", gpu=2)
    group = w.gang("g", 1)
    w.session()
    w.carry_out()
    w.pod("large", shape(gpu=4), group=group.key, index=1)
    w.pod("small", shape(gpu=1), group=group.key, index=2)
    w.session(later=1)
    assert list(w.placed) == ["small"]


def test_as_much_of_a_surplus_is_placed_as_the_queue_may_have() -> None:
    w = World()
    w.node("n", gpu=16)
    w.queue("q", limit=amounts(need(gpu=6)))
    w.gang("g", 4, count=8, queue="q")
    w.session()
    assert len(w.placed) == 4
    w.carry_out()
    w.session(later=1)
    assert len(w.placed) == 2


@pytest.mark.parametrize(("limit", "placed"), [(3, False), (4, True)])
def test_the_limit_of_a_queue_holds_for_the_members_that_are_placed_not_for_the_first(limit: int, placed: bool) -> None:
    w = World(check=True)
    w.node("n", gpu=8)
    w.queue("q", limit=amounts(need(gpu=limit)))
    group = w.group("g", 1, queue="q")
    w.pod("small", shape(gpu=1, node_selector=(("no", "where"),)), group=group.key, index=0)
    w.pod("large", shape(gpu=4), group=group.key, index=1)
    w.session()
    assert bool(w.placed) == placed
    found = w.verdict("g")
    assert placed or (found is not None and found.code is Code.EXCEEDS_LIMIT)


def test_elastic_gangs_share_the_surplus() -> None:
    w = world().nodes(1, gpu=12)
    w.gang("a", 2, count=12, created=1.0)
    w.gang("b", 2, count=12, created=2.0)
    w.session()
    assert (len(w.placed_of("a")), len(w.placed_of("b"))) == (2, 2)
    w.carry_out()
    w.session()
    assert (len(w.placed_of("a")), len(w.placed_of("b"))) == (4, 4)


def test_a_lost_member_is_replaced_alone_and_before_newcomers() -> None:
    w = world().nodes(2, gpu=2)
    group = w.gang("old", 3, created=5.0)
    w.session()
    w.carry_out()
    w.session()
    w.drop_pod("old-1")
    w.member(group, 7)
    w.gang("new", 2, created=1.0)
    w.session()
    assert w.placed_of("old") == ["old-7"]
    assert w.placed_of("new") == []
    assert w.places[0].minimum == 0


def test_a_gang_of_which_nothing_is_left_starts_as_a_whole_again() -> None:
    w = world().nodes(1, gpu=3)
    group = w.gang("g", 3)
    w.session()
    w.carry_out()
    w.session()
    for number in range(3):
        w.drop_pod(f"g-{number}")
        w.member(group, number + 10)
    w.running("other", "n000")
    w.session()
    assert w.places == []


def test_higher_priority_goes_first_whatever_the_age() -> None:
    w = world().nodes(1, gpu=2).priority("high", 100)
    w.gang("old", 2, created=1.0)
    w.gang("urgent", 2, created=9.0, priority_class="high")
    w.session()
    assert w.placed_of("urgent") == ["urgent-0", "urgent-1"]


def test_the_older_of_equals_goes_first_and_a_blocked_gang_does_not_block_those_behind_it() -> None:
    w = world().nodes(1, gpu=2)
    w.gang("too-big", 3, created=1.0)
    w.gang("older", 2, created=2.0)
    w.gang("younger", 2, created=3.0)
    w.session()
    assert w.placed_of("older") == ["older-0", "older-1"]
    assert {place.name for place in w.places} == {"older"}


def test_queues_take_turns_by_priority_then_by_their_groups() -> None:
    unlimited = {"deserved": ((GPU, 1),)}  # all stay within what they are owed
    w = world().nodes(1, gpu=2).queue("a", **unlimited).queue("b", **unlimited).queue("z", priority=5, **unlimited)
    w.running("else", "n000", shape(gpu=0, cpu=1))
    w.gang("in-b", 1, queue="b", created=1.0)
    w.gang("in-a", 1, queue="a", created=2.0)
    w.gang("in-z", 1, queue="z", created=3.0)
    w.session()
    assert {place.name for place in w.places} == {"in-z", "in-b"}


def test_many_single_pods_are_placed_and_each_is_a_decision() -> None:
    w = world().nodes(3, gpu=4)
    for number in range(14):
        w.pod(f"p{number:02}")
    w.session()
    assert len(w.places) == 12
    assert {place.minimum for place in w.places} == {1}
    assert {w.verdict(f"p{number:02}") for number in (12, 13)} != {None}


def test_single_pods_of_two_shapes_and_priorities_keep_their_order() -> None:
    w = world().nodes(1, gpu=3)
    for number in range(3):
        w.pod(f"low{number}", shape(gpu=1), priority=1, created=1.0)
        w.pod(f"high{number}", shape(gpu=1, cpu=1), priority=5, created=2.0)
    w.session()
    assert sorted(w.placed) == ["high0", "high1", "high2"]


def test_a_node_that_refused_a_pod_is_not_tried_for_it_again_until_the_cool_down_ends() -> None:
    w = world().node("a", gpu=2).node("b", gpu=1)
    w.gang("g", 2)
    w.flush()
    w.store._refusals._known.append(NoGood(node="a", until=w.now + 10, cause="NodeGone", uid="uid-g-0"))
    result = w.session()
    assert w.placed == {"g-0": "b", "g-1": "a"}
    assert result.wake_at == w.now + 10


def test_a_group_whose_bind_was_refused_as_such_rests_and_says_why() -> None:
    w = world().node("a", gpu=2).node("b", gpu=2)
    w.gang("g", 2)
    w.flush()
    key = next(iter(w.store.snapshot(w.now).groups))
    gang = Place(
        group=key, group_uid="", namespace="d", name="g", api_version="", kind="PodGroup", minimum=2, assignments=()
    )
    failed = GangOutcome(0, "Failed", failures=(BindFailure("uid-g-0", "g-0", "a", "Forbidden"),))
    ended = BindRequest("r", "r", "s", 1, w.now, (gang,), phase="Failed", outcomes=(failed,))
    w.store.apply([feed.RequestSet(ended)], w.now)
    w.session()
    verdict = w.verdict("g")
    assert not w.placed
    assert verdict is not None and (verdict.code, verdict.fact("cause")) == (Code.BIND_FAILED, "Forbidden")
    w.session(later=2)
    assert len(w.placed) == 2


def test_a_shape_that_a_kubelet_refused_waits_with_that_reason() -> None:
    w = world().node("a", gpu=2)
    w.gang("g", 2)
    w.flush()
    w.store._refusals._known.append(NoGood(node="a", until=w.now + 10, cause="OutOfcpu", shape=shape(gpu=1).key))
    w.session()
    verdict = w.verdict("g")
    assert verdict is not None
    assert verdict.nodes == (("node(s) had just refused the pod", 1),)
    assert not verdict.permanent
    w.session(later=11)
    assert len(w.placed) == 2


def test_a_domain_that_must_hold_the_gang_holds_it() -> None:
    w = world(config=with_plugins(["gang", "predicates", "topology"]))
    for number in range(4):
        w.node(f"n{number}", gpu=2, labels={"rack": f"r{number % 2}"})
    w.running("x", "n0", shape(gpu=1))
    w.gang("g", 4, topology="rack")
    w.session()
    assert set(w.placed.values()) == {"n1", "n3"}


@pytest.mark.parametrize("confirmed", [True, False], ids=["running", "only assumed"])
def test_later_members_follow_the_gang_into_its_domain(confirmed: bool) -> None:
    w = world(config=with_plugins(["gang", "predicates", "topology"]))
    w.node("a", gpu=2, labels={"rack": "r0"}).node("b", gpu=2, labels={"rack": "r0"})
    w.node("c", gpu=4, labels={"rack": "r1"})
    w.running("x", "c", shape(gpu=4))
    group = w.gang("g", 2, topology="rack")
    result = w.session()
    if confirmed:
        w.carry_out()
    else:
        for place in w.places:
            w.store.assume(place, result.decisions.session)
    w.drop_pod("x")
    for number in range(2, 6):
        w.member(group, number)
    w.session()
    assert set(w.placed.values()) <= {"a", "b"}
    assert len(w.placed) == (2 if confirmed else 0)


def test_a_domain_that_is_too_small_is_named_with_what_it_has() -> None:
    w = world(config=with_plugins(["gang", "predicates", "topology"]))
    for number in range(4):
        w.node(f"n{number}", gpu=2, labels={"rack": f"r{number % 2}"})
    w.running("x", "n0", shape(gpu=1))
    w.running("y", "n1", shape(gpu=2))
    w.gang("g", 4, topology="rack")
    w.session()
    verdict = w.verdict("g")
    assert verdict is not None
    assert verdict.code is Code.TOPOLOGY
    assert (verdict.fact("level"), verdict.fact("domain"), verdict.fact("free")) == ("rack", "r0", 3)


@pytest.mark.parametrize(
    ("tiers", "says"), [(["topology"], "no node has the label no-such-label"), (["gang"], "no configured plugin")]
)
def test_a_topology_that_cannot_be_kept_is_said_and_not_ignored(tiers: list[str], says: str) -> None:
    w = world(config=with_plugins(tiers)).nodes(1, gpu=2)
    w.gang("g", 2, topology="no-such-label")
    w.gang("plain", 1)
    w.session()
    verdict = w.verdict("g")
    assert verdict is not None
    assert verdict.code is Code.BAD_CONSTRAINTS
    assert says in str(verdict.fact("message"))
    assert verdict.fact("field") == "spec.topology.required"
    assert w.placed_of("plain") == ["plain-0"]


def test_elastic_groups_share_by_their_dominant_resource() -> None:
    w = World(with_plugins(["priority", "gang", "drf", "queues", "predicates"])).node("n", cpu=12, memory=12)
    w.gang("wide", 1, count=12, of=shape(cpu=2, memory=1))
    w.gang("deep", 1, count=12, of=shape(cpu=1, memory=2))
    for _ in range(20):
        w.session(later=1.0)
        w.carry_out()
    counts = {
        name: sum(pod.node != "" and pod.name.startswith(name) for pod in w.pods.values()) for name in ("wide", "deep")
    }
    assert counts == {"wide": 4, "deep": 4}
