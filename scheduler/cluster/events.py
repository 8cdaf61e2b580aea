"""Events on groups and pods, in the form of events.k8s.io/v1.

Decided here: how an event looks, and when one more with the same reason is worth writing. Must not know why something
is said. Invariant: about one group and reason there is at most one warning a minute, and none in the same words for ten
minutes.
"""

from __future__ import annotations

import hashlib
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol

from scheduler.cluster.client import JSON, path_of
from scheduler.cluster.writer import Request, Worth, Write
from scheduler.model.groups import PodGroup
from scheduler.model.pods import Pod

SAME_WORDS = 600.0
"""Seconds before a warning is written again as it was."""
SAME_REASON = 60.0
"""Seconds before a warning with the same reason is written again in other words."""
SESSION = "scheduling.muster.sh/session"

_KEPT = 20_000
_NAME = 230
"""Characters of the object's name in that of its event, which may have 253."""


class Writer(Protocol):
    """Who writes events."""

    def takes_event(self, *, redundant: bool = False) -> bool:
        """Whether one more event may be offered."""

    def offer(self, write: Write) -> None:
        """Queue an event."""


@dataclass(frozen=True, slots=True)
class Regarding:
    """The object that an event is about, and the scheduler in whose name it is reported ("" = our own name)."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str
    scheduler_name: str = ""


def of_group(group: PodGroup, member: Pod | None) -> Regarding:
    """Return a group's object, reported in the name that its members ask for."""
    name = member.scheduler_name if member is not None else ""
    return Regarding(group.api_version, group.kind, group.namespace, group.name, group.uid, name)


def of_pod(namespace: str, name: str, uid: str, pod: Pod | None) -> Regarding:
    """Return a pod."""
    return Regarding("v1", "Pod", namespace, name, uid, pod.scheduler_name if pod is not None else "")


@dataclass(slots=True)
class _Said:
    words: str
    at: float


class Events:
    """See the module. `clock` gives seconds since the epoch, `timer` monotonic ones; `note` cuts text to fit."""

    def __init__(
        self,
        writer: Writer,
        note: Callable[[str], str],
        *,
        controller: str = "muster",
        host: str = "",
        clock: Callable[[], float] = time.time,
        timer: Callable[[], float] = time.monotonic,
    ) -> None:
        self._writer = writer
        self._note = note
        self._controller = controller
        self._host = host or socket.gethostname()
        self._clock = clock
        self._timer = timer
        self._said: dict[str, dict[str, _Said]] = {}

    def waits(self, session: str, group: str, code: str, about: Regarding, text: str) -> None:
        """Warn that a group is not scheduled, unless that was said of it a moment ago."""
        words = self._note(text)
        if self._is_news(group, code, words) and self._writer.takes_event():
            self._write(session, about, "Warning", "FailedScheduling", "Scheduling", words)

    def warn(self, about: Regarding, reason: str, action: str, text: str) -> None:
        """Warn of something that no session decided, unless that was said of the object a moment ago."""
        words = self._note(text)
        if self._is_news(about.uid, reason, words) and self._writer.takes_event():
            self._write("", about, "Warning", reason, action, words)

    def _is_news(self, what: str, code: str, words: str) -> bool:
        now = self._timer()
        if len(self._said) > _KEPT:
            self._prune(now)
        said = self._said.setdefault(what, {})
        last = said.get(code)
        if last is not None and now - last.at < (SAME_WORDS if last.words == words else SAME_REASON):
            return False
        said[code] = _Said(words, now)
        return True

    def bound(self, session: str, about: Callable[[], Regarding], text: Callable[[], str], *, redundant: bool) -> None:
        """Say that something was bound. A redundant event is the first to be dropped under load."""
        if self._writer.takes_event(redundant=redundant):
            self._write(session, about(), "Normal", "Scheduled", "Binding", self._note(text()))

    def room(
        self, session: str, about: Callable[[], Regarding], reason: str, action: str, text: Callable[[], str]
    ) -> None:
        """Say that pods go to make room: to one of them, or to the group for which they go."""
        if self._writer.takes_event():
            self._write(session, about(), "Normal", reason, action, self._note(text()))

    def forget(self, group: str) -> None:
        """Note that a group is gone."""
        self._said.pop(group, None)

    def _prune(self, now: float) -> None:
        """Groups without an object are never reported gone: forget what would be said again anyway."""
        self._said = {
            group: reasons
            for group, reasons in self._said.items()
            if any(now - said.at < SAME_WORDS for said in reasons.values())
        }

    def _write(self, session: str, about: Regarding, kind: str, reason: str, action: str, words: str) -> None:
        now = self._clock()
        controller = about.scheduler_name or self._controller
        mark = hashlib.blake2b(f"{session} {about.uid} {reason} {words} {now}".encode(), digest_size=8).hexdigest()
        body = {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {
                "name": f"{about.name[:_NAME]}.{mark}",
                "namespace": about.namespace,
                "annotations": {SESSION: session} if session else {},
            },
            "eventTime": datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            "reportingController": controller,
            "reportingInstance": f"{controller}-{self._host}"[:128],
            "action": action,
            "reason": reason,
            "regarding": {
                "apiVersion": about.api_version,
                "kind": about.kind,
                "namespace": about.namespace,
                "name": about.name,
                "uid": about.uid,
            },
            "note": words,
            "type": kind,
        }
        request = Request(path_of("events.k8s.io", "v1", "events", about.namespace), body)
        self._writer.offer(Write(Worth.EVENT, ("event", mark), mark, "POST", JSON, lambda: request))
