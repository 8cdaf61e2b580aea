"""Who we are to the API server, and whom we believe to be it.

Decided here: where the configuration comes from (an explicit kubeconfig, $KUBECONFIG, the pod's service account,
~/.kube/config, in that order) and when it is read again: when a file behind it changes, shortly before an exec plugin's
credentials expire, and at once when the server answered 401. The `kubernetes` package reads the files and runs the
plugins; its models are never used. Must not know: what is requested. Invariant: a failed reload keeps the credentials
that were there, and is reported; only the very first load may fail.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import proxy_bypass_environment  # type: ignore[attr-defined]  # typeshed lacks it

import structlog

log = structlog.get_logger(__name__)

RELOAD_TIMEOUT = 60.0
"""Seconds that an exec plugin may take before we go on without it."""
FORCED_GAP = 1.0
"""Shortest time between two reloads forced by 401."""
_EXPIRY_SKEW = 300.0
_SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class AuthError(Exception):
    """The configuration cannot be used; the message names the file and what is wrong with it."""


@dataclass(frozen=True, slots=True)
class Identity:
    """One reading of the configuration. `expires` is in seconds since the epoch (None: not known)."""

    server: str
    authorization: str = ""
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    verify: bool = True
    tls_server_name: str = ""
    proxy: str = ""
    namespace: str = ""
    expires: float | None = None
    loaded: float = 0.0
    files: tuple[str, ...] = ()

    def due(self, now: float) -> bool:
        """Whether the credentials are close to their end: 5 minutes before, or a fifth of a shorter life."""
        if self.expires is None:
            return False
        life = max(0.0, self.expires - self.loaded)
        return now >= self.expires - min(_EXPIRY_SKEW, life / 5)


Source = Callable[[], Identity]


class Credentials:
    """The identity in use: `authorization`, `tls`, `server`. Reads are plain attributes; `refresh` may block a thread.

    `generation` counts the reloads, so that a caller that got 401 can tell whether somebody has reloaded meanwhile.
    """

    def __init__(self, source: Source, identity: Identity, clock: Callable[[], float] = time.time) -> None:
        self._source = source
        self._clock = clock
        self._running: asyncio.Future[bool] | None = None
        self._forced = float("-inf")
        self.generation = 0
        self.failures = 0
        self._adopt(identity)

    @staticmethod
    async def load(kubeconfig: str | None = None, context: str | None = None) -> Credentials:
        """Find the configuration and read it. Raises `AuthError`."""
        source = find_source(kubeconfig, context)
        try:
            async with asyncio.timeout(RELOAD_TIMEOUT):
                identity = await asyncio.to_thread(source)
        except TimeoutError as error:
            raise AuthError(f"the configuration was not read within {RELOAD_TIMEOUT:g} s (exec plugin?)") from error
        return Credentials(source, identity)

    @staticmethod
    def plain(server: str, token: str = "") -> Credentials:
        """Credentials for a server that needs none (the playground, a proxy of kubectl), or a fixed token."""
        identity = Identity(server=server.rstrip("/"), authorization=f"Bearer {token}" if token else "")
        return Credentials(lambda: identity, identity)

    def _adopt(self, identity: Identity) -> None:
        tls = _tls_context(identity)
        self.identity = identity
        self.authorization = identity.authorization
        self.server = identity.server
        self.tls = tls
        self._stamps = _stamps(identity.files)
        self.generation += 1

    async def refresh(self, *, force: bool = False) -> bool:
        """Read the configuration again if it may have changed, or if forced; say whether it was.

        Raises nothing but cancellation: a reload that fails is logged and counted in `failures`.
        """
        if not force and not self.identity.due(self._clock()) and _stamps(self.identity.files) == self._stamps:
            return False
        if self._running is None:
            if force and time.monotonic() - self._forced < FORCED_GAP:
                return False
            self._forced = time.monotonic()
            self._running = asyncio.ensure_future(self._reload())
        # Shielded: a caller that goes away, or a plugin that hangs, must not leave a second plugin running beside it.
        try:
            async with asyncio.timeout(RELOAD_TIMEOUT):
                return await asyncio.shield(self._running)
        except TimeoutError:
            self.failures += 1
            log.warning("credentials are still being read; the previous ones stay", seconds=RELOAD_TIMEOUT)
            return False

    async def _reload(self) -> bool:
        try:
            self._adopt(await asyncio.to_thread(self._source))
        except (AuthError, OSError) as error:
            self.failures += 1
            log.warning("credentials could not be read again; the previous ones stay", error=str(error))
            return False
        finally:
            self._running = None
        return True


def _stamps(files: tuple[str, ...]) -> tuple[tuple[int, int, int], ...]:
    stamps = []
    for name in files:
        try:
            stat = os.stat(name)
            stamps.append((stat.st_mtime_ns, stat.st_ino, stat.st_size))
        except OSError:
            stamps.append((0, 0, 0))
    return tuple(stamps)


def _tls_context(identity: Identity) -> ssl.SSLContext | None:
    if not identity.server.startswith("https"):
        return None
    try:
        context = ssl.create_default_context(cafile=identity.ca_file or None)
        # Python 3.13 turns on a strictness that cluster CAs made by older kubeadm do not meet.
        context.verify_flags &= ~getattr(ssl, "VERIFY_X509_STRICT", 0)
        if identity.cert_file:
            context.load_cert_chain(identity.cert_file, identity.key_file or None)
        if not identity.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
    except (OSError, ssl.SSLError) as error:
        names = ", ".join(name for name in (identity.ca_file, identity.cert_file, identity.key_file) if name)
        raise AuthError(f"TLS files {names}: {error}") from error
    return context


def find_source(kubeconfig: str | None, context: str | None) -> Source:
    """Choose where the configuration comes from."""
    path = kubeconfig or os.environ.get("KUBECONFIG") or ""
    in_pod = bool(os.environ.get("KUBERNETES_SERVICE_HOST")) and (_SERVICE_ACCOUNT / "token").exists()
    if path or context or not in_pod:
        chosen = path or str(Path("~/.kube/config").expanduser())
        return lambda: read_kubeconfig(chosen, context)
    return read_service_account


def read_service_account() -> Identity:
    """Read the pod's service account."""
    from kubernetes.config import ConfigException
    from kubernetes.config.incluster_config import InClusterConfigLoader

    token, ca = _SERVICE_ACCOUNT / "token", _SERVICE_ACCOUNT / "ca.crt"
    configuration = _new_configuration()
    try:
        InClusterConfigLoader(token_filename=str(token), cert_filename=str(ca), try_refresh_token=False).load_and_set(
            configuration
        )
    except ConfigException as error:
        raise AuthError(f"service account {_SERVICE_ACCOUNT}: {error}") from error
    namespace = _SERVICE_ACCOUNT / "namespace"
    return _identity(
        configuration,
        files=(str(token), str(ca)),
        namespace=namespace.read_text().strip() if namespace.exists() else "",
    )


def read_kubeconfig(path: str, context: str | None) -> Identity:
    """Read a kubeconfig (several, joined with ':', are merged) and run its exec plugin if it names one."""
    from kubernetes.config import ConfigException
    from kubernetes.config.kube_config import KubeConfigLoader, KubeConfigMerger
    from yaml import YAMLError

    configuration = _new_configuration()
    try:
        merger = KubeConfigMerger(path)
        if merger.config is None:
            raise AuthError(f"kubeconfig {path}: no such file")
        loader = KubeConfigLoader(config_dict=merger.config, active_context=context, config_base_path=None)
        loader.load_and_set(configuration)
        current = loader.current_context["context"]
    except (ConfigException, YAMLError, OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise AuthError(f"kubeconfig {path}: {error}") from error
    user = _user_of(merger.config, current.get("user"))
    if "exec" in user and not configuration.api_key and not configuration.cert_file:
        # The library logs the plugin's failure and goes on as nobody; a clear error is better than 401 later.
        raise AuthError(f"kubeconfig {path}: the exec plugin of user {current.get('user')!r} gave no credentials")
    expiry = getattr(loader, "expiry", None)
    return _identity(
        configuration,
        files=(*merger.paths, *_files_of(user, merger.paths)),
        namespace=current.get("namespace", ""),
        expires=expiry.timestamp() if expiry is not None else None,
    )


def _user_of(config: object, name: object) -> dict[str, object]:
    value = getattr(config, "value", {})
    for entry in value.get("users") or []:
        raw = getattr(entry, "value", entry)
        if raw.get("name") == name:
            return dict(raw.get("user") or {})
    return {}


def _files_of(user: dict[str, object], paths: list[str]) -> tuple[str, ...]:
    """Return the token file of a user, as written relative to any of the kubeconfig files."""
    name = user.get("tokenFile")
    if not isinstance(name, str) or not name:
        return ()
    return tuple(os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(path)), name)) for path in paths)


def _new_configuration() -> Any:
    from kubernetes.client.configuration import Configuration

    return Configuration()


def _identity(
    configuration: Any, *, files: tuple[str, ...], namespace: str = "", expires: float | None = None
) -> Identity:
    server = str(configuration.host).rstrip("/")
    authorization = str(configuration.api_key.get("BearerToken", "")).strip()
    if authorization.startswith("bearer "):
        authorization = "Bearer " + authorization.removeprefix("bearer ").strip()
    tls_files = (configuration.ssl_ca_cert or "", configuration.cert_file or "", configuration.key_file or "")
    return Identity(
        server=server,
        authorization=authorization,
        ca_file=tls_files[0],
        cert_file=tls_files[1],
        key_file=tls_files[2],
        verify=bool(configuration.verify_ssl),
        tls_server_name=configuration.tls_server_name or "",
        proxy=_proxy_for(server, configuration.proxy or "", configuration.no_proxy or ""),
        namespace=namespace,
        expires=expires,
        loaded=time.time(),
        files=tuple(name for name in (*files, *tls_files) if name),
    )


def _proxy_for(server: str, proxy: str, no_proxy: str) -> str:
    if not proxy:
        return ""
    host = urlsplit(server).netloc
    if no_proxy and proxy_bypass_environment(host, {"no": no_proxy}):
        return ""
    if not proxy.startswith(("http://", "https://")):
        raise AuthError(f"proxy {proxy}: only http:// and https:// proxies are supported")
    return proxy
