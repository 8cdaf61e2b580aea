"""One fixture, `server`, that every contract test gets twice: the embedded API server and the real one.

Decides how a test reaches a server and what it finds there: a namespace of its own, and controllers that are running
(fake ones inside the playground, kube-controller-manager on the real control plane).
"""

from __future__ import annotations

import asyncio
import secrets
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from scheduler.playground import Playground
from tests.controlplane.fixtures import create_namespace, delete_namespace
from tests.controlplane.rest import ApiError, Json, Rest

GROUP = "contract.muster.sh"


@dataclass
class Server:
    """One API server and a namespace in it."""

    kind: str
    rest: Rest
    kubeconfig: Path
    namespace: str
    playground: Playground | None = None

    def path(self, resource: str, name: str = "", subresource: str = "", api: str = "/api/v1") -> str:
        """Path of a resource in the test's namespace."""
        return "/".join(part for part in (f"{api}/namespaces/{self.namespace}/{resource}", name, subresource) if part)

    def pod(self, name: str, **spec: Any) -> Json:
        """Create a pod of one container and return it."""
        return self.rest.create(self.path("pods"), pod(name, **spec))

    def bind(self, name: str, node: str, **metadata: str) -> Json:
        """Bind a pod."""
        body = {"metadata": {"name": name, **metadata}, "target": {"kind": "Node", "name": node}}
        return self.rest.create(self.path("pods", name, "binding"), body)

    def refused(self, method: str, *arguments: Any, **options: Any) -> ApiError:
        """Call the client and return the refusal, which must come."""
        with pytest.raises(ApiError) as caught:
            getattr(self.rest, method)(*arguments, **options)
        return caught.value


def pod(name: str, **spec: Any) -> Json:
    """A pod that no scheduler and no service account admission touches."""
    labels = spec.pop("labels", None)
    metadata: Json = {"name": name}
    if labels:
        metadata["labels"] = labels
    for field in ("finalizers", "annotations", "ownerReferences"):
        if field in spec:
            metadata[field] = spec.pop(field)
    base = {"containers": [{"name": "main", "image": "app:1"}], "automountServiceAccountToken": False}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"schedulerName": "none", **base, **spec}}


class PlaygroundThread:
    """A whole playground in a thread of its own."""

    def __init__(self) -> None:
        self.playground = Playground(heartbeat=0)
        self.loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._stop: asyncio.Event | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_until_complete(self._main())

    async def _main(self) -> None:
        self._stop = asyncio.Event()
        async with self.playground:
            self._ready.set()
            await self._stop.wait()

    def start(self) -> PlaygroundThread:
        self._thread.start()
        assert self._ready.wait(30), "the playground did not start"
        return self

    def stop(self) -> None:
        assert self._stop is not None
        self.loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(30)
        assert not self._thread.is_alive()


@pytest.fixture(scope="session")
def playground_thread() -> Iterator[PlaygroundThread]:
    """The playground of this test session."""
    thread = PlaygroundThread().start()
    yield thread
    thread.stop()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Name the fixture that a test's parameter will ask for: the control plane is then built before any test runs."""
    for item in items:
        names = getattr(item, "fixturenames", None)
        marked = item.get_closest_marker("real") is not None
        if names is not None and marked and "server" in names and "real_control_plane" not in names:
            names.append("real_control_plane")


@pytest.fixture(params=["embedded", pytest.param("real", marks=pytest.mark.real)])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Server]:
    """An API server with controllers, and a fresh namespace in it."""
    if request.param == "embedded":
        playground = request.getfixturevalue("playground_thread").playground
        rest = Rest(playground.url, "anyone")
        name = f"test-{secrets.token_hex(4)}"
        rest.create("/api/v1/namespaces", {"metadata": {"name": name}})
        kubeconfig = playground.server.write_kubeconfig(tmp_path / "kubeconfig")
        yield Server("embedded", rest, kubeconfig, name, playground)
        rest.delete(f"/api/v1/namespaces/{name}")
    else:
        cluster = request.getfixturevalue("real_control_plane")
        name = create_namespace(cluster)
        yield Server("real", cluster.rest, cluster.kubeconfig, name)
        delete_namespace(cluster, name)


def gadget_crd(group: str = GROUP, plural: str = "gadgets", kind: str = "Gadget") -> Json:
    """A CRD with most of what a schema can say."""
    spec: Json = {
        "type": "object",
        "required": ["size"],
        "properties": {
            "size": {"type": "integer", "minimum": 1, "maximum": 10},
            "mode": {"type": "string", "enum": ["fast", "slow"], "default": "fast"},
            "code": {"type": "string", "pattern": "^[a-z]+$", "maxLength": 5},
            "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 2, "x-kubernetes-list-type": "set"},
            "parts": {
                "type": "array",
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["name"],
                "items": {
                    "type": "object",
                    "required": ["name"],
                    "properties": {"name": {"type": "string"}, "count": {"type": "integer", "default": 1}},
                },
            },
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
            "limits": {"type": "object", "additionalProperties": {"x-kubernetes-int-or-string": True}},
        },
    }
    status = {"type": "object", "properties": {"phase": {"type": "string"}}}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec, "status": status}}},
        "additionalPrinterColumns": [{"name": "Size", "type": "integer", "jsonPath": ".spec.size"}],
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": plural, "kind": kind, "singular": kind.lower()},
            "versions": [version],
        },
    }


CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def install_crd(rest: Rest, crd: Json) -> str:
    """Create a CRD, wait until it is served, and return its API prefix."""
    name = crd["metadata"]["name"]
    rest.create(CRDS, crd)
    rest.watch_once(
        CRDS,
        lambda event: any(
            row["type"] == "Established" and row["status"] == "True"
            for row in event["object"].get("status", {}).get("conditions") or ()
        ),
        fieldSelector=f"metadata.name={name}",
    )
    prefix = f"/apis/{crd['spec']['group']}/v1"
    eventually(lambda: rest.get(prefix)["resources"])
    return prefix


@pytest.fixture
def gadgets(server: Server) -> Iterator[str]:
    """A CRD of this test's own; the fixture is the path of its objects in the test's namespace."""
    group = f"g{secrets.token_hex(3)}.{GROUP}"
    prefix = install_crd(server.rest, gadget_crd(group))
    yield server.path("gadgets", api=prefix)
    server.rest.delete(f"{CRDS}/gadgets.{group}")


def gadget(collection: str, name: str, **spec: Any) -> Json:
    """A gadget for the collection at a path."""
    group = collection.split("/")[2]
    return {"apiVersion": f"{group}/v1", "kind": "Gadget", "metadata": {"name": name}, "spec": spec}


def eventually(check: Any, timeout: float = 45.0) -> Any:
    """Return the first true result of `check()`; refusals count as "not yet"."""
    import time

    deadline = time.monotonic() + timeout
    last: Any = None
    while time.monotonic() < deadline:
        try:
            last = check()
        except ApiError as error:
            last = error
        else:
            if last:
                return last
        time.sleep(0.05)
    raise AssertionError(f"not true within {timeout} s; last: {last!r}")
