"""Fixtures over a real control plane; one cluster of each kind for a test session (with xdist: for each worker).

Decides what a test finds in its cluster: the project's custom resource definitions, and a namespace of its own.
Invariant: a test's pods are gone when the test is over, so that the next one finds the same free nodes.
"""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.controlplane import build
from tests.controlplane.cluster import ControlPlane
from tests.controlplane.rest import Json

CRD_FOLDER = Path(__file__).parents[2] / "config" / "crd"
WORKERS = ("worker-1", "worker-2")
GPU = "example.com/gpu"
_PLAIN = ("etcd", "kube-apiserver", "kube-controller-manager")
_BUILD_FAILURE = pytest.StashKey[build.BuildError]()
_NEEDED = {"real_control_plane": _PLAIN, "real_plane": _PLAIN, "kubelet_cluster": (*_PLAIN, "hollow-node")}


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build before the first test: a first build takes minutes, and a test's time-out counts its fixtures too."""
    if session.config.option.collectonly:
        return
    asked = {name for item in session.items for name in getattr(item, "fixturenames", ())}
    needed = {program for fixture, programs in _NEEDED.items() if fixture in asked for program in programs}
    capture = session.config.pluginmanager.getplugin("capturemanager")
    with (
        capture.global_and_fixture_disabled() if capture else contextlib.nullcontext()
    ):  # the progress is for the person who waits
        try:
            build.ensure(*sorted(needed))
        except build.BuildError as error:
            build.say(f"error: {error}")
            session.config.stash[_BUILD_FAILURE] = error  # tests that need no cluster run all the same


def _fail_if_not_built(config: pytest.Config) -> None:
    error = config.stash.get(_BUILD_FAILURE, None)
    if error is not None:
        raise error


@pytest.fixture(scope="session")
def real_control_plane(pytestconfig: pytest.Config) -> Iterator[ControlPlane]:
    """etcd, API server and controller manager with the project's definitions; nodes are registered by the tests."""
    _fail_if_not_built(pytestconfig)
    with ControlPlane() as cluster:
        cluster.apply_crds(CRD_FOLDER)
        yield cluster


@pytest.fixture(scope="session")
def kubelet_cluster(pytestconfig: pytest.Config) -> Iterator[ControlPlane]:
    """The same with two real kubelets, worker-1 and worker-2: cpu 1, memory 3840Mi, two example.com/gpu each."""
    _fail_if_not_built(pytestconfig)
    with ControlPlane() as cluster:
        for name in WORKERS:
            cluster.start_kubelet(name, {GPU: 2}, wait=False)
        cluster.apply_crds(CRD_FOLDER)
        with ThreadPoolExecutor(len(WORKERS)) as pool:
            list(pool.map(cluster.wait_node, WORKERS))
        yield cluster


@pytest.fixture
def real_namespace(real_control_plane: ControlPlane) -> Iterator[str]:
    """The name of a fresh namespace in real_control_plane."""
    name = create_namespace(real_control_plane)
    yield name
    delete_namespace(real_control_plane, name)


@pytest.fixture
def kubelet_namespace(kubelet_cluster: ControlPlane) -> Iterator[str]:
    """The name of a fresh namespace in kubelet_cluster."""
    name = create_namespace(kubelet_cluster)
    yield name
    delete_namespace(kubelet_cluster, name)


def create_namespace(cluster: ControlPlane, prefix: str = "test", timeout: float = 90.0) -> str:
    """A new namespace that is ready for pods: its default service account exists when controllers run."""
    name = f"{prefix}-{secrets.token_hex(4)}"
    cluster.rest.create("/api/v1/namespaces", {"metadata": {"name": name}})
    deadline = time.monotonic() + timeout
    while cluster.runs_controllers and not cluster.has_account(name):
        if time.monotonic() > deadline:
            raise TimeoutError(f"no default service account in namespace {name} after {timeout} s")
        time.sleep(0.02)
    return name


def delete_namespace(cluster: ControlPlane, name: str, timeout: float = 90.0) -> None:
    """Begin the deletion of a namespace and wait until its pods are gone.

    Pods of a live kubelet end as they do in life, so that its devices are free again afterwards; nobody would confirm
    the end of the others. New pods are refused as soon as the namespace is terminating.
    """
    pods = f"/api/v1/namespaces/{name}/pods"
    cluster.rest.delete(f"/api/v1/namespaces/{name}")
    deadline = time.monotonic() + timeout
    while left := cluster.rest.list(pods):
        if time.monotonic() > deadline:
            stuck = [(pod["metadata"]["name"], pod["metadata"].get("finalizers")) for pod in left]
            raise TimeoutError(f"pods of namespace {name} are still there after {timeout} s: {stuck}")
        live = set(cluster.kubelets())
        for pod in left:
            _hasten(cluster, pods, pod, live)
        time.sleep(0.05)


def _hasten(cluster: ControlPlane, pods: str, pod: Json, live: set[str]) -> None:
    grace = 1 if pod["spec"].get("nodeName") in live else 0
    deleted_with = pod["metadata"].get("deletionGracePeriodSeconds")
    if deleted_with is not None and deleted_with <= grace:
        return
    cluster.rest.delete_if_present(f"{pods}/{pod['metadata']['name']}", grace=grace)
