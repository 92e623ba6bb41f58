"""Log lines: time, level, a constant event name, the pod, other fields. As JSON, or with colors in a terminal."""

import logging
import sys
from typing import Any, Final

import msgspec
import structlog
from structlog.typing import EventDict

from scheduler.process.terminal import escaped_json, one_line

_FIRST: Final = ("timestamp", "level", "event", "pod")
_TRACEBACK: Final = "exception"
_LEVELS: Final = {name: getattr(logging, name.upper()) for name in ("debug", "info", "warning", "error")}


def configure(level: str, form: str) -> None:
    """Write log lines of `level` (debug, info, warning, error) and above to standard error.

    form: json, console, or auto: console in a terminal, JSON otherwise.
    """
    in_colour = form == "console" or (form == "auto" and sys.stderr.isatty())
    stamp = structlog.processors.TimeStamper(fmt="%H:%M:%S.%f" if in_colour else "iso", utc=not in_colour)
    shape: list[Any] = (
        [_showable, structlog.dev.ConsoleRenderer(sort_keys=False, exception_formatter=structlog.dev.plain_traceback)]
        if in_colour
        else [structlog.processors.JSONRenderer(serializer=_json)]
    )
    traceback = structlog.processors.format_exc_info
    structlog.configure(
        processors=[structlog.processors.add_log_level, stamp, _in_order, traceback, *shape],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level]),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr)
        if in_colour
        else structlog.BytesLoggerFactory(sys.stderr.buffer),
        cache_logger_on_first_use=True,
    )


def configure_for_commands() -> None:
    """Write warnings and errors to standard error.

    By default, structlog would mix them into the answer on standard output.
    """
    configure(level="warning", form="auto")


def _in_order(_logger: object, _method: str, line: EventDict) -> EventDict:
    """Put the common fields first, so that lines are easy to read, cut and compare."""
    return {key: line[key] for key in _FIRST if key in line} | dict(line)


def _showable(_logger: object, _method: str, line: EventDict) -> EventDict:
    """Replace terminal control characters, before the renderer adds its colors. Indents a traceback."""
    return {
        one_line(key): "\n".join(f"  {one_line(part)}" for part in str(value).split("\n"))
        if key == _TRACEBACK
        else _shown(value)
        for key, value in line.items()
    }


def _shown(value: object) -> object:
    """Return the value for a terminal; numbers, dates and constants are unchanged, so that the renderer colors them."""
    return value if value is None or isinstance(value, int | float) else one_line(str(value))


def _json(document: object, **_options: object) -> bytes:
    return escaped_json(msgspec.json.encode(document, enc_hook=str).decode()).encode()
