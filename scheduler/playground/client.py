"""The small HTTP client that the fake kubelet and the fake controllers use, against either control plane.

Decided here: how a kubeconfig becomes a session, and the list-and-watch loop of the fakes. It must not know what the
fakes do. Invariant: `follow` never stops because of one failed request; it lists again after a pause.
"""

from __future__ import annotations

import asyncio
import base64
import ssl
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import structlog
import yaml

from scheduler.playground.errors import Obj
from scheduler.playground.storage import decode, encode

log = structlog.get_logger("muster.playground.client")


class HttpError(Exception):
    """An answer that is not a success."""

    def __init__(self, status: int, body: bytes) -> None:
        super().__init__(f"HTTP {status}: {body[:500].decode(errors='replace')}")
        self.status = status
        self.body = body


def _inline(entry: Obj, field: str, directory: Path) -> str | None:
    """Return the path of a credential that is a file or base64 data."""
    if entry.get(field):
        return str(entry[field])
    if entry.get(f"{field}-data"):
        path = directory / field
        path.write_bytes(base64.b64decode(entry[f"{field}-data"]))
        path.chmod(0o600)
        return str(path)
    return None


class Client:
    """Requests to one API server, by URL or kubeconfig (client certificates or token; no exec plugins)."""

    def __init__(self, url: str = "", *, kubeconfig: str | Path | None = None, connections: int = 64) -> None:
        self.connections = connections
        self.headers = {"User-Agent": "muster-playground"}
        self.tls: ssl.SSLContext | None = None
        if kubeconfig is not None:
            url = self._load(Path(kubeconfig))
        self.url = url.rstrip("/")
        self._session: aiohttp.ClientSession | None = None

    def _load(self, path: Path) -> str:
        config = yaml.safe_load(path.read_text())
        name = config["current-context"]
        context = next(row["context"] for row in config["contexts"] if row["name"] == name)
        cluster = next(row["cluster"] for row in config["clusters"] if row["name"] == context["cluster"])
        users = [row["user"] for row in config["users"] if row["name"] == context["user"]]
        user: Obj = (users[0] if users else None) or {}
        if user.get("token"):
            self.headers["Authorization"] = f"Bearer {user['token']}"
        url = str(cluster["server"])
        if url.startswith("https"):
            with tempfile.TemporaryDirectory() as scratch:
                directory = Path(scratch)
                self.tls = ssl.create_default_context(cafile=_inline(cluster, "certificate-authority", directory))
                if cluster.get("insecure-skip-tls-verify"):
                    self.tls.check_hostname = False
                    self.tls.verify_mode = ssl.CERT_NONE
                certificate = _inline(user, "client-certificate", directory)
                if certificate:
                    self.tls.load_cert_chain(certificate, _inline(user, "client-key", directory))
        return url

    @property
    def session(self) -> aiohttp.ClientSession:
        """The session; made on first use inside the loop."""
        if self._session is None:
            connector = aiohttp.TCPConnector(limit=self.connections, ssl=self.tls if self.tls else True)
            self._session = aiohttp.ClientSession(
                connector=connector, headers=self.headers, timeout=aiohttp.ClientTimeout(total=60)
            )
        return self._session

    async def close(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def request(
        self, method: str, path: str, body: Any = None, *, content_type: str = "application/json", **query: Any
    ) -> Any:
        """Send a request; return the JSON of a success, raise `HttpError` otherwise."""
        raw = encode(body) if body is not None else None
        params = {key: str(value) for key, value in query.items()}
        headers = {"Content-Type": content_type} if raw is not None else {}
        try:
            async with self.session.request(
                method, self.url + path, data=raw, params=params, headers=headers
            ) as response:
                data = await response.read()
        except aiohttp.ClientError as error:
            raise ConnectionError(f"{method} {path}: {error}") from error
        if response.status >= 400:
            raise HttpError(response.status, data)
        return decode(data) if data else None

    async def merge(self, path: str, patch: Obj, **query: Any) -> Any:
        """Send a JSON merge patch."""
        return await self.request("PATCH", path, patch, content_type="application/merge-patch+json", **query)

    async def follow(self, path: str, **query: Any) -> AsyncIterator[tuple[str, Any]]:
        """Yield ("SYNC", [objects]) after every list, then ("ADDED" | "MODIFIED" | "DELETED", object); never ends."""
        pause = 0.05
        while True:
            try:
                listed = await self.request("GET", path, **query)
                yield "SYNC", listed.get("items") or []
                pause = 0.05
                version = listed["metadata"]["resourceVersion"]
                async for event in self._watch(path, version, query):
                    yield event
            except (HttpError, aiohttp.ClientError, TimeoutError, OSError) as error:
                log.info("list or watch failed", path=path, error=str(error))
            await asyncio.sleep(pause)
            pause = min(2.0, pause * 2)

    async def _watch(self, path: str, version: str, query: dict[str, Any]) -> AsyncIterator[tuple[str, Any]]:
        while True:
            params = {
                **{key: str(value) for key, value in query.items()},
                "watch": "1",
                "allowWatchBookmarks": "true",
                "resourceVersion": version,
                "timeoutSeconds": "600",
            }
            timeout = aiohttp.ClientTimeout(total=None, sock_read=660)
            async with self.session.get(self.url + path, params=params, timeout=timeout) as response:
                if response.status >= 400:
                    raise HttpError(response.status, await response.read())
                rest = b""
                async for chunk in response.content.iter_any():
                    *lines, rest = (rest + chunk).split(b"\n")
                    for line in lines:
                        event = decode(line)
                        kind, obj = event["type"], event["object"]
                        if kind == "ERROR":
                            raise HttpError(int(obj.get("code", 500)), line)
                        version = obj["metadata"]["resourceVersion"]
                        if kind != "BOOKMARK":
                            yield kind, obj
