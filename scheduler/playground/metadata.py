"""Object metadata: names, labels, owners, timestamps, and what a write may do to them.

Decided here: name rules by kind, what the server fills in on create and keeps on update. It knows nothing of specs.
Invariant: after `begin` every object has name, uid and creationTimestamp; after `carry_over` none of the fields that
the server owns differ from the stored object.
"""

from __future__ import annotations

import random
import re
import uuid
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from scheduler.playground.errors import (
    Cause,
    Obj,
    bad_request,
    field_forbidden,
    field_invalid,
    field_required,
    field_too_long,
)
from scheduler.playground.kinds import Resource

_LABEL_NAME = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = re.compile(rf"^{_LABEL_NAME}(\.{_LABEL_NAME})*$")
_DNS_LABEL = re.compile(rf"^{_LABEL_NAME}$")
_QUALIFIED = re.compile(r"^([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]$")
_LABEL_VALUE = re.compile(r"^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$")
_SUFFIX_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"

_SUBDOMAIN_TEXT = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start "
    "and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
_LABEL_TEXT = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end "
    "with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
_VALUE_TEXT = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
_KEY_TEXT = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
_STANDARD_FINALIZERS = frozenset({"kubernetes", "orphan", "foregroundDeletion"})
_LABEL_KINDS = frozenset({"namespaces", "services"})
_PATH_GROUPS = frozenset({"rbac.authorization.k8s.io"})


def now() -> str:
    """Return the present time as metav1.Time writes it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def micro_now() -> str:
    """Return the present time as metav1.MicroTime writes it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def random_suffix(length: int = 5) -> str:
    """Return the random part of a generated name."""
    return "".join(random.choices(_SUFFIX_ALPHABET, k=length))


def meta(obj: Obj) -> Obj:
    """Return metadata, which must be an object."""
    found = obj.get("metadata")
    if found is None:
        found = obj["metadata"] = {}
    if not isinstance(found, dict):
        raise bad_request("metadata must be an object")
    return found


def is_subdomain(text: Any) -> bool:
    """Tell whether the text is a DNS-1123 subdomain."""
    return isinstance(text, str) and len(text) <= 253 and bool(_SUBDOMAIN.match(text))


def dns_label(field: str, text: Any) -> list[Cause]:
    """Return the errors of a DNS-1123 label."""
    if not isinstance(text, str) or not text:
        return [field_required(field)]
    if len(text) > 63:
        return [field_invalid(field, text, "must be no more than 63 characters")]
    return [] if _DNS_LABEL.match(text) else [field_invalid(field, text, _LABEL_TEXT)]


def subdomain(field: str, text: Any) -> list[Cause]:
    """Return the errors of a DNS-1123 subdomain."""
    if not isinstance(text, str) or not text:
        return [field_required(field)]
    if len(text) > 253:
        return [field_invalid(field, text, "must be no more than 253 characters")]
    return [] if _SUBDOMAIN.match(text) else [field_invalid(field, text, _SUBDOMAIN_TEXT)]


@lru_cache(maxsize=8192)
def _is_qualified(text: str) -> bool:
    prefix, slash, name = text.rpartition("/")
    return bool((not slash or is_subdomain(prefix)) and 0 < len(name) <= 63 and _QUALIFIED.match(name))


def qualified_name(field: str, text: Any) -> list[Cause]:
    """Return the errors of a label key or resource name."""
    if isinstance(text, str) and _is_qualified(text):
        return []
    if not isinstance(text, str) or not text:
        return [field_invalid(field, text or "", why) for why in ("name part must be non-empty", _KEY_TEXT)]
    prefix, slash, name = text.rpartition("/")
    if slash and not (prefix and len(prefix) <= 253 and _SUBDOMAIN.match(prefix)):
        return [field_invalid(field, text, f"prefix part {_SUBDOMAIN_TEXT}")]
    if len(name) > 63:
        return [field_invalid(field, text, "name part must be no more than 63 characters")]
    return [] if _QUALIFIED.match(name) else [field_invalid(field, text, _KEY_TEXT)]


def labels(field: str, value: Any) -> list[Cause]:
    """Return the errors of a label map."""
    causes: list[Cause] = []
    for key, text in (value or {}).items():
        causes += qualified_name(field, key)
        if not isinstance(text, str):
            raise bad_request(f"json: cannot unmarshal {type(text).__name__} into Go struct field of {field}.{key}")
        causes += label_value(field, text)
    return causes


def label_value(field: str, text: str) -> list[Cause]:
    """Return the errors of a label value."""
    if len(text) > 63:
        return [field_invalid(field, text, "must be no more than 63 characters")]
    return [] if _LABEL_VALUE.match(text) else [field_invalid(field, text, _VALUE_TEXT)]


def _name(resource: Resource, name: str) -> list[Cause]:
    if resource.group in _PATH_GROUPS:
        bad = name in (".", "..") or "/" in name or "%" in name
        return [field_invalid("metadata.name", name, "may not be '.', '..' or contain '/' or '%'")] if bad else []
    if resource.plural in _LABEL_KINDS and not resource.group:
        return dns_label("metadata.name", name)
    return subdomain("metadata.name", name)


def validate_metadata(resource: Resource, obj: Obj) -> list[Cause]:
    """Return the errors in names, labels, annotations, owners and finalizers."""
    found = obj["metadata"]
    causes: list[Cause] = []
    name = found.get("name")
    if not name:
        return [field_required("metadata.name", "name or generateName is required")]
    causes += _name(resource, name)
    causes += labels("metadata.labels", found.get("labels"))
    size = 0
    for key, text in (found.get("annotations") or {}).items():
        causes += qualified_name("metadata.annotations", key.lower() if isinstance(key, str) else key)
        if not isinstance(text, str):
            raise bad_request(f"json: cannot unmarshal {type(text).__name__} into metadata.annotations.{key}")
        size += len(key) + len(text)
    if size > 256 * 1024:
        causes.append(field_too_long("metadata.annotations", 256 * 1024))
    causes += _owners(found.get("ownerReferences") or [])
    for index, text in enumerate(found.get("finalizers") or []):
        causes += qualified_name(f"metadata.finalizers[{index}]", text)
        if isinstance(text, str) and "/" not in text and text not in _STANDARD_FINALIZERS:
            why = "name is neither a standard finalizer name nor is it fully qualified"
            causes.append(field_invalid(f"metadata.finalizers[{index}]", text, why))
    return causes


def _owners(rows: list[Obj]) -> list[Cause]:
    causes: list[Cause] = []
    controllers = 0
    for index, row in enumerate(rows):
        where = f"metadata.ownerReferences[{index}]"
        missing = [field for field in ("apiVersion", "kind", "name", "uid") if not row.get(field)]
        causes += [field_required(f"{where}.{field}", "must not be empty") for field in missing]
        controllers += 1 if row.get("controller") else 0
    if controllers > 1:
        text = "Only one reference can have Controller set to true."
        causes.append(field_invalid("metadata.ownerReferences", rows, text))
    return causes


def begin(obj: Obj) -> None:
    """Fill what the server owns in a new object."""
    found = meta(obj)
    for field in ("selfLink", "deletionTimestamp", "deletionGracePeriodSeconds", "generation"):
        found.pop(field, None)
    if found.get("resourceVersion") == "":
        found.pop("resourceVersion")
    if not found.get("name") and found.get("generateName"):
        found["name"] = found["generateName"][:58] + random_suffix()
    found["uid"] = str(uuid.uuid4())
    found["creationTimestamp"] = now()
    for field in ("labels", "annotations", "ownerReferences", "finalizers", "managedFields"):
        if field in found and not found[field]:
            del found[field]


_SERVER_OWNED = (
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "generateName",
)


def carry_over(old: Obj, new: Obj) -> None:
    """Keep in an update what clients cannot change."""
    found, before = meta(new), old["metadata"]
    for field in _SERVER_OWNED:
        if field in before:
            found[field] = before[field]
        else:
            found.pop(field, None)
    found["name"] = before["name"]
    if "namespace" in before:
        found["namespace"] = before["namespace"]
    found.pop("selfLink", None)
    for field in ("labels", "annotations", "ownerReferences", "finalizers", "managedFields"):
        if field in found and not found[field]:
            del found[field]


def validate_update(old: Obj, new: Obj) -> list[Cause]:
    """Return the errors of a metadata change: finalizers may not be added to an object that is being deleted."""
    causes: list[Cause] = []
    if old["metadata"].get("deletionTimestamp"):
        before = old["metadata"].get("finalizers") or []
        added = [one for one in new["metadata"].get("finalizers") or [] if one not in before]
        if added:
            text = (
                "no new finalizers can be added if the object is being deleted, found new finalizers "
                + "[]string{"
                + ", ".join(f'"{one}"' for one in added)
                + "}"
            )
            causes.append(field_forbidden("metadata.finalizers", text))
    return causes
