"""HTTP in, `Api` calls, HTTP out.

Decided here: which verb a request is, which status code an answer has, and what is answered outside the resource paths.
It must not decide anything about objects. Invariant: whatever goes wrong, the client gets a Status body; an unexpected
exception is logged with its traceback and answered with 500.
"""

from __future__ import annotations

import asyncio
from typing import Any

import structlog
from aiohttp import web

from scheduler.playground import deletion, discovery, listing
from scheduler.playground.api import Api, WriteOptions
from scheduler.playground.errors import ApiError, Obj, method_not_allowed, no_such_path, not_found, unsupported_media
from scheduler.playground.eviction import evict
from scheduler.playground.faults import DropConnection, Faults
from scheduler.playground.patch import json_patch, merge_patch
from scheduler.playground.patching import parse_json, parse_yaml, patch
from scheduler.playground.render import PLAIN, Renderer, negotiate
from scheduler.playground.requests import NoSuchGroup, Target, parse_list, parse_target, parse_write
from scheduler.playground.storage import Stored, encode
from scheduler.playground.strategies import RETURN_DELETED
from scheduler.playground.watch import Watcher

log = structlog.get_logger("muster.playground")
_BODY_TYPES = ["application/json", "application/yaml", "application/vnd.kubernetes.protobuf"]


def answer(body: Any, status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    """Return a JSON response."""
    raw = body if isinstance(body, bytes) else encode(body)
    return web.Response(body=raw, status=status, content_type="application/json", headers=headers)


def refusal(error: ApiError) -> web.Response:
    """Return the response of an error."""
    headers = {"Retry-After": str(error.retry_after)} if error.retry_after is not None else None
    return answer(error.status(), error.code, headers)


class Handlers:
    """Handles the requests of one server."""

    def __init__(self, api: Api, faults: Faults, *, bookmark_interval: float, max_buffer: int) -> None:
        self.api = api
        self.faults = faults
        self.bookmark_interval = bookmark_interval
        self.max_buffer = max_buffer
        self.watchers: dict[int, tuple[str, Watcher]] = {}
        self.requests = 0
        self._views: dict[tuple[int, str], int] = {}

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request."""
        self.requests += 1
        try:
            wait, drop_after = self.faults.meet(request.method, request.path_qs)
            if wait:
                await asyncio.sleep(wait)
            response = await self._route(request)
            if drop_after:
                raise DropConnection
        except ApiError as error:
            return refusal(error)
        except NoSuchGroup:
            return web.Response(text="404 page not found\n", status=404)
        except DropConnection:
            if request.transport is not None:
                request.transport.abort()
            return web.Response()
        except web.HTTPRequestEntityTooLarge:
            text = "Request entity too large: limit is 3145728"
            return refusal(ApiError(413, "RequestEntityTooLarge", text, details={}))
        except (asyncio.CancelledError, ConnectionError):
            raise
        except Exception as error:
            log.exception("request failed", method=request.method, path=request.path_qs)
            return refusal(ApiError(500, "InternalError", f"Internal error occurred: {error!r}", details={}))
        return response

    async def _route(self, request: web.BaseRequest) -> web.StreamResponse:
        path = request.path
        root = path.split("/", 2)[1]
        if root in ("api", "apis"):
            depth = path.strip("/").count("/")
            if depth < (2 if root == "api" else 3):
                return self._discovery(request, path.strip("/").split("/"))
            return await self._resource(request, parse_target(self.api.registry, path))
        if request.method != "GET":
            raise method_not_allowed()
        if root in ("healthz", "readyz", "livez"):
            return web.Response(text="ok")
        if root == "version":
            return answer(discovery.VERSION)
        if root == "openapi":
            if path == "/openapi/v2" and "openapi.spec.v2" in request.headers.get("Accept", ""):
                media = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
                return web.Response(body=discovery.openapi_v2_stub(), headers={"Content-Type": media})
            return self._openapi(path.strip("/").split("/"))
        if path == "/":
            return answer(
                {"paths": ["/api", "/apis", "/healthz", "/livez", "/openapi/v2", "/openapi/v3", "/readyz", "/version"]}
            )
        raise no_such_path()

    # ---- discovery ----

    def _discovery(self, request: web.BaseRequest, parts: list[str]) -> web.Response:
        if request.method != "GET":
            raise method_not_allowed()
        registry = self.api.registry
        body: Obj | None
        if len(parts) == 1:
            accept = request.headers.get("Accept", "")
            for wanted in accept.split(","):
                if "as=APIGroupDiscoveryList" in wanted and "application/json" in wanted and "v=v2;" in wanted + ";":
                    found = discovery.aggregated(registry, core=parts[0] == "api")
                    media = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
                    return web.Response(body=encode(found), headers={"Content-Type": media})
            body = discovery.api_versions(request.host) if parts[0] == "api" else discovery.api_groups(registry)
        elif parts[0] == "api":
            body = discovery.resource_list(registry, "", parts[1]) if parts[1] == "v1" else None
        elif len(parts) == 2:
            body = discovery.api_group(registry, parts[1])
        else:
            body = discovery.resource_list(registry, parts[1], parts[2])
        if body is None:
            raise no_such_path()
        return answer(body)

    def _openapi(self, parts: list[str]) -> web.Response:
        registry = self.api.registry
        if parts[1:] == ["v2"]:
            return answer(discovery.openapi_v2(registry))
        if parts[1:] == ["v3"]:
            return answer(discovery.openapi_v3_paths(registry))
        if parts[1:4] == ["v3", "api", "v1"]:
            return answer(discovery.openapi_v3(registry, "", "v1"))
        if len(parts) == 5 and parts[1:3] == ["v3", "apis"] and discovery.resource_list(registry, parts[3], parts[4]):
            return answer(discovery.openapi_v3(registry, parts[3], parts[4]))
        raise no_such_path()

    # ---- resources ----

    async def _resource(self, request: web.BaseRequest, target: Target) -> web.StreamResponse:
        method = request.method
        if target.resource.ephemeral:
            if method != "POST" or target.name:
                raise method_not_allowed()
            return answer(_review(target, await self._body(request)), 201)
        if target.subresource:
            return await self._subresource(request, target)
        if target.name:
            if method == "GET":
                return self._get(request, target)
            if method == "PUT":
                return await self._put(request, target)
            if method == "PATCH":
                return await self._patch(request, target)
            if method == "DELETE":
                return await self._delete(request, target)
            raise method_not_allowed()
        if method == "GET":
            return await self._list(request, target)
        if method == "POST" and (target.namespace or not target.resource.namespaced):
            return await self._create(request, target)
        if method == "DELETE" and (target.namespace or not target.resource.namespaced):
            return await self._delete_collection(request, target)
        raise method_not_allowed()

    def _renderer(self, request: web.BaseRequest, target: Target) -> Renderer:
        form = negotiate(request.headers.get("Accept", ""))
        return Renderer(self.api, target.resource, target.version, form, request.query.get("includeObject", ""))

    def _view_id(self, renderer: Renderer) -> int:
        key = (id(renderer.resource), renderer.version)
        return self._views.setdefault(key, len(self._views) + 1)

    async def _body(self, request: web.BaseRequest, required: bool = True) -> Any:
        raw = await request.read()
        if not raw:
            if required:
                raise ApiError(400, "BadRequest", "the request body is empty")
            return None
        kind = request.content_type
        if kind in ("application/json", "application/octet-stream", ""):
            return parse_json(raw)
        if kind == "application/yaml":
            return parse_yaml(raw)
        raise unsupported_media(_BODY_TYPES)

    def _write(self, request: web.BaseRequest) -> WriteOptions:
        return parse_write(dict(request.query), request.headers.get("User-Agent", ""))

    def _written(
        self, request: web.BaseRequest, target: Target, stored: Stored, options: WriteOptions, status: int = 200
    ) -> web.Response:
        response = answer(self._renderer(request, target).one(stored), status)
        if options.field_validation != "Ignore":
            for text in options.warnings:
                plain = "".join(one if one.isprintable() else "?" for one in text)  # field names may hold anything
                quoted = plain.replace("\\", "\\\\").replace('"', '\\"')
                response.headers.add("Warning", f'299 - "{quoted}"')
        return response

    def _get(self, request: web.BaseRequest, target: Target) -> web.Response:
        renderer = self._renderer(request, target)
        return answer(renderer.one(self.api.get(target.resource, target.namespace, target.name)))

    async def _create(self, request: web.BaseRequest, target: Target) -> web.Response:
        body, options = await self._body(request), self._write(request)
        stored = self.api.create(target.resource, target.version, target.namespace, body, options)
        return self._written(request, target, stored, options, 201)

    async def _put(self, request: web.BaseRequest, target: Target) -> web.Response:
        body, options = await self._body(request), self._write(request)
        stored = self.api.update(
            target.resource, target.version, target.namespace, target.name, body, options, target.subresource
        )
        return self._written(request, target, stored, options)

    async def _patch(self, request: web.BaseRequest, target: Target) -> web.Response:
        raw, options = await request.read(), self._write(request)
        kind = request.headers.get("Content-Type", "").split(";")[0].strip()
        stored, created = patch(
            self.api,
            target.resource,
            target.version,
            target.namespace,
            target.name,
            target.subresource,
            kind,
            raw,
            options,
        )
        return self._written(request, target, stored, options, 201 if created else 200)

    async def _delete(self, request: web.BaseRequest, target: Target) -> web.Response:
        body = await self._body(request, required=False)
        options = deletion.parse_options(body, dict(request.query))
        stored, gone = deletion.delete(self.api, target.resource, target.namespace, target.name, options)
        if not gone or target.resource.storage in RETURN_DELETED:
            return answer(self._renderer(request, target).one(stored))
        details = {"name": target.name, "kind": target.resource.plural, "uid": stored.uid}
        if target.resource.group:
            details["group"] = target.resource.group
        return answer({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details})

    async def _delete_collection(self, request: web.BaseRequest, target: Target) -> web.Response:
        body = await self._body(request, required=False)
        query = dict(request.query)
        options, wanted = deletion.parse_options(body, query), parse_list(query)
        if target.resource.storage == "namespaces":
            raise method_not_allowed()
        rows = listing.select(self.api, target, wanted)
        for index, stored in enumerate(rows):
            options.uid = stored.uid
            try:
                deletion.delete(self.api, target.resource, stored.key[0], stored.key[1], options)
            except ApiError as error:
                if error.code not in (404, 409):
                    raise
            if index % 100 == 99:
                # Others get a turn: this is many writes, not one.
                await asyncio.sleep(0)
        renderer = self._renderer(request, target)
        return answer(renderer.many(rows, {"resourceVersion": str(self.api.store.rv)}))

    async def _list(self, request: web.BaseRequest, target: Target) -> web.StreamResponse:
        options = parse_list(dict(request.query))
        renderer = self._renderer(request, target)
        if not options.watch:
            if not target.namespace and target.resource.storage == "pods" and renderer.form == PLAIN:
                # A full list of a large cluster is joined from cached bytes; give waiting requests a turn first.
                await asyncio.sleep(0)
            return answer(listing.page(self.api, target, options, renderer))
        watcher = listing.open_watch(self.api, target, options, renderer, self.max_buffer, self._view_id)
        self.watchers[watcher.id] = (request.path_qs, watcher)
        try:
            return await listing.stream(request, self.api, target, options, watcher, self.bookmark_interval)
        finally:
            self.watchers.pop(watcher.id, None)

    # ---- sub-resources ----

    async def _subresource(self, request: web.BaseRequest, target: Target) -> web.StreamResponse:
        resource, name, method = target.resource, target.subresource, request.method
        if name not in resource.subresources:
            if resource.crd is not None:
                raise not_found(resource.group, resource.plural, target.name)
            raise no_such_path()
        if name in ("binding", "eviction"):
            if method != "POST":
                raise method_not_allowed()
            body, options = await self._body(request), self._write(request)
            if name == "binding":
                self.api.bind_pod(target.namespace, target.name, body, options)
            else:
                evict(self.api, target.namespace, target.name, body)
            return answer({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}, 201)
        if name == "scale":
            return await self._scale(request, target)
        if method == "GET" and name != "finalize":
            return self._get(request, target)
        if method == "PUT":
            return await self._put(request, target)
        if method == "PATCH" and name != "finalize":
            return await self._patch(request, target)
        raise method_not_allowed()

    async def _scale(self, request: web.BaseRequest, target: Target) -> web.Response:
        resource, api = target.resource, self.api
        stored = api.get(resource, target.namespace, target.name)
        scale = api.scale_of(resource, target.version, stored)
        if request.method == "GET":
            return answer(scale)
        options = self._write(request)
        if request.method == "PUT":
            body = await self._body(request)
        elif request.method == "PATCH":
            document = parse_json(await request.read())
            body = json_patch(scale, document) if isinstance(document, list) else merge_patch(scale, document)
        else:
            raise method_not_allowed()
        if not isinstance(body, dict):
            raise ApiError(400, "BadRequest", "the body must be a Scale")
        stored = api.set_scale(resource, target.version, target.namespace, target.name, body, options)
        return answer(api.scale_of(resource, target.version, stored))


def _review(target: Target, body: Any) -> Obj:
    """Answer an access or identity review: the playground has one user, who may do everything."""
    if not isinstance(body, dict):
        raise ApiError(400, "BadRequest", "the body must be an object")
    head = {"kind": target.resource.kind, "apiVersion": target.resource.api_version(target.version), "metadata": {}}
    if target.resource.kind == "SelfSubjectReview":
        user = {"username": "muster-playground", "groups": ["system:masters", "system:authenticated"]}
        return {**head, **body, "status": {"userInfo": user}}
    return {**head, **body, "status": {"allowed": True}}
