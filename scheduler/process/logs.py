"""Log lines: time, level, a constant event name, the pod, other fields; JSON, or colours in a terminal."""

import logging
import sys
from typing import Any, Final

import msgspec
import structlog
from structlog.typing import EventDict

_FIRST: Final = ("timestamp", "level", "event", "pod")
_LEVELS: Final = {name: getattr(logging, name.upper()) for name in ("debug", "info", "warning", "error")}


def configure(level: str, form: str) -> None:
    """Write lines of `level` (debug, info, warning, error) and above to standard error.

    form: json, console, or auto: console in a terminal, else JSON.
    """
    in_colour = form == "console" or (form == "auto" and sys.stderr.isatty())
    stamp = structlog.processors.TimeStamper(fmt="%H:%M:%S.%f" if in_colour else "iso", utc=not in_colour)
    shape: list[Any] = (
        [structlog.dev.ConsoleRenderer(sort_keys=False)]
        if in_colour
        else [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(serializer=_json)]
    )
    structlog.configure(
        processors=[structlog.processors.add_log_level, stamp, _in_order, *shape],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level]),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr)
        if in_colour
        else structlog.BytesLoggerFactory(sys.stderr.buffer),
        cache_logger_on_first_use=True,
    )


def _in_order(_logger: object, _method: str, line: EventDict) -> EventDict:
    """What every line has comes first, so that lines can be read, cut and compared by eye."""
    return {key: line[key] for key in _FIRST if key in line} | dict(line)


def _json(document: object, **_options: object) -> bytes:
    return msgspec.json.encode(document, enc_hook=str)
