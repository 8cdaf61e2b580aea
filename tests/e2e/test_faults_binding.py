"""A bind that fails, for each member of a gang and each way to fail: whole or unwound, never half for long."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from tests.controlplane.cluster import ControlPlane
from tests.e2e.stage import DEADLINE, SLACK, Stage, until

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("failing-binds"), pytest.mark.alone]
SIZE = 4
FOR_EVER = 1_000_000
PASSING: dict[str, dict[str, Any]] = {
    "conflict": {"status": 409, "reason": "Conflict"},
    "busy": {"status": 429, "reason": "TooManyRequests", "retryAfter": 1},
    "broken": {"status": 500, "reason": "InternalError"},
    "dropped-after": {"drop": "after"},
    "dropped-before": {"drop": "before"},
    "dropped-unsure": {"drop": "unsure"},
    "late": {"drop": "before", "wait": 1.0},
}
"""What a gang survives whole."""
FINAL: dict[str, dict[str, Any]] = {
    "missing": {"status": 404, "reason": "NotFound"},
    "invalid": {"status": 422, "reason": "Invalid"},
}
"""What ends this try of the gang."""
ENDLESS: dict[str, dict[str, Any]] = {
    "always-broken": {"status": 500, "reason": "InternalError", "times": FOR_EVER},
    "always-busy": {"status": 429, "reason": "TooManyRequests", "times": FOR_EVER},
    "always-invalid": {"status": 422, "reason": "Invalid", "times": FOR_EVER},
    "always-missing": {"status": 404, "reason": "NotFound", "times": FOR_EVER},
    "always-conflict": {"status": 409, "reason": "Conflict", "times": FOR_EVER},
}
"""What never ends; only the deadline does."""
SAID = {
    "missing": "PodGone", "invalid": "Rejected", "always-broken": "ServerError", "always-busy": "TooManyRequests",
    "always-invalid": "Rejected", "always-missing": "PodGone", "always-conflict": "Conflict",
}  # fmt: skip
"""The cause that the group's event names."""


IN_EVERY_RUN = {
    "conflict", "busy", "dropped-after", "dropped-unsure", "late", "missing", "always-broken", "always-invalid",
}  # fmt: skip
"""Of the others each differs in one step from one of these: in its status, or in when it ends."""


def _in_turn(faults: Iterable[str]) -> list[object]:
    return [pytest.param(fault, marks=() if fault in IN_EVERY_RUN else pytest.mark.slow) for fault in faults]


@pytest.fixture(scope="module")
def stage(real_control_plane: ControlPlane) -> Iterator[Stage]:
    """One scheduler for which, in gang FAULT-I, the bind of member I fails."""
    binds = {
        f"{name}-{member}-{member}": dict(fault)
        for name, fault in {**PASSING, **FINAL, **ENDLESS}.items()
        for member in range(SIZE)
    }
    binds |= {f"shut-{member}": {"status": 403, "reason": "Forbidden", "times": 3} for member in range(SIZE)}
    with Stage(real_control_plane, nodes=8, gpus=4) as made:
        made.scheduler(binds=binds).wait_leads()
        yield made
        made.check()


def _begin(stage: Stage, fault: str) -> list[str]:
    gangs = [f"{fault}-{member}" for member in range(SIZE)]
    for gang in gangs:
        stage.gang(gang, SIZE)
    return gangs


def _holds(request: dict[str, Any], outcome: dict[str, Any], gang: str) -> bool:
    """Whether an outcome of a request, which may carry several gangs, is about this gang."""
    return f"{gang}-0 " in request["spec"]["gangs"][outcome["index"]]["placements"]


@pytest.mark.parametrize("fault", _in_turn(PASSING))
def test_a_gang_gets_whole_though_a_bind_fails_once(stage: Stage, fault: str) -> None:
    gangs = _begin(stage, fault)
    for gang in gangs:
        stage.wait_bound(f"{gang}-", SIZE)
    for gang in gangs:
        assert stage.recorder.half(f"{gang}-", SIZE) < DEADLINE + SLACK
        assert stage.recorder.ever_bound(f"{gang}-") == SIZE  # nothing was deleted and made again
        stage.delete(f"{gang}-")


@pytest.mark.parametrize("fault", _in_turn(FINAL | ENDLESS))
def test_a_gang_whose_member_cannot_be_bound_is_unwound_or_tried_anew(stage: Stage, fault: str) -> None:
    gangs = _begin(stage, fault)

    def failed() -> set[str]:
        return {
            gang
            for gang in gangs
            for request in stage.requests()
            for outcome in request.get("status", {}).get("gangs") or ()
            if _holds(request, outcome, gang) and outcome.get("phase") in ("Failed", "Unwound")
        }

    until(lambda: failed() == set(gangs), lambda: f"{failed()}\n{stage.requests()}")
    for member, gang in enumerate(gangs):
        words = rf"BindFailed: \d of {SIZE} members could not be bound; {gang}-{member}, node \S+: {SAID[fault]}"
        until(
            lambda gang=gang, words=words: any(re.search(words, said) for said in stage.events("PodGroup", gang)),
            lambda gang=gang, words=words: f"{words}: {stage.events('PodGroup', gang)}",
        )
    whole_or_none = {0, SIZE} if fault in FINAL else {0}
    until(lambda: all(stage.bound(f"{gang}-") in whole_or_none for gang in gangs), lambda: str(stage.picture()))
    time.sleep(2)  # what is tried again may be half for a moment, not for longer than the deadline
    for gang in gangs:
        assert stage.recorder.half(f"{gang}-", SIZE) < DEADLINE + SLACK
        stage.delete(f"{gang}-")
    stage.check()


def test_a_gang_that_nobody_may_bind_rests_between_its_tries_says_so_and_is_whole_in_the_end(stage: Stage) -> None:
    began = time.monotonic()
    stage.gang("shut", SIZE)

    def said() -> str:
        return str(stage.group("shut").get("status", {}).get("conditions"))

    until(lambda: re.search(r"BindFailed.*: Forbidden", said()), said)
    assert stage.bound("shut-") == 0
    stage.wait_bound("shut-", SIZE)
    assert time.monotonic() - began > 1 + 2 + 4  # the rests after three refusals; node after node takes no time
    assert stage.recorder.half("shut-", SIZE) < DEADLINE + SLACK
    assert stage.recorder.ever_bound("shut-") == SIZE
    stage.delete("shut-")
