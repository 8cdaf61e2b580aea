"""What people read: the words for each verdict."""

from __future__ import annotations

import dataclasses

import pytest

from scheduler.model.decisions import QueuePlace, SetStatus
from scheduler.model.quantity import MAX_AMOUNT, MAX_SHOWN
from scheduler.model.verdict import CAPACITY_CODES, Code, Fact, Verdict, verdict
from scheduler.observe import explain

GPU = "example.com/gpu"


def seed() -> Verdict:
    found = verdict(
        Code.RESOURCES,
        resource=GPU,
        needed=4,
        members=4,
        free=1,
        short=3,
        holders=(("3 pods of default/gpu-hog", 3),),
    )
    return dataclasses.replace(found, nodes=((f"Insufficient {GPU}", 2),), total=2)


def test_a_shortage_says_what_is_needed_what_is_free_and_who_holds_it():
    assert explain.sentence(seed()) == (
        "Resources: needs 4 example.com/gpu for 4 members, 1 free on 2 nodes, 3 short; "
        "held by 3 pods of default/gpu-hog (3 example.com/gpu)"
    )


def test_a_waiting_member_reads_the_upstream_node_part_first():
    assert explain.pod_message(seed()).startswith(
        "0/2 nodes are available: 2 Insufficient example.com/gpu. Resources: needs 4 example.com/gpu"
    )
    assert explain.condition_reason(seed()) == "Unschedulable"


def test_node_reasons_are_sorted_by_their_text_as_upstream_does():
    found = Verdict(
        Code.RESOURCES,
        nodes=(("Insufficient cpu", 3), ("Insufficient memory", 10), ("node(s) were unschedulable", 1)),
        total=14,
    )
    assert explain.node_part(found) == (
        "0/14 nodes are available: 1 node(s) were unschedulable, 10 Insufficient memory, 3 Insufficient cpu."
    )


def test_a_cluster_without_nodes_says_so():
    assert explain.node_part(verdict(Code.RESOURCES)) == "no nodes available to schedule pods."


def test_members_that_fit_alone_but_not_together_still_get_the_upstream_shape():
    found = dataclasses.replace(verdict(Code.RESOURCES, resource=GPU, needed=4, members=4, free=1), total=2)
    assert explain.pod_message(found).startswith(
        "0/2 nodes are available: the minimum does not fit at once. Resources:"
    )


def test_a_gang_larger_than_the_largest_node_never_fits():
    for code in (Code.NEVER_FITS, Code.RESOURCES):
        found = verdict(code, permanent=True, resource=GPU, needed=4, members=1, largest=2)
        assert explain.sentence(found) == (
            "Resources: needs 4 example.com/gpu for 1 member, never fits: the largest node has 2 example.com/gpu"
        )


def test_a_gang_larger_than_the_cluster_never_fits():
    found = verdict(Code.NEVER_FITS, permanent=True, resource=GPU, needed=400, members=400, capacity=4)
    assert explain.sentence(found).endswith("never fits: all eligible nodes together have 4 example.com/gpu")


def test_missing_members_are_counted_and_gated_ones_named():
    found = verdict(Code.NOT_ENOUGH_MEMBERS, existing=3, minimum=4, gated=1)
    assert explain.sentence(found) == "NotEnoughMembers: 3 of 4 members exist (1 gated)"
    assert explain.pod_message(found) == explain.sentence(found)
    assert explain.condition_reason(found) == "NotEnoughMembers"


def test_the_role_whose_minimum_is_missing_is_named():
    found = verdict(Code.NOT_ENOUGH_MEMBERS, existing=0, minimum=1, gated=0, role="launcher")
    assert explain.sentence(found) == "NotEnoughMembers: 0 of 1 member of role launcher exists"


def test_amounts_are_written_as_people_write_them():
    cpu = verdict(Code.RESOURCES, resource="cpu", needed=8000, members=4, free=1500, short=6500)
    assert "needs 8 cpu for 4 members, 1500m free, 6500m short" in explain.sentence(cpu)
    memory = verdict(Code.RESOURCES, resource="memory", needed=8 << 30, members=2, free=0, short=8 << 30)
    assert "needs 8Gi memory for 2 members, 0 free, 8Gi short" in explain.sentence(memory)


def test_nothing_short_is_not_mentioned():
    assert "short" not in explain.sentence(verdict(Code.FRAGMENTED, resource=GPU, needed=4, members=2, free=4, short=0))


def test_only_the_largest_holders_are_listed():
    holders = tuple((f"1 pod of default/g{i}", 1) for i in range(5))
    found = verdict(Code.RESOURCES, resource=GPU, needed=5, members=5, free=0, short=5, holders=holders)
    assert "default/g2 (1 example.com/gpu) and 2 others" in explain.sentence(found)
    assert "default/g3" not in explain.sentence(found)


def test_topology_names_the_level_and_the_best_domain():
    found = verdict(
        Code.TOPOLOGY,
        resource="nvidia.com/gpu",
        needed=32,
        members=4,
        level="rack",
        domain="r3",
        free=24,
        short=8,
        queue="research",
        used=40,
        deserved=48,
        limit=64,
    )
    assert explain.sentence(found) == (
        "Topology: needs 32 nvidia.com/gpu for 4 members in one rack; best rack r3 has 24, 8 short; "
        "queue research 40/48 deserved, limit 64"
    )


def test_a_missing_pod_group_is_named_with_the_kind_that_was_looked_for():
    kind = "PodGroup.scheduling.volcano.sh"
    found = verdict(Code.POD_GROUP_NOT_FOUND, group="default/train", kind=kind, members=2)
    assert explain.sentence(found) == f"PodGroupNotFound: {kind} default/train does not exist; 2 members wait for it"


@pytest.mark.parametrize(
    ("code", "facts", "words"),
    [
        (Code.POD_GROUP_NOT_FOUND, {"group": "a/g", "members": 0}, "PodGroup a/g does not exist"),
        (
            Code.POD_GROUP_NOT_FOUND,
            {"group": "a/g", "members": 1},
            "PodGroup a/g does not exist; 1 member waits for it",
        ),
        (
            Code.POD_GROUP_NOT_FOUND,
            {"group": "a/g", "members": 2},
            "PodGroup a/g does not exist; 2 members wait for it",
        ),
        (Code.NOT_ENOUGH_MEMBERS, {"existing": 0, "minimum": 1}, "0 of 1 member exists"),
        (Code.NOT_ENOUGH_MEMBERS, {"existing": 0, "minimum": 4}, "0 of 4 members exist"),
        (Code.NOT_ENOUGH_MEMBERS, {"existing": 1, "minimum": 4}, "1 of 4 members exists"),
        (Code.NOT_ENOUGH_MEMBERS, {"existing": 3, "minimum": 4}, "3 of 4 members exist"),
        (Code.NOT_ENOUGH_MEMBERS, {"existing": 3, "minimum": 4, "failed": 1}, "3 of 4 members exist, 1 failed"),
        (
            Code.NOT_ENOUGH_MEMBERS,
            {"existing": 3, "minimum": 4, "foreign": 1},
            "3 of 4 members exist, 1 pod of another scheduler names the group",
        ),
        (
            Code.NOT_ENOUGH_MEMBERS,
            {"existing": 2, "minimum": 4, "gated": 1, "failed": 2},
            "2 of 4 members exist (1 gated), 2 failed",
        ),
        (Code.GATED, {"gated": 1, "existing": 1}, "1 of 1 member has scheduling gates"),
        (Code.GATED, {"gated": 1, "existing": 3}, "1 of 3 members has scheduling gates"),
        (Code.GATED, {"gated": 2, "existing": 3}, "2 of 3 members have scheduling gates"),
        (Code.GATED, {"gated": 1}, "1 member has scheduling gates"),
        (Code.GATED, {"gated": 2}, "2 members have scheduling gates"),
        (Code.RESOURCES, {"needed": 1, "members": 1}, "needs 1 for 1 member"),
        (Code.RESOURCES, {"needed": 2, "members": 2, "free": 1, "nodes": 1}, "needs 2 for 2 members, 1 free on 1 node"),
        (Code.RESOURCES, {"members": 1, "placeable": 0}, "needs room for 1 member; 0 of 1 member would fit now"),
        (Code.RESOURCES, {"members": 2, "placeable": 1}, "needs room for 2 members; 1 of 2 members would fit now"),
        (Code.RESOURCES, {"placeable": 1}, "needs room; 1 member would fit now"),
        (Code.MISCONFIGURED, {"field": "f", "message": "bad", "problems": 1}, "f: bad"),
        (Code.MISCONFIGURED, {"field": "f", "message": "bad", "problems": 2}, "f: bad (and 1 other problem)"),
        (Code.MISCONFIGURED, {"field": "f", "message": "bad", "problems": 3}, "f: bad (and 2 other problems)"),
        (Code.WAITING_FOR_VICTIMS, {"victims": 1}, "waits for 1 pod to end"),
        (Code.WAITING_FOR_VICTIMS, {"victims": 2}, "waits for 2 pods to end"),
    ],
)
def test_one_is_singular_and_all_else_plural(code: Code, facts: dict[str, int | str], words: str):
    assert explain.sentence(verdict(code, **facts)) == f"{code}: {words}"


@pytest.mark.parametrize(("others", "words"), [(0, ""), (1, " and 1 other"), (2, " and 2 others")])
def test_holders_that_are_not_listed_are_counted(others: int, words: str):
    holders = tuple((f"1 pod of default/g{i}", 1) for i in range(3 + others))
    found = verdict(Code.RESOURCES, resource=GPU, needed=5, members=5, holders=holders)
    assert explain.sentence(found).endswith(f"default/g2 (1 {GPU}){words}")


def test_a_number_that_was_cut_is_not_shown_as_if_it_were_exact():
    held = (("2 pods of other/theirs", 2 * MAX_AMOUNT), ("1 pod of other/small", 1 << 30))
    found = verdict(Code.RESOURCES, resource="memory", needed=MAX_SHOWN, members=300, free=0, holders=held)
    assert explain.sentence(found) == (
        "Resources: needs at least 8.0Ei memory for 300 members, 0 free; "
        "held by 2 pods of other/theirs (at least 128Pi memory), 1 pod of other/small (1Gi memory)"
    )


def test_a_wrong_field_is_named_with_its_reason():
    found = verdict(Code.MISCONFIGURED, field="spec.minMember", message="0 is less than 1")
    assert explain.sentence(found) == "Misconfigured: spec.minMember: 0 is less than 1"


def test_further_problems_of_an_object_are_counted():
    found = verdict(Code.MISCONFIGURED, field="spec.minMember", message="0 is less than 1", problems=3)
    assert explain.sentence(found) == "Misconfigured: spec.minMember: 0 is less than 1 (and 2 other problems)"


def test_gated_members_are_counted_among_those_that_exist():
    found = verdict(Code.GATED, gated=2, existing=6, minimum=5, role="worker")
    assert explain.sentence(found) == "Gated: 2 of 6 members of role worker have scheduling gates"


def test_a_queue_that_is_closed_above_or_hangs_from_nothing_says_where():
    closed = verdict(Code.QUEUE_CLOSED, queue="research/nlp", closed="research", state="Hold")
    assert explain.sentence(closed) == (
        "QueueClosed: queue research/nlp starts nothing new because queue research is closed (Hold)"
    )
    own = verdict(Code.QUEUE_CLOSED, queue="nlp", closed="nlp", state="Drain")
    assert explain.sentence(own) == "QueueClosed: queue nlp starts nothing new (state Drain)"
    missing = verdict(Code.QUEUE_NOT_FOUND, queue="nlp", parent="research")
    assert explain.sentence(missing) == "QueueNotFound: queue nlp is below queue research, which does not exist"


def test_quota_says_what_is_used_of_what():
    found = verdict(
        Code.EXCEEDS_LIMIT,
        resource="cpu",
        needed=8000,
        members=4,
        queue="research",
        used=60000,
        limit=64000,
    )
    assert explain.sentence(found) == ("ExceedsLimit: needs 8 cpu for 4 members; queue research uses 60 of limit 64")


@pytest.mark.parametrize(
    ("place", "words"),
    [
        (None, ""),
        (QueuePlace("q", 1), "; position 1 in queue q"),
        (QueuePlace("q", 3, ahead=("a/x", "b/y")), "; position 3 in queue q, behind a/x, b/y"),
        (QueuePlace("q", 9, ahead=("a/x", "b/y"), more=6), "; position 9 in queue q, behind a/x, b/y and 6 more"),
        (QueuePlace("q", 50, exact=False), "; among the first 50 in queue q"),
    ],
)
def test_a_group_is_told_its_place_and_who_is_ahead(place: QueuePlace | None, words: str) -> None:
    found = verdict(Code.QUEUE_NOT_FOUND, queue="q")
    status = SetStatus("k", "u", "Pending", (), found, place=place)
    assert explain.status_text(status) == explain.sentence(found) + words
    assert explain.status_text(SetStatus("k", "u", "Running")) == ""


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"used": 6, "limit": 8, "deserved": 4}, "queue research uses 6 of limit 8 (deserved 4)"),
        ({"used": 6, "limit": 8}, "queue research uses 6 of limit 8"),
        ({"used": 4, "deserved": 4, "message": "stays within"}, "queue research uses 4 (deserved 4); stays within"),
        ({"used": 3, "free": 2, "kept": (("inference", 2),)}, None),
    ],
)
def test_quota_reads_well_whatever_the_queue_says(facts: dict[str, Fact], words: str | None):
    found = explain.sentence(verdict(Code.WAITING_FOR_QUOTA, resource=GPU, needed=2, queue="research", **facts))
    if words is None:
        assert found == (
            "WaitingForQuota: needs 2 example.com/gpu, 2 free; guaranteed: 2 to queue inference; queue research uses 3"
        )
    else:
        assert found == f"WaitingForQuota: needs 2 example.com/gpu; {words}"


def test_what_a_queue_may_never_hold_says_so():
    facts = {"resource": GPU, "needed": 9, "queue": "research", "used": 0, "limit": 8}
    assert explain.sentence(verdict(Code.EXCEEDS_LIMIT, permanent=True, **facts)) == (
        "ExceedsLimit: needs 9 example.com/gpu, more than queue research may ever hold (limit 8)"
    )


def test_victims_are_counted_and_named():
    found = verdict(Code.WAITING_FOR_VICTIMS, victims=3, message="ml/a-0, ml/a-1, ml/a-2")
    assert explain.sentence(found) == "WaitingForVictims: waits for 3 pods to end; ml/a-0, ml/a-1, ml/a-2"


@pytest.mark.parametrize("code", list(Code))
def test_every_code_has_words_even_without_facts(code: Code):
    text = explain.sentence(verdict(code))
    prefix, _, words = text.partition(": ")
    assert prefix == ("Resources" if code is Code.NEVER_FITS else code.value)
    assert words
    assert "None" not in text


@pytest.mark.parametrize("code", list(Code))
def test_only_capacity_looks_unschedulable_to_autoscalers(code: Code):
    found = verdict(code)
    assert (explain.condition_reason(found) == "Unschedulable") == (code in CAPACITY_CODES)
    assert explain.pod_message(found).startswith("no nodes available") == (code in CAPACITY_CODES)


def test_a_note_is_cut_by_bytes_without_breaking_a_character():
    cut = explain.note("é" * 2000)
    assert len(cut.encode()) <= 1024
    assert cut.endswith("é...")
    assert explain.note("short") == "short"
