"""One log line for many events of the same kind, with how many it stands for."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Final

from cachetools import LRUCache

# The same again, and another reason for the same key.
_SAME_S: Final = 300.0
_OTHER_S: Final = 30.0
_REMEMBERED: Final = 4096


@dataclass(slots=True)
class _Line:
    reason: str
    logged_s: float
    since: int


class Tally:
    """Counts by key. Remembers the newest 4,096 keys; reasons, which others write, are no keys."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        """now_s: monotonic seconds."""
        self._now_s = now_s
        self._lines: LRUCache[Hashable, _Line] = LRUCache(maxsize=_REMEMBERED)

    def count(self, key: Hashable, reason: str) -> int:
        """Count one; return how many a line stands for that is to be last now, 0: say nothing.

        The first is last at once, the same again every 5 minutes, another reason after 30 s.
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
