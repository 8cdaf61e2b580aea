"""Everything that is read from the API server: which reflectors run, and when all of it has been read once.

Decided here: the resources without which no session may run (pods, nodes, priority classes, namespaces, storage,
disruption budgets, our bind requests) and those that are read if they are there (the owners that may carry a minimum,
each dialect's objects and what others ask for, by discovery). A dialect is active once what is served of it has been
listed, and stops being so when nothing of it is served any more. Must not know: JSON, which is for the dialects.
Invariant: `all_synced` is set only when every required resource has been listed, discovery has answered for all that is
wanted, and every one of these has been listed or refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec
import structlog

from scheduler.cluster.assembler import Assembler, Piece, read
from scheduler.cluster.cache import Cache, Namespace, PriorityClass, Shelf
from scheduler.cluster.client import ApiClient
from scheduler.cluster.discovery import POLL_PERIOD, Discovery, Resource, Served, Wanted
from scheduler.cluster.reflector import Counters, Reflector, Sink, settle_gc
from scheduler.cluster.wire import head
from scheduler.dialects import core, storage
from scheduler.dialects.base import Dialect, DialectResource
from scheduler.dialects.budgets import decode_budget
from scheduler.model.bindrequest import BindRequest
from scheduler.model.groups import PodGroup
from scheduler.model.pods import Pod, Shape

log = structlog.get_logger(__name__)

PODS = Resource("", "v1", "pods", "Pod")
NODES = Resource("", "v1", "nodes", "Node", namespaced=False)
NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
PRIORITY_CLASSES = Resource("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", namespaced=False)
JOBS = Resource("batch", "v1", "jobs", "Job")
CLAIMS = Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")
VOLUMES = Resource("", "v1", "persistentvolumes", "PersistentVolume", namespaced=False)
STORAGE_CLASSES = Resource("storage.k8s.io", "v1", "storageclasses", "StorageClass", namespaced=False)
CSI_NODES = Resource("storage.k8s.io", "v1", "csinodes", "CSINode", namespaced=False)
CSI_DRIVERS = Resource("storage.k8s.io", "v1", "csidrivers", "CSIDriver", namespaced=False)
CAPACITIES = Resource("storage.k8s.io", "v1", "csistoragecapacities", "CSIStorageCapacity")
ATTACHMENTS = Resource("storage.k8s.io", "v1", "volumeattachments", "VolumeAttachment", namespaced=False)
BUDGETS = Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget")
BIND_REQUESTS = Resource("scheduling.muster.sh", "v1alpha1", "bindrequests", "BindRequest")

Raw = bytes | msgspec.Raw
LOST_AFTER = 30.0
"""Seconds without a watch after which a required resource counts as lost."""


@dataclass(frozen=True, slots=True)
class WatchStatus:
    """One resource, for /readyz, metrics and `muster doctor`."""

    resource: str
    objects: int
    synced: bool
    watching: bool
    stale: float
    silent: float
    problem: str
    bad: int
    counters: Counters


def _identify(value: Any) -> tuple[str, str]:
    return value.uid, value.resource_version


def _identify_pod(value: tuple[Pod, Shape]) -> tuple[str, str]:
    return value[0].uid, value[0].resource_version


def _identify_piece(value: Piece) -> tuple[str, str]:
    return value.request.uid, value.request.resource_version


def _priority_class(raw: Raw) -> PriorityClass:
    meta = head(raw)
    name, value, default = core.decode_priority_class(raw)
    return PriorityClass(name, meta.uid, value, default, meta.resource_version)


def _namespace(raw: Raw) -> Namespace:
    meta = head(raw)
    name, queue, labels = core.decode_namespace(raw)
    return Namespace(name, meta.uid, queue, labels, meta.resource_version)


def _piece(raw: Raw) -> Piece:
    return read(bytes(raw))


class RequestSink:
    """Puts requests together from their objects (a large one has several) before the cache sees them."""

    def __init__(self, assembler: Assembler, shelf: Shelf[BindRequest]) -> None:
        self._assembler = assembler
        self._shelf = shelf
        self._names: dict[str, str] = {}

    def put(self, piece: Piece) -> None:
        """An object appeared or changed."""
        self._names[piece.request.uid] = piece.name
        request = self._assembler.offer(piece)
        if request is not None:
            self._shelf.put(request)

    def drop(self, uid: str) -> None:
        """An object is gone."""
        name = self._names.pop(uid, None)
        if name is not None and self._assembler.remove(name):
            self._shelf.drop(uid)


@dataclass(frozen=True, slots=True)
class Beside:
    """A resource that is followed for somebody else, where it is served.

    decode: raw object, apiVersion -> value with uid and resource_version, or None.
    """

    wanted: Wanted
    decode: Callable[[Raw, str], Any]
    sink: Sink[Any]


@dataclass(slots=True)
class _Running:
    reflector: Reflector[Any]
    task: asyncio.Task[None]


class Watches:
    """See the module. `run` until cancelled; it raises only for faults of our own."""

    def __init__(
        self,
        client: ApiClient,
        cache: Cache,
        dialects: Iterable[Dialect],
        *,
        scheduler_names: Iterable[str],
        namespace: str,
        streaming: bool = False,
        page: int = 500,
        discovery_period: float = POLL_PERIOD,
        freeze: bool = True,
        pods: Sink[tuple[Pod, Shape]] | None = None,
        jobs: tuple[Callable[[Raw], Any], Sink[Any]] | None = None,
        beside: Iterable[Beside] = (),
    ) -> None:
        self.all_synced = asyncio.Event()
        self._client = client
        self._cache = cache
        self._dialects = tuple(dialects)
        self._options: dict[str, Any] = {"streaming": streaming, "page": page}
        self._freeze = freeze
        self.assembler = Assembler()
        self._pods = pods or cache.pods
        self._required = self._core(frozenset(scheduler_names), namespace)
        decode_job, job_sink = jobs or (partial(core.decode_owner, kind="Job"), cache.groups)
        self._owners: tuple[Reflector[Any], ...] = (self._reflector(JOBS, decode_job, job_sink, metadata_only=True),)
        self._beside = {one.wanted: one for one in beside}
        self._of_dialect: dict[Wanted, tuple[Dialect, DialectResource]] = {}
        for dialect in self._dialects:
            for item in dialect.resources:
                wanted = Wanted(item.group, item.plural, tuple(item.versions))
                if wanted in self._of_dialect:
                    raise ValueError(f"{item.plural}.{item.group} is claimed by two dialects")
                self._of_dialect[wanted] = (dialect, item)
        self._running: dict[Wanted, _Running] = {}
        self._activations: dict[str, asyncio.Task[None]] = {}
        self._group: asyncio.TaskGroup | None = None
        wanted_too = (*self._of_dialect, *self._beside)
        self.discovery = Discovery(client, wanted_too, self._served, period=discovery_period)

    def _core(self, names: frozenset[str], namespace: str) -> tuple[Reflector[Any], ...]:
        cache = self._cache
        pod = partial(core.decode_pod, scheduler_names=names)
        requests = RequestSink(self.assembler, cache.bind_requests)
        return (
            self._reflector(NODES, core.decode_node, cache.nodes),
            self._reflector(PRIORITY_CLASSES, _priority_class, cache.priority_classes),
            self._reflector(NAMESPACES, _namespace, cache.namespaces),
            *self._storage(),
            self._reflector(BUDGETS, decode_budget, cache.budgets),
            self._reflector(PODS, pod, self._pods, identify=_identify_pod),
            self._reflector(BIND_REQUESTS, _piece, requests, identify=_identify_piece, namespace=namespace),
        )

    def _storage(self) -> tuple[Reflector[Any], ...]:
        shelves = self._cache.storage
        return (
            self._reflector(STORAGE_CLASSES, storage.decode_storage_class, shelves.classes),
            self._reflector(CSI_DRIVERS, storage.decode_driver, shelves.drivers),
            self._reflector(CSI_NODES, storage.decode_node_drivers, shelves.node_drivers),
            self._reflector(CAPACITIES, storage.decode_capacity, shelves.capacities),
            self._reflector(ATTACHMENTS, storage.decode_attachment, shelves.attachments),
            self._reflector(VOLUMES, storage.decode_volume, shelves.volumes),
            self._reflector(CLAIMS, storage.decode_claim, shelves.claims),
        )

    def _reflector(
        self,
        resource: Resource,
        decode: Callable[[msgspec.Raw], Any],
        sink: Sink[Any],
        *,
        identify: Callable[[Any], tuple[str, str]] = _identify,
        **options: Any,
    ) -> Reflector[Any]:
        return Reflector(self._client, resource, decode, sink, identify=identify, **self._options, **options)

    # -- what others may ask --------------------------------------------------------------------------------------

    @property
    def reflectors(self) -> tuple[Reflector[Any], ...]:
        """All that run, required ones first."""
        return (*self._required, *self._owners, *(running.reflector for running in self._running.values()))

    @property
    def bad_objects(self) -> dict[tuple[str, str], str]:
        """(kind, "namespace/name") -> what is wrong, over all resources."""
        return {key: text for reflector in self.reflectors for key, text in sorted(reflector.bad_objects.items())}

    def status(self) -> list[WatchStatus]:
        """Return how each resource is followed."""
        return [
            WatchStatus(
                resource=str(reflector.resource),
                objects=len(reflector),
                synced=reflector.synced.is_set(),
                watching=reflector.watching,
                stale=reflector.stale_for(),
                silent=reflector.silent_for(),
                problem=reflector.problem,
                bad=len(reflector.bad_objects),
                counters=reflector.counters,
            )
            for reflector in self.reflectors
        ]

    def waiting_for(self) -> list[str]:
        """What `all_synced` is still waiting for, with the reason where there is one."""
        late = [
            (str(reflector.resource), reflector.problem)
            for reflector in self._required
            if not reflector.synced.is_set()
        ]
        if not self.discovery.complete.is_set():
            late.append(("discovery", self.discovery.problem))
        late += [
            (str(reflector.resource), reflector.problem)
            for reflector in self.reflectors[len(self._required) :]
            if not reflector.settled.is_set()
        ]
        return [f"{name}: {problem}" if problem else name for name, problem in late]

    def lost(self) -> list[str]:
        """Required resources that have not been followed for `LOST_AFTER` seconds, with the reason."""
        return [
            f"{reflector.resource}: {reflector.problem}"
            for reflector in self._required
            if reflector.problem and reflector.stale_for() > LOST_AFTER
        ]

    def reflector_of(self, wanted: Wanted) -> Reflector[Any] | None:
        """Return what follows a resource; None while it is not served."""
        running = self._running.get(wanted)
        return running.reflector if running is not None else None

    def resource(self, group: PodGroup) -> Resource | None:
        """Return the resource as which a group's object is served now; None when it is not."""
        for wanted, running in self._running.items():
            if wanted in self._beside:
                continue
            dialect, item = self._of_dialect[wanted]
            if item.role == "group" and dialect.name == group.dialect and running.reflector.resource.kind == group.kind:
                return running.reflector.resource
        return None

    def has_status(self, group: PodGroup) -> bool:
        """Whether the status of a group's object is a subresource; yes where the object is not served any more."""
        served = self.resource(group)
        return served is None or served.has_status

    # -- running --------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Read everything until cancelled."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            for reflector in (*self._required, *self._owners):
                group.create_task(reflector.run(), name=f"reflect {reflector.resource}")
            group.create_task(self.discovery.run(), name="discovery")
            group.create_task(self._announce(), name="announce sync")
            group.create_task(self._end_on_failure(), name="cache failure")

    async def _end_on_failure(self) -> None:
        await self._cache.failed.wait()
        raise RuntimeError("a subscriber of the cache failed") from self._cache.failure

    async def _announce(self) -> None:
        for reflector in self._required:
            await reflector.synced.wait()
        await self.discovery.complete.wait()
        for reflector in (*self._owners, *(running.reflector for running in self._running.values())):
            await reflector.settled.wait()
        for task in tuple(self._activations.values()):
            if not any(running.reflector.synced.is_set() for running in self._of(task.get_name())):
                continue
            await asyncio.wait([task])
        if self._freeze:
            settle_gc()
        self._cache.mark_synced()
        self.all_synced.set()
        log.info("all resources are listed", **self._cache.sizes())

    def _of(self, name: str) -> list[_Running]:
        mine = (wanted for wanted, (dialect, _) in self._of_dialect.items() if dialect.name == name)
        return [self._running[wanted] for wanted in mine if wanted in self._running]

    def _served(self, served: Served) -> None:
        """Start and stop reflectors so that they are those of what is served."""
        for wanted, resource in served.items():
            running = self._running.get(wanted)
            if running is not None and running.reflector.resource != resource:
                running.task.cancel()
                del self._running[wanted]
                if resource is None:
                    log.info("a resource is no longer served", resource=str(running.reflector.resource))
                    running.reflector.clear()
            if resource is not None and wanted not in self._running:
                self._start(wanted, resource, running.reflector if running is not None else None)
        for dialect in self._dialects:
            self._update(dialect)

    def _start(self, wanted: Wanted, resource: Resource, previous: Reflector[Any] | None) -> None:
        group = self._group
        if group is None:
            raise RuntimeError("run() has not been called")
        decode, sink = self._reading(wanted)
        reflector = self._reflector(resource, partial(decode, api_version=resource.api_version), sink)
        if previous is not None:
            reflector.inherit(previous)
        self._running[wanted] = _Running(
            reflector, group.create_task(reflector.run(), name=f"reflect {reflector.resource}")
        )

    def _reading(self, wanted: Wanted) -> tuple[Callable[..., Any], Sink[Any]]:
        """Return how a resource is decoded and where it goes."""
        if wanted in self._beside:
            return self._beside[wanted].decode, self._beside[wanted].sink
        dialect, item = self._of_dialect[wanted]
        match item.role:
            case "queue":
                return dialect.decode_queue, self._cache.queues
            case "topology":
                return dialect.decode_topology, self._cache.topologies
            case "hypernode":
                return dialect.decode_hypernode, self._cache.hypernodes
            case "group":
                return dialect.decode_group, self._cache.groups

    def _update(self, dialect: Dialect) -> None:
        """Make a dialect active or not, as soon as that is known."""
        task = self._activations.pop(dialect.name, None)
        if task is not None:
            task.cancel()
        if not self._of(dialect.name):
            self._cache.set_dialect(dialect.name, active=False)
        elif self._group is not None:
            self._activations[dialect.name] = self._group.create_task(self._activate(dialect), name=dialect.name)

    async def _activate(self, dialect: Dialect) -> None:
        mine = [running.reflector for running in self._of(dialect.name)]
        for reflector in mine:
            await reflector.settled.wait()
        # If all were refused, permission may still come.
        waits = [asyncio.ensure_future(reflector.synced.wait()) for reflector in mine]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        self._cache.set_dialect(dialect.name, active=True)
