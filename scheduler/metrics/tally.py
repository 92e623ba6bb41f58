"""One log line for many events of the same kind, with their number."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Final

from cachetools import LRUCache

# Interval between lines of the same reason, and of another reason for the same key.
_SAME_S: Final = 300.0
_OTHER_S: Final = 30.0
_REMEMBERED: Final = 4096


@dataclass(slots=True)
class _Line:
    reason: str
    logged_s: float
    since: int


class Tally:
    """Counts by key. Remembers the newest 4,096 keys. Reasons come from others, so they are not keys."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        """now_s: monotonic seconds."""
        self._now_s = now_s
        self._lines: LRUCache[Hashable, _Line] = LRUCache(maxsize=_REMEMBERED)

    def count(self, key: Hashable, reason: str) -> int:
        """Count one event. Returns how many events the line to log now stands for; 0: log nothing.

        The first is logged at once, the same reason again every 5 minutes, another reason after 30 s.
        """
        now_s, last = self._now_s(), self._lines.get(key)
        if last is None:
            self._lines[key] = _Line(reason, now_s, 0)
            return 1
        last.since += 1
        if now_s - last.logged_s < (_SAME_S if reason == last.reason else _OTHER_S):
            return 0
        number, last.reason, last.logged_s, last.since = last.since, reason, now_s, 0
        return number
