"""Spans of sessions and bind requests, and when there are any."""

from __future__ import annotations

import http.server
import sys
import threading
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from scheduler.model.bindrequest import BindRequest
from scheduler.model.decisions import Place
from scheduler.observe import tracing
from scheduler.observe.tracing import Tracing

PLACE = Place("default/train", "u", "default", "train", "v1", "PodGroup", 4, ())
REQUEST = BindRequest("s-1-abc", "uid", "s-000001", 7, 0.0, (PLACE,))
NOW = 1_000_000_000_000


@pytest.fixture
def spans() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def traced(spans: InMemorySpanExporter) -> Tracing:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    return Tracing(provider, clock=lambda: NOW)


def test_a_session_holds_its_actions_one_after_the_other(traced: Tracing, spans: InMemorySpanExporter):
    traced.placed("s-000001", [PLACE])
    traced.session("s-000001", {"enqueue": 0.25, "allocate": 0.5, "session": 1.0})
    enqueue, allocate, session = spans.get_finished_spans()
    assert (session.name, session.start_time, session.end_time) == ("session s-000001", NOW - 10**9, NOW)
    assert (enqueue.name, enqueue.start_time, enqueue.end_time) == ("enqueue", NOW - 10**9, NOW - 75 * 10**7)
    assert (allocate.name, allocate.start_time, allocate.end_time) == ("allocate", NOW - 75 * 10**7, NOW - 25 * 10**7)
    assert {one.parent.span_id for one in (enqueue, allocate) if one.parent} == {session.context.span_id}
    [event] = session.events
    assert (event.name, dict(event.attributes or {})["muster.group"]) == ("placed", "default/train")


def test_a_session_that_raised_is_an_error_and_has_not_the_places_of_another(
    traced: Tracing, spans: InMemorySpanExporter
):
    traced.placed("s-000001", [PLACE])
    traced.session("s-000002", {})
    [session] = spans.get_finished_spans()
    assert session.status.status_code is StatusCode.ERROR
    assert session.events == ()


def test_a_bind_request_is_linked_to_its_session_and_ends_with_its_status(traced: Tracing, spans: InMemorySpanExporter):
    traced.session("s-000001", {"session": 0.1})
    [session] = spans.get_finished_spans()
    for point in ("received", "after-first-bind", "unwinding"):
        traced.reached(point, REQUEST)
    assert len(spans.get_finished_spans()) == 1
    traced.reached("after-status", REQUEST)
    request = spans.get_finished_spans()[1]
    assert [event.name for event in request.events] == ["received", "after-first-bind", "unwinding", "after-status"]
    assert [link.context for link in request.links] == [session.context]
    assert request.status.status_code is StatusCode.ERROR


def test_what_never_ends_does_not_pile_up(traced: Tracing, spans: InMemorySpanExporter):
    for number in range(1000):
        traced.session(f"s-{number}", {"session": 0.0})
        traced.reached("received", BindRequest(f"r-{number}", "", f"s-{number}", 1, 0.0, ()))
    assert len(traced._sessions) == len(traced._requests) == tracing._REMEMBERED
    traced.close()
    assert sum(span.name.startswith("bind request") for span in spans.get_finished_spans()) == 1000


@pytest.fixture
def quiet(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in (*tracing._ASKED_BY, "OTEL_SDK_DISABLED"):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


def test_nobody_asks(quiet: pytest.MonkeyPatch):
    assert tracing.from_environment() is None
    quiet.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    quiet.setenv("OTEL_TRACES_EXPORTER", "none")
    assert tracing.from_environment() is None


def test_who_asks_without_the_extra_is_told(quiet: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    quiet.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    quiet.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    assert tracing.from_environment() is None
    told = capsys.readouterr()
    assert "tracing_not_installed" in told.out + told.err


@pytest.mark.parametrize("exporter", ["console", "otlp,console"])
def test_who_asks_for_another_exporter_is_told(
    quiet: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], exporter: str
):
    quiet.setenv("OTEL_TRACES_EXPORTER", exporter)
    assert tracing.from_environment() is None
    told = capsys.readouterr()
    assert f"exporter={exporter}" in (told.out + told.err).replace("'", "").replace('"', "")


def test_a_collector_that_takes_nothing_does_not_hold_the_end(capsys: pytest.CaptureFixture[str]):
    class Stuck(TracerProvider):
        def shutdown(self) -> None:
            never.wait()

    never = threading.Event()
    Tracing(Stuck()).close(patience=0.01)
    told = capsys.readouterr()
    never.set()
    assert "traces_lost" in told.out + told.err


def test_spans_reach_a_collector(quiet: pytest.MonkeyPatch):
    bodies: list[bytes] = []

    class Collector(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Collector) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        quiet.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
        quiet.setenv("OTEL_SERVICE_NAME", "gangs")
        made = tracing.from_environment()
        assert made is not None
        made.session("s-000001", {"allocate": 0.1, "session": 0.2})
        made.close()
        server.shutdown()
    [sent] = [ExportTraceServiceRequest.FromString(body).resource_spans[0] for body in bodies]
    assert {one.key: one.value.string_value for one in sent.resource.attributes}["service.name"] == "gangs"
    assert {span.name for span in sent.scope_spans[0].spans} == {"session s-000001", "allocate"}
