"""The page without a cluster: sessions of a `World`, answered by the real desk and rendered by the real site."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from scheduler.cluster import feed
from scheduler.observe.health import Reply
from scheduler.observe.journal import Journal
from scheduler.web.asking import Desk
from scheduler.web.site import Site, Status, Unanswerable
from tests.unit.framework.world import World

LEADS = Status(
    synced=True,
    missing=(),
    leading=True,
    elects=True,
    identity="muster-0",
    holder="muster-0",
    epoch=3,
    config="0123456789ab",
    scheduler_names=("muster",),
    actions=("enqueue", "allocate"),
    objects={"nodes": 2},
    dialects={"muster": True, "volcano": False},
)


class House:
    """`session()` runs one and tells the journal; `get` answers as the port would."""

    def __init__(self, world: World) -> None:
        self.world, self.desk = world, Desk()
        world.now = world.now if world.now > 1e6 else time.time()
        self.journal = Journal()
        self.status = LEADS
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.site = Site(self._ask, self.journal, lambda: self.status)

    def session(self, *, later: float = 0.0) -> None:
        began = time.perf_counter()
        result = self.world.session(later=later)
        if result.decisions.items:
            self.journal.handover(feed.Handover.of(result.decisions))
        seconds = {**result.seconds, "session": time.perf_counter() - began}
        self.journal.done(feed.SessionDone(result.decisions.session, seconds, result.counters))
        self.site.news()

    async def _ask(self, view: str, arguments: dict[str, str]) -> bytes:
        self.asked.append((view, arguments))
        if self.world.result is None:
            return b""
        assert self.world.result.session is not None
        try:
            return self.desk.answer(self.world.result.session, self.world.config.actions, view, arguments)
        except Exception as error:
            raise Unanswerable(repr(error)) from error

    async def get(self, path: str, query: str = "") -> Reply:
        return await self.site.answer(path, query)

    async def text(self, path: str, query: str = "", *, status: int = 200) -> str:
        reply = await self.get(path, query)
        assert reply.status == status, reply.body.decode()
        return reply.body.decode()

    def now(self, **changes: Any) -> None:
        self.status = replace(self.status, **changes)
