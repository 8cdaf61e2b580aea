"""Who may look at the ports: asked of the API server, as for the ports of Kubernetes' own components.

Decided here: a bearer token is reviewed (TokenReview), then its user's right to `get` the path as a non-resource URL
(SubjectAccessReview). An answer holds for a minute, so that a scrape costs no request. When the API server cannot be
asked nobody is let in. Invariant: a token is kept as a digest only.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from typing import Any

import msgspec
import structlog

from scheduler.cluster.client import ApiClient, RequestFailed, path_of

log = structlog.get_logger(__name__)

_HOLDS = 60.0
_MOST = 1000
"""Answers that are kept; beyond it all are forgotten, because so many callers are none that scrape."""
_TOKENS = path_of("authentication.k8s.io", "v1", "tokenreviews")
_RIGHTS = path_of("authorization.k8s.io", "v1", "subjectaccessreviews")


class Reviewer:
    """Says which callers may see which path."""

    def __init__(self, client: ApiClient, clock: Callable[[], float] = time.monotonic) -> None:
        self._client, self._clock = client, clock
        self._known: dict[tuple[bytes, str], tuple[float, int]] = {}

    async def status(self, token: str, path: str) -> int:
        """Return 200 where the token's user may get the path, 401 for a token that is none, 403 or 503 otherwise."""
        if not token:
            return 401
        key, now = (hashlib.sha256(token.encode()).digest(), path), self._clock()
        found = self._known.get(key)
        if found is not None and now < found[0]:
            return found[1]
        try:
            status = await self._ask(token, path)
        except RequestFailed as error:
            log.warning("access_not_reviewed", path=path, error=str(error))
            return 503
        if len(self._known) >= _MOST:
            self._known.clear()
        self._known[key] = (now + _HOLDS, status)
        return status

    async def _ask(self, token: str, path: str) -> int:
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
        told = await self._review(_TOKENS, review)
        if not told.get("authenticated"):
            return 401
        user: dict[str, Any] = told.get("user") or {}
        spec = {
            "user": user.get("username", ""),
            "groups": user.get("groups") or [],
            "extra": user.get("extra") or {},
            "nonResourceAttributes": {"path": path, "verb": "get"},
        }
        access = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
        return 200 if (await self._review(_RIGHTS, access)).get("allowed") else 403

    async def _review(self, path: str, review: dict[str, Any]) -> dict[str, Any]:
        """Ask, past the fence of the lease: a review changes nothing, and a standby is asked as well."""
        answer = await self._client.request("POST", path, body=review, urgent=True, timeout=5.0)
        return msgspec.json.decode(answer, type=dict[str, Any]).get("status") or {}
