"""Which of the APIs that we could read are served, and in which version.

Decided here: the preferred version (the first of a list that the caller gives, in its order), and what counts as gone:
a group, version or resource that a server which answered does not list. An answer that failed changes nothing. Must not
know: what the resources mean. Invariant: the callback is told of each change once, and of the first complete answer.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass

import msgspec
import structlog

from scheduler.cluster.client import ApiClient, ApiError, RequestFailed, path_of
from scheduler.cluster.wire import METADATA_WATCH

log = structlog.get_logger(__name__)

POLL_PERIOD = 15.0
"""Seconds between two looks; a change of a CustomResourceDefinition makes one at once."""
_SETTLE = 0.2
_RETRY_AFTER_REFUSAL = 300.0
_CRDS = path_of("apiextensions.k8s.io", "v1", "customresourcedefinitions")


@dataclass(frozen=True, slots=True)
class Resource:
    """A kind of object as served in one version. The core group is "". has_status: its status is a subresource."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True
    has_status: bool = True

    @property
    def api_version(self) -> str:
        """The apiVersion of its objects."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str | None = None, name: str | None = None, sub: str | None = None) -> str:
        """Return the path of the collection, an object or a subresource."""
        return path_of(self.group, self.version, self.plural, namespace, name, sub)

    def __str__(self) -> str:
        """As kubectl writes it: plural.version.group."""
        return f"{self.plural}.{self.version}.{self.group}" if self.group else self.plural


@dataclass(frozen=True, slots=True)
class Wanted:
    """A resource that we can read, with the versions that we understand, best first."""

    group: str
    plural: str
    versions: tuple[str, ...]


class _Version(msgspec.Struct, gc=False):
    version: str = ""


class _Group(msgspec.Struct, gc=False):
    name: str = ""
    versions: list[_Version] = []


class _Groups(msgspec.Struct, gc=False):
    groups: list[_Group] = []


class _Listed(msgspec.Struct, gc=False):
    name: str = ""
    kind: str = ""
    namespaced: bool = False
    verbs: list[str] = []


class _Resources(msgspec.Struct, gc=False):
    resources: list[_Listed] = []


_decode_groups = msgspec.json.Decoder(_Groups).decode
_decode_resources = msgspec.json.Decoder(_Resources).decode

Served = Mapping[Wanted, Resource | None]


class Discovery:
    """Keeps `served` up to date: for each wanted resource the one to use, or None.

    `on_change` is called, from `run`, with the whole mapping whenever it changed. `complete` is set once every wanted
    resource has been answered for; `problem` says why not, or why the last look failed ("" = it did not).
    """

    def __init__(
        self,
        client: ApiClient,
        wanted: Iterable[Wanted],
        on_change: Callable[[Served], None],
        *,
        period: float = POLL_PERIOD,
        seed: int | None = None,
    ) -> None:
        self._client = client
        self._wanted = tuple(dict.fromkeys(wanted))
        self._on_change = on_change
        self._period = period
        self._random = random.Random(seed)
        self._look = asyncio.Event()
        self.served: dict[Wanted, Resource | None] = {}
        self.complete = asyncio.Event()
        self.problem = ""

    async def run(self) -> None:
        """Look again and again until cancelled."""
        trigger = asyncio.create_task(self._watch_definitions(), name="watch customresourcedefinitions")
        try:
            while True:
                await self.look()
                wait = self._period if self.complete.is_set() else min(1.0, self._period)
                # Not wait_for: before Python 3.12 it can swallow a cancellation that comes together with the event.
                with suppress(TimeoutError):
                    async with asyncio.timeout(wait * self._random.uniform(0.8, 1.2)):
                        await self._look.wait()
                    await asyncio.sleep(min(_SETTLE, self._period))  # a definition is served a moment after it changed
                self._look.clear()
        finally:
            trigger.cancel()
            with suppress(asyncio.CancelledError):
                await trigger

    async def look(self) -> None:
        """Ask once; keep what we knew of everything that was not answered."""
        problems: list[str] = []
        try:
            listed = _decode_groups(await self._client.request("GET", "/apis"))
        except (RequestFailed, msgspec.DecodeError) as error:
            self._say(f"/apis: {error}")
            return
        versions = {group.name: {item.version for item in group.versions} for group in listed.groups}
        answers: dict[tuple[str, str], _Resources | None] = {}
        fresh: dict[Wanted, Resource | None] = {}
        for wanted in self._wanted:
            try:
                fresh[wanted] = await self._find(wanted, versions, answers)
            except (RequestFailed, msgspec.DecodeError) as error:
                problems.append(f"{wanted.group}: {error}")
                if wanted in self.served:
                    fresh[wanted] = self.served[wanted]
        self._say("; ".join(problems))
        changed = fresh != self.served
        first = not self.complete.is_set() and len(fresh) == len(self._wanted)
        self.served = fresh
        if changed or first:
            self._on_change(dict(fresh))
        if first:
            self.complete.set()

    async def _find(
        self, wanted: Wanted, versions: Mapping[str, set[str]], answers: dict[tuple[str, str], _Resources | None]
    ) -> Resource | None:
        for version in wanted.versions:
            if wanted.group and version not in versions.get(wanted.group, ()):
                continue
            key = (wanted.group, version)
            if key not in answers:
                answers[key] = await self._resources(*key)
            answer = answers[key]
            resources = answer.resources if answer is not None else []
            for item in resources:
                if item.name == wanted.plural and {"list", "watch"} <= set(item.verbs):
                    has_status = any(other.name == f"{wanted.plural}/status" for other in resources)
                    return Resource(wanted.group, version, wanted.plural, item.kind, item.namespaced, has_status)
        return None

    async def _resources(self, group: str, version: str) -> _Resources | None:
        path = f"/apis/{group}/{version}" if group else f"/api/{version}"
        try:
            return _decode_resources(await self._client.request("GET", path))
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    def _say(self, problem: str) -> None:
        if problem and problem != self.problem:
            log.warning("discovery is incomplete; what was known stays", problem=problem)
        self.problem = problem

    async def _watch_definitions(self) -> None:
        """Turn any change of a CustomResourceDefinition into a look; without permission, polling has to do."""
        while True:
            wait = self._period
            try:
                params: dict[str, str | int] = {"watch": "true", "allowWatchBookmarks": "true", "timeoutSeconds": 300}
                async for _ in self._client.stream_batches(_CRDS, params, read_timeout=330, accept=METADATA_WATCH):
                    self._look.set()
            except ApiError as error:
                if error.status in (401, 403, 404):
                    log.info("custom resource definitions cannot be watched; polling instead", reason=str(error))
                    wait = _RETRY_AFTER_REFUSAL
            except RequestFailed:
                pass  # the poll says what is wrong
            await asyncio.sleep(wait * self._random.uniform(0.5, 1.0))
