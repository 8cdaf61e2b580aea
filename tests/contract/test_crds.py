"""Custom resources: definition, discovery, defaults, pruning, validation, status."""

from __future__ import annotations

import secrets
from typing import Any

import pytest

from tests.contract.conftest import CRDS, GROUP, Server, eventually, gadget, gadget_crd, install_crd
from tests.controlplane.rest import ApiError


def test_a_definition_is_served_discovered_and_taken_away(server: Server) -> None:
    group = f"g{secrets.token_hex(3)}.{GROUP}"
    prefix = install_crd(server.rest, gadget_crd(group))
    listed = server.rest.get(prefix)["resources"]
    assert [(row["name"], row["kind"], row["namespaced"]) for row in listed] == [
        ("gadgets", "Gadget", True),
        ("gadgets/status", "Gadget", True),
    ]

    def groups() -> list[str]:
        return [row["name"] for row in server.rest.get("/apis")["groups"]]

    eventually(lambda: group in groups())  # another controller tells of it
    path = server.path("gadgets", api=prefix)
    server.rest.create(path, gadget(path, "g", size=1))
    server.rest.delete(f"{CRDS}/gadgets.{group}")

    def unserved() -> bool:
        try:
            server.rest.get(path)
        except ApiError as error:
            return error.status == 404
        return False

    eventually(lambda: group not in groups())
    eventually(unserved)


@pytest.mark.parametrize(
    ("spoil", "field"),
    [
        (lambda crd: crd["metadata"].update(name="foo.example.com"), "metadata.name"),
        (lambda crd: crd["spec"].update(scope="Weird"), "spec.scope"),
        (lambda crd: crd["spec"]["versions"][0].pop("schema"), "spec.versions[0].schema.openAPIV3Schema"),
        (lambda crd: crd["spec"]["versions"][0].update(storage=False), "spec.versions"),
    ],
)
def test_a_broken_definition_is_refused(server: Server, spoil: Any, field: str) -> None:
    crd = gadget_crd(f"g{secrets.token_hex(3)}.{GROUP}")
    spoil(crd)
    error = server.refused("create", CRDS, crd)
    assert error.status == 422
    assert field in [cause["field"] for cause in error.body["details"]["causes"]]


def test_defaults_are_filled_and_unknown_fields_pruned(server: Server, gadgets: str) -> None:
    body = gadget(gadgets, "g", size=2, mode=None, parts=[{"name": "x"}], free={"any": {"thing": 1}}, junk=1)
    body["extra"] = 5
    body["status"] = {"phase": "Forged"}
    created = server.rest.create(gadgets, body)
    assert created["spec"] == {
        "size": 2,
        "mode": "fast",
        "parts": [{"name": "x", "count": 1}],
        "free": {"any": {"thing": 1}},
    }
    assert "extra" not in created
    assert "status" not in created
    assert created["metadata"]["generation"] == 1


def test_strict_validation_refuses_unknown_fields(server: Server, gadgets: str) -> None:
    body = gadget(gadgets, "g", size=2, junk=1, parts=[{"name": "x", "bad": 1}])
    error = server.refused("create", gadgets, body, fieldValidation="Strict")
    assert error.status == 400
    assert error.message.endswith(
        'strict decoding error: unknown field "spec.junk", unknown field "spec.parts[0].bad"'
    ) or error.message.endswith('strict decoding error: unknown field "spec.parts[0].bad", unknown field "spec.junk"')


@pytest.mark.parametrize(
    ("spec", "field", "message"),
    [
        ({}, "spec.size", "Required value"),
        ({"size": None}, "spec.size", "Required value"),
        ({"size": 0}, "spec.size", "Invalid value: 0: spec.size in body should be greater than or equal to 1"),
        ({"size": 11}, "spec.size", "Invalid value: 11: spec.size in body should be less than or equal to 10"),
        ({"size": "x"}, "spec.size", 'Invalid value: "string": spec.size in body must be of type integer: "string"'),
        ({"size": 1, "mode": "no"}, "spec.mode", 'Unsupported value: "no": supported values: "fast", "slow"'),
        ({"size": 1, "code": "A"}, "spec.code", "Invalid value: \"A\": spec.code in body should match '^[a-z]+$'"),
        ({"size": 1, "code": "abcdef"}, "spec.code", "Too long: may not be more than 5 bytes"),
        ({"size": 1, "tags": ["a", "b", "c"]}, "spec.tags", "Too many: 3: must have at most 2 items"),
        ({"size": 1, "tags": ["a", "a"]}, "spec.tags[1]", 'Duplicate value: "a"'),
        ({"size": 1, "parts": [{}]}, "spec.parts[0].name", "Required value"),
        (
            {"size": 1, "parts": [{"name": "x"}, {"name": "x"}]},
            "spec.parts[1]",
            'Duplicate value: {"name":"x"}',
        ),
        (
            {"size": 1, "limits": {"a": True}},
            "spec.limits.a",
            'Invalid value: "boolean": spec.limits.a in body must be of type integer,string: "boolean"',
        ),
    ],
)
def test_a_value_outside_the_schema_is_refused_with_the_field(
    server: Server, gadgets: str, spec: dict[str, Any], field: str, message: str
) -> None:
    error = server.refused("create", gadgets, gadget(gadgets, "bad", **spec))
    assert (error.status, error.reason) == (422, "Invalid")
    assert (field, message) in [(cause["field"], cause["message"]) for cause in error.body["details"]["causes"]]


def test_status_and_the_rest_are_written_apart(server: Server, gadgets: str) -> None:
    server.rest.create(gadgets, gadget(gadgets, "g", size=2))
    body = {"status": {"phase": "Ready", "junk": 1}, "spec": {"size": 9}, "metadata": {"labels": {"a": "b"}}}
    changed = server.rest.patch(f"{gadgets}/g/status", body)
    assert changed["status"] == {"phase": "Ready"}
    assert changed["spec"]["size"] == 2
    assert "labels" not in changed["metadata"]
    assert changed["metadata"]["generation"] == 1
    changed = server.rest.patch(f"{gadgets}/g", {"spec": {"size": 3}, "status": {"phase": "Forged"}})
    assert (changed["spec"]["size"], changed["status"], changed["metadata"]["generation"]) == (3, {"phase": "Ready"}, 2)
    assert server.rest.patch(f"{gadgets}/g", {"metadata": {"labels": {"a": "b"}}})["metadata"]["generation"] == 2


def test_a_put_of_a_custom_object_must_name_its_version(server: Server, gadgets: str) -> None:
    created = server.rest.create(gadgets, gadget(gadgets, "g", size=2))
    del created["metadata"]["resourceVersion"]
    error = server.refused("update", f"{gadgets}/g", created)
    assert (error.status, error.body["details"]["causes"][0]["field"]) == (422, "metadata.resourceVersion")


def test_an_object_has_a_largest_size(server: Server, gadgets: str) -> None:
    server.rest.create(gadgets, gadget(gadgets, "fits", size=1, free={"text": "x" * 1_000_000}))
    error = server.refused("create", gadgets, gadget(gadgets, "big", size=1, free={"text": "x" * 1_700_000}))
    assert (error.status, error.message) == (500, "etcdserver: request is too large")
    error = server.refused("create", gadgets, gadget(gadgets, "huge", size=1, free={"text": "x" * 4_000_000}))
    assert (error.status, error.reason) == (413, "RequestEntityTooLarge")
    assert [one["metadata"]["name"] for one in server.rest.list(gadgets)] == ["fits"]
