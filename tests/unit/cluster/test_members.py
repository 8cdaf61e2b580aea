"""What a group is taken to say about being a victim, and of its queue, when its own object says nothing."""

from __future__ import annotations

import pytest

from scheduler.cluster.members import group_state, queue_of
from scheduler.model.groups import GroupState, PodGroup
from scheduler.model.pods import Pod


def state(dialect: str, priority: int, *said: bool | None, own: bool | None = None) -> GroupState:
    key = f"{dialect}/a/g"
    members = [
        Pod(f"u{number}", "a", f"p{number}", "s", ours=True, priority=priority, group=key, preemptible=one)
        for number, one in enumerate(said)
    ]
    group = None
    if dialect != "pod":
        group = PodGroup(key, "u", dialect, "a", "g", min_member=len(said), preemptible=own)
    found = group_state(
        key, group, members, assumed={}, priorities={}, namespace_queue=lambda _, default: default, ran=()
    )
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("said", "group"),
    [((None, None), None), ((True, True), True), ((False, False), False), ((False, True), None), ((False, None), None)],
)
def test_a_group_says_what_all_its_members_say(said: tuple[bool | None, ...], group: bool | None) -> None:
    assert state("muster", 0, *said).group.preemptible is group


def test_the_word_of_the_object_counts_before_that_of_its_members() -> None:
    assert state("muster", 0, False, own=True).group.preemptible is True


def test_a_pod_that_stands_alone_speaks_for_itself() -> None:
    assert state("pod", 0, False).group.preemptible is False


@pytest.mark.parametrize(("priority", "preemptible"), [(99, True), (100, False), (125, False), (-1, True)])
def test_a_group_of_kai_that_says_nothing_is_preemptible_below_a_priority(priority: int, preemptible: bool) -> None:
    assert state("kai", priority, None, None).group.preemptible is preemptible
    assert state("kai", priority, None, own=not preemptible).group.preemptible is not preemptible


@pytest.mark.parametrize(
    ("group", "pods", "queue"),
    [
        ("org/nlp", ("other",), "nlp"),
        ("", ("", "cv"), "cv"),
        ("", ("",), "of-a"),
        ("", (), "of-a"),
        (None, ("", ""), "of-a"),
        (None, (), "default"),
    ],
)
def test_the_queue_is_what_object_members_and_namespace_say_in_this_order(
    group: str | None, pods: tuple[str, ...], queue: str
) -> None:
    members = [Pod(f"u{number}", "a", f"p{number}", "s", queue=one) for number, one in enumerate(pods)]
    stated = None if group is None else PodGroup("muster/a/g", "u", "muster", "a", "g", queue=group)
    assert queue_of(stated, members, {"a": "of-a"}.get) == queue


def named(*queues: str, own: str = "", charged: str = "") -> GroupState:
    members = [
        Pod(f"u{number}", "a", f"p{number}", "s", ours=True, group="muster/a/g", queue=one, created=float(number))
        for number, one in enumerate(queues)
    ]
    if charged:
        members.append(Pod("on", "a", "on", "s", ours=True, group="muster/a/g", node="n", charged_to=charged))
    group = PodGroup("muster/a/g", "u", "muster", "a", "g", min_member=2, queue=own)
    found = group_state(
        group.key, group, members, assumed={}, priorities={}, namespace_queue=lambda _, default: default, ran=()
    )
    assert found is not None
    return found


def test_a_gang_whose_members_name_different_queues_is_told_so_where_nothing_else_says_which_counts() -> None:
    (problem,) = named("org/x", "", "y", "z").group.problems
    assert problem.field == "pod p2"
    assert 'names queue "y", pod p0 names "x"' in problem.message
    for state, queue in (
        (named("x", "org/x", ""), "x"),
        (named("x", "y", own="z"), "z"),
        (named("x", "y", charged="q"), "q"),
    ):
        assert (state.group.problems, state.queue) == ((), queue)
