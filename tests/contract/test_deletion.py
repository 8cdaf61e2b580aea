"""Deleting: grace periods, finalizers, preconditions, owners, collections, namespaces, eviction."""

from __future__ import annotations

import secrets

from tests.contract.conftest import Server, eventually, pod
from tests.controlplane.rest import ApiError, Json


def _gone(server: Server, path: str) -> bool:
    try:
        server.rest.get(path)
    except ApiError as error:
        return error.status == 404
    return False


def test_a_pod_without_a_node_is_gone_at_once(server: Server) -> None:
    server.pod("p")
    answer = server.rest.delete(server.path("pods", "p"))
    assert answer["kind"] == "Pod"
    assert answer["metadata"]["deletionGracePeriodSeconds"] == 0
    assert server.refused("get", server.path("pods", "p")).status == 404


def test_a_bound_pod_keeps_its_place_until_its_grace_is_over_or_is_cut_short(server: Server) -> None:
    server.pod("p")
    server.bind("p", "ghost")
    path = server.path("pods", "p")
    answer = server.rest.delete(path)
    assert answer["metadata"]["deletionGracePeriodSeconds"] == 30
    assert answer["metadata"]["generation"] == 2
    stamp = answer["metadata"]["deletionTimestamp"]
    assert server.rest.delete(path, grace=60)["metadata"]["deletionTimestamp"] == stamp, "it can only be shortened"
    error = server.refused("create", server.path("pods"), pod("p"))
    assert (error.reason, error.message) == ("AlreadyExists", 'object is being deleted: pods "p" already exists')
    assert server.rest.delete(path, grace=10)["metadata"]["deletionGracePeriodSeconds"] == 10
    server.rest.delete(path, grace=0)
    assert server.refused("get", path).status == 404


def test_a_finalizer_holds_an_object_until_it_is_taken_off(server: Server) -> None:
    server.pod("p", finalizers=["contract.muster.sh/hold"])
    path = server.path("pods", "p")
    server.rest.delete(path)
    held = server.rest.get(path)
    assert held["metadata"]["deletionTimestamp"]
    more = {"metadata": {"finalizers": ["contract.muster.sh/hold", "contract.muster.sh/more"]}}
    error = server.refused("patch", path, more)
    assert (error.status, error.body["details"]["causes"][0]["field"]) == (422, "metadata.finalizers")
    server.rest.patch(path, {"metadata": {"finalizers": None}})
    assert server.refused("get", path).status == 404


def test_preconditions_protect_a_successor_of_the_same_name(server: Server) -> None:
    server.pod("p")
    path = server.path("pods", "p")
    for wanted in ({"uid": "another"}, {"resourceVersion": "1"}):
        error = server.refused("_json", "DELETE", path, {"preconditions": wanted})
        assert (error.status, error.reason) == (409, "Conflict")
    uid = server.rest.get(path)["metadata"]["uid"]
    server.rest._json("DELETE", path, {"preconditions": {"uid": uid}})
    assert server.refused("get", path).status == 404


def test_an_object_of_another_kind_answers_with_a_status(server: Server) -> None:
    path = server.path("configmaps")
    uid = server.rest.create(path, {"metadata": {"name": "c"}})["metadata"]["uid"]
    answer = server.rest.delete(f"{path}/c")
    assert (answer["kind"], answer["status"]) == ("Status", "Success")
    assert answer["details"] == {"name": "c", "kind": "configmaps", "uid": uid}


def test_deletecollection_takes_what_its_selector_names(server: Server) -> None:
    for index in range(4):
        server.pod(f"p{index}", labels={"even": str(index % 2 == 0).lower()})
    server.rest.delete(server.path("pods"), labelSelector="even=true")
    assert [one["metadata"]["name"] for one in server.rest.list(server.path("pods"))] == ["p1", "p3"]


def _owned_by(owner: Json, name: str, blocking: bool = False) -> Json:
    found = owner["metadata"]
    row = {"apiVersion": "v1", "kind": "ConfigMap", "name": found["name"], "uid": found["uid"]}
    if blocking:
        row["blockOwnerDeletion"] = True
    return pod(name, ownerReferences=[row])


def test_dependents_follow_their_owner_in_the_background(server: Server) -> None:
    maps = server.path("configmaps")
    one, two = (server.rest.create(maps, {"metadata": {"name": name}}) for name in ("one", "two"))
    server.rest.create(server.path("pods"), _owned_by(one, "only"))
    both = _owned_by(one, "both")
    both["metadata"]["ownerReferences"] += _owned_by(two, "x")["metadata"]["ownerReferences"]
    server.rest.create(server.path("pods"), both)
    server.rest.delete(f"{maps}/one", propagation="Background")
    eventually(lambda: _gone(server, server.path("pods", "only")))
    left = eventually(lambda: len(server.rest.get(server.path("pods", "both"))["metadata"]["ownerReferences"]) == 1)
    assert left


def test_foreground_deletion_waits_for_dependents_that_block(server: Server) -> None:
    maps = server.path("configmaps")
    owner = server.rest.create(maps, {"metadata": {"name": "owner"}})
    child = _owned_by(owner, "child", blocking=True)
    child["metadata"]["finalizers"] = ["contract.muster.sh/hold"]
    server.rest.create(server.path("pods"), child)
    answer = server.rest.delete(f"{maps}/owner", propagation="Foreground")
    assert answer["metadata"]["finalizers"] == ["foregroundDeletion"]
    eventually(lambda: server.rest.get(server.path("pods", "child"))["metadata"].get("deletionTimestamp"))
    assert server.rest.get(f"{maps}/owner")["metadata"]["deletionTimestamp"]
    server.rest.patch(server.path("pods", "child"), {"metadata": {"finalizers": None}})
    eventually(lambda: _gone(server, f"{maps}/owner"))


def test_orphaned_dependents_stay_without_their_owner(server: Server) -> None:
    maps = server.path("configmaps")
    owner = server.rest.create(maps, {"metadata": {"name": "owner"}})
    server.rest.create(server.path("pods"), _owned_by(owner, "child"))
    eventually(lambda: server.rest.get(server.path("pods", "child")))
    server.rest.delete(f"{maps}/owner", propagation="Orphan")
    eventually(lambda: _gone(server, f"{maps}/owner"))
    assert "ownerReferences" not in server.rest.get(server.path("pods", "child"))["metadata"]


def test_a_namespace_takes_everything_in_it_along_and_admits_nothing_new(server: Server) -> None:
    name = f"doomed-{secrets.token_hex(3)}"
    server.rest.create("/api/v1/namespaces", {"metadata": {"name": name}})
    pods = f"/api/v1/namespaces/{name}/pods"
    eventually(lambda: server.rest.create(pods, pod("p", finalizers=["contract.muster.sh/hold"])))
    answer = server.rest.delete(f"/api/v1/namespaces/{name}")
    assert answer["status"]["phase"] == "Terminating"
    eventually(lambda: server.rest.get(f"{pods}/p")["metadata"].get("deletionTimestamp"))
    error = server.refused("create", pods, pod("late"))
    assert (error.status, error.reason) == (403, "Forbidden")
    assert f"unable to create new content in namespace {name} because it is being terminated" in error.message
    server.rest.patch(f"{pods}/p", {"metadata": {"finalizers": None}})
    eventually(lambda: _gone(server, f"/api/v1/namespaces/{name}"), timeout=90)


def _eviction(name: str) -> Json:
    return {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}


def test_eviction_asks_the_disruption_budget_first(server: Server) -> None:
    budgets = server.path("poddisruptionbudgets", api="/apis/policy/v1")
    for name in ("a", "b"):
        server.pod(name, labels={"app": "x"}, nodeName="ghost")
        ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        server.rest.patch(server.path("pods", name, "status"), {"status": ready}, kind="strategic")
    spec = {"minAvailable": 2, "selector": {"matchLabels": {"app": "x"}}}
    server.rest.create(budgets, {"metadata": {"name": "budget"}, "spec": spec})
    eventually(lambda: server.rest.get(f"{budgets}/budget")["status"].get("currentHealthy") == 2)
    error = server.refused("create", server.path("pods", "a", "eviction"), _eviction("a"))
    assert (error.status, error.reason) == (429, "TooManyRequests")
    assert error.message == "Cannot evict pod as it would violate the pod's disruption budget."
    cause = error.body["details"]["causes"][0]
    assert cause["reason"] == "DisruptionBudget"
    assert cause["message"] == "The disruption budget budget needs 2 healthy pods and has 2 currently"
    server.rest.patch(f"{budgets}/budget", {"spec": {"minAvailable": 1}})
    eventually(lambda: server.rest.get(f"{budgets}/budget")["status"].get("disruptionsAllowed") == 1)
    server.rest.create(server.path("pods", "a", "eviction"), _eviction("a"))
    leaving = server.rest.get(server.path("pods", "a"))
    assert leaving["metadata"]["deletionTimestamp"]
    target = next(row for row in leaving["status"]["conditions"] if row["type"] == "DisruptionTarget")
    assert target["reason"] == "EvictionByEvictionAPI"
    assert server.refused("create", server.path("pods", "b", "eviction"), _eviction("b")).status == 429


def test_a_pending_pod_is_evicted_whatever_its_budget_says(server: Server) -> None:
    budgets = server.path("poddisruptionbudgets", api="/apis/policy/v1")
    spec = {"minAvailable": 5, "selector": {"matchLabels": {"app": "x"}}}
    server.rest.create(budgets, {"metadata": {"name": "budget"}, "spec": spec})
    server.pod("p", labels={"app": "x"})
    server.rest.create(server.path("pods", "p", "eviction"), _eviction("p"))
    assert server.refused("get", server.path("pods", "p")).status == 404


def test_evicting_a_pod_that_is_gone_is_not_found(server: Server) -> None:
    assert server.refused("create", server.path("pods", "p", "eviction"), _eviction("p")).status == 404
