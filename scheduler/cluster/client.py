"""The one HTTP client of the project: requests to the API server and line streams from it.

Decided here: how a request is sent, limited, timed out and repeated, and which error a caller sees. Must not know: what
the bytes mean, beyond a Status. Invariant: a request that may change something is never sent twice unless the server
refused it (401); when its outcome cannot be known the caller gets `OutcomeUnknown` (or an `ApiError` that is
`ambiguous`) and must read before it acts.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from types import TracebackType
from typing import Any
from urllib.parse import quote

import aiohttp
import msgspec
import structlog
from yarl import URL

from scheduler.cluster.auth import Credentials

log = structlog.get_logger(__name__)

JSON = "application/json"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"
APPLY = "application/apply-patch+yaml"
"""Content types of PATCH; JSON is YAML, so an apply patch may be JSON."""

POOL = 112
"""Connections for requests: the binder's 64, and 48 for everything else. Whoever releases a connection and asks again
at once gets it before those that wait: a pool as small as the binder's concurrency would starve all other writes."""
POOL_BESIDE_BINDER = 48
REFRESH_PERIOD = 20.0
_CONNECT_TIMEOUT = 10.0
_MAX_LINE = 64 * 2**20
_READ_BUFFER = 2**18

Params = Mapping[str, str | int]
Body = bytes | Mapping[str, Any] | list[Any] | msgspec.Struct
RequestHook = Callable[[str, str, int, float], None]
"""Called after each request with method, path, status (0: no answer) and seconds."""


class RequestFailed(Exception):
    """Any way in which a request does not succeed."""


class ApiError(RequestFailed):
    """The server answered, and the answer is not success. `reason` is the Status' word (NotFound, Conflict, ...)."""

    def __init__(
        self, status: int, reason: str = "", message: str = "", retry_after: float | None = None, body: bytes = b""
    ) -> None:
        super().__init__(f"{status} {reason}: {message}" if message else f"{status} {reason}")
        self.status = status
        self.reason = reason
        self.message = message
        self.retry_after = retry_after
        self.body = body

    @property
    def ambiguous(self) -> bool:
        """Whether a change may have been made all the same: the server, or something before it, lost track of it."""
        return self.status in (500, 502, 503, 504)


class Unreachable(RequestFailed):
    """No answer, and nothing can have changed: the request was not sent, or it was only a read."""


class OutcomeUnknown(RequestFailed):
    """No answer to a request that was sent and may have been carried out: read before doing anything else."""


class _Fenced(OSError):
    """The fence said no: nothing was sent."""


class _Status(msgspec.Struct, gc=False):
    class Details(msgspec.Struct, gc=False, rename="camel"):
        retry_after_seconds: float = 0

    reason: str | None = None
    message: str | None = None
    details: Details | None = None


_decode_status = msgspec.json.Decoder(_Status).decode
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


@dataclass(slots=True)
class _Sent:
    """Whether a connection was obtained for the request: from then on it may have reached the server.

    `fence`: asked at that moment whether the request may still be sent.
    """

    value: bool = False
    fence: Callable[[], bool] | None = None


def path_of(
    group: str, version: str, plural: str, namespace: str | None = None, name: str | None = None, sub: str | None = None
) -> str:
    """Return the path of a collection, an object or a subresource; the core group is ""."""
    parts = ["/apis", group, version] if group else ["/api", version]
    if namespace:
        parts += ["namespaces", quote(namespace, safe="")]
    parts.append(plural)
    if name:
        parts.append(quote(name, safe=":"))
    if sub:
        parts.append(sub)
    return "/".join(parts)


class RateLimit:
    """A token bucket; waiting callers are served in the order in which they came. qps <= 0: no limit."""

    def __init__(self, qps: float, burst: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._qps = qps
        self._burst = max(1.0, float(burst))
        self._clock = clock
        self._tokens = self._burst
        self._last = clock()

    def reserve(self) -> float:
        """Take a token and return the seconds to wait before using it."""
        if self._qps <= 0:
            return 0.0
        now = self._clock()
        self._tokens = min(self._burst, self._tokens + (now - self._last) * self._qps) - 1
        self._last = now
        return max(0.0, -self._tokens / self._qps)

    async def take(self) -> None:
        """Wait for a token."""
        wait = self.reserve()
        if wait > 0:
            try:
                await asyncio.sleep(wait)
            except asyncio.CancelledError:
                self._tokens += 1
                raise


class ApiClient:
    """Requests to one API server. Use as an async context manager, or `connect`.

    `request` and its short forms share a pool of connections and the rate limit; streams and `urgent` requests (the
    lease) have their own connections and no limit, so that no amount of binding delays them.
    """

    def __init__(
        self,
        credentials: Credentials,
        *,
        qps: float = 0.0,
        burst: int = 1,
        user_agent: str = "muster",
        on_request: RequestHook | None = None,
        pool: int = POOL,
    ) -> None:
        self.credentials = credentials
        self._pool = pool
        self.on_request = on_request
        self.fence: Callable[[], bool] | None = None
        """Once set, asked when a connection is there for a request that may change something and is not urgent: the
        wait for a connection may have been longer than the lease. `Unreachable` when it says no."""
        self._limit = RateLimit(qps, burst)
        self._headers = {"User-Agent": user_agent, "Accept-Encoding": "identity"}
        self._pooled: aiohttp.ClientSession | None = None
        self._free: aiohttp.ClientSession | None = None
        self._refresher: asyncio.Task[None] | None = None

    @classmethod
    @asynccontextmanager
    async def connect(
        cls,
        kubeconfig: str | None = None,
        context: str | None = None,
        qps: float = 0.0,
        burst: int = 1,
        user_agent: str = "muster",
        on_request: RequestHook | None = None,
        pool: int = POOL,
    ) -> AsyncIterator[ApiClient]:
        """Read the configuration and open a client. Raises `AuthError` when there is none that works."""
        credentials = await Credentials.load(kubeconfig, context)
        async with cls(
            credentials, qps=qps, burst=burst, user_agent=user_agent, on_request=on_request, pool=pool
        ) as client:
            yield client

    async def __aenter__(self) -> ApiClient:
        self._pooled = self._session(self._pool)
        self._free = self._session(0)
        self._refresher = asyncio.create_task(self._keep_fresh(), name="credentials")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._refresher is not None:
            self._refresher.cancel()
            with suppress(asyncio.CancelledError):
                await self._refresher
        for session in (self._pooled, self._free):
            if session is not None:
                await session.close()

    def _session(self, limit: int) -> aiohttp.ClientSession:
        trace = aiohttp.TraceConfig()
        trace.on_connection_create_end.append(_mark_sent)
        trace.on_connection_reuseconn.append(_mark_sent)
        session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=limit, keepalive_timeout=15.0, ttl_dns_cache=30, socket_factory=_socket
            ),
            headers=self._headers,
            timeout=aiohttp.ClientTimeout(total=None),
            trace_configs=[trace],
            read_bufsize=_READ_BUFFER,
            trust_env=False,
            cookie_jar=aiohttp.DummyCookieJar(),
        )
        # The library repeats PUT and DELETE by itself when a kept connection turns out closed. Whether to repeat is
        # decided in this module only, and there is no public switch.
        session._retry_connection = False
        return session

    async def _keep_fresh(self) -> None:
        while True:
            await asyncio.sleep(REFRESH_PERIOD)
            await self.credentials.refresh()

    def _options(self, headers: Mapping[str, str]) -> dict[str, Any]:
        identity = self.credentials.identity
        options: dict[str, Any] = {"headers": dict(headers), "allow_redirects": False}
        if self.credentials.authorization:
            options["headers"]["Authorization"] = self.credentials.authorization
        if self.credentials.tls is not None:
            options["ssl"] = self.credentials.tls
        if identity.tls_server_name:
            options["server_hostname"] = identity.tls_server_name
        if identity.proxy:
            options["proxy"] = identity.proxy
        return options

    async def request(
        self,
        method: str,
        path: str,
        *,
        body: Body | None = None,
        params: Params | None = None,
        content_type: str = JSON,
        accept: str | None = None,
        timeout: float = 15.0,
        retries: int | None = None,
        urgent: bool = False,
    ) -> bytes:
        """Send one request and return the body of a 2xx answer.

        Raises `ApiError`, `Unreachable` or `OutcomeUnknown`. `timeout` covers one attempt, without the wait for the
        rate limit. A GET that got no answer is repeated `retries` times (default 2); nothing else is. 401 reloads the
        credentials and repeats once, whatever the method, because the server did nothing.
        """
        attempts = (2 if retries is None else retries) if method == "GET" else 0
        data = body if isinstance(body, bytes) or body is None else _encode(body)
        headers = {"Accept": accept or JSON}
        if data is not None:
            headers["Content-Type"] = content_type
        renewed = False
        while True:
            if not urgent:
                await self._limit.take()
            generation = self.credentials.generation
            try:
                return await self._once(method, path, data, params, headers, timeout, urgent)
            except ApiError as error:
                if error.status != 401 or renewed or not await self._renewed(generation):
                    raise
                renewed = True
            except Unreachable:
                if attempts <= 0:
                    raise
                attempts -= 1
                await asyncio.sleep(0.1)

    async def _renewed(self, generation: int) -> bool:
        """After a 401: whether there are newer credentials than those of `generation`."""
        if self.credentials.generation != generation:
            return True
        return await self.credentials.refresh(force=True)

    async def _once(
        self,
        method: str,
        path: str,
        data: bytes | None,
        params: Params | None,
        headers: Mapping[str, str],
        timeout: float,
        urgent: bool,
    ) -> bytes:
        session = self._free if urgent else self._pooled
        if session is None:
            raise RuntimeError("the client is not open")
        sent = _Sent(fence=None if urgent or method == "GET" else self.fence)
        began = time.monotonic()
        status = 0
        try:
            async with session.request(
                method,
                URL(self.credentials.server + path, encoded=True),
                params=dict(params) if params else None,
                data=data,
                timeout=aiohttp.ClientTimeout(total=timeout, sock_connect=min(timeout, _CONNECT_TIMEOUT)),
                trace_request_ctx=sent,
                **self._options(headers),
            ) as response:
                status = response.status
                content = await response.read()
                if 200 <= status < 300:
                    return content
                raise _error(response, content)
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            text = f"{method} {path}: {_reason(error, timeout)}"
            if method == "GET" or not sent.value:
                raise Unreachable(text) from error
            raise OutcomeUnknown(text) from error
        finally:
            if self.on_request is not None:
                self.on_request(method, path, status, time.monotonic() - began)

    async def get_json(self, path: str, *, params: Params | None = None, timeout: float = 15.0) -> Any:
        """GET, decoded."""
        return _decode(await self.request("GET", path, params=params, timeout=timeout))

    async def post_json(self, path: str, body: Body, *, params: Params | None = None, timeout: float = 15.0) -> Any:
        """POST, with the answer decoded."""
        return _decode(await self.request("POST", path, body=body, params=params, timeout=timeout))

    async def put_json(self, path: str, body: Body, *, params: Params | None = None, timeout: float = 15.0) -> Any:
        """PUT, with the answer decoded."""
        return _decode(await self.request("PUT", path, body=body, params=params, timeout=timeout))

    async def patch(
        self, path: str, body: Body, *, content_type: str = MERGE, params: Params | None = None, timeout: float = 15.0
    ) -> bytes:
        """PATCH with MERGE, STRATEGIC, JSON_PATCH or APPLY (which needs fieldManager in `params`)."""
        return await self.request("PATCH", path, body=body, params=params, content_type=content_type, timeout=timeout)

    async def delete(
        self,
        path: str,
        *,
        uid: str | None = None,
        resource_version: str | None = None,
        grace: int | None = None,
        propagation: str | None = None,
        timeout: float = 15.0,
    ) -> bytes:
        """DELETE; with `uid` (and `resource_version`) only that very object, else 409."""
        options: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions"}
        wanted = {"uid": uid, "resourceVersion": resource_version}
        preconditions = {key: value for key, value in wanted.items() if value is not None}
        if preconditions:
            options["preconditions"] = preconditions
        if grace is not None:
            options["gracePeriodSeconds"] = grace
        if propagation is not None:
            options["propagationPolicy"] = propagation
        return await self.request("DELETE", path, body=options, timeout=timeout)

    async def stream_batches(
        self, path: str, params: Params | None = None, *, read_timeout: float = 660.0, accept: str | None = None
    ) -> AsyncIterator[list[bytes]]:
        """GET a stream and yield its lines as they come, those that came together in one list.

        The first list is empty: it says that the stream is open, which may be long before its first line.
        `read_timeout` is the longest silence. Ends when the server ends the stream; an unfinished last line is yielded
        too and will not decode. Raises `ApiError` (before the first list) or `Unreachable`.
        """
        if self._free is None:
            raise RuntimeError("the client is not open")
        began = time.monotonic()
        status = 0
        try:
            for attempt in (0, 1):
                generation = self.credentials.generation
                async with self._free.get(
                    URL(self.credentials.server + path, encoded=True),
                    params=dict(params) if params else None,
                    timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_TIMEOUT, sock_read=read_timeout),
                    **self._options({"Accept": accept or JSON}),
                ) as response:
                    status = response.status
                    if status == 200:
                        yield []
                        async for lines in _lines(response.content):
                            yield lines
                        return
                    error = _error(response, await response.read())
                if status != 401 or attempt or not await self._renewed(generation):
                    raise error
        except (aiohttp.ClientError, OSError, TimeoutError) as failure:
            raise Unreachable(f"WATCH {path}: {_reason(failure, read_timeout)}") from failure
        finally:
            if self.on_request is not None:
                self.on_request("WATCH", path, status, time.monotonic() - began)

    async def stream_lines(
        self, path: str, params: Params | None = None, *, read_timeout: float = 660.0, accept: str | None = None
    ) -> AsyncIterator[bytes]:
        """`stream_batches`, line by line."""
        async for lines in self.stream_batches(path, params, read_timeout=read_timeout, accept=accept):
            for line in lines:
                yield line


def _socket(address: tuple[Any, ...]) -> socket.socket:
    """A socket that notices within about a minute that its peer is gone; a watch has nothing else to notice it by."""
    family, kind, protocol = address[:3]
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3), ("TCP_USER_TIMEOUT", 60_000)):
        option = getattr(socket, name, None)  # not on every platform
        if option is not None:
            made.setsockopt(socket.IPPROTO_TCP, option, value)
    return made


async def _mark_sent(_session: aiohttp.ClientSession, context: Any, _parameters: Any) -> None:
    sent = getattr(context, "trace_request_ctx", None)
    if sent is not None:
        if sent.fence is not None and not sent.fence():
            raise _Fenced("the lease was lost while the request waited for a connection")
        sent.value = True


async def _lines(content: aiohttp.StreamReader) -> AsyncIterator[list[bytes]]:
    rest = b""
    async for chunk in content.iter_any():
        *lines, rest = (rest + chunk).split(b"\n")
        if len(rest) > _MAX_LINE:
            raise aiohttp.ClientPayloadError(f"a line of more than {_MAX_LINE} bytes")
        if lines:
            yield [line for line in lines if line.strip()]
    if rest.strip():
        yield [rest]


def _reason(error: BaseException, timeout: float) -> str:
    if isinstance(error, TimeoutError) and not str(error):
        return f"no answer within {timeout:g} s"
    return str(error) or type(error).__name__


def _error(response: aiohttp.ClientResponse, content: bytes) -> ApiError:
    retry_after = parse_retry_after(response.headers.get("Retry-After"))
    try:
        status = _decode_status(content)
    except msgspec.DecodeError:
        # A proxy or load balancer answered, usually with a page of HTML.
        text = content[:200].decode("utf-8", "replace").strip()
        return ApiError(response.status, response.reason or "", text, retry_after, content)
    if retry_after is None and status.details is not None and status.details.retry_after_seconds > 0:
        retry_after = status.details.retry_after_seconds
    return ApiError(response.status, status.reason or response.reason or "", status.message or "", retry_after, content)


def parse_retry_after(value: str | None, now: float | None = None) -> float | None:
    """Return the seconds that a Retry-After header asks for (a number or a date), or None."""
    if not value:
        return None
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        at = parsedate_to_datetime(value).timestamp()
    except (ValueError, TypeError):
        return None
    return max(0.0, at - (time.time() if now is None else now))
