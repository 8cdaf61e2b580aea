"""Stages for fault tests; every one is on a real API server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.controlplane.cluster import ControlPlane
from tests.e2e.stage import Stage


@pytest.fixture
def stage(real_control_plane: ControlPlane) -> Iterator[Stage]:
    """Two nodes with two GPUs each."""
    with Stage(real_control_plane) as made:
        yield made


@pytest.fixture
def wide(real_control_plane: ControlPlane) -> Iterator[Stage]:
    """Room for twenty gangs."""
    with Stage(real_control_plane, nodes=8, gpus=8) as made:
        yield made
