"""Reading from a scheduler's health port, without a token: the port is asked on this host, or through a port-forward.

Decided here: how it is told that nothing came. What is no HTTP, or no address, is told like a port that is closed. A
proxy that the environment names is not asked: it cannot know what is on this host.
"""

from __future__ import annotations

import http.client
import urllib.error
import urllib.request

_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class NoAnswer(Exception):
    """What was asked for did not come; the message names the address. status: what the port answered, 0 = nothing."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


def fetch(address: str, path: str, timeout: float) -> bytes:
    """Return what HOST:PORT has at a path. timeout: in seconds, for each read. Raises `NoAnswer`."""
    url = f"http://{address}{path}"
    try:
        with _DIRECT.open(url, timeout=timeout) as answer:
            data: bytes = answer.read()
            return data
    except urllib.error.HTTPError as error:
        try:
            said = error.read().decode(errors="replace")[:300].strip()
        except (OSError, http.client.HTTPException) as broken:
            said = f"and no more: {broken}"
        raise NoAnswer(f"{url}: {error.code} {said}", error.code) from error
    except (OSError, http.client.HTTPException, ValueError) as error:  # URLError is an OSError
        raise NoAnswer(f"{url}: {getattr(error, 'reason', None) or error or type(error).__name__}") from error
