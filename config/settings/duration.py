"""Durations in Kubernetes' notation ("4s", "500ms", "1m30s"), or as a number of seconds. Pure.

Source: Go's time.ParseDuration and metav1.Duration; a number without a unit is our addition.
"""

import math
import re
from typing import Annotated, Final, TypeAlias

from pydantic import BeforeValidator

_UNITS: Final = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_NUMBER: Final = r"(?:[0-9]{1,18}(?:\.[0-9]{0,18})?|\.[0-9]{1,18})"
_PART: Final = re.compile(rf"({_NUMBER})({'|'.join(_UNITS)})")
_WHOLE: Final = re.compile(rf"(?:{_PART.pattern})+")
# The largest number with 18 digits; an int has no maximum, but a float does.
_TOO_LONG_S: Final = 10**18
_BARE: Final = re.compile(_NUMBER)


def seconds(value: object) -> float:
    """Return the duration in seconds, finite and >= 0.

    value: Go-style text, a number of seconds, or such a number as text (the environment has only text).
    Raises ValueError for anything else.
    """
    if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < _TOO_LONG_S:
        return float(value)
    if isinstance(value, str) and _BARE.fullmatch(value):
        return float(value)
    if isinstance(value, str) and _WHOLE.fullmatch(value):
        return math.fsum(float(number) * _UNITS[unit] for number, unit in _PART.findall(value))
    # For a mapping, name only its type: it may contain a token.
    found = "a mapping" if isinstance(value, dict) else repr(str(value)[:64])
    raise ValueError(f"expected a duration such as 500ms, 4s or 1m30s, or a number of seconds, found {found}")


def text(duration_s: float) -> str:
    """Return the duration in whole units, largest first: 90.0 -> `1m30s`, 0.5 -> `500ms`.

    duration_s: >= 0; rounded to milliseconds.
    """
    millis = round(duration_s * 1000)
    parts = []
    for unit, size in (("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)):
        count, millis = divmod(millis, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"


Seconds: TypeAlias = Annotated[float, BeforeValidator(seconds)]
