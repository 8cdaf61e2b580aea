"""Discovery: which groups, versions and resources are served, in the plain and the aggregated form, and OpenAPI.

Decided here: the documents that clients read before they ask for objects. The OpenAPI documents hold what kubectl needs
to trust server-side validation (paths, kinds, the fieldValidation parameter) and the schemas of CRDs; built-in kinds
are described as open objects. Invariant: what is listed here is served, and the other way round.
"""

from __future__ import annotations

import hashlib
from typing import Any

from scheduler.playground.crds import version_rank
from scheduler.playground.errors import Obj
from scheduler.playground.kinds import Registry, Resource
from scheduler.playground.storage import encode

VERSION: Obj = {
    "major": "1",
    "minor": "37",
    "gitVersion": "v1.37.0+muster-playground",
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "1970-01-01T00:00:00Z",
    "goVersion": "",
    "compiler": "",
    "platform": "linux/amd64",
}
_VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]


def groups_of(registry: Registry) -> dict[str, list[str]]:
    """Return the versions of each named group, preferred first."""
    found: dict[str, set[str]] = {}
    for group, version, _ in registry.rows():
        if group:
            found.setdefault(group, set()).add(version)
    return {group: sorted(versions, key=version_rank) for group, versions in sorted(found.items())}


def api_versions(address: str) -> Obj:
    """Return /api."""
    return {
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}],
    }


def _group(group: str, versions: list[str]) -> Obj:
    rows = [{"groupVersion": f"{group}/{version}", "version": version} for version in versions]
    return {"name": group, "versions": rows, "preferredVersion": rows[0]}


def api_groups(registry: Registry) -> Obj:
    """Return /apis."""
    rows = [_group(group, versions) for group, versions in groups_of(registry).items()]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": rows}


def api_group(registry: Registry, group: str) -> Obj | None:
    """Return /apis/GROUP."""
    versions = groups_of(registry).get(group)
    return {"kind": "APIGroup", "apiVersion": "v1", **_group(group, versions)} if versions else None


def _subresource_kind(resource: Resource, version: str, name: str) -> tuple[str, str, str]:
    known = {
        "scale": ("autoscaling", "v1", "Scale"),
        "eviction": ("policy", "v1", "Eviction"),
        "binding": ("", "v1", "Binding"),
    }
    return known.get(name, (resource.group, version, resource.kind))


def _sub_verbs(name: str) -> list[str]:
    if name in ("binding", "eviction"):
        return ["create"]
    return ["update"] if name == "finalize" else ["get", "patch", "update"]


def resource_list(registry: Registry, group: str, version: str) -> Obj | None:
    """Return /api/v1 or /apis/GROUP/VERSION."""
    rows: list[Obj] = []
    for one_group, one_version, resource in registry.rows():
        if (one_group, one_version) != (group, version):
            continue
        row: Obj = {
            "name": resource.plural,
            "singularName": resource.singular,
            "namespaced": resource.namespaced,
            "kind": resource.kind,
            "verbs": ["create"] if resource.ephemeral else _VERBS,
        }
        if resource.short_names:
            row["shortNames"] = list(resource.short_names)
        if resource.categories:
            row["categories"] = list(resource.categories)
        if not resource.ephemeral:
            row["storageVersionHash"] = hashlib.sha256(resource.storage.encode()).hexdigest()[:11] + "="
        rows.append(row)
        for name in sorted(resource.subresources):
            sub_group, sub_version, kind = _subresource_kind(resource, version, name)
            sub: Obj = {
                "name": f"{resource.plural}/{name}",
                "singularName": "",
                "namespaced": resource.namespaced,
                "kind": kind,
                "verbs": _sub_verbs(name),
            }
            if (sub_group, sub_version) != (group, version):
                sub.update({"group": sub_group, "version": sub_version})
            rows.append(sub)
    if not rows:
        return None
    full = f"{group}/{version}" if group else version
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": full, "resources": rows}


def _aggregated_resource(resource: Resource, version: str) -> Obj:
    row: Obj = {
        "resource": resource.plural,
        "responseKind": {"group": resource.group, "version": version, "kind": resource.kind},
        "scope": "Namespaced" if resource.namespaced else "Cluster",
        "singularResource": resource.singular,
        "verbs": ["create"] if resource.ephemeral else _VERBS,
    }
    if resource.short_names:
        row["shortNames"] = list(resource.short_names)
    if resource.categories:
        row["categories"] = list(resource.categories)
    subs = []
    for name in sorted(resource.subresources):
        group, sub_version, kind = _subresource_kind(resource, version, name)
        subs.append(
            {
                "subresource": name,
                "responseKind": {"group": group, "version": sub_version, "kind": kind},
                "verbs": _sub_verbs(name),
            }
        )
    if subs:
        row["subresources"] = subs
    return row


def aggregated(registry: Registry, core: bool) -> Obj:
    """Return APIGroupDiscoveryList for /api or /apis."""
    groups = {"": ["v1"]} if core else groups_of(registry)
    items = []
    for group, versions in groups.items():
        rows = []
        for version in versions:
            resources = [
                _aggregated_resource(resource, version)
                for one_group, one_version, resource in registry.rows()
                if (one_group, one_version) == (group, version)
            ]
            rows.append({"version": version, "resources": resources, "freshness": "Current"})
        metadata: Obj = {"name": group, "creationTimestamp": None} if group else {"creationTimestamp": None}
        items.append({"metadata": metadata, "versions": rows})
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": items,
    }


# ---- OpenAPI ----


def openapi_v3_paths(registry: Registry) -> Obj:
    """Return /openapi/v3: where the document of each group version is."""
    paths: Obj = {}
    versions = {(group, version) for group, version, _ in registry.rows()}
    for group, version in sorted(versions):
        key = f"apis/{group}/{version}" if group else f"api/{version}"
        tag = hashlib.sha256(encode(openapi_v3(registry, group, version))).hexdigest()[:32].upper()
        paths[key] = {"serverRelativeURL": f"/openapi/v3/{key}?hash={tag}"}
    return {"paths": paths}


def _schema_name(group: str, version: str, kind: str) -> str:
    parts = ".".join(reversed(group.split("."))) if group else "io.k8s.api.core"
    return f"{parts}.{version}.{kind}"


def _schema(resource: Resource, version: str) -> Obj:
    body: Obj
    if resource.crd is not None:
        body = dict(resource.crd.schemas.get(version) or {})
        body["properties"] = {
            **(body.get("properties") or {}),
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        }
    else:
        body = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    identity = {"group": resource.group, "version": version, "kind": resource.kind}
    return {**body, "x-kubernetes-group-version-kind": [identity]}


_PARAMETERS = [
    {"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": True}}
    for name in ("dryRun", "fieldManager", "fieldValidation")
]


def _operations(resource: Resource, version: str, reference: str) -> dict[str, Obj]:
    identity = {"group": resource.group, "version": version, "kind": resource.kind}
    base = f"/apis/{resource.group}/{version}" if resource.group else f"/api/{version}"
    place = f"{base}/namespaces/{{namespace}}/{resource.plural}" if resource.namespaced else f"{base}/{resource.plural}"
    content = {"application/json": {"schema": {"$ref": reference}}}

    def operation(action: str, body: bool) -> Obj:
        row: Obj = {
            "x-kubernetes-action": action,
            "x-kubernetes-group-version-kind": identity,
            "responses": {"200": {"description": "OK", "content": content}},
        }
        if body:
            row["parameters"] = _PARAMETERS
            row["requestBody"] = {"content": content}
        return row

    return {
        place: {"get": operation("list", False), "post": operation("post", True)},
        f"{place}/{{name}}": {
            "get": operation("get", False),
            "put": operation("put", True),
            "patch": operation("patch", True),
            "delete": operation("delete", False),
        },
    }


def openapi_v3(registry: Registry, group: str, version: str) -> Obj:
    """Return the OpenAPI v3 document of a group version."""
    paths: Obj = {}
    schemas: Obj = {}
    for one_group, one_version, resource in registry.rows():
        if (one_group, one_version) != (group, version):
            continue
        name = _schema_name(group, version, resource.kind)
        schemas[name] = _schema(resource, version)
        paths.update(_operations(resource, version, f"#/components/schemas/{name}"))
    info = {"title": "Kubernetes", "version": VERSION["gitVersion"]}
    return {"openapi": "3.0.0", "info": info, "paths": paths, "components": {"schemas": schemas}}


def openapi_v2(registry: Registry) -> Obj:
    """Return the OpenAPI v2 document."""
    paths: Obj = {}
    definitions: Obj = {}
    for group, version, resource in registry.rows():
        name = _schema_name(group, version, resource.kind)
        definitions[name] = _v2(_schema(resource, version))
        for path, row in _operations(resource, version, f"#/definitions/{name}").items():
            paths[path] = {verb: _v2_operation(one, f"#/definitions/{name}") for verb, one in row.items()}
    info = {"title": "Kubernetes", "version": VERSION["gitVersion"]}
    return {"swagger": "2.0", "info": info, "paths": paths, "definitions": definitions}


def openapi_v2_stub() -> bytes:
    """Return an OpenAPI v2 document without paths in protobuf, which is all that clients ask version 2 for.

    They come here for kinds that version 3 does not name, to learn that there are none.
    """

    def text(field: int, value: bytes) -> bytes:
        return bytes([field << 3 | 2, len(value)]) + value

    info = text(1, b"Kubernetes") + text(2, str(VERSION["gitVersion"]).encode())
    return text(1, b"2.0") + text(2, info) + text(8, b"")


def _v2_operation(row: Obj, reference: str) -> Obj:
    kept = {key: value for key, value in row.items() if key.startswith("x-")}
    parameters: list[Any] = [
        {"name": one["name"], "in": "query", "type": "string"} for one in row.get("parameters", ())
    ]
    if "requestBody" in row:
        parameters.append({"name": "body", "in": "body", "required": True, "schema": {"$ref": reference}})
    kept["parameters"] = parameters
    kept["responses"] = {"200": {"description": "OK", "schema": {"$ref": reference}}}
    return kept


def _v2(schema: Any) -> Any:
    """Drop what OpenAPI v2 does not know from a schema."""
    if isinstance(schema, list):
        return [_v2(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    return {key: _v2(value) for key, value in schema.items() if key not in ("nullable", "oneOf", "anyOf", "not")}
