"""Serves the page: which address shows what, how long an answer is waited for, and how browsers are told of news.

Decided here: the addresses, the headers that keep the page to itself, that an answer about a session is asked for once
however many look, that an older one is shown while a session takes long, and how often a browser hears of news. Runs in
the io process; what it shows comes from the session process (`answers`) and from the journal. Nothing here writes.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import parse_qsl, unquote

import structlog

from scheduler import __version__
from scheduler.observe.health import PAGE, Reply
from scheduler.observe.journal import Journal

if TYPE_CHECKING:  # imported when somebody first looks: start-up is on the way to the first bind
    from scheduler.web.answers import Answer
    from scheduler.web.render import Renderer

log = structlog.get_logger("muster.page")

PATIENCE = 2.0
"""Seconds for which a page waits for the session process before it shows what it has."""
NEWS, PING = 2.0, 15.0
"""Seconds between two pieces of news to one browser, and after which one without news hears that we live."""
VIEWERS = 64
"""Browsers that are told of news at once; the others reload by hand."""
KEPT = 16
"""Answers that are kept."""
ASKED = 8
"""Questions that the session process has to answer at once."""
FIELDS, LONGEST = 20, 1024
"""Parameters of an address, and letters of one."""
_STATIC = Path(__file__).parent / "static"
_KINDS = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_GUARD = (
    "Content-Security-Policy: default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; "
    "object-src 'none'\r\n"
    "X-Content-Type-Options: nosniff\r\nX-Frame-Options: DENY\r\nReferrer-Policy: no-referrer\r\n"
    "Cross-Origin-Opener-Policy: same-origin\r\nCross-Origin-Resource-Policy: same-origin\r\n"
)
_PRIVATE = _GUARD + "Cache-Control: no-store\r\n"
_HTML = "text/html; charset=utf-8"
_LISTS = {"": "overview", "gangs": "gangs", "nodes": "nodes", "topology": "topology"}
_SINGLE = {"queues": "queue", "nodes": "node"}
Ask = Callable[[str, dict[str, str]], Awaitable[bytes]]
_Question: TypeAlias = tuple[Any, ...]
"""A view, then its arguments by name."""


class Busy(Exception):
    """The session process has not answered in time, and nothing older is there."""


class Unanswerable(Exception):
    """The session process could not answer; the message says why."""


@dataclass(frozen=True, slots=True)
class Status:
    """What the io process says of itself. missing: what it waits for or cannot follow. holder: who leads, as the lease
    has it. config: digest of the configuration in use."""

    synced: bool
    missing: tuple[str, ...]
    leading: bool
    elects: bool
    identity: str
    holder: str
    epoch: int
    config: str
    scheduler_names: tuple[str, ...]
    actions: tuple[str, ...]
    objects: Mapping[str, int] = field(default_factory=dict)
    dialects: Mapping[str, bool] = field(default_factory=dict)
    bad: Mapping[str, str] = field(default_factory=dict)
    open_requests: int = 0
    writes: Mapping[str, int] = field(default_factory=dict)
    version: str = __version__


class Site:
    """See the module. ask: gives the encoded answer of the session process; raises `Unanswerable`."""

    def __init__(self, ask: Ask, journal: Journal, status: Callable[[], Status]) -> None:
        self._ask_brain, self._journal, self._status = ask, journal, status
        self._renderer: Renderer | None = None
        self._loading = asyncio.Lock()
        self._answers: dict[_Question, Answer] = {}
        self._asking: dict[_Question, asyncio.Task[Answer | None]] = {}
        self._files: dict[str, tuple[bytes, str]] = {}
        self._viewers = 0
        self._news = asyncio.Event()

    # -- news -----------------------------------------------------------------------------------------------------

    def news(self) -> None:
        """Let browsers know that there is something new (a session, or another leader)."""
        self._news.set()
        self._news = asyncio.Event()

    async def _events(self) -> AsyncGenerator[bytes]:
        """Yield server-sent events until the browser goes."""
        self._viewers += 1
        try:
            yield b"retry: 3000\n\n"
            told = ""
            while True:
                news, now = self._news, self._said()
                if now != told:
                    told = now
                    yield f"event: news\ndata: {now}\n\n".encode()
                    await asyncio.sleep(NEWS)
                    continue
                try:
                    async with asyncio.timeout(PING):
                        await news.wait()
                except TimeoutError:
                    yield b": still here\n\n"
        finally:
            self._viewers -= 1

    def _said(self) -> str:
        last, status = self._journal.last, self._status()
        session = last.session if last is not None else ""
        return json.dumps({"session": session, "leading": status.leading, "synced": status.synced})

    # -- addresses ------------------------------------------------------------------------------------------------

    async def answer(self, path: str, query: str) -> Reply:
        """Return what an address below `PAGE` shows."""
        parts = [unquote(part) for part in path.removeprefix(PAGE).strip("/").split("/")]
        try:
            arguments = dict(parse_qsl(query, max_num_fields=FIELDS))
        except ValueError:
            return Reply(400, f"more than {FIELDS} parameters\n".encode(), more=_PRIVATE)
        if any(len(name) + len(value) > LONGEST for name, value in arguments.items()):
            return Reply(400, b"a parameter is too long\n", more=_PRIVATE)
        if path == PAGE:
            return Reply(308, b"", more=f"{_PRIVATE}Location: {PAGE}/\r\n")
        match parts:
            case ["static", name]:
                return await asyncio.to_thread(self._file, name)
            case ["events"]:
                if self._viewers >= VIEWERS:
                    return Reply(503, b"too many browsers follow already\n", more=f"{_PRIVATE}Retry-After: 60\r\n")
                more = f"{_PRIVATE}X-Accel-Buffering: no\r\n"
                return Reply(200, b"", "text/event-stream; charset=utf-8", more, self._events())
            case [name] if name in _LISTS:
                return await self._view(_LISTS[name], arguments)
            case [kind, name] if kind in _SINGLE:
                return await self._view(_SINGLE[kind], {**arguments, "name": name})
            case ["gangs", namespace, name]:
                return await self._view("gang", {**arguments, "namespace": namespace, "name": name})
            case ["sessions", name]:
                done = self._journal.session(name)
                if done is None:
                    return await self._page("nothing", arguments, 404, message=f"session {name} is not kept any more")
                return await self._page("session", arguments, done=done)
            case ["sessions" | "about" as name]:
                return await self._page(name, arguments)
            case _:
                return await self._page("nothing", arguments, 404, message="there is no such page")

    async def _view(self, view: str, arguments: dict[str, str]) -> Reply:
        """Return a page about the last session."""
        status = self._status()
        if not status.leading:
            return await self._page("standby", arguments)
        await self._load()
        try:
            answer, fresh = await self._about(view, arguments)
        except Busy:
            return await self._page("busy", arguments, 503, message="")
        except Unanswerable as error:
            return await self._page("busy", arguments, 500, message=str(error))
        if answer is None:
            return await self._page("waiting", arguments)
        message = getattr(answer, "message", "")
        if message:
            return await self._page("nothing", arguments, 404, message=message)
        return await self._page(view, arguments, answer=answer, fresh=fresh)

    async def _page(self, name: str, arguments: Mapping[str, str], status: int = 200, **values: Any) -> Reply:
        renderer = await self._load()
        body = await renderer.page(
            name,
            arguments=dict(arguments),
            about=self._status(),
            journal=self._journal,
            now=time.time(),
            **values,
        )
        return Reply(status, body, _HTML, _PRIVATE)

    async def _load(self) -> Renderer:
        """Import what makes pages, once, beside the loop."""
        async with self._loading:
            if self._renderer is None:
                self._renderer = await asyncio.to_thread(_make_renderer)
            return self._renderer

    def _file(self, name: str) -> Reply:
        if name not in self._files:
            known = {file.name: file for file in _STATIC.iterdir() if file.suffix in _KINDS}
            if name not in known:
                return Reply(404, b"not found\n", more=_PRIVATE)
            self._files[name] = known[name].read_bytes(), _KINDS[known[name].suffix]
        body, kind = self._files[name]
        return Reply(200, body, kind, f"{_GUARD}Cache-Control: private, max-age=86400\r\n")

    # -- answers --------------------------------------------------------------------------------------------------

    async def _about(self, view: str, arguments: Mapping[str, str]) -> tuple[Answer | None, bool]:
        """Return the answer to a question, and whether it is about the last session. Raises `Busy`, `Unanswerable`."""
        key = (view, *sorted(arguments.items()))
        last = self._journal.last
        known = self._answers.get(key)
        if known is not None and last is not None and known.session == last.session:
            return known, True
        task = self._asking.get(key)
        if task is None:
            if len(self._asking) >= ASKED:
                if known is None:
                    raise Busy
                return known, False
            task = self._asking[key] = asyncio.create_task(self._ask(key, view, dict(arguments)), name="page answer")
            task.add_done_callback(lambda done: self._asked(key, done))
        try:
            async with asyncio.timeout(PATIENCE):
                return await asyncio.shield(task), True
        except TimeoutError:
            if known is None:
                raise Busy from None
            return known, False

    def _asked(self, key: _Question, done: asyncio.Task[Answer | None]) -> None:
        self._asking.pop(key, None)
        if not done.cancelled() and done.exception() is not None:
            log.warning("page_not_answered", view=str(key[0]), error=str(done.exception()))

    async def _ask(self, key: _Question, view: str, arguments: dict[str, str]) -> Answer | None:
        renderer = await self._load()
        data = await self._ask_brain(view, arguments)
        if not data:
            return None
        answer = renderer.decode(view, data)
        self._answers.pop(key, None)
        self._answers[key] = answer
        while len(self._answers) > KEPT:
            self._answers.pop(next(iter(self._answers)))
        return answer


@lru_cache(maxsize=1)
def _make_renderer() -> Renderer:
    from scheduler.web.render import Renderer

    files = sorted(file for file in _STATIC.iterdir() if file.suffix in _KINDS)
    mark = hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:10]
    return Renderer(mark)
