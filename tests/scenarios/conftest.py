"""Planes and schedulers for scenarios: each made once for a test session (with xdist: for each worker)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.controlplane.cluster import ControlPlane
from tests.scenarios.planes import CRDS, EmbeddedPlane, RealPlane, Scheduler, scratch


@pytest.fixture(scope="session")
def embedded_plane() -> Iterator[tuple[EmbeddedPlane, Scheduler]]:
    """The embedded API server with a scheduler."""
    directory = scratch()
    plane = EmbeddedPlane(directory)
    scheduler = Scheduler(plane.kubeconfig, directory)
    scheduler.start()
    yield plane, scheduler
    scheduler.stop()
    plane.stop()


@pytest.fixture(scope="session")
def real_plane() -> Iterator[tuple[RealPlane, Scheduler]]:
    """A real API server with a scheduler; not the one of other tests, whose pods and requests it would take."""
    with ControlPlane() as cluster:
        cluster.apply_crds(CRDS)
        plane = RealPlane(cluster)
        scheduler = Scheduler(plane.kubeconfig, scratch())
        scheduler.start()
        yield plane, scheduler
        scheduler.stop()
        plane.stop()
