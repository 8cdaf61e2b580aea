"""What people see while room is made: on the victims, on the group and on its members, through the real writer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from scheduler.cluster import feed
from scheduler.model.bindrequest import BindFailure, BindRequest, GangOutcome
from scheduler.model.decisions import Place, Victim
from scheduler.model.pods import Condition
from tests.unit.cluster.test_performer import Case, case, group, place, pod  # noqa: F401 - a fixture

VICTIMS = tuple(Victim(f"v{n}", "low", f"low-{n}", "n0", "volcano/low/batch", "low/batch", "reclaim") for n in range(5))
FAILURES = tuple(BindFailure(f"u{n}", f"train-{n}", "n0", "VictimsRemain", False, "low/low-0") for n in range(2))


def request(gang: Place, **fields: Any) -> BindRequest:
    made = BindRequest("s-000001-e7-1", "r1", "s-000001", 7, 1_764_430_600.0, (gang,))
    return replace(made, **fields)


def waiting() -> Place:
    return place(0, 1, victims=VICTIMS)


def members(case: Case) -> list[Any]:  # noqa: F811
    return case.sent("PATCH", "/pods/")


async def begin(case: Case) -> BindRequest:  # noqa: F811
    """A request of this process is seen open, while its members wait."""
    case.put(group(), pod(0), pod(1))
    await case.do(waiting())
    (written,) = case.sent("POST", "/bindrequests")
    made = request(waiting(), name=written["metadata"]["name"])
    case.performer.watch([feed.RequestSet(made)])
    await case.settle()
    return made


async def test_members_name_the_node_that_is_kept_and_say_that_they_wait_for_pods_to_end(case: Case):  # noqa: F811
    await begin(case)
    assert [body["status"]["nominatedNodeName"] for body in members(case)] == ["n0", "n1"]
    (condition,) = members(case)[0]["status"]["conditions"]
    assert (condition["type"], condition["status"], condition["reason"]) == (
        "PodScheduled", "False", "WaitingForVictims",
    )  # fmt: skip
    assert condition["message"] == (
        "WaitingForVictims: waits for 5 pods to end; low/low-0, low/low-1, low/low-2 and 2 more"
    )
    (event,) = case.events
    assert event["regarding"]["name"] == "train"
    assert (event["type"], event["reason"], event["action"]) == ("Normal", "WaitingForVictims", "Reclaiming")
    assert "waits for 5 pods to end" in event["note"]


async def test_what_is_said_already_is_not_said_again(case: Case):  # noqa: F811
    made = await begin(case)
    case.performer.watch([feed.RequestSet(replace(made, epoch=8)), feed.RequestSet(made)])
    await case.settle()
    assert len(members(case)) == 2
    assert len(case.events) == 1
    said = "WaitingForVictims: waits for 5 pods to end; low/low-0, low/low-1, low/low-2 and 2 more"
    case.writer.forget(("condition", "u0"))
    case.put(pod(0, nominated="n0", condition=Condition("PodScheduled", "False", "WaitingForVictims", said)))
    case.performer.watch([feed.RequestSet(replace(made, epoch=9))])
    await case.settle()
    assert len(members(case)) == 2


async def test_a_new_leader_repeats_no_event_about_the_group(case: Case):  # noqa: F811
    case.put(group(), pod(0), pod(1))
    case.performer.watch([feed.RequestSet(request(waiting(), name="of-another"))])
    await case.settle()
    assert len(members(case)) == 2
    assert case.events == []


async def test_members_of_a_gang_that_is_given_up_have_no_node_and_say_why(case: Case):  # noqa: F811
    made = await begin(case)
    ended = replace(made, phase="Failed", outcomes=(GangOutcome(0, "Failed", 0, FAILURES),))
    case.bodies.clear()
    case.performer.watch([feed.RequestSet(ended)])
    await case.settle()
    released = [body for body in members(case) if "nominatedNodeName" in body["status"]]
    assert [body["status"]["nominatedNodeName"] for body in released] == [None, None]
    assert {body["metadata"]["uid"] for body in released} == {"u0", "u1"}
    said = [body["status"]["conditions"][0] for body in members(case) if "conditions" in body["status"]]
    assert len(said) == 2
    assert "VictimsRemain (low/low-0)" in said[0]["message"]
    case.bodies.clear()
    case.performer.watch([feed.RequestSet(replace(ended, epoch=8)), feed.RequestGone(made.name)])
    await case.settle()
    assert members(case) == [], "what a session has said since is not undone"


async def test_a_request_that_is_withdrawn_takes_the_nodes_back(case: Case):  # noqa: F811
    made = await begin(case)
    case.bodies.clear()
    case.performer.watch([feed.RequestGone(made.name)])
    await case.settle()
    assert [body["status"] for body in members(case)] == [{"nominatedNodeName": None}] * 2


async def test_a_gang_that_is_placed_anew_keeps_its_new_node(case: Case):  # noqa: F811
    made = await begin(case)
    later = request(place(0, 1, victims=VICTIMS[:1]), name="s-000002-e7-1", uid="r2", session="s-000002")
    case.bodies.clear()
    case.performer.watch([feed.RequestSet(later), feed.RequestGone(made.name)])
    await case.settle()
    assert all(body["status"].get("nominatedNodeName") for body in members(case))


async def test_members_that_were_bound_are_left_alone(case: Case):  # noqa: F811
    made = await begin(case)
    case.put(pod(0, node="n0"), pod(1, node="n1"))
    case.bodies.clear()
    case.performer.watch([feed.RequestSet(replace(made, phase="Bound", outcomes=(GangOutcome(0, "Bound", 2),)))])
    await case.settle()
    assert members(case) == []


@pytest.mark.parametrize(
    ("why", "action", "words"),
    [
        ("preempt", "Preempting", "Evicted for PodGroup ns/train, which has a higher priority"),
        ("reclaim", "Reclaiming", "Evicted for PodGroup ns/train: its queue takes back what it is entitled to"),
        ("consolidate", "Moving", "Moved for PodGroup ns/train; room is kept on node n9"),
        ("drain", "Draining", "Evicted because queue train is being drained"),
    ],
)
async def test_a_victim_is_told_for_whom_it_goes_and_why(case: Case, why: str, action: str, words: str):  # noqa: F811
    gang = waiting()
    victim = replace(VICTIMS[0], why=why, move_to="n9" if why == "consolidate" else "")
    case.performer.evicted(request(gang), gang, victim)
    await case.settle()
    (event,) = case.events
    assert event["regarding"] | {"apiVersion": "v1"} == {
        "apiVersion": "v1", "kind": "Pod", "namespace": "low", "name": "low-0", "uid": "v0",
    }  # fmt: skip
    assert (event["type"], event["reason"], event["action"], event["note"]) == ("Normal", "Preempted", action, words)


async def test_a_gang_without_victims_is_told_nothing(case: Case):  # noqa: F811
    case.put(group(), pod(0), pod(1))
    case.performer.watch([feed.RequestSet(request(place(0, 1)))])
    await case.settle()
    assert case.bodies == []
