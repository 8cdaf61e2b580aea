"""Traces for OpenTelemetry, where somebody asks for them: sessions with their actions, and bind requests.

Decided here: which spans there are and what they say. Off unless OTEL_TRACES_EXPORTER or an OTEL_EXPORTER_OTLP endpoint
is set and the extra `otel` is installed; sampling, endpoint and service name are those of the OTEL_ variables. Must not
know where sessions and requests come from.

    session s-000042            from the session's start; an event for each group that was placed
      allocate, reclaim, ...    one for each action, in the order in which they ran
    bind request NAME           from its first sight to its end, linked to the session; an event for each step

A session reports when it is over and for how long it ran, so its spans are made then, with the times that it had. What
is left at the end is sent if a collector takes it at once: nobody waits for a trace when a standby could lead.
"""

from __future__ import annotations

import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import structlog

from scheduler import __version__
from scheduler.model.bindrequest import BindRequest
from scheduler.model.decisions import Place

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

log = structlog.get_logger(__name__)

_ASKED_BY = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_TRACES_EXPORTER")
_REMEMBERED = 256
"""Sessions to which a bind request can still be linked, and requests that are under way at the same time."""
_EVENTS = 100
"""Groups of one session that have an event of their own."""
_LAST, _UNDONE = "after-status", "unwinding"
_SECOND = 1_000_000_000
_PATIENCE = 2.0
"""Seconds for which the end waits for a collector."""


class Tracing:
    """Makes spans of what it is told."""

    def __init__(self, provider: TracerProvider, clock: Callable[[], int] = time.time_ns) -> None:
        """clock: nanoseconds since the epoch."""
        self._provider, self._clock = provider, clock
        self._tracer = provider.get_tracer("muster", __version__)
        self._sessions: OrderedDict[str, Any] = OrderedDict()
        self._placed: tuple[str, Sequence[Place]] = ("", ())
        self._requests: OrderedDict[str, Any] = OrderedDict()

    def placed(self, session: str, places: Sequence[Place]) -> None:
        """Note what a session placed; its end is told next."""
        self._placed = (session, places)

    def session(self, session: str, seconds: Mapping[str, float]) -> None:
        """Make the spans of a session that has just ended. seconds: by action, in order, and of all ("session")."""
        from opentelemetry import trace

        end = self._clock()
        start = end - int(seconds.get("session", 0.0) * _SECOND)
        places = self._placed[1] if self._placed[0] == session else ()
        span = self._tracer.start_span(f"session {session}", start_time=start)
        span.set_attributes({"muster.session": session, "muster.groups_placed": len(places)})
        if "session" not in seconds:
            span.set_status(trace.StatusCode.ERROR, "the session raised; nothing of it was done")
        for place in places[:_EVENTS]:
            told: dict[str, str | int] = {"muster.group": place.group, "muster.pods": len(place.assignments)}
            told["muster.victims"] = len(place.victims)
            span.add_event("placed", told, timestamp=end)
        inside, at = trace.set_span_in_context(span), start
        for name, took in seconds.items():
            if name != "session":
                action = self._tracer.start_span(name, context=inside, start_time=at)
                at += int(took * _SECOND)
                action.end(at)
        span.end(end)
        self._sessions[session] = span.get_span_context()
        while len(self._sessions) > _REMEMBERED:
            self._sessions.popitem(last=False)

    def reached(self, point: str, request: BindRequest) -> None:
        """Note that the binder has come to one of its points (`binder.ports.POINTS`) with a request."""
        from opentelemetry import trace

        span = self._requests.get(request.name)
        if span is None:
            known = self._sessions.get(request.session)
            span = self._tracer.start_span(
                f"bind request {request.name}", links=[trace.Link(known)] if known is not None else []
            )
            members = sum(len(place.assignments) for place in request.gangs)
            span.set_attributes(
                {"muster.session": request.session, "muster.gangs": len(request.gangs), "muster.pods": members}
            )
            self._requests[request.name] = span
            while len(self._requests) > _REMEMBERED:
                self._requests.popitem(last=False)[1].end()
        span.add_event(point)
        if point == _UNDONE:
            span.set_status(trace.StatusCode.ERROR, "a gang was unwound")
        if point == _LAST:
            self._requests.pop(request.name).end()

    def close(self, patience: float = _PATIENCE) -> None:
        """Send what is left, if that takes no longer than `patience`, in seconds."""
        for span in self._requests.values():
            span.end()
        self._requests.clear()
        sending = threading.Thread(target=self._provider.shutdown, name="last traces", daemon=True)
        sending.start()
        sending.join(patience)
        if sending.is_alive():
            log.warning("traces_lost", why=f"the collector did not take the last ones within {patience:g} s")


def from_environment() -> Tracing | None:
    """Return what the OTEL_ variables ask for; None where they ask for nothing, or the extra is missing (logged)."""
    asked = [name for name in _ASKED_BY if os.environ.get(name)]
    exporter = os.environ.get("OTEL_TRACES_EXPORTER") or "otlp"
    if not asked or exporter == "none" or os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return None
    if exporter != "otlp":
        log.error("tracing_not_possible", asked_by="OTEL_TRACES_EXPORTER", exporter=exporter, known="otlp, none")
        return None
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import SERVICE_NAME, OTELResourceDetector, Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        log.error("tracing_not_installed", asked_by=asked[0], missing=error.name, needs="muster-scheduler[otel]")
        return None
    named = Resource({SERVICE_NAME: "muster", "service.version": __version__})
    provider = TracerProvider(resource=named.merge(OTELResourceDetector().detect()), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    log.info("tracing", asked_by=asked[0])
    return Tracing(provider)
