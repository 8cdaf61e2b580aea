"""What a client gets to see of an object: whole, metadata only, or as rows of a table.

Decided here: content negotiation and the bytes of each representation. It must not know verbs. Invariant: the same
object, version and representation give the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from scheduler.playground.api import Api
from scheduler.playground.errors import Obj, not_acceptable
from scheduler.playground.kinds import Resource
from scheduler.playground.storage import Stored, encode
from scheduler.playground.table import table_columns, table_row

PLAIN, TABLE, PARTIAL = "json", "table", "partial"


def negotiate(accept: str) -> str:
    """Return the first representation of an Accept header that is served; 406 when there is none."""
    if not accept:
        return PLAIN
    for part in accept.split(","):
        fields = [field.strip() for field in part.split(";")]
        media, options = fields[0], dict(field.split("=", 1) for field in fields[1:] if "=" in field)
        if media not in ("application/json", "*/*", "application/*"):
            continue
        wanted = options.get("as", "")
        if not wanted:
            return PLAIN
        if options.get("g", "meta.k8s.io") != "meta.k8s.io" or options.get("v", "v1") not in ("v1", "v1beta1"):
            continue
        if wanted == "Table":
            return TABLE
        if wanted in ("PartialObjectMetadata", "PartialObjectMetadataList"):
            return PARTIAL
    raise not_acceptable("application/json, application/yaml, application/vnd.kubernetes.protobuf")


def partial(obj: Obj) -> Obj:
    """Return the metadata of an object as PartialObjectMetadata."""
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": obj["metadata"]}


class Renderer:
    """Renders objects of one resource in one version and representation."""

    def __init__(self, api: Api, resource: Resource, version: str, form: str, include: str = "") -> None:
        self.api = api
        self.resource = resource
        self.version = version
        self.form = form
        self.include = include or "Metadata"
        self._headed = False

    def one(self, stored: Stored) -> bytes:
        """Return one object."""
        if self.form == PLAIN:
            return self.api.raw(self.resource, self.version, stored)
        if self.form == PARTIAL:
            return encode(partial(stored.obj))
        return encode(self._table([stored], str(stored.rv), heads=True))

    def watch_line(self, kind: str, stored: Stored) -> bytes:
        """Return the object of a watch event; a table names its columns once."""
        if self.form != TABLE:
            return self.one(stored)
        body = encode(self._table([stored], str(stored.rv), heads=not self._headed))
        self._headed = True
        return body

    def many(self, rows: Iterable[Stored], metadata: Obj) -> bytes:
        """Return a list."""
        if self.form == TABLE:
            table = self._table(list(rows), metadata.get("resourceVersion", ""), heads=True)
            table["metadata"] = metadata
            return encode(table)
        if self.form == PARTIAL:
            items = [encode(partial(stored.obj)) for stored in rows]
            head: Obj = {"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": metadata}
        else:
            items = [self.api.raw(self.resource, self.version, stored) for stored in rows]
            head = {
                "kind": self.list_kind,
                "apiVersion": self.resource.api_version(self.version),
                "metadata": metadata,
            }
        return encode(head)[:-1] + b',"items":[' + b",".join(items) + b"]}"

    @property
    def list_kind(self) -> str:
        """Kind of a list of these objects."""
        return str(self.resource.crd.list_kind) if self.resource.crd else self.resource.kind + "List"

    def _table(self, rows: list[Stored], version: str, *, heads: bool) -> Obj:
        body: Obj = {"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": {"resourceVersion": version}}
        columns = table_columns(self.resource, self.version)
        body["columnDefinitions"] = columns if heads else []
        body["rows"] = [self._row(stored) for stored in rows]
        return body

    def _row(self, stored: Stored) -> Obj:
        obj = self.api.view(self.resource, self.version, stored.obj)
        row: Obj = {"cells": table_row(self.resource, self.version, obj)}
        shown: Any = obj if self.include == "Object" else partial(obj) if self.include == "Metadata" else None
        row["object"] = shown
        return row
