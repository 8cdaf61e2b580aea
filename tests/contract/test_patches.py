"""PUT, the three patches and server-side apply."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.conftest import Server, gadget
from tests.controlplane.rest import Json


def _deployment(name: str = "d", replicas: int = 1) -> Json:
    container = {"name": "c", "image": "x:1", "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]}
    labels = {"app": name}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"schedulerName": "none", "containers": [container]}},
        },
    }


def test_a_put_with_a_stale_version_is_a_conflict(server: Server) -> None:
    path = server.path("configmaps")
    first = server.rest.create(path, {"metadata": {"name": "c"}, "data": {"a": "1"}})
    server.rest.update(f"{path}/c", {**first, "data": {"a": "2"}})
    error = server.refused("update", f"{path}/c", {**first, "data": {"a": "3"}})
    assert (error.status, error.reason) == (409, "Conflict")
    assert error.message == (
        'Operation cannot be fulfilled on configmaps "c": the object has been modified; '
        "please apply your changes to the latest version and try again"
    )
    free = {"metadata": {"name": "c"}, "data": {"a": "4"}}
    assert server.rest.update(f"{path}/c", free)["data"] == {"a": "4"}


def test_a_put_cannot_change_what_the_server_owns(server: Server) -> None:
    created = server.pod("p")
    body = server.rest.get(server.path("pods", "p"))
    body["metadata"]["creationTimestamp"] = "2001-01-01T00:00:00Z"
    body["metadata"]["generation"] = 99
    body["metadata"]["labels"] = {"a": "b"}
    changed = server.rest.update(server.path("pods", "p"), body)
    for field in ("uid", "creationTimestamp", "generation"):
        assert changed["metadata"][field] == created["metadata"][field]
    assert changed["metadata"]["labels"] == {"a": "b"}


def test_a_put_of_another_uid_is_a_conflict_and_a_patch_of_it_invalid(server: Server) -> None:
    server.pod("p")
    body = server.rest.get(server.path("pods", "p"))
    body["metadata"]["uid"] = "another"
    assert server.refused("update", server.path("pods", "p"), body).status == 409
    error = server.refused("patch", server.path("pods", "p"), {"metadata": {"uid": "another"}})
    assert (error.status, error.body["details"]["causes"][0]["field"]) == (422, "metadata.uid")


def test_a_resource_version_in_a_patch_is_a_precondition(server: Server) -> None:
    created = server.pod("p")
    path = server.path("pods", "p")
    stale = {"metadata": {"resourceVersion": "1", "labels": {"a": "b"}}}
    assert server.refused("patch", path, stale).status == 409
    fresh = {"metadata": {"resourceVersion": created["metadata"]["resourceVersion"], "labels": {"a": "b"}}}
    assert server.rest.patch(path, fresh)["metadata"]["labels"] == {"a": "b"}


def test_merge_patches_delete_with_null_and_replace_lists(server: Server) -> None:
    path = server.path("deployments", api="/apis/apps/v1")
    server.rest.create(path, _deployment())
    patch = {"metadata": {"labels": {"x": "y"}}, "spec": {"replicas": 3}}
    changed = server.rest.patch(f"{path}/d", patch)
    assert (changed["spec"]["replicas"], changed["metadata"]["generation"]) == (3, 2)
    changed = server.rest.patch(f"{path}/d", {"metadata": {"labels": {"x": None}}})
    assert "labels" not in changed["metadata"]
    assert changed["metadata"]["generation"] == 2


def test_strategic_patches_merge_lists_by_key_and_obey_directives(server: Server) -> None:
    path = server.path("deployments", api="/apis/apps/v1")
    server.rest.create(path, _deployment())

    def containers(patch: Json) -> list[Json]:
        body = {"spec": {"template": {"spec": {"containers": [patch]}}}}
        changed = server.rest.patch(f"{path}/d", body, kind="strategic")
        rows: list[Json] = changed["spec"]["template"]["spec"]["containers"]
        return rows

    (only,) = containers({"name": "c", "env": [{"name": "A", "value": "9"}]})
    assert only["image"] == "x:1"
    assert only["env"] == [{"name": "A", "value": "9"}, {"name": "B", "value": "2"}]
    (only,) = containers({"name": "c", "env": [{"name": "A", "$patch": "delete"}]})
    assert only["env"] == [{"name": "B", "value": "2"}]
    assert len(containers({"name": "side", "image": "y:1"})) == 2
    names = [one["name"] for one in containers({"name": "side", "$patch": "delete"})]
    assert names == ["c"]


def test_strategic_patches_merge_conditions_by_type(server: Server) -> None:
    server.pod("p")
    path = server.path("pods", "p", "status")
    for kind, status in (("A", "True"), ("B", "False"), ("A", "False")):
        body = {"status": {"conditions": [{"type": kind, "status": status}]}}
        changed = server.rest.patch(path, body, kind="strategic")
    rows = [(row["type"], row["status"]) for row in changed["status"]["conditions"]]
    assert rows == [("B", "False"), ("A", "False")], "what a patch adds goes in front"


def test_json_patches_apply_in_order_or_not_at_all(server: Server) -> None:
    path = server.path("configmaps")
    server.rest.create(path, {"metadata": {"name": "c"}, "data": {"a": "1"}})
    operations = [
        {"op": "test", "path": "/data/a", "value": "1"},
        {"op": "add", "path": "/data/b", "value": "2"},
        {"op": "move", "from": "/data/a", "path": "/data/d"},
        {"op": "copy", "from": "/data/d", "path": "/data/e"},
    ]
    assert server.rest.patch(f"{path}/c", operations, kind="json")["data"] == {"b": "2", "d": "1", "e": "1"}
    bad: list[list[Json]] = [
        [{"op": "test", "path": "/data/d", "value": "no"}, {"op": "remove", "path": "/data/d"}],
        [{"op": "replace", "path": "/binaryData/nothere", "value": "x"}],
        [{"op": "remove", "path": "/data/nothere"}],
        [{"op": "frobnicate", "path": "/data/d"}],
    ]
    for operations in bad:
        error = server.refused("patch", f"{path}/c", operations, kind="json")
        assert (error.status, error.message) == (422, "the server rejected our request due to an error in our request")
    assert server.rest.get(f"{path}/c")["data"] == {"b": "2", "d": "1", "e": "1"}


def test_custom_objects_take_no_strategic_patch(server: Server, gadgets: str) -> None:
    server.rest.create(gadgets, gadget(gadgets, "g", size=1))
    error = server.refused("patch", f"{gadgets}/g", {"spec": {"size": 2}}, kind="strategic")
    assert (error.status, error.reason) == (415, "UnsupportedMediaType")


def _apply(server: Server, collection: str, manager: str | None, spec: Json, **query: Any) -> Json:
    body = {**gadget(collection, "g"), "spec": spec}
    options = {**query, "fieldManager": manager} if manager else query
    return server.rest.patch(f"{collection}/g", body, kind="apply", **options)


def test_apply_creates_merges_by_key_and_prunes_what_its_manager_drops(server: Server, gadgets: str) -> None:
    created = _apply(server, gadgets, "one", {"size": 1, "parts": [{"name": "x"}], "limits": {"a": 1}})
    assert created["spec"]["parts"] == [{"name": "x", "count": 1}]
    both = _apply(server, gadgets, "two", {"parts": [{"name": "y"}], "limits": {"b": 1}, "size": 1})
    assert [part["name"] for part in both["spec"]["parts"]] == ["x", "y"]
    assert both["spec"]["limits"] == {"a": 1, "b": 1}
    less = _apply(server, gadgets, "one", {"size": 1, "limits": {"c": 1}})
    assert [part["name"] for part in less["spec"]["parts"]] == ["y"]
    assert less["spec"]["limits"] == {"b": 1, "c": 1}
    managers = {(row["manager"], row["operation"]) for row in less["metadata"]["managedFields"]}
    assert managers == {("one", "Apply"), ("two", "Apply")}


def test_apply_refuses_to_take_a_field_unless_forced(server: Server, gadgets: str) -> None:
    _apply(server, gadgets, "one", {"size": 1})
    with pytest.raises(Exception, match=r'Apply failed with 1 conflict: conflict with "one": \.spec\.size') as caught:
        _apply(server, gadgets, "two", {"size": 2})
    body = caught.value.body  # type: ignore[attr-defined]
    assert body["details"]["causes"] == [
        {"reason": "FieldManagerConflict", "message": 'conflict with "one"', "field": ".spec.size"}
    ]
    assert _apply(server, gadgets, "two", {"size": 2}, force="true")["spec"]["size"] == 2
    with pytest.raises(Exception, match=r'conflict with "two": \.spec\.size'):
        _apply(server, gadgets, "one", {"size": 1})


def test_an_edit_takes_ownership_from_an_applier(server: Server, gadgets: str) -> None:
    _apply(server, gadgets, "one", {"size": 1, "mode": "slow"})
    server.rest.patch(f"{gadgets}/g", {"spec": {"size": 5}}, fieldManager="edit")
    group = gadgets.split("/")[2]
    with pytest.raises(Exception, match=rf'conflict with "edit" using {group}/v1: \.spec\.size'):
        _apply(server, gadgets, "one", {"size": 1, "mode": "slow"})
    kept = _apply(server, gadgets, "one", {"mode": "slow"})
    assert kept["spec"]["size"] == 5, "the edit owns it, so dropping it from the configuration keeps it"


def test_applying_the_same_again_changes_nothing(server: Server, gadgets: str) -> None:
    first = _apply(server, gadgets, "one", {"size": 1, "parts": [{"name": "x"}]})
    again = _apply(server, gadgets, "one", {"size": 1, "parts": [{"name": "x"}]})
    assert again["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]


def test_apply_needs_a_manager(server: Server, gadgets: str) -> None:
    error = server.refused("patch", f"{gadgets}/g", gadget(gadgets, "g", size=1), kind="apply")
    assert error.status == 422
    assert "fieldManager: Required value: is required for apply patch" in error.message


def test_apply_of_a_pod_merges_containers_and_keeps_defaults(server: Server) -> None:
    body: Json = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "labels": {"a": "1"}},
        "spec": {"automountServiceAccountToken": False, "containers": [{"name": "c", "image": "x:1"}]},
    }
    path = server.path("pods", "p")
    server.rest.patch(path, body, kind="apply", fieldManager="one")
    body["spec"]["containers"][0]["image"] = "x:2"
    body["metadata"]["labels"] = {"b": "2"}
    changed = server.rest.patch(path, body, kind="apply", fieldManager="one")
    assert changed["spec"]["containers"][0]["image"] == "x:2"
    assert changed["spec"]["containers"][0]["imagePullPolicy"] == "IfNotPresent"
    assert changed["metadata"]["labels"] == {"b": "2"}
