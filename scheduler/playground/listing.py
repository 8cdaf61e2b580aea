"""Lists and watches: paging that is consistent, and streams that stay open.

Decided here: what a list returns for a resourceVersion, limit and continue token, and how long a watch lives. It must
not know writes. Invariant: the pages of one list show one state, or the client is told 410.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import random
from bisect import bisect_left
from collections.abc import Callable

import msgspec
from aiohttp import web

from scheduler.playground import crds
from scheduler.playground.api import Api
from scheduler.playground.errors import Obj, bad_request, gone, too_large_version
from scheduler.playground.render import PLAIN, Renderer
from scheduler.playground.requests import ListOptions, Target
from scheduler.playground.selectors import Match, combine, exact_name, field_selector, label_selector
from scheduler.playground.storage import Collection, Key, Stored, decode, encode
from scheduler.playground.watch import Watcher, bookmark_object, event_line

_CHUNK = 1 << 20


def selection(target: Target, options: ListOptions) -> Match | None:
    """Return the test of the two selectors; 400 when one is malformed."""
    extra = crds.selectable_fields(target.resource, target.version)
    return combine(
        label_selector(options.label_selector) if options.label_selector else None,
        field_selector(options.field_selector, target.resource.storage, target.resource.group, extra)
        if options.field_selector
        else None,
    )


def encode_token(rv: int, key: Key) -> str:
    """Return a continue token."""
    body = encode({"v": "meta.k8s.io/v1", "rv": rv, "start": f"{key[0]}/{key[1]}"})
    return base64.urlsafe_b64encode(body).decode().rstrip("=")


def decode_token(token: str) -> tuple[int, Key]:
    """Return the version and last key of a continue token."""
    try:
        body = decode(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
        namespace, _, name = body["start"].partition("/")
        return int(body["rv"]), (namespace, name)
    except (binascii.Error, msgspec.DecodeError, KeyError, TypeError, ValueError, AttributeError):
        raise bad_request("invalid continue token: continue key is not valid: the token cannot be decoded") from None


def _rows(api: Api, collection: Collection, options: ListOptions) -> tuple[int, list[Stored], Key | None]:
    """Return (version of the list, all its rows, key after which the page starts)."""
    current = api.store.rv
    if options.token:
        rv, start = decode_token(options.token)
        return rv, collection.at(rv), start
    asked = options.rv or 0
    exact = options.match == "Exact" or (options.limit and asked and not options.match)
    if asked > current:
        raise too_large_version(asked, current)
    if exact and asked:
        if asked < collection.compacted:
            raise gone("The resourceVersion for the provided list is too old.")
        return asked, collection.at(asked), None
    return current, collection.ordered(), None


def page(api: Api, target: Target, options: ListOptions, renderer: Renderer) -> bytes:
    """Return one page of a list."""
    collection = api.collection(target.resource)
    match = selection(target, options)
    rv, rows, start = _rows(api, collection, options)
    low, high = 0, len(rows)
    if target.namespace:
        low = bisect_left(rows, (target.namespace, ""), key=_key)
        high = bisect_left(rows, (target.namespace + "\0", ""), key=_key)
    if start is not None:
        low = max(low, bisect_left(rows, (start[0], start[1] + "\0"), key=_key))
    metadata: Obj = {"resourceVersion": str(rv)}
    name = exact_name(options.field_selector) if options.field_selector and not options.token else None
    if name is not None and target.namespace and rv == api.store.rv:
        stored = collection.get(target.namespace, name)
        rows, low, high = ([stored], 0, 1) if stored is not None else ([], 0, 0)
    chosen: list[Stored] = []
    if match is None and not options.limit:
        chosen = rows[low:high]
    else:
        for index in range(low, high):
            stored = rows[index]
            if match is not None and not match(stored.obj):
                continue
            if options.limit and len(chosen) == options.limit:
                metadata["continue"] = encode_token(rv, chosen[-1].key)
                if match is None:
                    metadata["remainingItemCount"] = high - index
                break
            chosen.append(stored)
    return renderer.many(chosen, metadata)


def _key(stored: Stored) -> Key:
    return stored.key


def select(api: Api, target: Target, options: ListOptions) -> list[Stored]:
    """Return the present objects that a deletecollection names."""
    match = selection(target, options)
    rows = api.collection(target.resource).in_namespace(target.namespace)
    return [stored for stored in rows if match is None or match(stored.obj)]


def open_watch(
    api: Api,
    target: Target,
    options: ListOptions,
    renderer: Renderer,
    max_buffer: int,
    view_id: Callable[[Renderer], int],
) -> Watcher:
    """Return a started watcher."""
    match = selection(target, options)
    view = view_id(renderer) if renderer.form == PLAIN else 0
    watcher = Watcher(api.collection(target.resource), target.namespace, match, renderer.watch_line, view, max_buffer)

    version = target.resource.api_version(target.version)
    end = encode(bookmark_object(version, target.resource.kind, api.store.rv, True)) if options.bookmarks else None
    watcher.start(options.rv, options.initial_events, end)
    return watcher


async def stream(
    request: web.BaseRequest, api: Api, target: Target, options: ListOptions, watcher: Watcher, bookmark_interval: float
) -> web.StreamResponse:
    """Write a watcher's lines until it ends, the client leaves or the time is over."""
    response = web.StreamResponse(headers={"Content-Type": "application/json", "Cache-Control": "no-cache, private"})
    response.enable_chunked_encoding()
    transport = request.transport
    if transport is not None:
        watcher.on_abort = transport.abort
    loop = asyncio.get_running_loop()
    started = loop.time()
    deadline = started + (options.timeout or random.uniform(1800, 3600))
    next_bookmark = started + bookmark_interval
    try:
        await response.prepare(request)
        while True:
            while watcher.pending:
                data = watcher.take()
                for at in range(0, len(data), _CHUNK):
                    await response.write(data[at : at + _CHUNK])
            if watcher.closed:
                break
            now = loop.time()
            if options.bookmarks and now >= min(next_bookmark, deadline):
                next_bookmark = now + bookmark_interval
                await response.write(_bookmark(api, target))
            if now >= deadline:
                break
            watcher.wake.clear()
            until = min(deadline, next_bookmark) if options.bookmarks else deadline
            try:
                async with asyncio.timeout(max(0.0, until - now)):
                    await watcher.wake.wait()
            except TimeoutError:
                continue
        if watcher.abort and transport is not None:
            transport.abort()
        else:
            await response.write_eof()
    except ConnectionError:
        # The client has gone; there is nobody to tell.
        return response
    finally:
        watcher.close()
    return response


def _bookmark(api: Api, target: Target) -> bytes:
    version = target.resource.api_version(target.version)
    return event_line("BOOKMARK", encode(bookmark_object(version, target.resource.kind, api.store.rv, False)))
