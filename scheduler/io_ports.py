"""What the io process says of itself: health, readiness, metrics, its state, and how it stands for the page.

Decided here: what makes it ready, and which figures are told. Part of the composition root. Must not know how anything
is done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import structlog

from scheduler.binder.loop import Binder
from scheduler.cluster.access import Reviewer
from scheduler.cluster.cache import Cache
from scheduler.cluster.client import ApiClient
from scheduler.cluster.lease import Elector
from scheduler.cluster.performer import Performer
from scheduler.cluster.watches import Watches
from scheduler.cluster.writer import Writer
from scheduler.config import SchedulerConfiguration
from scheduler.controllers.grouping import Grouping
from scheduler.controllers.leaving import Leaving
from scheduler.model.components import Component
from scheduler.observe.health import Health
from scheduler.observe.metrics import Metrics
from scheduler.pulse import Pulse
from scheduler.web.port import Page, digest
from scheduler.web.site import Status

log = structlog.get_logger("muster.io")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """See the module. config: as it is now. What a process lacks that runs some components only is None."""

    config: Callable[[], SchedulerConfiguration]
    components: frozenset[Component]
    client: ApiClient
    cache: Cache
    watches: Watches
    elector: Any
    may_write: Callable[[], bool]
    writer: Writer
    performer: Performer
    metrics: Metrics
    binder: Binder | None
    grouping: Grouping | Leaving | None
    pulse: Pulse | None
    page: Page | None
    snapshot: Callable[[], Awaitable[bytes]] | None

    async def serve(self) -> None:
        """Answer until cancelled. Raises OSError, naming the address, when that cannot be."""
        host, _, port = self.config().health_address.rpartition(":")
        health = Health(
            host or "127.0.0.1",
            int(port),
            ready=self.ready,
            alive=self.alive,
            metrics=self.figures,
            snapshot=self.snapshot,
            state=self.state,
            access=Reviewer(self.client).status,
            page=self.page.answer if self.page is not None else None,
        )
        await health.start()
        log.info("serving", address=health.address)
        try:
            await asyncio.Event().wait()
        finally:
            await health.stop()

    @property
    def open_requests(self) -> int:
        """Requests under way; where another process binds, those that are seen to be open."""
        if self.binder is not None:
            return self.binder.open_requests
        return sum(request.open for request in self.cache.requests())

    def ready(self) -> tuple[bool, str]:
        """Whether everything was read, and is followed."""
        if not self.watches.all_synced.is_set():
            return False, f"waiting for {', '.join(self.watches.waiting_for())}"
        lost = self.watches.lost()
        return (False, f"cannot follow {', '.join(lost)}") if lost else (True, "ok")

    def alive(self) -> tuple[bool, str]:
        """Whether the brain answers."""
        return self.pulse.words if self.pulse is not None else (True, "ok")

    def figures(self) -> bytes:
        """Return the metrics."""
        self.metrics.observe(
            cache=self.cache.sizes(),
            watches=self.watches.status(),
            backlog=self.writer.backlog(),
            bind_depth=self.binder.depth if self.binder is not None else 0,
            open_requests=self.open_requests,
            assumed=self.performer.assumed,
            pending=self.performer.pending(),
            queues=self.performer.queues(),
            faults=self.performer.topology_faults(),
        )
        return self.metrics.render()

    def standing(self) -> Status:
        """Return how this process stands, for the page."""
        elected = isinstance(self.elector, Elector)
        config = self.config()
        return Status(
            synced=self.watches.all_synced.is_set(),
            missing=tuple(self.watches.waiting_for() or self.watches.lost()),
            leading=self.may_write(),
            elects=elected,
            identity=self.elector.identity if elected else "",
            holder=self.elector.holder or "",
            epoch=int(self.elector.epoch or 0),
            config=digest(config),
            scheduler_names=config.scheduler_names,
            actions=config.actions,
            objects=self.cache.sizes(),
            dialects=dict(self.cache.dialects),
            bad=self._bad(),
            open_requests=self.open_requests,
            writes=self.writer.backlog(),
        )

    def _bad(self) -> dict[str, str]:
        return {f"{kind} {name}": text for (kind, name), text in self.watches.bad_objects.items()}

    def state(self) -> dict[str, Any]:
        """Return what /debug/state shows."""
        return {
            "synced": self.watches.all_synced.is_set(),
            "leading": self.may_write(),
            "epoch": self.elector.epoch,
            "holder": self.elector.holder,
            "objects": self.cache.sizes(),
            "dialects": dict(self.cache.dialects),
            "badObjects": self._bad(),
            "openBindRequests": self.open_requests,
            "writes": self.writer.backlog(),
            "grouping": self._grouping_state(),
            "components": sorted(one.value for one in self.components),
        }

    def _grouping_state(self) -> dict[str, str] | str:
        if self.grouping is None:
            return "elsewhere"
        return self.grouping.problems or ({} if self.config().grouping.enabled else "off")
