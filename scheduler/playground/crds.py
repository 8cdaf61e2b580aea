"""CustomResourceDefinitions: from an object that is applied to a resource that is served.

Decided here: what a CRD must satisfy, how it becomes a `Resource` with schemas by version, and what defaulting, pruning
and validation do to custom objects. It must not know HTTP or storage of objects. Invariant: a custom object that is
stored satisfies the schema of the version that it was written through (CEL rules excepted, see schema.py).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from scheduler.playground import schema
from scheduler.playground.errors import (
    ApiError,
    Cause,
    Obj,
    field_forbidden,
    field_invalid,
    field_required,
    field_unsupported,
)
from scheduler.playground.kinds import Resource
from scheduler.playground.metadata import dns_label, now, subdomain

_VERSION = re.compile(r"^[a-z]([-a-z0-9]*[a-z0-9])?$")
_PRIORITY = re.compile(r"^v(\d+)(?:(alpha|beta)(\d+))?$")


@dataclass(slots=True)
class CustomResource:
    """What a CRD says about a resource, by version."""

    schemas: dict[str, Obj] = field(default_factory=dict)
    columns: dict[str, list[Obj]] = field(default_factory=dict)
    selectable: dict[str, dict[str, str]] = field(default_factory=dict)
    scale: dict[str, Obj] = field(default_factory=dict)
    list_kind: str = ""


def version_rank(version: str) -> tuple[int, int, int, str]:
    """Sort key of versions as Kubernetes orders them: GA first, then beta, then alpha, newest first."""
    found = _PRIORITY.match(version)
    if not found:
        return (3, 0, 0, version)
    stage = {None: 0, "beta": 1, "alpha": 2}[found[2]]
    return (stage, -int(found[1]), -int(found[3] or 0), version)


def default_crd(crd: Obj) -> None:
    """Fill the defaults of a CRD."""
    spec = crd.setdefault("spec", {})
    names = spec.setdefault("names", {})
    if names.get("kind"):
        names.setdefault("singular", names["kind"].lower())
        names.setdefault("listKind", names["kind"] + "List")
    spec.setdefault("conversion", {"strategy": "None"})


def validate_crd(crd: Obj) -> list[Cause]:
    """Return the errors of a CRD."""
    spec = crd["spec"]
    names = spec.get("names") or {}
    causes = subdomain("spec.group", spec.get("group"))
    for name in ("plural", "singular"):
        causes += dns_label(f"spec.names.{name}", names.get(name))
    if not names.get("kind"):
        causes.append(field_required("spec.names.kind"))
    if spec.get("scope") not in ("Namespaced", "Cluster"):
        causes.append(field_unsupported("spec.scope", spec.get("scope") or "", ["Cluster", "Namespaced"]))
    expected = f"{names.get('plural')}.{spec.get('group')}"
    if crd["metadata"].get("name") != expected:
        causes.append(
            field_invalid("metadata.name", crd["metadata"].get("name"), 'must be spec.names.plural+"."+spec.group')
        )
    versions = spec.get("versions") or []
    if sum(1 for version in versions if version.get("storage")) != 1:
        causes.append(
            field_invalid(
                "spec.versions",
                [v.get("name") for v in versions],
                "must have exactly one version marked as storage version",
            )
        )
    for index, version in enumerate(versions):
        where = f"spec.versions[{index}]"
        if not _VERSION.match(version.get("name") or ""):
            causes.append(
                field_invalid(
                    f"{where}.name",
                    version.get("name"),
                    "a DNS-1035 label must consist of lower case alphanumeric characters or '-'",
                )
            )
        body = (version.get("schema") or {}).get("openAPIV3Schema")
        if not body:
            causes.append(field_required(f"{where}.schema.openAPIV3Schema", "schemas are required"))
        elif not body.get("type"):
            causes.append(field_required(f"{where}.schema.openAPIV3Schema.type", "must not be empty at the root"))
        else:
            causes += _structural(f"{where}.schema.openAPIV3Schema", body)
    if spec.get("preserveUnknownFields"):
        causes.append(field_invalid("spec.preserveUnknownFields", True, "must be false"))
    return causes


def _structural(where: str, node: Obj) -> list[Cause]:
    causes: list[Cause] = []
    if not isinstance(node, dict):
        return causes
    if node.get("properties") and node.get("additionalProperties"):
        causes.append(
            field_forbidden(f"{where}.additionalProperties", "additionalProperties and properties are mutual exclusive")
        )
    if node.get("type") == "array" and not node.get("items"):
        causes.append(field_required(f"{where}.items", "must be specified"))
    if (
        not node.get("type")
        and not node.get("x-kubernetes-int-or-string")
        and not node.get("x-kubernetes-preserve-unknown-fields")
    ):
        causes.append(field_required(f"{where}.type", "must not be empty for specified object fields"))
    for name, child in (node.get("properties") or {}).items():
        causes += _structural(f"{where}.properties[{name}]", child)
    if isinstance(node.get("items"), dict):
        causes += _structural(f"{where}.items", node["items"])
    if isinstance(node.get("additionalProperties"), dict):
        causes += _structural(f"{where}.additionalProperties", node["additionalProperties"])
    return causes


def build_resource(crd: Obj) -> Resource:
    """Return the resource that a valid CRD describes."""
    spec, names = crd["spec"], crd["spec"]["names"]
    served = [version for version in spec["versions"] if version.get("served")]
    served.sort(key=lambda version: (not version.get("storage"), version_rank(version["name"])))
    custom = CustomResource(list_kind=names.get("listKind") or names["kind"] + "List")
    subresources: set[str] = set()
    for version in served:
        name = version["name"]
        custom.schemas[name] = version["schema"]["openAPIV3Schema"]
        custom.columns[name] = version.get("additionalPrinterColumns") or []
        custom.selectable[name] = {row["jsonPath"].lstrip("."): "" for row in version.get("selectableFields") or ()}
        parts = version.get("subresources") or {}
        subresources |= set(parts) & {"status", "scale"}
        if parts.get("scale"):
            custom.scale[name] = parts["scale"]
    return Resource(
        group=spec["group"],
        versions=tuple(version["name"] for version in served),
        plural=names["plural"],
        singular=names.get("singular") or names["kind"].lower(),
        kind=names["kind"],
        namespaced=spec["scope"] == "Namespaced",
        short_names=tuple(names.get("shortNames") or ()),
        categories=tuple(names.get("categories") or ()),
        subresources=frozenset(subresources),
        generation=True,
        crd=custom,
    )


def established_status(crd: Obj) -> Obj:
    """Return the status of a CRD that is served."""
    stamp = now()
    before = {row["type"]: row for row in (crd.get("status") or {}).get("conditions") or ()}
    rows = []
    for kind, reason, message in (
        ("NamesAccepted", "NoConflicts", "no conflicts found"),
        ("Established", "InitialNamesAccepted", "the initial names have been accepted"),
    ):
        rows.append(
            {
                "type": kind,
                "status": "True",
                "reason": reason,
                "message": message,
                "lastTransitionTime": before.get(kind, {}).get("lastTransitionTime") or stamp,
            }
        )
    stored = list((crd.get("status") or {}).get("storedVersions") or ())
    current = next(version["name"] for version in crd["spec"]["versions"] if version.get("storage"))
    if current not in stored:
        stored.append(current)
    return {"conditions": rows, "acceptedNames": dict(crd["spec"]["names"]), "storedVersions": stored}


def complete(resource: Resource, version: str, obj: Obj, field_validation: str) -> list[str]:
    """Prune and default a custom object in place; return the unknown fields. 400 for them when Strict."""
    custom: CustomResource = resource.crd
    body = custom.schemas.get(version, {})
    dropped = sorted(schema.prune(body, obj))
    if dropped and field_validation == "Strict":
        text = ", ".join(f'unknown field "{path}"' for path in dropped)
        raise ApiError(
            400,
            "BadRequest",
            f'{resource.kind} in version "{version}" cannot be handled as a {resource.kind}: '
            f"strict decoding error: {text}",
        )
    schema.default(body, obj)
    return dropped


def validate(resource: Resource, version: str, obj: Obj) -> list[Cause]:
    """Return the schema errors of a custom object."""
    custom: CustomResource = resource.crd
    return schema.validate(custom.schemas.get(version, {}), obj)


def selectable_fields(resource: Resource, version: str) -> dict[str, str]:
    """Return the fields that a field selector may name beside metadata."""
    custom: Any = resource.crd
    return custom.selectable.get(version, {}) if custom else {}
