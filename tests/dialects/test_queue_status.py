"""What is written to the status of a queue: in the words of its API, on change only, and exactly."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.dialects import queues
from scheduler.dialects.registry import BY_NAME
from scheduler.model.quantity import parse_quantity, scaled
from scheduler.model.queues import Queue, QueueFacts
from tests.dialects.golden import merged

Json = dict[str, Any]
VERSIONS = {"muster": "scheduling.muster.sh/v1alpha1", "volcano": "scheduling.volcano.sh/v1beta1"}
VERSIONS |= {"kai": "scheduling.run.ai/v2"}
T1, T2 = "2026-11-01T00:00:00Z", "2026-11-02T00:00:00Z"
NOON = 1793534400.0
FACTS = QueueFacts(
    state="Open",
    allocated=(("cpu", 1500), ("memory", 3 * 2**30), ("nvidia.com/gpu", 6)),
    entitlement=(("nvidia.com/gpu", 4),),
    borrowed=(("nvidia.com/gpu", 2),),
    guarantee=(("nvidia.com/gpu", 1),),
    pending=2,
    admitted=1,
    running=3,
    decayed=(("nvidia.com/gpu", 21600),),
    decayed_at=NOON,
    children=("b", "a"),
    pods=6,
    requested=(("nvidia.com/gpu", 9),),
    fixed=(),
)


def obj(status: Json | None = None, generation: int = 3) -> Json:
    metadata = {"name": "q", "uid": "u", "resourceVersion": "1", "generation": generation}
    return {"metadata": metadata, "spec": {"resources": {}}, "status": status or {}}


def read(name: str, value: Json) -> Queue:
    return BY_NAME[name].decode_queue(json.dumps(value).encode(), VERSIONS[name])


def say(name: str, value: Json, facts: QueueFacts = FACTS, now: str = T1) -> Json | None:
    patch = BY_NAME[name].queue_status_patch(read(name, value), facts, now)
    return None if patch is None else patch["status"]


def said(name: str, value: Json, facts: QueueFacts = FACTS, now: str = T1) -> Json:
    """The object after it was told."""
    return merged(value, {"status": say(name, value, facts, now) or {}})


def test_a_queue_of_ours_says_its_shares_and_its_use() -> None:
    assert say("muster", obj()) == {
        "state": "Open",
        "pending": 3,
        "running": 3,
        "conditions": [
            {
                "type": "Ready", "status": "True", "reason": "Ready", "message": "", "observedGeneration": 3,
                "lastTransitionTime": T1,
            }
        ],
        "entitlement": {"nvidia.com/gpu": "4"},
        "allocated": {"cpu": "1500m", "memory": "3Gi", "nvidia.com/gpu": "6"},
        "borrowed": {"nvidia.com/gpu": "2"},
        "usage": {"at": "2026-11-01T12:00:00Z", "decayed": {"nvidia.com/gpu": "21600"}},
    }  # fmt: skip


def test_a_queue_of_volcano_says_its_state_and_its_use_with_pods() -> None:
    assert say("volcano", obj()) == {
        "state": "Open",
        "allocated": {"cpu": "1500m", "memory": "3Gi", "nvidia.com/gpu": "6", "pods": "6"},
        "reservation": {"nvidia.com/gpu": "1"},
        "pending": 2,
        "inqueue": 1,
        "running": 3,
    }


def test_a_queue_of_kai_says_its_use_and_its_children() -> None:
    assert say("kai", obj()) == {
        "childQueues": ["a", "b"],
        "allocated": {"cpu": "1500m", "memory": "3Gi", "nvidia.com/gpu": "6"},
        "requested": {"nvidia.com/gpu": "9"},
    }


@pytest.mark.parametrize("name", VERSIONS)
def test_nothing_is_said_twice_and_what_is_gone_is_taken_back(name: str) -> None:
    value = said(name, obj())
    assert say(name, value, now=T2) is None
    less = replace(FACTS, allocated=(("cpu", 1500),))
    value = said(name, value, less, T2)
    allocated = {key: text for key, text in value["status"]["allocated"].items() if key != "pods"}
    assert allocated == {"cpu": "1500m"}
    assert say(name, value, less, T2) is None


@pytest.mark.parametrize("name", ["muster", "kai"])
def test_a_problem_is_a_condition_until_it_is_solved(name: str) -> None:
    bad = replace(FACTS, problem=("Misconfigured", "spec.parent: there is no queue nobody"))
    value = said(name, said(name, obj()), bad, T1)
    ready = value["status"]["conditions"][0]
    assert (ready["type"], ready["status"], ready["reason"]) == ("Ready", "False", "Misconfigured")
    assert ready["message"] == "spec.parent: there is no queue nobody"
    assert say(name, value, bad, T2) is None
    ready = said(name, value, FACTS, T2)["status"]["conditions"][0]
    assert (ready["status"], ready["lastTransitionTime"]) == ("True", T2)


def test_a_queue_above_a_limit_that_was_lowered_says_by_how_much_until_it_is_not() -> None:
    over = replace(FACTS, over=(("memory", 2**30), ("nvidia.com/gpu", 2)))
    value = said("muster", obj(), over)
    found = {one["type"]: one for one in value["status"]["conditions"]}["OverQuota"]
    assert (found["status"], found["reason"]) == ("True", "AboveLimit")
    assert found["message"] == "uses more than its limit: 1Gi memory, 2 nvidia.com/gpu"
    value = said("muster", value, FACTS, T2)
    found = {one["type"]: one for one in value["status"]["conditions"]}["OverQuota"]
    assert (found["status"], found["reason"], found["lastTransitionTime"]) == ("False", "WithinLimit", T2)


def test_use_over_time_alone_is_written_once_a_minute_and_only_while_something_is_in_use() -> None:
    value = said("muster", obj())
    soon = replace(FACTS, decayed=(("nvidia.com/gpu", 21700),), decayed_at=NOON + 59)
    assert say("muster", value, soon) is None
    assert say("muster", value, replace(soon, running=4)) is not None
    later = replace(soon, decayed_at=NOON + 60)
    assert say("muster", value, later) == {
        "usage": {"at": "2026-11-01T12:01:00Z", "decayed": {"nvidia.com/gpu": "21700"}}
    }
    idle = replace(FACTS, allocated=(), borrowed=())
    value = said("muster", value, idle)
    assert say("muster", value, replace(idle, decayed=(("nvidia.com/gpu", 5),), decayed_at=NOON + 9999)) is None


def test_use_over_time_is_read_back_exactly_however_large() -> None:
    large = (("cpu", 123_456_789_001), ("memory", 2**80 + 1))
    queue = read("muster", said("muster", obj(), replace(FACTS, decayed=large)))
    assert (queue.decayed, queue.decayed_at) == (large, NOON)


@given(st.sampled_from(["cpu", "memory", "hugepages-2Mi", "nvidia.com/gpu"]), st.integers(0, 2**90))
def test_an_amount_is_written_exactly(resource: str, value: int) -> None:
    assert scaled(resource, parse_quantity(queues.written(resource, value))) == value


@pytest.mark.parametrize(
    ("before", "holds", "after"),
    [
        (None, "Open", "Open"),
        ("Open", "Hold", "Open"),  # held by a queue above: it is not closed itself
        ("Open", "Closing", "Open"),
        ("Closed", "Closing", "Closing"),
        ("Closing", "Hold", "Closed"),
        ("Unknown", "Hold", "Unknown"),
    ],
)
def test_the_state_of_a_queue_of_volcano_is_its_own(before: str | None, holds: str, after: str) -> None:
    value = obj({"state": before} if before else {})
    assert said("volcano", value, replace(FACTS, state=holds))["status"]["state"] == after


def test_a_schema_that_drops_the_counters_of_volcano_is_not_written_to_again_and_again() -> None:
    value = said("volcano", obj())
    for counter in ("pending", "inqueue", "running"):
        del value["status"][counter]
    assert say("volcano", value) is None
    assert say("volcano", value, replace(FACTS, pending=7)) is None


@pytest.mark.parametrize("name", VERSIONS)
def test_what_is_said_does_not_change_what_the_queue_is(name: str) -> None:
    before, after = read(name, obj()), read(name, said(name, obj()))
    changed = {"raw_status": b"", "conditions": (), "decayed": (), "decayed_at": 0.0}
    assert replace(after, **changed) == replace(before, **changed)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", VERSIONS)
def test_the_path_of_a_queue(name: str) -> None:
    assert BY_NAME[name].queue_path(read(name, obj())) == f"/apis/{VERSIONS[name]}/queues/q"
