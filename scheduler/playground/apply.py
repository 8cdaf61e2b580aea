"""Server-side apply: who owns which field, and what an applied configuration changes.

Decided here: merging, conflicts, pruning of fields that nobody applies any more, and managedFields. Objects have
managedFields only from their first apply on: what was written before belongs to `before-first-apply`, as for objects
older than this feature on a real cluster. It must not know HTTP. Invariant: a field is removed only when the manager
that drops it was its last owner.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from scheduler.playground.api import Api, WriteOptions
from scheduler.playground.errors import ApiError, Obj, bad_request, field_required, invalid
from scheduler.playground.fields import (
    BuiltinTyping,
    FieldSet,
    SchemaTyping,
    Typing,
    field_set,
    from_fields_v1,
    merge,
    remove_at,
    show,
    to_fields_v1,
    value_at,
)
from scheduler.playground.kinds import Resource
from scheduler.playground.metadata import now
from scheduler.playground.storage import Stored, decode

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_BEFORE = "before-first-apply"
_CLIENT_SIDE = frozenset({_BEFORE, "kubectl-client-side-apply"})
_STRIPPED = frozenset(
    {
        ("f:apiVersion",),
        ("f:kind",),
        ("f:metadata",),
        *(
            ("f:metadata", f"f:{name}")
            for name in (
                "name",
                "namespace",
                "creationTimestamp",
                "selfLink",
                "uid",
                "generation",
                "resourceVersion",
                "managedFields",
                "deletionTimestamp",
                "deletionGracePeriodSeconds",
                "generateName",
            )
        ),
    }
)


@dataclass(slots=True)
class Manager:
    """One entry of managedFields."""

    name: str
    operation: str
    version: str
    subresource: str
    fields: FieldSet
    time: str

    def entry(self) -> Obj:
        """Return the managedFields entry."""
        row: Obj = {
            "manager": self.name,
            "operation": self.operation,
            "apiVersion": self.version,
            "time": self.time,
            "fieldsType": "FieldsV1",
            "fieldsV1": to_fields_v1(self.fields),
        }
        if self.subresource:
            row["subresource"] = self.subresource
        return row


def typing_of(resource: Resource, version: str) -> Typing:
    """Return the types of a resource's objects."""
    if resource.crd is not None:
        return SchemaTyping(resource.crd.schemas.get(version) or {}, root=True)
    return BuiltinTyping(resource.kind)


def _owned(obj: Obj, typing: Typing) -> FieldSet:
    return {path: None for path in field_set(obj, typing) if path not in _STRIPPED}


def _managers(obj: Obj) -> list[Manager]:
    return [
        Manager(
            row.get("manager", ""),
            row.get("operation", ""),
            row.get("apiVersion", ""),
            row.get("subresource", ""),
            from_fields_v1(row.get("fieldsV1") or {}),
            row.get("time") or now(),
        )
        for row in obj["metadata"].get("managedFields") or ()
    ]


def _set_managers(obj: Obj, managers: list[Manager]) -> None:
    rows = [one.entry() for one in managers if one.fields]
    if rows:
        obj["metadata"]["managedFields"] = rows
    else:
        obj["metadata"].pop("managedFields", None)


def apply(
    api: Api,
    resource: Resource,
    version: str,
    namespace: str,
    name: str,
    subresource: str,
    config: Any,
    options: WriteOptions,
) -> tuple[Stored, bool]:
    """Apply a configuration; return the object and whether it was created."""
    if not options.given_manager:
        cause = field_required("fieldManager", "is required for apply patch")
        raise invalid("meta.k8s.io", "PatchOptions", "", [cause])
    config = api.check_identity(resource, version, namespace, config, name)
    if config["metadata"].get("managedFields") is not None:
        raise bad_request("metadata.managedFields must be nil")
    typing = typing_of(resource, version)
    wanted = _owned(config, typing)
    full = resource.api_version(version)
    mine = Manager(options.field_manager, "Apply", full, subresource, wanted, now())
    stored = api.collection(resource).get(namespace, name)
    if stored is None:
        if subresource:
            api.get(resource, namespace, name)
        if config["metadata"].get("uid"):
            raise ApiError(
                409,
                "Conflict",
                f"uid mismatch: the provided object specified uid {config['metadata']['uid']}, "
                "and no existing object was found",
            )
        config["metadata"].pop("managedFields", None)
        return _create(api, resource, version, namespace, config, mine, options), True
    live = api.view(resource, version, stored.copy())
    managers = _managers(live) or [
        Manager(_BEFORE, "Update", full, "", _owned(live, typing), now()),
    ]
    present = next((one for one in managers if _same(one, mine)), None)
    others = [one for one in managers if one is not present]
    _settle_conflicts(live, config, typing, wanted, others, options)
    merged = merge(live, config, typing)
    if present is not None:
        still = {path for one in others for path in one.fields}
        for path in sorted(present.fields, key=len, reverse=True):
            if path not in wanted and path not in still and not _within(path, wanted, still):
                remove_at(merged, typing, path)
        if present.fields == wanted and merged == live:
            mine.time = present.time
    _set_managers(merged, [*others, mine])
    options.managed = True
    return api.update(resource, version, namespace, name, merged, options, subresource, patched=True), False


def _within(path: tuple[str, ...], wanted: FieldSet, still: set[tuple[str, ...]]) -> bool:
    """Tell whether the path became a prefix of something that is still owned ({} that now has content)."""
    if path and path[-1] == ".":
        path = path[:-1]
        return any(one[: len(path)] == path for one in (*wanted, *still))
    return any(one[: len(path)] == path for one in wanted)


def _same(one: Manager, other: Manager) -> bool:
    return (one.name, one.operation, one.subresource) == (other.name, other.operation, other.subresource)


def _create(
    api: Api, resource: Resource, version: str, namespace: str, config: Obj, mine: Manager, options: WriteOptions
) -> Stored:
    config["metadata"]["managedFields"] = [mine.entry()]
    options.managed = True
    return api.create(resource, version, namespace, config, options)


def _settle_conflicts(
    live: Obj, config: Obj, typing: Typing, wanted: FieldSet, others: list[Manager], options: WriteOptions
) -> None:
    """Raise 409 for fields that others own with another value, or take them when forced."""
    changed = {
        path for path in wanted if path[-1] != "." and value_at(live, typing, path) != value_at(config, typing, path)
    }
    conflicts = [(one, [path for path in one.fields if path in changed]) for one in others]
    conflicts = [(one, paths) for one, paths in conflicts if paths]
    if not options.force:
        text = (live["metadata"].get("annotations") or {}).get(LAST_APPLIED)
        applied = _owned(decode(text.encode()), typing) if text and options.field_manager == "kubectl" else {}
        # kubectl moves an object from client-side to server-side apply: what it applied before is its own.
        real = [
            (one, [p for p in paths if not (one.name in _CLIENT_SIDE and p in applied)]) for one, paths in conflicts
        ]
        real = [(one, paths) for one, paths in real if paths]
        if real:
            raise _conflict(real)
    for one, paths in conflicts:
        for path in paths:
            del one.fields[path]


def _conflict(conflicts: list[tuple[Manager, list[tuple[str, ...]]]]) -> ApiError:
    causes: list[Obj] = []
    texts: list[str] = []
    count = sum(len(paths) for _, paths in conflicts)
    for one, paths in sorted(conflicts, key=lambda row: row[0].name):
        using = f'"{one.name}"'
        if one.subresource:
            using += f' with subresource "{one.subresource}"'
        if one.operation != "Apply":
            using += f" using {one.version}"
        message = f"conflict with {using}"
        causes += [{"reason": "FieldManagerConflict", "message": message, "field": show(path)} for path in paths]
        if count == 1:
            texts.append(f"conflict with {using}: {show(paths[0])}")
        else:
            texts.append(f"conflicts with {using}:\n" + "\n".join(f"- {show(path)}" for path in paths))
    causes.sort(key=lambda cause: str(cause["field"]))
    plural = "conflict" if count == 1 else "conflicts"
    message = f"Apply failed with {count} {plural}: " + "\n".join(texts)
    return ApiError(409, "Conflict", message, details={"causes": causes})


def track(resource: Resource, version: str, old: Obj, new: Obj, manager: str, subresource: str) -> None:
    """Note in `new` who changed what by a write that was not an apply, for objects that were ever applied."""
    before = old["metadata"].get("managedFields")
    given = new["metadata"].get("managedFields")
    if not before:
        new["metadata"].pop("managedFields", None)
        return
    if given == [{}]:
        # The documented way for a client to forget all managers.
        new["metadata"].pop("managedFields", None)
        return
    new["metadata"]["managedFields"] = before
    if old == new:
        return
    typing = typing_of(resource, version)
    was, now_ = _owned(old, typing), _owned(new, typing)
    changed = {p: None for p in now_ if p not in was or value_at(old, typing, p) != value_at(new, typing, p)}
    removed = {path for path in was if path not in now_}
    if not changed and not removed:
        return
    managers = _managers(old)
    mine = Manager(manager, "Update", resource.api_version(version), subresource, {}, now())
    present = next((one for one in managers if _same(one, mine)), None)
    if present is None:
        managers.append(mine)
    else:
        mine = present
        mine.time = now()
    for one in managers:
        for path in [path for path in one.fields if path in removed or (one is not mine and path in changed)]:
            del one.fields[path]
    mine.fields.update(changed)
    _set_managers(new, managers)
