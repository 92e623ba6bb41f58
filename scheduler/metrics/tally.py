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
class _Said:
    reason: str
    said_s: float
    since: int


class Tally:
    """Counts by key. Remembers the newest 4,096 keys; reasons, which others write, are no keys."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        """now_s: monotonic seconds."""
        self._now_s = now_s
        self._said: LRUCache[Hashable, _Said] = LRUCache(maxsize=_REMEMBERED)

    def count(self, key: Hashable, reason: str) -> int:
        """Count one; return how many a line stands for that is to be said now, 0: say nothing.

        The first is said at once, the same again every 5 minutes, another reason after 30 s.
        """
        now_s, said = self._now_s(), self._said.get(key)
        if said is None:
            self._said[key] = _Said(reason, now_s, 0)
            return 1
        said.since += 1
        if now_s - said.said_s < (_SAME_S if reason == said.reason else _OTHER_S):
            return 0
        number, said.reason, said.said_s, said.since = said.since, reason, now_s, 0
        return number
