"""The official Python client against both servers."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from kubernetes import client, config, watch

from tests.contract.conftest import Server, gadget, pod


@pytest.fixture
def api(server: Server) -> Iterator[Any]:
    """An ApiClient of the server."""
    settings = client.Configuration()
    config.load_kube_config(str(server.kubeconfig), client_configuration=settings)
    made = client.ApiClient(settings)
    yield made
    made.close()


def test_create_read_patch_list_and_delete(server: Server, api: Any) -> None:
    core = client.CoreV1Api(api)
    core.create_namespaced_pod(server.namespace, pod("p"))
    assert core.read_namespaced_pod("p", server.namespace).status.phase == "Pending"
    core.patch_namespaced_pod("p", server.namespace, {"metadata": {"labels": {"a": "b"}}})
    listed = core.list_namespaced_pod(server.namespace, label_selector="a=b")
    assert [one.metadata.name for one in listed.items] == ["p"]
    core.delete_namespaced_pod("p", server.namespace)
    with pytest.raises(client.ApiException) as caught:
        core.read_namespaced_pod("p", server.namespace)
    assert caught.value.status == 404


def test_bind_by_the_raw_call(server: Server, api: Any) -> None:
    core = client.CoreV1Api(api)
    core.create_namespaced_pod(server.namespace, pod("p"))
    target = client.V1ObjectReference(kind="Node", name="ghost")
    body = client.V1Binding(metadata=client.V1ObjectMeta(name="p"), target=target)
    core.create_namespaced_pod_binding("p", server.namespace, body, _preload_content=False)
    assert core.read_namespaced_pod("p", server.namespace).spec.node_name == "ghost"
    with pytest.raises(client.ApiException) as caught:
        core.create_namespaced_pod_binding("p", server.namespace, body, _preload_content=False)
    assert caught.value.status == 409


def test_watch_delivers_typed_events(server: Server, api: Any) -> None:
    core = client.CoreV1Api(api)
    version = core.list_namespaced_pod(server.namespace).metadata.resource_version
    seen: list[tuple[str, str]] = []

    def follow() -> None:
        stream = watch.Watch()
        events = stream.stream(core.list_namespaced_pod, server.namespace, resource_version=version, timeout_seconds=60)
        for event in events:
            seen.append((event["type"], event["object"].metadata.name))
            if event["type"] == "DELETED":
                stream.stop()

    thread = threading.Thread(target=follow)
    thread.start()
    core.create_namespaced_pod(server.namespace, pod("p"))
    core.delete_namespaced_pod("p", server.namespace)
    thread.join(60)
    assert not thread.is_alive()
    assert (seen[0], seen[-1]) == (("ADDED", "p"), ("DELETED", "p"))


def test_custom_objects(server: Server, api: Any, gadgets: str) -> None:
    group = gadgets.split("/")[2]
    custom = client.CustomObjectsApi(api)
    place = (group, "v1", server.namespace, "gadgets")
    custom.create_namespaced_custom_object(*place, gadget(gadgets, "g", size=1))
    custom.patch_namespaced_custom_object_status(*place, "g", {"status": {"phase": "Ready"}})
    found = custom.get_namespaced_custom_object(*place, "g")
    assert (found["spec"]["mode"], found["status"]) == ("fast", {"phase": "Ready"})
    listed = custom.list_namespaced_custom_object(*place)
    assert [one["metadata"]["name"] for one in listed["items"]] == ["g"]


def test_leases_jobs_and_nodes_decode(server: Server, api: Any) -> None:
    lease = {"metadata": {"name": "l"}, "spec": {"holderIdentity": "me", "leaseDurationSeconds": 15}}
    coordination = client.CoordinationV1Api(api)
    coordination.create_namespaced_lease(server.namespace, lease)
    assert coordination.read_namespaced_lease("l", server.namespace).spec.holder_identity == "me"
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "x"}]}}
    job = {"metadata": {"name": "j"}, "spec": {"suspend": True, "template": template}}
    made = client.BatchV1Api(api).create_namespaced_job(server.namespace, job)
    assert made.spec.template.metadata.labels["batch.kubernetes.io/job-name"] == "j"
    node = f"node-{server.namespace}"
    core = client.CoreV1Api(api)
    core.create_node({"metadata": {"name": node}, "status": {"capacity": {"cpu": "2"}}})
    assert core.read_node(node).status.allocatable == {"cpu": "2"}
    core.delete_node(node)
