"""A small synchronous client of the Kubernetes API for tests: JSON in, JSON out, errors with status and body.

Decides how tests speak HTTP to an API server. It must not know who started that server, and it shares no code with the
product's own client, so that a fault there cannot hide itself in a test.
Invariant: a request is sent at most once; an answer outside 2xx is an ApiError, never a return value.
"""

from __future__ import annotations

import http.client
import json
import select
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlencode, urlsplit

Json = dict[str, Any]
Body = Json | list[Json]
_PATCH_TYPES = {
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "json": "application/json-patch+json",
    "apply": "application/apply-patch+yaml",
}


class ApiError(Exception):
    """The API server answered with an error status."""

    def __init__(self, method: str, path: str, status: int, body: str):
        try:
            parsed = json.loads(body)
        except ValueError:
            parsed = None
        self.status = status
        self.body: Json = parsed if isinstance(parsed, dict) else {}
        self.reason = str(self.body.get("reason", ""))
        self.message = str(self.body.get("message", body))
        super().__init__(f"{method} {path}: {status} {self.reason}: {self.message}")


def resource_path(
    api_version: str, resource: str, name: str = "", *, namespace: str = "", subresource: str = ""
) -> str:
    """`resource_path("apps/v1", "deployments", "a", namespace="x")` is `/apis/apps/v1/namespaces/x/deployments/a`."""
    parts = ["/apis" if "/" in api_version else "/api", api_version]
    if namespace:
        parts += ["namespaces", namespace]
    parts += [part for part in (resource, name, subresource) if part]
    return "/".join(parts)


class Rest:
    """One API server and one identity; may be shared by threads, each has a connection of its own."""

    def __init__(self, server: str, token: str, ca_file: str | None = None, timeout: float = 30.0):
        parts = urlsplit(server)
        if parts.hostname is None or parts.scheme not in ("http", "https"):
            raise ValueError(f"not the URL of an API server: {server!r}")
        self.server = server
        self.token = token
        self._host, self._port = parts.hostname, parts.port
        self._tls = ssl.create_default_context(cafile=ca_file) if parts.scheme == "https" else None
        self._timeout = timeout
        self._local = threading.local()

    def get(self, path: str, **query: object) -> Json:
        return self._json("GET", path, query=query)

    def list(self, path: str, **query: object) -> list[Json]:
        items: list[Json] = self.get(path, **query)["items"]
        return items

    def create(self, path: str, body: Json, **query: object) -> Json:
        return self._json("POST", path, body, query)

    def update(self, path: str, body: Json, **query: object) -> Json:
        return self._json("PUT", path, body, query)

    def patch(self, path: str, body: Body, kind: str = "merge", **query: object) -> Json:
        """kind: merge, strategic, json (a list of operations) or apply (needs fieldManager=...)."""
        return self._json("PATCH", path, body, query, content_type=_PATCH_TYPES[kind])

    def delete(self, path: str, *, grace: int | None = None, propagation: str | None = None, **query: object) -> Json:
        """Delete an object, or everything that a collection path and its selectors name."""
        options: Json = {"kind": "DeleteOptions", "apiVersion": "v1"}
        if grace is not None:
            options["gracePeriodSeconds"] = grace
        if propagation is not None:
            options["propagationPolicy"] = propagation
        return self._json("DELETE", path, options, query)

    def delete_if_present(self, path: str, **options: Any) -> None:
        """delete() of something that may be gone already."""
        try:
            self.delete(path, **options)
        except ApiError as error:
            if error.status != 404:
                raise

    def text(self, path: str, **query: object) -> str:
        """The answer as it came, for /readyz, /metrics and logs."""
        return self._exchange("GET", path, None, query, "application/json").decode()

    def watch(self, path: str, *, timeout: float, **query: object) -> Iterator[Json]:
        """Events of one watch request; ends when the server ends it or after `timeout` seconds."""
        query = {"watch": "true", "timeoutSeconds": max(1, int(timeout)), **query}
        connection = self._connect(timeout)
        try:
            connection.request("GET", _with_query(path, query), headers=self._headers())
            answer = connection.getresponse()
            if answer.status >= 300:
                raise ApiError("WATCH", path, answer.status, answer.read().decode(errors="replace"))
            deadline = time.monotonic() + timeout
            while (left := deadline - time.monotonic()) > 0:
                if connection.sock is not None:
                    connection.sock.settimeout(left)
                try:
                    line = answer.readline()
                except TimeoutError:
                    return
                if not line:
                    return
                yield json.loads(line)
        finally:
            connection.close()

    def watch_once(self, path: str, until: Callable[[Json], bool], timeout: float = 30.0, **query: object) -> Json:
        """The first event for which `until(event)` holds, from one watch request; TimeoutError when none came."""
        seen: list[str] = []
        for event in self.watch(path, timeout=timeout, **query):
            if until(event):
                return event
            seen.append(f"{event['type']} {event['object'].get('metadata', {}).get('name', event['object'])}")
        raise TimeoutError(f"no event of {path} was the expected one within {timeout} s; seen: {seen[-20:]}")

    def _json(
        self,
        method: str,
        path: str,
        body: Body | None = None,
        query: Json | None = None,
        content_type: str = "application/json",
    ) -> Json:
        raw = self._exchange(method, path, body, query or {}, content_type)
        answer = json.loads(raw)
        if not isinstance(answer, dict):
            raise TypeError(f"{method} {path}: expected a JSON object, got {raw[:200]!r}")
        return answer

    def _exchange(self, method: str, path: str, body: object, query: Json, content_type: str) -> bytes:
        payload = None if body is None else json.dumps(body).encode()
        connection = self._kept_connection()
        try:
            connection.request(method, _with_query(path, query), payload, self._headers(content_type))
            answer = connection.getresponse()
            raw = answer.read()
        except BaseException:
            connection.close()  # half an exchange must not be read by the next request
            raise
        if answer.status >= 300:
            raise ApiError(method, path, answer.status, raw.decode(errors="replace"))
        return raw

    def _headers(self, content_type: str = "application/json") -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}", "Accept": "application/json", "Content-Type": content_type}

    def _connect(self, timeout: float) -> http.client.HTTPConnection:
        if self._tls is None:
            return http.client.HTTPConnection(self._host, self._port, timeout=timeout)
        return http.client.HTTPSConnection(self._host, self._port, timeout=timeout, context=self._tls)

    def _kept_connection(self) -> http.client.HTTPConnection:
        """This thread's connection; one that the server has closed meanwhile is replaced before anything is sent."""
        connection: http.client.HTTPConnection | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = self._local.connection = self._connect(self._timeout)
        elif connection.sock is not None and select.select([connection.sock], [], [], 0)[0]:
            connection.close()  # http.client opens it again by itself
        return connection


def _with_query(path: str, query: Json) -> str:
    given = {key: value for key, value in query.items() if value is not None}
    return f"{path}?{urlencode(given)}" if given else path
