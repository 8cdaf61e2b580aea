"""Strategic merge patch for the built-in kinds in use.

Decided here: which lists of built-in kinds are merged by which key, and what the directives ($patch,
$deleteFromPrimitiveList, $setElementOrder, $retainKeys) do. Lists that are not named here are replaced, as the real
server does with atomic lists. Invariant: the target may be changed; callers pass a copy.
"""

from __future__ import annotations

from typing import Any

from scheduler.playground.errors import Obj, bad_request

# Merge keys by the path of field names (list items add nothing to the path). Paths of pod specs are shared by every
# kind that holds a pod template, so they are written once and looked up by their tail.
_POD_SPEC: dict[str, str] = {
    "containers": "name",
    "initContainers": "name",
    "ephemeralContainers": "name",
    "volumes": "name",
    "imagePullSecrets": "name",
    "hostAliases": "ip",
    "topologySpreadConstraints": "topologyKey",
    "schedulingGates": "name",
    "resourceClaims": "name",
}
_CONTAINER: dict[str, str] = {
    "env": "name",
    "ports": "containerPort",
    "volumeMounts": "mountPath",
    "volumeDevices": "devicePath",
}
_CONTAINERS = ("containers", "initContainers", "ephemeralContainers")
_SETS = frozenset({"finalizers"})


def merge_key(kind: str, path: tuple[str, ...]) -> str | None:
    """Return the merge key of the list at `path`, "" for a merged list of scalars, None for an atomic list."""
    tail, parent = path[-1], path[-2] if len(path) > 1 else ""
    if path == ("metadata", "ownerReferences"):
        return "uid"
    if parent == "metadata" and tail in _SETS:
        return ""
    if tail == "conditions" and parent == "status":
        return "type"
    if parent in _CONTAINERS:
        return _CONTAINER.get(tail)
    if parent == "spec":
        if tail in _POD_SPEC and (kind == "Pod" or "template" in path):
            return _POD_SPEC[tail]
        if kind == "Node" and tail == "taints":
            return "key"
        if kind == "Node" and tail == "podCIDRs":
            return ""
        if kind == "Service" and tail == "ports":
            return "port"
    if kind == "Pod" and parent == "status" and tail in ("podIPs", "hostIPs"):
        return "ip"
    if kind == "Pod" and parent == "status" and tail == "resourceClaimStatuses":
        return "name"
    if kind == "Node" and parent == "status" and tail == "addresses":
        return "type"
    if kind == "ServiceAccount" and tail in ("secrets", "imagePullSecrets"):
        return "name"
    if tail == "webhooks":
        return "name"
    return None


def strategic_merge(kind: str, target: Obj, patch: Obj) -> Obj:
    """Apply a strategic merge patch to a copy of an object of `kind`."""
    if not isinstance(patch, dict):
        raise bad_request("strategic merge patch: the document must be an object")
    return _merge_object(kind, (), target, patch)


def _merge_object(kind: str, path: tuple[str, ...], target: Obj, patch: Obj) -> Obj:
    directive = patch.get("$patch")
    if directive == "replace":
        return {key: value for key, value in patch.items() if not key.startswith("$")}
    if directive == "delete":
        return {}
    if directive not in (None, "merge"):
        raise bad_request(f"Unknown patch type found: {directive}")
    before = {key: value for key, value in target.items() if isinstance(value, list)}
    _drop_by_directives(target, patch)
    for key, value in patch.items():
        if key.startswith("$"):
            continue
        if value is None:
            target.pop(key, None)
        elif isinstance(value, dict):
            present = target.get(key)
            target[key] = _merge_object(kind, (*path, key), present if isinstance(present, dict) else {}, value)
            if value.get("$patch") == "delete":
                target.pop(key)
        elif isinstance(value, list):
            target[key] = _merge_list(kind, (*path, key), target.get(key), value)
        else:
            target[key] = value
    for key, order in patch.items():
        field = key.removeprefix("$setElementOrder/")
        if field != key and isinstance(target.get(field), list):
            merge = merge_key(kind, (*path, field))
            if merge is not None:
                server = before.get(field) or []
                target[field] = _ordered(target[field], order, server, merge)
    return target


def _drop_by_directives(target: Obj, patch: Obj) -> None:
    retain = patch.get("$retainKeys")
    if retain is not None:
        for key in [key for key in target if key not in retain]:
            del target[key]
    for key, value in patch.items():
        field = key.removeprefix("$deleteFromPrimitiveList/")
        if field != key and isinstance(target.get(field), list):
            target[field] = [one for one in target[field] if one not in value]


def _merge_list(kind: str, path: tuple[str, ...], target: Any, patch: list[Any]) -> list[Any]:
    key = merge_key(kind, path)
    rows: list[Any] = list(target) if isinstance(target, list) else []
    if key is None:
        return [one for one in patch if not (isinstance(one, dict) and "$patch" in one)]
    if key == "":
        return _ordered(rows + [one for one in patch if one not in rows], patch, rows, key)
    before = list(rows)
    if any(isinstance(one, dict) and one.get("$patch") == "replace" for one in patch):
        return [one for one in patch if not (isinstance(one, dict) and one.get("$patch") == "replace")]
    for item in patch:
        if not isinstance(item, dict) or key not in item:
            raise bad_request(f"map: {item} does not contain declared merge key: {key}")
        at = next((i for i, one in enumerate(rows) if isinstance(one, dict) and one.get(key) == item[key]), None)
        if item.get("$patch") == "delete":
            rows = [one for one in rows if not (isinstance(one, dict) and one.get(key) == item[key])]
        elif at is None:
            rows.append(_merge_object(kind, path, {}, item))
        else:
            rows[at] = _merge_object(kind, path, dict(rows[at]), item)
    named = [one for one in patch if one.get("$patch") != "delete"]
    return _ordered(rows, named, before, key)


def _ordered(rows: list[Any], order: list[Any], server: list[Any], key: str) -> list[Any]:
    """Return merged items as the real server orders them.

    Items that the patch names come in its order, the others in theirs; where the two meet, an item of the server goes
    first only if it stood before the other one on the server.
    """

    def identity(row: Any) -> Any:
        return row.get(key) if key and isinstance(row, dict) else row

    wanted = [identity(one) for one in order]
    present = {identity(row): row for row in rows}
    right = [present[one] for one in wanted if one in present]
    left = [row for row in rows if identity(row) not in wanted]
    rank = {identity(row): index for index, row in enumerate(server)}
    merged: list[Any] = []
    while left and right:
        one, other = rank.get(identity(left[0])), rank.get(identity(right[0]))
        first = one is not None and other is not None and one < other
        merged.append((left if first else right).pop(0))
    return merged + left + right
