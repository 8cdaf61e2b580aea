"""Object metadata as every decoder reads it, and the error for an object that cannot be read at all.

Decided here: which metadata is kept and how timestamps become seconds. It does not know what any label or annotation
means. Labels and annotations are read as structs, so that the ones nobody asked for are skipped, not built.
"""

from __future__ import annotations

from datetime import datetime
from functools import lru_cache
from typing import Annotated

import msgspec

Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
"""A number of an object. JSON knows larger ones, the API does not, and nothing after the decoders expects any."""


class Undecodable(ValueError):
    """An object whose JSON does not have the types of its kind; the message names the object and the field."""


class Identity(msgspec.Struct, gc=False, rename="camel"):
    """Who an object is; what reads objects adds the labels and annotations in the form that it needs."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: Int64 = 0
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None


class OwnerReference(msgspec.Struct, gc=False, rename="camel"):
    """One owner; at most one of them is the controller."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None


class _Naming(msgspec.Struct, gc=False):
    name: str = ""
    namespace: str = ""


class _Named(msgspec.Struct, gc=False):
    kind: str = ""
    metadata: _Naming | None = None


_naming = msgspec.json.Decoder(_Named)


def undecodable(kind: str, raw: bytes | msgspec.Raw, cause: Exception) -> Undecodable:
    """Return the error for an object, with as much of its name as can still be read."""
    try:
        named = _naming.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return Undecodable(f"{kind} of unknown name: {cause}")
    metadata = named.metadata or _Naming()
    place = f"{metadata.namespace}/{metadata.name}" if metadata.namespace else metadata.name
    return Undecodable(f"{kind} {place or 'of unknown name'}: {cause}")


@lru_cache(maxsize=8192)
def seconds(timestamp: str | None) -> float:
    """Return an RFC 3339 timestamp as seconds since the epoch; 0.0 when it is absent or cannot be read."""
    if not timestamp:
        return 0.0
    try:
        return datetime.fromisoformat(timestamp).timestamp()
    except ValueError:
        return 0.0
