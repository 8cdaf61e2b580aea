"""From a URL to what is asked: group, version, namespace, resource, name, sub-resource; and options from the query.

Decided here: how paths and queries are read and which are malformed. It must not know storage. Invariant: a query
parameter that is understood is either valid or a 400, never ignored.
"""

from __future__ import annotations

from dataclasses import dataclass

from scheduler.playground.api import WriteOptions
from scheduler.playground.errors import (
    ApiError,
    bad_request,
    field_forbidden,
    field_unsupported,
    invalid,
    no_such_path,
)
from scheduler.playground.kinds import Registry, Resource


@dataclass(slots=True)
class Target:
    """What a resource path names."""

    resource: Resource
    version: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""


@dataclass(slots=True)
class ListOptions:
    """What a list or watch asks for."""

    label_selector: str = ""
    field_selector: str = ""
    limit: int = 0
    token: str = ""
    resource_version: str = ""
    match: str = ""
    watch: bool = False
    bookmarks: bool = False
    initial_events: bool = False
    timeout: float | None = None

    @property
    def rv(self) -> int | None:
        """The resourceVersion as a number, None when not given."""
        return int(self.resource_version) if self.resource_version else None


class NoSuchGroup(Exception):
    """Nothing is registered for this group version; the answer is not even a Status."""


def parse_target(registry: Registry, path: str) -> Target:
    """Return the target of a path below /api/v1 or /apis/GROUP/VERSION; 404 when nothing is served there."""
    parts = [part for part in path.split("/") if part]
    if parts[0] == "api":
        if len(parts) < 3 or parts[1] != "v1":
            raise no_such_path()
        group, version, rest = "", "v1", parts[2:]
    else:
        if len(parts) < 4:
            raise no_such_path()
        group, version, rest = parts[1], parts[2], parts[3:]
    namespace = ""
    if (
        rest[0] == "namespaces"
        and len(rest) >= 3
        and not (len(rest) == 3 and rest[2] in ("status", "finalize") and not group)
    ):
        namespace, rest = rest[1], rest[2:]
    if not registry.serves(group, version):
        raise NoSuchGroup
    resource = registry.get(group, version, rest[0])
    if resource is None or len(rest) > 3:
        raise no_such_path()
    if namespace and not resource.namespaced:
        raise no_such_path()
    name = rest[1] if len(rest) > 1 else ""
    if name and resource.namespaced and not namespace:
        raise no_such_path()
    return Target(resource, version, namespace, name, rest[2] if len(rest) > 2 else "")


def _flag(query: dict[str, str], key: str) -> bool:
    text = query.get(key, "")
    if text.lower() in ("", "0", "false"):
        return False
    if text.lower() in ("1", "true", "t"):
        return True
    raise bad_request(f"strconv.ParseBool: parsing {text!r}: invalid syntax")


def _number(query: dict[str, str], key: str) -> int:
    text = query.get(key, "")
    if not text:
        return 0
    try:
        value = int(text)
    except ValueError:
        raise bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax') from None
    return value


def parse_list(query: dict[str, str]) -> ListOptions:
    """Return list or watch options."""
    options = ListOptions(
        label_selector=query.get("labelSelector", ""),
        field_selector=query.get("fieldSelector", ""),
        limit=max(0, _number(query, "limit")),
        token=query.get("continue", ""),
        resource_version=query.get("resourceVersion", ""),
        match=query.get("resourceVersionMatch", ""),
        watch=_flag(query, "watch"),
        bookmarks=_flag(query, "allowWatchBookmarks"),
        initial_events=_flag(query, "sendInitialEvents"),
        timeout=float(_number(query, "timeoutSeconds")) or None,
    )
    if options.resource_version and not options.resource_version.isdigit():
        value = options.resource_version
        text = f'resourceVersion: Invalid value: "{value}": strconv.ParseUint: parsing "{value}": invalid syntax'
        raise ApiError(500, "", text) if options.watch else bad_request(f"invalid resource version: {text}")
    if options.match not in ("", "Exact", "NotOlderThan"):
        raise _invalid_options(field_unsupported("resourceVersionMatch", options.match, ["Exact", "NotOlderThan", ""]))
    if options.watch:
        _check_watch(options, query)
    else:
        _check_list(options, query)
    return options


def _invalid_options(*causes: object) -> ApiError:
    return invalid("meta.k8s.io", "ListOptions", "", list(causes))  # type: ignore[arg-type]


def _check_watch(options: ListOptions, query: dict[str, str]) -> None:
    if "sendInitialEvents" in query and options.match != "NotOlderThan":
        text = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
        raise _invalid_options(field_forbidden("resourceVersionMatch", text))
    if options.match and "sendInitialEvents" not in query:
        text = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
        raise _invalid_options(field_forbidden("resourceVersionMatch", text))


def _check_list(options: ListOptions, query: dict[str, str]) -> None:
    if "sendInitialEvents" in query:
        raise _invalid_options(field_forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"))
    if options.match and not options.resource_version:
        text = "resourceVersionMatch is forbidden unless resourceVersion is provided"
        raise _invalid_options(field_forbidden("resourceVersionMatch", text))
    if options.match == "Exact" and options.resource_version == "0":
        text = 'resourceVersionMatch "exact" is forbidden for resourceVersion "0"'
        raise _invalid_options(field_forbidden("resourceVersionMatch", text))
    if options.token and options.resource_version not in ("", "0"):
        raise bad_request("specifying resource version is not allowed when using continue")


def parse_write(query: dict[str, str], user_agent: str) -> WriteOptions:
    """Return the options of a write."""
    validation = query.get("fieldValidation", "") or "Warn"
    if validation not in ("Ignore", "Warn", "Strict"):
        cause = field_unsupported("fieldValidation", validation, ["", "Ignore", "Strict", "Warn"])
        raise invalid("meta.k8s.io", "CreateOptions", "", [cause])
    dry_run = query.get("dryRun", "")
    if dry_run not in ("", "All"):
        cause = field_unsupported("dryRun", [dry_run], ["All"])
        raise invalid("meta.k8s.io", "CreateOptions", "", [cause])
    return WriteOptions(
        dry_run=bool(dry_run),
        given_manager=query.get("fieldManager", ""),
        field_manager=query.get("fieldManager", "") or user_agent.split("/", 1)[0] or "unknown",
        field_validation=validation,
        force=_flag(query, "force"),
    )
