"""What a command is asked about by name: the refusal where it is not there, and the resource that is counted."""

from __future__ import annotations

from scheduler.cli.output import NOT_FOUND
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
