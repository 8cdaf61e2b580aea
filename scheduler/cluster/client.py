"""The one HTTP client of the project: requests to the API server and line streams from it.

Decided here: how a request is sent, limited, timed out and repeated, and which error a caller sees. Must not know: what
the bytes mean, beyond a Status. Invariant: a request that may change something is never sent twice unless the server
refused it (401); when its outcome cannot be known the caller gets `OutcomeUnknown` (or an `ApiError` that is
`ambiguous`) and must read before it acts.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from email.utils import parsedate_to_datetime
from types import TracebackType
from typing import Any
from urllib.parse import quote, urlencode

import msgspec
import structlog

from scheduler.cluster.auth import Credentials
from scheduler.cluster.connections import Answer, Connection, ConnectionFailed, Pool, Target

log = structlog.get_logger(__name__)

JSON = "application/json"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"
APPLY = "application/apply-patch+yaml"
"""Content types of PATCH; JSON is YAML, so an apply patch may be JSON."""

POOL = 112
"""Connections for requests: the binder's 64, and 48 for everything else, so that no other write waits for a bind."""
POOL_BESIDE_BINDER = 48
REFRESH_PERIOD = 20.0
_CONNECT_TIMEOUT = 10.0
_MAX_LINE = 64 * 2**20
_REMIND = 60.0
_RIGHT = re.compile(r'cannot (\S+) resource "([^"]*)" in API group "([^"]*)"')
"""What an API server with RBAC says of a right that is missing."""

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
        self._pooled: Pool | None = None
        self._free: Pool | None = None
        self._target: tuple[int, Target] | None = None
        self._refresher: asyncio.Task[None] | None = None
        self.log_refusals = True
        self._missing: dict[tuple[str, ...], float] = {}

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
        log_refusals: bool = True,
    ) -> AsyncIterator[ApiClient]:
        """Read the configuration and open a client. Raises `AuthError` when there is none that works.

        log_refusals: whether a missing right is logged, beside being raised.
        """
        credentials = await Credentials.load(kubeconfig, context)
        async with cls(
            credentials, qps=qps, burst=burst, user_agent=user_agent, on_request=on_request, pool=pool
        ) as client:
            client.log_refusals = log_refusals
            yield client

    async def __aenter__(self) -> ApiClient:
        self._pooled = Pool(self._pool)
        self._free = Pool(0)
        self._refresher = asyncio.create_task(self._keep_fresh(), name="credentials")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._refresher is not None:
            self._refresher.cancel()
            with suppress(asyncio.CancelledError):
                await self._refresher
        for pool in (self._pooled, self._free):
            if pool is not None:
                pool.close()

    async def _keep_fresh(self) -> None:
        while True:
            await asyncio.sleep(REFRESH_PERIOD)
            await self.credentials.refresh()

    def _way(self) -> Target:
        """Return the way to the server with the credentials of now."""
        credentials = self.credentials
        if self._target is None or self._target[0] != credentials.generation:
            identity = credentials.identity
            headers = dict(self._headers)
            if credentials.authorization:
                headers["Authorization"] = credentials.authorization
            try:
                made = Target.of(credentials.server, headers, credentials.tls, identity.tls_server_name, identity.proxy)
            except ValueError as error:
                raise Unreachable(f"the credentials cannot be used: {error}") from error
            self._target = (credentials.generation, made)
        return self._target[1]

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
        headers = f"Accept: {accept or JSON}\r\n"
        if data is not None:
            headers += f"Content-Type: {content_type}\r\n"
        if params:
            path = f"{path}?{urlencode(params)}"
        renewed = False
        while True:
            if not urgent:
                await self._limit.take()
            generation = self.credentials.generation
            try:
                return await self._once(method, path, data, headers, timeout, urgent)
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
        self, method: str, path: str, data: bytes | None, headers: str, timeout: float, urgent: bool
    ) -> bytes:
        pool = self._free if urgent else self._pooled
        if pool is None:
            raise RuntimeError("the client is not open")
        target = self._way()
        request = target.request(method, path, headers, data)
        fence = None if urgent or method == "GET" else self.fence
        sent = False
        began = time.monotonic()
        status = 0
        try:
            async with asyncio.timeout(timeout):
                connection = await pool.acquire(target, min(timeout, _CONNECT_TIMEOUT))
                try:
                    if fence is not None and not fence():
                        raise _Fenced("the lease was lost while the request waited for a connection")
                    sent = True
                    answer = await connection.exchange(request)
                finally:
                    pool.release(connection)
            status = answer.status
            if 200 <= status < 300:
                return answer.body
            raise self._told(_error(answer, answer.body))
        except OSError as error:  # TimeoutError is one too
            text = f"{method} {path}: {_reason(error, timeout)}"
            if method == "GET" or not sent:
                raise Unreachable(text) from error
            raise OutcomeUnknown(text) from error
        finally:
            if self.on_request is not None:
                self.on_request(method, path.partition("?")[0], status, time.monotonic() - began)

    def _told(self, error: ApiError) -> ApiError:
        """Name a right that is missing, here once for every caller: at most once a minute for each right."""
        found = _RIGHT.search(error.message) if self.log_refusals and error.status == 403 else None
        if found is not None and self._missing.get(found.groups(), 0.0) < time.monotonic():
            self._missing[found.groups()] = time.monotonic() + _REMIND
            verb, resource, group = found.groups()
            log.error("right_missing", verb=verb, resource=resource, group=group, problem=error.message)
        return error

    async def get_json(self, path: str, *, params: Params | None = None, timeout: float = 15.0) -> Any:
        """GET, decoded."""
        return _decode(await self.request("GET", path, params=params, timeout=timeout))

    async def post_json(self, path: str, body: Body, *, params: Params | None = None, timeout: float = 15.0) -> Any:
        """POST, with the answer decoded."""
        return _decode(await self.request("POST", path, body=body, params=params, timeout=timeout))

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
        asked = f"{path}?{urlencode(params)}" if params else path
        began = time.monotonic()
        status = 0
        try:
            for attempt in (0, 1):
                generation = self.credentials.generation
                target = self._way()
                request = target.request("GET", asked, f"Accept: {accept or JSON}\r\n", None)
                connection = await self._free.acquire(target, _CONNECT_TIMEOUT)
                try:
                    async with asyncio.timeout(read_timeout):
                        answer = await connection.begin(request)
                    status = answer.status
                    if status == 200:
                        yield []
                        async for lines in _lines(connection, read_timeout):
                            yield lines
                        return
                    error = self._told(_error(answer, await _rest(connection, read_timeout)))
                finally:
                    self._free.release(connection)
                if status != 401 or attempt or not await self._renewed(generation):
                    raise error
        except OSError as failure:
            raise Unreachable(f"WATCH {path}: {_reason(failure, read_timeout)}") from failure
        finally:
            if self.on_request is not None:
                self.on_request("WATCH", path, status, time.monotonic() - began)


async def _lines(connection: Connection, silence: float) -> AsyncIterator[list[bytes]]:
    rest = b""
    while chunk := await _next(connection, silence):
        *lines, rest = (rest + chunk).split(b"\n")
        if len(rest) > _MAX_LINE:
            raise ConnectionFailed(f"a line of more than {_MAX_LINE} bytes")
        if lines:
            yield [line for line in lines if line.strip()]
    if rest.strip():
        yield [rest]


async def _next(connection: Connection, silence: float) -> bytes:
    async with asyncio.timeout(silence):
        return await connection.read()


async def _rest(connection: Connection, silence: float) -> bytes:
    content = b""
    while chunk := await _next(connection, silence):
        content += chunk
    return content


def _reason(error: BaseException, timeout: float) -> str:
    if isinstance(error, TimeoutError) and not str(error):
        return f"no answer within {timeout:g} s"
    return str(error) or type(error).__name__


def _error(answer: Answer, content: bytes) -> ApiError:
    retry_after = parse_retry_after(answer.retry_after)
    try:
        status = _decode_status(content)
    except msgspec.DecodeError:
        # A proxy or load balancer answered, usually with a page of HTML.
        text = content[:200].decode("utf-8", "replace").strip()
        return ApiError(answer.status, answer.reason, text, retry_after, content)
    if retry_after is None and status.details is not None and status.details.retry_after_seconds > 0:
        retry_after = status.details.retry_after_seconds
    return ApiError(answer.status, status.reason or answer.reason, status.message or "", retry_after, content)


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
