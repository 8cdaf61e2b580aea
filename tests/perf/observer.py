"""Sees when pods are bound, at little cost to the API server: one watch of metadata, only of pods that have a node.

A thread; lines are counted, not decoded, because what comes is the name and the time of a pod that was bound.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import ssl
import threading
import time
from urllib.parse import urlencode, urlsplit

from tests.perf.world import PODS, Server

_METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"


class Observer:
    """From `start` on counts pods of the benchmarks' namespace that get a node."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self.first = self.last = 0.0
        self.bound = 0
        self._goal = 0
        self._reached = threading.Event()
        self._opened = threading.Event()
        self._connection: http.client.HTTPConnection | None = None
        self._problem = ""
        self._stopping = False
        self.watches = 0
        """How many watches have ended."""
        self._thread = threading.Thread(target=self._run, name="observer", daemon=True)

    def start(self, goal: int) -> None:
        """Begin; `wait` returns when `goal` more pods have been bound."""
        self._goal = goal
        self._thread.start()
        if not self._opened.wait(30):
            raise RuntimeError(f"the watch did not open: {self._problem}")

    def again(self, goal: int) -> None:
        """Count anew."""
        self._reached.clear()
        self.first = self.last = 0.0
        self.bound, self._goal = 0, goal

    def wait(self, timeout: float) -> bool:
        """Whether the goal was reached in time."""
        return self._reached.wait(timeout)

    def stop(self) -> None:
        """End the watch."""
        self._stopping = True
        if self._connection is not None and self._connection.sock is not None:
            with contextlib.suppress(OSError):
                self._connection.sock.shutdown(2)
        self._thread.join(5)

    def _run(self) -> None:
        try:
            self._watch()
        except (OSError, ValueError, http.client.HTTPException, AttributeError) as error:
            self._problem = repr(error)

    def _watch(self) -> None:
        parts = urlsplit(self._server.url)
        assert parts.hostname is not None
        if self._server.ca_file:
            context = ssl.create_default_context(cafile=self._server.ca_file)
            connection: http.client.HTTPConnection = http.client.HTTPSConnection(
                parts.hostname, parts.port, context=context
            )
        else:
            connection = http.client.HTTPConnection(parts.hostname, parts.port)
        self._connection = connection
        headers = {**self._server.headers(), "Accept": _METADATA}
        connection.request("GET", f"{PODS}?limit=1", headers=self._server.headers())  # the version to start from
        version = json.loads(connection.getresponse().read())["metadata"]["resourceVersion"]
        while not self._stopping:
            # A busy server ends the watches of clients that read too slowly: the next one goes on where it ended.
            query = {"fieldSelector": "spec.nodeName!=", "resourceVersion": version, "timeoutSeconds": 3600}
            connection.request("GET", f"{PODS}?watch=true&{urlencode(query)}", headers=headers)
            answer = connection.getresponse()
            if answer.status != 200:
                self._problem = f"{answer.status}: {answer.read()[:300]!r}"
                return
            self._opened.set()
            version = self._read(answer, version)
            connection.close()
            self.watches += 1

    def _read(self, answer: http.client.HTTPResponse, version: str) -> str:
        """Count until the stream ends; return the version of the last event."""
        rest = b""
        last = b""
        while chunk := answer.read1(1 << 18):
            now = time.monotonic()
            *lines, rest = (rest + chunk).split(b"\n")
            added = sum(line.startswith(b'{"type":"ADDED"') for line in lines)
            last = lines[-1] if lines else last
            if added:
                self.first = self.first or now
                self.last = now
                self.bound += added
                if self.bound >= self._goal:
                    self._reached.set()
        return str(json.loads(last)["object"]["metadata"]["resourceVersion"]) if last else version
