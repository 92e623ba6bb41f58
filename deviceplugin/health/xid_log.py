"""Which errors of cards get a line in the log: in a storm of them, one a minute says how many there were. Pure."""

from dataclasses import dataclass, field
from typing import Final

from deviceplugin.driver.cards import Xid

_EVERY_S: Final = 60.0


@dataclass(slots=True)
class XidLog:
    """Time of the last log line per card and error number."""

    _logged_s: dict[tuple[str, int], float] = field(default_factory=dict)
    _unlogged: dict[tuple[str, int], int] = field(default_factory=dict)

    def times(self, xid: Xid, now_s: float) -> int:
        """How many errors to log now, those that were passed over included; 0: none yet."""
        key = (xid.uuid, xid.number)
        times = self._unlogged.pop(key, 0) + xid.times
        if key in self._logged_s and 0 <= now_s - self._logged_s[key] < _EVERY_S:
            self._unlogged[key] = times
            return 0
        self._logged_s[key] = now_s
        return times
