"""The binding sub-resource: what it sets and what it refuses."""

from __future__ import annotations

from tests.contract.conftest import Server


def test_binding_sets_the_node_and_the_condition_and_clears_the_nomination(server: Server) -> None:
    created = server.pod("p")
    path = server.path("pods", "p")
    waiting = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no room"}
    status = {"status": {"nominatedNodeName": "ghost", "conditions": [waiting]}}
    server.rest.patch(f"{path}/status", status, kind="strategic")
    answer = server.bind("p", "ghost", uid=created["metadata"]["uid"])
    assert (answer["kind"], answer["status"], answer["code"]) == ("Status", "Success", 201)
    bound = server.rest.get(path)
    assert bound["spec"]["nodeName"] == "ghost"
    assert "nominatedNodeName" not in bound["status"]
    (condition,) = bound["status"]["conditions"]
    assert (condition["type"], condition["status"]) == ("PodScheduled", "True")
    assert "reason" not in condition
    assert condition["lastTransitionTime"]
    assert bound["metadata"]["generation"] == 1


def test_binding_twice_is_a_conflict_even_to_the_same_node(server: Server) -> None:
    server.pod("p")
    server.bind("p", "ghost")
    for node in ("ghost", "other"):
        body = {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": node}}
        error = server.refused("create", server.path("pods", "p", "binding"), body)
        assert (error.status, error.reason) == (409, "Conflict")
        assert error.message == (
            'Operation cannot be fulfilled on pods/binding "p": pod p is already assigned to node "ghost"'
        )


def _bind(name: str, **metadata: str) -> dict[str, object]:
    return {"metadata": {"name": name, **metadata}, "target": {"kind": "Node", "name": "ghost"}}


def test_a_uid_that_is_not_the_pods_is_a_conflict(server: Server) -> None:
    server.pod("p")
    error = server.refused("create", server.path("pods", "p", "binding"), _bind("p", uid="another"))
    assert (error.status, error.reason) == (409, "Conflict")
    assert "UID in precondition: another" in error.message
    assert "nodeName" not in server.rest.get(server.path("pods", "p"))["spec"]


def test_a_stale_resource_version_is_a_conflict(server: Server) -> None:
    server.pod("p")
    error = server.refused("create", server.path("pods", "p", "binding"), _bind("p", resourceVersion="1"))
    assert (error.status, error.reason) == (409, "Conflict")


def test_a_pod_that_is_being_deleted_cannot_be_bound(server: Server) -> None:
    server.pod("p", finalizers=["contract.muster.sh/hold"])
    server.rest.delete(server.path("pods", "p"))
    error = server.refused("create", server.path("pods", "p", "binding"), _bind("p"))
    assert error.status == 409
    assert "pod p is being deleted, cannot be assigned to a host" in error.message
    server.rest.patch(server.path("pods", "p"), {"metadata": {"finalizers": None}})


def test_a_gated_pod_cannot_be_bound(server: Server) -> None:
    server.pod("p", schedulingGates=[{"name": "wait/for-it"}])
    error = server.refused("create", server.path("pods", "p", "binding"), _bind("p"))
    assert error.status == 409
    assert error.message.endswith("pod p has non-empty .spec.schedulingGates")


def test_a_missing_pod_cannot_be_bound(server: Server) -> None:
    error = server.refused("create", server.path("pods", "gone", "binding"), _bind("gone"))
    assert (error.status, error.message) == (404, 'pods "gone" not found')


def test_the_names_of_path_and_body_must_agree(server: Server) -> None:
    server.pod("p")
    error = server.refused("create", server.path("pods", "p", "binding"), _bind("other"))
    assert (error.status, error.message) == (400, "name in URL does not match name in Binding object")


def test_a_binding_without_a_node_is_refused(server: Server) -> None:
    server.pod("p")
    body = {"metadata": {"name": "p"}, "target": {"kind": "Node"}}
    error = server.refused("create", server.path("pods", "p", "binding"), body)
    assert error.status == 500
    assert "target.name: Required value" in error.message


def test_annotations_of_the_binding_and_topology_labels_of_the_node_reach_the_pod(server: Server) -> None:
    node = f"node-{server.namespace}"
    labels = {"topology.kubernetes.io/zone": "z1", "other": "x"}
    server.rest.create("/api/v1/nodes", {"metadata": {"name": node, "labels": labels}})
    server.pod("p")
    body = {"metadata": {"name": "p", "annotations": {"by": "me"}}, "target": {"kind": "Node", "name": node}}
    server.rest.create(server.path("pods", "p", "binding"), body)
    bound = server.rest.get(server.path("pods", "p"))["metadata"]
    assert bound["annotations"] == {"by": "me"}
    assert bound["labels"] == {"topology.kubernetes.io/zone": "z1"}
    server.rest.delete(f"/api/v1/nodes/{node}")
