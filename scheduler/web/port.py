"""Where the page meets the io process: it hears what the session process says, and asks it.

Decided here: that a question has a number, so that its answer finds whoever asked, also late; and that nothing which
goes wrong here reaches who decides and binds: it is logged, and the page lacks it. Must not know how the io process is
made up: it is given a way to send, and a way to ask how things stand.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import msgspec
import structlog

from scheduler.cluster import feed
from scheduler.config import SchedulerConfiguration
from scheduler.observe.health import Reply
from scheduler.observe.journal import Journal
from scheduler.web.site import Site, Status, Unanswerable

log = structlog.get_logger("muster.page")


class Page:
    """See the module. send: to the session process; status: how the io process stands."""

    def __init__(self, send: Callable[[feed.ToBrain], None], status: Callable[[], Status]) -> None:
        self._send = send
        self._journal = Journal()
        self._site = Site(self._ask, self._journal, status)
        self._askers: dict[int, asyncio.Future[feed.PageReply]] = {}
        self._asked = 0

    # -- what it hears --------------------------------------------------------------------------------------------

    def handover(self, decided: feed.Handover) -> None:
        """Take what a session decided."""
        with _apart("handover"):
            self._journal.handover(decided)

    def done(self, told: feed.SessionDone) -> None:
        """Take the figures of a session, and let browsers know of it."""
        with _apart("session"):
            self._journal.done(told)
        self._site.news()

    def reply(self, told: feed.PageReply) -> None:
        """Take an answer; nobody may wait for it any more."""
        asker = self._askers.pop(told.number, None)
        if asker is not None and not asker.done():
            asker.set_result(told)

    def watch(self, events: Sequence[feed.Event]) -> None:
        """Take what the cache tells its subscribers."""
        with _apart("events"):
            self._journal.watch(events)

    def passing(self, event: feed.Event) -> None:
        """Send on what the session process is to know, with an eye on what became of decisions."""
        if isinstance(event, feed.HandoverFailed):
            with _apart("refusal"):
                self._journal.refused(event.session, event.groups, event.cause)
        self._send(event)

    def news(self) -> None:
        """Let browsers know that this replica stands differently."""
        self._site.news()

    # -- what it answers ------------------------------------------------------------------------------------------

    async def answer(self, path: str, query: str) -> Reply:
        """Return what an address of the page shows."""
        return await self._site.answer(path, query)

    async def _ask(self, view: str, arguments: dict[str, str]) -> bytes:
        self._asked += 1
        asker: asyncio.Future[feed.PageReply] = asyncio.get_running_loop().create_future()
        self._askers[self._asked] = asker
        self._send(feed.PageAsk(self._asked, view, arguments))
        reply = await asker
        if reply.fault:
            raise Unanswerable(reply.fault)
        return reply.data


@contextmanager
def _apart(told: str) -> Iterator[None]:
    """Keep what goes wrong to the page."""
    try:
        yield
    except Exception:
        log.exception("page_not_told", told=told)


def digest(config: SchedulerConfiguration) -> str:
    """Return twelve letters that differ when a configuration differs."""
    return hashlib.sha256(msgspec.json.encode(config)).hexdigest()[:12]
