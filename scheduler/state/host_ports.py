"""Which ports of which node are taken by pods on it."""

from collections import Counter
from collections.abc import Iterable
from typing import Final

from scheduler.pod import HostPort

_EVERY_ADDRESS: Final = frozenset({"", "0.0.0.0"})  # noqa: S104 - compared with, not bound to


class HostPorts:
    """Per row, host ports in use and by how many pods. Few pods ask any, so rows without are not stored."""

    def __init__(self) -> None:
        """Nothing taken."""
        self._of_row: dict[int, Counter[HostPort]] = {}

    def add(self, row: int, ports: Iterable[HostPort], sign: int) -> None:
        """Take (sign 1) or give back (sign -1) the ports of one pod."""
        taken = self._of_row.setdefault(row, Counter())
        for port in ports:
            taken[port] += sign
            if taken[port] <= 0:
                del taken[port]
        if not taken:
            del self._of_row[row]

    def clear(self, row: int) -> None:
        """Forget a row that leaves."""
        self._of_row.pop(row, None)

    def rows_in_conflict(self, wanted: Iterable[HostPort]) -> list[int]:
        """Rows where one of `wanted` is taken.

        The same protocol and port conflict when the addresses are equal or one of them is every address.
        Source: kube-scheduler, framework/types.go, HostPortInfo.CheckConflict.
        """
        ports = tuple(wanted)
        return [row for row, taken in self._of_row.items() if any(_conflicts(p, t) for p in ports for t in taken)]


def _conflicts(one: HostPort, other: HostPort) -> bool:
    same = one.port == other.port and one.protocol == other.protocol
    return same and (one.ip == other.ip or one.ip in _EVERY_ADDRESS or other.ip in _EVERY_ADDRESS)
