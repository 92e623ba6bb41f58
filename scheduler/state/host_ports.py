"""Which ports of which node are taken by pods on it."""

from collections import Counter
from collections.abc import Collection, Iterable
from typing import Final

from scheduler.pods.pod import HostPort
from scheduler.state.arrays import BoolArray, Rows
from scheduler.state.row_masks import mask_of

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

    def in_conflict(self, wanted: Collection[HostPort], rows: Rows, capacity: int) -> BoolArray:
        """bool[rows]: one of `wanted` is taken there. capacity: of the tables.

        The same protocol and port conflict when the addresses are equal or one of them is every address.
        Source: kube-scheduler, framework/types.go, HostPortInfo.CheckConflict.
        """
        judged = self._of_row if isinstance(rows, slice) else [row for row in rows.tolist() if row in self._of_row]
        found = [row for row in judged if any(_conflicts(p, taken) for p in wanted for taken in self._of_row[row])]
        return mask_of(found, rows, capacity)


def _conflicts(one: HostPort, other: HostPort) -> bool:
    same = one.port == other.port and one.protocol == other.protocol
    return same and (one.ip == other.ip or one.ip in _EVERY_ADDRESS or other.ip in _EVERY_ADDRESS)
