"""Every scenario file, in each dialect, on each control plane."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
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
    scenario.id
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
    for scenario in load(FILES[0].with_name(f"{name}.yaml"))
)
"""Of these stories only each fifth is told on the real API server before a change lands, the others by `make test-all`:
what they tell is decided without it."""


def _cases(plane: str) -> list[object]:
    return [
        pytest.param(
            scenario,
            dialect,
            id=f"{scenario.id}-{dialect}",
            marks=[pytest.mark.slow]
            if scenario.slow or (plane == "real" and scenario.id in BY_THE_BRAIN and crc32(scenario.id.encode()) % 5)
            else [],
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
