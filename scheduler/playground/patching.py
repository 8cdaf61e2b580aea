"""PATCH: from a content type and a document to an update.

Decided here: which patch types a resource takes and what the document is applied to. It must not know HTTP. Invariant:
a patch goes through the same update as a PUT, so it is checked alike.
"""

from __future__ import annotations

from typing import Any

import msgspec
import yaml

from scheduler.playground.api import Api, WriteOptions
from scheduler.playground.apply import apply
from scheduler.playground.errors import (
    ApiError,
    Undecodable,
    bad_request,
    field_invalid,
    invalid,
    unsupported_media,
    unsupported_patch,
)
from scheduler.playground.kinds import Resource
from scheduler.playground.patch import json_patch, merge_patch
from scheduler.playground.storage import Stored, decode
from scheduler.playground.strategic import strategic_merge

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"
APPLY_JSON = "application/apply-patch+json"


def parse_json(raw: bytes) -> Any:
    """Return the JSON of a body; 400 when it is not JSON."""
    try:
        return decode(raw)
    except msgspec.DecodeError as error:
        raise bad_request(f"couldn't get version/kind; json parse error: {error}") from None


def parse_yaml(raw: bytes) -> Any:
    """Return the YAML (or JSON) of a body; 400 when it is neither."""
    if raw.lstrip()[:1] == b"{":
        return parse_json(raw)
    try:
        return yaml.load(raw, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.YAMLError as error:
        raise bad_request(f"error decoding YAML: {error}") from None


def patch(
    api: Api,
    resource: Resource,
    version: str,
    namespace: str,
    name: str,
    subresource: str,
    content_type: str,
    raw: bytes,
    options: WriteOptions,
) -> tuple[Stored, bool]:
    """Apply a patch; return the object and whether it was created."""
    accepted = [JSON_PATCH, MERGE_PATCH, APPLY_PATCH]
    if resource.crd is None:
        accepted.insert(2, STRATEGIC_PATCH)
    if content_type == APPLY_JSON:
        content_type = APPLY_PATCH
    if content_type not in accepted:
        raise unsupported_patch() if resource.crd is None else unsupported_media(accepted)
    if content_type == APPLY_PATCH:
        return apply(api, resource, version, namespace, name, subresource, parse_yaml(raw), options)
    document = parse_json(raw)
    prev = api.get(resource, namespace, name)
    obj = api.view(resource, version, prev.copy())
    if content_type == JSON_PATCH:
        obj = json_patch(obj, document)
    elif not isinstance(document, dict):
        raise bad_request("the patch must be a JSON object")
    elif content_type == MERGE_PATCH:
        obj = merge_patch(obj, document)
    else:
        obj = strategic_merge(resource.kind, obj, document)
    if not isinstance(obj, dict):
        raise ApiError(422, "Invalid", "the patched object is not an object", details={})
    try:
        stored = api.update(resource, version, namespace, name, obj, options, subresource, patched=True)
    except Undecodable as error:
        raise invalid(
            resource.group, resource.kind, "", [field_invalid("patch", raw.decode(errors="replace"), error.message)]
        ) from None
    return stored, False
