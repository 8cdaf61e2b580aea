"""What is written to a status: in the words of its API, on change only, without loss of what others wrote."""

from __future__ import annotations

import json
from typing import Any

import pytest

from scheduler.dialects.registry import BY_NAME
from scheduler.model.decisions import SetStatus
from scheduler.model.groups import PodGroup
from scheduler.model.verdict import Code, verdict
from tests.dialects.golden import merged
from tests.dialects.test_malformed import META, MINIMUM, VERSIONS

Json = dict[str, Any]
NAMES = sorted(VERSIONS)
T1, T2 = "2026-11-01T00:00:00Z", "2026-11-02T00:00:00Z"


def obj(name: str, status: Json | None = None, generation: int = 1) -> Json:
    return {"metadata": META | {"generation": generation}, "spec": MINIMUM[name](4), "status": status or {}}


def read(name: str, value: Json) -> PodGroup:
    return BY_NAME[name].decode_group(json.dumps(value).encode(), VERSIONS[name])


def say(name: str, value: Json, phase: str, code: Code | None = None, text: str = "", now: str = T1) -> Json | None:
    group = read(name, value)
    status = SetStatus(group.key, "u", phase, (("running", 4),), verdict(code) if code else None)
    return BY_NAME[name].status_patch(group, status, text, now)


def conditions(patch: Json | None) -> dict[str, Json]:
    assert patch is not None
    lists = (patch["status"].get(name, ()) for name in ("conditions", "schedulingConditions"))
    return {item["type"]: item for found in lists for item in found}


@pytest.mark.parametrize("name", NAMES)
def test_the_time_of_transition_stays_while_only_the_message_changes(name: str) -> None:
    value = merged(obj(name), say(name, obj(name), "Pending", Code.RESOURCES, "short of 2") or {})
    later = conditions(say(name, value, "Pending", Code.RESOURCES, "short of 1", T2))
    assert [item["lastTransitionTime"] for item in later.values()] == [T1] * len(later)
    assert {item["message"] for item in later.values()} == {"short of 1"}


@pytest.mark.parametrize("name", NAMES)
def test_a_condition_that_stops_being_true_becomes_false_or_is_final(name: str) -> None:
    value = merged(obj(name), say(name, obj(name), "Pending", Code.RESOURCES, "short of 2") or {})
    value = merged(value, say(name, value, "Running", None, "", T2) or {})
    true = {item["type"] for item in value["status"]["conditions"] if item["status"] == "True"}
    assert (
        true
        == {
            "muster": {"Admitted", "Scheduled"},
            "native": {"PodGroupInitiallyScheduled"},
            "volcano": {"Scheduled"},
            "coscheduling": {"Scheduled"},
            "kai": {"Scheduled"},
        }[name]
    )


@pytest.mark.parametrize("name", NAMES)
def test_what_others_wrote_stays(name: str) -> None:
    foreign = {"type": "DisruptionTarget", "status": "True", "reason": "X", "lastTransitionTime": T1, "extra": [1]}
    value = obj(name, {"conditions": [foreign], "schedulingConditions": [foreign]})
    value = merged(value, say(name, value, "Pending", Code.RESOURCES, "short", T2) or {})
    assert foreign in value["status"]["conditions"]
    assert foreign in value["status"]["schedulingConditions"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("phase", ["Running", "Degraded", "Completed"])
def test_a_restart_knows_that_the_minimum_was_once_reached_whatever_was_said_afterwards(name: str, phase: str) -> None:
    value = obj(name)
    assert not read(name, value).was_running
    value = merged(value, say(name, value, phase, Code.RESOURCES if phase == "Degraded" else None, "x") or {})
    for after in ("Pending", "Inqueue", "Scheduling"):
        value = merged(value, say(name, value, after, Code.RESOURCES, "waits again", T2) or {})
        assert read(name, value).was_running, after


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("phase", ["Pending", "Inqueue", "Scheduling"])
def test_a_group_that_never_ran_is_not_remembered_as_running(name: str, phase: str) -> None:
    value = merged(obj(name), say(name, obj(name), phase, Code.RESOURCES, "short") or {})
    assert not read(name, value).was_running


def test_a_peers_schema_that_drops_conditions_is_not_written_to_again_and_again() -> None:
    value = merged(obj("coscheduling"), say("coscheduling", obj("coscheduling"), "Pending", Code.RESOURCES, "x") or {})
    del value["status"]["conditions"]
    assert say("coscheduling", value, "Pending", Code.RESOURCES, "x") is None
    assert say("coscheduling", value, "Pending", Code.RESOURCES, "another number") is None


def test_a_misconfigured_group_names_the_field_in_its_condition() -> None:
    for name, kind in (("muster", "Scheduled"), ("volcano", "Unschedulable"), ("native", "PodGroupInitiallyScheduled")):
        patch = say(name, obj(name), "Pending", Code.MISCONFIGURED, "spec.minMember: must be an integer")
        condition = conditions(patch)[kind]
        assert (condition["reason"], condition["message"]) == ("Misconfigured", "spec.minMember: must be an integer")


def test_a_new_generation_is_observed_even_where_the_verdict_stays() -> None:
    for name in ("muster", "native"):
        value = merged(obj(name), say(name, obj(name), "Pending", Code.RESOURCES, "short") or {})
        value["metadata"]["generation"] = 2
        later = conditions(say(name, value, "Pending", Code.RESOURCES, "short", T2))
        assert {item["observedGeneration"] for item in later.values()} == {2}
        assert {item["lastTransitionTime"] for item in later.values()} == {T1}


def test_a_native_group_that_was_scheduled_never_becomes_unscheduled() -> None:
    value = merged(obj("native"), say("native", obj("native"), "Running") or {})
    assert say("native", value, "Degraded", Code.RESOURCES, "a member waits") is None


def test_a_message_without_end_is_cut() -> None:
    patch = say("volcano", obj("volcano"), "Pending", Code.RESOURCES, "x" * 100_000)
    assert len(conditions(patch)["Unschedulable"]["message"]) == 4096


@pytest.mark.parametrize("name", NAMES)
def test_the_path_of_an_object_has_its_version_and_namespace(name: str) -> None:
    assert BY_NAME[name].api_path(read(name, obj(name))) == f"/apis/{VERSIONS[name]}/namespaces/a/podgroups/g"


def test_where_a_group_runs_is_written_to_its_decision_and_old_levels_are_taken_away() -> None:
    def where(value: Json, nodes: int, *domains: tuple[str, tuple[str, ...]]) -> Json | None:
        status = SetStatus("muster/a/g", "u", "Running", (("running", 4),), None, nodes, domains)
        return BY_NAME["muster"].status_patch(read("muster", value), status, "", T1)

    patch = where(obj("muster"), 2, ("rack", ("r1",)))
    assert patch is not None
    assert patch["status"]["decision"] == {"nodes": 2, "domains": {"rack": ["r1"]}}
    value = merged(obj("muster"), patch)
    assert where(value, 2, ("rack", ("r1",))) is None
    other = where(value, 3, ("block", ("b1",)))
    assert other is not None
    assert merged(value, other)["status"]["decision"] == {"nodes": 3, "domains": {"block": ["b1"]}}
