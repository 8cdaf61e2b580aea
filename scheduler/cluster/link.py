"""The wire between the io process and the brain: batches of feed values, in order, in both directions.

Decided here: how values are framed (four bytes of length, then a msgpack list), how they are batched (whatever was
sent in one turn of the event loop goes out together), and what the end of the peer looks like. Must not know what any
message means. Invariant: messages arrive in the order in which they were sent, each once, or the link says that it is
closed; it never delivers half a batch and never goes on after a frame that it cannot read.

Two kinds with the same two ends: over a socket pair (`IoLink`, `BrainLink`), and inside one process (`LocalLink`).
"""

from __future__ import annotations

import asyncio
import select
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Protocol, cast

import msgspec
import structlog

from scheduler.cluster.feed import FromBrain, ToBrain, encode, from_brain, to_brain

log = structlog.get_logger(__name__)

MAX_FRAME = 1 << 30
"""A longer frame is a fault of the sender (or of the stream), never data."""

BATCH = 2000
"""Values a frame: large enough that framing costs nothing, small enough that the reader starts while we encode."""

MOST_WAITING = 1_000_000
"""Values that may wait for the brain. The watches cannot be held back, because the binder lives on them too: a brain
that does not come to take this many is as good as dead, and the link says so."""

_HEADER = struct.Struct(">I")
_SOCKET_BUFFER = 1 << 20
_READ_AT_ONCE = 1 << 20
_DRAIN_LIMIT = 64 << 20
_HIGH_WATER = 4 << 20
_UNENCODABLE = (OverflowError, TypeError, UnicodeError)
"""A number beyond 64 bits, a value of no known kind, a text that is none."""


class LinkClosed(EOFError):
    """The other end is gone; the message says what was seen."""


class IoEnd(Protocol):
    """The end that the io process holds; used from its event loop only."""

    async def start(self) -> None:
        """Begin to send and to receive."""

    def send(self, event: ToBrain) -> None:
        """Queue one value for the brain; it leaves at the end of this turn of the loop."""

    @property
    def backlog(self) -> int:
        """Values that are queued and not yet handed to the operating system."""

    async def close(self) -> None:
        """End the link; the brain sees `LinkClosed` after what was sent before."""


class BrainEnd(Protocol):
    """The end that the brain holds; used from one thread only."""

    def receive(self, timeout: float | None) -> list[ToBrain]:
        """Return all values that are there, waiting up to `timeout` seconds for the first (0: poll, None: for ever).

        Raises `LinkClosed` when the io process is gone and everything that it sent has been returned.
        """

    def send(self, messages: Sequence[FromBrain]) -> None:
        """Send values to the io process; blocks while it does not read. Raises `LinkClosed`."""

    def close(self) -> None:
        """End the link."""


def socket_pair() -> tuple[socket.socket, socket.socket]:
    """Return (io end, brain end) of a new connected pair, with buffers fit for batches."""
    pair = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    for end in pair:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SOCKET_BUFFER)
        end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _SOCKET_BUFFER)
    return pair


def frame(messages: Sequence[ToBrain] | Sequence[FromBrain]) -> bytes:
    """Return one batch as it travels."""
    body = encode(messages)
    if len(body) > MAX_FRAME:
        raise ValueError(f"a batch of {len(messages)} messages has {len(body)} bytes; the limit is {MAX_FRAME}")
    return _HEADER.pack(len(body)) + body


def _whole_frame(messages: list[ToBrain]) -> bytes:
    """Return one batch as it travels, without what cannot travel: one value that defies encoding stops nobody else."""
    try:
        return frame(messages)
    except _UNENCODABLE:
        return frame([message for message in messages if _travels(message)])


def _travels(message: ToBrain) -> bool:
    try:
        encode([message])
    except _UNENCODABLE as error:
        log.error("message_not_sent", problem=str(error), message=repr(message)[:500])
        return False
    return True


class FrameReader:
    """Cuts a byte stream into frames."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    @property
    def partial(self) -> bool:
        """Whether a frame has begun and not ended."""
        return bool(self._buffer)

    def feed(self, data: bytes) -> list[bytes]:
        """Add bytes; return the bodies of the frames that are now complete. Raises ValueError on an absurd length."""
        buffer = self._buffer
        buffer += data
        bodies: list[bytes] = []
        start = 0
        while len(buffer) - start >= _HEADER.size:
            (length,) = _HEADER.unpack_from(buffer, start)
            if length > MAX_FRAME:
                raise ValueError(f"frame of {length} bytes announced; the limit is {MAX_FRAME}")
            end = start + _HEADER.size + length
            if len(buffer) < end:
                break
            bodies.append(bytes(memoryview(buffer)[start + _HEADER.size : end]))
            start = end
        if start:
            del buffer[:start]
        return bodies


class IoLink(asyncio.Protocol):
    """The io process's end over a socket.

    `on_messages` gets each batch of the brain; `on_eof` is called once, with the cause, when the brain is gone (never
    after our own `close`).
    """

    def __init__(
        self,
        sock: socket.socket,
        on_messages: Callable[[list[FromBrain]], None],
        on_eof: Callable[[str], None],
        *,
        most_waiting: int = MOST_WAITING,
    ) -> None:
        self._sock = sock
        self._most_waiting = most_waiting
        self._on_messages = on_messages
        self._on_eof = on_eof
        self._reader = FrameReader()
        self._pending: list[ToBrain] = []
        self._transport: asyncio.Transport | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._scheduled = False
        self._writable = asyncio.Event()
        self._ended = asyncio.Event()
        self._closing = False
        self._cause = ""

    async def start(self) -> None:
        """Take over the socket."""
        self._loop = asyncio.get_running_loop()
        self._sock.setblocking(False)
        await self._loop.create_unix_connection(lambda: self, sock=self._sock)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by asyncio: the transport is ready."""
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=_HIGH_WATER)
        self._writable.set()
        self._schedule()

    def pause_writing(self) -> None:
        """Called by asyncio: the brain does not keep up."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """Called by asyncio: the brain has caught up."""
        self._writable.set()
        self._schedule()

    def data_received(self, data: bytes) -> None:
        """Called by asyncio: bytes of the brain."""
        if self._cause:
            return
        try:
            batches = [from_brain.decode(body) for body in self._reader.feed(data)]
        except (ValueError, msgspec.MsgspecError) as error:
            self._fail(f"unreadable message of the brain: {error}")
            return
        for batch in batches:
            self._on_messages(batch)

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by asyncio: the socket is gone."""
        self._transport = None
        self._pending.clear()
        self._writable.set()
        self._ended.set()
        if not self._closing:
            cut = " in the middle of a message" if self._reader.partial else ""
            cause = self._cause or (f"{exc}{cut}" if exc else f"the brain closed the link{cut}")
            self._cause = cause
            self._on_eof(cause)

    def send(self, event: ToBrain) -> None:
        """Queue one value. After the end of the link values are dropped: `on_eof` has been told."""
        if self._closing or self._cause or self._ended.is_set():
            return
        self._pending.append(event)
        if len(self._pending) > self._most_waiting:
            self._pending.clear()
            self._fail(f"the brain does not take what is sent: {self._most_waiting} values wait")
            return
        self._schedule()

    @property
    def backlog(self) -> int:
        """Values not yet encoded (the transport holds at most a few more batches)."""
        return len(self._pending)

    async def close(self) -> None:
        """Send what is queued, then end the link."""
        if self._transport is None:
            if not self._ended.is_set():
                self._sock.close()
            return
        while self._pending and not self._ended.is_set():
            self._flush()
            await self._writable.wait()
        self._closing = True
        if self._transport is not None:
            self._transport.close()
        await self._ended.wait()

    def _schedule(self) -> None:
        if self._pending and not self._scheduled and self._loop is not None:
            self._scheduled = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._scheduled = False
        self._flush()

    def _flush(self) -> None:
        """Write batches until the transport says stop; what is left waits for `resume_writing`."""
        sent = 0
        while sent < len(self._pending) and self._transport is not None and self._writable.is_set():
            self._transport.write(_whole_frame(self._pending[sent : sent + BATCH]))
            sent += BATCH
        del self._pending[:sent]

    def _fail(self, cause: str) -> None:
        self._cause = cause
        if self._transport is not None:
            self._transport.abort()


class BrainLink:
    """The brain's end over a socket: blocking, one thread."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._sock.setblocking(True)
        self._poll = select.poll()
        self._poll.register(sock, select.POLLIN)
        self._reader = FrameReader()
        self._closed = ""

    @classmethod
    def from_descriptor(cls, descriptor: int) -> BrainLink:
        """Return the link over an inherited descriptor."""
        return cls(socket.socket(fileno=descriptor))

    def fileno(self) -> int:
        """Return the descriptor, to pass it on or to poll it."""
        return self._sock.fileno()

    def receive(self, timeout: float | None) -> list[ToBrain]:
        """Return all values that are there; see `BrainEnd`."""
        events: list[ToBrain] = []
        end = None if timeout is None else time.monotonic() + timeout
        taken = 0
        while not self._closed and taken < _DRAIN_LIMIT:
            # A frame that has begun is read to its end only within the caller's time: between sessions we never hang.
            wait = 0.0 if events else None if end is None else max(0.0, end - time.monotonic())
            if not self._poll.poll(None if wait is None else wait * 1000):
                break
            taken += self._read(events)
        if self._closed and not events:
            raise LinkClosed(self._closed)
        return events

    def _read(self, events: list[ToBrain]) -> int:
        try:
            data = self._sock.recv(_READ_AT_ONCE)
        except OSError as error:
            self._closed = f"cannot read from the io process: {error}"
            return 0
        if not data:
            cut = " in the middle of a message" if self._reader.partial else ""
            self._closed = f"the io process closed the link{cut}"
            return 0
        try:
            for body in self._reader.feed(data):
                events.extend(to_brain.decode(body))
        except (ValueError, msgspec.MsgspecError) as error:
            self._closed = f"unreadable message of the io process: {error}"
        return len(data)

    def send(self, messages: Sequence[FromBrain]) -> None:
        """Send values; blocks while the io process does not read."""
        if self._closed:
            raise LinkClosed(self._closed)
        try:
            for start in range(0, len(messages), BATCH):
                self._sock.sendall(frame(messages[start : start + BATCH]))
        except OSError as error:
            self._closed = f"cannot write to the io process: {error}"
            raise LinkClosed(self._closed) from error

    def close(self) -> None:
        """End the link."""
        self._closed = self._closed or "closed by the brain"
        self._sock.close()


class LocalLink:
    """Both ends inside one process: `io` for the event loop, `brain` for a thread.

    Values are frozen, so they are handed over as they are.
    """

    def __init__(
        self,
        on_messages: Callable[[list[FromBrain]], None],
        on_eof: Callable[[str], None],
        *,
        most_waiting: int = MOST_WAITING,
    ) -> None:
        self._state = _LocalState()
        self.io: IoEnd = _LocalIo(self._state, on_messages, on_eof, most_waiting)
        self.brain: BrainEnd = _LocalBrain(self._state)


class _LocalState:
    """What both ends share; guarded by `changed`."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.to_brain: deque[ToBrain] = deque()
        self.from_brain: deque[list[FromBrain]] = deque()
        self.io_closed = False
        self.brain_closed = False
        self.wake_io: Callable[[], None] = lambda: None


class _LocalIo:
    def __init__(
        self,
        state: _LocalState,
        on_messages: Callable[[list[FromBrain]], None],
        on_eof: Callable[[str], None],
        most_waiting: int,
    ) -> None:
        self._state = state
        self._on_messages = on_messages
        self._on_eof = on_eof
        self._most_waiting = most_waiting
        self._pending: list[ToBrain] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._scheduled = False
        self._told_end = False

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._loop = loop

        def wake() -> None:
            with suppress(RuntimeError):  # the loop has ended: there is nobody to be told
                loop.call_soon_threadsafe(self._look)

        with self._state.changed:
            self._state.wake_io = wake
        self._look()
        self._schedule()

    def send(self, event: ToBrain) -> None:
        if self._told_end:
            return
        self._pending.append(event)
        if self.backlog > self._most_waiting:
            self._tell_end(f"the brain does not take what is sent: {self._most_waiting} values wait")
            return
        self._schedule()

    @property
    def backlog(self) -> int:
        return len(self._pending) + len(self._state.to_brain)

    def _tell_end(self, cause: str) -> None:
        if not self._told_end:
            self._told_end = True
            self._on_eof(cause)

    async def close(self) -> None:
        self._flush()
        with self._state.changed:
            self._state.io_closed = True
            self._state.changed.notify_all()

    def _schedule(self) -> None:
        if self._pending and not self._scheduled and self._loop is not None:
            self._scheduled = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._scheduled = False
        if not self._pending:
            return
        with self._state.changed:
            self._state.to_brain.extend(self._pending)
            self._state.changed.notify_all()
        self._pending.clear()

    def _look(self) -> None:
        """Deliver what the brain sent; runs in the loop."""
        with self._state.changed:
            batches = list(self._state.from_brain)
            self._state.from_brain.clear()
            ended = self._state.brain_closed and not self._state.io_closed
        for batch in batches:
            self._on_messages(batch)
        if ended:
            self._tell_end("the brain closed the link")


class _LocalBrain:
    def __init__(self, state: _LocalState) -> None:
        self._state = state

    def receive(self, timeout: float | None) -> list[ToBrain]:
        state = self._state
        with state.changed:
            state.changed.wait_for(lambda: bool(state.to_brain) or state.io_closed or state.brain_closed, timeout)
            events = list(state.to_brain)
            state.to_brain.clear()
            if not events and (state.io_closed or state.brain_closed):
                raise LinkClosed("the io side closed the link" if state.io_closed else "closed by the brain")
        return events

    def send(self, messages: Sequence[FromBrain]) -> None:
        if not messages:
            return
        with self._state.changed:
            if self._state.io_closed or self._state.brain_closed:
                raise LinkClosed("the link is closed")
            self._state.from_brain.append(list(messages))
            wake = self._state.wake_io
        wake()

    def close(self) -> None:
        with self._state.changed:
            self._state.brain_closed = True
            self._state.changed.notify_all()
            wake = self._state.wake_io
        wake()
