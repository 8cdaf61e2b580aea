"""How logs look: events with fields, one a line on standard error, as JSON or for a person's eyes.

Decided here: the form and where it goes. Invariant: a line that was logged inside `session` carries the session's id.
Records of the standard library's logging take the same form.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO

import structlog
from structlog.typing import Processor

FORMATS = ("auto", "json", "console")


class _Logger(structlog.WriteLogger):
    """Writes whole lines in one call, and knows its name."""

    def __init__(self, file: TextIO, name: str) -> None:
        super().__init__(file)
        self.name = name


class _Factory:
    def __init__(self, file: TextIO) -> None:
        self._file = file

    def __call__(self, *args: Any) -> _Logger:
        return _Logger(self._file, str(args[0]) if args else "")


def _add_name(logger: Any, _method: str, event: Any) -> Any:
    record = event.get("_record")  # of the standard library's logging, whose logger is not passed on
    name = getattr(logger, "name", "") if record is None else record.name
    if name:
        event.setdefault("logger", name)
    return event


def configure(form: str = "auto", *, level: str = "info", process: str = "", file: TextIO | None = None) -> None:
    """Set up logging for this process.

    form: "json", "console", or "auto" (console on a terminal). process: a name that every line carries ("brain").
    Raises ValueError for another form or level.
    """
    if form not in FORMATS:
        raise ValueError(f"log format {form!r} is not one of {', '.join(FORMATS)}")
    number = logging.getLevelNamesMapping().get(level.upper())
    if number is None:
        raise ValueError(f"log level {level!r} is unknown")
    out = file if file is not None else sys.stderr
    as_json = form == "json" or (form == "auto" and not out.isatty())
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        _add_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    last: list[Processor]
    if as_json:
        last = [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(default=repr)]
    else:
        last = [structlog.dev.ConsoleRenderer(colors=out.isatty())]
    structlog.contextvars.clear_contextvars()
    if process:
        structlog.contextvars.bind_contextvars(process=process)
    structlog.configure(
        processors=[*shared, *last],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=_Factory(out),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(out)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared, processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *last]
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(max(number, logging.WARNING))


@contextmanager
def session(session_id: str) -> Iterator[None]:
    """Let every line that is logged meanwhile carry the session's id."""
    with structlog.contextvars.bound_contextvars(session=session_id):
        yield
