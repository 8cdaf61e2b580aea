"""Every scenario file, in each dialect, on each control plane."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

from tests.scenarios.form import Scenario, load
from tests.scenarios.lagging import Lagging
from tests.scenarios.planes import Scheduler, scratch
from tests.scenarios.world import World

FILES = sorted(Path(__file__).parent.glob("*.yaml"))
SCHEDULER_NAME = {"muster": "muster", "volcano": "volcano"}
SCENARIOS = [scenario for file in FILES for scenario in load(file)]
BY_THE_BRAIN = frozenset(
    f"{name}.yaml"
    for name in (
        "queues",
        "preempt",
        "reclaim",
        "elastic",
        "topology",
        "parity",
        "single_pods",
        "operators",
        "autoscaling",
    )
)
"""What these stories tell is decided without the API server."""


def _uses(scenario: Scenario) -> set[str]:
    """Steps, expectations and API groups that Muster reads, of a story."""
    groups = r"\bapiVersion: *((?:scheduling|policy|topology|kai|kueue)\b[^\s\\/]*)"
    found = set(re.findall(groups, f"{scenario.objects}\n{scenario.steps}"))
    steps = list(scenario.steps)
    while steps:
        step = steps.pop()
        found |= step.keys()
        steps += step.get("repeat", {}).get("steps", [])
        expects = step.get("expect", [])
        for expect in expects if isinstance(expects, list) else [expects]:
            found |= expect.keys()
    return found


def _told_on_the_real_one() -> frozenset[str]:
    """Stories that a change is told on the real API server: of those BY_THE_BRAIN each fifth, and who does
    there what no other does."""
    stories = [scenario for scenario in SCENARIOS if "real" in scenario.planes and not scenario.slow]
    always = [one for one in stories if one.file not in BY_THE_BRAIN or crc32(one.id.encode()) % 5 == 0]
    told, seen = {one.id for one in always}, set[str]().union(*map(_uses, always))
    for one in stories:
        if new := _uses(one) - seen:
            told.add(one.id)
            seen |= new
    return frozenset(told)


TOLD = _told_on_the_real_one()


def _waits(plane: str, scenario: Scenario, dialect: str) -> bool:
    """Whether a story is told by `make test-all` alone: what is slow, on the real API server what is not TOLD, and a
    second dialect there, of what is decided BY_THE_BRAIN, and where a scheduler is started for it."""
    if scenario.slow or (plane == "real" and scenario.id not in TOLD):
        return True
    dialects = [one for one in scenario.dialects if scenario.scheds is None or one in scenario.scheds]
    once = plane == "real" or scenario.file in BY_THE_BRAIN or scenario.config or scenario.lag
    return bool(once) and dialect != dialects[crc32(scenario.id.encode()) // 5 % len(dialects)]


def _cases(plane: str) -> list[Any]:
    return [
        pytest.param(
            scenario,
            dialect,
            id=f"{scenario.id}-{dialect}",
            marks=[pytest.mark.slow] if _waits(plane, scenario, dialect) else [],
        )
        for scenario in SCENARIOS
        for dialect in scenario.dialects
        if plane in scenario.planes and (scenario.scheds is None or dialect in scenario.scheds)
    ]


def test_every_scenario_has_an_id_of_its_own() -> None:
    ids = [scenario.id for scenario in SCENARIOS]
    assert len(ids) == len(set(ids))
    assert len(FILES) >= 10
    assert len(ids) >= 350


def test_a_change_is_told_everything_on_the_real_api_server_before_it_lands() -> None:
    real = _cases("real")
    all_of_it = {use for case in real for use in _uses(case.values[0])}
    told = {use for case in real if not case.marks for use in _uses(case.values[0])}
    assert all_of_it - told == set()
    assert {case.values[1] for case in real if not case.marks} == {"muster", "volcano"}


def _play(plane, scheduler, scenario: Scenario, dialect: str) -> None:  # type: ignore[no-untyped-def]
    if scenario.config or scenario.lag:
        with aside(plane, scheduler, scenario) as other:
            _tell(plane, other, scenario, dialect)
    else:
        _tell(plane, scheduler, scenario, dialect)


@contextmanager
def aside(plane, scheduler, scenario: Scenario) -> Iterator[Scheduler]:  # type: ignore[no-untyped-def]
    """A scheduler for one story, in place of the one of all others."""
    scheduler.stop()
    directory = scratch()
    proxy = Lagging(plane.kubeconfig, directory, scenario.lag).start() if scenario.lag else None
    other = Scheduler(proxy.kubeconfig if proxy else plane.kubeconfig, directory, config=scenario.config)
    try:
        yield other
    finally:
        other.stop()
        if proxy:
            proxy.stop()


def _tell(plane, scheduler, scenario: Scenario, dialect: str) -> None:  # type: ignore[no-untyped-def]
    namespace = f"sc-{scenario.id.lower()}-{secrets.token_hex(3)}"
    if not scheduler.running():
        scheduler.start()
    world = World(plane, scheduler, scenario, dialect, namespace, SCHEDULER_NAME[dialect])
    try:
        world.set_up()
        world.play()
    finally:
        world.tear_down()


@pytest.mark.parametrize(("scenario", "dialect"), _cases("embedded"))
def test_on_the_embedded_control_plane(embedded_plane, scenario: Scenario, dialect: str) -> None:  # type: ignore[no-untyped-def]
    _play(*embedded_plane, scenario, dialect)


@pytest.mark.real
@pytest.mark.parametrize(("scenario", "dialect"), _cases("real"))
def test_on_the_real_api_server(real_plane, scenario: Scenario, dialect: str) -> None:  # type: ignore[no-untyped-def]
    _play(*real_plane, scenario, dialect)
