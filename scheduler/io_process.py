"""The io process: everything that touches the network, composed.

Decided here: how reflectors, cache, lease, writes, binder and ports are joined, and how the process ends: what writes
stops first, then the lease is given back, then the brain ends. Part of the composition root (`app`), apart from it only
for length.

A process that runs some components only (`RunOptions.only`) has the same caches and ports, and of the rest what these
need: sessions, page and status writes are the scheduler's, BindRequests the binder's, groups of owners the
controllers'; each leads by a lease of its own (`cluster.components`).
"""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
import time
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any, cast

import msgspec
import structlog

from scheduler.app import (
    BrainProcess,
    Describer,
    RunOptions,
    load_configuration,
    make_sessions,
    parse_saved,
    start_brain,
    with_options,
)
from scheduler.binder.adopting import adopt_all
from scheduler.binder.loop import Binder
from scheduler.binder.objects import RequestObjects
from scheduler.binder.pool import LeaseLost
from scheduler.binder.record import Timing
from scheduler.binder.run import Settings
from scheduler.binder.volumes import Settings as VolumeSettings
from scheduler.binder.volumes import VolumeBinding
from scheduler.cluster import feed
from scheduler.cluster.cache import Cache
from scheduler.cluster.client import POOL_BESIDE_BINDER, ApiClient, ApiError, RequestFailed, path_of
from scheduler.cluster.components import BinderLease, SchedulerLease, WholeLeads, identity, lease_name, until_no_binder
from scheduler.cluster.lease import Elector
from scheduler.cluster.link import IoEnd, IoLink, LocalLink
from scheduler.cluster.performer import Performer
from scheduler.cluster.watches import Watches
from scheduler.cluster.writer import Writer, passing
from scheduler.config import ConfigError, SchedulerConfiguration
from scheduler.config_file import ConfigFile
from scheduler.controllers import watched
from scheduler.controllers.grouping import Grouping
from scheduler.controllers.leaving import Leaving
from scheduler.dialects import owners
from scheduler.dialects.registry import BY_NAME, DIALECTS
from scheduler.io_ports import Ports
from scheduler.model.bindrequest import BindRequest
from scheduler.model.components import WHOLE, Component, leading_component
from scheduler.model.decisions import Place
from scheduler.model.queues import DEFAULT_QUEUE
from scheduler.observe import explain
from scheduler.observe.health import CannotListen
from scheduler.observe.metrics import Metrics
from scheduler.observe.tracing import from_environment
from scheduler.pulse import PATIENCE, Pulse
from scheduler.web.port import Page

log = structlog.get_logger("muster.io")
RELOAD_PERIOD = 2.0
LATE = 10.0
"""Seconds after which a request that is open is missed, where another process is to bind."""
_FIXED = (
    "scheduler_names",
    "namespace",
    "client_connection",
    "leader_election",
    "binder",
    "grouping",
    "health_address",
    "log_format",
)
"""What a reload cannot change: it is used when the process starts."""


def _never() -> bool:
    return False


def _nobody_decides_here(event: feed.HandoverFailed) -> None:
    raise RuntimeError(f"session {event.session} was handed over to a process without one")


class _AlwaysLeading:
    """What takes the place of the elector with leader election off: an epoch that grows with time."""

    def __init__(self) -> None:
        self.epoch: int = int(time.time())
        self.holder = "no election"

    def may_write(self) -> bool:
        return True


class IoProcess:
    """The io process; see the module. A fault test runs a subclass with a client of its own and a `_reached`."""

    client_type: type[ApiClient] = ApiClient
    patience = PATIENCE

    def _reached(self, point: str, request: BindRequest) -> None:
        """Do nothing: the binder has come to one of its points (`binder.ports.POINTS`) with this request."""

    def _came_to(self, point: str, request: BindRequest) -> None:
        if self._tracing is not None:
            self._tracing.reached(point, request)
        self._reached(point, request)

    def __init__(
        self,
        config: SchedulerConfiguration,
        options: RunOptions,
        stop: threading.Event | None,
        brain: BrainProcess | None = None,
    ) -> None:
        self._config, self._options, self._stop_event, self._given_brain = config, options, stop, brain
        self._file = ConfigFile(options.config) if options.config is not None else None
        self._components = frozenset(Component(name) for name in options.only) or WHOLE
        self._decides = Component.SCHEDULER in self._components
        self._stopping = asyncio.Event()
        self._exit_code = 0
        self._brain: subprocess.Popen[bytes] | None = None
        self._leading = False
        self._snapshot_waiters: list[asyncio.Future[bytes]] = []

    async def run(self) -> int:
        loop = asyncio.get_running_loop()
        if self._stop_event is None:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, self._stop, 0)
        async with AsyncExitStack() as stack:
            await self._compose(stack)
            tasks = [asyncio.create_task(work, name=name) for name, work in self._works().items()]
            waits = [*tasks, asyncio.create_task(self._stopping.wait(), name="stop")]
            done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                if task.get_name() != "stop":
                    self._explain_end(task)
            await self._shut_down(waits)
        return self._exit_code

    def _explain_end(self, task: asyncio.Task[Any]) -> None:
        error = task.exception()
        if isinstance(error, BaseExceptionGroup) and (found := error.subgroup(WholeLeads)) is not None:
            log.warning("binder_makes_way", why=str(found.exceptions[0]))
        elif isinstance(error, CannotListen):
            log.error("cannot_listen", problem=str(error))
        elif error is not None:
            log.error("part_ended", part=task.get_name(), error=repr(error), exc_info=error)
        self._exit_code = 1

    def _stop(self, code: int) -> None:
        self._exit_code = max(self._exit_code, code)
        self._stopping.set()

    async def _compose(self, stack: AsyncExitStack) -> None:
        """Make the parts; nothing runs yet."""
        config = self._config
        self._metrics, self._tracing = Metrics(leading_component(self._components).value), from_environment()
        connection = config.client_connection
        self._client = await stack.enter_async_context(
            self.client_type.connect(
                self._options.kubeconfig,
                self._options.context,
                qps=connection.qps,
                burst=max(1, connection.burst),
                user_agent="muster",
                on_request=self._metrics.on_request,
                pool=config.binder.concurrency + POOL_BESIDE_BINDER,
            )
        )
        self._cache = Cache()
        self._grouping = self._group_pods()
        self._watches = Watches(
            self._client,
            self._cache,
            DIALECTS,
            scheduler_names=config.scheduler_names,
            namespace=config.namespace,
            **self._read_owners(),
        )
        self._requests = RequestObjects(self._client, self._watches.assembler, config.namespace)
        self._elector: Any = self._elect()
        self._writer = Writer(self._client, self._may_write, self._metrics, pressed=lambda: self._bind_depth > 0)
        self._link = self._start_brain()
        self._pulse = Pulse(self._link.send, patience=self.patience) if self._link is not None else None
        self._page = Page(self._link.send, lambda: self._ports.standing()) if self._link is not None else None
        self._performer = self._perform()
        self._scheduler_lease = SchedulerLease(self._client, self._lease_namespace, config.leader_election.name)
        self._binder = self._bind() if Component.BINDER in self._components else None
        self._ports = self._open_ports()

    @property
    def _lease_namespace(self) -> str:
        return self._config.leader_election.namespace or self._config.namespace

    @property
    def _bind_depth(self) -> int:
        return self._binder.depth if self._binder is not None else 0

    def _perform(self) -> Performer:
        """Make what carries out the decisions of sessions."""
        config = self._config
        return Performer(
            self._writer,
            self._cache,
            BY_NAME,
            explain,
            namespace=config.namespace,
            epoch=lambda: self._elector.epoch or 0,
            send=self._page.passing if self._page is not None else _nobody_decides_here,
            meter=self._metrics,
            has_status=self._watches.has_status,
            deadline=config.binder.deadline,
            volume_time=config.binder.volume_timeout,
            victim_time=config.binder.victim_timeout,
        )

    def _open_ports(self) -> Ports:
        return Ports(
            config=lambda: self._config,
            components=self._components,
            client=self._client,
            cache=self._cache,
            watches=self._watches,
            elector=self._elector,
            may_write=self._may_write,
            writer=self._writer,
            performer=self._performer,
            metrics=self._metrics,
            binder=self._binder,
            grouping=self._grouping,
            pulse=self._pulse,
            page=self._page,
            snapshot=self._snapshot if self._decides else None,
        )

    def _elect(self) -> Any:
        """Make what says whether this process leads."""
        election = self._config.leader_election
        if not election.leader_elect:
            return _AlwaysLeading()
        return Elector(
            self._client,
            self._lease_namespace,
            lease_name(election.name, self._components),
            identity(self._components),
            election.lease_duration,
            election.renew_deadline,
            election.retry_period,
            floor=lambda: max((request.epoch for request in self._cache.requests()), default=0),
        )

    def _bind(self) -> Binder:
        """Make the binder."""
        config = self._config.binder
        volumes = VolumeSettings(time=config.volume_timeout)
        return Binder(
            self._cache,
            self._client,
            self._requests,
            cast(Any, self._elector),  # leading when the binder runs, so that it has an epoch
            settings=Settings(
                in_flight=config.concurrency, history=config.history, timing=Timing(bind=config.deadline)
            ),
            observer=self._came_to,
            meter=self._metrics,
            steps=(VolumeBinding(self._cache, self._client, self._may_write, settings=volumes),),
            words=explain,
            covered=self._cache.guarded,
            told=self._performer.evicted,
            charged=self._charged_to,
            deciding=None if self._decides else self._scheduler_lease.ask,
        )

    def _charged_to(self, place: Place, uid: str) -> str:
        """Return the queue that is written on a member when it is bound: that which was asked, where that is told.

        The default queue needs no word, but in place of one that was copied from another pod.
        """
        pod = self._cache.pod(uid)
        members = (pod,) if pod is not None else ()
        name = place.queue or self._cache.queue_of(self._cache.group(place.group), members)
        return "" if name == DEFAULT_QUEUE and not (pod is not None and pod.charged_to) else name

    def _group_pods(self) -> Grouping | Leaving | None:
        """Make what knows the gangs of owners: whoever writes their groups, and whoever decides."""
        writes = Component.CONTROLLERS in self._components
        if not writes and not self._decides:
            return None
        may_write = self._may_write if writes else _never
        if not self._config.grouping.enabled:
            return Leaving(
                self._cache,
                self._client,
                settled=lambda: self._watches.all_synced.is_set(),
                may_write=may_write,
                meter=self._metrics,
            )
        return Grouping(
            self._cache,
            self._client,
            owners.configured(self._config.grouping.owners),
            following=lambda kind: watched.following(self._watches, kind),
            may_write=may_write,
            meter=self._metrics,
            tell=watched.telling(lambda: self._performer.events),
            decides=None if writes else self._may_write,
        )

    def _read_owners(self) -> dict[str, Any]:
        grouping = self._grouping
        if grouping is None:
            return {}
        found: dict[str, Any] = {"pods": grouping, "jobs": watched.jobs(self._cache, grouping)}
        return found | ({"beside": watched.beside(grouping)} if isinstance(grouping, Grouping) else {})

    def _may_write(self) -> bool:
        return bool(self._leading and self._elector.may_write())

    def _start_brain(self) -> IoEnd | None:
        if not self._decides:
            return None
        if self._options.single_process:
            from scheduler.loop import Loop

            sys.setswitchinterval(5e-5)  # a busy brain thread must not hold up the sockets
            local = LocalLink(self._on_brain, self._on_brain_gone)
            loop = Loop(local.brain, self._config, make_sessions, parse_saved, describe=Describer())
            threading.Thread(target=loop.run, name="brain", daemon=True).start()
            return local.io
        started = self._given_brain or start_brain(self._config)
        self._brain = started.process
        return IoLink(started.line, self._on_brain, self._on_brain_gone)

    def _works(self) -> dict[str, Any]:
        works: dict[str, Any] = {
            "watches": self._watches.run(),
            "lead": self._lead(),
            "ports": self._ports.serve(),
            "reload": self._reload(),
        }
        if self._grouping is not None:
            works["grouping"] = self._grouping.run()
            self._cache.subscribe(self._grouping.watch)
        if self._pulse is not None:
            works["pulse"] = self._watch_brain(self._pulse)
        if self._stop_event is not None:
            works["caller"] = self._wait_for_caller(self._stop_event)
        return works

    # -- life -----------------------------------------------------------------------------------------------------

    async def _lead(self) -> None:
        """Wait for the caches, then for the lease; then serve until it is lost."""
        if self._link is not None and self._page is not None:
            await self._link.start()
            self._cache.subscribe(self._performer.watch)
            self._cache.subscribe(self._to_brain)
            self._cache.subscribe(self._page.watch)
        waiting = asyncio.create_task(self._say_what_is_missing())
        await self._watches.all_synced.wait()
        waiting.cancel()
        await self._ensure_namespace()
        if self._binder is not None and not self._decides:
            await self._scheduler_lease.until_ours()
        async with asyncio.TaskGroup() as group:
            if isinstance(self._elector, _AlwaysLeading):
                log.warning("leader_election_off", epoch=self._elector.epoch)
            else:
                group.create_task(self._elector.run(), name="elector")
                await self._elector.leading.wait()
            self._leading = True
            self._client.fence = self._may_write
            self._metrics.leading(True)
            for name, work in self._led_works().items():
                group.create_task(work, name=name)

    def _led_works(self) -> dict[str, Any]:
        """Begin what only a leader does; return what of it goes on."""
        works: dict[str, Any] = {}
        if self._grouping is not None and Component.CONTROLLERS in self._components:
            self._grouping.lead()
        if self._binder is not None:
            works["binder"] = self._run_binder(self._binder)
            if not self._decides:
                works["scheduler's lease"] = self._scheduler_lease.watch()
        if self._link is not None and self._page is not None:
            self._page.news()
            if self._binder is None:
                works["adopting"] = self._adopt(tuple(self._cache.requests()))
                works["binder's lease"] = self._binder_lease().watch(self._late_requests)
            self._link.send(feed.Leading(int(self._elector.epoch or 0)))
        return works

    async def _run_binder(self, binder: Binder) -> None:
        """Bind, once it is certain that no other process does."""
        if not self._decides:
            await self._scheduler_lease.ask()  # our own lease was taken before: one of us sees the other
        elif self._config.leader_election.leader_elect:
            await until_no_binder(self._binder_lease())
        await binder.run()

    def _binder_lease(self) -> BinderLease:
        return BinderLease(self._client, self._lease_namespace, self._config.leader_election.name)

    def _late_requests(self) -> int:
        before = time.time() - LATE
        return sum(request.open and request.created < before for request in self._cache.requests())

    async def _adopt(self, found: tuple[BindRequest, ...]) -> None:
        """Take over, for a binder that is another process, what an older leader has written."""

        def guard() -> None:
            if not self._may_write():
                raise LeaseLost("the lease is not held: nothing is adopted")

        await adopt_all(self._requests, self._cache, found, int(self._elector.epoch or 0), guard)

    async def _say_what_is_missing(self) -> None:
        while True:
            await asyncio.sleep(5.0)
            log.warning("not_synced_yet", waiting_for=self._watches.waiting_for())

    async def _ensure_namespace(self) -> None:
        """BindRequests and the lease need their namespace; who may not create it is told so by the next write."""
        name = self._config.namespace
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        while name not in self._cache.namespaces.by_key:
            try:
                await self._client.post_json(path_of("", "v1", "namespaces"), body)
                log.info("namespace_created", namespace=name)
                return
            except RequestFailed as error:
                if isinstance(error, ApiError) and error.status == 409:
                    return
                log.error("namespace_missing", namespace=name, error=str(error))
                if isinstance(error, ApiError) and not passing(error):
                    return
            await asyncio.sleep(1.0)

    def _send(self, message: feed.ToBrain) -> None:
        if self._link is not None:
            self._link.send(message)

    def _to_brain(self, events: list[feed.Event]) -> None:
        for event in events:
            self._send(event)

    async def _watch_brain(self, pulse: Pulse) -> None:
        """End the process where the brain hangs: the lease is given back, and another replica decides."""
        await pulse.run()
        log.error("brain_hangs", seconds=round(pulse.silent))
        if self._brain is not None:
            self._brain.kill()  # it does not read: what is queued for it would hold up our end

    def _on_brain(self, messages: list[feed.FromBrain]) -> None:
        assert self._pulse is not None
        assert self._page is not None
        self._pulse.heard()
        for message in messages:
            match message:
                case feed.Handover():
                    self._performer.handle(message)
                    if self._tracing is not None:
                        self._tracing.placed(message.session, message.places)
                    self._page.handover(message)
                case feed.SessionDone():
                    self._metrics.session(message)
                    if self._tracing is not None:
                        self._tracing.session(message.session, message.seconds)
                    self._page.done(message)
                case feed.PageReply():
                    self._page.reply(message)
                case feed.SnapshotReply(data=data):
                    for waiter in self._snapshot_waiters:
                        if not waiter.done():
                            waiter.set_result(data)
                    self._snapshot_waiters.clear()

    def _on_brain_gone(self, cause: str) -> None:
        log.error("brain_gone", cause=cause)
        self._stop(1)

    async def _wait_for_caller(self, event: threading.Event) -> None:
        await asyncio.to_thread(event.wait)
        self._stop(0)
        await asyncio.Event().wait()

    async def _reload(self) -> None:
        """Take over a changed configuration file; one that is wrong is refused, the old one stays."""
        file = self._file
        if file is None:
            await asyncio.Event().wait()
            return
        while True:
            await asyncio.sleep(RELOAD_PERIOD)
            try:
                content = file.changed()
                if content is None:
                    continue
                config = with_options(load_configuration(None, content=content), self._options)
            except (OSError, ConfigError) as error:
                log.error("configuration_refused", file=str(file.path), error=str(error))
                self._metrics.reload(ok=False)
                continue
            fixed = [name for name in _FIXED if getattr(config, name) != getattr(self._config, name)]
            if fixed:
                log.warning("configuration_needs_restart", keys=fixed)
            self._config = replace(config, **{name: getattr(self._config, name) for name in _FIXED})
            self._metrics.reload(ok=True)
            self._send(feed.ConfigSet(msgspec.json.encode(self._config)))

    async def _shut_down(self, tasks: list[asyncio.Task[Any]]) -> None:
        """Stop what writes, then give the lease back, then end the brain."""
        await self._performer.close()
        await self._writer.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._link is not None:
            await self._link.close()
        if self._brain is not None:
            try:
                await asyncio.to_thread(self._brain.wait, 5)
            except subprocess.TimeoutExpired:
                self._brain.kill()
                await asyncio.to_thread(self._brain.wait)
        if self._tracing is not None:
            await asyncio.to_thread(self._tracing.close)

    async def _snapshot(self) -> bytes:
        waiter: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._snapshot_waiters.append(waiter)
        self._send(feed.SnapshotAsk())
        async with asyncio.timeout(30):
            return await waiter
