"""What a command is asked about by name: the refusal where it is not there, and the resource that is counted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from scheduler.cli.output import NOT_FOUND, USAGE
from scheduler.framework.floorplan import main_resource
from scheduler.framework.session import Session
from scheduler.model.hints import near


class Refused(Exception):
    """What was asked for is not there; with the exit code."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


def resource_of(session: Session, resource: str | None) -> str:
    """Return the resource that is meant: by its name, or by the last part of it. Raises `Refused`."""
    known = session.table.resources
    if resource is not None and resource not in known:
        alike = [one for one in known if one.rpartition("/")[2] == resource]
        if len(alike) == 1:
            return alike[0]
        raise Refused(NOT_FOUND, f"no node has the resource {resource}{near(resource, known)}")
    chosen = resource or main_resource(session)
    if chosen not in known:
        raise Refused(NOT_FOUND, "there is no node")
    return chosen


_WORDS = frozenset({"pod", "group", "queue", "node"})
"""Words for kinds: where a command does not take one, it is taken for no namespace either."""


@dataclass(frozen=True, slots=True)
class Target:
    """What a command is about. namespace: None where nobody says it."""

    kind: str
    namespace: str | None
    name: str


def target_of(text: str, namespace: str | None, kinds: Mapping[str, str], forms: str) -> Target:
    """Return what NAME, NAMESPACE/NAME or either behind KIND/ means.

    namespace: of the option. kinds: by the word for it, "" for none. forms: what may be written. Raises `Refused`.
    """
    parts = text.split("/")
    kind = kinds[parts.pop(0) if len(parts) > 1 and parts[0] and parts[0] in kinds else ""]
    if len(parts) > 2 or not all(parts) or (len(parts) > 1 and parts[0] in _WORDS):
        raise Refused(USAGE, f"{text}: write {forms}")
    where = parts[0] if len(parts) > 1 else namespace
    if namespace is not None and where != namespace:
        raise Refused(USAGE, f"{text}: --namespace says {namespace}")
    return Target(kind, where, parts[-1])
