"""What a line of the log holds."""

from __future__ import annotations

import io
import json
import logging

import pytest
import structlog

from scheduler.observe import logs


@pytest.fixture
def lines():
    """Configured for JSON into a buffer; everything is as before afterwards."""
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    buffer = io.StringIO()
    logs.configure("json", process="io", file=buffer)
    yield lambda: [json.loads(line) for line in buffer.getvalue().splitlines()]
    structlog.contextvars.clear_contextvars()
    root.handlers, root.level = handlers, level


def test_an_event_is_a_line_of_json_with_its_fields(lines):
    structlog.get_logger("muster.loop").info("config_reloaded", actions=["enqueue"])
    (line,) = lines()
    assert line["event"] == "config_reloaded"
    assert line["actions"] == ["enqueue"]
    assert (line["level"], line["logger"], line["process"]) == ("info", "muster.loop", "io")
    assert line["timestamp"].endswith("Z")


def test_lines_logged_inside_a_session_carry_its_id(lines):
    log = structlog.get_logger("x")
    with logs.session("s-000042"):
        log.info("inside")
    log.info("outside")
    inside, outside = lines()
    assert inside["session"] == "s-000042"
    assert "session" not in outside


def test_an_exception_is_one_line_with_its_trace(lines):
    try:
        raise ZeroDivisionError("by nought")
    except ZeroDivisionError:
        structlog.get_logger("x").exception("failed")
    (line,) = lines()
    assert "ZeroDivisionError: by nought" in line["exception"]


def test_the_standard_library_logs_in_the_same_form(lines):
    logging.getLogger("aiohttp.server").warning("odd %s", "thing")
    (line,) = lines()
    assert (line["event"], line["level"], line["logger"]) == ("odd thing", "warning", "aiohttp.server")


def test_debug_lines_are_left_out_unless_asked_for(lines):
    structlog.get_logger("x").debug("detail")
    assert lines() == []


def test_a_person_gets_readable_lines():
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    buffer = io.StringIO()
    logs.configure("console", file=buffer)
    try:
        structlog.get_logger("x").info("hello", group="ns/train")
        assert "hello" in buffer.getvalue()
        assert "group=ns/train" in buffer.getvalue()
    finally:
        root.handlers, root.level = handlers, level


@pytest.mark.parametrize("options", [{"form": "xml"}, {"level": "loud"}])
def test_an_unknown_form_or_level_is_refused(options):
    with pytest.raises(ValueError, match=r"xml|loud"):
        logs.configure(**options)
