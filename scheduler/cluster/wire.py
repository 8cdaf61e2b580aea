"""What lists and watch streams look like around the objects in them, and the little that every object has.

Decided here: what is read of an object when its kind does not matter. Objects stay undecoded (`msgspec.Raw`), so that
one that cannot be read leaves the others alone.
"""

from __future__ import annotations

from typing import Any

import msgspec

METADATA_WATCH = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
METADATA_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
"""Accept headers that ask for metadata only; a server that does not know them sends whole objects."""
INITIAL_EVENTS_END = "k8s.io/initial-events-end"
"""The annotation of the bookmark that ends a streaming list."""


class Meta(msgspec.Struct, gc=False, rename="camel"):
    """Of any object."""

    uid: str = ""
    name: str = ""
    namespace: str = ""
    resource_version: str = ""
    annotations: dict[str, Any] | None = None


class _Head(msgspec.Struct, gc=False):
    metadata: Meta


class ListMeta(msgspec.Struct, gc=False, rename="camel"):
    """Of a page."""

    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class Page(msgspec.Struct, gc=False):
    """A page of a list."""

    metadata: ListMeta
    items: list[msgspec.Raw] | None = None


class WatchEvent(msgspec.Struct, gc=False):
    """A line of a watch."""

    type: str
    object: msgspec.Raw


class FailureDetails(msgspec.Struct, gc=False, rename="camel"):
    """Of a Status."""

    retry_after_seconds: float | None = None


class Failure(msgspec.Struct, gc=False):
    """The Status in an ERROR event."""

    code: int | None = None
    reason: str | None = None
    message: str | None = None
    details: FailureDetails | None = None


_decode_head = msgspec.json.Decoder(_Head).decode
decode_page = msgspec.json.Decoder(Page).decode
decode_event = msgspec.json.Decoder(WatchEvent).decode
decode_failure = msgspec.json.Decoder(Failure).decode


def head(raw: bytes | msgspec.Raw) -> Meta:
    """Return an object's metadata. Raises `msgspec.DecodeError` or `UnicodeDecodeError`."""
    return _decode_head(raw).metadata
