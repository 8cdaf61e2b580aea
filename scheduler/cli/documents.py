"""Files of manifests as the objects that are in them, as kubectl would send them.

Decided here: what is read as an object: a document with a kind, and each item of a list; and that what looks like a
date is text, because JSON has no dates. Not known here: which kinds there are.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import yaml

from scheduler.cli.workloads import Unusable

Json = dict[str, Any]
_TIMESTAMP = "tag:yaml.org,2002:timestamp"


class _Loader(yaml.SafeLoader):
    """Knows no dates."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in known if tag != _TIMESTAMP]
    for first, known in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def documents_of(files: Iterable[Path]) -> Iterator[Json]:
    """Yield the objects of files (`-` is standard input), those of lists one by one. Raises `Unusable`, `OSError`."""
    for file in files:
        content = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
        try:
            found = [one for one in yaml.load_all(content.decode(), _Loader) if one is not None]
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            raise Unusable(f"{file}: not YAML: {error}") from error
        for number, document in enumerate(found, 1):
            yield from _objects(document, str(file) if len(found) == 1 else f"{file}: document {number}")


def _objects(document: object, where: str) -> Iterator[Json]:
    """Yield an object, or those of a list. Raises `Unusable`."""
    if not isinstance(document, dict) or not isinstance(document.get("kind"), str):
        raise Unusable(f"{where}: a document is not an object with a kind, {_shown(document)}")
    kind, items = document["kind"], document.get("items")
    if kind != "List" and not (kind.endswith("List") and isinstance(items, list)):
        yield _plain(document, where)
        return
    if not isinstance(items, list | None):
        raise Unusable(f"{where}: items of a List must be a list")
    for number, item in enumerate(items or []):
        yield from _objects(item, f"{where}: items[{number}]")


def _shown(document: object) -> str:
    """Return what is there in place of an object."""
    if isinstance(document, dict):
        return f"it has {', '.join(map(str, list(document)[:5])) or 'nothing'}"
    return f"it is {'a list' if isinstance(document, list) else repr(document)[:60]}"


def _plain(document: Json, where: str) -> Json:
    """Return the document as it comes out of JSON. Raises `Unusable` for what JSON cannot say (sets, bytes, cycles)."""
    try:
        plain: Json = json.loads(json.dumps(document, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise Unusable(f"{where}: {document['kind']} cannot be written as JSON: {error}") from error
    return plain
