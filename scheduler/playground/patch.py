"""JSON patch (RFC 6902) and JSON merge patch (RFC 7386).

Decided here: what those two documents do to an object, and the answer to a document that cannot be applied. It knows
no kinds. Invariant: the object that is passed in may be changed; callers pass a copy.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import structlog

from scheduler.playground.errors import ApiError, Obj, bad_request

log = structlog.get_logger("muster.playground")


def merge_patch(target: Any, patch: Any) -> Any:
    """Apply a JSON merge patch."""
    if not isinstance(patch, dict):
        return patch
    if not isinstance(target, dict):
        target = {}
    for key, value in patch.items():
        if value is None:
            target.pop(key, None)
        elif isinstance(value, dict):
            target[key] = merge_patch(target.get(key), value)
        else:
            target[key] = value
    return target


def _unprocessable(why: str) -> ApiError:
    """Return the 422 of a patch that does not fit; the real server does not say why either, but its log does."""
    log.debug("json patch does not fit", why=why)
    text = "the server rejected our request due to an error in our request"
    return ApiError(422, "Invalid", text, details={})


def _tokens(pointer: Any) -> list[str]:
    if not isinstance(pointer, str) or (pointer and not pointer.startswith("/")):
        raise bad_request(f"json patch: {pointer!r} is not a JSON pointer")
    return [part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:]]


def _index(token: str, size: int, *, append: bool) -> int:
    if token == "-" and append:
        return size
    try:
        index = int(token)
    except ValueError:
        raise _unprocessable(f"{token!r} is not an index") from None
    if index < 0 or index > size or (index == size and not append):
        raise _unprocessable(f"index {token} is out of range")
    return index


def _get(doc: Any, tokens: list[str]) -> Any:
    for token in tokens:
        if isinstance(doc, dict):
            if token not in doc:
                raise _unprocessable(f"path /{'/'.join(tokens)} does not exist")
            doc = doc[token]
        elif isinstance(doc, list):
            doc = doc[_index(token, len(doc), append=False)]
        else:
            raise _unprocessable(f"path /{'/'.join(tokens)} does not exist")
    return doc


def _add(doc: Any, tokens: list[str], value: Any) -> Any:
    if not tokens:
        return value
    parent = _get(doc, tokens[:-1])
    if isinstance(parent, dict):
        parent[tokens[-1]] = value
    elif isinstance(parent, list):
        parent.insert(_index(tokens[-1], len(parent), append=True), value)
    else:
        raise _unprocessable(f"path /{'/'.join(tokens)} does not exist")
    return doc


def _remove(doc: Any, tokens: list[str]) -> Any:
    if not tokens:
        return None
    parent = _get(doc, tokens[:-1])
    last = tokens[-1]
    if isinstance(parent, dict):
        if last not in parent:
            raise _unprocessable(f"path /{'/'.join(tokens)} does not exist")
        del parent[last]
    elif isinstance(parent, list):
        del parent[_index(last, len(parent), append=False)]
    else:
        raise _unprocessable(f"path /{'/'.join(tokens)} does not exist")
    return doc


def json_patch(doc: Obj, operations: Any) -> Any:
    """Apply a JSON patch; 400 when it is malformed, 422 when it does not fit the object."""
    if not isinstance(operations, list):
        raise bad_request("json patch: the document must be a list of operations")
    for row in operations:
        if not isinstance(row, dict) or "op" not in row or "path" not in row:
            raise bad_request("json patch: every operation needs op and path")
        operation, tokens = row["op"], _tokens(row["path"])
        if operation in ("add", "replace", "test") and "value" not in row:
            raise bad_request(f"json patch: operation {operation} needs a value")
        if operation == "add":
            doc = _add(doc, tokens, row["value"])
        elif operation == "remove":
            doc = _remove(doc, tokens)
        elif operation == "replace":
            # The real server lets `replace` add a key that an object lacks; a list must have the index.
            if tokens and isinstance(_get(doc, tokens[:-1]), list):
                doc = _remove(doc, tokens)
            doc = _add(doc, tokens, row["value"])
        elif operation == "test":
            if _get(doc, tokens) != row["value"]:
                raise _unprocessable(f"testing value {row['path']} failed")
        elif operation in ("move", "copy"):
            source = _tokens(row.get("from"))
            value = deepcopy(_get(doc, source))
            if operation == "move":
                doc = _remove(doc, source)
            doc = _add(doc, tokens, value)
        else:
            raise _unprocessable(f"unknown operation {operation!r}")
    return doc
