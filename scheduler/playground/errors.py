"""Status answers of the API server: one exception that carries the body, code and headers a client sees.

Decided here: the wording, reason and details of every refusal, so that handlers only say what went wrong. It knows
nothing about requests or storage. Invariant: every `ApiError` serialises to a valid `v1.Status`.
"""

from __future__ import annotations

import json
from typing import Any, TypeAlias

Obj: TypeAlias = dict[str, Any]


class ApiError(Exception):
    """A refusal with the `Status` object that is sent to the client."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        *,
        details: Obj | None = None,
        retry_after: int | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details
        self.retry_after = retry_after

    def status(self) -> Obj:
        """Return the Status body."""
        body: Obj = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            body["reason"] = self.reason
        if self.details is not None or self.retry_after is not None:
            details = dict(self.details or {})
            if self.retry_after is not None:
                details["retryAfterSeconds"] = self.retry_after
            body["details"] = details
        body["code"] = self.code
        return body


def qualified(group: str, plural: str) -> str:
    """Return "pods" or "jobs.batch" as messages name a resource."""
    return f"{plural}.{group}" if group else plural


def _details(group: str, kind: str, name: str = "", uid: str = "", causes: list[Obj] | None = None) -> Obj:
    details: Obj = {}
    if name:
        details["name"] = name
    if group:
        details["group"] = group
    if kind:
        details["kind"] = kind
    if uid:
        details["uid"] = uid
    if causes:
        details["causes"] = causes
    return details


def not_found(group: str, plural: str, name: str) -> ApiError:
    """The named object does not exist."""
    return ApiError(
        404, "NotFound", f'{qualified(group, plural)} "{name}" not found', details=_details(group, plural, name)
    )


def no_such_path() -> ApiError:
    """No resource is served at this path."""
    return ApiError(404, "NotFound", "the server could not find the requested resource", details={})


def already_exists(group: str, plural: str, name: str, leaving: bool = False) -> ApiError:
    """Create of a name that is taken, perhaps by an object that is being deleted."""
    prefix = "object is being deleted: " if leaving else ""
    return ApiError(
        409,
        "AlreadyExists",
        f'{prefix}{qualified(group, plural)} "{name}" already exists',
        details=_details(group, plural, name),
    )


def conflict(group: str, plural: str, name: str, why: str) -> ApiError:
    """The write lost a race or a precondition does not hold."""
    return ApiError(
        409,
        "Conflict",
        f'Operation cannot be fulfilled on {qualified(group, plural)} "{name}": {why}',
        details=_details(group, plural, name),
    )


MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"


def precondition(kind: str, name: str, field: str, wanted: str, found: str) -> ApiError:
    """A uid or resourceVersion precondition of a delete does not hold."""
    hint = "deleted and then recreated" if field == "UID" else "modified"
    return conflict(
        "",
        kind,
        name,
        f"the {field} in the precondition ({wanted}) does not match the {field} in record ({found}). "
        f"The object might have been {hint}",
    )


def stale_uid(group: str, plural: str, key: tuple[str, str], wanted: str, found: str) -> ApiError:
    """An update names another uid."""
    place = f"{group}/{plural}" if group else plural
    text = (
        f"StorageError: invalid object, Code: 4, Key: /registry/{place}/{'/'.join(part for part in key if part)}, "
        f"ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: {wanted}, "
        f"UID in object meta: {found}"
    )
    return conflict(group, plural, key[1], text)


class Undecodable(ApiError):
    """The body does not decode into its kind (400; inside a patch 422)."""

    def __init__(self, message: str) -> None:
        super().__init__(400, "BadRequest", message)


def bad_request(message: str) -> ApiError:
    """The request cannot be understood."""
    return ApiError(400, "BadRequest", message)


def forbidden(group: str, plural: str, name: str, why: str) -> ApiError:
    """Admission refuses the write."""
    return ApiError(
        403,
        "Forbidden",
        f'{qualified(group, plural)} "{name}" is forbidden: {why}',
        details=_details(group, plural, name),
    )


def method_not_allowed() -> ApiError:
    """The resource does not support this verb."""
    return ApiError(
        405, "MethodNotAllowed", "the server does not allow this method on the requested resource", details={}
    )


def unsupported_patch() -> ApiError:
    """The patch has a content type that the resource does not take."""
    return ApiError(415, "UnsupportedMediaType", "415: Unsupported Media Type", details={})


def unsupported_media(accepted: list[str]) -> ApiError:
    """The body has a content type that this verb does not take."""
    return ApiError(
        415,
        "UnsupportedMediaType",
        "the body of the request was in an unknown format - accepted media types include: " + ", ".join(accepted),
    )


def not_acceptable(offered: str) -> ApiError:
    """No representation that the client accepts can be produced."""
    text = f"406: Not Acceptable\n\nAvailable representations: {offered}"
    return ApiError(406, "NotAcceptable", text, details={})


def gone(message: str) -> ApiError:
    """The resourceVersion or continue token is too old."""
    return ApiError(410, "Expired", message)


def too_large_version(asked: int, current: int) -> ApiError:
    """The client asks for a state that does not exist yet."""
    return ApiError(
        504,
        "Timeout",
        f"Too large resource version: {asked}, current: {current}",
        details={"causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]},
        retry_after=1,
    )


class Cause:
    """One field error of a 422."""

    __slots__ = ("field", "message", "reason")

    def __init__(self, reason: str, field: str, message: str) -> None:
        self.reason = reason
        self.field = field
        self.message = message


def _quote(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    return json.dumps(value, separators=(",", ":"))


def field_invalid(field: str, value: Any, why: str) -> Cause:
    """A value that breaks a rule."""
    return Cause("FieldValueInvalid", field, f"Invalid value: {_quote(value)}: {why}")


def field_type(field: str, value: Any, why: str) -> Cause:
    """A value of the wrong JSON type."""
    return Cause("FieldValueTypeInvalid", field, f"Invalid value: {_quote(value)}: {why}")


def field_required(field: str, why: str = "") -> Cause:
    """A value that is missing."""
    return Cause("FieldValueRequired", field, f"Required value: {why}" if why else "Required value")


def field_duplicate(field: str, value: Any) -> Cause:
    """A list key that appears twice."""
    return Cause("FieldValueDuplicate", field, f"Duplicate value: {_quote(value)}")


def field_forbidden(field: str, why: str) -> Cause:
    """A value that may not be set here."""
    return Cause("FieldValueForbidden", field, f"Forbidden: {why}")


def field_unsupported(field: str, value: Any, supported: list[str]) -> Cause:
    """A value outside an enumeration."""
    names = ", ".join(_quote(one) for one in supported)
    return Cause("FieldValueNotSupported", field, f"Unsupported value: {_quote(value)}: supported values: {names}")


def field_too_many(field: str, count: int, limit: int) -> Cause:
    """A list with too many items."""
    return Cause("FieldValueTooMany", field, f"Too many: {count}: must have at most {limit} items")


def field_too_long(field: str, limit: int) -> Cause:
    """A string that is too long."""
    return Cause("FieldValueTooLong", field, f"Too long: may not be more than {limit} bytes")


def invalid(group: str, kind: str, name: str, causes: list[Cause]) -> ApiError:
    """The object breaks validation: one message and one cause per field."""
    texts = list(dict.fromkeys(f"{cause.field}: {cause.message}" for cause in causes))
    text = texts[0] if len(texts) == 1 else "[" + ", ".join(texts) + "]"
    rows = [{"reason": cause.reason, "message": cause.message, "field": cause.field} for cause in causes]
    return ApiError(
        422,
        "Invalid",
        f'{qualified(group, kind)} "{name}" is invalid: {text}',
        details=_details(group, kind, name, causes=rows),
    )
