"""Structural schemas of CustomResourceDefinitions: defaulting, pruning and validation.

Decided here: what an `openAPIV3Schema` does to an object and which field errors it gives. CEL rules
(`x-kubernetes-validations`) are NOT evaluated: the embedded server accepts what they would refuse. It knows nothing of
storage. Invariants: `default` and `prune` change the object in place; `validate` changes nothing.
"""

from __future__ import annotations

import re
from datetime import datetime
from functools import lru_cache
from typing import Any

from scheduler.playground.errors import (
    Cause,
    Obj,
    field_duplicate,
    field_invalid,
    field_required,
    field_too_long,
    field_too_many,
    field_type,
    field_unsupported,
)

Schema = dict[str, Any]
_ROOT_KEYS = frozenset({"apiVersion", "kind", "metadata"})


def default(schema: Schema, value: Any, *, root: bool = True) -> None:
    """Fill defaults, outermost first; null where null is not allowed counts as absent."""
    if isinstance(value, dict):
        properties = schema.get("properties") or {}
        for name, child in properties.items():
            if root and name in _ROOT_KEYS:
                continue
            if "default" in child and (name not in value or (value[name] is None and not child.get("nullable", False))):
                value[name] = _clone(child["default"])
            if value.get(name) is not None:
                default(child, value[name], root=False)
            elif name in value and not child.get("nullable", False):
                del value[name]
        extra = schema.get("additionalProperties")
        if isinstance(extra, dict):
            for name, item in value.items():
                if name not in properties:
                    default(extra, item, root=False)
    elif isinstance(value, list):
        items = schema.get("items")
        if isinstance(items, dict):
            for item in value:
                default(items, item, root=False)


def _clone(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _clone(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_clone(one) for one in value]
    return value


def prune(schema: Schema, value: Any, path: str = "", *, root: bool = True) -> list[str]:
    """Drop fields that the schema does not name; return their paths."""
    dropped: list[str] = []
    if isinstance(value, dict):
        properties = schema.get("properties") or {}
        extra = schema.get("additionalProperties")
        keep = bool(schema.get("x-kubernetes-preserve-unknown-fields"))
        embedded = bool(schema.get("x-kubernetes-embedded-resource"))
        for name in list(value):
            where = f"{path}.{name}" if path else name
            if (root or embedded) and name in _ROOT_KEYS:
                continue
            if name in properties:
                dropped += prune(properties[name], value[name], where, root=False)
            elif isinstance(extra, dict):
                dropped += prune(extra, value[name], where, root=False)
            elif not (extra is True or keep):
                del value[name]
                dropped.append(where)
    elif isinstance(value, list):
        items = schema.get("items")
        if isinstance(items, dict):
            for index, item in enumerate(value):
                dropped += prune(items, item, f"{path}[{index}]", root=False)
    return dropped


@lru_cache(maxsize=1024)
def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(text.replace(r"\z", r"\Z"))


def _type_of(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "integer"
    if isinstance(value, float):
        return "number"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list) else "object"


def _is_type(value: Any, wanted: str) -> bool:
    found = _type_of(value)
    if wanted == "number":
        return found in ("integer", "number")
    if wanted == "integer":
        return found == "integer" or (found == "number" and float(value).is_integer())
    return found == wanted


def validate(schema: Schema, value: Any, path: str = "", *, root: bool = True) -> list[Cause]:
    """Return the field errors of a value."""
    where = path or "<nil>"
    if value is None and schema.get("nullable"):
        return []
    if schema.get("x-kubernetes-int-or-string"):
        if _type_of(value) not in ("integer", "string"):
            return [
                field_type(where, _shown(value), f'{where} in body must be of type integer,string: "{_type_of(value)}"')
            ]
    elif schema.get("type") and not _is_type(value, schema["type"]):
        text = f'{where} in body must be of type {schema["type"]}: "{_type_of(value)}"'
        return [field_type(where, _shown(value), text)]
    causes: list[Cause] = []
    if "enum" in schema and value not in schema["enum"]:
        causes.append(field_unsupported(where, value, [str(one) for one in schema["enum"]]))
    if isinstance(value, str):
        causes += _string(schema, value, where)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        causes += _number(schema, value, where)
    elif isinstance(value, list):
        causes += _array(schema, value, path, where)
    elif isinstance(value, dict):
        causes += _object(schema, value, path, where, root=root)
    return causes + _logic(schema, value, path, where)


def _shown(value: Any) -> Any:
    """A value of the wrong type is shown as its type."""
    return _type_of(value)


def _string(schema: Schema, value: str, where: str) -> list[Cause]:
    """Return the first error of a string, as the real server stops at it."""
    if "maxLength" in schema and len(value) > schema["maxLength"]:
        return [field_too_long(where, schema["maxLength"])]
    if "minLength" in schema and len(value) < schema["minLength"]:
        text = f"{where} in body should be at least {schema['minLength']} chars long"
        return [field_invalid(where, value, text)]
    if "pattern" in schema and not _pattern(schema["pattern"]).search(value):
        return [field_invalid(where, value, f"{where} in body should match '{schema['pattern']}'")]
    if schema.get("format") == "date-time" and not _is_time(value):
        return [field_invalid(where, value, f"{where} in body must be of type date-time: {value!r}")]
    return []


def _is_time(value: str) -> bool:
    try:
        return datetime.fromisoformat(value.replace("Z", "+00:00")).tzinfo is not None
    except ValueError:
        return False


def _number(schema: Schema, value: float, where: str) -> list[Cause]:
    causes: list[Cause] = []
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is not None and (value < low or (schema.get("exclusiveMinimum") and value == low)):
        bound = "greater than" if schema.get("exclusiveMinimum") else "greater than or equal to"
        causes.append(field_invalid(where, value, f"{where} in body should be {bound} {low}"))
    if high is not None and (value > high or (schema.get("exclusiveMaximum") and value == high)):
        bound = "less than" if schema.get("exclusiveMaximum") else "less than or equal to"
        causes.append(field_invalid(where, value, f"{where} in body should be {bound} {high}"))
    multiple = schema.get("multipleOf")
    if multiple and value % multiple:
        causes.append(field_invalid(where, value, f"{where} in body should be a multiple of {multiple}"))
    size = {"int32": 31, "int64": 63}.get(schema.get("format", ""))
    if size and isinstance(value, int) and not -(2**size) <= value < 2**size:
        causes.append(field_invalid(where, value, f"{where} in body must be of type {schema['format']}"))
    return causes


def _array(schema: Schema, value: list[Any], path: str, where: str) -> list[Cause]:
    causes: list[Cause] = []
    if "maxItems" in schema and len(value) > schema["maxItems"]:
        causes.append(field_too_many(where, len(value), schema["maxItems"]))
    if "minItems" in schema and len(value) < schema["minItems"]:
        text = f"{where} in body should have at least {schema['minItems']} items"
        causes.append(field_invalid(where, len(value), text))
    items = schema.get("items")
    if isinstance(items, dict):
        for index, item in enumerate(value):
            causes += validate(items, item, f"{path}[{index}]", root=False)
    kind = schema.get("x-kubernetes-list-type")
    if kind in ("map", "set") or schema.get("uniqueItems"):
        keys = schema.get("x-kubernetes-list-map-keys") or []
        seen: list[Any] = []
        for index, item in enumerate(value):
            identity = {key: item.get(key) for key in keys} if kind == "map" and isinstance(item, dict) else item
            if identity in seen:
                causes.append(field_duplicate(f"{where}[{index}]", identity))
            seen.append(identity)
    return causes


def _object(schema: Schema, value: Obj, path: str, where: str, *, root: bool) -> list[Cause]:
    causes: list[Cause] = []
    prefix = f"{path}." if path else ""
    causes += [field_required(prefix + name) for name in schema.get("required") or () if name not in value]
    properties = schema.get("properties") or {}
    extra = schema.get("additionalProperties")
    for name, item in value.items():
        if root and name in _ROOT_KEYS:
            continue
        child = properties.get(name)
        if child is None and isinstance(extra, dict):
            child = extra
        if child is not None:
            causes += validate(child, item, prefix + name, root=False)
    if "maxProperties" in schema and len(value) > schema["maxProperties"]:
        causes.append(field_too_many(where, len(value), schema["maxProperties"]))
    if "minProperties" in schema and len(value) < schema["minProperties"]:
        text = f"{where} in body should have at least {schema['minProperties']} properties"
        causes.append(field_invalid(where, len(value), text))
    return causes


def _logic(schema: Schema, value: Any, path: str, where: str) -> list[Cause]:
    causes: list[Cause] = []
    for child in schema.get("allOf") or ():
        causes += validate(child, value, path, root=False)
    if schema.get("anyOf") and not any(not validate(child, value, path, root=False) for child in schema["anyOf"]):
        causes.append(field_invalid(where, _shown(value), f'"{where}" must validate at least one schema (anyOf)'))
    if schema.get("oneOf"):
        good = sum(1 for child in schema["oneOf"] if not validate(child, value, path, root=False))
        if good != 1:
            text = f'"{where}" must validate one and only one schema (oneOf)'
            causes.append(field_invalid(where, _shown(value), text))
    if schema.get("not") and not validate(schema["not"], value, path, root=False):
        causes.append(field_invalid(where, _shown(value), f'"{where}" must not validate the schema (not)'))
    return causes
