"""Faults on purpose: slow answers, refusals, dropped connections, cut watches, forgotten history.

Decided here: which request meets which fault. Handlers ask `Faults.before` and `Faults.after`; nothing else changes.
Invariant: a fault with a count is spent exactly that many times, and the log says on which requests.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from scheduler.playground.errors import ApiError


class DropConnection(Exception):
    """Close the connection without an answer."""


@dataclass(slots=True)
class Fault:
    """One rule: requests whose method and path (with query) match meet it until the count is spent."""

    path: re.Pattern[str]
    method: str = ""
    count: int = -1
    status: int = 0
    reason: str = ""
    message: str = ""
    retry_after: int | None = None
    drop: str = ""
    """"before": nothing is applied; "after": applied, but the client never hears."""
    latency: float = 0.0
    skip: int = 0
    """Let this many matching requests pass first."""
    hits: list[str] = field(default_factory=list)


_REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    409: "Conflict",
    410: "Expired",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}


class Faults:
    """The rules of one server. Safe to change while it runs (from its own loop)."""

    def __init__(self) -> None:
        self.rules: list[Fault] = []

    def latency(self, path: str, seconds: float, *, method: str = "", count: int = -1) -> Fault:
        """Delay matching requests before they are handled."""
        return self._add(Fault(re.compile(path), method, count, latency=seconds))

    def fail(
        self,
        path: str,
        status: int,
        *,
        method: str = "",
        count: int = 1,
        skip: int = 0,
        retry_after: int | None = None,
        reason: str = "",
        message: str = "",
    ) -> Fault:
        """Answer the next matching requests with a status; nothing is applied."""
        chosen = reason or _REASONS.get(status, "InternalError")
        text = message or f"injected fault: {chosen}"
        return self._add(Fault(re.compile(path), method, count, status, chosen, text, retry_after, skip=skip))

    def drop(self, path: str, when: str = "before", *, method: str = "", count: int = 1, skip: int = 0) -> Fault:
        """Reset the connection of the next matching requests, `before` or `after` they are applied."""
        if when not in ("before", "after"):
            raise ValueError(f"when must be 'before' or 'after', not {when!r}")
        return self._add(Fault(re.compile(path), method, count, drop=when, skip=skip))

    def _add(self, rule: Fault) -> Fault:
        self.rules.append(rule)
        return rule

    def remove(self, rule: Fault) -> None:
        """End one rule."""
        if rule in self.rules:
            self.rules.remove(rule)

    def clear(self) -> None:
        """End all rules."""
        self.rules.clear()

    def _take(self, rule: Fault, method: str, path: str) -> bool:
        if rule.count == 0 or (rule.method and rule.method != method) or not rule.path.search(path):
            return False
        if rule.skip > 0:
            rule.skip -= 1
            return False
        if rule.count > 0:
            rule.count -= 1
        rule.hits.append(f"{method} {path}")
        return True

    def meet(self, method: str, path: str) -> tuple[float, bool]:
        """Return (seconds to wait, drop after applying) for a request; raise when it must not be applied."""
        wait, drop_after = 0.0, False
        for rule in tuple(self.rules):
            if not self._take(rule, method, path):
                continue
            wait += rule.latency
            if rule.drop == "before":
                raise DropConnection
            if rule.drop == "after":
                drop_after = True
            if rule.status:
                raise ApiError(rule.status, rule.reason, rule.message, retry_after=rule.retry_after)
        return wait, drop_after
