"""The annotation `gpushare/gpu-mem-limit`: how much a container may use while it is free. Pure.

    "8"              every container of the pod that requests GPU memory
    "train=8,side=2" by name; a container that is not named may use its request

Counted as `aliyun.com/gpu-mem`: in units, over all cards of the container. Only the request is booked.
"""

from collections.abc import Mapping
from typing import Final

from config.protocol.inventory import MAX_UNITS

_LONGEST_TEXT: Final = 4096
_EXPECTED: Final = "expected units such as 8, or container=units such as train=8,side=2"


class MemoryLimitError(ValueError):
    """An invalid limit; the message says what was found and what was expected."""


def limits(text: str, requests: Mapping[str, int]) -> dict[str, int]:
    """Return container -> units that it may use, for each container of `requests`.

    requests: container -> requested units, for the containers that request some. Raises MemoryLimitError.
    """
    if len(text) > _LONGEST_TEXT:
        raise MemoryLimitError(f"it has {len(text)} characters; expected at most {_LONGEST_TEXT}")
    if "=" not in text:
        return {name: _checked(name, _units(text), units) for name, units in requests.items()}
    found = dict(requests)
    given: set[str] = set()
    for part in text.split(","):
        name, sign, units = (word.strip() for word in part.partition("="))
        if not sign or name in given:
            raise MemoryLimitError(f"found {part.strip()[:80]!r}; {_EXPECTED}, each container once")
        if name not in requests:
            raise MemoryLimitError(f"no container {name[:80]!r} requests GPU memory")
        given.add(name)
        found[name] = _checked(name, _units(units), requests[name])
    return found


def _units(text: str) -> int:
    word = text.strip()
    if not (word.isascii() and word.isdigit()) or len(word) > len(str(MAX_UNITS)) or int(word) > MAX_UNITS:
        raise MemoryLimitError(f"found {word[:80]!r}; {_EXPECTED}")
    return int(word)


def _checked(name: str, limit: int, requested: int) -> int:
    if limit < requested:
        raise MemoryLimitError(f"container {name} requests {requested} units, more than the limit of {limit}")
    return limit
