"""Log lines: a constant event name with fields; JSON, or colours in a terminal."""

import logging
import sys
from typing import Any, Final

import msgspec
import structlog

_LEVELS: Final = {name: getattr(logging, name.upper()) for name in ("debug", "info", "warning", "error")}


def configure(level: str, form: str) -> None:
    """Write lines of `level` (debug, info, warning, error) and above to standard error.

    form: json, console, or auto: console in a terminal, else JSON.
    """
    in_colour = form == "console" or (form == "auto" and sys.stderr.isatty())
    stamp = structlog.processors.TimeStamper(fmt="%H:%M:%S.%f" if in_colour else "iso", utc=not in_colour)
    shape: list[Any] = (
        [structlog.dev.ConsoleRenderer()]
        if in_colour
        else [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(serializer=_json)]
    )
    structlog.configure(
        processors=[structlog.processors.add_log_level, stamp, *shape],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level]),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr)
        if in_colour
        else structlog.BytesLoggerFactory(sys.stderr.buffer),
        cache_logger_on_first_use=True,
    )


def _json(document: object, **_options: object) -> bytes:
    return msgspec.json.encode(document, enc_hook=str)
