"""BindRequest objects on the API server, as the binder's `Requests` port wants them.

Decided here: which fields guard a write (the uid always, the resource version where the epoch changes hands) and when
parts are rubbish. Must not know: gangs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Protocol

from scheduler.cluster.bindrequests import GROUP, PLURAL, VERSION, status_patch
from scheduler.cluster.client import MERGE, ApiError, path_of
from scheduler.model.bindrequest import BindRequest, GangOutcome

ORPHAN_AGE = 120.0
"""Seconds after which a part without a header is rubbish: its header would have been written within one request."""


class Api(Protocol):
    """The client."""

    async def request(
        self,
        method: str,
        path: str,
        *,
        body: bytes | Mapping[str, Any] | None = None,
        content_type: str = "application/json",
        timeout: float = 15.0,
    ) -> bytes:
        """Send one request."""


class Parts(Protocol):
    """What is known of requests in parts."""

    def part_names(self, name: str) -> list[str]:
        """Return the names of the parts of a request."""

    def orphans(self, now: float, age: float) -> list[str]:
        """Return parts older than `age` seconds without a header."""

    def incomplete(self) -> list[str]:
        """Return headers of which parts are missing."""


class RequestObjects:
    """See the module; `namespace` is the scheduler's."""

    def __init__(self, api: Api, parts: Parts, namespace: str, clock: Callable[[], float] = time.time) -> None:
        self._api = api
        self._parts = parts
        self._namespace = namespace
        self._clock = clock
        self._incomplete: frozenset[str] = frozenset()

    def _path(self, name: str, sub: str | None = None) -> str:
        return path_of(GROUP, VERSION, PLURAL, self._namespace, name, sub)

    async def report(self, request: BindRequest, phase: str, outcomes: tuple[GangOutcome, ...]) -> None:
        """Write the status of this very object."""
        patch = status_patch(replace(request, phase=phase, outcomes=outcomes))
        body = {"metadata": {"uid": request.uid}, **patch}
        await self._api.request("PATCH", self._path(request.name, "status"), body=body, content_type=MERGE)

    async def note(self, request: BindRequest, outcomes: tuple[GangOutcome, ...]) -> None:
        """Write what is known so far, if nobody has touched the object since it was read: a report may be faster."""
        guard = {"uid": request.uid, "resourceVersion": request.resource_version}
        patch = status_patch(replace(request, phase="Binding", outcomes=outcomes))
        await self._api.request(
            "PATCH", self._path(request.name, "status"), body={"metadata": guard, **patch}, content_type=MERGE
        )

    async def adopt(self, request: BindRequest, epoch: int) -> None:
        """Write our epoch, if nobody has touched the object since it was read."""
        guard = {"uid": request.uid, "resourceVersion": request.resource_version}
        body = {"metadata": guard, "spec": {"epoch": epoch}}
        await self._api.request("PATCH", self._path(request.name), body=body, content_type=MERGE)

    async def delete(self, request: BindRequest) -> None:
        """Delete the header, then its parts: in this order what is left after a crash is seen to be rubbish."""
        parts = self._parts.part_names(request.name)
        await self._delete(request.name, request.uid)
        for name in parts:
            await self._delete(name)

    async def sweep(self) -> int:
        """Delete parts without a header, and headers that twice in a row lacked a part."""
        incomplete = frozenset(self._parts.incomplete())
        rubbish = [*sorted(incomplete & self._incomplete), *self._parts.orphans(self._clock(), ORPHAN_AGE)]
        self._incomplete = incomplete
        for name in rubbish:
            await self._delete(name)
        return len(rubbish)

    async def _delete(self, name: str, uid: str = "") -> None:
        options: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if uid:
            options["preconditions"] = {"uid": uid}
        try:
            await self._api.request("DELETE", self._path(name), body=options)
        except ApiError as error:
            if error.status != 404:
                raise
