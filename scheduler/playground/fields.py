"""Field sets: which leaf paths an object has, and how lists and maps are typed for server-side apply.

Decided here: the list and map types of built-in kinds and CRDs, the path of every leaf, and the FieldsV1 form. It knows
no managers. Invariant: `to_fields_v1` and `from_fields_v1` are inverse to each other.
"""

from __future__ import annotations

import json
from typing import Any, Protocol, TypeAlias

from scheduler.playground.errors import Obj

Path: TypeAlias = tuple[str, ...]
"""Elements as FieldsV1 writes them: f:NAME, k:{...}, v:VALUE, and "." for the presence of a keyed item."""
FieldSet: TypeAlias = dict[Path, None]
"""A set that keeps its order."""


class Typing(Protocol):
    """The type of a place in an object."""

    def child(self, name: str) -> Typing:
        """Type of a field."""

    def item(self) -> Typing:
        """Type of a list item."""

    def list_keys(self) -> tuple[str, ...] | None:
        """Keys of a keyed list, () for a set, None for an atomic list."""

    def atomic_map(self) -> bool:
        """Tell whether the map is replaced as a whole."""


# (parent field or "", field): keys of a keyed list, () for a set.
_LISTS: dict[tuple[str, str], tuple[str, ...]] = {
    ("metadata", "finalizers"): (),
    ("metadata", "ownerReferences"): ("uid",),
    ("status", "conditions"): ("type",),
    ("status", "addresses"): ("type",),
    ("status", "podIPs"): ("ip",),
    ("status", "hostIPs"): ("ip",),
    ("spec", "containers"): ("name",),
    ("spec", "initContainers"): ("name",),
    ("spec", "ephemeralContainers"): ("name",),
    ("spec", "volumes"): ("name",),
    ("spec", "imagePullSecrets"): ("name",),
    ("spec", "hostAliases"): ("ip",),
    ("spec", "topologySpreadConstraints"): ("topologyKey", "whenUnsatisfiable"),
    ("spec", "schedulingGates"): ("name",),
    ("spec", "resourceClaims"): ("name",),
    ("spec", "podCIDRs"): (),
    ("", "imagePullSecrets"): (),
    ("", "secrets"): ("name",),
    ("", "webhooks"): ("name",),
}
_CONTAINER_LISTS: dict[str, tuple[str, ...]] = {
    "env": ("name",),
    "ports": ("containerPort", "protocol"),
    "volumeMounts": ("mountPath",),
    "volumeDevices": ("devicePath",),
}
_CONTAINERS = ("containers", "initContainers", "ephemeralContainers")
_KEY_DEFAULTS = {"protocol": "TCP"}
_ATOMIC_MAPS = frozenset(
    {
        "selector",
        "nodeSelector",
        "labelSelector",
        "namespaceSelector",
        "fieldRef",
        "resourceFieldRef",
        "configMapKeyRef",
        "secretKeyRef",
        "involvedObject",
        "claimRef",
        "requiredDuringSchedulingIgnoredDuringExecution",
        "preference",
    }
)


class BuiltinTyping:
    """Types of built-in kinds, by the names of the fields above a place."""

    def __init__(self, kind: str, path: tuple[str, ...] = ()) -> None:
        self.kind = kind
        self.path = path

    def child(self, name: str) -> BuiltinTyping:
        """Type of a field."""
        return BuiltinTyping(self.kind, (*self.path, name))

    def item(self) -> BuiltinTyping:
        """Type of a list item: fields of items stand directly below the list's name."""
        return self

    def list_keys(self) -> tuple[str, ...] | None:
        """Keys of a keyed list, () for a set, None for an atomic list."""
        field = self.path[-1] if self.path else ""
        parent = self.path[-2] if len(self.path) > 1 else ""
        if parent in _CONTAINERS:
            return _CONTAINER_LISTS.get(field)
        if self.kind == "Service" and (parent, field) == ("spec", "ports"):
            return ("port", "protocol")
        return _LISTS.get((parent, field))

    def atomic_map(self) -> bool:
        """Tell whether the map is replaced as a whole."""
        field = self.path[-1] if self.path else ""
        if field == "selector" and self.kind == "Service":
            return True
        return field in _ATOMIC_MAPS and len(self.path) > 1


class SchemaTyping:
    """Types of custom resources, from their schema."""

    def __init__(self, schema: Obj, root: bool = False) -> None:
        self.schema = schema
        self.root = root

    def child(self, name: str) -> Typing:
        """Type of a field."""
        if self.root and name == "metadata":
            return BuiltinTyping("", ("metadata",))
        found = (self.schema.get("properties") or {}).get(name)
        extra = self.schema.get("additionalProperties")
        if found is None and isinstance(extra, dict):
            found = extra
        return SchemaTyping(found or {})

    def item(self) -> Typing:
        """Type of a list item."""
        found = self.schema.get("items")
        return SchemaTyping(found if isinstance(found, dict) else {})

    def list_keys(self) -> tuple[str, ...] | None:
        """Keys of a keyed list, () for a set, None for an atomic list."""
        kind = self.schema.get("x-kubernetes-list-type")
        if kind == "map":
            return tuple(self.schema.get("x-kubernetes-list-map-keys") or ())
        return () if kind == "set" else None

    def atomic_map(self) -> bool:
        """Tell whether the map is replaced as a whole."""
        return self.schema.get("x-kubernetes-map-type") == "atomic"


def item_key(item: Any, keys: tuple[str, ...], typing: Typing | None = None) -> str:
    """Return the path element of an item of a keyed list or a set."""
    if not keys:
        return "v:" + json.dumps(item, separators=(",", ":"), sort_keys=True)
    found: Obj = {}
    for key in keys:
        value = item.get(key, _KEY_DEFAULTS.get(key)) if isinstance(item, dict) else None
        if value is None and isinstance(typing, SchemaTyping):
            kind = typing.item().child(key)
            value = kind.schema.get("default") if isinstance(kind, SchemaTyping) else None
        if value is not None:
            found[key] = value
    return "k:" + json.dumps(found, separators=(",", ":"), sort_keys=True)


def field_set(value: Any, typing: Typing, prefix: Path = ()) -> FieldSet:
    """Return the leaf paths of a value."""
    found: FieldSet = {}
    if isinstance(value, dict) and value and not typing.atomic_map():
        for name, child in value.items():
            found.update(field_set(child, typing.child(name), (*prefix, f"f:{name}")))
    elif isinstance(value, list) and value and typing.list_keys() is not None:
        keys = typing.list_keys() or ()
        for item in value:
            element = (*prefix, item_key(item, keys, typing))
            if keys:
                found[(*element, ".")] = None
                found.update(field_set(item, typing.item(), element))
            else:
                found[element] = None
    elif value is not None:
        found[prefix] = None
    return found


_MISSING = object()


def value_at(value: Any, typing: Typing, path: Path) -> Any:
    """Return the value at a path, or a marker that equals nothing when it is absent."""
    for element in path:
        if element == ".":
            return True
        if element.startswith("f:"):
            name = element[2:]
            if not isinstance(value, dict) or name not in value:
                return _MISSING
            value, typing = value[name], typing.child(name)
        else:
            keys = typing.list_keys()
            if not isinstance(value, list) or keys is None:
                return _MISSING
            value = next((one for one in value if item_key(one, keys, typing) == element), _MISSING)
            if value is _MISSING:
                return _MISSING
            typing = typing.item()
    return value


def remove_at(value: Any, typing: Typing, path: Path) -> None:
    """Take the value at a path out of an object, in place."""
    trail: list[tuple[Any, str, Typing]] = []
    place = value
    for element in path:
        if element == ".":
            break
        trail.append((place, element, typing))
        if element.startswith("f:"):
            if not isinstance(place, dict) or element[2:] not in place:
                return
            place, typing = place[element[2:]], typing.child(element[2:])
        else:
            keys = typing.list_keys()
            if not isinstance(place, list) or keys is None:
                return
            place = next((one for one in place if item_key(one, keys, typing) == element), None)
            if place is None:
                return
            typing = typing.item()
    if not trail:
        return
    parent, element, kind = trail[-1]
    if element.startswith("f:"):
        del parent[element[2:]]
    else:
        keys = kind.list_keys() or ()
        parent[:] = [one for one in parent if item_key(one, keys, kind) != element]


def merge(live: Any, applied: Any, typing: Typing) -> Any:
    """Return `live` with what `applied` says, by the types of lists and maps."""
    if isinstance(applied, dict) and isinstance(live, dict) and not typing.atomic_map():
        merged = dict(live)
        for name, value in applied.items():
            if value is None:
                merged.pop(name, None)
            else:
                merged[name] = merge(live.get(name), value, typing.child(name))
        return merged
    keys = typing.list_keys() if isinstance(applied, list) else None
    if isinstance(applied, list) and isinstance(live, list) and keys is not None:
        wanted = {item_key(one, keys, typing): one for one in applied}
        rows, seen = [], set()
        for one in live:
            key = item_key(one, keys, typing)
            seen.add(key)
            rows.append(merge(one, wanted[key], typing.item()) if key in wanted and keys else one)
        return rows + [one for key, one in wanted.items() if key not in seen]
    return applied


def to_fields_v1(paths: FieldSet) -> Obj:
    """Return the FieldsV1 form."""
    root: Obj = {}
    for path in sorted(paths):
        node = root
        for element in path:
            node = node.setdefault(element, {})
    return root


def from_fields_v1(node: Obj, prefix: Path = ()) -> FieldSet:
    """Return the paths of a FieldsV1."""
    found: FieldSet = {}
    for element, child in node.items():
        if child:
            found.update(from_fields_v1(child, (*prefix, element)))
        else:
            found[(*prefix, element)] = None
    return found


def show(path: Path) -> str:
    """Return a path as conflict messages write it."""
    text = ""
    for element in path:
        if element.startswith("f:"):
            text += f".{element[2:]}"
        elif element.startswith("k:"):
            pairs = json.loads(element[2:])
            text += "[" + ",".join(f"{key}={json.dumps(value)}" for key, value in pairs.items()) + "]"
        elif element.startswith("v:"):
            text += f"[={element[2:]}]"
    return text
